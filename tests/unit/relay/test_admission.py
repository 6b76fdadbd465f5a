"""Who may have a call, in which order that is decided, and what it costs."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest

from ringline.protocol.frames import CallError, CallRequest, RelayCode
from ringline.protocol.instant import Instant
from ringline.relay.admission import digest
from ringline.relay.effects import Close, Effect, Send
from ringline_testing.exchange import (
    CARD,
    OLD_CARD,
    START,
    Exchange,
    Register,
    accepted,
    call_error,
    envelope,
    incoming,
    number,
    outcome,
    request,
    sent_to,
    started,
    status,
)

HOUR = 3_600_000


def refusal(code: RelayCode, of: CallRequest, connection: int, retry: int | None = None) -> list[Effect]:
    return [Send(connection, call_error(code, of, retry=retry))]


def units_left(x: Exchange, caller: int) -> int:
    """Use up the caller's budget; return how many units it had left."""
    for left, n in enumerate(range(1_000, 1_100)):
        ask = request(n, n, sealed=envelope(iat=x.now.wall))
        effects = x.send(caller, ask)
        if any(
            isinstance(e, Send) and isinstance(e.frame, CallError) and e.frame.code == "rate_limited"
            for e in effects
        ):
            return left
    raise AssertionError("no budget")


# --- an admitted request


def test_a_request_comes_in_at_the_listener_and_rings_at_the_caller() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    assert x.send(alice, request()) == [
        Send(bob, incoming("call-1", request())),
        Send(alice, status("call-1", request(), "ringing")),
    ]


def test_a_sync_call_comes_in_without_mode_lease_or_deadline_and_with_its_message_id_if_it_has_one() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    explicit = request(1, 1, mode="sync")
    frame = sent_to(bob, x.send(alice, explicit))[0]
    assert frame == incoming("call-1", explicit)
    assert msgspec.to_builtins(frame).keys() == {
        "type", "call_id", "from", "envelope", "correlation_id", "message_id",
    }  # fmt: skip
    nameless = request(2, None)
    frame = sent_to(bob, x.send(alice, nameless))[0]
    assert msgspec.to_builtins(frame).keys() == {"type", "call_id", "from", "envelope", "correlation_id"}


def test_the_listener_is_told_the_authenticated_handle() -> None:
    x = Exchange()
    bob, cyd = x.listener(), x.caller("cyd")
    assert sent_to(bob, x.send(cyd, request())) == [incoming("call-1", request(), caller="cyd")]


def test_the_envelope_is_forwarded_as_it_came() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    sealed = envelope(ct="a-_9" * 999)
    frame = sent_to(bob, x.send(alice, request(sealed=sealed)))[0]
    assert getattr(frame, "envelope", None) == sealed


def test_a_handle_may_call_itself() -> None:
    x = Exchange()
    listening, calling = x.listener(), x.caller("bob", "bob")
    assert x.send(calling, request()) == [
        Send(listening, incoming("call-1", request(), caller="bob")),
        Send(calling, status("call-1", request(), "ringing")),
    ]


def test_a_caller_has_many_calls_at_once() -> None:
    x = Exchange()
    bob, alice = x.listener(capacity=10), x.caller()
    for n in range(1, 6):
        assert sent_to(bob, x.send(alice, request(n, n))) == [incoming(f"call-{n}", request(n, n))]


# --- the trace rule


SPAN = "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (f"00-{number(1)}-{SPAN}-01", f"00-{number(1)}-{SPAN}-01"),
        (f"00-{number(1)}-{SPAN}-ff", f"00-{number(1)}-{SPAN}-01"),
        (f"cc-{number(1)}-{SPAN}-00-more", f"00-{number(1)}-{SPAN}-00"),
        (f"00-{number(2)}-{SPAN}-01", None),
        (f"00-{number(1)}-{'0' * 16}-01", None),
        ("nonsense", None),
        ("", None),
        ("x" * 100_000, None),
    ],
)
def test_a_trace_is_normalised_or_dropped_and_the_call_goes_on(given: str, kept: str | None) -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    effects = x.send(alice, request(traceparent=given))
    assert sent_to(bob, effects) == [incoming("call-1", request(), traceparent=kept)]
    assert x.hub.snapshot().get("traces_dropped", 0) == (kept is None)


def test_a_call_is_offered_again_with_the_trace_it_had() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    trace = f"00-{number(1)}-{SPAN}-01"
    x.send(alice, request(traceparent=trace))
    x.lose(bob)
    bob, effects = x.join()
    assert effects == [Send(bob, incoming("call-1", request(), traceparent=trace))]


