"""Who is enrolled, with which keys, and whom they let through.

A method either answers from memory, or returns the changes that a request amounts to. Whoever asked
writes them to the store and only then hands them to `Directory.apply`, so that nothing is answered that a
restart would forget. The same `apply` brings back what the store holds at the start.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, final

import msgspec
from msgspec import UNSET, UnsetType

from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import BadSignature, HttpProblem, ProtocolError, WeakKey
from ringline.protocol.identity import Card, SignedCard
from ringline.protocol.instant import Instant
from ringline.protocol.limits import CARD_GRACE_MS, CARD_LOGIN_GRACE_MS
from ringline.protocol.logentry import LogEntry
from ringline.protocol.prekeys import SignedPrekey
from ringline.protocol.shapes import (
    Keys,
    Policy,
    PrekeyPublication,
    Published,
    RevocationStatement,
    SuccessionStatement,
    SupersededKeys,
)
from ringline.protocol.statements import check_replacement
from ringline.relay.invites import InviteBook
from ringline.relay.keylog import KeyLog
from ringline.relay.publication import Publication, read_prekey, read_revocation, refusing_malformed
from ringline.relay.store import (
    CardPublished,
    CardRevoked,
    Change,
    IdentityRemoved,
    LogAppended,
    PolicySet,
    PrekeyPublished,
)

__all__ = ["RECENT_CARDS", "Accept", "Decision", "Directory", "HeldCard"]

Accept: TypeAlias = Literal["anyone", "listed", "invited"]

RECENT_CARDS: Final = 64
"""Cards of one handle that may be replaced within `CARD_GRACE_MS`; each is still served so long."""

_successions: Final = msgspec.json.Decoder(SuccessionStatement)


@final
@dataclass(slots=True, eq=False)
class HeldCard:
    """A card that is, or was, a handle's current one. Verified before it came here."""

    card: Card
    id: str
    signature: bytes
    replaced_at: int | None = None
    """``not_before`` of the card that followed, Unix ms. It is what peers see too, so all agree on it."""
    revoked: bool = False

    def logs_in_until(self) -> int:
        """Return the first Unix ms at which this card logs nobody in any more; 0 for a revoked one."""
        if self.revoked:
            return 0
        # RL-KEYS-011: the card before the current one logs in for 48 h. RL-KEYS-039: its replacement closes
        # nothing.
        if self.replaced_at is None:
            return self.card.not_after
        return min(self.card.not_after, self.replaced_at + CARD_LOGIN_GRACE_MS)

    def is_recent(self, now: Instant) -> bool:
        """True for the current card, and for 96 h after it was replaced (RL-ADMIT-009, RL-HTTP-028)."""
        return self.replaced_at is None or now.wall < self.replaced_at + CARD_GRACE_MS


@final
@dataclass(slots=True, eq=False)
class _Enrolment:
    """One handle. ``cards`` has every card it ever had, by id, in the order of serials."""

    handle: str
    current: HeldCard
    policy: Policy
    cards: dict[str, HeldCard] = field(default_factory=dict[str, HeldCard])
    revoked: list[str] = field(default_factory=list[str])
    prekey: bytes = b""
    prekey_sig: bytes = b""
    epoch: int = 0
    succession: SuccessionStatement | UnsetType = UNSET
    allowed: frozenset[str] = frozenset()
    blocked: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Decision:
    """What a request amounts to. ``created`` tells 201 from 200; no ``changes`` means a repetition.

    ``refusal`` is what the request is answered with when it is refused and that is written down.
    """

    changes: tuple[Change, ...]
    created: bool = False
    refusal: HttpProblem | None = None


