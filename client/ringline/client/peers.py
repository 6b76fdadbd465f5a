"""From a handle to keys that may be sealed to, and from a card id to a key that may be believed.

Nothing that the relay tells is taken as it is: cards and prekeys are verified, compared with what is
pinned, and pinned in turn. Everything that is wrong here ends before anything is sealed (RL-KEYS-045).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, final

from ringline.client.address import RelayAddress
from ringline.client.clock import RelayClock
from ringline.client.contacts import Contacts, Pin
from ringline.client.http import RelayHttp
from ringline.client.keylog import KeyLog
from ringline.client.trust import (
    NO_CARD_SEEN,
    Shown,
    changed,
    check_next,
    following_pin,
    ran_out,
    read_card,
    read_keys,
    read_succession,
    revoked_keys,
    untrusted,
)
from ringline.protocol.contact import Contact
from ringline.protocol.context import Recipient
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import (
    BadSignature,
    ConfigError,
    EncodingError,
    HttpProblem,
    StatementError,
    TransportError,
    TrustError,
    WeakKey,
)
from ringline.protocol.identity import Card, SignedCard
from ringline.protocol.limits import CARD_GRACE_MS, ENVELOPE_SKEW_MS, PREKEY_ROTATION_MS
from ringline.protocol.prekeys import SealingKey
from ringline.protocol.suites import available_suites

__all__ = ["Peer", "Peers", "Sender"]

_CARDS_KEPT: Final = 1_024
_CARD_FRESH_MS: Final = 3_600_000


@final
@dataclass(frozen=True, slots=True)
class Peer:
    """A handle with keys that were verified and may be sealed to."""

    pin: Pin
    card: SignedCard
    sealing: SealingKey
    fetched_at: int
    """When the relay last told these keys, Unix ms by the computer's clock."""

    @property
    def recipient(self) -> Recipient:
        """The peer as the recipient of a request."""
        card = self.card.card
        return Recipient(card.handle, card.ipk, self.sealing.suite, self.sealing.public)


@final
@dataclass(frozen=True, slots=True)
class Sender:
    """A card that was verified for one envelope, and the identity it is believed to belong to."""

    pin: Pin
    card: SignedCard


