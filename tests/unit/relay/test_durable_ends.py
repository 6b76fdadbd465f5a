"""How durable calls end that nobody finished: time, lost authority, and what is seen."""

import pytest

from ringline.protocol.frames import CallError
from ringline.protocol.lifecycle import State
from ringline.relay.effects import CancelAnswer, Close, Decided, Retire, Send
from ringline_testing.exchange import (
    CARD,
    OLD_CARD,
    accepted,
    call_error,
    cancel,
    cancelled,
    outcome,
    sent_to,
)
from ringline_testing.mail import HOUR, Mail, durable, lease, offers, sealed, stop

LIFE = 48 * HOUR


@pytest.mark.parametrize("until", ["queued", "leased", "accepted"])
def test_what_has_not_begun_in_time_expires_and_its_listener_is_told_to_stop(until: str) -> None:
    m = Mail()
    alice = m.caller()
    call = m.submit(alice, sealed=sealed(life=20_000))
    bob = m.listener_again() if until != "queued" else None
    if bob is not None and until == "accepted":
        m.send(bob, accepted(call, lease(1)))
    effects = m.wait(20_000)
    assert sent_to(alice, effects) == [call_error("timeout", durable(), call_id=call)]
    if bob is not None:
        assert sent_to(bob, effects) == [stop(call, lease(1))]
    record = m.record(call)
    assert (record.state, record.terminal_reason) == ("expired", "expired")


def test_begun_work_is_stopped_when_its_time_is_over() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    calls = [m.submit(alice, n, n) for n in range(1, 5)]
    for call in calls:
        m.grant(call, bob)
    stopped, asked, finished, silent = calls
    m.send(alice, cancel(asked))
    effects = m.wait(LIFE)
    # The one that has its cancel_call already gets no second.
    assert sent_to(bob, effects) == [stop(calls[n], lease(n + 1)) for n in (0, 2, 3)]
    assert m.states(*calls) == ["started"] * 4
    m.send(bob, cancelled(stopped, lease(1)))
    m.send(bob, cancelled(asked, lease(2)))
    m.send(bob, outcome(finished, lease=lease(3)))
    m.wait(10_000)
    assert m.states(*calls) == ["expired", "canceled", "completed", "indeterminate_execution"]
    assert m.row(silent).error == "timeout"


def test_begun_work_of_a_lost_instance_ends_ten_seconds_after_its_time() -> None:
    m = Mail({"REBIND_MS": 60 * HOUR})
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.grant(call, bob)
    m.lose(bob)
    m.wait(LIFE)
    bob, effects = m.join()
    assert sent_to(bob, effects)[1:] == [stop(call, lease(2))]
    m.wait(10_000)
    assert m.states(call) == ["indeterminate_execution"]


def test_a_relay_that_restarts_while_it_waits_for_a_stop_asks_again() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.grant(call, bob)
    m.wait(LIFE)
    m.restart()
    m.wait(60_000)
    assert m.states(call) == ["indeterminate_execution"]


def test_what_is_left_of_a_calls_time_must_do() -> None:
    m = Mail({"MIN_REMAINING_MS": 10_000})
    alice = m.caller()
    call, other = m.submit(alice, 1, 1, sealed=sealed(life=20_000)), m.submit(alice, 1, 2)
    m.wait(10_000)
    _, effects = m.join()
    # It expires instead of blocking those behind it.
    assert [offer.call_id for offer in offers(effects)] == [other]
    assert m.states(call) == ["expired"]


def test_records_and_outcomes_are_forgotten_a_day_after_their_time() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    done, never = m.submit(alice, 1, 1), m.submit(alice, 2, 2)
    m.complete(done, bob)
    m.wait(LIFE + 24 * HOUR - 1)
    assert m.record(done).outcome is not None
    m.wait(1)
    assert m.store is not None
    assert [m.store.load(call) for call in (done, never)] == [None, None]
    assert m.store.next_due() is None
    assert m.hub.record("alice", done, m.now) is None


def test_the_request_is_deleted_at_the_end_and_the_outcome_when_it_is_acknowledged() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    assert m.hub.acknowledge("alice", call, m.now) == "running"
    m.complete(call, bob)
    assert m.store is not None
    assert m.store.request(call) is None
    assert m.record(call).outcome is not None
    assert m.hub.acknowledge("bob", call, m.now) == "missing"
    for _ in range(2):
        assert m.hub.acknowledge("alice", call, m.now) == "acknowledged"
        m.turn([])
    assert m.record(call).outcome is None
    assert m.record(call).state == "completed"


def test_an_outcome_is_read_ten_times_and_then_still_there_to_acknowledge() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.complete(call, bob)
    assert m.record(call, "bob").outcome is None
    shown = [m.record(call).outcome is not None for _ in range(12)]
    assert shown == [True] * 10 + [False] * 2


# --- authority


def block(m: Mail) -> None:
    m.register.blocked.add(("bob", "alice"))


def switch_off(m: Mail) -> None:
    m.register.durable.clear()


def remove(m: Mail) -> None:
    m.register.gone.add("bob")


