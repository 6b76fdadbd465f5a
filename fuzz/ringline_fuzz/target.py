"""What a target is: where valid inputs come from, how they are damaged, and what must hold of the answer."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias, final

from ringline_fuzz.mutation import mutate_bytes

__all__ = ["Broken", "Check", "Mutate", "Skipped", "Target", "outcome_of"]

Check: TypeAlias = Callable[[bytes], str]
"""Judges one input: returns in a few words what came of it, and raises when the promise is broken."""

Mutate: TypeAlias = Callable[[Random, bytes, Sequence[bytes]], bytes]
"""Damages an input; the last argument is others that parts may be taken from."""

_NUMBER: Final = re.compile(r"[0-9]+")
_OUTCOME_CHARS: Final = 80


class Broken(AssertionError):
    """A promise that did not hold. Its text says which; the input is shown beside it."""


class Skipped(Exception):
    """What a target needs is not on this computer; the text says what."""


def _nothing() -> None:
    """Have nothing to end."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One thing that is fuzzed.

    ``promise`` is the property in one sentence. ``short`` and ``full`` are how many inputs a run has: numbers
    and never seconds, so that every run of a seed is the same. ``close`` ends what the target has started.
    """

    name: str
    promise: str
    seeds: Callable[[], Sequence[bytes]]
    check: Check
    mutate: Mutate = mutate_bytes
    short: int = 700
    full: int = 50_000
    guided: bool = True
    """Whether coverage of this process tells anything: not where the subject is another process."""
    close: Callable[[], None] = _nothing


def outcome_of(error: BaseException) -> str:
    """Return a refusal in a few words, numbers left out: what tells one kind of input from another."""
    return f"{type(error).__name__}: {_NUMBER.sub('#', str(error))[:_OUTCOME_CHARS]}"
