"""The file of a journal: whose it is, and what it says when it cannot be used."""

import errno
import fcntl
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import ringline_testing
from ringline.listener.entries import EntryState
from ringline.listener.journal import Journal
from ringline.protocol.errors import ConfigError
from ringline.protocol.faults import VARIABLE
from ringline.protocol.names import is_uuid4
from ringline_testing.journals import NOW, Shelf

HOLDER = """
import sys, time
from pathlib import Path
from ringline.listener.journal import Journal
journal = Journal(Path(sys.argv[1]))
print(journal.instance, flush=True)
sys.stdin.read()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    """Another process that holds the journal until its stdin ends."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def refusal(path: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        Journal(path)
    assert caught.value.next_step
    return caught.value


def test_the_file_is_for_its_owner_alone(shelf: Shelf) -> None:
    shelf.journal()
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in shelf.path.parent.iterdir()}
    assert shelf.path.name in modes
    assert set(modes.values()) == {0o600}


def test_commits_are_on_disk_at_return(shelf: Shelf) -> None:
    run = shelf.journal()._file.connection
    assert run.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert run.execute("PRAGMA synchronous").fetchone() == (2,)
    assert run.execute("PRAGMA foreign_keys").fetchone() == (1,)
    assert run.execute("PRAGMA secure_delete").fetchone() == (1,)


class TestInstance:
    """RL-TRANSPORT-015: minted with the journal, and only that journal's."""

    def test_it_stays_with_the_file(self, shelf: Shelf) -> None:
        instance = shelf.journal().instance
        assert is_uuid4(instance)
        assert shelf.reopen().instance == instance
        assert shelf.crash().instance == instance

    def test_a_copy_is_another_instance(self, shelf: Shelf) -> None:
        instance = shelf.journal().instance
        shelf.close()
        copy = shelf.path.with_name("copy.db")
        shutil.copy2(shelf.path, copy)
        with Journal(copy, machine=shelf.machine) as other:
            assert other.instance != instance
            copied = other.instance
        with Journal(copy, machine=shelf.machine) as other:
            assert other.instance == copied

    def test_a_restored_backup_is_another_instance(self, shelf: Shelf) -> None:
        instance = shelf.journal().instance
        shelf.close()
        backup = shelf.path.with_name("backup")
        shutil.copy2(shelf.path, backup)
        os.replace(backup, shelf.path)
        assert shelf.journal().instance != instance

    def test_another_computer_is_another_instance(self, shelf: Shelf) -> None:
        instance = shelf.journal().instance
        shelf.close()
        shelf.machine = "another computer"
        assert shelf.journal().instance != instance

    def test_without_a_file_each_process_is_its_own(self) -> None:
        with Journal(None) as one, Journal(None) as other:
            assert is_uuid4(one.instance)
            assert one.instance != other.instance
            assert not one.persistent


