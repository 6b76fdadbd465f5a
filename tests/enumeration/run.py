"""Can a stranger tell one handle from another? Ten thousand questions, by their bytes and by their times.

``python tests/enumeration/run.py [--probes N] [--seed N] [--relay WHICH]``, or ``make enumeration``: about
seven minutes.

Two real relays, one after the other, each in a process of its own and with its budgets off: one in memory,
which has no key log, and ``ringline relay serve`` with a file. Five handles: one that is online, one that is
offline, one that blocks the stranger, one that was removed, one that never was. Two strangers ask about them
in random order on every route that names a handle, upgrades to WebSockets among them, on real sockets: one is
enrolled, one is not. Whoever is enrolled at a relay with a key log may read there who exists; on all other
routes he is told as little. All answers to a question must be the same bytes. For the times a two-sided
Mann-Whitney test compares each
handle with the one that never was; a p-value below 0.001 divided by the number of comparisons is a failure.
So that it is known what it sees, delays are added to every answer about one handle afterwards, and the
smallest that the same test finds for every question is told: about a millisecond on a quiet machine.

Exit code 0: nothing tells them apart. 1: something does; the question and the handle are named. 2: the times
are so restless that the test would not see 8 ms either; run it on a quieter machine.
"""

import argparse
import asyncio
import contextlib
import itertools
import math
import multiprocessing
import random
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import msgspec

from ringline.protocol.invite import Invite
from ringline.protocol.signing import SigningKey
from ringline.relay.options import RelayOptions
from ringline.relay.server import RelayServer
from ringline.relay.settings import Settings
from ringline_testing.commands import Scene
from ringline_testing.signed import Line, Owner

__all__ = ["main"]

REALM: Final = "relay.example"
HANDLES: Final = ("online", "offline", "blocking", "removed", "missing")
STRANGERS: Final = tuple(f"stranger-{number}" for number in range(16))
ALPHA: Final = 0.001
PLANTED_MS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_PATIENCE_S: Final = 30.0
_OFF: Final = (
    "calls_per_hour", "calls_per_pair_per_hour", "turns", "key_fetches_per_minute", "frames_per_second",
    "claims_per_minute", "failed_logins_per_minute",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Route:
    """A question about a handle: returns method, path behind the handle, and the body."""

    name: str
    method: str
    path: str
    body: Callable[[str], Any] = lambda handle: None
    under: str = "/v1/handles/"
    upgrade: bool = False
    nobody_only: bool = False
    """It has no other log-in than its own, or its answer to others tells nothing of the handle."""

    def target(self, handle: str) -> str:
        """Return path and query."""
        return f"{self.under}{handle}{self.path}" if self.under.endswith("/") else self.under


def _owner(handle: str) -> Owner:
    """Return whoever claims a handle with the stranger's keys: anybody can make a card of any handle."""
    return replace(_KEYS, handle=handle, realm=REALM)


def _heir(handle: str) -> Owner:
    """Return whoever claims it by a succession from a card that he made up himself."""
    return _owner(handle).succeeded(_HEIR, old_signs=True, serial=2, operational=_KEYS.operational)


_LISTEN: Final = (
    "?instance=00000000-0000-4000-8000-000000000001&boot=00000000-0000-4000-8000-000000000002&capacity=1"
)
_UPGRADE: Final = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "ringline.v1",
}
_HEIR: Final = SigningKey.generate()
_KEYS: Final = Owner(handle="xx", port=0)
_POLICY: Final[dict[str, Any]] = {"offline": False, "accept": "anyone", "allow": [], "block": []}


