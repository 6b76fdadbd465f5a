"""The order in which a callee's queued calls are handed out (RL-DURABLE-012 to RL-DURABLE-014).

Callers take turns. Within one conversation of a caller calls leave in the order of their admission, and at
most one of them is beyond the queue. A call that has to wait holds back its own conversation only.
"""

import heapq
from collections import OrderedDict
from collections.abc import Generator, Iterator
from typing import final

from ringline.relay.errands import Errand

__all__ = ["Queue"]


@final
class _Lane:
    """The calls of one conversation."""

    __slots__ = ("asleep", "caller", "correlation_id", "listed", "out", "waiting")

    def __init__(self, caller: str, correlation_id: str) -> None:
        self.caller = caller
        self.correlation_id = correlation_id
        self.waiting: list[tuple[int, Errand]] = []
        """By order of admission; one that is not queued any more is passed over."""
        self.out: tuple[str, ...] = ()
        """Calls that are in somebody's hands, or begun: few, and mostly none."""
        self.asleep = False
        self.listed: int | None = None
        """The place at which its head stands among the caller's lanes."""

    def back(self, call_id: str) -> None:
        """The call is in nobody's hands."""
        if call_id in self.out:
            kept = list(self.out)
            kept.remove(call_id)
            self.out = tuple(kept)

    def head(self) -> Errand | None:
        waiting = self.waiting
        while waiting and not waiting[0][1].queued:
            heapq.heappop(waiting)
        return waiting[0][1] if waiting else None


@final
class Queue:
    """The queued calls of one callee. Everything is O(log n) in their number."""

    __slots__ = ("_lanes", "_turns", "count", "read_to")

    def __init__(self) -> None:
        self.read_to: int | None = 0
        """Up to which ``seq`` the stored calls are in it; None when all are."""
        self._lanes: dict[tuple[str, str], _Lane] = {}
        # Callers that have a conversation with a call to hand out; whose turn it is stands first.
        self._turns: OrderedDict[str, list[tuple[int, _Lane]]] = OrderedDict()
        self.count = 0

    def add(self, errand: Errand) -> None:
        """Let a call wait, in its place: one that was handed out before goes to the front again."""
        lane = self._lane(errand)
        if lane.out:
            lane.back(errand.id)
        if not errand.queued:
            errand.queued = True
            self.count += 1
            heapq.heappush(lane.waiting, (errand.row.seq, errand))
        self._list(lane)

    def take(self, errand: Errand) -> None:
        """A call is in a listener's hands, or begun: the next of its conversation waits."""
        lane = self._lane(errand)
        self._unqueue(errand)
        if errand.id not in lane.out:
            lane.out = (*lane.out, errand.id)
        lane.listed = None

    def drop(self, errand: Errand) -> bool:
        """A call has ended or is parked: it holds back nothing. Return whether its conversation slept."""
        lane = self._lanes.get((errand.row.caller, errand.row.correlation_id))
        self._unqueue(errand)
        if lane is None:
            return False
        asleep = lane.asleep
        lane.asleep = False
        lane.back(errand.id)
        if lane.waiting or lane.out:
            self._list(lane)
        else:
            del self._lanes[lane.caller, lane.correlation_id]
        return asleep

    def sleep(self, errand: Errand) -> None:
        """Pass the conversation of this call over until `wake`."""
        lane = self._lane(errand)
        lane.asleep = True
        lane.listed = None

    def wake(self, caller: str, correlation_id: str) -> None:
        """Let the conversation take part again."""
        lane = self._lanes.get((caller, correlation_id))
        if lane is not None:
            lane.asleep = False
            self._list(lane)

    def drain(self, most: int) -> list[Errand]:
        """Let calls go that wait, about ``most`` of them, and return them; none is left when none comes."""
        gone: list[Errand] = []
        while self._lanes and len(gone) < most:
            _, lane = self._lanes.popitem()
            for _, errand in lane.waiting:
                if errand.queued:
                    self._unqueue(errand)
                    gone.append(errand)
        return gone

    def heads(self) -> Generator[Errand]:
        """Yield the next calls to hand out, callers in turn, until none is left that was not looked at.

        Whoever iterates takes the call, drops it, lets it sleep, or passes it over by doing nothing.
        """
        passed: list[_Lane] = []
        try:
            while self._turns:
                caller = next(iter(self._turns))
                self._turns.move_to_end(caller)
                yield from self._turn(self._turns[caller], passed)
                if not self._turns[caller]:
                    del self._turns[caller]
        finally:
            for lane in passed:
                self._list(lane)

    def _turn(self, lanes: list[tuple[int, _Lane]], passed: list[_Lane]) -> Iterator[Errand]:
        """Yield the heads of a caller's lanes until one of them was not passed over."""
        while lanes:
            seq, lane = heapq.heappop(lanes)
            if lane.listed != seq:
                continue  # it has moved since
            lane.listed = None
            errand = lane.head()
            assert errand is not None
            try:
                yield errand
            finally:
                # Also when nobody looks any further: whoever was not handed out stays in the list.
                if errand.queued and not lane.asleep:
                    passed.append(lane)
            if not errand.queued:
                self._list(lane)
                return

    def _lane(self, errand: Errand) -> _Lane:
        key = (errand.row.caller, errand.row.correlation_id)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(*key)
        return lane

    def _unqueue(self, errand: Errand) -> None:
        if errand.queued:
            errand.queued = False
            self.count -= 1

    def _list(self, lane: _Lane) -> None:
        """Let the lane take part if it can; forget it when it is empty."""
        head = lane.head()
        if head is None or lane.out or lane.asleep:
            lane.listed = None
            if head is None and not lane.out and not lane.asleep:
                self._lanes.pop((lane.caller, lane.correlation_id), None)
            return
        if lane.listed != head.row.seq:
            lane.listed = head.row.seq
            heapq.heappush(self._turns.setdefault(lane.caller, []), (head.row.seq, lane))
