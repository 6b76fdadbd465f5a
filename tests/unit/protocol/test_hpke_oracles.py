"""Other implementations of HPKE open what we seal and seal what we open, in both suites."""

from collections.abc import Callable
from typing import Any

import pytest
from Crypto.Protocol import HPKE
from Crypto.PublicKey import ECC, Hybrid
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey
from pyhpke.exceptions import OpenError

from ringline.protocol.errors import CannotOpen
from ringline.protocol.suites import HYBRID, SUITES, X25519, PrivateKey
from ringline_testing.agents import seed

INFO = bytes(range(193))
SIZES = [0, 1, 200, 64_000, 256_000]

Seal = Callable[[PrivateKey, bytes, bytes], bytes]
Open = Callable[[PrivateKey, bytes, bytes], bytes]


# --- pyhpke: suite 1

PYHPKE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305)


def _jwk(key: PrivateKey, *, private: bool) -> Any:
    from ringline.protocol.encoding import b64encode

    jwk = {"kty": "OKP", "crv": "X25519", "x": b64encode(key.public)}
    return KEMKey.from_jwk({**jwk, "d": b64encode(key.seed)} if private else jwk)


def pyhpke_seal(key: PrivateKey, info: bytes, plaintext: bytes) -> bytes:
    enc, sender = PYHPKE.create_sender_context(_jwk(key, private=False), info=info)
    return enc + sender.seal(plaintext)


def pyhpke_open(key: PrivateKey, info: bytes, sealed: bytes) -> bytes:
    recipient = PYHPKE.create_recipient_context(sealed[:32], _jwk(key, private=True), info=info)
    return recipient.open(sealed[32:])


# --- pycryptodome: both suites


def _pycryptodome_key(key: PrivateKey) -> Any:
    if key.suite == X25519.id:
        return ECC.construct(curve="Curve25519", seed=key.seed)
    return Hybrid.generate(param_set=Hybrid.MLKEM768_X25519, randfunc=lambda size: key.seed)


def pycryptodome_seal(key: PrivateKey, info: bytes, plaintext: bytes) -> bytes:
    public = _pycryptodome_key(key).public_key()
    sender = HPKE.new(receiver_key=public, aead_id=HPKE.AEAD.CHACHA20_POLY1305, info=info)
    ciphertext = sender.seal(plaintext)
    return sender.enc + ciphertext


def pycryptodome_open(key: PrivateKey, info: bytes, sealed: bytes) -> bytes:
    nenc = SUITES[key.suite].nenc
    recipient = HPKE.new(
        receiver_key=_pycryptodome_key(key),
        aead_id=HPKE.AEAD.CHACHA20_POLY1305,
        enc=sealed[:nenc],
        info=info,
    )
    return recipient.unseal(sealed[nenc:])


ORACLES = [
    pytest.param(1, pyhpke_seal, pyhpke_open, id="pyhpke-suite1"),
    pytest.param(1, pycryptodome_seal, pycryptodome_open, id="pycryptodome-suite1"),
    pytest.param(2, pycryptodome_seal, pycryptodome_open, id="pycryptodome-suite2"),
]


@pytest.mark.parametrize(("suite_id", "theirs_seals", "theirs_opens"), ORACLES)
@pytest.mark.parametrize("size", SIZES)
def test_each_opens_what_the_other_seals(
    suite_id: int, theirs_seals: Seal, theirs_opens: Open, size: int
) -> None:
    suite = SUITES[suite_id]
    key = suite.private_from_seed(seed("oracle"))
    plaintext = bytes(i % 251 for i in range(size))
    assert theirs_opens(key, INFO, suite.seal(key.public, INFO, plaintext)) == plaintext
    assert suite.open(key, INFO, theirs_seals(key, INFO, plaintext)) == plaintext


@pytest.mark.parametrize(("suite_id", "theirs_seals", "theirs_opens"), ORACLES)
def test_each_refuses_what_was_changed(suite_id: int, theirs_seals: Seal, theirs_opens: Open) -> None:
    suite = SUITES[suite_id]
    key = suite.private_from_seed(seed("oracle"))
    for sealed, info in damaged(suite.seal(key.public, INFO, b"text"), suite.nenc):
        with pytest.raises((OpenError, ValueError)):
            theirs_opens(key, info, sealed)
    for sealed, info in damaged(theirs_seals(key, INFO, b"text"), suite.nenc):
        with pytest.raises(CannotOpen):
            suite.open(key, info, sealed)


def damaged(sealed: bytes, nenc: int) -> list[tuple[bytes, bytes]]:
    """A change in the info, at both ends of the encapsulated key, in the ciphertext and in the tag."""
    flipped = [bytearray(sealed) for _ in range(4)]
    for copy, at in zip(flipped, (0, nenc - 1, nenc, len(sealed) - 1), strict=True):
        copy[at] ^= 1
    return [(sealed, INFO + b"\0"), *((bytes(copy), INFO) for copy in flipped)]


def test_public_keys_are_the_same_in_every_implementation() -> None:
    from Crypto.Protocol.DH import import_x25519_public_key

    key = X25519.private_from_seed(seed("oracle"))
    assert _pycryptodome_key(key).public_key() == import_x25519_public_key(key.public)
    hybrid = HYBRID.private_from_seed(seed("oracle"))
    assert _pycryptodome_key(hybrid)._pk == hybrid.public
