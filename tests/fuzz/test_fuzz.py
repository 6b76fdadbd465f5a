"""Inputs that once broke a promise break it no more, and what is planted is found, the same every time."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from ringline_fuzz.catalogue import KEPT, NAMES, find, together
from ringline_fuzz.database_damage import damaged_database
from ringline_fuzz.json_mutation import mutate_json
from ringline_fuzz.mutation import mutate_bytes, mutate_lines
from ringline_fuzz.session import Finding, run
from ringline_fuzz.target import Broken, Mutate, Skipped, Target

INPUTS = sorted(path for path in KEPT.glob("*/*") if path.is_file())


@pytest.fixture(scope="module", autouse=True)
def _end() -> Iterator[None]:
    yield
    for name in {path.parent.name for path in INPUTS}:
        find(name).close()


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_input_that_once_broke_a_promise_breaks_it_no_more(path: Path) -> None:
    try:
        assert find(path.parent.name).check(path.read_bytes())
    except Skipped as reason:
        pytest.skip(str(reason))


def test_every_target_has_its_name_and_says_what_it_promises() -> None:
    for name in NAMES:
        target = find(name)
        assert target.name == name
        assert target.promise
        assert target.short <= target.full
    assert [name for group in together(NAMES) for name in group] == list(NAMES)


def planted(data: bytes) -> str:
    """Break for any text with a bracket in it."""
    if b"[" in data:
        raise Broken("a bracket")
    return "whole"


def target(mutate: Mutate) -> Target:
    return Target(name="planted", promise="x", seeds=lambda: [b'{"a": "b"}'], check=planted, mutate=mutate)


def test_a_broken_promise_is_found_once_and_made_as_small_as_it_goes() -> None:
    told: list[Finding] = []
    _, outcomes, findings = run(target(mutate_json), seed=0, runs=300, report=told.append)
    assert told == findings
    assert [finding.data for finding in findings] == [b"["]
    assert outcomes == {"whole"}


@pytest.mark.parametrize("mutate", [mutate_bytes, mutate_lines, mutate_json])
def test_a_seed_gives_the_same_inputs_every_time(mutate: Mutate) -> None:
    def inputs(seed: int) -> Sequence[bytes]:
        random, pool = Random(seed), [b'{"a": [1, "b"]}\nc d', b'{"e": {"f": null}}']
        return [mutate(random, random.choice(pool), pool) for _ in range(100)]

    assert inputs(1) == inputs(1)
    assert inputs(1) != inputs(2)
    assert len(set(inputs(1))) > 50


def test_damage_to_a_database_is_of_the_seed_and_may_be_any() -> None:
    whole = bytes(range(256)) * 64
    found = [damaged_database(Random(seed), whole) for seed in range(50)]
    assert found == [damaged_database(Random(seed), whole) for seed in range(50)]
    assert len(set(found)) > 40
    assert {len(each) for each in found} > {len(whole)}
