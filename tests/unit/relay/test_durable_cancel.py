"""Cancellation of durable calls: two steps, and a flag that outlives the relay."""

import random

import pytest
from msgspec.structs import replace

from ringline.protocol import codec
from ringline.protocol.frames import CallCancelled, CallError, CallOutcome, ListenerToRelay
from ringline.protocol.lifecycle import FINAL
from ringline.relay.effects import CancelAnswer, Decided, Effect, Retire, Send
from ringline_testing.exchange import (
    accepted,
    call_error,
    cancel,
    cancelled,
    not_cancelled,
    outcome,
    rejected,
    sent_to,
    started,
)
from ringline_testing.mail import Mail, durable, lease, offers, stop


def post(m: Mail, call: str, number: int, caller: str = "alice") -> list[Effect]:
    return m.turn(m.hub.cancel(caller, call, number, m.now))


def test_a_queued_call_is_canceled_at_once() -> None:
    m = Mail()
    alice, other = m.caller(), m.caller()
    call = m.submit(alice)
    assert m.send(other, cancel(call)) == [
        Send(alice, call_error("canceled", durable(), call_id=call)),
        Send(other, call_error("canceled", durable(), call_id=call)),
        Retire(call),
    ]
    assert m.states(call) == ["canceled"]
    _, effects = m.join()
    assert offers(effects) == []


@pytest.mark.parametrize("until", ["leased", "accepted", "started"])
def test_a_call_in_a_listeners_hands_is_canceled_when_the_listener_says_so(until: str) -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    if until != "leased":
        m.send(bob, accepted(call, lease(1)))
    if until == "started":
        m.send(bob, started(call, lease(1)))
    assert m.send(alice, cancel(call)) == [Send(bob, stop(call, lease(1)))]
    # Asked twice meanwhile: one cancel_call.
    assert m.send(alice, cancel(call)) == []
    assert m.record(call).cancel_requested
    assert m.states(call) == [until]
    assert m.send(bob, cancelled(call, lease(1))) == [
        Send(alice, call_error("canceled", durable(), call_id=call)),
        Retire(call),
    ]
    assert m.states(call) == ["canceled"]


def test_a_cancel_request_is_told_behind_each_new_lease() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.grant(call, bob)
    m.lose(bob)
    assert m.send(alice, cancel(call)) == []
    for number in (2, 3):
        bob, effects = m.join()
        assert len(offers(effects)) == 1
        assert sent_to(bob, effects)[1:] == [stop(call, lease(number))]
        m.lose(bob)


@pytest.mark.parametrize("how", ["lapse", "loss", "close"])
def test_a_release_with_the_flag_set_ends_the_call(how: str) -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.send(alice, cancel(call))
    effects = m.wait(30_000) if how == "lapse" else m.lose(bob, clean=how == "close")
    assert sent_to(alice, effects) == [call_error("canceled", durable(), call_id=call)]
    assert m.states(call) == ["canceled"]


def test_the_flag_survives_a_restart_and_ends_what_nobody_has_in_hand() -> None:
    m = Mail()
    m.listener()
    alice = m.caller()
    call = m.submit(alice)
    m.send(alice, cancel(call))
    assert m.states(call) == ["leased"]
    m.restart()
    assert m.states(call) == ["canceled"]
    alice = m.caller()
    assert sent_to(alice, m.send(alice, durable()))[-1] == call_error("canceled", durable(), call_id=call)


def test_the_flag_of_begun_work_survives_a_restart_between_request_and_confirmation() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.grant(call, bob)
    m.send(alice, cancel(call))
    m.restart()
    assert m.record(call).cancel_requested
    bob, effects = m.join()
    assert sent_to(bob, effects)[1] == stop(call, lease(2))
    m.send(bob, cancelled(call, lease(2)))
    assert m.states(call) == ["canceled"]


def test_a_flag_is_written_before_the_listener_hears_of_it() -> None:
    m = Mail()
    m.listener()
    alice = m.caller()
    call = m.submit(alice)
    assert m.hub.receive(alice, codec.encode(cancel(call)), m.now) == []
    assert m.store is not None
    m.store.rollback()
    assert not m.row(call).cancel_requested


def test_an_outcome_may_still_win() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.grant(call, bob)
    other = m.caller()
    m.send(other, cancel(call))
    effects = m.send(bob, outcome(call, lease=lease(1)))
    assert sent_to(alice, effects) == [outcome(call, reason="completed")]
    assert sent_to(other, effects) == [not_cancelled(call, "already_terminal")]


