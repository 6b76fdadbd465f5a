"""What a relay refuses to start with, before anything is started."""

from typing import Any

import pytest

from ringline.protocol.errors import ConfigError
from ringline.protocol.names import is_loopback
from ringline.relay.server import RelayOptions, RelayServer, run_dev


@pytest.mark.parametrize(
    ("arguments", "said", "advice"),
    [
        ({"host": "0.0.0.0"}, "loopback only, not on 0.0.0.0", "127.0.0.1"),
        ({"host": "192.168.0.7"}, "loopback only", "--host"),
        ({"host": "localhost.evil.example"}, "loopback only", "--host"),
        ({"host": "127.evil.example"}, "loopback only", "--host"),
        ({"values": {"RING_BOUND": "5"}}, "RING_BOUND", "RING_BOUND_MS"),
        ({"values": {"RING_BOUND_MS": "soon"}}, "RING_BOUND_MS", "whole number"),
        ({"edge": "none"}, "none", "picows"),
        ({"db": "/proc/relay.db"}, "/proc/relay.db", "--db"),
    ],
)
def test_what_cannot_be_run_is_said_with_the_next_step(
    arguments: dict[str, Any], said: str, advice: str
) -> None:
    lines: list[str] = []
    with pytest.raises(ConfigError) as caught:
        run_dev(port=0, say=lines.append, **arguments)
    assert said in str(caught.value)
    assert caught.value.next_step is not None
    assert advice in caught.value.next_step
    assert lines == []


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.2", "::1"])
def test_loopback_is_this_machine(host: str) -> None:
    assert is_loopback(host)


def test_urls_are_those_of_the_options() -> None:
    assert RelayServer(RelayOptions(port=7575)).url == "http://127.0.0.1:7575"
    assert RelayServer(RelayOptions(port=7575)).ws_url == "ws://127.0.0.1:7575"
    assert RelayServer(RelayOptions(host="::1", port=1)).ws_url == "ws://[::1]:1"
