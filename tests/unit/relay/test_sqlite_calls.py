"""Durable calls on real files: what outlives what, what is refused and how, what is gone and when."""

import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ringline.protocol.errors import ConfigError
from ringline.protocol.lifecycle import State
from ringline.relay import upkeep
from ringline.relay.call_store import MEETING_MS, CallRow, DuplicateCall, Held, StaleCall
from ringline.relay.database import MEMORY, prepare
from ringline.relay.migrations import APPLICATION_ID, MIGRATIONS
from ringline.relay.sqlite import SqliteStore
from ringline.relay.sqlite_calls import SqliteCalls
from ringline.relay.store import CardPublished, StoreError

SECRET = b"seven ravens fly at dawn"


def row(number: int = 1, **members: Any) -> CallRow:
    """Return an admitted call."""
    values: dict[str, Any] = {
        "call_id": f"call-{number}",
        "seq": 0,
        "caller": "alice",
        "callee": "bob",
        "caller_card": "card",
        "listed": True,
        "message_id": f"{number:032x}",
        "correlation_id": "c" * 32,
        "digest": b"d" * 32,
        "traceparent": None,
        "submitted_at": 1_000 + number,
        "execute_by": 9_000,
        "request_bytes": 1_200,
        "due_at": 9_000,
    }
    return CallRow(**(values | members))


def answered(before: CallRow) -> CallRow:
    """Return the call as it is after an outcome of 7 bytes."""
    return replace(
        before,
        state=State.COMPLETED,
        finished_at=2_000,
        reason="completed",
        terminal="completed",
        outcome_bytes=7,
    )


@contextmanager
def opened(path: Path | str, **options: Any) -> Generator[SqliteCalls]:
    """Open a store and close it."""
    store = SqliteCalls(str(path), **options)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "relay.db"


@pytest.fixture
def calls(path: Path) -> Generator[SqliteCalls]:
    with opened(path) as store:
        yield store


def connection_of(store: SqliteCalls) -> sqlite3.Connection:
    """The connection that the store writes with."""
    assert store._file.connection is not None
    return store._file.connection


