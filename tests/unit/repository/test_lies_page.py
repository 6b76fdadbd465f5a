"""The page on what a relay may lie about: made from its table, and every row is borne out by its test."""

import pytest

from ringline_testing.lies import LIES, PAGE, Lie, page, texts


def test_the_page_is_what_its_table_makes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python -m ringline_testing.lies"


def test_every_lie_is_another() -> None:
    assert len({lie.told for lie in LIES}) == len(LIES)


@pytest.mark.parametrize("lie", LIES, ids=[lie.told for lie in LIES])
def test_the_test_of_a_lie_looks_for_what_is_read(lie: Lie) -> None:
    found = list(texts(lie.test))
    assert lie.reads is None or any(lie.reads in text for text in found)
    # What is refused or reported is told to somebody.
    assert (lie.reads is None) == (lie.outcome == "no effect")


def test_a_row_without_its_test_is_found() -> None:
    with pytest.raises(LookupError):
        list(texts("test_relay_lies.py::test_that_is_not_there"))
