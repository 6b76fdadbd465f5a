"""A caller as the subject: processes of its command, kept for one case after the other."""

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import final

from ringline.conformance.caller_house import CallerHouse
from ringline.conformance.command_subject import HousedSubject
from ringline.conformance.registry import Case
from ringline.conformance.stand_in import REALM
from ringline.conformance.subject import Patience
from ringline.conformance.timeline import Timeline

__all__ = ["CallerStage", "CallerSubject", "make"]


def make(command_line: str, patience: Patience) -> "CallerSubject":
    """Return the subject of a command. Raises `Unjudgeable` when it is no command."""
    return CallerSubject(command_line, patience)


@final
class CallerSubject(HousedSubject[CallerHouse]):
    """See `ringline.conformance.subject.Subject`."""

    async def check(self, house: CallerHouse) -> None:
        """See `HousedSubject.check`."""
        await house.probe()

    async def some(self, *, fresh: bool) -> CallerHouse:
        """See `HousedSubject.some`."""
        return await self.take(Timeline(), fresh=fresh)

    async def take(self, timeline: Timeline, *, fresh: bool, realm: str = REALM) -> CallerHouse:
        """Return a caller, a ``fresh`` one or one that others had. Raises `Unjudgeable`."""

        def build() -> CallerHouse:
            return CallerHouse(self._arguments, self._patience, timeline, realm)

        return await self.taken(build, timeline, fresh=fresh)

    def tidy(self, house: CallerHouse) -> None:
        """See `HousedSubject.tidy`."""
        house.forget()

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
                await self.give_back(house, passed=passed and not timeline.divergence)


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
