"""Running a program for a call: the message on its stdin, its stdout as the reply.

The program has a process group of its own and is held to its bounds: its output to ten megabytes, its time
by the session. What it writes to stderr stays on this computer. A cancellation is confirmed only when every
process of it was seen to have exited.
"""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from ringline.listener.effects import NO_ROOM, Broken, Produced, Result
from ringline.listener.processes import Family
from ringline.listener.tasks import Call
from ringline.protocol.limits import PROGRAM_OUTPUT_BYTES

__all__ = ["Command", "CommandRun", "environment"]

# No file descriptors, processes or memory at this moment: there is nothing wrong with the program.
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})
_STDERR_BYTES: Final = 65_536
_LAST_WORDS_CHARS: Final = 2_000
_LEFTOVER_GRACE_S: Final = 1.0
_LEFTOVER_PATIENCE_S: Final = 5.0
_DRAIN_S: Final = 0.5
_POLL_S: Final = (0.01, 0.02, 0.05, 0.1)
# Variables of ours that a program may need to make calls itself. All others may lead to a secret.
_PASSED_ON: Final = frozenset({"RINGLINE_HOME", "RINGLINE_RELAY", "RINGLINE_REALM"})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program and how it is run.

    ``argv`` is the program and its arguments; nothing of a call is ever added to them. ``grace_s`` is how
    long, in seconds, it may take to end after SIGTERM before it is killed. ``output_bytes`` bounds stdout.
    """

    argv: tuple[str, ...]
    folder: Path | None = None
    """Where it runs; None for the present folder."""
    grace_s: float = 5.0
    output_bytes: int = PROGRAM_OUTPUT_BYTES


def environment(call: Call, base: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the program: ``base`` without our own, and the facts of the call."""
    kept = {
        name: value
        for name, value in base.items()
        if name in _PASSED_ON or not (name.startswith("RINGLINE_") or name == "CREDENTIALS_DIRECTORY")
    }
    facts = {
        "RINGLINE_CALL_ID": call.call_id,
        "RINGLINE_FROM": call.caller,
        "RINGLINE_FROM_FINGERPRINT": call.fingerprint,
        "RINGLINE_TASK": call.task,
    }
    if call.message_id is not None:
        facts["RINGLINE_MESSAGE_ID"] = call.message_id
    if call.conversation is not None:
        facts["RINGLINE_CONTEXT"] = call.conversation.id
        facts["RINGLINE_TURN"] = str(call.conversation.turn)
    return kept | facts


