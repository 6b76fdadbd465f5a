"""Attempts of durable calls: what counts, what is taken back, what parks, and what rests."""

from ringline.protocol.lifecycle import State
from ringline.relay.effects import Close, Effect, Retire, Send
from ringline_testing.exchange import accepted, call_error, cancel, outcome, started
from ringline_testing.mail import HOUR, Mail, durable, lease, offers


def test_the_third_counted_attempt_parks_a_call_without_a_word_to_its_caller() -> None:
    m = Mail()
    m.listener()
    call = m.submit(m.caller())
    for attempt in (1, 2):
        assert len(offers(m.wait(30_000))) == 1
        assert m.row(call).attempts == attempt
    assert m.wait(30_000) == []
    row = m.row(call)
    assert (row.state, row.attempts, row.finished_at) == (State.PARKED, 3, None)
    record = m.record(call)
    assert (record.state, record.terminal_reason, record.finished_at) == ("delivery_failed", None, None)
    # Its ciphertext and its place in the quota stay.
    assert m.store is not None
    assert m.store.request(call) is not None
    assert m.store.held_by("bob").calls == 1
    assert m.hub.acknowledge("alice", call, m.now) == "running"


def test_a_lost_connection_counts_and_the_same_process_coming_back_takes_it_back() -> None:
    m = Mail()
    bob = m.listener(boot="one")
    call = m.submit(m.caller())
    m.send(bob, accepted(call, lease(1)))
    m.lose(bob)
    assert m.row(call).attempts == 1
    bob, _ = m.join(boot="one")
    assert m.row(call).attempts == 0
    # It was no attempt, but it came to nothing: it rests for a second.
    assert offers(m.wait(999)) == []
    assert len(offers(m.wait(1), bob)) == 1


def test_another_process_of_the_instance_takes_nothing_back() -> None:
    m = Mail()
    bob = m.listener(boot="one")
    call = m.submit(m.caller())
    m.lose(bob)
    _, effects = m.join(boot="two")
    assert m.row(call).attempts == 1
    assert [offer.call_id for offer in offers(effects)] == [call]


def test_a_lapse_is_never_taken_back() -> None:
    m = Mail()
    bob = m.listener(boot="one")
    call = m.submit(m.caller())
    m.wait(30_000)
    m.lose(bob, clean=True)
    m.join(boot="one")
    assert m.row(call).attempts == 1


def test_a_parked_call_comes_back_when_the_process_that_lost_it_lives() -> None:
    m = Mail({"ATTEMPTS": 1})
    bob = m.listener(boot="one")
    call = m.submit(m.caller())
    m.lose(bob)
    assert m.row(call).state is State.PARKED
    bob, _ = m.join(boot="one")
    assert (m.row(call).state, m.row(call).attempts) == (State.QUEUED, 0)
    assert len(offers(m.wait(1_000), bob)) == 1


def test_what_the_relay_or_the_listener_closes_does_not_count() -> None:
    m = Mail()
    bob, alice = m.listener(boot="one"), m.caller()
    call = m.submit(alice)
    # The listener's own close frame.
    m.lose(bob, clean=True)
    assert m.row(call).attempts == 0
    # The relay's close: a card that logs in no more.
    bob, _ = m.join(boot="two")
    m.wait(1_000)
    assert m.states(call) == ["leased"]
    m.turn(m.hub.close_card("bob", "A" * 43, m.now))
    assert m.row(call).attempts == 0
    # The relay's restart, and its drain.
    m.restart()
    bob, _ = m.join(boot="three")
    assert m.states(call) == ["leased"]
    m.turn(m.hub.drain(m.now))
    m.restart()
    assert (m.row(call).state, m.row(call).attempts) == (State.QUEUED, 0)


def test_after_a_loss_without_blame_a_call_rests_longer_each_time() -> None:
    m = Mail()
    bob = m.listener()
    call = m.submit(m.caller())
    rests: list[int] = []
    for _ in range(9):
        m.lose(bob, clean=True)
        bob, effects = m.join()
        waited = 0
        while not offers(effects):
            effects = m.wait(1_000)
            waited += 1_000
        rests.append(waited)
    assert rests == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]
    assert m.row(call).attempts == 0


def test_twenty_losses_without_blame_park_a_call_too() -> None:
    m = Mail()
    bob = m.listener()
    call = m.submit(m.caller())
    for _ in range(20):
        assert m.row(call).state is State.QUEUED
        while m.states(call) != ["leased"]:
            m.wait(1_000)
        m.send(bob, accepted(call, m.leased(call)))
        m.lose(bob, clean=True)
        bob, _ = m.join()
    assert (m.row(call).state, m.row(call).attempts) == (State.PARKED, 0)


