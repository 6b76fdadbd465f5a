"""The SQLite store of durable calls beside its model: broken-off statements, lost processes and all.

``RINGLINE_EXAMPLES=2000`` makes a long run of it.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from ringline.relay.call_store import CallRow, CallStore, Held
from ringline.relay.call_store_machine import call_store_machine
from ringline.relay.memory_calls import MemoryCalls
from ringline.relay.sqlite_calls import SqliteCalls

EXAMPLES = int(os.environ.get("RINGLINE_EXAMPLES", "15"))
SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


class SqliteSubject:
    """The real store on a real file."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ringline-store-"))
        self._generation = 0
        self.store = self._open()

    def _open(self) -> SqliteCalls:
        return SqliteCalls(str(self._folder / f"{self._generation}.db"))

    def crash(self) -> None:
        """The bytes of the files at this moment are all that is left, as after ``kill -9``."""
        before = self._folder / f"{self._generation}.db"
        self._generation += 1
        after = self._folder / f"{self._generation}.db"
        lost = self.store
        assert lost._file.upkeep is not None
        lost._file.upkeep.stop()  # else it could move the log into the file between the two copies
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{before}{suffix}", f"{after}{suffix}")
        self.store = self._open()
        lost.close()

    def fail_after(self, steps: int | None) -> None:
        """SQLite gives up in the middle of a statement, at any instruction of it."""
        connection = self.store._file.connection
        assert connection is not None
        if steps is None:
            connection.set_progress_handler(None, 1)
            return
        left = steps

        def step() -> bool:
            nonlocal left
            left -= 1
            return left <= 0

        connection.set_progress_handler(step, 1)

    def close(self) -> None:
        self.store.close()
        shutil.rmtree(self._folder)


TestSqliteCalls = call_store_machine(SqliteSubject).TestCase
TestSqliteCalls.settings = SETTINGS
TestSqliteCalls = pytest.mark.slow(TestSqliteCalls)


class MemorySubject:
    """A store in memory survives a crash as its last commit would; it cannot fail."""

    def __init__(self, store: CallStore) -> None:
        self.store = store

    def crash(self) -> None:
        self.store.rollback()

    def fail_after(self, steps: int | None) -> None:
        """Nothing in it can."""

    def close(self) -> None:
        self.store.close()


class Faulty:
    """A store in memory with one fault."""

    def __init__(self, fault: str) -> None:
        self._calls = MemoryCalls()
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._calls, name)

    def rollback(self) -> None:
        if self._fault == "rollback":
            self._calls.commit()
        self._calls.rollback()

    def swap(self, before: CallRow, after: CallRow, outcome: bytes | None = None) -> CallRow:
        if self._fault == "versions":
            before = self._calls.load(before.call_id) or before
        return self._calls.swap(before, after, outcome)

    def held_by(self, callee: str, *, unlisted: bool = False) -> Held:
        return self._calls.held_by(callee, unlisted=unlisted and self._fault != "quotas")


@pytest.mark.parametrize("fault", ["rollback", "versions", "quotas"])
def test_the_machine_finds_the_fault_of_another_store(fault: str) -> None:
    machine = call_store_machine(lambda: MemorySubject(cast("CallStore", Faulty(fault))))
    # Only that it is found matters here, not the shortest way to it.
    quick = settings(SETTINGS, max_examples=300, phases=[Phase.generate], derandomize=True, database=None)
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(machine, settings=quick)
