"""Feed damaged input to every target, the same for the same seed: `make fuzz`.

A finding is made small, written to ``fuzz/findings`` and shown with the command that repeats it.
"""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "fuzz"), str(ROOT / "tests" / "support")]

from ringline_fuzz.catalogue import NAMES, find, kept, together  # noqa: E402
from ringline_fuzz.session import Finding, judge, run  # noqa: E402
from ringline_fuzz.target import Skipped  # noqa: E402

FINDINGS: Final = ROOT / "fuzz" / "findings"


class Result(NamedTuple):
    """What became of one target."""

    name: str
    inputs: int
    outcomes: int
    seconds: float
    findings: tuple[str, ...]
    skipped: str = ""


def shown(finding: Finding) -> str:
    """Keep the input of a finding, and return it as it is shown: what was raised, and how to repeat it."""
    FINDINGS.mkdir(exist_ok=True)
    path = FINDINGS / finding.name
    path.write_bytes(finding.data)
    lines = traceback.format_exception(finding.error)
    again = f"{Path(sys.executable).name} fuzz/run.py {finding.target} --input {path.relative_to(ROOT)}"
    return f"{''.join(lines)}\ninput: {len(finding.data)} bytes {finding.data[:200]!r}\nagain: {again}\n"


def fuzz(names: Sequence[str], seed: int, runs: int | None, short: bool) -> list[Result]:
    """Run some targets, one after the other, in this process."""
    return [_fuzz(name, seed, runs, short) for name in names]


def _fuzz(name: str, seed: int, runs: int | None, short: bool) -> Result:
    began = time.monotonic()
    target = find(name)
    told: list[str] = []
    number = runs if runs is not None else target.short if short else target.full
    try:
        inputs, outcomes, _ = run(
            target, seed=seed, runs=number, report=lambda found: told.append(shown(found)), kept=kept(name)
        )
    except Skipped as reason:
        return Result(name, 0, 0, time.monotonic() - began, (), str(reason))
    finally:
        target.close()
    return Result(name, inputs, len(outcomes), time.monotonic() - began, tuple(told))


def repeat(name: str, path: Path) -> int:
    """Judge one input, and show what came of it."""
    target = find(name)
    try:
        said = judge(target, path.read_bytes())
    finally:
        target.close()
    if isinstance(said, str):
        print(f"{name}: {said}")
        return 0
    traceback.print_exception(said.error)
    return 1


def main() -> int:
    """Return 0 when nothing was found, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="fuzz/run.py", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"all by default: {', '.join(NAMES)}")
    parser.add_argument(
        "--short", action="store_true", help="few inputs of each, as continuous integration does"
    )
    parser.add_argument("--runs", type=int, help="so many inputs of each")
    parser.add_argument("--seed", type=int, default=0, help="another number: other inputs")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 4), help="processes at once")
    parser.add_argument("--input", type=Path, help="judge this one input of one target")
    given = parser.parse_args()
    names: list[str] = given.targets or list(NAMES)
    unknown = [name for name in names if name not in NAMES]
    if unknown or (given.input is not None and len(names) != 1):
        parser.error(f"no target: {', '.join(unknown)}" if unknown else "name the target of the input")
    if given.input is not None:
        return repeat(names[0], given.input)
    found = 0
    # Targets of one module share a process, which takes as long to start as many of them take.
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        work = [pool.submit(fuzz, part, given.seed, given.runs, given.short) for part in together(names)]
        for result in (result for done in as_completed(work) for result in done.result()):
            found += len(result.findings)
            if result.skipped:
                print(f"{result.name:<24} SKIPPED: {result.skipped}", flush=True)
                continue
            print(
                f"{result.name:<24} {result.inputs:>7,} inputs  {result.outcomes:>4} outcomes  "
                f"{result.seconds:>6.1f} s  {len(result.findings) or 'no'} findings",
                flush=True,
            )
            for text in result.findings:
                print(f"\n{text}", flush=True)
    print(f"seed {given.seed}: {found or 'no'} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
