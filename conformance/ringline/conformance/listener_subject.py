"""A listener as the subject: processes of its command, kept for one case after the other."""

import contextlib
from collections.abc import AsyncGenerator
from typing import final

from ringline.conformance.command_process import arguments_of
from ringline.conformance.listener_house import ListenerHouse
from ringline.conformance.registry import Case
from ringline.conformance.subject import Patience, Unjudgeable
from ringline.conformance.timeline import Timeline

__all__ = ["ListenerStage", "ListenerSubject", "make"]


def make(command_line: str, patience: Patience) -> "ListenerSubject":
    """Return the subject of a command. Raises `Unjudgeable` when it is no command."""
    return ListenerSubject(command_line, patience)


@final
class ListenerSubject:
    """See `ringline.conformance.subject.Subject`."""

    def __init__(self, command_line: str, patience: Patience) -> None:
        self.name = command_line
        self.remarks: list[str] = []
        self._arguments = arguments_of(command_line)
        self._patience = patience
        self._idle: list[ListenerHouse] = []

    async def open(self) -> None:
        """See `Subject.open`."""
        self._idle.append(await self.take(Timeline(), fresh=True))

    def missing(self, case: Case) -> str | None:
        """See `Subject.missing`."""
        del case
        return None

    def lacking(self, case: Case) -> str | None:
        """See `Subject.lacking`."""
        del case
        return None

    @contextlib.asynccontextmanager
    async def stage(self, case: Case, timeline: Timeline) -> AsyncGenerator["ListenerStage"]:
        """See `Subject.stage`."""
        del case
        stage = ListenerStage(self, timeline, self._patience)
        passed = False
        try:
            yield stage
            passed = True
        finally:
            for house in stage.houses:
                await self._give_back(house, passed=passed and not timeline.divergence)

    async def take(self, timeline: Timeline, *, fresh: bool) -> ListenerHouse:
        """Return a listener that listens, a ``fresh`` one or one that others had. Raises `Unjudgeable`."""
        while self._idle and not fresh:
            house = self._idle.pop()
            if house.alive:
                house.record(timeline)
                return house
            await house.close()
        house = ListenerHouse(self._arguments, self._patience, timeline)
        try:
            await house.open()
        except BaseException:
            await house.close()
            raise
        return house

    async def _give_back(self, house: ListenerHouse, *, passed: bool) -> None:
        if passed and house.clean and house.alive:
            house.record(Timeline())
            self._idle.append(house)
        else:
            await house.close()

    async def trouble(self) -> str | None:
        """See `Subject.trouble`."""
        try:
            house = await self.take(Timeline(), fresh=False)
        except Unjudgeable as error:
            return str(error)
        self._idle.append(house)
        return None

    async def close(self) -> None:
        """See `Subject.close`."""
        while self._idle:
            await self._idle.pop().close()


@final
class ListenerStage:
    """What a case for a listener works with."""

    def __init__(self, subject: ListenerSubject, timeline: Timeline, patience: Patience) -> None:
        self.timeline = timeline
        self.patience = patience
        self.houses: list[ListenerHouse] = []
        self._subject = subject

    async def house(self, *, own: bool = False) -> ListenerHouse:
        """Return a listener for this case alone; an ``own`` one is new, and nobody's afterwards."""
        house = await self._subject.take(self.timeline, fresh=own)
        house.clean = not own
        self.houses.append(house)
        return house