def test_a_refused_cancel_clears_the_flag_and_a_later_one_is_new() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.grant(call, bob)
    m.send(alice, cancel(call))
    assert m.send(bob, replace(not_cancelled(call), lease_id=lease(1))) == [Send(alice, not_cancelled(call))]
    assert not m.record(call).cancel_requested
    assert m.send(alice, cancel(call)) == [Send(bob, stop(call, lease(1)))]


def test_an_unasked_confirmation_changes_nothing() -> None:
    m = Mail()
    bob = m.listener()
    call = m.submit(m.caller())
    assert m.send(bob, cancelled(call, lease(1))) == []
    assert m.states(call) == ["leased"]
    assert m.hub.snapshot()["cancels_unasked"] == 1


def test_a_lost_confirmation_is_made_good_under_the_next_lease() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.grant(call, bob)
    m.send(alice, cancel(call))
    m.lose(bob)  # with its call_cancelled
    bob, _ = m.join()
    assert m.send(bob, cancelled(call, lease(1))) == []
    assert m.states(call) == ["started"]
    m.send(bob, cancelled(call, lease(2)))
    assert m.states(call) == ["canceled"]


def test_only_the_caller_cancels_and_ended_calls_stay_ended() -> None:
    m = Mail()
    bob, eve, alice = m.listener(), m.caller("eve"), m.caller()
    call = m.submit(alice)
    for name in (call, "call-99"):
        assert m.send(eve, cancel(name)) == [Send(eve, not_cancelled(name, "unknown"))]
    assert post(m, call, 1, "eve") == [Decided(1, CancelAnswer.MISSING)]
    assert post(m, call, 2, "bob") == [Decided(2, CancelAnswer.MISSING)]
    m.complete(call, bob)
    assert m.send(alice, cancel(call)) == [Send(alice, not_cancelled(call, "already_terminal"))]
    assert post(m, call, 3) == [Decided(3, CancelAnswer.ALREADY_TERMINAL)]


def test_over_http_a_decision_is_waited_for_and_then_the_request_stands() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call, second = m.submit(alice, 1, 1), m.submit(alice, 2, 2)
    m.grant(call, bob)
    m.grant(second, bob)
    assert post(m, call, 1) == [Send(bob, stop(call, lease(1)))]
    assert m.wait(9_999) == []
    assert m.wait(1) == [Decided(1, CancelAnswer.REQUESTED)]
    assert post(m, call, 2) == []
    assert Decided(2, CancelAnswer.CANCELED) in m.send(bob, cancelled(call, lease(1)))
    post(m, second, 3)
    refused = replace(not_cancelled(second, "too_late"), lease_id=lease(2))
    assert m.send(bob, refused) == [Decided(3, CancelAnswer.TOO_LATE)]


def test_the_phase_is_recorded_and_not_checked() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.send(alice, cancel(call))
    m.send(bob, CallCancelled(call_id=call, phase="running", lease_id=lease(1)))
    assert m.states(call) == ["canceled"]


def interleaved(chance: random.Random) -> None:
    """Let caller, listener and connections do this and that; what they heard must fit together."""
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    told: list[object] = []
    for _ in range(12):
        deed = chance.randrange(10)
        if deed < 2:
            effects = m.send(alice, cancel(call))
        elif deed == 2:
            effects = m.lose(bob, clean=chance.random() < 0.5)
            bob, more = m.join()
            effects += more + m.wait(1_000)
        else:
            errand = m.calls._errands.held(call)
            held = lease(99) if errand is None or errand.lease is None else errand.lease.id
            frames: list[ListenerToRelay] = [
                accepted(call, held),
                started(call, held),
                outcome(call, lease=held),
                cancelled(call, held),
                replace(not_cancelled(call), lease_id=held),
                rejected(call, held),
            ]
            effects = m.send(bob, chance.choice(frames[: 3 if deed < 8 else 6]))
        told += sent_to(alice, effects)
    ends = [frame for frame in told if isinstance(frame, CallOutcome | CallError)]
    ended = m.row(call).state in FINAL
    assert len(ends) == ended
    if ended:
        assert isinstance(ends[0], CallOutcome) == (m.record(call).state == "completed")
        assert m.record(call).state == m.record(call, "bob").state


def test_a_cancel_against_an_end_leaves_one_end_that_all_agree_on() -> None:
    chance = random.Random(7)
    for _ in range(1_000):
        interleaved(chance)
