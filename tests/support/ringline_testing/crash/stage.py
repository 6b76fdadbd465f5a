"""One relay, one listener and any number of callers, as real processes that die and are started again."""

import multiprocessing
import os
import random
import shutil
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

from ringline_testing.crash.deeds import Said, run_deed
from ringline_testing.crash.parties import PRELOADED, run_listener, run_relay

__all__ = ["BOUND_S", "Party", "Stage", "StageError", "Template", "free_port", "preload"]

Party: TypeAlias = Literal["relay", "listener", "caller"]

BOUND_S: Final = 60.0
"""How long anything is waited for."""

_STARTS: Final = 12
_TICK_S: Final = 0.02
_context: Final = multiprocessing.get_context("forkserver")


class StageError(Exception):
    """What was waited for did not come: neither a word nor a death."""


def preload() -> None:
    """Have every process forked from one that has imported all."""
    _context.set_forkserver_preload(list(PRELOADED))


def free_port() -> int:
    """Return a port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Template:
    """Identities enrolled at a relay on a port, as files from which each stage begins."""

    folder: Path
    port: int

    @classmethod
    def make(cls, folder: Path) -> "Template":
        """Enrol alice, and bob with his mailbox on."""
        folder.mkdir(parents=True)
        template = cls(folder, free_port())
        with Stage(template, folder, {}) as stage:
            stage.up("relay")
            for who in ("alice", "bob"):
                said = stage.perform("enrol", who=who)
                assert said is not None
                assert said.exit == 0, said
            stage.down("relay")
        return template


@final
@dataclass
class Stage:
    """A folder of its own, with what stands on it. All of it ends with the context manager.

    ``settings`` are the relay's, ``faults`` maps a party to the point at which it dies once. Whoever dies
    is started again after a pause by ``chance``; callers are not, since a story does their deeds again.
    """

    template: Template
    folder: Path
    settings: Mapping[str, str]
    faults: dict[Party, str] = field(default_factory=dict[Party, str])
    chance: random.Random = field(default_factory=random.Random)
    capacity: int = 4
    died: dict[Party, str] = field(default_factory=dict[Party, str])
    """Who was killed so far, at which point."""
    starts: int = 0
    _running: dict[Party, ForkServerProcess] = field(default_factory=dict[Party, ForkServerProcess])
    _armed: dict[Party, str] = field(default_factory=dict[Party, str])
    _callers: set[ForkServerProcess] = field(default_factory=set[ForkServerProcess])
    _abandoned: bool = False

    @classmethod
    def copy(cls, template: Template, folder: Path, **members: Any) -> "Stage":
        """Begin on a copy of the template's files."""
        shutil.copytree(template.folder, folder)
        return cls(template, folder, **members)

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()
        for process in self._running.values():
            process.join(BOUND_S)
            process.close()

    def abandon(self) -> None:
        """Kill whatever runs, from any thread; nothing is started any more."""
        self._abandoned = True
        for process in (*self._running.values(), *self._callers):
            process.kill()

    def _check(self) -> None:
        if self._abandoned:
            raise StageError("it was broken off")

    @property
    def url(self) -> str:
        """The relay's base URL."""
        return f"http://127.0.0.1:{self.template.port}"

    @property
    def database(self) -> Path:
        """The relay's file."""
        return self.folder / "relay.db"

    @property
    def struck(self) -> bool:
        """True when every fault has killed its process."""
        return not self.faults

    def file(self, name: str) -> Path:
        """Return a file of alice or bob, e.g. ``alice/outbox.db``."""
        (found,) = (self.folder / "home").rglob(name)
        return found

    # --- starting and ending

    def up(self, party: Party) -> None:
        """Start the relay or the listener, and wait until it is ready, however often it dies before."""
        while party not in self._running:
            self._check()
            self.starts += 1
            if self.starts > _STARTS:
                raise StageError(f"{party} was started {_STARTS} times")
            ready, theirs = _context.Pipe(duplex=False)
            self._spawn(party, theirs)
            with closing(ready):
                self._await(ready, self._running[party])
            self.look()

    def _spawn(self, party: Party, told: Connection) -> None:
        given = (told, self._environment(party), self.folder / f"{party}.log")
        if party == "relay":
            process = _context.Process(
                target=run_relay, args=(*given, self.template.port, self.database, self.settings)
            )
        else:
            process = _context.Process(
                target=run_listener, args=(*given, self.url, self.folder, self.capacity)
            )
        self._armed[party] = self.faults.get(party, "")
        process.start()
        told.close()
        self._running[party] = process

    def down(self, party: Party, number: int = signal.SIGTERM) -> None:
        """End a party by a signal, and wait for its end."""
        process = self._running.get(party)
        if process is None or process.pid is None:
            return
        if process.is_alive():
            if number == signal.SIGKILL:
                self._armed.pop(party)  # a kill of ours is not the fault's
            os.kill(process.pid, number)
        process.join(BOUND_S)
        if process.is_alive():
            raise StageError(f"{party} does not end")
        self._buried(party)

    def restore(self) -> None:
        """Kill the relay and start it on its first backup, which knows of no call."""
        self.down("relay", signal.SIGKILL)
        for file in self.folder.glob("relay.db*"):
            file.unlink()
        for file in self.template.folder.glob("relay.db*"):
            shutil.copy2(file, self.folder)
        self.up("relay")

    # --- deaths

    def look(self) -> None:
        """See who has died, and start whoever it was again."""
        for party in list(self._running):
            process = self._running.get(party)
            if process is not None and not process.is_alive():
                self._buried(party)
                time.sleep(self.chance.random() * 0.1)
                self.up(party)

    def _buried(self, party: Party) -> None:
        """Note the end of a party's process, and whether it was its fault that struck."""
        process = self._running.pop(party)
        process.join(BOUND_S)
        self._strikes(party, process, self._armed.pop(party, ""))
        process.close()

    def _strikes(self, party: Party, process: ForkServerProcess, point: str) -> None:
        if process.exitcode == -signal.SIGKILL and point and self.faults.get(party) == point:
            self.died[party] = self.faults.pop(party)

    def _environment(self, party: Party) -> dict[str, str]:
        fault = self.faults.get(party)
        given = {"RINGLINE_HOME": str(self.folder / "home"), "RINGLINE_RELAY": self.url}
        return given | ({} if fault is None else {"RINGLINE_FAULT": fault})

    # --- deeds of callers

    def perform(
        self, deed: str, *, between: Callable[[Connection, str], None] | None = None, **members: Any
    ) -> Said | None:
        """Have a caller do something, and return what it said; None when it died over it.

        Meanwhile whoever else dies is started again. ``between`` gets each other word of the deed.
        """
        self._check()
        ours, theirs = _context.Pipe()
        party: Party = "caller"
        point = self.faults.get(party, "")
        log = self.folder / f"{party}.log"
        # What the other faults await is done by callers without a fault of their own.
        process = _context.Process(
            target=run_deed, args=(theirs, self._environment(party), log, self.url, deed, members)
        )
        process.start()
        self._callers.add(process)
        theirs.close()
        try:
            with closing(ours):
                said = self._hear(ours, process, between)
            process.join(BOUND_S)
            self._strikes(party, process, point)
            return said
        finally:
            self._callers.discard(process)
            process.kill()
            process.join(BOUND_S)
            process.close()

    def _hear(
        self, ours: Connection, process: ForkServerProcess, between: Callable[[Connection, str], None] | None
    ) -> Said | None:
        while True:
            word = self._await(ours, process, look=True)
            if word is None or isinstance(word, Said):
                return word
            if between is not None:
                between(ours, word)

    def _await(self, ours: Connection, process: ForkServerProcess, *, look: bool = False) -> Any:
        """Wait for a word or the end of a process; None when it ended without one."""
        end = time.monotonic() + BOUND_S
        while True:
            sentinels = {process.sentinel, *(other.sentinel for other in self._running.values())}
            wait([ours, *sentinels], timeout=1.0)
            if ours.poll():
                try:
                    return ours.recv()
                except EOFError:
                    return None
            if not process.is_alive():
                return None
            if look:
                self.look()
            if time.monotonic() > end:
                raise StageError("a process neither said a word nor ended")

    def until(self, condition: Callable[[], bool], bound_s: float = BOUND_S) -> None:
        """Wait for something that no process tells of; whoever dies meanwhile is started again."""
        end = time.monotonic() + bound_s
        while not condition():
            self.look()
            if time.monotonic() > end:
                raise StageError("it never came true")
            time.sleep(_TICK_S)

    # --- files

    def hold(self, file: Path) -> sqlite3.Connection:
        """Keep everybody from writing to a database until `let_go`."""
        connection = sqlite3.connect(file, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        return connection

    def let_go(self, held: sqlite3.Connection) -> None:
        """Let others write again."""
        held.execute("ROLLBACK")
        held.close()

    def rows(self, file: Path, select: str) -> list[tuple[Any, ...]]:
        """Read a database of a party that has ended."""
        if not file.exists():
            return []
        with closing(sqlite3.connect(file)) as connection:
            return connection.execute(select).fetchall()
