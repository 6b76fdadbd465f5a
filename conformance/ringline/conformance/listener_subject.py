"""A listener as the subject: processes of its command, kept for one case after the other."""

import contextlib
from collections.abc import AsyncGenerator
from typing import final

from ringline.conformance.command_subject import HousedSubject
from ringline.conformance.listener_house import ListenerHouse
from ringline.conformance.registry import Case
from ringline.conformance.subject import Patience
from ringline.conformance.timeline import Timeline

__all__ = ["ListenerStage", "ListenerSubject", "make"]


def make(command_line: str, patience: Patience) -> "ListenerSubject":
    """Return the subject of a command. Raises `Unjudgeable` when it is no command."""
    return ListenerSubject(command_line, patience)


@final
class ListenerSubject(HousedSubject[ListenerHouse]):
    """See `ringline.conformance.subject.Subject`."""

    async def check(self, house: ListenerHouse) -> None:
        """See `HousedSubject.check`: one that listens is of use."""
        del house

    async def some(self, *, fresh: bool) -> ListenerHouse:
        """See `HousedSubject.some`."""
        return await self.take(Timeline(), fresh=fresh)

    async def take(self, timeline: Timeline, *, fresh: bool) -> ListenerHouse:
        """Return a listener that listens, a ``fresh`` one or one that others had. Raises `Unjudgeable`."""

        def build() -> ListenerHouse:
            return ListenerHouse(self._arguments, self._patience, timeline)

        return await self.taken(build, timeline, fresh=fresh)

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
                await self.give_back(house, passed=passed and not timeline.divergence)


@final
class ListenerStage:
    """What a case for a listener works with."""

    def __init__(self, subject: ListenerSubject, timeline: Timeline, patience: Patience) -> None:
        self.timeline = timeline
        self.patience = patience
        self.houses: list[ListenerHouse] = []
        self._subject = subject

    @property
    def modes(self) -> tuple[bool, ...]:
        """For what is the same in both modes: whether a call is durable, once each."""
        return (False,) if "durable" in self._subject.without else (False, True)

    async def house(self, *, own: bool = False) -> ListenerHouse:
        """Return a listener for this case alone; an ``own`` one is new, and nobody's afterwards."""
        house = await self._subject.take(self.timeline, fresh=own)
        house.clean = not own
        self.houses.append(house)
        return house
