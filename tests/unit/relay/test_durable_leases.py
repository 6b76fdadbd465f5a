"""Leases of durable calls: acceptance, fencing, refusals that name the lease, lapse and loss."""

from collections.abc import Callable

import pytest

from ringline.protocol.frames import CallCancelled, CallNotCancelled, ListenerToRelay, Phase
from ringline.protocol.lifecycle import State
from ringline.relay.effects import Close, Send
from ringline_testing.exchange import (
    accepted,
    call_error,
    cancelled,
    outcome,
    rejected,
    sent_to,
    started,
    status,
)
from ringline_testing.mail import HOUR, Mail, durable, granted, lease, offers


def test_an_accepted_call_is_held_as_long_as_the_connection_lives() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    assert m.send(bob, accepted(call, lease(1))) == [Send(alice, status(call, durable(), "answered"))]
    assert m.send(bob, accepted(call, lease(1))) == []
    assert offers(m.wait(40 * HOUR)) == []
    assert m.states(call) == ["accepted"]
    assert sent_to(bob, m.send(bob, started(call, lease(1)))) == [granted(call, lease(1))]


def test_a_call_that_is_not_accepted_in_thirty_seconds_is_handed_out_again_under_another_lease() -> None:
    m = Mail()
    bob = m.listener()
    call = m.submit(m.caller())
    assert m.wait(29_999) == []
    [again] = offers(m.wait(1), bob)
    assert (again.call_id, again.lease_id) == (call, lease(2))
    assert m.row(call).attempts == 1


def test_callers_are_never_told_that_a_durable_call_rings() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.wait(30_000)
    effects = m.send(bob, accepted(call, lease(2))) + m.send(bob, started(call, lease(2)))
    assert sent_to(alice, effects) == [
        status(call, durable(), "answered"),
        status(call, durable(), "working"),
    ]


def test_a_status_is_not_told_again_when_the_call_is_handed_out_again() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.send(bob, accepted(call, lease(1)))
    m.lose(bob, clean=True)
    bob, _ = m.join()
    m.wait(1_000)
    assert m.send(bob, accepted(call, lease(2))) == []


STALE: list[Callable[[str, str], ListenerToRelay]] = [
    accepted,
    started,
    lambda call, held: outcome(call, lease=held),
    lambda call, held: outcome(call, "failed", lease=held),
    rejected,
]


@pytest.mark.parametrize("frame", STALE)
def test_a_frame_under_a_lease_that_is_gone_is_refused_with_that_lease(
    frame: Callable[[str, str], ListenerToRelay],
) -> None:
    m = Mail()
    bob = m.listener()
    call = m.submit(m.caller())
    m.wait(30_000)
    assert m.send(bob, frame(call, lease(1))) == [Send(bob, rejected(call, lease(1)))]
    assert m.states(call) == ["leased"]
    # The lease that it has now still holds.
    assert sent_to(bob, m.send(bob, started(call, lease(2)))) == [granted(call, lease(2))]


@pytest.mark.parametrize("frame", STALE)
def test_ended_unknown_and_foreign_calls_have_no_lease(
    frame: Callable[[str, str], ListenerToRelay],
) -> None:
    m = Mail()
    m.register.durable.add("eve")
    bob, eve, alice = m.listener(), m.listener("eve", "two"), m.caller()
    done = m.submit(alice)
    m.complete(done, bob)
    other = m.submit(alice, 2, 2)
    for connection, call, held in (
        (bob, done, lease(1)),
        (bob, "call-99", lease(1)),
        (eve, other, lease(2)),
        (eve, done, lease(1)),
    ):
        assert m.send(connection, frame(call, held)) == [Send(connection, rejected(call, held))]
    assert m.states(done, other) == ["completed", "leased"]


def test_the_lease_is_that_of_this_connection_and_no_other_has_its_rights() -> None:
    m = Mail()
    one, alice = m.listener("bob", "one"), m.caller()
    call = m.submit(alice)
    two, _ = m.join("bob", "two")
    assert m.send(two, accepted(call, lease(1))) == [Send(two, rejected(call, lease(1)))]
    assert sent_to(alice, m.send(one, accepted(call, lease(1)))) != []


def test_late_answers_to_a_cancel_are_counted_and_not_answered() -> None:
    m = Mail()
    bob = m.listener()
    call = m.submit(m.caller())
    phase: Phase = "pending"
    assert m.send(bob, CallCancelled(call_id=call, phase=phase, lease_id=lease(7))) == []
    assert m.send(bob, CallNotCancelled(call_id=call, reason="unknown", lease_id=lease(7))) == []
    assert m.hub.snapshot()["cancels_late"] == 2


