"""What callees' mailboxes hold at most, and how many stored calls of a pair start in a day.

Source: RL-ADMIT-034, RL-ADMIT-036, RL-ADMIT-037, RL-DURABLE-016.

All numbers come from the store's counters, which change in the transactions that they count.
"""

from typing import Final, final

from ringline.relay.call_store import CallRow, CallStore, Held
from ringline.relay.settings import Settings

__all__ = ["Quotas"]

_PERCENT: Final = 100


@final
class Quotas:
    """The quotas of every mailbox of a relay; one that is 0 is off."""

    __slots__ = ("_pair", "_starts", "_store", "_strangers", "_whole", "_window")

    def __init__(self, settings: Settings, store: CallStore) -> None:
        self._store = store
        whole = (settings.stored_calls, settings.stored_request_bytes, settings.stored_outcome_bytes)
        share, strangers = settings.stored_pair_percent, settings.stored_unlisted_percent
        self._whole = whole
        self._pair = (settings.stored_calls_per_pair, *(limit * share // _PERCENT for limit in whole[1:]))
        self._strangers = tuple(limit * strangers // _PERCENT for limit in whole) if strangers else None
        self._starts, self._window = settings.starts, settings.starts_window_ms

    def full(self, caller: str, callee: str, *, listed: bool, size: int) -> bool:
        """True if a request with ``size`` bytes of ciphertext does not fit any more.

        Outcomes count too: they gate admission, never the storing of an admitted call's own outcome.
        """
        store, strangers = self._store, self._strangers
        if _over(store.held_by(callee), size, self._whole):
            return True
        if _over(store.held_by_pair(caller, callee), size, self._pair):
            return True
        # RL-ADMIT-037: all who are not on the allow list have at most half of each quota together.
        return (
            not listed
            and strangers is not None
            and _over(store.held_by(callee, unlisted=True), size, strangers)
        )

    def deferred_until(self, row: CallRow, now: int) -> int | None:
        """Return the Unix ms at which the pair may start one more call, None when it may at ``now``."""
        most, span = self._starts, self._window
        if not most:
            return None
        starts = self._store.starts(row.caller, row.callee, now - span + 1)
        # A clock that was set back must not defer for longer than the window.
        return min(starts[-most], now) + span if len(starts) >= most else None


def _over(held: Held, size: int, limits: tuple[int, ...]) -> bool:
    calls, request_bytes, outcome_bytes = limits
    return (
        (calls > 0 and held.calls >= calls)
        or (request_bytes > 0 and held.request_bytes + size > request_bytes)
        or (outcome_bytes > 0 and held.outcome_bytes >= outcome_bytes)
    )
