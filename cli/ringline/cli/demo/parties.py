"""The processes of the demonstration: each is the real command, each has a home of its own."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, final

__all__ = ["Finished", "Party", "Unexpected", "run"]

_STOP_S: Final = 3.0


class Unexpected(Exception):
    """The demonstration did not go as it should; the text says where."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that has ended: exit code, and what it wrote."""

    code: int
    out: str
    told: list[str]
    """The lines of its standard error."""


@final
class Party:
    """A process that lasts: ends with the ``async with`` that began it."""

    def __init__(self, name: str, words: Sequence[str], home: Path) -> None:
        """``words`` follow ``ringline``; the process lives in the folder ``home``."""
        self.name = name
        self.told: list[str] = []
        self._words = words
        self._home = home
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._news = asyncio.Condition()

    async def __aenter__(self) -> "Party":
        """Start the process."""
        self._process = await _start(self._words, self._home, stdin=asyncio.subprocess.DEVNULL)
        self._reader = asyncio.ensure_future(self._read(self._process))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process and all that it started."""
        assert self._process is not None
        assert self._reader is not None
        await _end(self._process)
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        assert self._process is not None
        return self._process.returncode is None

    async def says(self, pattern: str, within_s: float) -> re.Match[str]:
        """Wait for a line of its standard error and return the match. Raises `Unexpected`."""

        def found() -> re.Match[str] | None:
            return next((match for line in self.told if (match := re.search(pattern, line))), None)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s), self._news:
                await self._news.wait_for(lambda: found() is not None or not self.runs)
        match = found()
        if match is None:
            raise Unexpected("\n".join([f"{self.name} never said {pattern!r}; it said:", *self.told]))
        return match

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            async with self._news:
                self.told.append(line.decode(errors="replace").rstrip("\n"))
                self._news.notify_all()
        await process.wait()
        async with self._news:
            self._news.notify_all()


async def run(words: Sequence[str], home: Path, given: str, within_s: float) -> Finished:
    """Run a command with ``given`` on its standard input. Raises `Unexpected` when it does not end."""
    process = await _start(words, home, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(within_s):
            out, told = await process.communicate(given.encode())
    except TimeoutError:
        raise Unexpected(f"ringline {' '.join(words)} did not end within {within_s:g} s") from None
    finally:
        await _end(process)
    assert process.returncode is not None
    return Finished(process.returncode, out.decode(), told.decode(errors="replace").splitlines())


async def _start(
    words: Sequence[str], home: Path, *, stdin: int, stdout: int = asyncio.subprocess.DEVNULL
) -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RINGLINE_")}
    # A session of its own: a Ctrl-C at the demonstration is for the demonstration, which ends the others.
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ringline.cli",
        *words,
        stdin=stdin,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        cwd=home,
        env=environment
        | {"RINGLINE_HOME": str(home / "state"), "PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask the process to end, and end its whole session if it does not."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            pass
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
