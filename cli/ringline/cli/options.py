"""Options that several commands share, so that each is spelled and explained once."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

__all__ = ["DEFAULT_RELAY", "identity_option", "json_option", "locking_options", "relay_options"]

DEFAULT_RELAY: Final = "http://127.0.0.1:7575"
"""Where `ringline relay dev` listens. The same as the client's, which is not loaded for a help page."""

_F = TypeVar("_F", bound=Callable[..., Any])


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
        default=DEFAULT_RELAY,
        help=f"Base URL of the relay, http(s) or ws(s). [env RINGLINE_RELAY; default: {DEFAULT_RELAY}]",
    )
    return relay(realm(function))


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
    file = click.option(
        "--passphrase-file",
        metavar="FILE",
        envvar="RINGLINE_PASSPHRASE_FILE",
        type=click.Path(dir_okay=False),
        help="Read the passphrase of the key files from the first line of this file, which only you may "
        "read. [env RINGLINE_PASSPHRASE_FILE; default: ask on a terminal]",
    )
    return file(plain(function))
