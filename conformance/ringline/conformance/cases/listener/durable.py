"""DURABLE: the start that a listener asks for, and the lease under which it may have it."""

import asyncio
from typing import Final
from uuid import uuid4

from ringline.conformance.identity import now_ms
from ringline.conformance.listener_scene import Scene
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.registry import Needs, case
from ringline.conformance.verdict import check

__all__ = [
    "asks_and_waits_for_its_start",
    "begins_by_its_current_lease_alone",
    "begins_nothing_after_its_time",
    "drops_what_its_lease_is_lost_for",
    "drops_what_waits_when_its_connection_is_lost",
    "fails_without_a_start",
    "ignores_a_grant_that_nobody_asked_for",
    "ignores_a_second_grant",
    "ignores_another_leases_end",
    "stops_what_its_lease_is_lost_for",
    "stops_work_when_its_time_is_over",
]

_DURABLE: Final = Needs(features=("durable",))


@case(requirements=("RL-DURABLE-026", "RL-DURABLE-030", "RL-FRAME-044"), needs=_DURABLE)
async def asks_and_waits_for_its_start(stage: ListenerStage) -> None:
    """A durable call is accepted and asked for under its lease; its work begins with the grant."""
    scene = await Scene.set(stage)
    sent = await scene.call(durable=True)
    await scene.accepted(sent)
    await scene.line.quiet("the start was not granted")
    scene.has_run(sent, 0)
    await scene.tell("call_started", sent)
    await scene.expect("call_outcome", sent, terminal="completed")
    scene.has_run(sent, 1)


@case(requirements=("RL-DURABLE-032", "RL-DURABLE-030"), needs=_DURABLE)
async def begins_by_its_current_lease_alone(stage: ListenerStage) -> None:
    """A grant under another lease, or under none, begins nothing and is not answered."""
    scene = await Scene.set(stage)
    sent = await scene.call(durable=True)
    await scene.accepted(sent)
    other = await scene.call(durable=True)
    await scene.accepted(other)
    await scene.tell("call_started", sent, lease_id=str(uuid4()))
    await scene.tell("call_started", sent, lease_id=other.frame["lease_id"])
    await scene.line.quiet("the lease is another one")
    scene.has_run(sent, 0)
    for one in (sent, other):
        await scene.tell("call_started", one)
        await scene.expect("call_outcome", one, terminal="completed")
        scene.has_run(one, 1)


@case(requirements=("RL-DURABLE-032",), needs=_DURABLE)
async def ignores_a_second_grant(stage: ListenerStage) -> None:
    """A grant that is repeated, while the work runs or after it, changes nothing."""
    scene = await Scene.set(stage)
    sent = await scene.call(scene.message("slow 300"), durable=True)
    await scene.grant(sent)
    await scene.tell("call_started", sent)
    await scene.expect("call_outcome", sent, terminal="completed")
    await scene.tell("call_started", sent)
    await scene.line.quiet("the start was granted before")
    scene.has_run(sent, 1)


@case(requirements=("RL-DURABLE-030",), needs=_DURABLE)
async def ignores_a_grant_that_nobody_asked_for(stage: ListenerStage) -> None:
    """A grant for a call that the listener does not know, or that is a sync one, is not answered."""
    scene = await Scene.set(stage)
    unknown = scene.seal(durable=True)
    await scene.tell("call_started", unknown)
    await scene.line.quiet("nobody knows the call")
    sync = await scene.call()
    await scene.reply(sync)
    await scene.tell("call_started", sync, lease_id=str(uuid4()))
    await scene.line.quiet("a sync call has no lease")
    scene.has_run(unknown, 0)
    scene.has_run(sync, 1)


@case(requirements=("RL-ENVELOPE-035", "RL-FRAME-044"), needs=_DURABLE)
async def fails_without_a_start(stage: ListenerStage) -> None:
    """A durable request that opened and is not worked on gets its sealed failure without a grant."""
    scene = await Scene.set(stage)
    sent = await scene.call(b'{"message":1}', durable=True)
    await scene.failure(sent, "agent_error")


