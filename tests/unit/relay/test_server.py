"""What a relay refuses to start with, before anything is started."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ringline.protocol.errors import ConfigError
from ringline.protocol.names import is_loopback
from ringline.relay.options import RelayOptions
from ringline.relay.server import RelayServer, _run, run_dev
from ringline.relay.telemetry import log_fault


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


@pytest.fixture
def signals() -> Iterator[None]:
    """Put back what a relay of its own process does with the signals that stop it."""
    before = {name: signal.getsignal(name) for name in (signal.SIGTERM, signal.SIGINT)}
    yield
    for name, handler in before.items():
        signal.signal(name, handler)


@pytest.mark.usefixtures("signals")
async def test_a_relay_of_its_own_process_lets_its_loop_log_no_text_of_a_fault() -> None:
    handlers: list[object] = []

    class Done(Exception):
        pass

    async def introduce(relay: RelayServer, say: Callable[[str], None]) -> None:
        handlers.append(asyncio.get_running_loop().get_exception_handler())
        raise Done

    with pytest.raises(Done):
        await _run(RelayOptions(port=0), lambda _: None, introduce)
    assert handlers == [log_fault]
