"""Spoken codes: what is said is what is read, and a slip is told before the code is used."""

import pytest

from ringline.protocol.codewords import THREE_SYLLABLES, TWO_SYLLABLES
from ringline.protocol.errors import InviteError
from ringline.protocol.spokencode import SpokenCode, completions, draw_words

CODE = SpokenCode("7", ("crossover", "clockwork"))


def test_each_list_has_one_word_for_each_byte_and_no_word_is_in_both() -> None:
    assert len(set(THREE_SYLLABLES)) == len(set(TWO_SYLLABLES)) == 256
    assert not set(THREE_SYLLABLES) & set(TWO_SYLLABLES)
    assert all(word.isascii() and word.isalpha() and word.islower() for word in THREE_SYLLABLES)
    assert all(word.isascii() and word.isalpha() and word.islower() for word in TWO_SYLLABLES)


def test_a_code_is_written_as_it_is_read() -> None:
    assert CODE.format() == "7-crossover-clockwork"
    assert SpokenCode.parse("7-crossover-clockwork") == CODE
    assert CODE.password == b"crossover-clockwork"


@pytest.mark.parametrize(
    "text", ["7 crossover clockwork", " 7-Crossover-CLOCKWORK\n", "7 - crossover - clockwork"]
)
def test_a_code_is_read_as_somebody_heard_it(text: str) -> None:
    assert SpokenCode.parse(text) == CODE


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "number"),
        ("crossover-clockwork", "number"),
        ("0-crossover-clockwork", "number"),
        ("07-crossover-clockwork", "number"),
        ("1000-crossover-clockwork", "number"),
        ("7", "2 to 4 words"),
        ("7-crossover", "2 to 4 words"),
        ("7-crossover-clockwork-crossover-clockwork-crossover", "2 to 4 words"),
        ("7-clockwork-crossover", "first word"),
        ("7-crossover-crossover", "second word"),
        ("7-crossover-clockwrok", "second word"),
        ("7-crossover-clockwork-clockwork", "third word"),
        ("7-crossover-clockwork-crossover-crossover", "fourth word"),
        ("7-crossöver-clockwork", "no spoken code"),
        ("7-" + "crossover-" * 20, "no spoken code"),
    ],
)
def test_a_slip_is_told_and_the_code_is_not_repeated(text: str, why: str) -> None:
    with pytest.raises(InviteError, match=why) as caught:
        SpokenCode.parse(text)
    assert "cross" not in str(caught.value)


def test_words_are_hidden_where_a_code_is_shown_to_a_programmer() -> None:
    assert "crossover" not in repr(CODE)


def test_every_byte_draws_another_word_and_the_lists_take_turns() -> None:
    drawn = {draw_words(bytes((byte, byte, byte, byte))) for byte in range(256)}
    assert len(drawn) == 256
    for words in drawn:
        assert SpokenCode("1", words).words == words


def test_words_are_completed_in_their_place() -> None:
    assert completions("7") == completions("") == []
    assert completions("7-crosso") == ["7-crossover"]
    assert completions("7-CROSSO") == ["7-crossover"]
    assert completions("7-clockw") == []
    assert completions("7-crossover-clockw") == ["7-crossover-clockwork"]
    assert len(completions("7-")) == 256
    assert completions("7-crossover-clockwork-crossover-clockwork-c") == []