class TestOneProcess:
    """RL-TRANSPORT-017: one process at a time holds a journal."""

    def test_a_second_process_is_told_who_holds_it(self, shelf: Shelf) -> None:
        process = holder(shelf.path)
        try:
            assert is_uuid4(first_line(process))
            error = refusal(shelf.path)
            assert "another process is listening with this identity" in str(error)
        finally:
            process.communicate(timeout=30)

    def test_the_lock_is_the_operating_systems(self, shelf: Shelf) -> None:
        with shelf.path.with_name("journal.db.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert "another process is listening" in str(refusal(shelf.path))
        with Journal(shelf.path):
            pass

    def test_another_name_of_the_file_is_the_same_file(self, shelf: Shelf) -> None:
        shelf.journal()
        alias = shelf.path.with_name("alias.db")
        alias.symlink_to(shelf.path)
        assert "another process is listening" in str(refusal(alias))
        hard = shelf.path.with_name("hard.db")
        os.link(shelf.path, hard)
        assert "another process is listening" in str(refusal(hard))

    def test_a_process_that_was_killed_holds_nothing(self, shelf: Shelf) -> None:
        process = holder(shelf.path)
        instance = first_line(process)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        with Journal(shelf.path) as journal:
            assert journal.instance == instance

    def test_a_closed_journal_is_free(self, shelf: Shelf) -> None:
        shelf.journal()
        shelf.close()
        with Journal(shelf.path):
            pass


class TestUnusable:
    """Each fault is one message that names the file and the next step."""

    def test_a_file_that_others_can_read(self, shelf: Shelf) -> None:
        shelf.journal()
        shelf.close()
        shelf.path.chmod(0o640)
        error = refusal(shelf.path)
        assert "mode 0640" in str(error)
        assert error.next_step == f"chmod 600 {shelf.path}"

    def test_something_that_is_no_database(self, shelf: Shelf) -> None:
        shelf.path.write_text("dear diary " * 500)
        shelf.path.chmod(0o600)
        error = refusal(shelf.path)
        assert "damaged" in str(error)
        assert shelf.path.read_text() == "dear diary " * 500

    def test_a_damaged_page(self, shelf: Shelf) -> None:
        shelf.journal()
        shelf.close()
        data = bytearray(shelf.path.read_bytes())
        data[4096:8192] = b"\xff" * 4096
        shelf.path.write_bytes(data)
        assert "damaged" in str(refusal(shelf.path))
        assert shelf.path.read_bytes() == bytes(data)

    def test_the_database_of_another_program(self, shelf: Shelf) -> None:
        with sqlite3.connect(shelf.path) as other:
            other.execute("CREATE TABLE notes (text)")
        other.close()
        shelf.path.chmod(0o600)
        assert "another program" in str(refusal(shelf.path))

    def test_a_journal_of_a_later_version(self, shelf: Shelf) -> None:
        shelf.journal()._file.connection.execute("PRAGMA user_version = 99")
        shelf.close()
        assert "later version" in str(refusal(shelf.path))

    def test_a_folder_that_does_not_exist(self, tmp_path: Path) -> None:
        error = refusal(tmp_path / "nowhere" / "journal.db")
        assert os.strerror(errno.ENOENT) in str(error)

    def test_something_that_is_no_file(self, tmp_path: Path) -> None:
        (tmp_path / "journal.db").mkdir()
        assert "journal.db" in str(refusal(tmp_path / "journal.db"))

    def test_a_folder_that_cannot_be_written(self) -> None:
        # Root may write wherever modes forbid it, but nobody creates files in /proc.
        if not Path("/proc/self").exists():
            pytest.skip("needs /proc")
        assert "cannot be opened for writing" in str(refusal(Path("/proc/self/journal.db")))


STEPS = """
import sys
from pathlib import Path
from ringline.listener.journal import Journal
from ringline_testing.journals import DONE, NOW, take

journal = Journal(Path(sys.argv[1]))
def step(name):
    if name == sys.argv[2]:
        print(name, flush=True)
        sys.stdin.read()

step("open")
journal.opening("call-1", NOW + 1_000_000)
step("opening")
entry = take(journal).entry
step("taken")
journal.begin(entry.id, granted=None, mint=None, now=NOW)
step("begun")
journal.finish(entry.id, DONE, turn=None, now=NOW)
step("finished")
"""


@pytest.mark.parametrize(
    ("step", "state", "deaths"),
    [
        ("open", None, 0),
        ("opening", None, 1),
        ("taken", EntryState.TAKEN, 1),
        ("begun", EntryState.BEGUN, 0),
        ("finished", EntryState.FINISHED, 0),
    ],
)
def test_a_kill_at_each_step_leaves_what_was_true(
    shelf: Shelf, step: str, state: EntryState | None, deaths: int
) -> None:
    support = Path(ringline_testing.__file__).parents[1]
    process = subprocess.Popen(
        [sys.executable, "-c", STEPS, str(shelf.path), step],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(support)},
    )
    assert first_line(process) == step
    process.kill()
    process.communicate(timeout=30)
    entry = shelf.journal().find("call-1")
    assert (None if entry is None else entry.state) is state
    assert shelf.journal().opening("call-1", NOW) == deaths


# Two calls of one message; the work was cancelled for the first, and the second asks.
CONFIRM = """
import sys
from pathlib import Path
from ringline.listener.journal import Journal
from ringline_testing.journals import NOW, take

journal = Journal(Path(sys.argv[1]))
entry = take(journal).entry
journal.cancel(entry.id, {"call-1": "pending"}, now=NOW)
take(journal, "call-2")
journal.confirm("call-2", "pending")
"""


@pytest.mark.parametrize(("fault", "confirmed"), [("confirm.before", None), ("confirm.after", "pending")])
def test_a_kill_while_a_cancellation_is_confirmed_again_leaves_what_was_true(
    shelf: Shelf, fault: str, confirmed: str | None
) -> None:
    support = Path(ringline_testing.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", CONFIRM, str(shelf.path)],
        env={**os.environ, "PYTHONPATH": str(support), VARIABLE: fault},
        timeout=30,
    )
    assert done.returncode == -signal.SIGKILL
    entry = shelf.journal().find("call-2")
    assert entry is not None
    assert entry.state is EntryState.CANCELLED
    assert entry.offers["call-2"].cancelled == confirmed
