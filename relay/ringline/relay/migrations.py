"""The schema of the relay's database, as numbered steps that are never edited once released.

`PRAGMA user_version` holds the number of the last step taken. Each step runs in a transaction of its own,
together with the new number.
"""

from typing import Final

__all__ = ["APPLICATION_ID", "MIGRATIONS"]

APPLICATION_ID: Final = int.from_bytes(b"RLrd", "big")
"""Tells a relay's database from any other SQLite file (`PRAGMA application_id`)."""

_DIRECTORY: Final = """
-- One row per fact about the whole file: the realm it belongs to, and the last proof that it can be written.
CREATE TABLE facts (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE handles (
    handle TEXT PRIMARY KEY,
    -- JSON of the policy; null until its owner sets one.
    policy TEXT
) STRICT, WITHOUT ROWID;

-- Every card that was ever current. Bytes are as published: they are what was signed.
CREATE TABLE cards (
    card_id      TEXT PRIMARY KEY,
    handle       TEXT NOT NULL REFERENCES handles (handle),
    serial       INTEGER NOT NULL CHECK (serial > 0),
    card         BLOB NOT NULL,
    signature    BLOB NOT NULL,
    succession   TEXT,
    published_at INTEGER NOT NULL,
    UNIQUE (handle, serial)
) STRICT, WITHOUT ROWID;

-- The current prekey statement of a handle.
CREATE TABLE prekeys (
    handle       TEXT PRIMARY KEY REFERENCES handles (handle),
    card_id      TEXT NOT NULL REFERENCES cards (card_id),
    epoch        INTEGER NOT NULL CHECK (epoch >= 0),
    statement    BLOB NOT NULL,
    signature    BLOB NOT NULL,
    published_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE revocations (
    card_id     TEXT PRIMARY KEY REFERENCES cards (card_id),
    reason      INTEGER NOT NULL,
    ts          INTEGER NOT NULL,
    -- The committed next key that signed; null: the identity key did.
    next_ipk    BLOB,
    signature   BLOB NOT NULL,
    received_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""

MIGRATIONS: Final[tuple[str, ...]] = (_DIRECTORY,)
"""Step n leads from `user_version` n to n + 1."""
