"""The command that a subject is: started with the environment of its contract, spoken to by lines, ended."""

import asyncio
import contextlib
import os
import shlex
import signal
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, final

from ringline.conformance.subject import Unjudgeable

__all__ = ["Environment", "SubjectProcess", "environment", "split_command"]

Environment = Mapping[str, str]

_LINE_BYTES: Final = 4 * 1_048_576
_LAST_WORDS: Final = 12


def split_command(command: str) -> list[str]:
    """Return the words of a command as a shell reads them. Raises `Unjudgeable`."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Unjudgeable(f"the command cannot be read: {error}") from None
    if not words:
        raise Unjudgeable("the command is empty")
    return words


def environment(*, url: str, realm: str, handle: str, home: Path) -> Environment:
    """Return what the command is told: where its relay is, who it is, and where it may keep its state."""
    return {
        "RINGLINE_SUBJECT_URL": url,
        "RINGLINE_SUBJECT_REALM": realm,
        "RINGLINE_SUBJECT_HANDLE": handle,
        "RINGLINE_SUBJECT_HOME": str(home),
    }


@final
class SubjectProcess:
    """One process of the subject, in a process group of its own. ``heard`` is given each line it writes."""

    def __init__(self, words: list[str], told: Environment, heard: Callable[[bytes], None]) -> None:
        self._words = words
        self._told = told
        self._heard = heard
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._errors: deque[str] = deque(maxlen=_LAST_WORDS)

    async def start(self) -> None:
        """Start it. Raises `Unjudgeable` when there is no such program."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **self._told},
                start_new_session=True,
                limit=_LINE_BYTES,
            )
        except OSError as error:
            raise Unjudgeable(f"{self._words[0]} cannot be started: {error.strerror}") from None
        self._readers = [asyncio.create_task(self._read()), asyncio.create_task(self._read_errors())]

    @property
    def running(self) -> bool:
        """True until it has ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def last_words(self) -> str:
        """The end of what it wrote as diagnostics."""
        return " | ".join(self._errors)

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            while line := await self._process.stdout.readline():
                self._heard(line)

    async def _read_errors(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            while line := await self._process.stderr.readline():
                self._errors.append(line.decode("utf-8", "replace").rstrip()[:300])

    async def write(self, line: bytes) -> None:
        """Write one line. That the process is gone is noticed elsewhere."""
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(line + b"\n")
            await self._process.stdin.drain()

    async def stop(self, within: float) -> None:
        """Ask it to end, and kill it when it does not within so many seconds."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._gone()
                return
        await self.kill()

    async def kill(self) -> None:
        """Kill it as a power cut would: nothing of it runs any more when this returns."""
        self._signal(signal.SIGKILL)
        await self._gone()

    def _signal(self, number: signal.Signals) -> None:
        if self.running:
            assert self._process is not None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def _gone(self) -> None:
        if self._process is None:
            return
        await self._process.wait()
        # What it has started may hold the pipes open.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        _, pending = await asyncio.wait(self._readers, timeout=1)
        for reader in pending:
            reader.cancel()
