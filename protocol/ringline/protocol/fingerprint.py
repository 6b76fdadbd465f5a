"""Keys as people compare them: one key as a fingerprint, a pair of them as a number (RL-KEYS-048)."""

import hashlib
from typing import Final

from ringline.protocol.signing import PUBLIC_BYTES
from ringline.protocol.transcript import digest, label, vec

__all__ = ["fingerprint", "safety_number"]

_CROCKFORD: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_GROUPS: Final = 8
_GROUP_CHARS: Final = 4
_CHUNKS: Final = 12
_CHUNK_BYTES: Final = 5


def fingerprint(ipk: bytes) -> str:
    """Return 160 bits of an identity key's hash as eight groups of Crockford's base32.

    Raises `ValueError` for a key that has not 32 bytes.
    """
    if len(ipk) != PUBLIC_BYTES:
        raise ValueError("an identity key has 32 bytes")
    bits = int.from_bytes(digest(label("fingerprint") + ipk)[:20], "big")
    text = "".join(_CROCKFORD[bits >> shift & 31] for shift in range(155, -1, -5))
    return " ".join(
        text[start : start + _GROUP_CHARS] for start in range(0, _GROUPS * _GROUP_CHARS, _GROUP_CHARS)
    )


def safety_number(handle: str, ipk: bytes, peer_handle: str, peer_ipk: bytes) -> str:
    """Return the number, twelve groups of five digits, that both sides see for their pair of identities.

    It does not matter who is who. Raises `ValueError` for a key that has not 32 bytes.
    """
    if not len(ipk) == len(peer_ipk) == PUBLIC_BYTES:
        raise ValueError("an identity key has 32 bytes")
    sides = sorted((vec(handle.encode("ascii")) + ipk, vec(peer_handle.encode("ascii")) + peer_ipk))
    mixed = hashlib.sha512(label("safety") + vec(sides[0]) + vec(sides[1])).digest()
    chunks = (mixed[start : start + _CHUNK_BYTES] for start in range(0, _CHUNKS * _CHUNK_BYTES, _CHUNK_BYTES))
    return " ".join(f"{int.from_bytes(chunk, 'big') % 100_000:05d}" for chunk in chunks)
