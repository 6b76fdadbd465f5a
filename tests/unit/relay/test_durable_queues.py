"""Who is served next: callers in turn, conversations in order, places for both modes."""

import pytest

from ringline.protocol.frames import IncomingCall
from ringline.protocol.instant import Instant
from ringline.relay import hands
from ringline.relay.effects import Effect, Send
from ringline.relay.errands import Errand
from ringline.relay.hands import Hands
from ringline.relay.queues import Queue
from ringline_testing.exchange import Register, accepted, outcome, request, started
from ringline_testing.mail import HOUR, Mail, lease, offers, sealed


def served(m: Mail, listener: int, effects: list[Effect]) -> list[str]:
    """Complete every call that is handed out, and return them in their order."""
    seen: list[str] = []
    waiting = [offer.call_id for offer in offers(effects, listener)]
    while waiting:
        call = waiting.pop(0)
        seen.append(call)
        held = m.leased(call)
        m.send(listener, accepted(call, held))
        m.send(listener, started(call, held))
        effects = m.send(listener, outcome(call, lease=held))
        waiting += [offer.call_id for offer in offers(effects, listener)]
    return seen


def test_callers_take_turns_however_many_calls_one_of_them_has() -> None:
    m = Mail()
    alice, carol = m.caller(), m.caller("carol")
    many = [m.submit(alice, n, n) for n in range(1, 6)]
    few = [m.submit(carol, n, n) for n in (1, 2)]
    bob, effects = m.join(capacity=1)
    assert served(m, bob, effects) == [many[0], few[0], many[1], few[1], many[2], many[3], many[4]]


def test_a_conversation_is_served_in_its_order_one_at_a_time() -> None:
    m = Mail()
    alice = m.caller()
    first, second, other = m.submit(alice, 1, 1), m.submit(alice, 1, 2), m.submit(alice, 2, 3)
    bob, effects = m.join(capacity=9)
    assert {offer.call_id for offer in offers(effects)} == {first, other}
    m.grant(first, bob)
    assert m.states(second) == ["queued"]
    effects = m.send(bob, outcome(first, lease=m.leased(first)))
    assert [offer.call_id for offer in offers(effects)] == [second]


def test_begun_work_of_a_lost_instance_holds_back_its_conversation_only() -> None:
    m = Mail()
    bob, alice = m.listener(), m.caller()
    begun = m.submit(alice, 1, 1)
    m.grant(begun, bob)
    behind, other = m.submit(alice, 1, 2), m.submit(alice, 2, 3)
    m.lose(bob)
    _, effects = m.join("bob", "two")
    assert [offer.call_id for offer in offers(effects)] == [other]
    # When it ends without its instance, the next one goes on.
    effects = m.wait(HOUR)
    assert behind in [offer.call_id for offer in offers(effects)]


def test_a_conversation_stays_with_the_instance_that_took_it() -> None:
    m = Mail()
    one, alice = m.listener("bob", "one", capacity=1), m.caller()
    m.complete(m.submit(alice, 1, 1), one)
    two, _ = m.join("bob", "two", capacity=9)
    busy = m.submit(alice, 2, 2)
    assert m.states(busy) == ["leased"]
    holder = m.calls._errands.held(busy)
    assert holder is not None
    assert holder.lease is not None
    # Full is not offline: the next turn waits for the instance that has the context.
    m2 = m.submit(alice, 1, 3)
    if holder.lease.instance.id == "one":
        assert m.states(m2) == ["queued"]
        m.grant(busy, one)
        effects = m.send(one, outcome(busy, lease=m.leased(busy)))
        assert [offer.call_id for offer in offers(effects, one)] == [m2]
    else:
        held = m.calls._errands.held(m2)
        assert held is not None
        assert held.lease is not None
        assert held.lease.instance.id == "one"
    # Once it is gone, anybody may take the next turn.
    m.lose(one, clean=True)
    assert offers(m.wait(1_000), two) != []


def test_calls_of_both_modes_share_the_places_of_a_connection() -> None:
    m = Mail({"CALLER_PLACES_PERCENT": 0})
    bob, alice = m.listener(capacity=2), m.caller()
    frame = request(7, 7, sealed=sealed(ct="c3luYw"))
    sync = m.begin(alice, frame)
    first, second = m.submit(alice, 1, 1), m.submit(alice, 2, 2)
    assert m.states(first, second) == ["leased", "queued"]
    # Neither mode finds a place now.
    busy = request(8, 8, sealed=sealed(ct="YnVzeQ"))
    [refusal] = m.send(alice, busy)
    assert isinstance(refusal, Send)
    assert getattr(refusal.frame, "code", None) == "busy"
    # The end of a sync call gives its place to the durable one that waits.
    m.send(bob, started(sync))
    assert [offer.call_id for offer in offers(m.send(bob, outcome(sync)))] == [second]