@pytest.mark.parametrize("how", [block, switch_off, remove])
def test_a_callee_that_takes_its_permission_back_is_not_seen_to(how: object) -> None:
    m = Mail()
    alice = m.caller()
    call = m.submit(alice)
    assert callable(how)
    how(m)
    assert m.turn(m.hub.recheck("bob", m.now)) == []
    seen, known = m.record(call), m.record(call, "bob")
    assert (seen.state, seen.terminal_reason, seen.finished_at) == ("queued", None, None)
    assert (known.state, known.terminal_reason) == ("revoked", "revoked")
    assert m.store is not None
    assert m.store.request(call) is None
    # Neither by a repeat, nor by an acknowledgement, nor by a list.
    again = m.caller()
    [answer] = sent_to(again, m.send(again, durable()))
    assert type(answer).__name__ == "CallQueued"
    assert m.hub.acknowledge("alice", call, m.now) == "running"
    assert [r.state for r in m.hub.records("alice", "caller", "queued", None, 9, m.now).calls] == ["queued"]
    assert m.hub.records("alice", "caller", "revoked", None, 9, m.now).calls == []
    effects = m.wait(LIFE)
    ends = [Send(caller, call_error("offline", durable(), call_id=call)) for caller in (alice, again)]
    assert effects == [*ends, Retire(call)]
    seen = m.record(call)
    assert (seen.state, seen.finished_at) == ("delivery_failed", seen.expires_at)
    m.wait(24 * HOUR)
    assert m.store.load(call) is None


def test_a_call_that_is_hidden_from_its_caller_can_be_canceled_by_him() -> None:
    m = Mail()
    alice = m.caller()
    call = m.submit(alice)
    block(m)
    m.hub.recheck("bob", m.now)
    m.turn([])
    assert m.turn(m.hub.cancel("alice", call, 1, m.now)) == [
        Send(alice, call_error("canceled", durable(), call_id=call)),
        Decided(1, CancelAnswer.CANCELED),
        Retire(call),
    ]
    assert m.record(call).state == "canceled"
    assert m.record(call, "bob").state == "revoked"
    assert m.wait(LIFE) == []


def test_authority_is_looked_at_again_at_each_hand_out() -> None:
    m = Mail()
    alice = m.caller()
    call, other = m.submit(alice), m.submit(m.caller("carol"))
    block(m)
    _, effects = m.join()
    assert [offer.call_id for offer in offers(effects)] == [other]
    assert m.states(call) == ["revoked"]


def test_a_call_in_hand_is_revoked_at_once_and_its_listener_told_to_stop() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    leased, taken, begun = (m.submit(alice, n, n) for n in (1, 2, 3))
    m.send(bob, accepted(taken, lease(2)))
    m.grant(begun, bob)
    block(m)
    effects = m.turn(m.hub.recheck("bob", m.now))
    assert sent_to(bob, effects) == [stop(begun, lease(3)), stop(taken, lease(2)), stop(leased, lease(1))]
    assert sent_to(alice, effects) == []
    assert m.states(leased, taken, begun) == ["revoked", "revoked", "started"]
    # What has begun ends by the listener's word.
    assert sent_to(alice, m.send(bob, cancelled(begun, lease(3)))) == []
    assert m.states(begun) == ["revoked"]
    assert [m.record(call).state for call in (leased, begun)] == ["queued", "started"]


def test_begun_work_without_authority_may_still_finish_or_becomes_indeterminate() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    first, second = m.submit(alice, 1, 1), m.submit(alice, 2, 2)
    m.grant(first, bob)
    m.grant(second, bob)
    block(m)
    m.turn(m.hub.recheck("bob", m.now))
    m.send(bob, outcome(first, lease=lease(1)))
    m.wait(10_000)
    assert m.states(first, second) == ["completed", "indeterminate_execution"]


def test_what_a_revoked_card_has_sealed_is_revoked_and_its_caller_told_where_he_is_logged_in() -> None:
    m = Mail()
    old, new = m.caller(card=OLD_CARD), m.caller(card=CARD)
    mine = m.submit(old, 1, 1, sealed=sealed(sid=OLD_CARD))
    m.send(new, durable(1, 1, sealed=sealed(sid=OLD_CARD)))
    other = m.submit(new, 2, 2)
    m.register.revoked.add(("alice", OLD_CARD))
    effects = m.turn(m.hub.revoke("alice", OLD_CARD, m.now))
    assert effects == [
        Close(old, 4001, "revoked"),
        Send(new, call_error("unauthorized", durable(), call_id=mine)),
        Retire(mine),
    ]
    assert m.states(mine, other) == ["revoked", "queued"]
    assert m.record(mine).state == "revoked"


def test_calls_to_a_handle_stay_when_one_of_its_cards_is_revoked() -> None:
    m = Mail()
    call = m.submit(m.caller())
    m.register.revoked.add(("bob", CARD))
    m.turn(m.hub.revoke("bob", CARD, m.now))
    assert m.states(call) == ["queued"]


def test_a_list_that_no_longer_names_the_caller_takes_nothing_back() -> None:
    m = Mail()
    call = m.submit(m.caller())
    m.register.unreachable.add(("alice", "bob"))
    m.turn(m.hub.recheck("bob", m.now))
    _, effects = m.join()
    assert [offer.call_id for offer in offers(effects)] == [call]


def test_a_wall_clock_that_jumps_ahead_ends_what_is_over_within_a_minute() -> None:
    m = Mail()
    alice = m.caller()
    call = m.submit(alice)
    m.later(LIFE)
    effects = m.wait(60_000)
    assert [frame for frame in sent_to(alice, effects) if isinstance(frame, CallError)] == [
        call_error("timeout", durable(), call_id=call)
    ]
    assert m.row(call).state is State.EXPIRED
