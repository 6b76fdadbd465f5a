"""One byte string has one spelling."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import EncodingError, RinglineError


@given(data=st.binary(min_size=1, max_size=200))
def test_bytes_come_back_and_match_the_standard(data: bytes) -> None:
    text = b64encode(data)
    assert b64decode(text) == data
    assert b64decode(text, length=len(data)) == data
    assert text == base64.urlsafe_b64encode(data).decode().rstrip("=")


@given(text=st.text(max_size=40))
def test_whatever_decodes_is_the_one_spelling_of_its_bytes(text: str) -> None:
    try:
        data = b64decode(text)
    except EncodingError:
        return
    assert b64encode(data) == text


@given(
    data=st.binary(min_size=1, max_size=50), where=st.integers(0, 80), junk=st.sampled_from("=+/ \n\t.*é\0")
)
def test_junk_anywhere_is_refused(data: bytes, where: int, junk: str) -> None:
    text = b64encode(data)
    with pytest.raises(EncodingError):
        b64decode(text[:where] + junk + text[where:])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "AAAAA",
        "AAF",  # the spare bits are not zero: a second spelling of AAE
        "AB",
        "AAE=",
        "AAA=",
        "AA==",
        "A A",
        "++++",
        "////",
        "AAAA\n",
        "ＡＡＡＡ",
    ],
)
def test_what_lenient_decoders_take_is_refused(text: str) -> None:
    with pytest.raises(EncodingError):
        b64decode(text)


def test_every_other_last_character_is_refused() -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    assert [c for c in alphabet if _decodes("A" + c)] == list("AQgw")
    assert len([c for c in alphabet if _decodes("AA" + c)]) == 16


def _decodes(text: str) -> bool:
    try:
        b64decode(text)
    except EncodingError:
        return False
    return True


def test_a_wrong_length_is_refused() -> None:
    for length in (0, 2, 4):
        with pytest.raises(EncodingError):
            b64decode("AAAA", length=length)


def test_no_bytes_are_no_text_unless_none_are_asked_for() -> None:
    assert b64encode(b"") == ""
    assert b64decode("", length=0) == b""


def test_the_error_does_not_quote_the_text() -> None:
    with pytest.raises(RinglineError) as caught:
        b64decode("secret!")
    assert "secret" not in str(caught.value)
