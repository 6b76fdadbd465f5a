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

_CALLS: Final = """
-- Durable calls without their ciphertexts, so that reading one never touches those. ``seq`` is the order of
-- admission; every index ends in it.
CREATE TABLE calls (
    seq              INTEGER PRIMARY KEY,
    call_id          TEXT NOT NULL UNIQUE,
    caller           TEXT NOT NULL,
    callee           TEXT NOT NULL,
    caller_card      TEXT NOT NULL,
    listed           INTEGER NOT NULL CHECK (listed IN (0, 1)),
    message_id       TEXT NOT NULL,
    correlation_id   TEXT NOT NULL,
    digest           BLOB NOT NULL,
    traceparent      TEXT,
    submitted_at     INTEGER NOT NULL,
    execute_by       INTEGER NOT NULL,
    request_bytes    INTEGER NOT NULL CHECK (request_bytes >= 0),
    version          INTEGER NOT NULL,
    state            TEXT NOT NULL,
    attempts         INTEGER NOT NULL CHECK (attempts >= 0),
    cancel_requested INTEGER NOT NULL CHECK (cancel_requested IN (0, 1)),
    instance         TEXT,
    started_at       INTEGER,
    finished_at      INTEGER,
    reason           TEXT,
    error            TEXT,
    terminal         TEXT,
    outcome_bytes    INTEGER NOT NULL CHECK (outcome_bytes >= 0),
    outcome_sends    INTEGER NOT NULL CHECK (outcome_sends >= 0),
    acknowledged     INTEGER NOT NULL CHECK (acknowledged IN (0, 1)),
    due_at           INTEGER NOT NULL,
    UNIQUE (caller, callee, message_id)
) STRICT;

CREATE INDEX calls_by_callee ON calls (state, callee);
CREATE INDEX calls_by_caller ON calls (state, caller);
CREATE INDEX calls_by_due ON calls (due_at);

-- The sealed request, until the call ends.
CREATE TABLE requests (
    seq    INTEGER PRIMARY KEY REFERENCES calls (seq) ON DELETE CASCADE,
    sealed BLOB NOT NULL
) STRICT;

-- The sealed outcome, until it is acknowledged or the call is forgotten.
CREATE TABLE outcomes (
    seq    INTEGER PRIMARY KEY REFERENCES calls (seq) ON DELETE CASCADE,
    sealed BLOB NOT NULL
) STRICT;

-- When a call was asked to cancel; its other times are in its row. Rows are added, and go with their call.
CREATE TABLE cancel_requests (
    seq     INTEGER NOT NULL REFERENCES calls (seq) ON DELETE CASCADE,
    version INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (seq, version)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER cancel_requests_are_never_rewritten BEFORE UPDATE ON cancel_requests
BEGIN
    SELECT raise(ABORT, 'a trail is only added to');
END;

-- What calls take of their callee's quotas; those of callers not on its list (listed 0) apart.
CREATE TABLE mailboxes (
    callee        TEXT NOT NULL,
    listed        INTEGER NOT NULL CHECK (listed IN (0, 1)),
    calls         INTEGER NOT NULL CHECK (calls >= 0),
    request_bytes INTEGER NOT NULL CHECK (request_bytes >= 0),
    outcome_bytes INTEGER NOT NULL CHECK (outcome_bytes >= 0),
    PRIMARY KEY (callee, listed)
) STRICT, WITHOUT ROWID;

-- The same for one caller and one callee, and when the last of its calls was admitted: that may be later
-- than the last call which is still stored.
CREATE TABLE pairs (
    caller        TEXT NOT NULL,
    callee        TEXT NOT NULL,
    calls         INTEGER NOT NULL CHECK (calls >= 0),
    request_bytes INTEGER NOT NULL CHECK (request_bytes >= 0),
    outcome_bytes INTEGER NOT NULL CHECK (outcome_bytes >= 0),
    last_at       INTEGER NOT NULL,
    PRIMARY KEY (caller, callee)
) STRICT, WITHOUT ROWID;

-- Starts that were charged to a pair within a day; ``count`` of them in the same millisecond.
CREATE TABLE starts (
    caller TEXT NOT NULL,
    callee TEXT NOT NULL,
    at     INTEGER NOT NULL,
    count  INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (caller, callee, at)
) STRICT, WITHOUT ROWID;

CREATE INDEX starts_by_time ON starts (at);
"""

_INVITES: Final = """
-- An identity that was removed keeps its row, and nobody else gets the handle: peers may know its key.
ALTER TABLE handles ADD COLUMN removed_at INTEGER;

CREATE TABLE invites (
    invite_id   TEXT PRIMARY KEY,
    -- Null: the relay itself.
    inviter     TEXT REFERENCES handles (handle),
    -- The one handle that may take it up; null: any.
    only_for    TEXT,
    -- SHA-256 of the secret, which is kept nowhere.
    secret_hash BLOB NOT NULL,
    label       TEXT,
    uses        INTEGER NOT NULL CHECK (uses > 0),
    issued_at   INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    failures    INTEGER NOT NULL CHECK (failures >= 0),
    withdrawn   INTEGER NOT NULL CHECK (withdrawn IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE INDEX invites_by_inviter ON invites (inviter);

-- Who took an invite up, and what he sent along for the inviter.
CREATE TABLE acceptances (
    invite_id   TEXT NOT NULL REFERENCES invites (invite_id) ON DELETE CASCADE,
    handle      TEXT NOT NULL REFERENCES handles (handle),
    proof       TEXT,
    accepted_at INTEGER NOT NULL,
    PRIMARY KEY (invite_id, handle)
) STRICT, WITHOUT ROWID;
"""

_KEY_LOG: Final = """
-- Every statement that was published, as signed bytes and signatures, in the order of the key log.
CREATE TABLE log_entries (
    number  INTEGER PRIMARY KEY CHECK (number >= 0),
    entry   BLOB NOT NULL,
    -- The card that the entry is; null for the other statements.
    card_id TEXT UNIQUE
) STRICT;

CREATE TRIGGER log_entries_are_never_rewritten BEFORE UPDATE ON log_entries
BEGIN
    SELECT raise(ABORT, 'the key log is only added to');
END;

CREATE TRIGGER log_entries_are_never_removed BEFORE DELETE ON log_entries
BEGIN
    SELECT raise(ABORT, 'the key log is only added to');
END;
"""

MIGRATIONS: Final[tuple[str, ...]] = (_DIRECTORY, _CALLS, _INVITES, _KEY_LOG)
"""Step n leads from `user_version` n to n + 1."""
