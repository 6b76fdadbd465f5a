"""Agents with fixed keys: the same handle has the same keys in every run, and in every test."""

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import Final

from ringline.protocol.context import Party, Recipient
from ringline.protocol.identity import NO_NEXT, Card, SignedCard
from ringline.protocol.signing import SigningKey
from ringline.protocol.suites import SUITES, PrivateKey

__all__ = ["NOW_MS", "REALM", "Agent", "agent", "seed"]

REALM: Final = "relay.example"
NOW_MS: Final = 1_790_000_000_000
_DAY_MS: Final = 86_400_000


def seed(name: str) -> bytes:
    """Return 32 bytes that only depend on ``name``."""
    return hashlib.sha256(b"ringline_testing: " + name.encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A handle with every key it needs to call and to be called in one suite."""

    handle: str
    identity: SigningKey
    operational: SigningKey
    card: SignedCard
    sealing: PrivateKey

    @property
    def party(self) -> Party:
        """The agent as a sender."""
        return Party(self.handle, self.identity.public, self.card.card.id)

    @property
    def recipient(self) -> Recipient:
        """The agent as a recipient."""
        return Recipient(self.handle, self.identity.public, self.sealing.suite, self.sealing.public)


@cache
def agent(
    handle: str, suite: int = 2, *, realm: str = REALM, serial: int = 1, next: bytes = NO_NEXT
) -> Agent:
    """Return the agent of that handle; its card holds for 90 days around `NOW_MS`."""
    identity = SigningKey(seed(f"{handle}/identity"))
    operational = SigningKey(seed(f"{handle}/operational"))
    card = Card(
        realm=realm,
        handle=handle,
        ipk=identity.public,
        serial=serial,
        not_before=NOW_MS - 3_600_000,
        not_after=NOW_MS + 90 * _DAY_MS,
        spk=operational.public,
        next=next,
    )
    return Agent(
        handle=handle,
        identity=identity,
        operational=operational,
        card=SignedCard.sign(card, identity),
        sealing=SUITES[suite].private_from_seed(seed(f"{handle}/sealing/{suite}")),
    )
