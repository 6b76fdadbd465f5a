"""The `ringline` command as real processes: started, watched line by line, and ended with the test."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringline_testing.nursery import Child, nursery

__all__ = ["BOUND_S", "RINGLINE", "Running", "Scene", "processes_with", "until"]

RINGLINE = str(Path(sys.executable).with_name("ringline"))
BOUND_S = 120
"""How long anything is waited for, in seconds."""


class Running:
    """One process in a session of its own. What it writes is read as it comes."""

    def __init__(self, process: "subprocess.Popen[bytes] | Child") -> None:
        self.process = process
        self.told: list[str] = []
        """The lines of its standard error."""
        self.err = b""
        """Its standard error so far, line by line."""
        self.out = b""
        """Its standard output so far."""
        self._orphans: list[int] = []
        self._news = threading.Condition()
        self._readers = [threading.Thread(target=self._read_told), threading.Thread(target=self._read_out)]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self.process.pid

    def says(self, pattern: str, after: int = 0) -> re.Match[str]:
        """Wait for a line of its standard error that matches, from line ``after`` on."""

        def found() -> re.Match[str] | None:
            return next((match for line in self.told[after:] if (match := re.search(pattern, line))), None)

        with self._news:
            self._news.wait_for(lambda: found() is not None or self._over(), BOUND_S)
            match = found()
        assert match is not None, f"it never said {pattern!r}: {self.told}"
        return match

    def prints(self, text: bytes) -> None:
        """Wait for ``text`` on its standard output."""
        with self._news:
            self._news.wait_for(lambda: text in self.out or self._over(), BOUND_S)
        assert text in self.out, f"it never printed {text!r}: {self.out!r} {self.told}"

    def feed(self, given: bytes) -> None:
        """Write this to its standard input, if it has one, as far as it is read, and end it."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), self.process.stdin as pipe:
                pipe.write(given)

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        if number == signal.SIGKILL:
            self._orphans += _descendants(self.pid)
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for its end and return the exit code, negative for the signal that ended it."""
        code = self.process.wait(BOUND_S)
        for reader in self._readers:
            reader.join(BOUND_S)
        return code

    def stop(self) -> None:
        """End it and all that it started, whatever it takes."""
        # The programs of a listener are in groups of their own, and outlive one that is killed.
        self._orphans += _descendants(self.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        for orphan in self._orphans:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(orphan, signal.SIGKILL)
            os.close(orphan)
        self._orphans.clear()
        self.end()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def _over(self) -> bool:
        return not self._readers[0].is_alive()

    def _read_told(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.err += line
                self.told.append(line.decode().rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        while piece := os.read(self.process.stdout.fileno(), 65_536):
            with self._news:
                self.out += piece
                self._news.notify_all()


@dataclass
class Scene:
    """A home, a relay and whoever else runs in one test. All of it ends with the context manager."""

    folder: Path
    relay: str = ""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    _running: list[Running] = field(default_factory=list[Running])

    def __enter__(self) -> "Scene":
        return self

    def __exit__(self, *_: object) -> None:
        for running in reversed(self._running):
            running.stop()

    @property
    def home(self) -> Path:
        """The state folder of every command of the scene."""
        return self.folder / "home"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of every process of the scene."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("RINGLINE_")}
        given = {"RINGLINE_HOME": str(self.home)} | ({"RINGLINE_RELAY": self.relay} if self.relay else {})
        return clean | given | dict(self.variables)

    def start(self, *words: str, program: str = RINGLINE, stdin: int = subprocess.DEVNULL) -> Running:
        """Start a command that lasts.

        `ringline` is forked from the nursery, unless the scene has variables of its own, which may matter
        already when its modules are loaded.
        """
        process = (
            nursery().fork(words, variables=self.environment, folder=self.folder, stdin=stdin)
            if program == RINGLINE and not self.variables
            else subprocess.Popen(
                [program, *words],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
            )
        )
        running = Running(process)
        self._running.append(running)
        return running

    def start_relay(self, *settings: str, port: int = 0, words: tuple[str, ...] = ()) -> Running:
        """Start a relay whose budgets do not end a test, wait for it, and make it the scene's."""
        given = ("CALLS_PER_HOUR=0", "CALLS_PER_PAIR_PER_HOUR=0", "KEY_FETCHES_PER_MINUTE=0", *settings)
        options = [word for setting in given for word in ("--set", setting)]
        running = self.start("relay", "dev", "--port", str(port), *options, *words)
        self.relay = running.says(r"(http://127\.0\.0\.1:\d+)/v1/relay")[1]
        return running

    def start_listener(self, name: str, *run: str, options: tuple[str, ...] = ()) -> Running:
        """Start a listener with a program and wait until it is ready."""
        running = self.start("listen", "--as", name, *options, "--run", *run)
        running.says(r"^● ready")
        return running

    def run(self, *words: str, given: bytes | None = None) -> "subprocess.CompletedProcess[bytes]":
        """Run a command to its end; without ``given`` its standard input is the null device."""
        running = self.start(*words, stdin=subprocess.DEVNULL if given is None else subprocess.PIPE)
        feeder = threading.Thread(target=running.feed, args=(given or b"",))
        feeder.start()
        try:
            code = running.end()
        finally:
            running.stop()
            self._running.remove(running)
            feeder.join(BOUND_S)
        return subprocess.CompletedProcess(["ringline", *words], code, running.out, running.err)

    def document(self, *words: str, given: bytes | None = None) -> dict[str, Any]:
        """Run a command with ``--json`` and return its one document, exit code and all."""
        answer = self.run(*words, "--json", given=given)
        assert answer.stdout.count(b"\n") == 1, answer
        document: dict[str, Any] = json.loads(answer.stdout)
        assert document["ok"] == (answer.returncode == 0)
        return document


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that no process tells of."""
    end = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


def _descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that these have, as open descriptors.

    A number may be another process's by the time it is used.
    """
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, children.read_text().split()):
                found += [os.pidfd_open(child), *_descendants(child)]
    return found


def processes_with(text: str) -> list[int]:
    """Return the processes of this computer that have ``text`` in their command line."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if text.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found
