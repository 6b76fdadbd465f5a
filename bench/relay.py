"""The whole relay over real sockets, beside what it cannot be faster than, interleaved in the same run.

Durable calls: many callers submit to a relay with a file, a listener accepts, begins and answers. Beside it
raw SQLite (`bench/raw.py`) with the same bytes, once in transactions of as many calls as are in flight, and
once in as many transactions as the relay has made. Sync calls: the relay beside a forwarder that parses
nothing (`bench/forwarder.py`). Only ratios mean something: the machine's speed changes from minute to minute.

    python bench/relay.py [--short] [--calls 3200] [--callers 64] [--rounds 5] [--bytes 1200]
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import load
import uvloop
from load import Owner
from raw import Cost, raw


class Asked(NamedTuple):
    """What to measure."""

    calls: int
    callers: int
    size: int


class Run(NamedTuple):
    """What a round has come to."""

    cost: Cost
    latencies: list[float]
    commits: int


async def durable(asked: Asked, db: Path) -> dict[str, Run]:
    """Return what durable calls cost the relay: admitted to nobody's hands, worked off, and both at once."""
    with load.relay(db) as (pid, port):
        owners, bob = await load.enrolled(port, asked.callers)
        hooks: dict[str, Callable[[load.Caller, float], None]] = {}
        callers = [
            load.Caller(
                owner,
                asked.size,
                durable=True,
                admitted=lambda caller, s: hooks["admitted"](caller, s),
                ended=lambda caller, s: hooks["ended"](caller, s),
            )
            for owner in owners
        ]
        for caller, owner in zip(callers, owners, strict=True):
            await load.connect(caller, owner, owner.call_path("bob"))

        async def measured(calls: int, last: str, again: str | None, begin: Callable[[], object]) -> Run:
            """Return what it cost until so many calls were ``last``; one that is ``again`` makes one more."""
            latencies: list[float] = []
            done, count = load.all_of(calls)
            to_make = calls - len(callers)

            def noted(event: str, caller: load.Caller, seconds: float) -> None:
                nonlocal to_make
                if event == again and to_make > 0:
                    to_make -= 1
                    caller.call()
                if event == last:
                    latencies.append(seconds)
                    count()

            for event in ("admitted", "ended"):
                hooks[event] = lambda caller, s, event=event: noted(event, caller, s)
            commits = await load.metric(port, "store_commits_total")
            wall, cpu = time.perf_counter(), load.processor_time(pid)
            pending = begin()
            if asyncio.iscoroutine(pending):
                await pending
            await done
            cost = Cost(time.perf_counter() - wall, load.processor_time(pid) - cpu)
            return Run(cost, latencies, await load.metric(port, "store_commits_total") - commits)

        def submit() -> None:
            for caller in callers:
                caller.call()

        listener = load.Listener(bob, asked.size)
        some = asked.calls // 4
        runs = {"admitted": await measured(some, "admitted", "admitted", submit)}
        target = bob.listen_target(capacity=asked.callers)
        runs["begun and ended"] = await measured(
            some, "ended", None, lambda: load.connect(listener, bob, target)
        )
        runs["whole"] = await measured(asked.calls - some, "ended", "ended", submit)
        return runs


async def sync(asked: Asked) -> Run:
    """Return what sync calls cost the relay."""
    with load.relay(None) as (pid, port):
        owners, bob = await load.enrolled(port, asked.callers)
        await load.connect(load.Listener(bob, asked.size), bob, bob.listen_target(capacity=2 * asked.callers))
        latencies: list[float] = []
        done, count = load.all_of(asked.calls)
        to_make = asked.calls - len(owners)

        def ended(caller: load.Caller, seconds: float) -> None:
            nonlocal to_make
            latencies.append(seconds)
            if count() and to_make > 0:
                to_make -= 1
                caller.call()

        callers = [
            load.Caller(owner, asked.size, durable=False, admitted=lambda *_: None, ended=ended)
            for owner in owners
        ]
        for caller, owner in zip(callers, owners, strict=True):
            await load.connect(caller, owner, owner.call_path("bob"))
        wall, cpu = time.perf_counter(), load.processor_time(pid)
        for caller in callers:
            caller.call()
        await done
        return Run(Cost(time.perf_counter() - wall, load.processor_time(pid) - cpu), latencies, 0)


