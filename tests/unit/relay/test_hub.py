"""Records, parties, credentials, stopping, and what the hub tells of itself."""

import msgspec
import pytest

from ringline.protocol.shapes import CallList, CallRecord
from ringline.relay.effects import CancelAnswer, Close, Decided, Retire, Send
from ringline_testing.exchange import (
    CARD,
    OLD_CARD,
    Exchange,
    Register,
    call_error,
    cancel,
    cancelled,
    envelope,
    incoming,
    number,
    outcome,
    request,
    sent_to,
    status,
)

FAREWELL = "retry=2000"


def ids(page: CallList) -> list[str]:
    return [call.call_id for call in page.calls]


# --- records


def test_a_record_has_every_member_and_says_what_is_known() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    submitted = x.now.wall
    call = x.begin(alice, request())
    blank = CallRecord(
        call_id=call,
        from_="alice",
        to="bob",
        mode="sync",
        state="ringing",
        terminal_reason=None,
        message_id=number(1),
        correlation_id=number(1),
        submitted_at=submitted,
        expires_at=None,
        started_at=None,
        finished_at=None,
        attempts=0,
        deferred_until=None,
        cancel_requested=False,
        outcome=None,
    )
    assert x.hub.record("alice", call, x.now) == blank
    x.wait(1_000)
    x.send(bob, msgspec.structs.replace(outcome(call, "failed"), terminal_reason="indeterminate_execution"))
    record = x.hub.record("alice", call, x.now)
    assert record is not None
    assert (record.state, record.terminal_reason) == ("indeterminate_execution", "indeterminate_execution")
    assert record.finished_at == submitted + 1_000
    assert record.outcome is not None
    assert record.outcome.envelope == outcome(call).envelope
    assert record.outcome.terminal == "failed"
    assert len(msgspec.to_builtins(record)) == 16


def test_a_record_is_for_the_two_sides_of_its_call_and_its_outcome_for_the_caller() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    call = x.finish(alice, request())
    mine, theirs = x.hub.record("alice", call, x.now), x.hub.record("bob", call, x.now)
    assert mine is not None
    assert mine.outcome is not None
    assert theirs == msgspec.structs.replace(mine, outcome=None)
    assert x.hub.record("eve", call, x.now) is None
    assert x.hub.record("alice", "no-such-call", x.now) is None


def test_a_record_without_message_id_says_so() -> None:
    x = Exchange()
    x.listener()
    call = x.begin(x.caller(), request(1, None))
    record = x.hub.record("bob", call, x.now)
    assert record is not None
    assert record.message_id is None


def test_lists_are_newest_first_by_role_and_have_no_outcomes() -> None:
    x = Exchange()
    x.listener("bob")
    x.listener("alice", "two")
    alice, back = x.caller("alice", "bob"), x.caller("bob", "alice")
    first, second = x.finish(alice, request(1, 1)), x.finish(back, request(2, 2))
    third = x.finish(alice, request(3, 3))
    assert ids(x.hub.records("alice", "caller", None, None, 10, x.now)) == [third, first]
    assert ids(x.hub.records("alice", "callee", None, None, 10, x.now)) == [second]
    assert ids(x.hub.records("bob", "callee", None, None, 10, x.now)) == [third, first]
    assert ids(x.hub.records("eve", "caller", None, None, 10, x.now)) == []
    assert all(call.outcome is None for call in x.hub.records("alice", "caller", None, None, 10, x.now).calls)


def test_a_list_is_read_page_by_page() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    calls = [x.finish(alice, request(n, n)) for n in range(1, 8)]
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(10):
        page = x.hub.records("alice", "caller", None, cursor, 3, x.now)
        seen += ids(page)
        if page.next is None:
            break
        cursor = page.next
    assert seen == calls[::-1]


def test_a_page_is_not_disturbed_by_new_calls_or_forgotten_ones() -> None:
    x = Exchange({"RECORD_LIFE_MS": 1_000})
    x.listener()
    alice = x.caller()
    calls: list[str] = []
    for n in range(1, 8):
        calls.append(x.finish(alice, request(n, n)))
        x.wait(100)
    page = x.hub.records("alice", "caller", None, None, 2, x.now)
    assert ids(page) == [calls[6], calls[5]]
    x.finish(alice, request(20, 20))
    x.wait(450)  # the first two are forgotten
    assert page.next is not None
    page = x.hub.records("alice", "caller", None, page.next, 10, x.now)
    assert ids(page) == calls[4:1:-1]
    assert page.next is None or ids(x.hub.records("alice", "caller", None, page.next, 10, x.now)) == []