@final
class Directory:
    """The directory of one realm, and what the hub asks of it (`ringline.relay.authority.Authority`)."""

    def __init__(
        self,
        realm: str,
        *,
        accept: Accept = "listed",
        met: Callable[[str, str, Instant], bool] | None = None,
        invites: int = 0,
        log: KeyLog | None = None,
    ) -> None:
        """Start empty.

        ``accept`` is the policy of a handle whose owner has set none. ``met`` tells whether two
        handles were the two sides of a call within the last 96 h; without it none were. ``invites`` is how
        many of one inviter are kept that nobody took up, 0 for any number. ``log`` gets every card,
        succession and revocation; without it there is no key log.
        """
        self.realm = realm
        self.met = met
        self.log = log
        self.invites = InviteBook(invites)
        self._default = Policy(offline=False, accept=accept, allow=[], block=[])
        self._enrolled: dict[str, _Enrolment] = {}
        self._removed: set[str] = set()

    def __len__(self) -> int:
        return len(self._enrolled)

    # --- what the hub asks

    def sender_valid(self, handle: str, card_id: str, now: Instant) -> bool:
        """True when a request sealed under this card may be taken from ``handle`` (RL-ADMIT-009)."""
        held = self._card(handle, card_id)
        return held is not None and not held.revoked and held.is_recent(now)

    def may_reach(self, caller: str, callee: str) -> bool:
        """True when ``callee`` exists and lets ``caller`` through."""
        entry = self._enrolled.get(callee)
        if entry is None or caller in entry.blocked:
            return False
        # RL-ADMIT-018: not blocked, and anyone, or listed, or invited and with an accepted invite, or the
        # callee.
        if entry.policy.accept == "anyone" or caller in entry.allowed or caller == callee:
            return True
        return entry.policy.accept == "invited" and self.invites.lets(callee, caller)

    def takes_durable(self, callee: str) -> bool:
        """True when the owner of ``callee`` lets calls be stored (RL-ADMIT-021)."""
        entry = self._enrolled.get(callee)
        return entry is not None and entry.policy.offline

    def is_enrolled(self, handle: str) -> bool:
        """True when ``handle`` has an identity here."""
        return handle in self._enrolled

    def is_removed(self, handle: str) -> bool:
        """True when ``handle`` had an identity here that was removed: nobody gets it again."""
        return handle in self._removed

    def blocks(self, callee: str, caller: str) -> bool:
        """True when the owner of ``callee`` blocks ``caller``."""
        entry = self._enrolled.get(callee)
        return entry is not None and caller in entry.blocked

    def lists(self, callee: str, caller: str) -> bool:
        """True when the owner of ``callee`` has ``caller`` on the allow list, or it is himself."""
        entry = self._enrolled.get(callee)
        return entry is not None and (caller in entry.allowed or caller == callee)

    # --- log-in

    def login_card(self, handle: str, card_id: str, now: Instant) -> HeldCard | None:
        """Return the card when it may log ``handle`` in now."""
        held = self._card(handle, card_id)
        return held if held is not None and now.wall < held.logs_in_until() else None

    def logs_in_until(self, handle: str, card_id: str) -> int:
        """Return the first Unix ms at which the card does not log in (any more); 0 when it never does."""
        held = self._card(handle, card_id)
        return 0 if held is None else held.logs_in_until()

    def is_revoked(self, handle: str, card_id: str) -> bool:
        """True when the handle's owner called this card back."""
        held = self._card(handle, card_id)
        return held is not None and held.revoked

    # --- keys

    def keys(self, handle: str, asker: str, now: Instant) -> Keys | None:
        """Return the current keys of ``handle``, None when ``asker`` must not learn that it exists."""
        entry = self._visible(handle, asker, now)
        if entry is None:
            return None
        return Keys(
            handle=handle,
            card=b64encode(entry.current.card.encode()),
            card_sig=b64encode(entry.current.signature),
            prekey=b64encode(entry.prekey),
            prekey_sig=b64encode(entry.prekey_sig),
            revoked=list(entry.revoked),
            succession=entry.succession,
            log_index=self._log_index(entry.current.id),
        )

    def superseded(self, handle: str, card_id: str, asker: str, now: Instant) -> SupersededKeys | None:
        """Return one card of ``handle`` by its id, current or replaced less than 96 h ago; None as above."""
        entry = self._visible(handle, asker, now)
        held = None if entry is None else entry.cards.get(card_id)
        if entry is None or held is None or not held.is_recent(now):
            return None
        return SupersededKeys(
            handle=handle,
            card=b64encode(held.card.encode()),
            card_sig=b64encode(held.signature),
            revoked=list(entry.revoked),
            log_index=self._log_index(card_id),
        )

    def _visible(self, handle: str, asker: str, now: Instant) -> _Enrolment | None:
        entry = self._enrolled.get(handle)
        if entry is None:
            return None
        met = self.met is not None and self.met(asker, handle, now)
        # RL-HTTP-026, and the two sides of an invite: each must be able to check whom he got.
        met = met or self.invites.lets(handle, asker) or self.invites.lets(asker, handle)
        return entry if asker == handle or met or self.may_reach(asker, handle) else None

    def current_card_id(self, handle: str) -> str | None:
        """Return the id of the handle's current card, None for a handle that is not enrolled."""
        entry = self._enrolled.get(handle)
        return None if entry is None else entry.current.id

    def published(self, handle: str) -> Published:
        """Return what the directory holds of an enrolled handle. Raises `KeyError` for another."""
        entry = self._enrolled[handle]
        return Published(
            handle=handle,
            card_id=entry.current.id,
            serial=entry.current.card.serial,
            prekey_epoch=entry.epoch,
        )

    # --- requests of owners

    def publish(self, offer: Publication, now: Instant) -> Decision:
        """Decide on a publication, whose log-in has been verified under its own card.

        Raises `HttpProblem`: 409 for a handle of another identity, a serial that is not the next, a
        card that was replaced or called back, or other bytes under a known id; 429 for too many cards.
        """
        card = offer.card.card
        entry = self._enrolled.get(card.handle)
        if card.handle in self._removed:
            # Peers may still have the key of whoever had it.
            raise HttpProblem("this handle belongs to another identity", code="conflict")
        if entry is None:
            # RL-KEYS-007: a first card has serial 1, and no succession.
            if card.serial != 1 or offer.succession is not None:
                raise HttpProblem(
                    "the first card of a handle has serial 1 and no succession", code="conflict"
                )
            return Decision(self._publication(offer, now), created=True)
        if b64encode(card.id) == entry.current.id:
            return self._republish(entry, offer, now)
        self._check_follows(entry, offer, now)
        return Decision(self._publication(offer, now))

    def continues(self, offer: Publication) -> bool:
        """True when a publication is that of the identity which has the handle, or of its rightful heir."""
        entry = self._enrolled.get(offer.card.card.handle)
        if entry is None:
            return False
        if offer.card.card.ipk == entry.current.card.ipk:
            return True
        try:
            check_replacement(entry.current.card, offer.card.card, offer.succession)
        except (ProtocolError, WeakKey, BadSignature):
            return False
        return True

    def _republish(self, entry: _Enrolment, offer: Publication, now: Instant) -> Decision:
        if entry.current.revoked:
            raise HttpProblem("this card was called back", code="conflict")
        same = entry.current.signature == offer.card.signature
        if not same or (offer.statement is not None and offer.statement != entry.succession):
            raise HttpProblem("this card was published with another signature", code="conflict")
        return self._prekey(entry, offer.prekey, now)

    def _check_follows(self, entry: _Enrolment, offer: Publication, now: Instant) -> None:
        """Pass a card that may take the place of the current one."""
        before, after = entry.current.card, offer.card.card
        if after.ipk != before.ipk and offer.succession is None:
            # Create-only: a taken handle passes on by succession or not at all.
            raise HttpProblem("this handle belongs to another identity", code="conflict")
        if after.serial != before.serial + 1:
            raise HttpProblem(f"the next card of this handle has serial {before.serial + 1}", code="conflict")
        # What is served for 96 h and logs in for 48 h is counted from here: it must not go back.
        if after.not_before < before.not_before:
            raise HttpProblem("the card begins before the one it replaces", code="conflict")
        same = after.ipk == before.ipk
        if same and offer.statement is not None and offer.statement != entry.succession:
            raise HttpProblem("a card of the same identity needs no succession", code="conflict")
        try:
            check_replacement(before, after, offer.succession)
        except (ProtocolError, WeakKey, BadSignature) as error:
            raise HttpProblem(str(error), code="conflict") from None
        _check_rate(entry, now)

    def publish_prekey(self, handle: str, body: PrekeyPublication, now: Instant) -> Decision:
        """Decide on a prekey statement of an enrolled ``handle``.

        Raises `HttpProblem`: 400 for a malformed one, 409 for another card's, a lower epoch, or an equal
        one with other bytes (RL-HTTP-023).
        """
        entry = self._enrolled[handle]
        return self._prekey(entry, read_prekey(body, card=entry.current.card, now=now), now)

    def _prekey(self, entry: _Enrolment, offer: SignedPrekey, now: Instant) -> Decision:
        if (offer.prekey.encode(), offer.signature) == (entry.prekey, entry.prekey_sig):
            return Decision(())
        if offer.prekey.epoch <= entry.epoch:
            raise HttpProblem(
                f"a prekey of epoch {entry.epoch} is published; the next one has a higher epoch",
                code="conflict",
            )
        return Decision((_prekey_published(entry.handle, offer, now),))

    def policy(self, handle: str) -> Policy:
        """Return the policy of an enrolled handle. Raises `KeyError` for another."""
        return self._enrolled[handle].policy

    def set_policy(self, handle: str, policy: Policy) -> Decision:
        """Decide on the whole policy of an enrolled handle."""
        if policy == self._enrolled[handle].policy:
            return Decision(())
        return Decision((PolicySet(handle=handle, policy=policy),))

    def revoke(self, handle: str, body: RevocationStatement, now: Instant) -> Decision:
        """Decide on a revocation of one of the handle's cards, which proves itself.

        Raises `HttpProblem`: 404 for a handle or card that is not here, 400 for a statement that does not
        hold (RL-HTTP-031). A card that is revoked already stays revoked: no changes.
        """
        statement = read_revocation(body)
        held = self._card(handle, body.card_id)
        if held is None:
            raise HttpProblem(code="not_found")
        with refusing_malformed():
            statement.verify(held.card)
        if held.revoked:
            return Decision(())
        change = CardRevoked(
            handle=handle,
            card_id=held.id,
            reason=int(statement.revocation.reason),
            ts=statement.revocation.ts,
            by=statement.by,
            signature=statement.signature,
            next_ipk=statement.next_ipk,
            at=now.wall,
        )
        return Decision((change, *self._logged(statement)), created=True)

    def remove(self, handle: str, now: Instant) -> Decision:
        """Decide on the removal of an identity. Raises `HttpProblem` (404) for one that is not enrolled."""
        if handle not in self._enrolled:
            raise HttpProblem(code="not_found")
        return Decision((IdentityRemoved(handle=handle, at=now.wall),))

    # --- changes, when they are safe on disk

    def apply(self, change: Change) -> None:
        """Make ``change`` true. Raises `ValueError` or `KeyError` for one that cannot follow."""
        match change:
            case CardPublished():
                self._apply_card(change)
            case PrekeyPublished():
                entry = self._enrolled[change.handle]
                entry.prekey, entry.prekey_sig, entry.epoch = change.prekey, change.prekey_sig, change.epoch
            case PolicySet():
                entry = self._enrolled[change.handle]
                entry.policy = change.policy
                entry.allowed, entry.blocked = frozenset(change.policy.allow), frozenset(change.policy.block)
            case CardRevoked():
                entry = self._enrolled[change.handle]
                entry.cards[change.card_id].revoked = True
                entry.revoked.append(change.card_id)
            case LogAppended():
                if self.log is not None:
                    self.log.apply(change)
            case IdentityRemoved():
                del self._enrolled[change.handle]
                self._removed.add(change.handle)
                self.invites.remove(change.handle)
            case _:
                self.invites.apply(change)

    def _apply_card(self, change: CardPublished) -> None:
        card = Card.decode(change.card)
        if (card.handle, card.serial, card.realm) != (change.handle, change.serial, self.realm):
            raise ValueError("a stored card is not the one it is filed as")
        held = HeldCard(card, b64encode(card.id), change.card_sig)
        entry = self._enrolled.get(change.handle)
        if entry is None:
            entry = self._enrolled[change.handle] = _Enrolment(change.handle, held, self._default)
        else:
            entry.current.replaced_at = card.not_before
            entry.current = held
        entry.cards[held.id] = held
        if change.succession is not None:
            entry.succession = _successions.decode(change.succession)

    def _card(self, handle: str, card_id: str) -> HeldCard | None:
        entry = self._enrolled.get(handle)
        return None if entry is None else entry.cards.get(card_id)

    def _publication(self, offer: Publication, now: Instant) -> tuple[Change, ...]:
        statements = [offer.card] if offer.succession is None else [offer.succession, offer.card]
        return *_publication(offer, now), *self._logged(*statements)

    def _logged(self, *statements: LogEntry) -> tuple[LogAppended, ...]:
        return () if self.log is None else self.log.next(statements)

    def _log_index(self, card_id: str) -> int | UnsetType:
        index = None if self.log is None else self.log.index_of(card_id)
        return UNSET if index is None else index


