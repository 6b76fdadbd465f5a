"""One heap of everything that is to happen later.

A timer is a value: setting an equal one again moves it. What was moved or cancelled stays in the heap until
it comes up, or until such leftovers are the greater part of it; so that every operation is O(log n).
"""

import heapq
import math
from collections.abc import Iterator
from typing import Final, TypeAlias, final

from msgspec import Struct

__all__ = [
    "Alarm",
    "BoundPassed",
    "CancelWaited",
    "DrainOver",
    "DurableAlarm",
    "GraceOver",
    "HoldOver",
    "LeaseLapses",
    "QueueTurns",
    "RebindOver",
    "RecordsOver",
    "ReleaseDue",
    "RestOver",
    "StopOver",
    "StoreDue",
    "StoreRetry",
    "SyncAlarm",
    "Timers",
]


@final
class BoundPassed(Struct, frozen=True):
    """The ring bound or the call bound of a sync call (RL-SYNC-012, RL-SYNC-013)."""

    call_id: str


@final
class HoldOver(Struct, frozen=True):
    """A caller without an attached connection did not return (RL-SYNC-028)."""

    call_id: str


@final
class GraceOver(Struct, frozen=True):
    """A listener instance that holds calls did not return (RL-SYNC-023)."""

    handle: str
    instance: str


@final
class ReleaseDue(Struct, frozen=True):
    """A frame that was held back on a connection may leave (RL-ADMIT-017)."""

    connection: int


@final
class CancelWaited(Struct, frozen=True):
    """An HTTP cancel has waited long enough (RL-CANCEL-011)."""

    request: int


@final
class RecordsOver(Struct, frozen=True):
    """The records of ended calls that are the oldest (RL-SYNC-033)."""


@final
class DrainOver(Struct, frozen=True):
    """Running calls had their time: the relay stops."""


@final
class LeaseLapses(Struct, frozen=True):
    """A durable call was not accepted in time (RL-DURABLE-010)."""

    call_id: str


@final
class RebindOver(Struct, frozen=True):
    """An instance did not come back for the durable calls that it has begun (RL-DURABLE-045)."""

    handle: str
    instance: str


@final
class QueueTurns(Struct, frozen=True):
    """The next page of a callee's queued calls is to be read from the store, or let go."""

    callee: str


@final
class RestOver(Struct, frozen=True):
    """A conversation of durable calls may be handed out again (RL-DURABLE-054)."""

    callee: str
    caller: str
    correlation_id: str


@final
class StopOver(Struct, frozen=True):
    """A listener did not answer the relay's own request to stop a durable call (RL-DURABLE-059)."""

    call_id: str


@final
class StoreDue(Struct, frozen=True):
    """The store may have calls whose time has come."""


@final
class StoreRetry(Struct, frozen=True):
    """The store failed; it may work again."""


DurableAlarm: TypeAlias = LeaseLapses | QueueTurns | RebindOver | RestOver | StopOver | StoreDue | StoreRetry
SyncAlarm: TypeAlias = (
    BoundPassed | HoldOver | GraceOver | ReleaseDue | CancelWaited | RecordsOver | DrainOver
)
Alarm: TypeAlias = SyncAlarm | DurableAlarm

_SLACK: Final = 64


@final
class Timers:
    """Timers by the alarm they raise. Times are milliseconds of the clock that never goes back."""

    __slots__ = ("_due", "_heap", "_order", "next")

    def __init__(self) -> None:
        self.next: float = math.inf
        """No alarm is due before; it may be that of one which was moved or cancelled since."""
        self._heap: list[tuple[int, int, Alarm]] = []
        self._due: dict[Alarm, int] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._due)

    def set(self, alarm: Alarm, due: int) -> None:
        """Raise ``alarm`` at ``due``; if it is set already, it is moved."""
        self._due[alarm] = due
        self._order += 1
        heapq.heappush(self._heap, (due, self._order, alarm))
        if due < self.next:
            self.next = due
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            # Rebuilding costs what it removes, so each setting pays for it once.
            self._heap = [(due, order, alarm) for order, (alarm, due) in enumerate(self._due.items())]
            self._order = len(self._heap)
            heapq.heapify(self._heap)

    def cancel(self, alarm: Alarm) -> None:
        """Forget ``alarm``, if it is set."""
        self._due.pop(alarm, None)

    def expired(self, now: int) -> Iterator[Alarm]:
        """Yield the alarms due at ``now``, earliest first, those set meanwhile included."""
        heap = self._heap
        while heap:
            due, _, alarm = heap[0]
            valid = self._due.get(alarm) == due
            if valid and due > now:
                break
            heapq.heappop(heap)
            if valid:
                del self._due[alarm]
                yield alarm
                heap = self._heap  # what was set meanwhile may have rebuilt it
        self.next = heap[0][0] if heap else math.inf
