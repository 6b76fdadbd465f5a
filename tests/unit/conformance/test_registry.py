"""Cases are found, named and selected by what they say about themselves."""

import re

import pytest

from ringline.conformance.registry import ROLES, Level, case, load, select, short_bounds

REQUIREMENT = re.compile(r"RL-[A-Z]+-[0-9]{3}")
RELAY = load("relay")


def test_every_case_cites_a_requirement_and_says_in_one_sentence_what_it_is() -> None:
    for each in RELAY:
        assert each.requirements, each.id
        assert all(REQUIREMENT.fullmatch(cited) for cited in each.requirements), each.id
        assert each.sentence.endswith("."), each.id
        assert len(each.sentence) < 200, each.id


def test_loading_again_finds_the_same_cases() -> None:
    assert load("relay") == RELAY
    assert len({each.id for each in RELAY}) == len(RELAY)


def test_a_role_without_cases_has_none() -> None:
    assert all(isinstance(load(role), list) for role in ROLES)
    assert load("nobody") == []


def test_a_selector_is_an_id_a_chapter_a_requirement_or_a_pattern() -> None:
    wanted = next(each for each in RELAY if each.chapter == "sync")
    assert select(RELAY, [wanted.id]) == [wanted]
    sync = [each for each in RELAY if each.chapter == "sync"]
    assert select(RELAY, ["sync"]) == select(RELAY, ["relay.sync"]) == sync
    assert wanted in select(RELAY, [wanted.requirements[0]])
    assert wanted in select(RELAY, ["RL-SYNC"])
    assert select(RELAY, ["relay.sync.*"]) == sync
    assert select(RELAY, ["syn"]) == []
    assert select(RELAY, []) == RELAY


def test_selection_by_level_and_without_a_feature() -> None:
    must = select(RELAY, [], level=Level.MUST)
    should = select(RELAY, [], level=Level.SHOULD)
    assert len(must) + len(should) == len(RELAY)
    assert not any("durable" in each.needs.features for each in select(RELAY, [], without=["durable"]))


@pytest.mark.parametrize("role", ["relay", "listener", "caller"])
def test_nothing_of_durable_calls_is_left_without_that_feature(role: str) -> None:
    every = load(role)
    left = select(every, [], without=["durable"])
    assert left != []
    assert {each.chapter for each in every} - {each.chapter for each in left} == {"durable"}


def test_selection_of_what_waits_for_a_bound_and_of_the_rest() -> None:
    timed, untimed = (select(RELAY, [], timed=flag) for flag in (True, False))
    assert all(each.needs.bounds for each in timed)
    assert {each.id for each in (*timed, *untimed)} == {each.id for each in RELAY}
    assert len(timed) + len(untimed) == len(RELAY)


def test_short_bounds_are_the_least_that_any_case_needs() -> None:
    bounds = short_bounds(RELAY)
    for each in RELAY:
        assert all(bounds[name] <= most for name, most in each.needs.bounds.items())


async def test_a_case_without_a_sentence_or_a_role_is_refused() -> None:
    async def silent(stage: object) -> None: ...

    with pytest.raises(ValueError, match="no role or no sentence"):
        case(requirements=("RL-SYNC-001",))(silent)
