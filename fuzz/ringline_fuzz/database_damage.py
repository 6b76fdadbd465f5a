"""Damage to SQLite files."""

from random import Random
from typing import Final

from ringline_fuzz.mutation import mutate_bytes

__all__ = ["damaged_database"]

_PAGE: Final = 4_096


def damaged_database(random: Random, data: bytes, *, doubled: bool = True) -> bytes:
    """Return the file after damage of the kinds that disks and people do.

    Flipped bytes, lost and ``doubled`` pages, a file cut short. A page in the place of another of the same
    shape is a whole database without checksums, so no reader can tell.
    """
    out = bytearray(data)
    pages = max(len(out) // _PAGE, 1)
    at = random.randrange(pages) * _PAGE
    match random.randrange(10):
        case 0:
            out[at : at + _PAGE] = bytes(_PAGE)
        case 1 if doubled:
            other = random.randrange(pages) * _PAGE
            out[at : at + _PAGE] = out[other : other + _PAGE]
        case 2:
            del out[random.randrange(len(out) + 1) :]
        case 3:
            # The first hundred bytes say what the file is.
            place = random.choice((random.randrange(100), 60, 60, 63, 68))
            if place < len(out):
                out[place] = random.randrange(256)
        case 4:
            place = at + random.randrange(12)
            if place < len(out):
                out[place] = random.randrange(256)
        case 5:
            return mutate_bytes(random, data, ()) if doubled else bytes(out[: len(out) // 2])
        case _:
            for _ in range(random.choice((1, 1, 2, 16))):
                if out:
                    out[random.randrange(len(out))] ^= 1 << random.randrange(8)
    return bytes(out)
