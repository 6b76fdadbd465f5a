"""Ids that nobody can guess, drawn from the system's randomness many at a time.

A call of the kernel for each id costs as much as the rest of it. What is drawn and not used yet stands in
the process's memory, as the ids of all live calls do.
"""

import base64
import os
from collections.abc import Callable, Iterator
from typing import Final, final

__all__ = ["Draws"]

_MANY: Final = 256
_CALL_ID_CHARS: Final = 22  # of base64url: 132 bits
_DRAWN_BYTES: Final = _CALL_ID_CHARS * 3 // 2  # two ids: a whole number of base64's groups of three
_UUID_DIGITS: Final = 32
_VARIANT: Final = "89ab"


@final
class Draws:
    """``random`` gives so many bytes of the system's randomness, nothing less. For one thread."""

    def __init__(self, random: Callable[[int], bytes] = os.urandom) -> None:
        self._random = random
        self._call_ids = self._drawn_call_ids()
        self._uuids = self._drawn_uuids()

    def call_id(self) -> str:
        """Return a new call id: 22 characters of base64url, all random."""
        return next(self._call_ids)

    def uuid(self) -> str:
        """Return a new UUID of version 4 in its usual spelling (RFC 9562 §5.4)."""
        return next(self._uuids)

    def _drawn_call_ids(self) -> Iterator[str]:
        while True:
            text = base64.urlsafe_b64encode(self._random(_DRAWN_BYTES * _MANY)).decode()
            for start in range(0, len(text), _CALL_ID_CHARS):
                yield text[start : start + _CALL_ID_CHARS]

    def _drawn_uuids(self) -> Iterator[str]:
        while True:
            text = self._random(_UUID_DIGITS // 2 * _MANY).hex()
            for start in range(0, len(text), _UUID_DIGITS):
                digits = text[start : start + _UUID_DIGITS]
                variant = _VARIANT[int(digits[16], 16) % 4]
                yield (f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}")
