"""What the owner of a listener is told, and no more often than he can read it.

Peers and the relay cause most notes, and could cause any number of them.
"""

from collections.abc import Callable
from typing import Final, final

__all__ = ["Notes"]

_SAME_AGAIN_S: Final = 60.0
_REMEMBERED: Final = 256
_IN_A_MINUTE: Final = 120


@final
class Notes:
    """Passes notes on: each text once a minute, and no more than two a second for long."""

    def __init__(self, tell: Callable[[str], None], monotonic: Callable[[], float]) -> None:
        """``tell`` gets what is passed on; ``monotonic`` gives seconds."""
        self._tell = tell
        self._monotonic = monotonic
        self._told: dict[str, float] = {}
        self._window = monotonic()
        self._count = 0

    def __call__(self, text: str) -> None:
        """Pass a note on, or leave it out."""
        now = self._monotonic()
        if now - self._told.get(text, -_SAME_AGAIN_S) < _SAME_AGAIN_S:
            return
        if now - self._window >= _SAME_AGAIN_S:
            self._window, self._count = now, 0
        self._count += 1
        if self._count > _IN_A_MINUTE:
            if self._count == _IN_A_MINUTE + 1:
                self._tell("more notes than can be read; the rest of this minute is left out")
            return
        self._told.pop(text, None)
        self._told[text] = now
        if len(self._told) > _REMEMBERED:
            del self._told[next(iter(self._told))]
        self._tell(text)
