"""The key files of an identity: made together, and replaced so that a crash at any point loses nothing."""

import contextlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from ringline.client.address import RelayAddress
from ringline.client.generation import (
    Generation,
    Passphrase,
    Published,
    format_keys,
    new_agent_keys,
    parse_identity_keys,
    write_published,
)
from ringline.client.home import Home, read_private, write_private
from ringline.client.renewal import Replacement
from ringline.protocol.errors import ConfigError
from ringline.protocol.keyfile import AgentKeys, IdentityKeys, Keys
from ringline.protocol.signing import SigningKey
from ringline.protocol.suites import available_suites

__all__ = ["KEPT_IDENTITY", "create_files", "lock_of", "write_replacement"]

KEPT_IDENTITY: Final = "identity.before.key"
"""Where the identity key is kept that a succession replaces, until the succession is published."""


def lock_of(
    address: RelayAddress, handle: str, passphrase: Passphrase | None, plain: bool | None
) -> str | None:
    """Return the passphrase that new key files get, None for none.

    Raises `ConfigError` when it is empty, or neither it nor ``plain`` was chosen; in the development realm
    plain is the default.
    """
    if passphrase is None and not (address.is_local if plain is None else plain):
        raise ConfigError(
            f"the keys of {handle} need a passphrase, or the decision to leave them unlocked",
            next_step="give a passphrase, or say --plain to protect them by their file mode alone",
        )
    secret = passphrase() if passphrase is not None and not plain else None
    if secret == "":
        raise ConfigError(
            "an empty passphrase protects nothing",
            next_step="give a passphrase, or say --plain to leave the keys unlocked",
        )
    return secret


def create_files(
    home: Home,
    address: RelayAddress,
    handle: str,
    now_ms: int,
    secret: str | None,
    suites: Collection[int] | None,
) -> tuple[AgentKeys, Published]:
    """Write the files of a new identity, and return what is in them; the lock of its folder is held.

    An identity key that is there is used. Raises `ConfigError`.
    """
    path = home.identity_key_file(address, handle)
    try:
        identity_keys = parse_identity_keys(path, read_private(path), lambda: secret or "")
    except FileNotFoundError:
        identity_keys = IdentityKeys(SigningKey.generate().seed, SigningKey.generate().seed)
        write_private(path, format_keys(identity_keys, secret, address, handle, now_ms))
    keys = new_agent_keys(identity_keys, address.realm, handle, 1, now_ms)
    published = Published(sorted(suites) if suites is not None else [max(available_suites())])
    write_published(path.parent, published)
    write_private(home.agent_key_file(address, handle), format_keys(keys, secret, address, handle, now_ms))
    return keys, published


def write_replacement(
    folder: Path,
    old: Generation,
    made: Replacement,
    identity: tuple[Path, str | None],
    published: Published,
    written: Callable[[Keys, str | None], str],
    secret: str | None,
) -> None:
    """Put ``made`` in the place of ``old`` in a folder whose lock is held.

    ``identity`` is where a new identity key goes, with the passphrase that locks it; ``written`` makes the
    text of a key file; ``secret`` locks the others. Raises `ConfigError`.
    """
    # Before the card that depends on it: what was published and is not kept, nobody can take back.
    if made.identity is not None:
        path, lock = identity
        with contextlib.suppress(FileNotFoundError):
            write_private(path.with_name(KEPT_IDENTITY), read_private(path))
        write_private(path, written(made.identity, lock))
    if made.succession is not None:
        published.successions[str(made.keys.card.card.serial)] = made.succession
        write_published(folder, published)
    # The old keys first: after a crash here they are in two places, which does no harm. Nothing can be sealed
    # to keys that were never published.
    if old.published:
        write_private(folder / f"agent.{old.card.serial}.key", written(old.keys, secret))
    write_private(folder / "agent.key", written(made.keys, secret))
