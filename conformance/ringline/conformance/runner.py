"""Runs cases on a subject: some at once, each bounded, all bounded, no longer than there is sense in it."""

import asyncio
import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, final

from ringline.conformance.registry import Case
from ringline.conformance.subject import Patience, Subject, Unjudgeable
from ringline.conformance.timeline import Timeline
from ringline.conformance.verdict import Failed, Neutral, NotTested, Result, Verdict

__all__ = ["CONFORMANT", "NOT_CONFORMANT", "UNJUDGED", "Plan", "Run", "run"]

CONFORMANT: Final = 0
NOT_CONFORMANT: Final = 1
UNJUDGED: Final = 2


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be run, and how. ``seed`` gives the order; ``seconds`` bounds the whole run."""

    cases: Sequence[Case]
    patience: Patience
    jobs: int = 8
    seconds: float = 600.0
    strict: bool = False
    seed: int | None = None
    expected_failures: Collection[str] = ()


@final
@dataclass(frozen=True, kw_only=True)
class Run:
    """What came of a plan: results in the order of the cases."""

    subject: str
    results: Sequence[Result]
    seconds: float
    strict: bool
    remarks: Sequence[str] = ()
    """What a reader should know of the subject."""
    unjudged: str | None = None
    """Why the subject could not be judged, or not to the end."""

    @property
    def exit_code(self) -> int:
        """0 conformant, 1 not, 2 not judged."""
        if self.unjudged is not None:
            return UNJUDGED
        if any(result.counts_against(strict=self.strict) for result in self.results):
            return NOT_CONFORMANT
        if any(result.verdict is Verdict.ERROR for result in self.results):
            return UNJUDGED
        return CONFORMANT


async def run(subject: Subject, plan: Plan, *, told: Callable[[Result], None] = lambda result: None) -> Run:
    """Judge ``subject``; ``told`` is called with each result as it is known. Raises nothing."""
    began = time.monotonic()
    done: dict[str, Result] = {}
    unjudged: str | None = None
    try:
        async with asyncio.timeout(plan.seconds):
            await subject.open()
            unjudged = await _run_all(subject, plan, done, told)
    except Unjudgeable as error:
        unjudged = str(error)
    except TimeoutError:
        unjudged = f"the run took longer than {plan.seconds:g} s, its bound (--time-limit)"
    finally:
        await subject.close()
    for case in plan.cases:
        if case.id not in done:
            why = unjudged or "it was not run"
            done[case.id] = Result(case=case, verdict=Verdict.NOT_TESTED, actual=why)
    return Run(
        subject=subject.name,
        results=[done[case.id] for case in plan.cases],
        seconds=time.monotonic() - began,
        strict=plan.strict,
        remarks=tuple(subject.remarks),
        unjudged=unjudged,
    )


async def _run_all(
    subject: Subject, plan: Plan, done: dict[str, Result], told: Callable[[Result], None]
) -> str | None:
    """Run the cases; return why it was no use to go on, None when all were run."""
    waiting = list(plan.cases)
    if plan.seed is not None:
        random.Random(plan.seed).shuffle(waiting)
    else:
        # Those that wait for the subject's clock first, so that the others pass the time.
        waiting.sort(key=lambda case: not case.needs.bounds)
    waiting.reverse()
    trouble: str | None = None

    async def work() -> None:
        nonlocal trouble
        while waiting and trouble is None:
            case = waiting.pop()
            result = await _judge(subject, case, plan)
            done[case.id] = result
            told(result)
            if result.verdict in (Verdict.FAIL, Verdict.ERROR) and trouble is None:
                why = await subject.trouble()
                if why is not None:
                    trouble = f"{why}; it answered before the case {case.id}"

    async with asyncio.TaskGroup() as group:
        for _ in range(max(1, plan.jobs)):
            group.create_task(work())
    return trouble


async def _judge(subject: Subject, case: Case, plan: Plan) -> Result:
    timeline = Timeline()
    began = time.monotonic()
    verdict, expected, actual = Verdict.PASS, "", ""
    lacking = subject.lacking(case)
    missing = subject.missing(case)
    if lacking is not None:
        verdict, actual = Verdict.NOT_TESTED, lacking
    elif missing is not None:
        verdict, actual = Verdict.NEUTRAL, missing
    else:
        try:
            async with asyncio.timeout(plan.patience.case), subject.stage(case, timeline) as stage:
                await case.run(stage)
        except Failed as failed:
            verdict, expected, actual = Verdict.FAIL, failed.expected, failed.actual
        except NotTested as error:
            verdict, actual = Verdict.NOT_TESTED, str(error)
        except Neutral as error:
            verdict, actual = Verdict.NEUTRAL, str(error)
        except TimeoutError:
            verdict, expected = Verdict.FAIL, f"an end of the case within {plan.patience.case:g} s"
            actual = "the subject kept it waiting"
        except (OSError, EOFError) as error:
            verdict, expected = Verdict.FAIL, "a connection"
            actual = f"{type(error).__name__}: {error}"
        except Unjudgeable as error:
            verdict, expected, actual = Verdict.FAIL, "something that can be judged", str(error)
        except Exception as error:
            # A harness that trips over what nobody may send is no fault of the harness.
            verdict = Verdict.FAIL if timeline.divergence else Verdict.ERROR
            expected = "no fault of the suite itself"
            actual = f"{type(error).__name__}: {error}"
        if timeline.divergence and verdict in (Verdict.PASS, Verdict.FAIL, Verdict.NEUTRAL):
            if verdict is not Verdict.FAIL:
                expected, actual = "frames and answers of the schema", timeline.divergence
            verdict = Verdict.FAIL
    return Result(
        case=case,
        verdict=verdict,
        expected=expected,
        actual=actual,
        close_fault=timeline.close_fault,
        divergence=timeline.divergence,
        seconds=time.monotonic() - began,
        events=tuple(timeline.events),
        expected_to_fail=case.id in plan.expected_failures,
    )
