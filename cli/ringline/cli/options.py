"""Options that several commands share, so that each is spelled and explained once."""

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from ringline.cli.usual import DEFAULT_RELAY, usual_realm, usual_relay

__all__ = ["DEFAULT_RELAY", "Span", "identity_option", "json_option", "locking_options", "relay_options"]

_F = TypeVar("_F", bound=Callable[..., Any])


class Span(click.FloatRange):
    """A length of time within a range. ``nan`` is beyond no bound, and no clock measures ``inf``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. Fails as click does."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is no length of time.", param, ctx)
        return found


def relay_options(function: _F) -> _F:
    """Add ``--relay`` and ``--realm``: which relay, and under which name it is known."""
    realm = click.option(
        "--realm",
        metavar="NAME",
        envvar="RINGLINE_REALM",
        help="The relay's realm. [env RINGLINE_REALM; default: localhost on loopback, else the URL's host]",
    )
    relay = click.option(
        "--relay",
        metavar="URL",
        envvar="RINGLINE_RELAY",
        help="Base URL of the relay, http(s) or ws(s). [env RINGLINE_RELAY; default: the first one you were "
        f"invited to, else {DEFAULT_RELAY}]",
    )

    @functools.wraps(function)
    def run(*args: Any, relay: str | None, realm: str | None, **others: Any) -> Any:
        # Not the option's default, which is also asked for when a word is completed.
        meant = relay or usual_relay()
        return function(*args, relay=meant, realm=realm or usual_realm(meant), **others)

    return cast("_F", relay(realm(run)))


def identity_option(help_text: str, *, required: bool = False) -> Callable[[_F], _F]:
    """Add ``--as``, the handle of the own identity; the function gets it as ``own``."""
    return click.option(
        "--as",
        "own",
        metavar="NAME",
        envvar="RINGLINE_AS",
        required=required,
        help=f"{help_text} [env RINGLINE_AS]",
    )


def json_option(function: _F) -> _F:
    """Add ``--json``: one JSON document on standard output, on success and on failure."""
    return click.option(
        "--json",
        "machine",
        is_flag=True,
        help="Print one JSON document on standard output, on success and on failure.",
    )(function)


def locking_options(function: _F) -> _F:
    """Add ``--passphrase-file`` and ``--plain``: how key files are locked. Never by an argument."""
    plain = click.option(
        "--plain",
        is_flag=True,
        help="Protect new key files by their mode 0600 alone. [default on a development relay]",
    )
    descriptor = click.option(
        "--passphrase-fd",
        metavar="N",
        type=click.IntRange(0),
        help="Read that passphrase from this open file descriptor.",
    )
    file = click.option(
        "--passphrase-file",
        metavar="FILE",
        envvar="RINGLINE_PASSPHRASE_FILE",
        type=click.Path(dir_okay=False),
        help="Read the passphrase of the key files from the first line of this file, which only you may "
        "read. [env RINGLINE_PASSPHRASE_FILE; default: ask on a terminal]",
    )

    @functools.wraps(function)
    def run(*args: Any, passphrase_file: str | None, passphrase_fd: int | None, **others: Any) -> Any:
        if passphrase_fd is not None:
            # Not loaded by a command that needs no passphrase.
            from ringline.cli.passphrase import named

            # A file named by the environment is the usual one, and gives way.
            source = click.get_current_context().get_parameter_source("passphrase_file")
            told = passphrase_file if source is click.core.ParameterSource.COMMANDLINE else None
            passphrase_file = named(told, passphrase_fd)
        return function(*args, passphrase_file=passphrase_file, **others)

    return cast("_F", file(descriptor(plain(run))))
