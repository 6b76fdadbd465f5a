"""Cards: who a handle is.

An identity key, which may stay offline, signs a card; the card names the operational key that does the
daily work, and commits to the identity key that will follow, so that a thief of today's key cannot name
his own successor (RL-KEYS-029).
"""

from dataclasses import dataclass
from typing import Final, final

from ringline.protocol.errors import EncodingError, StatementError
from ringline.protocol.limits import CARD_LIFE_MS, INT_MAX
from ringline.protocol.names import is_handle, is_realm
from ringline.protocol.signing import PUBLIC_BYTES, SIGNATURE_BYTES, SigningKey, check_public, verify
from ringline.protocol.transcript import Reader, digest, label, u32, u64, vec

__all__ = ["HASH_BYTES", "NO_NEXT", "Card", "SignedCard", "check_span", "next_commitment"]

HASH_BYTES: Final = 32
"""Size of every card id, key id and digest."""

NO_NEXT: Final = bytes(HASH_BYTES)
"""`Card.next` of an identity that names no successor in advance."""


def next_commitment(ipk: bytes) -> bytes:
    """Return the 32-byte commitment to ``ipk`` as the identity key that will follow (RL-KEYS-029)."""
    return digest(label("next") + ipk)


def check_span(not_before: int, not_after: int, limit: int = INT_MAX) -> None:
    """Pass a span of time of at most ``limit``; all three in ms, the first two Unix times.

    Raises `StatementError` when it is empty, too long, or outside ``0 .. 2^53 - 1`` (RL-KEYS-003).
    """
    if not 0 <= not_before < not_after <= INT_MAX:
        raise StatementError("the validity ends before it begins, or is no time at all")
    if not_after - not_before > limit:
        raise StatementError(
            f"the validity of {not_after - not_before} ms is longer than the {limit} ms allowed"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One card. To exist it must be well-formed; whether it holds is `SignedCard.verify`'s business.

    Raises `StatementError` for a field that breaks its pattern, size or range.
    """

    realm: str
    handle: str
    ipk: bytes
    """Identity key, 32 bytes."""
    serial: int
    """1 for the first card of a handle, then one more for each."""
    not_before: int
    """Unix ms; cards are issued with `CLOCK_SLACK_MS` of slack for clocks that run fast."""
    not_after: int
    """Unix ms, the first at which the card no longer holds."""
    spk: bytes
    """Operational signing key, 32 bytes, another than ``ipk``."""
    next: bytes
    """`next_commitment` of the identity key that will follow, or `NO_NEXT`; 32 bytes."""

    def __post_init__(self) -> None:
        # RL-KEYS-003: a card whose realm, handle, serial or times break their pattern or range is refused.
        if not is_realm(self.realm):
            raise StatementError("the card's realm is no realm name")
        if not is_handle(self.handle):
            raise StatementError("the card's handle is no handle")
        if not 1 <= self.serial <= 0xFFFF_FFFF:
            raise StatementError("the card's serial is out of range")
        check_span(self.not_before, self.not_after)
        if not len(self.ipk) == len(self.spk) == PUBLIC_BYTES or len(self.next) != HASH_BYTES:
            raise StatementError("a key or commitment of the card has the wrong length")

    def encode(self) -> bytes:
        """Return the bytes that are signed and hashed (RL-ENVELOPE-001)."""
        return b"".join(
            (
                label("card"),
                vec(self.realm.encode("ascii")),
                vec(self.handle.encode("ascii")),
                self.ipk,
                u32(self.serial),
                u64(self.not_before),
                u64(self.not_after),
                self.spk,
                self.next,
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> "Card":
        """Return the card of exactly these bytes.

        Raises `StatementError` for anything `encode` would not have written, bytes at the end included.
        """
        try:
            reader = Reader(data)
            reader.label("card")
            card = cls(
                realm=reader.text(),
                handle=reader.text(),
                ipk=reader.take(PUBLIC_BYTES),
                serial=reader.unsigned(4),
                not_before=reader.unsigned(8),
                not_after=reader.unsigned(8),
                spk=reader.take(PUBLIC_BYTES),
                next=reader.take(HASH_BYTES),
            )
            reader.end()
        except EncodingError as error:
            raise StatementError(f"not a card: {error}") from error
        return card

    @property
    def id(self) -> bytes:
        """The 32 bytes that name this card; its signature is not part of them."""
        return digest(self.encode())

    def check_life(self) -> None:
        """Raises `StatementError` for a claim to hold longer than `CARD_LIFE_MS` (RL-KEYS-005)."""
        check_span(self.not_before, self.not_after, CARD_LIFE_MS)

    def holds_at(self, time_ms: int, *, skew_ms: int = 0) -> bool:
        """True when ``time_ms`` (Unix) is within the card's validity, give or take ``skew_ms``."""
        return self.not_before - skew_ms <= time_ms < self.not_after + skew_ms


@final
@dataclass(frozen=True, slots=True)
class SignedCard:
    """A card and the identity key's signature over it (64 bytes), both as published."""

    card: Card
    signature: bytes

    @classmethod
    def sign(cls, card: Card, identity: SigningKey) -> "SignedCard":
        """Return ``card``, signed. Raises `ValueError` when ``identity`` is not the card's identity key."""
        if identity.public != card.ipk:
            raise ValueError("a card is signed by its own identity key")
        return cls(card, identity.sign(card.encode()))

    @classmethod
    def parse(cls, card: bytes, signature: bytes) -> "SignedCard":
        """Read a published card and verify it.

        Raises `StatementError`, `WeakKey` or `BadSignature`, as `Card.decode` and `verify` do.
        """
        signed = cls(Card.decode(card), signature)
        signed.verify()
        return signed

    def verify(
        self, *, realm: str | None = None, handle: str | None = None, ipk: bytes | None = None
    ) -> None:
        """Pass a card that its identity key signed and whose keys are fit for use.

        Each argument that is given must equal the card's field: the names under which it was asked for,
        the key that is pinned. Lives are judged apart, by `Card.check_life` and `Card.holds_at`.

        Raises `StatementError` for another card than asked for, or one key in both roles; `WeakKey`;
        `BadSignature`.
        """
        card = self.card
        if realm is not None and card.realm != realm:
            raise StatementError("the card is of another realm")
        if handle is not None and card.handle != handle:
            raise StatementError("the card is of another handle")
        if ipk is not None and card.ipk != ipk:
            raise StatementError("the card is of another identity")
        # RL-KEYS-004: a card that its identity key has not signed, or with a key that is not a canonical
        # point of the prime-order group, is refused.
        check_public(card.ipk)
        check_public(card.spk)
        # RL-KEYS-002: a card whose operational key is its identity key is refused, so that no operational key
        # can sign cards.
        if card.ipk == card.spk:
            raise StatementError("the card's operational key is its identity key")
        if len(self.signature) != SIGNATURE_BYTES:
            raise StatementError("the card's signature has the wrong length")
        verify(card.ipk, card.encode(), self.signature)
