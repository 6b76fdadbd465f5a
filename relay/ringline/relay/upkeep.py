"""What keeps the relay's database small and forgetful, in a thread of its own.

A commit appends to the write-ahead log and nothing else: the log is moved into the file, and emptied, here.
That way no commit pays for a checkpoint, the log stays bounded, and what was deleted leaves the disk: SQLite
writes zeros over it in the file (``secure_delete``), and the log that still holds it is cut to nothing.

Emptying the log needs the write lock for a moment. The part that copies is done before, without it, and the
writer waits behind one lock of ours instead of asking SQLite again and again.
"""

import logging
import os
import sqlite3
import threading
from contextlib import suppress
from typing import Final, final

from ringline.relay.call_store import MEETING_MS
from ringline.relay.database import connect

__all__ = ["ERASED_WITHIN_S", "LOG_BYTES", "Upkeep"]

logger: Final = logging.getLogger("ringline.relay")

ERASED_WITHIN_S: Final = 5.0
"""The longest that deleted bytes stay in the files after their commit, while nobody else reads the file."""

LOG_BYTES: Final = 16 * 1_048_576
"""A log of this size is emptied at once."""

_LOG_WARN_BYTES: Final = 4 * LOG_BYTES
_FREE_PAGES: Final = 256  # kept for what is stored next
_VACUUM_PAGES: Final = 256  # in one transaction
_VACUUMS: Final = 64  # in one round
_PAIRS: Final = 500  # looked at in one round
_TRIES: Final = 40
_TRY_AGAIN_S: Final = 0.005


@final
class Upkeep:
    """Rounds of upkeep for the file at ``path``, some seconds after a commit or when the log is long.

    ``gate`` is held while the write lock is: a writer takes it before it begins a transaction.
    """

    def __init__(self, path: str, gate: threading.Lock, *, every_s: float) -> None:
        self._path = path
        self._log = f"{path}-wal"
        self._gate = gate
        self._every_s = every_s
        self._wanted = threading.Event()
        self._hurry = threading.Event()
        self._stopped = False
        self._warned = False
        self._after = ("", "")
        self._one = threading.Lock()
        # Never waits: who waits for a reader while holding the write lock makes everybody wait.
        self._connection = connect(path, 0)
        self._connection.execute("PRAGMA secure_delete=ON")
        self._connection.execute("PRAGMA wal_autocheckpoint=0")
        # Nothing here has to outlive a power cut by itself.
        self._connection.execute("PRAGMA synchronous=NORMAL")
        # What a relay that was killed left behind is dealt with first.
        self._wanted.set()
        self._thread = threading.Thread(target=self._loop, name="ringline-upkeep", daemon=True)
        self._thread.start()

    def committed(self) -> None:
        """Note a commit: its round comes in time, or at once if the log is long. Cheap."""
        if not self._wanted.is_set():
            self._wanted.set()
        if self.log_bytes() >= LOG_BYTES and not self._hurry.is_set():
            self._hurry.set()

    def log_bytes(self) -> int:
        """Return the size of the write-ahead log."""
        try:
            return os.stat(self._log).st_size
        except OSError:
            return 0

    def round(self) -> bool:
        """Do one round now; True if the log is empty after it. Bounded; waits for nobody who reads."""
        with self._one:
            if self._stopped:
                return False
            try:
                self._vacuum()
                self._forget_pairs()
                done = self._empty_log()
            except sqlite3.Error as error:
                # The next commit meets the same trouble and says so where it matters.
                logger.debug("upkeep of the database: %s", error)
                return False
        self._judge_log(done)
        return done

    def stop(self) -> None:
        """End the thread and let go of the file. A second call does nothing."""
        if self._stopped:
            return
        with self._one:
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

    def _vacuum(self) -> None:
        """Give pages at the end of the file back, a few per transaction."""
        run = self._connection
        for _ in range(_VACUUMS):
            (free,) = run.execute("PRAGMA freelist_count").fetchone()
            if free <= _FREE_PAGES:
                return
            with self._gate:
                # A script is run to its end; ``execute`` would stop at the first page, as at a row.
                run.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")

    def _forget_pairs(self) -> None:
        """Delete counters that say nothing and meetings of long ago, a slice of the table per round."""
        run = self._connection
        latest = run.execute("SELECT submitted_at FROM calls ORDER BY seq DESC LIMIT 1").fetchone()
        if latest is None:
            return
        slice_ = run.execute(
            "SELECT caller, callee, calls + request_bytes + outcome_bytes = 0 AND last_at < ? FROM pairs"
            " WHERE (caller, callee) > (?, ?) ORDER BY caller, callee LIMIT ?",
            (latest[0] - MEETING_MS, *self._after, _PAIRS),
        ).fetchall()
        self._after = (slice_[-1][0], slice_[-1][1]) if len(slice_) == _PAIRS else ("", "")
        old = [(caller, callee, latest[0] - MEETING_MS) for caller, callee, over in slice_ if over]
        if not old:
            return
        with self._gate:
            run.execute("BEGIN IMMEDIATE")
            try:
                run.executemany(
                    "DELETE FROM pairs WHERE (caller, callee) = (?, ?)"
                    " AND calls + request_bytes + outcome_bytes = 0 AND last_at < ?",
                    old,
                )
                run.execute("COMMIT")
            except sqlite3.Error:
                # Else the write lock would be kept, and the relay could store nothing until it is restarted.
                if run.in_transaction:
                    run.execute("ROLLBACK")
                raise

    def _empty_log(self) -> bool:
        run = self._connection
        run.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        pause = threading.Event()
        for _ in range(_TRIES):
            with self._gate:
                busy, _pages, _moved = run.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:
                return True
            # A turn of the relay is being written, or another program reads.
            pause.wait(_TRY_AGAIN_S)
        return False

    def _judge_log(self, done: bool) -> None:
        """Say once that somebody keeps the log from being emptied, and that it is over."""
        size = self.log_bytes()
        if not done and size >= _LOG_WARN_BYTES and not self._warned:
            self._warned = True
            logger.warning(
                "the log of the database has %d MiB: another program reads %s and does not finish;"
                " until it does the log grows and deleted bytes stay in it",
                size >> 20,
                self._path,
            )
        elif done and self._warned:
            self._warned = False
            logger.warning("the log of the database could be emptied again")
