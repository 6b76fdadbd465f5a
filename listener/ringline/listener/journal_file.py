"""The file of a journal: one process at a time, and an instance id that a copy does not keep.

The relay binds begun work to the *instance* that holds it, and re-offers it to nobody else. So the id lives
in the journal and nowhere else, beside the device, inode and machine of the file: a copy, a restored backup
or another host is another instance, because it does not know what the first has done since (RL-TRANSPORT-015,
RL-TRANSPORT-016).
"""

import fcntl
import os
import socket
import sqlite3
import stat
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

from ringline.protocol.errors import ConfigError
from ringline.protocol.faults import fault_points

__all__ = ["JournalFile", "JournalFileStep", "machine_id"]

JournalFileStep: TypeAlias = Literal["mint"]
"""What is committed when a file becomes that of an instance; it has its fault points."""

_APPLICATION_ID: Final = 0x524C4A31  # "RLJ1"
_FILE_MODE: Final = 0o600
_MACHINE_FILES: Final = ("/etc/machine-id", "/var/lib/dbus/machine-id")

# Numbered by their place. A migration is never changed after a release; later ones follow.
_MIGRATIONS: Final = (
    """
    CREATE TABLE place (
        instance TEXT NOT NULL,
        device INTEGER NOT NULL,
        inode INTEGER NOT NULL,
        machine TEXT NOT NULL
    ) STRICT;
    CREATE TABLE entries (
        id INTEGER PRIMARY KEY,
        from_ipk BLOB NOT NULL,
        key TEXT NOT NULL,
        payload_digest BLOB NOT NULL,
        exp INTEGER NOT NULL,
        durable INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('taken', 'begun', 'finished', 'cancelled')),
        request BLOB,
        outcome BLOB,
        terminal TEXT,
        reason TEXT,
        ended_at INTEGER,
        size INTEGER NOT NULL,
        UNIQUE (from_ipk, key),
        CHECK ((state = 'finished') = (terminal IS NOT NULL AND reason IS NOT NULL)),
        CHECK ((state IN ('finished', 'cancelled')) = (ended_at IS NOT NULL)),
        CHECK ((state = 'taken') = (request IS NOT NULL))
    ) STRICT;
    CREATE INDEX entries_by_exp ON entries (exp);
    CREATE TABLE offers (
        call_id TEXT PRIMARY KEY,
        entry_id INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
        handle TEXT NOT NULL,
        from_ipk BLOB NOT NULL,
        own_ipk BLOB NOT NULL,
        digest BLOB NOT NULL,
        suite INTEGER NOT NULL,
        reply_public BLOB NOT NULL,
        mode TEXT NOT NULL CHECK (mode IN ('sync', 'durable')),
        message_id TEXT NOT NULL,
        correlation_id TEXT NOT NULL,
        iat INTEGER NOT NULL,
        exp INTEGER NOT NULL,
        offered_at INTEGER NOT NULL,
        execute_by INTEGER,
        lease_id TEXT,
        granted INTEGER NOT NULL,
        cancelled TEXT CHECK (cancelled IN ('pending', 'running'))
    ) STRICT;
    CREATE INDEX offers_by_entry ON offers (entry_id);
    CREATE TABLE openings (
        call_id TEXT PRIMARY KEY,
        deaths INTEGER NOT NULL,
        underway INTEGER NOT NULL,
        keep_until INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE contexts (
        context_id TEXT PRIMARY KEY,
        ipk BLOB NOT NULL,
        task TEXT NOT NULL,
        turn INTEGER NOT NULL,
        prev TEXT NOT NULL,
        used_at INTEGER NOT NULL,
        holder INTEGER
    ) STRICT;
    CREATE INDEX contexts_by_holder ON contexts (holder);
    -- What each caller holds, kept by the database itself, so that no path can forget to count.
    CREATE TABLE holdings (from_ipk BLOB PRIMARY KEY, rows INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT;
    CREATE TRIGGER entries_in AFTER INSERT ON entries BEGIN
        INSERT INTO holdings VALUES (new.from_ipk, 1, new.size)
        ON CONFLICT (from_ipk) DO UPDATE SET rows = rows + 1, bytes = bytes + new.size;
    END;
    CREATE TRIGGER entries_change AFTER UPDATE OF size ON entries BEGIN
        UPDATE holdings SET bytes = bytes - old.size + new.size WHERE from_ipk = new.from_ipk;
    END;
    CREATE TRIGGER entries_out AFTER DELETE ON entries BEGIN
        UPDATE holdings SET rows = rows - 1, bytes = bytes - old.size WHERE from_ipk = old.from_ipk;
        DELETE FROM holdings WHERE from_ipk = old.from_ipk AND rows = 0;
    END;
    """,
    """
    -- What contacts have used of their calls an hour: else a restart would give each a new hour.
    CREATE TABLE charges (
        handle TEXT NOT NULL,
        call_id TEXT NOT NULL,
        charged_at INTEGER NOT NULL,
        PRIMARY KEY (handle, call_id)
    ) STRICT, WITHOUT ROWID;
    """,
)

