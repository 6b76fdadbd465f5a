"""What happened lately, by key. The oldest falls out, by age and by number."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar, final

__all__ = ["Recent"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@final
class Recent(Generic[K, V]):
    """A memory whose entries live ``life`` ms from their last `put`, and which holds at most ``most``.

    Entries stand in the order of their last `put`, so that what is over is at the front: every operation
    is O(1), spread over the entries it removes. What is over may stay in memory for a while, unseen. Times
    are milliseconds of the clock that never goes back.
    """

    __slots__ = ("_entries", "_life", "_most", "_purged")

    def __init__(self, *, life: int, most: int | None = None) -> None:
        self._entries: OrderedDict[K, tuple[int, V]] = OrderedDict()
        self._life = life
        self._most = most
        self._purged = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now: int) -> V | None:
        """Return what was put under ``key`` less than ``life`` ago, else None."""
        entry = self._entries.get(key)
        return entry[1] if entry is not None and now - entry[0] < self._life else None

    def put(self, key: K, value: V, now: int) -> None:
        """Remember ``value`` under ``key`` from now on; make room by what is over, or oldest."""
        entries = self._entries
        if key in entries:
            entries.move_to_end(key)
        entries[key] = (now, value)
        if now - self._purged >= self._life:
            self.purge(now)
        if self._most is not None and len(entries) > self._most:
            entries.popitem(last=False)

    def purge(self, now: int) -> None:
        """Forget what is over."""
        self._purged = now
        entries = self._entries
        while entries:
            key, (put, _) = next(iter(entries.items()))
            if now - put < self._life:
                return
            del entries[key]
