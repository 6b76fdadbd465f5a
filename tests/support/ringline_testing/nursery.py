"""Processes of the `ringline` command that begin with its modules loaded.

Loading them is most of what a short command costs, and a test run starts hundreds. So one process, the
nursery, loads them once and forks a child for each command: a process of its own, with the session, the
descriptors, the variables and the folder that it was told, which ends by its exit code or by a signal like
any other. What a fork cannot show is how the installed command begins: tests about that start it afresh.

This file is also the program of the nursery. It speaks over one socket: a request is the length of a JSON
document, with the child's three descriptors and a socket for its news, and then the document. The news are
the number of the child's process and, when it has ended, its status, as `os.waitpid` has it.
"""

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

__all__ = ["Child", "Nursery", "nursery"]

_NUMBER: Final = 4
_LOADED: Final = (
    "ringline.caller",
    "ringline.listener.command",
    "ringline.relay.server",
    *(
        f"ringline.cli.{name}"
        for name in (
            "answer", "call", "calls", "cancel", "card", "durable", "failure", "id", "identity", "init",
            "interrupt", "listen", "message", "relay", "result",
        )
    ),
)  # fmt: skip


class Child:
    """A process that the nursery has forked, with what `subprocess.Popen` offers of it."""

    def __init__(self, news: socket.socket, pipes: "Mapping[str, Any]") -> None:
        self._news = news
        self.pid = self._number(None)
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = pipes["stdin"], pipes["stdout"], pipes["stderr"]

    def send_signal(self, number: int) -> None:
        """Send a signal to the process alone; to one that was seen to end, nothing."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return the exit code, negative for the signal that ended it."""
        if self.returncode is None:
            try:
                status = self._number(timeout)
            except TimeoutError:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None
            self.returncode = os.waitstatus_to_exitcode(status)
            self._news.close()
        return self.returncode

    def _number(self, timeout: float | None) -> int:
        self._news.settimeout(timeout)
        return int.from_bytes(_exactly(self._news, _NUMBER), "big")


class Nursery:
    """The process that forks others, as long as this one runs."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            # -P: the folder of this file is no place to import from.
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__)), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def fork(self, words: Sequence[str], *, variables: Mapping[str, str], folder: Path, stdin: int) -> Child:
        """Start ``ringline`` with these words in a session of its own; ``stdin`` as `subprocess` takes it.

        What it writes comes through pipes. ``variables`` are all that it has.
        """
        read, write = os.pipe() if stdin == subprocess.PIPE else (os.open(os.devnull, os.O_RDONLY), None)
        out, err = os.pipe(), os.pipe()
        ours, theirs = socket.socketpair()
        document = json.dumps({"words": [*words], "variables": {**variables}, "folder": str(folder)}).encode()
        given = [read, out[1], err[1], theirs.fileno()]
        try:
            socket.send_fds(self._control, [len(document).to_bytes(_NUMBER, "big")], given)
            self._control.sendall(document)
        finally:
            theirs.close()
            for descriptor in given[:3]:
                os.close(descriptor)
        pipes = {
            "stdin": None if write is None else os.fdopen(write, "wb"),
            "stdout": os.fdopen(out[0], "rb"),
            "stderr": os.fdopen(err[0], "rb"),
        }
        return Child(ours, pipes)

    def close(self) -> None:
        """Let the nursery end. What it has forked goes on."""
        self._control.close()
        self._process.wait()


@cache
def nursery() -> Nursery:
    """Return the nursery of this process."""
    return Nursery()


def _exactly(stream: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        piece = stream.recv(size - len(read))
        assert piece, "the nursery has ended"
        read += piece
    return read


def _serve(control: socket.socket) -> dict[str, Any]:
    """Fork a child for each request; return the request in the child alone."""
    while True:
        header, descriptors, _, _ = socket.recv_fds(control, _NUMBER, _NUMBER)
        if not header:
            os._exit(0)
        size = int.from_bytes(header + _exactly(control, _NUMBER - len(header)), "big")
        request: dict[str, Any] = json.loads(_exactly(control, size))
        if os.fork() == 0:
            control.close()
            _keep(*descriptors)
            return request
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(given: int, out: int, err: int, news_descriptor: int) -> None:
    """Fork the child, tell how it ends, and end with it. Returns in the child alone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(fileno=news_descriptor) as news:
        child = os.fork()
        if child != 0:
            for descriptor in (given, out, err):
                os.close(descriptor)
            news.sendall(child.to_bytes(_NUMBER, "big"))
            news.sendall(os.waitpid(child, 0)[1].to_bytes(_NUMBER, "big"))
            os._exit(0)
    os.setsid()
    for number, descriptor in enumerate((given, out, err)):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _become(request: dict[str, Any]) -> None:
    """Make this process what it was asked to be."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["variables"])
    sys.argv = ["ringline", *request["words"]]


def _main() -> None:
    # Keepers are not waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    control = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(control.fileno(), False)
    for name in _LOADED:
        importlib.import_module(name)
    # What a child would otherwise copy, page by page, when it looks for garbage.
    gc.freeze()
    _become(_serve(control))
    sys.exit(importlib.import_module("ringline.cli").main())


if __name__ == "__main__":
    _main()
