"""Sizes of sealed plaintexts, by the size of the body."""

from collections.abc import Iterator

from ringline.protocol.envelope import HEAD_BYTES, padded_size
from ringline.protocol.limits import OUTCOME_CAP_BYTES, PAD_FLOOR_BYTES, REQUEST_CAP_BYTES
from vectors.vector import Vector, accepted, refused

__all__ = ["vectors"]

_RULES = ("RL-ENVELOPE-012", "RL-ENVELOPE-030")
_CAPS = {"request": REQUEST_CAP_BYTES, "outcome": OUTCOME_CAP_BYTES}


def vectors() -> Iterator[Vector]:
    """Yield the vectors of this kind."""
    for direction, cap in _CAPS.items():
        # Around the floor, around steps of PADME, and around the cap.
        sizes = {0, 1, PAD_FLOOR_BYTES - HEAD_BYTES - 1, PAD_FLOOR_BYTES - HEAD_BYTES, cap - HEAD_BYTES - 1}
        for step in (PAD_FLOOR_BYTES, 2_112, 4_096, 65_536, 131_072, 262_144, cap - 8_192):
            sizes |= {step - HEAD_BYTES, step - HEAD_BYTES + 1}
        last = None
        for size in sorted(sizes | {cap - HEAD_BYTES}):
            last = accepted(
                f"padding.{direction}_{size}",
                "padding.size",
                f"a body of {size} bytes",
                {"direction": direction, "body_bytes": size},
                {"plaintext_bytes": padded_size(size, cap)},
                *_RULES,
            )
            yield last
        assert last is not None
        yield refused(
            f"padding.{direction}_too_large",
            last,
            "one byte more than fits",
            {"direction": direction, "body_bytes": cap - HEAD_BYTES + 1},
            "size",
            "RL-ENVELOPE-013",
        )
