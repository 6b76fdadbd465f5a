"""Which instance takes a call."""

from collections import Counter
from collections.abc import Callable

import pytest

from ringline.protocol.frames import CallAccepted, CallStarted
from ringline.relay.effects import Send
from ringline_testing.exchange import (
    Exchange,
    accepted,
    call_error,
    envelope,
    outcome,
    rejected,
    request,
    sent_to,
    started,
)

FREE = {"CALLER_PLACES_PERCENT": 0, "CALLS_PER_HOUR": 0, "CALLS_PER_PAIR_PER_HOUR": 0, "TURNS": 0}


def taker(x: Exchange, caller: int, correlation: int, message: int) -> int:
    """Have a call admitted; return the listener's connection that got it."""
    first = x.send(caller, request(correlation, message))[0]
    assert isinstance(first, Send)
    return first.connection


def test_calls_go_to_the_least_busy_instance() -> None:
    x = Exchange(FREE)
    one, two = x.listener("bob", "one", capacity=10), x.listener("bob", "two", capacity=10)
    alice = x.caller()
    takers = [taker(x, alice, n, n) for n in range(1, 9)]
    assert Counter(takers) == {one: 4, two: 4}
    for n, connection in enumerate(takers, 1):
        if connection == two:
            x.send(two, outcome(f"call-{n}", "failed"))
    assert [taker(x, alice, n, n) for n in range(10, 14)] == [two] * 4


def test_busy_means_the_share_of_an_instances_own_places() -> None:
    x = Exchange(FREE)
    small, large = x.listener("bob", "small", capacity=2), x.listener("bob", "large", capacity=8)
    alice = x.caller()
    takers = Counter(taker(x, alice, n, n) for n in range(1, 11))
    assert takers == {small: 2, large: 8}
    assert x.send(alice, request(11, 11)) == [Send(alice, call_error("busy", request(11, 11)))]


def test_among_equally_busy_instances_turns_are_taken() -> None:
    x = Exchange(FREE)
    connections = [x.listener("bob", f"i{n}", capacity=5) for n in range(3)]
    alice = x.caller()
    takers: list[int] = []
    for n in range(1, 13):
        connection = taker(x, alice, n, n)
        takers.append(connection)
        x.send(connection, outcome(f"call-{n}", "failed"))
    assert takers == connections * 4


def test_an_instance_that_leaves_takes_its_places_along() -> None:
    x = Exchange(FREE)
    one, two = x.listener("bob", "one", capacity=2), x.listener("bob", "two", capacity=2)
    alice = x.caller()
    x.lose(one)
    assert [taker(x, alice, n, n) for n in (1, 2)] == [two, two]
    assert x.send(alice, request(3, 3)) == [Send(alice, call_error("busy", request(3, 3)))]
    three = x.listener("bob", "three", capacity=1)
    assert taker(x, alice, 4, 4) == three
    x.lose(two)
    assert x.send(alice, request(5, 5)) == [Send(alice, call_error("busy", request(5, 5)))]


@pytest.mark.parametrize("report", [accepted, started])
def test_a_conversation_stays_with_the_instance_that_took_it(
    report: Callable[[str], CallAccepted | CallStarted],
) -> None:
    x = Exchange(FREE)
    one, two = x.listener("bob", "one", capacity=10), x.listener("bob", "two", capacity=10)
    alice = x.caller()
    home = taker(x, alice, 1, 1)
    x.send(home, report("call-1"))
    # It is the busier one by now, and takes the conversation's turns all the same.
    assert [taker(x, alice, 1, n) for n in range(2, 7)] == [home] * 5
    assert home in (one, two)


def test_an_instance_that_did_not_take_a_call_does_not_keep_its_conversation() -> None:
    x = Exchange(FREE)
    one, two = x.listener("bob", "one", capacity=10), x.listener("bob", "two", capacity=10)
    alice = x.caller()
    first = taker(x, alice, 1, 1)
    x.wait(30_000)
    assert taker(x, alice, 1, 2) != first
    x.send(one, rejected("call-2"))
    x.send(two, rejected("call-2"))
    assert taker(x, alice, 1, 3) == first


