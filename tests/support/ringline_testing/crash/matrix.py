"""Which party is killed at which step, in which story, and how the calls may end then.

The rows are in ``tests/crash/matrix.toml``, two cells each: killed before the commit, and after it. A row
that says nothing of an end takes that of its story.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast, get_args

from ringline.caller.outbox import OutboxStep
from ringline.listener.journal import JournalStep
from ringline.listener.journal_file import JournalFileStep
from ringline.relay.ledger import Step
from ringline_testing.checkout import ROOT
from ringline_testing.crash.stage import Party
from ringline_testing.crash.stories import STORIES

__all__ = ["MATRIX", "STEPS", "Cell", "cells", "excused"]

MATRIX: Final = ROOT / "tests" / "crash" / "matrix.toml"

STEPS: Final[Mapping[Party, tuple[str, ...]]] = {
    "relay": get_args(Step),
    "listener": (*get_args(JournalStep), *get_args(JournalFileStep)),
    "caller": get_args(OutboxStep),
}
"""Every step that each party stores, from the types that the code itself is checked against."""

_ROW: Final = {"party", "step", "story", "also", "before", "after", "nth", "short"}


@dataclass(frozen=True)
class Cell:
    """One kill in one story. ``ends`` maps each call to the ends that are right."""

    party: Party
    point: str
    story: str
    also: Mapping[Party, str]
    ends: Mapping[str, frozenset[str]]
    short: bool

    @property
    def name(self) -> str:
        """What selects the cell on the command line."""
        return f"{self.party}:{self.point}:{self.story.replace(' ', '-')}"

    @property
    def faults(self) -> dict[Party, str]:
        """Who dies where."""
        return {**self.also, self.party: self.point}


def cells(file: Path = MATRIX) -> Iterator[Cell]:
    """Yield the cells in their order. Raises `ValueError` for a row that means nothing."""
    for row in _document(file)["row"]:
        unknown = set(row) - _ROW
        if unknown or row["party"] not in STEPS or row["story"] not in STORIES:
            raise ValueError(f"{file}: {row}")
        for side in ("before", "after"):
            ends = dict(STORIES[row["story"]].ends) | dict(row.get(side, {}))
            suffix = f":{row['nth']}" if "nth" in row else ""
            yield Cell(
                party=row["party"],
                point=f"{row['step']}.{side}{suffix}",
                story=row["story"],
                also=cast("Mapping[Party, str]", row.get("also", {})),
                ends={name: frozenset(end.split(" | ")) for name, end in ends.items()},
                short=side in row.get("short", ()),
            )


def excused(file: Path = MATRIX) -> dict[tuple[str, str], str]:
    """Return the steps that have no row, and why."""
    rows = _document(file).get("excused", [])
    return {(row["party"], row["step"]): row["because"] for row in rows}


def _document(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))