def bytes_on_disk(path: Path) -> bytes:
    """Everything in the database file and beside it."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.iterdir()) if file.is_file())


# --- transactions


def test_the_file_is_as_durable_and_forgetful_as_it_says(calls: SqliteCalls) -> None:
    run = connection_of(calls)
    names = (
        "journal_mode",
        "synchronous",
        "foreign_keys",
        "secure_delete",
        "auto_vacuum",
        "wal_autocheckpoint",
        "user_version",
        "application_id",
    )
    pragmas = {name: run.execute(f"PRAGMA {name}").fetchone()[0] for name in names}
    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "secure_delete": 1,
        "auto_vacuum": 2,
        "wal_autocheckpoint": 0,
        "user_version": len(MIGRATIONS),
        "application_id": APPLICATION_ID,
    }


@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_turn_is_one_transaction(path: Path, where: str) -> None:
    with opened(MEMORY if where == "memory" else path) as calls:
        first = calls.insert(row(1), b"one")
        calls.commit()
        calls.swap(first, answered(first), b"outcome")
        calls.insert(row(2), b"two")
        calls.rollback()
        assert calls.load("call-1") == first
        assert calls.load("call-2") is None
        assert (calls.request("call-1"), calls.outcome("call-1")) == (b"one", None)
        assert calls.held_by("bob") == Held(1, 1_200, 0)
        assert calls.insert(row(2), b"two").seq == 2


def test_what_was_not_committed_is_gone_after_a_restart(path: Path) -> None:
    with opened(path) as calls:
        calls.insert(row(1), b"one")
        calls.commit()
        calls.insert(row(2), b"two")
    with opened(path) as calls:
        assert calls.load("call-1") is not None
        assert calls.load("call-2") is None
        assert calls.repair() == []


def test_a_second_call_of_a_key_or_an_id_writes_nothing(calls: SqliteCalls) -> None:
    calls.insert(row(1), b"one")
    with pytest.raises(DuplicateCall):
        calls.insert(row(2, message_id=row(1).message_id), b"two")
    with pytest.raises(DuplicateCall):
        calls.insert(row(2, call_id="call-1"), b"two")
    # The turn goes on, and its other work is not lost.
    calls.insert(row(2, message_id=row(1).message_id, callee="cyd"), b"other callee")
    calls.commit()
    assert calls.held_by("bob") == Held(1, 1_200, 0)


def test_of_two_who_read_the_same_only_one_writes(calls: SqliteCalls) -> None:
    before = calls.insert(row(), b"one")
    after = calls.swap(before, answered(before), b"outcome")
    for late in (before, replace(before, version=7)):
        with pytest.raises(StaleCall):
            calls.swap(late, replace(late, state=State.EXPIRED))
        with pytest.raises(StaleCall):
            calls.forget(late)
    assert calls.load("call-1") == after
    assert calls.held_by_pair("alice", "bob") == Held(0, 0, 7)


def test_numbers_of_forgotten_calls_are_not_given_again(path: Path) -> None:
    with opened(path) as calls:
        calls.insert(row(1), b"one")
        last = calls.insert(row(2), b"two")
        calls.commit()
        calls.forget(last)
        calls.commit()
    with opened(path) as calls:
        assert calls.insert(row(3), b"three").seq == 3


def test_results_are_counted_apart_from_requests_and_released_by_the_acknowledgement(
    calls: SqliteCalls,
) -> None:
    before = calls.insert(row(listed=False), b"one")
    after = calls.swap(before, answered(before), b"outcome")
    assert calls.held_by("bob") == calls.held_by("bob", unlisted=True) == Held(0, 0, 7)
    assert calls.outcome("call-1") == b"outcome"
    after = calls.swap(after, replace(after, acknowledged=True))
    assert calls.outcome("call-1") is None
    calls.commit()
    calls.swap(after, replace(after, outcome_sends=1))
    calls.commit()
    assert calls.held_by("bob") == calls.held_by_pair("alice", "bob") == Held()


def test_the_trail_tells_admission_start_cancel_requests_and_end(path: Path) -> None:
    times = iter([1_500, 1_600])
    with opened(path, now=lambda: next(times)) as calls:
        now = calls.insert(row(submitted_at=1_000), b"one")
        now = calls.swap(now, replace(now, attempts=1, cancel_requested=True))
        now = calls.swap(now, replace(now, cancel_requested=False))
        now = calls.swap(now, replace(now, state=State.STARTED, started_at=1_550, instance="i"))
        now = calls.swap(now, replace(now, cancel_requested=True))
        now = calls.swap(now, answered(now), b"outcome")
        calls.commit()
        assert calls.trail("call-1") == [
            ("admitted", 1_000),
            ("cancel_requested", 1_500),
            ("started", 1_550),
            ("cancel_requested", 1_600),
            ("ended", 2_000),
        ]
        with pytest.raises(sqlite3.IntegrityError, match="only added to"):
            connection_of(calls).execute("UPDATE cancel_requests SET at = 0")
        calls.forget(now)
        calls.commit()
        assert calls.trail("call-1") == []
        assert connection_of(calls).execute("SELECT count(*) FROM cancel_requests").fetchone() == (0,)


def test_a_meeting_is_remembered_longer_than_its_call(calls: SqliteCalls) -> None:
    calls.forget(calls.insert(row(1, submitted_at=5), b"one"))
    calls.commit()
    assert calls.shared("bob", "alice", 5)
    assert not calls.shared("bob", "alice", 6)
    # Until nothing needs it: the counters of a pair do not stay for ever.
    calls.insert(row(2, caller="cyd", submitted_at=6 + MEETING_MS), b"two")
    calls.commit()
    calls.shrink()
    assert not calls.shared("bob", "alice", 5)
    assert calls.shared("bob", "cyd", 5)
    assert calls.repair() == []


# --- failures


def failing(calls: SqliteCalls, do: Callable[[], object]) -> None:
    """Do what fails, and hold the store to what it owes then."""
    committed = calls.load("call-1")
    calls.insert(row(2), b"of the same turn")
    with pytest.raises(StoreError):
        do()
    with pytest.raises(StoreError, match="not rolled back"):
        calls.load("call-1")
    with pytest.raises(StoreError):
        calls.commit()
    undone(calls, committed)


def undone(calls: SqliteCalls, committed: CallRow | None) -> None:
    """A failed commit has rolled back by itself; what was told before still stands."""
    assert calls.load("call-1") == committed
    assert calls.load("call-2") is None
    assert calls.held_by("bob") == Held(1, 1_200, 0)


def test_a_full_database_refuses_the_turn_and_goes_on_when_there_is_room(calls: SqliteCalls) -> None:
    calls.insert(row(), b"one")
    calls.commit()
    run = connection_of(calls)
    (pages,) = run.execute("PRAGMA page_count").fetchone()
    run.execute(f"PRAGMA max_page_count={pages + 20}")
    committed = calls.load("call-1")
    calls.insert(row(2), b"of the same turn")
    calls.insert(row(3), b"x" * 400_000)
    with pytest.raises(StoreError, match="full"):
        calls.commit()
    undone(calls, committed)
    assert calls.request("call-1") == b"one"
    assert calls.request("call-3") is None
    run.execute("PRAGMA max_page_count=1000000")
    calls.check()
    calls.insert(row(3), b"x" * 400_000)
    calls.commit()
    assert calls.repair() == []


def test_a_broken_off_statement_takes_its_turn_with_it(calls: SqliteCalls) -> None:
    calls.insert(row(), b"one")
    calls.commit()

    def insert() -> None:
        connection_of(calls).set_progress_handler(lambda: 1, 1)
        try:
            calls.insert(row(3), b"three")
        finally:
            connection_of(calls).set_progress_handler(None, 1)

    failing(calls, insert)


def test_a_file_that_cannot_be_written_is_still_read(calls: SqliteCalls) -> None:
    first = calls.insert(row(), b"one")
    calls.commit()
    connection_of(calls).execute("PRAGMA query_only=ON")
    with pytest.raises(StoreError, match="readonly"):
        calls.check()
    with pytest.raises(StoreError, match="readonly"):
        calls.swap(first, answered(first), b"outcome")
    calls.rollback()
    assert calls.load("call-1") == first
    assert calls.request("call-1") == b"one"


def test_a_locked_file_is_an_error_within_the_time_and_harms_only_writes(path: Path) -> None:
    with opened(path, busy_timeout=0.01) as calls, closing(sqlite3.connect(path)) as other:
        first = calls.insert(row(), b"one")
        calls.commit()
        other.execute("BEGIN IMMEDIATE")
        for write in (calls.check, lambda: calls.insert(row(2), b"two")):
            with pytest.raises(StoreError, match="locked"):
                write()
            # Nothing had begun: there is nothing to roll back.
            assert calls.load("call-1") == first
        other.rollback()
        calls.check()
        calls.insert(row(2), b"two")
        calls.commit()


def test_a_damaged_file_is_an_error_and_not_an_answer(path: Path) -> None:
    with opened(path) as calls:
        for number in range(200):
            calls.insert(row(number), bytes(500))
        calls.commit()
    content = bytearray(path.read_bytes())
    content[4096 * 3 :] = b"\xa5" * (len(content) - 4096 * 3)
    path.write_bytes(content)

    def read() -> None:
        with opened(path) as calls:
            for number in range(200):
                calls.load(f"call-{number}")

    with pytest.raises((StoreError, ConfigError), match=r"damaged|malformed"):
        read()


def test_a_row_that_makes_no_sense_is_an_error_and_not_an_answer(calls: SqliteCalls) -> None:
    calls.insert(row(), b"one")
    calls.commit()
    connection_of(calls).execute("UPDATE calls SET state = 'sleeping'")
    with pytest.raises(StoreError, match="cannot be read"):
        calls.load("call-1")


def test_a_closed_store_says_so(path: Path) -> None:
    with opened(path) as calls:
        pass
    calls.close()
    with pytest.raises(StoreError, match="is closed"):
        calls.load("call-1")


LIMITED = """
import resource, signal, sys
from msgspec.structs import replace
sys.path.insert(0, sys.argv[2])
from test_sqlite_calls import row
from ringline.relay.sqlite_calls import SqliteCalls
from ringline.relay.store import StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
calls = SqliteCalls(sys.argv[1], erased_within=600)
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
told = 0
try:
    while told < 1000:
        calls.insert(row(told), bytes(5000))
        calls.commit()
        told += 1
