"""The private keys of an identity's prekeys, by the key id that an envelope names."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from ringline.client.generation import Generation
from ringline.protocol.identity import SignedCard
from ringline.protocol.suites import PrivateKey, available_suites

__all__ = ["OwnKey", "ring_of"]


@final
@dataclass(frozen=True, slots=True)
class OwnKey:
    """A private key to open a request with, and the own card under which it was published."""

    private: PrivateKey
    card: SignedCard


def ring_of(generations: Sequence[Generation], today: int) -> dict[bytes, OwnKey]:
    """Return the private keys that may still be sealed to, by key id; ``today`` is the present epoch.

    The newest generation comes first.
    """
    ring: dict[bytes, OwnKey] = {}
    for generation in reversed(generations):
        last = max([today, *generation.published])
        for key_id, private in generation.keys.chain.keyring(last, available_suites()).items():
            ring[key_id] = OwnKey(private, generation.keys.card)
    return ring