def test_a_resting_call_holds_back_its_own_conversation_only() -> None:
    m = Mail()
    bob, alice = m.listener(capacity=1), m.caller()
    first, behind, other = m.submit(alice, 1, 1), m.submit(alice, 1, 2), m.submit(alice, 2, 3)
    m.lose(bob, clean=True)
    bob, effects = m.join(capacity=2)
    assert [offer.call_id for offer in offers(effects)] == [other]
    assert [offer.call_id for offer in offers(m.wait(1_000))] == [first]
    assert m.states(behind) == ["queued"]


def test_a_connection_has_one_suspect_in_hand_and_no_more() -> None:
    m = Mail()
    bob, alice = m.listener(capacity=3), m.caller()
    calls = [m.submit(alice, n, n) for n in (1, 2, 3)]
    # The process dies of one of them; nobody knows of which.
    m.lose(bob)
    bob, effects = m.join(boot="next", capacity=3)
    assert [offer.call_id for offer in offers(effects)] == [calls[0]]
    healthy, handed = m.handed(alice, 4, 4)
    assert [offer.call_id for offer in handed] == [healthy]
    # The next one follows when this one has begun.
    m.send(bob, accepted(calls[0], m.leased(calls[0])))
    effects = m.send(bob, started(calls[0], m.leased(calls[0])))
    assert [offer.call_id for offer in offers(effects)] == [calls[1]]


def test_a_poison_call_is_parked_and_takes_no_healthy_one_with_it() -> None:
    m = Mail()
    bob, alice = m.listener(boot="0", capacity=2), m.caller()
    poison, healthy = m.submit(alice, 1, 1), m.submit(alice, 2, 2)
    for life in range(1, 8):
        if m.states(poison) == ["leased"]:
            m.lose(bob)  # its process dies when it opens the call
            bob, _ = m.join(boot=str(life), capacity=2)
        elif m.states(healthy) == ["leased"]:
            m.complete(healthy, bob)
    assert m.states(poison, healthy) == ["delivery_failed", "completed"]
    assert m.row(poison).attempts == 3


# --- parked calls


def parked(m: Mail) -> str:
    call = m.submit(m.caller())
    bob = m.listener_again()
    m.wait(90_000)
    assert m.row(call).state is State.PARKED
    m.lose(bob, clean=True)
    return call


def test_a_parked_call_is_tried_again_when_its_callee_says_so() -> None:
    m = Mail()
    call = parked(m)
    assert m.hub.replay("alice", call, m.now) == "missing"
    assert m.hub.replay("bob", "call-99", m.now) == "missing"
    assert m.hub.replay("bob", call, m.now) == "replayed"
    m.turn([])
    assert (m.row(call).state, m.row(call).attempts) == (State.QUEUED, 0)
    assert m.hub.replay("bob", call, m.now) == "conflict"
    _, effects = m.join()
    assert [offer.call_id for offer in offers(effects)] == [call]


def test_a_replay_reaches_a_listener_that_is_there() -> None:
    m = Mail()
    call = parked(m)
    m.join()
    m.hub.replay("bob", call, m.now)
    assert [offer.call_id for offer in offers(m.hub.commit(m.now))] == [call]


def test_a_parked_call_is_canceled_at_once() -> None:
    m = Mail()
    call = parked(m)
    alice = m.caller()
    assert sent_to_all(m.send(alice, cancel(call))) == [call_error("canceled", durable(), call_id=call)] * 2
    assert m.states(call) == ["canceled"]


def test_a_parked_call_ends_as_undelivered_when_its_time_is_over() -> None:
    m = Mail()
    call = parked(m)
    effects = m.wait(48 * HOUR)
    assert sent_to_all(effects) == [call_error("offline", durable(), call_id=call)]
    assert effects[-1] == Retire(call)
    assert m.row(call).state is State.DELIVERY_FAILED


def test_a_parked_call_is_passed_over_by_its_conversation() -> None:
    m = Mail()
    parked(m)
    second = m.submit(m.caller(), 1, 2)
    _, effects = m.join()
    assert [offer.call_id for offer in offers(effects)] == [second]


def sent_to_all(effects: list[Effect]) -> list[object]:
    return [effect.frame for effect in effects if isinstance(effect, Send)]


# --- the end of the relay


def test_a_relay_that_stops_waits_for_begun_work_and_for_nothing_that_can_wait() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    begun, taken = m.submit(alice, 1, 1), m.submit(alice, 2, 2)
    m.grant(begun, bob)
    m.send(bob, accepted(taken, m.leased(taken)))
    # The caller can ask the next relay; who works is given time for its outcome.
    assert m.turn(m.hub.drain(m.now)) == [Close(alice, 1001, "retry=2000")]
    effects = m.send(bob, outcome(begun, lease=m.leased(begun)))
    assert effects == [Retire(begun), Close(bob, 1001, "retry=2000")]
    assert m.hub.drained()
    assert m.states(begun, taken) == ["completed", "queued"]
    assert m.row(taken).attempts == 0
