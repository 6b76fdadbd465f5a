"""Which relay is meant when a program names none."""

from pathlib import Path

import pytest

from ringline.caller import AsyncCaller, Caller
from ringline.client import DEFAULT_RELAY, Home, RelayAddress, keep_usual, meant_relay
from ringline.listener import Listener
from ringline.protocol.errors import ConfigError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name in ("RINGLINE_RELAY", "RINGLINE_REALM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RINGLINE_HOME", str(tmp_path / "home"))
    return Home.default()


def test_nobody_who_was_invited_means_the_development_relay(home: Home) -> None:
    assert meant_relay(None, None, home) == RelayAddress.parse(DEFAULT_RELAY)


def test_whoever_was_invited_means_that_relay_and_its_realm(home: Home) -> None:
    invited = RelayAddress.parse("http://127.0.0.1:7799", "relay.example")
    assert keep_usual(home, invited)
    assert meant_relay(None, None, home) == invited
    assert meant_relay("http://127.0.0.1:7799", None, home) == invited
    assert meant_relay("http://127.0.0.1:7800", None, home).realm == "localhost"
    # The libraries mean what the command line means.
    assert Listener("bob").address == invited
    for caller in (Caller()._caller, AsyncCaller()):
        assert caller._options.address == invited


def test_the_environment_goes_before_an_invite_and_an_argument_before_both(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_usual(home, RelayAddress.parse("https://usual.example"))
    monkeypatch.setenv("RINGLINE_RELAY", "https://chosen.example")
    assert meant_relay(None, None, home) == RelayAddress.parse("https://chosen.example")
    monkeypatch.setenv("RINGLINE_REALM", "realm.example")
    assert meant_relay(None, None, home).realm == "realm.example"
    named = meant_relay("https://named.example", None, home)
    assert (named.base_url, named.realm) == ("https://named.example", "named.example")
    monkeypatch.setenv("RINGLINE_RELAY", "nonsense")
    with pytest.raises(ConfigError, match="nonsense"):
        meant_relay(None, None, home)
