"""`ringline-conformance caller`: a subject is a command that is told what to do, a line at a time."""

import shlex
import sys
from pathlib import Path

from click.testing import CliRunner

from ringline.conformance.cli import app

SUBJECT = Path(__file__).parents[1] / "conformance" / "subjects" / "python_caller.py"
PYTHON = shlex.quote(sys.executable)


def judge(command: str, *arguments: str) -> tuple[int, str]:
    """Judge a caller in this process; return the exit code and all that was said."""
    done = CliRunner().invoke(app, ["caller", "--command", command, *arguments])
    return done.exit_code, done.output


def test_a_caller_is_judged_by_its_command() -> None:
    code, said = judge(f"{PYTHON} {SUBJECT}", "caller.sync.an_outcome_needs_no_status_before_it")
    assert (code, "1 pass" in said) == (0, True), said


def test_what_a_command_writes_instead_of_an_answer_is_shown(tmp_path: Path) -> None:
    talker = tmp_path / "talker.py"
    talker.write_text("import sys\nprint('ready!', flush=True)\nfor line in sys.stdin: pass\n")
    code, said = judge(f"{PYTHON} {talker}", "--timeout-scale", "0.1")
    assert (code, "does not obey" in said, "\nready!" in said) == (2, True, True), said
