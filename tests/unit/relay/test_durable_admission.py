"""Admission of durable calls: what is stored, what is refused, what a repeat is told."""

import pytest
from msgspec.structs import replace

from ringline.protocol import codec
from ringline.protocol.frames import CallQueued
from ringline.protocol.lifecycle import State
from ringline.relay.effects import Retire, Send
from ringline_testing.exchange import (
    CARD,
    START,
    Register,
    call_error,
    cancel,
    number,
    outcome,
    request,
    sent_to,
    status,
)
from ringline_testing.mail import HOUR, Mail, durable, offers, sealed


def queued(call_id: str, message: int = 1, correlation: int = 1) -> CallQueued:
    return CallQueued(
        call_id=call_id,
        message_id=number(message),
        correlation_id=number(correlation),
        submitted_at=START.wall + 1,
        expires_at=START.wall + 1 + 48 * HOUR,
    )


def test_a_request_is_stored_and_told_only_after_its_commit() -> None:
    m = Mail()
    alice = m.caller()
    frame = durable(traceparent=f"00-{number(1)}-00000000000000aa-01")
    assert m.hub.receive(alice, codec.encode(frame), m.now) == []
    assert m.calls.unsaved
    assert m.hub.commit(m.now) == [Send(alice, queued("call-1"))]
    assert not m.hub.unsaved
    row = m.row("call-1")
    assert (row.caller, row.callee, row.caller_card) == ("alice", "bob", CARD)
    assert (row.state, row.attempts, row.listed) == (State.QUEUED, 0, True)
    assert row.traceparent == f"00-{number(1)}-00000000000000aa-01"
    assert row.due_at == row.execute_by


def test_a_durable_call_is_leased_even_when_a_listener_is_idle() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    effects = m.send(alice, durable())
    assert sent_to(alice, effects) == [queued("call-1")]
    [offer] = offers(effects, bob)
    assert (offer.delivery_mode, offer.message_id, offer.from_) == ("durable", number(1), "alice")
    assert offer.lease_id == m.leased("call-1")
    assert offer.execute_by == START.wall + 1 + 48 * HOUR
    assert m.states("call-1") == ["leased"]


def test_an_occupied_listener_leaves_a_durable_call_queued_and_is_not_busy() -> None:
    m = Mail()
    bob, alice = m.listener(capacity=1), m.caller()
    first, second = m.submit(alice, 1, 1), m.submit(alice, 2, 2)
    assert m.states(first, second) == ["leased", "queued"]
    held = m.grant(first, bob)
    assert [offer.call_id for offer in offers(m.send(bob, outcome(first, lease=held)))] == [second]


def test_a_callee_that_stores_nothing_is_offline() -> None:
    m = Mail(register=Register())
    alice = m.caller()
    assert m.send(alice, durable()) == [Send(alice, call_error("offline", durable()))]
    assert m.store is not None
    assert m.store.next_due() is None


def test_the_time_to_execute_is_three_days_or_what_was_sealed() -> None:
    m = Mail()
    alice = m.caller()
    short = m.submit(alice, 1, 1, sealed=sealed(life=HOUR))
    long = m.submit(alice, 2, 2, sealed=sealed(life=200 * HOUR, ct="YWFh"))
    assert m.row(short).execute_by == START.wall + 1 + HOUR
    assert m.row(long).execute_by == START.wall + 1 + 72 * HOUR
    over = durable(3, 3, sealed=sealed(iat=START.wall - 2, life=1))
    assert m.send(alice, over) == [Send(alice, call_error("protocol_error", over))]


# Eight base64 characters are six bytes.
QUOTAS = {
    "calls of a callee": {"STORED_CALLS": 2},
    "calls of a pair": {"STORED_CALLS_PER_PAIR": 2},
    "bytes of a callee": {"STORED_REQUEST_BYTES": 17, "STORED_PAIR_PERCENT": 100},
    "bytes of a pair": {"STORED_REQUEST_BYTES": 68, "STORED_PAIR_PERCENT": 25},
}


@pytest.mark.parametrize("quota", QUOTAS)
def test_a_full_mailbox_is_busy_with_a_time_to_come_back(quota: str) -> None:
    m = Mail(QUOTAS[quota] | {"STORED_UNLISTED_PERCENT": 0})
    alice = m.caller()
    first, _, third = [durable(n, n, sealed=sealed(ct=f"AAAA000{n}")) for n in range(1, 4)]
    m.submit(alice, 1, 1, sealed=first.envelope)
    m.submit(alice, 2, 2, sealed=sealed(ct="AAAA0002"))
    assert m.send(alice, third) == [Send(alice, call_error("busy", third, retry=60_000))]
    # An end gives the place back, once: a repeat of it changes nothing.
    m.send(alice, cancel("call-1"))
    m.send(alice, first)
    m.submit(alice, 3, 3, sealed=third.envelope)
    fourth = durable(4, 4, sealed=sealed(ct="AAAA0004"))
    assert m.send(alice, fourth) == [Send(alice, call_error("busy", fourth, retry=60_000))]


