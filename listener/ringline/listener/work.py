"""Work in the hands of this process: what waits for a place, and what runs.

The journal says what is true after a crash; this is what is true now. Work is here from when it may be
done until its process or function was seen to end, also when its calls have long been answered.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import final

from ringline.listener.effects import Effect, Plan
from ringline.listener.entries import Offer
from ringline.protocol.bodies import Request

__all__ = ["Cause", "Desk", "Settlement", "Stage", "Work"]


class Stage(Enum):
    """How far the work has come in this process."""

    WAITING = auto()  # for a free place
    ASKING = auto()  # has a place; for the relay's grant
    RUNNING = auto()  # begun
    ABANDONED = auto()  # answered, but what runs was not seen to end: it keeps its place


class Cause(Enum):
    """Why running work was asked to stop, other than by its caller."""

    BOUND = auto()  # its time is over
    REFUSED = auto()  # the relay refused the lease: nobody waits for it
    SHUTDOWN = auto()  # the listener stops


@final
@dataclass(frozen=True, slots=True)
class Settlement:
    """How work ends: what is committed, and then said of each of its calls."""

    commit: Callable[[], None]
    tell: Callable[[Offer], list[Effect]]


@final
@dataclass(slots=True, kw_only=True)
class Work:
    """One entry at work. Times are mono ms."""

    entry_id: int
    from_ipk: bytes
    request: Request = field(repr=False)
    plan: Plan
    offers: dict[str, Offer]
    """By call id; the calls that get its outcome."""
    stage: Stage = Stage.WAITING
    latest: int
    """The end of its time whatever the bound: 350 s after it came in, or ``execute_by``."""
    deadline: int
    """When it must have begun; once it runs, when it must have ended."""
    context_id: str | None = None
    turn: int | None = None
    asked: set[str] = field(default_factory=set[str])
    """Calls whose cancellation was asked for while it runs."""
    cause: Cause | None = None
    stopping: bool = False
    patience: int | None = None
    """When to stop waiting for it to end."""
    over: bool = False
    """Whether what ran was seen to end."""
    unsettled: Settlement | None = None
    """An end that the journal could not take yet."""
    retry: int = 0
    """When to try that again."""

    def next_time(self) -> int | None:
        """Return when something is to be done about it, if nothing happens before."""
        if self.unsettled is not None:
            return self.retry
        if self.stage is Stage.ABANDONED:
            return None
        times = [] if self.cause is not None else [self.deadline]
        if self.patience is not None:
            times.append(self.patience)
        return min(times, default=None)

    @property
    def begun(self) -> bool:
        """Whether its handler may have taken its first step."""
        return self.stage in (Stage.RUNNING, Stage.ABANDONED)


@final
class Desk:
    """All work of this process, and how many places are taken."""

    def __init__(self, capacity: int) -> None:
        """Offer ``capacity`` places."""
        self.capacity = capacity
        self._by_entry: dict[int, Work] = {}
        self._by_call: dict[str, Work] = {}

    def __iter__(self) -> Iterator[Work]:
        """Iterate over a copy, since works may come and go meanwhile; the oldest first."""
        return iter(tuple(self._by_entry.values()))

    def __len__(self) -> int:
        return len(self._by_entry)

    def add(self, work: Work) -> None:
        """Take up work with all its calls."""
        self._by_entry[work.entry_id] = work
        for call_id in work.offers:
            self._by_call[call_id] = work

    def join(self, work: Work, offer: Offer) -> None:
        """Add a call to work, or replace what is known of it."""
        work.offers[offer.call_id] = offer
        self._by_call[offer.call_id] = work

    def drop(self, work: Work) -> None:
        """Let go of work and its place."""
        del self._by_entry[work.entry_id]
        for call_id in work.offers:
            self._by_call.pop(call_id, None)

    def entry(self, entry_id: int) -> Work | None:
        """Return the work of an entry, unless it was abandoned: then its row tells all there is."""
        work = self._by_entry.get(entry_id)
        return None if work is None or work.stage is Stage.ABANDONED else work

    def call(self, call_id: str) -> Work | None:
        """Return the work of a call, unless it was abandoned."""
        work = self._by_call.get(call_id)
        return None if work is None or work.stage is Stage.ABANDONED else work

    def running(self, entry_id: int) -> Work | None:
        """Return the work of an entry, abandoned or not."""
        return self._by_entry.get(entry_id)

    def entries(self) -> set[int]:
        """Return the ids of all entries at work."""
        return set(self._by_entry)

    @property
    def has_place(self) -> bool:
        """Whether one more may begin. Work that could not be stopped keeps its place."""
        return sum(work.stage is not Stage.WAITING for work in self._by_entry.values()) < self.capacity
