"""The byte strings that are signed, hashed or used as a KDF's context: how they are built and read.

Fields are fixed-size big-endian integers, fixed-size byte strings, or length-prefixed ones, and each
structure begins with a label that names its use. So no structure is a prefix of another or can be taken
for one, and nothing depends on how some serialiser orders or escapes (RL-ENVELOPE-001).
"""

import hashlib
from typing import Final

from ringline.protocol.errors import EncodingError

__all__ = ["USES", "Reader", "digest", "label", "u8", "u16", "u32", "u64", "vec"]

_PREFIX: Final = b"ringline-v1"

USES: Final = (
    "card",
    "prekey",
    "key",
    "ctx",
    "sig",
    "hpke",
    "next",
    "succession",
    "revoke",
    "chain",
    "seed",
    "fingerprint",
    "safety",
    "invite",
    "pairing",
)
"""Every use that has a label. ``auth`` is reserved and deliberately absent."""


def u8(value: int) -> bytes:
    """Return ``value`` in one byte. Raises `EncodingError` when it does not fit."""
    return _unsigned(value, 1)


def u16(value: int) -> bytes:
    """Return ``value`` in two bytes, big-endian. Raises `EncodingError` when it does not fit."""
    return _unsigned(value, 2)


def u32(value: int) -> bytes:
    """Return ``value`` in four bytes, big-endian. Raises `EncodingError` when it does not fit."""
    return _unsigned(value, 4)


def u64(value: int) -> bytes:
    """Return ``value`` in eight bytes, big-endian. Raises `EncodingError` when it does not fit."""
    return _unsigned(value, 8)


def vec(data: bytes) -> bytes:
    """Return ``data`` behind its length in two bytes. Raises `EncodingError` above 65,535 bytes."""
    return _unsigned(len(data), 2) + data


def digest(data: bytes) -> bytes:
    """Return the SHA-256 of ``data``, 32 bytes; the only hash of the transcripts."""
    return hashlib.sha256(data).digest()


def _unsigned(value: int, size: int) -> bytes:
    try:
        return value.to_bytes(size, "big")
    except OverflowError as error:
        raise EncodingError(f"{value} does not fit in {size} unsigned bytes") from error


_LABELS: Final = {use: vec(_PREFIX + b"/" + use.encode("ascii")) for use in USES}


def label(use: str) -> bytes:
    """Return the label with which every structure of that use begins (RL-ENVELOPE-001).

    Raises `KeyError` for a use that is not in `USES`: a mistake of the program, never of a peer.
    """
    return _LABELS[use]


class Reader:
    """Reads a structure field by field and insists on its end (RL-ENVELOPE-002).

    Every method raises `EncodingError` when the bytes run out, so whoever decodes a peer's bytes needs
    no length check of his own.
    """

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        """Read from the start of ``data``."""
        self._data = data
        self._at = 0

    def label(self, use: str) -> None:
        """Pass over the label of ``use``. Raises `EncodingError` when another structure is found."""
        if self.take(len(_LABELS[use])) != _LABELS[use]:
            raise EncodingError(f"not a structure for the use {use!r}")

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        end = self._at + size
        if end > len(self._data):
            raise EncodingError("structure is cut short")
        part = self._data[self._at : end]
        self._at = end
        return part

    def unsigned(self, size: int) -> int:
        """Return the next big-endian integer of ``size`` bytes."""
        return int.from_bytes(self.take(size), "big")

    def vec(self) -> bytes:
        """Return the next length-prefixed byte string."""
        return self.take(self.unsigned(2))

    def text(self) -> str:
        """Return the next length-prefixed string; every string of a transcript is ASCII."""
        try:
            return self.vec().decode("ascii")
        except UnicodeDecodeError as error:
            raise EncodingError("a name is not ASCII") from error

    def end(self) -> None:
        """Raises `EncodingError` when bytes are left over."""
        if self._at != len(self._data):
            raise EncodingError("bytes behind the end of a structure")
