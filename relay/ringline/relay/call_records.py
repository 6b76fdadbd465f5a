"""Durable calls as records of SQLite: the statements, and what comes back from them, checked."""

import functools
import itertools
import operator
import sys
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec.structs import astuple

from ringline.protocol.lifecycle import FINAL, State
from ringline.relay.call_store import CallRow
from ringline.relay.store import StoreError

__all__ = [
    "ADD_START",
    "ADD_TO_MAILBOX",
    "ADD_TO_PAIR",
    "BY_ID",
    "BY_KEY",
    "BY_SEQ",
    "CHANGING",
    "INSERT",
    "LAST_SEQ",
    "MAILBOX",
    "MET",
    "NEW_MAILBOX",
    "NEW_PAIR",
    "PAIR",
    "SAME",
    "SELECT",
    "STARTS",
    "Record",
    "Value",
    "calls_of",
    "converted",
    "page_of",
    "same_of",
    "swap_of",
    "values_of",
    "whole",
]

Value: TypeAlias = str | bytes | int | None
"""What a column holds."""

Record: TypeAlias = tuple[Value, ...]

_Type = TypeVar("_Type")

_FIELDS: Final = CallRow.__struct_fields__
_STATES: Final = (State.QUEUED, State.STARTED, State.PARKED, *sorted(FINAL))

_FIRST: Final = _FIELDS.index("state")

CHANGING: Final = _FIELDS[_FIRST:]
"""The members of a call that may change, but for its version."""

# What is no plain int or str, sqlite3 looks for somebody who tells it how to store, each time: states too.
_FLAGS: Final = tuple(_FIELDS.index(name) for name in ("listed", "cancel_requested", "acknowledged"))

SELECT: Final = f"SELECT {', '.join(_FIELDS)} FROM calls"

INSERT: Final = f"INSERT INTO calls ({', '.join(_FIELDS)}) VALUES ({', '.join('?' * len(_FIELDS))})"

BY_ID: Final = f"{SELECT} WHERE call_id = ?"
BY_SEQ: Final = f"{SELECT} WHERE seq = ?"
BY_KEY: Final = "SELECT seq FROM calls WHERE caller = ? AND callee = ? AND message_id = ?"
"""Mostly there is none, so that the index answers alone."""

SAME: Final = "seq = ? AND call_id = ? AND version = ?"
"""The call as it was read. Its number alone would not do: one that was rolled back is given again."""

LAST_SEQ: Final = """
SELECT max(
    ifnull((SELECT max(seq) FROM calls), 0),
    ifnull((SELECT CAST(value AS INTEGER) FROM facts WHERE name = 'last_call'), 0)
)
"""

MAILBOX: Final = "SELECT calls, request_bytes, outcome_bytes FROM mailboxes WHERE callee = ? AND listed = ?"
PAIR: Final = "SELECT calls, request_bytes, outcome_bytes FROM pairs WHERE caller = ? AND callee = ?"
STARTS: Final = "SELECT at, count FROM starts WHERE caller = ? AND callee = ? ORDER BY at"
ADD_START: Final = """
INSERT INTO starts VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count
"""
MET: Final = "SELECT 1 FROM pairs WHERE caller = ? AND callee = ? AND last_at >= ?"

_ADD: Final = "SET calls = calls + ?, request_bytes = request_bytes + ?, outcome_bytes = outcome_bytes + ?"

# Not one upsert: its constraint would judge the difference and not the sum.
NEW_MAILBOX: Final = "INSERT OR IGNORE INTO mailboxes VALUES (?, ?, 0, 0, 0)"
ADD_TO_MAILBOX: Final = f"UPDATE mailboxes {_ADD} WHERE callee = ? AND listed = ?"
NEW_PAIR: Final = (
    "INSERT INTO pairs VALUES (?, ?, 0, 0, 0, ?)"
    " ON CONFLICT DO UPDATE SET last_at = max(last_at, excluded.last_at)"
)
ADD_TO_PAIR: Final = f"UPDATE pairs {_ADD} WHERE caller = ? AND callee = ?"


def swap_of(before: CallRow, after: CallRow) -> tuple[str, list[Value]]:
    """Return the statement that writes a version and what else has changed, and what the statement takes.

    Only that: an index whose columns are not named is left alone.
    """
    new = astuple(after)[_FIRST:]
    # What is the same object is equal, and most is: this asks no member for more.
    changed = tuple(map(operator.is_not, astuple(before)[_FIRST:], new))
    values = [after.version, *itertools.compress(new, changed), before.seq, before.call_id, before.version]
    if changed[0]:
        values[1] = str(after.state)
    return _swapping(changed), values


@functools.cache
def _swapping(changed: tuple[bool, ...]) -> str:
    names = ("version", *itertools.compress(CHANGING, changed))
    return f"UPDATE calls SET {', '.join(f'{name} = ?' for name in names)} WHERE {SAME}"


@functools.cache
def page_of(party: Literal["caller", "callee"], states: frozenset[State]) -> str:
    """Return the statement for a page: handle, the ``seq`` it lies below, how many rows.

    It takes the newest of each state from the index, then the newest of those: what is passed over is
    bounded, whatever the states.
    """
    newest = " UNION ALL ".join(
        f"SELECT * FROM (SELECT seq FROM calls WHERE state = '{state}' AND {party} = ?1"
        " AND seq < ?2 ORDER BY seq DESC LIMIT ?3)"
        for state in _STATES
        if not states or state in states
    )
    newest = newest or "SELECT NULL AS seq WHERE 0"
    return f"{SELECT} WHERE seq IN (SELECT seq FROM ({newest}) ORDER BY seq DESC LIMIT ?3) ORDER BY seq DESC"


def values_of(row: CallRow) -> list[Value]:
    """Return what `INSERT` takes."""
    values = list(astuple(row))
    for place in _FLAGS:
        values[place] = int(values[place])
    values[_FIRST] = str(row.state)
    return values


def same_of(row: CallRow) -> tuple[int, str, int]:
    """Return what `SAME` takes."""
    return row.seq, row.call_id, row.version


def calls_of(found: Sequence[Record], path: str) -> list[CallRow]:
    """Return the calls that a `SELECT` found in the file at ``path``. Raises `StoreError`."""
    # One by one: for a list of a struct msgspec would look at the types anew each time.
    return [
        converted(dict(zip(_FIELDS, map(_shared, record), strict=True)), CallRow, path) for record in found
    ]


def _shared(value: Value) -> Value:
    """Return one object for equal texts: handles and cards are the same in many calls, which may be many."""
    return sys.intern(value) if type(value) is str else value


def converted(found: object, type_: type[_Type], path: str) -> _Type:
    """Return what was found as ``type_``: a file may have been written by anything.

    Raises `StoreError`.
    """
    try:
        return msgspec.convert(found, type_, strict=False, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise StoreError(f"{path} holds a row that cannot be read: {error}") from error


def whole(value: Value) -> int:
    """Return a column that a strict table declares as a whole number and never null."""
    assert isinstance(value, int)
    return value
