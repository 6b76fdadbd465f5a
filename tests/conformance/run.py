"""Judge everything here that speaks the protocol, by the conformance suite, as a stranger would.

    python tests/conformance/run.py [SUBJECT ...] [--page FILE] [-- SUITE-OPTION ...]

Subjects are the relay on each edge, and listener, caller and vectors of the reference implementation and of
the second one in `spec/peers/node`, which is passed over when it is not built. Every run is `--strict`, so
that no case is left out unseen. Two runs go on at a time, since each of them waits for its subject now and
then; what one has said is shown when it has ended. ``--page`` writes what came of all of it as a page in
Markdown. What stands behind ``--`` goes to the suite. Exits with the worst of the suite's exit codes.
"""

import argparse
import contextlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
EDGES: Final = ("picows", "websockets")
ROLES: Final = ("listener", "caller", "vectors")
LEFT_OUT: Final = {"node-vectors": ("relay", "log", "keyfile", "invite")}
"""Parts of the protocol that a subject is known to be without."""
_BIN: Final = Path(sys.executable).parent
_SUITE: Final = str(_BIN / "ringline-conformance")
_AT_ONCE: Final = 2
_START_S: Final = 60
_RUN_S: Final = 900


@dataclass(frozen=True)
class Column:
    """One subject: its name on the page, its role, and the reports of its runs."""

    name: str
    role: str
    reports: tuple[Path, ...]


def short_bounds() -> list[str]:
    """Return the options of a development relay on which no case is neutral."""
    told = subprocess.run(
        [_SUITE, "list", "--role", "relay", "--set"], check=True, capture_output=True, text=True, timeout=60
    )
    return told.stdout.split()


@contextlib.contextmanager
def relay(edge: str, options: Sequence[str]) -> Generator[str]:
    """Run a relay for development with a database of its own; yield its base URL."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(_BIN / "ringline"), "relay", "dev", "--port", "0", "--edge", edge, *options]
        process = subprocess.Popen(
            [*command, "--db", str(Path(folder) / "relay.db")], stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stderr is not None
            told = ""
            for line in process.stderr:
                told += line
                if line.startswith("Next:"):
                    break
            found = re.search(r"http://[0-9.]+:[0-9]+", told)
            if found is None:
                raise SystemExit(f"the relay did not start:\n{told}")
            yield found[0]
        finally:
            process.terminate()
            try:
                process.wait(_START_S)
            except subprocess.TimeoutExpired:
                process.kill()


def commands() -> Iterator[tuple[str, str, str]]:
    """Yield name, role and command line of every subject that is started by a command and is here."""
    node = shutil.which("node")
    built = (ROOT / "spec" / "peers" / "node" / "dist").is_dir()
    for role in ROLES:
        python = ROOT / "tests" / "conformance" / "subjects" / f"python_{role}.py"
        if python.exists():
            yield f"python-{role}", role, shlex.join([sys.executable, str(python)])
        script = ROOT / "spec" / "peers" / "node" / "subjects" / f"{role}.mjs"
        if node is not None and built and script.exists():
            yield f"node-{role}", role, shlex.join([node, str(script)])


def judge(name: str, command: Sequence[str], report: Path) -> int:
    """Run the suite once, and show what it has said under ``name``; return its exit code."""
    done = subprocess.run(
        [_SUITE, *command, "--strict", "--json", str(report)],
        check=False,
        timeout=_RUN_S,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(f"{name}\n{done.stdout}", end="", flush=True)
    return done.returncode


def judge_relay(edge: str, timed: str, report: Path, suite: Sequence[str]) -> int:
    """Judge a relay of its own on an edge, by the cases that are ``timed`` or by the others.

    A relay with short bounds on a busy machine gives calls up that others still work on: those that wait for
    a bound are therefore by themselves, all at once, since they do little but wait.
    """
    options, more = (short_bounds(), ["--jobs", "32"]) if timed == "timed" else ([], [])
    with relay(edge, options) as url:
        command = ["relay", "--url", url, f"--{timed}", *more, *suite]
        return judge(f"relay-{edge}, {timed} cases", command, report)


def side_by_side(runs: Sequence[Callable[[], int]]) -> int:
    """Return the worst of the exit codes of these runs, a few of which go on at a time, in this order."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return max(pool.map(_done, runs), default=0)


