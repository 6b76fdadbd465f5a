"""Sync calls."""

from ringline.conformance.registry import case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage

__all__: list[str] = []


@case(requirements=("RL-SYNC-001",))
async def answered_after_accepted(stage: RelayStage) -> None:
    """A caller hears `answered` once the listener has accepted the call, and not before."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.caller.quiet("nobody has accepted the call")
    await scene.accept(call_id)


@case(requirements=("RL-SYNC-001",))
async def outcome_reaches_the_caller(stage: RelayStage) -> None:
    """A listener's outcome reaches the caller with the envelope it was sent with."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.work(call_id)
    await scene.complete(call_id)
