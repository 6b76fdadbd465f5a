"""A start is granted, not reported; what has begun is its instance's alone."""

from msgspec.structs import replace

from ringline.protocol import codec
from ringline.protocol.lifecycle import State
from ringline.relay.effects import Retire, Send
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
from ringline_testing.mail import HOUR, Mail, durable, granted, lease, offers, stop

DAY = 24 * HOUR


def test_a_start_is_written_with_its_instance_before_it_is_granted() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    # A start without an acceptance implies it; what needs no commit need not wait for one.
    m.send(bob, accepted(call, lease(1)))
    assert m.hub.receive(bob, codec.encode(started(call, lease(1))), m.now) == []
    told = m.hub.commit(m.now)
    assert [effect.connection for effect in told if isinstance(effect, Send)] == [bob, alice]
    assert sent_to(bob, told) == [granted(call, lease(1))]
    row = m.row(call)
    assert (row.state, row.instance, row.started_at) == (State.STARTED, "one", m.now.wall)


def test_a_repeated_ask_is_answered_again_and_changes_nothing() -> None:
    m = Mail()
    bob = m.listener()
    call = m.submit(m.caller())
    m.grant(call, bob)
    row = m.row(call)
    assert m.send(bob, started(call, lease(1))) == [Send(bob, granted(call, lease(1)))]
    assert m.row(call) == row


def test_there_is_no_grant_while_a_cancel_is_requested() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.send(bob, accepted(call, lease(1)))
    assert m.send(alice, cancel(call)) == [Send(bob, stop(call, lease(1)))]
    assert m.send(bob, started(call, lease(1))) == []
    assert m.row(call).state is State.QUEUED
    # Should the listener not have removed it after all, it was asked and gets its answer.
    refused = not_cancelled(call, "unknown")
    effects = m.send(bob, replace(refused, lease_id=lease(1)))
    assert sent_to(alice, effects)[0] == refused
    assert sent_to(bob, effects) == [granted(call, lease(1))]


def test_there_is_no_grant_when_the_time_is_over() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.send(bob, accepted(call, lease(1)))
    m.later(48 * HOUR)
    assert granted(call, lease(1)) not in sent_to(bob, m.send(bob, started(call, lease(1))))
    assert m.row(call).state is not State.STARTED


def test_a_started_call_goes_to_no_other_instance() -> None:
    m = Mail()
    bob = m.listener()
    call = m.submit(m.caller())
    m.grant(call, bob)
    m.lose(bob)
    _, effects = m.join("bob", "two")
    assert offers(effects) == []
    assert offers(m.wait(HOUR - 1)) == []
    assert m.states(call) == ["started"]


def test_started_work_comes_back_under_a_new_lease_before_anything_else_and_whatever_the_capacity() -> None:
    m = Mail()
    bob, alice = m.listener(capacity=2), m.caller()
    begun = [m.submit(alice, n, n) for n in (1, 2)]
    for call in begun:
        m.grant(call, bob)
    waiting = m.submit(alice, 3, 3)
    m.lose(bob)
    bob, effects = m.join(capacity=1)
    assert [(offer.call_id, offer.lease_id) for offer in offers(effects, bob)] == [
        (begun[0], lease(3)),
        (begun[1], lease(4)),
    ]
    # A rebind lease has no thirty seconds: it lasts as long as the connection.
    assert offers(m.wait(20 * HOUR)) == []
    assert m.send(bob, outcome(begun[0], lease=lease(1))) == [Send(bob, rejected(begun[0], lease(1)))]
    m.send(bob, outcome(begun[0], lease=lease(3)))
    effects = m.send(bob, outcome(begun[1], lease=lease(4)))
    assert [offer.call_id for offer in offers(effects, bob)] == [waiting]


def test_a_rebind_asks_no_new_authority() -> None:
    m = Mail()
    bob = m.listener()
    call = m.submit(m.caller())
    m.grant(call, bob)
    m.lose(bob)
    m.register.durable.clear()
    m.register.blocked.add(("bob", "alice"))
    _, effects = m.join()
    assert [offer.call_id for offer in offers(effects)] == [call]


