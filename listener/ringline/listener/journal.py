"""The listener's memory: what was taken, what began, how it ended.

It is what makes "at most once" true (RL-IDEM-016). `Journal.take` commits before a call is accepted,
`Journal.begin` before the handler's first step, `Journal.finish` before the outcome is sent; whatever happens
in between, the next process can tell what may have run.
"""

import os
import sqlite3
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

from ringline.listener import contexts, journal_rows
from ringline.listener.entries import (
    ContextClaim,
    ContextTurn,
    End,
    Entry,
    JournalError,
    Offer,
    Taking,
    Verdict,
)
from ringline.listener.journal_file import JournalFile
from ringline.protocol.faults import fault_points
from ringline.protocol.frames import Phase
from ringline.protocol.limits import ENVELOPE_SKEW_MS, HOUR_MS, RECORD_LIFE_MS

__all__ = ["Journal", "JournalBounds", "JournalStep"]

JournalStep: TypeAlias = Literal[
    "recover",
    "opening",
    "closed",
    "take",
    "offered",
    "granted",
    "claim",
    "begin",
    "finish",
    "cancel",
    "confirm",
    "purge",
    "close",
]
"""What is committed, one transaction each, by the name of its method; ``recover`` is at the start. Each has
its fault points (`ringline.protocol.faults`)."""

_TAIL_MS: Final = 2 * ENVELOPE_SKEW_MS
"""How long a row is kept beyond its ``exp`` (RL-IDEM-021)."""

_ENTRY_BYTES: Final = 1_024
_OFFER_BYTES: Final = 2_048  # a one-time key of the larger suite, and the rest


@final
@dataclass(frozen=True, slots=True)
class JournalBounds:
    """How much a journal holds: entries, and bytes of requests, outcomes and keys.

    One caller may hold a quarter of each (RL-IDEM-022).
    """

    entries: int = 20_000
    bytes: int = 256 * 1_048_576


