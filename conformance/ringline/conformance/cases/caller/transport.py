"""TRANSPORT: a caller's connections, and what it makes of their ends."""

import asyncio
import time

from ringline.conformance.caller_scene import Scene
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.registry import Level, case
from ringline.conformance.verdict import Failed, check
from ringline.conformance.websocket import PING

__all__: list[str] = []


@case(requirements=("RL-TRANSPORT-002",))
async def the_subprotocol_is_offered(stage: CallerStage) -> None:
    """A caller asks for `/v1/call/{callee}` with the subprotocol `ringline.v1`, and with no query."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order, taken = await scene.ring(bob)
    await taken.answer()
    await scene.replied(order)
    # Another connection to somebody of an earlier case is none of its business.
    asked = next(each for each in scene.house.relay.upgrades if bob.handle in each.path)
    offered = [each.strip() for each in asked.headers.get("sec-websocket-protocol", "").split(",")]
    check("ringline.v1" in offered, "ringline.v1 among the subprotocols", offered)
    check(asked.target == f"/v1/call/{bob.handle}", f"/v1/call/{bob.handle}", asked.target)


@case(requirements=("RL-TRANSPORT-005",))
async def another_subprotocol_is_not_spoken(stage: CallerStage) -> None:
    """A connection whose handshake selected nothing, or something else, is closed before a frame is sent."""
    for selected in (None, "other.v1"):
        scene = await Scene.set(stage, own=True)
        bob = scene.peer()
        scene.house.relay.subprotocol = selected
        order = await scene.call(bob, timeout_ms=2_500)
        await scene.end(order, "local")
        bob.nothing_more(f"the handshake selected {selected}")
        for line in bob.lines:
            await bob.ended(line)


@case(requirements=("RL-TRANSPORT-034",))
async def a_ping_is_answered(stage: CallerStage) -> None:
    """A WebSocket ping is answered with a pong of the same bytes."""
    scene = await Scene.set(stage)
    order, taken = await scene.ring(scene.peer())
    payload = b"\0\xff of the suite"
    taken.line.socket.send(payload, opcode=PING)
    try:
        async with asyncio.timeout(stage.patience.answer):
            while await taken.line.socket.pongs.get() != payload:
                pass
    except TimeoutError:
        raise Failed("a pong with the bytes of the ping", "none in time") from None
    await taken.answer()
    await scene.replied(order)


@case(requirements=("RL-TRANSPORT-040",))
async def a_replaced_connection_is_not_dialled_again(stage: CallerStage) -> None:
    """In place of a connection that was closed with 4000 no other is opened."""
    await not_dialled_again(stage, 4000)


@case(requirements=("RL-TRANSPORT-041",))
async def a_revoked_caller_does_not_dial_again(stage: CallerStage) -> None:
    """After a connection was closed with 4001 none is opened under that card."""
    await not_dialled_again(stage, 4001)


async def not_dialled_again(stage: CallerStage, code: int) -> None:
    """Pass when a call ends with its connection, and no other is opened for it."""
    scene = await Scene.set(stage, own=True)
    bob = scene.peer()
    order, taken = await scene.ring(bob, timeout_ms=10_000)
    scene.records[taken.call_id] = taken.record("started", ended=False)
    taken.line.socket.close(code)
    await bob.ended(taken.line)
    said = await order.end(scene.patient * 2)
    check(said["end"] in ("local", "relay"), "an error", said)
    dialled = len(scene.house.relay.upgrades)
    check(dialled == 1, "no other connection", f"{dialled} connections")


@case(Level.SHOULD, requirements=("RL-TRANSPORT-039", "RL-TRANSPORT-042"))
async def a_stopping_relay_is_left_alone_as_long_as_it_asks(stage: CallerStage) -> None:
    """After a close with 1001 and `retry=2000` the next connection comes, and not before two seconds."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order = await scene.call(bob)
    taken = await scene.request(order, bob)
    began = time.monotonic()
    taken.line.socket.close(1001, "retry=2000")
    again = await scene.request(order, bob)
    waited = time.monotonic() - began
    check(waited >= 1.9, "2 s before the next connection", f"{waited:.2f} s")
    await again.status()
    await again.answer()
    await scene.replied(order)


@case(Level.SHOULD, requirements=("RL-TRANSPORT-042",))
async def any_other_end_is_followed_by_another_connection(stage: CallerStage) -> None:
    """After a close with 1011, or without one, the call goes on over another connection."""
    scene = await Scene.set(stage)
    for code in (1000, 1011, None):
        bob = scene.peer()
        order = await scene.call(bob)
        taken = await scene.request(order, bob)
        if code is None:
            await taken.line.break_off()
        else:
            taken.line.socket.close(code)
        again = await scene.request(order, bob)
        await again.status()
        await again.answer()
        await scene.replied(order)
