"""Durable calls over real sockets and SQLite: restart, kill at every stored step, disks that take nothing."""

import asyncio
import contextlib
import os
import re
import sqlite3
import sys
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ringline.protocol.faults import VARIABLE
from ringline.relay.server import RelayServer
from ringline_testing.ports import lasting_port
from ringline_testing.relay import running_relay
from ringline_testing.signed import Line, Owner, exchange

OPEN: dict[str, Any] = {"offline": True, "accept": "anyone", "allow": [], "block": []}
RINGLINE = Path(sys.executable).with_name("ringline")


async def enrol(port: int) -> tuple[Owner, Owner]:
    """Enrol alice and bob, who takes durable calls."""
    alice, bob = await Owner.enrolled("alice", port), await Owner.enrolled("bob", port)
    assert (await bob.ask("PUT", "/v1/handles/bob/policy", OPEN)).status == 200
    return alice, bob


async def submit(alice: Owner, line: Line, **members: Any) -> dict[str, Any]:
    """Submit a durable call and return its receipt."""
    await line.send(alice.request(delivery_mode="durable") | members)
    answer = await line.next()
    assert answer["type"] == "call_queued", answer
    return answer


async def start(listener: Line) -> dict[str, Any]:
    """Take the next call, ask to start it and be granted it; return its ids."""
    offer = await listener.next()
    assert offer["type"] == "incoming_call"
    ids = {"call_id": offer["call_id"], "lease_id": offer["lease_id"]}
    await listener.send({"type": "call_accepted"} | ids)
    await listener.send({"type": "call_started"} | ids)
    assert await listener.next() == {"type": "call_started"} | ids
    return ids


async def record(owner: Owner, call_id: str, wait: int = 0) -> dict[str, Any]:
    """Return a call's record."""
    answer = await owner.ask("GET", f"/v1/calls/{call_id}?wait={wait}")
    assert answer.status == 200, answer
    shown: dict[str, Any] = answer.json()
    return shown


async def test_a_queued_call_outlives_the_relay_and_its_outcome_is_kept_until_it_is_acknowledged(
    tmp_path: Path,
) -> None:
    db = tmp_path / "relay.db"
    async with running_relay(db=db, port=lasting_port()) as relay:
        port = relay.port
        alice, bob = await enrol(port)
        async with alice.calling("bob") as line:
            receipt = await submit(alice, line)
    call_id = receipt["call_id"]
    async with running_relay(db=db, port=port):
        assert (await record(alice, call_id))["state"] == "queued"
        async with bob.listening() as listener:
            ids = await start(listener)
            waiting = asyncio.create_task(record(alice, call_id, wait=20))
            await listener.send(bob.outcome(**ids))
            assert (await waiting)["outcome"]["terminal"] == "completed"
    async with running_relay(db=db, port=port):
        path = f"/v1/calls/{call_id}"
        assert (await record(alice, call_id))["state"] == "completed"
        assert (await record(bob, call_id))["outcome"] is None
        listed = (await alice.ask("GET", "/v1/calls?state=completed")).json()
        assert [(call["call_id"], call["outcome"]) for call in listed["calls"]] == [(call_id, None)]
        assert (await bob.ask("POST", f"{path}/ack")).status == 404
        assert (await alice.ask("POST", f"{path}/ack")).json()["outcome"] is None
        assert (await record(alice, call_id))["outcome"] is None


async def test_without_a_file_durable_calls_live_as_long_as_the_relay() -> None:
    async with running_relay() as relay:
        alice, bob = await enrol(relay.port)
        async with alice.calling("bob") as line, bob.listening() as listener:
            receipt = await submit(alice, line)
            ids = await start(listener)
            assert [(await line.next())["state"] for _ in range(2)] == ["answered", "working"]
            await listener.send(bob.outcome(**ids))
            end = await line.next()
            assert (end["type"], end["call_id"]) == ("call_outcome", receipt["call_id"])
            assert "lease_id" not in end