# --- the order of the checks


@dataclass(frozen=True)
class Rung:
    """One check: what makes it fail, what it answers, and whether the request costs a unit."""

    spoil: Callable[[Exchange], None]
    change: Callable[[CallRequest], CallRequest]
    code: RelayCode
    costs: bool
    retry: int | None = None


def same(ask: CallRequest) -> CallRequest:
    return ask


def sealed_before_the_start(ask: CallRequest) -> CallRequest:
    return msgspec.structs.replace(ask, envelope=envelope(iat=START.wall - 1))


def nothing(x: Exchange) -> None:
    """Leave everything as it is."""


def no_card(x: Exchange) -> None:
    x.register.invalid.add(("alice", CARD))


def no_budget(x: Exchange) -> None:
    other = x.caller("alice", "nobody")
    x.register.unreachable.add(("alice", "nobody"))
    for n in range(30):
        x.send(other, request(500 + n, 500 + n))


def out_of_reach(x: Exchange) -> None:
    x.register.unreachable.add(("alice", "bob"))


def nobody_there(x: Exchange) -> None:
    for connection in range(1, 50):
        session = x.hub._sessions.get(connection)
        if session is not None and session.role == "listener":
            x.lose(connection)


def no_turns(x: Exchange) -> None:
    alice = x.caller()
    for n in range(10):
        x.finish(alice, request(1, 700 + n))


# Top to bottom as in RL-ADMIT-001. Each scenario spoils its own check and every one below it: the answer
# must be that of the uppermost.
LADDER = {
    "sealed before the relay started": Rung(nothing, sealed_before_the_start, "timeout", costs=False),
    "no valid card": Rung(no_card, same, "protocol_error", costs=False),
    "hourly budget": Rung(no_budget, same, "rate_limited", costs=False, retry=HOUR),
    "out of reach": Rung(out_of_reach, same, "unknown_handle", costs=True),
    "nobody there": Rung(nobody_there, same, "offline", costs=True),
    "no turns": Rung(no_turns, same, "rate_limited", costs=True, retry=1_800_000),
}


@pytest.mark.parametrize("name", LADDER)
def test_the_first_check_that_fails_decides(name: str) -> None:
    rungs = list(LADDER.values())
    at = list(LADDER).index(name)
    x = Exchange({"CALLS_PER_PAIR_PER_HOUR": 0})
    x.listener()
    alice = x.caller()
    ask = request()
    # From the bottom up, because a caller who can no longer call cannot use up its turns.
    for rung in reversed(rungs[at:]):
        rung.spoil(x)
        ask = rung.change(ask)
    effects = x.send(alice, ask) + x.wait(10)
    assert sent_to(alice, effects) == [call_error(rungs[at].code, ask, retry=rungs[at].retry)]
    assert len(effects) == 1 + 30 * (no_budget in {rung.spoil for rung in rungs[at:]})


@pytest.mark.parametrize("name", [name for name, rung in LADDER.items() if rung.spoil is not no_budget])
def test_a_refusal_before_the_hourly_budget_is_free_and_every_other_costs_one_unit(name: str) -> None:
    rung = LADDER[name]
    x = Exchange({"CALLS_PER_PAIR_PER_HOUR": 0, "TURNS": 1, "CALLS_PER_HOUR": 5})
    bob, alice = x.listener(capacity=100), x.caller()
    spent = 0
    if rung.spoil is no_turns:
        x.finish(alice, request(1, 700))
        spent = 1
    else:
        rung.spoil(x)
    x.send(alice, rung.change(request()))
    x.wait(10)
    # Undo what was spoilt, so that the rest can be counted.
    x.register.invalid.clear()
    x.register.unreachable.clear()
    assert bob
    assert units_left(x, x.caller()) == 5 - spent - rung.costs


def test_an_admitted_call_costs_one_unit() -> None:
    x = Exchange({"CALLS_PER_HOUR": 5})
    x.listener(capacity=100)
    alice = x.caller()
    x.send(alice, request())
    assert units_left(x, alice) == 4


def test_a_refused_request_leaves_no_record() -> None:
    x = Exchange()
    alice = x.caller()
    assert x.send(alice, request()) == refusal("offline", request(), alice)
    assert x.hub.records("alice", "caller", None, None, 10, x.now).calls == []
    # The same message may be sent again, and is a new attempt.
    bob = x.listener()
    assert sent_to(bob, x.send(alice, request())) == [incoming("call-1", request())]


