"""The directory's store in one SQLite file, or in memory.

One relay per file, held by a lock beside it: what the relay reads, it reads from its own memory, so a
second writer would be invisible to it. Methods block, for as long as the disk or another program's lock
makes them wait: the relay calls them from a thread of their own.
"""

import fcntl
import os
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, final

import msgspec

from ringline.protocol.errors import ConfigError, EncodingError
from ringline.protocol.shapes import Policy
from ringline.protocol.signing import SigningKey
from ringline.relay.database import MEMORY, check_integrity, connect, prepare, unusable
from ringline.relay.keylog_store import append_entry, entries_between, load_entries, log_key
from ringline.relay.store import (
    CardPublished,
    CardRevoked,
    Change,
    ClaimFailed,
    IdentityRemoved,
    InviteAccepted,
    InviteForgotten,
    InviteIssued,
    InviteWithdrawn,
    LogAppended,
    PolicySet,
    PrekeyPublished,
    StoreError,
)

__all__ = ["MEMORY", "SqliteStore"]

_BUSY_TIMEOUT_S: Final = 5.0

_policies: Final = msgspec.json.Decoder(Policy)


@final
class SqliteStore:
    """See `ringline.relay.store.Store`. Durable at return: write-ahead log, ``synchronous=FULL``."""

    def __init__(self, path: str, *, realm: str, busy_timeout: float = _BUSY_TIMEOUT_S) -> None:
        """Open or create the file at ``path`` for ``realm`` and bring its schema up to date.

        ``busy_timeout`` is how long, in seconds, a write waits for a program that holds the file.

        Raises `ConfigError`, which says what is wrong with the file and what to do.
        """
        self.path = path
        self._lock: int | None = None
        self._inode: int | None = None
        self._connection: sqlite3.Connection | None = None
        try:
            if path != MEMORY:
                self._claim(path)
            self._open(path, realm, busy_timeout)
        except BaseException:
            self.close()
            raise

    def load(self) -> list[Change]:
        """See `Store.load`."""
        try:
            with self._statement() as run:
                return [
                    *self._cards(run),
                    *self._prekeys(run),
                    *self._revocations(run),
                    *self._policies(run),
                    *load_entries(run),
                    *self._removals(run),
                    *self._invites(run),
                ]
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise StoreError(f"{self.path} holds a row that cannot be read") from error

    def write(self, changes: Sequence[Change]) -> None:
        """See `Store.write`."""
        with self._transaction() as run:
            for change in changes:
                _write(run, change)

    def log_entries(self, start: int, end: int) -> list[bytes]:
        """See `Store.log_entries`."""
        with self._statement() as run:
            return entries_between(run, start, end)

    def log_key(self) -> SigningKey:
        """Return the key of the key log; the first time, one is made. Raises `StoreError`."""
        try:
            with self._transaction() as run:
                return log_key(run)
        except (EncodingError, ValueError) as error:
            raise StoreError(f"{self.path} holds no key of the key log that can be read") from error

    def check(self) -> None:
        """See `Store.check`. Writes one row, since a full disk shows itself in no other way."""
        if self._inode is not None and not self._in_place():
            raise StoreError(f"{self.path} was moved or deleted while the relay runs")
        with self._transaction() as run:
            run.execute("INSERT OR REPLACE INTO facts VALUES ('writable', 'yes')")

    def close(self) -> None:
        """See `Store.close`."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # --- opening

    def _claim(self, path: str) -> None:
        """Take the file for this process, and make it readable for nobody else."""
        if os.path.isdir(path):
            raise ConfigError(f"{path} is a folder", next_step="name a file: --db relay.db")
        try:
            # The lock is a file of its own: closing any handle of the database itself would drop
            # SQLite's own locks (POSIX locks belong to the process).
            self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._inode = os.stat(path).st_ino
        except BlockingIOError:
            raise ConfigError(
                f"another relay is using {path}", next_step="stop it first, or name another file with --db"
            ) from None
        except OSError as error:
            folder = Path(path).absolute().parent
            if isinstance(error, FileNotFoundError) and not folder.is_dir():
                raise ConfigError(
                    f"the folder of the database does not exist: {folder}", next_step=f"mkdir -p {folder}"
                ) from None
            raise ConfigError(
                f"{path} cannot be opened for writing: {error.strerror}",
                next_step="make the file and its folder writable, or name another file with --db",
            ) from None

    def _open(self, path: str, realm: str, busy_timeout: float) -> None:
        try:
            self._connection = connect(path, busy_timeout)
            prepare(self._connection, path)
            check_integrity(self._connection, path)
            self._check_realm(self._connection, realm)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise unusable(path, error) from None

    def _check_realm(self, connection: sqlite3.Connection, realm: str) -> None:
        connection.execute("INSERT OR IGNORE INTO facts VALUES ('realm', ?)", (realm,))
        (stored,) = connection.execute("SELECT value FROM facts WHERE name = 'realm'").fetchone()
        if stored != realm:
            raise ConfigError(
                f"{self.path} belongs to the realm {stored}, not {realm}",
                next_step="name another file with --db: cards of one realm are worth nothing in another",
            )

    def _in_place(self) -> bool:
        try:
            return os.stat(self.path).st_ino == self._inode
        except OSError:
            return False

    # --- statements

    @contextmanager
    def _statement(self) -> Generator[sqlite3.Connection]:
        if self._connection is None:
            raise StoreError("the store is closed")
        try:
            yield self._connection
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._statement() as connection:
            # IMMEDIATE waits for its turn; a transaction that reads first and then wants to write is
            # refused at once when another one wrote meanwhile, whatever the timeout.
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    # --- reading

    def _cards(self, run: sqlite3.Connection) -> Iterator[Change]:
        rows = run.execute(
            "SELECT handle, card_id, serial, card, signature, succession, published_at"
            " FROM cards ORDER BY handle, serial"
        )
        for handle, card_id, serial, card, signature, succession, at in rows:
            yield CardPublished(
                handle=handle,
                card_id=card_id,
                serial=serial,
                card=card,
                card_sig=signature,
                succession=None if succession is None else succession.encode(),
                at=at,
            )

    def _prekeys(self, run: sqlite3.Connection) -> Iterator[Change]:
        rows = run.execute("SELECT handle, card_id, epoch, statement, signature, published_at FROM prekeys")
        for handle, card_id, epoch, prekey, signature, at in rows:
            yield PrekeyPublished(
                handle=handle, card_id=card_id, epoch=epoch, prekey=prekey, prekey_sig=signature, at=at
            )

    def _revocations(self, run: sqlite3.Connection) -> Iterator[Change]:
        rows = run.execute(
            "SELECT handle, card_id, reason, ts, next_ipk, revocations.signature, received_at"
            " FROM revocations JOIN cards USING (card_id) ORDER BY received_at"
        )
        for handle, card_id, reason, ts, next_ipk, signature, at in rows:
            yield CardRevoked(
                handle=handle,
                card_id=card_id,
                reason=reason,
                ts=ts,
                by="identity" if next_ipk is None else "next",
                signature=signature,
                next_ipk=next_ipk,
                at=at,
            )

    def _policies(self, run: sqlite3.Connection) -> Iterator[Change]:
        rows = run.execute("SELECT handle, policy FROM handles WHERE policy IS NOT NULL")
        for handle, policy in rows:
            yield PolicySet(handle=handle, policy=_policies.decode(policy))

    def _removals(self, run: sqlite3.Connection) -> Iterator[Change]:
        rows = run.execute("SELECT handle, removed_at FROM handles WHERE removed_at IS NOT NULL")
        for handle, at in rows:
            yield IdentityRemoved(handle=handle, at=at)

    def _invites(self, run: sqlite3.Connection) -> Iterator[Change]:
        rows = run.execute(
            "SELECT failures, withdrawn, invite_id, inviter, only_for, secret_hash, label, uses, issued_at,"
            " expires_at FROM invites ORDER BY issued_at, invite_id"
        )
        for failures, withdrawn, invite_id, *issued in rows:
            inviter, only_for, secret_hash, label, uses, at, expires_at = issued
            yield InviteIssued(
                invite_id=invite_id,
                inviter=inviter,
                only_for=only_for,
                secret_hash=secret_hash,
                label=label,
                uses=uses,
                at=at,
                expires_at=expires_at,
            )
            yield from (ClaimFailed(invite_id=invite_id) for _ in range(failures))
            if withdrawn:
                yield InviteWithdrawn(invite_id=invite_id)
        accepted = run.execute(
            "SELECT invite_id, handle, proof, accepted_at FROM acceptances ORDER BY accepted_at, handle"
        )
        for invite_id, handle, proof, at in accepted:
            yield InviteAccepted(invite_id=invite_id, handle=handle, proof=proof, at=at)


def _write(run: sqlite3.Connection, change: Change) -> None:
    match change:
        case CardPublished():
            run.execute("INSERT OR IGNORE INTO handles (handle) VALUES (?)", (change.handle,))
            run.execute(
                "INSERT INTO cards VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    change.card_id,
                    change.handle,
                    change.serial,
                    change.card,
                    change.card_sig,
                    None if change.succession is None else change.succession.decode(),
                    change.at,
                ),
            )
        case PrekeyPublished():
            run.execute(
                "INSERT OR REPLACE INTO prekeys VALUES (?, ?, ?, ?, ?, ?)",
                (
                    change.handle,
                    change.card_id,
                    change.epoch,
                    change.prekey,
                    change.prekey_sig,
                    change.at,
                ),
            )
        case PolicySet():
            text = msgspec.json.encode(change.policy).decode()
            run.execute("UPDATE handles SET policy = ? WHERE handle = ?", (text, change.handle))
        case CardRevoked():
            run.execute(
                "INSERT INTO revocations VALUES (?, ?, ?, ?, ?, ?)",
                (change.card_id, change.reason, change.ts, change.next_ipk, change.signature, change.at),
            )
        case LogAppended():
            append_entry(run, change)
        case IdentityRemoved():
            run.execute("DELETE FROM invites WHERE inviter = ?", (change.handle,))
            run.execute("UPDATE handles SET removed_at = ? WHERE handle = ?", (change.at, change.handle))
        case InviteIssued():
            run.execute(
                "INSERT INTO invites VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0)",
                (
                    change.invite_id,
                    change.inviter,
                    change.only_for,
                    change.secret_hash,
                    change.label,
                    change.uses,
                    change.at,
                    change.expires_at,
                ),
            )
        case InviteAccepted():
            run.execute(
                "INSERT INTO acceptances VALUES (?, ?, ?, ?)",
                (change.invite_id, change.handle, change.proof, change.at),
            )
        case ClaimFailed():
            run.execute("UPDATE invites SET failures = failures + 1 WHERE invite_id = ?", (change.invite_id,))
        case InviteWithdrawn():
            run.execute("UPDATE invites SET withdrawn = 1 WHERE invite_id = ?", (change.invite_id,))
        case InviteForgotten():
            run.execute("DELETE FROM invites WHERE invite_id = ?", (change.invite_id,))
