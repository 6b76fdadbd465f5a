"""CANCEL: to cancel is to ask, and nobody is told more than that."""

import asyncio
from typing import Final

from ringline.conformance.caller_scene import Scene
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.registry import Level, Needs, case
from ringline.conformance.stand_in import problem
from ringline.conformance.verdict import check

__all__: list[str] = []

_DURABLE: Final = Needs(features=("durable",))


@case(requirements=("RL-CANCEL-013",))
async def a_cancellation_waits_for_the_name_of_the_call(stage: CallerStage) -> None:
    """A cancellation is held back until the `call_id` is known, and then sent."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order = await scene.call(bob)
    taken = await scene.request(order, bob)
    cancel = await scene.house.order("cancel", of=order.number)
    await bob.silence(0.3, "the call has no name yet")
    check(not cancel.ended, "no word on the cancellation yet", "it has ended")
    await taken.status()
    await bob.expect("cancel_call", call_id=taken.call_id)
    await taken.error("canceled", ends=True)
    await scene.end(order, "relay", code="canceled")
    await scene.end(cancel, "cancel", said="canceled")


@case(requirements=("RL-CANCEL-013", "RL-FRAME-034"))
async def a_cancellation_is_true_when_the_relay_says_so(stage: CallerStage) -> None:
    """A call is told to be canceled when the relay has said so, and its `cancel_call` names it alone."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order, taken = await scene.ring(bob)
    cancel = await scene.house.order("cancel", of=order.number)
    _, frame = await bob.expect("cancel_call", call_id=taken.call_id)
    check(set(frame) == {"type", "call_id"}, "a cancel_call with the call_id alone", frame)
    check(not cancel.ended and not order.ended, "no end before the decision", "one has ended")
    await taken.error("canceled", ends=True)
    await scene.end(cancel, "cancel", said="canceled")
    await scene.end(order, "relay", code="canceled")


@case(requirements=("RL-ERROR-002",))
async def a_refused_cancellation_leaves_the_call(stage: CallerStage) -> None:
    """When the listener could not stop the work, that is told, and its outcome ends the call."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order, taken = await scene.ring(bob)
    cancel = await scene.house.order("cancel", of=order.number)
    await bob.expect("cancel_call", call_id=taken.call_id)
    await taken.send({"type": "call_not_cancelled", "call_id": taken.call_id, "reason": "too_late"})
    await scene.end(cancel, "cancel", said="too_late")
    check(not order.ended, "a call that goes on", "it has ended")
    await taken.answer("all the same")
    await scene.replied(order, "all the same")


@case(requirements=("RL-ENVELOPE-039",))
async def an_outcome_comes_before_a_cancellation(stage: CallerStage) -> None:
    """An outcome that arrives while a cancellation is asked for is the end of the call."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order, taken = await scene.ring(bob)
    cancel = await scene.house.order("cancel", of=order.number)
    await bob.expect("cancel_call", call_id=taken.call_id)
    await taken.answer("finished before")
    await scene.replied(order, "finished before")
    await scene.end(cancel, "cancel", said="already_terminal")


@case(Level.SHOULD, requirements=("RL-CANCEL-014",))
async def an_undecided_cancellation_is_told_as_requested(stage: CallerStage) -> None:
    """After 10 s without a decision the caller says that cancellation was requested, not that it happened."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order, taken = await scene.ring(bob, timeout_ms=30_000)
    cancel = await scene.house.order("cancel", of=order.number)
    await bob.expect("cancel_call", call_id=taken.call_id)
    await scene.end(cancel, "cancel", said="requested")
    check(not order.ended, "a call that goes on", "it has ended")
    await taken.answer("all the same")
    await scene.replied(order, "all the same")


@case(requirements=("RL-ERROR-002", "RL-ERROR-009"))
async def the_end_of_a_wait_is_no_cancellation(stage: CallerStage) -> None:
    """A caller that stops waiting says that it did, and not that the call failed or was stopped."""
    scene = await Scene.set(stage)
    order, taken = await scene.ring(scene.peer(), timeout_ms=1_500)
    await scene.end(order, "local", code="timeout")
    await taken.answer("too late")
    # Had it an end for that too, it would be a second one of the order.
    await asyncio.sleep(stage.patience.quiet)


@case(requirements=("RL-ERROR-002",), needs=_DURABLE)
async def a_stored_call_is_canceled_when_the_relay_says_so(stage: CallerStage) -> None:
    """What the relay answers to the cancellation of a durable call is what the caller says, and no more."""
    scene = await Scene.set(stage)
    for told, said in (
        ((200, {"state": "canceled"}), "canceled"),
        ((202, {"state": "cancel_requested"}), "requested"),
        ((409, problem(409, "too_late")), "too_late"),
        ((409, problem(409, "already_terminal")), "already_terminal"),
    ):
        receipt, taken = await scene.left(scene.peer())
        scene.cancels[taken.call_id] = told
        await scene.end(await scene.house.order("cancel", of=receipt), "cancel", said=said)