@final
class Journal:
    """See `ringline.listener.entries.Records`; for the thread that made it."""

    def __init__(
        self, path: Path | None, *, bounds: JournalBounds | None = None, machine: str | None = None
    ) -> None:
        """Open or create the file, or keep everything in memory when ``path`` is None.

        ``machine`` is what tells this computer from another; see `JournalFile`, also for `ConfigError`.
        """
        self._file = JournalFile(path, machine=machine)
        self._bounds = bounds or JournalBounds()
        self._reach = fault_points(os.environ)
        try:
            self._recover()
        except JournalError as error:
            self._file.close()
            # Damage that the check at the start passes over is found by the first page that is read.
            if not isinstance(error.__cause__, sqlite3.Error):
                raise
            raise self._file.unusable(error.__cause__) from None
        except BaseException:
            self._file.close()
            raise

    @property
    def instance(self) -> str:
        """UUID of this instance, minted with the journal (RL-TRANSPORT-015)."""
        return self._file.instance

    @property
    def persistent(self) -> bool:
        """False for a journal that is gone with the process: then no durable call may be leased to it."""
        return self._file.path is not None

    def close(self) -> None:
        """End in an orderly way: what this process has not begun is not held against it."""
        try:
            with self._transaction("close") as run:
                run.execute("UPDATE openings SET underway = 0")
                run.execute("DELETE FROM openings WHERE deaths = 0")
        except JournalError:
            pass  # then it counts as a death; three are needed
        finally:
            self._file.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- reading

    def find(self, call_id: str) -> Entry | None:
        """See `Records.find`."""
        with self._statement() as run:
            return journal_rows.find(run, call_id)

    # --- a call comes in

    def opening(self, call_id: str, keep_until: int) -> int:
        """See `Records.opening`."""
        with self._transaction("opening") as run:
            run.execute(
                "INSERT INTO openings VALUES (?, 0, 1, ?) ON CONFLICT (call_id) DO UPDATE SET underway = 1",
                (call_id, keep_until),
            )
            (deaths,) = run.execute("SELECT deaths FROM openings WHERE call_id = ?", (call_id,)).fetchone()
        return int(deaths)

    def closed(self, call_id: str) -> None:
        """See `Records.closed`."""
        with self._transaction("closed") as run:
            run.execute("UPDATE openings SET underway = 0 WHERE call_id = ?", (call_id,))
            run.execute("DELETE FROM openings WHERE call_id = ? AND deaths = 0", (call_id,))

    def take(
        self,
        *,
        key: str,
        payload_digest: bytes,
        request: bytes,
        offer: Offer,
    ) -> Taking:
        """See `Records.take`."""
        from_ipk = offer.from_ipk
        with self._transaction("take") as run:
            row = run.execute(
                "SELECT id, payload_digest FROM entries WHERE from_ipk = ? AND key = ?", (from_ipk, key)
            ).fetchone()
            if row is not None and row[1] != payload_digest:
                return Taking(Verdict.CONFLICT, None)
            # A join takes room as well: it keeps a key of its own.
            if self._full(run, from_ipk):
                return Taking(Verdict.FULL, None)
            if row is None:
                verdict = Verdict.FRESH
                (entry_id,) = run.execute(
                    "INSERT INTO entries (from_ipk, key, payload_digest, exp, durable, state, request, size)"
                    " VALUES (?, ?, ?, ?, 0, 'taken', ?, ?) RETURNING id",
                    (from_ipk, key, payload_digest, offer.exp, request, _ENTRY_BYTES + len(request)),
                ).fetchone()
            else:
                verdict = Verdict.JOINED
                entry_id = row[0]
            journal_rows.insert_offer(run, entry_id, offer)
            run.execute(
                "UPDATE entries SET exp = max(exp, ?), durable = max(durable, ?), size = size + ?"
                " WHERE id = ?",
                (offer.exp, offer.mode == "durable", _OFFER_BYTES, entry_id),
            )
            return Taking(verdict, journal_rows.load(run, entry_id))

    def offered(self, call_id: str, lease_id: str | None, execute_by: int | None) -> None:
        """See `Records.offered`."""
        with self._transaction("offered") as run:
            run.execute(
                "UPDATE offers SET lease_id = ?, execute_by = ? WHERE call_id = ?",
                (lease_id, execute_by, call_id),
            )

    def granted(self, call_id: str) -> None:
        """See `Records.granted`."""
        with self._transaction("granted") as run:
            run.execute("UPDATE offers SET granted = 1 WHERE call_id = ?", (call_id,))

    def claim(self, entry_id: int, claim: ContextClaim, now: int) -> bool:
        """See `Records.claim`."""
        with self._transaction("claim") as run:
            return contexts.claim(run, entry_id, claim, now)

    # --- the work

    def begin(self, entry_id: int, *, granted: str | None, mint: ContextClaim | None, now: int) -> bool:
        """See `Records.begin`."""
        with self._transaction("begin") as run:
            _step(run, entry_id, "state = 'begun', request = NULL, size = size - length(request)", ("taken",))
            _forget_openings(run, entry_id)
            if granted is not None:
                run.execute("UPDATE offers SET granted = 1 WHERE call_id = ?", (granted,))
            return mint is not None and contexts.mint(run, entry_id, mint, now)

    def finish(self, entry_id: int, end: End, *, turn: ContextTurn | None, now: int) -> None:
        """See `Records.finish`."""
        if end.json is None:
            raise ValueError("an outcome is finished with its text")
        with self._transaction("finish") as run:
            _step(
                run,
                entry_id,
                "state = 'finished', outcome = ?, terminal = ?, reason = ?, ended_at = ?,"
                " size = size + ? - coalesce(length(request), 0), request = NULL",
                ("taken", "begun"),
                (end.json, end.terminal, end.reason, now, len(end.json)),
            )
            _forget_openings(run, entry_id)
            if end.reason == "indeterminate_execution":
                contexts.drop_held(run, entry_id)
            elif turn is not None:
                contexts.advance(run, entry_id, turn, now)
            contexts.release(run, entry_id)

    def cancel(self, entry_id: int, phases: Mapping[str, Phase], *, now: int) -> None:
        """See `Records.cancel`."""
        with self._transaction("cancel") as run:
            _step(
                run,
                entry_id,
                "state = 'cancelled', ended_at = ?,"
                " size = size - coalesce(length(request), 0), request = NULL",
                ("taken", "begun"),
                (now,),
            )
            _forget_openings(run, entry_id)
            for call_id, phase in phases.items():
                run.execute(
                    "UPDATE offers SET cancelled = ? WHERE call_id = ? AND entry_id = ?",
                    (phase, call_id, entry_id),
                )
            contexts.release(run, entry_id)

    def confirm(self, call_id: str, phase: Phase) -> None:
        """See `Records.confirm`."""
        with self._transaction("confirm") as run:
            run.execute("UPDATE offers SET cancelled = ? WHERE call_id = ?", (phase, call_id))

    # --- what contacts have used of their budgets

    def charges(self) -> list[tuple[str, str, int]]:
        """Return handle, call id and time (Unix ms) of each call that was charged, the oldest first."""
        with self._statement() as run:
            return run.execute(
                "SELECT handle, call_id, charged_at FROM charges ORDER BY charged_at, call_id"
            ).fetchall()

    def charge(self, handle: str, call_id: str, now: int) -> None:
        """Note that a call was charged to its caller's budget, and forget what is an hour old."""
        with self._statement() as run:
            run.execute("DELETE FROM charges WHERE charged_at <= ?", (now - HOUR_MS,))
            run.execute("INSERT OR IGNORE INTO charges VALUES (?, ?, ?)", (handle, call_id, now))

    # --- what is over

    def purge(self, now: int, *, active: Collection[int]) -> None:
        """See `Records.purge`."""
        with self._transaction("purge") as run:
            _purge(run, now, active)
            contexts.expire(run, now)
            # RL-IDEM-023: the outcome of a sync call is kept for 10 minutes, as the relay's own memory of the
            # call.
            run.execute(
                "UPDATE entries SET size = size - length(outcome), outcome = NULL"
                " WHERE outcome IS NOT NULL AND durable = 0 AND ended_at <= ?",
                (now - RECORD_LIFE_MS,),
            )
            run.execute("DELETE FROM openings WHERE keep_until <= ? AND underway = 0", (now,))

    # --- inside

    def _recover(self) -> None:
        """Look at what the last process left behind."""
        with self._transaction("recover") as run:
            # RL-IDEM-027: whoever had a call in his hands before it began, and did not close it, died over
            # it.
            run.execute("UPDATE openings SET deaths = deaths + 1, underway = 0 WHERE underway = 1")
            # RL-CONVERSE-012: a context whose turn was begun and not finished by a process that died is
            # dropped.
            run.execute("DELETE FROM contexts WHERE holder IN (SELECT id FROM entries WHERE state = 'begun')")

    def _full(self, run: sqlite3.Connection, from_ipk: bytes) -> bool:
        own = run.execute("SELECT rows, bytes FROM holdings WHERE from_ipk = ?", (from_ipk,)).fetchone()
        if own is not None and (own[0] * 4 >= self._bounds.entries or own[1] * 4 >= self._bounds.bytes):
            return True
        rows, size = run.execute(
            "SELECT coalesce(sum(rows), 0), coalesce(sum(bytes), 0) FROM holdings"
        ).fetchone()
        return bool(rows >= self._bounds.entries or size >= self._bounds.bytes)

    @contextmanager
    def _statement(self) -> Generator[sqlite3.Connection, None, None]:
        try:
            yield self._file.connection
        except sqlite3.Error as error:
            raise JournalError(
                f"the journal {self._file.path or 'in memory'} cannot be used: {error}",
                next_step="check that the disk has room and can be written",
            ) from error

    @contextmanager
    def _transaction(self, step: JournalStep) -> Generator[sqlite3.Connection, None, None]:
        with self._statement() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                if self._reach is not None:
                    self._reach(f"{step}.before")
                connection.execute("COMMIT")
                if self._reach is not None:
                    self._reach(f"{step}.after")
            except BaseException:
                # After some errors SQLite has rolled back by itself.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


def _step(
    run: sqlite3.Connection,
    entry_id: int,
    assignment: str,
    states: tuple[str, ...],
    values: tuple[object, ...] = (),
) -> None:
    """Move an entry on from one of ``states``. A wrong one is a fault of the program, never of a peer."""
    places = ", ".join("?" * len(states))
    changed = run.execute(
        f"UPDATE entries SET {assignment} WHERE id = ? AND state IN ({places})", (*values, entry_id, *states)
    ).rowcount
    if changed != 1:
        raise ValueError(f"entry {entry_id} is not {' or '.join(states)}")


def _forget_openings(run: sqlite3.Connection, entry_id: int) -> None:
    run.execute(
        "DELETE FROM openings WHERE call_id IN (SELECT call_id FROM offers WHERE entry_id = ?)", (entry_id,)
    )


def _purge(run: sqlite3.Connection, now: int, active: Collection[int]) -> None:
    due = run.execute("SELECT id FROM entries WHERE exp <= ?", (now - _TAIL_MS,)).fetchall()
    for (entry_id,) in due:
        if entry_id not in active:
            _forget_openings(run, entry_id)
            contexts.release(run, entry_id)
            run.execute("DELETE FROM entries WHERE id = ?", (entry_id,))
