"""DURABLE: what a listener says of a call that is offered to it again."""

from typing import Final
from uuid import uuid4

from ringline.conformance.listener_scene import Scene
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.registry import Needs, case
from ringline.conformance.seals import Sent
from ringline.conformance.verdict import check

__all__ = [
    "asks_for_the_start_of_a_call_that_joins_finished_work",
    "goes_on_with_work_in_silence",
    "never_runs_again_what_its_process_died_over",
    "remembers_that_it_began",
    "sends_an_outcome_again",
    "sends_an_outcome_of_its_last_process",
    "takes_up_what_its_last_process_had_not_begun",
    "tells_that_work_still_runs",
]

_DURABLE: Final = Needs(features=("durable",))


def _again(sent: Sent) -> Sent:
    return sent.again(lease_id=str(uuid4()))


@case(requirements=("RL-DURABLE-040",), needs=_DURABLE)
async def tells_that_work_still_runs(stage: ListenerStage) -> None:
    """A call that runs and is offered on a new connection is reported as started under its new lease."""
    scene = await Scene.set(stage, own=True)
    sent = await scene.call(scene.message("wait"), durable=True)
    await scene.grant(sent)
    await scene.begun(sent)
    await scene.lose()
    again = _again(sent)
    await scene.offer(again)
    await scene.started_again(again)
    scene.has_run(sent, 1)
    await scene.tell("cancel_call", again)
    await scene.expect("call_cancelled", again, phase="running")


@case(requirements=("RL-DURABLE-037", "RL-DURABLE-044", "RL-FRAME-044"), needs=_DURABLE)
async def goes_on_with_work_in_silence(stage: ListenerStage) -> None:
    """Begun work outlives its connection; nothing is said of it before it is offered, then its outcome is."""
    scene = await Scene.set(stage, own=True)
    sent = await scene.call(scene.message("slow 900"), durable=True)
    await scene.grant(sent)
    await scene.begun(sent)
    await scene.lose()
    other = await scene.call(scene.message("slow 1100"))
    await scene.reply(other)
    await scene.line.quiet("the call was not offered again")
    again = _again(sent)
    await scene.offer(again)
    await scene.reply(again)
    scene.has_run(sent, 1)


@case(requirements=("RL-DURABLE-040", "RL-DURABLE-044"), needs=_DURABLE)
async def sends_an_outcome_again(stage: ListenerStage) -> None:
    """A finished call gets the same outcome under each lease under which it is offered again."""
    scene = await Scene.set(stage)
    sent = await scene.call(durable=True)
    await scene.grant(sent)
    first = await scene.reply(sent)
    for _ in range(2):
        again = _again(sent)
        await scene.offer(again)
        reply = await scene.reply(again)
        check(reply == first, first.text, reply.text)
    scene.has_run(sent, 1)


@case(requirements=("RL-DURABLE-044", "RL-IDEM-024"), needs=_DURABLE)
async def sends_an_outcome_of_its_last_process(stage: ListenerStage) -> None:
    """An outcome that was sent is in the journal of the next process, though this one died at once."""
    scene = await Scene.set(stage, own=True)
    sent = await scene.call(durable=True)
    await scene.grant(sent)
    first = await scene.reply(sent)
    await scene.house.kill()
    await scene.house.start()
    again = _again(sent)
    await scene.offer(again)
    reply = await scene.reply(again)
    check(reply == first, first.text, reply.text)
    scene.has_run(sent, 1)


@case(requirements=("RL-DURABLE-041", "RL-DURABLE-031", "RL-ENVELOPE-053", "RL-ENVELOPE-055"), needs=_DURABLE)
async def never_runs_again_what_its_process_died_over(stage: ListenerStage) -> None:
    """A call whose process died at work is `indeterminate_execution` at every offer, and not run again."""
    scene = await Scene.set(stage, own=True)
    sent = await scene.call(scene.message("wait"), durable=True)
    await scene.grant(sent)
    await scene.begun(sent)
    await scene.house.kill()
    await scene.house.start()
    for _ in range(2):
        again = _again(sent)
        await scene.offer(again)
        await scene.indeterminate(again)
    scene.has_run(sent, 1)


@case(requirements=("RL-DURABLE-031", "RL-DURABLE-041", "RL-CANCEL-022"), needs=_DURABLE)
async def remembers_that_it_began(stage: ListenerStage) -> None:
    """A cancellation right behind the offer of work whose process died does not make it a cancelled one."""
    scene = await Scene.set(stage, own=True)
    sent = await scene.call(scene.message("wait"), durable=True)
    await scene.grant(sent)
    await scene.begun(sent)
    await scene.house.kill()
    await scene.house.start()
    again = _again(sent)
    await scene.offer(again)
    await scene.tell("cancel_call", again)
    await scene.indeterminate(again)
    scene.has_run(sent, 1)


@case(requirements=("RL-DURABLE-033", "RL-DURABLE-040"), needs=_DURABLE)
async def takes_up_what_its_last_process_had_not_begun(stage: ListenerStage) -> None:
    """A call that waited for its grant when its process died is asked for again, and run once."""
    scene = await Scene.set(stage, own=True)
    sent = await scene.call(durable=True)
    await scene.accepted(sent)
    await scene.house.kill()
    await scene.house.start()
    again = _again(sent)
    await scene.offer(again)
    await scene.grant(again)
    await scene.reply(again)
    scene.has_run(sent, 1)


@case(requirements=("RL-DURABLE-043", "RL-IDEM-019"), needs=_DURABLE)
async def asks_for_the_start_of_a_call_that_joins_finished_work(stage: ListenerStage) -> None:
    """A call that brings a message whose work is done is answered `completed` after a grant of its own."""
    scene = await Scene.set(stage)
    sent = await scene.call(durable=True)
    await scene.grant(sent)
    first = await scene.reply(sent)
    joining = sent.again(call_id=f"{sent.call_id}-b", lease_id=str(uuid4()))
    await scene.offer(joining)
    await scene.accepted(joining)
    await scene.line.quiet("its start was not granted")
    await scene.tell("call_started", joining)
    frame = await scene.expect("call_outcome", joining, terminal="completed")
    reply = scene.opened(joining, frame, "completed").reply
    check(reply == first, first.text, reply)
    scene.has_run(sent, 1)
