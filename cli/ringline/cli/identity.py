"""Which relay, which own identity, and where its passphrase comes from."""

import time
from dataclasses import dataclass

from ringline.cli.passphrase import passphrase_from
from ringline.client import Account, Home, Passphrase, RelayAddress
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
        return Locking(passphrase_from(passphrase_file, _nothing), False)

    def chosen() -> str:
        return handle if handle is not None else home.default_handle(address)

    ask = passphrase_from(
        None,
        lambda: f"Passphrase of the keys of {chosen()}",
        is_new=lambda: not home.agent_key_file(address, chosen()).exists(),
    )
    return Locking(ask, True if plain or address.is_local else None)


def open_account(
    home: Home, address: RelayAddress, handle: str | None, lock: Locking
) -> tuple[Account, bool]:
    """Load an own identity, or make it. Returns it and whether it is new.

    Without ``handle`` it is the one that calls when no other is named.
    """
    now = time.time_ns() // 1_000_000
    chosen = handle if handle is not None else home.default_handle(address)
    return Account.open(home, address, chosen, now, passphrase=lock.passphrase, plain=lock.plain)


def _nothing() -> str:
    return ""
