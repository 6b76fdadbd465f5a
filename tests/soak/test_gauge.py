"""The gauge of the soak: it sees growth, and takes no noise for it."""

from dataclasses import replace
from typing import Any

import pytest

from ringline_testing.gauge import Measure, grown

FIRST = Measure(
    calls=1_000,
    objects=46_000,
    blocks=177_000,
    resident=50_000_000,
    descriptors=17,
    threads=2,
    rows={"relay.calls": 0},
    files={"relay.db": 700_000},
    logs={},
)


def rounds(*changes: dict[str, Any]) -> list[Measure]:
    """Nine measures; ``changes`` are those of the last third."""
    return [FIRST] * 6 + [replace(FIRST, **change) for change in changes]


def test_what_stays_as_it_is_has_not_grown() -> None:
    assert grown(rounds({}, {}, {})) == []


def test_one_round_that_is_larger_is_no_growth() -> None:
    assert grown(rounds({"objects": 60_000, "blocks": 300_000, "descriptors": 40}, {}, {})) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"objects": 46_400}, "objects"),
        ({"blocks": 178_500}, "blocks"),
        ({"resident": 70_000_000}, "resident"),
        ({"descriptors": 18}, "descriptors"),
        ({"threads": 3}, "threads"),
        ({"rows": {"relay.calls": 60}}, "rows of relay.calls"),
        ({"files": {"relay.db": 2_000_000}}, "size of relay.db"),
    ],
)
def test_what_grows_is_named(change: dict[str, object], word: str) -> None:
    (sentence,) = grown(rounds({}, change, change))
    assert word in sentence


def test_the_first_third_may_be_smaller() -> None:
    small = replace(FIRST, objects=10_000, blocks=20_000, descriptors=5)
    assert grown([small] * 3 + [FIRST] * 6) == []
