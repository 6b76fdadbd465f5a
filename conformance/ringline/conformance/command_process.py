"""A subject's process: started by its command, told by the environment where and who it is."""

import asyncio
import contextlib
import os
import shlex
import signal
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

from ringline.conformance.subject import Unjudgeable

__all__ = ["CommandProcess", "arguments_of"]

_TAIL_LINES: Final = 12
_LINE_BYTES: Final = 4 * 1_048_576


def arguments_of(command_line: str) -> list[str]:
    """Return a command line as a shell would split it. Raises `Unjudgeable` for none."""
    try:
        arguments = shlex.split(command_line)
    except ValueError as error:
        raise Unjudgeable(f"the command cannot be read: {error}") from None
    if not arguments:
        raise Unjudgeable("the command is empty")
    return arguments


@final
class CommandProcess:
    """One process of a subject, and what it says on stderr. It leads a group, which ends with it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._said: deque[str] = deque(maxlen=_TAIL_LINES)
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls,
        arguments: list[str],
        *,
        url: str,
        realm: str,
        handle: str,
        home: Path,
        talks: bool = False,
        more: Mapping[str, str] | None = None,
    ) -> "CommandProcess":
        """Start one; one that ``talks`` has pipes for stdin and stdout. Raises `Unjudgeable`.

        ``more`` goes into its environment.
        """
        environment = os.environ | {
            "RINGLINE_SUBJECT_URL": url,
            "RINGLINE_SUBJECT_REALM": realm,
            "RINGLINE_SUBJECT_HANDLE": handle,
            "RINGLINE_SUBJECT_HOME": str(home),
            **(more or {}),
        }
        pipe = asyncio.subprocess.PIPE if talks else asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                env=environment,
                stdin=pipe,
                stdout=pipe,
                stderr=asyncio.subprocess.PIPE,
                limit=_LINE_BYTES,
                start_new_session=True,
            )
        except OSError as error:
            raise Unjudgeable(f"{arguments[0]} cannot be started: {error.strerror}") from None
        return cls(process)

    async def _listen(self) -> None:
        assert self.process.stderr is not None
        with contextlib.suppress(ValueError, OSError):
            while line := await self.process.stderr.readline():
                self._said.append(line.decode("utf-8", "replace").rstrip())

    @property
    def ended(self) -> bool:
        """True when the process is gone."""
        return self.process.returncode is not None

    @property
    def said(self) -> str:
        """The last lines of its stderr."""
        return "\n".join(self._said)

    async def wait(self, within: float) -> bool:
        """Wait for the end of the process; False when it goes on."""
        try:
            async with asyncio.timeout(within):
                await self.process.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self, within: float) -> None:
        """Ask it to end, as an operating system does, and make it end if it does not."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
            await self.wait(within)
        await self.kill()

    async def kill(self) -> None:
        """End it at once, and whatever it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        await self._listening
