"""What keeps the relay's database small and forgetful, in a thread of its own.

A commit appends to the write-ahead log and nothing else: the log is moved into the file, and emptied, here.
That way no commit pays for a checkpoint, the log stays bounded, and what was deleted leaves the disk: SQLite
writes zeros over it in the file (``secure_delete``), and the log that still holds it is cut to nothing.

The relay's turns and this thread take the write lock by turns, through a `Gate`. A turn goes first, and what
is done between two of them is short: the log is copied and flushed beforehand, without the lock, so that
what is left to copy under it is no more than one turn has written; space is given back a few pages at a time,
without a flush.
"""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final, final

from ringline.relay.call_store import MEETING_MS
from ringline.relay.database import connect

__all__ = ["ERASED_WITHIN_S", "LOG_BYTES", "Gate", "Upkeep"]

logger: Final = logging.getLogger("ringline.relay")

ERASED_WITHIN_S: Final = 5.0
"""The longest that deleted bytes stay in the files after their commit, while nobody else reads the file."""

LOG_BYTES: Final = 16 * 1_048_576
"""A log of this size is emptied at once."""

_LOG_WARN_BYTES: Final = 4 * LOG_BYTES
_FREE_PAGES: Final = 256  # kept for what is stored next
_VACUUM_PAGES: Final = 32  # in one transaction
_VACUUMS: Final = 256  # in one round
_PAIRS: Final = 100  # looked at in one transaction
_SLICES: Final = 5  # of them in one round
_TRIES: Final = 40
_TRY_AGAIN_S: Final = 0.005
_BREATH_S: Final = 0.001
_LOOK_S: Final = 0.05


class _Stopped(Exception):
    """The store is being closed."""


@final
class Gate:
    """Whose turn it is to write: the relay's, from the first write of a turn to its commit, or upkeep's."""

    __slots__ = ("_lock", "_wanted")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = False

    def enter(self) -> None:
        """Begin a turn. Waits for what upkeep does at the moment, and for nothing that it does next."""
        self._wanted = True
        self._lock.acquire()
        self._wanted = False

    def leave(self) -> None:
        """The turn is over."""
        self._lock.release()

    @contextmanager
    def aside(self, stopped: Callable[[], bool]) -> Generator[None]:
        """Hold the gate for upkeep, between two turns, behind one that waits."""
        while self._wanted:
            time.sleep(_BREATH_S)
        while not self._lock.acquire(timeout=_LOOK_S):
            if stopped():
                raise _Stopped
        try:
            yield
        finally:
            self._lock.release()


