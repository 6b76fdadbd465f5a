"""What a process and its databases hold, round after round, and whether it has grown."""

import gc
import os
import sqlite3
import statistics
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

__all__ = ["Measure", "grown", "measure"]

OBJECTS: Final = 0.005
"""How many containers more, as a part of those in the middle, are no growth."""
BLOCKS: Final = 0.006
"""How many blocks of memory more, likewise; caches that fill up show here first."""
ROWS: Final = 0.25
"""How many rows more, likewise; how many are left depends on what the last minutes brought."""
FILES: Final = 0.25
"""How much larger, likewise, a database may be that gave back what it could: some pages are kept free."""

_RESIDENT_BYTES: Final = 16 * 1_048_576  # what an allocator may keep for itself
_ROWS_MORE: Final = 50
_FILE_BYTES: Final = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One round's, taken while nothing is under way. Sizes in bytes."""

    calls: int
    """How many calls there were since the start."""
    objects: int
    blocks: int
    resident: int
    descriptors: int
    threads: int
    rows: dict[str, int]
    """By file and table."""
    files: dict[str, int]
    logs: dict[str, int]
    """Write-ahead logs, the largest that was seen so far."""


def measure(calls: int, databases: Mapping[Path, sqlite3.Connection], logs: Mapping[str, int]) -> Measure:
    """Measure this process and these databases, through the connections that it has to them."""
    rows: dict[str, int] = {}
    for path, run in databases.items():
        for (table,) in run.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            (rows[f"{path.stem}.{table}"],) = run.execute(f"SELECT count(*) FROM {table}").fetchone()
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Measure(
        calls=calls,
        objects=len(gc.get_objects()),
        blocks=sys.getallocatedblocks(),
        resident=pages * os.sysconf("SC_PAGE_SIZE"),
        descriptors=len(os.listdir("/proc/self/fd")),
        threads=threading.active_count(),
        rows=rows,
        files={path.name: path.stat().st_size for path in databases},
        logs=dict(logs),
    )


def grown(measures: Sequence[Measure]) -> list[str]:
    """Return what is larger in the last third than in the middle one by more than it may, a sentence each.

    The first third is for caches to fill. The medians are compared, of six measures or more.
    """
    assert len(measures) >= 6
    third = len(measures) // 3
    middle, end = measures[third : 2 * third], measures[-third:]
    found: list[str] = []

    def compare(name: str, of: Callable[[Measure], int], part: float, more: float = 0) -> None:
        before, after = (statistics.median(of(each) for each in some) for some in (middle, end))
        if after > before * (1 + part) + more:
            calls = end[-1].calls - middle[-1].calls
            found.append(
                f"{name}: {before:,.0f} in the middle, {after:,.0f} at the end, {calls:,} calls later"
            )

    compare("objects", lambda each: each.objects, OBJECTS)
    compare("blocks of memory", lambda each: each.blocks, BLOCKS)
    compare("resident memory", lambda each: each.resident, 0, _RESIDENT_BYTES)
    compare("file descriptors", lambda each: each.descriptors, 0)
    compare("threads", lambda each: each.threads, 0)
    for name in end[-1].rows:
        compare(f"rows of {name}", partial(_rows, name), ROWS, _ROWS_MORE)
    for name in end[-1].files:
        compare(f"size of {name}", partial(_size, name), FILES, _FILE_BYTES)
    return found


def _rows(name: str, found: Measure) -> int:
    return found.rows[name]


def _size(name: str, found: Measure) -> int:
    return found.files[name]
