"""One page for a browser: the cases of one or several runs as a matrix, and behind each cell what was seen.

It is made from the JSON documents of `ringline.conformance.report`, so that runs of another day, or of other
implementations, stand side by side. The page needs nothing from elsewhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

__all__ = ["CaseReport", "RunReport", "as_html", "read"]

_EVENTS: Final = 120
_CHARS: Final = 600


class CaseReport(Struct, frozen=True, kw_only=True):
    """One case of a JSON report."""

    id: str
    role: str
    chapter: str
    level: str
    requirements: list[str]
    sentence: str
    verdict: Literal["pass", "fail", "not-tested", "neutral", "error"]
    expected: str
    actual: str
    close_fault: str
    divergence: str
    expected_to_fail: bool
    seconds: float
    timeline: list[tuple[int, str, str, str]]

    @property
    def word(self) -> str:
        """What stands in the cell."""
        if self.verdict == "pass" and self.close_fault:
            return "wrong end"
        return self.verdict

    @property
    def style(self) -> str:
        """The class that colours the cell: a SHOULD that was not followed is no failure."""
        if self.expected_to_fail:
            return "expected"
        if self.word in ("fail", "wrong end", "not-tested") and self.level != "MUST":
            return "should"
        return self.word.replace(" ", "-")


class RunReport(Struct, frozen=True, kw_only=True):
    """A JSON report."""

    subject: str
    seconds: float
    strict: bool
    exit_code: Annotated[int, Meta(ge=0, le=2)]
    unjudged: str | None
    counts: dict[str, int]
    cases: list[CaseReport]


def read(document: bytes) -> RunReport:
    """Read a JSON report. Raises `ValueError` for what is none."""
    try:
        return msgspec.json.decode(document, type=RunReport)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"no report of this suite: {error}") from None


def as_html(runs: Sequence[RunReport], *, spec: str) -> bytes:
    """Return the page. ``spec`` is where the normative text is, as seen from the page."""
    return "".join(_page(runs, spec)).encode()


def _page(runs: Sequence[RunReport], spec: str) -> Iterator[str]:
    yield f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{_TITLE}</title>\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<style>\n{_part('report.css')}</style>\n</head>\n<body>\n<h1>{_TITLE}</h1>\n"
    yield from _summary(runs)
    yield '<p class="filter"><label><input type="checkbox" id="odd"> only what is no plain pass</label> '
    yield '<label>find <input type="search" id="find" placeholder="sync, RL-CANCEL, lease…" size="24">'
    yield "</label></p>\n"
    chapters: dict[str, dict[str, dict[int, CaseReport]]] = {}
    for number, run in enumerate(runs):
        for case in run.cases:
            rows = chapters.setdefault(f"{case.role}: {case.chapter}", {})
            rows.setdefault(case.id, {})[number] = case
    numbers = "".join(f'<span class="cell number">{number}</span>' for number in range(1, len(runs) + 1))
    columns = f'<span class="cells" aria-hidden="true">{numbers}</span>' if len(runs) > 1 else ""
    for title, rows in sorted(chapters.items()):
        yield f"<section>\n<h2>{escape(title)} <small>{len(rows)} cases</small>{columns}</h2>\n"
        for cells in rows.values():
            yield from _row(cells, runs, spec)
        yield "</section>\n"
    yield f"<script>\n{_part('report.js')}</script>\n</body>\n</html>\n"


def _part(name: str) -> str:
    return files(__package__ or __name__).joinpath(name).read_text(encoding="utf-8")


def _summary(runs: Sequence[RunReport]) -> Iterator[str]:
    yield '<table class="runs"><thead><tr><th></th><th>subject</th><th>verdict</th><th>cases</th>'
    yield '<th class="n">seconds</th></tr></thead><tbody>\n'
    words = {0: "conformant", 1: "not conformant", 2: "not judged"}
    for number, run in enumerate(runs, start=1):
        counts = ", ".join(f"{count} {word}" for word, count in run.counts.items() if count)
        verdict = words[run.exit_code] + (", strictly" if run.strict and not run.exit_code else "")
        if run.unjudged is not None:
            verdict += f": {run.unjudged}"
        yield f'<tr><td class="n">{number}</td><td>{escape(run.subject)}</td>'
        yield f'<td class="exit{run.exit_code}">{escape(verdict)}</td><td>{escape(counts)}</td>'
        yield f'<td class="n">{run.seconds:.1f}</td></tr>\n'
    yield "</tbody></table>\n"


def _row(cells: Mapping[int, CaseReport], runs: Sequence[RunReport], spec: str) -> Iterator[str]:
    case = next(iter(cells.values()))
    odd = any(cell.word != "pass" for cell in cells.values())
    searched = " ".join((case.id, case.sentence, *case.requirements)).lower()
    yield f'<details id="{escape(case.id)}" data-odd="{int(odd)}" data-text="{escape(searched)}"><summary>'
    yield f'<code>{escape(case.id.partition(".")[2])}</code> <span class="level">{escape(case.level)}</span>'
    yield '<span class="cells">'
    for number, run in enumerate(runs):
        cell = cells.get(number)
        if cell is None:
            # A listener is not asked what is required of callers.
            asked = any(other.role == case.role for other in run.cases)
            yield (
                '<span class="cell none">not run</span>'
                if asked
                else '<span class="cell other">&nbsp;</span>'
            )
        else:
            yield f'<span class="cell {cell.style}" title="{escape(run.subject)}">{escape(cell.word)}</span>'
    yield "</span></summary>\n"
    links = " ".join(
        f'<a href="{escape(spec)}#:~:text={escape(cited)}">{escape(cited)}</a>' for cited in case.requirements
    )
    yield f'<p class="sentence">{_prose(case.sentence)} <span class="cited">{links}</span></p>\n'
    for number, run in enumerate(runs):
        cell = cells.get(number)
        if cell is not None:
            yield from _cell(cell, run, numbered=len(runs) > 1)
    yield "</details>\n"


def _prose(text: str) -> str:
    """Return a sentence in which what stands between backticks is code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))


def _cell(cell: CaseReport, run: RunReport, *, numbered: bool) -> Iterator[str]:
    if numbered:
        yield f"<h3>{escape(run.subject)}: {escape(cell.word)}</h3>\n"
    if cell.expected:
        yield f'<dl class="why"><dt>expected</dt><dd>{escape(cell.expected)}</dd>'
        yield f"<dt>got</dt><dd>{escape(cell.actual)}</dd></dl>\n"
    elif cell.actual:
        yield f'<p class="why">{escape(cell.actual)}</p>\n'
    if not cell.timeline:
        return
    yield f'<ol class="wire" aria-label="the wire, {cell.seconds:.2f} s">\n'
    for at_ms, line, way, text in cell.timeline[:_EVENTS]:
        wrong = text.startswith(("not allowed:", "wrong end:"))
        shown = text if len(text) <= _CHARS else f"{text[:_CHARS]}…"
        yield f'<li class="{_WAYS.get(way, "remark")}{" wrong" if wrong else ""}"><time>{at_ms} ms</time> '
        yield f"<b>{escape(line)}</b> <i>{escape(way)}</i> <code>{escape(shown)}</code></li>\n"
    left = len(cell.timeline) - _EVENTS
    if left > 0:
        yield f'<li class="remark">and {left} more: they are in the JSON report</li>\n'
    yield "</ol>\n"


_TITLE: Final = "Ringline conformance"
_WAYS: Final[Mapping[str, str]] = {">": "sent", "<": "received", ".": "remark"}