# --- step 2


def test_a_sync_request_sealed_before_the_relays_start_is_not_handed_out() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    old = request(sealed=envelope(iat=START.wall - 1))
    assert x.send(alice, old) == refusal("timeout", old, alice)
    just = request(sealed=envelope(iat=START.wall))
    assert sent_to(bob, x.send(alice, just)) == [incoming("call-1", just)]


# --- step 3


def test_a_card_that_may_not_sign_is_refused_for_its_own_handle_only() -> None:
    x = Exchange(register=Register(invalid={("alice", OLD_CARD)}))
    bob, alice, cyd = x.listener(), x.caller(), x.caller("cyd")
    old = request(sealed=envelope(sid=OLD_CARD))
    assert x.send(alice, old) == refusal("protocol_error", old, alice)
    assert len(sent_to(bob, x.send(cyd, old))) == 1


@pytest.mark.parametrize(("over", "passes"), [(119_999, True), (120_000, False)])
def test_a_sync_request_may_be_two_minutes_past_its_end(over: int, passes: bool) -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    ask = request(sealed=envelope(iat=START.wall, life=1_000))
    x.now = START.later(1_000 + over)
    effects = x.send(alice, ask)
    if passes:
        assert sent_to(bob, effects) == [incoming("call-1", ask)]
    else:
        assert effects == refusal("protocol_error", ask, alice)


def test_a_request_that_is_over_is_free_and_refused_before_the_budget_is_looked_at() -> None:
    x = Exchange({"CALLS_PER_HOUR": 1})
    x.listener()
    alice = x.caller()
    x.now = START.later(200_000)
    over = request(sealed=envelope(iat=START.wall, life=1_000))
    assert x.send(alice, over) == refusal("protocol_error", over, alice)
    assert len(x.send(alice, request(2, 2, sealed=envelope(iat=x.now.wall)))) == 2
    assert x.send(alice, over) == refusal("protocol_error", over, alice)


def test_the_wall_clock_decides_on_the_end_of_a_request_and_not_the_other() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    ask = request(sealed=envelope(iat=START.wall, life=1_000))
    x.now = Instant(START.wall + 200_000, x.now.mono)
    assert x.send(alice, ask) == refusal("protocol_error", ask, alice)


def test_the_thirty_first_request_in_an_hour_is_refused_and_told_when_to_come_back() -> None:
    x = Exchange({"TURNS": 0})
    bob, alice = x.listener(capacity=1_000), x.caller()
    for n in range(1, 31):
        assert len(sent_to(bob, x.send(alice, request(n, n)))) == 1
        x.wait(1_000)
    late = request(31, 31, sealed=envelope(life=10 * HOUR))
    assert x.send(alice, late) == refusal("rate_limited", late, alice, HOUR - 30_000)
    x.wait(HOUR - 30_001)
    assert x.send(alice, late) == refusal("rate_limited", late, alice, 1)
    x.wait(1)
    assert len(sent_to(bob, x.send(alice, late))) == 1
    assert x.send(alice, request(32, 32, sealed=late.envelope)) == refusal(
        "rate_limited", request(32, 32), alice, 1_000
    )


def test_a_caller_and_callee_have_a_budget_beside_the_callers() -> None:
    x = Exchange({"CALLS_PER_HOUR": 5, "CALLS_PER_PAIR_PER_HOUR": 2})
    x.listener("bob")
    x.listener("cyd")
    to_bob, to_cyd = x.caller("alice", "bob"), x.caller("alice", "cyd")
    for n in (1, 2):
        assert len(x.send(to_bob, request(n, n))) == 2
    assert x.send(to_bob, request(3, 3)) == refusal("rate_limited", request(3, 3), to_bob, HOUR)
    # What the pair refused did not cost the caller a unit: three are left for others.
    for n in (4, 5):
        assert len(x.send(to_cyd, request(n, n))) == 2
    assert x.send(to_cyd, request(6, 6)) == refusal("rate_limited", request(6, 6), to_cyd, HOUR)


def test_budgets_belong_to_the_identity_and_not_to_the_connection() -> None:
    x = Exchange({"CALLS_PER_HOUR": 2})
    x.listener()
    first, second = x.caller(), x.caller()
    x.send(first, request(1, 1))
    x.send(second, request(2, 2))
    assert x.send(first, request(3, 3)) == refusal("rate_limited", request(3, 3), first, HOUR)
    assert x.send(second, request(3, 3)) == refusal("rate_limited", request(3, 3), second, HOUR)
    assert len(x.send(x.caller("cyd"), request(1, 1))) == 2


