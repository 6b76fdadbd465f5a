"""What may be believed of what a relay shows: pure rules, from keys and a pin to the pin that follows.

A relay can show anything. Cards, prekeys and successions prove themselves or do not; a pinned identity goes
on only by itself or by a succession; nothing older is taken after something newer (RL-KEYS-045).
"""

from dataclasses import dataclass, replace
from typing import final

from msgspec import UNSET

from ringline.client.contacts import Pin
from ringline.protocol import shapes
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import (
    BadSignature,
    EncodingError,
    StatementError,
    TrustError,
    WeakKey,
)
from ringline.protocol.fingerprint import fingerprint
from ringline.protocol.identity import Card, SignedCard
from ringline.protocol.prekeys import SignedPrekey
from ringline.protocol.signing import SIGNATURE_BYTES
from ringline.protocol.statements import SignedSuccession, Succession, check_replacement, keeps_next

__all__ = [
    "NO_CARD_SEEN",
    "Shown",
    "changed",
    "check_next",
    "following_pin",
    "ran_out",
    "read_card",
    "read_keys",
    "read_succession",
    "revoked_keys",
    "untrusted",
]

NO_CARD_SEEN = "no card of the known key was seen that could vouch for it"
"""Why a pinned key that was never seen in use cannot be succeeded."""


@final
@dataclass(frozen=True, slots=True)
class Shown:
    """What a relay shows of a handle, each part verified by itself."""

    card: SignedCard
    prekey: SignedPrekey
    succession: SignedSuccession | None


def read_keys(realm: str, handle: str, keys: shapes.Keys) -> Shown:
    """Verify the current keys of a handle; whether they hold now is not asked.

    Raises `TrustError`: ``bad_signature`` for what does not prove itself, ``revoked``.
    """
    try:
        card = read_card(realm, handle, keys.card, keys.card_sig)
        prekey = SignedPrekey.parse(
            b64decode(keys.prekey), b64decode(keys.prekey_sig, length=SIGNATURE_BYTES), card.card
        )
        prekey.prekey.check_life()
        succession = read_succession(keys)
    except (EncodingError, StatementError, WeakKey, BadSignature) as error:
        raise _does_not_hold(handle, "keys", error) from error
    if b64encode(card.card.id) in keys.revoked:
        raise revoked_keys(handle)
    return Shown(card, prekey, succession)


def read_card(realm: str, handle: str, card: str, signature: str) -> SignedCard:
    """Verify a card of a handle, both parts base64url. Raises `TrustError` ``bad_signature``."""
    try:
        signed = SignedCard.parse(b64decode(card), b64decode(signature, length=SIGNATURE_BYTES))
        signed.verify(realm=realm, handle=handle)
        signed.card.check_life()
    except (EncodingError, StatementError, WeakKey, BadSignature) as error:
        raise _does_not_hold(handle, "card", error) from error
    return signed


def read_succession(keys: shapes.Keys) -> SignedSuccession | None:
    """Return the succession shown with keys, not verified. Raises `EncodingError` or `StatementError`."""
    stated = keys.succession
    if stated is UNSET:
        return None
    statement = Succession(
        old_card_id=b64decode(stated.old_card_id), new_ipk=b64decode(stated.new_ipk), ts=stated.ts
    )
    old_signature = None if stated.old_sig is UNSET else b64decode(stated.old_sig, length=SIGNATURE_BYTES)
    return SignedSuccession(statement, b64decode(stated.sig, length=SIGNATURE_BYTES), old_signature)


