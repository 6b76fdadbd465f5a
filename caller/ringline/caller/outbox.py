"""What a caller must not forget: sealed requests with their one-time keys, and receipts.

A request is on disk, with the key that will open its outcome, before its first byte is sent; so a crash
never leaves an outcome that nobody can open, and a repeat is the same bytes (RL-IDEM-010, RL-IDEM-011). A
receipt is on disk in the same transaction in which the one-time key is deleted (RL-ENVELOPE-043,
RL-ENVELOPE-044).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from ringline.caller.outbox_file import OutboxFile, OutboxStep
from ringline.caller.receipt import Receipt
from ringline.client.home import Home
from ringline.protocol.frames import CallQueued, DeliveryMode, Terminal
from ringline.protocol.limits import ENVELOPE_SKEW_MS

__all__ = ["KEEP_MS", "Outbox", "OutboxStep", "Stored"]

KEEP_MS: Final = 30 * 86_400_000
"""How long a call that is over is kept."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One call as it is kept. Times are Unix ms."""

    callee: str
    message_id: str
    correlation_id: str
    payload: bytes
    """The encoded ``call_request``."""
    content: bytes
    """SHA-256 of what is asked, without what differs from one try to the next."""
    digest: bytes
    """``request_digest`` (RL-ENVELOPE-037)."""
    from_ipk: bytes
    to_ipk: bytes
    """The callee's identity key at the time of sealing: the outcome must be his."""
    suite: int
    reply_seed: bytes | None = field(repr=False)
    """Seed of the one-time key; None once the outcome was opened, and a durable one acknowledged."""
    iat: int
    exp: int
    mode: DeliveryMode = "sync"
    call_id: str | None = None
    submitted_at: int | None = None
    execute_by: int | None = None
    ended: str | None = None
    """How it ended without an outcome, as the relay last said."""
    acked: bool = False
    """Whether the relay was told that the outcome of a durable call is here."""
    receipt: Receipt | None = None

    def resendable(self, now_ms: int) -> bool:
        """True while a relay may still take these bytes (RL-ADMIT-011, RL-ADMIT-012)."""
        return now_ms < self.exp + (ENVELOPE_SKEW_MS if self.mode == "sync" else 0)