@pytest.mark.parametrize("capacity", [1, 3])
def test_never_more_is_in_hand_than_there_are_places(capacity: int) -> None:
    m = Mail()
    bob, alice = m.listener(capacity=capacity), m.caller()
    calls = [m.submit(alice, n, n) for n in range(1, 8)]
    for call in calls[:capacity]:
        m.grant(call, bob)
    assert m.states(*calls).count("queued") == 7 - capacity
    # What is held for long takes its place all the time: it is counted from what is in hand.
    m.wait(10 * HOUR)
    assert m.states(*calls).count("queued") == 7 - capacity


def test_another_callees_calls_go_to_that_callee() -> None:
    m = Mail(register=Register(durable={"bob", "eve"}))
    bob, eve = m.listener(), m.listener("eve", "two")
    call = m.submit(m.caller("alice", "eve"))
    assert m.states_for("eve", call) == ["leased"]
    assert m.send(bob, accepted(call, lease(1))) != []
    assert [type(frame) for frame in [*offers(m.wait(30_000), eve)]] == [IncomingCall]


def test_the_cost_of_a_hand_out_does_not_grow_with_what_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in calls that are looked at; each of them is a conversation of its own."""
    looked: list[str] = []
    plain = Hands._offer

    def counted(self: Hands, queue: Queue, errand: Errand, now: Instant) -> None:
        looked.append(errand.id)
        plain(self, queue, errand, now)

    monkeypatch.setattr(Hands, "_offer", counted)
    costs: list[int] = []
    for queued in (50, 400):
        m = Mail({"STORED_CALLS": 0, "STORED_CALLS_PER_PAIR": 0, "STARTS": 0})
        alice = m.caller()
        calls = [m.submit(alice, n, n) for n in range(1, queued + 1)]
        bob, _ = m.join(capacity=1)
        looked.clear()
        for call in calls[:20]:
            m.complete(call, bob)
        costs.append(len(looked))
    assert costs[0] == costs[1] == 20


def test_a_long_queue_is_read_a_page_at_a_time_and_nobody_overtakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hands, "_PAGE", 3)
    m = Mail({"STORED_CALLS": 0, "STORED_CALLS_PER_PAIR": 0, "STARTS": 0})
    alice = m.caller()
    # Two conversations in turn, of which a page has but a part.
    calls = [m.submit(alice, n % 2 + 1, n + 1) for n in range(10)]
    m.lose(alice)
    bob, effects = m.join(capacity=1)
    assert [offer.call_id for offer in offers(effects)] == calls[:1]
    assert m.hub.snapshot()["now_stored_in_memory"] == 3
    # Admitted while the rest is not read yet: behind it, although its conversation is the one that is served.
    alice = m.caller()
    late = [m.submit(alice, n % 2 + 1, n + 1) for n in range(10, 14)]
    order: list[str] = []

    def serve() -> bool:
        held = [call for call in calls + late if m.record(call, "bob").state == "leased"]
        for call in held:
            order.append(call)
            m.complete(call, bob)
        return bool(held)

    # What was read is served at once, and nothing that belongs behind what is not read.
    while serve():
        pass
    assert sorted(order) == sorted(calls[:3])
    m.wait(100)
    while serve():
        pass
    assert [call for call in order if call in (calls + late)[0::2]] == (calls + late)[0::2]
    assert [call for call in order if call in (calls + late)[1::2]] == (calls + late)[1::2]


def test_a_listener_that_leaves_while_its_queue_is_read_is_given_the_rest_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hands, "_PAGE", 2)
    m = Mail({"STORED_CALLS_PER_PAIR": 0})
    alice = m.caller()
    calls = [m.submit(alice, n, n) for n in range(1, 8)]
    m.lose(alice)
    bob, _ = m.join(capacity=9)
    m.lose(bob, clean=True)
    assert m.wait(50) == []
    assert m.hub.snapshot()["now_stored_in_memory"] == 2  # those that rest after a hand-out to nothing
    bob, _ = m.join(capacity=9)
    m.wait(5_000)
    assert sorted(m.states(*calls)) == ["leased"] * 7


def test_a_listener_that_is_back_while_its_queue_is_let_go_is_given_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hands, "_PAGE", 2)
    m = Mail({"STORED_CALLS_PER_PAIR": 0})
    alice = m.caller()
    calls = [m.submit(alice, n, n) for n in range(1, 8)]
    m.lose(alice)
    bob, _ = m.join(capacity=1)
    m.wait(100)
    m.lose(bob, clean=True)
    # Some of it is still in memory, and what was in hand rests.
    assert 2 < m.hub.snapshot()["now_stored_in_memory"] < 7
    bob, _ = m.join(capacity=9)
    m.wait(5_000)
    assert sorted(m.states(*calls)) == ["leased"] * 7
    m.lose(bob, clean=True)
    m.wait(100)
    assert m.hub.snapshot()["now_stored_in_memory"] == 7, "each rests after a hand-out that came to nothing"
