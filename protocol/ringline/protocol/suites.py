"""The two ways to encrypt to a key: HPKE with X25519, and with the hybrid of ML-KEM-768 and X25519.

A suite belongs to the recipient's signed key and is never negotiated; a key id binds the two together
(RL-ENVELOPE-018). Both use HKDF-SHA256 and ChaCha20-Poly1305. A private key is a 32-byte seed in either
suite. Should a later draft change the bytes of the hybrid, it gets a new id; id 2 keeps these.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final, TypeAlias, final

import nacl.bindings
from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric import mlkem, x25519

from ringline.protocol.errors import CannotOpen, ConfigError, WeakKey
from ringline.protocol.transcript import digest, label, u16

__all__ = ["HYBRID", "SEED_BYTES", "SUITES", "X25519", "PrivateKey", "Suite", "available_suites", "key_id"]

SEED_BYTES: Final = 32
_TAG_BYTES: Final = 16
_CURVE_BYTES: Final = 32
_LATTICE_BYTES: Final = 1184

# Multiplying by any clamped scalar tells a point of small order: the product is zero, which pyca refuses.
_PROBE: Final = x25519.X25519PrivateKey.from_private_bytes(b"ringline: probe of a public key.")

_Private: TypeAlias = x25519.X25519PrivateKey | hpke.MLKEM768X25519PrivateKey
_Public: TypeAlias = x25519.X25519PublicKey | hpke.MLKEM768X25519PublicKey


@final
class PrivateKey:
    """A decryption key of one suite. Its ``repr`` shows the key id only."""

    __slots__ = ("_native", "key_id", "public", "seed", "suite")

    suite: int
    """Id of the suite the key belongs to."""
    seed: bytes
    """The private key as it is stored, 32 bytes."""
    public: bytes
    """The public key, ``npk`` bytes of its suite."""
    key_id: bytes
    """What names the public key under its suite, 32 bytes."""

    def __init__(self, suite: int, seed: bytes, public: bytes, native: _Private) -> None:
        self.suite = suite
        self.seed = seed
        self.public = public
        self.key_id = key_id(suite, public)
        self._native = native

    @property
    def native(self) -> _Private:
        """The key as pyca holds it."""
        return self._native

    def __repr__(self) -> str:
        return f"PrivateKey(suite={self.suite}, key_id={self.key_id.hex()})"


@final
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Suite:
    """One of the suites (RL-ENVELOPE-003, RL-ENVELOPE-004); sizes are in bytes.

    The KDF is always HPKE's 0x0001, the AEAD 0x0003.
    """

    id: int
    """The number on the wire."""
    kem: int
    """The code point of the HPKE KEM."""
    name: str
    """The name for people."""
    npk: int
    """Size of a public key."""
    nenc: int
    """Size of the encapsulated key, the first part of a ciphertext."""
    available: Callable[[], bool]
    """Whether this build of ``cryptography`` can run the suite."""
    _hpke: hpke.Suite
    _expand: Callable[[bytes], tuple[_Private, bytes]]
    _import: Callable[[bytes], _Public]
    _check: Callable[[bytes], object]

    @property
    def overhead(self) -> int:
        """Bytes by which a ciphertext is longer than its plaintext."""
        return self.nenc + _TAG_BYTES

    def generate(self) -> PrivateKey:
        """Return a new key; its seed is from the operating system's generator, never from an HPKE library.

        Raises `ConfigError` when the suite is not available here.
        """
        return self.private_from_seed(nacl.bindings.randombytes(SEED_BYTES))

    def private_from_seed(self, seed: bytes) -> PrivateKey:
        """Return the key of a stored 32-byte seed.

        Raises `ValueError` for another length, `ConfigError` when the suite is not available here.
        """
        if len(seed) != SEED_BYTES:
            raise ValueError(f"the seed of a decryption key has {SEED_BYTES} bytes, not {len(seed)}")
        self._require()
        native, public = self._expand(seed)
        return PrivateKey(self.id, seed, public, native)

    def check_public(self, public: bytes) -> None:
        """Pass a public key that may be stored and sealed to; for each key that comes from outside.

        Raises `WeakKey` for a wrong length, a curve point of small order or with its high bit set, and a
        lattice key that is not reduced (RL-ENVELOPE-006). Where ML-KEM is not available the lattice
        half is passed unread: such a program cannot seal to it anyway.
        """
        self._check_length(public)
        self._check(public)

    def seal(self, public: bytes, info: bytes, plaintext: bytes) -> bytes:
        """Return the encapsulated key followed by the ciphertext: HPKE base mode, one shot, empty ``aad``.

        Raises `WeakKey` as `check_public` does, `ConfigError` when the suite is not available here.
        """
        self._require()
        self._check_length(public)
        return self._hpke.encrypt(plaintext, self._import(public), info)

    def open(self, private: PrivateKey, info: bytes, ciphertext: bytes) -> bytes:
        """Return the plaintext of what `seal` made for this key and this ``info``.

        Raises `CannotOpen` for every other input, a key of the other suite included; the cause is not
        told apart (RL-ENVELOPE-033).
        """
        try:
            return self._hpke.decrypt(ciphertext, private.native, info)
        except (InvalidTag, ValueError, TypeError):
            raise CannotOpen("seal") from None

    def _require(self) -> None:
        if not self.available():
            raise ConfigError(
                f"suite {self.name} needs ML-KEM, which this build of the cryptography package lacks",
                next_step="install cryptography from its wheel, which carries OpenSSL 3.5 or later",
            )

    def _check_length(self, public: bytes) -> None:
        if len(public) != self.npk:
            raise WeakKey(f"a public key of suite {self.id} has {self.npk} bytes, not {len(public)}")

    def __repr__(self) -> str:
        return f"<suite {self.id}: {self.name}>"


@cache
def _lattice_available() -> bool:
    try:
        mlkem.MLKEM768PrivateKey.generate()
    except UnsupportedAlgorithm:
        return False
    return True


def _expand_curve(seed: bytes) -> tuple[x25519.X25519PrivateKey, bytes]:
    # The seed is the scalar itself, as RFC 7748 §5 decodes it.
    private = x25519.X25519PrivateKey.from_private_bytes(seed)
    return private, private.public_key().public_bytes_raw()


def _expand_hybrid(seed: bytes) -> tuple[hpke.MLKEM768X25519PrivateKey, bytes]:
    # RL-ENVELOPE-005: the private key follows from plain SHAKE256. Libraries disagree on HPKE's DeriveKeyPair
    # for this KEM, so that of none is ever called.
    expanded = hashlib.shake_256(seed).digest(96)
    lattice = mlkem.MLKEM768PrivateKey.from_seed_bytes(expanded[:64])
    curve, curve_public = _expand_curve(expanded[64:])
    public = lattice.public_key().public_bytes_raw() + curve_public
    return hpke.MLKEM768X25519PrivateKey(lattice, curve), public


def _import_curve(public: bytes) -> x25519.X25519PublicKey:
    # RL-ENVELOPE-006: an X25519 key with its highest bit set, or of small order, and an ML-KEM key with a
    # coefficient that is not reduced are refused. RFC 7748 §5 ignores the high bit, so a key with it set is a
    # second spelling of another key.
    if public[-1] & 0x80:
        raise WeakKey("the X25519 key has its high bit set")
    point = x25519.X25519PublicKey.from_public_bytes(public)
    try:
        _PROBE.exchange(point)
    except ValueError:
        raise WeakKey("the X25519 key is a point of small order") from None
    return point


def _import_hybrid(public: bytes) -> hpke.MLKEM768X25519PublicKey:
    curve = _import_curve(public[_LATTICE_BYTES:])
    try:
        # FIPS 203 §7.2: every coefficient must be reduced. pyca's message speaks of the length.
        lattice = mlkem.MLKEM768PublicKey.from_public_bytes(public[:_LATTICE_BYTES])
    except ValueError:
        raise WeakKey("the lattice half of the public key is not an ML-KEM-768 key") from None
    return hpke.MLKEM768X25519PublicKey(lattice, curve)


def _check_hybrid(public: bytes) -> object:
    if _lattice_available():
        return _import_hybrid(public)
    return _import_curve(public[_LATTICE_BYTES:])


X25519: Final = Suite(
    id=1,
    kem=0x0020,
    name="X25519",
    npk=_CURVE_BYTES,
    nenc=_CURVE_BYTES,
    available=lambda: True,
    _hpke=hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305),
    _expand=_expand_curve,
    _import=_import_curve,
    _check=_import_curve,
)
"""DHKEM(X25519, HKDF-SHA256) of RFC 9180 §7.1."""

HYBRID: Final = Suite(
    id=2,
    kem=0x647A,
    name="MLKEM768-X25519",
    npk=_LATTICE_BYTES + _CURVE_BYTES,
    nenc=1088 + _CURVE_BYTES,
    available=_lattice_available,
    _hpke=hpke.Suite(hpke.KEM.MLKEM768_X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305),
    _expand=_expand_hybrid,
    _import=_import_hybrid,
    _check=_check_hybrid,
)
"""MLKEM768-X25519, which is X-Wing: a key is the lattice half followed by the curve half."""

SUITES: Final[Mapping[int, Suite]] = MappingProxyType({suite.id: suite for suite in (X25519, HYBRID)})
"""Every suite that has an id, in ascending order, whether available here or not."""


def available_suites() -> tuple[int, ...]:
    """Return the ids of the suites that run here, in ascending order: what a prekey may be published for.

    Without 2 in it, this build of ``cryptography`` stands on an OpenSSL older than 3.5: say so to the
    person, because calls are then not safe against a later quantum computer (RL-ENVELOPE-004).
    """
    return tuple(suite.id for suite in SUITES.values() if suite.available())


def key_id(suite: int, public: bytes) -> bytes:
    """Return the 32 bytes that name a public key under its suite."""
    return digest(label("key") + u16(suite) + public)
