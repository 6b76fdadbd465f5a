"""What a relay for others is not started with, and what it tells of itself."""

import re
from pathlib import Path
from typing import Any

import pytest

from ringline.protocol.errors import ConfigError
from ringline.relay.options import RelayOptions
from ringline.relay.server import RelayServer
from ringline.relay.serving import ServeOptions
from ringline_testing.certificate import contexts


def options(**members: Any) -> ServeOptions:
    values: dict[str, Any] = {"db": "relay.db", "realm": "relay.example", "admin": "ada"}
    return ServeOptions(**(values | members))


@pytest.mark.parametrize(
    ("members", "said", "advice"),
    [
        ({"realm": "localhost"}, "development", "ringline relay dev"),
        ({"realm": "NO REALM"}, "no realm", "host name"),
        ({"admin": None}, "nobody could ever enrol", "--admin"),
        ({"admin": "Ada"}, "no handle", "a-z"),
        ({"host": "0.0.0.0"}, "needs TLS", "--behind-proxy"),
        ({"host": "relay.example"}, "needs TLS", "--cert"),
        ({"cert": "chain.pem"}, "go together", "both"),
        ({"cert": "/none", "key": "/none"}, "certificate", "PEM"),
        ({"url": "ftp://relay.example"}, "base URL", "--url"),
        ({"url": "https://relay.example?x"}, "base URL", "--url"),
        ({"behind_proxy": True}, "lock out all others", "--trusted-proxy"),
        ({"trusted_proxies": ("10.0.0.1/8",)}, "10.0.0.1/8", "10.0.0.0/8"),
        ({"admin_listen": "9575"}, "no address to listen on", "127.0.0.1:9575"),
        ({"admin_listen": "::1:9575"}, "no address to listen on", "127.0.0.1:9575"),
        ({"admin_listen": "127.0.0.1:99999"}, "no address to listen on", "127.0.0.1:9575"),
        ({"admin_listen": f"127.0.0.1:{'9' * 5_000}"}, "no address to listen on", "127.0.0.1:9575"),
        ({"values": {"CALLS": "1"}}, "CALLS", "CALLS_PER_HOUR"),
    ],
)
def test_what_cannot_be_run_is_said_with_the_next_step(
    members: dict[str, Any], said: str, advice: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        options(**members).relay()
    assert advice in (caught.value.next_step or "")


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"admin": None, "open_registration": True},
        {"host": "0.0.0.0", "behind_proxy": True, "trusted_proxies": ("127.0.0.1",)},
        {"url": "https://calls.example/ring"},
    ],
)
def test_what_goes_together_is_run(members: dict[str, Any]) -> None:
    made = options(**members).relay()
    assert made.is_open == bool(members.get("open_registration"))


@pytest.mark.parametrize(
    ("text", "place"), [("127.0.0.1:9575", ("127.0.0.1", 9575)), ("[::1]:0", ("::1", 0))]
)
def test_the_operators_listener_has_an_address(text: str, place: tuple[str, int]) -> None:
    assert options(admin_listen=text).relay().admin_listen == place


def test_with_a_certificate_it_may_be_reached_from_elsewhere(tmp_path: Path) -> None:
    contexts(tmp_path)
    file = str(tmp_path / "localhost.pem")
    assert options(host="0.0.0.0", cert=file, key=file).relay().tls is not None


@pytest.mark.parametrize(
    ("members", "url"),
    [
        ({}, "http://127.0.0.1:1"),
        ({"behind_proxy": True}, "https://relay.example"),
        ({"url": "https://calls.example/"}, "https://calls.example"),
    ],
)
def test_clients_are_told_where_they_reach_it(members: dict[str, Any], url: str) -> None:
    assert options(**members).public_url("http://127.0.0.1:1") == url


@pytest.mark.parametrize(
    "members",
    [
        {"host": "0.0.0.0"},  # realm localhost, whose clients believe what they see first
        {"host": "0.0.0.0", "behind_proxy": True, "trusted_proxies": ("127.0.0.1",)},
        {"host": "0.0.0.0", "behind_proxy": True, "realm": "relay.example"},  # one budget for all
        {"host": "192.0.2.1", "realm": "relay.example"},
        {"realm": "NO REALM"},
    ],
)
async def test_no_relay_is_started_that_strangers_could_reach_in_the_clear(members: dict[str, Any]) -> None:
    """Also not by a program: the rule is the relay's own, and not that of a command."""
    with pytest.raises(ConfigError):
        async with RelayServer(RelayOptions(port=0, **members)):
            pass