def test_a_full_instance_makes_its_conversations_busy_though_another_is_free() -> None:
    x = Exchange(FREE)
    one, two = x.listener("bob", "one", capacity=1), x.listener("bob", "two", capacity=5)
    alice = x.caller()
    home = taker(x, alice, 1, 1)
    assert home == one
    x.send(one, started("call-1"))
    assert x.send(alice, request(1, 2)) == [Send(alice, call_error("busy", request(1, 2)))]
    assert taker(x, alice, 2, 3) == two
    x.send(one, outcome("call-1"))
    assert taker(x, alice, 1, 4) == one


def test_a_conversation_moves_while_its_instance_is_not_connected() -> None:
    x = Exchange(FREE)
    one, two = x.listener("bob", "one", capacity=1), x.listener("bob", "two", capacity=5)
    alice = x.caller()
    taker(x, alice, 1, 1)
    x.send(one, started("call-1"))
    x.send(one, outcome("call-1"))
    x.lose(one)
    assert taker(x, alice, 1, 2) == two
    # Nobody accepted that one yet, so the first is still its home.
    back, _ = x.join("bob", "one", capacity=1)
    assert taker(x, alice, 1, 3) == back
    x.send(two, accepted("call-2"))
    assert taker(x, alice, 1, 4) == two


def test_a_conversation_does_not_wait_for_an_instance_that_may_return() -> None:
    x = Exchange(FREE)
    one, two = x.listener("bob", "one", capacity=5), x.listener("bob", "two", capacity=5)
    alice = x.caller()
    assert taker(x, alice, 1, 1) == one
    x.send(one, started("call-1"))
    x.lose(one)
    assert taker(x, alice, 1, 2) == two
    x.lose(two)
    assert x.send(alice, request(1, 3)) == [Send(alice, call_error("offline", request(1, 3)))]


@pytest.mark.parametrize(("pause", "stays"), [(1_799_999, True), (1_800_000, False)])
def test_a_conversation_is_free_thirty_minutes_after_it_was_last_taken(pause: int, stays: bool) -> None:
    x = Exchange(FREE)
    home, alice = x.listener("bob", "one", capacity=10), x.caller()
    x.finish(alice, request(1, 1))
    x.wait(600_000)
    x.finish(alice, request(1, 2, sealed=envelope(iat=x.now.wall)))  # taken once more: the time starts anew
    other = x.listener("bob", "two", capacity=10)
    x.wait(pause)
    sealed = envelope(iat=x.now.wall)
    # The home is the busier one now, by a call of somebody else.
    assert sent_to(home, x.send(x.caller("cyd"), request(5, 5, sealed=sealed)))
    effects = x.send(alice, request(1, 3, sealed=sealed))
    assert len(sent_to(home if stays else other, effects)) == 1


def test_conversations_of_two_callers_with_one_correlation_id_have_nothing_in_common() -> None:
    x = Exchange(FREE)
    one, two = x.listener("bob", "one", capacity=10), x.listener("bob", "two", capacity=10)
    alice, cyd = x.caller("alice"), x.caller("cyd")
    home = taker(x, alice, 1, 1)
    x.send(home, accepted("call-1"))
    assert taker(x, cyd, 1, 1) == (two if home == one else one)


def test_many_calls_leave_the_queue_of_instances_small() -> None:
    x = Exchange(FREE | {"RECORD_LIFE_MS": 1, "FRAMES_PER_SECOND": 0})
    connections = [x.listener("bob", f"i{n}", capacity=5) for n in range(4)]
    alice = x.caller()
    for n in range(1, 2_000):
        connection = taker(x, alice, n, n)
        assert connection in connections
        x.send(connection, outcome(f"call-{n}", "failed"))
        x.wait(1)
    assert len(x.hub._presence._desks["bob"]._queue) < 30
