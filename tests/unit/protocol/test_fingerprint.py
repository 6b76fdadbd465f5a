"""What two people read to one another."""

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringline.protocol.fingerprint import fingerprint, safety_number
from ringline.protocol.transcript import label, vec
from ringline_testing.vectors import carried

CASE = carried("envelope.json")[0]
ALICE, BOB = bytes.fromhex(CASE["alice_ipk"]), bytes.fromhex(CASE["bob_ipk"])


def test_a_fingerprint_is_pinned() -> None:
    assert fingerprint(ALICE) == "50wq twsg tgx3 nfpv fcer f26e bh41 zxn0"
    assert fingerprint(BOB) == "k3m0 ce56 enfq shfh r37s 6z8x spnq dmdb"


def test_a_safety_number_is_pinned() -> None:
    assert safety_number("alice", ALICE, "bob", BOB) == (
        "46948 56516 85126 10077 74377 66175 24027 48015 95983 62678 36303 98261"
    )


@given(key=st.binary(min_size=32, max_size=32))
def test_a_fingerprint_is_160_bits_of_the_hash_in_crockfords_alphabet(key: bytes) -> None:
    text = fingerprint(key)
    assert re.fullmatch(r"([0-9a-hjkmnp-tv-z]{4} ){7}[0-9a-hjkmnp-tv-z]{4}", text)
    value = 0
    for char in text.replace(" ", ""):
        value = value * 32 + "0123456789abcdefghjkmnpqrstvwxyz".index(char)
    assert value.to_bytes(20, "big") == hashlib.sha256(label("fingerprint") + key).digest()[:20]


def test_a_safety_number_is_the_same_on_both_sides_and_depends_on_every_part() -> None:
    number = safety_number("alice", ALICE, "bob", BOB)
    assert number == safety_number("bob", BOB, "alice", ALICE)
    others = {
        safety_number("alicia", ALICE, "bob", BOB),
        safety_number("alice", BOB, "bob", BOB),
        safety_number("alice", ALICE, "bobby", BOB),
        safety_number("alice", ALICE, "bob", ALICE),
        safety_number("bob", ALICE, "alice", BOB),
    }
    assert number not in others
    assert len(others) == 5


def test_a_safety_number_follows_its_formula() -> None:
    sides = sorted([vec(b"alice") + ALICE, vec(b"bob") + BOB])
    mixed = hashlib.sha512(label("safety") + vec(sides[0]) + vec(sides[1])).digest()
    groups = [int.from_bytes(mixed[i : i + 5], "big") % 100_000 for i in range(0, 60, 5)]
    assert safety_number("alice", ALICE, "bob", BOB) == " ".join(f"{group:05}" for group in groups)


def test_what_is_no_key_has_neither() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        fingerprint(ALICE[:-1])
    with pytest.raises(ValueError, match="32 bytes"):
        safety_number("alice", ALICE, "bob", b"")
