"""SYNC: what a listener says of a call while its caller waits."""

from ringline.conformance.listener_scene import Scene
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.registry import case
from ringline.conformance.verdict import check

__all__ = ["accepts_starts_and_replies"]


@case(requirements=("RL-SYNC-017", "RL-SYNC-018", "RL-FRAME-045"))
async def accepts_starts_and_replies(stage: ListenerStage) -> None:
    """A call is accepted, started and answered, in this order and without a lease, and run once."""
    scene = await Scene.set(stage)
    sent = await scene.call("echo good day " + scene.tag)
    await scene.accepted(sent)
    reply = await scene.reply(sent)
    check(reply.text == "good day " + scene.tag, "the reply that was asked for", reply.text)
    scene.has_run(sent, 1)
    await scene.line.quiet("the call has ended")