def following_pin(
    known: Pin | None, shown: Shown, *, trust_new: bool, now_ms: int, place: str
) -> tuple[Pin, str | None]:
    """Return the pin that follows from a pin and verified keys, and a note for people.

    ``place`` is where pins are kept, for people.

    Raises `TrustError`: ``untrusted_key`` without a pin and without ``trust_new``, ``key_changed`` for keys
    that the pinned identity does not vouch for, or that are older than what was seen before.
    """
    card, epoch = shown.card.card, shown.prekey.prekey.epoch
    if known is None:
        # RL-KEYS-040: without a pinned key nothing is sealed, unless the user asked to trust the first.
        if not trust_new:
            raise untrusted(card.handle, card.realm)
        pin = Pin(
            realm=card.realm,
            handle=card.handle,
            ipk=card.ipk,
            source="tofu",
            first_seen=now_ms,
            card=shown.card,
            prekey_epoch=epoch,
        )
        # RL-KEYS-043: a pin made at first sight is told, and one changed by a succession, with fingerprint.
        return pin, f"pinned the first key seen for {card.handle}: {pin.fingerprint}"
    if known.card is None:
        if card.ipk != known.ipk:
            raise changed(known, card.ipk, NO_CARD_SEEN, place)
        return known.seen(shown.card, epoch), None
    held = known.card.card
    if card.id == held.id:
        # RL-KEYS-020: prekeys of a lower epoch than were seen under the same card are refused, because their
        # secret may have leaked.
        if epoch < known.prekey_epoch:
            raise _rolled_back(known.handle, "prekeys")
        return (known if epoch == known.prekey_epoch else known.seen(shown.card, epoch)), None
    if card.ipk == known.ipk:
        # RL-KEYS-042: so is a card of the pinned identity with a lower serial, or the same and other bytes.
        if card.serial <= held.serial:
            raise _rolled_back(known.handle, "card")
        check_next(held, card)
        return known.seen(shown.card, epoch), None
    # RL-KEYS-033: another identity is taken by a valid succession from the card seen last, by nothing else.
    try:
        check_replacement(held, card, shown.succession)
    except (StatementError, WeakKey, BadSignature) as error:
        raise changed(known, card.ipk, str(error), place) from error
    # He is who he was, so he may what he might; but nobody has compared this key yet.
    pin = replace(
        known, ipk=card.ipk, source="succession", card=shown.card, prekey_epoch=epoch, verified_at=None
    )
    return pin, f"{pin.handle} has a new identity key, vouched for by the known one: {pin.fingerprint}"


def check_next(earlier: Card, later: Card) -> None:
    """Pass two cards of one identity that agree on the next one (RL-KEYS-010), or raise ``key_changed``."""
    if not keeps_next(earlier, later):
        raise TrustError(
            f"a card of {later.handle} names another successor than the one that is known here. "
            "Nothing was sealed.",
            code="key_changed",
            next_step=f"ask {later.handle} by another way: the identity key may be in a stranger's hands",
        )


def changed(pin: Pin, offered: bytes, why: str, place: str) -> TrustError:
    """Return the error for a key that is not the pinned one; ``offered`` is that key, 32 bytes."""
    return TrustError(
        f"the key of {pin.handle} is not the one that is known here. Nothing was sealed.\n"
        f"  known    {pin.fingerprint}\n"
        f"  offered  {fingerprint(offered)}\n"
        f"  {why}",
        code="key_changed",
        next_step=f"ask {pin.handle} by another way; if the key was changed on purpose, forget the old one "
        f"(kept in {place}) and add him again: ringline contacts rm {pin.handle}",
    )


def untrusted(handle: str, realm: str) -> TrustError:
    """Return the error for a handle of which nothing is pinned."""
    return TrustError(
        f"no key is known for {handle} in realm {realm}. Nothing was sealed.",
        next_step=f"ask {handle} for an invite (ringline invite) or the contact string (ringline id show), "
        "or pin the first key that the relay shows: --trust-new",
    )


def revoked_keys(handle: str) -> TrustError:
    """Return the error for a card that its owner has revoked."""
    return TrustError(
        f"{handle} has revoked the keys that the relay shows. Nothing was sealed.",
        code="revoked",
        next_step=f"ask {handle} for new keys",
    )


def ran_out(handle: str, what: str) -> TrustError:
    """Return the error for keys that do not hold at this time."""
    return TrustError(
        f"the {what} of {handle} do not hold at this time. Nothing was sealed.",
        next_step=f"{handle} renews them by being online; check this computer's clock too",
    )


def _rolled_back(handle: str, what: str) -> TrustError:
    return TrustError(
        f"the relay shows older {what} of {handle} than it did before. Nothing was sealed.",
        code="key_changed",
        next_step=f"ask {handle} to publish the keys again, and ask the relay's operator why",
    )


def _does_not_hold(handle: str, what: str, error: Exception) -> TrustError:
    return TrustError(
        f"the {what} that the relay shows for {handle} do not hold: {error}. Nothing was sealed.",
        code="bad_signature",
        next_step=f"ask {handle} to publish the keys again, and ask the relay's operator why",
    )
