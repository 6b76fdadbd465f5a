"""``ringline relay dev`` as a process: what it prints, how it ends, what survives it."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ringline_testing.signed import Owner, exchange

pytestmark = pytest.mark.system

RINGLINE = Path(sys.executable).with_name("ringline")
BOUND_S = 120


class Process:
    """One running ``ringline relay dev``. Everything that waits does so for at most `BOUND_S`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self.port = 0

    async def ready(self) -> None:
        """Read what it prints until it names its port and the next command."""
        while not self.lines or not self.lines[-1].startswith("Next:"):
            await self.read_line()
        found = re.search(r"ws://127\.0\.0\.1:(\d+)", "\n".join(self.lines))
        assert found is not None, self.lines
        self.port = int(found[1])

    async def read_line(self) -> str:
        """Return the next line of its standard error."""
        assert self.process.stderr is not None
        async with asyncio.timeout(BOUND_S):
            line = (await self.process.stderr.readline()).decode()
        assert line, f"it ended: {self.lines}"
        self.lines.append(line.rstrip("\n"))
        return self.lines[-1]

    async def end(self) -> tuple[int, str]:
        """Wait for its end; return its exit code and what it still printed."""
        async with asyncio.timeout(BOUND_S):
            out, rest = await self.process.communicate()
        assert out == b"", "stdout carries replies and nothing else"
        assert self.process.returncode is not None
        return self.process.returncode, rest.decode()


@contextlib.asynccontextmanager
async def relay(*options: str) -> AsyncGenerator[Process]:
    """Start a relay on a free port; kill it in the end if it still runs."""
    started = await asyncio.create_subprocess_exec(
        RINGLINE, "relay", "dev", *(options if "--port" in options else ("--port", "0", *options)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1", "PYTHONUTF8": "1"},
    )  # fmt: skip
    process = Process(started)
    try:
        yield process
    finally:
        if started.returncode is None:
            started.kill()
            await started.communicate()


async def refused(*options: str) -> str:
    """Run a relay that cannot start; return what it says. It must end with 2 and without a traceback."""
    async with relay(*options) as process:
        code, text = await process.end()
    assert code == 2, text
    assert "Traceback" not in text
    return text


async def test_it_says_where_it_is_and_ends_in_order() -> None:
    async with relay() as process:
        await process.ready()
        text = "\n".join(process.lines)
        assert "DEV relay" in text
        assert "memory storage" in text
        assert f"http://127.0.0.1:{process.port}/readyz" in text
        assert (await exchange(process.port, "GET", "/readyz")).status == 200
        process.process.send_signal(signal.SIGTERM)
        code, rest = await process.end()
    assert code == 0
    assert rest.splitlines()[-1] == "Stopped."


@pytest.mark.parametrize("edge", ["picows", "websockets"])
async def test_a_drain_lets_the_running_call_end_and_the_process_with_it(edge: str) -> None:
    async with relay("--edge", edge) as process:
        await process.ready()
        bob = await Owner.enrolled("bob", process.port)
        async with bob.listening(capacity=4) as listener, bob.calling("bob") as caller:
            await caller.send(bob.request())
            call_id = (await listener.next())["call_id"]
            await listener.send({"type": "call_started", "call_id": call_id})
            assert [(await caller.next())["state"] for _ in range(2)] == ["ringing", "working"]
            process.process.send_signal(signal.SIGTERM)
            assert (await process.read_line()).startswith("Stopping: no new calls")
            await caller.send(bob.request())
            assert (await caller.next())["code"] == "busy"
            outcome = bob.outcome(call_id)
            await listener.send(outcome)
            assert await caller.next() == outcome
            assert await caller.closed() == (1001, "retry=2000")
            assert await listener.closed() == (1001, "retry=2000")
        assert (await process.end())[0] == 0


async def test_a_second_signal_stops_at_once() -> None:
    async with relay() as process:
        await process.ready()
        bob = await Owner.enrolled("bob", process.port)
        async with bob.listening() as listener, bob.calling("bob") as caller:
            await caller.send(bob.request())
            await listener.next()
            process.process.send_signal(signal.SIGINT)
            await process.read_line()
            process.process.send_signal(signal.SIGINT)
            assert (await listener.closed())[0] == 1001
        assert (await process.end())[0] == 0


async def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    db = tmp_path / "relay.db"
    async with relay("--db", str(db)) as process:
        await process.ready()
        assert any(f"stored in {db}" in line for line in process.lines)
        bob = await Owner.enrolled("bob", process.port)
        process.process.kill()
        await process.process.wait()
    async with relay("--db", str(db)) as process:
        await process.ready()
        bob.port = process.port
        assert (await bob.ask("GET", "/v1/handles/bob")).status == 200


async def test_a_busy_port_names_the_next_command() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = await refused("--port", str(port))
    assert f"cannot listen on 127.0.0.1 port {port}" in text
    assert f"ringline relay dev --port {port + 1}" in text


async def test_a_file_that_cannot_be_used_is_explained(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"this is no database" * 100)
    assert "is damaged or is no SQLite database" in await refused("--db", str(damaged))