@final
class CommandRun:
    """One run of a program for one call."""

    def __init__(self, command: Command, call: Call) -> None:
        """Nothing is started before `run`."""
        self._command = command
        self._call = call
        self._process: subprocess.Popen[bytes] | None = None
        self._family: Family | None = None
        self._exited = False
        self._stopped = False
        self._flooded = False
        self._ending: asyncio.Task[None] | None = None
        self._hurry = False

    async def run(self) -> tuple[Result, bool]:
        """Run it; return what it came to, and whether it was told to stop before it exited by itself."""
        loop = asyncio.get_running_loop()
        if self._call.cancelled:
            return Broken(detail="the work was stopped"), True
        try:
            process = self._spawn()
        except OSError as error:
            local = f"cannot run {self._command.argv[0]}: {error.strerror}"
            if error.errno in _NO_ROOM:
                return Broken("busy", NO_ROOM, local), False
            return Broken(local=local), False
        self._process = process
        self._family = Family(process.pid)
        pipes: list[asyncio.BaseTransport] = []
        try:
            exited = _watch(loop, process)
            output = _Output(self._command.output_bytes, self._flood)
            errors = _Tail(_STDERR_BYTES)
            pipes.append((await loop.connect_read_pipe(lambda: output, process.stdout))[0])
            pipes.append((await loop.connect_read_pipe(lambda: errors, process.stderr))[0])
            writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
            pipes.append(writer)
            # A program that never reads, or ends before it has, is no error: the transport closes.
            writer.write(self._call.message.encode("utf-8"))
            writer.write_eof()
            await exited
            self._exited = True
            await self._clear()
            # Only a process that left for good can still hold the pipe open.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await asyncio.gather(output.ended.wait(), errors.ended.wait())
            return self._result(process.wait(), output, errors), self._stopped
        finally:
            for transport in pipes:
                transport.close()
            if not self._exited or (self._ending is not None and not self._ending.done()):
                # Nobody watches any more: what is left of it must not outlive this.
                self._family.signal(signal.SIGKILL)
            if self._ending is not None:
                self._ending.cancel()
            if process.returncode is None:
                threading.Thread(target=process.wait, name=f"reap {process.pid}", daemon=True).start()

    def _spawn(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self._command.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._command.folder,
            env=environment(self._call, os.environ),
            start_new_session=True,
        )

    def stop(self, *, at_once: bool) -> None:
        """Tell it to stop: SIGTERM, and SIGKILL after its grace; ``at_once``: SIGKILL now."""
        self._call.flag.set()
        if self._process is None or self._exited or _has_exited(self._process):
            return
        self._stopped = True
        self._end(0.0 if at_once else self._command.grace_s)

    def _flood(self) -> None:
        self._flooded = True
        self._end(0.0)

    def _end(self, grace_s: float) -> None:
        """Begin to end all its processes, or hurry it up."""
        self._hurry = self._hurry or grace_s <= 0
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end_all(grace_s))

    async def _end_all(self, grace_s: float) -> None:
        """Return when nothing of it is left; that may be never."""
        assert self._family is not None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        polls = iter(_POLL_S)
        if grace_s > 0:
            self._family.signal(signal.SIGTERM)
        while self._family.alive():
            if self._hurry or loop.time() >= deadline:
                self._family.signal(signal.SIGKILL)
            await asyncio.sleep(next(polls, _POLL_S[-1]))

    async def _clear(self) -> None:
        """End what the program has left behind: the call is over when its program has exited."""
        assert self._family is not None
        if self._stopped or self._flooded:
            assert self._ending is not None
            await self._ending
        elif self._family.alive():
            self._end(_LEFTOVER_GRACE_S)
            assert self._ending is not None
            await asyncio.wait([self._ending], timeout=_LEFTOVER_PATIENCE_S)

    def _result(self, code: int, output: "_Output", errors: "_Tail") -> Result:
        name = self._command.argv[0]
        if self._flooded:
            told = f"the program wrote more than {self._command.output_bytes:,} bytes"
            return Broken(detail=told, local=f"{name}: {told} and was killed")
        if code == 0:
            return Produced(output.data().decode("utf-8", "replace"))
        how = f"exit code {code}" if code > 0 else f"signal {_signal_name(-code)}"
        words = errors.data().decode("utf-8", "replace").strip()[-_LAST_WORDS_CHARS:]
        return Broken(local=f"{name} ended with {how}" + (f": {words}" if words else ""))


class _Output(asyncio.Protocol):
    """Collects what comes through a pipe, up to a number of bytes."""

    def __init__(self, limit: int, over: Callable[[], None]) -> None:
        self._limit = limit
        self._over = over
        self._parts: list[bytes] = []
        self._size = 0
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        if self._size > self._limit:
            return
        self._size += len(data)
        if self._size > self._limit:
            self._parts.clear()
            self._over()
        else:
            self._parts.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def data(self) -> bytes:
        """What came."""
        return b"".join(self._parts)


class _Tail(asyncio.Protocol):
    """Reads a pipe to its end and keeps the last bytes of it."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._last = bytearray()
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._last += data
        del self._last[: -self._keep]

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def data(self) -> bytes:
        """The end of what came."""
        return bytes(self._last)


def _watch(loop: asyncio.AbstractEventLoop, process: "subprocess.Popen[bytes]") -> "asyncio.Future[None]":
    """Return a future that is done when the process has exited, and is still there to be waited for.

    Unreaped, it keeps its pid from meaning another process, or another group, while its group is ended.
    """
    exited: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not exited.done():
            exited.set_result(None)

    def wait() -> None:
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        else:
            process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=wait, name=f"ringline waits for {process.pid}", daemon=True).start()
    return exited


def _has_exited(process: "subprocess.Popen[bytes]") -> bool:
    """Look whether the process has exited, without reaping it where that can be told."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
