"""Search the model of the durable lifecycle: the rules hold, and each is needed.

The rules are those of the chapters DURABLE and CANCEL of ``spec/ringline.md``.

    python spec/model/check.py [--short] [--only WORD] [--trace NAME] [--list]

``spec/lifecycle.pml`` is compiled once for each row below. A *check* is the model as it is, within some
bounds: the search must come to its end without an error. A *variant* lacks one rule: the search must find the
promise that breaks. A *spare* rule is one that nothing breaks without, in this model.
``--trace`` prints the steps that lead to the error of one variant.

The exit code is 1 when a check fails or a variant is not caught, and 2 when spin or a compiler is missing or
a search did not come to its end. Nothing is installed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

MODEL: Final = Path(__file__).resolve().parents[1] / "lifecycle.pml"
_SECONDS: Final = 420  # for one search
_MEGABYTES: Final = 1900  # for one search
_DEPTH: Final = 20_000

Kind: TypeAlias = Literal["check", "variant", "spare"]

# What the searched assertions promise, by their text as the compiled search prints it.
_ENDLESS: Final = "non-progress cycle"
_PROMISES: Final = {
    "(starts<=1)": "one start",
    "!((starts>0))": "failed, delivery_failed and parked: never begun",
    "(!((starts>0))||seen_to_stop)": "canceled, expired and revoked: never begun, or seen to stop",
    "((ending==0)||(ending==3))": "nothing begins after an end that says it did not",
    "((ending==0)&&(told_end==0))": "one end, one word",
    "((starts>0)&&finished_once)": "completed: finished",
    "(!(told_queued)||admitted)": "what was told stays: queued",
    "((!(told_started)||started)||(ending!=0))": "what was told stays: started",
    "((!(told_cancel_requested)||flag)||(ending!=0))": "what was told stays: cancel requested",
    "((told_end==0)||(told_end==ending))": "what was told stays: the end",
    "(ending!=0)": "begun work is stopped for an ended call only",
    "(((ending!=0)||(((attempts>=2)&&!(started))&&(ending==0)))||((!(started)&&gone[0])&&gone[1]))": (
        "every call ends"
    ),
    "(((((lease==0)&&!(running[0]))&&!(running[1]))&&(work[0]==0))&&(work[1]==0))": (
        "no lease, slot or handler stays"
    ),
    "((!(finished_once)||(ending==1))||((ending==3)&&may_lose_result))": "no finished result is lost",
    _ENDLESS: "it comes to rest",
}


@dataclass(frozen=True, slots=True)
class Search:
    """One row of the table.

    ``flags`` are definitions for the model; ``breaks`` is the promise that must break. ``endless`` looks for
    a way to go on for ever, under any scheduling, beside failed assertions (a variant: instead of them).
    """

    name: str
    flags: tuple[str, ...] = ()
    kind: Kind = "check"
    breaks: str = ""
    endless: bool = False
    short: bool = True


def _bounds(*, relay: int = 0, listener: int = 0, breaks: int = 0, cancels: int = 0) -> tuple[str, ...]:
    return (
        f"RELAY_CRASHES={relay}",
        f"LISTENER_CRASHES={listener}",
        f"BREAKS={breaks}",
        f"CANCELS={cancels}",
    )


def _variant(name: str, breaks: str, *flags: str, endless: bool = False) -> Search:
    return Search(name, (name.partition(",")[0], *flags), "variant", breaks, endless)


_UNTRUE_END: Final = "canceled, expired and revoked: never begun, or seen to stop"

_ALL: Final = ("EXECUTE_BY", "REVOKE", "REPLAY", "GONE", "TURN_DOWN")

# Each variant has the faults that its error needs, and no more.
SEARCHES: Final = (
    # The rules as they are.
    Search("faults and cancel", ("LISTENER_CRASHES=0",)),
    Search("all faults and cancel", short=False),
    Search("execute_by", ("EXECUTE_BY", "RELAY_CRASHES=0", "LISTENER_CRASHES=0")),
    Search("rest", ("BREAKS=0", "RELAY_CRASHES=0"), endless=True),
    Search("execute_by, restarted", ("EXECUTE_BY", *_bounds(relay=1, cancels=1)), short=False),
    Search("execute_by, crashed", ("EXECUTE_BY", *_bounds(listener=1, cancels=1)), short=False),
    Search("all events", (*_ALL, *_bounds()), short=False),
    Search("revoked, turned down", ("EXECUTE_BY", "REVOKE", "TURN_DOWN", *_bounds(breaks=1)), short=False),
    Search("two breaks", _bounds(breaks=2, cancels=1), short=False),
    Search("two restarts", _bounds(relay=2, breaks=1, cancels=1), short=False),
    Search("two crashes", _bounds(listener=2, cancels=1), short=False),
    Search("two cancels", _bounds(breaks=1, cancels=2), short=False),
    Search("three attempts", ("PARK_AT=3", *_bounds(breaks=1)), short=False),
    Search("rest after all", ("EXECUTE_BY", *_bounds(breaks=1)), endless=True, short=False),
    # The rules, each taken away.
    _variant("NO_FENCING", "one start", "ONE_START_ONLY", *_bounds()),
    _variant("NO_GRANT", "one start", "ONE_START_ONLY", *_bounds()),
    _variant("WORD_BEFORE_WRITE", "what was told stays: queued", *_bounds(relay=1)),
    _variant("REFUSAL_WITHOUT_LEASE", "every call ends", *_bounds()),
    _variant("REBIND_BOUND", "begun work is stopped for an ended call only", *_bounds(breaks=1)),
    _variant("REBIND_BOUND, for ever", "it comes to rest", *_bounds(breaks=1), endless=True),
    _variant("NO_REFUSAL", "no lease, slot or handler stays", *_bounds()),
    _variant("NO_REBIND", "every call ends", *_bounds(breaks=1)),
    _variant("NO_REGRANT", "every call ends", *_bounds(breaks=1)),
    _variant("NO_CANCEL_BEHIND_REBIND", "every call ends", *_bounds(breaks=1, cancels=1)),
    _variant("NO_DEDUPE", "one start", "ONE_START_ONLY", *_bounds()),
    _variant("START_NOT_BOUND", "one start", "ONE_START_ONLY", *_bounds(breaks=1)),
    _variant("SECOND_GRANT_BEGINS", "one start", *_bounds(breaks=1)),
    _variant("BEGUN_AFTER_FIRST_STEP", "one start", *_bounds(listener=1)),
    _variant("OUTCOME_NOT_KEPT", "no finished result is lost", *_bounds(breaks=1)),
    _variant("WAITING_KEPT", "no lease, slot or handler stays", *_bounds(breaks=1)),
    _variant("ASK_FORGOTTEN", "every call ends", *_bounds(cancels=1)),
    _variant("PRESUMED_DEAD", _UNTRUE_END, *_bounds(listener=1, cancels=1)),
    _variant("CANCELED_AT_ONCE", _UNTRUE_END, *_bounds(cancels=1)),
    _variant("EXPIRED_AT_ONCE", _UNTRUE_END, "EXECUTE_BY", *_bounds()),
    _variant("NO_OWN_BOUND", "no lease, slot or handler stays", "EXECUTE_BY", *_bounds(cancels=1)),
    _variant("CANCEL_IN_MEMORY", "what was told stays: cancel requested", *_bounds(relay=1, cancels=1)),
    _variant("RELEASE_FORGETS_CANCEL", "every call ends", *_bounds(breaks=1, cancels=1)),
    _variant("RESTART_FORGETS_CANCEL", "every call ends", *_bounds(relay=1, cancels=1)),
    _variant("LAPSE_NOT_COUNTED", "it comes to rest", *_bounds(), endless=True),
    # What the rules above make unnecessary, as long as messages of one connection keep their order.
    Search(
        "GRANTED_DESPITE_CANCEL",
        ("GRANTED_DESPITE_CANCEL", *_bounds(breaks=1, cancels=1)),
        "spare",
        short=False,
    ),
    Search("GRANT_OF_ANY_LEASE", ("GRANT_OF_ANY_LEASE", *_bounds(breaks=1, cancels=1)), "spare", short=False),
)


@dataclass(frozen=True, slots=True)
class Found:
    """What one search came to. ``error``: empty, a promise, or the search's own text; ``whole``: it ended."""

    error: str
    whole: bool
    states: int
    megabytes: float
    seconds: float
    trace: tuple[str, ...]


