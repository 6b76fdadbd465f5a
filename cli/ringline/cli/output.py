"""Standard output: the reply and nothing else, whole or reported as not written."""

import os
import sys
from typing import Final

from ringline.cli.terminal import json_document, shown
from ringline.protocol.errors import ConfigError

__all__ = [
    "BROKEN_PIPE",
    "ReaderGone",
    "drop_output",
    "occupy_descriptors",
    "require_output",
    "write_document",
    "write_reply",
    "write_text",
]

BROKEN_PIPE: Final = 141
"""Exit code when nobody reads standard output any more: a shell's number for a program ended by SIGPIPE."""


class ReaderGone(Exception):
    """Nobody reads standard output any more. Not an `OSError`, which click ends by itself."""


def occupy_descriptors() -> None:
    """Put the null device where standard input, output or error was closed by whoever started this.

    Otherwise the next file or socket that is opened gets its number, and is written to by mistake. Input
    and error are there afterwards, empty and unread; that there is no output stays known, because whoever
    wants a reply must be told (`require_output`).
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] # closed by `<&-`
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 # lasts as long as the process
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison] # closed by `2>&-`
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def require_output() -> None:
    """Raise `ConfigError` when there is no standard output, before anything is done for nothing."""
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison] # closed by `>&-`
        raise ConfigError(
            "standard output is closed: there is nowhere to print to",
            next_step="run it again without closing standard output",
        )


def write_reply(text: str) -> None:
    """Write a reply: to a terminal neutralised, else byte for byte as UTF-8, ended by one line feed.

    A line feed is added only to a reply that does not end with one. Raises `ConfigError` when it cannot be
    written, `ReaderGone` when nobody reads.
    """
    ended = text if text.endswith("\n") else text + "\n"
    write_text(shown(ended) if _is_terminal() else ended)


def write_document(value: object) -> None:
    """Write one JSON document on one line. Raises as `write_reply` does."""
    write_text(json_document(value) + "\n")


def write_text(text: str) -> None:
    """Write text of our own as UTF-8 at once. Raises as `write_reply` does."""
    require_output()
    encoding = sys.stdout.encoding if _is_terminal() else "utf-8"
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(encoding, "backslashreplace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise ReaderGone from None
    except (OSError, ValueError) as error:
        drop_output()
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"standard output cannot be written: {reason}",
            next_step="make room or choose another file; a finished call is not run again for the same --id",
        ) from error


def drop_output() -> None:
    """Have the null device take what is left in the buffer: at the end it would be written again, in vain."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _is_terminal() -> bool:
    return sys.stdout.isatty()