@final
class Outbox:
    """The file. Every method blocks for a commit, and raises `ConfigError` when the file is unusable.

    Used from one thread at a time; several processes may share a file.
    """

    def __init__(self, home: Home, path: Path) -> None:
        """Open ``path`` inside ``home``, or create it with mode 0600."""
        self.path = path
        self._file = OutboxFile(home, path)
        self._run = self._file.connection

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def remember(self, stored: Stored) -> Stored:
        """Keep a call before it is sent.

        Returns it, or what another process has kept under the same callee and ``message_id`` meanwhile.
        """
        with self._file.told(unsent=True), self._file.transaction("remember"):
            known = self._find(stored.callee, stored.message_id)
            if known is not None:
                return known
            self._insert(stored)
        return stored

    def replace(self, stored: Stored) -> None:
        """Put a new sealing of a call in the place of one that never reached anybody (RL-SYNC-036)."""
        with self._file.told(), self._file.transaction("replace"):
            self._run.execute(
                "DELETE FROM calls WHERE callee = ? AND message_id = ?", (stored.callee, stored.message_id)
            )
            self._insert(stored)

    def find(self, callee: str, message_id: str) -> Stored | None:
        """Return a call with its receipt, if there is one."""
        with self._file.told():
            return self._find(callee, message_id)

    def find_call(self, call_id: str) -> Stored | None:
        """Return the call to which a relay gave this id."""
        with self._file.told():
            row = self._run.execute(
                "SELECT callee, message_id FROM calls WHERE call_id = ?", (call_id,)
            ).fetchone()
            return None if row is None else self._find(*row)

    def learned(self, callee: str, message_id: str, call_id: str) -> None:
        """Note the id that the relay gave: whatever became of an earlier try, it has the call now."""
        with self._file.told(), self._file.transaction("learned"):
            self._run.execute(
                "UPDATE calls SET call_id = ?, ended = NULL WHERE callee = ? AND message_id = ?",
                (call_id, callee, message_id),
            )

    def queued(self, callee: str, message_id: str, frame: CallQueued) -> None:
        """Note that the relay has a durable call, and until when it may begin."""
        with self._file.told(), self._file.transaction("queued"):
            self._run.execute(
                "UPDATE calls SET call_id = ?, submitted_at = ?, execute_by = ?, ended = NULL"
                " WHERE callee = ? AND message_id = ?",
                (frame.call_id, frame.submitted_at, frame.expires_at, callee, message_id),
            )

    def ended(self, callee: str, message_id: str, state: str) -> None:
        """Note how a call ended without an outcome, by the relay's word: the key stays."""
        with self._file.told(), self._file.transaction("ended"):
            self._run.execute(
                "UPDATE calls SET ended = ? WHERE callee = ? AND message_id = ?", (state, callee, message_id)
            )

    def acknowledged(self, callee: str, message_id: str) -> None:
        """Note that the relay knows that the outcome is here, and delete the one-time key."""
        with self._file.told(), self._file.transaction("acknowledged"):
            self._run.execute(
                "UPDATE calls SET acked = 1, reply_seed = NULL WHERE callee = ? AND message_id = ?"
                " AND EXISTS (SELECT 1 FROM receipts AS r"
                " WHERE r.callee = calls.callee AND r.message_id = calls.message_id)",
                (callee, message_id),
            )

    def unacknowledged(self) -> list[Stored]:
        """Return the durable calls whose receipt is here and whose relay may not know it, oldest first."""
        return self._several(
            "SELECT callee, message_id FROM calls JOIN receipts USING (callee, message_id)"
            " WHERE mode = 'durable' AND acked = 0 ORDER BY created_at LIMIT 100"
        )

    def recent(self, limit: int) -> list[Stored]:
        """Return the calls that were sealed last, newest first."""
        return self._several(
            "SELECT callee, message_id FROM calls ORDER BY created_at DESC, rowid DESC LIMIT ?", limit
        )

    def answered(self, callee: str, message_id: str, receipt: Receipt) -> Receipt:
        """Keep a receipt; of a sync call the one-time key is deleted in the same transaction.

        The key of a durable call stays until its outcome was acknowledged. Returns the receipt that is
        kept, which is the first one (RL-ENVELOPE-039).
        """
        with self._file.told(), self._file.transaction("answered"):
            known = self._receipt(callee, message_id)
            if known is not None:
                return known
            self._run.execute(
                "INSERT INTO receipts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    callee,
                    message_id,
                    receipt.call_id,
                    receipt.terminal,
                    receipt.context,
                    receipt.body,
                    receipt.signature,
                    receipt.card,
                    receipt.card_signature,
                    receipt.opened_at,
                ),
            )
            self._run.execute(
                "UPDATE calls SET reply_seed = iif(mode = 'sync', NULL, reply_seed), call_id = ?"
                " WHERE callee = ? AND message_id = ?",
                (receipt.call_id, callee, message_id),
            )
        return receipt

    def purge(self, now_ms: int) -> None:
        """Delete what is older than `KEEP_MS`."""
        with self._file.told():
            with self._file.transaction("purge"):
                self._run.execute("DELETE FROM calls WHERE exp < ?", (now_ms - KEEP_MS,))
            # Keys that were deleted since the last time are still in the log beside the file.
            self._run.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _insert(self, stored: Stored) -> None:
        self._run.execute(
            "INSERT INTO calls (callee, message_id, correlation_id, payload, content, digest, from_ipk,"
            " to_ipk, suite, reply_seed, iat, exp, call_id, created_at, mode)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                stored.callee,
                stored.message_id,
                stored.correlation_id,
                stored.payload,
                stored.content,
                stored.digest,
                stored.from_ipk,
                stored.to_ipk,
                stored.suite,
                stored.reply_seed,
                stored.iat,
                stored.exp,
                stored.call_id,
                stored.iat,
                stored.mode,
            ),
        )

    def _several(self, select: str, *values: int) -> list[Stored]:
        with self._file.told():
            rows = self._run.execute(select, values).fetchall()
            found = [self._find(callee, message_id) for callee, message_id in rows]
        return [each for each in found if each is not None]

    def _find(self, callee: str, message_id: str) -> Stored | None:
        row: Any = self._run.execute(
            "SELECT correlation_id, payload, content, digest, from_ipk, to_ipk, suite, reply_seed, iat, exp,"
            " call_id, mode, submitted_at, execute_by, ended, acked FROM calls"
            " WHERE callee = ? AND message_id = ?",
            (callee, message_id),
        ).fetchone()
        if row is None:
            return None
        return Stored(
            callee=callee,
            message_id=message_id,
            correlation_id=row[0],
            payload=row[1],
            content=row[2],
            digest=row[3],
            from_ipk=row[4],
            to_ipk=row[5],
            suite=row[6],
            reply_seed=row[7],
            iat=row[8],
            exp=row[9],
            call_id=row[10],
            mode=row[11],
            submitted_at=row[12],
            execute_by=row[13],
            ended=row[14],
            acked=bool(row[15]),
            receipt=self._receipt(callee, message_id),
        )

    def _receipt(self, callee: str, message_id: str) -> Receipt | None:
        row: Any = self._run.execute(
            "SELECT call_id, terminal, context, body, signature, card, card_signature, opened_at"
            " FROM receipts WHERE callee = ? AND message_id = ?",
            (callee, message_id),
        ).fetchone()
        if row is None:
            return None
        terminal: Terminal = row[1]
        return Receipt(
            call_id=row[0],
            terminal=terminal,
            context=row[2],
            body=row[3],
            signature=row[4],
            card=row[5],
            card_signature=row[6],
            opened_at=row[7],
        )
