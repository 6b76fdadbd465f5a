"""Listeners as processes of their own: killed, stopped and started again."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ringline.caller import AsyncCaller, Cancelled
from ringline.protocol.errors import PeerFailure, RelayError, RinglineError
from ringline.relay.server import RelayServer
from ringline_testing.pids import alive
from ringline_testing.ports import lasting_port
from ringline_testing.relay import running_relay

pytestmark = pytest.mark.system

BOUND_S = 120.0

# Each line that a handler writes is one side effect: `<what> <message>`.
LISTENER = """
import asyncio, dataclasses, os, pathlib, sys
from ringline.listener import Call, Listener

url, home, effects, capacity = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])

def note(text):
    print(text, file=sys.stderr, flush=True)

def effect(what, call):
    with open(effects, "a") as file:
        file.write(f"{what} {call.message}\\n")

listener = Listener("bob", relay=url, home=home, capacity=capacity, drain=20, note=note,
                    on_ready=lambda serving: print("ready", flush=True))

listener.service_options = dataclasses.replace(listener.service_options, patience_ms=500)

@listener.answer
async def work(call: Call) -> str:
    effect("began", call)
    if call.message.startswith("die"):
        os._exit(9)
    if call.message.startswith("hang"):
        while not os.path.exists(effects + ".go"):
            await asyncio.sleep(0.02)
    effect("done", call)
    return call.message

@listener.task
def block(call: Call) -> str:
    effect("began", call)
    while True:
        call.wait_cancelled(600)

listener.run()
"""


class Bob:
    """The listener's process, one after the other on the same journal."""

    def __init__(self, relay: RelayServer, folder: Path) -> None:
        self.url = relay.url
        self.home = folder / "bob"
        self.effects_file = folder / "effects"
        self.capacity = 4
        self.process: subprocess.Popen[str] | None = None

    async def start(self) -> None:
        """Start it and wait until calls can come."""
        self.process = await asyncio.to_thread(
            subprocess.Popen[str],
            [
                sys.executable,
                "-c",
                LISTENER,
                self.url,
                str(self.home),
                str(self.effects_file),
                str(self.capacity),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(self.process.stdout.readline), BOUND_S)
        assert line == "ready\n", self.process.communicate(timeout=10)

    async def ended(self) -> int:
        """Wait for its end and return its exit code."""
        assert self.process is not None
        await asyncio.wait_for(asyncio.to_thread(self.process.communicate), BOUND_S)
        return self.process.returncode

    async def kill(self) -> None:
        """Let it die without a word."""
        assert self.process is not None
        self.process.kill()
        await self.ended()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def go(self) -> None:
        """Let hanging work end."""
        self.effects_file.with_name("effects.go").touch()

    def effects(self) -> list[str]:
        """What handlers have done, in order."""
        return self.effects_file.read_text().splitlines() if self.effects_file.exists() else []

    async def did(self, effect: str) -> None:
        """Wait until a handler has done something."""
        await soon(lambda: effect in self.effects())


async def refusal(alice: AsyncCaller) -> str | None:
    """Have alice call bob; return the code of the error, None when he answers."""
    try:
        await alice.call("bob", "another")
    except RinglineError as error:
        return error.code
    return None


async def soon(true: Callable[[], bool]) -> None:
    """Wait until something is true that another process does."""
    async with asyncio.timeout(BOUND_S):
        while not true():  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.02)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[tuple[Bob, AsyncCaller]]:
    """A relay, alice who calls, and bob who is not started yet."""
    async with AsyncExitStack() as stack:
        # A listener that is started again is the same instance, however long that takes.
        settings = {"turns": 0, "caller_places_percent": 100, "grace_ms": 300_000}
        relay = await stack.enter_async_context(running_relay(settings=settings))
        bob = Bob(relay, tmp_path)
        alice = await stack.enter_async_context(
            AsyncCaller("alice", relay=relay.url, home=tmp_path / "alice")
        )
        try:
            yield bob, alice
        finally:
            if bob.process is not None and bob.process.poll() is None:
                await bob.kill()
            if bob.process is not None:
                with contextlib.suppress(ValueError):
                    bob.process.communicate(timeout=10)


async def test_work_that_a_kill_interrupted_is_reported_as_indeterminate_and_never_run_again(
    stage: tuple[Bob, AsyncCaller],
) -> None:
    bob, alice = stage
    await bob.start()
    call = alice.start("bob", "hang")
    await bob.did("began hang")
    await bob.kill()
    await bob.start()
    with pytest.raises(PeerFailure) as failure:
        await asyncio.wait_for(call.result(), BOUND_S)
    assert failure.value.code == "agent_error"
    assert "may have been done" in (failure.value.detail or "")
    bob.go()
    # The same message again: from the journal, not from the handler.
    with pytest.raises(PeerFailure):
        await asyncio.wait_for(alice.call("bob", "hang", message_id=call.message_id), BOUND_S)
    assert bob.effects() == ["began hang"]


async def test_a_message_that_kills_its_process_is_run_once(stage: tuple[Bob, AsyncCaller]) -> None:
    bob, alice = stage
    await bob.start()
    call = alice.start("bob", "die")
    assert await bob.ended() == 9
    await bob.start()
    with pytest.raises(PeerFailure) as failure:
        await asyncio.wait_for(call.result(), BOUND_S)
    assert failure.value.code == "agent_error"
    assert bob.effects() == ["began die"]
    # It is no danger to others.
    assert (await asyncio.wait_for(alice.call("bob", "hello"), BOUND_S)).text == "hello"


