"""A relay whose disk fails for real: a file system that is full or read-only, a file that is damaged.

Whatever happens to it, nobody is given a receipt for what is not stored, sync calls and reads go on, whoever
runs the relay is told, and it goes on by itself when the trouble is over.
"""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ringline.protocol.errors import ConfigError
from ringline.relay.server import RelayServer
from ringline.relay.sqlite_calls import SqliteCalls
from ringline_testing.relay import running_relay
from ringline_testing.signed import Line, Owner, exchange

OPEN: dict[str, Any] = {"offline": True, "accept": "anyone", "allow": [], "block": []}
SIZE = 4 * 1_048_576


def mount(*arguments: str) -> None:
    """Run ``mount`` or skip the test where this user may not."""
    made = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no file system of its own for this test: {made.stderr.strip()}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    mount("-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "ringline-test", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> Path:
    """Take all the room that is left, to the last byte; return the file that has it."""
    filler = place / "filler"
    with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass
    return filler


def damage(db: Path, pages: int) -> None:
    """Write noise over all but the first pages of a file."""
    # By another process: a file of SQLite's that this one closes would lose its locks.
    what = ["if=/dev/urandom", f"of={db}", "bs=4096", "seek=2", f"count={pages - 2}", "conv=notrunc"]
    subprocess.run(["dd", *what], check=True, capture_output=True)


async def submit(alice: Owner, line: Line, size: int = 2_000) -> dict[str, Any]:
    """Send a durable request with so long a ciphertext; return the answer."""
    request = alice.request(delivery_mode="durable")
    request["envelope"]["ct"] = "A" * size
    await line.send(request)
    return await line.next()


async def submitted(alice: Owner) -> dict[str, str]:
    """Return the ids and states of all durable calls that the relay knows of alice's."""
    calls = (await alice.ask("GET", "/v1/calls?limit=100")).json()["calls"]
    return {call["call_id"]: call["state"] for call in calls if call["mode"] == "durable"}


async def is_ready(relay: RelayServer) -> bool:
    """True if the relay says that it is."""
    return (await exchange(relay.port, "GET", "/readyz")).status == 200


@contextlib.asynccontextmanager
async def parties(relay: RelayServer) -> AsyncGenerator[tuple[Owner, Owner, Line]]:
    """Enrol alice and bob, who takes durable calls; give them and a line from one to the other."""
    alice, bob = await Owner.enrolled("alice", relay.port), await Owner.enrolled("bob", relay.port)
    assert (await bob.ask("PUT", "/v1/handles/bob/policy", OPEN)).status == 200
    async with alice.calling("bob") as line:
        yield alice, bob, line


async def still_serves(relay: RelayServer, alice: Owner, bob: Owner, line: Line) -> None:
    """Hold the relay to what needs no disk: a sync call from end to end, keys, a policy."""
    async with bob.listening() as listener:
        await line.send(alice.request())
        assert (await line.next())["state"] == "ringing"
        offer = await listener.next()
        await listener.send({"type": "call_started", "call_id": offer["call_id"]})
        await listener.send(bob.outcome(call_id=offer["call_id"]))
        while (answer := await line.next())["type"] == "call_status":
            pass
        assert answer["type"] == "call_outcome"
    assert (await alice.ask("GET", "/v1/handles/bob")).status == 200
    assert (await bob.ask("GET", "/v1/handles/bob/policy")).json() == OPEN
    assert (await exchange(relay.port, "GET", "/healthz")).status == 200


async def recovers(relay: RelayServer, alice: Owner, line: Line) -> None:
    """Wait until the relay is ready again, and have a durable call admitted."""
    async with asyncio.timeout(20):
        while not await is_ready(relay):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    answer = await submit(alice, line)
    assert answer["type"] == "call_queued"


async def test_a_full_file_system_gives_no_receipt_and_is_survived(disk: Path) -> None:
    async with (
        running_relay(db=disk / "relay.db", settings={"store_retry_ms": 100}) as relay,
        parties(relay) as (alice, bob, line),
    ):
        told = [await submit(alice, line)]
        filler = fill(disk)
        # What is in the log's last page and in free pages takes a few yet; each that is told is stored.
        while (answer := await submit(alice, line, 60_000))["type"] == "call_queued":
            told.append(answer)
            assert len(told) < 10, "a full disk takes everything"
        assert (answer["type"], answer["code"]) == ("call_error", "busy")
        assert "call_id" not in answer
        assert answer["retry_after_ms"] > 0
        ready = await exchange(relay.port, "GET", "/readyz")
        assert ready.status == 503
        assert "full" in ready.json()["reasons"][0]
        # Nor can keys be published; all that is in memory is served.
        assert (await Owner(handle="late", port=relay.port).publish()).status == 503
        await still_serves(relay, alice, bob, line)
        filler.unlink()
        await recovers(relay, alice, line)
        known = await submitted(alice)
        assert {call["call_id"] for call in told} <= known.keys()
        assert len(known) == len(told) + 1
    with closing(SqliteCalls(str(disk / "relay.db"))) as calls:
        assert calls.repair() == []
        assert all(calls.request(call["call_id"]) is not None for call in told)


async def test_a_read_only_file_system_is_named_before_anything_is_started(disk: Path) -> None:
    async with running_relay(db=disk / "relay.db") as relay:
        await Owner.enrolled("alice", relay.port)
    mount("-o", "remount,ro", str(disk))
    with pytest.raises(ConfigError, match="Read-only file system") as refused:
        async with running_relay(db=disk / "relay.db"):
            pass
    assert refused.value.next_step is not None
    mount("-o", "remount,rw", str(disk))
    async with running_relay(db=disk / "relay.db") as relay:
        assert (await Owner(handle="alice", port=relay.port).publish()).status == 409


async def test_a_file_that_is_damaged_while_the_relay_runs_is_told_and_sync_calls_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    db = tmp_path / "relay.db"
    async with (
        running_relay(db=db, settings={"store_retry_ms": 50}) as relay,
        parties(relay) as (alice, bob, line),
    ):
        first = await submit(alice, line)
        relay._calls.shrink()
        connection = relay._calls._file.connection
        assert connection is not None
        connection.execute("PRAGMA cache_size=0")
        connection.execute("PRAGMA shrink_memory")
        pages = db.stat().st_size // 4_096
        damage(db, pages)
        answer = await submit(alice, line)
        assert (answer["type"], answer["code"]) == ("call_error", "busy")
        ready = await exchange(relay.port, "GET", "/readyz")
        assert ready.status == 503
        assert "malformed" in ready.json()["reasons"][0]
        # What is not known is not said to be unknown.
        assert (await alice.ask("GET", f"/v1/calls/{first['call_id']}")).status == 503
        await still_serves(relay, alice, bob, line)
    assert not [record for record in caplog.records if record.exc_info]
