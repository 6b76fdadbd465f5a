"""One relay, one listener and any number of callers, as real processes that die and are started again."""

import multiprocessing
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

from ringline_testing.crash.child import Child
from ringline_testing.crash.deeds import Said, run_deed
from ringline_testing.crash.parties import PRELOADED, run_listener, run_relay
from ringline_testing.ports import lasting_port

__all__ = ["BOUND_S", "Party", "Stage", "StageError", "Template", "preload"]

Party: TypeAlias = Literal["relay", "listener", "caller"]

BOUND_S: Final = 60.0
"""How long anything is waited for."""

_STARTS: Final = 12
_PARTIES: Final[tuple[Party, ...]] = ("relay", "listener")
_TICK_S: Final = 0.02
_context: Final = multiprocessing.get_context("forkserver")


class StageError(Exception):
    """What was waited for did not come: neither a word nor a death."""


def preload() -> None:
    """Have every process forked from one that has imported all."""
    _context.set_forkserver_preload(list(PRELOADED))


@dataclass(frozen=True)
class Template:
    """Identities enrolled at a relay on a port, as files from which each stage begins."""

    folder: Path
    port: int

    @classmethod
    def make(cls, folder: Path) -> "Template":
        """Enrol alice, and bob with his mailbox on."""
        folder.mkdir(parents=True)
        template = cls(folder, lasting_port())
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
    diary: list[str] = field(default_factory=list[str])
    """Every start, end and deed, a line each."""
    unexplained: list[str] = field(default_factory=list[str])
    """Ends that neither a fault nor the stage has brought about, and deeds that ended without a word."""
    starts: int = 0
    _began: float = field(default_factory=time.monotonic)
    _running: dict[Party, Child] = field(default_factory=dict[Party, Child])
    _starting: set[Party] = field(default_factory=set[Party])
    _armed: dict[Party, str] = field(default_factory=dict[Party, str])
    _callers: set[Child] = field(default_factory=set[Child])
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
        for child in self._running.values():
            child.join(BOUND_S)
            child.close()

    def abandon(self) -> None:
        """Kill whatever runs, from any thread; nothing is started any more."""
        self._abandoned = True
        for child in (*self._running.values(), *self._callers):
            child.kill(signal.SIGKILL)

    def _note(self, line: str) -> None:
        self.diary.append(f"{time.monotonic() - self._began:6.2f} s  {line}")

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
            child = self._spawn(party, theirs)
            self._starting.add(party)
            try:
                with closing(ready):
                    # One that has met the relay waits for it when it dies: it is started again meanwhile.
                    self._await(ready, child)
            finally:
                self._starting.discard(party)
            self.look()

    def _spawn(self, party: Party, told: Connection) -> Child:
        given = (told, self._environment(party), self.folder / f"{party}.log")
        if party == "relay":
            child = Child(_context, run_relay, *given, self.template.port, self.database, self.settings)
        else:
            child = Child(_context, run_listener, *given, self.url, self.folder, self.capacity)
        told.close()
        self._armed[party] = self.faults.get(party, "")
        self._running[party] = child
        self._note(f"{party} {child.pid} starts {self._armed[party]}")
        return child

    def down(self, party: Party, number: int = signal.SIGTERM) -> None:
        """End a party by a signal, and wait for its end."""
        child = self._running.get(party)
        if child is None:
            return
        ours = number if child.runs else None
        child.kill(number)
        if child.join(BOUND_S) is None:
            raise StageError(f"{party} does not end")
        self._buried(party, ours)

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
        """See who has died, and start whoever it was again, the relay first: others wait for it."""
        dead: list[Party] = [
            party for party in _PARTIES if party not in self._starting and self._has_ended(party)
        ]
        for party in dead:
            self._buried(party)
        for party in dead:
            time.sleep(self.chance.random() * 0.1)
            self.up(party)

    def _has_ended(self, party: Party) -> bool:
        return party in self._running and not self._running[party].runs

    def _buried(self, party: Party, ours: int | None = None) -> None:
        """Note the end of a party's process, by a signal of ``ours`` or by its fault or by itself."""
        child = self._running.pop(party)
        code = child.join(BOUND_S)
        # A kill of ours is not the fault's.
        point = "" if ours == signal.SIGKILL else self._armed.pop(party, "")
        struck = self._strikes(party, code, point)
        self._note(f"{party} {child.pid} ended: {code}{' by its fault' if struck else ''}")
        # A listener that does not reach its relay at the start ends with an error of its own.
        if not struck and ours is None and (party, code) != ("listener", 1):
            self.unexplained.append(f"{party} {child.pid} ended with {code} by itself")
        child.close()

    def _strikes(self, party: Party, code: int | None, point: str) -> bool:
        """Whether a fault was due that has ended a process with ``code``; it is over then."""
        if code != -signal.SIGKILL or not point or self.faults.get(party) != point:
            return False
        self.died[party] = self.faults.pop(party)
        return True

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
        child = Child(_context, run_deed, theirs, self._environment(party), log, self.url, deed, members)
        theirs.close()
        self._callers.add(child)
        self._note(f"{party} {child.pid} does {deed} {members} {point}")
        try:
            with closing(ours):
                said = self._hear(ours, child, between)
            code = child.join(BOUND_S)
            struck = self._strikes(party, code, point)
            self._note(f"{party} {child.pid} ended: {code}{' by its fault' if struck else ''}; said {said}")
            if said is None and not struck:
                self.unexplained.append(f"{party} {child.pid} ended {deed} with {code} and without a word")
            return said
        finally:
            self._callers.discard(child)
            child.kill(signal.SIGKILL)
            if child.join(BOUND_S) is not None:
                child.close()

    def _hear(
        self, ours: Connection, child: Child, between: Callable[[Connection, str], None] | None
    ) -> Said | None:
        while True:
            word = self._await(ours, child)
            if word is None or isinstance(word, Said):
                return word
            if between is not None:
                between(ours, word)

    def _await(self, ours: Connection, child: Child) -> Any:
        """Wait for a word or the end of a process; None when it ended without one.

        Whoever else dies meanwhile is started again.
        """
        end = time.monotonic() + BOUND_S
        while True:
            sentinels = {child.sentinel, *(other.sentinel for other in self._running.values())}
            wait([ours, *sentinels], timeout=1.0)
            # In this order: whoever has ended says nothing any more, so a word of his is here by now.
            ended = not child.runs
            if ours.poll():
                try:
                    return ours.recv()
                except EOFError:
                    return None
            if ended:
                return None
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