def test_a_list_can_be_of_one_state() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    done, running = x.finish(alice, request(1, 1)), x.begin(alice, request(2, 2), until="working")
    assert ids(x.hub.records("alice", "caller", "completed", None, 10, x.now)) == [done]
    assert ids(x.hub.records("alice", "caller", "started", None, 10, x.now)) == [running]
    assert ids(x.hub.records("alice", "caller", "queued", None, 10, x.now)) == []


def test_cursors_do_not_tell_how_many_calls_others_make() -> None:
    x = Exchange({"CALLS_PER_HOUR": 0, "CALLS_PER_PAIR_PER_HOUR": 0})
    x.listener()
    cyd = x.caller("cyd")
    for n in range(1, 50):
        x.finish(cyd, request(n, n))
    alice = x.caller()
    for n in range(1, 4):
        x.finish(alice, request(n, n))
    page = x.hub.records("alice", "caller", None, None, 1, x.now)
    assert page.next is not None
    assert int(page.next) <= 3


def test_a_rare_state_is_looked_for_a_bounded_way() -> None:
    x = Exchange({"CALLS_PER_HOUR": 0, "CALLS_PER_PAIR_PER_HOUR": 0, "FRAMES_PER_SECOND": 0})
    bob, alice = x.listener(), x.caller()
    rare = x.begin(alice, request(1, 1))
    x.send(bob, outcome(rare, "failed"))
    for n in range(2, 1_503):
        x.finish(alice, request(n, n))
    first = x.hub.records("alice", "caller", "failed", None, 10, x.now)
    assert (ids(first), first.next is None) == ([], False)
    assert first.next is not None
    assert ids(x.hub.records("alice", "caller", "failed", first.next, 10, x.now)) == [rare]


def test_an_acknowledged_outcome_is_forgotten_and_its_record_is_not() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    running = x.begin(alice, request(2, 2))
    call = x.finish(alice, request())
    assert x.hub.acknowledge("alice", running, x.now) == "running"
    assert x.hub.acknowledge("bob", call, x.now) == "missing"
    assert x.hub.acknowledge("alice", "no-such-call", x.now) == "missing"
    assert x.hub.acknowledge("alice", call, x.now) == "acknowledged"
    assert x.hub.acknowledge("alice", call, x.now) == "acknowledged"
    record = x.hub.record("alice", call, x.now)
    assert record is not None
    assert (record.state, record.outcome) == ("completed", None)
    assert x.send(alice, request()) == [Send(alice, call_error("timeout", request()))]
    assert x.hub.snapshot()["now_outcome_bytes"] == 0


# --- parties


def test_the_two_sides_of_a_call_are_parties_for_ninety_six_hours() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    assert not x.hub.parties("alice", "bob", x.now)
    x.finish(alice, request())
    assert x.hub.parties("alice", "bob", x.now)
    assert x.hub.parties("bob", "alice", x.now)
    assert not x.hub.parties("alice", "eve", x.now)
    x.wait(96 * 3_600_000 - 1)
    assert x.hub.parties("alice", "bob", x.now)
    x.wait(1)
    assert not x.hub.parties("alice", "bob", x.now)


def test_a_later_call_makes_them_parties_for_longer() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    x.finish(alice, request())
    x.wait(3_600_000)
    x.finish(alice, request(2, 2, sealed=envelope(iat=x.now.wall)))
    x.wait(96 * 3_600_000 - 1)
    assert x.hub.parties("alice", "bob", x.now)


def test_a_refused_request_makes_nobody_a_party() -> None:
    x = Exchange(register=Register(unreachable={("eve", "bob")}))
    x.listener()
    x.send(x.caller("eve"), request())
    x.send(x.caller("alice", "nobody"), request())
    assert not x.hub.parties("eve", "bob", x.now)
    assert not x.hub.parties("alice", "nobody", x.now)


def test_the_memory_of_parties_is_bounded() -> None:
    x = Exchange({"PARTIES": 2})
    x.listener(capacity=100)
    for name in ("ann", "ben", "cyd"):
        x.send(x.caller(name), request())
        x.wait(1)
    assert [x.hub.parties(name, "bob", x.now) for name in ("ann", "ben", "cyd")] == [False, True, True]


# --- credentials


