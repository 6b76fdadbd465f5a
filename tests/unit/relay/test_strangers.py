"""Budgets of addresses: whose they are, and when they are used up."""

from typing import Any

import pytest

from ringline.protocol.errors import ConfigError, HttpProblem
from ringline.protocol.instant import Instant
from ringline.relay.strangers import Strangers, network_of, networks

NOW = Instant(1_790_000_000_000, 5_000)


@pytest.mark.parametrize(
    ("address", "subject"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("203.0.113.7:4711", "203.0.113.7"),
        ("[2001:db8::1]:4711", "2001:db8::/64"),
        ("[2001:db8::1]", "2001:db8::/64"),
        ("", ""),
        ("testclient", "testclient"),
    ],
)
def test_an_ipv6_customer_has_one_budget_for_all_his_addresses(address: str, subject: str) -> None:
    assert network_of(address) == subject


@pytest.mark.parametrize(
    ("remote", "forwarded", "subject"),
    [
        ("203.0.113.7", ["198.51.100.1"], "203.0.113.7"),  # not a proxy: its word counts nothing
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1, 198.51.100.1"], "198.51.100.1"),  # the left one anybody can write
        ("10.0.0.1", ["1.1.1.1", "198.51.100.1, 10.0.0.2"], "198.51.100.1"),
        ("10.0.0.1", [], ""),  # nobody's: it says nothing, and is not the client
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("fd00::1", ["2001:db8::1"], "2001:db8::/64"),
        ("::ffff:10.0.0.1", ["198.51.100.1"], "198.51.100.1"),  # a relay on ``::``
    ],
)
def test_a_trusted_proxy_says_who_is_behind_it(remote: str, forwarded: list[str], subject: str) -> None:
    strangers = Strangers(failures=1, claims=1, trusted=networks(["10.0.0.0/8", "fd00::/8"]))
    assert strangers.subject(remote, forwarded) == subject


def test_what_is_no_network_is_said() -> None:
    with pytest.raises(ConfigError, match=r"10\.0\.0\.1/8"):
        networks(["10.0.0.1/8"])


@pytest.mark.parametrize("kind", ["login", "claim"])
def test_a_budget_is_exact_and_frees_itself(kind: str) -> None:
    strangers = Strangers(failures=2, claims=2)
    check: Any = getattr(strangers, f"check_{kind}")
    charge: Any = strangers.failed_login if kind == "login" else strangers.claimed
    for number in range(2):
        check("a", NOW.later(number))
        charge("a", NOW.later(number))
    with pytest.raises(HttpProblem) as caught:
        check("a", NOW.later(2))
    assert (caught.value.code, caught.value.retry_after_ms) == ("rate_limited", 59_998)
    check("b", NOW.later(2))
    # He may do it again and does not: others are charged as before.
    check("a", NOW.later(60_001))
    charge("b", NOW.later(60_001))


def test_a_limit_of_none_stops_nobody() -> None:
    strangers = Strangers(failures=0, claims=0)
    for _ in range(100):
        strangers.failed_login("a", NOW)
        strangers.claimed("a", NOW)
    strangers.check_login("a", NOW)
    strangers.check_claim("a", NOW)