async def test_cancel_and_replay_over_http() -> None:
    async with running_relay(settings={"lease_ms": 30, "attempts": 1}) as relay:
        alice, bob = await enrol(relay.port)
        async with alice.calling("bob") as line:
            first, second = await submit(alice, line), await submit(alice, line)
            path = f"/v1/calls/{first['call_id']}"
            assert (await bob.ask("POST", f"{path}/replay")).status == 409
            assert (await alice.ask("POST", f"{path}/replay")).status == 404
            assert (await alice.ask("POST", f"{path}/cancel")).json()["state"] == "canceled"
            assert (await line.next())["code"] == "canceled"
            async with bob.listening() as listener:
                offer = await listener.next()
                assert offer["call_id"] == second["call_id"]
                # Nobody accepts it: its only attempt is over, and it is parked.
                async with asyncio.timeout(10):
                    while (await record(bob, second["call_id"]))["state"] != "delivery_failed":  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                assert (await bob.ask("POST", f"/v1/calls/{second['call_id']}/replay")).status == 200
                again = await listener.next()
                assert again["call_id"] == second["call_id"]
                assert again["lease_id"] != offer["lease_id"]


async def test_blocking_a_caller_ends_what_he_has_stored_and_does_not_tell_him() -> None:
    async with running_relay() as relay:
        alice, bob = await enrol(relay.port)
        async with alice.calling("bob") as line:
            call_id = (await submit(alice, line))["call_id"]
            blocked = OPEN | {"block": ["alice"]}
            assert (await bob.ask("PUT", "/v1/handles/bob/policy", blocked)).status == 200
            assert (await record(alice, call_id))["state"] == "queued"
            assert (await record(bob, call_id))["state"] == "revoked"


async def test_a_list_shows_calls_of_both_modes_newest_first_page_by_page() -> None:
    async with running_relay() as relay:
        alice, bob = await enrol(relay.port)
        made: list[str] = []
        async with alice.calling("bob") as line, bob.listening(capacity=9) as listener:
            for mode in ("durable", "sync", "sync", "durable", "sync"):
                await line.send(alice.request(delivery_mode=mode))
                made.append((await line.next())["call_id"])
                await listener.next()
                await asyncio.sleep(0.002)  # a later millisecond: the list is by time
            seen: list[str] = []
            target = "/v1/calls?limit=2"
            while target:
                page = (await alice.ask("GET", target)).json()
                seen += [call["call_id"] for call in page["calls"]]
                target = f"/v1/calls?limit=2&cursor={page['next']}" if page["next"] else ""
            assert seen == made[::-1]


# --- a disk that does not take it


def connection_of(relay: RelayServer) -> sqlite3.Connection:
    connection = relay._calls._file.connection
    assert connection is not None
    return connection


@contextlib.contextmanager
def full(relay: RelayServer) -> Any:
    connection = connection_of(relay)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages}")
    yield
    connection.execute("PRAGMA max_page_count=1000000")


@contextlib.contextmanager
def read_only(relay: RelayServer) -> Any:
    connection_of(relay).execute("PRAGMA query_only=ON")
    yield
    connection_of(relay).execute("PRAGMA query_only=OFF")


