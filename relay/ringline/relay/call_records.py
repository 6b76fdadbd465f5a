"""Durable calls as records of SQLite: the statements, and what comes back from them, checked."""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec

from ringline.protocol.lifecycle import FINAL, State
from ringline.relay.call_store import CallRow
from ringline.relay.store import StoreError

__all__ = [
    "ADD_TO_MAILBOX",
    "ADD_TO_PAIR",
    "CALLEES",
    "CHANGING",
    "INSERT",
    "LAST_SEQ",
    "SAME",
    "SELECT",
    "Record",
    "Value",
    "calls_of",
    "converted",
    "page_of",
    "same_of",
    "values_of",
    "whole",
]

Value: TypeAlias = str | bytes | int | None
"""What a column holds."""

Record: TypeAlias = tuple[Value, ...]

_Type = TypeVar("_Type")

_FIELDS: Final = CallRow.__struct_fields__
_STATES: Final = (State.QUEUED, State.STARTED, State.PARKED, *sorted(FINAL))

CHANGING: Final = _FIELDS[_FIELDS.index("state") :]
"""The members of a call that may change, but for its version."""

SELECT: Final = f"SELECT {', '.join(_FIELDS)} FROM calls"

INSERT: Final = f"INSERT INTO calls ({', '.join(_FIELDS)}) VALUES ({', '.join('?' * len(_FIELDS))})"

SAME: Final = "seq = ? AND call_id = ? AND version = ?"
"""The call as it was read. Its number alone would not do: one that was rolled back is given again."""

LAST_SEQ: Final = """
SELECT max(
    ifnull((SELECT max(seq) FROM calls), 0),
    ifnull((SELECT CAST(value AS INTEGER) FROM facts WHERE name = 'last_call'), 0)
)
"""

# From one handle to the next in the index, however many calls each has.
CALLEES: Final = """
WITH RECURSIVE found (callee) AS (
    SELECT min(callee) FROM calls WHERE state = 'queued'
    UNION ALL
    SELECT (SELECT min(callee) FROM calls WHERE state = 'queued' AND callee > found.callee)
    FROM found WHERE found.callee IS NOT NULL
)
SELECT callee FROM found WHERE callee IS NOT NULL
"""

ADD_TO_MAILBOX: Final = (
    "UPDATE mailboxes SET calls = calls + ?, request_bytes = request_bytes + ?,"
    " outcome_bytes = outcome_bytes + ? WHERE callee = ? AND listed = ?"
)

ADD_TO_PAIR: Final = (
    "UPDATE pairs SET calls = calls + ?, request_bytes = request_bytes + ?,"
    " outcome_bytes = outcome_bytes + ?, last_at = max(last_at, ?) WHERE caller = ? AND callee = ?"
)


def page_of(party: Literal["caller", "callee"], states: Sequence[State]) -> str:
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
    return [getattr(row, name) for name in _FIELDS]


def same_of(row: CallRow) -> tuple[int, str, int]:
    """Return what `SAME` takes."""
    return row.seq, row.call_id, row.version


def calls_of(found: Sequence[Record], path: str) -> list[CallRow]:
    """Return the calls that a `SELECT` found in the file at ``path``. Raises `StoreError`."""
    return converted([dict(zip(_FIELDS, record, strict=True)) for record in found], list[CallRow], path)


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
