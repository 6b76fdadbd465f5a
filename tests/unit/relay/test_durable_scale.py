"""A relay with very many queued calls: what is asked of it costs what it costs with few.

Counted are the instructions of SQLite's machine and the calls of Python functions, not seconds. The whole
relay's core runs on a real file. ``RINGLINE_SCALE=100000`` takes as many calls; the suite takes fewer, which
shows the same.
"""

import os
import sqlite3
import sys
import tracemalloc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ringline.relay.sqlite_calls import SqliteCalls
from ringline_testing.exchange import CARD, START, cancel
from ringline_testing.mail import HOUR, Mail, durable, offers, sealed

FEW = 1_000
MANY = int(os.environ.get("RINGLINE_SCALE", "20000"))
OFF = {"STORED_CALLS": 0, "STORED_CALLS_PER_PAIR": 0, "STORED_REQUEST_BYTES": 0, "STARTS": 0}

# One queue, every call a conversation of its own, fifty callers in turn; one of them ends within the hour.
FILL = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
INSERT INTO calls SELECT
    n, 'stored-' || n, 'caller-' || (n % 50), 'bob', :card, 1, printf('%032x', n),
    printf('%032x', n), zeroblob(32), NULL, :now, :later + n, 10, 0, 'queued', 0, 0, NULL, NULL, NULL, NULL,
    NULL, NULL, 0, 0, 0, iif(n % 10 = 0 AND n <= 500, :soon, :later + n)
FROM numbers
"""


def connection_of(store: SqliteCalls) -> sqlite3.Connection:
    """The connection that the relay writes with."""
    assert store._file.connection is not None
    return store._file.connection


@contextmanager
def filled(path: Path, count: int) -> Generator[Mail]:
    """Start a relay on a file with so many queued calls for bob."""
    now = START.wall
    with opened(path) as store:
        values = {"count": count, "card": CARD, "now": now, "soon": now + HOUR, "later": now + 40 * HOUR}
        run = connection_of(store)
        run.execute(FILL, values)
        run.execute("UPDATE calls SET execute_by = due_at")
        run.execute("INSERT INTO requests SELECT seq, ? FROM calls", (msgspec.json.encode(sealed()),))
        assert store.repair() != []
    with opened(path) as store:
        yield Mail(OFF, store=store)


@contextmanager
def opened(path: Path) -> Generator[SqliteCalls]:
    """Open the file; its upkeep is left to its own thread, which counts for nobody."""
    store = SqliteCalls(str(path), erased_within=600)
    try:
        yield store
    finally:
        store.close()


def cost(m: Mail, do: Callable[[], Any]) -> tuple[int, int]:
    """Return how many instructions of SQLite and how many calls of Python functions something takes."""
    assert isinstance(m.store, SqliteCalls)
    steps = calls = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    run = connection_of(m.store)
    run.set_progress_handler(step, 1)
    sys.setprofile(profile)
    try:
        do()
    finally:
        sys.setprofile(None)
        run.set_progress_handler(None, 1)
    # The handler itself is a Python function.
    return steps, calls - steps


def costs(path: Path, count: int) -> dict[str, tuple[int, int]]:
    """Return what each thing costs that happens to a relay with ``count`` queued calls."""
    with filled(path, count) as m:
        listeners: list[int] = []

        def arrive() -> None:
            connection, effects = m.join(capacity=1)
            assert len(offers(effects)) == 1
            listeners.append(connection)

        found = {"a listener arrives": cost(m, arrive)}
        alice = m.caller("caller-1")
        offered = "stored-1"

        def complete() -> None:
            nonlocal offered
            (bob,) = listeners
            m.complete(offered, bob)
            (offered,) = m.calls._presence.durable_instances("bob")[0].leases

        def submit(number: int) -> str:
            return m.submit(alice, 10_000_000 + number, 10_000_000 + number)

        found["a hand-out while the queue is being read"] = cost(m, complete)
        # All of it is read, a page in a turn; no lease may lapse meanwhile.
        m.wait(count // 200 + 5)
        assert m.hub.snapshot()["now_stored_in_memory"] == count - 1
        complete()
        found["a hand-out"] = cost(m, complete)
        found["a new call"] = cost(m, lambda: submit(1))
        found["a repeated call"] = cost(m, lambda: m.send(alice, durable(10_000_001, 10_000_001)))
        found["a record"] = cost(m, lambda: m.record("stored-77", "bob"))
        found["a record of an unknown call"] = cost(m, lambda: m.hub.record("bob", "none", m.now))
        found["a page of records"] = cost(m, lambda: m.hub.records("bob", "callee", None, None, 20, m.now))
        found["a page by state"] = cost(m, lambda: m.hub.records("bob", "callee", "failed", None, 20, m.now))
        found["a cancellation"] = cost(m, lambda: m.send(alice, cancel("stored-151")))
        found["nothing due"] = cost(m, lambda: m.turn(m.hub.tick(m.now)))
        # The time of fifty is over, and of all others it is not.
        m.later(HOUR)
        found["an expiry sweep"] = cost(m, lambda: m.turn(m.wait(60_000)))
        assert m.hub.snapshot()["stored_expired"] == 50
        (bob,) = listeners
        found["a listener leaves"] = cost(m, lambda: m.lose(bob, clean=True))
        m.lose(alice)
        m.wait(count // 200 + 5)
        # One was in its hands, and rests.
        assert m.hub.snapshot()["now_stored_in_memory"] <= 1
        return found


def test_with_many_queued_calls_nothing_takes_longer_than_with_few(tmp_path: Path) -> None:
    few, many = costs(tmp_path / "few.db", FEW), costs(tmp_path / "many.db", MANY)
    assert all(calls > 0 for _, calls in few.values())
    grown = {
        name: f"{few[name]} -> {(steps, calls)}"
        for name, (steps, calls) in many.items()
        # A tree of the file, or a heap in memory, may be a level deeper.
        if steps > few[name][0] * 1.1 + 20 or calls > few[name][1] * 1.1 + 20
    }
    assert grown == {}
    assert max(steps for steps, _ in many.values()) < 50_000


def test_a_relay_starts_without_its_queued_calls_in_memory_and_a_queue_takes_little_of_it(
    tmp_path: Path,
) -> None:
    with filled(tmp_path / "relay.db", FEW) as m:
        tracemalloc.start()
        try:
            m.restart()
            assert tracemalloc.get_traced_memory()[1] < 200_000
            before, _ = tracemalloc.get_traced_memory()
            m.join(capacity=1)
            m.wait(FEW // 200 + 5)
            now, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert m.hub.snapshot()["now_stored_in_memory"] == FEW
        # Bytes; the sealed requests are not among them.
        assert (now - before) / FEW < 1_500