def test_a_revoked_card_closes_its_connections_in_both_roles_and_no_others() -> None:
    x = Exchange()
    listening = x.listener("bob", "one", card=OLD_CARD)
    calling, newer = x.caller("bob", "eve", OLD_CARD), x.caller("bob", "eve", CARD)
    namesake = x.caller("cyd", "bob", OLD_CARD)
    assert x.hub.revoke("bob", OLD_CARD, x.now) == [
        Close(listening, 4001, "revoked"),
        Close(calling, 4001, "revoked"),
    ]
    assert x.hub.revoke("bob", OLD_CARD, x.now) == []
    assert x.send(calling, request()) == []
    assert len(x.send(newer, request())) == 1
    assert x.send(namesake, request()) == [Send(namesake, call_error("offline", request()))]


def test_calls_of_a_revoked_connection_have_the_grace_and_the_hold_of_any_loss() -> None:
    x = Exchange()
    bob, alice = x.listener("bob", "one", card=OLD_CARD), x.caller("alice", "bob", OLD_CARD)
    call = x.begin(alice, request(), until="working")
    assert x.hub.revoke("bob", OLD_CARD, x.now) == [Close(bob, 4001, "revoked")]
    assert x.lose(bob) == []
    bob, effects = x.join("bob", "one", card=CARD)
    assert effects == [Send(bob, incoming(call, request()))]
    assert x.hub.revoke("alice", OLD_CARD, x.now) == [Close(alice, 4001, "revoked")]
    assert x.lose(alice) == []
    assert x.wait(30_000) == [Send(bob, cancel(call))]


def test_a_card_that_no_longer_logs_in_sends_its_connections_away_to_come_back() -> None:
    x = Exchange()
    old, new = x.caller("alice", "bob", OLD_CARD), x.caller("alice", "bob", CARD)
    assert x.hub.close_card("alice", OLD_CARD, x.now) == [Close(old, 1001, "retry=0")]
    assert x.send(new, request()) != []


# --- stopping


def test_an_idle_hub_closes_everything_at_once_when_it_stops() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    assert not x.hub.drained()
    assert x.hub.drain(x.now) == [Close(bob, 1001, FAREWELL), Close(alice, 1001, FAREWELL)]
    assert x.hub.drained()
    assert x.hub.drain(x.now) == []


def test_running_calls_finish_and_their_connections_follow() -> None:
    x = Exchange()
    bob, alice, idle = x.listener(), x.caller(), x.caller("cyd")
    call, other = (x.begin(alice, request(n, n), until="working") for n in (1, 2))
    assert x.hub.drain(x.now) == [Close(idle, 1001, FAREWELL)]
    assert not x.hub.drained()
    assert x.send(bob, outcome(call)) == [Send(alice, outcome(call)), Retire(call)]
    assert x.send(bob, outcome(other)) == [
        Send(alice, outcome(other)),
        Retire(other),
        Close(alice, 1001, FAREWELL),
        Close(bob, 1001, FAREWELL),
    ]
    assert x.hub.drained()


def test_a_stopping_hub_takes_no_new_calls_and_still_knows_the_old_ones() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.hub.drain(x.now)
    assert x.send(alice, request(2, 2)) == [Send(alice, call_error("busy", request(2, 2), retry=2_000))]
    assert x.send(alice, request()) == []
    assert x.send(alice, cancel(call)) == [Send(bob, cancel(call))]
    assert x.send(bob, cancelled(call))[-1] == Close(bob, 1001, FAREWELL)
    assert x.hub.drained()


def test_a_stopping_hub_does_not_tell_who_exists() -> None:
    x = Exchange(register=Register(unreachable={("alice", "nobody")}))
    bob, alice = x.listener(), x.caller()
    lost = x.caller("alice", "nobody")
    call = x.begin(alice, request(), until="working")
    x.send(lost, request(5, 5))
    assert x.hub.drain(x.now) == []  # the answer goes first
    assert x.wait(10) == [
        Send(lost, call_error("unknown_handle", request(5, 5))),
        Close(lost, 1001, FAREWELL),
    ]
    x.send(bob, outcome(call))
    assert x.hub.drained()


def test_what_still_runs_when_the_time_is_over_ends_truthfully() -> None:
    x = Exchange({"DRAIN_BOUND_MS": 5_000})
    bob, alice = x.listener(), x.caller()
    begun, rings = x.begin(alice, request(1, 1), until="working"), x.begin(alice, request(2, 2))
    x.hub.cancel("alice", begun, 7, x.now)
    x.hub.drain(x.now)
    assert x.wait(4_999) == []
    assert x.wait(1) == [
        Send(alice, call_error("timeout", request(1, 1), call_id=begun)),
        Decided(7, CancelAnswer.ALREADY_TERMINAL),
        Retire(begun),
        Send(bob, cancel(rings)),
        Send(alice, call_error("timeout", request(2, 2), call_id=rings)),
        Retire(rings),
        Close(alice, 1001, FAREWELL),
        Close(bob, 1001, FAREWELL),
    ]
    assert x.hub.drained()
    assert (x.state(begun), x.state(rings)) == ("indeterminate_execution", "expired")


