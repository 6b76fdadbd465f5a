"""What every kind of vector is made of: names, seeds, people, and one vector as data.

Everything follows from the text of a name, so that the files come out the same every time.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from ringline.protocol.encoding import b64encode
from ringline.protocol.identity import NO_NEXT, Card, SignedCard, next_commitment
from ringline.protocol.prekeys import Chain, Prekey, SignedPrekey, epoch_at
from ringline.protocol.signing import SigningKey

__all__ = ["NOW", "REALM", "Json", "Party", "Vector", "accepted", "refused", "seed"]

Json: TypeAlias = dict[str, Any]

REALM: Final = "relay.example"
NOW: Final = 1_790_000_000_000
"""The time at which everything happens, Unix ms."""

_HOUR: Final = 3_600_000
_DAY: Final = 24 * _HOUR


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """One question and its answer.

    ``op`` is what is asked, ``input`` what it is asked about. ``output`` is the answer when the input is
    accepted, ``layer`` what notices when it is refused. ``mutates`` is the vector that this one differs from
    in one place.
    """

    id: str
    op: str
    says: str
    input: Json
    output: Json | None = None
    layer: str = ""
    mutates: str = ""
    requirements: Sequence[str] = ()

    def document(self) -> Json:
        """Return it as it stands in a file."""
        expect = (
            {"result": "accepted", "output": self.output}
            if self.output is not None
            else {"result": "refused", "layer": self.layer}
        )
        mutates = {"mutates": self.mutates} if self.mutates else {}
        return {
            "id": self.id,
            "op": self.op,
            "says": self.says,
            **mutates,
            "requirements": list(self.requirements),
            "input": self.input,
            "expect": expect,
        }


def accepted(
    name: str, op: str, says: str, given: Mapping[str, Any], output: Mapping[str, Any], *requirements: str
) -> Vector:
    """Return a vector whose input is accepted."""
    return Vector(
        id=name, op=op, says=says, input=dict(given), output=dict(output), requirements=requirements
    )


def refused(
    name: str,
    of: Vector,
    says: str,
    given: Mapping[str, Any],
    layer: str,
    *requirements: str,
) -> Vector:
    """Return a vector whose input is refused: that of ``of`` with one mutation."""
    return Vector(
        id=name,
        op=of.op,
        says=says,
        input=dict(given),
        layer=layer,
        mutates=of.id,
        requirements=requirements,
    )


def seed(name: str) -> bytes:
    """Return 32 bytes that follow from a name, for a key, a link or an id."""
    return hashlib.sha256(f"ringline vectors: {name}".encode()).digest()


@final
@dataclass(frozen=True, slots=True)
class Party:
    """A handle with all its keys, which follow from its name.

    ``commits`` tells whether its card names the next identity.
    """

    handle: str
    serial: int = 1
    commits: bool = True

    @property
    def identity(self) -> SigningKey:
        """The identity key."""
        return SigningKey(seed(f"{self.handle} identity"))

    @property
    def next(self) -> SigningKey:
        """The identity key that will follow."""
        return SigningKey(seed(f"{self.handle} next identity"))

    @property
    def operational(self) -> SigningKey:
        """The operational key of the card of this serial."""
        return SigningKey(seed(f"{self.handle} operational {self.serial}"))

    @property
    def chain(self) -> Chain:
        """The chain of prekey secrets, from the present epoch on."""
        return Chain(epoch_at(NOW), seed(f"{self.handle} chain {self.serial}"))

    def card(self, **changes: Any) -> Card:
        """Return the card, with some fields changed."""
        fields: Json = {
            "realm": REALM,
            "handle": self.handle,
            "ipk": self.identity.public,
            "serial": self.serial,
            "not_before": NOW - _HOUR,
            "not_after": NOW - _HOUR + 90 * _DAY,
            "spk": self.operational.public,
            "next": next_commitment(self.next.public) if self.commits else NO_NEXT,
        }
        return Card(**(fields | changes))

    @property
    def signed_card(self) -> SignedCard:
        """The card, signed."""
        return SignedCard.sign(self.card(), self.identity)

    def prekey(self, *suites: int) -> Prekey:
        """Return the present statement for some suites."""
        return self.chain.statement(self.card().id, suites)

    def signed_prekey(self, *suites: int) -> SignedPrekey:
        """Return it, signed."""
        return SignedPrekey.sign(self.prekey(*suites), self.operational)

    def shown_card(self) -> Json:
        """Return the card as the HTTP interface shows it."""
        signed = self.signed_card
        return {"card": b64encode(signed.card.encode()), "card_sig": b64encode(signed.signature)}
