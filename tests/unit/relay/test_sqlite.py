"""The store on real files: what it keeps, what it refuses to open, and what it says."""

import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ringline.protocol.errors import ConfigError
from ringline.protocol.shapes import Policy
from ringline.relay.migrations import APPLICATION_ID, MIGRATIONS
from ringline.relay.sqlite import MEMORY, SqliteStore
from ringline.relay.store import (
    CardPublished,
    CardRevoked,
    Change,
    PolicySet,
    PrekeyPublished,
    StoreError,
)


def card(number: int = 1, handle: str = "alice", **members: Any) -> CardPublished:
    """Return a card as the directory hands it over; the store does not look inside."""
    values: dict[str, Any] = {
        "handle": handle,
        "card_id": f"{handle}-{number}",
        "serial": number,
        "card": bytes([number]) * 150,
        "card_sig": b"s" * 64,
        "succession": None,
        "at": 1_000 + number,
    }
    return CardPublished(**(values | members))


def prekey(epoch: int = 5, number: int = 1, handle: str = "alice") -> PrekeyPublished:
    """Return a prekey statement under that handle's card of that number."""
    return PrekeyPublished(
        handle=handle,
        card_id=f"{handle}-{number}",
        epoch=epoch,
        prekey=b"p" * epoch,
        prekey_sig=b"q" * 64,
        at=2_000,
    )


def revoked(number: int = 1, next_ipk: bytes | None = None) -> CardRevoked:
    """Return a revocation of one of alice's cards."""
    return CardRevoked(
        handle="alice",
        card_id=f"alice-{number}",
        reason=1,
        ts=9,
        by="identity" if next_ipk is None else "next",
        signature=b"r" * 64,
        next_ipk=next_ipk,
        at=3_000 - number,
    )


def policy(**members: Any) -> PolicySet:
    """Return alice's policy."""
    values: dict[str, Any] = {"offline": False, "accept": "listed", "allow": ["bob"], "block": []}
    return PolicySet(handle="alice", policy=Policy(**(values | members)))


@contextmanager
def opened(path: Path | str, realm: str = "localhost", **options: Any) -> Generator[SqliteStore]:
    """Open a store and close it."""
    store = SqliteStore(str(path), realm=realm, **options)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "relay.db"


@pytest.mark.parametrize("where", ["file", "memory"])
def test_what_is_written_is_loaded_in_an_order_that_can_be_applied(path: Path, where: str) -> None:
    changes: list[Change] = [
        card(1, "bob"),
        card(1),
        prekey(),
        card(2, succession=b'{"ts":1}'),
        prekey(7, 2),
        revoked(1),
        revoked(2, next_ipk=b"n" * 32),
        policy(accept="anyone", block=["mallory"]),
    ]
    with opened(MEMORY if where == "memory" else path) as store:
        assert store.load() == []
        for change in changes:
            store.write([change])
        loaded = store.load()
    if where == "file":
        with opened(path) as store:
            assert store.load() == loaded
    # The latest prekey and policy of each handle, every card and revocation; cards by serial.
    assert sorted(map(repr, loaded)) == sorted(repr(change) for change in changes if change != prekey())
    cards = [change for change in loaded if isinstance(change, CardPublished)]
    assert loaded[: len(cards)] == cards
    assert [c.serial for c in cards if c.handle == "alice"] == [1, 2]
    # Revocations in the order in which they came.
    assert [c.card_id for c in loaded if isinstance(c, CardRevoked)] == ["alice-2", "alice-1"]


def test_changes_are_written_together_or_not_at_all(path: Path) -> None:
    with opened(path) as store:
        with pytest.raises(StoreError):
            store.write([card(1), prekey(5, number=9)])
        assert store.load() == []
        with pytest.raises(StoreError):
            store.write([card(1), card(2, card_id="alice-1")])
        assert store.load() == []
        store.write([card(1), prekey()])
        assert len(store.load()) == 2


def test_the_file_is_durable_checked_and_readable_for_its_owner_alone(path: Path) -> None:
    before = os.umask(0)
    try:
        with opened(path) as store:
            store.write([card()])
            connection = store._connection
            assert connection is not None
            pragmas = {
                name: connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous", "foreign_keys", "application_id", "user_version")
            }
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "application_id": APPLICATION_ID,
        "user_version": len(MIGRATIONS),
    }
    assert set(modes) >= {"relay.db", "relay.db-wal", "relay.db.lock"}
    assert set(modes.values()) == {0o600}


def test_every_table_is_strict(path: Path) -> None:
    with opened(path) as store:
        assert store._connection is not None
        tables = store._connection.execute("PRAGMA table_list").fetchall()
    ours = [row for row in tables if not row[1].startswith("sqlite_")]
    assert len(ours) >= 14
    assert all(row[5] == 1 for row in ours)


def refusal(path: Path | str, realm: str = "localhost", **options: Any) -> ConfigError:
    """Return the error with which opening ends; it must name the file and the next step."""
    with pytest.raises(ConfigError) as caught, opened(path, realm, **options):
        pass
    assert caught.value.next_step
    assert caught.value.exit_code == 2
    return caught.value


