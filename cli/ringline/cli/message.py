"""Where the message of a call comes from: the command line, standard input, or a file."""

import sys
from pathlib import Path
from typing import BinaryIO, Final

import click

from ringline.cli.report import tell
from ringline.protocol.errors import ConfigError, MessageTooLarge
from ringline.protocol.limits import MESSAGE_BYTES

__all__ = ["STDIN", "read_message"]

STDIN: Final = "-"


def read_message(text: str | None, file: str | None, *, needed: bool = True) -> str:
    """Return the message. Standard input is read only when ``-`` says so, since it may never end.

    Without a task it is ``needed``; else it may be left out or be empty.

    Raises `click.UsageError` for none or two messages, `MessageTooLarge` for one over the limit, without
    reading on, and `ConfigError` for one that is no UTF-8, empty, or cannot be read.
    """
    if text is not None and file is not None:
        raise click.UsageError("there are two messages: give either TEXT or --file")
    if text is None and file is None:
        if not needed:
            return ""
        raise click.UsageError("there is no message: give TEXT, --file FILE, or - to read standard input")
    if STDIN in (text, file):
        if sys.stdin.isatty():
            tell("Reading the message from the terminal; end it with Ctrl-D on a line of its own.")
        return _decoded(_limited(sys.stdin.buffer, "standard input"), "standard input", needed)
    if text is not None:
        # Bytes that are no UTF-8 come from the operating system as lone surrogates.
        return _decoded(text.encode("utf-8", "surrogateescape"), "the text", needed)
    assert file is not None
    try:
        with Path(file).open("rb") as opened:
            return _decoded(_limited(opened, file), file, needed)
    except OSError as error:
        raise ConfigError(
            f"cannot read {file}: {error.strerror}", next_step="check the name of the file"
        ) from error


def _limited(stream: BinaryIO, name: str) -> bytes:
    data = stream.read(MESSAGE_BYTES + 1)
    if len(data) > MESSAGE_BYTES:
        raise _too_large(name)
    return data


def _decoded(data: bytes, name: str, needed: bool) -> str:
    if len(data) > MESSAGE_BYTES:
        raise _too_large(name)
    if not data and needed:
        raise ConfigError(f"the message is empty: {name} holds nothing", next_step="ringline call --help")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{name} is not UTF-8 text: byte {error.start + 1} begins no character",
            next_step="convert it first, for example with base64 or iconv",
        ) from None


def _too_large(name: str) -> MessageTooLarge:
    return MessageTooLarge(
        f"{name} is larger than a message may be, which is {MESSAGE_BYTES:,} bytes",
        next_step="shorten the message, or send it in parts",
    )
