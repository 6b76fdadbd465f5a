"""Frames that are read: what a relay refuses, how it says so, and what that leaves as it was."""

from collections.abc import Iterable
from typing import Any

import msgspec

from ringline.conformance.identity import LEFT_OUT, fresh_id
from ringline.conformance.line import Frame, Line
from ringline.conformance.registry import case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import Failed, check
from ringline.conformance.websocket import TEXT, masked
from ringline.protocol.encoding import b64encode

__all__: list[str] = []

_A_FEW = 16


async def _refuses(stage: RelayStage, scene: Scene, damaged: Iterable[Frame | bytes | str]) -> None:
    """Send each as alice: each must be refused, and the connection serve on.

    A new connection is taken now and then, since one that goes on like this is closed.
    """
    line = scene.caller
    for count, message in enumerate(damaged, start=1):
        if count % _A_FEW == 0:
            line = await scene.another_caller()
        await line.send(message)
        await line.refused()
    await scene.ring(line)


def _text(frame: Frame) -> str:
    return msgspec.json.encode(frame).decode()


def _without(frame: Frame, name: str) -> Frame:
    return {key: value for key, value in frame.items() if key != name}


@case(requirements=("RL-FRAME-001", "RL-FRAME-015", "RL-FRAME-020"))
async def frame_of_another_direction_is_refused(stage: RelayStage) -> None:
    """A caller's frame of an unknown type, or of one that only others send, is refused."""
    scene = await Scene.set(stage)
    ids = {"call_id": "c", "correlation_id": fresh_id()}
    others: list[Frame] = [
        {"type": "hello"},
        {"type": ""},
        {"type": "Call_Request"},
        {"type": "call_status", "state": "ringing"} | ids,
        {"type": "call_error", "origin": "relay", "code": "timeout"} | ids,
        {"type": "call_accepted", "call_id": "c"},
        {"type": "call_started", "call_id": "c"},
        {"type": "call_cancelled", "call_id": "c", "phase": "running"},
        {"type": "call_rejected", "call_id": "c", "code": "protocol_error"},
        scene.alice.outcome("c"),
        _without(scene.alice.request(), "type"),
    ]
    await _refuses(stage, scene, others)


@case(requirements=("RL-FRAME-001",))
async def listener_speaks_no_callers_frames(stage: RelayStage) -> None:
    """A listener's frame of a type that only callers or the relay send is refused."""
    scene = await Scene.set(stage)
    for frame in (
        scene.bob.request(),
        {"type": "cancel_call", "call_id": "c"},
        {"type": "incoming_call", "call_id": "c"},
        {"type": "call_error", "origin": "relay", "code": "timeout"},
    ):
        await scene.listener.send(frame)
        await scene.listener.refused()
    await scene.ring()


@case(requirements=("RL-FRAME-002",))
async def unknown_member_is_refused(stage: RelayStage) -> None:
    """A frame with a member that its type does not have, in the envelope too, is refused."""
    scene = await Scene.set(stage)
    alice = scene.alice
    await _refuses(
        stage,
        scene,
        [
            alice.request(extra=1),
            alice.request(Message_id="x"),
            alice.request(call_id="c"),
            alice.request(lease_id="0f0e0d0c-0b0a-4908-8706-050403020100"),
            alice.request(to=scene.bob.handle),
            {"from": alice.handle} | alice.request(),
            alice.request(envelope={"extra": 1}),
            alice.request(envelope={"alg": "none"}),
            {"type": "cancel_call", "call_id": "c", "reason": "changed my mind"},
        ],
    )


@case(requirements=("RL-FRAME-003",))
async def member_that_occurs_twice_is_refused(stage: RelayStage) -> None:
    """A frame in which a name occurs twice, in the envelope or escaped or with equal values, is refused."""
    scene = await Scene.set(stage)
    request = scene.alice.request()
    text = _text(request)
    correlation = request["correlation_id"]
    traced = _text(scene.alice.request(traceparent="a:b"))
    await _refuses(
        stage,
        scene,
        [
            '{"type":"cancel_call",' + text[1:],
            '{"type":"call_request",' + text[1:],
            text[:-1] + f',"correlation_id":"{correlation}"}}',
            text[:-1] + f',"correlation_i\\u0064":"{fresh_id()}"}}',
            text.replace('"v":1', '"v":1,"v":1'),
            text.replace('"v":1', '"v":1,"sui\\u0074e":1'),
            traced[:-1] + ',"traceparent":"c:d"}',
            traced.replace('"v":1', '"v":1,"exp":9007199254740991'),
        ],
    )