def test_twenty_requests_at_once_share_what_is_left_of_a_budget() -> None:
    x = Exchange({"CALLS_PER_HOUR": 30, "TURNS": 0})
    x.listener(capacity=1_000)
    connections = [x.caller(), x.caller()]
    for n in range(29):
        x.finish(connections[0], request(n + 1, n + 1))
    outcomes = [x.send(connections[n % 2], request(100 + n, 100 + n)) for n in range(20)]
    assert [len(effects) for effects in outcomes] == [2] + [1] * 19


def test_a_step_of_the_wall_clock_frees_no_budget() -> None:
    x = Exchange({"CALLS_PER_HOUR": 1})
    x.listener()
    alice = x.caller()
    x.send(alice, request())
    x.now = Instant(x.now.wall + 2 * HOUR, x.now.mono)
    late = request(2, 2, sealed=envelope(iat=x.now.wall))
    assert x.send(alice, late) == refusal("rate_limited", late, alice, HOUR)


# --- step 4


def test_an_unknown_handle_is_answered_ten_milliseconds_after_the_receipt() -> None:
    x = Exchange(register=Register(unreachable={("alice", "bob")}))
    x.listener()
    alice = x.caller()
    assert x.send(alice, request()) == []
    assert x.hub.deadline() == x.now.mono + 10
    assert x.wait(9) == []
    assert x.wait(1) == refusal("unknown_handle", request(), alice)


def test_missing_and_forbidden_handles_are_the_same_in_both_modes() -> None:
    answers: list[list[object]] = []
    for mode in ("sync", "durable"):
        for listening in (True, False):
            x = Exchange(register=Register(unreachable={("alice", "bob")}))
            if listening:
                x.listener()
            alice = x.caller()
            ask = request(mode="durable" if mode == "durable" else None)
            assert x.send(alice, ask) == []
            answers.append(sent_to(alice, x.wait(10)))
    assert answers == [answers[0]] * 4


def test_what_is_behind_a_delayed_answer_keeps_its_order_and_other_connections_do_not_wait() -> None:
    x = Exchange(register=Register(unreachable={("alice", "bob")}))
    bob = x.listener()
    alice, other = x.caller(), x.caller("cyd")
    x.send(alice, request(1, 1))
    x.wait(4)
    x.register.unreachable.clear()
    assert x.send(alice, request(2, 2)) == [Send(bob, incoming("call-1", request(2, 2)))]
    assert x.text(alice, "x") == []
    assert len(x.send(other, request(3, 3))) == 2
    assert x.send(bob, accepted("call-1")) == []
    assert x.wait(6) == [
        Send(alice, call_error("unknown_handle", request(1, 1))),
        Send(alice, status("call-1", request(2, 2), "ringing")),
        Send(alice, call_error("protocol_error")),
        Send(alice, status("call-1", request(2, 2), "answered")),
    ]
    assert x.send(bob, started("call-1")) == [Send(alice, status("call-1", request(2, 2), "working"))]


def test_two_delayed_answers_leave_each_at_its_time() -> None:
    x = Exchange(register=Register(unreachable={("alice", "bob")}))
    alice = x.caller()
    x.send(alice, request(1, 1))
    x.wait(6)
    x.send(alice, request(2, 2))
    assert x.wait(4) == refusal("unknown_handle", request(1, 1), alice)
    assert x.wait(5) == []
    assert x.wait(1) == refusal("unknown_handle", request(2, 2), alice)
    assert x.hub.deadline() is None


def test_a_delayed_answer_dies_with_its_connection() -> None:
    x = Exchange(register=Register(unreachable={("alice", "bob")}))
    alice = x.caller()
    x.send(alice, request())
    assert x.lose(alice) == []
    assert x.wait(100) == []


def test_a_close_waits_behind_a_delayed_answer() -> None:
    x = Exchange(register=Register(unreachable={("alice", "bob")}))
    alice = x.caller()
    x.send(alice, request())
    for _ in range(21):
        assert x.text(alice, "x") == []
    # Closed as far as the hub is concerned: nothing more is read.
    assert x.text(alice, "x") == []
    effects = x.wait(10)
    assert effects[0] == Send(alice, call_error("unknown_handle", request()))
    assert len(effects) == 23
    assert effects[-1] == Close(alice, 1008, "frames")


# --- one unanswered request per correlation id (RL-FRAME-026)


