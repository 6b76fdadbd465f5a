"""The interface without an event loop has every method of the other, with the same arguments."""

import inspect
from typing import Any

import pytest

from ringline.caller import AsyncCaller, Caller, CallHandle, Conversation, RunningCall, Talk

TWINS = [(AsyncCaller, Caller), (RunningCall, CallHandle), (Conversation, Talk)]
# `begin` is for the package itself; to stop waiting is what an interrupted wait does; the names that a
# program gave to `start` itself are not told to it again.
LEFT_OUT = {"begin", "abandon", "callee", "correlation_id"}


def public(kind: type[Any]) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def arguments(method: Any) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults; the annotations differ in what is twin to what."""
    parameters = inspect.signature(method).parameters.values()
    return [(each.name, each.kind, each.default) for each in parameters]


@pytest.mark.parametrize(("original", "twin"), TWINS, ids=lambda kind: kind.__name__)
def test_a_twin_has_every_public_name_of_its_original(original: type[Any], twin: type[Any]) -> None:
    assert public(original) - public(twin) <= LEFT_OUT


@pytest.mark.parametrize(("original", "twin"), TWINS, ids=lambda kind: kind.__name__)
def test_the_arguments_of_a_twin_are_those_of_its_original(original: type[Any], twin: type[Any]) -> None:
    shared = sorted(name for name in public(original) & public(twin) if callable(getattr(original, name)))
    assert shared
    for name in shared:
        assert arguments(getattr(twin, name)) == arguments(getattr(original, name)), name


def test_both_callers_are_made_alike() -> None:
    assert arguments(Caller.__init__) == arguments(AsyncCaller.__init__)
