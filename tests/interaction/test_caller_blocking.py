"""The twin without an event loop, against a relay and a listener in another thread."""

import asyncio
import contextlib
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from ringline.caller import Caller, Cancelled
from ringline.protocol.errors import ConfigError, RelayError, TransportError
from ringline_testing.relay import running_relay
from ringline_testing.scripted import ScriptedCall, ScriptedListener, echo, scripted_listener


class Background:
    """A relay and bob, in a loop of their own."""

    def __init__(self) -> None:
        self.url = ""
        self.bob: ScriptedListener | None = None
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._done = asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        async with running_relay() as relay, scripted_listener(relay.port, "bob", self._answer) as bob:
            self.url, self.bob = relay.url, bob
            self._ready.set()
            await self._done.wait()

    async def _answer(self, call: ScriptedCall) -> None:
        if call.request.message == "wait":
            await call.accept()
            await call.start()
            await call.cancel_asked.wait()
            await call.cancelled()
        else:
            await echo(call)

    @contextlib.contextmanager
    def running(self) -> Generator["Background"]:
        self._thread.start()
        assert self._ready.wait(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._done.set)
            self._thread.join(10)
            assert not self._thread.is_alive()


@pytest.fixture
def background() -> Iterator[Background]:
    with Background().running() as running:
        yield running


def test_a_call_without_an_event_loop(background: Background, tmp_path: Path) -> None:
    with Caller("alice", relay=background.url, home=tmp_path, note=lambda text: None) as me:
        assert me.call("bob", "hello", timeout=60).text == "hello"
        with me.start("bob", "again", timeout=60) as call:
            names = [event.name for event in call.events()]
            assert (names[0], names[-1]) == ("sealed", "completed")
            assert call.result().text == "again"
            assert call.done
        waiting = me.start("bob", "wait", timeout=60)
        assert next(iter(waiting.events())).name == "sealed"
        while waiting.call_id is None:
            next(event for event in waiting.events() if event.name == "ringing")
        assert me.cancel(waiting) == Cancelled(waiting.call_id)
        with pytest.raises(RelayError):
            waiting.result()
        talk = me.conversation("bob")
        assert talk.call("turn", timeout=60).text == "turn"
        assert (talk.turns, talk.context_id) == (1, None)
        assert me.offered_tasks("bob", timeout=60) == ()
        assert me.account().handle == "alice"
    me.close()
    with pytest.raises(ConfigError, match="closed"):
        me.call("bob", "late", timeout=60)


def test_a_caller_that_cannot_reach_the_relay_leaves_no_thread_behind(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(TransportError), Caller("alice", relay="http://127.0.0.1:9", home=tmp_path):
        pass
    assert threading.active_count() == before
