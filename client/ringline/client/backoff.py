"""How long a client waits before it dials again."""

from collections.abc import Callable
from typing import Final, final

__all__ = ["Backoff"]

_HINT_MAX_S: Final = 120.0


@final
class Backoff:
    """Delays that double, are spread by chance, and start anew only after a stable connection.

    A relay that accepts and drops at once is no stable connection: without that rule every client would
    dial it as fast as it can. Pure: chance and time are handed in; all times are seconds.
    """

    def __init__(
        self,
        chance: Callable[[], float],
        *,
        base_s: float = 0.5,
        ceiling_s: float = 30.0,
        stable_s: float = 10.0,
    ) -> None:
        """``chance`` gives a number from 0 to 1. A connection of ``stable_s`` is a stable one."""
        self._chance = chance
        self._base_s = base_s
        self._ceiling_s = ceiling_s
        self._stable_s = stable_s
        self._failures = 0
        self._opened_at: float | None = None

    @property
    def failures(self) -> int:
        """How many attempts in a row led to no stable connection."""
        return self._failures

    def opened(self, now_s: float) -> None:
        """Note that a connection stands."""
        self._opened_at = now_s

    def failed(self, now_s: float, hint_s: float | None = None) -> float:
        """Note that an attempt failed or a connection ended, and return how long to wait.

        ``hint_s`` is what the relay asked for: at least that long, at most two minutes.
        """
        if self._opened_at is not None and now_s - self._opened_at >= self._stable_s:
            self._failures = 0
        self._opened_at = None
        bound = min(self._ceiling_s, self._base_s * float(1 << min(self._failures, 30)))
        self._failures += 1
        # Half of it is fixed, so that a delay is never nothing; half spreads the clients of one relay.
        delay = bound * (0.5 + self._chance() / 2)
        if hint_s is None:
            return delay
        hint = min(max(hint_s, 0.0), _HINT_MAX_S)
        return hint + min(delay, self._base_s)
