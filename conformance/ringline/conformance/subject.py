"""What the runner needs to know of whatever is judged."""

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from ringline.conformance.registry import Case
from ringline.conformance.timeline import Timeline

__all__ = ["Patience", "Subject", "Unjudgeable"]


class Unjudgeable(Exception):
    """The subject cannot be judged: it is not there, it hangs, or what it says is rubbish."""


class Patience:
    """How long the suite waits, in seconds; slow subjects are given more by ``scale``."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.answer = 5.0 * scale
        """For one answer of the subject."""
        self.case = 45.0 * scale
        """For one case as a whole."""
        self.quiet = 0.04 * scale
        """In which something that must not be sent would have been."""


class Subject(Protocol):
    """A subject of one role. Every method that waits is bounded."""

    name: str
    """How the report calls it."""
    remarks: list[str]
    """What a reader of the report should know of it."""

    async def open(self) -> None:
        """Find out what the subject is. Raises `Unjudgeable`."""
        ...

    def missing(self, case: Case) -> str | None:
        """Return which bound is too long for ``case``, so that it is neutral; None when it can be run."""
        ...

    def lacking(self, case: Case) -> str | None:
        """Return which feature is not there, so that ``case`` is not tested; None when nothing is."""
        ...

    def stage(self, case: Case, timeline: Timeline) -> AbstractAsyncContextManager[Any]:
        """Return what the function of a case is given; leaving it closes all that the case has opened."""
        ...

    async def trouble(self) -> str | None:
        """Return why nothing more can be learnt from the subject, None while it answers."""
        ...

    async def close(self) -> None:
        """Let go of the subject."""
        ...
