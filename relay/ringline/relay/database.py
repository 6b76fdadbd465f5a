"""The relay's database file: how it is opened, told from others, and brought up to date.

Every part that keeps something in it opens a connection of its own. Only one relay may use the file:
`ringline.relay.sqlite.SqliteStore` holds it.
"""

import os
import sqlite3
from contextlib import closing, suppress
from typing import Final

from ringline.protocol.errors import ConfigError
from ringline.relay.migrations import APPLICATION_ID, MIGRATIONS

__all__ = ["MEMORY", "check_integrity", "connect", "damaged", "prepare", "unusable"]

MEMORY: Final = ":memory:"
"""The path of a database that is gone when the relay stops."""

_INCREMENTAL: Final = 2  # PRAGMA auto_vacuum


def connect(path: str, busy_timeout: float) -> sqlite3.Connection:
    """Return a connection whose transactions begin and end where its owner says so.

    ``busy_timeout`` is how long, in seconds, a statement waits for whoever else writes. Raises
    `sqlite3.Error`.
    """
    connection = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA foreign_keys=ON")
    # What SQLite sets aside would else be in a file that nobody overwrites.
    connection.execute("PRAGMA temp_store=MEMORY")
    return connection


def prepare(connection: sqlite3.Connection, path: str) -> None:
    """Make the file ours, its log write-ahead, its schema the present one.

    A file of an earlier version is first copied to ``PATH.v<version>``, so that an upgrade can be undone.

    Raises `ConfigError`, which says what is wrong with the file and what to do; `sqlite3.Error`.
    """
    _identify(connection, path)
    # Ours to choose only while the file is empty; later it takes a VACUUM.
    connection.execute(f"PRAGMA auto_vacuum={_INCREMENTAL}")
    if path != MEMORY and connection.execute("PRAGMA journal_mode=WAL").fetchone() != ("wal",):
        raise ConfigError(
            f"{path} is on a file system that SQLite's write-ahead log does not work on",
            next_step="name a file on a local disk with --db",
        )
    connection.execute("PRAGMA synchronous=FULL")
    _migrate(connection, path)
    if connection.execute("PRAGMA auto_vacuum").fetchone() != (_INCREMENTAL,):
        connection.execute(f"PRAGMA auto_vacuum={_INCREMENTAL}")
        connection.execute("VACUUM")


def check_integrity(connection: sqlite3.Connection, path: str) -> None:
    """Pass a file whose pages, indexes and references are whole. Raises `ConfigError`."""
    # Not the quick check, to which calls that an index has lost are there, though nobody will ever find them.
    (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if verdict != "ok" or connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
        raise damaged(path)


def _identify(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a database of another program, and one of a later version."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID and (application, tables, version) != (0, 0, 0):
        raise ConfigError(f"{path} is a database of another program", next_step="name another file with --db")
    if version < 0:
        raise damaged(path)
    if version > len(MIGRATIONS):
        raise ConfigError(
            f"{path} was written by a later version of Ringline",
            next_step="upgrade Ringline, or name another file with --db",
        )


def _migrate(connection: sqlite3.Connection, path: str) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if 0 < version < len(MIGRATIONS) and path != MEMORY:
        _back_up(connection, path, version)
    for number in range(version, len(MIGRATIONS)):
        connection.executescript(
            f"BEGIN IMMEDIATE; {MIGRATIONS[number]}"
            f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={number + 1}; COMMIT;"
        )


def _back_up(connection: sqlite3.Connection, path: str, version: int) -> None:
    """Copy the file before it is changed. A copy that is there already is whole, and is replaced whole."""
    target = f"{path}.v{version}"
    partial = f"{target}.partial"
    try:
        with suppress(FileNotFoundError):
            os.unlink(partial)
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(partial)) as copy:
            connection.backup(copy)
            # One file, whole in itself: the copy is in the log's mode as the original is.
            copy.execute("PRAGMA journal_mode=DELETE")
        descriptor = os.open(partial, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(partial, target)
    except (OSError, sqlite3.Error) as error:
        with suppress(OSError):
            os.unlink(partial)
        raise ConfigError(
            f"{path} needs an upgrade, and the copy before it could not be written: {error}",
            next_step=f"make room for {target} and its folder writable; nothing was changed",
        ) from None


def damaged(path: str) -> ConfigError:
    """What a person is told of a file that is not what it should be."""
    return ConfigError(
        f"{path} is damaged or is no SQLite database; nothing was changed in it",
        next_step="restore it from a copy, or name another file with --db",
    )


def unusable(path: str, error: sqlite3.Error | UnicodeDecodeError) -> ConfigError:
    """What a person is told when the database cannot be opened."""
    if isinstance(error, UnicodeDecodeError):
        # SQLite's own words about a damaged schema quote bytes that are no text.
        return damaged(path)
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return damaged(path)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return ConfigError(
            f"another program holds {path}", next_step="close that program, or name another file with --db"
        )
    if name.startswith("SQLITE_READONLY"):
        return ConfigError(
            f"{path} cannot be written: it is read-only",
            next_step="make the file and its folder writable, or name another file with --db",
        )
    if name.startswith("SQLITE_FULL"):
        return ConfigError(f"the disk that holds {path} is full", next_step="free some space and start again")
    return ConfigError(
        f"{path} cannot be used: {error}",
        next_step="check the file and its folder, or name another with --db",
    )
