"""SYNC: what a caller does while it waits, and when its connection is lost."""

from ringline.conformance.caller_scene import Scene
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.registry import case
from ringline.conformance.verdict import check

__all__: list[str] = []


@case(requirements=("RL-SYNC-006",))
async def an_outcome_needs_no_status_before_it(stage: CallerStage) -> None:
    """An outcome is taken right behind `ringing`, without `answered` and `working`."""
    scene = await Scene.set(stage)
    order, taken = await scene.ring(scene.peer())
    await taken.answer("at once")
    await scene.replied(order, "at once")


@case(requirements=("RL-SYNC-006",))
async def a_status_may_come_in_any_order(stage: CallerStage) -> None:
    """Statuses that come twice or out of order do no harm."""
    scene = await Scene.set(stage)
    order, taken = await scene.ring(scene.peer())
    for state in ("working", "answered", "ringing", "working"):
        await taken.status(state)
    await taken.answer()
    await scene.replied(order)


@case(requirements=("RL-IDEM-011",))
async def a_lost_request_is_sent_again_as_it_was(stage: CallerStage) -> None:
    """When the connection breaks before the first answer, the same request comes again on another one."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order = await scene.call(bob)
    first = await scene.request(order, bob)
    await first.line.break_off()
    again = await scene.request(order, bob)
    check(again.as_sent == first.as_sent, "the very bytes of the first sending", again.frame)
    await again.status()
    await again.answer("in the end")
    await scene.replied(order, "in the end")


@case(requirements=("RL-SYNC-037", "RL-IDEM-011"))
async def a_known_call_is_asked_about_before_it_is_sent_again(stage: CallerStage) -> None:
    """When the connection breaks after the `call_id` is known, the relay is asked about it first."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order, first = await scene.ring(bob)
    scene.records[first.call_id] = first.record("started", ended=False)
    await first.line.break_off()
    again = await scene.request(order, bob)
    check(first.call_id in scene.looked_up, "GET /v1/calls/{id} before the request again", scene.looked_up)
    check(again.as_sent == first.as_sent, "the very bytes of the first sending", again.frame)
    again.call_id = first.call_id
    await again.status("working")
    await again.answer()
    await scene.replied(order)


@case(requirements=("RL-SYNC-038",))
async def a_forgotten_call_is_not_sent_again(stage: CallerStage) -> None:
    """When the relay does not know the call any more, it is not sent again, and told to have perhaps run."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order, taken = await scene.ring(bob)
    await taken.line.break_off()
    said = await order.end(scene.patient * 2)
    right = said["end"] in ("relay", "local") and said.get("code") in ("timeout", "indeterminate_execution")
    check(right, "an end that says that the call may have run", said)
    check(taken.call_id in scene.looked_up, "GET /v1/calls/{id}", scene.looked_up)
    bob.nothing_more("it could run twice")


@case(requirements=("RL-FRAME-035",))
async def what_was_too_old_is_sealed_afresh_once_at_most(stage: CallerStage) -> None:
    """A first sending that is answered `timeout` without `call_id` is sealed afresh once, or not at all."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order = await scene.call(bob)
    requests = 0
    while (taken := await scene.sending(order, bob)) is not None:
        requests += 1
        await taken.error("timeout")
    check(1 <= requests <= 2, "one fresh sealing at most", f"{requests} requests")
    said = await order.end(scene.patient)
    check(said.get("code") == "timeout", "the end timeout", said)


@case(requirements=("RL-FRAME-035",))
async def what_was_sent_before_is_not_sealed_afresh(stage: CallerStage) -> None:
    """A repeated sending that is answered `timeout` without `call_id` may have run: no other comes."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order = await scene.call(bob)
    first = await scene.request(order, bob)
    await first.line.break_off()
    again = await scene.request(order, bob)
    await again.error("timeout")
    said = await order.end(scene.patient)
    check(said.get("code") == "timeout", "the end timeout", said)
    bob.nothing_more("it could run twice")