def _check_rate(entry: _Enrolment, now: Instant) -> None:
    """Refuse to pile up cards: each is kept, and served for 96 h."""
    recent: list[int] = []
    for held in reversed(entry.cards.values()):
        if held.replaced_at is not None and held.is_recent(now):
            recent.append(held.replaced_at)
    if len(recent) >= RECENT_CARDS:
        wait = recent[RECENT_CARDS - 1] + CARD_GRACE_MS - now.wall
        raise HttpProblem("too many cards in four days", code="rate_limited", retry_after_ms=wait)


def _publication(offer: Publication, now: Instant) -> tuple[Change, ...]:
    card: SignedCard = offer.card
    published = CardPublished(
        handle=card.card.handle,
        card_id=b64encode(card.card.id),
        serial=card.card.serial,
        card=card.card.encode(),
        card_sig=card.signature,
        succession=None if offer.statement is None else msgspec.json.encode(offer.statement),
        at=now.wall,
    )
    return published, _prekey_published(card.card.handle, offer.prekey, now)


def _prekey_published(handle: str, offer: SignedPrekey, now: Instant) -> PrekeyPublished:
    return PrekeyPublished(
        handle=handle,
        card_id=b64encode(offer.prekey.card_id),
        epoch=offer.prekey.epoch,
        prekey=offer.prekey.encode(),
        prekey_sig=offer.signature,
        at=now.wall,
    )
