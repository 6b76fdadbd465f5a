"""What durable calls are measured against: SQLite with nothing above it, in batches, every commit flushed.

One table, one unique index, no rules: a call is a row that is inserted with the sealed request, updated when
it starts, and updated with the sealed outcome in place of the request. Each of the three is one transaction
for a batch of calls, in WAL mode with ``synchronous=FULL``; SQLite moves the log into the file by itself.
"""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

__all__ = ["Cost", "raw"]

_SCHEMA = (
    "CREATE TABLE calls (seq INTEGER PRIMARY KEY, call_id TEXT UNIQUE, caller TEXT, callee TEXT,"
    " state TEXT, sealed BLOB, outcome BLOB)"
)


class Cost(NamedTuple):
    """Seconds of a round: on the wall, and of the process that keeps the calls."""

    wall: float
    cpu: float


def _connect(path: str) -> Any:
    return sqlite3.connect(path, isolation_level=None)


def raw(
    path: str, calls: int, batch: int, size: int, open_: Callable[[str], Any] = _connect
) -> dict[str, Cost]:
    """Return what ``calls`` of ``size`` bytes cost in a new file, ``batch`` in a transaction, by step.

    The steps are ``admitted`` (one write of each call), ``begun and ended`` (the other two) and ``whole``.
    """
    sealed = bytes(size)
    spent = {"admitted": Cost(0, 0), "begun and ended": Cost(0, 0)}
    with closing(open_(path)) as connection:
        for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", _SCHEMA):
            connection.execute(statement).fetchall()

        def step(name: str, statement: str, rows: list[tuple[object, ...]]) -> None:
            begun = time.perf_counter(), time.process_time()
            connection.execute("BEGIN IMMEDIATE")
            for row in rows:
                connection.execute(statement, row)
            connection.execute("COMMIT")
            wall, cpu = spent[name]
            spent[name] = Cost(wall + time.perf_counter() - begun[0], cpu + time.process_time() - begun[1])

        for first in range(0, calls, batch):
            numbers = range(first, min(first + batch, calls))
            step(
                "admitted",
                "INSERT INTO calls VALUES (?, ?, 'alice', 'bob', 'queued', ?, NULL)",
                [(n + 1, f"call-{n}", sealed) for n in numbers],
            )
            step(
                "begun and ended",
                "UPDATE calls SET state = 'started' WHERE call_id = ?",
                [(f"call-{n}",) for n in numbers],
            )
            step(
                "begun and ended",
                "UPDATE calls SET state = 'completed', sealed = NULL, outcome = ? WHERE call_id = ?",
                [(sealed, f"call-{n}") for n in numbers],
            )
    return spent | {"whole": Cost(*map(sum, zip(*spent.values(), strict=True)))}