async def test_an_outcome_that_was_journalled_is_told_by_the_next_process(
    stage: tuple[Bob, AsyncCaller],
) -> None:
    bob, alice = stage
    await bob.start()
    assert (await asyncio.wait_for(alice.call("bob", "one"), BOUND_S)).text == "one"
    first = alice.start("bob", "hang")
    await bob.did("began hang")
    bob.go()
    reply = await asyncio.wait_for(first.result(), BOUND_S)
    await bob.kill()
    await bob.start()
    again = await asyncio.wait_for(alice.call("bob", "hang", message_id=first.message_id), BOUND_S)
    assert again.text == reply.text == "hang"
    assert bob.effects().count("began hang") == 1


class TestStopping:
    async def test_the_first_signal_lets_running_work_finish(self, stage: tuple[Bob, AsyncCaller]) -> None:
        bob, alice = stage
        await bob.start()
        call = alice.start("bob", "hang")
        await bob.did("began hang")
        bob.signal(signal.SIGTERM)
        # It takes no more, and says so under a seal.
        async with asyncio.timeout(BOUND_S):
            while await refusal(alice) != "busy":
                pass
        bob.go()
        assert (await asyncio.wait_for(call.result(), BOUND_S)).text == "hang"
        assert await bob.ended() == 0
        assert "done hang" in bob.effects()

    async def test_the_second_signal_stops_now_and_reports_it(self, stage: tuple[Bob, AsyncCaller]) -> None:
        bob, alice = stage
        await bob.start()
        call = alice.start("bob", "hang")
        await bob.did("began hang")
        bob.signal(signal.SIGINT)
        bob.signal(signal.SIGTERM)
        with pytest.raises(PeerFailure) as failure:
            await asyncio.wait_for(call.result(), BOUND_S)
        assert "stopped the work before it was done" in (failure.value.detail or "")
        assert await bob.ended() == 0

    async def test_a_function_that_never_returns_does_not_keep_the_program(
        self, stage: tuple[Bob, AsyncCaller]
    ) -> None:
        bob, alice = stage
        await bob.start()
        call = alice.start("bob", "forever", task="block")
        await bob.did("began forever")
        bob.signal(signal.SIGTERM)
        bob.signal(signal.SIGINT)
        with pytest.raises(PeerFailure) as failure:
            await asyncio.wait_for(call.result(), BOUND_S)
        assert "may still run" in (failure.value.detail or "")
        assert await bob.ended() == 0

    async def test_an_idle_listener_ends_at_once(self, stage: tuple[Bob, AsyncCaller]) -> None:
        bob, alice = stage
        await bob.start()
        bob.signal(signal.SIGTERM)
        assert await bob.ended() == 0
        with pytest.raises(RelayError) as error:
            await asyncio.wait_for(alice.call("bob", "x"), BOUND_S)
        assert error.value.code == "offline"


async def test_a_listener_comes_back_by_itself_when_the_relay_does(tmp_path: Path) -> None:
    port = lasting_port()
    async with running_relay(port=port) as first:
        bob = Bob(first, tmp_path)
        await bob.start()
        async with AsyncCaller("alice", relay=first.url, home=tmp_path / "alice") as alice:
            assert (await asyncio.wait_for(alice.call("bob", "one"), BOUND_S)).text == "one"
    try:
        # A development relay without a database has forgotten everybody.
        async with (
            running_relay(port=port) as second,
            AsyncCaller("alice", relay=second.url, home=tmp_path / "alice") as alice,
        ):
            async with asyncio.timeout(BOUND_S):
                while (code := await refusal(alice)) is not None:
                    assert code in ("not_found", "offline")
                    await asyncio.sleep(0.1)
            assert "done another" in bob.effects()
    finally:
        await bob.kill()


async def test_ctrl_c_at_the_caller_ends_the_process_tree(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = f"""
import os, subprocess, sys, time
children = [subprocess.Popen(["sleep", "600"]), subprocess.Popen(["setsid", "sleep", "600"])]
open({str(pids)!r}, "w").write("".join(f"{{pid}}\\n" for pid in [os.getpid(), *(c.pid for c in children)]))
time.sleep(600)
"""
    script = f"""
import pathlib, sys
from ringline.listener.command import ListenOptions, listen
from ringline.client import Home
options = ListenOptions(name="bob", run=(sys.executable, "-c", {program!r}), relay=sys.argv[1],
                        home=Home(pathlib.Path(sys.argv[2])))
listen(options, lambda line: print(line, flush=True))
"""
    async with running_relay() as relay:
        process = await asyncio.to_thread(
            subprocess.Popen[str],
            [sys.executable, "-c", script, relay.url, str(tmp_path / "bob")],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            lines: list[str] = []
            while not lines or not lines[-1].startswith("tasks"):
                lines.append(await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), BOUND_S))
                assert lines[-1]
            assert lines[0].startswith("new identity  bob@localhost")
            assert lines[-1] == "tasks: default · accepts: anyone on this development relay\n"
            async with AsyncCaller("alice", relay=relay.url, home=tmp_path / "alice") as alice:
                call = alice.start("bob", "x")
                await soon(lambda: pids.exists() and pids.read_text().count("\n") == 3)
                assert isinstance(await asyncio.wait_for(call.cancel(), BOUND_S), Cancelled)
                assert [pid for pid in pids.read_text().split() if alive(int(pid))] == []
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(asyncio.to_thread(process.wait), BOUND_S)
            assert process.returncode == 0
        finally:
            process.kill()
            process.communicate(timeout=10)
            for pid in pids.read_text().split() if pids.exists() else []:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