ROUTES: Final = (
    Route("keys", "GET", ""),
    Route("a card", "GET", f"?card={'A' * 43}"),
    Route("removal", "DELETE", ""),
    Route("policy", "GET", "/policy"),
    Route("a new policy", "PUT", "/policy", lambda handle: _POLICY),
    Route("prekeys", "PUT", "/prekeys", lambda handle: {}),
    Route("a revocation", "POST", "/revocations", lambda handle: _owner(handle).revocation()),
    Route("a claim", "PUT", "", lambda handle: _owner(handle).publication(), nobody_only=True),
    Route(
        "a claim by no invite",
        "PUT",
        "",
        lambda handle: _owner(handle).publication() | {"invite": f"{'a' * 16}.{'b' * 22}"},
        nobody_only=True,
    ),
    Route("a succession", "PUT", "", lambda handle: _heir(handle).publication(), nobody_only=True),
    Route("no such method", "PATCH", ""),
    Route("a ticket to call", "POST", "", lambda handle: {"htu": f"/v1/call/{handle}"}, "/v1/tickets"),
    Route("a connection to call", "GET", "", under="/v1/call/", upgrade=True, nobody_only=True),
    Route("a connection to listen", "GET", _LISTEN, under="/v1/listen/", upgrade=True),
    Route("a call without upgrade", "GET", "", under="/v1/call/"),
)
MODES: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("a sync call", {}),
    ("a durable call", {"delivery_mode": "durable"}),
)


class Wire:
    """One kept HTTP connection, asked one question at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, method: str, target: str, headers: dict[str, str], body: bytes | None
    ) -> tuple[bytes, float]:
        """Return the answer without its date, and the seconds that it took."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        lines = [f"{method} {target} HTTP/1.1", f"Host: 127.0.0.1:{self._port}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [] if body is None else [f"Content-Length: {len(body)}"]
        data = "\r\n".join([*lines, "", ""]).encode() + (body or b"")
        async with asyncio.timeout(_PATIENCE_S):
            begun = time.perf_counter()
            writer.write(data)
            head = await reader.readuntil(b"\r\n\r\n")
            kept = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"date:")]
            sizes = [line for line in kept if line.lower().startswith(b"content-length:")]
            answer = await reader.readexactly(int(sizes[0].split(b":")[1]) if sizes else 0)
            took = time.perf_counter() - begun
        return b"\n".join(kept) + answer, took

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()


class Tally:
    """What was answered, and how fast, by question and handle."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[bytes, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def note(self, question: str, handle: str, answer: bytes, took: float) -> None:
        """Take one answer."""
        self.answers[question][answer].add(handle)
        self.times[question][handle].append(took)

    def faults(self) -> list[str]:
        """Return what tells handles apart."""
        told = [
            f"{question}: {len(answers)} different answers: "
            + "; ".join(
                f"{', '.join(sorted(handles))}: {answer[:90]!r}" for answer, handles in answers.items()
            )
            for question, answers in self.answers.items()
            if len(answers) > 1
        ]
        bound = ALPHA / sum(len(by_handle) - 1 for by_handle in self.times.values())
        for question, by_handle in self.times.items():
            for handle, times in by_handle.items():
                if handle != "missing" and (p := p_value(times, by_handle["missing"])) < bound:
                    told.append(f"{question}: the times of {handle} and missing differ, p = {p:.1e}")
        return told

    def sees(self) -> float | None:
        """Return the smallest delay, in ms, that the test finds for every question; None: none of them."""
        bound = ALPHA / sum(len(by_handle) - 1 for by_handle in self.times.values())
        for delay in PLANTED_MS:
            if all(
                p_value([took + delay / 1_000 for took in by_handle["offline"]], by_handle["missing"]) < bound
                for by_handle in self.times.values()
            ):
                return delay
        return None


def p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the two-sided p-value of the Mann-Whitney test, by its normal approximation with ties."""
    n, m = len(one), len(other)
    merged = sorted([(value, 0) for value in one] + [(value, 1) for value in other])
    rank_sum, ties, at = 0.0, 0, 0
    while at < n + m:
        end = at
        while end < n + m and merged[end][0] == merged[at][0]:
            end += 1
        rank = (at + 1 + end) / 2
        rank_sum += rank * sum(1 for _, group in merged[at:end] if group == 0)
        ties += (end - at) ** 3 - (end - at)
        at = end
    u = rank_sum - n * (n + 1) / 2
    total = n + m
    sigma = math.sqrt(n * m / 12 * (total + 1 - ties / (total * (total - 1))))
    return math.erfc(abs(u - n * m / 2) / sigma / math.sqrt(2)) if sigma else 1.0


