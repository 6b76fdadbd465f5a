"""Tickets: bound to a target, good once, for half a minute, ten at a time."""

import itertools

import pytest

from ringline.protocol.errors import HttpProblem
from ringline.protocol.instant import Instant
from ringline.relay.tickets import Tickets, detach

NOW = Instant(1_790_000_000_000, 1_000)
TARGET = "/v1/call/bob?features="


@pytest.fixture
def tickets() -> Tickets:
    numbers = itertools.count()
    return Tickets(lambda: f"ticket-{next(numbers)}")


def test_a_ticket_opens_its_target_once(tickets: Tickets) -> None:
    ticket, ends = tickets.issue("alice", "card", TARGET, NOW)
    assert ends == NOW.wall + 30_000
    assert tickets.redeem(ticket, TARGET, NOW) == ("alice", "card")
    assert tickets.redeem(ticket, TARGET, NOW) is None


@pytest.mark.parametrize("other", ["/v1/call/bob", "/v1/call/bob?features=x", "/v1/call/carol?features="])
def test_a_ticket_opens_no_other_target_and_is_not_used_up_there(tickets: Tickets, other: str) -> None:
    ticket, _ = tickets.issue("alice", "card", TARGET, NOW)
    assert tickets.redeem(ticket, other, NOW) is None
    assert tickets.redeem(ticket, TARGET, NOW) is not None


def test_an_unknown_ticket_opens_nothing(tickets: Tickets) -> None:
    for ticket in ("", "ticket-0", "\udcff"):
        assert tickets.redeem(ticket, TARGET, NOW) is None


def test_a_ticket_ends_after_thirty_seconds_whatever_the_wall_clock_does(tickets: Tickets) -> None:
    first, _ = tickets.issue("alice", "card", TARGET, NOW)
    second, _ = tickets.issue("alice", "card", TARGET, NOW)
    assert tickets.redeem(first, TARGET, Instant(NOW.wall + 10**9, NOW.mono + 29_999)) is not None
    assert tickets.redeem(second, TARGET, Instant(NOW.wall, NOW.mono + 30_000)) is None


def test_ten_unused_tickets_are_the_most(tickets: Tickets) -> None:
    bought = [tickets.issue("alice", "card", TARGET, NOW.later(n))[0] for n in range(10)]
    with pytest.raises(HttpProblem) as caught:
        tickets.issue("alice", "card", TARGET, NOW.later(100))
    assert (caught.value.code, caught.value.retry_after_ms) == ("rate_limited", 29_900)
    tickets.issue("bob", "card", TARGET, NOW)
    tickets.redeem(bought[3], TARGET, NOW)
    tickets.issue("alice", "card", TARGET, NOW.later(100))
    tickets.issue("alice", "card", TARGET, NOW.later(30_000))


def test_nothing_is_left_of_tickets_that_are_over(tickets: Tickets) -> None:
    for name in ("alice", "bob"):
        tickets.issue(name, "card", TARGET, NOW)
    tickets.redeem("", TARGET, NOW.later(30_000))
    assert (tickets._grants, tickets._live, tickets._expiries) == ({}, {}, [])


@pytest.mark.parametrize(
    ("query", "rest", "ticket"),
    [
        ("", "", None),
        ("ticket=t", "", "t"),
        ("a=1&ticket=t&b=%2C", "a=1&b=%2C", "t"),
        ("ticket=t&a=1", "a=1", "t"),
        ("a=ticket=t", "a=ticket=t", None),
        ("tickets=t", "tickets=t", None),
        ("ticket=t&ticket=u", "ticket=t&ticket=u", None),
        ("tick%65t=t", "tick%65t=t", None),
    ],
)
def test_the_ticket_is_cut_out_of_a_query(query: str, rest: str, ticket: str | None) -> None:
    assert detach(query) == (rest, ticket)