@case(requirements=("RL-FRAME-004",))
async def missing_member_is_refused(stage: RelayStage) -> None:
    """A frame without a member that its type requires is refused."""
    scene = await Scene.set(stage)
    request = scene.alice.request()
    await _refuses(
        stage,
        scene,
        [
            *(_without(request, name) for name in ("envelope", "correlation_id")),
            *(scene.alice.request(envelope={name: LEFT_OUT}) for name in request["envelope"]),
            {"type": "cancel_call"},
        ],
    )


@case(requirements=("RL-FRAME-005",))
async def null_and_wrong_types_are_refused(stage: RelayStage) -> None:
    """A member that is null, or of another type than its own, is refused."""
    scene = await Scene.set(stage)
    alice, envelope = scene.alice, scene.alice.request()["envelope"]
    damaged: list[Frame] = [
        alice.request() | {name: None}
        for name in ("type", "correlation_id", "message_id", "delivery_mode", "traceparent")
    ]
    damaged += [alice.request(envelope={name: None}) for name in envelope]
    damaged += [
        alice.request(message_id=7),
        alice.request(correlation_id=[fresh_id()]),
        alice.request(delivery_mode=True),
        alice.request() | {"envelope": None},
        alice.request() | {"envelope": [envelope]},
        alice.request() | {"envelope": _text(envelope)},
        alice.request(envelope={"v": "1"}),
        alice.request(envelope={"v": True}),
        alice.request(envelope={"suite": "2"}),
        alice.request(envelope={"iat": str(alice.now())}),
        alice.request(envelope={"ct": 1}),
    ]
    await _refuses(stage, scene, damaged)


@case(requirements=("RL-FRAME-006", "RL-CONV-001", "RL-NAME-001"))
async def pattern_is_matched_in_full(stage: RelayStage) -> None:
    """A name that does not match its pattern in full, a line feed at its end included, is refused."""
    scene = await Scene.set(stage)
    alice, good = scene.alice, fresh_id()
    hexes = (f"{good}\n", good[:-1], f"{good}0", "g" * 32, "0" * 32, good[:-1] + "A", good[:-1] + "٣", "")
    ids = (f"{alice.card_id}\n", alice.card_id[:-1], f"{alice.card_id}=", alice.card_id[:-1] + "B", "")
    await _refuses(
        stage,
        scene,
        [
            *(alice.request(message_id=text) for text in hexes),
            *(alice.request(correlation_id=text) for text in hexes),
            *(alice.request(envelope={"sid": text}) for text in ids),
            *(alice.request(envelope={"kid": text}) for text in ids),
            alice.request(delivery_mode="sync\n"),
            alice.request(delivery_mode="Sync"),
            {"type": "cancel_call", "call_id": ""},
            {"type": "cancel_call", "call_id": "a" * 65},
            {"type": "cancel_call", "call_id": "a\n"},
            {"type": "cancel_call", "call_id": "a.b"},
        ],
    )


@case(requirements=("RL-FRAME-007",))
async def integer_out_of_range_is_refused(stage: RelayStage) -> None:
    """An integer below 0, above 2^53 - 1, with a fraction or an exponent is refused."""
    scene = await Scene.set(stage)
    request = scene.alice.request()
    text, iat, exp = _text(request), request["envelope"]["iat"], request["envelope"]["exp"]
    numbers = ("-1", "9007199254740992", "1e3", "1.5", f"{iat}.0", "1" * 400, "0x10", "01", "NaN", "-0.0")
    await _refuses(
        stage,
        scene,
        [
            *(text.replace(f'"iat":{iat}', f'"iat":{number}') for number in numbers),
            # An iat that is too large is behind its exp, and could be refused for that.
            *(text.replace(f'"exp":{exp}', f'"exp":{number}') for number in ("9007199254740992", "1" * 400)),
            text.replace('"suite":2', '"suite":2.0'),
            text.replace('"suite":2', '"suite":-2'),
            text.replace('"v":1', '"v":2'),
            text.replace('"v":1', '"v":1.0'),
        ],
    )


