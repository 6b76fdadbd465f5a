"""What was seen of the key log of one relay, kept in a file: nothing that was seen can be denied later.

The last checkpoint that was accepted, the key it is signed with, how far the entries were read, and what
they said that matters to anybody here: whose card is which, and which cards were called back. Several
processes of one person share the file.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

from ringline.client.address import RelayAddress
from ringline.client.home import Home
from ringline.client.logstate_file import LogStateFile
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import EncodingError, LogError
from ringline.protocol.identity import HASH_BYTES
from ringline.protocol.merkle import Frontier
from ringline.protocol.signing import PUBLIC_BYTES

__all__ = ["Alarm", "KeySource", "LogState", "Seen", "SeenCard", "followed_key"]

KeySource: TypeAlias = Literal["contact", "relay"]
"""Who told the key of the log: a contact string or an invite, or the relay itself at the first contact."""

_ALARM: Final = "id, text, at, seen, evidence"
_CARD: Final = "number, card_id, handle, serial, ipk"


def followed_key(home: Home, address: RelayAddress) -> bytes | None:
    """Return the key of a relay's log as it is kept here, to be handed on in a contact string.

    None when no log was seen, and in the development realm, where another relay may answer tomorrow. Asks
    no relay. Raises `ConfigError` when the file cannot be read.
    """
    path = home.keylog_file(address)
    if address.is_local or not path.exists():
        return None
    with closing(LogState(path)) as state:
        kept = state.key()
    return None if kept is None else kept[0]


@final
@dataclass(frozen=True, slots=True)
class Seen:
    """The last checkpoint that was accepted: its note as it came, size and root."""

    note: bytes
    size: int
    root: bytes
    at: int
    """When the relay last showed that this is its log, Unix ms by this computer's clock."""


@final
@dataclass(frozen=True, slots=True)
class SeenCard:
    """A card as an entry of the log: which entry, and what it says. Its signature is not asked here."""

    number: int
    card_id: bytes
    handle: str
    serial: int
    ipk: bytes


@final
@dataclass(frozen=True, slots=True)
class Alarm:
    """What was found and reported. ``seen``: its owner has said that he knows. ``evidence`` is a file."""

    id: int
    text: str
    at: int
    seen: bool
    evidence: str | None


