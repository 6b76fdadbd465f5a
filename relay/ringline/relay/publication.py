"""What owners send to the directory, read and checked as far as that needs no knowledge of the directory.

Every signature, every key, every life span (RL-KEYS-002 to RL-KEYS-005, RL-KEYS-008, RL-KEYS-013 to
RL-KEYS-017, RL-KEYS-028 to RL-KEYS-035). What passes here is well-made; whether it may stand is
`ringline.relay.directory`'s to say.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from ringline.protocol.encoding import b64decode
from ringline.protocol.errors import BadSignature, HttpProblem, ProtocolError, WeakKey
from ringline.protocol.identity import HASH_BYTES, Card, SignedCard
from ringline.protocol.instant import Instant
from ringline.protocol.limits import TOKEN_SKEW_S
from ringline.protocol.prekeys import Prekey, SignedPrekey
from ringline.protocol.shapes import (
    KeysPublication,
    PrekeyPublication,
    RevocationStatement,
    SuccessionStatement,
)
from ringline.protocol.signing import PUBLIC_BYTES, SIGNATURE_BYTES, check_public, verify
from ringline.protocol.statements import Reason, Revocation, SignedRevocation, SignedSuccession, Succession

__all__ = [
    "Publication",
    "read_prekey",
    "read_publication",
    "read_revocation",
    "read_succession",
    "refusing_malformed",
]

_SKEW_MS: Final = TOKEN_SKEW_S * 1000


@dataclass(frozen=True, slots=True)
class Publication:
    """A card with its first prekey statement, both verified; and a succession signed by its new key."""

    card: SignedCard
    prekey: SignedPrekey
    succession: SignedSuccession | None
    statement: SuccessionStatement | None
    """The succession as it came, for whoever pinned the old identity."""


@contextmanager
def refusing_malformed() -> Generator[None]:
    """Turn what the protocol package raises at an outsider's bytes into a 400."""
    try:
        yield
    except (ProtocolError, WeakKey, BadSignature) as error:
        raise HttpProblem(str(error), code="malformed") from None


def read_publication(body: KeysPublication, *, realm: str, now: Instant) -> Publication:
    """Return what a body of ``PUT /v1/handles/{h}`` publishes.

    Raises `HttpProblem` (400) for another realm, a weak key or one key in both roles, a signature that
    does not hold, a life that is too long, over, or not yet begun.
    """
    with refusing_malformed():
        signature = b64decode(body.card_sig, length=SIGNATURE_BYTES)
        card = SignedCard(Card.decode(b64decode(body.card)), signature)
        card.verify(realm=realm)
        card.card.check_life()
        _check_present("card", card.card, now)
        prekey = SignedPrekey(
            Prekey.decode(b64decode(body.prekey)), b64decode(body.prekey_sig, length=SIGNATURE_BYTES)
        )
        _check_prekey(prekey, card.card, now)
        if body.succession is UNSET:
            return Publication(card, prekey, None, None)
        succession = read_succession(body.succession)
    return Publication(card, prekey, succession, body.succession)


def read_prekey(body: PrekeyPublication, *, card: Card, now: Instant) -> SignedPrekey:
    """Return the statement of a body of ``PUT …/prekeys``, made under ``card``.

    Raises `HttpProblem`: 409 when it was made under another card, 400 as `read_publication` does.
    """
    with refusing_malformed():
        signature = b64decode(body.prekey_sig, length=SIGNATURE_BYTES)
        prekey = SignedPrekey(Prekey.decode(b64decode(body.prekey)), signature)
        if prekey.prekey.card_id != card.id:
            raise HttpProblem("the prekey was published under another card", code="conflict")
        _check_prekey(prekey, card, now)
    return prekey


def read_revocation(body: RevocationStatement) -> SignedRevocation:
    """Return the statement of a body of ``POST …/revocations``; it is yet to be verified under its card.

    Raises `HttpProblem` (400) for a malformed one.
    """
    try:
        reason = Reason(body.reason)
    except ValueError:
        raise HttpProblem("the revocation's reason is none of the known ones", code="malformed") from None
    with refusing_malformed():
        return SignedRevocation(
            Revocation(card_id=b64decode(body.card_id, length=HASH_BYTES), reason=reason, ts=body.ts),
            b64decode(body.sig, length=SIGNATURE_BYTES),
            None if body.next_ipk is UNSET else b64decode(body.next_ipk, length=PUBLIC_BYTES),
        )


def read_succession(body: SuccessionStatement) -> SignedSuccession:
    """Return the succession, its new key fit for use and its signature by that key verified.

    Raises `EncodingError`, `StatementError`, `WeakKey` or `BadSignature`.
    """
    statement = Succession(
        old_card_id=b64decode(body.old_card_id, length=HASH_BYTES),
        new_ipk=b64decode(body.new_ipk, length=PUBLIC_BYTES),
        ts=body.ts,
    )
    signature = b64decode(body.sig, length=SIGNATURE_BYTES)
    old = None if body.old_sig is UNSET else b64decode(body.old_sig, length=SIGNATURE_BYTES)
    check_public(statement.new_ipk)
    verify(statement.new_ipk, statement.encode(), signature)
    return SignedSuccession(statement, signature, old)


def _check_prekey(prekey: SignedPrekey, card: Card, now: Instant) -> None:
    prekey.verify(card)
    prekey.prekey.check_life()
    _check_present("prekey", prekey.prekey, now)


def _check_present(name: str, statement: Card | Prekey, now: Instant) -> None:
    """Pass a statement that holds now; its owner's clock may be ahead by the skew of a log-in."""
    if now.wall >= statement.not_after:
        raise HttpProblem(f"the {name}'s validity is over", code="malformed")
    if now.wall + _SKEW_MS < statement.not_before:
        raise HttpProblem(f"the {name}'s validity has not begun; check the clock", code="malformed")
