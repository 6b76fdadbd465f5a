"""The `ringline` command within this process: any words, over any state folder, without a relay.

Where a command would begin to talk to somebody it is stopped. Until then it has read its words, the
environment and all files that it needs.
"""

import asyncio
import contextlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Coroutine, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Never
from unittest import mock

import click

from ringline.cli.app import main
from ringline.protocol.codes import REGISTRY
from ringline_fuzz.target import Broken

__all__ = ["ENVIRONMENT", "EXIT_CODES", "ROOMS", "Rooms", "Told", "judge", "run"]

EXIT_CODES: Final = {0, 130} | {row.exit_code for row in REGISTRY.values()}
_INTERNAL: Final = {row.exit_code for row in REGISTRY.values() if row.code == "internal_error"}
_SCREEN_LINES: Final = 24
_LINE_CHARS: Final = 4_000
_STOPPED: Final = "stopped before anybody is asked"
ENVIRONMENT: Final[dict[str, str]] = {
    "RINGLINE_RELAY": "http://127.0.0.1:9",
    "RINGLINE_REALM": "relay.example",
    "HOME": "/nowhere",
}


class Told(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: bytes
    err: str

    @property
    def stopped(self) -> bool:
        """True when it would have gone on to ask somebody."""
        return _STOPPED in self.err or _STOPPED.encode() in self.out


class Rooms:
    """Folders for commands, one after the other; all are gone at the end."""

    def __init__(self) -> None:
        self._root: Path | None = None
        self._number = 0

    def new(self) -> Path:
        """Return an empty folder, the one before removed."""
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="ringline-fuzz-"))
        shutil.rmtree(self._root / str(self._number), ignore_errors=True)
        self._number += 1
        room = self._root / str(self._number)
        room.mkdir(mode=0o700)
        return room

    def close(self) -> None:
        """Remove everything."""
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None


ROOMS: Final = Rooms()


def _stop(work: Coroutine[Any, Any, object] | None = None, **options: object) -> Never:
    if work is not None:
        work.close()
    raise click.ClickException(_STOPPED)


@contextlib.contextmanager
def _alone(room: Path, variables: Mapping[str, str]) -> Generator[tuple[io.BytesIO, io.BytesIO]]:
    """This process as a command finds it: its own streams, variables and folder."""
    streams = [io.BytesIO() for _ in range(3)]
    texts = [
        io.TextIOWrapper(stream, "utf-8", errors=errors, write_through=True)
        for stream, errors in zip(streams, ("strict", "strict", "backslashreplace"), strict=True)
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RINGLINE_")}
    before = Path.cwd()
    os.chdir(room)
    try:
        with (
            mock.patch.dict(
                os.environ,
                kept | ENVIRONMENT | {"RINGLINE_HOME": str(room / "home")} | dict(variables),
                clear=True,
            ),
            mock.patch.object(asyncio, "run", _stop),
            mock.patch.object(asyncio, "Runner", _stop),
            mock.patch.multiple(sys, stdin=texts[0], stdout=texts[1], stderr=texts[2]),
        ):
            yield streams[1], streams[2]
    finally:
        os.chdir(before)
        for text in texts:
            text.detach()


def run(words: Sequence[str], room: Path, variables: Mapping[str, str] | None = None) -> Told:
    """Run a command in a folder; its state folder is ``home`` there."""
    with _alone(room, variables or {}) as (out, err):
        code = main(list(words))
    return Told(code, out.getvalue(), err.getvalue().decode("utf-8", "surrogateescape"))


def judge(told: Told, words: Sequence[str]) -> str:
    """Return the end of a command in a word. Raises `Broken` for one that is not as promised."""
    shown = f"{list(words)!r}: exit {told.code}\n{told.err}"
    if told.code not in EXIT_CODES:
        raise Broken(f"an exit code that no table has: {shown}")
    if told.code in _INTERNAL or "Traceback" in told.err or "a fault in Ringline" in told.err:
        raise Broken(f"a fault of the program's own: {shown}")
    if told.code != 0 and not told.out.startswith(b"{"):
        lines = told.err.splitlines()
        # A command that needs words and got none shows its page.
        page = "Usage: " in told.err
        if not lines or (len(lines) > _SCREEN_LINES and not page) or max(map(len, lines)) > _LINE_CHARS:
            raise Broken(f"more, or less, than a screen: {shown}")
    if any((char < " " and char != "\n") or char == "\x7f" or "\x80" <= char < "\xa0" for char in told.err):
        raise Broken(f"a control character on the terminal: {shown!r}")
    return f"exit {told.code}{' stopped' if told.stopped else ''}"
