"""Verdicts and exit codes: what is not known is never taken for right, and nothing waits for ever."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from ringline.conformance.registry import Case, Level, Needs
from ringline.conformance.runner import CONFORMANT, NOT_CONFORMANT, UNJUDGED, Plan, Run, run
from ringline.conformance.subject import Patience, Unjudgeable
from ringline.conformance.timeline import Timeline
from ringline.conformance.verdict import Failed, Neutral, NotTested, Verdict

Body = Callable[[Timeline], Awaitable[None]]


class Stub:
    """A subject that does whatever the case's function does with its timeline."""

    name = "stub"

    def __init__(self) -> None:
        self.fault: str | None = None
        self.refusal: str | None = None
        self.closed = False
        self.remarks = ["it is a stub"]

    async def open(self) -> None:
        if self.refusal is not None:
            raise Unjudgeable(self.refusal)

    def missing(self, case: Case) -> str | None:
        return "needs X=1" if case.needs.bounds else None

    def lacking(self, case: Case) -> str | None:
        return "no durable" if case.needs.features else None

    @contextlib.asynccontextmanager
    async def stage(self, case: Case, timeline: Timeline) -> AsyncGenerator[Any]:
        yield timeline

    async def trouble(self) -> str | None:
        return self.fault

    async def close(self) -> None:
        self.closed = True


def made(name: str, body: Body, *, level: Level = Level.MUST, needs: Needs | None = None) -> Case:
    return Case(
        role="relay",
        chapter="sync",
        name=name,
        level=level,
        requirements=("RL-SYNC-001",),
        sentence="It is so.",
        needs=needs or Needs(),
        run=body,
    )


async def good(timeline: Timeline) -> None: ...


async def bad(timeline: Timeline) -> None:
    raise Failed("a frame", "nothing")


async def stuck(timeline: Timeline) -> None:
    await asyncio.Event().wait()


async def faulty(timeline: Timeline) -> None:
    raise KeyError("call_id")


async def leaking(timeline: Timeline) -> None:
    timeline.diverges("bob", "a member that nobody knows")


async def tripping(timeline: Timeline) -> None:
    timeline.diverges("bob", "a member that nobody knows")
    raise KeyError("call_id")


async def misclosing(timeline: Timeline) -> None:
    timeline.misclosed("bob", "close 1000 instead of 1008")


async def unprepared(timeline: Timeline) -> None:
    raise NotTested("no invite")


async def slow_bound(timeline: Timeline) -> None:
    raise Neutral("needs X=1")


async def judged(*cases: Case, subject: Stub | None = None, **plan: Any) -> Run:
    patience = Patience()
    patience.case = 0.2
    return await run(subject or Stub(), Plan(cases=cases, patience=patience, **plan))


@pytest.mark.parametrize(
    ("body", "verdict", "code"),
    [
        (good, Verdict.PASS, CONFORMANT),
        (bad, Verdict.FAIL, NOT_CONFORMANT),
        (stuck, Verdict.FAIL, NOT_CONFORMANT),
        (leaking, Verdict.FAIL, NOT_CONFORMANT),
        (tripping, Verdict.FAIL, NOT_CONFORMANT),
        (unprepared, Verdict.NOT_TESTED, NOT_CONFORMANT),
        (misclosing, Verdict.PASS, NOT_CONFORMANT),
        (slow_bound, Verdict.NEUTRAL, CONFORMANT),
        (faulty, Verdict.ERROR, UNJUDGED),
    ],
)
async def test_what_a_case_does_gives_its_verdict_and_the_exit_code(
    body: Body, verdict: Verdict, code: int
) -> None:
    done = await judged(made("first", good), made("second", body))
    assert [result.verdict for result in done.results] == [Verdict.PASS, verdict]
    assert done.remarks == ("it is a stub",)
    assert done.exit_code == code


async def test_what_is_missing_is_told_before_the_case_is_run() -> None:
    done = await judged(
        made("a", bad, needs=Needs(bounds={"x": 1})), made("b", bad, needs=Needs(features=("durable",)))
    )
    assert [result.verdict for result in done.results] == [Verdict.NEUTRAL, Verdict.NOT_TESTED]
    assert [result.actual for result in done.results] == ["needs X=1", "no durable"]


async def test_a_should_and_a_neutral_case_count_only_when_strict() -> None:
    cases = (made("a", bad, level=Level.SHOULD), made("b", slow_bound))
    assert (await judged(*cases)).exit_code == CONFORMANT
    for case in cases:
        assert (await judged(case, strict=True)).exit_code == NOT_CONFORMANT


async def test_an_expected_failure_is_none_until_it_passes() -> None:
    names = ("relay.sync.a",)
    assert (await judged(made("a", bad), expected_failures=names)).exit_code == CONFORMANT
    assert (await judged(made("a", good), expected_failures=names)).exit_code == NOT_CONFORMANT


async def test_a_subject_that_cannot_be_opened_is_not_judged() -> None:
    subject = Stub()
    subject.refusal = "nobody is there"
    done = await judged(made("a", good), subject=subject)
    assert (done.exit_code, done.unjudged) == (UNJUDGED, "nobody is there")
    assert done.results[0].verdict is Verdict.NOT_TESTED
    assert subject.closed


async def test_a_subject_that_stops_answering_ends_the_run() -> None:
    subject = Stub()
    subject.fault = "it hangs"
    done = await judged(*(made(f"c{n}", bad) for n in range(50)), subject=subject, jobs=2)
    assert done.exit_code == UNJUDGED
    assert done.unjudged is not None
    assert "it hangs" in done.unjudged
    assert len(done.results) == 50
    assert sum(result.verdict is Verdict.FAIL for result in done.results) <= 2


async def test_the_whole_run_is_bounded_and_what_was_not_run_is_not_tested() -> None:
    done = await judged(*(made(f"c{n}", stuck) for n in range(9)), jobs=1, seconds=0.3)
    assert done.exit_code == UNJUDGED
    assert {result.verdict for result in done.results} == {Verdict.FAIL, Verdict.NOT_TESTED}


async def test_a_seed_gives_one_order() -> None:
    async def order(seed: int) -> list[str]:
        told: list[str] = []
        cases = [made(f"c{n}", good) for n in range(12)]
        plan = Plan(cases=cases, patience=Patience(), seed=seed, jobs=1)
        await run(Stub(), plan, told=lambda result: told.append(result.case.name))
        return told

    assert await order(1) == await order(1)
    assert await order(1) != await order(2)