except StoreError:
    calls.rollback()
    assert calls.load("call-0") is not None
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    calls.check()
    calls.insert(row(5000), b"again")
    calls.commit()
    print(told)
"""


def run_child(code: str, path: Path) -> "subprocess.Popen[str]":
    """Start a process that gets the file and this folder as arguments."""
    argv = [sys.executable, "-c", code, str(path), str(Path(__file__).parent)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def test_a_full_disk_loses_nothing_that_was_told(path: Path) -> None:
    with run_child(LIMITED, path) as child:
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    told = int(out)
    assert 0 < told < 1000
    with opened(path) as calls:
        assert all(calls.load(f"call-{number}") is not None for number in range(told))
        assert calls.load("call-5000") is not None
        assert calls.held_by("bob").calls == told + 1
        assert calls.repair() == []


KILLED = """
import sys
sys.path.insert(0, sys.argv[2])
from test_sqlite_calls import row
from ringline.relay.sqlite_calls import SqliteCalls
calls = SqliteCalls(sys.argv[1], erased_within=0.01)
for number in range(100_000):
    calls.insert(row(number), bytes(2000))
    calls.commit()
    print(number, flush=True)
"""


def test_every_call_that_was_told_is_there_after_a_kill(path: Path) -> None:
    with run_child(KILLED, path) as child:
        assert child.stdout is not None
        told = [int(child.stdout.readline()) for _ in range(40)]
        child.send_signal(signal.SIGKILL)
        told += [int(line) for line in child.stdout if line.endswith("\n")]
    with opened(path) as calls:
        assert [n for n in told if calls.load(f"call-{n}") is None] == []
        assert calls.held_by("bob").calls - len(told) in (0, 1)
        assert calls.repair() == []


def test_the_directory_and_the_calls_write_at_once_and_wait_their_turn(path: Path) -> None:
    errors: list[BaseException] = []

    def publish(directory: SqliteStore) -> None:
        try:
            for number in range(1, 41):
                card = CardPublished(
                    handle="alice",
                    card_id=f"card-{number}",
                    serial=number,
                    card=bytes(150),
                    card_sig=bytes(64),
                    succession=None,
                    at=number,
                )
                directory.write([card])
        except BaseException as error:
            errors.append(error)

    with closing(SqliteStore(str(path), realm="localhost")) as directory:
        # Patient here: this machine may be slow at any moment.
        with opened(path, busy_timeout=20, erased_within=0.002) as calls:
            thread = threading.Thread(target=publish, args=(directory,))
            thread.start()
            for number in range(40):
                calls.insert(row(number), bytes(100))
                calls.commit()
            thread.join(60)
            assert errors == []
            assert calls.held_by("bob").calls == 40
        assert len(directory.load()) == 40


# --- what is gone, and space


def forgotten_by_itself(path: Path) -> None:
    """Look until the secret is gone from the files, though nobody asked for it; 400 times at most."""
    for _ in range(400):
        if SECRET not in bytes_on_disk(path):
            return
        threading.Event().wait(0.025)
    assert SECRET not in bytes_on_disk(path)


@pytest.mark.parametrize("size", [1, 20_000])
@pytest.mark.parametrize("end", ["answered", "expired"])
def test_a_request_leaves_the_files_when_its_call_has_ended(path: Path, size: int, end: str) -> None:
    with opened(path, erased_within=0.02) as calls:
        before = calls.insert(row(), SECRET + bytes(size))
        calls.insert(row(2), b"neighbour")
        calls.commit()
        assert SECRET in bytes_on_disk(path)
        after = answered(before) if end == "answered" else replace(before, state=State.EXPIRED, finished_at=1)
        calls.swap(before, after, b"outcome" if end == "answered" else None)
        calls.commit()
        forgotten_by_itself(path)
        assert calls.request("call-2") == b"neighbour"


@pytest.mark.parametrize("way", ["acknowledged", "forgotten"])
def test_an_outcome_leaves_the_files_when_nobody_waits_for_it(path: Path, way: str) -> None:
    with opened(path, erased_within=600) as calls:
        before = calls.insert(row(), b"request")
        after = calls.swap(before, answered(before), SECRET + bytes(9_000))
        calls.commit()
        calls.shrink()
        assert SECRET in bytes_on_disk(path)
        if way == "acknowledged":
            calls.swap(after, replace(after, acknowledged=True))
        else:
            calls.forget(after)
        calls.commit()
        calls.shrink()
        assert SECRET not in bytes_on_disk(path)


def test_what_a_killed_relay_left_in_the_log_is_emptied_at_the_next_start(path: Path) -> None:
    with opened(path, erased_within=600) as calls:
        first = calls.insert(row(), SECRET)
        calls.commit()
        calls.swap(first, replace(first, state=State.EXPIRED))
        calls.commit()
        assert SECRET in bytes_on_disk(path)
        copy = path.parent / "after"
        copy.mkdir()
        for suffix in ("", "-wal"):
            (copy / f"relay.db{suffix}").write_bytes(path.with_name(f"relay.db{suffix}").read_bytes())
    assert SECRET in bytes_on_disk(copy / "relay.db")
    with opened(copy / "relay.db", erased_within=0.02):
        forgotten_by_itself(copy / "relay.db")


def test_the_file_shrinks_after_a_purge(path: Path) -> None:
    with opened(path, erased_within=600) as calls:
        rows = [calls.insert(row(number), bytes(40_000)) for number in range(300)]
        calls.commit()
        calls.shrink()
        full = path.stat().st_size
        assert full > 300 * 40_000
        assert calls.size() == full
        for stored in rows:
            calls.forget(stored)
        calls.commit()
        calls.shrink()
        assert path.stat().st_size < full / 8
        assert path.with_name("relay.db-wal").stat().st_size == 0


def test_a_long_reader_is_warned_of_and_the_log_shrinks_when_it_ends(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(upkeep, "_LOG_WARN_BYTES", 100_000)
    monkeypatch.setattr(upkeep, "_TRIES", 2)
    with opened(path, erased_within=600) as calls, closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM calls").fetchone()
        for number in range(10):
            calls.insert(row(number), bytes(40_000))
            calls.commit()
        calls.shrink()
        calls.shrink()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "another program reads" in caplog.text
        # Writes go on meanwhile.
        calls.insert(row(11), bytes(40_000))
        calls.commit()
        reader.rollback()
        calls.shrink()
        assert path.with_name("relay.db-wal").stat().st_size == 0


def test_a_long_log_is_emptied_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "LOG_BYTES", 200_000)
    with opened(path, erased_within=600) as calls:
        calls.shrink()
        for number in range(20):
            calls.insert(row(number), bytes(40_000))
            calls.commit()
        log = path.with_name("relay.db-wal")
        for _ in range(400):
            if log.stat().st_size < 200_000:
                break
            threading.Event().wait(0.025)
        assert log.stat().st_size < 200_000


def test_upkeep_that_fails_half_way_lets_go_of_the_file(path: Path) -> None:
    with opened(path, erased_within=600) as calls, closing(sqlite3.connect(path)) as other:
        calls.forget(calls.insert(row(1, caller="dora"), b"one"))
        calls.insert(row(2, submitted_at=2_000 + MEETING_MS), b"two")
        calls.commit()
        other.execute("CREATE TRIGGER stuck BEFORE DELETE ON pairs BEGIN SELECT raise(ABORT, 'stuck'); END")
        calls.shrink()
        calls.insert(row(3, submitted_at=3_000 + MEETING_MS), b"three")
        calls.commit()
        other.execute("DROP TRIGGER stuck")
        calls.shrink()
        assert other.execute("SELECT caller FROM pairs").fetchall() == [("alice",)]


def upkeep_of(store: SqliteCalls) -> upkeep.Upkeep:
    """The upkeep of the store's file."""
    assert store._file.upkeep is not None
    return store._file.upkeep


