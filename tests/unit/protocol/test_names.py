"""Patterns are matched in full, in ASCII, and nothing is normalised."""

import re
from collections.abc import Callable

import pytest

from ringline.protocol import names

GOOD_HANDLES = ["ken", "a1", "my-agent-01", "0-", "a" * 31]
BAD_HANDLES = ["", "a", "-a", "K1", "a_b", "a b", "a" * 32, "ab\n", "á1", "a１", "a.b", "@ab"]
GOOD_HEX = ["0" * 31 + "1", "f" * 32, "12345678901234567890123456789012"]
BAD_HEX = ["0" * 32, "F" * 32, "f" * 31, "f" * 33, "f" * 32 + "\n", "g" * 32, "１" * 32]


@pytest.mark.parametrize("text", GOOD_HANDLES)
def test_a_handle_has_2_to_31_characters_and_starts_with_a_letter_or_digit(text: str) -> None:
    assert names.is_handle(text)


@pytest.mark.parametrize("text", BAD_HANDLES)
def test_what_is_no_handle_is_refused_and_not_repaired(text: str) -> None:
    assert not names.is_handle(text)


@pytest.mark.parametrize("text", GOOD_HEX)
def test_message_and_correlation_ids_are_32_lower_case_hex_digits(text: str) -> None:
    assert names.is_message_id(text)
    assert names.is_correlation_id(text)


@pytest.mark.parametrize("text", BAD_HEX)
def test_an_id_that_is_all_zero_or_otherwise_off_is_refused(text: str) -> None:
    assert not names.is_message_id(text)
    assert not names.is_correlation_id(text)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (names.is_realm, "relay.example", "relay.example:443"),
        (names.is_realm, "a" * 253, "a" * 254),
        (names.is_call_id, "A-_9", "a b"),
        (names.is_call_id, "a" * 64, "a" * 65),
        (names.is_task_id, "a" * 64, "a" * 65),
        (names.is_task_id, "review", "Review"),
        (names.is_context_id, "ctx_" + "A" * 22, "ctx_" + "A" * 21),
        (names.is_context_id, "ctx_" + "-" * 22, "ctx_" + "+" * 22),
        (names.is_uuid4, "8f14e45f-ceea-4e7a-9bd4-3c59f3a5a1f0", "8f14e45f-ceea-1e7a-9bd4-3c59f3a5a1f0"),
        (names.is_uuid4, "8f14e45f-ceea-4e7a-9bd4-3c59f3a5a1f0", "8F14E45F-CEEA-4E7A-9BD4-3C59F3A5A1F0"),
    ],
)
def test_each_name_ends_where_its_pattern_ends(check: Callable[[str], bool], good: str, bad: str) -> None:
    assert check(good)
    assert not check(bad)
    assert not check(good + "\n")


@pytest.mark.parametrize("pattern", names.PATTERNS.values(), ids=names.PATTERNS)
def test_every_pattern_is_anchored_and_refuses_a_trailing_line_feed(pattern: str) -> None:
    assert pattern.startswith(r"\A")
    assert pattern.endswith(r"\Z")
    assert re.compile(pattern).search("\n") is None
