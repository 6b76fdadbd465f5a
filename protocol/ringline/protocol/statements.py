"""How one identity key hands over to the next, and how a card is called back."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal, TypeAlias, final

from ringline.protocol.errors import EncodingError, StatementError
from ringline.protocol.identity import HASH_BYTES, NO_NEXT, Card, next_commitment
from ringline.protocol.limits import INT_MAX
from ringline.protocol.signing import PUBLIC_BYTES, SigningKey, check_public, verify
from ringline.protocol.transcript import Reader, label, u8, u64

__all__ = [
    "Reason",
    "Revocation",
    "RevokedBy",
    "SignedRevocation",
    "SignedSuccession",
    "Succession",
    "check_replacement",
    "keeps_next",
]

RevokedBy: TypeAlias = Literal["identity", "next"]
"""Which key signed a revocation, as the wire names it (RL-KEYS-034)."""

_UNNAMED: Final = "names another card"


class Reason(IntEnum):
    """Why a card is revoked."""

    UNSPECIFIED = 0
    COMPROMISED = 1
    RETIRED = 2


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Succession:
    """A new identity key takes over the handle of a card. Raises `StatementError` when malformed."""

    old_card_id: bytes
    """Id of the last card of the old identity, 32 bytes."""
    new_ipk: bytes
    """The identity key that follows, 32 bytes."""
    ts: int
    """Time of signing, Unix ms."""

    def __post_init__(self) -> None:
        if len(self.old_card_id) != HASH_BYTES or len(self.new_ipk) != PUBLIC_BYTES:
            raise StatementError("a field of the succession has the wrong length")
        if not 0 <= self.ts <= INT_MAX:
            raise StatementError("the succession's time is out of range")

    def encode(self) -> bytes:
        """Return the bytes that are signed (RL-ENVELOPE-001)."""
        return label("succession") + self.old_card_id + self.new_ipk + u64(self.ts)

    @classmethod
    def decode(cls, data: bytes) -> "Succession":
        """Return the succession of exactly these bytes. Raises `StatementError` for any other."""
        try:
            reader = Reader(data)
            reader.label("succession")
            statement = cls(
                old_card_id=reader.take(HASH_BYTES),
                new_ipk=reader.take(PUBLIC_BYTES),
                ts=reader.unsigned(8),
            )
            reader.end()
        except EncodingError as error:
            raise StatementError(f"not a succession: {error}") from error
        return statement


@final
@dataclass(frozen=True, slots=True)
class SignedSuccession:
    """A succession with the signature of the new identity key, and that of the old one where it is needed."""

    succession: Succession
    signature: bytes
    old_signature: bytes | None = None

    @classmethod
    def sign(
        cls, succession: Succession, new: SigningKey, old: SigningKey | None = None
    ) -> "SignedSuccession":
        """Return ``succession`` signed by the ``new`` identity key, and by the ``old`` one if given.

        Raises `ValueError` when ``new`` is not the key that the succession names.
        """
        if new.public != succession.new_ipk:
            raise ValueError("a succession is signed by the key it names")
        message = succession.encode()
        return cls(succession, new.sign(message), None if old is None else old.sign(message))

    def verify(self, old: Card) -> None:
        """Pass a succession that hands over from ``old``, a verified card.

        With a commitment in the card, the new key must be the committed one. Without, the old key must
        have signed too. An old signature that is there must hold in either case.

        Raises `StatementError` for another card or another key than the committed one, or a missing
        signature; `WeakKey`; `BadSignature`.
        """
        statement = self.succession
        if statement.old_card_id != old.id:
            raise StatementError(f"the succession {_UNNAMED}")
        check_public(statement.new_ipk)
        # RL-KEYS-054: a succession to the identity key that the old card has already is refused.
        if statement.new_ipk == old.ipk:
            raise StatementError("the succession hands over to the same key")
        message = statement.encode()
        if old.next == NO_NEXT:
            # RL-KEYS-030: from a card without a commitment, the old identity key must have signed too.
            if self.old_signature is None:
                raise StatementError("the card names no next key, and its identity key has not signed")
        # RL-KEYS-029: if the old card commits to a key, the new one must be that.
        elif next_commitment(statement.new_ipk) != old.next:
            raise StatementError("the new key is not the one that the card committed to")
        # RL-KEYS-031: an old signature must verify, even where none is needed.
        if self.old_signature is not None:
            verify(old.ipk, message, self.old_signature)
        # RL-KEYS-028: the new identity key must have signed.
        verify(statement.new_ipk, message, self.signature)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """A card must not be used any more. Raises `StatementError` when malformed."""

    card_id: bytes
    """Id of the card, 32 bytes."""
    reason: Reason
    ts: int
    """Time of signing, Unix ms."""

    def __post_init__(self) -> None:
        if len(self.card_id) != HASH_BYTES:
            raise StatementError("the revocation's card id has the wrong length")
        if not 0 <= self.ts <= INT_MAX:
            raise StatementError("the revocation's time is out of range")

    def encode(self) -> bytes:
        """Return the bytes that are signed (RL-ENVELOPE-001)."""
        return label("revoke") + self.card_id + u8(self.reason) + u64(self.ts)

    @classmethod
    def decode(cls, data: bytes) -> "Revocation":
        """Return the revocation of exactly these bytes. Raises `StatementError` for any other."""
        try:
            reader = Reader(data)
            reader.label("revoke")
            statement = cls(
                card_id=reader.take(HASH_BYTES),
                reason=Reason(reader.unsigned(1)),
                ts=reader.unsigned(8),
            )
            reader.end()
        except EncodingError as error:
            raise StatementError(f"not a revocation: {error}") from error
        except ValueError as error:
            raise StatementError("the revocation's reason is none of the known ones") from error
        return statement


@final
@dataclass(frozen=True, slots=True)
class SignedRevocation:
    """A revocation with its signature: the identity key's, or that of the committed next key.

    ``next_ipk`` is that next key, and None when the identity key signed.
    """

    revocation: Revocation
    signature: bytes
    next_ipk: bytes | None = None

    @classmethod
    def sign(cls, revocation: Revocation, key: SigningKey, *, by: RevokedBy) -> "SignedRevocation":
        """Return ``revocation`` signed by ``key``, which is the identity's or the next one."""
        signature = key.sign(revocation.encode())
        return cls(revocation, signature, key.public if by == "next" else None)

    @property
    def by(self) -> RevokedBy:
        """Which key is said to have signed."""
        return "identity" if self.next_ipk is None else "next"

    def verify(self, card: Card) -> None:
        """Pass a revocation of ``card`` (a verified one) by a key that may revoke it.

        Raises `StatementError` for another card, or a next key that the card did not commit to;
        `WeakKey`; `BadSignature`.
        """
        if self.revocation.card_id != card.id:
            raise StatementError(f"the revocation {_UNNAMED}")
        # RL-KEYS-034: signed by the card's identity key, or by the key to which the card commits.
        # RL-KEYS-035: by no other.
        signer = card.ipk
        if self.next_ipk is not None:
            check_public(self.next_ipk)
            # All zeros is the hash of no key, so a card without a commitment has no next key either.
            if next_commitment(self.next_ipk) != card.next:
                raise StatementError("the signer is not the next key that the card committed to")
            signer = self.next_ipk
        verify(signer, self.revocation.encode(), self.signature)


