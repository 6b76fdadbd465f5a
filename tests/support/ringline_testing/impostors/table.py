"""The table of impostors: what each breaks, by which change, and which cases are to notice."""

import importlib.util
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ringline_testing.impostors.masquerade import Change, NotThere, changed

__all__ = ["FOLDER", "ROLES", "Impostor", "faults", "impostors", "unproved"]

FOLDER: Final = Path(__file__).resolve().parents[3] / "impostors"

ROLES: Final = ("relay", "listener", "caller")
"""Of which there are impostors; a negative vector is by itself what a faulty program would take."""


class Impostor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One row. ``breaks`` says in a sentence what the impostor does; ``new`` stands in place of ``old``."""

    name: str
    breaks: str
    requirements: tuple[str, ...]
    cases: tuple[str, ...]
    module: str
    old: str
    new: str
    also: tuple[Change, ...] = ()
    """Further changes, of a rule that is kept at two places: module, old and new."""

    @property
    def role(self) -> str:
        """Which role of the suite judges it."""
        return self.cases[0].partition(".")[0]

    @property
    def changes(self) -> list[Change]:
        """What is replaced in the reference."""
        pieces = [(self.module, self.old, self.new), *self.also]
        return [(f"ringline.{module}", old, new) for module, old, new in pieces]


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    impostor: tuple[Impostor, ...]


class _Reason(msgspec.Struct, forbid_unknown_fields=True):
    reason: str
    ids: tuple[str, ...]


class _Unproved(msgspec.Struct, forbid_unknown_fields=True):
    unproved: tuple[_Reason, ...]


def impostors(role: str) -> list[Impostor]:
    """Return the impostors of a role, chapter by chapter."""
    return [
        found
        for file in sorted((FOLDER / role).glob("*.toml"))
        for found in msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), _Table).impostor
    ]


def unproved(role: str) -> dict[str, str]:
    """Return the requirements that have cases and no impostor, with the reason why."""
    read = tomllib.loads((FOLDER / f"{role}-unproved.toml").read_text(encoding="utf-8"))
    return {name: each.reason for each in msgspec.convert(read, _Unproved).unproved for name in each.ids}


def faults(
    found: Sequence[Impostor], reasons: Mapping[str, str], judging: Mapping[str, Iterable[str]]
) -> list[str]:
    """Return what is wrong with a table, a line each, without starting anybody.

    ``judging`` has the requirements of each case that may fail a subject, by its id.
    """
    wrong: list[str] = []
    names = [impostor.name for impostor in found]
    wrong += [f"there are two impostors {name!r}" for name in {*names} if names.count(name) > 1]
    for impostor in found:
        for change in impostor.changes:
            try:
                changed(_source(change[0]), change)
            except NotThere as error:
                wrong.append(f"{impostor.name}: {error}")
        unknown = [name for name in impostor.cases if name not in judging]
        wrong += [f"{impostor.name}: there is no case {name} that says MUST" for name in unknown]
        judged = {name for case in impostor.cases for name in judging.get(case, ())}
        wrong += [
            f"{impostor.name}: none of its cases judges {name}"
            for name in impostor.requirements
            if name not in judged
        ]
        if not impostor.cases or not impostor.requirements:
            wrong.append(f"{impostor.name}: it names no case, or no requirement")
    proved = {name for impostor in found for name in impostor.requirements}
    required = {name for names in judging.values() for name in names}
    wrong += [
        f"{name} has neither an impostor nor a reason" for name in sorted(required - proved - {*reasons})
    ]
    failed = {case for impostor in found for case in impostor.cases}
    wrong += [
        f"{case} is failed by no impostor, and not all that it judges has a reason"
        for case, names in judging.items()
        if case not in failed and not {*names} <= {*reasons}
    ]
    wrong += [f"{name} has an impostor: remove its reason" for name in sorted(proved & {*reasons})]
    wrong += [f"{name} is judged by no case: remove its reason" for name in sorted({*reasons} - required)]
    return wrong


def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")
