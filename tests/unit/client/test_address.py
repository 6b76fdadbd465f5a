"""A realm is a name; where it is reached is configuration."""

import pytest

from ringline.client.address import RelayAddress
from ringline.protocol.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "base", "realm"),
    [
        ("http://127.0.0.1:7575", "http://127.0.0.1:7575", "localhost"),
        ("ws://127.0.0.1:7575/", "http://127.0.0.1:7575", "localhost"),
        ("http://localhost", "http://localhost", "localhost"),
        ("http://[::1]:80/", "http://[::1]", "localhost"),
        ("https://relay.example", "https://relay.example", "relay.example"),
        ("wss://Relay.Example:443/", "https://relay.example", "relay.example"),
        ("https://relay.example:8443/proxy/", "https://relay.example:8443/proxy", "relay.example"),
    ],
)
def test_the_base_url_and_the_realm_follow_from_the_url(url: str, base: str, realm: str) -> None:
    assert RelayAddress.parse(url) == RelayAddress(base, realm)


def test_a_realm_can_be_given() -> None:
    address = RelayAddress.parse("https://host.example/", "relay.example")
    assert (address.realm, address.host, address.port) == ("relay.example", "host.example", 443)
    assert address.base_url == "https://host.example"
    assert address.ws_url("/v1/call/bob") == "wss://host.example/v1/call/bob"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "relay.example",
        "ftp://relay.example",
        "http://",
        "https://relay.example?x=1",
        "https://relay.example/#k",
        "https://relay.example/a%2fb",
        "https://user:secret@relay.example",
        "http://127.0.0.1:99999",
        "http://[::1",
    ],
)
def test_what_is_no_base_url_is_refused_without_its_credentials(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RelayAddress.parse(url)
    assert "secret" not in str(caught.value)
    assert caught.value.next_step


@pytest.mark.parametrize("url", ["http://relay.example", "ws://10.0.0.1:7575", "http://127.0.0.1.example"])
def test_off_loopback_only_tls(url: str) -> None:
    with pytest.raises(ConfigError, match="without TLS"):
        RelayAddress.parse(url)


@pytest.mark.parametrize("realm", ["", "Relay", "relay:443", "..", ".", "a/b", "x" * 254])
def test_what_is_no_realm_is_refused(realm: str) -> None:
    with pytest.raises(ConfigError, match="not a realm"):
        RelayAddress.parse("https://relay.example", realm)


def test_the_development_realm_is_on_loopback_only() -> None:
    # First keys are pinned there without asking.
    with pytest.raises(ConfigError, match="elsewhere"):
        RelayAddress.parse("https://relay.example", "localhost")


def test_an_address_that_is_no_name_needs_a_realm() -> None:
    with pytest.raises(ConfigError, match="not a realm"):
        RelayAddress.parse("https://[2001:db8::1]/")


def test_state_is_kept_per_realm_and_in_the_development_realm_per_relay() -> None:
    parse = RelayAddress.parse
    assert (
        parse("https://a.example", "r.example").state_key == parse("https://b.example", "r.example").state_key
    )
    assert parse("http://127.0.0.1:1").state_key != parse("http://127.0.0.1:2").state_key
    keys = {
        parse(url, realm).state_key
        for url, realm in [
            ("http://127.0.0.1:1", None),
            ("http://127.0.0.1:1", "r.example"),
            ("https://x.example", ".hidden"),
            ("https://x.example", "hidden"),
        ]
    }
    assert len(keys) == 4
    assert not any("/" in key or key.startswith(".") for key in keys)
