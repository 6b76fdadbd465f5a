"""Choices that are easily made worse, each by the name of the better behaviour, on a running relay."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from ringline.caller import AsyncCaller
from ringline.listener import Call, Listener
from ringline.protocol.errors import TransportError
from ringline.protocol.limits import CALLER_FRAME_BYTES, LISTENER_FRAME_BYTES
from ringline.relay.server import RelayServer
from ringline_testing.middleman import Frames, middleman
from ringline_testing.relay import running_relay
from ringline_testing.signed import Line, Owner, exchange

OPEN: dict[str, Any] = {"offline": True, "accept": "anyone", "allow": [], "block": []}
BOUND_S = 60.0


class Scene:
    """Alice, who calls bob; bob, who takes durable calls too."""

    def __init__(self, relay: RelayServer, alice: Owner, bob: Owner, line: Line) -> None:
        self.relay = relay
        self.alice = alice
        self.bob = bob
        self.line = line

    async def submit(self, **members: Any) -> dict[str, Any]:
        """Submit a durable call; return its receipt."""
        await self.line.send(self.alice.request(delivery_mode="durable", **members))
        receipt = await self.line.next()
        assert receipt["type"] == "call_queued", receipt
        return receipt

    async def record(self, call_id: str, who: Owner | None = None) -> dict[str, Any]:
        """Return a call's record as one of its sides reads it."""
        record: dict[str, Any] = (await (who or self.alice).ask("GET", f"/v1/calls/{call_id}")).json()
        return record

    async def states(self, count: int) -> list[str]:
        """Return the next states that alice is told."""
        return [(await self.line.next())["state"] for _ in range(count)]


async def scene_of(stack: AsyncExitStack, **settings: int) -> Scene:
    relay = await stack.enter_async_context(running_relay(settings=settings))
    alice, bob = await Owner.enrolled("alice", relay.port), await Owner.enrolled("bob", relay.port)
    assert (await bob.ask("PUT", "/v1/handles/bob/policy", OPEN)).status == 200
    return Scene(relay, alice, bob, await stack.enter_async_context(alice.calling("bob")))


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        yield await scene_of(stack)


async def taken(listener: Line) -> dict[str, Any]:
    """Return the ids of the call that is offered next."""
    offer = await listener.next()
    assert offer["type"] == "incoming_call", offer
    return {name: offer[name] for name in ("call_id", "lease_id") if name in offer}


async def begun(listener: Line) -> dict[str, Any]:
    """Take a durable call to its start; return its ids."""
    ids = await taken(listener)
    await listener.send({"type": "call_started"} | ids)
    assert await listener.next() == {"type": "call_started"} | ids
    return ids


# --- what a listener says


async def test_a_listeners_bad_frame_is_answered_at_once_and_takes_no_call_with_it(scene: Scene) -> None:
    async with scene.bob.listening() as listener:
        await scene.line.send(scene.alice.request())
        ids = await taken(listener)
        assert await scene.states(1) == ["ringing"]
        wrong: list[object] = [
            b"binary",
            "not json",
            {"type": "no_such_frame"} | ids,
            {"type": "call_started", "unknown": 1} | ids,
            # Of the other direction.
            {"type": "call_status", "state": "working", "correlation_id": "1" * 32} | ids,
            {"type": "call_outcome", "terminal": "completed"} | ids,
        ]
        for frame in wrong:
            await listener.send(frame)
            assert await listener.next() == {
                "type": "call_error",
                "origin": "relay",
                "code": "protocol_error",
            }
        await listener.send({"type": "call_started"} | ids)
        assert await scene.states(1) == ["working"]


async def test_a_request_that_its_listener_refuses_ends_at_once_and_not_by_its_bound(scene: Scene) -> None:
    async with scene.bob.listening() as listener:
        await scene.line.send(scene.alice.request())
        ids = await taken(listener)
        await listener.send({"type": "call_rejected", "code": "protocol_error"} | ids)
        assert await scene.states(1) == ["ringing"]
        end = await scene.line.next()
    assert (end["code"], end["call_id"]) == ("protocol_error", ids["call_id"])
    assert (await scene.record(ids["call_id"]))["state"] == "delivery_failed"


async def test_a_listeners_frame_beyond_every_limit_ends_its_connection_with_a_reason(scene: Scene) -> None:
    async with scene.bob.listening() as listener:
        await listener.send("x" * (LISTENER_FRAME_BYTES + 1))
        assert (await listener.closed())[0] == 1009


