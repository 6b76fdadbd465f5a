"""The life of a sync call from hand-out to end."""

import itertools
from typing import get_args

import pytest

from ringline.protocol.frames import (
    CallError,
    CallerToRelay,
    CallState,
    CallStatus,
    ListenerToRelay,
    Terminal,
    TerminalReason,
)
from ringline.protocol.instant import Instant
from ringline.relay.effects import Effect, Retire, Send
from ringline_testing.exchange import (
    LEASE,
    Exchange,
    accepted,
    call_error,
    cancel,
    cancelled,
    envelope,
    not_cancelled,
    outcome,
    rejected,
    request,
    sent_to,
    started,
    status,
)

PROTOCOL_ERROR = call_error("protocol_error")


def answered_nothing(x: Exchange, connection: int, frame: CallerToRelay | ListenerToRelay) -> bool:
    return x.send(connection, frame) == []


# --- the way of a call


def test_a_call_rings_is_answered_works_and_completes() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    assert x.state(call) == "ringing"
    assert x.send(bob, accepted(call)) == [Send(alice, status(call, request(), "answered"))]
    assert x.state(call) == "accepted"
    assert x.send(bob, started(call)) == [Send(alice, status(call, request(), "working"))]
    assert x.state(call) == "started"
    assert x.send(bob, outcome(call)) == [Send(alice, outcome(call)), Retire(call)]
    assert x.state(call) == "completed"


def test_acceptance_is_not_start() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="answered")
    assert x.send(bob, outcome(call, "completed")) == [Send(bob, PROTOCOL_ERROR)]
    assert x.state(call) == "accepted"


def test_a_start_without_an_acceptance_implies_it() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    assert x.send(bob, started(call)) == [Send(alice, status(call, request(), "working"))]
    assert answered_nothing(x, bob, accepted(call))
    assert x.state(call) == "started"
    assert x.wait(30_000) == []


def test_repeated_reports_tell_the_caller_nothing_new() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    assert len(x.send(bob, accepted(call))) == 1
    assert answered_nothing(x, bob, accepted(call))
    assert len(x.send(bob, started(call))) == 1
    assert answered_nothing(x, bob, started(call))
    assert answered_nothing(x, bob, accepted(call))


def test_the_start_in_the_record_is_the_first_report_of_it() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    x.wait(5)
    began = x.now.wall
    x.send(bob, started(call))
    x.wait(5)
    x.send(bob, started(call))
    record = x.hub.record("alice", call, x.now)
    assert record is not None
    assert record.started_at == began


@pytest.mark.parametrize("until", ["ringing", "answered", "working"])
def test_a_failure_may_come_from_any_state_in_the_listeners_hands(until: CallState) -> None:
    ends: tuple[tuple[TerminalReason | None, str], ...] = (
        (None, "failed"),
        ("indeterminate_execution", "indeterminate_execution"),
    )
    for reason, state in ends:
        x = Exchange()
        bob, alice = x.listener(), x.caller()
        call = x.begin(alice, request(), until=until)
        end = outcome(call, "failed", reason)
        assert x.send(bob, end) == [Send(alice, end), Retire(call)]
        assert x.state(call) == state


@pytest.mark.parametrize("until", ["ringing", "answered", "working"])
def test_a_rejection_may_come_from_any_state_in_the_listeners_hands(until: CallState) -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until=until)
    assert x.send(bob, rejected(call)) == [
        Send(alice, call_error("protocol_error", request(), call_id=call)),
        Retire(call),
    ]
    assert x.state(call) == "delivery_failed"


def test_only_ends_that_a_listener_may_claim_have_an_effect() -> None:
    legal = {("completed", "completed"), ("failed", "failed"), ("failed", "indeterminate_execution")}
    reasons: list[TerminalReason | None] = [None, *get_args(TerminalReason)]
    for terminal, reason in itertools.product(get_args(Terminal), reasons):
        x = Exchange()
        bob, alice = x.listener(), x.caller()
        call = x.begin(alice, request(), until="working")
        end = outcome(call, terminal, reason)
        if (terminal, reason or terminal) in legal:
            assert x.send(bob, end) == [Send(alice, end), Retire(call)]
        else:
            assert x.send(bob, end) == [Send(bob, PROTOCOL_ERROR)]
            assert x.state(call) == "started"
            assert len(x.send(bob, outcome(call))) == 2


