"""FRAME: frames of the relay that break the form."""

import json
from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

from ringline.conformance.identity import LEFT_OUT, fresh_id, now_ms
from ringline.conformance.line import Frame
from ringline.conformance.listener_scene import MINUTE, Scene
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.registry import case

__all__ = [
    "closes_after_twenty_refused_frames",
    "refuses_a_half_durable_offer",
    "refuses_an_envelope_of_another_form",
    "refuses_frames_in_silence",
    "serves_on_after_nineteen_refused_frames",
]

_MOST: Final = 20


def _with(frame: Frame, **members: Any) -> Frame:
    return {name: value for name, value in (frame | members).items() if value is not LEFT_OUT}


def _broken(scene: Scene) -> Iterator[str | bytes | Frame]:
    """Offers in good order but for one thing each."""
    good = scene.seal().frame
    text = json.dumps(good)
    yield _with(good, type="call_offer")
    yield {"type": "call_request"} | _with(good, type="call_request", call_id=LEFT_OUT, **{"from": LEFT_OUT})
    yield _with(good, more=1)
    yield text.replace('"call_id"', f'"call_id": "{good["call_id"]}", "call_id"', 1)
    yield text.replace('"suite"', '"suite": 2, "suite"', 1)
    yield _with(good, **{"from": LEFT_OUT})
    yield _with(good, message_id=None)
    yield _with(good, message_id=good["message_id"].upper() + "\n")
    yield _with(good, message_id="0" * 32)
    yield _with(good, correlation_id=good["correlation_id"] + "\n")
    yield _with(good, call_id="")
    yield _with(good, **{"from": "Alice"})
    yield text.replace(f'"iat": {good["envelope"]["iat"]}', f'"iat": {good["envelope"]["iat"]}.0', 1)
    yield text.replace(f'"iat": {good["envelope"]["iat"]}', '"iat": -1', 1)
    yield text.replace(f'"iat": {good["envelope"]["iat"]}', '"iat": 9007199254740992', 1)
    yield _with(good, traceparent="\ud800")
    yield text + text
    yield f"[{text}]"
    yield text[:-1]


@case(
    requirements=(
        "RL-FRAME-001",
        "RL-FRAME-002",
        "RL-FRAME-003",
        "RL-FRAME-004",
        "RL-FRAME-005",
        "RL-FRAME-006",
        "RL-FRAME-007",
        "RL-FRAME-008",
        "RL-FRAME-011",
        "RL-FRAME-017",
        "RL-FRAME-019",
        "RL-CONV-001",
    )
)
async def refuses_frames_in_silence(stage: ListenerStage) -> None:
    """A frame that breaks the form is not answered, takes nothing up, and ends no connection."""
    scene = await Scene.set(stage, own=True)
    for frame in _broken(scene):
        if isinstance(frame, dict):
            # A surrogate by itself is written as an escape, since UTF-8 has no bytes for it.
            await scene.line.send(json.dumps(frame))
        else:
            await scene.line.send(frame)
        await scene.line.quiet("a refused frame is not answered")
    await scene.works()


@case(requirements=("RL-FRAME-055", "RL-FRAME-017"))
async def refuses_a_half_durable_offer(stage: ListenerStage) -> None:
    """An offer with some and not all members of a durable call, or with mode `sync`, is not answered."""
    scene = await Scene.set(stage, own=True)
    lease = {"lease_id": str(uuid4())}
    until = {"execute_by": now_ms() + MINUTE}
    mode = {"delivery_mode": "durable"}
    for members in (
        {"delivery_mode": "sync"},
        {"delivery_mode": "sync"} | lease | until,
        lease,
        until,
        lease | until,
        mode,
        mode | lease,
        mode | until,
        mode | lease | until | {"message_id": LEFT_OUT},
    ):
        await scene.line.send(_with(scene.seal().frame, **members))
        await scene.line.quiet("the offer is of neither mode")
    await scene.works()


@case(requirements=("RL-FRAME-017", "RL-FRAME-006"))
async def refuses_an_envelope_of_another_form(stage: ListenerStage) -> None:
    """An offer whose envelope is of another version or shape is not answered at all."""
    scene = await Scene.set(stage, own=True)
    for clear in (
        {"v": 2},
        {"v": LEFT_OUT},
        {"suite": 65_536},
        {"suite": "2"},
        {"kid": "AAAA"},
        {"sid": LEFT_OUT},
        {"ct": ""},
        {"more": 1},
    ):
        await scene.line.send(scene.seal(clear=clear).frame)
        await scene.line.quiet(f"its envelope was changed in {', '.join(clear)}")
    await scene.works()


@case(requirements=("RL-FRAME-018",))
async def closes_after_twenty_refused_frames(stage: ListenerStage) -> None:
    """The twentieth refused frame on a connection ends it with 1008."""
    scene = await Scene.set(stage, own=True)
    for _ in range(_MOST):
        await scene.line.send({"type": "hello", "call_id": fresh_id()})
    await scene.line.closed(1008)
    await scene.house.connected()
    await scene.works()


@case(requirements=("RL-FRAME-019",))
async def serves_on_after_nineteen_refused_frames(stage: ListenerStage) -> None:
    """Nineteen refused frames, with good ones between them, do not end a connection."""
    scene = await Scene.set(stage, own=True)
    for number in range(_MOST - 1):
        await scene.line.send({"type": "hello", "call_id": fresh_id()})
        if number % 6 == 0:
            await scene.line.quiet()
    await scene.works()
