"""Prekeys: where to encrypt to a handle, for some days, and how their secrets come and go.

An operational key signs a new statement every day. The secrets come from a chain of hashes with a random
first link, so that several hosts which share the chain publish the same bytes without talking to one
another; whoever holds a link can make all later ones and none of the earlier (RL-KEYS-027).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, final

import nacl.bindings
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ringline.protocol.errors import EncodingError, StatementError
from ringline.protocol.identity import HASH_BYTES, Card, check_span
from ringline.protocol.limits import (
    CLOCK_SLACK_MS,
    INT_MAX,
    PREKEY_LIFE_MS,
    PREKEY_ROTATION_MS,
    PREKEY_SECRET_TAIL_MS,
)
from ringline.protocol.signing import SIGNATURE_BYTES, SigningKey, verify
from ringline.protocol.suites import SEED_BYTES, SUITES, PrivateKey, available_suites, key_id
from ringline.protocol.transcript import Reader, digest, label, u8, u16, u32, u64, vec

__all__ = [
    "EPOCH_MS",
    "LINK_BYTES",
    "Chain",
    "Prekey",
    "SealingKey",
    "SignedPrekey",
    "delete_at",
    "epoch_at",
    "keep_from",
    "window",
]

EPOCH_MS: Final = 86_400_000
"""Length of an epoch: a day, counted from the Unix epoch."""

LINK_BYTES: Final = 32
_EPOCHS_OF_LIFE: Final = (PREKEY_LIFE_MS - CLOCK_SLACK_MS) // EPOCH_MS


def epoch_at(now_ms: int) -> int:
    """Return the epoch of a Unix time in ms."""
    return now_ms // EPOCH_MS


def window(epoch: int) -> tuple[int, int]:
    """Return ``not_before`` and ``not_after`` of that epoch's statement, in Unix ms (RL-KEYS-021)."""
    start = epoch * EPOCH_MS
    return start - CLOCK_SLACK_MS, start + _EPOCHS_OF_LIFE * EPOCH_MS


