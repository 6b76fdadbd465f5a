"""When the cards of open connections cease to log in (RL-TRANSPORT-043)."""

import heapq
from typing import final

__all__ = ["Tenures"]


@final
class Tenures:
    """A list of cards by the Unix ms at which each is to be looked at again."""

    def __init__(self) -> None:
        self._ends: list[tuple[int, str, str]] = []
        self._listed: dict[tuple[str, str], int] = {}

    def note(self, handle: str, card_id: str, end: int) -> None:
        """Look at this card at ``end``, or earlier if that was noted before."""
        key = (handle, card_id)
        if end < self._listed.get(key, end + 1):
            self._listed[key] = end
            heapq.heappush(self._ends, (end, handle, card_id))

    def due(self, wall: int) -> list[tuple[str, str]]:
        """Return, and strike off, the cards whose time has come at ``wall``."""
        due: list[tuple[str, str]] = []
        while self._ends and self._ends[0][0] <= wall:
            end, handle, card_id = heapq.heappop(self._ends)
            # A later entry of a card that was noted for an earlier time says nothing any more.
            if self._listed.get((handle, card_id)) == end:
                del self._listed[handle, card_id]
                due.append((handle, card_id))
        return due

    def next(self) -> int | None:
        """Return the Unix ms of the next look, None if there is none."""
        return self._ends[0][0] if self._ends else None