def troubled(store: SqliteCalls) -> bool:
    """True while the store says that deleted bytes are in the files for too long."""
    return store.trouble is not None


def denied(store: SqliteCalls, pragma: str) -> None:
    """Let SQLite refuse a pragma to the upkeep from now on; none at all when it is empty."""

    def authorize(action: int, name: str | None, *_: object) -> int:
        refused = action == sqlite3.SQLITE_PRAGMA and name == pragma
        return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK

    upkeep_of(store)._connection.set_authorizer(authorize)


def test_an_erasure_that_fails_is_warned_of_counted_and_taken_back_when_it_succeeds(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(path, erased_within=600) as calls:
        first = calls.insert(row(), SECRET)
        calls.commit()
        calls.swap(first, replace(first, state=State.EXPIRED))
        calls.commit()
        denied(calls, "wal_checkpoint")
        calls.shrink()
        calls.shrink()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "SQLITE_AUTH" in caplog.text
        assert troubled(calls)
        assert (calls.snapshot()["now_erasure_late"], calls.snapshot()["upkeep_failures"]) == (1, 2)
        assert SECRET in bytes_on_disk(path)
        denied(calls, "")
        calls.shrink()
        assert not troubled(calls)
        assert calls.snapshot()["now_erasure_late"] == 0
        assert "could be emptied again" in caplog.text
        assert SECRET not in bytes_on_disk(path)
        assert SECRET.decode() not in caplog.text


def test_an_erasure_that_is_late_is_warned_of(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(path, erased_within=600) as calls, closing(sqlite3.connect(path)) as reader:
        calls.insert(row(), b"one")
        calls.commit()
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM calls").fetchone()
        calls.insert(row(2), b"two")
        calls.commit()
        calls.shrink()
        assert not troubled(calls)
        upkeep_of(calls)._unerased_since = -1_000.0
        calls.shrink()
        assert troubled(calls)
        assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_bytes_are_erased_even_if_space_cannot_be_given_back(path: Path) -> None:
    with opened(path, erased_within=600) as calls:
        rows = [calls.insert(row(number), bytes(40_000)) for number in range(60)]
        rows.append(calls.insert(row(60), SECRET))
        calls.commit()
        denied(calls, "incremental_vacuum")
        for stored in rows:
            calls.forget(stored)
        calls.commit()
        calls.shrink()
        assert SECRET not in bytes_on_disk(path)
        assert troubled(calls)


def test_bytes_are_erased_and_space_is_given_back_though_turns_follow_each_other(path: Path) -> None:
    with opened(path, erased_within=0.02) as calls:
        rows = [calls.insert(row(number), bytes(40_000)) for number in range(60)]
        rows.append(calls.insert(row(60), SECRET))
        calls.commit()
        full = calls.size()
        for stored in rows:
            calls.forget(stored)
        calls.commit()
        number = 100
        # The next turn begins as soon as the last one is over: nobody ever finds the file at rest.
        while SECRET in bytes_on_disk(path) or path.stat().st_size > full / 2:
            for _ in range(10):
                calls.insert(row(number), b"")
                number += 1
                calls.commit()
            assert number < 20_000


# --- who waits for whom


def test_a_turn_waits_for_what_upkeep_does_and_not_for_what_it_does_next() -> None:
    gate = upkeep.Gate()
    order: list[str] = []
    held = threading.Event()

    def tend() -> None:
        with gate.aside(lambda: False):
            held.set()
            for _ in range(10_000):
                if gate._wanted:
                    break
                threading.Event().wait(0.001)
            order.append("upkeep")
        with gate.aside(lambda: False):
            order.append("upkeep again")

    thread = threading.Thread(target=tend)
    thread.start()
    assert held.wait(10)
    gate.enter()
    order.append("turn")
    gate.leave()
    thread.join(10)
    assert order == ["upkeep", "turn", "upkeep again"]


def checkpoints(calls: SqliteCalls, during: int, behind: int) -> list[str]:
    """Empty the log once; return what was said to SQLite, in order, with the commits of the relay in it.

    So many commits happen while the log is copied for the first time, and so many when that is done.
    """
    said: list[str] = []
    left = {"during": during, "behind": behind}
    numbers = iter(range(1_000, 2_000))
    gate = calls._file.gate
    aside = gate.aside

    def commit(when: str) -> None:
        while left[when]:
            left[when] -= 1
            said.append("commit")
            calls.insert(row(next(numbers)), b"x")
            calls.commit()

    def traced(statement: str) -> None:
        if "wal_checkpoint" in statement:
            said.append(statement.partition("(")[2].rstrip(")"))
            commit("during")

    @contextmanager
    def entered(_: upkeep.Gate, stopped: Callable[[], bool]) -> Generator[None]:
        commit("behind")
        with aside(stopped):
            yield

    run = upkeep_of(calls)._connection
    run.set_trace_callback(traced)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep.Gate, "aside", entered)
        calls.shrink()
    run.set_trace_callback(None)
    return said


@pytest.mark.parametrize(
    ("during", "behind", "said"),
    [
        (0, 0, "PASSIVE TRUNCATE"),
        (0, 1, "PASSIVE commit TRUNCATE"),
        (0, 2, "PASSIVE commit commit PASSIVE TRUNCATE"),
        (1, 0, "PASSIVE commit PASSIVE TRUNCATE"),
        (3, 1, "PASSIVE commit commit commit PASSIVE commit TRUNCATE"),
    ],
)
def test_a_turn_never_waits_for_more_than_one_turn_has_written(
    path: Path, during: int, behind: int, said: str
) -> None:
    """What is copied and flushed while the gate is held is what one commit added, at most."""
    with opened(path, erased_within=600) as calls:
        calls.shrink()
        calls.insert(row(), bytes(100_000))
        calls.commit()
        assert checkpoints(calls, during, behind) == said.split()
        assert path.with_name("relay.db-wal").stat().st_size == 0


def test_upkeep_flushes_nothing_of_its_own_while_a_turn_waits(calls: SqliteCalls) -> None:
    run = upkeep_of(calls)._connection
    assert run.execute("PRAGMA synchronous").fetchone() == (1,)
    assert run.execute("PRAGMA busy_timeout").fetchone() == (0,)


def test_a_store_is_closed_while_its_upkeep_waits_for_a_turn(path: Path) -> None:
    with opened(path, erased_within=0.002) as calls:
        calls.insert(row(), b"one")
        calls.commit()
        calls.insert(row(2), b"never committed")
        upkeep_of(calls).stop()
    with opened(path) as calls:
        assert calls.load("call-2") is None


# --- repair and upgrade


def test_repair_mends_counters_and_deletes_what_is_too_much(calls: SqliteCalls) -> None:
    first = calls.insert(row(1), b"one")
    calls.swap(first, answered(first), b"outcome")
    calls.insert(row(2), b"two")
    calls.insert(row(3, caller="cyd", listed=False), b"three")
    calls.commit()
    assert calls.repair() == []
    right = [calls.held_by("bob"), calls.held_by("bob", unlisted=True), calls.held_by_pair("alice", "bob")]
    run = connection_of(calls)
    run.execute("INSERT INTO requests VALUES (1, x'00')")
    run.execute("INSERT INTO outcomes VALUES (2, x'00')")
    run.execute("UPDATE mailboxes SET calls = 77 WHERE listed = 1")
    run.execute("DELETE FROM mailboxes WHERE listed = 0")
    run.execute("UPDATE pairs SET outcome_bytes = 0 WHERE caller = 'alice'")
    run.execute("INSERT INTO pairs VALUES ('zoe', 'bob', 1, 1, 1, 1)")
    assert calls.repair() == [
        "1 sealed requests of ended calls deleted",
        "1 sealed outcomes that nobody waits for deleted",
        "2 counters of mailboxes put right",
        "2 counters of pairs put right",
    ]
    assert calls.repair() == []
    now = [calls.held_by("bob"), calls.held_by("bob", unlisted=True), calls.held_by_pair("alice", "bob")]
    assert now == right
    assert calls.held_by_pair("zoe", "bob") == Held()


def test_repair_says_what_it_cannot_mend(calls: SqliteCalls) -> None:
    first = calls.insert(row(1), b"one")
    calls.swap(first, answered(first), b"outcome")
    calls.insert(row(2), b"two")
    calls.commit()
    connection_of(calls).execute("DELETE FROM requests")
    connection_of(calls).execute("DELETE FROM outcomes")
    lost = ["1 open calls have lost their sealed request", "1 calls have lost their sealed outcome"]
    assert calls.repair() == calls.repair() == lost


def test_a_counter_cannot_be_released_twice(calls: SqliteCalls) -> None:
    first = calls.insert(row(1), b"one")
    calls.commit()
    connection_of(calls).execute("UPDATE mailboxes SET calls = 0")
    calls.swap(first, answered(first), b"outcome")
    with pytest.raises(StoreError, match="CHECK"):
        calls.commit()
    assert calls.load("call-1") == first


def earlier(path: Path) -> None:
    """Write a file of the version before durable calls, by a program that knew nothing of vacuuming."""
    with closing(sqlite3.connect(path, isolation_level=None)) as run:
        run.execute("PRAGMA journal_mode=WAL")
        run.executescript(
            f"{MIGRATIONS[0]} INSERT INTO facts VALUES ('realm', 'localhost');"
            f"INSERT INTO handles VALUES ('alice', NULL);"
            f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version=1;"
        )


def test_an_earlier_file_is_copied_before_it_is_upgraded(path: Path) -> None:
    earlier(path)
    SqliteStore(str(path), realm="localhost").close()
    copy = path.with_name("relay.db.v1")
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as run:
        assert run.execute("PRAGMA user_version").fetchone() == (1,)
        assert run.execute("SELECT handle FROM handles").fetchall() == [("alice",)]
    with opened(path) as calls:
        run = connection_of(calls)
        assert run.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert run.execute("PRAGMA auto_vacuum").fetchone() == (2,)
        assert run.execute("SELECT handle FROM handles").fetchall() == [("alice",)]
        calls.insert(row(), b"one")
        calls.commit()
    assert sorted(file.name for file in path.parent.iterdir()) == ["relay.db", "relay.db.lock", "relay.db.v1"]


def test_without_a_copy_there_is_no_upgrade(path: Path) -> None:
    earlier(path)
    path.with_name("relay.db.v1.partial").mkdir()
    with pytest.raises(ConfigError, match="copy before it could not be written"):
        SqliteStore(str(path), realm="localhost")
    with closing(sqlite3.connect(path)) as run:
        assert run.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_new_file_needs_no_copy(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as run:
        prepare(run, str(path))
    assert not path.with_name("relay.db.v0").exists()


# --- cost


FILL = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
INSERT INTO calls SELECT
    n, 'call-' || n, 'caller-' || (n % 50), 'bob', 'card', 1, printf('%032x', n), 'c', x'00', NULL, n,
    9000 + n, 10, 0, 'queued', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 9000 + n
FROM numbers
"""


def reads(calls: SqliteCalls, count: int) -> dict[str, Callable[[], object]]:
    """What a relay asks for at any moment."""
    middle = count // 2
    return {
        "hand-out": lambda: calls.queued("bob", middle, 20),
        "hand-out from the start": lambda: calls.queued("bob", 0, 20),
        "who has started": calls.started,
        "expiry": lambda: calls.due(9_020, 20),
        "next expiry": calls.next_due,
        "status": lambda: calls.load(f"call-{middle}"),
        "request": lambda: calls.request(f"call-{middle}"),
        "outcome": lambda: calls.outcome(f"call-{middle}"),
        "trail": lambda: calls.trail(f"call-{middle}"),
        "repeat": lambda: calls.find(f"caller-{middle % 50}", "bob", f"{middle:032x}"),
        "page": lambda: calls.page("callee", "bob", [], middle, 20),
        "first page": lambda: calls.page("callee", "bob", [], None, 20),
        "page of a caller": lambda: calls.page("caller", "caller-1", [State.QUEUED], None, 20),
        "page of what there is none of": lambda: calls.page("callee", "bob", [State.FAILED], None, 20),
        "quota": lambda: calls.held_by("bob"),
        "quota of a pair": lambda: calls.held_by_pair("caller-1", "bob"),
        "starts": lambda: calls.starts("caller-1", "bob", 0),
        "meeting": lambda: calls.shared("caller-1", "bob", 0),
    }


def steps(calls: SqliteCalls, do: Callable[[], object]) -> int:
    """Return how many instructions of SQLite's machine it takes when no counter is known yet."""
    calls._known.clear()
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    connection_of(calls).set_progress_handler(step, 1)
    try:
        do()
    finally:
        connection_of(calls).set_progress_handler(None, 1)
    return count


def costs(path: Path, count: int) -> dict[str, int]:
    """Return the cost of everything with ``count`` calls in one queue."""
    with opened(path, erased_within=600) as calls:
        connection_of(calls).execute(FILL, (count,))
        connection_of(calls).execute("INSERT INTO requests SELECT seq, x'00' FROM calls")
        assert calls.repair() != []
    with opened(path, erased_within=600) as calls:
        assert calls.held_by("bob").calls == count
        found = {name: steps(calls, do) for name, do in reads(calls, count).items()}
        middle = calls.load(f"call-{count // 2}")
        assert middle is not None

        def life() -> None:
            new = calls.insert(row(count + 1, caller="caller-1"), b"new")
            calls.note_start("caller-1", "bob", 1)
            new = calls.swap(new, replace(new, state=State.STARTED, started_at=1, due_at=7))
            calls.swap(new, answered(new), b"outcome")
            calls.forget(middle)
            calls.commit()

        return found | {"a life": steps(calls, life)}


def test_a_hundred_thousand_queued_calls_make_nothing_slower(tmp_path: Path) -> None:
    few, many = costs(tmp_path / "few.db", 1_000), costs(tmp_path / "many.db", 100_000)
    assert all(cost > 0 for cost in few.values())
    assert {name: (few[name], cost) for name, cost in many.items() if cost > few[name] * 1.2 + 10} == {}
    assert max(many.values()) < 5_000


def test_no_read_passes_over_the_table_of_calls(calls: SqliteCalls) -> None:
    calls.insert(row(), b"one")
    calls.commit()
    statements: list[str] = []
    connection_of(calls).set_trace_callback(statements.append)
    for do in reads(calls, 2).values():
        do()
    connection_of(calls).set_trace_callback(None)
    assert len(statements) >= 18
    for statement in statements:
        plan = [str(step[3]) for step in connection_of(calls).execute(f"EXPLAIN QUERY PLAN {statement}")]
        scans = [step for step in plan if step.startswith("SCAN") and not step.startswith("SCAN found")]
        assert [scan for scan in scans if "calls" in scan or "requests" in scan or "outcomes" in scan] == []


def test_status_reads_never_touch_a_ciphertext(calls: SqliteCalls) -> None:
    calls.insert(row(), b"one")
    calls.commit()
    touched: set[str] = set()

    def authorize(action: int, table: str | None, *_: object) -> int:
        if action == sqlite3.SQLITE_READ and table is not None:
            touched.add(table)
        return sqlite3.SQLITE_OK

    connection_of(calls).set_authorizer(authorize)
    everything = reads(calls, 2)
    for name, do in everything.items():
        if name not in ("request", "outcome"):
            do()
    connection_of(calls).set_authorizer(None)
    assert "calls" in touched
    assert touched.isdisjoint({"requests", "outcomes"})


def test_a_turn_of_many_calls_is_one_commit(calls: SqliteCalls) -> None:
    statements: list[str] = []
    connection_of(calls).set_trace_callback(statements.append)
    for number in range(50):
        calls.insert(row(number), b"one")
    calls.commit()
    connection_of(calls).set_trace_callback(None)
    assert statements.count("COMMIT") == statements.count("BEGIN IMMEDIATE") == 1
    # Fifty calls of one pair change its counters once.
    assert len([text for text in statements if text.startswith("UPDATE pairs")]) == 1
