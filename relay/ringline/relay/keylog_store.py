"""The key log in the relay's database: its key, and its entries in order.

The key is in the same file as the log, so that the two are copied, restored and lost together: a log that
is begun anew under the old key, or continued under a new one, looks to every client like a relay that lies.
Whoever has the file can sign checkpoints in the relay's name, and can open no call by it.
"""

import sqlite3
from collections.abc import Iterator
from typing import Final

from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.signing import SEED_BYTES, SigningKey
from ringline.relay.store import LogAppended

__all__ = ["append_entry", "entries_between", "load_entries", "log_key"]

_KEY: Final = "log_key"


def log_key(run: sqlite3.Connection) -> SigningKey:
    """Return the key of the log; the first time, one is made. Raises `ValueError` when it is damaged."""
    fresh = b64encode(SigningKey.generate().seed)
    run.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (_KEY, fresh))
    (stored,) = run.execute("SELECT value FROM facts WHERE name = ?", (_KEY,)).fetchone()
    return SigningKey(b64decode(stored, length=SEED_BYTES))


def append_entry(run: sqlite3.Connection, change: LogAppended) -> None:
    """Write one entry, within the transaction of what it is about."""
    run.execute("INSERT INTO log_entries VALUES (?, ?, ?)", (change.index, change.entry, change.card_id))


def load_entries(run: sqlite3.Connection) -> Iterator[LogAppended]:
    """Yield all entries in order."""
    rows = run.execute("SELECT number, entry, card_id FROM log_entries ORDER BY number")
    for number, entry, card_id in rows:
        yield LogAppended(index=number, entry=entry, card_id=card_id)


def entries_between(run: sqlite3.Connection, start: int, end: int) -> list[bytes]:
    """Return the entries from ``start`` up to, and without, ``end``."""
    rows = run.execute(
        "SELECT entry FROM log_entries WHERE number >= ? AND number < ? ORDER BY number", (start, end)
    )
    return [entry for (entry,) in rows]