@final
class Peers:
    """The peers of one account.

    ``trust_new`` pins the first key that the relay shows for an unknown handle; ``note`` is told about it,
    with the fingerprint, and about successions. ``min_suite`` is the lowest suite that is sealed to.
    """

    def __init__(
        self,
        address: RelayAddress,
        http: RelayHttp,
        contacts: Contacts,
        clock: RelayClock,
        *,
        trust_new: bool | None = None,
        min_suite: int = 1,
        note: Callable[[str], None] | None = None,
        log: KeyLog | None = None,
    ) -> None:
        """``trust_new`` is by default true in the development realm alone (RL-KEYS-040)."""
        self._address = address
        self._http = http
        self._contacts = contacts
        self._clock = clock
        self._trust_new = address.is_local if trust_new is None else trust_new
        self._allowed = frozenset(suite for suite in available_suites() if suite >= min_suite)
        self._min_suite = min_suite
        self._note = note or _say_nothing
        self._log = log
        self._cache: dict[str, Peer] = {}
        self._cards: dict[tuple[str, bytes], tuple[SignedCard, int]] = {}

    def add(self, contact: Contact) -> Pin:
        """Pin the key of a contact string, which vouches for it without the relay.

        Raises `ConfigError` when it is of another realm, `TrustError` when another key is pinned.
        """
        if contact.realm != self._address.realm:
            raise ConfigError(
                f"the contact {contact.handle} is of realm {contact.realm}; "
                f"the relay in use is of realm {self._address.realm}",
                next_step=f"use its relay: --relay {contact.base_url}",
            )
        now = self._clock.own_ms()

        def change(pin: Pin | None) -> Pin:
            if pin is None:
                return Pin(
                    realm=contact.realm,
                    handle=contact.handle,
                    ipk=contact.ipk,
                    source="contact",
                    first_seen=now,
                    verified_at=now,
                )
            if pin.ipk != contact.ipk:
                raise self._changed(pin, contact.ipk, "the contact string names another key")
            return pin if pin.verified_at is not None else replace(pin, verified_at=now)

        pin = self._contacts.update(contact.realm, contact.handle, change)
        assert pin is not None
        self._cache.pop(contact.handle, None)
        return pin

    def pinned(self, handle: str) -> Pin | None:
        """Return what is pinned for a handle; the own one is known without a pin."""
        return self._contacts.pin(self._address.realm, handle) or self._own(handle)

    async def look(self, handle: str) -> bytes:
        """Return the identity key that the relay shows for a handle; nothing is pinned, and nothing believed.

        Raises as `resolve` does.
        """
        keys = await self._http.keys(handle)
        return read_keys(self._address.realm, handle, keys).card.card.ipk

    def forget(self, handle: str) -> None:
        """Ask the relay anew the next time; the pin stays."""
        self._cache.pop(handle, None)

    async def resolve(self, handle: str) -> Peer:
        """Return keys to seal to, from memory if the relay told them within a day (RL-KEYS-026).

        Raises `TrustError`: ``untrusted_key`` when nothing is pinned and nobody said to trust first keys, or
        when what the relay shows does not hold; ``key_changed`` when the pinned identity does not vouch
        for what is shown, or older keys are shown than were seen before; ``revoked``. Raises
        `HttpProblem` ``not_found`` for a handle that does not exist or may not be reached.
        """
        now = self._clock.own_ms()
        known = self._cache.get(handle)
        pin = self.pinned(handle)
        if known is not None and pin == known.pin and 0 <= now - known.fetched_at <= PREKEY_ROTATION_MS:
            if self._log is not None:
                self._log.check_revoked(known.card)
            return known
        if pin is None and not self._trust_new:
            raise untrusted(handle, self._address.realm)
        pin, shown = await self._current(handle, now)
        peer = self._sealable(pin, shown, now)
        self._cache[handle] = peer
        return peer

    async def sender(self, handle: str, card_id: bytes, iat: int) -> Sender:
        """Return the card that an envelope's ``sid`` names, if it may speak for ``handle``.

        ``iat`` is the envelope's. The card is of the pinned identity, or of its direct predecessor or
        successor; it is the pinned one, a later one, or one that was replaced less than 96 hours ago; it
        holds at ``iat``, two minutes more or less. An unknown handle is pinned if first keys are trusted.

        Raises as `resolve` does; ``untrusted_key`` for a card that does not hold. Source:
        RL-ENVELOPE-020 to RL-ENVELOPE-022.
        """
        now = self._clock.own_ms()
        pin = self.pinned(handle)
        if pin is None:
            if not self._trust_new:
                raise untrusted(handle, self._address.realm)
            # The current card makes the pin; the envelope may be older. Whoever only calls may have let
            # prekeys run out, which matters to nobody who does not seal to him.
            pin, _ = await self._current(handle, now)
        if pin.card_id == card_id:
            card = pin.card
            assert card is not None
            revoked = await self._revoked(handle, card_id, now)
        else:
            card, revoked = await self._other_card(handle, card_id, now)
            pin = await self._place(handle, pin, card, now)
        # RL-KEYS-037: nothing is opened under a card that is shown as revoked.
        if revoked:
            raise revoked_keys(handle)
        # RL-ENVELOPE-022: the card held at iat, give or take 120 s.
        if not card.card.holds_at(iat, skew_ms=ENVELOPE_SKEW_MS):
            raise TrustError(f"the card of {handle} did not hold when the call was sealed")
        return Sender(pin, card)

    async def signer(self, handle: str, card_id: bytes, ipk: bytes) -> SignedCard:
        """Return the card of ``handle`` that signed an outcome; ``ipk`` is the identity its request was for.

        An outcome belongs to the identities of its request, whatever has happened since, so neither the
        pin nor the card's life is asked (RL-ENVELOPE-017, RL-ENVELOPE-038, RL-ENVELOPE-045). Raises
        `TrustError`, `HttpProblem`, `TransportError`.
        """
        pin = self.pinned(handle)
        if pin is not None and pin.card is not None and pin.card_id == card_id:
            card, revoked = pin.card, False
        else:
            card, revoked = await self._other_card(handle, card_id, self._clock.own_ms())
        if revoked:
            raise revoked_keys(handle)
        # RL-ENVELOPE-038: a card of the very identity that the request was sealed to.
        if card.card.ipk != ipk:
            raise TrustError(
                f"the outcome is signed by another identity than {handle} had when it was called",
                code="bad_signature",
            )
        return card

    async def _other_card(self, handle: str, card_id: bytes, now: int) -> tuple[SignedCard, bool]:
        """A card as the relay shows it, and whether it is revoked; from memory for an hour."""
        known = self._cards.get((handle, card_id))
        if known is not None and 0 <= now - known[1] <= _CARD_FRESH_MS:
            return known[0], False
        keys = await self._http.card(handle, card_id)
        card = read_card(self._address.realm, handle, keys.card, keys.card_sig)
        if card.card.id != card_id:
            raise TrustError(f"the relay shows another card of {handle} than it was asked for")
        if self._log is not None:
            await self._log.admit(card, keys.log_index, current=False)
        revoked = b64encode(card_id) in keys.revoked
        if not revoked:
            if len(self._cards) >= _CARDS_KEPT:
                self._cards.pop(next(iter(self._cards)))
            self._cards[handle, card_id] = (card, now)
        return card, revoked

    async def _revoked(self, handle: str, card_id: bytes, now: int) -> bool:
        """Whether the pinned card is revoked, as far as the relay tells.

        It also refuses calls under a revoked card itself; so when it cannot be asked, the call goes on.
        """
        try:
            return (await self._other_card(handle, card_id, now))[1]
        except (HttpProblem, TransportError):
            return False

    async def _place(self, handle: str, pin: Pin, card: SignedCard, now: int) -> Pin:
        """Pass a card that stands in a right relation to the pinned one, and return the pin."""
        shown = card.card
        held = pin.card
        if held is None:
            if shown.ipk != pin.ipk:
                raise self._changed(pin, shown.ipk, NO_CARD_SEEN)
            return pin
        if shown.ipk == pin.ipk:
            check_next(*sorted((held.card, shown), key=lambda card: card.serial))
        if shown.ipk == pin.ipk and shown.serial > held.card.serial:
            return pin
        if shown.serial < held.card.serial:
            # RL-ENVELOPE-021: replaced 96 h ago or earlier, by the not_before of the card that followed.
            if now >= held.card.not_before + CARD_GRACE_MS:
                raise TrustError(f"the call was sealed under a card of {handle} that was replaced long ago")
            # RL-ENVELOPE-020: of the pinned identity, or of its direct predecessor or successor.
            if shown.ipk != pin.ipk:
                await self._check_predecessor(handle, pin, shown)
            return pin
        # RL-KEYS-042: the same serial and other bytes.
        if shown.ipk == pin.ipk:
            raise TrustError(f"{handle} has two cards of one serial; the call was sealed under the other one")
        # Another identity with a later card: only the current keys show whether it succeeds rightly.
        self.forget(handle)
        current_pin, current = await self._current(handle, now)
        if current.card.card.ipk != shown.ipk:
            raise self._changed(pin, shown.ipk, "it is not the key that the relay shows now")
        return current_pin

    async def _check_predecessor(self, handle: str, pin: Pin, shown: Card) -> None:
        """Pass a card whose identity handed over to the pinned one. The statement proves itself."""
        try:
            succession = read_succession(await self._http.keys(handle))
            if succession is None or succession.succession.new_ipk != pin.ipk:
                raise StatementError("no succession from it is shown")
            succession.verify(shown)
        except (EncodingError, StatementError, WeakKey, BadSignature) as error:
            raise TrustError(
                f"the call was sealed under another identity than the one that is known of {handle}: {error}",
                code="key_changed",
            ) from error

    async def _current(self, handle: str, now: int) -> tuple[Pin, Shown]:
        """Ask the relay for the current keys, check them and pin them. Raises `TrustError`, `HttpProblem`."""
        try:
            keys = await self._http.keys(handle)
        except HttpProblem as error:
            if error.code != "not_found":
                raise
            raise HttpProblem(
                f"there is no {handle} at {self._address.base_url} that you may call (the relay says so). "
                "Nothing was sealed.",
                code="not_found",
                next_step="check the name, and whether its owner lets you call",
            ) from error
        shown = read_keys(self._address.realm, handle, keys)
        notes: list[str] = []

        def change(known: Pin | None) -> Pin:
            pin, note = following_pin(
                known or self._own(handle),
                shown,
                trust_new=self._trust_new,
                now_ms=now,
                place=str(self._contacts.path),
            )
            notes[:] = [note] if note else []
            return pin

        known = self._contacts.pin(self._address.realm, handle)
        pin = change(known)
        if self._log is not None:
            # Before it is pinned: what one victim alone is shown must not be believed from then on.
            await self._log.admit(shown.card, keys.log_index, current=True)
        if pin != known:
            # In a thread: another process may hold the file's lock.
            written = await asyncio.to_thread(self._contacts.update, self._address.realm, handle, change)
            assert written is not None
            pin = written
        for note in notes:
            self._note(note)
        return pin, shown

    def _sealable(self, pin: Pin, shown: Shown, now: int) -> Peer:
        """Return keys that hold now, of a suite that is allowed. Raises `TrustError`."""
        handle = pin.handle
        # RL-KEYS-025: card and prekeys hold at present by the caller's own clock, give or take 120 s.
        if not shown.card.card.holds_at(now, skew_ms=ENVELOPE_SKEW_MS):
            raise ran_out(handle, "card")
        if not shown.prekey.prekey.holds_at(now, skew_ms=ENVELOPE_SKEW_MS):
            raise ran_out(handle, "prekeys")
        # RL-ENVELOPE-008: the key of the highest suite that is implemented and allowed.
        sealing = shown.prekey.prekey.best(self._allowed)
        if sealing is None:
            raise TrustError(
                f"{handle} offers no key of a suite that is allowed here "
                f"(at least {self._min_suite}). Nothing was sealed.",
                next_step=f"ask {handle} to publish keys of a current suite",
            )
        return Peer(pin, shown.card, sealing, now)

    def _own(self, handle: str) -> Pin | None:
        """RL-ADMIT-027: a handle may call itself, and then needs nobody to tell its key."""
        account = self._http.account
        if handle != account.handle:
            return None
        return Pin(
            realm=self._address.realm,
            handle=handle,
            ipk=account.ipk,
            source="contact",
            first_seen=self._clock.own_ms(),
        )

    def _changed(self, pin: Pin, offered: bytes, why: str) -> TrustError:
        return changed(pin, offered, why, str(self._contacts.path))


def _say_nothing(text: str) -> None:
    del text