@final
class Upkeep:
    """Rounds of upkeep for the file at ``path``, some seconds after a commit or when the log is long."""

    def __init__(self, path: str, gate: Gate, *, every_s: float) -> None:
        self.failures = 0
        """How many rounds could not be finished because the database refused something."""
        self.trouble: str | None = None
        """Why bytes that were deleted may be in the files longer than they should; None while all is well."""
        self._path = path
        self._log = f"{path}-wal"
        self._gate = gate
        self._every_s = every_s
        self._commits = 0
        self._unerased_since: float | None = time.monotonic()
        self._wanted = threading.Event()
        self._hurry = threading.Event()
        self._stopped = False
        self._after = ("", "")
        self._one = threading.Lock()
        # Never waits: who waits for a reader while holding the write lock makes everybody wait.
        self._connection = connect(path, 0)
        self._connection.execute("PRAGMA secure_delete=ON")
        self._connection.execute("PRAGMA wal_autocheckpoint=0")
        # Nothing here has to outlive a power cut by itself: no flush while the gate is held.
        self._connection.execute("PRAGMA synchronous=NORMAL")
        # What a relay that was killed left behind is dealt with first.
        self._wanted.set()
        self._thread = threading.Thread(target=self._loop, name="ringline-upkeep", daemon=True)
        self._thread.start()

    def committed(self) -> None:
        """Note a commit, within its turn: its round comes in time, or at once if the log is long. Cheap."""
        self._commits += 1
        if self._unerased_since is None:
            self._unerased_since = time.monotonic()
        if not self._wanted.is_set():
            self._wanted.set()
        if self.log_bytes() >= LOG_BYTES and not self._hurry.is_set():
            self._hurry.set()

    def log_bytes(self) -> int:
        """Return the size of the write-ahead log."""
        return _bytes_of(self._log)

    def file_bytes(self) -> int:
        """Return the size of the file as it is on the disk: what is in the log only is not in it yet."""
        return _bytes_of(self._path)

    def round(self) -> bool:
        """Do one round now; True if the log is empty after it. Bounded; waits for nobody who reads."""
        with self._one:
            seen = self._commits
            try:
                # The erasure does not depend on the rest: each is tried whatever became of the others.
                trouble = self._attempt(self._vacuum) or self._attempt(self._forget_pairs)
                done = False

                def empty() -> None:
                    nonlocal done
                    done = self._empty_log()

                trouble = self._attempt(empty) or trouble
            except _Stopped:
                return False
            if done:
                self._unerased_since = None if self._commits == seen else time.monotonic()
            self._judge(done, trouble)
        return done

    def stop(self) -> None:
        """End the thread and let go of the file. A second call does nothing."""
        if self._stopped:
            return
        self._stopped = True
        self._wanted.set()
        self._hurry.set()
        self._thread.join()
        with suppress(sqlite3.Error):
            self._connection.close()

    def _loop(self) -> None:
        while True:
            self._wanted.wait()
            self._hurry.wait(self._every_s)
            if self._stopped:
                return
            self._wanted.clear()
            self._hurry.clear()
            if not self.round() and self.log_bytes() > 0:
                self._wanted.set()

    def _attempt(self, do: Callable[[], None]) -> str | None:
        """Do a part of a round; return what the database said against it, by SQLite's name for it."""
        try:
            do()
        except sqlite3.Error as error:
            # The name alone: a message may quote what is stored.
            name = getattr(error, "sqlite_errorname", type(error).__name__)
            # Somebody else writes at the moment, which the next round may not meet.
            return None if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) else name
        return None

    def _vacuum(self) -> None:
        """Give pages at the end of the file back, a few per transaction."""
        run = self._connection
        for _ in range(_VACUUMS):
            (free,) = run.execute("PRAGMA freelist_count").fetchone()
            if free <= _FREE_PAGES:
                return
            with self._gate.aside(lambda: self._stopped):
                # A script is run to its end; ``execute`` would stop at the first page, as at a row.
                run.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")

    def _forget_pairs(self) -> None:
        """Delete counters that say nothing and meetings of long ago, some slices of the table per round."""
        run = self._connection
        latest = run.execute("SELECT submitted_at FROM calls ORDER BY seq DESC LIMIT 1").fetchone()
        if latest is None:
            return
        for _ in range(_SLICES):
            slice_ = run.execute(
                "SELECT caller, callee, calls + request_bytes + outcome_bytes = 0 AND last_at < ? FROM pairs"
                " WHERE (caller, callee) > (?, ?) ORDER BY caller, callee LIMIT ?",
                (latest[0] - MEETING_MS, *self._after, _PAIRS),
            ).fetchall()
            over = len(slice_) < _PAIRS
            self._after = ("", "") if over else (slice_[-1][0], slice_[-1][1])
            self._forget([(caller, callee) for caller, callee, old in slice_ if old], latest[0] - MEETING_MS)
            if over:
                return

    def _forget(self, pairs: list[tuple[str, str]], before: int) -> None:
        if not pairs:
            return
        run = self._connection
        with self._gate.aside(lambda: self._stopped):
            run.execute("BEGIN IMMEDIATE")
            try:
                run.executemany(
                    "DELETE FROM pairs WHERE (caller, callee) = (?, ?)"
                    " AND calls + request_bytes + outcome_bytes = 0 AND last_at < ?",
                    [(*pair, before) for pair in pairs],
                )
                run.execute("COMMIT")
            except sqlite3.Error:
                # Else the write lock would be kept, and the relay could store nothing until it is restarted.
                if run.in_transaction:
                    run.execute("ROLLBACK")
                raise

    def _empty_log(self) -> bool:
        run = self._connection
        for _ in range(_TRIES):
            seen = self._commits
            busy, *_ = run.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            # Nothing was committed meanwhile: so all of the log was copied, and the file was flushed. What a
            # turn may have added since is the most that is left to do while the next one has to wait.
            if not busy and self._commits == seen:
                with self._gate.aside(lambda: self._stopped):
                    if self._commits - seen <= 1:
                        busy, *_ = run.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                        if not busy:
                            return True
            if self._stopped:
                raise _Stopped
            # Much is being written, or another program reads.
            time.sleep(_TRY_AGAIN_S)
        return False

    def _judge(self, done: bool, trouble: str | None) -> None:
        """Say once that deleted bytes stay longer than they should, and once that it is over."""
        if trouble is not None:
            self.failures += 1
            trouble = f"the database refuses its upkeep ({trouble})"
        elif not done:
            since, size = self._unerased_since, self.log_bytes()
            late = since is not None and time.monotonic() - since > 2 * self._every_s
            if size and (late or size >= _LOG_WARN_BYTES):
                trouble = f"another program reads {self._path} and does not finish, or much is being written"
        if trouble is not None:
            if self.trouble is None:
                logger.warning(
                    "%s: until that is over, deleted bytes stay in the files and its log grows (%d MiB)",
                    trouble,
                    self.log_bytes() >> 20,
                )
            self.trouble = trouble
        elif done and self.trouble is not None:
            self.trouble = None
            logger.warning("the log of the database could be emptied again")


def _bytes_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