_Place: TypeAlias = tuple[int, int, str]


def machine_id() -> str:
    """Return what tells this computer from another: systemd's id, else host name and network address."""
    for name in _MACHINE_FILES:
        with suppress(OSError, UnicodeDecodeError):
            text = Path(name).read_text("ascii").strip()
            if text:
                return text
    return f"{socket.gethostname()}/{uuid.getnode():012x}"


@final
class JournalFile:
    """An open journal file, or one in memory when there is no path.

    Use it from the thread that made it. Durable at each commit: write-ahead log, ``synchronous=FULL``.
    """

    def __init__(self, path: Path | None, *, machine: str | None = None) -> None:
        """Open or create the file; its folder must exist. ``machine`` replaces `machine_id`.

        Raises `ConfigError`, which says what is wrong with the file and what to do: another process holds
        it, others can read it, it is damaged, of another program or a later version, or cannot be written.
        """
        # Resolved, so that two names of one file meet at one lock.
        self.path = None if path is None else path.resolve()
        self._lock: int | None = None
        self._connection: sqlite3.Connection | None = None
        try:
            if self.path is not None:
                self._claim(self.path)
            self._connection = self._open()
            self.instance = self._settle(machine or machine_id())
            """UUID of this instance (RL-TRANSPORT-015)."""
        except BaseException:
            self.close()
            raise

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection; transactions begin and end by explicit statements."""
        if self._connection is None:
            raise sqlite3.ProgrammingError("the journal is closed")
        return self._connection

    def close(self) -> None:
        """Close the file and let another process have it. May be called twice."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _claim(self, path: Path) -> None:
        """Take the file for this process, and keep it from other users."""
        try:
            # RL-TRANSPORT-017: an exclusive lock of the operating system. On a file of its own: on some
            # systems flock and SQLite's own locks would block one another.
            self._lock = os.open(
                path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE
            )
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE))
            mode = os.stat(path).st_mode
        except BlockingIOError:
            raise _in_use(path) from None
        except OSError as error:
            raise ConfigError(
                f"the journal {path} cannot be opened for writing: {error.strerror}",
                next_step=f"make {path.parent} a folder that you can write in",
            ) from None
        if not stat.S_ISREG(mode):
            raise ConfigError(f"the journal {path} is no file", next_step="set it aside, or name another")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(
                f"refusing to use {path}: it can be read or changed by others (mode {mode & 0o777:04o})",
                next_step=f"chmod 600 {path}",
            )

    def _open(self) -> sqlite3.Connection:
        try:
            # isolation_level None: transactions begin and end where the journal says so. No timeout: the
            # lock above is ours, so whoever else holds the file will not let go.
            connection = sqlite3.connect(self.path or ":memory:", timeout=0, isolation_level=None)
        except sqlite3.Error as error:
            raise self.unusable(error) from None
        try:
            self._prepare(connection)
        except UnicodeDecodeError:
            # SQLite's own words about a damaged schema quote bytes that are no text.
            connection.close()
            raise self._damaged() from None
        except sqlite3.Error as error:
            connection.close()
            raise self.unusable(error) from None
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # A program that knows nothing of our lock is kept out as well.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._identify(connection)
        if self.path is not None and connection.execute("PRAGMA journal_mode=WAL").fetchone() != ("wal",):
            raise ConfigError(
                f"{self.path} is on a file system that SQLite's write-ahead log does not work on",
                next_step="keep the state folder on a local disk: RINGLINE_HOME=/path/to/folder",
            )
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        # What is forgotten is overwritten: these are plain texts.
        connection.execute("PRAGMA secure_delete=ON")
        # What SQLite sets aside for an undo is theirs too, and would else be in a file outside the home.
        connection.execute("PRAGMA temp_store=MEMORY")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for number in range(version, len(_MIGRATIONS)):
            connection.executescript(
                f"BEGIN IMMEDIATE; {_MIGRATIONS[number]}"
                f"PRAGMA application_id={_APPLICATION_ID}; PRAGMA user_version={number + 1}; COMMIT;"
            )
        # Not the quick check, to which a table whose rows are gone is a whole one: its indexes tell.
        (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok" or connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
            raise self._damaged()

    def _identify(self, connection: sqlite3.Connection) -> None:
        """Refuse the database of another program, and one of a later version."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION_ID and (application, tables, version) != (0, 0, 0):
            raise ConfigError(
                f"{self.path} is a database of another program", next_step="set it aside, or name another"
            )
        if version < 0:
            raise self._damaged()
        if version > len(_MIGRATIONS):
            raise ConfigError(
                f"{self.path} was written by a later version of Ringline",
                next_step="upgrade Ringline on this computer",
            )

    def _settle(self, machine: str) -> str:
        """Return the instance id, a new one when this is not the file it was minted for."""
        connection, reach = self.connection, fault_points(os.environ)
        try:
            here = self._place(machine)
            row = connection.execute("SELECT instance, device, inode, machine FROM place").fetchone()
            if row is not None and row[1:] == here:
                return str(row[0])
            instance = str(uuid.uuid4())
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM place")
            connection.execute("INSERT INTO place VALUES (?, ?, ?, ?)", (instance, *here))
            if reach is not None:
                reach("mint.before")
            connection.execute("COMMIT")
            if reach is not None:
                reach("mint.after")
        except sqlite3.Error as error:
            raise self.unusable(error) from None
        return instance

    def _place(self, machine: str) -> _Place:
        if self.path is None:
            return (0, 0, machine)
        status = os.stat(self.path)
        # SQLite's integers are signed.
        return (_signed(status.st_dev), _signed(status.st_ino), machine)

    def unusable(self, error: sqlite3.Error) -> ConfigError:
        """Return what a person is told of a file that cannot be used."""
        if self.path is None:
            return ConfigError(f"the journal in memory cannot be used: {error}")
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return self._damaged()
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return _in_use(self.path)
        return ConfigError(
            f"the journal {self.path} cannot be used: {error}",
            next_step=f"check the disk, and that you can write in {self.path.parent}",
        )

    def _damaged(self) -> ConfigError:
        return ConfigError(
            f"the journal {self.path} is damaged. It was left as it is; no call was taken.",
            next_step=f"set it aside: mv {self.path} {self.path}.damaged; what it held can then run twice",
        )


def _in_use(path: Path) -> ConfigError:
    return ConfigError(
        f"another process is listening with this identity: it holds {path}",
        next_step="stop it first; to listen twice, use another state folder: RINGLINE_HOME=/path/to/folder",
    )


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
