"""A subject that is a command: what the subjects of listeners, callers and vectors have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ringline.conformance.command_process import arguments_of
from ringline.conformance.registry import Case
from ringline.conformance.subject import Patience, Unjudgeable
from ringline.conformance.timeline import Timeline

__all__ = ["CommandSubject", "House", "HousedSubject"]


class CommandSubject:
    """A part of `ringline.conformance.subject.Subject`: it has no bounds and all features."""

    def __init__(self, command_line: str, patience: Patience) -> None:
        """Raises `Unjudgeable` when it is no command."""
        self.name = command_line
        self.remarks: list[str] = []
        self.without: frozenset[str] = frozenset()
        """Features that are left out, for cases that try something with and without them."""
        self._arguments = arguments_of(command_line)
        self._patience = patience

    def missing(self, case: Case) -> str | None:
        """See `Subject.missing`."""
        del case
        return None

    def lacking(self, case: Case) -> str | None:
        """See `Subject.lacking`."""
        del case
        return None


class House(Protocol):
    """A process of the command with the relay that it knows, for one case at a time."""

    clean: bool
    """Whether the next case may have it too."""

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        ...

    async def open(self) -> None:
        """Start it. Raises `Unjudgeable`."""
        ...

    def record(self, timeline: Timeline) -> None:
        """Write what happens into another timeline from now on."""
        ...

    async def close(self) -> None:
        """End it."""
        ...


_H = TypeVar("_H", bound=House)


class HousedSubject(CommandSubject, ABC, Generic[_H]):
    """A subject whose processes are kept for one case after the other, because a start takes its time."""

    def __init__(self, command_line: str, patience: Patience) -> None:
        """Raises `Unjudgeable` when it is no command."""
        super().__init__(command_line, patience)
        self._idle: list[_H] = []

    @abstractmethod
    async def check(self, house: _H) -> None:
        """Find out whether a house is of use. Raises `Unjudgeable`."""

    async def open(self) -> None:
        """See `Subject.open`."""
        house = await self.some(fresh=True)
        self._idle.append(house)
        await self.check(house)

    @abstractmethod
    async def some(self, *, fresh: bool) -> _H:
        """Return a house as most cases want it, ``fresh`` or one that others had. Raises `Unjudgeable`."""

    async def taken(self, build: Callable[[], _H], timeline: Timeline, *, fresh: bool) -> _H:
        """Return a house that others had, or the one that ``build`` makes. Raises `Unjudgeable`."""
        while self._idle and not fresh:
            house = self._idle.pop()
            if house.alive:
                house.record(timeline)
                return house
            await house.close()
        house = build()
        try:
            await house.open()
        except BaseException:
            await house.close()
            raise
        return house

    async def give_back(self, house: _H, *, passed: bool) -> None:
        """Take a house back when a case is over; it is kept if the case ``passed`` and left it clean."""
        if passed and house.clean and house.alive:
            house.record(Timeline())
            self.tidy(house)
            self._idle.append(house)
        else:
            await house.close()

    def tidy(self, house: _H) -> None:
        """Make a house ready for the next case."""

    async def trouble(self) -> str | None:
        """See `Subject.trouble`."""
        house: _H | None = None
        try:
            house = await self.some(fresh=False)
            await self.check(house)
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
