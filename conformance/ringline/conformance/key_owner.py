"""The keys of a handle's owner, and the statements that he signs or damages: what is published of him."""

import time
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from ringline.protocol.encoding import b64encode
from ringline.protocol.identity import NO_NEXT, Card, SignedCard
from ringline.protocol.prekeys import Chain, Prekey, SealingKey, SignedPrekey, epoch_at, window
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import (
    Reason,
    Revocation,
    RevokedBy,
    SignedRevocation,
    SignedSuccession,
    Succession,
)

__all__ = ["KeyOwner", "now_ms"]

_HOUR: Final = 3_600_000
_DAY: Final = 24 * _HOUR


def now_ms() -> int:
    """Return Unix time in ms."""
    return time.time_ns() // 1_000_000


@dataclass(kw_only=True)
class KeyOwner:
    """The owner of a handle, as far as his keys go. Change a member to do it wrong. Times are Unix ms."""

    handle: str
    realm: str
    identity: SigningKey = field(default_factory=SigningKey.generate)
    operational: SigningKey = field(default_factory=SigningKey.generate)
    serial: int = 1
    next: bytes = NO_NEXT
    not_before: int = field(default_factory=lambda: now_ms() - _HOUR)
    life: int = 90 * _DAY
    chain: Chain = field(default_factory=lambda: Chain.start(epoch_at(now_ms())))
    succession: SignedSuccession | None = None
    suites: tuple[int, ...] = (1,)
    """For which its prekeys are; suite 1 is quick to make."""
    foreign_suites: tuple[int, ...] = ()
    """Suites that nobody knows, of which its prekeys name a key too."""
    prekey_changes: dict[str, Any] = field(default_factory=dict[str, Any])
    """Members of the prekey statement that are not what the calendar says."""

    def now(self) -> int:
        """Return the time at which statements are signed, Unix ms."""
        return now_ms()

    @property
    def card(self) -> SignedCard:
        """The card that these members make."""
        return SignedCard.sign(
            Card(
                realm=self.realm,
                handle=self.handle,
                ipk=self.identity.public,
                serial=self.serial,
                not_before=self.not_before,
                not_after=self.not_before + self.life,
                spk=self.operational.public,
                next=self.next,
            ),
            self.identity,
        )

    @property
    def card_id(self) -> str:
        """Its id in base64url."""
        return b64encode(self.card.card.id)

    @property
    def prekey(self) -> SignedPrekey:
        """The statement of the chain's epoch."""
        epoch = self.chain.epoch
        not_before, not_after = window(epoch)
        known = [SealingKey(suite, self.chain.private(suite).public) for suite in self.suites]
        foreign = [SealingKey(suite, bytes(32)) for suite in self.foreign_suites]
        statement = Prekey(
            card_id=self.card.card.id,
            epoch=epoch,
            not_before=not_before,
            not_after=not_after,
            keys=tuple(sorted(known + foreign, key=lambda key: key.suite)),
        )
        return SignedPrekey.sign(replace(statement, **self.prekey_changes), self.operational)

    def renewed(self, **changes: Any) -> Self:
        """Return this owner with the next card: another operational key, the serial one higher."""
        fresh: dict[str, Any] = {
            "serial": self.serial + 1,
            "operational": SigningKey.generate(),
            "chain": Chain.start(self.chain.epoch),
            "succession": None,
        }
        return replace(self, **(fresh | changes))

    def with_prekey_of(self, epoch: int) -> Self:
        """Return this owner with a prekey statement of another epoch, from a chain of its own."""
        return replace(self, chain=Chain.start(epoch))

    def succeeded(self, new: SigningKey, *, old_signs: bool = False, **changes: Any) -> Self:
        """Return the owner whose identity key is ``new``, with the succession that says so."""
        statement = Succession(old_card_id=self.card.card.id, new_ipk=new.public, ts=self.now())
        signed = SignedSuccession.sign(statement, new, self.identity if old_signs else None)
        return self.renewed(**({"identity": new, "next": NO_NEXT, "succession": signed} | changes))

    # --- what is published

    def publication(self, **changes: Any) -> dict[str, Any]:
        """Return the body of ``PUT /v1/handles/{h}``."""
        body: dict[str, Any] = {
            "card": b64encode(self.card.card.encode()),
            "card_sig": b64encode(self.card.signature),
        }
        body |= self.prekey_publication()
        if self.succession is not None:
            statement = self.succession.succession
            body["succession"] = {
                "old_card_id": b64encode(statement.old_card_id),
                "new_ipk": b64encode(statement.new_ipk),
                "ts": statement.ts,
                "sig": b64encode(self.succession.signature),
            }
            if self.succession.old_signature is not None:
                body["succession"]["old_sig"] = b64encode(self.succession.old_signature)
        return body | changes

    def prekey_publication(self) -> dict[str, Any]:
        """Return the body of ``PUT …/prekeys``."""
        return {
            "prekey": b64encode(self.prekey.prekey.encode()),
            "prekey_sig": b64encode(self.prekey.signature),
        }

    def revocation(
        self, *, by: RevokedBy = "identity", key: SigningKey | None = None, **changes: Any
    ) -> dict[str, Any]:
        """Return the body of ``POST …/revocations`` for the present card."""
        statement = Revocation(card_id=self.card.card.id, reason=Reason.COMPROMISED, ts=self.now())
        signed = SignedRevocation.sign(statement, key or self.identity, by=by)
        body: dict[str, Any] = {
            "card_id": self.card_id,
            "reason": int(statement.reason),
            "ts": statement.ts,
            "by": by,
            "sig": b64encode(signed.signature),
        }
        if signed.next_ipk is not None:
            body["next_ipk"] = b64encode(signed.next_ipk)
        return body | changes
