"""TRACE: what a listener makes of a `traceparent` that a relay shows it."""

from ringline.conformance.listener_scene import Scene
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.registry import case

__all__ = ["answers_whatever_the_trace_is"]


@case(requirements=("RL-TRACE-008",))
async def answers_whatever_the_trace_is(stage: ListenerStage) -> None:
    """A call is answered whatever text its `traceparent` is."""
    scene = await Scene.set(stage)
    for trace in ("", "00", "not a trace", "é" * 600, f"00-{'0' * 32}-{'0' * 16}-01"):
        sent = await scene.call(frame={"traceparent": trace})
        await scene.reply(sent)
        scene.has_run(sent, 1)