async def bare(asked: Asked) -> Run:
    """Return what as many calls cost the forwarder."""
    program = [sys.executable, str(Path(__file__).with_name("forwarder.py"))]
    with load.process(program, r"port (\d+)\n") as (pid, port):
        anyone = Owner(handle="anyone", port=port)
        latencies: list[float] = []
        done, count = load.all_of(asked.calls)
        to_make = asked.calls - asked.callers

        def ended(caller: load.BareCaller, seconds: float) -> None:
            nonlocal to_make
            latencies.append(seconds)
            if count() and to_make > 0:
                to_make -= 1
                caller.call()

        await load.connect(load.BareListener(load.tail_of(anyone, asked.size)), anyone, "/v1/listen/anyone")
        head = load.head_of(anyone, asked.size, durable=False)
        callers = [load.BareCaller(head, ended) for _ in range(asked.callers)]
        for caller in callers:
            await load.connect(caller, anyone, "/v1/call/anyone")
        wall, cpu = time.perf_counter(), load.processor_time(pid)
        for caller in callers:
            caller.call()
        await done
        return Run(Cost(time.perf_counter() - wall, load.processor_time(pid) - cpu), latencies, 0)


def rate(calls: int, costs: list[Cost]) -> str:
    """Return calls a second and processor time, medians of the rounds, as columns."""
    wall, cpu = (statistics.median(cost[i] for cost in costs) / calls for i in (0, 1))
    return f"{1 / wall:10,.0f}{cpu * 1e6:14.1f}"


def ratio(ours: list[Cost], theirs: list[Cost]) -> str:
    """Return ours as a part of theirs: calls a second, and processor time; medians over the rounds."""
    faster = statistics.median(b.wall / a.wall for a, b in zip(ours, theirs, strict=True))
    dearer = statistics.median(a.cpu / b.cpu for a, b in zip(ours, theirs, strict=True))
    return f"{faster:12.2f}×{dearer:11.2f}×"


def per_call(cost: Cost, calls: int) -> Cost:
    """Return the cost of one call."""
    return Cost(cost.wall / calls, cost.cpu / calls)


def tail(runs: list[Run]) -> str:
    """Return how the slowest calls compare with the middle."""
    found = sorted(latency for run in runs for latency in run.latencies)
    middle, late = found[len(found) // 2], found[len(found) * 99 // 100]
    return f"p99 is {late / middle:.1f} × p50"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, default in (("calls", 3_200), ("callers", 64), ("rounds", 5), ("bytes", 1_200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--short", action="store_true", help="one round of few calls: does it all still run?")
    given = parser.parse_args()
    asked = Asked(given.calls, given.callers, given.bytes)
    rounds = given.rounds
    if given.short:
        asked, rounds = asked._replace(calls=1_280), 1

    costs: dict[str, list[Cost]] = defaultdict(list)
    runs: dict[str, list[Run]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="ringline-bench-") as folder:
        for number in range(rounds):
            place = Path(folder) / str(number)
            place.mkdir()
            for step, run in uvloop.run(durable(asked, place / "relay.db")).items():
                calls = len(run.latencies)
                runs[step].append(run)
                costs[f"relay {step}"].append(per_call(run.cost, calls))
            for step, cost in raw(str(place / "raw.db"), asked.calls, asked.callers, asked.size).items():
                costs[f"raw {step}"].append(per_call(cost, asked.calls))
            whole = runs["whole"][-1]
            batch = max(1, round(3 * len(whole.latencies) / whole.commits))
            found = raw(str(place / "same.db"), asked.calls, batch, asked.size)
            costs["same whole"].append(per_call(found["whole"], asked.calls))
            for name, measure in (("bare", bare), ("sync", sync)):
                run = uvloop.run(measure(asked))
                runs[name].append(run)
                costs[name].append(per_call(run.cost, asked.calls))

    print(f"{asked.callers} calls in flight of {asked.size} bytes each way; medians of {rounds} rounds")
    print(f"{'':38}{'calls/s':>10}{'CPU µs/call':>14}{'of raw, /s':>13}{'of raw, CPU':>12}")
    for step in ("admitted", "begun and ended", "whole"):
        ours, theirs = costs[f"relay {step}"], costs[f"raw {step}"]
        print(f"{'durable, ' + step:38}{rate(1, ours)}{ratio(ours, theirs)}")
        print(f"{'  raw SQLite, as many in a batch':38}{rate(1, theirs)}")
    ours, theirs = costs["relay whole"], costs["same whole"]
    made = statistics.median(run.commits / len(run.latencies) for run in runs["whole"])
    print(f"{'  raw SQLite, as many commits':38}{rate(1, theirs)}{ratio(ours, theirs)}")
    print(f"  ({made:.3f} commits a call, raw in batches {3 / asked.callers:.3f}; {tail(runs['whole'])})")
    print(f"{'sync':38}{rate(1, costs['sync'])}{ratio(costs['sync'], costs['bare'])}  of the forwarder")
    print(f"{'  forwarder that parses nothing':38}{rate(1, costs['bare'])}")
    print(f"  ({tail(runs['sync'])}; the forwarder's {tail(runs['bare'])})")


if __name__ == "__main__":
    main()
