"""Run the Autobahn WebSocket cases against the relay's edges, each wrapped around an echo application.

    python tests/compliance/autobahn.py [--edge picows|websockets] [--loop uvloop|asyncio] [--cases '1.*' ...]

Prints a line for every case whose verdict is not plainly OK, and a total for each edge. Exits 1 if such a
case is not listed in DEVIATIONS with that verdict, or if a listed one has none.
"""

import argparse
import asyncio
import contextlib
import fnmatch
import socket
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Final

import uvicorn
from kosoku import FailureError, run_fuzzingclient
from starlette.applications import Starlette

from ringline.relay.edge import (
    EDGES,
    Accepted,
    Connection,
    EdgeLimits,
    Handshake,
    edge_factory,
    port_factory,
)

# 1 framing, 2 pings and pongs, 3 reserved bits, 4 opcodes, 5 fragments, 6 UTF-8, 7 closing, 10 fragments
# again. 9 measures speed; 12 and 13 are compression, which the protocol does without.
CASES: Final = ("1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*")

# Of both edges: case -> (verdict, reason).
DEVIATIONS: Final = {
    "6.4.3": ("NON-STRICT", "invalid UTF-8 is seen when its frame is whole, not byte by byte"),
    "6.4.4": ("NON-STRICT", "invalid UTF-8 is seen when its frame is whole, not byte by byte"),
    "7.1.6": ("INFORMATIONAL", "what becomes of a message before the close frame is left open"),
    "7.13.1": ("INFORMATIONAL", "close codes from 5000 on are left open; here they are refused with 1002"),
    "7.13.2": ("INFORMATIONAL", "close codes from 5000 on are left open; here they are refused with 1002"),
}


class EchoReceiver:
    """Sends every message back as it came."""

    _connection: Connection

    def opened(self, connection: Connection) -> None:
        """Remember where to send."""
        self._connection = connection

    def message(self, payload: bytes) -> None:
        """Send text back."""
        self._connection.send(payload)

    def binary(self, payload: bytes) -> None:
        """Send binary back."""
        self._connection.send(payload, binary=True)

    def closed(self, code: int | None, clean: bool) -> None:
        """Nothing is left to do."""


class EchoGate:
    """Lets everybody in."""

    def handshake(self, request: Handshake) -> Accepted:
        """Accept without a subprotocol: the cases offer none."""
        return Accepted(receiver=EchoReceiver())

    def farewell(self) -> str:
        """Say why the server stops."""
        return "done"


@contextlib.asynccontextmanager
async def serving(edge: str) -> AsyncGenerator[str]:
    """Serve the echo on a free port of the loopback interface; yield the URL of its WebSocket."""
    limits = EdgeLimits(close_timeout=1.0)
    config = uvicorn.Config(
        Starlette(),
        http=port_factory(limits),
        ws=edge_factory(edge, EchoGate(), limits),
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=5,
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(server.serve([listener]))
        try:
            yield f"ws://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            await running


async def run(edge: str, cases: list[str], seconds: float) -> int:
    """Run ``cases`` against ``edge``; return how many verdicts are not as expected."""
    async with asyncio.timeout(seconds), serving(edge) as url:
        try:
            results = await run_fuzzingclient(url, cases, concurrency=4)
        except FailureError as failure:
            results = failure.results
    wrong = 0
    found: dict[str, str] = {}
    for result in results:
        verdict, closing = result.behavior.value, result.behavior_close.value
        found[result.case_id] = verdict
        if (verdict, closing) == ("OK", "OK"):
            continue
        expected, reason = DEVIATIONS.get(result.case_id, ("OK", ""))
        if verdict != expected or closing not in ("OK", expected):
            wrong += 1
            reason = f"NOT EXPECTED: {result.result} {result.result_close}"
        print(f"{edge:<10}  {result.case_id:<7} {verdict:<13}  close {closing:<13}  {reason}")
    for case in DEVIATIONS:
        chosen = any(fnmatch.fnmatchcase(case, pattern) for pattern in cases)
        if chosen and found.get(case, "OK") == "OK":
            wrong += 1
            print(f"{edge:<10}  {case:<7} no longer deviates: take it off the list")
    tally = ", ".join(f"{count} {verdict}" for verdict, count in Counter(found.values()).most_common())
    print(f"{edge:<10}  {len(results)} cases: {tally or 'none was run'}")
    return wrong if results else 1


async def run_all(edges: list[str], cases: list[str], seconds: float) -> int:
    """Run ``cases`` against each of ``edges``; return how many verdicts are not as expected."""
    return sum([await run(edge, cases, seconds) for edge in edges])


def main() -> int:
    """Read the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Run the Autobahn WebSocket cases against the edges.")
    parser.add_argument("--edge", choices=EDGES, action="append", help="may be repeated; default: both")
    parser.add_argument("--cases", nargs="+", default=list(CASES), metavar="GLOB", help="default: all")
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    parser.add_argument("--seconds", type=float, default=120.0, help="bound for one edge; default: 120")
    arguments = parser.parse_args()
    factory = None
    if arguments.loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        wrong = runner.run(run_all(arguments.edge or list(EDGES), arguments.cases, arguments.seconds))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
