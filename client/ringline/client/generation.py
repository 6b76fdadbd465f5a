"""An identity's key files: read, written, and made; one card with what hangs on it is a generation.

``published.json`` beside the keys is no secret, but when secrets may be deleted depends on it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias, final

import msgspec

from ringline.client.address import RelayAddress
from ringline.client.home import read_private, write_private
from ringline.protocol import keyfile
from ringline.protocol.errors import ConfigError, KeyFileError
from ringline.protocol.identity import NO_NEXT, Card, SignedCard, next_commitment
from ringline.protocol.limits import CARD_LIFE_MS, CLOCK_SLACK_MS
from ringline.protocol.prekeys import Chain, delete_at, epoch_at, keep_from, window
from ringline.protocol.shapes import SuccessionStatement
from ringline.protocol.signing import SigningKey
from ringline.protocol.suites import SUITES

__all__ = [
    "Generation",
    "Passphrase",
    "Published",
    "forget_secrets",
    "format_keys",
    "generation_of",
    "generations_in",
    "is_sealed",
    "new_agent_keys",
    "parse_agent_keys",
    "parse_identity_keys",
    "parse_keys",
    "read_published",
    "split_keys",
    "write_published",
]

Passphrase: TypeAlias = Callable[[], str]
"""Where a passphrase comes from: a prompt, a file descriptor, a file. Asked at most once, when needed."""

_PUBLISHED: Final = "published.json"
_EPOCH: Final = re.compile(r"[0-9]{1,10}")
_EPOCHS_AHEAD: Final = 400
_PUT_BACK: Final = "put it back to where it belongs"


class Published(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What was published: the suites of the prekeys, and by serial of the card when which epoch, Unix ms.

    ``successions`` are the statements to be published with a card, by its serial; ``exported`` is the
    identity key, base64url, of which a recovery file was made last.
    """

    suites: list[int]
    cards: dict[str, dict[str, int]] = msgspec.field(default_factory=dict[str, dict[str, int]])
    successions: dict[str, SuccessionStatement] = msgspec.field(
        default_factory=dict[str, SuccessionStatement]
    )
    exported: str | None = None


@final
@dataclass(slots=True)
class Generation:
    """One card with what hangs on it."""

    keys: keyfile.AgentKeys
    operational: SigningKey = field(repr=False)
    published: dict[int, int]
    """When which epoch was published, Unix ms."""

    @property
    def card(self) -> Card:
        """The card."""
        return self.keys.card.card


def new_agent_keys(
    identity: keyfile.IdentityKeys,
    realm: str,
    handle: str,
    serial: int,
    now_ms: int,
    *,
    commitment: bytes = NO_NEXT,
) -> keyfile.AgentKeys:
    """Return a new operational key with a card of this serial, and a new chain.

    ``commitment`` is that of the card before, which is repeated where the next identity key is kept apart.
    """
    identity_key = SigningKey(identity.seed)
    operational = SigningKey.generate()
    following = identity.next_seed
    card = Card(
        realm=realm,
        handle=handle,
        ipk=identity_key.public,
        serial=serial,
        # RL-KEYS-006: from one hour before the present, for peers whose clocks are slow, for 90 days.
        not_before=now_ms - CLOCK_SLACK_MS,
        not_after=now_ms - 2 * CLOCK_SLACK_MS + CARD_LIFE_MS,
        spk=operational.public,
        next=commitment if following is None else next_commitment(SigningKey(following).public),
    )
    chain = Chain.start(epoch_at(now_ms))
    return keyfile.AgentKeys(operational.seed, SignedCard.sign(card, identity_key), chain)


def generation_of(keys: keyfile.AgentKeys, published: Published | None, now_ms: int) -> Generation:
    """Return keys with what is known of their publication."""
    if published is None:
        # The file is lost. What it would tell decides about deletion, so the longest time is assumed.
        return Generation(keys, SigningKey(keys.seed), {keys.chain.epoch: now_ms})
    times = published.cards.get(str(keys.card.card.serial), {})
    return Generation(
        keys,
        SigningKey(keys.seed),
        {
            int(epoch): time
            for epoch, time in times.items()
            # What no relay can have taken would have a chain computed for ages.
            if _EPOCH.fullmatch(epoch) and int(epoch) <= epoch_at(now_ms) + _EPOCHS_AHEAD
        },
    )


def generations_in(folder: Path, text: str, secret: str | None, now_ms: int) -> list[Generation]:
    """Return the generations of a folder, the newest first; ``text`` is that of its ``agent.key``.

    Raises `ConfigError` when a file is damaged, does not open, or can be read by others.
    """
    published = read_published(folder)
    current = parse_agent_keys(folder / "agent.key", text, secret)
    found = [generation_of(current, published, now_ms)]
    for older in folder.glob("agent.*.key"):
        keys = parse_agent_keys(older, read_private(older), secret)
        # After a crash the same keys may be in two files.
        if keys.card != current.card:
            found.append(generation_of(keys, published, now_ms))
    found[1:] = sorted(found[1:], key=lambda generation: generation.card.serial, reverse=True)
    return found


