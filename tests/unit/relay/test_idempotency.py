"""The same request is the same call, while it runs and for ten minutes after."""

from collections.abc import Callable

import msgspec
import pytest

from ringline.protocol.frames import CallRequest
from ringline.relay.effects import Retire, Send
from ringline_testing.exchange import (
    START,
    Exchange,
    Register,
    call_error,
    envelope,
    incoming,
    number,
    outcome,
    rejected,
    request,
    sent_to,
    status,
)

LIFE = 600_000


def test_a_repeat_on_an_attached_connection_hears_no_status_and_one_end() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    for _ in range(3):
        assert x.send(alice, request()) == []
    assert x.send(bob, outcome(call)) == [Send(alice, outcome(call)), Retire(call)]


def test_a_repeat_after_the_end_gets_the_end_and_on_a_new_connection_a_status_before() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    call = x.finish(alice, request())
    assert x.send(alice, request()) == [Send(alice, outcome(call))]
    other = x.caller()
    assert x.send(other, request()) == [
        Send(other, status(call, request(), "working")),
        Send(other, outcome(call)),
    ]
    assert x.send(other, request()) == [Send(other, outcome(call))]


def test_the_status_of_a_repeat_is_the_last_one_there_was() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    x.send(bob, rejected(call))
    other = x.caller()
    assert x.send(other, request()) == [
        Send(other, status(call, request(), "ringing")),
        Send(other, call_error("protocol_error", request(), call_id=call)),
    ]


def test_an_end_that_went_into_a_broken_connection_is_sent_again_on_the_next() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.send(bob, outcome(call))  # the relay cannot know whether it was read
    x.lose(alice)
    alice = x.caller()
    assert sent_to(alice, x.send(alice, request())) == [status(call, request(), "working"), outcome(call)]


def test_a_repeat_is_free_and_takes_no_place_and_no_turn() -> None:
    x = Exchange({"CALLS_PER_HOUR": 2, "TURNS": 2, "CALLER_PLACES_PERCENT": 0})
    bob, alice = x.listener(capacity=1), x.caller()
    call = x.begin(alice, request())
    for _ in range(50):
        assert x.send(alice, request()) == []
    x.send(bob, outcome(call, "failed"))
    for _ in range(5):
        assert len(x.send(alice, request())) == 1
    assert len(x.send(alice, request(1, 2))) == 2


def test_fifty_at_once_are_one_call() -> None:
    x = Exchange()
    bob = x.listener(capacity=100)
    connections = [x.caller() for _ in range(50)]
    effects = [effect for connection in connections for effect in x.send(connection, request())]
    assert sent_to(bob, effects) == [incoming("call-1", request())]
    ends = x.send(bob, outcome("call-1", "failed"))
    assert ends == [*(Send(c, outcome("call-1", "failed")) for c in connections), Retire("call-1")]


CHANGES: dict[str, Callable[[CallRequest], CallRequest]] = {
    "another sealing": lambda ask: msgspec.structs.replace(ask, envelope=envelope(ct="b3RoZXI")),
    "another correlation id": lambda ask: msgspec.structs.replace(ask, correlation_id=number(9)),
    "another mode": lambda ask: msgspec.structs.replace(ask, delivery_mode="durable"),
}


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("ended", [False, True])
def test_anything_else_under_the_same_key_is_refused_for_free_and_changes_nothing(
    kind: str, ended: bool
) -> None:
    x = Exchange({"CALLS_PER_HOUR": 2, "TURNS": 0})
    bob, alice = x.listener(), x.caller()
    call = x.finish(alice, request()) if ended else x.begin(alice, request(), until="working")
    other = CHANGES[kind](request())
    for _ in range(3):
        assert x.send(alice, other) == [Send(alice, call_error("protocol_error", other))]
    if ended:
        assert x.send(alice, request()) == [Send(alice, outcome(call))]
    else:
        assert x.send(bob, outcome(call)) == [Send(alice, outcome(call)), Retire(call)]
    assert len(x.send(alice, request(2, 2))) == 2


