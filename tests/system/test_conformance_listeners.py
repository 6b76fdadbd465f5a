"""`ringline-conformance listener`: a subject is a command, and the suite is its relay and its callers."""

import shlex
import sys
from pathlib import Path

from click.testing import CliRunner

from ringline.conformance.cli import app

SUBJECT = Path(__file__).parents[1] / "conformance" / "subjects" / "python_listener.py"
PYTHON = shlex.quote(sys.executable)


def judge(command: str, *arguments: str) -> tuple[int, str]:
    """Judge a listener in this process; return the exit code and all that was said."""
    done = CliRunner().invoke(app, ["listener", "--command", command, *arguments])
    return done.exit_code, done.output


def test_a_listener_is_judged_by_its_command() -> None:
    code, said = judge(f"{PYTHON} {SUBJECT}", "listener.sync.accepts_starts_and_replies", "listener.trace")
    assert (code, "2 pass" in said) == (0, True), said


def test_a_listener_that_begins_without_a_grant_is_not_conformant(tmp_path: Path) -> None:
    hasty = tmp_path / "hasty.py"
    hasty.write_text(
        "import runpy\n"
        "from ringline.listener.floor import Floor\n"
        "asks = Floor.schedule\n"
        "def begins(self, now):\n"
        "    effects = asks(self, now)\n"
        "    for work in list(self.desk):\n"
        "        for call_id in work.offers:\n"
        "            if work.stage.name == 'ASKING':\n"
        "                effects += self.begin(work, call_id, now)\n"
        "    return effects\n"
        "Floor.schedule = begins\n"
        f"runpy.run_path({str(SUBJECT)!r}, run_name='__main__')\n"
    )
    code, said = judge(f"{PYTHON} {hasty}", "listener.durable.asks_and_waits_for_its_start")
    assert (code, "1 fail" in said) == (1, True), said


def test_a_command_that_ends_at_once_is_not_judged_and_its_last_words_are_shown() -> None:
    code, said = judge(f"{PYTHON} -c 'raise SystemExit(\"no keys here\")'")
    assert (code, "no keys here" in said) == (2, True), said


def test_a_command_that_never_connects_is_given_up() -> None:
    code, said = judge(f"{PYTHON} -c 'import time; time.sleep(60)'", "--timeout-scale", "0.1")
    assert (code, "does not connect" in said) == (2, True), said


def test_what_cannot_be_started_is_not_judged() -> None:
    code, said = judge("/no/such/listener")
    assert (code, "cannot be started" in said) == (2, True), said
