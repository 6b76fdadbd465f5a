"""Standard error tells what goes on, line by line or live, and who says it."""

import io
import os
import pty
import subprocess
import sys

import pytest

from ringline.cli.report import PlainReport, SilentReport, _fitted, open_report, tell


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_change_is_a_line_with_its_time_and_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    report = PlainReport(clock)
    report.line(" ", "sealed for bob")
    clock.now += 0.25
    report.state("ringing")
    clock.now += 1
    report.line("✓", "completed", "signed by bob")
    report.close()
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "    0.00s sealed for bob",
        "    0.25s ringing       relay says",
        "✓   1.25s completed     signed by bob",
    ]


def test_what_is_told_cannot_act_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    PlainReport(Clock()).line("!", "a\x1b[2J\nb", "\u202ebob")
    assert capsys.readouterr().err == "!   0.00s a\\x1b[2J\\x0ab" + "  " + "\\u202ebob\n"


def test_a_document_comes_without_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    report = open_report(machine=True)
    assert isinstance(report, SilentReport)
    report.state("ringing")
    report.line("✓", "completed")
    report.hint("waiting")
    report.close()
    assert capsys.readouterr().err == ""


def test_marks_are_ascii_where_the_stream_is_no_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace"))
    tell("✓ ringing → answered – done …")
    assert raw.getvalue() == b"+ ringing -> answered - done ...\n"


def test_a_closed_stream_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    tell("nobody reads this")
    monkeypatch.setattr(sys, "stderr", None)
    tell("nor this")


LIVE = """
import sys
from ringline.cli.report import LiveReport, open_report
now = [0.0]
report = open_report(clock=lambda: now[0])
assert isinstance(report, LiveReport)
report.line(" ", "sealed for bob [bold]not markup[/bold] :smile:")
report.state("ringing")
now[0] = 0.5
report.state("answered\\x1b[2J")
report.hint("bob is at work")
now[0] = 3.5
report.line("\N{CHECK MARK}", "completed", "signed by bob")
report.close()
print("rich" in sys.modules)
"""


def on_a_terminal(program: str, **environment: str) -> str:
    """Run a program whose standard error is a terminal, and return what the terminal got."""
    ours, theirs = pty.openpty()
    try:
        answer = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"} | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=theirs,
            timeout=30,
        )
        assert answer.returncode == 0, os.read(ours, 65_536)
        return os.read(ours, 65_536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_terminal_gets_a_live_line_that_stays() -> None:
    got = on_a_terminal(LIVE, NO_COLOR="1")
    assert "[bold]not markup[/bold] :smile:" in got
    assert "answered\\x1b[2J" in got
    stood = [line for line in got.replace("\r", "\n").split("\n") if "0.50s" in line and "relay says" in line]
    assert any("ringing → answered" in line for line in stood)
    assert "signed by bob" in got.split("relay says")[-1]
    assert "\x1b[32m" not in got
    assert "\x1b[2J" not in got


def test_colours_are_used_where_nobody_objects() -> None:
    got = on_a_terminal(LIVE)
    assert "\x1b[1;32m✓" in got


def test_a_dumb_terminal_gets_plain_lines() -> None:
    lines = [
        "import sys",
        "from ringline.cli.report import PlainReport, open_report",
        "assert isinstance(open_report(), PlainReport)",
        "open_report().state('ringing')",
        "assert 'rich' not in sys.modules",
    ]
    program = "\n".join(lines)
    assert "\x1b" not in on_a_terminal(program, TERM="dumb")


def test_a_fingerprint_is_never_broken_by_the_edge_of_the_terminal() -> None:
    fingerprint = "zjwg zz7w wc38 f4ap ptgr efkz 0r30 2kea"
    row = f"!   0.04s new identity caller-bb261fb0e3 at http://127.0.0.1:7591: {fingerprint}"
    assert _fitted(row, len(row)) == [row]
    first, second = _fitted(row, len(row) - 1)
    assert (first, second.strip()) == (row.removesuffix(f" {fingerprint}"), fingerprint)
    assert _fitted("a long line without one", 10) == ["a long line without one"]
