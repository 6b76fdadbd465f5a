"""A start that is asked for again while a cancellation is requested."""

from ringline.conformance.registry import Needs, case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage

__all__: list[str] = []


@case(requirements=("RL-CANCEL-033", "RL-CANCEL-031"), needs=Needs(features=("durable",)))
async def begun_call_is_not_granted_again_while_a_cancel_is_asked(stage: RelayStage) -> None:
    """A start that is repeated while a cancellation is requested is answered when that is taken back."""
    scene = await Scene.set(stage, offline=True)
    ids = await scene.started()
    await scene.caller.send({"type": "cancel_call", "call_id": ids["call_id"]})
    await scene.listener.expect("cancel_call", **ids)
    await scene.listener.send({"type": "call_started"} | ids)
    await scene.listener.quiet("a cancellation is requested")
    await scene.listener.send({"type": "call_not_cancelled", "reason": "too_late"} | ids)
    await scene.listener.expect("call_started", **ids)
    await scene.caller.expect("call_not_cancelled", call_id=ids["call_id"], reason="too_late")
