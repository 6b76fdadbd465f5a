"""ERROR: who says what is told apart, whatever words they use."""

from ringline.conformance.caller_scene import Scene, failure
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.registry import case
from ringline.conformance.verdict import check

__all__: list[str] = []


@case(requirements=("RL-ERROR-001", "RL-ERROR-002"))
async def one_word_of_two_parties_is_told_apart(stage: CallerStage) -> None:
    """`timeout` and `message_too_large` are the relay's when it says so, and the peer's under his seal."""
    scene = await Scene.set(stage)
    for code in ("timeout", "message_too_large"):
        order, taken = await scene.ring(scene.peer())
        await taken.error(code, ends=True)
        await scene.end(order, "relay", code=code)
        order, taken = await scene.ring(scene.peer())
        await taken.send(taken.outcome(failure(code), "failed"))
        await scene.end(order, "peer", code=code, reason="failed")


@case(requirements=("RL-ERROR-001", "RL-ENVELOPE-052"))
async def every_failure_of_a_peer_is_told(stage: CallerStage) -> None:
    """Each code that a peer may fail with is told as his, with the detail that he gives."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    for code in ("busy", "agent_error", "blocked", "task_unknown", "context_unknown", "duplicate_conflict"):
        order, taken = await scene.ring(bob)
        await taken.send(taken.outcome(failure(code, detail="é" * 250), "failed"))
        said = await scene.end(order, "peer", code=code)
        check(said.get("detail") in ("é" * 250, None), "the detail as it was sealed, or none", said)


@case(requirements=("RL-ENVELOPE-054",))
async def it_is_told_that_work_may_have_been_cut_off(stage: CallerStage) -> None:
    """The reason `indeterminate_execution` under the seal is told, and is not that of a plain failure."""
    scene = await Scene.set(stage)
    for reason in ("failed", "indeterminate_execution"):
        order, taken = await scene.ring(scene.peer())
        await taken.send(taken.outcome(failure("agent_error", reason), "failed"))
        await scene.end(order, "peer", code="agent_error", reason=reason)


@case(requirements=("RL-ERROR-001",))
async def a_handle_that_the_relay_does_not_show_is_its_word(stage: CallerStage) -> None:
    """That there is no such handle is told as the relay's word."""
    scene = await Scene.set(stage)
    order = await scene.house.order("call", to="nobody-is-here", message="hello", timeout_ms=10_000)
    await scene.end(order, "relay")
