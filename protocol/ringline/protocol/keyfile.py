"""Key files as text: what is in them, and how a passphrase locks them.

A file is comment lines, one header line that begins with ``ringline-key v1``, and the keys: readable
lines, or one line of ciphertext. Nothing is decided by a comment. Two kinds exist, so that the identity
key can live elsewhere while an agent runs::

    ringline-key v1 plain                        ringline-key v1 plain
    identity <seed>                              operational <seed>
    next <seed of the next identity key>         card <card>
                                                 card-sig <signature>
                                                 chain <epoch> <link>

Binary is canonical base64url. This module makes and reads text; files, their modes and where a
passphrase comes from are the client's business.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeAlias, final

import nacl.bindings
from nacl.exceptions import CryptoError

from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import EncodingError, KeyFileError, RinglineError
from ringline.protocol.fingerprint import fingerprint
from ringline.protocol.identity import SignedCard
from ringline.protocol.names import is_handle, is_realm
from ringline.protocol.prekeys import LINK_BYTES, Chain
from ringline.protocol.signing import SEED_BYTES, SIGNATURE_BYTES, SigningKey

__all__ = ["AgentKeys", "IdentityKeys", "Keys", "format_plain", "format_sealed", "is_sealed", "parse"]

_CHARS: Final = 65_536
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 24
# RL-KEYS-050: at least 3 passes and 64 MiB.
_PASSES: Final = 3
_MEMORY_KIB: Final = 65_536
# RL-KEYS-049: costs outside 1 to 16 passes and 8 MiB to 1 GiB are refused. Less would be no protection, more
# a way to hang whoever opens a planted file.
_PASSES_RANGE: Final = range(1, 16 + 1)
_MEMORY_KIB_RANGE: Final = range(8 * 1_024, 1_024 * 1_024 + 1)

_PLAIN: Final = "ringline-key v1 plain"
_SEALED: Final = re.compile(
    r"ringline-key v1 argon2id t=(0|[1-9][0-9]{0,9}) m=(0|[1-9][0-9]{0,9}) p=1 salt=([^ ]+) nonce=([^ ]+)"
)
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_RESTORE: Final = "restore the file from a backup; nothing was changed"


@final
@dataclass(frozen=True, slots=True)
class IdentityKeys:
    """What ``identity.key`` holds. Seeds are not in ``repr``.

    Raises `ValueError` for a seed that has not 32 bytes, or one seed in both places.
    """

    seed: bytes = field(repr=False)
    """Seed of the identity key."""
    next_seed: bytes | None = field(default=None, repr=False)
    """Seed of the identity key that will follow, to which cards commit; None if it is kept elsewhere."""

    def __post_init__(self) -> None:
        if len(self.seed) != SEED_BYTES or (self.next_seed is not None and len(self.next_seed) != SEED_BYTES):
            raise ValueError(f"a seed has {SEED_BYTES} bytes")
        if self.seed == self.next_seed:
            raise ValueError("the next identity key must be another one")


@final
@dataclass(frozen=True, slots=True)
class AgentKeys:
    """What ``agent.key`` holds: one operational key with all that hangs on it. Secrets are not in ``repr``.

    Raises `ValueError` when the card is not that of the operational key.
    """

    seed: bytes = field(repr=False)
    """Seed of the operational key."""
    card: SignedCard
    """The card that names the operational key."""
    chain: Chain
    """Secrets of the prekeys, from the oldest that is still needed."""

    def __post_init__(self) -> None:
        if SigningKey(self.seed).public != self.card.card.spk:
            raise ValueError("the card names another operational key")


Keys: TypeAlias = IdentityKeys | AgentKeys


def format_plain(keys: Keys, *, handle: str, realm: str, created_ms: int) -> str:
    """Return the text of a key file that nothing but its mode protects.

    ``handle``, ``realm`` and ``created_ms`` (Unix ms) go into comments. Raises `ValueError` for names that
    break their pattern.
    """
    return _comments(keys, handle, realm, created_ms) + f"{_PLAIN}\n{_write(keys)}"


def format_sealed(
    keys: Keys,
    passphrase: str,
    *,
    handle: str,
    realm: str,
    created_ms: int,
    passes: int = _PASSES,
    memory_kib: int = _MEMORY_KIB,
) -> str:
    """Return the text of a key file locked by a passphrase: Argon2id and XChaCha20-Poly1305.

    ``passes`` and ``memory_kib`` are Argon2id's cost; the defaults take some 0.1 s and 64 MiB.

    Raises `ValueError` for names that break their pattern, an empty passphrase, or a cost that `parse`
    would refuse.
    """
    if not passphrase:
        raise ValueError("an empty passphrase protects nothing")
    if passes not in _PASSES_RANGE or memory_kib not in _MEMORY_KIB_RANGE:
        raise ValueError("the cost is out of bounds")
    salt = nacl.bindings.randombytes(_SALT_BYTES)
    nonce = nacl.bindings.randombytes(_NONCE_BYTES)
    cost = f"argon2id t={passes} m={memory_kib} p=1"
    header = f"ringline-key v1 {cost} salt={b64encode(salt)} nonce={b64encode(nonce)}\n"
    key = _stretch(passphrase, salt, passes, memory_kib)
    sealed = nacl.bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
        _write(keys).encode("ascii"), header.encode("ascii"), nonce, key
    )
    return _comments(keys, handle, realm, created_ms) + f"{header}{b64encode(sealed)}\n"


def is_sealed(text: str) -> bool:
    """True when `parse` needs a passphrase for this text. Raises `KeyFileError` when it is no key file."""
    return _split(text)[0] != _PLAIN


def parse(text: str, passphrase: str | None = None) -> Keys:
    """Read a key file. A passphrase that is not needed is not used.

    The kind of the result tells the kind of the file. An agent's card is verified (its life is not judged).

    Raises `KeyFileError` for a file that is no key file, is damaged, asks for an outrageous amount of work,
    or does not open: without a passphrase, or with a wrong one. The text of the error quotes no content.
    """
    header, lines = _split(text)
    if header == _PLAIN:
        return _read(lines)
    match = _SEALED.fullmatch(header)
    if match is None:
        raise KeyFileError("the key file's header line is damaged, or of a later version", next_step=_RESTORE)
    passes, memory_kib = int(match[1]), int(match[2])
    if passes not in _PASSES_RANGE or memory_kib not in _MEMORY_KIB_RANGE:
        raise KeyFileError(
            "the key file asks for a cost of unlocking that is out of bounds", next_step=_RESTORE
        )
    if passphrase is None:
        raise KeyFileError("the key file is locked by a passphrase", next_step="give its passphrase")
    try:
        salt = b64decode(match[3], length=_SALT_BYTES)
        nonce = b64decode(match[4], length=_NONCE_BYTES)
        (line,) = lines
        sealed = b64decode(line)
    except (EncodingError, ValueError):
        raise KeyFileError("the key file is damaged", next_step=_RESTORE) from None
    try:
        opened = nacl.bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            sealed, f"{header}\n".encode("ascii"), nonce, _stretch(passphrase, salt, passes, memory_kib)
        )
        content = opened.decode("ascii")
    except (CryptoError, ValueError):  # ValueError: too short for a tag, or not ASCII
        raise KeyFileError(
            "the passphrase is not that of the key file, or the file is damaged",
            next_step="try the passphrase again; if it is right, restore the file from a backup",
        ) from None
    return _read(content.splitlines())


def _comments(keys: Keys, handle: str, realm: str, created_ms: int) -> str:
    # A name with a line feed in it could write key lines of its own.
    if not is_handle(handle) or not is_realm(realm):
        raise ValueError("a key file is for a handle of a realm")
    public = SigningKey(keys.seed).public
    kind = "identity" if isinstance(keys, IdentityKeys) else "operational"
    created = datetime.fromtimestamp(created_ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    lines = [
        f"Ringline {kind} key. Whoever has this file can act as this agent: do not share it.",
        f"created: {created}",
        f"handle: {handle}",
        f"realm: {realm}",
        f"public key: {b64encode(public)}",
    ]
    if isinstance(keys, IdentityKeys):
        lines.append(f"fingerprint: {fingerprint(public)}")
    return "".join(f"# {line}\n" for line in lines)


def _write(keys: Keys) -> str:
    if isinstance(keys, IdentityKeys):
        lines = [f"identity {b64encode(keys.seed)}"]
        if keys.next_seed is not None:
            lines.append(f"next {b64encode(keys.next_seed)}")
    else:
        lines = [
            f"operational {b64encode(keys.seed)}",
            f"card {b64encode(keys.card.card.encode())}",
            f"card-sig {b64encode(keys.card.signature)}",
            f"chain {keys.chain.epoch} {b64encode(keys.chain.link)}",
        ]
    return "".join(f"{line}\n" for line in lines)


def _split(text: str) -> tuple[str, list[str]]:
    """The header line, and the lines behind it; comments and empty lines are left out."""
    if len(text) > _CHARS:
        raise KeyFileError("this is no key file: it is too long", next_step=_RESTORE)
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    content = [line for line in lines if line and not line.startswith("#")]
    if not content or not content[0].startswith("ringline-key "):
        raise KeyFileError("this is no key file: its header line is missing", next_step=_RESTORE)
    return content[0], content[1:]


def _read(lines: list[str]) -> Keys:
    # Lines are quoted in no error: they are keys.
    fields = [line.split(" ") for line in lines]
    try:
        match fields:
            case [["identity", seed]]:
                return IdentityKeys(b64decode(seed, length=SEED_BYTES))
            case [["identity", seed], ["next", next_seed]]:
                return IdentityKeys(
                    b64decode(seed, length=SEED_BYTES), b64decode(next_seed, length=SEED_BYTES)
                )
            case [["operational", seed], ["card", card], ["card-sig", signature], ["chain", epoch, link]]:
                if not _NUMBER.fullmatch(epoch):
                    raise ValueError("an epoch is a number")
                return AgentKeys(
                    b64decode(seed, length=SEED_BYTES),
                    SignedCard.parse(b64decode(card), b64decode(signature, length=SIGNATURE_BYTES)),
                    Chain(int(epoch), b64decode(link, length=LINK_BYTES)),
                )
            case _:
                raise ValueError("not the lines of a key file")
    except (RinglineError, ValueError):
        raise KeyFileError("the key file is damaged", next_step=_RESTORE) from None


def _stretch(passphrase: str, salt: bytes, passes: int, memory_kib: int) -> bytes:
    try:
        return nacl.bindings.crypto_pwhash_alg(
            nacl.bindings.crypto_aead_xchacha20poly1305_ietf_KEYBYTES,
            passphrase.encode("utf-8"),
            salt,
            passes,
            memory_kib * 1_024,
            nacl.bindings.crypto_pwhash_ALG_ARGON2ID13,
        )
    except UnicodeEncodeError:
        raise KeyFileError("the passphrase is not text", next_step="give it as UTF-8") from None
    except CryptoError:
        raise KeyFileError(
            f"there is not enough memory to unlock the key file: it takes {memory_kib} KiB",
            next_step="unlock it on a larger machine",
        ) from None
