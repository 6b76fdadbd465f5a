"""The outbox's SQLite file: its shape, its versions, its transactions.

Deleted keys are overwritten in the file, and in SQLite's log beside it when the next caller starts at the
latest; what a disk keeps below the file system is out of reach.
"""

import contextlib
import os
import sqlite3
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

from ringline.client.home import Home
from ringline.protocol.errors import ConfigError
from ringline.protocol.faults import fault_points

__all__ = ["OutboxFile", "OutboxStep"]

OutboxStep: TypeAlias = Literal[
    "prepare",
    "remember",
    "replace",
    "learned",
    "queued",
    "ended",
    "answered",
    "acknowledged",
    "purge",
]
"""What is committed, one transaction each, by the name of its method; ``prepare`` is at the start. Each has
its fault points (`ringline.protocol.faults`)."""

_APPLICATION_ID: Final = 0x526E_676F  # "Rngo"
_VERSION: Final = 2
_BUSY_S: Final = 10.0

_SCHEMA: Final = """
CREATE TABLE calls (
    callee          TEXT NOT NULL,
    message_id      TEXT NOT NULL,
    correlation_id  TEXT NOT NULL,
    payload         BLOB NOT NULL,     -- the call_request frame, sent verbatim every time
    content         BLOB NOT NULL,     -- SHA-256 of what was asked, to know a repeat
    digest          BLOB NOT NULL,     -- request_digest, which the outcome is bound to
    from_ipk        BLOB NOT NULL,
    to_ipk          BLOB NOT NULL,
    suite           INTEGER NOT NULL,
    reply_seed      BLOB,              -- the one-time key; NULL once the outcome was opened
    iat             INTEGER NOT NULL,
    exp             INTEGER NOT NULL,
    call_id         TEXT,              -- once the relay has told it
    created_at      INTEGER NOT NULL,
    mode            TEXT NOT NULL DEFAULT 'sync',
    submitted_at    INTEGER,           -- durable: the two times of call_queued
    execute_by      INTEGER,
    ended           TEXT,              -- the end without an outcome, by the relay's word
    acked           INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (callee, message_id)
) STRICT;
CREATE INDEX calls_by_call_id ON calls (call_id) WHERE call_id IS NOT NULL;
CREATE TABLE receipts (
    callee          TEXT NOT NULL,
    message_id      TEXT NOT NULL,
    call_id         TEXT NOT NULL,
    terminal        TEXT NOT NULL,
    context         BLOB NOT NULL,
    body            BLOB NOT NULL,
    signature       BLOB NOT NULL,
    card            BLOB NOT NULL,
    card_signature  BLOB NOT NULL,
    opened_at       INTEGER NOT NULL,
    PRIMARY KEY (callee, message_id),
    FOREIGN KEY (callee, message_id) REFERENCES calls (callee, message_id) ON DELETE CASCADE
) STRICT;
"""

# By the version that they begin from.
_MIGRATIONS: Final = {
    1: """
ALTER TABLE calls ADD COLUMN mode TEXT NOT NULL DEFAULT 'sync';
ALTER TABLE calls ADD COLUMN submitted_at INTEGER;
ALTER TABLE calls ADD COLUMN execute_by INTEGER;
ALTER TABLE calls ADD COLUMN ended TEXT;
ALTER TABLE calls ADD COLUMN acked INTEGER NOT NULL DEFAULT 0
"""
}


@final
class OutboxFile:
    """Open, and closed by `close`. For one thread at a time; several processes may share a file."""

    def __init__(self, home: Home, path: Path) -> None:
        """Open ``path`` inside ``home``, or create it with mode 0600."""
        self.path = path
        self._reach = fault_points(os.environ)
        home.make(path.parent)
        try:
            # SQLite gives its own mode to the file and takes it over for the files beside it.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            mode = path.stat().st_mode
        except OSError as error:
            raise self._unusable(error.strerror or type(error).__name__) from error
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(
                f"refusing to use {path}: it can be read or changed by others (mode {mode & 0o777:04o})",
                next_step=f"chmod 600 {path}",
            )
        with self.told(unsent=True):
            self.connection = sqlite3.connect(
                path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare()
            except UnicodeDecodeError:
                # SQLite's own words about a damaged schema quote bytes that are no text.
                raise self._unusable("its schema is damaged") from None

    def _prepare(self) -> None:
        run = self.connection
        run.execute("PRAGMA journal_mode = WAL")
        run.execute("PRAGMA synchronous = FULL")
        run.execute("PRAGMA foreign_keys = ON")
        # A one-time key that is deleted must not stay behind in a free page.
        run.execute("PRAGMA secure_delete = ON")
        # Nor in what SQLite sets aside for an undo, which would else be in a file outside the home.
        run.execute("PRAGMA temp_store = MEMORY")
        with self.transaction("prepare"):
            (version,) = run.execute("PRAGMA user_version").fetchone()
            (application,) = run.execute("PRAGMA application_id").fetchone()
            (tables,) = run.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if version == 0 and tables == 0:
                for statement in _SCHEMA.split(";\n"):
                    run.execute(statement)
                run.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                run.execute(f"PRAGMA user_version = {_VERSION}")
            elif application != _APPLICATION_ID:
                raise self._unusable("it is another program's database")
            elif version in _MIGRATIONS:
                for statement in _MIGRATIONS[version].split(";\n"):
                    run.execute(statement)
                run.execute(f"PRAGMA user_version = {version + 1}")
            elif version != _VERSION:
                raise self._unusable(f"it is of version {version}, this program knows {_VERSION}")
        # A call that is gone from a damaged file would be made anew under its id, and its answer never read.
        (verdict,) = run.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok" or run.execute("PRAGMA foreign_key_check").fetchone() is not None:
            raise self._unusable("it is damaged")

    def close(self) -> None:
        """Close the file."""
        with self.told():
            self.connection.close()

    @contextmanager
    def transaction(self, step: OutboxStep) -> Generator[None]:
        """Commit what is done within, or nothing of it. Raises `sqlite3.Error`."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            if self._reach is not None:
                self._reach(f"{step}.before")
            self.connection.execute("COMMIT")
        except BaseException:
            # A commit that failed leaves its transaction open, and every later one would fail with it.
            with contextlib.suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")
            raise
        if self._reach is not None:
            self._reach(f"{step}.after")

    @contextmanager
    def told(self, *, unsent: bool = False) -> Generator[None]:
        """Raise `ConfigError` for what SQLite raises within; ``unsent``: nothing of the call was sent yet."""
        try:
            yield
        except sqlite3.Error as error:
            # SQLite's own words name no content.
            raise self._unusable(str(error), unsent=unsent) from error

    def _unusable(self, why: str, *, unsent: bool = True) -> ConfigError:
        return ConfigError(
            f"the outbox {self.path} cannot be used: {why}." + (" Nothing was sent." if unsent else ""),
            next_step=f"free the disk or the lock; if the file is damaged, set it aside: "
            f"mv {self.path} {self.path}.damaged",
        )
