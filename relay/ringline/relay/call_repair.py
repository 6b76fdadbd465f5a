"""What must hold between the tables of durable calls, proved and mended when the relay starts.

Every write keeps it, in one transaction; so whatever is found here was done to the file by something else.
"""

import sqlite3
from typing import Final

from ringline.protocol.lifecycle import FINAL

__all__ = ["repair_calls"]

# `keeps_request`, `keeps_outcome` and `held` of a call, as SQL.
_OPEN: Final = f"state NOT IN ({', '.join(repr(state.value) for state in sorted(FINAL))})"
_KEPT: Final = "(terminal IS NOT NULL AND NOT acknowledged)"
_HELD: Final = (
    f"sum({_OPEN}) AS calls, sum(iif({_OPEN}, request_bytes, 0)) AS request_bytes,"
    f" sum(iif({_KEPT}, outcome_bytes, 0)) AS outcome_bytes"
)
_ANY: Final = "calls > 0 OR request_bytes > 0 OR outcome_bytes > 0"


def repair_calls(run: sqlite3.Connection) -> list[str]:
    """Prove the invariants, mend what can be mended, and return a line for each thing that was wrong.

    Works within the transaction that is open. Raises `sqlite3.Error`.
    """
    return [
        *_excess(run, "requests", f"NOT {_OPEN}", "sealed requests of ended calls deleted"),
        *_excess(run, "outcomes", f"NOT {_KEPT}", "sealed outcomes that nobody waits for deleted"),
        *_missing(run, "requests", _OPEN, "open calls have lost their sealed request"),
        *_missing(run, "outcomes", _KEPT, "calls have lost their sealed outcome"),
        *_counters(run, "mailboxes", "callee, listed"),
        *_counters(run, "pairs", "caller, callee"),
    ]


def _excess(run: sqlite3.Connection, table: str, condition: str, what: str) -> list[str]:
    found = run.execute(
        f"DELETE FROM {table} WHERE seq IN (SELECT seq FROM calls WHERE {condition})"
    ).rowcount
    return [f"{found} {what}"] if found else []


def _missing(run: sqlite3.Connection, table: str, condition: str, what: str) -> list[str]:
    (found,) = run.execute(
        f"SELECT count(*) FROM calls WHERE {condition} AND seq NOT IN (SELECT seq FROM {table})"
    ).fetchone()
    return [f"{found} {what}"] if found else []


def _counters(run: sqlite3.Connection, table: str, key: str) -> list[str]:
    """Put counters right that differ from what the calls add up to; others are not touched."""
    right = f"SELECT {key}, {_HELD} FROM calls GROUP BY {key}"
    counted = f"SELECT {key}, calls, request_bytes, outcome_bytes FROM"
    wrong = run.execute(
        f"SELECT {key} FROM ({counted} {table} WHERE {_ANY} EXCEPT {counted} ({right}))"
        f" UNION SELECT {key} FROM ({counted} ({right}) WHERE {_ANY} EXCEPT {counted} {table})"
    ).fetchall()
    for row in wrong:
        run.execute(
            f"UPDATE {table} SET (calls, request_bytes, outcome_bytes) = (SELECT ifnull(sum(calls), 0),"
            f" ifnull(sum(request_bytes), 0), ifnull(sum(outcome_bytes), 0) FROM ({right})"
            f" WHERE ({key}) = (?, ?)) WHERE ({key}) = (?, ?)",
            (*row, *row),
        )
        # A counter that was lost altogether.
        last = ", max(submitted_at)" if table == "pairs" else ""
        run.execute(
            f"INSERT OR IGNORE INTO {table} SELECT {key}, {_HELD}{last} FROM calls"
            f" WHERE ({key}) = (?, ?) GROUP BY {key}",
            row,
        )
    return [f"{len(wrong)} counters of {table} put right"] if wrong else []
