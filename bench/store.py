"""Durable calls through the store beside raw batched SQLite, interleaved in the same run.

One call is admitted, started and answered; a batch of calls shares three commits, each flushed to the disk
(``synchronous=FULL``). Raw is what the same three writes cost with one table, one index and no rules
(`bench/raw.py`). Only the ratio means something: the machine's speed changes from minute to minute.

    python bench/store.py [--short] [--calls 2048] [--batch 64] [--rounds 5] [--bytes 1200]
"""

import argparse
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from raw import Cost, raw

from ringline.protocol.lifecycle import State
from ringline.relay.call_store import CallRow
from ringline.relay.sqlite_calls import SqliteCalls

# Another binding of SQLite, measured too where it is installed.
apsw: Any = importlib.import_module("apsw") if importlib.util.find_spec("apsw") else None


def row(number: int, size: int) -> CallRow:
    """Return the call of that number, one of a hundred pairs."""
    return CallRow(
        call_id=f"call-{number}",
        seq=0,
        caller=f"caller-{number % 10}",
        callee=f"callee-{number % 100 // 10}",
        caller_card="card",
        listed=True,
        message_id=f"{number:032x}",
        correlation_id="c" * 32,
        digest=b"d" * 32,
        traceparent=None,
        submitted_at=1_000 + number,
        execute_by=9_000,
        request_bytes=size,
        due_at=9_000,
    )


def through_store(path: str, calls: int, batch: int, size: int) -> Cost:
    """Return what the calls cost through the store."""
    store, sealed = SqliteCalls(path), bytes(size)
    begin = time.perf_counter(), time.process_time()
    for first in range(0, calls, batch):
        rows = [store.insert(row(number, size), sealed) for number in range(first, first + batch)]
        store.commit()
        for index, now in enumerate(rows):
            store.note_start(now.caller, now.callee, 1)
            rows[index] = store.swap(now, replace(now, state=State.STARTED, started_at=1, instance="i"))
        store.commit()
        for now in rows:
            after = replace(
                now, state=State.COMPLETED, finished_at=2, terminal="completed", outcome_bytes=size
            )
            store.swap(now, after, sealed)
        store.commit()
    cost = Cost(time.perf_counter() - begin[0], time.process_time() - begin[1])
    store.close()
    return cost


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, default in (("calls", 2_048), ("batch", 64), ("rounds", 5), ("bytes", 1_200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--short", action="store_true", help="one round of few calls")
    asked = parser.parse_args()
    if asked.short:
        asked.calls, asked.rounds = 640, 1
    ways: dict[str, Callable[[str, int, int, int], Cost]] = {
        "raw sqlite3": lambda *asked: raw(*asked)["whole"],
        "the store": through_store,
    }
    if apsw is not None:
        ways["raw apsw"] = lambda *asked: raw(*asked, apsw.Connection)["whole"]
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory(prefix="ringline-bench-") as folder:
        for round_ in range(asked.rounds):
            for number, (name, measure) in enumerate(ways.items()):
                path = str(Path(folder) / f"{round_}-{number}.db")
                costs[name].append(measure(path, asked.calls, asked.batch, asked.bytes))
    plain = costs["raw sqlite3"]
    print(
        f"{asked.calls} calls of {asked.bytes} bytes, {asked.batch} in 3 commits; medians of"
        f" {asked.rounds} rounds"
    )
    print(f"{'':14}{'calls/s':>10}{'CPU µs/call':>14}{'of raw, calls/s':>18}{'of raw, CPU':>14}")
    for name, found in costs.items():
        rate = asked.calls / statistics.median(cost.wall for cost in found)
        cpu = statistics.median(cost.cpu for cost in found) / asked.calls * 1e6
        faster = statistics.median(b.wall / a.wall for a, b in zip(found, plain, strict=True))
        dearer = statistics.median(a.cpu / b.cpu for a, b in zip(found, plain, strict=True))
        print(f"{name:14}{rate:10,.0f}{cpu:14.1f}{faster:17.2f}×{dearer:13.2f}×")


if __name__ == "__main__":
    main()
