"""Idempotency: the same sealed bytes are the same call, and nothing else under their name is."""

import asyncio

from ringline.conformance.identity import fresh_id
from ringline.conformance.line import Frame
from ringline.conformance.registry import Needs, case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check

__all__: list[str] = []

_DURABLE = Needs(features=("durable",))


def _variants(request: Frame) -> list[Frame]:
    """Return requests under the same name that are not the same."""
    envelope = request["envelope"]
    ct: str = envelope["ct"]
    changed = [
        {"suite": 1},
        {"kid": "B" * 42 + "A"},
        {"iat": envelope["iat"] + 1},
        {"exp": envelope["exp"] + 1},
        {"ct": ct + "A"},
        {"ct": ("B" if ct[0] != "B" else "C") + ct[1:]},
        {"ct": ct[:-1] + "B"},
        {"ct": ct[:1_999] + "B" + ct[2_000:]},
        {"ct": ct[:-60] + "B" + ct[-59:]},
    ]
    return [request | {"envelope": envelope | change} for change in changed] + [
        request | {"correlation_id": fresh_id()}
    ]


@case(requirements=("RL-IDEM-001", "RL-IDEM-008"))
async def fifty_equal_requests_are_one_call(stage: RelayStage) -> None:
    """Fifty equal requests at once, on several connections, become one call that is offered once."""
    scene = await Scene.set(stage, capacity=60)
    lines = [scene.caller, *[await scene.another_caller() for _ in range(4)]]
    request = scene.alice.request()
    await asyncio.gather(*(line.send(request) for line in lines for _ in range(10)))
    ids = {(await line.expect("call_status", state="ringing"))["call_id"] for line in lines}
    check(len(ids) == 1, "one call", repr(ids))
    call_id = ids.pop()
    await scene.listener.expect("incoming_call", call_id=call_id)
    await scene.listener.quiet("it is one call")
    for line in lines:
        await line.quiet("its first answer was told")


@case(requirements=("RL-IDEM-008", "RL-IDEM-006", "RL-DURABLE-001"), needs=_DURABLE)
async def fifty_equal_durable_requests_are_one_call(stage: RelayStage) -> None:
    """Fifty equal durable requests at once become one stored call, with one receipt for all."""
    scene = await Scene.set(stage, offline=True, capacity=60)
    lines = [scene.caller, *[await scene.another_caller() for _ in range(4)]]
    request = scene.alice.request(delivery_mode="durable")
    await asyncio.gather(*(line.send(request) for line in lines for _ in range(10)))
    receipts: set[tuple[object, ...]] = set()
    for line in lines:
        for _ in range(10):
            frame = await line.next()
            if frame["type"] == "call_queued":
                receipts.add((frame["call_id"], frame["submitted_at"], frame["expires_at"]))
    check(len(receipts) == 1, "one receipt", repr(receipts))
    await scene.listener.expect("incoming_call", delivery_mode="durable")
    await scene.listener.quiet("it is one call")
    listed = (await stage.ask(scene.alice, "GET", "/v1/calls")).json()["calls"]
    check(len(listed) == 1, "one record", repr(len(listed)))


@case(requirements=("RL-IDEM-002", "RL-IDEM-003"))
async def another_message_under_a_known_name_is_refused(stage: RelayStage) -> None:
    """A request under a known `message_id` that differs in anything it is told apart by is refused."""
    scene = await Scene.set(stage)
    request = await scene.send_request(ct_chars=4_000)
    status = await scene.caller.expect("call_status", state="ringing")
    await scene.listener.expect("incoming_call", call_id=status["call_id"])
    for other in _variants(request):
        await scene.caller.send(other)
        await scene.caller.refused("protocol_error", correlation_id=other["correlation_id"])
    await scene.listener.quiet("nothing else was admitted")
    await scene.work(status["call_id"])
    await scene.complete(status["call_id"])
    await scene.caller.send(_variants(request)[0])
    await scene.caller.refused("protocol_error")


@case(requirements=("RL-IDEM-002", "RL-IDEM-003"), needs=_DURABLE)
async def another_durable_message_under_a_known_name_is_refused(stage: RelayStage) -> None:
    """A durable request under a known `message_id` that differs is refused, and so is the other mode."""
    scene = await Scene.set(stage, offline=True, listening=False)
    request = await scene.send_request(delivery_mode="durable", ct_chars=4_000)
    await scene.caller.expect("call_queued")
    sync = {name: value for name, value in request.items() if name != "delivery_mode"}
    for other in [*_variants(request), sync]:
        await scene.caller.send(other)
        await scene.caller.refused("protocol_error", correlation_id=other["correlation_id"])
    listed = (await stage.ask(scene.alice, "GET", "/v1/calls")).json()["calls"]
    check(len(listed) == 1, "one record", repr(len(listed)))


@case(requirements=("RL-IDEM-002",), needs=_DURABLE)
async def sync_message_does_not_become_durable(stage: RelayStage) -> None:
    """A durable request under the `message_id` of a sync call is refused."""
    scene = await Scene.set(stage, offline=True)
    request = await scene.send_request()
    await scene.caller.expect("call_status", state="ringing")
    await scene.listener.expect("incoming_call")
    await scene.caller.send(request | {"delivery_mode": "durable"})
    await scene.caller.refused("protocol_error")
    await scene.listener.quiet("nothing was stored")


