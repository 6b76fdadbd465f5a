"""Ed25519, by PyNaCl and nothing else.

Other libraries accept a public key for which one fixed signature holds for every message. PyNaCl's
verification is the strict one, and `check_public` is called wherever a key enters the program, so a
peer cannot sign once and for all (RL-ENVELOPE-007). Everything that is signed is built by `transcript`, or is
the ASCII of a log-in token.
"""

from typing import Final, final

import nacl.bindings
from nacl.exceptions import BadSignatureError

from ringline.protocol.errors import BadSignature, WeakKey

__all__ = ["PUBLIC_BYTES", "SEED_BYTES", "SIGNATURE_BYTES", "SigningKey", "check_public", "verify"]

SEED_BYTES: Final = 32
PUBLIC_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64


@final
class SigningKey:
    """A private Ed25519 key. Its ``repr`` shows the public half only."""

    __slots__ = ("_secret", "public", "seed")

    public: bytes
    """The public key, 32 bytes."""
    seed: bytes
    """The private key as it is stored, 32 bytes."""

    def __init__(self, seed: bytes) -> None:
        """Derive the key from its 32-byte seed. Raises `ValueError` for another length."""
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a signing seed has {SEED_BYTES} bytes, not {len(seed)}")
        self.seed = seed
        self.public, self._secret = nacl.bindings.crypto_sign_seed_keypair(seed)

    @classmethod
    def generate(cls) -> "SigningKey":
        """Return a new key from the operating system's generator."""
        return cls(nacl.bindings.randombytes(SEED_BYTES))

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature of ``message``; the same one every time (RFC 8032 §5.1.6)."""
        return nacl.bindings.crypto_sign(message, self._secret)[:SIGNATURE_BYTES]

    def __repr__(self) -> str:
        return f"SigningKey(public={self.public.hex()})"


def check_public(public: bytes) -> None:
    """Pass a public key that is canonical and in the prime-order group.

    To be called once for every key that comes from outside, before it is stored or used.

    Raises `WeakKey` for a wrong length and for small-order, mixed-order and non-canonical points
    (RL-ENVELOPE-007).
    """
    if len(public) != PUBLIC_BYTES:
        raise WeakKey(f"a signing key has {PUBLIC_BYTES} bytes, not {len(public)}")
    if not nacl.bindings.crypto_core_ed25519_is_valid_point(public):
        raise WeakKey("the signing key is not a point of the prime-order group")


def verify(public: bytes, message: bytes, signature: bytes) -> None:
    """Pass when ``signature`` (64 bytes) is that of ``message`` under ``public`` (32 bytes, checked before).

    Raises `BadSignature` otherwise, wrong lengths included (RL-ENVELOPE-007).
    """
    # crypto_sign_open takes signature and message in one string: without the check of the length, bytes
    # could move between the two.
    if len(public) != PUBLIC_BYTES or len(signature) != SIGNATURE_BYTES:
        raise BadSignature("a key or a signature of the wrong length")
    try:
        nacl.bindings.crypto_sign_open(signature + message, public)
    except BadSignatureError:
        raise BadSignature from None