def test_the_outcome_is_forwarded_as_it_came() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    end = outcome(call, "completed", "completed", ct="_-" * 5_000)
    assert x.send(bob, end)[0] == Send(alice, end)


def test_frames_to_callers_have_no_lease() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    assert x.send(bob, outcome(call, lease=LEASE)) == [Send(bob, PROTOCOL_ERROR)]
    assert x.state(call) == "started"


# --- what a listener says of calls that are not in its hands


def every_report(call: str, lease: str | None = None) -> list[ListenerToRelay]:
    return [accepted(call, lease), started(call, lease), outcome(call, lease=lease), rejected(call, lease)]


@pytest.mark.parametrize("n", range(4))
def test_a_frame_for_an_unknown_call_is_answered_with_a_cancel(n: int) -> None:
    x = Exchange()
    bob = x.listener()
    assert x.send(bob, every_report("no-such-call")[n]) == [Send(bob, cancel("no-such-call"))]


@pytest.mark.parametrize("n", range(4))
def test_a_late_frame_for_a_call_that_ended_is_answered_with_a_cancel_and_changes_nothing(n: int) -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.finish(alice, request())
    assert x.send(bob, every_report(call)[n]) == [Send(bob, cancel(call))]
    assert x.send(bob, outcome(call, "failed")) == [Send(bob, cancel(call))]
    record = x.hub.record("alice", call, x.now)
    assert record is not None
    assert record.state == "completed"
    assert record.outcome is not None
    assert record.outcome.terminal == "completed"


@pytest.mark.parametrize("n", range(4))
def test_knowing_a_call_id_is_no_authority_over_the_call(n: int) -> None:
    x = Exchange()
    bob, eve, alice = x.listener(), x.listener("eve"), x.caller()
    other = x.listener("bob", "two")
    call = x.begin(alice, request(), until="working", listener=bob)
    for stranger in (eve, other):
        assert x.send(stranger, every_report(call)[n]) == [Send(stranger, cancel(call))]
    assert x.send(bob, outcome(call)) == [Send(alice, outcome(call)), Retire(call)]


def test_late_answers_to_a_cancel_are_counted_and_never_answered() -> None:
    x = Exchange()
    bob, eve, alice = x.listener(), x.listener("eve"), x.caller()
    ended, running = x.finish(alice, request()), x.begin(alice, request(2, 2), until="working")
    for call, connection in ((ended, bob), ("no-such-call", bob), (running, eve)):
        assert answered_nothing(x, connection, cancelled(call))
        assert answered_nothing(x, connection, not_cancelled(call))
        assert answered_nothing(x, connection, cancelled("no-such-call", LEASE))
    assert x.hub.snapshot()["cancels_late"] == 9
    assert x.state(running) == "started"


# --- leases


@pytest.mark.parametrize("n", range(4))
def test_a_lease_on_a_frame_of_a_sync_call_is_refused(n: int) -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    assert x.send(bob, every_report(call, LEASE)[n]) == [Send(bob, PROTOCOL_ERROR)]
    assert x.send(bob, cancelled(call, LEASE)) == [Send(bob, PROTOCOL_ERROR)]
    assert x.state(call) == "ringing"
    x.send(bob, outcome(call, "failed"))
    assert x.send(bob, every_report(call, LEASE)[n]) == [Send(bob, PROTOCOL_ERROR)]


@pytest.mark.parametrize("n", range(4))
def test_a_frame_under_a_lease_of_no_call_of_this_listener_is_told_that_this_lease_is_gone(n: int) -> None:
    x = Exchange()
    x.listener()
    eve, alice = x.listener("eve"), x.caller()
    call = x.begin(alice, request())
    for unknown in ("no-such-call", call):
        assert x.send(eve, every_report(unknown, LEASE)[n]) == [Send(eve, rejected(unknown, LEASE))]
    assert x.state(call) == "ringing"


# --- bounds


def test_a_call_that_is_not_accepted_in_thirty_seconds_times_out_and_its_listener_stops() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    assert x.wait(29_999) == []
    assert x.wait(1) == [
        Send(bob, cancel(call)),
        Send(alice, call_error("timeout", request(), call_id=call)),
        Retire(call),
    ]
    assert x.state(call) == "expired"
    assert x.send(bob, accepted(call)) == [Send(bob, cancel(call))]


