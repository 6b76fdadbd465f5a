"""Durable calls when frames are late, lost or cross each other, between real caller, relay and listener.

The listener is connected through somebody who holds frames back or breaks the connection; the relay's clock
is moved where time has to pass.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ringline.caller import (
    AsyncCaller,
    CallCanceled,
    CallIndeterminate,
    NotCancelled,
    Requested,
    StillRunning,
)
from ringline.listener import Call, Listener
from ringline.protocol.instant import Instant
from ringline.protocol.limits import LEASE_MS
from ringline.relay.clock import system_clock
from ringline_testing.middleman import Frames, Middleman, middleman
from ringline_testing.relay import running_relay

BOUND_S = 60.0
# Log-ins allow a clock to be two minutes off, so nothing may take longer.
REBIND_MS = 60_000
SETTINGS = {"cancel_wait_ms": 50, "rebind_ms": REBIND_MS}


class World:
    """A relay whose clock can be moved, somebody between it and its listeners, and a caller."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ahead_ms = 0
        self.runs: list[str] = []
        self.stopped: list[str] = []
        self.began, self.go = asyncio.Event(), asyncio.Event()
        self.down: list[dict[str, Any]] = []
        """Every frame that listeners were sent."""
        self.middle: Middleman
        self.alice: AsyncCaller

    def clock(self) -> Instant:
        """The relay's time."""
        return system_clock().later(self.ahead_ms)

    def listener(self, home: str = "bob") -> Listener:
        """Return a listener of bob's, which notes what it begins; ``wait`` waits until it may go on."""
        listener = Listener(
            "bob",
            relay=self.middle.url,
            home=self.folder / home,
            note=lambda text: None,
            offline=True,
            drain=10 * BOUND_S,
        )

        async def work(call: Call) -> str:
            """Give it back."""
            self.runs.append(call.message)
            self.began.set()
            try:
                if call.message == "wait":
                    await self.go.wait()
            except asyncio.CancelledError:
                self.stopped.append(call.message)
                raise
            return call.message

        listener.answer(work)
        return listener

    def pass_down(self, change: Callable[[dict[str, Any]], Frames] = lambda frame: [frame]) -> None:
        """Note what the listener is sent, and have ``change`` decide what it gets."""

        def passes(frame: dict[str, Any]) -> Frames:
            self.down.append(frame)
            self.middle.told()
            return change(frame)

        self.middle.on_down = passes

    def sent(self, kind: str) -> list[dict[str, Any]]:
        """Return the frames of one type that were on the way to the listener."""
        return [frame for frame in self.down if frame["type"] == kind]

    async def later(self, ms: int) -> None:
        """Move the relay's clock, and let happen there what is due."""
        self.ahead_ms += ms
        assert isinstance(await within(self.alice.cancel("no-such-call")), NotCancelled)

    def cut(self) -> None:
        """Break the listener's connection."""
        for passing in list(self.middle.passing):
            passing.cut()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(
            running_relay(db=tmp_path / "relay.db", clock=made.clock, settings=SETTINGS)
        )
        made.middle = await stack.enter_async_context(middleman(relay.port))
        made.pass_down()
        made.alice = await stack.enter_async_context(
            AsyncCaller("alice", relay=relay.url, home=tmp_path / "alice", note=lambda text: None)
        )
        yield made


async def within(result: Any) -> Any:
    return await asyncio.wait_for(result, BOUND_S)


async def test_a_lease_that_lapses_while_the_acceptance_is_on_its_way_is_refused_and_the_next_one_runs_once(
    world: World,
) -> None:
    held: Frames = []

    def delay(frame: dict[str, Any]) -> Frames:
        leases = [offer["lease_id"] for offer in world.sent("incoming_call")]
        if frame.get("lease_id") == leases[0] and len(leases) == 1:
            held.append(frame)
            return []
        # What was said under the first lease arrives when the second is already given.
        passing, held[:] = [*held, frame], []
        return passing

    world.middle.on_up = delay
    async with world.listener().serving():
        receipt = await within(world.alice.submit("bob", "hello"))
        await world.middle.until(lambda: len(held) == 2)
        await world.later(LEASE_MS + 1)
        assert (await within(world.alice.result(receipt, wait=50))).text == "hello"
        record = await world.alice.record(receipt)
    first, second = [offer["lease_id"] for offer in world.sent("incoming_call")]
    assert {refusal["lease_id"] for refusal in world.sent("call_rejected")} == {first}
    assert [grant["lease_id"] for grant in world.sent("call_started")] == [second]
    assert record is not None
    assert (record.state, record.attempts) == ("completed", 1)
    assert world.runs == ["hello"]


async def test_a_refusal_that_crosses_the_next_lease_stops_nothing_under_it(world: World) -> None:
    early: Frames = []
    late: Frames = []

    def delay(frame: dict[str, Any]) -> Frames:
        if len(world.sent("incoming_call")) == 1:
            early.append(frame)
            return []
        passing, early[:] = [*early, frame], []
        return passing

    def hold(frame: dict[str, Any]) -> Frames:
        if frame["type"] == "call_rejected":
            late.append(frame)
            return []
        return [frame]

    world.middle.on_up = delay
    world.pass_down(hold)
    async with world.listener().serving():
        receipt = await within(world.alice.submit("bob", "wait"))
        await world.middle.until(lambda: len(early) == 2)
        await world.later(LEASE_MS + 1)
        await within(world.began.wait())
        await world.middle.until(lambda: len(late) == 2)
        # It works under the second lease when it hears that the first is gone.
        for frame in late:
            world.middle.passing[0].send(frame)
        # A cancel of another call that it does not know is answered: so it has read what came before.
        world.middle.passing[0].send({"type": "cancel_call", "call_id": "none", "lease_id": LOST_LEASE})
        await world.middle.until(lambda: any(frame["call_id"] == "none" for frame in world.middle.up))
        assert world.stopped == []
        world.go.set()
        assert (await within(world.alice.result(receipt, wait=50))).text == "wait"
    assert world.runs == ["wait"]


