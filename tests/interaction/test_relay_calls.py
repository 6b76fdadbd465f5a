"""Calls through a running relay, over both edges: frames in, frames out, and what HTTP says of them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import pytest

from ringline.relay.server import RelayServer
from ringline_testing.relay import running_relay
from ringline_testing.signed import Answer, Line, Owner

EDGES = ("picows", "websockets")


class Scene:
    """Alice, who calls bob; bob, who listens; and carol, who has no part in it."""

    alice: Owner
    bob: Owner
    carol: Owner
    caller: Line
    listener: Line

    def __init__(self, relay: RelayServer) -> None:
        self.relay = relay

    async def set(self, stack: AsyncExitStack, **query: Any) -> None:
        port = self.relay.port
        self.alice, self.bob, self.carol = [await Owner.enrolled(n, port) for n in ("alice", "bob", "carol")]
        self.listener = await stack.enter_async_context(self.bob.listening(**query))
        self.caller = await stack.enter_async_context(self.alice.calling("bob"))

    async def ring(self, **members: Any) -> str:
        """Send a request, see it handed out, and return its call id."""
        request = self.alice.request(**members)
        await self.caller.send(request)
        ringing = await self.caller.next()
        incoming = await self.listener.next()
        assert ringing == {
            "type": "call_status",
            "state": "ringing",
            "call_id": incoming["call_id"],
            "correlation_id": request["correlation_id"],
        }
        assert incoming == {
            "type": "incoming_call",
            "call_id": incoming["call_id"],
            "from": "alice",
            "envelope": request["envelope"],
            "correlation_id": request["correlation_id"],
            "message_id": request["message_id"],
        }
        call_id: str = incoming["call_id"]
        return call_id

    async def report(self, kind: str, call_id: str, **members: Any) -> None:
        """Send a listener's frame."""
        await self.listener.send({"type": kind, "call_id": call_id} | members)

    async def record(self, who: Owner, call_id: str, query: str = "") -> Answer:
        """Read a call's record."""
        return await who.ask("GET", f"/v1/calls/{call_id}{query}")


@pytest.fixture(params=EDGES)
async def scene(request: pytest.FixtureRequest) -> AsyncGenerator[Scene]:
    async with running_relay(edge=request.param) as relay, AsyncExitStack() as stack:
        scene = Scene(relay)
        await scene.set(stack, capacity=4)
        yield scene


async def test_a_call_goes_there_and_its_outcome_comes_back(scene: Scene) -> None:
    call_id = await scene.ring()
    await scene.report("call_accepted", call_id)
    assert (await scene.caller.next())["state"] == "answered"
    await scene.report("call_started", call_id)
    assert (await scene.caller.next())["state"] == "working"
    outcome = scene.bob.outcome(call_id)
    await scene.listener.send(outcome)
    assert await scene.caller.next() == outcome


async def test_the_largest_outcome_comes_through(scene: Scene) -> None:
    call_id = await scene.ring()
    await scene.report("call_started", call_id)
    assert (await scene.caller.next())["state"] == "working"
    outcome = scene.bob.outcome(call_id)
    outcome["envelope"]["ct"] = "A" * 2_061_515
    await scene.listener.send(outcome)
    assert await scene.caller.next() == outcome


async def test_a_frame_that_is_refused_leaves_the_connection_alive(scene: Scene) -> None:
    for damage in ("not json", "[]", '{"type":"call_status"}', '{"type":"\\ud800"}', b"binary"):
        await scene.caller.send(damage)
        assert await scene.caller.next() == {
            "type": "call_error", "origin": "relay", "code": "protocol_error",
        }  # fmt: skip
    await scene.caller.send(scene.alice.request()["envelope"] | {"ct": "A" * 600_000})
    assert (await scene.caller.next())["code"] == "message_too_large"
    await scene.ring()


async def test_the_twenty_first_damaged_frame_is_answered_and_ends_the_connection(scene: Scene) -> None:
    for _ in range(21):
        await scene.caller.send("x")
    for _ in range(21):
        assert (await scene.caller.next())["code"] == "protocol_error"
    assert await scene.caller.closed() == (1008, "frames")


async def test_a_handle_that_may_not_be_reached_is_unknown(scene: Scene) -> None:
    policy: dict[str, Any] = {"offline": False, "accept": "listed", "allow": [], "block": []}
    assert (await scene.carol.ask("PUT", "/v1/handles/carol/policy", policy)).status == 200
    answers: list[dict[str, Any]] = []
    for name in ("carol", "nobody"):
        async with scene.alice.calling(name) as line:
            await line.send(scene.alice.request(correlation_id="1" * 32))
            answers.append(await line.next())
    assert answers[0] == answers[1]
    assert answers[0]["code"] == "unknown_handle"


