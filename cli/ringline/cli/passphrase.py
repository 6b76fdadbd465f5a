"""Where a passphrase comes from: a file, an open file descriptor, or a terminal. Never an argument."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from ringline.protocol.errors import ConfigError

if TYPE_CHECKING:
    from ringline.client import Passphrase

__all__ = ["asks", "named", "passphrase_from", "secret_options"]

_DESCRIPTORS: Final = "/dev/fd/"
_BYTES: Final = 4_096

_F = TypeVar("_F", bound=Callable[..., Any])


def asks() -> bool:
    """Return whether there is somebody at a terminal to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def secret_options(name: str, what: str) -> Callable[[_F], _F]:
    """Add ``--NAME-passphrase-file`` and ``-fd``; the function gets both as one, ``NAME_secret``."""

    def add(function: _F) -> _F:
        import functools

        @functools.wraps(function)
        def run(*args: Any, **given: Any) -> Any:
            file, descriptor = given.pop(f"{name}_passphrase_file"), given.pop(f"{name}_passphrase_fd")
            given[f"{name}_secret"] = named(file, descriptor)
            return function(*args, **given)

        file = click.option(
            f"--{name}-passphrase-file",
            metavar="FILE",
            type=click.Path(dir_okay=False),
            help=f"Read the passphrase of {what} from the first line of this file, which only you may read.",
        )
        descriptor = click.option(
            f"--{name}-passphrase-fd",
            metavar="N",
            type=click.IntRange(0),
            help=f"Read the passphrase of {what} from this open file descriptor.",
        )
        return cast("_F", file(descriptor(run)))

    return add


def named(file: str | None, descriptor: int | None) -> str | None:
    """Return the one place that two options name, a descriptor as ``/dev/fd/N``. Raises `ConfigError`."""
    if descriptor is None:
        return file
    if file is not None:
        raise ConfigError(
            "a passphrase comes from a file or from a descriptor, not both",
            next_step="choose one of them",
        )
    return f"{_DESCRIPTORS}{descriptor}"


def passphrase_from(
    place: str | None, prompt: Callable[[], str], *, is_new: Callable[[], bool] = lambda: False
) -> "Passphrase | None":
    """Return where a passphrase comes from: ``place`` if given, else a terminal, else nowhere (None).

    ``prompt`` is the question; a new passphrase is asked twice. It is asked for once, however often it is
    needed.
    """
    if place is None and not asks():
        return None
    known: list[str] = []

    def ask() -> str:
        if not known:
            if place is not None:
                known.append(_first_line(place))
            else:
                # A slip of the finger at the first time would lock the keys for ever.
                known.append(click.prompt(prompt(), hide_input=True, err=True, confirmation_prompt=is_new()))
        return known[0]

    return ask


def _first_line(place: str) -> str:
    number = place.removeprefix(_DESCRIPTORS)
    if number != place and number.isascii() and number.isdecimal():
        return _first_line_of(int(number))
    # Every help page comes through here, and needs none of it.
    from ringline.client.home import read_private

    try:
        text = read_private(Path(place))
    except FileNotFoundError:
        raise ConfigError(
            f"there is no file {place} with a passphrase", next_step="check the name of the file"
        ) from None
    return text.split("\n", 1)[0].rstrip("\r")


def _first_line_of(descriptor: int) -> str:
    data = b""
    try:
        while b"\n" not in data and len(data) <= _BYTES and (piece := os.read(descriptor, _BYTES)):
            data += piece
        return data.split(b"\n", 1)[0].rstrip(b"\r").decode()
    except OSError as error:
        raise ConfigError(
            f"file descriptor {descriptor} cannot be read: {error.strerror}",
            next_step=f"open it for the command: {descriptor}<FILE",
        ) from None
    except OverflowError:
        raise ConfigError(
            f"{descriptor} is no file descriptor", next_step="open a file for the command: 3<FILE"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(
            f"what file descriptor {descriptor} gives is no text", next_step="give the passphrase as UTF-8"
        ) from None