def format_keys(
    keys: keyfile.Keys, secret: str | None, address: RelayAddress, handle: str, now_ms: int
) -> str:
    """Return the text of a key file, locked by the passphrase ``secret`` unless that is None."""
    if secret is None:
        return keyfile.format_plain(keys, handle=handle, realm=address.realm, created_ms=now_ms)
    return keyfile.format_sealed(keys, secret, handle=handle, realm=address.realm, created_ms=now_ms)


def split_keys(text: str) -> list[str]:
    """Return the key files that were written one behind the other into one text; at least one, maybe none."""
    parts: list[list[str]] = [[]]
    has_keys = False
    for line in text.splitlines(keepends=True):
        starts = line.startswith(("#", "ringline-key "))
        if starts and has_keys:
            parts.append([])
            has_keys = False
        elif not starts and line.strip():
            has_keys = True
        parts[-1].append(line)
    return ["".join(part) for part in parts]


def forget_secrets(
    generations: list[Generation], folder: Path, now_ms: int, save: Callable[[keyfile.AgentKeys], None]
) -> bool:
    """Delete the secrets whose time is over (RL-KEYS-022, RL-KEYS-023). Returns whether there were any.

    ``generations`` is the current one and those before it; whose keys are gone is taken out of the list, and
    its file out of ``folder``. ``save`` writes the current keys.
    """
    current, *older = generations
    gone = False
    first = keep_from(current.published, now_ms) if current.published else current.keys.chain.epoch
    if first > current.keys.chain.epoch:
        current.keys = keyfile.AgentKeys(current.keys.seed, current.keys.card, current.keys.chain.at(first))
        save(current.keys)
        gone = True
    replaced_at = min(current.published.values(), default=None)
    for generation in older:
        last = max(generation.published, default=generation.keys.chain.epoch)
        if now_ms >= delete_at(window(last)[1], replaced_at):
            (folder / f"agent.{generation.card.serial}.key").unlink(missing_ok=True)
            generations.remove(generation)
            gone = True
    return gone


def is_sealed(path: Path, text: str) -> bool:
    """True when a key file needs a passphrase. Raises `ConfigError` when it is none."""
    try:
        return keyfile.is_sealed(text)
    except KeyFileError as error:
        raise _bad_file(path, error) from error


def parse_keys(path: Path, text: str, passphrase: Passphrase | None) -> keyfile.Keys:
    """Return what a key file of either kind holds; the passphrase is asked for if it is locked.

    Raises `ConfigError`, with the path.
    """
    try:
        secret = passphrase() if passphrase is not None and keyfile.is_sealed(text) else None
        return keyfile.parse(text, secret)
    except KeyFileError as error:
        raise _bad_file(path, error) from error


def parse_agent_keys(path: Path, text: str, secret: str | None) -> keyfile.AgentKeys:
    """Return what an agent's key file holds. Raises `ConfigError`, with the path."""
    try:
        keys = keyfile.parse(text, secret)
    except KeyFileError as error:
        raise _bad_file(path, error) from error
    if not isinstance(keys, keyfile.AgentKeys):
        raise ConfigError(f"{path} is not an agent's key file", next_step=_PUT_BACK)
    return keys


def parse_identity_keys(path: Path, text: str, passphrase: Passphrase) -> keyfile.IdentityKeys:
    """Return what an identity's key file holds. Raises `ConfigError`, with the path."""
    try:
        keys = keyfile.parse(text, passphrase() if is_sealed(path, text) else None)
    except KeyFileError as error:
        raise _bad_file(path, error) from error
    if not isinstance(keys, keyfile.IdentityKeys):
        raise ConfigError(f"{path} is not an identity's key file", next_step=_PUT_BACK)
    return keys


def _bad_file(path: Path, error: KeyFileError) -> ConfigError:
    return ConfigError(f"{path}: {error}", next_step=error.next_step)


def read_published(folder: Path) -> Published | None:
    """Return what was published from a folder; None when that is lost. Raises `ConfigError`."""
    try:
        found = msgspec.json.decode(read_private(folder / _PUBLISHED), type=Published)
        if not set(found.suites) & set(SUITES):
            raise ValueError("no suite that there is")
        return found
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, RecursionError, ValueError):
        raise ConfigError(
            f"{folder / _PUBLISHED} is damaged",
            next_step=f"delete it; the keys are then published once more: rm {folder / _PUBLISHED}",
        ) from None


def write_published(folder: Path, published: Published) -> None:
    """Keep what was published. Raises `ConfigError`."""
    write_private(folder / _PUBLISHED, msgspec.json.encode(published).decode("ascii") + "\n")
