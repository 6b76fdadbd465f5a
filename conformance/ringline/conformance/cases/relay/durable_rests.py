"""Hand-outs that come to nothing without anybody being to blame."""

from ringline.conformance.registry import Needs, case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check

__all__: list[str] = []


@case(
    requirements=("RL-DURABLE-055", "RL-DURABLE-054", "RL-DURABLE-052"),
    needs=Needs(
        features=("durable",),
        bounds={"uncounted_attempts": 6, "back_off_ms": 1_000, "back_off_most_ms": 1_000},
    ),
)
async def too_many_good_byes_park_a_call(stage: RelayStage) -> None:
    """A call that listeners leave behind too often is parked, with no attempt counted, and has not ended."""
    scene = await Scene.set(stage, offline=True, listening=False)
    call_id = (await scene.submit())["call_id"]
    rest = stage.bound("back_off_most_ms") / 1_000
    for _ in range(stage.bound("uncounted_attempts")):
        await scene.listen()
        offer = await scene.listener.expect("incoming_call", within=rest + stage.patience.answer)
        check(offer["call_id"] == call_id, f"the call {call_id}", repr(offer["call_id"]))
        await scene.listener.leave()

    async def parked() -> bool:
        return await scene.state(call_id, of=scene.bob) == "delivery_failed"

    await stage.until(parked, f"state delivery_failed of call {call_id}")
    shown = await stage.record(scene.alice, call_id)
    check(shown["attempts"] == 0, "no counted attempt", repr(shown["attempts"]))
    check(shown["finished_at"] is None, "finished_at null", repr(shown["finished_at"]))
    await scene.caller.quiet("a parked call has not ended")