def _done(run: Callable[[], int]) -> int:
    return run()


def page(columns: Sequence[Column]) -> str:
    """Return what came of the runs: passed of run by chapter and subject, and each case that did not pass."""
    cells: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for column in columns:
        for report in column.reports:
            for case in json.loads(report.read_text())["cases"]:
                cells.setdefault((column.role, case["chapter"], column.name), []).append(case)
    lines = [
        "# What the conformance suite says\n",
        "Written by `make conformance CONFORMANCE='--page docs/conformance.md'`; do not edit. A cell has the"
        " cases that passed, and of how many; every run is strict, so that what was not tested counts as not"
        " passed. What each case requires: `ringline-conformance list`.\n",
    ]
    for role in ("relay", *ROLES):
        names = [column.name for column in columns if column.role == role]
        chapters = sorted({chapter for kind, chapter, _ in cells if kind == role})
        if not names:
            continue
        lines += [f"## Role {role}\n", f"| Chapter | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
        for chapter in chapters:
            row = [cells.get((role, chapter, name), []) for name in names]
            told = [f"{sum(map(_passed, cell))} / {len(cell)}" if cell else "" for cell in row]
            lines.append(f"| {chapter} | {' | '.join(told)} |")
        whole = [[case for key, found in cells.items() if key[2] == name for case in found] for name in names]
        told = [f"**{sum(map(_passed, cell))} / {len(cell)}**" for cell in whole]
        lines.append(f"| all | {' | '.join(told)} |\n")
        for name, cell in zip(names, whole, strict=True):
            left = [case for case in cell if not _passed(case)]
            lines += [f"- {name}: `{case['id']}` {case['verdict']}: {_line(case)}" for case in left]
        if lines[-1].startswith("- "):
            lines.append("")
    return "\n".join(lines)


def _line(case: dict[str, Any]) -> str:
    told = " ".join((case["actual"] or case["close_fault"]).split())
    return told if len(told) <= 160 else f"{told[:160]}…"


def _passed(case: dict[str, Any]) -> bool:
    return case["verdict"] == "pass" and not case["close_fault"]


def main() -> int:
    """Run what the command line asks for."""
    known = [
        *(f"relay-{edge}" for edge in EDGES),
        *(f"{who}-{role}" for who in ("python", "node") for role in ROLES),
    ]
    parser = argparse.ArgumentParser(
        description="The conformance suite on all that speaks the protocol here."
    )
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"{', '.join(known)} [all]")
    parser.add_argument("--page", type=Path, help="write the results to this file")
    own, suite = sys.argv[1:], []
    if "--" in own:
        own, suite = own[: own.index("--")], own[own.index("--") + 1 :]
    arguments = parser.parse_args(own)
    unknown = set(arguments.subjects) - set(known)
    if unknown:
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    wanted = set(arguments.subjects or known)
    columns: list[Column] = []
    waiting: list[Callable[[], int]] = []
    working: list[Callable[[], int]] = []
    with tempfile.TemporaryDirectory() as folder:
        for edge in EDGES:
            name = f"relay-{edge}"
            if name not in wanted:
                continue
            reports = {timed: Path(folder) / f"{name}-{timed}.json" for timed in ("timed", "untimed")}
            waiting.append(partial(judge_relay, edge, "timed", reports["timed"], suite))
            working.append(partial(judge_relay, edge, "untimed", reports["untimed"], suite))
            columns.append(Column(name, "relay", tuple(reports.values())))
        for name, role, command in commands():
            if name in wanted:
                report = Path(folder) / f"{name}.json"
                without = [word for part in LEFT_OUT.get(name, ()) for word in ("--without", part)]
                words = [role, "--command", command, *without, *suite]
                working.append(partial(judge, name, words, report))
                columns.append(Column(name, role, (report,)))
        # Nothing works beside those that wait for a bound.
        worst = max(side_by_side(waiting), side_by_side(working))
        if arguments.page is not None:
            written = [column for column in columns if all(report.exists() for report in column.reports)]
            arguments.page.write_text(page(written), encoding="utf-8")
    return worst


if __name__ == "__main__":
    sys.exit(main())