@pytest.mark.parametrize("until", ["answered", "working"])
def test_a_call_that_is_accepted_has_six_minutes_from_its_hand_out(until: CallState) -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    x.wait(20_000)
    x.send(bob, accepted(call))
    if until == "working":
        x.send(bob, started(call))
    assert x.wait(339_999) == []
    assert x.wait(1) == [
        Send(bob, cancel(call)),
        Send(alice, call_error("timeout", request(), call_id=call)),
        Retire(call),
    ]
    assert x.state(call) == "indeterminate_execution"


def test_a_call_bound_shorter_than_the_ring_bound_holds_too() -> None:
    x = Exchange({"CALL_BOUND_MS": 100})
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    assert x.wait(99) == []
    assert x.wait(1)[0] == Send(bob, cancel(call))
    assert x.state(call) == "expired"


def test_a_bound_holds_to_the_millisecond_even_if_nobody_ticks() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    x.now = x.now.later(30_000)
    assert x.send(bob, accepted(call)) == [
        Send(bob, cancel(call)),
        Send(alice, call_error("timeout", request(), call_id=call)),
        Retire(call),
        Send(bob, cancel(call)),
    ]


def test_a_step_of_the_wall_clock_ends_no_call_and_keeps_none() -> None:
    for step in (7_200_000, -7_200_000):
        x = Exchange()
        bob, alice = x.listener(), x.caller()
        call = x.begin(alice, request())
        x.now = Instant(x.now.wall + step, x.now.mono)
        assert x.wait(29_999) == []
        assert len(x.wait(1)) == 3
        assert (bob, x.state(call)) == (1, "expired")


def test_a_finished_call_leaves_nothing_to_happen_but_the_end_of_its_record() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    x.finish(alice, request())
    assert x.wait(600_000) == []
    assert x.hub.deadline() is None
    assert x.hub.snapshot()["now_records"] == 0


# --- the caller's side of several connections


def test_every_attached_connection_is_told_each_status_and_one_end() -> None:
    x = Exchange()
    bob, first = x.listener(), x.caller()
    call = x.begin(first, request())
    second = x.caller()
    assert x.send(second, request()) == [Send(second, status(call, request(), "ringing"))]
    for frame, told in (
        (accepted(call), status(call, request(), "answered")),
        (started(call), status(call, request(), "working")),
    ):
        assert x.send(bob, frame) == [Send(first, told), Send(second, told)]
    assert x.send(bob, outcome(call)) == [
        Send(first, outcome(call)),
        Send(second, outcome(call)),
        Retire(call),
    ]


def test_calls_of_one_connection_end_in_any_order() -> None:
    x = Exchange()
    bob, alice = x.listener(capacity=8), x.caller()
    calls = [x.begin(alice, request(n, n), until="working") for n in range(1, 5)]
    for call in (calls[2], calls[0], calls[3], calls[1]):
        assert sent_to(alice, x.send(bob, outcome(call))) == [outcome(call)]


def test_two_callers_with_the_same_ids_have_two_calls() -> None:
    x = Exchange()
    bob, alice, cyd = x.listener(), x.caller("alice"), x.caller("cyd")
    first, second = x.begin(alice, request(), until="working"), x.begin(cyd, request(), until="working")
    assert first != second
    assert x.send(bob, outcome(second, ct="Zm9yY3lk"))[0] == Send(cyd, outcome(second, ct="Zm9yY3lk"))
    assert x.send(bob, outcome(first))[0] == Send(alice, outcome(first))


def test_no_status_and_no_second_end_follows_an_end() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.finish(alice, request())
    effects: list[Effect] = []
    for frame in (accepted(call), started(call), outcome(call, "failed"), outcome(call), rejected(call)):
        effects += x.send(bob, frame)
    effects += x.wait(700_000)
    assert sent_to(alice, effects) == []
    assert not any(isinstance(e, Retire) for e in effects)
    frames = [e.frame for e in effects if isinstance(e, Send)]
    assert not any(isinstance(frame, CallStatus | CallError) for frame in frames)


def test_a_call_that_ended_releases_its_request() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    call = x.finish(alice, request(sealed=envelope(ct="A" * 100_000)))
    kept = x.hub._book.find(call)
    assert kept is not None
    assert kept.envelope is None