def test_outcomes_that_nobody_fetches_stop_admission_until_they_are_acknowledged() -> None:
    m = Mail({"STORED_OUTCOME_BYTES": 6, "STORED_PAIR_PERCENT": 100})
    bob, alice = m.listener(), m.caller()
    first = m.submit(alice, 1, 1)
    m.complete(first, bob)
    assert m.send(alice, durable(2, 2)) == [Send(alice, call_error("busy", durable(2, 2), retry=60_000))]
    assert m.hub.acknowledge("alice", first, m.now) == "acknowledged"
    m.turn([])
    assert m.store is not None
    assert m.store.outcome(first) is None
    assert m.submit(alice, 2, 2)


def test_strangers_together_leave_half_of_a_mailbox_to_those_on_the_list() -> None:
    m = Mail({"STORED_CALLS": 4}, Register(durable={"bob"}, unlisted={("bob", "eve"), ("bob", "mal")}))
    eve, mal, alice = m.caller("eve"), m.caller("mal"), m.caller()
    m.submit(eve, 1, 1)
    m.submit(mal, 1, 1)
    assert m.send(mal, durable(2, 2)) == [Send(mal, call_error("busy", durable(2, 2), retry=60_000))]
    m.submit(alice, 1, 1)
    m.submit(alice, 2, 2)
    assert m.send(alice, durable(3, 3)) == [Send(alice, call_error("busy", durable(3, 3), retry=60_000))]


# --- repeats


def test_a_repeat_is_told_the_original_times_and_where_the_call_stands() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.grant(call, bob)
    m.now = m.now.later(5_000)
    again = m.caller()
    assert m.send(again, durable()) == [
        Send(again, queued(call)),
        Send(again, status(call, durable(), "working")),
    ]
    # Both connections of the caller hear the end, once each.
    effects = m.send(bob, outcome(call, lease=m.leased(call)))
    end = outcome(call, reason="completed")
    assert sent_to(alice, effects) == sent_to(again, effects) == [end]
    assert effects.count(Retire(call)) == 1


def test_a_repeat_of_a_finished_call_gets_its_outcome_and_not_only_a_receipt() -> None:
    m = Mail({"OUTCOME_RESENDS": 2})
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.complete(call, bob)
    end = outcome(call, reason="completed")
    assert m.send(alice, durable()) == [Send(alice, queued(call)), Send(alice, end)]
    assert m.send(alice, durable()) == [Send(alice, queued(call)), Send(alice, end)]
    # The eleventh of ten: a limit that outlives the relay.
    m.restart()
    alice = m.caller()
    assert m.send(alice, durable()) == [Send(alice, call_error("rate_limited", durable()))]
    m.hub.acknowledge("alice", call, m.now)
    assert m.send(alice, durable()) == [Send(alice, queued(call))]


def test_anything_else_under_the_key_of_a_durable_call_is_an_error() -> None:
    m = Mail()
    alice = m.caller()
    m.submit(alice)
    for other in (
        durable(sealed=sealed(ct="b3RoZXI")),
        durable(2, 1, sealed=sealed(ct="Y00001")),
        request(1, 1, sealed=sealed(ct="Y00001")),
    ):
        assert m.send(alice, other) == [Send(alice, call_error("protocol_error", other))]


def test_a_durable_request_under_the_key_of_a_sync_call_is_an_error() -> None:
    m = Mail()
    m.listener()
    alice = m.caller()
    frame = request(1, 1, sealed=sealed(ct="Y00001"))
    m.send(alice, frame)
    other = replace(frame, delivery_mode="durable")
    assert m.send(alice, other) == [Send(alice, call_error("protocol_error", other))]


def test_fifty_at_once_are_one_call() -> None:
    m = Mail()
    callers = [m.caller() for _ in range(50)]
    bob = m.listener()
    effects = [
        effect for caller in callers for effect in m.hub.receive(caller, codec.encode(durable()), m.now)
    ]
    assert effects == []
    effects = m.turn(effects)
    assert [sent_to(caller, effects) for caller in callers] == [[queued("call-1")]] * 50
    assert len(offers(effects, bob)) == 1
    assert m.calls.mailbox.page("callee", "bob", None, "", 100)[0] == [m.record("call-1")]


def test_in_one_turn_a_conversation_has_one_request_without_an_answer() -> None:
    m = Mail()
    alice = m.caller()
    assert m.hub.receive(alice, codec.encode(durable(1, 1)), m.now) == []
    refused = [Send(alice, call_error("protocol_error", durable(1, 2)))]
    assert m.hub.receive(alice, codec.encode(durable(1, 2)), m.now) == refused
    # The same message again is the same call, and another conversation is none of its business.
    assert m.hub.receive(alice, codec.encode(durable(1, 1)), m.now) == []
    assert m.hub.receive(alice, codec.encode(durable(2, 3)), m.now) == []
    m.turn([])
    assert m.submit(alice, 1, 2) == "call-3"


def test_a_repeat_in_a_later_life_of_the_relay_is_the_same_call() -> None:
    m = Mail()
    call = m.submit(m.caller())
    m.now = m.now.later(1_000)
    m.restart()
    alice = m.caller()
    assert m.send(alice, durable()) == [Send(alice, queued(call))]