def test_a_second_request_of_an_unanswered_correlation_id_is_refused_and_free() -> None:
    x = Exchange({"CALLS_PER_HOUR": 2}, Register(unreachable={("alice", "bob")}))
    x.listener()
    alice = x.caller()
    x.send(alice, request(1, 1))
    for other in (request(1, 2), request(1, None)):
        assert x.send(alice, other) == []
    assert x.wait(10) == [
        Send(alice, call_error("unknown_handle", request(1, 1))),
        Send(alice, call_error("protocol_error", request(1, 2))),
        Send(alice, call_error("protocol_error", request(1, None))),
    ]
    # Answered: the next one is looked at, and there is a unit left for it.
    x.register.unreachable.clear()
    assert len(x.send(alice, request(1, 3))) == 2


def test_the_same_message_may_be_repeated_while_it_is_unanswered() -> None:
    x = Exchange(register=Register(unreachable={("alice", "bob")}))
    alice = x.caller()
    x.send(alice, request(1, 1))
    x.wait(5)
    x.send(alice, request(1, 1))
    assert x.wait(5) == refusal("unknown_handle", request(1, 1), alice)
    # The repeat is unanswered still.
    x.send(alice, request(1, 2))
    assert x.wait(5) == [
        Send(alice, call_error("unknown_handle", request(1, 1))),
        Send(alice, call_error("protocol_error", request(1, 2))),
    ]


def test_requests_without_message_id_are_never_the_same() -> None:
    x = Exchange(register=Register(unreachable={("alice", "bob")}))
    alice = x.caller()
    x.send(alice, request(1, None))
    x.send(alice, request(1, None))
    assert sent_to(alice, x.wait(10)) == [
        call_error("unknown_handle", request(1, None)),
        call_error("protocol_error", request(1, None)),
    ]


def test_other_correlation_ids_and_other_connections_need_not_wait() -> None:
    x = Exchange(register=Register(unreachable={("alice", "bob")}))
    alice, again = x.caller(), x.caller()
    x.send(alice, request(1, 1))
    x.send(alice, request(2, 2))
    x.send(again, request(1, 3))
    answers = x.wait(10)
    assert [e.frame for e in answers if isinstance(e, Send)] == [
        call_error("unknown_handle", request(1, 1)),
        call_error("unknown_handle", request(2, 2)),
        call_error("unknown_handle", request(1, 3)),
    ]


# --- step 5


def test_nobody_connected_is_offline_and_everybody_full_is_busy() -> None:
    x = Exchange({"CALLER_PLACES_PERCENT": 0})
    alice = x.caller()
    assert x.send(alice, request(1, 1)) == refusal("offline", request(1, 1), alice)
    bob = x.listener(capacity=1)
    x.send(alice, request(2, 2))
    assert x.send(alice, request(3, 3)) == refusal("busy", request(3, 3), alice)
    x.send(bob, started("call-1"))
    x.send(bob, outcome("call-1"))
    assert len(x.send(alice, request(4, 4))) == 2
    x.lose(bob)
    assert x.send(alice, request(5, 5)) == refusal("offline", request(5, 5), alice)


@pytest.mark.parametrize(("capacity", "share"), [(1, 1), (2, 1), (3, 1), (4, 2), (7, 3), (10, 5)])
def test_one_caller_holds_at_most_half_of_a_handles_places_and_at_least_one(
    capacity: int, share: int
) -> None:
    x = Exchange()
    x.listener(capacity=capacity)
    alice = x.caller()
    for n in range(share):
        assert len(x.send(alice, request(n + 1, n + 1))) == 2
    assert x.send(x.caller(), request(50, 50))[-1] == Send(alice + 1, call_error("busy", request(50, 50)))
    if capacity > 1:
        assert len(x.send(x.caller("cyd"), request(51, 51))) == 2


def test_the_places_of_all_instances_of_a_handle_count_together() -> None:
    x = Exchange()
    x.listener(instance="one", capacity=3)
    x.listener(instance="two", capacity=3)
    alice = x.caller()
    for n in range(3):
        assert len(x.send(alice, request(n + 1, n + 1))) == 2
    assert x.send(alice, request(9, 9)) == refusal("busy", request(9, 9), alice)


def test_a_place_is_free_again_when_its_call_has_ended() -> None:
    x = Exchange()
    bob, alice = x.listener(capacity=2), x.caller()
    call = x.begin(alice, request(1, 1))
    assert x.send(alice, request(2, 2)) == refusal("busy", request(2, 2), alice)
    x.send(bob, outcome(call, "failed"))
    assert len(x.send(alice, request(2, 2))) == 2


