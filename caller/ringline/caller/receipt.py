"""Receipts: an outcome with all that proves who signed it, to whom, and in answer to what.

Whoever has a receipt can check it without a key and without the relay, and show it to others
(RL-ENVELOPE-043).
"""

from dataclasses import dataclass
from typing import final

from ringline.protocol.envelope import sign_input
from ringline.protocol.frames import Terminal
from ringline.protocol.identity import Card, SignedCard
from ringline.protocol.receipt import SignedOutcome
from ringline.protocol.signing import verify

__all__ = ["Receipt"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What is kept of an outcome that was opened."""

    call_id: str
    terminal: Terminal
    context: bytes
    """The encoded context: realm, both identities, ids, times, and the digest of the request."""
    body: bytes
    """The outcome's JSON, exactly as it was signed."""
    signature: bytes
    """Over context and body, by the operational key of the card; 64 bytes."""
    card: bytes
    card_signature: bytes
    """Over the card, by the identity key; 64 bytes."""
    opened_at: int
    """Unix ms."""

    @property
    def saved(self) -> SignedOutcome:
        """It as a file for others: what was signed, without what only this side says."""
        return SignedOutcome(
            context=self.context,
            answer=self.body,
            signature=self.signature,
            card=self.card,
            card_signature=self.card_signature,
        )

    def check(self) -> Card:
        """Verify both signatures and return the card of who signed.

        Raises `BadSignature`, `WeakKey` or `StatementError`.
        """
        signed = SignedCard.parse(self.card, self.card_signature)
        verify(signed.card.spk, sign_input(self.context, self.body), self.signature)
        return signed.card
