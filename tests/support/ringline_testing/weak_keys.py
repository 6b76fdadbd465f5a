"""Ed25519 keys that must not be used, and the signatures that make them dangerous."""

import hashlib
from typing import Final

import nacl.bindings
from nacl.exceptions import BadSignatureError

from ringline.protocol.signing import SigningKey

__all__ = ["GROUP_ORDER", "NEUTRAL", "NEUTRAL_SIGNATURE", "ORDER_8", "mixed_order", "mixed_order_signature"]

GROUP_ORDER: Final = 2**252 + 27742317777372353535851937790883648493

NEUTRAL: Final = b"\x01" + bytes(31)
"""The neutral point as a key."""

NEUTRAL_SIGNATURE: Final = b"\x01" + bytes(63)
"""What many libraries take for a signature of any message under `NEUTRAL`."""

ORDER_8: Final = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
"""A point of order 8, in its canonical encoding."""


def mixed_order(public: bytes) -> bytes:
    """Return an honest key with a point of order 8 added to it."""
    return nacl.bindings.crypto_core_ed25519_add(public, ORDER_8)


def mixed_order_signature(key: SigningKey, message: bytes) -> tuple[bytes, bytes]:
    """Return a mixed-order key and a signature of ``message`` under it which PyNaCl accepts.

    The holder of an honest key can make it: one nonce in eight makes the small part vanish.
    """
    mixed = mixed_order(key.public)
    # RFC 8032 §5.1.5: the secret scalar.
    secret = int.from_bytes(hashlib.sha512(key.seed).digest()[:32], "little")
    scalar = secret & ~7 & ((1 << 254) - 1) | 1 << 254
    for attempt in range(1_000):
        nonce = int.from_bytes(hashlib.sha512(attempt.to_bytes(2, "big")).digest(), "little") % GROUP_ORDER
        point = nacl.bindings.crypto_scalarmult_ed25519_base_noclamp(nonce.to_bytes(32, "little"))
        challenge = int.from_bytes(hashlib.sha512(point + mixed + message).digest(), "little") % GROUP_ORDER
        signature = point + ((nonce + challenge * scalar) % GROUP_ORDER).to_bytes(32, "little")
        try:
            nacl.bindings.crypto_sign_open(signature + message, mixed)
        except BadSignatureError:
            continue
        return mixed, signature
    raise AssertionError("no signature found")
