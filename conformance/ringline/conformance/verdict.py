"""What became of a case, and how a case says so."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, final

from ringline.conformance.timeline import Event

if TYPE_CHECKING:
    from ringline.conformance.registry import Case

__all__ = ["Failed", "Neutral", "NotTested", "Result", "Verdict", "check"]


class Verdict(StrEnum):
    """One case's verdict on the subject."""

    PASS = "pass"
    FAIL = "fail"
    NOT_TESTED = "not-tested"  # something that the case needs is missing; counts like a failure
    NEUTRAL = "neutral"  # the subject's bounds are too long to wait for; counts with --strict
    ERROR = "error"  # the suite itself went wrong: nothing is known of the subject


class Failed(Exception):
    """The subject did not do what the case requires: what was expected, and what happened instead."""

    def __init__(self, expected: str, actual: str) -> None:
        self.expected = expected
        self.actual = actual
        super().__init__(f"expected {expected}; got {actual}")


class NotTested(Exception):
    """Something that the case needs could not be had, through nobody's rule being broken by this case."""


class Neutral(Exception):
    """The case cannot be run with what the subject is set to; the text says which setting would do."""


def check(holds: bool, expected: str, actual: object) -> None:
    """Raise `Failed` unless ``holds``."""
    if not holds:
        raise Failed(expected, actual if isinstance(actual, str) else repr(actual))


@final
@dataclass(frozen=True, kw_only=True)
class Result:
    """A case that was judged."""

    case: "Case"
    verdict: Verdict
    expected: str = ""
    """What should have been seen first that was not; of a verdict that is no pass."""
    actual: str = ""
    close_fault: str = ""
    """What was wrong with the end of a connection; judged apart from what the case is about."""
    divergence: str = ""
    """The first thing received that breaks the schema or leaks, wherever in the case."""
    seconds: float = 0.0
    events: tuple[Event, ...] = field(default=(), repr=False)
    expected_to_fail: bool = False

    @property
    def broken(self) -> bool:
        """True when the subject breaks the requirement, or it is not known that it keeps it."""
        return self.verdict in (Verdict.FAIL, Verdict.NOT_TESTED) or bool(self.close_fault)

    def counts_against(self, *, strict: bool) -> bool:
        """True when this result makes the subject non-conformant."""
        if self.expected_to_fail:
            # An entry of the list that is not true any more must go.
            return self.verdict is Verdict.PASS and not self.close_fault
        if self.verdict is Verdict.NEUTRAL:
            return strict
        return self.broken and (strict or self.case.is_must)