LOST_LEASE = "0f0e0d0c-0b0a-4908-8706-050403020100"


async def test_a_cancel_behind_a_broken_connection_is_told_with_the_next_one(world: World) -> None:
    async with world.listener().serving():
        receipt = await within(world.alice.submit("bob", "wait"))
        await within(world.began.wait())
        port = world.middle.port
        await world.middle.stop()
        assert isinstance(await within(world.alice.cancel(receipt)), Requested)
        with pytest.raises(StillRunning, match="cancellation was asked for"):
            await within(world.alice.result(receipt))
        await world.middle.start(port)
        with pytest.raises(CallCanceled):
            await within(world.alice.result(receipt, wait=50))
    assert (world.runs, world.stopped) == (["wait"], ["wait"])
    offers, cancels = world.sent("incoming_call"), world.sent("cancel_call")
    assert [cancel["lease_id"] for cancel in cancels] == [offers[-1]["lease_id"]]


async def test_a_confirmation_of_a_cancel_that_is_lost_is_made_good_under_the_next_lease(
    world: World,
) -> None:
    lost: list[str] = []

    def lose_first(frame: dict[str, Any]) -> Frames:
        if frame["type"] == "call_cancelled" and not lost:
            lost.append(frame["lease_id"])
            world.cut()
            return []
        return [frame]

    world.middle.on_up = lose_first
    async with world.listener().serving():
        receipt = await within(world.alice.submit("bob", "wait"))
        await within(world.began.wait())
        await within(world.alice.cancel(receipt))
        with pytest.raises(CallCanceled):
            await within(world.alice.result(receipt, wait=50))
    told = [frame["lease_id"] for frame in world.middle.up if frame["type"] == "call_cancelled"]
    assert told[0] == lost[0]
    # Once from the journal, and once more because the cancel is told again behind the call.
    assert set(told[1:]) == {world.sent("incoming_call")[-1]["lease_id"]} != {lost[0]}
    assert (world.runs, world.stopped) == (["wait"], ["wait"])


async def test_a_slow_rebind_loses_no_finished_result(world: World) -> None:
    held: Frames = []

    def hold(frame: dict[str, Any]) -> Frames:
        if frame["type"] == "incoming_call" and len(world.sent("incoming_call")) == 2:
            held.append(frame)
            return []
        return [frame]

    world.pass_down(hold)
    async with world.listener().serving():
        receipt = await within(world.alice.submit("bob", "wait"))
        await within(world.began.wait())
        port = world.middle.port
        await world.middle.stop()
        world.go.set()
        await world.middle.start(port)
        await world.middle.until(lambda: bool(held))
        # Much longer than a first lease is given to be accepted.
        await world.later(3 * LEASE_MS)
        world.middle.passing[0].send(held[0])
        assert (await within(world.alice.result(receipt, wait=50))).text == "wait"
        record = await world.alice.record(receipt)
    assert record is not None
    assert (record.state, record.attempts) == ("completed", 0)
    assert world.runs == ["wait"]


async def test_a_listener_that_has_lost_its_journal_is_another_one_and_runs_nothing_again(
    world: World,
) -> None:
    port = world.middle.port
    async with world.listener().serving():
        receipt = await within(world.alice.submit("bob", "wait"))
        await within(world.began.wait())
        await world.middle.stop()
        world.go.set()
    for file in (world.folder / "bob").rglob("journal.db*"):
        file.unlink()
    await world.middle.start(port)
    async with world.listener().serving():
        # What was never begun is not held up, and what was begun is offered to nobody else.
        other = await within(world.alice.submit("bob", "other"))
        assert (await within(world.alice.result(other, wait=50))).text == "other"
        with pytest.raises(StillRunning, match="at work"):
            await within(world.alice.result(receipt))
        await world.later(REBIND_MS + 1)
        with pytest.raises(CallIndeterminate):
            await within(world.alice.result(receipt, wait=50))
    assert world.runs == ["wait", "other"]


async def test_a_redeployed_listener_runs_what_the_last_one_took_and_did_not_begin(world: World) -> None:
    port = world.middle.port

    def never_asked(frame: dict[str, Any]) -> Frames:
        return [] if frame["type"] == "call_started" else [frame]

    world.middle.on_up = never_asked
    async with AsyncExitStack() as last:
        await last.enter_async_context(world.listener().serving())
        shutil.copytree(
            world.folder / "bob", world.folder / "bob again", ignore=shutil.ignore_patterns("journal.db*")
        )
        receipt = await within(world.alice.submit("bob", "hello"))
        await world.middle.until(lambda: any(frame["type"] == "call_started" for frame in world.middle.up))
        await world.middle.stop()
        # It waits for no grant that a lost connection cannot bring.
        await within(last.aclose())
    await world.middle.start(port)
    world.middle.on_up = lambda frame: [frame]
    async with world.listener("bob again").serving():
        assert (await within(world.alice.result(receipt, wait=50))).text == "hello"
    # The last one comes back, with the call in its journal, and is not offered it.
    async with world.listener().serving():
        other = await within(world.alice.submit("bob", "other"))
        assert (await within(world.alice.result(other, wait=50))).text == "other"
    assert world.runs == ["hello", "other"]
    instances = {target for _, target in world.middle.requests if target.startswith("/v1/listen/")}
    assert len({target.partition("instance=")[2][:36] for target in instances}) == 2
