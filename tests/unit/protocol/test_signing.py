"""Ed25519 by the strict library, and no weak key."""

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given, settings
from hypothesis import strategies as st

from ringline.protocol.errors import BadSignature, WeakKey
from ringline.protocol.signing import SigningKey, check_public, verify
from ringline_testing.agents import seed
from ringline_testing.weak_keys import (
    GROUP_ORDER,
    NEUTRAL,
    NEUTRAL_SIGNATURE,
    ORDER_8,
    mixed_order_signature,
)

P = 2**255 - 19
KEY = SigningKey(seed("signer"))
MESSAGE = b"message"


def small_order_encodings() -> list[bytes]:
    """The encodings, canonical or not, of the eight points of small order: y is 0, 1, -1 or of order 8."""
    y8 = int.from_bytes(ORDER_8, "little")
    values = [0, 1, P - 1, y8, P - y8, P, P + 1]
    return [(y | sign << 255).to_bytes(32, "little") for y in values for sign in (0, 1)]


def test_there_are_fourteen_encodings_of_small_order() -> None:
    assert len(set(small_order_encodings())) == 14


@pytest.mark.parametrize("public", small_order_encodings(), ids=bytes.hex)
def test_a_key_of_small_order_is_refused(public: bytes) -> None:
    with pytest.raises(WeakKey):
        check_public(public)


def test_the_forgery_that_other_libraries_accept_under_a_weak_key_is_refused() -> None:
    """One fixed string is a signature of every message under the neutral point; pyca takes it."""
    ed25519.Ed25519PublicKey.from_public_bytes(NEUTRAL).verify(NEUTRAL_SIGNATURE, MESSAGE)
    with pytest.raises(BadSignature):
        verify(NEUTRAL, MESSAGE, NEUTRAL_SIGNATURE)


def test_a_key_with_a_small_part_is_refused_though_its_signatures_verify() -> None:
    """An honest key plus a point of order 8: the library accepts its signatures, the import must not."""
    mixed, signature = mixed_order_signature(KEY, MESSAGE)
    verify(mixed, MESSAGE, signature)
    with pytest.raises(WeakKey):
        check_public(mixed)
    check_public(KEY.public)


@pytest.mark.parametrize("public", [(2).to_bytes(32, "little"), (P + 3).to_bytes(32, "little"), b"\xff" * 32])
def test_what_is_no_canonical_point_is_refused(public: bytes) -> None:
    with pytest.raises(WeakKey):
        check_public(public)


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_key_of_the_wrong_length_is_refused(size: int) -> None:
    with pytest.raises(WeakKey):
        check_public(bytes(size))
    with pytest.raises(BadSignature):
        verify(bytes(size), MESSAGE, KEY.sign(MESSAGE))
    if size != 32:
        with pytest.raises(ValueError, match="32 bytes"):
            SigningKey(bytes(size))


def test_signatures_are_those_of_another_implementation() -> None:
    other = ed25519.Ed25519PrivateKey.from_private_bytes(KEY.seed)
    assert other.public_key().public_bytes_raw() == KEY.public
    assert other.sign(MESSAGE) == KEY.sign(MESSAGE)


@given(message=st.binary(max_size=100), at=st.integers(0, 63), bit=st.integers(0, 7))
@settings(max_examples=50)
def test_a_signature_holds_for_its_message_and_key_only(message: bytes, at: int, bit: int) -> None:
    signature = KEY.sign(message)
    verify(KEY.public, message, signature)
    damaged = bytearray(signature)
    damaged[at] ^= 1 << bit
    for public, text, proof in (
        (KEY.public, message + b"\0", signature),
        (KEY.public, message, bytes(damaged)),
        (SigningKey(seed("another")).public, message, signature),
    ):
        with pytest.raises(BadSignature):
            verify(public, text, proof)


def test_the_second_form_of_a_signature_is_refused() -> None:
    signature = KEY.sign(MESSAGE)
    s = int.from_bytes(signature[32:], "little") + GROUP_ORDER
    with pytest.raises(BadSignature):
        verify(KEY.public, MESSAGE, signature[:32] + s.to_bytes(32, "little"))


def test_bytes_cannot_move_between_signature_and_message() -> None:
    signed = KEY.sign(MESSAGE) + MESSAGE
    for cut in (63, 65):
        with pytest.raises(BadSignature):
            verify(KEY.public, signed[cut:], signed[:cut])


def test_generated_keys_differ_and_are_fit() -> None:
    keys = [SigningKey.generate() for _ in range(3)]
    assert len({key.seed for key in keys}) == 3
    for key in keys:
        check_public(key.public)


def test_a_repr_shows_no_secret() -> None:
    shown = repr(KEY)
    assert KEY.public.hex() in shown
    for secret in (KEY.seed, hashlib.sha512(KEY.seed).digest()[:32]):
        assert secret.hex() not in shown
        assert repr(secret) not in shown
