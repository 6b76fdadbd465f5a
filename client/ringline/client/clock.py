"""The relay's time, as far as a client has to follow it.

Log-in tokens and envelopes carry the time of their making, and a relay refuses those that are off by more
than two minutes. A client whose clock is wrong learns the difference from the ``Date`` of a 401, and uses
it for these two alone (RL-AUTH-023, RL-AUTH-024). How long keys hold is judged by the computer's own clock:
otherwise a relay could make old keys valid again by telling the wrong time.
"""

import time
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, final

__all__ = ["WARN_ABOVE_MS", "RelayClock", "wall_ms"]

WARN_ABOVE_MS: Final = 60_000
"""A difference above this is told to the person."""

# `Date` counts whole seconds, so that a smaller difference says nothing.
_RESOLUTION_MS: Final = 1_000


def wall_ms() -> int:
    """Return the computer's own time, Unix ms."""
    return time.time_ns() // 1_000_000


@final
class RelayClock:
    """The computer's clock and its difference to the relay's.

    ``wall`` gives the computer's time in Unix ms; ``warn`` is called once, with a sentence, when the
    difference is above `WARN_ABOVE_MS`.
    """

    def __init__(self, wall: Callable[[], int] = wall_ms, warn: Callable[[str], None] | None = None) -> None:
        """Begin without a difference."""
        self._wall = wall
        self._warn = warn
        self._warned = False
        self.offset_ms = 0

    def own_ms(self) -> int:
        """Return the computer's own time, Unix ms: for how long keys hold."""
        return self._wall()

    def now_ms(self) -> int:
        """Return the relay's time as far as it is known, Unix ms: for ``iat`` of tokens and envelopes."""
        return self._wall() + self.offset_ms

    def correct(self, date: str | None) -> bool:
        """Take the difference from a ``Date`` header (RFC 9110 §6.6.1), read just now.

        Returns whether `now_ms` changed. A header that is missing or cannot be read changes nothing.
        """
        if date is None:
            return False
        try:
            told = parsedate_to_datetime(date)
        except (ValueError, IndexError, TypeError):
            return False
        if told.tzinfo is None:
            told = told.replace(tzinfo=UTC)
        offset = int(told.timestamp() * 1_000) + _RESOLUTION_MS // 2 - self._wall()
        offset = 0 if abs(offset) <= 2 * _RESOLUTION_MS else offset
        changed = abs(offset - self.offset_ms) > _RESOLUTION_MS
        if changed:
            self.offset_ms = offset
        if abs(self.offset_ms) > WARN_ABOVE_MS and not self._warned and self._warn is not None:
            self._warned = True
            way = "behind" if self.offset_ms > 0 else "ahead of"
            self._warn(
                f"this computer's clock is {abs(self.offset_ms) // 1_000} s {way} the relay's; "
                "set it, because keys are judged by it"
            )
        return changed
