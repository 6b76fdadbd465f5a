"""Which relay, which own identity, and where its passphrase comes from."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import click

from ringline.client import Account, Home, Passphrase, RelayAddress
from ringline.client.home import read_private
from ringline.protocol.errors import ConfigError

__all__ = ["Locking", "locking", "open_account"]


@dataclass(frozen=True, slots=True)
class Locking:
    """How key files are locked: by a passphrase, or ``plain``, by their mode alone."""

    passphrase: Passphrase | None
    plain: bool | None


def locking(
    home: Home, address: RelayAddress, handle: str | None, passphrase_file: str | None, plain: bool
) -> Locking:
    """Return where the passphrase of an identity comes from: a file, else a terminal, else nowhere.

    ``handle`` None is the identity that calls when no other is named. In the development realm new keys are
    plain unless a passphrase file is given.
    """
    if passphrase_file is not None:
        if plain:
            raise ConfigError(
                "--plain and --passphrase-file exclude each other", next_step="choose one of them"
            )
        path = Path(passphrase_file)
        return Locking(lambda: _first_line(path), False)

    def ask() -> str:
        chosen = handle if handle is not None else home.default_handle(address)
        # A slip of the finger at the first time would lock the keys for ever.
        is_new = not home.agent_key_file(address, chosen).exists()
        answer: str = click.prompt(
            f"Passphrase of the keys of {chosen}", hide_input=True, err=True, confirmation_prompt=is_new
        )
        return answer

    asks = sys.stdin.isatty() and sys.stderr.isatty()
    return Locking(ask if asks else None, True if plain or address.is_local else None)


def open_account(
    home: Home, address: RelayAddress, handle: str | None, lock: Locking
) -> tuple[Account, bool]:
    """Load an own identity, or make it. Returns it and whether it is new.

    Without ``handle`` it is the one that calls when no other is named.
    """
    now = time.time_ns() // 1_000_000
    chosen = handle if handle is not None else home.default_handle(address)
    return Account.open(home, address, chosen, now, passphrase=lock.passphrase, plain=lock.plain)


def _first_line(path: Path) -> str:
    try:
        return read_private(path).split("\n", 1)[0].rstrip("\r")
    except FileNotFoundError:
        raise ConfigError(
            f"there is no file {path} with a passphrase", next_step="check --passphrase-file"
        ) from None
