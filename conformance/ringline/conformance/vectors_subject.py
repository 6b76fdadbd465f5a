"""The bytes of an implementation as the subject: a command that answers questions, a line for a line."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final, final

import msgspec

from ringline.conformance.command_process import CommandProcess
from ringline.conformance.command_subject import CommandSubject
from ringline.conformance.registry import Case
from ringline.conformance.subject import Patience, Unjudgeable
from ringline.conformance.timeline import Timeline, shorten

__all__ = ["VectorsStage", "VectorsSubject", "make"]

_START: Final = 6.0
"""A process starts slower than it answers, by so many times."""


def make(command_line: str, patience: Patience) -> "VectorsSubject":
    """Return the subject of a command. Raises `Unjudgeable` when it is no command."""
    return VectorsSubject(command_line, patience)


@final
class VectorsSubject(CommandSubject):
    """See `ringline.conformance.subject.Subject`."""

    def __init__(self, command_line: str, patience: Patience) -> None:
        super().__init__(command_line, patience)
        self._process: CommandProcess | None = None
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """See `Subject.open`."""
        try:
            await self.ask({"op": "padding.size", "input": {"direction": "request", "body_bytes": 1}})
        except Unjudgeable:
            await self.close()
            raise

    async def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a question. Raises `Unjudgeable` when there is none, or it is no object."""
        async with self._turn:
            process = await self._running()
            assert process.process.stdin is not None
            assert process.process.stdout is not None
            line = b""
            try:
                async with asyncio.timeout(self._patience.answer * _START):
                    process.process.stdin.write(msgspec.json.encode(question) + b"\n")
                    await process.process.stdin.drain()
                    line = await process.process.stdout.readline()
            except (TimeoutError, OSError, ValueError):
                pass
            try:
                return msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.MsgspecError, UnicodeDecodeError):
                # Whatever it would say next is out of step.
                await process.kill()
                said = f"; it said:\n{process.said}" if process.said else ""
                got = shorten(line) if line else "no answer"
                raise Unjudgeable(f"{got} to {question['op']}{said}") from None

    async def _running(self) -> CommandProcess:
        if self._process is None or self._process.ended:
            home = Path(tempfile.gettempdir())
            self._process = await CommandProcess.start(
                self._arguments, url="", realm="", handle="", home=home, talks=True
            )
        return self._process

    @contextlib.asynccontextmanager
    async def stage(self, case: Case, timeline: Timeline) -> AsyncGenerator["VectorsStage"]:
        """See `Subject.stage`."""
        del case
        yield VectorsStage(self, timeline)

    async def trouble(self) -> str | None:
        """See `Subject.trouble`: a process that has ended is started again."""
        return None

    async def close(self) -> None:
        """See `Subject.close`."""
        if self._process is not None:
            await self._process.kill()


@final
class VectorsStage:
    """What a vector is asked with."""

    def __init__(self, subject: VectorsSubject, timeline: Timeline) -> None:
        self._subject = subject
        self._timeline = timeline

    async def ask(self, op: str, given: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a question. Raises `Unjudgeable` when there is none."""
        question = {"op": op, "input": given}
        self._timeline.sent("subject", shorten(msgspec.json.encode(question)))
        answer = await self._subject.ask(question)
        self._timeline.received("subject", shorten(msgspec.json.encode(answer)))
        return answer
