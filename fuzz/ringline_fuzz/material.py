"""Two people, their keys and what they have signed: the same bytes in every run, but for seals."""

import functools
import hashlib
from pathlib import Path
from typing import Any, Final

import msgspec

from ringline.protocol.identity import Card, SignedCard, next_commitment
from ringline.protocol.keyfile import AgentKeys, IdentityKeys
from ringline.protocol.limits import CARD_LIFE_MS
from ringline.protocol.prekeys import Chain, SignedPrekey, epoch_at
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import (
    Reason,
    Revocation,
    SignedRevocation,
    SignedSuccession,
    Succession,
)

__all__ = ["ALICE", "BOB", "NOW", "REALM", "Person", "seed_of", "vector_inputs"]

NOW: Final = 1_790_000_000_000
"""When everything happens, Unix ms."""

REALM: Final = "relay.example"
_VECTORS: Final = Path(__file__).parents[2] / "spec" / "vectors"


def seed_of(name: str) -> bytes:
    """Return the 32 bytes that a name stands for."""
    return hashlib.sha256(f"ringline fuzz: {name}".encode()).digest()


class Person:
    """One identity with a card, prekeys and the statements that it could make. Suite 1 alone."""

    def __init__(self, handle: str) -> None:
        self.handle = handle
        self.identity = SigningKey(seed_of(f"{handle} identity"))
        self.following = SigningKey(seed_of(f"{handle} next"))
        self.operational = SigningKey(seed_of(f"{handle} operational"))
        self.chain = Chain(epoch_at(NOW), seed_of(f"{handle} chain"))
        card = Card(
            realm=REALM,
            handle=handle,
            ipk=self.identity.public,
            serial=7,
            not_before=NOW - 3_600_000,
            not_after=NOW - 3_600_000 + CARD_LIFE_MS,
            spk=self.operational.public,
            next=next_commitment(self.following.public),
        )
        self.card = SignedCard.sign(card, self.identity)
        self.prekey = SignedPrekey.sign(self.chain.statement(card.id, [1]), self.operational)
        self.succession = SignedSuccession.sign(
            Succession(old_card_id=card.id, new_ipk=self.following.public, ts=NOW),
            self.following,
            self.identity,
        )
        revoked = Revocation(card_id=card.id, reason=Reason.COMPROMISED, ts=NOW)
        self.revocation = SignedRevocation.sign(revoked, self.identity, by="identity")
        self.revocation_by_next = SignedRevocation.sign(revoked, self.following, by="next")

    @property
    def identity_keys(self) -> IdentityKeys:
        """What his identity key file holds."""
        return IdentityKeys(self.identity.seed, self.following.seed)

    @property
    def agent_keys(self) -> AgentKeys:
        """What his operational key file holds."""
        return AgentKeys(self.operational.seed, self.card, self.chain)


ALICE: Final = Person("alice")
BOB: Final = Person("bob")


class _Vector(msgspec.Struct):
    op: str
    input: dict[str, Any]


class _File(msgspec.Struct):
    vectors: list[_Vector] = msgspec.field(default_factory=list[_Vector])


@functools.cache
def vector_inputs(op: str) -> list[dict[str, Any]]:
    """Return the inputs of the test vectors of one operation, accepted and refused ones."""
    found: list[dict[str, Any]] = []
    for file in sorted(_VECTORS.glob("*.json")):
        # Vectors of others are lists, or have their cases elsewhere.
        data = file.read_bytes()
        vectors = msgspec.json.decode(data, type=_File).vectors if data.lstrip().startswith(b"{") else []
        found += [vector.input for vector in vectors if vector.op == op]
    return found