async def _serve(port_sent: Any, stop: Any) -> None:
    settings = Settings(**dict.fromkeys(_OFF, 0))
    options = RelayOptions(port=0, realm=REALM, settings=settings, open_registration=False, admin="admin")
    async with RelayServer(options) as relay:
        made = await relay.invite_admin(86_400)
        assert made is not None
        port_sent.send((relay.port, made.invite))
        await asyncio.to_thread(stop.wait)


def _relay(port_sent: Any, stop: Any) -> None:
    asyncio.run(_serve(port_sent, stop))


@contextlib.contextmanager
def _in_memory() -> Generator[tuple[int, str]]:
    """Run a relay without a key log; yield its port and what its administrator enrols with."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    stop = context.Event()
    process = context.Process(target=_relay, args=(sending, stop), daemon=True)
    process.start()
    try:
        if not receiving.poll(_PATIENCE_S * 2):
            raise TimeoutError("the relay did not start")
        yield receiving.recv()
    finally:
        stop.set()
        process.join(10)


@contextlib.contextmanager
def _with_file() -> Generator[tuple[int, str]]:
    """Run ``ringline relay serve`` with a database, as `_in_memory`."""
    with tempfile.TemporaryDirectory() as folder, Scene(Path(folder)) as scene:
        db = Path(folder) / "relay.db"
        off = [word for name in _OFF for word in ("--set", f"{name.upper()}=0")]
        relay = scene.start(
            *("relay", "serve", "--db", str(db), "--realm", REALM, "--admin", "admin", "--port", "0"), *off
        )
        port = int(relay.says(r"Listens +http://127\.0\.0\.1:(\d+)")[1])
        relay.says("Stop with")
        yield port, Invite.parse(db.with_name("relay.db.admin-invite").read_text().strip()).secret


RELAYS: Final = {"memory": _in_memory, "file": _with_file}


async def _people(port: int, invite: str) -> tuple[Owner, list[Owner]]:
    """Enrol everybody; return whoever is online, and the strangers.

    There are several, since a relay remembers only 1,000 log-ins of each.
    """
    admin = Owner(handle="admin", port=port, realm=REALM)
    assert (await admin.publish(invite=invite)).status == 201
    people: dict[str, Owner] = {}
    for name in ("online", "offline", "blocking", "removed", *STRANGERS):
        made = (await admin.ask("POST", "/v1/invites", {"uses": 1, "ttl_s": 3_600})).json()
        people[name] = Owner(handle=name, port=port, realm=REALM)
        assert (await people[name].publish(invite=made["invite"])).status == 201
    blocked = _POLICY | {"offline": True, "block": list(STRANGERS)}
    assert (await people["blocking"].ask("PUT", "/v1/handles/blocking/policy", blocked)).status == 200
    assert (await people["removed"].ask("DELETE", "/v1/handles/removed")).status == 200
    return people["online"], [people[name] for name in STRANGERS]


_TICKET: Final = re.compile(rb'"ticket":"[^"]*","expires_at":[0-9]+')


async def _probe_http(
    port: int, strangers: list[Owner], probes: int, chance: random.Random, tally: Tally
) -> None:
    """Ask in random order; each question is asked as often about each handle."""
    questions = [
        (who, route, handle)
        for who in ("nobody", "enrolled")
        for route in ROUTES
        for handle in HANDLES
        if who == "nobody" or not route.nobody_only
    ]
    plan = questions * max(1, probes // len(questions))
    chance.shuffle(plan)
    wire, turns = Wire(port), itertools.cycle(strangers)
    bodies = {(route.name, handle): route.body(handle) for route in ROUTES for handle in HANDLES}
    for who, route, handle in plan:
        target = route.target(handle)
        body = bodies[route.name, handle]
        headers = dict(_UPGRADE) if route.upgrade else {}
        # Whoever claims logs in under the card of his claim.
        claimant = _heir if route.name == "a succession" else _owner if "claim" in route.name else None
        signer: Owner | None = None
        if claimant is not None:
            signer = claimant(handle)
        elif who == "enrolled":
            # Tickets in turn, since each stranger may hold only so many.
            signer = next(turns) if route.under == "/v1/tickets" else chance.choice(strangers)
        if signer is not None:
            headers |= signer.bearer(route.method, target.partition("?")[0])
        data = None if body is None else msgspec.json.encode(body)
        answer, took = await wire.ask(route.method, target, headers, data)
        if route.name == "a ticket to call" and who == "enrolled":
            # What buys a connection is drawn anew each time; all else of the answer is the same.
            answer = _TICKET.sub(b"", answer)
        if route.upgrade:
            # Nothing more is asked where an upgrade was.
            wire.close()
            wire = Wire(port)
        tally.note(f"{route.name} ({who})", handle, answer, took)
    wire.close()


async def _probe_calls(stranger: Owner, probes: int, chance: random.Random, tally: Tally) -> None:
    """Call each handle in random order, on a connection to each."""
    async with contextlib.AsyncExitStack() as stack:
        lines: dict[str, Line] = {}
        for handle in HANDLES:
            lines[handle] = await stack.enter_async_context(stranger.calling(handle))
        plan = [(handle, mode) for handle in HANDLES for mode in MODES] * max(1, probes // 10)
        chance.shuffle(plan)
        for handle, (name, members) in plan:
            request = stranger.request(**members)
            begun = time.perf_counter()
            await lines[handle].send(request)
            frame = await lines[handle].next()
            took = time.perf_counter() - begun
            assert frame.pop("correlation_id") == request["correlation_id"]
            tally.note(f"{name} (enrolled)", handle, msgspec.json.encode(frame), took)


async def _run(probes: int, seed: int, port: int, invite: str) -> Tally:
    chance, tally = random.Random(seed), Tally()
    online, strangers = await _people(port, invite)
    async with online.listening():
        await _probe_http(port, strangers, probes * 8 // 10, chance, tally)
        await _probe_calls(strangers[0], probes * 2 // 10, chance, tally)
    return tally


def main() -> int:
    """Run the probes and print what tells handles apart."""
    parser = argparse.ArgumentParser(description="Can a stranger tell one handle from another?")
    parser.add_argument("--probes", type=int, default=10_000, help="of each relay")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--relay", choices=tuple(RELAYS), help="one of them alone")
    options = parser.parse_args()
    # What was told apart counts for more than what could not be seen.
    codes = {
        _judge(name, options.probes, options.seed)
        for name in RELAYS
        if options.relay is None or name == options.relay
    }
    return 1 if 1 in codes else max(codes)


def _judge(name: str, probes: int, seed: int) -> int:
    begun = time.monotonic()
    with RELAYS[name]() as (port, invite):
        tally = asyncio.run(_run(probes, seed, port, invite))
    asked = sum(len(times) for by_handle in tally.times.values() for times in by_handle.values())
    print(f"--- relay: {name}")
    for question, by_handle in sorted(tally.times.items()):
        medians = "  ".join(
            f"{handle} {sorted(times)[len(times) // 2] * 1_000:6.2f}" for handle, times in by_handle.items()
        )
        (first, *_) = tally.answers[question]
        print(f"{question:<34} {first[:12].decode(errors='replace'):<13} ms: {medians}")
    faults = tally.faults()
    for fault in faults:
        print(f"TOLD APART  {fault}")
    sees = tally.sees()
    if sees is None:
        print(f"the times are too restless: a delay of {PLANTED_MS[-1]:g} ms would not have been seen")
    else:
        print(f"a delay of {sees:g} ms would have been seen, whatever was asked")
    verdict = "nothing tells them apart" if not faults else f"{len(faults)} ways to tell them apart"
    print(f"{asked} probes in {time.monotonic() - begun:.0f} s, seed {seed}: {verdict}", flush=True)
    return 1 if faults else 2 if sees is None else 0


if __name__ == "__main__":
    sys.exit(main())