@contextlib.contextmanager
def locked(relay: RelayServer) -> Any:
    connection_of(relay).execute("PRAGMA busy_timeout=50")
    assert relay.options.db is not None
    with closing(sqlite3.connect(relay.options.db, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@pytest.mark.parametrize("trouble", [full, read_only, locked])
async def test_a_disk_that_takes_nothing_gives_no_receipt_and_leaves_sync_calls_alone(
    trouble: Any, tmp_path: Path
) -> None:
    async with running_relay(db=tmp_path / "relay.db", settings={"store_retry_ms": 1_500}) as relay:
        alice, bob = await enrol(relay.port)
        async with alice.calling("bob") as line, bob.listening(capacity=4) as listener:
            kept = await submit(alice, line)
            ids = await start(listener)
            # Large enough that no free page takes it.
            large = alice.request(delivery_mode="durable")
            large["envelope"]["ct"] = "A" * 300_000
            with trouble(relay):
                assert [(await line.next())["state"] for _ in range(2)] == ["answered", "working"]
                await line.send(large)
                refusal = await line.next()
                assert (refusal["type"], refusal["code"]) == ("call_error", "busy")
                assert refusal["retry_after_ms"] > 0
                assert "call_id" not in refusal
                assert (await exchange(relay.port, "GET", "/readyz")).status == 503
                assert (await record(alice, kept["call_id"]))["state"] == "started"
                # Who had durable work in hand is closed, and takes sync calls again when it is back.
                assert (await listener.closed())[0] == 1011
                instance = {"instance": "0f0e0d0c-0b0a-4908-8706-050403020100"}
                async with bob.listening(capacity=4, **instance) as again:
                    await line.send(alice.request())
                    ring = await line.next()
                    assert (ring["type"], ring["state"]) == ("call_status", "ringing")
                    assert (await again.next())["type"] == "incoming_call"
            async with asyncio.timeout(10):
                while (await exchange(relay.port, "GET", "/readyz")).status != 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert (await submit(alice, line, **large))["type"] == "call_queued"
        assert ids["call_id"] == kept["call_id"]


# --- killed at every stored step


@contextlib.asynccontextmanager
async def process(db: Path, port: int, fault: str | None = None) -> AsyncGenerator[tuple[int, Any]]:
    """Run ``ringline relay dev`` on a file; with ``fault`` it kills itself there."""
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    started = await asyncio.create_subprocess_exec(
        RINGLINE,
        *("relay", "dev", "--db", str(db), "--port", str(port)),
        stderr=asyncio.subprocess.PIPE,
        env=environment | ({} if fault is None else {VARIABLE: fault}),
    )
    try:
        assert started.stderr is not None
        told = ""
        async with asyncio.timeout(30):
            while "Next:" not in told:
                line = await started.stderr.readline()
                assert line, told
                told += line.decode()
        found = re.search(r"ws://127\.0\.0\.1:(\d+)", told)
        assert found is not None
        yield int(found[1]), started
    finally:
        with contextlib.suppress(ProcessLookupError):
            started.kill()
        await started.communicate()


async def drive(alice: Owner, bob: Owner, message: dict[str, Any], heard: list[str]) -> None:
    """Take a call from its request to its acknowledgement; note what was told, until the relay is gone."""
    async with alice.calling("bob") as line, bob.listening(instance=INSTANCE) as listener:
        await line.send(message)
        receipt = await line.next()
        heard.append(receipt["type"])
        offer = await listener.next()
        ids = {"call_id": offer["call_id"], "lease_id": offer["lease_id"]}
        await listener.send({"type": "call_started"} | ids)
        heard.append("granted" if (await listener.next())["type"] == "call_started" else "other")
        await listener.send(bob.outcome(**ids))
        while (await line.next())["type"] != "call_outcome":
            pass
        heard.append("call_outcome")
        await alice.ask("POST", f"/v1/calls/{receipt['call_id']}/ack")


INSTANCE = "0f0e0d0c-0b0a-4908-8706-0504030201ff"

# What is true after the restart: the state of the record, or None where there is none.
KILLS = {
    "admission.before": None,
    "admission.after": "queued",
    "start.before": "queued",
    "start.after": "started",
    "outcome.before": "started",
    "outcome.after": "completed",
    "ack.before": "completed",
    "ack.after": "completed",
}
TOLD = {"admission": [], "start": ["call_queued"], "outcome": ["call_queued", "granted"]}


@pytest.mark.slow
@pytest.mark.parametrize("point", KILLS)
async def test_a_relay_that_is_killed_at_a_stored_step_has_told_nothing_that_is_not_so(
    point: str, tmp_path: Path
) -> None:
    db = tmp_path / "relay.db"
    async with running_relay(db=db, port=lasting_port()) as relay:
        port = relay.port
        alice, bob = await enrol(port)
    message = alice.request(delivery_mode="durable")
    heard: list[str] = []
    async with process(db, port, point) as (_, started):
        with contextlib.suppress(Exception):
            await drive(alice, bob, message, heard)
        async with asyncio.timeout(10):
            assert await started.wait() == -9
    step = point.partition(".")[0]
    assert heard == TOLD.get(step, ["call_queued", "granted", "call_outcome"])
    async with running_relay(db=db, port=port), alice.calling("bob") as line:
        calls = (await alice.ask("GET", "/v1/calls")).json()["calls"]
        assert [call["state"] for call in calls] == ([] if KILLS[point] is None else [KILLS[point]])
        # The same message again is the same call, whichever side of the commit it was on.
        await line.send(message)
        receipt = await line.next()
        assert receipt["type"] == "call_queued"
        assert receipt["call_id"] == (calls[0]["call_id"] if calls else receipt["call_id"])
        if KILLS[point] != "completed":
            async with bob.listening(instance=INSTANCE) as listener:
                offer = await listener.next()
                ids = {"call_id": offer["call_id"], "lease_id": offer["lease_id"]}
                await listener.send({"type": "call_started"} | ids)
                assert (await listener.next())["type"] == "call_started"
                await listener.send(bob.outcome(**ids))
                assert (await record(alice, receipt["call_id"], wait=10))["state"] == "completed"
