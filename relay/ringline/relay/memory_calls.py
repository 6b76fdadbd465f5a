"""The model of a call store: plain dictionaries, and an undo list for `MemoryCalls.rollback`.

Tests drive every other store beside this one. It is correct before it is fast.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar, final

from msgspec.structs import replace

from ringline.protocol.lifecycle import State
from ringline.protocol.limits import DAY_MS
from ringline.relay.call_store import (
    CallRow,
    DuplicateCall,
    Held,
    Page,
    StaleCall,
    Trail,
    asks_cancel,
    held,
    keeps_outcome,
    keeps_request,
    trail_of,
)

__all__ = ["MemoryCalls"]

_K = TypeVar("_K")
_V = TypeVar("_V")


@final
class MemoryCalls:
    """See `ringline.relay.call_store.CallStore`. Gone with the process."""

    def __init__(self, now: Callable[[], int] = lambda: 0) -> None:
        """``now`` gives the Unix time in ms for the trail of calls."""
        self._now = now
        self._rows: dict[str, CallRow] = {}
        self._requests: dict[str, bytes] = {}
        self._outcomes: dict[str, bytes] = {}
        self._cancels: dict[str, list[int]] = {}
        self._met: dict[frozenset[str], int] = {}
        self._starts: list[tuple[str, str, int]] = []
        self._seq = 0
        self._undo: list[Callable[[], None]] = []

    def commit(self) -> None:
        """See `CallStore.commit`."""
        self._undo.clear()

    def rollback(self) -> None:
        """See `CallStore.rollback`."""
        while self._undo:
            self._undo.pop()()

    def insert(self, row: CallRow, request: bytes) -> CallRow:
        """See `CallStore.insert`."""
        if row.call_id in self._rows or self.find(row.caller, row.callee, row.message_id) is not None:
            raise DuplicateCall
        last = self._seq
        self._undo.append(lambda: setattr(self, "_seq", last))
        self._seq += 1
        row = replace(row, seq=self._seq)
        _put(self._rows, row.call_id, row, self._undo)
        _put(self._requests, row.call_id, request, self._undo)
        pair = frozenset((row.caller, row.callee))
        _put(self._met, pair, max(row.submitted_at, self._met.get(pair, 0)), self._undo)
        return row

    def load(self, call_id: str) -> CallRow | None:
        """See `CallStore.load`."""
        return self._rows.get(call_id)

    def find(self, caller: str, callee: str, message_id: str) -> CallRow | None:
        """See `CallStore.find`."""
        key = (caller, callee, message_id)
        return next((r for r in self._rows.values() if (r.caller, r.callee, r.message_id) == key), None)

    def request(self, call_id: str) -> bytes | None:
        """See `CallStore.request`."""
        return self._requests.get(call_id)

    def outcome(self, call_id: str) -> bytes | None:
        """See `CallStore.outcome`."""
        return self._outcomes.get(call_id)

    def swap(self, before: CallRow, after: CallRow, outcome: bytes | None = None) -> CallRow:
        """See `CallStore.swap`."""
        self._check(before)
        after = replace(after, version=before.version + 1)
        _put(self._rows, after.call_id, after, self._undo)
        if outcome is not None:
            _put(self._outcomes, after.call_id, outcome, self._undo)
        if not keeps_request(after):
            _put(self._requests, after.call_id, None, self._undo)
        if not keeps_outcome(after):
            _put(self._outcomes, after.call_id, None, self._undo)
        if asks_cancel(before, after):
            asked = [*self._cancels.get(after.call_id, ()), self._now()]
            _put(self._cancels, after.call_id, asked, self._undo)
        return after

    def forget(self, row: CallRow) -> None:
        """See `CallStore.forget`."""
        self._check(row)
        _put(self._rows, row.call_id, None, self._undo)
        _put(self._requests, row.call_id, None, self._undo)
        _put(self._outcomes, row.call_id, None, self._undo)
        _put(self._cancels, row.call_id, None, self._undo)

    def queued(self, callee: str, after: int, limit: int) -> list[CallRow]:
        """See `CallStore.queued`."""
        found = [r for r in self._rows.values() if r.callee == callee and r.state is State.QUEUED]
        return sorted((r for r in found if r.seq > after), key=lambda r: r.seq)[:limit]

    def flagged(self, after: int, limit: int) -> list[CallRow]:
        """See `CallStore.flagged`."""
        found = [r for r in self._rows.values() if r.state is State.QUEUED and r.cancel_requested]
        return sorted((r for r in found if r.seq > after), key=lambda r: r.seq)[:limit]

    def started(self) -> list[CallRow]:
        """See `CallStore.started`."""
        return sorted((r for r in self._rows.values() if r.state is State.STARTED), key=lambda r: r.seq)

    def due(self, now: int, limit: int) -> list[CallRow]:
        """See `CallStore.due`."""
        found = [r for r in self._rows.values() if r.due_at <= now]
        return sorted(found, key=lambda r: (r.due_at, r.seq))[:limit]

    def next_due(self) -> int | None:
        """See `CallStore.next_due`."""
        return min((r.due_at for r in self._rows.values()), default=None)

    def page(
        self,
        party: Literal["caller", "callee"],
        handle: str,
        states: Sequence[State],
        cursor: int | None,
        limit: int,
    ) -> Page:
        """See `CallStore.page`."""
        found = [
            r
            for r in self._rows.values()
            if (r.caller if party == "caller" else r.callee) == handle
            and (not states or r.state in states)
            and (cursor is None or r.seq < cursor)
        ]
        found.sort(key=lambda r: -r.seq)
        page = found[:limit]
        return page, page[-1].seq if len(found) > limit else None

    def shared(self, one: str, other: str, since: int) -> bool:
        """See `CallStore.shared`."""
        return self._met.get(frozenset((one, other)), -1) >= since

    def held_by(self, callee: str, *, unlisted: bool = False) -> Held:
        """See `CallStore.held_by`."""
        rows = [r for r in self._rows.values() if r.callee == callee and not (unlisted and r.listed)]
        return _sum([held(row) for row in rows])

    def held_by_pair(self, caller: str, callee: str) -> Held:
        """See `CallStore.held_by_pair`."""
        return _sum([held(r) for r in self._rows.values() if (r.caller, r.callee) == (caller, callee)])

    def note_start(self, caller: str, callee: str, at: int) -> None:
        """See `CallStore.note_start`."""
        before = self._starts
        self._undo.append(lambda: setattr(self, "_starts", before))
        self._starts = [start for start in before if start[2] >= at - DAY_MS]
        self._starts.append((caller, callee, at))

    def starts(self, caller: str, callee: str, since: int) -> list[int]:
        """See `CallStore.starts`."""
        return sorted(at for a, b, at in self._starts if (a, b) == (caller, callee) and at >= since)

    def trail(self, call_id: str) -> Trail:
        """See `CallStore.trail`."""
        row = self._rows.get(call_id)
        return [] if row is None else trail_of(row, self._cancels.get(call_id, ()))

    def repair(self) -> list[str]:
        """See `CallStore.repair`. There is nothing here that could be out of step."""
        return []

    def check(self) -> None:
        """See `CallStore.check`."""

    def shrink(self) -> None:
        """See `CallStore.shrink`."""

    def close(self) -> None:
        """See `CallStore.close`."""
        self.rollback()

    def _check(self, row: CallRow) -> None:
        stored = self._rows.get(row.call_id)
        if stored is None or stored.version != row.version:
            raise StaleCall


def _put(table: dict[_K, _V], key: _K, value: _V | None, undo: list[Callable[[], None]]) -> None:
    """Write an entry, or delete it when ``value`` is None, and note how to take that back."""
    before = table.pop(key, None)
    if value is not None:
        table[key] = value

    def restore() -> None:
        table.pop(key, None)
        if before is not None:
            table[key] = before

    undo.append(restore)


def _sum(parts: list[Held]) -> Held:
    return Held(
        sum(part.calls for part in parts),
        sum(part.request_bytes for part in parts),
        sum(part.outcome_bytes for part in parts),
    )
