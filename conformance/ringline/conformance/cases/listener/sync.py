"""SYNC: what a listener says of a call while its caller waits, and says again when it is asked again."""

from ringline.conformance.listener_scene import Scene
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.registry import case
from ringline.conformance.verdict import check

__all__ = [
    "accepts_starts_and_replies",
    "answers_several_at_once",
    "goes_on_when_its_connection_is_lost",
    "never_runs_again_what_its_process_died_over",
    "remembers_what_it_accepted",
    "tells_a_finished_call_again",
    "tells_a_running_call_again",
]


@case(requirements=("RL-SYNC-018", "RL-FRAME-045"))
async def accepts_starts_and_replies(stage: ListenerStage) -> None:
    """A call is accepted, started and answered, in this order and without a lease, and run once."""
    scene = await Scene.set(stage)
    sent = await scene.call("echo good day " + scene.tag)
    await scene.accepted(sent)
    frame = await scene.expect("call_outcome", sent, terminal="completed")
    reply = scene.opened(sent, frame, "completed").reply
    check(getattr(reply, "text", None) == "good day " + scene.tag, "the reply that was asked for", reply)
    scene.has_run(sent, 1)
    await scene.line.quiet("the call has ended")


@case(requirements=("RL-SYNC-018",))
async def answers_several_at_once(stage: ListenerStage) -> None:
    """A call that takes its time holds up no other one."""
    scene = await Scene.set(stage)
    waiting = await scene.call(scene.message("wait"))
    await scene.accepted(waiting)
    for _ in range(3):
        await scene.works()
    await scene.tell("cancel_call", waiting)
    await scene.expect("call_cancelled", waiting, phase="running")


@case(requirements=("RL-SYNC-025", "RL-IDEM-017"))
async def tells_a_finished_call_again(stage: ListenerStage) -> None:
    """A finished call that is offered again is answered by the same outcome, and not run again."""
    scene = await Scene.set(stage, own=True)
    sent = await scene.call()
    first = await scene.reply(sent)
    await scene.offer(sent)
    again = await scene.reply(sent)
    await scene.lose()
    await scene.offer(sent)
    once_more = await scene.reply(sent)
    check(first == again == once_more, f"three times {first.text}", [again.text, once_more.text])
    scene.has_run(sent, 1)


@case(requirements=("RL-SYNC-025", "RL-IDEM-016"))
async def tells_a_running_call_again(stage: ListenerStage) -> None:
    """A call that runs and is offered on a new connection is reported as started, and runs once."""
    scene = await Scene.set(stage, own=True)
    sent = await scene.call(scene.message("wait"))
    await scene.accepted(sent)
    await scene.begun(sent)
    await scene.lose()
    await scene.offer(sent)
    await scene.started_again(sent)
    scene.has_run(sent, 1)
    await scene.tell("cancel_call", sent)
    await scene.expect("call_cancelled", sent, phase="running")


@case(requirements=("RL-SYNC-025",))
async def goes_on_when_its_connection_is_lost(stage: ListenerStage) -> None:
    """Work that has begun goes on without a connection, and its outcome is told when the call comes again."""
    scene = await Scene.set(stage, own=True)
    sent = await scene.call(scene.message("slow 1500"))
    await scene.accepted(sent)
    await scene.lose()
    await scene.line.quiet("the call was not offered again")
    await scene.offer(sent)
    await scene.reply(sent)
    scene.has_run(sent, 1)


@case(requirements=("RL-SYNC-017", "RL-IDEM-016"))
async def remembers_what_it_accepted(stage: ListenerStage) -> None:
    """A call that was accepted is in the journal of the next process, though this one died at once."""
    scene = await Scene.set(stage, own=True)
    sent = await scene.call(scene.message("wait"))
    await scene.expect("call_accepted", sent)
    await scene.house.kill()
    runs = scene.runs(sent)
    await scene.house.start()
    other = scene.seal(scene.message(), context=sent.context)
    await scene.offer(other)
    await scene.failure(other, "duplicate_conflict")
    check(scene.runs(sent) == runs, f"{runs} runs, as before the crash", scene.runs(sent))


@case(requirements=("RL-SYNC-025", "RL-IDEM-016", "RL-ENVELOPE-053", "RL-ENVELOPE-055"))
async def never_runs_again_what_its_process_died_over(stage: ListenerStage) -> None:
    """A sync call whose process died at work is answered `indeterminate_execution`, and not run again."""
    scene = await Scene.set(stage, own=True)
    sent = await scene.call(scene.message("wait"))
    await scene.accepted(sent)
    await scene.begun(sent)
    await scene.house.kill()
    await scene.house.start()
    await scene.offer(sent)
    await scene.indeterminate(sent)
    scene.has_run(sent, 1)
