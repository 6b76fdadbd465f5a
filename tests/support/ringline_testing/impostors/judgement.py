"""Runs impostors and holds what the suite says of each against the table."""

import argparse
import asyncio
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringline.conformance.registry import Case, load
from ringline.conformance.runner import Plan, run
from ringline.conformance.subject import Patience
from ringline_testing.impostors.masquerade import PRELOADED
from ringline_testing.impostors.proof_page import proof_page
from ringline_testing.impostors.staging import subject_of
from ringline_testing.impostors.table import ROLES, Impostor, impostors

__all__ = ["Finding", "cases_for", "judge", "main"]

_NEIGHBOURS: Final = 5
_AT_ONCE: Final = {"relay": 8, "listener": 2, "caller": 2}
"""Cases. A listener or caller has one at a time, and each further one is a process of its own."""
_JUDGE_S: Final = 240.0
_SAMPLE: Final = 4
_FIXED: Final = (
    "a log-in counts twice",
    "anybody reads a record",
    "a frame under a lease of old counts",
    "no signature of a request is judged",
    "a receipt is for any correlation id",
)
_PRINTED_WHY: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the suite said of one impostor. ``unnoticed`` and ``further`` are ids of cases."""

    impostor: Impostor
    failed: tuple[str, ...] = ()
    unnoticed: tuple[str, ...] = ()
    """Cases that ought to have failed."""
    further: tuple[str, ...] = ()
    """Cases that failed and ought not to."""
    broken: str = ""
    """Why nothing is known."""
    why: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def caught(self) -> bool:
        """True if exactly the cases of the table failed."""
        return not (self.unnoticed or self.further or self.broken)


def cases_for(impostor: Impostor, every: Sequence[Case], *, wide: bool = False) -> list[Case]:
    """Return the cases to run on an impostor: those that are to fail, and others of their chapters.

    The others are those that stand next to them and wait for no bound; all of the chapters if ``wide``.
    """
    expected = [case for case in every if case.id in impostor.cases]
    chosen = {case.id for case in expected}
    for chapter in {case.chapter for case in expected}:
        of_chapter = [case for case in every if case.chapter == chapter and case.level.value == "MUST"]
        at = min(number for number, case in enumerate(of_chapter) if case.id in impostor.cases)
        others = of_chapter[at:] + of_chapter[:at]
        if not wide:
            others = [case for case in others if not case.needs.bounds][: _NEIGHBOURS + 1]
        chosen |= {case.id for case in others}
    return [case for case in every if case.id in chosen]


async def judge(impostor: Impostor, cases: Sequence[Case], patience: Patience) -> Finding:
    """Run ``cases`` on an impostor and compare what fails with what the table says."""
    began = time.monotonic()
    at_once = _AT_ONCE[impostor.role]
    plan = Plan(cases=cases, patience=patience, jobs=at_once, seconds=_JUDGE_S)
    try:
        async with (
            asyncio.timeout(_JUDGE_S * patience.scale),
            subject_of(impostor, cases, patience) as subject,
        ):
            done = await run(subject, plan)
    except (OSError, TimeoutError) as error:
        return Finding(impostor=impostor, broken=f"{type(error).__name__}: {error}")
    # A case that turns out to be neutral has not passed, and is failed by a strict run. That a neighbour is,
    # on a busy machine perhaps, says nothing.
    against = [
        result for result in done.results if result.counts_against(strict=result.case.id in impostor.cases)
    ]
    failed = [result.case.id for result in against]
    return Finding(
        impostor=impostor,
        failed=tuple(failed),
        unnoticed=tuple(name for name in impostor.cases if name not in failed),
        further=tuple(name for name in failed if name not in impostor.cases),
        broken=done.unjudged or "",
        why=tuple(
            f"{result.case.id}: expected {result.expected}; {result.actual}"[:_PRINTED_WHY]
            for result in against
            if result.case.id not in impostor.cases
        ),
        seconds=time.monotonic() - began,
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _judge_all(chosen: Sequence[Impostor], *, jobs: int, scale: float, wide: bool) -> int:
    every = {role: load(role) for role in ROLES}
    places = asyncio.Semaphore(jobs)
    caught = 0

    async def one(impostor: Impostor) -> None:
        nonlocal caught
        async with places:
            finding = await judge(
                impostor, cases_for(impostor, every[impostor.role], wide=wide), Patience(scale)
            )
        caught += finding.caught
        _say(f"{'caught' if finding.caught else 'NOT CAUGHT':<10} {impostor.name} ({finding.seconds:.1f} s)")
        for name in finding.unnoticed:
            _say(f"    passed, and ought to have failed: {name}")
        for line in finding.why:
            _say(f"    failed, and ought to have passed: {line}")
        if finding.broken:
            _say(f"    {finding.broken}")

    async with asyncio.TaskGroup() as group:
        for impostor in chosen:
            group.create_task(one(impostor))
    return caught


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check; see ``tests/impostors/run.py``."""
    parser = argparse.ArgumentParser(description="Impostors, and the cases that notice them.")
    parser.add_argument("--role", choices=ROLES, action="append", help="of this role only; may be repeated")
    parser.add_argument("--short", action="store_true", help="a few that are always the same, and a few more")
    parser.add_argument("--seed", type=int, help="which the few more are; the number of the day by default")
    parser.add_argument("--only", default="", metavar="TEXT", help="those with this text in what they are")
    parser.add_argument("--wide", action="store_true", help="whole chapters beside, and not a few neighbours")
    parser.add_argument("--page", type=Path, help="write what they prove to this file and stop")
    parser.add_argument("--list", action="store_true", help="name them and stop")
    parser.add_argument("--jobs", type=int, default=4, help="how many at a time")
    parser.add_argument("--timeout-scale", type=float, default=2.0, help="more patience on slow machines")
    given = parser.parse_args(arguments)
    if given.page is not None:
        given.page.write_text(proof_page(), encoding="utf-8")
        return 0
    chosen = [
        each
        for role in given.role or ROLES
        for each in impostors(role)
        if given.only in " ".join((each.name, *each.requirements, *each.cases, each.module))
    ]
    if given.short:
        seed = int(time.time() // 86_400) if given.seed is None else given.seed
        fixed = [each for each in chosen if each.name in _FIXED]
        others = [each for each in chosen if each.name not in _FIXED]
        random.Random(seed).shuffle(others)
        chosen = fixed + others[:_SAMPLE]
        _say(f"seed {seed}")
    if not chosen:
        parser.error("no impostor has that text")
    if given.list:
        for each in chosen:
            _say(f"{each.name}\n    {each.breaks} {' '.join(each.requirements)}")
        return 0
    # Bytecode is kept, whatever the environment says: every impostor loads the whole product.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    multiprocessing.get_context("forkserver").set_forkserver_preload([*PRELOADED])
    began = time.monotonic()
    caught = asyncio.run(_judge_all(chosen, jobs=given.jobs, scale=given.timeout_scale, wide=given.wide))
    _say(f"{caught} of {len(chosen)} impostors caught in {time.monotonic() - began:.0f} s")
    return 0 if caught == len(chosen) else 1
