"""HPKE's key schedule written out (RFC 9180 §4, §5.1, §5.2), as a second opinion on the library in use.

Base mode and one shot only, with HKDF-SHA256 and ChaCha20-Poly1305, from a shared secret on: what the
KEM's own vectors give.
"""

import hmac
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

__all__ = ["key_and_nonce", "seal_with_secret"]

_KDF_AEAD: Final = (0x0001).to_bytes(2, "big") + (0x0003).to_bytes(2, "big")


def _extract(salt: bytes, ikm: bytes) -> bytes:
    return hmac.digest(salt, ikm, "sha256")


def _expand(prk: bytes, info: bytes, length: int) -> bytes:
    out, block = b"", b""
    while len(out) < length:
        block = hmac.digest(prk, block + info + bytes([len(out) // 32 + 1]), "sha256")
        out += block
    return out[:length]


def key_and_nonce(kem: int, shared_secret: bytes, info: bytes) -> tuple[bytes, bytes]:
    """Return the AEAD key and the first nonce for a KEM's shared secret."""
    suite = b"HPKE" + kem.to_bytes(2, "big") + _KDF_AEAD

    def extract(salt: bytes, label: bytes, ikm: bytes) -> bytes:
        return _extract(salt, b"HPKE-v1" + suite + label + ikm)

    def expand(prk: bytes, label: bytes, context: bytes, length: int) -> bytes:
        return _expand(prk, length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + context, length)

    context = b"\0" + extract(b"", b"psk_id_hash", b"") + extract(b"", b"info_hash", info)
    secret = extract(shared_secret, b"secret", b"")
    return expand(secret, b"key", context, 32), expand(secret, b"base_nonce", context, 12)


def seal_with_secret(kem: int, shared_secret: bytes, enc: bytes, info: bytes, plaintext: bytes) -> bytes:
    """Return ``enc`` and the ciphertext that belong to a given encapsulation."""
    key, nonce = key_and_nonce(kem, shared_secret, info)
    return enc + ChaCha20Poly1305(key).encrypt(nonce, plaintext, b"")
