"""From seeds to encryption keys, and the chain that several hosts share."""

from collections.abc import Iterator

from ringline.protocol.encoding import b64encode
from ringline.protocol.prekeys import Chain, epoch_at
from ringline.protocol.suites import SUITES
from vectors.vector import NOW, Party, Vector, accepted, seed

__all__ = ["vectors"]


def vectors() -> Iterator[Vector]:
    """Yield the vectors of this kind."""
    for suite in SUITES.values():
        for name in ("one", "two"):
            key = seed(f"seed {name}")
            private = suite.private_from_seed(key)
            yield accepted(
                f"key.suite{suite.id}_{name}",
                "key.derive",
                "the public key of a seed, and its id",
                {"suite": suite.id, "seed": key.hex()},
                {"public": private.public.hex(), "key_id": b64encode(private.key_id)},
                "RL-ENVELOPE-005",
            )
    chain = Chain(epoch_at(NOW), seed("chain"))
    card = Party("alice").card()
    for days in (0, 1, 14):
        link = chain.at(chain.epoch + days)
        yield accepted(
            f"chain.after_{days}",
            "chain.statement",
            "the statement of an epoch, from the link of an earlier one",
            {
                "epoch": chain.epoch,
                "link": chain.link.hex(),
                "of_epoch": link.epoch,
                "card_id": card.id.hex(),
                "suites": [1, 2],
            },
            {"link": link.link.hex(), "statement": b64encode(link.statement(card.id, (1, 2)).encode())},
            "RL-KEYS-027",
        )
