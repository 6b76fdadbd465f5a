"""Durable calls in the relay's SQLite file, beside the directory.

Written from the event loop itself, on a connection of its own: a turn's writes share one transaction and one
flush to the disk, which costs less than a thread would. The directory's writer has another connection in
another thread; its transactions are as short, and SQLite lets one wait for the other. When somebody else
holds the file, this one gives up after ``busy_timeout`` instead of stopping the loop.

Counters are summed up and ciphertexts gathered in memory during a turn, and written at its end in the same
transaction.
"""

import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, Literal, final

from msgspec.structs import replace

from ringline.protocol.lifecycle import State
from ringline.protocol.limits import DAY_MS
from ringline.relay import call_records
from ringline.relay.call_file import CallFile
from ringline.relay.call_records import INSERT, SELECT, Record, Value, calls_of, page_of, whole
from ringline.relay.call_repair import repair_calls
from ringline.relay.call_store import (
    CallRow,
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
from ringline.relay.call_turn import CallTurn, Sealed, Sums
from ringline.relay.clock import system_clock
from ringline.relay.store import StoreError
from ringline.relay.upkeep import ERASED_WITHIN_S

__all__ = ["SqliteCalls"]

_BUSY_TIMEOUT_S: Final = 0.15

_NONE: Final = Held()
_EVER: Final = 2**63 - 1


@final
class SqliteCalls:
    """See `ringline.relay.call_store.CallStore`. Durable at commit: write-ahead log, ``synchronous=FULL``.

    The sealed request of a call that ended, and an outcome that is not kept, are gone from the files
    `ringline.relay.upkeep.ERASED_WITHIN_S` after the commit.
    """

    def __init__(
        self,
        path: str,
        *,
        busy_timeout: float = _BUSY_TIMEOUT_S,
        erased_within: float = ERASED_WITHIN_S,
        now: Callable[[], int] = lambda: system_clock().wall,
    ) -> None:
        """Open the calls in the file at ``path``, which a `SqliteStore` of this process should hold.

        `MEMORY` is a database of this object alone. ``busy_timeout`` is how long, in seconds, the first
        write of a turn waits for another writer, ``erased_within`` how long what was deleted may be found
        in the files after its commit, while no other program reads them. ``now`` gives the Unix time in ms
        for trails.

        Raises `ConfigError`, which says what is wrong with the file and what to do.
        """
        self.path = path
        self._now = now
        self._file = CallFile(path, busy_timeout=busy_timeout, erased_within=erased_within)
        self._turn = CallTurn()
        self._known = self._turn.known
        try:
            self._seq = self._committed = self._last_seq()
        except BaseException:
            self._file.close()
            raise

    # --- transactions

    def commit(self) -> None:
        """See `CallStore.commit`."""
        if not self._file.in_turn:
            return
        try:
            self._flush()
            self._file.commit()
        except StoreError:
            self.rollback()
            raise
        self._committed = self._seq
        self._known.trim()

    def rollback(self) -> None:
        """See `CallStore.rollback`."""
        self._turn.clear()
        self._known.clear()
        self._seq = self._committed
        self._file.rollback()

    # --- one call

    def insert(self, row: CallRow, request: bytes) -> CallRow:
        """See `CallStore.insert`."""
        row = replace(row, seq=self._seq + 1)
        self._file.write(INSERT, call_records.values_of(row))
        self._seq = row.seq
        self._turn.requests.add(row, request)
        self._turn.count(row, _NONE, held(row))
        self._turn.meet(row)
        return row

    def load(self, call_id: str) -> CallRow | None:
        """See `CallStore.load`."""
        return self._one(call_records.BY_ID, (call_id,))

    def find(self, caller: str, callee: str, message_id: str) -> CallRow | None:
        """See `CallStore.find`."""
        for found in self._file.run(call_records.BY_KEY, (caller, callee, message_id)):
            return self._one(call_records.BY_SEQ, found)
        return None

    def request(self, call_id: str) -> bytes | None:
        """See `CallStore.request`."""
        return self._sealed("requests", self._turn.requests, call_id)

    def outcome(self, call_id: str) -> bytes | None:
        """See `CallStore.outcome`."""
        return self._sealed("outcomes", self._turn.outcomes, call_id)

    def swap(self, before: CallRow, after: CallRow, outcome: bytes | None = None) -> CallRow:
        """See `CallStore.swap`."""
        after = replace(after, seq=before.seq, version=before.version + 1)
        if self._file.write(*call_records.swap_of(before, after)) != 1:
            raise StaleCall
        if (
            before.ended is not after.ended
            or before.terminal is not after.terminal
            or before.acknowledged is not after.acknowledged
            or before.outcome_bytes != after.outcome_bytes
        ):
            self._change_kept(before, after)
        if outcome is not None and keeps_outcome(after):
            self._turn.outcomes.add(after, outcome)
        if asks_cancel(before, after):
            noted = (after.seq, after.version, self._now())
            self._file.write("INSERT INTO cancel_requests VALUES (?, ?, ?)", noted)
        return after

    def _change_kept(self, before: CallRow, after: CallRow) -> None:
        """Delete what is not kept any more, and count what is held now."""
        held_before, held_after = held(before), held(after)
        if held_before == held_after and before.terminal is None:
            return
        if keeps_request(before) and not keeps_request(after):
            self._turn.requests.delete(after)
        if keeps_outcome(before) and not keeps_outcome(after):
            self._turn.outcomes.delete(after)
        self._turn.count(after, held_before, held_after)

    def forget(self, row: CallRow) -> None:
        """See `CallStore.forget`."""
        self._file.begin()
        self._flush()
        # Everything that belongs to it goes with it: foreign keys.
        if self._file.write(f"DELETE FROM calls WHERE {call_records.SAME}", call_records.same_of(row)) != 1:
            raise StaleCall
        self._turn.count(row, held(row), _NONE)
        if row.seq == self._seq:
            # Else its number would be given to the next call after a restart.
            self._file.write("INSERT OR REPLACE INTO facts VALUES ('last_call', ?)", (str(row.seq),))

    # --- many calls

    def queued(self, callee: str, after: int, limit: int) -> list[CallRow]:
        """See `CallStore.queued`."""
        return self._many(
            f"{SELECT} WHERE state = 'queued' AND callee = ? AND seq > ? ORDER BY seq LIMIT ?",
            (callee, after, limit),
        )

    def flagged(self, after: int, limit: int) -> list[CallRow]:
        """See `CallStore.flagged`."""
        return self._many(
            f"{SELECT} WHERE state = 'queued' AND cancel_requested = 1 AND seq > ? ORDER BY seq LIMIT ?",
            (after, limit),
        )

    def started(self) -> list[CallRow]:
        """See `CallStore.started`."""
        return self._many(f"{SELECT} WHERE state = 'started' ORDER BY seq", ())

    def due(self, now: int, limit: int) -> list[CallRow]:
        """See `CallStore.due`."""
        return self._many(f"{SELECT} WHERE due_at <= ? ORDER BY due_at, seq LIMIT ?", (now, limit))

    def next_due(self) -> int | None:
        """See `CallStore.next_due`."""
        return next((row.due_at for row in self.due(_EVER, 1)), None)

    def page(
        self,
        party: Literal["caller", "callee"],
        handle: str,
        states: Sequence[State],
        cursor: int | None,
        limit: int,
    ) -> Page:
        """See `CallStore.page`."""
        below = _EVER if cursor is None else cursor
        found = self._many(page_of(party, frozenset(states)), (handle, below, limit + 1))
        rows = found[:limit]
        return rows, rows[-1].seq if len(found) > limit else None

    def shared(self, one: str, other: str, since: int) -> bool:
        """See `CallStore.shared`."""
        return any(
            self._turn.met.get(pair, since - 1) >= since or self._file.run(call_records.MET, (*pair, since))
            for pair in ((one, other), (other, one))
        )

    # --- quotas and budgets

    def held_by(self, callee: str, *, unlisted: bool = False) -> Held:
        """See `CallStore.held_by`."""
        calls, requests, outcomes = self._mailbox((callee, False))
        if not unlisted:
            more = self._mailbox((callee, True))
            return Held(calls + more[0], requests + more[1], outcomes + more[2])
        return Held(calls, requests, outcomes)

    def _mailbox(self, box: tuple[str, bool]) -> Sums:
        known = self._known.mailboxes.get(box)
        if known is None:
            found = self._file.run(call_records.MAILBOX, box)
            known = self._known.mailboxes[box] = _sums(found, self._turn.mailboxes.get(box))
        return known

    def held_by_pair(self, caller: str, callee: str) -> Held:
        """See `CallStore.held_by_pair`."""
        pair = (caller, callee)
        known = self._known.pairs.get(pair)
        if known is None:
            found = self._file.run(call_records.PAIR, pair)
            known = self._known.pairs[pair] = _sums(found, self._turn.pairs.get(pair))
        return Held(*known)

    def note_start(self, caller: str, callee: str, at: int) -> None:
        """See `CallStore.note_start`."""
        self._file.begin()
        self._turn.start(caller, callee, at)

    def starts(self, caller: str, callee: str, since: int) -> list[int]:
        """See `CallStore.starts`."""
        pair = (caller, callee)
        known = self._known.starts.get(pair)
        if known is None:
            found = self._file.run(call_records.STARTS, pair)
            known = [whole(at) for at, count in found for _ in range(whole(count))]
            known = self._known.starts[pair] = sorted(known + self._turn.started(caller, callee))
        first = bisect_left(known, since)
        if first and known[0] < since - DAY_MS:
            del known[:first]
            first = 0
        return known[first:]

    # --- the whole

    def trail(self, call_id: str) -> Trail:
        """See `CallStore.trail`."""
        row = self.load(call_id)
        if row is None:
            return []
        asked = self._file.run("SELECT at FROM cancel_requests WHERE seq = ? ORDER BY version", (row.seq,))
        return trail_of(row, [whole(at) for (at,) in asked])

    def repair(self) -> list[str]:
        """See `CallStore.repair`."""
        self._file.begin()
        try:
            self._flush()
            found = repair_calls(self._file.database())
        except sqlite3.Error as error:
            failure = self._file.failure(error)
            self.rollback()
            raise failure from error
        self.commit()
        self._known.clear()
        return found

    def check(self) -> None:
        """See `CallStore.check`. Writes one row, since a full disk shows itself in no other way."""
        if not self._file.in_turn:
            self._file.write("INSERT OR REPLACE INTO facts VALUES ('calls_writable', ?)", (str(self._now()),))
            self.commit()

    def shrink(self) -> None:
        """See `CallStore.shrink`. Done by itself some seconds after a commit; this does it now."""
        if self._file.upkeep is not None:
            self._file.upkeep.round()

    @property
    def trouble(self) -> str | None:
        """Why deleted bytes may be in the files longer than they should; None while all is well."""
        return None if self._file.upkeep is None else self._file.upkeep.trouble

    def snapshot(self) -> dict[str, int]:
        """Return present numbers of the files, and how often their upkeep failed."""
        if self._file.upkeep is None:
            return {}
        return {
            "now_store_bytes": self._file.upkeep.file_bytes() + self._file.upkeep.log_bytes(),
            "now_store_log_bytes": self._file.upkeep.log_bytes(),
            "now_erasure_late": int(self._file.upkeep.trouble is not None),
            "upkeep_failures": self._file.upkeep.failures,
        }

    def size(self) -> int:
        """Return the bytes of the file and its log. 0 for a database in memory."""
        if self._file.upkeep is None:
            return 0
        ((size,),) = self._file.run("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        return whole(size) + self._file.upkeep.log_bytes()

    def close(self) -> None:
        """See `CallStore.close`."""
        self.rollback()
        self._file.close()

    # --- statements

    def _many(self, statement: str, values: Sequence[Value]) -> list[CallRow]:
        return calls_of(self._file.run(statement, values), self.path)

    def _one(self, statement: str, values: Sequence[Value]) -> CallRow | None:
        return next(iter(self._many(statement, values)), None)

    def _sealed(self, table: str, turn: Sealed, call_id: str) -> bytes | None:
        added = turn.added.get(call_id)
        if added is not None:
            return added[1]
        if call_id in turn.deleted:
            return None
        found = self._file.run(
            f"SELECT sealed FROM {table} JOIN calls USING (seq) WHERE call_id = ?", (call_id,)
        )
        return next((record[0] for record in found if isinstance(record[0], bytes)), None)

    def _last_seq(self) -> int:
        ((last,),) = self._file.run(call_records.LAST_SEQ)
        return whole(last)

    def _flush(self) -> None:
        """Write what the turn gathered. A counter that would fall below zero meets its constraint."""
        turn, records = self._turn, call_records
        for table, sealed in (("requests", turn.requests), ("outcomes", turn.outcomes)):
            gone = [(seq,) for seq in sealed.deleted.values()]
            self._file.write_all(f"DELETE FROM {table} WHERE seq = ?", gone)
            self._file.write_all(f"INSERT INTO {table} VALUES (?, ?)", list(sealed.added.values()))
        self._file.write_all(records.ADD_START, [(*key, count) for key, count in turn.starts.items()])
        self._file.write_all(records.NEW_PAIR, [(*pair, met) for pair, met in turn.met.items()])
        self._file.write_all(records.ADD_TO_PAIR, [(*change, *pair) for pair, change in turn.pairs.items()])
        self._file.write_all(records.NEW_MAILBOX, list(turn.mailboxes))
        self._file.write_all(
            records.ADD_TO_MAILBOX, [(*change, *box) for box, change in turn.mailboxes.items()]
        )
        if turn.started_at is not None:
            self._file.write("DELETE FROM starts WHERE at < ?", (turn.started_at - DAY_MS,))
        turn.clear()


def _sums(found: list[Record], more: Sums | None) -> Sums:
    """Return the one record of counters, zeros when there is none, with ``more`` added to it."""
    sums = list(map(whole, found[0])) if found else [0, 0, 0]
    return sums if more is None else [one + other for one, other in zip(sums, more, strict=True)]
