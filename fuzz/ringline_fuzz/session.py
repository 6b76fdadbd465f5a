"""One run of one target: inputs by number, what is new is kept as a seed, what breaks is made small."""

import hashlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, final

from ringline_fuzz.target import Skipped, Target

__all__ = ["Finding", "judge", "run", "shrink"]

_POOL: Final = 512
_SHRINK_TRIES: Final = 400
_FRESH_KEPT: Final = 8_192


@final
@dataclass(frozen=True, slots=True)
class Finding:
    """An input that breaks the promise of a target, and what was raised."""

    target: str
    data: bytes
    error: BaseException

    @property
    def place(self) -> str:
        """The kind of error and where it was raised: what tells one finding from another."""
        return _place(self.error)

    @property
    def name(self) -> str:
        """A short name for files."""
        return f"{self.target}-{hashlib.sha256(self.data).hexdigest()[:12]}"


def judge(target: Target, data: bytes) -> str | Finding:
    """Return what came of one input, or the finding that it is."""
    try:
        return target.check(data)
    except Skipped:
        raise
    except Exception as error:
        return Finding(target.name, data, error)


def run(
    target: Target, *, seed: int, runs: int, report: Callable[[Finding], None], kept: Sequence[bytes] = ()
) -> tuple[int, set[str], list[Finding]]:
    """Feed ``runs`` inputs; the same for the same seed. Return how many there were, outcomes and findings.

    ``kept`` are inputs to begin with besides the target's own. ``report`` is told each finding as it is made;
    of those that are raised in one place the first is enough.
    """
    random = Random(f"{seed} {target.name}")
    pool = [*target.seeds(), *kept]
    began = len(pool)
    outcomes: set[str] = set()
    findings: dict[str, Finding] = {}

    def note(data: bytes) -> None:
        said = judge(target, data)
        if isinstance(said, Finding):
            if said.place not in findings:
                small = shrink(target, said)
                findings[said.place] = small
                report(small)
        elif said not in outcomes:
            outcomes.add(said)
            if len(pool) < _POOL and len(data) <= _FRESH_KEPT and data not in pool:
                pool.append(data)

    for data in list(pool):
        note(data)
    for _ in range(runs):
        note(target.mutate(random, random.choice(pool), pool))
    return began + runs, outcomes, list(findings.values())


def shrink(target: Target, finding: Finding) -> Finding:
    """Return a smaller input that is raised in the same place, found by leaving parts out."""
    best, left = finding, _SHRINK_TRIES
    size = max(len(best.data) // 2, 1)
    while left > 0 and best.data:
        at, smaller = 0, False
        while at < len(best.data) and left > 0:
            left -= 1
            tried = judge(target, best.data[:at] + best.data[at + size :])
            if isinstance(tried, Finding) and tried.place == finding.place:
                best, smaller = tried, True
            else:
                at += size
        if size == 1 and not smaller:
            break
        size = max(size // 2, 1)
    return best


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "ringline" in frame.filename]
    last = (own or list(frames))[-1]
    return f"{type(error).__name__} {last.filename.rsplit('/', 1)[-1]}:{last.lineno}"