class Unusable(Exception):
    """The model, the compiler or the search itself failed."""


def _run(command: Sequence[str], folder: Path, seconds: int) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unusable(f"{command[0]} did not end in {seconds} s") from None
    return done.stdout


def _promise(text: str) -> str:
    if text.startswith(_ENDLESS):
        return _PROMISES[_ENDLESS]
    plain = text.removeprefix("assertion violated").replace(" ", "")
    for one in (plain, f"({plain})"):
        if one in _PROMISES:
            return _PROMISES[one]
    return text


def search(row: Search) -> Found:
    """Compile the model for ``row`` and search it to the end, or to its first error.

    Raises:
        Unusable: no search came about, or it was cut short by time.
    """
    with tempfile.TemporaryDirectory(prefix="ringline-model-") as name:
        folder = Path(name)
        shutil.copy(MODEL, folder)
        flags = [f"-D{flag}" for flag in row.flags]
        said = _run(["spin", "-a", *flags, MODEL.name], folder, 60)
        if not (folder / "pan.c").exists() or "Error" in said:
            raise Unusable(f"spin refuses the model: {said.strip()}")
        # Breadth first finds the shortest way to an error; depth first takes less memory.
        how = ["-DNP"] if row.endless else ["-DSAFETY"] + (["-DBFS"] if row.kind == "variant" else [])
        optimise = "-O0" if row.kind == "variant" else "-O1"
        limits = ["-DCOLLAPSE", f"-DMEMLIM={_MEGABYTES}"]
        said = _run(["gcc", optimise, "-w", *how, *limits, "-o", "pan", "pan.c"], folder, 120)
        if not (folder / "pan").exists():
            raise Unusable(f"gcc refuses the search: {said.strip()}")
        arguments = [f"-m{_DEPTH}", "-w20"]
        if row.endless:
            # A variant that goes round for ever would meet the bounds of the model before.
            arguments += ["-l", "-A"] if row.kind == "variant" else ["-l"]
        began = time.monotonic()
        said = _run(["./pan", *arguments], folder, _SECONDS)
        seconds = time.monotonic() - began
        error = re.search(r"^pan:1: (.*?) \(at depth", said, re.MULTILINE)
        states = re.search(r"([\d.e+]+) states, stored", said)
        memory = re.search(r"([\d.]+)\s+total actual memory usage", said)
        counted = re.search(r"errors: (\d+)", said)
        if states is None or counted is None or (error is None and counted[1] != "0"):
            raise Unusable(f"the search failed: {said.strip()[-500:]}")
        cut = "Search not completed" in said or "max search depth too small" in said
        trace: list[str] = []
        if error is not None:
            steps = _run(["spin", "-t", *flags, MODEL.name], folder, 60)
            trace = re.findall(r"^ +((?:relay|listener \d|caller|callee|clock): .*)$", steps, re.MULTILINE)
        return Found(
            _promise(error[1]) if error else "",
            not cut,
            int(float(states[1])),
            float(memory[1]) if memory else 0.0,
            seconds,
            tuple(trace),
        )