async def test_an_envelope_under_a_revoked_card_is_refused(scene: Scene) -> None:
    renewed = scene.alice.renewed()
    assert (await renewed.publish()).status == 200
    async with renewed.calling("bob") as line:
        await line.send(scene.alice.request())
        assert (await line.next())["state"] == "ringing"
        path = "/v1/handles/alice/revocations"
        assert (await renewed.ask("POST", path, scene.alice.revocation())).status == 201
        await line.send(scene.alice.request())
        assert (await line.next())["code"] == "protocol_error"
        await line.send(renewed.request())
        assert (await line.next())["state"] == "ringing"


async def test_a_listener_that_comes_again_replaces_itself(scene: Scene) -> None:
    instance = str(uuid4())
    async with (
        scene.carol.listening(instance=instance) as first,
        scene.carol.listening(instance=instance) as second,
        scene.alice.calling("carol") as line,
    ):
        assert await first.closed() == (4000, "replaced")
        await line.send(scene.alice.request())
        assert (await second.next())["type"] == "incoming_call"


# --- records


async def test_both_sides_read_the_record_and_nobody_else(scene: Scene) -> None:
    call_id = await scene.ring()
    missing = await scene.record(scene.carol, "none")
    foreign = await scene.record(scene.carol, call_id)
    assert (foreign.status, foreign.without_date()) == (404, missing.without_date())
    seen = (await scene.record(scene.alice, call_id)).json()
    assert seen == (await scene.record(scene.bob, call_id)).json()
    assert seen["state"] == "ringing"
    assert set(seen) == {
        "call_id", "from", "to", "mode", "state", "terminal_reason", "message_id", "correlation_id",
        "submitted_at", "expires_at", "started_at", "finished_at", "attempts", "deferred_until",
        "cancel_requested", "outcome",
    }  # fmt: skip
    await scene.report("call_started", call_id)
    await scene.caller.next()
    outcome = scene.bob.outcome(call_id)
    await scene.listener.send(outcome)
    await scene.caller.next()
    ended = (await scene.record(scene.alice, call_id)).json()
    assert (ended["state"], ended["outcome"]["envelope"]) == ("completed", outcome["envelope"])
    assert (await scene.record(scene.bob, call_id)).json()["outcome"] is None
    async with asyncio.timeout(10):
        # There is nothing to wait for any more.
        assert (await scene.record(scene.alice, call_id, "?wait=50")).json() == ended


async def test_a_reader_waits_for_the_end(scene: Scene) -> None:
    call_id = await scene.ring()
    await scene.report("call_started", call_id)
    await scene.caller.next()
    async with asyncio.timeout(10):
        reading = [
            asyncio.ensure_future(scene.record(who, call_id, "?wait=50"))
            for who in (scene.alice, scene.alice, scene.bob)
        ]
        while len(scene.relay._board._waiting.get(call_id, ())) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await scene.listener.send(scene.bob.outcome(call_id))
        records = [answer.json() for answer in await asyncio.gather(*reading)]
    assert {record["state"] for record in records} == {"completed"}
    assert scene.relay._board._waiting == {}
    assert scene.relay._routes._waits == {}


async def test_a_wait_ends_with_its_time_or_its_client(scene: Scene) -> None:
    call_id = await scene.ring()
    record = await scene.record(scene.alice, call_id, "?wait=1")
    assert (record.status, record.json()["state"]) == (200, "ringing")
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", scene.relay.port)
        token = scene.alice.token("GET", f"/v1/calls/{call_id}")
        writer.write(
            f"GET /v1/calls/{call_id}?wait=50 HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {token}\r\n\r\n".encode()
        )
        while not scene.relay._board._waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        writer.close()
        while scene.relay._board._waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        del reader


async def test_calls_are_listed_for_either_side(scene: Scene) -> None:
    ids = [await scene.ring() for _ in range(2)]
    listed = (await scene.alice.ask("GET", "/v1/calls")).json()
    assert [call["call_id"] for call in listed["calls"]] == ids[::-1]
    page = (await scene.bob.ask("GET", "/v1/calls?role=callee&limit=1")).json()
    assert [call["call_id"] for call in page["calls"]] == ids[1:]
    rest = (await scene.bob.ask("GET", f"/v1/calls?role=callee&limit=1&cursor={page['next']}")).json()
    assert [call["call_id"] for call in rest["calls"]] == ids[:1]
    assert (await scene.bob.ask("GET", "/v1/calls?role=callee&state=completed")).json()["calls"] == []
    assert (await scene.carol.ask("GET", "/v1/calls")).json() == {"calls": [], "next": None}