def test_nobody_joins_a_stopping_hub() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    x.begin(alice, request(), until="working")
    x.hub.drain(x.now)
    again, effects = x.join("bob", "one")
    assert effects == [Close(again, 1001, FAREWELL)]
    assert x.hub.connect_caller(90, "alice", "bob", CARD, x.now) == [Close(90, 1001, FAREWELL)]
    # The connection that holds the call was not replaced by one that was sent away.
    assert len(x.send(bob, outcome("call-1"))) == 4


def test_a_listener_lost_while_the_hub_stops_does_not_keep_it_longer_than_the_bound() -> None:
    x = Exchange({"DRAIN_BOUND_MS": 5_000})
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.hub.drain(x.now)
    assert x.lose(bob) == []
    assert x.wait(5_000) == [
        Send(alice, call_error("timeout", request(), call_id=call)),
        Retire(call),
        Close(alice, 1001, FAREWELL),
    ]
    assert x.hub.drained()


# --- what the hub tells of itself


def test_the_counters_name_nobody() -> None:
    x = Exchange(register=Register(unreachable={("alice", "nobody")}))
    bob, alice = x.listener(), x.caller()
    x.finish(alice, request())
    x.send(alice, request())
    x.send(x.caller("alice", "nobody"), request())
    x.text(bob, "x")
    call = x.begin(alice, request(2, 2))
    x.send(alice, cancel(call))
    seen = x.hub.snapshot()
    assert seen["admitted"] == 2
    assert seen["ended_completed"] == 1
    assert seen["repeated"] == 1
    assert seen["refused_unknown_handle"] == 1
    assert seen["frames_refused"] == 1
    assert seen["cancels_requested"] == 1
    assert (seen["now_callers"], seen["now_listeners"]) == (2, 1)
    assert (seen["now_calls"], seen["now_records"]) == (1, 1)
    assert all(isinstance(value, int) for value in seen.values())
    text = " ".join(seen)
    assert not any(word in text for word in ("alice", "bob", "nobody", call, number(1)))


def test_the_deadline_never_lies_behind_what_is_to_happen() -> None:
    x = Exchange()
    assert x.hub.deadline() is None
    bob, alice = x.listener(), x.caller()
    x.begin(alice, request())
    assert x.hub.deadline() == x.now.mono + 30_000
    x.lose(bob)
    assert x.hub.deadline() == x.now.mono + 15_000
    assert x.hub.tick(x.now) == []
    assert x.hub.deadline() == x.now.mono + 15_000


@pytest.mark.parametrize("late", [0, 1, 5, 100_000])
def test_a_late_tick_does_all_that_was_due(late: int) -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    first = x.begin(alice, request(1, 1))
    second = x.begin(alice, request(2, 2), until="answered")
    x.now = x.now.later(360_000 + late)
    ends = [effect for effect in x.hub.tick(x.now) if isinstance(effect, Retire)]
    assert ends == [Retire(first), Retire(second)]
    assert sent_to(bob, x.hub.tick(x.now)) == []


def test_what_is_forgotten_is_given_back() -> None:
    x = Exchange({"CALLS_PER_HOUR": 0, "CALLS_PER_PAIR_PER_HOUR": 100})
    bob = x.listener(capacity=50)
    for n in range(1, 200):
        alice = x.caller(f"a{n}")
        x.finish(alice, request(n, n, sealed=envelope(iat=x.now.wall)))
        x.lose(alice)
    x.lose(bob)
    x.wait(96 * 3_600_000)
    x.hub.tick(x.now)
    hub = x.hub
    assert hub.deadline() is None
    assert [len(part) for part in (hub.timers, hub._sessions, hub._acquaintances)] == [0, 0, 0]
    assert [len(part) for part in (hub._turns, hub._hourly._callers, hub._hourly._pairs)] == [0, 0, 0]
    assert (hub._book._by_id, hub._book._by_key, hub._book._rolls) == ({}, {}, {})
    assert (len(hub._presence._desks), len(hub._presence._taken)) == (0, 0)
    assert (len(hub._book._outcomes), hub._book.outcome_bytes) == (0, 0)


def test_a_status_names_both_ids() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    frame = sent_to(alice, x.send(alice, request()))[0]
    assert frame == status("call-1", request(), "ringing")
    assert bob == 1
