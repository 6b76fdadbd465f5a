"""Which handles were the two sides of a call lately: they may see each other's keys (RL-HTTP-026)."""

from typing import Final, final

from ringline.relay.recent import Recent

__all__ = ["Acquaintances"]

_STEP_MS: Final = 60_000


@final
class Acquaintances:
    """Pairs of handles that had a sync call within ``life`` ms; ``most`` of them at most, oldest out."""

    __slots__ = ("_pairs",)

    def __init__(self, *, life: int, most: int) -> None:
        self._pairs: Recent[tuple[str, str], int] = Recent(life=life, most=most)

    def __len__(self) -> int:
        return len(self._pairs)

    def meet(self, caller: str, callee: str, now: int) -> None:
        """A call of ``caller`` to ``callee`` was admitted at ``now`` (ms, monotonic)."""
        pair = _pair(caller, callee)
        met = self._pairs.get(pair, now)
        # Often enough to be right to the minute, seldom enough to cost nothing.
        if met is None or now - met >= _STEP_MS:
            self._pairs.put(pair, now, now)

    def have_met(self, one: str, other: str, now: int) -> bool:
        """True if one of the two has called the other lately."""
        return self._pairs.get(_pair(one, other), now) is not None

    def purge(self, now: int) -> None:
        """Forget what is over."""
        self._pairs.purge(now)


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
