"""What our databases set aside while they write stays in memory: a temporary file is nobody's to erase."""

import os
import sqlite3
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

import pytest

from ringline.caller.outbox import Outbox
from ringline.client import Home
from ringline.listener.journal import Journal
from ringline.relay.sqlite_calls import SqliteCalls

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


@contextmanager
def of_outbox(folder: Path) -> Generator[sqlite3.Connection]:
    home = Home(folder)
    with closing(Outbox(home, folder / "alice" / "outbox.db")) as outbox:
        yield outbox._run


@contextmanager
def of_journal(folder: Path) -> Generator[sqlite3.Connection]:
    with closing(Journal(folder / "journal.db")) as journal:
        yield journal._file.connection


@contextmanager
def of_relay(folder: Path) -> Generator[sqlite3.Connection]:
    with closing(SqliteCalls(str(folder / "relay.db"))) as store:
        assert store._file.connection is not None
        yield store._file.connection


def spilt(run: sqlite3.Connection) -> list[str]:
    """Return the temporary files that are open during a statement whose undo is long."""
    run.execute("CREATE TABLE spill (id INTEGER PRIMARY KEY, body TEXT UNIQUE) STRICT")
    run.execute("BEGIN IMMEDIATE")
    run.executemany("INSERT INTO spill VALUES (?, ?)", ((n, f"{n:01000d}") for n in range(500)))
    run.execute("COMMIT")
    run.execute("BEGIN IMMEDIATE")
    # The second may fail half-way, so that SQLite keeps what the first has written.
    for letter in "xy":
        run.execute("UPDATE spill SET body = ? || body", (letter,))
    found: list[str] = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of this listing
            found.append(os.readlink(entry))
    run.execute("ROLLBACK")
    return [name for name in found if "etilqs" in name]


def test_sqlite_would_write_a_temporary_file(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "any.db", isolation_level=None)) as run:
        assert spilt(run) != []


@pytest.mark.parametrize("of", [of_outbox, of_journal, of_relay])
def test_nothing_that_is_stored_gets_into_a_temporary_file(
    tmp_path: Path, of: Callable[[Path], AbstractContextManager[sqlite3.Connection]]
) -> None:
    with of(tmp_path) as run:
        assert spilt(run) == []