def test_one_relay_per_file(path: Path) -> None:
    with opened(path):
        assert "another relay is using" in str(refusal(path))
    with opened(path):
        pass


def test_the_lock_of_a_killed_relay_is_gone_with_it(path: Path) -> None:
    code = (
        "import sys; from ringline.relay.sqlite import SqliteStore\n"
        "store = SqliteStore(sys.argv[1], realm='localhost'); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        assert "another relay" in str(refusal(path))
        process.send_signal(signal.SIGKILL)
    with opened(path):
        pass


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    error = refusal(tmp_path / "nowhere" / "relay.db")
    assert "folder" in str(error)
    assert error.next_step == f"mkdir -p {tmp_path / 'nowhere'}"


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    assert "is a folder" in str(refusal(tmp_path))


def test_a_place_that_cannot_be_written_is_named() -> None:
    assert "cannot be opened for writing" in str(refusal("/proc/relay.db"))


SOMEBODY = (
    "import os, sys; from ringline.relay.sqlite import SqliteStore\n"
    "from ringline.protocol.errors import ConfigError\n"
    "os.setgid(65534); os.setuid(65534)\n"
    "try: SqliteStore(sys.argv[1], realm='localhost')\n"
    "except ConfigError as error: print(error)\n"
)


def told(path: Path) -> str:
    """Return what somebody is told who may not do everything, as root may."""
    if os.geteuid() != 0:
        return str(refusal(path))
    argv = [sys.executable, "-c", SOMEBODY, str(path)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout


def test_a_read_only_file_is_named(path: Path) -> None:
    with opened(path):
        pass
    for folder in list(path.parents)[:-2]:
        folder.chmod(folder.stat().st_mode | 0o055)
    path.chmod(0o444)
    path.with_name("relay.db.lock").chmod(0o666)
    assert f"{path} cannot be opened for writing: Permission denied" in told(path)


def test_a_folder_that_may_not_be_entered_is_no_traceback(path: Path) -> None:
    path.parent.chmod(0o000)
    try:
        assert f"{path} cannot be opened for writing: Permission denied" in told(path)
    finally:
        path.parent.chmod(0o700)


@pytest.mark.parametrize("content", [b"not a database at all, but long enough for one" * 30, b"\x00" * 4096])
def test_a_file_that_is_no_database_is_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert "damaged or is no SQLite database" in str(refusal(path))
    assert path.read_bytes() == content


def test_a_damaged_database_is_named(path: Path) -> None:
    with opened(path) as store:
        store.write([card(number, f"h{number}") for number in range(1, 200)])
    content = bytearray(path.read_bytes())
    content[4096 * 3 :] = b"\xff" * (len(content) - 4096 * 3)
    path.write_bytes(content)
    assert "damaged" in str(refusal(path))


def test_a_row_without_its_parent_is_damage(path: Path) -> None:
    with opened(path) as store:
        store.write([card(), prekey()])
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM cards")
    connection.close()
    assert "damaged" in str(refusal(path))


def test_another_programs_database_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (text)")
    connection.close()
    content = path.read_bytes()
    assert "another program" in str(refusal(path))
    assert path.read_bytes() == content


def test_a_database_of_a_later_version_is_left_alone(path: Path) -> None:
    with opened(path):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
    connection.close()
    assert "later version" in str(refusal(path))


def test_a_database_belongs_to_one_realm(path: Path) -> None:
    with opened(path, "localhost"):
        pass
    assert "belongs to the realm localhost" in str(refusal(path, "relay.example"))


def test_another_program_that_holds_the_file_is_named(path: Path) -> None:
    with opened(path):
        pass
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("PRAGMA locking_mode=EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    try:
        assert "another program holds" in str(refusal(path, busy_timeout=0.05))
    finally:
        holder.close()


def test_a_write_waits_for_another_program_and_then_says_so(path: Path) -> None:
    with opened(path, busy_timeout=0.05) as store:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            store.write([card()])
        with pytest.raises(StoreError, match="locked"):
            store.check()
        holder.close()
        store.write([card()])
        store.check()


def test_a_full_disk_is_said_and_nothing_is_written(path: Path) -> None:
    with opened(path) as store:
        store.write([card()])
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            with pytest.raises(StoreError):
                store.write([card(2, card=b"x" * 100_000)])
            with pytest.raises(StoreError):
                store.check()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        assert store.load() == [card()]
        store.write([card(2)])
    with opened(path) as store:
        assert store.load() == [card(), card(2)]


def test_a_file_that_was_moved_away_is_noticed(path: Path) -> None:
    with opened(path) as store:
        store.check()
        path.rename(path.with_name("elsewhere.db"))
        with pytest.raises(StoreError, match="moved or deleted"):
            store.check()


def test_a_closed_store_says_so() -> None:
    with opened(MEMORY) as store:
        pass
    store.close()
    for use in (store.load, store.check, lambda: store.write([card()])):
        with pytest.raises(StoreError, match="closed"):
            use()


def test_a_row_that_cannot_be_read_is_said(path: Path) -> None:
    with opened(path) as store:
        store.write([card(), policy()])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE handles SET policy = '{}'")
    connection.close()
    with opened(path) as store, pytest.raises(StoreError, match="cannot be read"):
        store.load()
