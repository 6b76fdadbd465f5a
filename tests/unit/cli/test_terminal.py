"""What others write cannot act on a terminal, hide in it, or change in JSON."""

import json
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringline.cli.terminal import json_document, shown, shown_line

# Format characters that a font draws.
DRAWN = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
UNSEEN = [
    chr(code)
    for code in range(sys.maxunicode + 1)
    if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp") and code not in DRAWN
]


def test_every_control_and_format_character_is_written_out() -> None:
    assert len(UNSEEN) > 2_000
    for character in UNSEEN:
        assert character not in shown_line(f"a{character}b"), hex(ord(character))
        if character not in "\n\t":
            assert character not in shown(f"a{character}b"), hex(ord(character))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[2J\x1b]0;owned\x07", r"\x1b[2J\x1b]0;owned\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("abc\u202edef", r"abc\u202edef"),
        ("a\u200bb\u200dc\ufeff", r"a\u200bb\u200dc\ufeff"),
        ("\U000e0041\U000e007f", r"\U000e0041\U000e007f"),
        ("one\u2028two\u2029three", r"one\u2028two\u2029three"),
        ("progress 10%\rprogress 99%", r"progress 10%\x0dprogress 99%"),
        ("\x7f", r"\x7f"),
        ("\ud800", r"\ud800"),
        ("a\u3164b\u034fc", r"a\u3164b\u034fc"),
        ("x\ufe0fy\U000e0100", r"x\ufe0fy\U000e0100"),
    ],
)
def test_each_kind_is_visible(text: str, expected: str) -> None:
    assert shown(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "two\nlines\tand a tab\n",
        "naïve – “quotes” ½",
        "日本語 العربية हिन्दी עברית",
        "❤\ufe0f ©\ufe0f 1\ufe0f\u20e3 🙂",
        "\u0600\u06dd",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert shown(text) == text


def test_line_ends_of_other_systems_are_line_ends() -> None:
    assert shown("one\r\ntwo\r\n") == "one\ntwo\n"


def test_a_row_of_selectors_hides_nothing() -> None:
    assert "\ufe0f" not in shown("h\ufe0fi\ufe0e")
    assert shown("❤\ufe0f\ufe0f\ufe0f") == "❤\ufe0f\\ufe0f\\ufe0f"


def test_a_line_stays_one_line_and_short() -> None:
    assert shown_line("one\ntwo\tthree") == r"one\x0atwo\x09three"
    assert shown_line("x" * 600, 10) == "x" * 9 + "…"


@given(st.text())
def test_nothing_hidden_is_left(text: str) -> None:
    assert not set(shown(text)) & (set(UNSEEN) - set("\n\t"))
    assert not set(shown_line(text)) & set(UNSEEN)


@settings(max_examples=40)
@given(
    st.recursive(
        st.text() | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_keeps_the_value_and_hides_nothing(value: object) -> None:
    document = json_document(value)
    assert json.loads(document) == value
    assert not set(document) & set(UNSEEN)
    document.encode("utf-8")


def test_json_stays_readable() -> None:
    assert json_document({"text": "naïve 日本\x7f\u202e\U000e0041\n"}) == (
        '{"text": "naïve 日本\\u007f\\u202e\\udb40\\udc41\\n"}'
    )
