"""Whether the statements of a key log are such as a relay may take: every signature, every succession.

A relay that keeps its rules appends only what holds, so an entry that does not is the relay's own doing.
Pure: entries come in by number, findings go out as sentences.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

from ringline.protocol.errors import BadSignature, ProtocolError, StatementError, WeakKey
from ringline.protocol.identity import Card, SignedCard
from ringline.protocol.logentry import decode_entry
from ringline.protocol.statements import SignedRevocation, SignedSuccession, check_replacement

__all__ = ["LogAudit"]


@final
@dataclass(slots=True)
class _Handle:
    """The cards of one handle, as far as the log was read."""

    current: Card
    succession: SignedSuccession | None = None


@final
@dataclass(slots=True)
class LogAudit:
    """Reads a log from its first entry on."""

    realm: str
    cards: int = 0
    successions: int = 0
    revocations: int = 0
    _handles: dict[str, _Handle] = field(default_factory=dict[str, _Handle])
    _cards: dict[bytes, Card] = field(default_factory=dict[bytes, Card])

    @property
    def handles(self) -> int:
        """The number of handles that have a card in the log."""
        return len(self._handles)

    def read(self, number: int, data: bytes) -> Iterator[str]:
        """Take the next entry; yield what is wrong with it, a sentence each."""
        try:
            entry = decode_entry(data)
            match entry:
                case SignedCard():
                    self.cards += 1
                    self._card(entry)
                case SignedSuccession():
                    self.successions += 1
                    self._succession(entry)
                case SignedRevocation():
                    self.revocations += 1
                    entry.verify(self._known(entry.revocation.card_id))
        except BadSignature:
            yield f"entry {number} does not hold: its signature is not that of its key"
        except (ProtocolError, WeakKey) as error:
            yield f"entry {number} does not hold: {error}"

    def _card(self, signed: SignedCard) -> None:
        card = signed.card
        signed.verify(realm=self.realm)
        known = self._handles.get(card.handle)
        if known is None:
            if card.serial != 1:
                raise StatementError(f"the first card of {card.handle} has the number {card.serial}")
            self._handles[card.handle] = _Handle(card)
        else:
            if card.serial != known.current.serial + 1:
                raise StatementError(
                    f"card {card.serial} of {card.handle} does not follow card {known.current.serial}"
                )
            check_replacement(known.current, card, known.succession)
            self._handles[card.handle] = _Handle(card)
        self._cards[card.id] = card

    def _succession(self, signed: SignedSuccession) -> None:
        old = self._known(signed.succession.old_card_id)
        signed.verify(old)
        known = self._handles[old.handle]
        if known.current.id != old.id:
            raise StatementError(f"a succession names a card of {old.handle} that was replaced before")
        known.succession = signed

    def _known(self, card_id: bytes) -> Card:
        card = self._cards.get(card_id)
        if card is None:
            raise StatementError("it is about a card that is not in the log before it")
        return card
