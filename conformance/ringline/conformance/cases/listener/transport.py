"""TRANSPORT: how a listener connects, under which journal, and when it comes back."""

import re
import time
from typing import Final

import msgspec

from ringline.conformance.listener_scene import Scene
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.registry import Level, case
from ringline.conformance.verdict import Failed, check
from ringline.conformance.websocket import PING, TEXT, unmasked

__all__ = [
    "answers_pings",
    "asks_for_a_connection_in_good_order",
    "comes_back",
    "gives_a_copied_journal_another_name",
    "holds_its_journal_alone",
    "keeps_its_instance_over_its_own_end",
    "reads_fragments",
    "sends_nothing_without_the_subprotocol",
    "stays_away_when_it_was_replaced",
    "stays_away_when_its_card_is_revoked",
    "waits_as_long_as_it_is_told",
]

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_WHOLE: Final = re.compile(r"[1-9][0-9]*")
_AWAY_S: Final = 2.0
"""For so long something that must not be dialled is waited for."""


@case(requirements=("RL-TRANSPORT-002", "RL-TRANSPORT-008", "RL-EXT-002"))
async def asks_for_a_connection_in_good_order(stage: ListenerStage) -> None:
    """The upgrade offers `ringline.v1`, and its query has an instance, a boot and a capacity, once each."""
    scene = await Scene.set(stage, own=True)
    asked = scene.house.dialled.asked
    check(asked.path == f"/v1/listen/{scene.house.handle}", "the path of its own handle", asked.path)
    offered = [each.strip() for each in asked.headers.get("sec-websocket-protocol", "").split(",")]
    check("ringline.v1" in offered, "the subprotocol ringline.v1", offered)
    query = scene.house.query
    check(set(query) == {"instance", "boot", "capacity"}, "instance, boot and capacity alone", query)
    check(all(len(values) == 1 for values in query.values()), "each once", query)
    for name in ("instance", "boot"):
        check(_UUID.fullmatch(query[name][0]) is not None, f"a UUID of version 4 as {name}", query)
    capacity = query["capacity"][0]
    check(bool(_WHOLE.fullmatch(capacity)) and int(capacity) <= 1_000, "a capacity of 1 to 1000", capacity)


@case(requirements=("RL-TRANSPORT-015", "RL-TRANSPORT-018"))
async def keeps_its_instance_over_its_own_end(stage: ListenerStage) -> None:
    """A connection of the same process has the same boot; one of the next has another, with one instance."""
    scene = await Scene.set(stage, own=True)
    first = scene.house.query
    await scene.lose()
    second = scene.house.query
    check(second["instance"] == first["instance"], "the same instance", second)
    check(second["boot"] == first["boot"], "the same boot in one process", second)
    await scene.house.stop()
    await scene.house.start()
    third = scene.house.query
    check(third["instance"] == first["instance"], "the same instance", third)
    check(third["boot"] != first["boot"], "another boot in another process", third)


@case(requirements=("RL-TRANSPORT-016",))
async def gives_a_copied_journal_another_name(stage: ListenerStage) -> None:
    """A listener that is started on a copy of its state folder connects under another instance."""
    scene = await Scene.set(stage, own=True)
    first = scene.house.query
    await scene.works()
    await scene.house.stop()
    await scene.house.start(scene.house.copied())
    check(scene.house.query["instance"] != first["instance"], "another instance", scene.house.query)


@case(requirements=("RL-TRANSPORT-017",))
async def holds_its_journal_alone(stage: ListenerStage) -> None:
    """A second process on the same state folder does not connect under the instance of the first."""
    scene = await Scene.set(stage, own=True)
    instance = scene.house.query["instance"]
    second = await scene.house.spawn()
    try:
        dialled = await scene.house.relay.next_dialled(_AWAY_S * 2)
    except Failed:
        dialled = None
    if dialled is not None:
        check(dialled.asked.query["instance"] != instance, "another instance, or none", dialled.asked.target)
    await second.kill()
    await scene.works()


@case(requirements=("RL-TRANSPORT-005",))
async def sends_nothing_without_the_subprotocol(stage: ListenerStage) -> None:
    """A connection whose handshake selected no subprotocol, or another one, is closed without a frame."""
    scene = await Scene.set(stage, own=True)
    for selected in (None, "ringline.v2"):
        scene.house.relay.subprotocol = selected
        await scene.line.break_off()
        line = await scene.house.connected()
        frames = await line.drain_until_end()
        check(not frames, "no frame", frames)


@case(requirements=("RL-TRANSPORT-034",))
async def answers_pings(stage: ListenerStage) -> None:
    """A ping is answered by a pong with the same bytes."""
    scene = await Scene.set(stage)
    socket = scene.line.socket
    for payload in (b"", b"ringline", bytes(range(125))):
        socket.send(payload, opcode=PING)
    await scene.line.quiet()
    pongs = [socket.pongs.get_nowait() for _ in range(socket.pongs.qsize())]
    check(bytes(range(125)) in pongs, "a pong with the bytes of the ping", pongs)


@case(requirements=("RL-TRANSPORT-022",))
async def reads_fragments(stage: ListenerStage) -> None:
    """A call that comes in fragments is answered, by whole frames as text."""
    scene = await Scene.set(stage)
    sent = scene.seal()
    data = msgspec.json.encode(sent.frame)
    first, second, third = data[:7], data[7:900], data[900:]
    scene.line.socket.send_bytes(
        unmasked(TEXT, first, fin=False) + unmasked(0, second, fin=False) + unmasked(0, third)
    )
    await scene.reply(sent)


@case(requirements=("RL-TRANSPORT-040",))
async def stays_away_when_it_was_replaced(stage: ListenerStage) -> None:
    """A connection that was closed with 4000 is not dialled again."""
    await _stays_away(await Scene.set(stage, own=True), 4000, "replaced")


@case(requirements=("RL-TRANSPORT-041",))
async def stays_away_when_its_card_is_revoked(stage: ListenerStage) -> None:
    """A connection that was closed with 4001 is not dialled again under the same card."""
    scene = await Scene.set(stage, own=True)
    await _stays_away(scene, 4001, "revoked")


async def _stays_away(scene: Scene, code: int, reason: str) -> None:
    scene.line.socket.close(code, reason)
    dialled = None
    if not await scene.house.process.wait(_AWAY_S):
        try:
            dialled = await scene.house.relay.next_dialled(_AWAY_S)
        except Failed:
            dialled = None
    check(dialled is None, f"no other connection after {code}", "it dials again")


@case(Level.SHOULD, requirements=("RL-TRANSPORT-042",))
async def comes_back(stage: ListenerStage) -> None:
    """A connection that broke, or was closed with 1000, 1001 or 1011, is dialled again."""
    scene = await Scene.set(stage, own=True)
    for code in (0, 1000, 1011):
        if code:
            scene.line.socket.close(code)
        else:
            await scene.line.break_off()
        await scene.house.connected()
        await scene.works()


@case(Level.SHOULD, requirements=("RL-TRANSPORT-039",))
async def waits_as_long_as_it_is_told(stage: ListenerStage) -> None:
    """A relay that closes with 1001 and `retry=2000` is not dialled sooner than after two seconds."""
    scene = await Scene.set(stage, own=True)
    began = time.monotonic()
    scene.line.socket.close(1001, "retry=2000")
    await scene.house.connected()
    waited = time.monotonic() - began
    check(waited >= 2.0, "two seconds before it dials again", f"{waited:.2f} s")
