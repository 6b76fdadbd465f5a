"""The trace rule keeps, reduces or drops; it never refuses a call."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringline.protocol.trace import normalise

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


@pytest.mark.parametrize("flags", ["00", "01"])
def test_a_value_of_version_00_with_the_sampled_bit_is_kept_byte_for_byte(flags: str) -> None:
    text = f"00-{TRACE}-{SPAN}-{flags}"
    assert normalise(text, TRACE) == text


def test_a_value_made_of_digits_alone_is_kept() -> None:
    digits = "12345678901234567890123456789012"
    assert normalise(f"00-{digits}-1234567890123456-01", digits) is not None


@pytest.mark.parametrize(("flags", "kept"), [("03", "01"), ("fe", "00"), ("ff", "01")])
def test_flags_are_reduced_to_the_sampled_bit(flags: str, kept: str) -> None:
    assert normalise(f"00-{TRACE}-{SPAN}-{flags}", TRACE) == f"00-{TRACE}-{SPAN}-{kept}"


@pytest.mark.parametrize("tail", ["", "-", "-what-ever: comes"])
def test_a_higher_version_is_re_emitted_as_00(tail: str) -> None:
    assert normalise(f"cc-{TRACE}-{SPAN}-01{tail}", TRACE) == f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN.upper()}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01\n",
        f"cc-{TRACE}-{SPAN}-01x",
        f" 00-{TRACE}-{SPAN}-01",
        f"00_{TRACE}_{SPAN}_01",
        f"cc-{TRACE}-{SPAN}-01-" + "x" * 457,
    ],
)
def test_anything_else_is_dropped(text: str) -> None:
    assert normalise(text, TRACE) is None


def test_512_bytes_are_the_limit() -> None:
    head = f"cc-{TRACE}-{SPAN}-01-"
    assert normalise(head + "x" * (512 - len(head)), TRACE) is not None
    assert normalise(head + "x" * (513 - len(head)), TRACE) is None
    # The limit is in bytes: two-byte characters count double.
    assert normalise(head + "é" * ((512 - len(head)) // 2), TRACE) is not None
    assert normalise(head + "é" * ((514 - len(head)) // 2), TRACE) is None


def test_a_trace_id_that_is_not_the_correlation_id_is_dropped() -> None:
    assert normalise(f"00-{'a' * 32}-{SPAN}-01", TRACE) is None


@given(st.text(max_size=80))
def test_whatever_comes_out_would_be_kept_again(text: str) -> None:
    once = normalise(text, TRACE)
    assert once is None or normalise(once, TRACE) == once
