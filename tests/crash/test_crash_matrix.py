"""The crash matrix leaves no stored step out, and says no more than its stories do.

The kills themselves are done by ``make crash``.
"""

from itertools import groupby

import pytest

from ringline_testing.crash.matrix import STEPS, cells, excused
from ringline_testing.crash.stories import STORIES

CELLS = list(cells())
_STATES = {
    "canceled",
    "completed",
    "expired",
    "failed",
    "indeterminate_execution",
    "timeout",
}


@pytest.mark.parametrize(("party", "step"), [(party, step) for party in STEPS for step in STEPS[party]])
def test_every_stored_step_is_killed_before_and_after_its_commit(party: str, step: str) -> None:
    points = {cell.point.partition(":")[0] for cell in CELLS if cell.party == party}
    if (party, step) in excused():
        assert not {f"{step}.before", f"{step}.after"} & points, "excused, and in the matrix all the same"
    else:
        assert {f"{step}.before", f"{step}.after"} <= points


def test_every_kill_is_at_a_step_that_exists() -> None:
    for cell in CELLS:
        for party, point in cell.faults.items():
            assert point.partition(".")[0] in STEPS[party], cell.name


def test_an_excuse_is_for_a_step_that_exists_and_says_why() -> None:
    known: set[tuple[str, str]] = {(party, step) for party, steps in STEPS.items() for step in steps}
    assert excused().keys() <= known
    assert all(excused().values())


def test_every_story_is_told() -> None:
    assert {cell.story for cell in CELLS} == set(STORIES)


def test_ends_are_those_of_the_storys_calls() -> None:
    for cell in CELLS:
        assert cell.ends.keys() == STORIES[cell.story].ends.keys(), cell.name
        for end in (end for ends in cell.ends.values() for end in ends):
            state, _, runs = end.partition(" ")
            assert state in _STATES, cell.name
            assert runs in ("0", "1"), "no handler ever begins a call twice"
            assert state != "completed" or runs == "1"


def test_a_cell_is_named_once() -> None:
    names = sorted(cell.name for cell in CELLS)
    assert [name for name, same in groupby(names) if len(list(same)) > 1] == []


def test_the_short_form_has_cells_of_every_party() -> None:
    assert {cell.party for cell in CELLS if cell.short} == set(STEPS)
