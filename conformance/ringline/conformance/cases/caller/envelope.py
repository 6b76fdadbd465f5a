"""ENVELOPE: what a caller seals, and which outcomes it opens."""

from ringline.conformance.caller_scene import Scene
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.registry import Level, case
from ringline.conformance.verdict import check

__all__: list[str] = []

MINUTE = 60_000
HOUR = 60 * MINUTE


@case(requirements=("RL-ENVELOPE-003", "RL-ENVELOPE-010", "RL-ENVELOPE-011", "RL-ENVELOPE-012"))
async def a_request_opens_for_its_callee(stage: CallerStage) -> None:
    """A request is sealed, padded and signed so that its callee can open it, and its outcome is the reply."""
    scene = await Scene.set(stage)
    order, taken = await scene.ring(scene.peer(), "what is sealed")
    check(taken.request.message == "what is sealed", "the message under the seal", taken.request.message)
    await taken.status()
    await taken.answer("answered")
    await scene.replied(order, "answered")