def test_the_answers_from_a_journal_are_taken_under_the_new_lease() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    taken, alive, dead, finished, stopped = (m.submit(alice, n, n) for n in range(1, 6))
    m.lose(bob)
    m.now = m.now.later(1)
    bob, _ = m.join(boot="b", capacity=5)
    m.wait(2_000)
    for call in (taken, alive, dead, finished, stopped):
        m.grant(call, bob)
    m.send(alice, cancel(stopped))
    m.lose(bob)
    bob, effects = m.join(capacity=5)
    assert stop(stopped, m.leased(stopped)) in sent_to(bob, effects)
    held = {call: m.leased(call) for call in (taken, alive, dead, finished, stopped)}
    # The grant of the first was lost on the way: it asks again, and is answered under the new lease.
    m.send(bob, accepted(taken, held[taken]))
    assert m.send(bob, started(taken, held[taken])) == [Send(bob, granted(taken, held[taken]))]
    assert m.send(bob, started(alive, held[alive])) == [Send(bob, granted(alive, held[alive]))]
    m.send(bob, outcome(dead, "failed", "indeterminate_execution", lease=held[dead]))
    m.send(bob, outcome(finished, lease=held[finished]))
    m.send(bob, cancelled(stopped, held[stopped]))
    assert m.states(taken, alive, dead, finished, stopped) == [
        "started",
        "started",
        "indeterminate_execution",
        "completed",
        "canceled",
    ]


def test_an_instance_that_lost_its_journal_may_refuse_what_it_had_begun() -> None:
    m = Mail()
    bob = m.listener()
    call = m.submit(m.caller())
    m.grant(call, bob)
    m.lose(bob)
    bob, _ = m.join()
    m.send(bob, rejected(call, lease(2)))
    assert m.states(call) == ["delivery_failed"]


def test_an_instance_has_an_hour_from_the_loss_to_come_back() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.grant(call, bob)
    m.wait(10 * HOUR)
    m.lose(bob)
    assert m.wait(HOUR - 1) == []
    assert m.wait(1) == [Send(alice, call_error("timeout", durable(), call_id=call)), Retire(call)]
    assert m.states(call) == ["indeterminate_execution"]
    _, effects = m.join()
    assert effects == []


def test_an_instance_has_an_hour_from_the_start_of_the_relay_to_come_back() -> None:
    m = Mail()
    bob = m.listener()
    call = m.submit(m.caller())
    m.grant(call, bob)
    m.wait(5 * HOUR)
    m.restart()
    m.wait(HOUR - 1)
    assert m.states(call) == ["started"]
    m.wait(1)
    assert m.states(call) == ["indeterminate_execution"]


def test_after_a_restart_the_bound_instance_gets_its_call_and_another_does_not() -> None:
    m = Mail()
    bob = m.listener()
    call = m.submit(m.caller())
    m.grant(call, bob)
    m.restart()
    _, effects = m.join("bob", "two")
    assert offers(effects) == []
    bob, effects = m.join("bob", "one", boot="new")
    [offer] = offers(effects)
    assert offer.call_id == call
    m.send(bob, outcome(call, lease=offer.lease_id if isinstance(offer.lease_id, str) else None))
    assert m.states(call) == ["completed"]


def test_an_outcome_after_lost_connections_is_still_taken_within_the_hour() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.grant(call, bob)
    for _ in range(3):
        m.lose(bob)
        m.wait(HOUR - 1)
        bob, _ = m.join()
    m.send(bob, outcome(call, lease=m.leased(call)))
    assert m.states(call) == ["completed"]


# --- the daily budget


def test_starts_are_charged_at_the_grant_and_later_ones_wait_with_a_visible_time() -> None:
    m = Mail({"STARTS": 2, "STORED_CALLS_PER_PAIR": 0})
    bob, alice, carol = m.listener(capacity=9), m.caller(), m.caller("carol")
    first, second, third = (m.submit(alice, n, n) for n in (1, 2, 3))
    assert m.record(first).deferred_until is None
    for call in (first, second):
        m.complete(call, bob)
    # It was handed out with them; the grant finds the budget used up, and takes the lease back.
    m.send(bob, accepted(third, lease(3)))
    assert m.send(bob, started(third, lease(3))) == [Send(bob, rejected(third, lease(3)))]
    record = m.record(third)
    assert (record.state, record.attempts) == ("queued", 0)
    assert record.deferred_until == m.now.wall + DAY
    # A share of its own for each caller.
    m.complete(m.submit(carol, 1, 1), bob)
    assert offers(m.wait(DAY - 60_000), bob) == []
    assert [offer.call_id for offer in offers(m.wait(60_000), bob)] == [third]
    assert m.record(third).deferred_until is None


def test_the_daily_budget_survives_a_restart() -> None:
    m = Mail({"STARTS": 1})
    bob, alice = m.listener(), m.caller()
    m.complete(m.submit(alice), bob)
    m.restart()
    m.listener()
    call, handed = m.handed(m.caller(), 2, 2)
    assert handed == []
    assert m.record(call).deferred_until == m.now.wall + DAY