def test_a_stated_sync_mode_is_the_same_as_none() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    x.begin(alice, request())
    assert x.send(alice, request(mode="sync")) == []


def test_the_key_is_caller_callee_and_message() -> None:
    x = Exchange({"CALLS_PER_HOUR": 0, "CALLS_PER_PAIR_PER_HOUR": 0})
    bob, cyd = x.listener("bob"), x.listener("cyd")
    alice, eve = x.caller("alice", "bob"), x.caller("eve", "bob")
    mine = x.begin(alice, request())
    # Another's use of the same id, guessed or not, neither sees this call nor disturbs it.
    other = request(sealed=envelope(ct="ZXZl"))
    theirs = x.begin(eve, other)
    elsewhere = x.caller("alice", "cyd")
    third = x.begin(elsewhere, request())
    assert len({mine, theirs, third}) == 3
    assert x.send(bob, outcome(theirs, "failed")) == [Send(eve, outcome(theirs, "failed")), Retire(theirs)]
    assert x.send(cyd, outcome(third, "failed")) == [Send(elsewhere, outcome(third, "failed")), Retire(third)]


def test_requests_without_message_id_are_calls_of_their_own() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    ask = request(1, None)
    assert sent_to(bob, x.send(alice, ask)) == [incoming("call-1", ask)]
    assert sent_to(bob, x.send(alice, ask)) == [incoming("call-2", ask)]


def test_a_known_call_is_answered_whatever_has_become_of_the_right_to_call() -> None:
    x = Exchange({"CALLS_PER_HOUR": 1}, Register())
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(sealed=envelope(life=1_000)), until="working")
    x.register.unreachable.add(("alice", "bob"))
    x.register.invalid.add(("alice", "A" * 43))
    x.wait(200_000)
    again = x.caller()
    ask = request(sealed=envelope(life=1_000))
    assert x.send(again, ask) == [Send(again, status(call, ask, "working"))]
    assert len(x.send(bob, outcome(call))) == 3


def test_something_else_under_a_known_key_is_wrong_even_if_it_is_older_than_the_relay() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    x.begin(alice, request())
    old = request(sealed=envelope(iat=START.wall - 1))
    assert x.send(alice, old) == [Send(alice, call_error("protocol_error", old))]


# --- the record's life


def test_a_record_answers_repeats_for_ten_minutes_after_the_end() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    ask = request(sealed=envelope(life=2 * LIFE))
    call = x.begin(alice, ask, until="working")
    x.wait(100_000)
    x.send(bob, outcome(call))
    x.wait(LIFE - 1)
    assert x.send(alice, ask) == [Send(alice, outcome(call))]
    x.wait(1)
    assert sent_to(bob, x.send(alice, ask)) == [incoming("call-2", ask)]
    assert x.hub.record("alice", call, x.now) is None


def test_the_oldest_records_make_room_when_there_are_too_many() -> None:
    x = Exchange({"RECORDS": 2, "TURNS": 0})
    bob, alice = x.listener(), x.caller()
    calls = [x.begin(alice, request(n, n), until="working") for n in (1, 2)]
    # In the order of their ends, not of their beginnings.
    for call in reversed(calls):
        x.send(bob, outcome(call))
    x.finish(alice, request(3, 3))
    assert x.send(alice, request(1, 1)) == [Send(alice, outcome(calls[0]))]
    assert sent_to(bob, x.send(alice, request(2, 2))) == [incoming("call-4", request(2, 2))]
    assert x.hub.snapshot()["now_records"] == 2


def test_unfinished_calls_never_make_room() -> None:
    x = Exchange({"RECORDS": 1, "CALLER_PLACES_PERCENT": 0})
    bob, alice = x.listener(capacity=10), x.caller()
    running = x.begin(alice, request(1, 1), until="working")
    for n in range(2, 6):
        x.finish(alice, request(n, n))
    assert x.send(bob, outcome(running)) == [Send(alice, outcome(running)), Retire(running)]