def verdict(row: Search, found: Found) -> tuple[bool, str]:
    """Say whether ``found`` is what ``row`` must come to, and in words what it is."""
    if row.kind == "variant":
        if found.error == row.breaks:
            return True, f"caught: {found.error}"
        if found.error:
            return False, f"OTHER ERROR: {found.error} (expected: {row.breaks})"
        return False, "NOT CAUGHT" if found.whole else "NOT CAUGHT, search cut short"
    if found.error:
        return False, f"BROKEN: {found.error}"
    if not found.whole:
        return False, "CUT SHORT by memory or depth"
    return True, "holds" if row.kind == "check" else "holds without it"


def _examine(row: Search) -> tuple[bool, str]:
    try:
        found = search(row)
    except Unusable as error:
        return False, f"{row.name:<26} {row.kind:<8} UNUSABLE: {error}"
    good, words = verdict(row, found)
    steps = f"{len(found.trace)} steps" if found.trace else ""
    line = (
        f"{row.name:<26} {row.kind:<8} {found.states:>11,} {found.megabytes:>7.0f} {found.seconds:>6.1f}"
        f"  {steps:>8}  {words}"
    )
    if not good and found.trace:
        line += "".join(f"\n    {step}" for step in found.trace)
    return good, line


def main() -> int:
    """Run the rows that were asked for, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="under a minute: the smaller bounds")
    parser.add_argument("--only", metavar="WORD", help="only the rows whose name contains WORD")
    parser.add_argument("--trace", metavar="NAME", help="print the steps to the error of one variant")
    parser.add_argument("--list", action="store_true", help="name the rows and their definitions")
    asked = parser.parse_args()
    rows = [row for row in SEARCHES if row.short or not asked.short]
    if asked.only:
        rows = [row for row in rows if asked.only.lower() in row.name.lower()]
    if asked.trace:
        rows = [row for row in SEARCHES if row.name == asked.trace]
    if not rows:
        print("No row has that name; --list names them.", file=sys.stderr)
        return 2
    if asked.list:
        for row in rows:
            print(f"{row.name:<26} {row.kind:<8} {' '.join(row.flags)}")
        return 0
    missing = [program for program in ("spin", "gcc") if shutil.which(program) is None]
    if missing:
        print(
            f"The model needs {' and '.join(missing)}, which this machine does not have. "
            "On Debian: apt-get install spin gcc. Nothing was checked.",
            file=sys.stderr,
        )
        return 2
    if asked.trace:
        found = search(rows[0])
        print("\n".join([*found.trace, f"=> {found.error or 'no error'}"]))
        return 0
    print(f"{'search':<26} {'kind':<8} {'states':>11} {'MiB':>7} {'s':>6}  {'error':>8}  result", flush=True)
    began = time.monotonic()
    failed = 0
    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        for good, line in pool.map(_examine, rows):
            print(line, flush=True)
            failed += not good
    total = time.monotonic() - began
    print(f"{len(rows) - failed} of {len(rows)} as they should be, in {total:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
