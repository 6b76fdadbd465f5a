"""A fault is found by its place, and tells nothing of what it was about."""

import pytest

from ringline.protocol.whereabouts import whereabouts

SECRET = "seven ravens"


def fail() -> None:
    raise ValueError(SECRET)


def deep(levels: int) -> None:
    if levels:
        deep(levels - 1)
    raise KeyError(SECRET)


def test_the_kind_and_the_places_are_told_the_innermost_first() -> None:
    with pytest.raises(ValueError, match=SECRET) as caught:
        fail()
    told = whereabouts(caught.value)
    line = fail.__code__.co_firstlineno + 1
    assert told.startswith(f"ValueError at test_whereabouts.py:{line} fail, test_whereabouts.py:")
    assert told.endswith(" test_the_kind_and_the_places_are_told_the_innermost_first")


def test_no_value_is_told() -> None:
    with pytest.raises(ValueError, match=SECRET) as caught:
        fail()
    assert SECRET not in whereabouts(caught.value)


def test_the_number_of_places_is_bounded() -> None:
    with pytest.raises(KeyError) as caught:
        deep(50)
    assert whereabouts(caught.value).count(" deep") == 6


def test_an_error_that_was_never_raised_has_no_place() -> None:
    assert whereabouts(ValueError(SECRET)) == "ValueError"