def keeps_next(earlier: Card, later: Card) -> bool:
    """Whether two cards of one identity agree on the identity that follows; one may be the first to name it.

    Whoever has stolen an identity key can sign cards with it. Were he free in this, he could name his own
    successor and keep the handle for good (RL-KEYS-010).
    """
    return earlier.next in (NO_NEXT, later.next)


def check_replacement(previous: Card, following: Card, succession: SignedSuccession | None = None) -> None:
    """Pass a card that may stand in the place of ``previous``; both verified (RL-KEYS-032, RL-KEYS-033).

    A handle passes on only within its identity, whose commitment to the next one stands once it was made, or
    by a succession that names ``previous``. Whether the
    serial is exactly the next one is for the relay to ask: a client may have missed some.

    Raises `StatementError`, `WeakKey` or `BadSignature`.
    """
    if (following.realm, following.handle) != (previous.realm, previous.handle):
        raise StatementError("the card is of another handle or realm")
    if following.serial <= previous.serial:
        raise StatementError("the card is not a later one")
    if following.ipk == previous.ipk:
        if not keeps_next(previous, following):
            raise StatementError("the card names another successor than the one before it")
        return
    if succession is None:
        raise StatementError("the card is of another identity, and no succession is shown")
    if succession.succession.new_ipk != following.ipk:
        raise StatementError("the succession hands over to another key")
    succession.verify(previous)