def test_places_of_one_handle_say_nothing_of_another() -> None:
    x = Exchange()
    x.listener("bob", capacity=2)
    x.listener("cyd", capacity=2)
    assert len(x.send(x.caller("alice", "bob"), request(1, 1))) == 2
    assert len(x.send(x.caller("alice", "cyd"), request(1, 1))) == 2


@pytest.mark.parametrize("allowed", [False, True])
def test_a_durable_request_is_offline_while_nobody_stores_calls_and_never_becomes_a_sync_call(
    allowed: bool,
) -> None:
    x = Exchange(register=Register(durable={"bob"} if allowed else set()))
    x.listener()
    alice = x.caller()
    ask = request(mode="durable")
    assert x.send(alice, ask) == refusal("offline", ask, alice)
    assert units_left(x, alice) == 29


def test_a_durable_request_must_not_be_over_and_may_be_older_than_the_relay() -> None:
    x = Exchange()
    alice = x.caller()
    over = request(mode="durable", sealed=envelope(iat=START.wall - 500, life=501))
    assert x.send(alice, over) == refusal("protocol_error", over, alice)
    old = request(2, 2, mode="durable", sealed=envelope(iat=START.wall - 500, life=502))
    assert x.send(alice, old) == refusal("offline", old, alice)


# --- step 6


def test_the_eleventh_turn_of_a_conversation_within_half_an_hour_is_refused() -> None:
    x = Exchange({"CALLS_PER_HOUR": 0, "CALLS_PER_PAIR_PER_HOUR": 0})
    x.listener()
    alice = x.caller()
    for n in range(10):
        x.finish(alice, request(1, n + 1, sealed=envelope(iat=x.now.wall)))
        x.wait(60_000)
    late = request(1, 11, sealed=envelope(iat=x.now.wall, life=HOUR))
    assert x.send(alice, late) == refusal("rate_limited", late, alice, 1_200_000)
    assert len(x.send(alice, request(2, 12, sealed=late.envelope))) == 2
    assert len(x.send(x.caller("cyd"), request(1, 11, sealed=late.envelope))) == 2
    x.wait(1_200_000)
    assert len(x.send(alice, late)) == 2


def test_a_turn_is_charged_with_the_admission_alone() -> None:
    x = Exchange({"TURNS": 2, "CALLER_PLACES_PERCENT": 0})
    alice = x.caller()
    for n in range(5):
        assert x.send(alice, request(1, n + 1)) == refusal("offline", request(1, n + 1), alice)
    bob = x.listener(capacity=1)
    call = x.begin(alice, request(1, 10))
    for n in range(5):
        assert x.send(alice, request(1, 20 + n)) == refusal("busy", request(1, 20 + n), alice)
    x.send(bob, outcome(call, "failed"))
    assert len(x.send(alice, request(1, 30))) == 2


def test_strangers_do_not_use_up_the_turns_of_a_conversation() -> None:
    x = Exchange({"TURNS": 1})
    x.listener()
    cyd = x.caller("cyd")
    x.finish(cyd, request(1, 1))
    assert x.send(cyd, request(1, 2)) == refusal("rate_limited", request(1, 2), cyd, 1_800_000)
    assert len(x.send(x.caller("alice"), request(1, 1))) == 2


# --- the digest


def test_the_digest_changes_with_every_part_it_covers() -> None:
    base = envelope(ct="a" * 3_000)
    digests = {digest(base)}
    for changed in (
        {"suite": 1},
        {"kid": "L" * 42 + "A"},
        {"sid": OLD_CARD},
        {"iat": base.iat + 1},
        {"exp": base.exp + 1},
        {"ct": "a" * 3_001},
        {"ct": "b" + "a" * 2_999},
        {"ct": "a" * 2_047 + "b" + "a" * 952},
        {"ct": "a" * 2_936 + "b" + "a" * 63},
        {"ct": "a" * 2_999 + "b"},
    ):
        digests.add(digest(msgspec.structs.replace(base, **changed)))
    assert len(digests) == 11
    assert all(len(entry) == 32 for entry in digests)


def test_the_digest_reads_the_first_2048_and_the_last_64_characters_of_a_ciphertext() -> None:
    base = envelope(ct="a" * 3_000)
    for at in (2_048, 2_935):
        changed = base.ct[:at] + "b" + base.ct[at + 1 :]
        assert digest(msgspec.structs.replace(base, ct=changed)) == digest(base)
