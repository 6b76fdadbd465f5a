"""A process of the stage, whose end every thread learns.

The exit code of a forked process comes through a pipe and can be read once. ``multiprocessing`` reads it of
*every* process whenever any thread starts another one; of two threads that read at the same moment one finds
the pipe empty and takes the process for ended with 255, so a process that its fault has killed looks like one
that has ended by itself. Worse, a pipe that the one has closed may be another's when the other reads it. So
here one thread at a time touches processes at all.
"""

import os
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from typing import Any, Final, final

__all__ = ["Child"]

_turn: Final = threading.Lock()


@final
class Child:
    """A process that runs from now on, until it is closed."""

    def __init__(self, context: ForkServerContext, target: Callable[..., object], *args: Any) -> None:
        """Start a process that calls ``target``."""
        self._process = context.Process(target=target, args=args)
        self._ended: int | None = None
        self._closed = False
        with _turn:
            self._process.start()
            pid = self._process.pid
            assert pid is not None
            self.pid: int = pid
            self.sentinel: int = self._process.sentinel

    @property
    def exit_code(self) -> int | None:
        """How it ended, as `subprocess.Popen.returncode`; None while it runs."""
        with _turn:
            if self._ended is None and not self._closed:
                self._ended = self._process.exitcode
            return self._ended

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return self.exit_code is None

    def join(self, seconds: float) -> int | None:
        """Wait for its end, and return its exit code; None when it still runs after so many seconds."""
        if self.runs:
            # Outside the lock, or nobody else could start anything meanwhile.
            wait([self.sentinel], seconds)
        return self.exit_code

    def kill(self, number: int) -> None:
        """Send it a signal if it still runs."""
        with _turn:
            if not self._closed and self._process.exitcode is None:
                os.kill(self.pid, number)

    def close(self) -> None:
        """Let go of a process that has ended; its exit code stays known."""
        if self.exit_code is None:
            raise ValueError("it still runs")
        with _turn:
            self._closed = True
            self._process.close()