def test_outcomes_are_kept_up_to_a_number_of_bytes_and_the_oldest_make_room() -> None:
    x = Exchange({"RECORD_OUTCOME_BYTES": 25_000, "TURNS": 0})
    bob, alice = x.listener(), x.caller()
    for n in (1, 2, 3):
        call = x.begin(alice, request(n, n), until="working")
        assert len(x.send(bob, outcome(call, ct="A" * 10_000))) == 2
    assert x.hub.snapshot()["now_outcome_bytes"] <= 25_000
    # The first one's outcome is gone, and this repeat admits nothing; its record is not gone.
    assert x.send(alice, request(1, 1)) == [Send(alice, call_error("timeout", request(1, 1)))]
    assert x.state("call-1") == "completed"
    for n in (2, 3):
        assert x.send(alice, request(n, n)) == [Send(alice, outcome(f"call-{n}", ct="A" * 10_000))]


def test_a_new_connection_hears_no_status_of_a_call_whose_outcome_is_gone() -> None:
    x = Exchange({"RECORD_OUTCOME_BYTES": 0})
    x.listener()
    alice = x.caller()
    x.finish(alice, request())
    other = x.caller()
    assert x.send(other, request()) == [Send(other, call_error("timeout", request()))]


def test_an_outcome_too_large_to_keep_is_delivered_all_the_same() -> None:
    x = Exchange({"RECORD_OUTCOME_BYTES": 1_000})
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    large = outcome(call, ct="A" * 10_000)
    assert x.send(bob, large) == [Send(alice, large), Retire(call)]
    assert x.hub.snapshot()["now_outcome_bytes"] == 0


def test_the_memory_of_outcomes_is_given_back_with_their_records() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    x.finish(alice, request())
    assert x.hub.snapshot()["now_outcome_bytes"] > 0
    x.wait(LIFE)
    assert x.hub.snapshot()["now_outcome_bytes"] == 0
    assert x.hub.snapshot()["now_records"] == 0


def test_errors_are_told_again_as_long_as_the_record_lives_however_little_room_there_is() -> None:
    x = Exchange({"RECORD_OUTCOME_BYTES": 0})
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    x.wait(30_000)
    end = call_error("timeout", request(), call_id=call)
    for _ in range(40):
        assert x.send(alice, request()) == [Send(alice, end)]
    assert bob == 1


# --- how often an outcome is sent


def test_an_outcome_is_sent_again_at_most_ten_times() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    call = x.finish(alice, request())
    for _ in range(10):
        assert x.send(alice, request()) == [Send(alice, outcome(call))]
    assert x.send(alice, request()) == [Send(alice, call_error("rate_limited", request()))]
    other = x.caller()
    assert x.send(other, request()) == [Send(other, call_error("rate_limited", request()))]


def test_readings_of_the_record_are_sendings_too_and_then_show_no_outcome() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    call = x.finish(alice, request())
    for _ in range(10):
        record = x.hub.record("alice", call, x.now)
        assert record is not None
        assert record.outcome is not None
    record = x.hub.record("alice", call, x.now)
    assert record is not None
    assert (record.state, record.outcome) == ("completed", None)
    assert x.send(alice, request()) == [Send(alice, call_error("rate_limited", request()))]


def test_neither_the_callee_nor_a_list_uses_up_the_sendings() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    call = x.finish(alice, request())
    for _ in range(20):
        x.hub.record("bob", call, x.now)
        x.hub.record("eve", call, x.now)
        x.hub.records("alice", "caller", None, None, 10, x.now)
    assert x.send(alice, request()) == [Send(alice, outcome(call))]


def test_the_limit_of_sendings_can_be_off() -> None:
    x = Exchange({"OUTCOME_RESENDS": 0})
    x.listener()
    alice = x.caller()
    call = x.finish(alice, request())
    for _ in range(50):
        assert x.send(alice, request()) == [Send(alice, outcome(call))]
