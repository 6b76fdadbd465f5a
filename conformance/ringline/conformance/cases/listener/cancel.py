"""CANCEL: what a listener answers to a `cancel_call`, and never says before it is so."""

from typing import Final
from uuid import uuid4

from ringline.conformance.line import Frame
from ringline.conformance.listener_scene import Scene
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.registry import Needs, case
from ringline.conformance.verdict import check

__all__ = [
    "cancels_for_every_call_of_the_message",
    "does_not_know_what_it_was_not_offered",
    "keeps_a_cancellation_over_its_own_end",
    "leaves_finished_work_alone",
    "removes_what_has_not_begun",
    "says_a_cancellation_again",
    "stops_right_behind_the_call",
    "stops_what_runs_and_then_says_so",
]

_DURABLE: Final = Needs(features=("durable",))


@case(requirements=("RL-CANCEL-018",))
async def does_not_know_what_it_was_not_offered(stage: ListenerStage) -> None:
    """A `cancel_call` for an unknown call is answered `unknown`, under its lease if it names one."""
    scene = await Scene.set(stage)
    for durable in stage.modes:
        unknown = scene.seal(durable=durable)
        await scene.tell("cancel_call", unknown)
        await scene.expect("call_not_cancelled", unknown, reason="unknown")


@case(requirements=("RL-CANCEL-015", "RL-FRAME-044"), needs=_DURABLE)
async def removes_what_has_not_begun(stage: ListenerStage) -> None:
    """Work that waits for its grant is removed at `cancel_call`, and no grant begins it any more."""
    scene = await Scene.set(stage)
    sent = await scene.call(durable=True)
    await scene.accepted(sent)
    await scene.tell("cancel_call", sent)
    await scene.expect("call_cancelled", sent, phase="pending")
    await scene.tell("call_started", sent)
    await scene.line.quiet("the work was removed")
    scene.has_run(sent, 0)


@case(requirements=("RL-CANCEL-015", "RL-CANCEL-016"))
async def stops_right_behind_the_call(stage: ListenerStage) -> None:
    """A `cancel_call` right behind its call is not lost: the call ends as cancelled, and in a true phase."""
    scene = await Scene.set(stage)
    for durable in stage.modes:
        sent = await scene.call(scene.message("wait"), durable=durable)
        await scene.tell("cancel_call", sent)
        frame = await scene.line.next()
        while frame["type"] in ("call_accepted", "call_started"):
            frame = await scene.line.next()
        check(frame["type"] == "call_cancelled", "call_cancelled", frame)
        if frame["phase"] == "pending":
            scene.has_run(sent, 0)
        else:
            check(scene.has_stopped(sent), "work that was stopped before it is said to be", "it goes on")


@case(requirements=("RL-CANCEL-016", "RL-DURABLE-046"))
async def stops_what_runs_and_then_says_so(stage: ListenerStage) -> None:
    """Work that runs is stopped at `cancel_call`; `running` is said when nothing of it runs any more."""
    scene = await Scene.set(stage)
    for durable in stage.modes:
        sent = await scene.call(scene.message("wait"), durable=durable)
        if durable:
            await scene.grant(sent)
        else:
            await scene.accepted(sent)
        await scene.begun(sent)
        await scene.tell("cancel_call", sent)
        await scene.expect("call_cancelled", sent, phase="running")
        check(scene.has_stopped(sent), "work that was stopped before it is said to be", "it goes on")
        await scene.line.quiet("the call was cancelled")


@case(requirements=("RL-CANCEL-017",))
async def leaves_finished_work_alone(stage: ListenerStage) -> None:
    """A `cancel_call` for finished work gets its outcome again, or `already_terminal`, and nothing else."""
    scene = await Scene.set(stage)
    for durable in stage.modes:
        sent = await scene.call(durable=durable)
        if durable:
            await scene.grant(sent)
        first = await scene.reply(sent)
        await scene.tell("cancel_call", sent)
        frame = await scene.line.next()
        if frame["type"] == "call_not_cancelled":
            check(frame.get("reason") == "already_terminal", "already_terminal", frame)
        else:
            reply = scene.opened(sent, frame, "completed").reply
            check(reply == first, first.text, reply)


@case(requirements=("RL-CANCEL-021", "RL-DURABLE-040"), needs=_DURABLE)
async def says_a_cancellation_again(stage: ListenerStage) -> None:
    """A call that was cancelled is answered `call_cancelled` whenever it is cancelled or offered again."""
    scene = await Scene.set(stage)
    for message in (scene.message(), scene.message("wait")):
        sent = await scene.call(message, durable=True)
        await scene.accepted(sent)
        if message.startswith("wait"):
            await scene.tell("call_started", sent)
            await scene.begun(sent)
        await scene.tell("cancel_call", sent)
        first = await scene.expect("call_cancelled", sent)
        await scene.tell("cancel_call", sent)
        await scene.expect("call_cancelled", sent, phase=first["phase"])
        again = sent.again(lease_id=str(uuid4()))
        await scene.offer(again)
        await scene.expect("call_cancelled", again, phase=first["phase"])
        scene.has_run(sent, int(first["phase"] == "running"))


@case(requirements=("RL-CANCEL-020", "RL-CANCEL-021"), needs=_DURABLE)
async def keeps_a_cancellation_over_its_own_end(stage: ListenerStage) -> None:
    """A call that was reported as cancelled stays so in the next process, though this one died at once."""
    scene = await Scene.set(stage, own=True)
    sent = await scene.call(durable=True)
    await scene.accepted(sent)
    await scene.tell("cancel_call", sent)
    await scene.expect("call_cancelled", sent, phase="pending")
    await scene.house.kill()
    await scene.house.start()
    again = sent.again(lease_id=str(uuid4()))
    await scene.offer(again)
    await scene.expect("call_cancelled", again)
    await scene.tell("call_started", again)
    await scene.line.quiet("the call was cancelled")
    scene.has_run(sent, 0)


@case(requirements=("RL-CANCEL-034", "RL-IDEM-026"))
async def cancels_for_every_call_of_the_message(stage: ListenerStage) -> None:
    """The cancellation of one call stops the work of its message; the others fail under the seal."""
    scene = await Scene.set(stage)
    first = await scene.call(scene.message("wait"))
    await scene.accepted(first)
    await scene.begun(first)
    second = first.again(call_id=f"{first.call_id}-b")
    await scene.offer(second)
    await scene.started_again(second)
    await scene.tell("cancel_call", second)
    frames: dict[str, Frame] = {}
    for _ in range(2):
        frame = await scene.line.next()
        frames[frame["call_id"]] = frame
    cancelled = frames.get(second.call_id, {})
    check(cancelled.get("type") == "call_cancelled", "call_cancelled for the second call", frames)
    check(cancelled["phase"] == "running", "phase running", cancelled)
    failure = scene.opened(first, frames.get(first.call_id, {}), "failed").failure
    check(getattr(failure, "code", None) == "agent_error", "agent_error for the first call", failure)
    check(scene.has_stopped(first), "work that was stopped", "it goes on")
    scene.has_run(first, 1)
