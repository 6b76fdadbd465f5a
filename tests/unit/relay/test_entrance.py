"""Origin and Host."""

import pytest

from ringline.relay.entrance import LOOPBACK_NAMES, Entrance

LOCAL = Entrance(names=LOOPBACK_NAMES, origins=["https://console.example"])
PUBLIC = Entrance(origins=["https://relay.example"])


@pytest.mark.parametrize("host", ["127.0.0.1:7575", "localhost:7575", "LOCALHOST", "[::1]:75", "localhost:9"])
def test_a_loopback_relay_answers_to_its_own_names(host: str) -> None:
    assert LOCAL.admits([host], [])


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:7575",
        "localhost.evil.example",
        "127.0.0.1.evil.example:7575",
        "localhost:7575@evil.example",
        "localhost:",
        "localhost:x",
        " localhost",
        "localhost\n",
        "",
        "192.168.0.1:7575",
        "[::2]:7575",
    ],
)
def test_a_loopback_relay_refuses_foreign_names(host: str) -> None:
    assert not LOCAL.admits([host], [])


@pytest.mark.parametrize("hosts", [[], ["localhost", "localhost"]])
def test_there_is_one_host(hosts: list[str]) -> None:
    assert not LOCAL.admits(hosts, [])
    assert not PUBLIC.admits(hosts, [])


@pytest.mark.parametrize(
    "origin", ["http://localhost:7575", "https://localhost:7575", "https://console.example"]
)
def test_the_relays_own_pages_and_listed_ones_are_served(origin: str) -> None:
    assert LOCAL.admits(["localhost:7575"], [origin])


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://localhost",
        "http://localhost:3000",
        "http://127.0.0.1:7575",
        "http://localhost:7575.evil.example",
        "http://evil.example",
        "https://console.example.evil.example",
        "http://console.example",
        "HTTPS://CONSOLE.EXAMPLE",
    ],
)
def test_foreign_pages_are_refused(origin: str) -> None:
    assert not LOCAL.admits(["localhost:7575"], [origin])


def test_two_origins_are_refused() -> None:
    own = "http://localhost:7575"
    assert not LOCAL.admits(["localhost:7575"], [own, own])


def test_a_relay_with_any_name_serves_listed_pages_only() -> None:
    assert PUBLIC.admits(["anything:1"], [])
    assert PUBLIC.admits(["relay.example"], ["https://relay.example"])
    assert not PUBLIC.admits(["evil.example"], ["https://evil.example"])


def test_only_listed_pages_share_answers() -> None:
    assert LOCAL.shares_with("https://console.example")
    assert not LOCAL.shares_with("http://localhost:7575")