@case(requirements=("RL-FRAME-008",))
async def message_that_is_no_object_is_refused(stage: RelayStage) -> None:
    """A text message that is not one JSON object is refused."""
    scene = await Scene.set(stage)
    text = _text(scene.alice.request())
    await _refuses(
        stage,
        scene,
        ["", " ", "hello", "[]", f"[{text}]", "null", "1", '"call_request"', text[:-1], f"{text}{text}"]
        + [f"{text}x", text.replace('"', "'"), text[:-1] + ",}", "{}", "﻿" + text, "[" * 100_000],
    )


@case(requirements=("RL-FRAME-009",))
async def binary_message_is_refused(stage: RelayStage) -> None:
    """A binary message is refused, whatever is in it."""
    scene = await Scene.set(stage)
    for line in (scene.caller, scene.listener):
        for payload in (b"", b"\x00\xff", msgspec.json.encode(scene.alice.request())):
            await line.send_binary(payload)
            await line.refused(correlation_id=None)
    await scene.ring()


@case(requirements=("RL-FRAME-010",))
async def text_that_is_not_utf8_is_refused_or_ends_the_connection(stage: RelayStage) -> None:
    """A text message that is not UTF-8 is refused, or closes the connection with 1007."""
    scene = await Scene.set(stage)
    text = msgspec.json.encode(scene.alice.request(traceparent="x"))
    damaged = (b"\xff\xfe", text.replace(b'"x"', b'"\xc3"'), text.replace(b'"x"', b'"\xed\xa0\x80"'))
    for payload in (*damaged, text.replace(b'"x"', b'"\xc0\x80"')):
        line = await scene.another_caller()
        await line.send_raw(masked(TEXT, payload), "text that is not UTF-8")
        frames = [] if line.ended else await _next_or_end(line)
        if frames:
            check(
                (frames[0].get("type"), frames[0].get("code")) == ("call_error", "protocol_error"),
                "a refusal or an end",
                repr(frames[0]),
            )
        else:
            line.judge_end(1007)
    await scene.ring()


async def _next_or_end(line: Line) -> list[Frame]:
    """Return the next frame, or none when the connection ends instead."""
    try:
        return [await line.next()]
    except Failed:
        if line.ended is None:
            raise
        return []


@case(requirements=("RL-FRAME-011",))
async def lone_surrogate_is_refused(stage: RelayStage) -> None:
    """A frame with half of a surrogate pair in a text is refused."""
    scene = await Scene.set(stage)
    text = _text(scene.alice.request(traceparent="x"))
    escapes = ("\\ud800", "\\udc00", "\\ud800\\ud800", "\\udc00\\ud800", "a\\uDBFFb")
    await _refuses(stage, scene, [text.replace('"x"', f'"{escape}"') for escape in escapes])


@case(requirements=("RL-FRAME-012", "RL-FRAME-013"))
async def refusal_names_a_correlation_id_only_of_a_request(stage: RelayStage) -> None:
    """A refusal has a `correlation_id` if a `call_request` named a good one, and never a `call_id`."""
    scene = await Scene.set(stage)
    alice, caller = scene.alice, scene.caller
    for damaged in (alice.request(extra=1), alice.request(envelope={"v": 2}), alice.request(call_id="c")):
        await caller.send(damaged)
        await caller.refused(correlation_id=damaged["correlation_id"])
    some = fresh_id()
    nameless: list[Frame | str] = [
        {"type": "cancel_call", "correlation_id": some},
        {"type": "hello", "correlation_id": some},
        {"type": "call_status", "state": "ringing", "call_id": "c", "correlation_id": some},
        _without(alice.request(extra=1), "type"),
        alice.request(correlation_id="0" * 32),
        alice.request(correlation_id=f"{some}\n"),
        f'{{"type":"call_request","correlation_id":"{some}"',
    ]
    for frame in nameless:
        await caller.send(frame)
        await caller.refused(correlation_id=None)
    await scene.listener.send(alice.request())
    await scene.listener.refused()


