"""Reports: what was seen is all there, and nothing that a subject sends can break their form."""

import json
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from ringline.conformance import html_report, report
from ringline.conformance.registry import Case, Level, Needs
from ringline.conformance.runner import Run
from ringline.conformance.timeline import Timeline, shorten
from ringline.conformance.verdict import Result, Verdict


async def nothing(stage: object) -> None: ...


def result(verdict: Verdict, *, name: str = "a_rule", level: Level = Level.MUST, **members: Any) -> Result:
    case = Case(
        role="relay",
        chapter="sync",
        name=name,
        level=level,
        requirements=("RL-SYNC-001",),
        sentence="A `ringing` call rings.",
        needs=Needs(bounds={"ring_bound_ms": 6_000}),
        run=nothing,
    )
    timeline = Timeline()
    timeline.sent("alice", shorten('{"type":"x","text":"<script>\\ud800\\u0000"}'))
    timeline.diverges("bob", "a member & nothing else")
    return Result(case=case, verdict=verdict, events=tuple(timeline.events), **members)


def run(*results: Result, subject: str = "http://127.0.0.1:1 <relay>") -> Run:
    return Run(subject=subject, results=results, seconds=1.5, strict=False)


FAILED = result(Verdict.FAIL, expected='{"a": "<b>"}', actual="nothing\x00 in time")


def test_the_json_report_has_the_verdict_and_the_wire_of_each_case() -> None:
    told = json.loads(report.as_json(run(result(Verdict.PASS), FAILED)))
    assert told["counts"] == {"pass": 1, "fail": 1, "not-tested": 0, "neutral": 0, "error": 0}
    assert told["exit_code"] == 1
    assert [event[1:] for event in told["cases"][1]["timeline"]] == [
        ["alice", ">", '{"type": "x", "text": "<script>\\ud800\\u0000"}'],
        ["bob", ".", "not allowed: a member & nothing else"],
    ]


def test_the_junit_report_counts_a_should_as_no_failure() -> None:
    results = (
        FAILED,
        result(Verdict.FAIL, name="b_rule", level=Level.SHOULD, expected="x", actual="y"),
        result(Verdict.NEUTRAL, name="c_rule", actual="needs RING_BOUND_MS=6000"),
        result(Verdict.ERROR, name="d_rule", actual="KeyError"),
    )
    suite = ElementTree.fromstring(report.as_junit(run(*results)))[0]
    assert [[child.tag for child in case] for case in suite] == [["failure"], [], ["skipped"], ["error"]]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "1", "1")


def test_neutral_cases_tell_the_settings_that_run_them() -> None:
    assert report.settings(run(result(Verdict.NEUTRAL))) == "--set RING_BOUND_MS=6000"
    assert report.settings(run(FAILED)) == ""


def test_a_wrong_end_is_told_apart_and_counts() -> None:
    told: list[str] = []
    fault = result(Verdict.PASS, close_fault="bob: close 1000 instead of close 1008")
    report.tell_result(fault, told.append, strict=False, verbose=False)
    assert told[0].startswith("wrong end")
    assert any("1008" in line for line in told)
    assert run(fault).exit_code == 1


def test_the_page_shows_runs_side_by_side_and_holds_whatever_they_saw() -> None:
    runs = [
        run(result(Verdict.PASS)),
        run(FAILED, subject="another"),
        run(result(Verdict.PASS, name="b_rule")),
    ]
    page = html_report.as_html(
        [html_report.read(report.as_json(each)) for each in runs], spec="../spec/ringline.md"
    ).decode()
    assert page.count("<details ") == 2
    assert '<span class="cell pass"' in page
    assert '<span class="cell fail"' in page
    assert page.count("not run</span>") == 3
    assert '<a href="../spec/ringline.md#:~:text=RL-SYNC-001">RL-SYNC-001</a>' in page
    assert "A <code>ringing</code> call rings." in page
    assert '<li class="remark wrong">' in page
    assert page.count("<script>") == 1
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b"\xff", b'{"subject": 1}'])
def test_what_is_no_report_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match="no report of this suite"):
        html_report.read(document)


def test_long_texts_and_bytes_are_shortened_and_stay_readable() -> None:
    assert shorten(b"\xff\x00\n") == "\\xff\\x00\\x0a"
    assert shorten("x" * 200) == f"{'x' * 96}… (200 bytes)"
    assert shorten('{"ct":"' + "A" * 2_000 + '"}') == '{"ct": "AAAAAAAAAAAAAAAA… (2000 characters)"}'
    assert shorten("[" * 100_000).endswith("… (100000 bytes)")
