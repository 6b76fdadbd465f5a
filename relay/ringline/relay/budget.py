"""How often something may happen: exact sliding windows, and the turns of a conversation.

Windows are measured by the clock that never goes back, so a step of the wall clock frees nothing. Looking
charges nothing: whoever looks at several budgets charges all or none (RL-ADMIT-044).
"""

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar, final

__all__ = ["HourlyBudget", "Rate", "TurnBudget", "Window"]

K = TypeVar("K", bound=Hashable)


@final
class Rate:
    """Counts the events of one subject within the last ``span`` ms, exactly."""

    __slots__ = ("_span", "_times")

    def __init__(self, span: int) -> None:
        self._span = span
        self._times: deque[int] = deque()

    def add(self, now: int) -> int:
        """Count one more event, and return how many there were within the span, this one included."""
        times = self._times
        times.append(now)
        over = now - self._span
        while times[0] <= over:
            times.popleft()
        return len(times)

    def wait(self, limit: int, now: int) -> int:
        """Return the ms until fewer than ``limit`` of the events counted lie within the span."""
        excess = len(self._times) - limit
        return self._times[excess] + self._span - now if excess >= 0 else 0


@final
class Window(Generic[K]):
    """At most ``limit`` charges by each key within any ``span`` ms; a limit of 0 is none.

    A charge made at t counts while now < t + span. Keys without a charge in the span are forgotten.
    """

    __slots__ = ("_charges", "_limit", "_span")

    def __init__(self, limit: int, span: int) -> None:
        self._limit = limit
        self._span = span
        # In the order of the last charge: what is over is at the front.
        self._charges: OrderedDict[K, list[int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._charges)

    def wait(self, key: K, now: int) -> int:
        """Return the ms until one more charge would pass, 0 when it passes now."""
        charges = self._charges.get(key)
        if charges is None or len(charges) < self._limit:
            return 0
        del charges[: bisect_right(charges, now - self._span)]
        if not charges:
            # Whoever looks need not charge, and `purge` asks every key for its last charge.
            del self._charges[key]
            return 0
        excess = len(charges) - self._limit
        return charges[excess] + self._span - now if excess >= 0 else 0

    def charge(self, key: K, now: int) -> None:
        """Charge one unit. `wait` was 0, or the charge is made all the same."""
        if not self._limit:
            return
        charges = self._charges.get(key)
        if charges is None:
            self._charges[key] = [now]
        else:
            charges.append(now)
            self._charges.move_to_end(key)
        self.purge(now)

    def purge(self, now: int) -> None:
        """Forget the keys whose every charge is over."""
        over = now - self._span
        while self._charges:
            key, charges = next(iter(self._charges.items()))
            if charges[-1] > over:
                return
            del self._charges[key]


@final
class HourlyBudget:
    """Requests per caller, and per caller and callee, in one sliding window (RL-ADMIT-013, RL-ADMIT-029)."""

    __slots__ = ("_callers", "_pairs")

    def __init__(self, per_caller: int, per_pair: int, span: int) -> None:
        self._callers: Window[str] = Window(per_caller, span)
        self._pairs: Window[tuple[str, str]] = Window(per_pair, span)

    def take(self, caller: str, callee: str, now: int) -> int:
        """Charge one unit of both and return 0, or charge nothing and return the ms until both have one."""
        pair = (caller, callee)
        wait = max(self._callers.wait(caller, now), self._pairs.wait(pair, now))
        if not wait:
            self._callers.charge(caller, now)
            self._pairs.charge(pair, now)
        return wait

    def purge(self, now: int) -> None:
        """Forget who has not called within the window."""
        self._callers.purge(now)
        self._pairs.purge(now)


@final
class TurnBudget:
    """Calls with one correlation id from a caller to a handle, within ``span`` ms of the first
    (RL-ADMIT-030).

    Unlike a sliding window this one is anchored at the first turn, and begins anew when it is over.
    """

    __slots__ = ("_limit", "_span", "_turns")

    def __init__(self, limit: int, span: int) -> None:
        self._limit = limit
        self._span = span
        # In the order of the first turn: (its time, how many).
        self._turns: OrderedDict[tuple[str, str, str], tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._turns)

    def wait(self, conversation: tuple[str, str, str], now: int) -> int:
        """Return the ms until ``(caller, callee, correlation_id)`` may have one more turn, 0 when now."""
        if not self._limit:
            return 0
        first, turns = self._turns.get(conversation, (now, 0))
        return max(0, first + self._span - now) if turns >= self._limit else 0

    def charge(self, conversation: tuple[str, str, str], now: int) -> None:
        """Charge one turn. `wait` was 0."""
        if not self._limit:
            return
        self.purge(now)
        first, turns = self._turns.get(conversation, (now, 0))
        self._turns[conversation] = (first, turns + 1)

    def purge(self, now: int) -> None:
        """Forget the conversations whose window is over."""
        turns = self._turns
        while turns:
            conversation, (first, _) = next(iter(turns.items()))
            if now - first < self._span:
                return
            del turns[conversation]
