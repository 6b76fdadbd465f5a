"""The table of impostors says what is true, as far as that can be told without starting one."""

import pytest

from ringline.conformance.registry import load
from ringline_testing.impostors import masquerade, table
from ringline_testing.impostors.proof_page import proof_page
from ringline_testing.impostors.table import Impostor

CASE = "relay.sync.answered_after_accepted"


def an_impostor(**given: object) -> Impostor:
    row = {
        "name": "one",
        "breaks": "It says nothing.",
        "requirements": ("RL-SYNC-002",),
        "cases": (CASE,),
        "module": "relay.sync",
        "old": "def admit(",
        "new": "def amid(",
    }
    return Impostor(**(row | given))  # type: ignore[arg-type]


def faults(*found: Impostor) -> list[str]:
    return table.faults(found, {}, {CASE: ("RL-SYNC-002", "RL-SYNC-004")})


@pytest.mark.parametrize("role", table.ROLES)
def test_every_case_and_every_requirement_that_it_judges_has_an_impostor_or_a_reason(role: str) -> None:
    judging = {case.id: case.requirements for case in load(role) if case.is_must}
    assert table.faults(table.impostors(role), table.unproved(role), judging) == []


def test_the_page_has_the_reasons_of_today() -> None:
    page = (table.FOLDER.parents[1] / "docs" / "impostors.md").read_text(encoding="utf-8")
    told = "write it again: make impostors IMPOSTORS='--page docs/impostors.md'"
    # How many there are changes with every case, and is told as of the last writing.
    reasons = "\n## "
    assert page.partition(reasons)[2] == proof_page().partition(reasons)[2], told


def test_a_case_that_no_impostor_fails_is_told() -> None:
    judging = {CASE: ("RL-SYNC-002",), "relay.sync.other": ("RL-SYNC-002",)}
    told = table.faults([an_impostor()], {}, judging)
    assert told == ["relay.sync.other is failed by no impostor, and not all that it judges has a reason"]


def test_a_requirement_with_neither_is_told() -> None:
    assert faults(an_impostor()) == ["RL-SYNC-004 has neither an impostor nor a reason"]


def test_a_reason_beside_an_impostor_is_told() -> None:
    reasons = {"RL-SYNC-002": "none", "RL-SYNC-004": "none"}
    told = table.faults([an_impostor()], reasons, {CASE: ("RL-SYNC-002", "RL-SYNC-004")})
    assert told == ["RL-SYNC-002 has an impostor: remove its reason"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"old": "no such piece"}, "one: ringline.relay.sync has 'no such piece' 0 times instead of once"),
        ({"cases": ("relay.sync.none",)}, "one: there is no case relay.sync.none that says MUST"),
        ({"requirements": ("RL-SYNC-003",)}, "one: none of its cases judges RL-SYNC-003"),
        ({"requirements": ()}, "one: it names no case, or no requirement"),
    ],
)
def test_an_impostor_that_cannot_be_is_told(given: dict[str, object], told: str) -> None:
    assert told in faults(an_impostor(**given))


def test_two_of_one_name_are_told() -> None:
    assert "there are two impostors 'one'" in faults(an_impostor(), an_impostor())


def test_a_piece_that_stands_twice_is_not_replaced() -> None:
    with pytest.raises(masquerade.NotThere, match="2 times"):
        masquerade.changed("a = 1\na = 1\n", ("ringline.relay.sync", "a = 1", "a = 2"))
