"""Frames to messages, without a socket."""

import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringline.relay.edge_assembly import (
    BINARY,
    CLOSE,
    CONTINUATION,
    NO_STATUS,
    PING,
    TEXT,
    Assembly,
    Violation,
    close_frame,
    frame,
    header,
    read_close,
)


def code_of(assembly: Assembly, opcode: int, fin: bool, payload: bytes) -> int:
    """Return the close code that a frame earns."""
    with pytest.raises(Violation) as caught:
        assembly.add(opcode, fin, payload)
    assert caught.value.reason
    return caught.value.code


def test_whole_messages_pass_and_say_what_they_are() -> None:
    assembly = Assembly(10)
    for opcode, payload in ((TEXT, "ä".encode()), (BINARY, b"\xff"), (TEXT, b"")):
        assert assembly.add(opcode, True, payload) == payload
        assert assembly.text == (opcode == TEXT)


def test_the_limit_is_of_the_whole_message() -> None:
    assert Assembly(3).add(TEXT, True, b"abc") == b"abc"
    assert code_of(Assembly(3), TEXT, True, b"abcd") == 1009
    assembly = Assembly(3)
    assert assembly.add(BINARY, False, b"ab") is None
    assert assembly.add(CONTINUATION, False, b"c") is None
    assert assembly.add(CONTINUATION, True, b"") == b"abc"
    assert assembly.add(BINARY, False, b"ab") is None
    assert code_of(assembly, CONTINUATION, False, b"cd") == 1009
    assert code_of(Assembly(3), TEXT, False, b"abcd") == 1009


def test_fragments_come_in_order() -> None:
    assert code_of(Assembly(9), CONTINUATION, True, b"") == 1002
    assembly = Assembly(9)
    assert assembly.add(TEXT, False, b"") is None
    assert code_of(assembly, TEXT, True, b"") == 1002
    assert code_of(assembly, BINARY, False, b"") == 1002
    assert assembly.add(CONTINUATION, True, b"") == b""
    assert code_of(assembly, CONTINUATION, False, b"") == 1002


def test_a_discarded_message_cannot_be_continued() -> None:
    assembly = Assembly(9)
    assembly.add(TEXT, False, b"abc")
    assembly.discard()
    assert code_of(assembly, CONTINUATION, True, b"") == 1002
    assert assembly.add(TEXT, True, b"x") == b"x"


def test_empty_fragments_weigh_nothing() -> None:
    assembly = Assembly(9)
    assembly.add(BINARY, False, b"")
    before = sys.getallocatedblocks()
    for _ in range(10_000):
        assembly.add(CONTINUATION, False, b"")
    assert sys.getallocatedblocks() - before < 1_000


@given(st.text(), st.data())
def test_any_text_passes_however_it_is_cut(text: str, data: st.DataObject) -> None:
    payload = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(payload)), min_size=1, max_size=5)))
    assembly = Assembly(len(payload))
    assert assembly.add(TEXT, False, payload[: cuts[0]]) is None
    for start, end in pairwise(cuts):
        assert assembly.add(CONTINUATION, False, payload[start:end]) is None
    assert assembly.add(CONTINUATION, True, payload[cuts[-1] :]) == payload
    assert assembly.text


@given(st.binary(max_size=8), st.integers(0, 8))
def test_text_is_refused_exactly_when_it_is_not_utf8(payload: bytes, cut: int) -> None:
    try:
        payload.decode()
        wanted = None
    except UnicodeDecodeError:
        wanted = 1007
    assert verdict([payload]) == wanted
    assert verdict([payload[:cut], payload[cut:]]) == wanted
    assert verdict([payload[i : i + 1] for i in range(len(payload))] or [b""]) == wanted


def verdict(pieces: list[bytes]) -> int | None:
    """Return the close code that these fragments of one text earn, None for a message."""
    assembly = Assembly(100)
    try:
        for index, piece in enumerate(pieces):
            assembly.add(CONTINUATION if index else TEXT, index == len(pieces) - 1, piece)
    except Violation as violation:
        return violation.code
    return None


@pytest.mark.parametrize("bad", [b"\xc0", b"\xed\xa0\x80", b"\xf4\x90", b"\xf5", b"a\x80", b"\xe2\x28"])
def test_the_first_fragment_that_shows_bad_text_is_refused(bad: bytes) -> None:
    assert code_of(Assembly(9), TEXT, False, bad) == 1007


def test_close_payloads() -> None:
    assert read_close(b"") == NO_STATUS
    assert read_close(b"\x03\xe8") == 1000
    assert read_close(b"\x03\xe8" + "adiós".encode()) == 1000
    for code in (1000, 1001, 1002, 1003, 1007, 1008, 1011, 1014, 3000, 4999):
        assert read_close(code.to_bytes(2)) == code
        assert close_frame(code, "why")[2:] == code.to_bytes(2) + b"why"
    for code in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65_535):
        with pytest.raises(Violation) as caught:
            read_close(code.to_bytes(2))
        assert caught.value.code == 1002
        with pytest.raises(ValueError, match=str(code)):
            close_frame(code)
    with pytest.raises(Violation) as caught:
        read_close(b"\x03")
    assert caught.value.code == 1002
    with pytest.raises(Violation) as caught:
        read_close(b"\x03\xe8\xff")
    assert caught.value.code == 1007


def test_a_close_reason_fits_a_control_frame() -> None:
    assert len(close_frame(1000, "x" * 123)) == 127
    with pytest.raises(ValueError, match="124"):
        close_frame(1000, "ü" * 62)


@pytest.mark.parametrize(
    ("size", "head"),
    [
        (0, "8100"),
        (125, "817d"),
        (126, "817e007e"),
        (65_535, "817effff"),
        (65_536, "817f0000000000010000"),
    ],
)
def test_headers_take_the_shortest_form(size: int, head: str) -> None:
    assert header(TEXT, size).hex() == head
    assert frame(TEXT, b"x" * size) == bytes.fromhex(head) + b"x" * size


def test_control_frames_are_whole() -> None:
    assert frame(PING, b"p") == b"\x89\x01p"
    assert frame(CLOSE, b"") == b"\x88\x00"
