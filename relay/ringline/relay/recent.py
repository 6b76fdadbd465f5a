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
    is O(1), spread over the entries it removes. Times are milliseconds of the clock that never goes back.
    """

    __slots__ = ("_entries", "_life", "_most")

    def __init__(self, *, life: int, most: int | None = None) -> None:
        self._entries: OrderedDict[K, tuple[int, V]] = OrderedDict()
        self._life = life
        self._most = most

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, now: int) -> V | None:
        """Return what was put under ``key`` less than ``life`` ago, else None."""
        entry = self._entries.get(key)
        return entry[1] if entry is not None and now - entry[0] < self._life else None

    def holds(self, key: K, now: int) -> bool:
        """True if something was put under ``key`` less than ``life`` ago."""
        entry = self._entries.get(key)
        return entry is not None and now - entry[0] < self._life

    def put(self, key: K, value: V, now: int) -> None:
        """Remember ``value`` under ``key`` from now on; make room by what is over, or oldest."""
        entries = self._entries
        entries[key] = (now, value)
        entries.move_to_end(key)
        self.purge(now)
        if self._most is not None and len(entries) > self._most:
            entries.popitem(last=False)

    def purge(self, now: int) -> None:
        """Forget what is over."""
        entries = self._entries
        while entries:
            key, (put, _) = next(iter(entries.items()))
            if now - put < self._life:
                return
            del entries[key]
