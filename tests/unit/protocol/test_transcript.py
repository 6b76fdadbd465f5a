"""Structures are labelled, length-prefixed and read to their end."""

import hashlib
from collections.abc import Callable
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringline.protocol.errors import EncodingError
from ringline.protocol.transcript import USES, Reader, digest, label, u8, u16, u32, u64, vec


def test_labels_are_those_of_the_design_and_none_is_the_beginning_of_another() -> None:
    assert label("card") == b"\x00\x10ringline-v1/card"
    assert set(USES) == {
        "card", "prekey", "key", "ctx", "sig", "hpke", "next",
        "succession", "revoke", "chain", "seed", "fingerprint", "safety", "invite", "pairing",
    }  # fmt: skip
    for one, other in permutations(USES, 2):
        assert not label(one).startswith(label(other))


def test_every_structure_begins_with_zero_so_it_is_neither_text_nor_a_token() -> None:
    assert {label(use)[0] for use in USES} == {0}


def test_an_unknown_use_is_a_mistake_of_the_program() -> None:
    with pytest.raises(KeyError):
        label("auth")


@pytest.mark.parametrize(("write", "size"), [(u8, 1), (u16, 2), (u32, 4), (u64, 8)])
def test_integers_are_big_endian_and_must_fit(write: Callable[[int], bytes], size: int) -> None:
    assert write(1) == bytes(size - 1) + b"\x01"
    assert write(256**size - 1) == b"\xff" * size
    for bad in (-1, 256**size):
        with pytest.raises(EncodingError):
            write(bad)


def test_a_vector_carries_its_length_and_must_fit() -> None:
    assert vec(b"") == b"\0\0"
    assert vec(b"ab") == b"\0\x02ab"
    assert len(vec(bytes(65_535))) == 65_537
    with pytest.raises(EncodingError):
        vec(bytes(65_536))


@given(
    parts=st.lists(st.binary(max_size=20), max_size=5), others=st.lists(st.binary(max_size=20), max_size=5)
)
def test_two_lists_of_vectors_are_never_written_alike(parts: list[bytes], others: list[bytes]) -> None:
    assert (b"".join(map(vec, parts)) == b"".join(map(vec, others))) == (parts == others)


def test_the_digest_is_sha_256() -> None:
    assert digest(b"abc") == hashlib.sha256(b"abc").digest()


def test_a_reader_returns_the_fields_and_insists_on_the_end() -> None:
    reader = Reader(label("card") + u16(7) + vec(b"abc") + b"xy")
    reader.label("card")
    assert reader.unsigned(2) == 7
    assert reader.text() == "abc"
    with pytest.raises(EncodingError):
        reader.end()
    assert reader.take(2) == b"xy"
    reader.end()
    with pytest.raises(EncodingError):
        reader.take(1)


def test_a_reader_refuses_the_label_of_another_use_and_text_that_is_not_ascii() -> None:
    with pytest.raises(EncodingError):
        Reader(label("prekey")).label("card")
    with pytest.raises(EncodingError):
        Reader(b"\0").label("card")
    with pytest.raises(EncodingError):
        Reader(vec("ä".encode())).text()
    with pytest.raises(EncodingError):
        Reader(b"\0\x05abc").vec()
