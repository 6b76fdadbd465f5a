"""The command line of the crash matrix: ``make crash``, or ``python tests/crash/run.py --help``."""

import argparse
import contextlib
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from ringline_testing.crash import matrix, verdict
from ringline_testing.crash.matrix import Cell
from ringline_testing.crash.stage import Stage, StageError, Template, preload
from ringline_testing.crash.stories import STORIES, Play

__all__ = ["main"]

# Budgets that end no story, and pauses that only cost time.
_SETTINGS: Final = {
    "CALLS_PER_HOUR": "0",
    "CALLS_PER_PAIR_PER_HOUR": "0",
    "KEY_FETCHES_PER_MINUTE": "0",
    "BACK_OFF_MS": "50",
}

_PRINTED: Final = 40

# What stands now, to be taken down by whoever breaks the run off.
_stages: Final[dict[str, Stage]] = {}
_broken_off: Final = threading.Event()


@dataclass
class Run:
    """What came of one cell."""

    cell: Cell
    number: int
    seed: int
    seconds: float = 0.0
    ends: dict[str, str] = field(default_factory=dict[str, str])
    wrong: list[str] = field(default_factory=list[str])
    diary: list[str] = field(default_factory=list[str])

    def line(self) -> str:
        """Return the row of the table."""
        mark = "agree" if not self.wrong else "DISAGREE"
        ends = ", ".join(f"{name}: {end}" for name, end in self.ends.items())
        cell = self.cell
        what = f"{self.number:3} {cell.party:8} {cell.point:20} {cell.story:36} {ends:34}"
        return f"{what} {self.seconds:5.1f} s  {mark}"


def say(*lines: str) -> None:
    """Print lines at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


@contextlib.contextmanager
def _stage(run: Run, template: Template, folder: Path) -> Generator[Stage]:
    """Set the stage of a cell. Whatever comes of it, what happened on it is in ``run`` afterwards."""
    story = STORIES[run.cell.story]
    with Stage.copy(
        template,
        folder,
        settings=_SETTINGS | dict(story.settings),
        faults=run.cell.faults,
        chance=random.Random(run.seed),
        capacity=story.capacity,
    ) as stage:
        _stages[run.cell.name] = stage
        try:
            yield stage
        finally:
            del _stages[run.cell.name]
            run.wrong += stage.unexplained
            run.diary = stage.diary


def _printed(folder: Path) -> Generator[str]:
    """Yield the last lines that each party printed."""
    for file in sorted(folder.glob("*.log")):
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        yield f"{file.name}, {len(lines)} lines:"
        yield from (f"  {line}" for line in lines[-_PRINTED:])


def run_cell(run: Run, template: Template, folder: Path) -> None:
    """Play a cell on a stage of its own; what was wrong is in ``run`` then, with the folder."""
    cell, story = run.cell, STORIES[run.cell.story]
    began = time.monotonic()
    try:
        with _stage(run, template, folder) as stage:
            play = Play(stage)
            stage.up("relay")
            for step in story.steps:
                step(play)
                if stage.struck:
                    break
            stage.look()
            for step in story.steps:
                step(play)
            found = verdict.judge(cell, play)
        run.ends = found.ends
        run.wrong += found.wrong
    except (StageError, OSError, AssertionError) as error:
        run.wrong += [f"{type(error).__name__}: {error}", traceback.format_exc()]
    run.seconds = time.monotonic() - began
    if not run.wrong:
        shutil.rmtree(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the matrix; return 0 when all agree, 1 when they do not."""
    given = _parse(arguments)
    chosen = [cell for cell in matrix.cells() if _is_chosen(cell, given)]
    if not chosen:
        say("no cell of the matrix is meant by that")
        return 2
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    say(f"{len(chosen)} cells, {given.rounds} rounds, seed {seed}")
    preload()
    base = Path(tempfile.mkdtemp(prefix="ringline-crash-"))
    failed = 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _workers(base, given.jobs) as templates, ThreadPoolExecutor(given.jobs) as pool:
            for number in range(1, given.rounds + 1):
                try:
                    failed += _round(chosen, number, seed + number - 1, base, templates, pool)
                except KeyboardInterrupt:
                    _broken_off.set()
                    say("broken off")
                    pool.shutdown(wait=False, cancel_futures=True)
                    for stage in list(_stages.values()):
                        stage.abandon()
                    return 130
    finally:
        if not failed:
            shutil.rmtree(base)
    return 1 if failed else 0


def _round(
    chosen: Sequence[Cell],
    number: int,
    seed: int,
    base: Path,
    templates: "SimpleQueue[Template]",
    pool: ThreadPoolExecutor,
) -> int:
    """Run each cell once, in an order of the seed's; return how many disagree."""
    order = list(chosen)
    random.Random(seed).shuffle(order)
    lock, began = threading.Lock(), time.monotonic()

    def work(index: int, cell: Cell) -> Run:
        run = Run(cell, number, seed)
        template, folder = templates.get(), base / f"{number}-{index}"
        try:
            run_cell(run, template, folder)
        finally:
            templates.put(template)
        with lock:
            if _broken_off.is_set():
                return run
            say(run.line())
            if run.wrong:
                say(*(f"      {sentence}" for sentence in run.wrong))
                say(*(f"      | {line}" for line in (*run.diary, *_printed(folder))))
                say(f"      kept: {folder}")
                say(f"      again: make crash CRASH=\"--seed {seed} --only '{cell.name}'\"")
        return run

    runs = list(pool.map(work, range(len(order)), order))
    wrong = sum(bool(run.wrong) for run in runs)
    seconds = time.monotonic() - began
    say(f"round {number}: {len(runs) - wrong} of {len(runs)} cells agree, {seconds:.0f} s")
    return wrong


@contextlib.contextmanager
def _workers(base: Path, jobs: int) -> "Generator[SimpleQueue[Template]]":
    """Make a template for each worker: clients know a relay by its port, so each has one of its own."""
    templates: SimpleQueue[Template] = SimpleQueue()
    for index in range(jobs):
        templates.put(Template.make(base / f"template-{index}"))
    yield templates


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="how often the whole matrix is run")
    parser.add_argument("--seed", type=int, help="decides order and pauses; printed")
    parser.add_argument("--short", action="store_true", help="a few telling cells of each party")
    parser.add_argument("--only", metavar="TEXT", help="the cells whose name has this in it")
    parser.add_argument("--jobs", type=int, default=3, help="stages at the same time")
    return parser.parse_args(arguments)


def _is_chosen(cell: Cell, given: argparse.Namespace) -> bool:
    if given.only is not None:
        return given.only in cell.name
    return cell.short or not given.short
