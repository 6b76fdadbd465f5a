"""What a run says: as JSON for programs, as JUnit for build servers, as text for a person."""

import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any, Final

import msgspec

from ringline.conformance.registry import short_bounds
from ringline.conformance.runner import Run
from ringline.conformance.verdict import Result, Verdict

__all__ = ["as_json", "as_junit", "counts", "settings", "tell_result", "tell_run"]

_WIDTH: Final = 11


def as_json(run: Run) -> bytes:
    """Return the whole run as one JSON document, each case with its decoded timeline."""
    document = {
        "suite": {"name": "ringline-conformance", "version": version("ringline")},
        "subject": run.subject,
        "seconds": round(run.seconds, 3),
        "strict": run.strict,
        "exit_code": run.exit_code,
        "unjudged": run.unjudged,
        "remarks": list(run.remarks),
        "counts": counts(run.results),
        "cases": [_case(result) for result in run.results],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1)


def _case(result: Result) -> dict[str, Any]:
    case = result.case
    return {
        "id": case.id,
        "role": case.role,
        "chapter": case.chapter,
        "level": case.level,
        "requirements": case.requirements,
        "sentence": case.sentence,
        "verdict": result.verdict,
        "expected": result.expected,
        "actual": result.actual,
        "close_fault": result.close_fault,
        "divergence": result.divergence,
        "expected_to_fail": result.expected_to_fail,
        "seconds": round(result.seconds, 3),
        "timeline": [[event.at_ms, event.line, event.way, event.text] for event in result.events],
    }


def as_junit(run: Run) -> bytes:
    """Return the run as JUnit XML: a suite for each chapter, a test case for each case."""
    root = ElementTree.Element("testsuites", name=run.subject, time=f"{run.seconds:.3f}")
    suites: dict[str, ElementTree.Element] = {}
    for result in run.results:
        case = result.case
        name = f"{case.role}.{case.chapter}"
        if name not in suites:
            suites[name] = ElementTree.SubElement(root, "testsuite", name=name)
        element = ElementTree.SubElement(
            suites[name],
            "testcase",
            name=case.name,
            classname=" ".join(case.requirements) or name,
            time=f"{result.seconds:.3f}",
        )
        if result.counts_against(strict=run.strict):
            failure = ElementTree.SubElement(element, "failure", message=_xml(_why(result)))
            failure.text = _xml("\n".join([f"{case.level}: {case.sentence}", *_lines(result)]))
        elif result.verdict is Verdict.ERROR:
            ElementTree.SubElement(element, "error", message=_xml(result.actual))
        elif result.verdict in (Verdict.NEUTRAL, Verdict.NOT_TESTED):
            ElementTree.SubElement(element, "skipped", message=_xml(result.actual))
    for suite in suites.values():
        for tag in ("failure", "error", "skipped"):
            suite.set(f"{tag}s" if tag != "skipped" else tag, str(len(suite.findall(f"./testcase/{tag}"))))
        suite.set("tests", str(len(suite)))
    data: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return data


def _xml(text: str) -> str:
    """Return ``text`` without the characters that XML cannot hold."""
    return "".join(char if char in "\t\n" or char >= " " else "�" for char in text)


def counts(results: Iterable[Result]) -> dict[str, int]:
    """Return how many cases have each verdict, in the order of `Verdict`."""
    seen = Counter(result.verdict for result in results)
    return {verdict.value: seen[verdict] for verdict in Verdict}


def settings(run: Run) -> str:
    """Return the options of ``ringline relay dev`` with which no case would be neutral."""
    neutral = (result.case for result in run.results if result.verdict is Verdict.NEUTRAL)
    return " ".join(f"--set {name.upper()}={most}" for name, most in short_bounds(neutral).items())


def _why(result: Result) -> str:
    if result.expected_to_fail and result.verdict is Verdict.PASS:
        return "passes, and stands in the list of expected failures: take it out"
    if result.verdict is Verdict.PASS:
        return result.close_fault
    if result.expected:
        return f"expected {result.expected}; got {result.actual}"
    return result.actual


def _lines(result: Result) -> list[str]:
    lines = [_why(result)]
    if result.divergence and result.divergence != result.actual:
        lines.append(f"first not allowed: {result.divergence}")
    if result.close_fault and result.close_fault != lines[0]:
        lines.append(f"wrong end: {result.close_fault}")
    return lines


def tell_result(result: Result, write: Callable[[str], None], *, strict: bool, verbose: bool) -> None:
    """Write what a person needs to know of one result: a pass only when ``verbose``."""
    case = result.case
    against = result.counts_against(strict=strict)
    wrong_end = result.verdict is Verdict.PASS and bool(result.close_fault)
    word = "wrong end" if wrong_end else result.verdict.value
    if result.expected_to_fail:
        word = "now passes" if against else "expected"
    if not verbose and word in ("pass", "neutral", "expected"):
        return
    write(f"{word:<{_WIDTH}} {case.id}  {' '.join(case.requirements)}")
    if word == "pass":
        return
    write(f"{'':<{_WIDTH}} {case.level}: {case.sentence}")
    for line in _lines(result):
        write(f"{'':<{_WIDTH}} {line}")
    if result.verdict in (Verdict.FAIL, Verdict.ERROR):
        for event in result.events if verbose else result.events[-6:]:
            write(f"{'':<{_WIDTH}}   {event.at_ms:>6} ms {event.line} {event.way} {event.text}")


def tell_run(run: Run, write: Callable[[str], None]) -> None:
    """Write the end of the run."""
    shown = ", ".join(f"{count} {verdict}" for verdict, count in counts(run.results).items() if count)
    faults = sum(bool(result.close_fault) for result in run.results)
    ends = f", {faults} with a wrong end" if faults else ""
    write(f"{run.subject}: {shown or 'no case'}{ends}; {run.seconds:.1f} s")
    for remark in run.remarks:
        write(f"Note: {remark}")
    bounds = settings(run)
    if bounds:
        write(f"Neutral cases run on a relay with shorter bounds: ringline relay dev {bounds}")
    if run.unjudged is not None:
        write(f"Not judged: {run.unjudged}")
    else:
        words = {0: "Conformant.", 1: "Not conformant.", 2: "Not judged: the suite itself went wrong."}
        write(words[run.exit_code])
