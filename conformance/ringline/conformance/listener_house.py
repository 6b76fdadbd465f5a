"""A listener's process, its state folder and the relay that the suite plays to it."""

import asyncio
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Final, final

from ringline.conformance.command_process import CommandProcess
from ringline.conformance.line import Line
from ringline.conformance.stand_in import REALM, Dialled, Published, StandIn
from ringline.conformance.subject import Patience, Unjudgeable
from ringline.conformance.timeline import Timeline
from ringline.conformance.verdict import Failed

__all__ = ["ListenerHouse"]

_START: Final = 6.0
"""A process starts slower than it answers, by so many times."""


@final
class ListenerHouse:
    """One identity of a subject with all that belongs to it. A case has it for itself."""

    def __init__(self, arguments: list[str], patience: Patience, timeline: Timeline) -> None:
        self.relay = StandIn(timeline)
        self.handle = f"subject-{secrets.token_hex(4)}"
        self.folder = Path(tempfile.mkdtemp(prefix="ringline-conformance-"))
        self.line: Line
        """The connection that stands, or stood last."""
        self.dialled: Dialled
        """How it was asked for."""
        self.process: CommandProcess
        self.clean = True
        """Whether another case may have it afterwards."""
        self.blocked: tuple[str, ...] = ()
        """The handles that its next process is told not to serve."""
        self._arguments = arguments
        self._patience = patience
        self._timeline = timeline
        self._folders = [self.folder]
        self._lines: list[Line] = []
        self._processes: list[CommandProcess] = []

    async def open(self) -> None:
        """Start the subject for the first time, and wait until it listens. Raises `Unjudgeable`."""
        await self.relay.__aenter__()
        await self.start()

    def record(self, timeline: Timeline) -> None:
        """Put what passes from now on on the record of another case."""
        self.relay.timeline = self._timeline = timeline
        for line in self._lines:
            line.record(timeline)

    # --- processes

    async def spawn(self, folder: Path | None = None) -> CommandProcess:
        """Start a process on the state folder, or on a copy of it, without waiting for it."""
        process = await CommandProcess.start(
            self._arguments,
            url=self.relay.url,
            realm=REALM,
            handle=self.handle,
            home=folder or self.folder,
            more={"RINGLINE_SUBJECT_BLOCK": " ".join(self.blocked)},
        )
        self._processes.append(process)
        return process

    async def start(self, folder: Path | None = None) -> None:
        """Start the subject on its folder, and wait until it listens. Raises `Unjudgeable`."""
        self.process = await self.spawn(folder)
        ended = asyncio.create_task(self.process.process.wait())
        dialling = asyncio.create_task(self.connected(self._patience.answer * _START))
        await asyncio.wait({ended, dialling}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not dialling.done():
            # A process that is gone does not dial any more, and what it said tells why.
            dialling.cancel()
            raise self._silent("its process ends")
        try:
            await dialling
        except Failed as error:
            raise self._silent(error.actual) from None

    def _silent(self, why: str) -> Unjudgeable:
        said = f"; it said:\n{self.process.said}" if self.process.said else ""
        return Unjudgeable(f"the listener does not connect: {why}{said}")

    async def stop(self) -> None:
        """Have the process end in good order."""
        await self.process.stop(self._patience.answer * 2)

    async def kill(self) -> None:
        """Let the process die where it stands."""
        await self.process.kill()

    def copied(self) -> Path:
        """Return a copy of the state folder, as a backup would make it."""
        copy = Path(tempfile.mkdtemp(prefix="ringline-conformance-", dir=self.folder.parent))
        self._folders.append(copy)
        shutil.copytree(self.folder, copy, dirs_exist_ok=True)
        return copy

    def runs(self, message: str, folder: Path | None = None) -> int:
        """Return how often work on a message has begun."""
        try:
            lines = ((folder or self.folder) / "runs").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return 0
        return lines.count(message)

    # --- connections

    async def connected(self, within: float | None = None) -> Line:
        """Wait for the next connection of the subject, and read it. Raises `Failed` when none comes."""
        self.dialled = await self.relay.next_dialled(self._patience.answer if within is None else within)
        self.line = Line(
            self.dialled.socket, self.handle, "to listener", self._timeline, self._patience, _hides_nothing
        )
        self._lines.append(self.line)
        self.line.read()
        return self.line

    @property
    def query(self) -> dict[str, list[str]]:
        """The query of the connection that stands."""
        return self.dialled.asked.query

    @property
    def published(self) -> Published:
        """The keys that the subject has published."""
        return self.relay.published[self.handle]

    @property
    def alive(self) -> bool:
        """True while the process runs and its connection stands."""
        return not self.process.ended and self.line.ended is None

    async def close(self) -> None:
        """End whatever belongs to it."""
        for process in self._processes:
            await process.kill()
        for line in self._lines:
            await line.dispose()
        await self.relay.__aexit__()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def __repr__(self) -> str:
        return f"ListenerHouse({self.handle})"


def _hides_nothing(line: str, payload: bytes) -> str | None:
    del line, payload
    return None
