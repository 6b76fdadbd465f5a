"""A store that fails: nothing false is said, sync calls go on, nothing is lost when it is back."""

from ringline.protocol import codec
from ringline.protocol.frames import ListenerToRelay
from ringline.relay.effects import CancelAnswer, Close, Decided, Send
from ringline_testing.exchange import (
    accepted,
    call_error,
    cancel,
    outcome,
    request,
    sent_to,
    started,
    status,
)
from ringline_testing.mail import FailingCalls, Mail, durable, granted, lease, offers, sealed


def broken(m: Mail, *, failing: bool = True) -> None:
    assert isinstance(m.store, FailingCalls)
    m.store.failing = failing


def fault(m: Mail) -> str | None:
    return m.calls.fault


def hear(m: Mail, connection: int, frame: ListenerToRelay) -> None:
    """Let a frame arrive in the present turn; nothing is told before that turn is over."""
    assert m.hub.receive(connection, codec.encode(frame), m.now) == []


def test_no_receipt_is_given_for_what_could_not_be_stored() -> None:
    m = Mail()
    m.listener()
    alice = m.caller()
    broken(m)
    assert m.send(alice, durable()) == [Send(alice, call_error("busy", durable(), retry=2_000))]
    # While it lasts nothing is even tried, and the reason can be seen.
    assert fault(m) == "disk full"
    assert m.send(alice, durable(2, 2)) == [Send(alice, call_error("busy", durable(2, 2), retry=2_000))]
    assert m.hub.snapshot()["now_store_failing"] == 1
    broken(m, failing=False)
    effects = m.wait(2_000)
    assert fault(m) is None
    assert offers(effects) == []
    assert m.handed(alice)[1] != []


def test_sync_calls_and_reads_go_on_while_the_store_fails() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    kept = m.submit(m.caller("carol"), 9, 9)
    m.complete(kept, bob)
    broken(m)
    m.send(alice, durable())
    frame = request(5, 5, sealed=sealed(ct="c3luYw"))
    call = m.begin(alice, frame)
    assert m.send(bob, accepted(call)) == [Send(alice, status(call, frame, "answered"))]
    m.send(bob, started(call))
    assert sent_to(alice, m.send(bob, outcome(call))) == [outcome(call)]
    record = m.hub.record("carol", kept, m.now)
    assert record is not None
    assert (record.state, record.outcome is not None) == ("completed", True)
    assert m.hub.records("carol", "caller", None, None, 9, m.now).calls != []


def test_a_grant_that_could_not_be_stored_is_not_given() -> None:
    m = Mail()
    bob = m.listener()
    call = m.submit(m.caller())
    m.send(bob, accepted(call, lease(1)))
    broken(m)
    effects = m.send(bob, started(call, lease(1)))
    assert effects == [Close(bob, 1011, "store")]
    broken(m, failing=False)
    m.wait(2_000)
    assert m.row(call).instance is None
    assert m.row(call).attempts == 0
    bob, effects = m.join()
    assert [offer.call_id for offer in offers(effects)] == [call]


def test_an_outcome_that_could_not_be_stored_closes_its_connection_and_is_asked_for_again() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.grant(call, bob)
    broken(m)
    assert m.send(bob, outcome(call, lease=lease(1))) == [Close(bob, 1011, "store")]
    # It comes back too early, and is given nothing that it would be refused.
    bob, effects = m.join()
    assert effects == []
    broken(m, failing=False)
    [offer] = offers(m.wait(2_000), bob)
    assert offer.call_id == call
    effects = m.send(bob, outcome(call, lease=m.leased(call)))
    # Whoever was attached before still is, and hears one end.
    assert sent_to(alice, effects) == [outcome(call, reason="completed")]


def test_all_of_a_turn_is_stored_or_nothing_of_it_is_said() -> None:
    m = Mail()
    bob, alice, carol = m.listener(), m.caller(), m.caller("carol")
    first = m.submit(alice, 1, 1)
    m.grant(first, bob)
    hear(m, bob, outcome(first, lease=lease(1)))
    assert m.hub.receive(carol, codec.encode(durable(2, 2)), m.now) == []
    broken(m)
    effects = m.hub.commit(m.now)
    assert effects == [Send(carol, call_error("busy", durable(2, 2), retry=2_000)), Close(bob, 1011, "store")]
    assert m.row(first).terminal is None


def test_what_does_not_need_the_store_does_not_wait_for_it() -> None:
    m = Mail()
    bob, alice, carol = m.listener(), m.caller(), m.caller("carol")
    frame = request(5, 5, sealed=sealed(ct="c3luYw"))
    assert m.hub.receive(alice, codec.encode(durable()), m.now) == []
    effects = m.hub.receive(carol, codec.encode(frame), m.now)
    assert sent_to(carol, effects) == [status("call-2", frame, "ringing")]
    assert len(offers(effects, bob)) == 1
    assert len(offers(m.hub.commit(m.now), bob)) == 1


def test_a_cancel_that_could_not_be_stored_is_not_said_to_stand() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    call = m.submit(alice)
    m.grant(call, bob)
    broken(m)
    effects = m.turn(m.hub.cancel("alice", call, 1, m.now))
    assert effects == [Decided(1, CancelAnswer.UNAVAILABLE), Close(bob, 1011, "store")]
    assert m.turn(m.hub.cancel("alice", call, 2, m.now)) == [Decided(2, CancelAnswer.UNAVAILABLE)]
    assert m.send(alice, cancel(call)) == [Close(alice, 1011, "store")]
    assert not m.row(call).cancel_requested


def test_a_store_that_is_back_knows_what_it_knew() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    begun, waiting = m.submit(alice, 1, 1), m.submit(alice, 1, 2)
    m.grant(begun, bob)
    broken(m)
    m.send(alice, durable(3, 3))
    assert m.wait(20_000) == []
    broken(m, failing=False)
    bob, effects = m.join()
    effects += m.wait(2_000)
    assert [offer.call_id for offer in offers(effects)] == [begun]
    held = m.leased(begun)
    assert granted(begun, held) in sent_to(bob, m.send(bob, started(begun, held)))
    m.send(bob, outcome(begun, lease=held))
    assert m.states(begun, waiting) == ["completed", "leased"]
