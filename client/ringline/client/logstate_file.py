"""The file in which is kept what was seen of a relay's key log: its shape, its versions, its transactions.

It may be used by several processes of one person, and is set aside by hand when it is damaged: nothing here
ever replaces it, because a false history would then go unnoticed.
"""

import os
import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, final

from ringline.protocol.errors import ConfigError

__all__ = ["LogStateFile"]

_APPLICATION_ID: Final = int.from_bytes(b"RLkl", "big")
_FILE_MODE: Final = 0o600
_BUSY_S: Final = 10.0

# Numbered by their place. A migration is never changed after a release; later ones follow.
_MIGRATIONS: Final = (
    """
    CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE cards (
        number  INTEGER PRIMARY KEY,
        card_id BLOB NOT NULL,
        handle  TEXT NOT NULL,
        serial  INTEGER NOT NULL,
        ipk     BLOB NOT NULL
    ) STRICT;
    CREATE INDEX cards_by_handle ON cards (handle, serial);
    CREATE INDEX cards_by_id ON cards (card_id);
    CREATE TABLE revocations (card_id BLOB PRIMARY KEY, number INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    -- Cards whose place in the log was proved.
    CREATE TABLE proved (card_id BLOB PRIMARY KEY, number INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    -- What the owner must hear, once each.
    CREATE TABLE alarms (
        id       INTEGER PRIMARY KEY,
        subject  TEXT NOT NULL UNIQUE,
        text     TEXT NOT NULL,
        evidence TEXT,
        at       INTEGER NOT NULL,
        seen     INTEGER NOT NULL CHECK (seen IN (0, 1))
    ) STRICT;
    """,
)


@final
class LogStateFile:
    """An open file. Its methods may be called from any thread, and raise `ConfigError`."""

    def __init__(self, path: Path) -> None:
        """Open or create the file; its folder must exist. `ConfigError` says what is wrong and what to do."""
        self.path = path
        self._lock = threading.Lock()
        with self._told():
            self._connection = _open(path)

    def close(self) -> None:
        """Let go of the file. A second call does nothing."""
        with self._lock, suppress(sqlite3.Error):
            self._connection.close()

    def damaged(self) -> ConfigError:
        """Return the error for a file whose content cannot be what was written."""
        return _damaged(self.path)

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Yield the connection inside one transaction, which is taken back when anything is raised."""
        with self._lock, self._told():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _told(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _unusable(self.path, error) from None
        except ValueError:
            # A number that is none, where only this module writes.
            raise _damaged(self.path) from None
        except OSError as error:
            raise ConfigError(
                f"cannot use {self.path}: {error.strerror}",
                next_step="choose another place: RINGLINE_HOME=/path/to/folder",
            ) from None


def _open(path: Path) -> sqlite3.Connection:
    # Before SQLite makes it, so that nobody else can read it for a moment either.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE))
    mode = path.stat().st_mode
    if mode & 0o077:
        raise ConfigError(
            f"refusing to use {path}: it can be read or changed by others (mode {mode & 0o777:04o})",
            next_step=f"chmod 600 {path}",
        )
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        # One file: it may be set aside by hand.
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("PRAGMA synchronous=FULL")
        _migrate(connection, path)
        # A card or an alarm that is gone from a damaged file would never be missed.
        (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise _damaged(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != _APPLICATION_ID and (application, version, tables) != (0, 0, 0):
            raise ConfigError(f"{path} is a file of another program", next_step=f"look at it: ls -l {path}")
        if version < 0:
            raise _damaged(path)
        if version > len(_MIGRATIONS):
            raise ConfigError(
                f"{path} was written by a later version of Ringline", next_step="upgrade Ringline"
            )
        for number in range(version, len(_MIGRATIONS)):
            for statement in _MIGRATIONS[number].split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={len(_MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _unusable(path: Path, error: sqlite3.Error) -> ConfigError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return _damaged(path)
    return ConfigError(
        f"cannot use {path}: {error}", next_step="choose another place: RINGLINE_HOME=/path/to/folder"
    )


def _damaged(path: Path) -> ConfigError:
    return ConfigError(
        f"{path} is damaged: what was seen of the relay's key log cannot be read. It was left as it is.",
        next_step=f"restore it from a copy; or set it aside, and a false history before now goes unnoticed: "
        f"mv {path} {path}.damaged",
    )
