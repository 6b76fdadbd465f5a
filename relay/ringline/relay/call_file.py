"""The file of durable calls as its store uses it: one connection, and at most one open transaction.

The transaction is that of a turn of the relay's loop. It begins with the first write and holds the gate that
the file's upkeep waits at. When a statement fails, what belongs to the same turn is of no use any more:
nothing is read or written before it was taken back.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import final

from ringline.protocol.errors import RinglineError
from ringline.relay.call_records import Record, Value
from ringline.relay.call_store import DuplicateCall
from ringline.relay.database import MEMORY, connect, prepare, unusable
from ringline.relay.store import StoreError
from ringline.relay.upkeep import Gate, Upkeep

__all__ = ["CallFile"]


@final
class CallFile:
    """A connection with its transactions, and the file's upkeep."""

    def __init__(self, path: str, *, busy_timeout: float, erased_within: float) -> None:
        """Open the file at ``path``; see `ringline.relay.sqlite_calls.SqliteCalls`. Raises `ConfigError`."""
        self.path = path
        self.gate = Gate()
        self.upkeep: Upkeep | None = None
        self.connection: sqlite3.Connection | None = None
        self.in_turn = False
        """True from the first write of a turn to its end."""
        self._failed = False
        try:
            self.connection = connect(path, busy_timeout)
            prepare(self.connection, path)
            # Zeros are written over what is deleted, in whole pages too.
            self.connection.execute("PRAGMA secure_delete=ON")
            self.connection.execute("PRAGMA wal_autocheckpoint=0")
            if path != MEMORY:
                self.upkeep = Upkeep(path, self.gate, every_s=erased_within / 2)
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error | UnicodeDecodeError):
                raise unusable(path, error) from None
            raise

    # --- turns

    def begin(self) -> None:
        """Begin a turn, unless one has begun."""
        if self.in_turn:
            return
        self.gate.enter()
        try:
            # IMMEDIATE: who reads first and then wants to write is refused at once when another one wrote.
            self.run("BEGIN IMMEDIATE")
        except BaseException:
            self.gate.leave()
            raise
        self.in_turn = True

    def commit(self) -> None:
        """Make the turn durable. Raises `StoreError`; then `rollback` is due."""
        self.run("COMMIT")
        if self.upkeep is not None:
            self.upkeep.committed()
        self._end_turn()

    def rollback(self) -> None:
        """Take the turn back, if one has begun."""
        if self.connection is None:
            return
        # SQLite may have rolled back by itself: a full disk, an input or output error.
        with suppress(sqlite3.Error):
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        self._failed = self.connection.in_transaction
        if not self._failed:
            self._end_turn()

    def _end_turn(self) -> None:
        if self.in_turn:
            self.in_turn = False
            self.gate.leave()

    def close(self) -> None:
        """Let go of the file; what is not committed is gone. A second call does nothing."""
        self.rollback()
        if self.upkeep is not None:
            self.upkeep.stop()
        self._end_turn()
        if self.connection is not None:
            with suppress(sqlite3.Error):
                self.connection.close()
            self.connection = None

    # --- statements

    def database(self) -> sqlite3.Connection:
        """Return the connection. Raises `StoreError` if it is closed, or a failed turn was not taken back."""
        if self.connection is None:
            raise StoreError(f"{self.path} is closed")
        if self._failed:
            raise StoreError(f"{self.path}: a statement failed, and what belongs to it was not rolled back")
        return self.connection

    def failure(self, error: sqlite3.Error) -> RinglineError:
        """Return what to raise for ``error``; the turn is of no use from here on, but for a duplicate."""
        if getattr(error, "sqlite_errorname", "") == "SQLITE_CONSTRAINT_UNIQUE":
            return DuplicateCall()
        self._failed = self.in_turn
        return StoreError(f"{self.path}: {error}")

    def run(self, statement: str, values: Sequence[Value] = ()) -> list[Record]:
        """Return what a statement finds. Raises `StoreError`."""
        connection = self.database()
        try:
            return connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self.failure(error) from error

    def write(self, statement: str, values: Sequence[Value]) -> int:
        """Return how many rows a statement of the turn changed. Raises `StoreError`, `DuplicateCall`."""
        if not self.in_turn:
            self.begin()
        connection = self.connection
        if connection is None or self._failed:
            connection = self.database()
        try:
            return connection.execute(statement, values).rowcount
        except sqlite3.Error as error:
            raise self.failure(error) from error

    def write_all(self, statement: str, values: Sequence[Sequence[Value]]) -> None:
        """Run a statement of the turn for each of ``values``. Raises `StoreError`."""
        if not values:
            return
        connection = self.database()
        try:
            connection.executemany(statement, values)
        except sqlite3.Error as error:
            raise self.failure(error) from error
