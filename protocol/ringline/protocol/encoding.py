"""Binary in text: base64url without padding, where one byte string has exactly one spelling.

The standard library's decoders skip junk, translate the other alphabet and ignore the spare bits of the
last character, so that many texts decode to the same bytes. What is compared, logged or counted as text
(card ids, ciphertexts, receipts) must not have a second spelling (RL-CONV-003).
"""

import base64
import binascii
import re
from typing import Final

from ringline.protocol.errors import EncodingError

__all__ = ["b64decode", "b64encode"]

_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]*")


def b64encode(data: bytes) -> str:
    """Return the canonical unpadded base64url text of ``data`` (RL-CONV-003, RFC 4648 §5)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def b64decode(text: str, *, length: int | None = None) -> bytes:
    """Return the bytes of a canonical base64url text.

    ``length`` is the number of bytes that must come out; without it any number but zero is taken.

    Raises `EncodingError` for anything but the text that `b64encode` gives for those bytes: another
    alphabet, padding, white space, spare bits that are not zero, a wrong length (RL-CONV-003).
    """
    if not _ALPHABET.fullmatch(text) or len(text) % 4 == 1:
        raise EncodingError("not base64url")
    if not text and length != 0:
        raise EncodingError("empty where bytes are expected")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:  # pragma: no cover - the pattern leaves nothing to refuse
        raise EncodingError("not base64url") from error
    # The last character has two or four bits to spare; only zeros there are canonical.
    if b64encode(data) != text:
        raise EncodingError("not canonical base64url")
    if length is not None and len(data) != length:
        raise EncodingError(f"{length} bytes expected, {len(data)} found")
    return data
