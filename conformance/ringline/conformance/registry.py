"""The cases by their ids: what each requires, of whom, and what it needs to be run.

A case is an async function in ``cases/<role>/<chapter>.py`` under the decorator `case`. Its id is
``<role>.<chapter>.<name of the function>``; its docstring, one sentence, is the requirement in words. A
chapter that is too long for one file goes on in ``<chapter>_<part>.py``.
"""

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final, final

from ringline.conformance import cases

__all__ = ["ROLES", "Case", "Level", "Needs", "add", "case", "load", "select", "short_bounds"]

ROLES: Final = ("relay", "listener", "caller", "vectors")
"""What can be judged, in the order of the command line."""


class Level(StrEnum):
    """How binding a requirement is."""

    MUST = "MUST"
    SHOULD = "SHOULD"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a case cannot be run without.

    ``bounds`` names limits and budgets of the subject, as its ``GET /v1/relay`` shows them, that must be at
    most so large: with larger ones the case is neutral. ``features`` are optional parts of the protocol, such
    as ``durable``: without one the case is not tested.
    """

    bounds: Mapping[str, int] = field(default_factory=dict[str, int])
    features: tuple[str, ...] = ()


_NOTHING: Final = Needs()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case. ``run`` takes the stage that its role prepares, and raises what `verdict` has for it."""

    role: str
    chapter: str
    name: str
    level: Level
    requirements: tuple[str, ...]
    sentence: str
    needs: Needs
    run: Callable[[Any], Awaitable[None]]

    @property
    def id(self) -> str:
        """The name by which the case is selected and reported; never given to another one."""
        return f"{self.role}.{self.chapter}.{self.name}"

    @property
    def is_must(self) -> bool:
        """True when a subject that fails this case is not conformant."""
        return self.level is Level.MUST


_cases: Final[dict[str, Case]] = {}


def case(
    level: Level = Level.MUST, *, requirements: Sequence[str], needs: Needs = _NOTHING
) -> Callable[[Callable[[Any], Awaitable[None]]], Callable[[Any], Awaitable[None]]]:
    """Register an async function as a case.

    ``requirements`` are the ids of the normative text that it holds a subject to.

    Raises `ValueError` for a second case of the same id, or one that says nothing about itself.
    """

    def register(run: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
        *_, role, module = run.__module__.split(".")
        sentence = " ".join((run.__doc__ or "").split())
        if role not in ROLES or not sentence:
            raise ValueError(f"{run.__qualname__} has no role or no sentence")
        made = Case(
            role=role,
            chapter=module.partition("_")[0],
            name=run.__name__,
            level=level,
            requirements=tuple(requirements),
            sentence=sentence,
            needs=needs,
            run=run,
        )
        add(made)
        return run

    return register


def add(made: Case) -> None:
    """Register a case that is made from data. Raises `ValueError` for a second one of the same id."""
    if _cases.setdefault(made.id, made) is not made:
        raise ValueError(f"there are two cases {made.id}")


def load(role: str) -> list[Case]:
    """Return every case of ``role``, by chapters in alphabetical order, as they stand in their files."""
    try:
        package = importlib.import_module(f"{cases.__name__}.{role}")
    except ModuleNotFoundError:
        return []
    for module in sorted(entry.name for entry in pkgutil.iter_modules(package.__path__)):
        importlib.import_module(f"{package.__name__}.{module}")
    return [found for found in _cases.values() if found.role == role]


def select(
    found: Iterable[Case],
    selectors: Sequence[str],
    *,
    level: Level | None = None,
    without: Sequence[str] = (),
    timed: bool | None = None,
) -> list[Case]:
    """Return the cases that any of ``selectors`` names; all when there is none.

    A selector is a case's id, with or without its role, or the beginning of it up to a dot (``relay.sync``,
    ``sync``), the id of a requirement (``RL-SYNC-003``) or the beginning of it up to a hyphen, or a pattern
    with ``*``.
    ``without`` leaves out the cases that need one of these features, ``timed`` those that need shorter bounds
    (False) or all others (True).
    """
    return [
        each
        for each in found
        if (level is None or each.level is level)
        and (timed is None or timed is bool(each.needs.bounds))
        and not set(without) & set(each.needs.features)
        and (not selectors or any(_matches(each, selector) for selector in selectors))
    ]


def _matches(each: Case, selector: str) -> bool:
    names = (each.id, f"{each.chapter}.{each.name}", each.name, *each.requirements)
    return any(
        name == selector or name.startswith((f"{selector}.", f"{selector}-")) or fnmatchcase(name, selector)
        for name in names
    )


def short_bounds(found: Iterable[Case]) -> dict[str, int]:
    """Return the bounds, by their names in ``limits``, with which every one of these cases can be run."""
    bounds: dict[str, int] = {}
    for each in found:
        for name, most in each.needs.bounds.items():
            bounds[name] = min(most, bounds.get(name, most))
    return dict(sorted(bounds.items()))