@final
class LogState:
    """An open file. Methods may be called from any thread; each is one transaction.

    Every method raises `ConfigError` when the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file; its folder must exist.

        Raises `ConfigError`, which says what is wrong with the file and what to do.
        """
        self.path = path
        self._file = LogStateFile(path)

    def close(self) -> None:
        """Let go of the file. A second call does nothing."""
        self._file.close()

    # --- the log itself

    def key(self) -> tuple[bytes, KeySource] | None:
        """Return the public key of the log and who told it; None before there was one."""
        with self._file.transaction() as run:
            key, source = _fact(run, "key"), _fact(run, "key_source")
        if key is None:
            return None
        return self._decoded(key, PUBLIC_BYTES), "contact" if source == "contact" else "relay"

    def pin_key(self, public: bytes, source: KeySource) -> tuple[bytes, KeySource]:
        """Keep the key of the log if none is kept, and return the one that is."""
        with self._file.transaction() as run:
            if _fact(run, "key") is None:
                _set(run, "key", b64encode(public))
                _set(run, "key_source", source)
            elif source == "contact" and _fact(run, "key") == b64encode(public):
                # The relay told it first; now somebody vouches for it.
                _set(run, "key_source", source)
        kept = self.key()
        assert kept is not None
        return kept

    def seen(self) -> Seen | None:
        """Return the last checkpoint that was accepted."""
        with self._file.transaction() as run:
            return self._seen(run)

    def advance(self, before: Seen | None, after: Seen) -> bool:
        """Keep a checkpoint that was proved to continue ``before``; False when that is not the last any more.

        A later process has gone on then, and what was proved is not proved against what it has seen.
        """
        with self._file.transaction() as run:
            held = self._seen(run)
            if (held and (held.size, held.root)) != (before and (before.size, before.root)):
                return False
            _set(run, "note", b64encode(after.note))
            _set(run, "size", str(after.size))
            _set(run, "root", b64encode(after.root))
            _set(run, "at", str(after.at))
            return True

    def forget(self) -> None:
        """Begin anew: only for a development relay, which may have been replaced."""
        with self._file.transaction() as run:
            for table in ("facts", "cards", "revocations", "proved"):
                run.execute(f"DELETE FROM {table}")

    # --- its entries

    def read(self) -> Frontier:
        """Return how far the entries were read, as the frontier to go on from."""
        with self._file.transaction() as run:
            size, hashes = _fact(run, "read"), _fact(run, "frontier")
            data = b"" if hashes is None else self._decoded(hashes)
            try:
                parts = [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)]
                return Frontier(int(size or 0), parts)
            except LogError:
                raise self._file.damaged() from None

    def note_entries(
        self, before: int, frontier: Frontier, cards: Iterable[SeenCard], revoked: Iterable[tuple[bytes, int]]
    ) -> bool:
        """Keep what entries said that were read from ``before`` on; False when another process has."""
        with self._file.transaction() as run:
            held = _fact(run, "read")
            if (0 if held is None else int(held)) != before:
                return False
            run.executemany(
                "INSERT OR REPLACE INTO cards VALUES (?, ?, ?, ?, ?)",
                [(card.number, card.card_id, card.handle, card.serial, card.ipk) for card in cards],
            )
            run.executemany("INSERT OR IGNORE INTO revocations VALUES (?, ?)", list(revoked))
            _set(run, "read", str(frontier.size))
            _set(run, "frontier", b64encode(b"".join(frontier.hashes)))
            return True

    def revoked_at(self, card_id: bytes) -> int | None:
        """Return the entry that calls a card back, None when no entry that was read does."""
        with self._file.transaction() as run:
            row = run.execute("SELECT number FROM revocations WHERE card_id = ?", (card_id,)).fetchone()
        return None if row is None else int(row[0])

    def rival(self, handle: str, serial: int, card_id: bytes) -> SeenCard | None:
        """Return another card of the handle, of that serial or a later one, the latest that was read."""
        with self._file.transaction() as run:
            row = run.execute(
                f"SELECT {_CARD} FROM cards WHERE handle = ? AND serial >= ? AND card_id != ?"
                " ORDER BY serial DESC, number LIMIT 1",
                (handle, serial, card_id),
            ).fetchone()
        return None if row is None else SeenCard(*row)

    def unchecked(self, handle: str, start: int | None = None) -> tuple[list[SeenCard], int]:
        """Return the cards of an own handle that were not looked at yet, and up to where entries were read.

        ``start`` is the first entry to return, by default the first that no process has looked at.
        """
        with self._file.transaction() as run:
            start = int(_fact(run, f"checked {handle}") or 0) if start is None else start
            read = int(_fact(run, "read") or 0)
            rows = run.execute(
                f"SELECT {_CARD} FROM cards WHERE handle = ? AND number >= ? ORDER BY number", (handle, start)
            ).fetchall()
        return [SeenCard(*row) for row in rows], read

    def note_checked(self, handle: str, end: int) -> None:
        """Keep that the cards of an own handle were looked at, up to entry ``end`` and without it."""
        with self._file.transaction() as run:
            if int(_fact(run, f"checked {handle}") or 0) < end:
                _set(run, f"checked {handle}", str(end))

    def number_of(self, card_id: bytes) -> int | None:
        """Return which entry a card is, as far as the entries were read."""
        with self._file.transaction() as run:
            row = run.execute("SELECT number FROM cards WHERE card_id = ?", (card_id,)).fetchone()
        return None if row is None else int(row[0])

    def proved(self, card_id: bytes) -> bool:
        """True when the card's place in the log was proved."""
        with self._file.transaction() as run:
            return run.execute("SELECT 1 FROM proved WHERE card_id = ?", (card_id,)).fetchone() is not None

    def note_proved(self, card_id: bytes, number: int) -> None:
        """Keep that the card is entry ``number``."""
        with self._file.transaction() as run:
            run.execute("INSERT OR IGNORE INTO proved VALUES (?, ?)", (card_id, number))

    # --- alarms

    def raise_alarm(self, subject: str, text: str, at: int, evidence: str | None = None) -> bool:
        """Keep an alarm; False when the same ``subject`` was reported before."""
        with self._file.transaction() as run:
            found = run.execute(
                "INSERT OR IGNORE INTO alarms (subject, text, evidence, at, seen) VALUES (?, ?, ?, ?, 0)",
                (subject, text, evidence, at),
            )
            return found.rowcount == 1

    def alarm(self, subject: str) -> Alarm | None:
        """Return what was reported of a subject."""
        with self._file.transaction() as run:
            row = run.execute(f"SELECT {_ALARM} FROM alarms WHERE subject = ?", (subject,)).fetchone()
        return None if row is None else _alarm(row)

    def alarms(self) -> tuple[Alarm, ...]:
        """Return all alarms, the oldest first."""
        with self._file.transaction() as run:
            rows = run.execute(f"SELECT {_ALARM} FROM alarms ORDER BY id").fetchall()
        return tuple(_alarm(row) for row in rows)

    def settle_alarms(self) -> None:
        """Keep that their owner knows of all of them."""
        with self._file.transaction() as run:
            run.execute("UPDATE alarms SET seen = 1")

    # --- within

    def _seen(self, run: sqlite3.Connection) -> Seen | None:
        note, size, root, at = (_fact(run, name) for name in ("note", "size", "root", "at"))
        if note is None or size is None or root is None or at is None:
            return None
        return Seen(self._decoded(note), int(size), self._decoded(root, HASH_BYTES), int(at))

    def _decoded(self, text: str, length: int | None = None) -> bytes:
        try:
            return b64decode(text, length=length) if text else b""
        except EncodingError:
            raise self._file.damaged() from None


def _alarm(row: tuple[int, str, int, int, str | None]) -> Alarm:
    number, text, at, seen, evidence = row
    return Alarm(number, text, at, bool(seen), evidence)


def _fact(run: sqlite3.Connection, name: str) -> str | None:
    row = run.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def _set(run: sqlite3.Connection, name: str, value: str) -> None:
    run.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))