@case(requirements=("RL-FRAME-014", "RL-FRAME-015"))
async def refused_frame_changes_no_call(stage: RelayStage) -> None:
    """A refused frame about a call leaves the call as it is, on either side."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    outcome = scene.bob.outcome(call_id)
    for damaged in (
        {"type": "call_accepted", "call_id": call_id, "extra": 1},
        {"type": "call_started", "call_id": f"{call_id}\n"},
        {"type": "call_rejected", "call_id": call_id, "code": "busy"},
        {"type": "call_rejected", "call_id": call_id},
        {"type": "call_cancelled", "call_id": call_id, "phase": "later"},
        {"type": "call_not_cancelled", "call_id": call_id, "reason": "no"},
        outcome | {"terminal": "canceled"},
        outcome | {"terminal_reason": "done"},
        outcome | {"envelope": outcome["envelope"] | {"extra": 1}},
        _without(outcome, "envelope"),
        outcome | {"lease_id": "x"},
    ):
        await scene.listener.send(damaged)
        await scene.listener.refused()
    await scene.caller.send({"type": "cancel_call", "call_id": call_id, "extra": 1})
    await scene.caller.refused()
    await scene.listener.quiet("the call goes on")
    await scene.caller.quiet("the call goes on")
    await scene.work(call_id)
    await scene.complete(call_id)


@case(requirements=("RL-FRAME-016",))
async def refused_frame_after_twenty_others_is_the_last(stage: RelayStage) -> None:
    """The refused frame behind 20 others within a minute is answered, and then the end: 1008 `frames`."""
    scene = await Scene.set(stage)
    for line in (scene.caller, scene.listener):
        for _ in range(stage.bound("undecodable_frames") + 1):
            await line.send("x")
        for _ in range(stage.bound("undecodable_frames") + 1):
            await line.refused()
        await line.closed(1008, reason="frames")


@case(requirements=("RL-FRAME-016", "RL-FRAME-015"))
async def twenty_refused_frames_are_survived(stage: RelayStage) -> None:
    """A connection with 20 refused frames is served like any other."""
    scene = await Scene.set(stage)
    for line in (scene.caller, scene.listener):
        for _ in range(stage.bound("undecodable_frames")):
            await line.send("x")
            await line.refused()
    await scene.complete(await _worked(scene))


async def _worked(scene: Scene) -> str:
    call_id = await scene.ring()
    await scene.work(call_id)
    return call_id


@case(requirements=("RL-FRAME-016",))
async def refused_requests_and_damaged_ones_are_counted_apart(stage: RelayStage) -> None:
    """Requests that admission refuses do not count towards the 20 refused frames."""
    alice = await stage.identity("alice")
    line = await stage.call_line(alice, stage.handle("nobody"))
    envelope = {"sid": b64encode(bytes(32))}
    for _ in range(stage.bound("undecodable_frames") + 5):
        await line.send(alice.request(envelope=envelope))
        await line.refused()
    await line.quiet()


@case(requirements=("RL-FRAME-051", "RL-SYNC-010"))
async def frames_about_unknown_calls_are_not_counted(stage: RelayStage) -> None:
    """Frames about calls that are unknown, over or stale are answered each, and not counted."""
    scene = await Scene.set(stage)
    lease: dict[str, Any] = {"lease_id": "0f0e0d0c-0b0a-4908-8706-050403020100"}
    for count in range(stage.bound("undecodable_frames") + 5):
        await scene.report("call_started", f"unknown-{count}")
        await scene.listener.expect("cancel_call", call_id=f"unknown-{count}", lease_id=None)
        await scene.report("call_started", f"stale-{count}", **lease)
        await scene.listener.expect("call_rejected", call_id=f"stale-{count}", code="protocol_error", **lease)
    await scene.ring()


@case(requirements=("RL-FRAME-047", "RL-FRAME-049", "RL-FRAME-051"))
async def illegal_outcomes_are_not_counted(stage: RelayStage) -> None:
    """Outcomes that may not be are refused one by one, without end and without effect on the call."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    for _ in range(stage.bound("undecodable_frames") + 5):
        await scene.send_outcome(call_id)
        await scene.listener.refused()
    await scene.work(call_id)
    await scene.complete(call_id)