def test_a_frame_of_a_durable_call_without_its_lease_is_an_error() -> None:
    m = Mail()
    bob = m.listener()
    call = m.submit(m.caller())
    for frame in (accepted(call), started(call), outcome(call), rejected(call), cancelled(call)):
        assert m.send(bob, frame) == [Send(bob, call_error("protocol_error"))]
    assert m.states(call) == ["leased"]
    # Not one of them was an undecodable frame.
    for _ in range(30):
        m.send(bob, accepted(call))
    assert sent_to(bob, m.send(bob, accepted(call, lease(1)))) == []
    assert m.states(call) == ["accepted"]


def test_of_the_calls_of_others_nothing_can_be_learnt_without_a_lease_either() -> None:
    m = Mail()
    m.listener()
    eve = m.listener("eve", "two")
    call = m.submit(m.caller())
    assert m.send(eve, accepted(call)) != [Send(eve, call_error("protocol_error"))]
    shown = [repr(m.send(eve, accepted(name))).replace(name, "X") for name in (call, "call-99")]
    assert shown[0] == shown[1]


def test_an_acceptance_that_crosses_the_lapse_is_refused_and_the_next_lease_holds() -> None:
    m = Mail()
    bob = m.listener()
    call = m.submit(m.caller())
    [again] = offers(m.wait(30_000))
    effects = m.send(bob, accepted(call, lease(1))) + m.send(bob, started(call, lease(1)))
    assert sent_to(bob, effects) == [rejected(call, lease(1))] * 2
    assert again.lease_id == lease(2)
    m.send(bob, accepted(call, lease(2)))
    assert granted(call, lease(2)) in sent_to(bob, m.send(bob, started(call, lease(2))))


def test_a_jump_of_the_wall_clock_hands_nothing_out_twice() -> None:
    for jump in (20 * HOUR, -20 * HOUR):
        m = Mail()
        bob, two = m.listener("bob", "one"), m.listener("bob", "two")
        alice = m.caller()
        first, second = m.submit(alice, 1, 1), m.submit(alice, 2, 2)
        m.send(bob, accepted(first, lease(1)))
        m.later(jump)
        assert offers(m.wait(29_999)) == []
        assert m.states(first, second) == ["accepted", "leased"]
        # The lease that nobody accepted lapses by the clock that never goes back.
        assert [offer.call_id for offer in offers(m.wait(1))] == [second]
        assert two


def test_a_listener_without_a_journal_is_given_no_durable_call() -> None:
    m = Mail()
    bob, _ = m.join(durable=False)
    alice = m.caller()
    call, handed = m.handed(alice)
    assert handed == []
    _, effects = m.join("bob", "two")
    assert [offer.call_id for offer in offers(effects)] == [call]
    assert bob


def test_the_same_instance_again_takes_the_calls_of_its_old_connection_with_it() -> None:
    m = Mail()
    first = m.listener()
    call = m.submit(m.caller())
    m.send(first, accepted(call, lease(1)))
    second, effects = m.join()
    assert effects == [Close(first, 4000, "replaced")]
    assert m.states(call) == ["queued"]
    # A late close of the old connection is nobody's loss.
    assert m.lose(first) == []
    assert [offer.lease_id for offer in offers(m.wait(1_000), second)] == [lease(2)]
    assert m.row(call).attempts == 0


def test_failures_and_refusals_run_nothing_and_need_no_start() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    failed, refused, claimed = (m.submit(alice, n, n) for n in (1, 2, 3))
    m.send(bob, outcome(failed, "failed", lease=lease(1)))
    assert sent_to(alice, m.send(bob, rejected(refused, lease(2)))) == [
        call_error("protocol_error", durable(2, 2), call_id=refused)
    ]
    # Completed is an end of what was begun, and of nothing else.
    for frame in (
        outcome(claimed, lease=lease(3)),
        outcome(claimed, "failed", "expired", lease=lease(3)),
        outcome(claimed, "completed", "failed", lease=lease(3)),
    ):
        assert m.send(bob, frame) == [Send(bob, call_error("protocol_error"))]
    assert m.states(failed, refused, claimed) == ["failed", "delivery_failed", "leased"]
    assert m.row(refused).state is State.DELIVERY_FAILED