async def test_only_what_has_begun_can_be_completed(scene: Scene) -> None:
    async with scene.bob.listening() as listener:
        receipt = await scene.submit()
        ids = await taken(listener)
        await listener.send(scene.bob.outcome(**ids))
        assert (await listener.next())["code"] == "protocol_error"
        assert (await scene.record(receipt["call_id"]))["started_at"] is None
        await listener.send({"type": "call_started"} | ids)
        assert (await listener.next())["type"] == "call_started"
        await listener.send(scene.bob.outcome(**ids))
        assert await scene.states(2) == ["answered", "working"]
        assert (await scene.line.next())["terminal"] == "completed"
    record = await scene.record(receipt["call_id"])
    assert record["started_at"] is not None
    assert (record["state"], record["terminal_reason"]) == ("completed", "completed")


async def test_an_end_and_its_reason_fit_each_other(scene: Scene) -> None:
    async with scene.bob.listening() as listener:
        await scene.submit()
        ids = await begun(listener)
        for terminal, reason in (
            ("completed", "failed"),
            ("completed", "expired"),
            ("failed", "completed"),
            ("failed", "canceled"),
            ("failed", "revoked"),
        ):
            await listener.send(scene.bob.outcome(**ids, terminal=terminal, terminal_reason=reason))
            assert (await listener.next())["code"] == "protocol_error"
        assert (await scene.record(ids["call_id"]))["state"] == "started"


# --- sizes


async def test_a_request_is_bounded_by_what_a_message_can_be_and_not_by_what_a_reply_can(
    scene: Scene,
) -> None:
    async with scene.bob.listening() as listener:
        frame = scene.alice.request()
        frame["envelope"]["ct"] = "A" * CALLER_FRAME_BYTES
        await scene.line.send(frame)
        assert (await scene.line.next())["code"] == "message_too_large"
        await scene.line.send(scene.alice.request())
        ids = await taken(listener)
        assert await scene.states(1) == ["ringing"]
        await listener.send({"type": "call_started"} | ids)
        assert await scene.states(1) == ["working"]
        reply = scene.bob.outcome(**ids)
        reply["envelope"]["ct"] = "A" * CALLER_FRAME_BYTES
        await listener.send(reply)
        assert await scene.line.next() == reply


async def test_one_caller_cannot_fill_a_mailbox_alone_and_learns_when_to_come_back() -> None:
    async with AsyncExitStack() as stack:
        scene = await scene_of(stack, stored_calls=4, stored_calls_per_pair=2, stored_unlisted_percent=100)
        for _ in range(2):
            await scene.submit()
        await scene.line.send(scene.alice.request(delivery_mode="durable"))
        refusal = await scene.line.next()
        assert (refusal["code"], refusal["retry_after_ms"] > 0) == ("busy", True)
        assert "call_id" not in refusal
        carol = await Owner.enrolled("carol", scene.relay.port)
        async with carol.calling("bob") as line:
            await line.send(carol.request(delivery_mode="durable"))
            assert (await line.next())["type"] == "call_queued"


# --- who is the same


async def test_a_repeat_that_json_spells_otherwise_is_the_same_call(scene: Scene) -> None:
    async with scene.bob.listening(capacity=4) as listener:
        for mode in ("sync", "durable"):
            frame = scene.alice.request(delivery_mode=mode)
            await scene.line.send(frame)
            first = await scene.line.next()
            backwards = dict(reversed(frame.items()))
            backwards["envelope"] = dict(reversed(frame["envelope"].items()))
            spelt = msgspec.json.format(msgspec.json.encode(backwards), indent=3).decode()
            async with scene.alice.calling("bob") as again:
                await again.send(spelt.replace('"A', '"\\u0041', 1))
                assert (await again.next())["call_id"] == first["call_id"]
            await listener.send({"type": "call_accepted"} | await taken(listener))
            assert (await scene.line.next())["state"] == "answered"


async def test_a_message_id_names_one_call_in_both_modes(scene: Scene) -> None:
    async with scene.bob.listening(capacity=4) as listener:
        for mode, other in (("sync", "durable"), ("durable", "sync")):
            frame = scene.alice.request(delivery_mode=mode)
            await scene.line.send(frame)
            call_id = (await scene.line.next())["call_id"]
            assert (await taken(listener))["call_id"] == call_id
            # A repeat in the same mode is that call: the listener is not offered another one.
            async with scene.alice.calling("bob") as again:
                await again.send(frame)
                assert (await again.next())["call_id"] == call_id
                changed = frame | {"envelope": frame["envelope"] | {"ct": "B" * 2_000}}
                for wrong in (frame | {"delivery_mode": other}, changed):
                    await again.send(wrong)
                    assert (await again.next())["code"] == "protocol_error"
        await scene.line.send(scene.alice.request())
        last = await scene.line.next()
        assert (await taken(listener))["call_id"] == last["call_id"]