@case(requirements=("RL-DURABLE-024", "RL-DURABLE-025", "RL-DURABLE-033"), needs=_DURABLE)
async def drops_what_its_lease_is_lost_for(stage: ListenerStage) -> None:
    """Work that waits is dropped at `call_rejected` for its lease, in silence, and kept for the next one."""
    scene = await Scene.set(stage)
    sent = await scene.call(durable=True)
    await scene.accepted(sent)
    await scene.tell("call_rejected", sent, code="protocol_error")
    await scene.line.quiet("a call_rejected is not answered")
    await scene.tell("call_started", sent)
    await scene.line.quiet("the lease was lost")
    scene.has_run(sent, 0)
    again = sent.again(lease_id=str(uuid4()))
    await scene.offer(again)
    await scene.grant(again)
    await scene.expect("call_outcome", again, terminal="completed")
    scene.has_run(sent, 1)


@case(requirements=("RL-DURABLE-024", "RL-DURABLE-025"), needs=_DURABLE)
async def stops_what_its_lease_is_lost_for(stage: ListenerStage) -> None:
    """Work that runs is stopped at `call_rejected` for its lease, in silence, and never run again."""
    scene = await Scene.set(stage)
    sent = await scene.call(scene.message("wait"), durable=True)
    await scene.grant(sent)
    await scene.begun(sent)
    await scene.tell("call_rejected", sent, code="protocol_error")
    await scene.stopped(sent)
    await scene.line.quiet("a call_rejected is not answered")
    again = sent.again(lease_id=str(uuid4()))
    await scene.offer(again)
    frame = await scene.line.next()
    ends = ("call_outcome", "call_cancelled")
    while frame["type"] not in ends:
        await scene.tell("call_started", again)
        frame = await scene.line.next()
    check(frame.get("terminal", "failed") == "failed", "no reply of work that was stopped", frame)
    scene.has_run(sent, 1)


@case(requirements=("RL-DURABLE-023", "RL-DURABLE-025"), needs=_DURABLE)
async def ignores_another_leases_end(stage: ListenerStage) -> None:
    """A `call_rejected` for a lease that the listener does not hold leaves the call as it is."""
    scene = await Scene.set(stage)
    sent = await scene.call(scene.message("slow 300"), durable=True)
    await scene.accepted(sent)
    await scene.tell("call_rejected", sent, code="protocol_error", lease_id=str(uuid4()))
    await scene.line.quiet("the lease is another one")
    await scene.tell("call_started", sent)
    await scene.begun(sent)
    await scene.tell("call_rejected", sent, code="protocol_error", lease_id=str(uuid4()))
    await scene.expect("call_outcome", sent, terminal="completed")
    scene.has_run(sent, 1)


@case(requirements=("RL-DURABLE-033", "RL-DURABLE-040"), needs=_DURABLE)
async def drops_what_waits_when_its_connection_is_lost(stage: ListenerStage) -> None:
    """Work that waits for its grant when the connection is lost is begun by one under a new lease alone."""
    scene = await Scene.set(stage, own=True)
    sent = await scene.call(durable=True)
    await scene.accepted(sent)
    await scene.lose()
    await scene.tell("call_started", sent)
    await scene.line.quiet("the lease went with the connection")
    scene.has_run(sent, 0)
    again = sent.again(lease_id=str(uuid4()))
    await scene.offer(again)
    await scene.grant(again)
    await scene.expect("call_outcome", again, terminal="completed")
    scene.has_run(sent, 1)


@case(requirements=("RL-DURABLE-034",), needs=_DURABLE)
async def begins_nothing_after_its_time(stage: ListenerStage) -> None:
    """Work that waits for its grant is not begun by one that comes after `execute_by`."""
    scene = await Scene.set(stage)
    until = now_ms() + 2_500
    sent = await scene.call(durable=True, frame={"execute_by": until})
    await scene.accepted(sent)
    # By the listener's clock, which it may take from the relay: that tells whole seconds.
    await asyncio.sleep(max(0, until + 1_100 - now_ms()) / 1_000)
    await scene.tell("call_started", sent)
    await scene.line.quiet("its time is over")
    scene.has_run(sent, 0)


@case(requirements=("RL-DURABLE-046",), needs=_DURABLE)
async def stops_work_when_its_time_is_over(stage: ListenerStage) -> None:
    """Work that runs when `execute_by` passes is stopped, and is no success."""
    scene = await Scene.set(stage)
    sent = await scene.call(scene.message("wait"), durable=True, frame={"execute_by": now_ms() + 2_500})
    await scene.grant(sent)
    await scene.begun(sent)
    await scene.stopped(sent)
    frame = await scene.line.next()
    kinds = ("call_cancelled", "call_outcome")
    check(frame["type"] in kinds and frame.get("terminal") != "completed", " or ".join(kinds), frame)
    scene.has_run(sent, 1)
