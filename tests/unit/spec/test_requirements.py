"""The requirements have one form, and whoever cites one, or leaves one unjudged, is noticed."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from ringline_testing.checkout import ROOT

# No file but ringline.md may cite what is not there, this one neither: so the ids are put together.
ONE, TWO, NONE = (f"RL-{name}" for name in ("SYNC-001", "SYNC-002", "SYNC-999"))
TEXT = f"""\
## Sync calls (SYNC)

- **{ONE}** A relay MUST ring. *Prevents silence.*
- **{TWO}** A caller MUST NOT shout.
"""


Check: TypeAlias = Callable[..., list[str]]


@pytest.fixture(scope="module")
def build() -> Iterator[Any]:
    """Yield the generator, which is no package: its files find one another in their folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT / "spec"), *sys.path])
        yield importlib.import_module("build")


@pytest.fixture
def check(build: Any, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Return a function that tells what is wrong in the checkout.

    ``enforced`` names the roles whose every MUST must be judged.
    """

    def run(*enforced: str) -> list[str]:
        monkeypatch.setattr(build.requirement_coverage, "ENFORCED", frozenset(enforced))
        found: list[str] = build.faults(checkout / "spec")
        return found

    return run


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout that has nothing but two requirements."""
    write(tmp_path, "spec/ringline.md", TEXT)
    return tmp_path


def write(checkout: Path, name: str, text: str) -> None:
    """Write a file of the checkout."""
    path = checkout / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_case(checkout: Path, requirements: str, level: str = "") -> None:
    """Write a suite that has one case."""
    write(
        checkout,
        "conformance/ringline/conformance/cases/relay/sync.py",
        f"@case({level}{requirements})\nasync def rings(stage: Stage) -> None:\n    ...\n",
    )


def test_the_specification_and_whoever_cites_it_have_no_fault(build: Any) -> None:
    assert build.faults(ROOT / "spec") == []


def test_two_requirements_in_their_form_are_no_fault(check: Check) -> None:
    assert check() == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (TWO, ONE, "stands in line 3 already"),
        (TWO, TWO[:-1], "not `- **RL-<CHAPTER>-<NNN>** <sentence>`"),
        (TWO, TWO.lower(), "not `- **RL-<CHAPTER>-<NNN>** <sentence>`"),
        (TWO, TWO.replace("SYNC", "FRAME"), "stands in chapter SYNC"),
        (TWO, TWO.replace("002", "003"), f"{TWO} is missing"),
        ("MUST NOT shout", "does not shout", "has 0 level words"),
        ("MUST NOT shout", "MUST NOT shout and MAY whisper", "has 2 level words"),
        ("A caller", "Nobody", "does not begin with whom it binds"),
        ("shout.", "shout. It whispers.", "is not one sentence"),
        ("shout.", "shout", "is not one sentence"),
        ("*Prevents silence.*", "*Silence is bad.*", "perhaps with `*Prevents"),
        ("shout.", f"shout, by {NONE}.", f"there is no {NONE}"),
        ("MUST NOT shout", "MUST refuse shouts", "does not say what that prevents"),
    ],
)
def test_a_requirement_out_of_form_is_a_fault(
    checkout: Path, check: Check, old: str, new: str, fault: str
) -> None:
    assert TEXT.count(old) == 1
    write(checkout, "spec/ringline.md", TEXT.replace(old, new))
    assert any(fault in line for line in check())


@pytest.mark.parametrize("name", ["relay/ringline/relay/sync.py", "tests/test_sync.py", "docs/how.md"])
def test_a_requirement_that_is_not_there_is_cited_nowhere(checkout: Path, check: Check, name: str) -> None:
    write(checkout, name, f"# {ONE}: it rings.\n# {NONE}: it sings.\n")
    assert check() == [f"{name}:2: there is no {NONE}"]


@pytest.mark.parametrize(
    "name", ["protocol/ringline/protocol/limits.py", "spec/lifecycle.pml", "docs/how.md"]
)
def test_a_place_that_no_reader_can_find_is_cited_nowhere(checkout: Path, check: Check, name: str) -> None:
    section = "protocol " + "§5.1"
    write(checkout, name, f"# {ONE}: it rings (RFC 6455 §5.1).\n# {section}: it sings.\n")
    assert check() == [f"{name}:2: {section} is no id of ringline.md"]


def test_every_must_of_a_judged_role_needs_a_case_or_a_reason(checkout: Path, check: Check) -> None:
    unjudged = f"{ONE} is judged by no case, and uncovered.toml does not say why"
    assert check("relay") == [unjudged]
    assert check("listener") == []
    write(checkout, "spec/uncovered.toml", f'[[explained]]\nreason = "Nobody hears it."\nids = ["{ONE}"]\n')
    assert check("relay") == []
    (checkout / "spec" / "uncovered.toml").unlink()
    write_case(checkout, f'requirements=("{ONE}",)')
    assert check("relay") == []


@pytest.mark.parametrize(
    ("reasons", "fault"),
    [
        (f'[[explained]]\nreason = "Why."\nids = ["{NONE}"]\n', f"there is no {NONE}"),
        (f'[[explained]]\nreason = "Why."\nids = ["{ONE}"]\n', f"{ONE} is judged by relay.sync.rings"),
        (f'[[explained]]\nreason = " "\nids = ["{TWO}"]\n', "needs a reason and ids"),
        ('[[explained]]\nreason = "Why."\n', "needs a reason and ids"),
        (f'[[explained]]\nreason = "Why."\nids = ["{TWO}", "{TWO}"]\n', f"explains {TWO} twice"),
    ],
)
def test_a_reason_is_one_for_a_requirement_that_no_case_judges(
    checkout: Path, check: Check, reasons: str, fault: str
) -> None:
    write_case(checkout, f'requirements=("{ONE}",)')
    write(checkout, "spec/uncovered.toml", reasons)
    assert any(fault in line for line in check())


@pytest.mark.parametrize(
    ("requirements", "level", "fault"),
    [
        ("requirements=()", "", "judges no requirement"),
        ("requirements=tuple(wanted)", "", "does not name its requirements as a tuple of texts"),
        ("", "", "does not name its requirements as a tuple of texts"),
        (f'requirements=("{NONE}",)', "", f"there is no {NONE}"),
    ],
)
def test_a_case_names_what_it_judges(
    checkout: Path, check: Check, requirements: str, level: str, fault: str
) -> None:
    write_case(checkout, requirements, level)
    assert any(fault in line for line in check())


def test_a_subject_does_not_fail_by_what_it_only_should_do(checkout: Path, check: Check) -> None:
    write(checkout, "spec/ringline.md", TEXT.replace("A relay MUST ring", "A relay SHOULD ring"))
    write_case(checkout, f'requirements=("{ONE}",)')
    assert check() == [f"relay.sync.rings fails a subject by {ONE}, which is only SHOULD"]
    write_case(checkout, f'requirements=("{ONE}",)', "Level.SHOULD, ")
    assert check() == []