@pytest.mark.parametrize("mode", ["sync", "durable"])
@pytest.mark.parametrize("member", ["message_id", "correlation_id", "delivery_mode", "from"])
async def test_what_a_relay_changes_of_a_frame_does_not_open(
    scene: Scene, tmp_path: Any, mode: str, member: str
) -> None:
    def changed(frame: dict[str, Any]) -> Frames:
        if frame["type"] == "incoming_call":
            durable = {"delivery_mode", "lease_id", "execute_by"}
            if member != "delivery_mode":
                frame = frame | {member: "carol" if member == "from" else "7" * 32}
            elif mode == "durable":
                frame = {name: value for name, value in frame.items() if name not in durable}
            else:
                due = frame["envelope"]["exp"]
                frame |= {"delivery_mode": "durable", "lease_id": str(uuid4()), "execute_by": due}
        return [frame]

    runs: list[str] = []
    async with middleman(scene.relay.port) as middle:
        middle.on_down = changed
        listener = Listener("dave", relay=middle.url, home=tmp_path / "dave", offline=True)

        @listener.answer
        def echo(call: Call) -> str:
            """Give it back."""
            runs.append(call.message)
            return call.message

        caller = AsyncCaller("erin", relay=scene.relay.url, home=tmp_path / "erin", note=lambda _: None)
        async with listener.serving(), caller as erin:
            made = erin.submit("dave", "hi") if mode == "durable" else erin.call("dave", "hi")
            task = asyncio.ensure_future(made)
            await middle.until(lambda: any(frame["type"] == "call_rejected" for frame in middle.up))
            task.cancel()
            await asyncio.wait([task])
    assert runs == []


# --- who listens


async def test_a_second_instance_shares_the_calls_and_neither_ends_the_other(scene: Scene) -> None:
    async with scene.bob.listening(capacity=2) as one, scene.bob.listening(capacity=2) as two:
        calls = [scene.alice.request() for _ in range(2)]
        for call in calls:
            await scene.line.send(call)
        assert await scene.states(2) == ["ringing", "ringing"]
        offered = [await one.next(), await two.next()]
        assert {offer["correlation_id"] for offer in offered} == {call["correlation_id"] for call in calls}


async def test_the_same_instance_again_takes_over_and_says_so_and_the_old_one_does_not_come_back(
    scene: Scene, tmp_path: Any
) -> None:
    async with middleman(scene.relay.port) as middle:
        listener = Listener("dave", relay=middle.url, home=tmp_path / "dave")

        @listener.answer
        def nothing(call: Call) -> str:
            """Answer nothing."""
            return ""

        served = asyncio.create_task(listener.serve())
        await middle.until(lambda: bool(middle.passing))
        target = middle.passing[0].target
        dials = [seen for _, seen in middle.requests if seen.startswith("/v1/listen")]
        middle.passing[0].close(4000, "replaced")
        with pytest.raises(TransportError, match="another connection"):
            await asyncio.wait_for(served, BOUND_S)
        assert [seen for _, seen in middle.requests if seen.startswith("/v1/listen")] == dials == [target]
    instance = str(uuid4())
    async with (
        scene.bob.listening(instance=instance) as old,
        scene.bob.listening(instance=instance) as new,
    ):
        assert await old.closed() == (4000, "replaced")
        await scene.line.send(scene.alice.request())
        assert "call_id" in await taken(new)


@pytest.mark.parametrize(
    ("name", "value"),
    [("instance", "none"), ("boot", "7"), ("capacity", "0"), ("durable", "yes"), ("feature", "no-such")],
)
async def test_a_listener_that_asks_wrongly_is_refused_with_the_reason_and_gets_nothing_less(
    scene: Scene, name: str, value: str
) -> None:
    query = {"instance": str(uuid4()), "boot": str(uuid4()), "capacity": "1"}
    query |= {"features" if name == "feature" else name: value}
    target = "/v1/listen/bob?" + "&".join(f"{key}={given}" for key, given in query.items())
    headers = scene.bob.bearer("GET", "/v1/listen/bob") | {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Protocol": "ringline.v1",
    }
    answer = await exchange(scene.relay.port, "GET", target, headers=headers)
    assert (answer.status, answer.json()["code"]) == (400, "malformed")
    assert name in answer.json()["detail"]
    await scene.submit()
    await scene.line.send(scene.alice.request())
    assert (await scene.line.next())["code"] == "offline"


