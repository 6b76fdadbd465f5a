"""An hour of load in simulated time, after which nothing may be larger than before: make soak

    python tests/soak/run.py [--short] [--seed N]

Rounds of load are followed by rounds of silence in which all that is remembered for a while is forgotten.
Then everything is measured: objects and memory of the process, descriptors and threads, rows and sizes of the
databases. The exit code is 1 when the last third of the rounds is larger than the one before by more than
`ringline_testing.gauge` allows, or when a database keeps rows or a log that it should not. ``--short`` is for
continuous integration; it makes each caller a new process after each round, so that what callers remember
of the last thousand calls need not fill first.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from ringline.relay.upkeep import LOG_BYTES
from ringline_testing.gauge import Measure, grown, measure
from ringline_testing.town import LISTENERS, MINUTE, Town

_CALLS_PER_S: Final = 6.0
# Starts are counted for a day.
_SILENCE_MS: Final = 25 * 60 * MINUTE
_CONTEXTS: Final = 100  # that a listener remembers
_LOG_MOST: Final = 2 * LOG_BYTES
# Nothing of a call is left in them when it is over and its time has passed.
_EMPTY: Final = (
    *(f"relay.{table}" for table in ("calls", "requests", "outcomes", "cancel_requests")),
    *(f"{name}.{table}" for name in LISTENERS for table in ("entries", "offers", "openings")),
)


def main() -> int:
    """Run it, print a line per round, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="three minutes instead of an hour")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    given = parser.parse_args()
    rounds, load_ms = (6, MINUTE // 2) if given.short else (12, 5 * MINUTE)
    print(f"{rounds} rounds of {load_ms // 1_000} s, {_CALLS_PER_S:g} calls a second, seed {given.seed}")
    began = time.monotonic()
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        measures, wrong = _soak(Path(folder), given.seed, rounds, load_ms, short=given.short)
    wrong += grown(measures)
    for sentence in wrong:
        print(f"  grown: {sentence}")
    word = "grown" if wrong else "flat"
    seconds = time.monotonic() - began
    print(f"{word}: {measures[-1].calls:,} calls in {seconds:.0f} s; again: --seed {given.seed}")
    return 1 if wrong else 0


def _soak(
    folder: Path, seed: int, rounds: int, load_ms: int, *, short: bool
) -> tuple[list[Measure], list[str]]:
    town = Town(folder, seed)
    measures: list[Measure] = []
    wrong: list[str] = []
    logs: dict[str, int] = {}
    try:
        for number in range(rounds):
            town.deadly = number < rounds // 3
            for _ in range(6):
                town.live(load_ms // 6, calls_per_s=_CALLS_PER_S)
                for path in town.databases():
                    log = Path(f"{path}-wal")
                    logs[log.name] = max(logs.get(log.name, 0), log.stat().st_size)
            under_load = town.pending
            town.live(_SILENCE_MS, calls_per_s=0)
            if short:
                town.new_callers()
            town.store.shrink()
            found = measure(town.calls, town.databases(), logs)
            measures.append(found)
            _show(number + 1, found, under_load)
            wrong += _kept(found, town.pending)
        print("  " + ", ".join(f"{count:,} {word}" for word, count in town.seen.most_common()))
    finally:
        town.close()
    return measures, wrong


def _show(number: int, found: Measure, under_load: int) -> None:
    files = sum(found.files.values()) // 1_024
    print(
        f"{number:3} {found.calls:7,} calls, {under_load:3} under way;"
        f" {found.objects:,} objects, {found.blocks:,} blocks, {found.resident / 1_048_576:.0f} MiB,"
        f" {found.descriptors} descriptors, {sum(found.rows.values())} rows, {files:,} KiB on disk",
        flush=True,
    )


def _kept(found: Measure, pending: int) -> list[str]:
    """Return what is left after a silence and should not be."""
    wrong = [f"{found.rows[name]} rows of {name} are left" for name in _EMPTY if found.rows[name]]
    if pending:
        wrong.append(f"{pending} calls have no end")
    wrong += [
        f"{found.rows[f'{name}.contexts']} contexts of {name}"
        for name in LISTENERS
        if found.rows[f"{name}.contexts"] > _CONTEXTS
    ]
    wrong += [f"{name} had {size:,} bytes" for name, size in found.logs.items() if size > _LOG_MOST]
    return wrong


if __name__ == "__main__":
    sys.exit(main())