@case(requirements=("RL-IDEM-001",))
async def absent_and_named_sync_mode_are_one(stage: RelayStage) -> None:
    """A repeated request that now names its mode `sync` is the same message."""
    scene = await Scene.set(stage)
    request = await scene.send_request()
    call_id = (await scene.caller.expect("call_status", state="ringing"))["call_id"]
    await scene.listener.expect("incoming_call", call_id=call_id)
    line = await scene.another_caller()
    await line.send(request | {"delivery_mode": "sync"})
    await line.expect("call_status", state="ringing", call_id=call_id)
    await scene.listener.quiet("it is one call")


@case(requirements=("RL-IDEM-009",))
async def name_of_a_message_is_of_a_caller_and_a_callee(stage: RelayStage) -> None:
    """The same `message_id` of another caller, or to another callee, is another message."""
    scene = await Scene.set(stage)
    carol, dora = await stage.identity("carol"), await stage.identity("dora")
    await stage.set_policy(dora)
    first = await scene.ring(message_id="a" * 31 + "b")
    line = await stage.call_line(carol, scene.bob.handle)
    await line.send(carol.request(message_id="a" * 31 + "b"))
    second = (await line.expect("call_status", state="ringing"))["call_id"]
    await scene.listener.expect("incoming_call", call_id=second, from_=carol.handle)
    await stage.listen_line(dora)
    other = await stage.call_line(scene.alice, dora.handle)
    await other.send(scene.alice.request(message_id="a" * 31 + "b"))
    third = (await other.expect("call_status", state="ringing"))["call_id"]
    check(len({first, second, third}) == 3, "three calls", repr((first, second, third)))


@case(requirements=("RL-IDEM-006",), needs=_DURABLE)
async def durable_repetition_tells_all_that_is_true(stage: RelayStage) -> None:
    """A repeated durable request gets the receipt of old, the status, and the end once there is one."""
    scene = await Scene.set(stage, offline=True)
    request = await scene.send_request(delivery_mode="durable")
    receipt = await scene.caller.expect("call_queued")
    ids = await scene.take(receipt["call_id"])
    line = await scene.another_caller()
    await line.send(request)
    again = await line.expect("call_queued", call_id=receipt["call_id"])
    check(again == receipt, "the same receipt", repr(again))
    await line.quiet("nobody has accepted the call")
    await scene.begin(ids)
    for state in ("answered", "working"):
        await line.expect("call_status", state=state, call_id=receipt["call_id"])
    late = await scene.another_caller()
    await late.send(request)
    check(await late.expect("call_queued") == receipt, "the same receipt", "another")
    await late.expect("call_status", state="working", call_id=receipt["call_id"])
    sent = await scene.send_outcome(**ids)
    for each in (line, late):
        await each.expect("call_outcome", envelope=sent["envelope"])
    last = await scene.another_caller()
    await last.send(request)
    check(await last.expect("call_queued") == receipt, "the same receipt", "another")
    frame = await last.next()
    if frame["type"] == "call_status":
        frame = await last.next()
    check(frame.get("envelope") == sent["envelope"], "the outcome", repr(frame["type"]))
    await scene.listener.quiet("the call has run once")


@case(requirements=("RL-IDEM-007", "RL-HTTP-040"), needs=_DURABLE)
async def acknowledged_call_is_told_by_its_receipt_alone(stage: RelayStage) -> None:
    """A repeated request whose outcome was acknowledged gets its receipt and no outcome."""
    scene = await Scene.set(stage, offline=True)
    request = await scene.send_request(delivery_mode="durable")
    receipt = await scene.caller.expect("call_queued")
    ids = await scene.take()
    await scene.begin(ids)
    await scene.send_outcome(**ids)
    for kind in ("call_status", "call_status", "call_outcome"):
        await scene.caller.expect(kind)
    answer = await stage.ask(scene.alice, "POST", f"/v1/calls/{receipt['call_id']}/ack")
    check(answer.status == 200, "200 for the acknowledgement", str(answer))
    line = await scene.another_caller()
    await line.send(request)
    check(await line.expect("call_queued") == receipt, "the same receipt", "another")
    await line.quiet("the outcome is gone")
    await scene.listener.quiet("the call has run once")


@case(requirements=("RL-IDEM-005",))
async def ended_message_is_not_admitted_again(stage: RelayStage) -> None:
    """A message whose call has ended, however it did, is not handed out again while its record lives."""
    scene = await Scene.set(stage)
    request = await scene.send_request()
    call_id = (await scene.caller.expect("call_status", state="ringing"))["call_id"]
    await scene.listener.expect("incoming_call", call_id=call_id)
    await scene.caller.send({"type": "cancel_call", "call_id": call_id})
    await scene.listener.expect("cancel_call", call_id=call_id)
    await scene.report("call_cancelled", call_id, phase="pending")
    await scene.caller.expect("call_error", code="canceled", call_id=call_id)
    await scene.caller.send(request)
    await scene.caller.expect("call_error", code="canceled", call_id=call_id)
    await scene.listener.quiet("the call had ended")
