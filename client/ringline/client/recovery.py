"""Keys that leave this computer in one file, and come back: for recovery, and for other hosts of a handle.

A recovery file has the identity key and the next one, then the operational keys; a file for another host has
the operational keys alone. Both are key files of `ringline.protocol.keyfile`, written one behind the other,
each locked by the same passphrase.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from ringline.client.account import Account
from ringline.client.address import RelayAddress
from ringline.client.generation import (
    Passphrase,
    Published,
    format_keys,
    is_sealed,
    parse_keys,
    read_published,
    split_keys,
    write_published,
)
from ringline.client.home import Home, read_private, write_private
from ringline.client.identity_files import lock_of
from ringline.client.renewal import IdentityKey
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import ConfigError
from ringline.protocol.fingerprint import fingerprint
from ringline.protocol.identity import Card, SignedCard, next_commitment
from ringline.protocol.keyfile import AgentKeys, IdentityKeys
from ringline.protocol.signing import SigningKey
from ringline.protocol.suites import available_suites

__all__ = ["Export", "export_agent", "export_identity", "keep", "read_export", "restore", "was_exported"]

_PARTS: Final = 80
_ANEW: Final = "make a new export"


@final
@dataclass(frozen=True, slots=True)
class Export:
    """What a file has. ``identity`` is None in one for other hosts; ``agents`` begin with the newest card."""

    identity: IdentityKeys | None
    agents: tuple[AgentKeys, ...]

    @property
    def card(self) -> SignedCard:
        """The newest card."""
        return self.agents[0].card


def export_identity(
    account: Account, place: IdentityKey, path: Path, secret: str | None, now_ms: int
) -> None:
    """Write a recovery file, locked by ``secret``; None leaves it to its mode.

    Raises `ConfigError` without the identity key, and when the file exists.
    """
    keys = place.read_for(account.card.card)
    _write(account, path, [keys, *account.keys()], secret, now_ms)
    account.note_exported()


def export_agent(account: Account, path: Path, secret: str | None, now_ms: int) -> None:
    """Write a file for another host of this handle. It can do the daily work, and sign no card.

    Raises `ConfigError` when the file exists.
    """
    _write(account, path, list(account.keys()), secret, now_ms)


def was_exported(account: Account) -> bool:
    """Whether a recovery file of the present identity was made here."""
    found = read_published(account.home.identity_folder(account.address, account.handle))
    return found is not None and found.exported == b64encode(account.ipk)


def _write(
    account: Account, path: Path, keys: list[IdentityKeys | AgentKeys], secret: str | None, now_ms: int
) -> None:
    if path.exists() or path.is_symlink():
        raise ConfigError(f"{path} exists already. Nothing was written.", next_step="name another file")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent}", next_step="make it, or name another file")
    texts = [format_keys(one, secret, account.address, account.handle, now_ms) for one in keys]
    write_private(path, "\n".join(texts))


def read_export(path: Path, passphrase: Passphrase | None) -> Export:
    """Read a file of either kind.

    Raises `ConfigError` when it is neither, others can read it, it is damaged or does not open.
    """
    try:
        text = read_private(path)
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}", next_step="check the name of the file") from None
    parts = split_keys(text)
    if len(parts) > _PARTS:
        raise ConfigError(f"{path} has more keys than any identity", next_step="check the name of the file")
    if passphrase is None and any(is_sealed(path, part) for part in parts):
        raise ConfigError(
            f"{path} is locked by a passphrase",
            next_step="type it at a terminal, or name a file that holds it: --export-passphrase-file FILE",
        )
    found = [parse_keys(path, part, passphrase) for part in parts]
    identities = [keys for keys in found if isinstance(keys, IdentityKeys)]
    agents = [keys for keys in found if isinstance(keys, AgentKeys)]
    if not agents or len(identities) > 1:
        raise ConfigError(
            f"{path} is a key file, and not one that `ringline id export` has written",
            next_step=f"use an identity key where it is: --identity-key {path}",
        )
    agents.sort(key=lambda keys: keys.card.card.serial, reverse=True)
    newest = agents[0].card.card
    if any((keys.card.card.realm, keys.card.card.handle) != (newest.realm, newest.handle) for keys in agents):
        raise ConfigError(f"{path} has the keys of two handles", next_step=_ANEW)
    identity = identities[0] if identities else None
    if identity is not None and SigningKey(identity.seed).public != newest.ipk:
        raise ConfigError(f"{path} has an identity key that is not its card's", next_step=_ANEW)
    return Export(identity, tuple(agents))


def restore(
    home: Home,
    address: RelayAddress,
    export: Export,
    now_ms: int,
    *,
    passphrase: Passphrase | None,
    plain: bool | None = None,
) -> Account:
    """Put the keys of an export in their places, those that are missing or newer, and return the identity.

    ``passphrase`` and ``plain`` are those of `Account.create`; the files of an identity that is here already
    stay locked as they are. Nothing is published. Raises `ConfigError` when the identity that is here is
    another one, and nothing is changed then.
    """
    card = export.card.card
    if card.realm != address.realm:
        raise ConfigError(
            f"the keys are of realm {card.realm}; the relay in use is of realm {address.realm}",
            next_step="name its relay: --relay URL",
        )
    folder = home.identity_folder(address, card.handle)
    with home.lock(folder):
        held = None
        if home.agent_key_file(address, card.handle).exists():
            held = Account.load(home, address, card.handle, now_ms, passphrase=passphrase)
            _check_same(held.card.card, card)
            secret = held.secret
        else:
            secret = lock_of(address, card.handle, passphrase, plain)
        identity_file = home.identity_key_file(address, card.handle)
        if export.identity is not None and not identity_file.exists():
            text = format_keys(export.identity, secret, address, card.handle, now_ms)
            write_private(identity_file, text)
        if held is None or held.card.card.serial < card.serial:
            _write_agents(home, address, export, held, secret, now_ms)
    return Account.load(home, address, card.handle, now_ms, passphrase=lambda: secret or "")


def keep(home: Home, address: RelayAddress, handle: str) -> Callable[[], None]:
    """Return what puts the key files of a handle back as they are now: for keys that no relay takes."""
    folder = home.identity_folder(address, handle)

    def files() -> list[Path]:
        return [*folder.glob("*.key"), *folder.glob("published.json")]

    before = {path: read_private(path) for path in files()}

    def put_back() -> None:
        with home.lock(folder):
            for path in files():
                if path not in before:
                    path.unlink()
            for path, text in before.items():
                write_private(path, text)

    return put_back


def _check_same(here: Card, there: Card) -> None:
    """Pass keys of the identity that is here, or of the one that follows it."""
    if there.ipk == here.ipk and (there.serial != here.serial or there == here):
        return
    if there.serial > here.serial and next_commitment(there.ipk) == here.next:
        return
    raise ConfigError(
        f"the keys are not those of the {here.handle} that is here. Nothing was changed.\n"
        f"  here     card {here.serial} of {fingerprint(here.ipk)}\n"
        f"  in file  card {there.serial} of {fingerprint(there.ipk)}",
        next_step="use another state folder: RINGLINE_HOME=/path/to/folder",
    )


def _write_agents(
    home: Home,
    address: RelayAddress,
    export: Export,
    held: Account | None,
    secret: str | None,
    now_ms: int,
) -> None:
    handle = export.card.card.handle
    folder = home.identity_folder(address, handle)
    published = read_published(folder) or Published([max(available_suites())])
    have = () if held is None else held.cards
    if held is not None:
        # It is in two places for a moment, which does no harm.
        text = format_keys(held.keys()[0], secret, address, handle, now_ms)
        write_private(folder / f"agent.{held.card.card.serial}.key", text)
    for keys in export.agents:
        # When it was published elsewhere is not known: it is kept for as long as it could be needed.
        published.cards.setdefault(str(keys.card.card.serial), {str(keys.chain.epoch): now_ms})
        if keys is not export.agents[0] and keys.card not in have:
            text = format_keys(keys, secret, address, handle, now_ms)
            write_private(folder / f"agent.{keys.card.card.serial}.key", text)
    write_published(folder, published)
    text = format_keys(export.agents[0], secret, address, handle, now_ms)
    write_private(home.agent_key_file(address, handle), text)
