"""A caller as the subject: processes of its command, kept for one case after the other."""

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import final

from ringline.conformance.caller_house import CallerHouse
from ringline.conformance.command_process import arguments_of
from ringline.conformance.registry import Case
from ringline.conformance.stand_in import REALM
from ringline.conformance.subject import Patience, Unjudgeable
from ringline.conformance.timeline import Timeline

__all__ = ["CallerStage", "CallerSubject", "make"]


def make(command_line: str, patience: Patience) -> "CallerSubject":
    """Return the subject of a command. Raises `Unjudgeable` when it is no command."""
    return CallerSubject(command_line, patience)


@final
class CallerSubject:
    """See `ringline.conformance.subject.Subject`."""

    def __init__(self, command_line: str, patience: Patience) -> None:
        self.name = command_line
        self.remarks: list[str] = []
        self._arguments = arguments_of(command_line)
        self._patience = patience
        self._idle: list[CallerHouse] = []

    async def open(self) -> None:
        """See `Subject.open`."""
        house = await self.take(Timeline(), fresh=True)
        self._idle.append(house)
        await house.probe()

    def missing(self, case: Case) -> str | None:
        """See `Subject.missing`."""
        del case
        return None

    def lacking(self, case: Case) -> str | None:
        """See `Subject.lacking`."""
        del case
        return None

    @contextlib.asynccontextmanager
    async def stage(self, case: Case, timeline: Timeline) -> AsyncGenerator["CallerStage"]:
        """See `Subject.stage`."""
        del case
        stage = CallerStage(self, timeline, self._patience)
        passed = False
        try:
            yield stage
            passed = True
        finally:
            for leave in stage.leaving:
                await leave()
            for house in stage.houses:
                await self._give_back(house, passed=passed and not timeline.divergence)

    async def take(self, timeline: Timeline, *, fresh: bool, realm: str = REALM) -> CallerHouse:
        """Return a caller, a ``fresh`` one or one that others had. Raises `Unjudgeable`."""
        while self._idle and not fresh:
            house = self._idle.pop()
            if house.alive:
                house.record(timeline)
                return house
            await house.close()
        house = CallerHouse(self._arguments, self._patience, timeline, realm)
        try:
            await house.open()
        except BaseException:
            await house.close()
            raise
        return house

    async def _give_back(self, house: CallerHouse, *, passed: bool) -> None:
        if passed and house.clean and house.alive:
            house.record(Timeline())
            house.forget()
            self._idle.append(house)
        else:
            await house.close()

    async def trouble(self) -> str | None:
        """See `Subject.trouble`."""
        house: CallerHouse | None = None
        try:
            house = await self.take(Timeline(), fresh=False)
            await house.probe()
        except Unjudgeable as error:
            if house is not None:
                await house.close()
            return str(error)
        self._idle.append(house)
        return None

    async def close(self) -> None:
        """See `Subject.close`."""
        while self._idle:
            await self._idle.pop().close()


@final
class CallerStage:
    """What a case for a caller works with."""

    def __init__(self, subject: CallerSubject, timeline: Timeline, patience: Patience) -> None:
        self.timeline = timeline
        self.patience = patience
        self.houses: list[CallerHouse] = []
        self.leaving: list[Callable[[], Awaitable[None]]] = []
        """What is to be done when the case is over."""
        self._subject = subject

    async def house(self, *, own: bool = False, realm: str = REALM) -> CallerHouse:
        """Return a caller for this case alone; an ``own`` one is new, and nobody's afterwards."""
        house = await self._subject.take(self.timeline, fresh=own, realm=realm)
        house.clean = not own
        self.houses.append(house)
        return house