async def test_an_acknowledged_outcome_is_gone_and_the_record_stays(scene: Scene) -> None:
    call_id = await scene.ring()
    path = f"/v1/calls/{call_id}/ack"
    running = await scene.alice.ask("POST", path)
    assert (running.status, running.json()["code"]) == (409, "conflict")
    await scene.report("call_started", call_id)
    await scene.caller.next()
    await scene.listener.send(scene.bob.outcome(call_id))
    await scene.caller.next()
    assert (await scene.bob.ask("POST", path)).status == 404
    for _ in range(2):
        answer = await scene.alice.ask("POST", path, {})
        assert (answer.status, answer.json()["state"], answer.json()["outcome"]) == (200, "completed", None)
    assert (await scene.alice.ask("POST", path, {"x": 1})).status == 400


async def test_a_sync_call_cannot_be_replayed(scene: Scene) -> None:
    call_id = await scene.ring()
    path = f"/v1/calls/{call_id}/replay"
    assert (await scene.bob.ask("POST", path)).json()["code"] == "conflict"
    assert (await scene.alice.ask("POST", path)).status == 404


async def test_the_parties_of_a_call_see_each_others_keys(scene: Scene) -> None:
    policy: dict[str, Any] = {"offline": False, "accept": "listed", "allow": ["alice"], "block": []}
    for who in (scene.alice, scene.bob):
        assert (await who.ask("PUT", f"/v1/handles/{who.handle}/policy", policy)).status == 200
    assert (await scene.bob.ask("GET", "/v1/handles/alice")).status == 404
    await scene.ring()
    # alice's policy does not list bob, but he must be able to check whom he answers.
    assert (await scene.bob.ask("GET", "/v1/handles/alice")).status == 200
    assert (await scene.bob.ask("GET", f"/v1/handles/alice?card={scene.alice.card_id}")).status == 200
    assert (await scene.carol.ask("GET", "/v1/handles/alice")).status == 404


# --- cancellation over HTTP


async def cancel(scene: Scene, call_id: str, who: Owner | None = None) -> Answer:
    """Ask for cancellation."""
    return await (who or scene.alice).ask("POST", f"/v1/calls/{call_id}/cancel")


async def test_a_confirmed_cancellation_is_ok(scene: Scene) -> None:
    call_id = await scene.ring()
    asking = asyncio.ensure_future(cancel(scene, call_id))
    assert await scene.listener.next() == {"type": "cancel_call", "call_id": call_id}
    await scene.report("call_cancelled", call_id, phase="pending")
    answer = await asking
    assert (answer.status, answer.json()["state"]) == (200, "canceled")
    assert (await scene.caller.next())["code"] == "canceled"
    again = await cancel(scene, call_id)
    assert (again.status, again.json()["code"]) == (409, "already_terminal")


@pytest.mark.parametrize("reason", ["too_late", "unknown"])
async def test_a_refused_cancellation_is_a_conflict_with_its_reason(scene: Scene, reason: str) -> None:
    call_id = await scene.ring()
    asking = asyncio.ensure_future(cancel(scene, call_id))
    await scene.listener.next()
    await scene.report("call_not_cancelled", call_id, reason=reason)
    answer = await asking
    assert (answer.status, answer.json()["status"], answer.json()["code"]) == (409, 409, reason)


async def test_only_the_caller_cancels(scene: Scene) -> None:
    call_id = await scene.ring()
    answers = [
        await cancel(scene, "none"),
        await cancel(scene, call_id, scene.bob),
        await cancel(scene, call_id, scene.carol),
    ]
    assert {answer.status for answer in answers} == {404}
    assert len({answer.without_date() for answer in answers}) == 1
    assert answers[0].json()["code"] == "unknown"


async def test_an_unconfirmed_cancellation_stays_requested() -> None:
    async with running_relay(settings={"cancel_wait_ms": 50}) as relay, AsyncExitStack() as stack:
        scene = Scene(relay)
        await scene.set(stack)
        call_id = await scene.ring()
        answer = await cancel(scene, call_id)
        assert (answer.status, answer.json()["state"], answer.json()["cancel_requested"]) == (
            202, "ringing", True,
        )  # fmt: skip


async def test_bounds_are_kept_by_the_relays_one_timer() -> None:
    async with running_relay(settings={"ring_bound_ms": 50}) as relay, AsyncExitStack() as stack:
        scene = Scene(relay)
        await scene.set(stack)
        call_id = await scene.ring()
        error = await scene.caller.next()
        assert (error["code"], error["call_id"]) == ("timeout", call_id)
        assert await scene.listener.next() == {"type": "cancel_call", "call_id": call_id}
        assert (await scene.record(scene.alice, call_id)).json()["state"] == "expired"


async def test_a_caller_that_comes_back_is_told_the_end(scene: Scene) -> None:
    request = scene.alice.request()
    await scene.caller.send(request)
    call_id = (await scene.listener.next())["call_id"]
    await scene.caller.socket.close()
    await scene.report("call_started", call_id)
    outcome = scene.bob.outcome(call_id)
    await scene.listener.send(outcome)
    async with scene.alice.calling("bob") as line:
        await line.send(request)
        assert (await line.next())["call_id"] == call_id
        assert await line.next() == outcome