# --- how calls end


async def test_full_and_occupied_and_away_are_told_apart() -> None:
    async with AsyncExitStack() as stack:
        scene = await scene_of(stack, stored_calls_per_pair=1)
        await scene.line.send(scene.alice.request())
        assert (await scene.line.next())["code"] == "offline"
        async with scene.bob.listening(capacity=1) as listener:
            await scene.line.send(scene.alice.request())
            await taken(listener)
            assert await scene.states(1) == ["ringing"]
            # Nobody can say when a place is free; a place in the mailbox is asked for again after a while.
            await scene.line.send(scene.alice.request())
            occupied = await scene.line.next()
            await scene.submit()
            await scene.line.send(scene.alice.request(delivery_mode="durable"))
            full = await scene.line.next()
        assert (occupied["code"], "retry_after_ms" in occupied) == ("busy", False)
        assert (full["code"], "retry_after_ms" in full) == ("busy", True)


@pytest.mark.parametrize("mode", ["sync", "durable"])
async def test_a_cancel_goes_by_frame_and_by_http_and_its_refusal_keeps_its_reason(
    scene: Scene, mode: str
) -> None:
    async with scene.bob.listening() as listener:
        await scene.line.send(scene.alice.request(delivery_mode=mode))
        call_id = (await scene.line.next())["call_id"]
        ids = await taken(listener)
        await listener.send({"type": "call_started"} | ids)
        if mode == "durable":
            assert (await listener.next())["type"] == "call_started"
            assert await scene.states(1) == ["answered"]
        assert await scene.states(1) == ["working"]
        await scene.line.send({"type": "cancel_call", "call_id": call_id})
        assert await listener.next() == {"type": "cancel_call"} | ids
        await listener.send({"type": "call_not_cancelled", "reason": "too_late"} | ids)
        assert await scene.line.next() == {
            "type": "call_not_cancelled",
            "call_id": call_id,
            "reason": "too_late",
        }
        asked = asyncio.create_task(scene.alice.ask("POST", f"/v1/calls/{call_id}/cancel"))
        assert await listener.next() == {"type": "cancel_call"} | ids
        await listener.send({"type": "call_not_cancelled", "reason": "too_late"} | ids)
        answer = await asked
        assert (answer.status, answer.json()["code"]) == (409, "too_late")
        asked = asyncio.create_task(scene.alice.ask("POST", f"/v1/calls/{call_id}/cancel"))
        assert await listener.next() == {"type": "cancel_call"} | ids
        await listener.send({"type": "call_cancelled", "phase": "running"} | ids)
        assert ((await asked).status, (await scene.line.next())["code"]) == (200, "canceled")


@pytest.mark.parametrize("mode", ["sync", "durable"])
async def test_work_over_its_time_is_stopped_and_has_one_end_for_every_reader(mode: str) -> None:
    async with AsyncExitStack() as stack:
        scene = await scene_of(stack, call_bound_ms=300, durable_life_ms=300, stop_wait_ms=50)
        listener = await stack.enter_async_context(scene.bob.listening())
        frame = scene.alice.request(delivery_mode=mode)
        await scene.line.send(frame)
        call_id = (await scene.line.next())["call_id"]
        ids = await taken(listener)
        await listener.send({"type": "call_started"} | ids)
        if mode == "durable":
            assert (await listener.next())["type"] == "call_started"
        # The listener is told to stop, and that what it says now comes too late.
        assert await listener.next() == {"type": "cancel_call"} | ids
        told = [await scene.line.next() for _ in range(2 if mode == "sync" else 3)]
        assert (told[-1]["code"], told[-1]["call_id"]) == ("timeout", call_id)
        await listener.send(scene.bob.outcome(**ids))
        late = await listener.next()
        assert late["type"] == ("cancel_call" if mode == "sync" else "call_rejected")
        for who in (scene.alice, scene.bob):
            record = await scene.record(call_id, who)
            assert (record["state"], record["terminal_reason"]) == (
                "indeterminate_execution",
                "indeterminate_execution",
            )
        async with scene.alice.calling("bob") as again:
            await again.send(frame)
            while (answer := await again.next())["type"] != "call_error":
                assert answer["call_id"] == call_id
            assert (answer["code"], answer["call_id"]) == ("timeout", call_id)