@final
@dataclass(frozen=True, slots=True)
class SealingKey:
    """A public key to encrypt to, and the suite it belongs to."""

    suite: int
    public: bytes

    @property
    def key_id(self) -> bytes:
        """The 32 bytes that name it."""
        return key_id(self.suite, self.public)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Prekey:
    """One statement. To exist it must be well-formed; `SignedPrekey.verify` tells whether it holds.

    Raises `StatementError` for a field that breaks its size, range or order.
    """

    card_id: bytes
    """Id of the card whose operational key signs, 32 bytes."""
    epoch: int
    """Rises with every replacement under one card."""
    not_before: int
    """Unix ms."""
    not_after: int
    """Unix ms, the first at which nothing may be sealed to these keys any more."""
    keys: tuple[SealingKey, ...]
    """At least one, suites ascending. Suites that this program does not know are kept and passed over."""

    def __post_init__(self) -> None:
        if len(self.card_id) != HASH_BYTES:
            raise StatementError("the prekey's card id has the wrong length")
        if not 0 <= self.epoch <= 0xFFFF_FFFF:
            raise StatementError("the prekey's epoch is out of range")
        check_span(self.not_before, self.not_after)
        if not 1 <= len(self.keys) <= 0xFF:
            raise StatementError("a prekey names 1 to 255 keys")
        # RL-KEYS-014: suites that do not ascend are refused, so that two hosts write the same bytes.
        ids = [key.suite for key in self.keys]
        if ids != sorted(set(ids)) or not 0 <= ids[0] <= ids[-1] <= 0xFFFF:
            raise StatementError("the prekey's suites are not in ascending order")
        for key in self.keys:
            suite = SUITES.get(key.suite)
            if suite is not None and len(key.public) != suite.npk:
                raise StatementError(f"the prekey's key of suite {key.suite} has the wrong length")

    def encode(self) -> bytes:
        """Return the bytes that are signed (RL-ENVELOPE-001)."""
        return b"".join(
            (
                label("prekey"),
                self.card_id,
                u32(self.epoch),
                u64(self.not_before),
                u64(self.not_after),
                u8(len(self.keys)),
                *(u16(key.suite) + vec(key.public) for key in self.keys),
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> "Prekey":
        """Return the statement of exactly these bytes.

        Raises `StatementError` for anything `encode` would not have written, bytes at the end included.
        """
        try:
            reader = Reader(data)
            reader.label("prekey")
            statement = cls(
                card_id=reader.take(HASH_BYTES),
                epoch=reader.unsigned(4),
                not_before=reader.unsigned(8),
                not_after=reader.unsigned(8),
                keys=tuple(SealingKey(reader.unsigned(2), reader.vec()) for _ in range(reader.unsigned(1))),
            )
            reader.end()
        except EncodingError as error:
            raise StatementError(f"not a prekey: {error}") from error
        return statement

    def check_life(self) -> None:
        """Raises `StatementError` for a claim to hold longer than `PREKEY_LIFE_MS` (RL-KEYS-016)."""
        check_span(self.not_before, self.not_after, PREKEY_LIFE_MS)

    def holds_at(self, time_ms: int, *, skew_ms: int = 0) -> bool:
        """True when ``time_ms`` (Unix) is within the statement's validity, give or take ``skew_ms``."""
        return self.not_before - skew_ms <= time_ms < self.not_after + skew_ms

    def best(self, allowed: Collection[int] | None = None) -> SealingKey | None:
        """Return the key of the highest suite that runs here and is in ``allowed`` (default: any).

        Keys of suites that this program does not know are passed over (RL-ENVELOPE-008, RL-KEYS-015). None
        when none is left: then nothing may be sealed.
        """
        usable = available_suites()
        for key in reversed(self.keys):
            if key.suite in usable and (allowed is None or key.suite in allowed):
                return key
        return None


@final
@dataclass(frozen=True, slots=True)
class SignedPrekey:
    """A statement and the operational key's signature over it (64 bytes), both as published."""

    prekey: Prekey
    signature: bytes

    @classmethod
    def sign(cls, prekey: Prekey, operational: SigningKey) -> "SignedPrekey":
        """Return ``prekey``, signed."""
        return cls(prekey, operational.sign(prekey.encode()))

    @classmethod
    def parse(cls, prekey: bytes, signature: bytes, card: Card) -> "SignedPrekey":
        """Read a published statement and verify it under ``card``, a verified card.

        Raises `StatementError`, `WeakKey` or `BadSignature`, as `Prekey.decode` and `verify` do.
        """
        signed = cls(Prekey.decode(prekey), signature)
        signed.verify(card)
        return signed

    def verify(self, card: Card) -> None:
        """Pass a statement made under ``card``, signed by its operational key, with keys fit for use.

        Raises `StatementError` for another card; `BadSignature`; `WeakKey`.
        """
        if self.prekey.card_id != card.id:
            raise StatementError("the prekey was published under another card")
        if len(self.signature) != SIGNATURE_BYTES:
            raise StatementError("the prekey's signature has the wrong length")
        # RL-KEYS-013: one that the operational key of the card it names has not signed is refused.
        verify(card.spk, self.prekey.encode(), self.signature)
        # RL-KEYS-014: so is a key of a known suite that is unusable. RL-KEYS-015: unknown suites are passed
        # over.
        for key in self.prekey.keys:
            suite = SUITES.get(key.suite)
            if suite is not None:
                suite.check_public(key.public)


@final
@dataclass(frozen=True, slots=True)
class Chain:
    """The chain of secrets of one operational key, from one epoch on.

    What is stored is the chain at the oldest epoch whose secret is still needed; to forget the earlier
    ones is to store a later link. The link is not in ``repr``.
    """

    epoch: int
    link: bytes = field(repr=False)

    def __post_init__(self) -> None:
        # A chain of an epoch that no statement can name is no chain: it comes from a damaged file.
        if len(self.link) != LINK_BYTES or self.epoch < 0 or window(self.epoch)[1] > INT_MAX:
            raise ValueError("a link has 32 bytes, an epoch is a day whose statement has times")

    @classmethod
    def start(cls, epoch: int) -> "Chain":
        """Return a new chain; its first link is from the operating system's generator."""
        return cls(epoch, nacl.bindings.randombytes(LINK_BYTES))

    def at(self, epoch: int) -> "Chain":
        """Return the chain from ``epoch`` on. Raises `ValueError` for one whose link is gone."""
        if epoch < self.epoch:
            raise ValueError(f"the link of epoch {epoch} is gone; the oldest is {self.epoch}")
        link = self.link
        for _ in range(epoch - self.epoch):
            link = digest(label("chain") + link)
        return Chain(epoch, link)

    def private(self, suite: int) -> PrivateKey:
        """Return the decryption key of this very epoch.

        Raises `KeyError` for an unknown suite, `ConfigError` for one that is not available here.
        """
        info = label("seed") + u16(suite)
        seed = HKDF(algorithm=SHA256(), length=SEED_BYTES, salt=b"", info=info).derive(self.link)
        return SUITES[suite].private_from_seed(seed)

    def statement(self, card_id: bytes, suites: Iterable[int]) -> Prekey:
        """Return this very epoch's statement under a card, for the given suites (RL-KEYS-027)."""
        not_before, not_after = window(self.epoch)
        return Prekey(
            card_id=card_id,
            epoch=self.epoch,
            not_before=not_before,
            not_after=not_after,
            keys=tuple(SealingKey(suite, self.private(suite).public) for suite in sorted(set(suites))),
        )

    def keyring(self, last: int, suites: Collection[int]) -> dict[bytes, PrivateKey]:
        """Return the decryption keys of this epoch up to ``last``, by key id: a ``kid`` is looked up here."""
        keys: dict[bytes, PrivateKey] = {}
        chain = self
        while chain.epoch <= last:
            for suite in suites:
                private = chain.private(suite)
                keys[private.key_id] = private
            chain = chain.at(chain.epoch + 1)
        return keys


def delete_at(not_after: int, superseded_at: int | None) -> int:
    """Return when the secret of a statement is to be deleted, and not before (RL-KEYS-022, RL-KEYS-023).

    All in Unix ms. ``superseded_at`` is when a later statement was published, None if none was. A caller may
    seal to what he holds for another day after that, and never once it has run out; then the longest call and
    the skew of both clocks are waited for.
    """
    last_use = not_after
    if superseded_at is not None:
        last_use = min(last_use, superseded_at + PREKEY_ROTATION_MS)
    return last_use + PREKEY_SECRET_TAIL_MS


def keep_from(published: Mapping[int, int], now_ms: int) -> int:
    """Return the lowest epoch whose secret must still be held; links before it are to be deleted.

    ``published`` maps every epoch that was published under the operational key to its Unix time of
    publication in ms. With none needed, it is the present epoch.
    """
    present = epoch_at(now_ms)
    for epoch in sorted(published):
        later = [time for other, time in published.items() if other > epoch]
        if now_ms < delete_at(window(epoch)[1], min(later, default=None)):
            return min(epoch, present)
    return present
