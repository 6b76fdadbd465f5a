"""Sync calls: the loss and the return of either side."""

import asyncio
from uuid import uuid4

from ringline.conformance.identity import LEFT_OUT
from ringline.conformance.line import Line
from ringline.conformance.registry import Needs, case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check

__all__: list[str] = []

_GRACE = Needs(bounds={"grace_ms": 4_000})
_HOLD = Needs(bounds={"hold_ms": 4_000})


@case(requirements=("RL-SYNC-021", "RL-SYNC-020"))
async def instance_that_returns_is_offered_its_calls_again(stage: RelayStage) -> None:
    """An instance whose connection broke is offered its calls again, with the same ids, and goes on."""
    instance = str(uuid4())
    scene = await Scene.set(stage, instance=instance)
    first, second = await scene.ring(), await scene.ring()
    await scene.work(second)
    await scene.listener.break_off()
    await scene.listen(instance=instance)
    offers = {(await scene.listener.expect("incoming_call"))["call_id"] for _ in range(2)}
    check(offers == {first, second}, "both calls", repr(offers))
    await scene.caller.quiet("nothing new has happened")
    await scene.report("call_started", second)
    await scene.listener.quiet()
    await scene.caller.quiet("that it works is known")
    await scene.complete(second)
    await scene.accept(first)


@case(requirements=("RL-SYNC-019",))
async def call_of_a_lost_instance_goes_to_no_other(stage: RelayStage) -> None:
    """A call that an instance has is offered to no other, whether its connection breaks or is closed."""
    for ending in (Line.break_off, Line.leave):
        scene = await Scene.set(stage)
        await scene.ring()
        lost = scene.listener
        other = await scene.listen()
        await ending(lost)
        await other.quiet("the call was handed out")
        await scene.caller.quiet("the instance may return")


@case(requirements=("RL-SYNC-023", "RL-SYNC-014"), needs=_GRACE)
async def call_of_an_instance_that_stays_away_ends(stage: RelayStage) -> None:
    """The calls of an instance that is not back in time end with `timeout`, as they had got."""
    scene = await Scene.set(stage)
    ringing, working = await scene.ring(), await scene.ring()
    await scene.work(working)
    await scene.listener.break_off()
    grace = stage.bound("grace_ms") / 1000 + stage.patience.answer
    ends = {
        (await scene.caller.expect("call_error", within=grace, code="timeout"))["call_id"] for _ in range(2)
    }
    check(ends == {ringing, working}, "the end of both calls", repr(ends))
    await scene.has_ended(ringing, "expired")
    await scene.has_ended(working, "indeterminate_execution")


@case(requirements=("RL-SYNC-024",), needs=_GRACE)
async def late_close_of_a_replaced_connection_changes_nothing(stage: RelayStage) -> None:
    """The end of a connection that its instance has replaced before starts no grace."""
    instance = str(uuid4())
    scene = await Scene.set(stage, instance=instance)
    call_id = await scene.ring()
    before = scene.listener
    await scene.listen(instance=instance)
    await scene.listener.expect("incoming_call", call_id=call_id)
    await before.closed(4000)
    await before.break_off()
    await scene.accept(call_id)
    # Longer than the grace, and no longer than the call may be silent.
    await _pass(stage, "grace_ms")
    await scene.caller.quiet("the instance is connected")
    await scene.report("call_started", call_id)
    await scene.caller.expect("call_status", state="working")


async def _pass(stage: RelayStage, bound: str) -> None:
    await asyncio.sleep(stage.bound(bound) / 1000 + 0.3)


# --- loss of a caller


@case(requirements=("RL-SYNC-027", "RL-SYNC-029", "RL-SYNC-026"))
async def caller_that_returns_is_told_where_the_call_stands(stage: RelayStage) -> None:
    """A caller that repeats its request on a new connection gets the present state, and then the end."""
    scene = await Scene.set(stage)
    request = await scene.send_request()
    call_id = (await scene.caller.expect("call_status", state="ringing"))["call_id"]
    await scene.listener.expect("incoming_call", call_id=call_id)
    await scene.work(call_id)
    await scene.caller.break_off()
    scene.caller = await scene.another_caller()
    await scene.caller.send(request)
    await scene.caller.expect(
        "call_status", state="working", call_id=call_id, correlation_id=request["correlation_id"]
    )
    await scene.listener.quiet("the call is the same")
    await scene.complete(call_id)


@case(requirements=("RL-SYNC-028", "RL-SYNC-027"), needs=_HOLD)
async def abandoned_call_is_cancelled_after_the_hold(stage: RelayStage) -> None:
    """A call with a `message_id` whose caller has gone is cancelled when the hold is over, and not before."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.caller.leave()
    await scene.listener.quiet("its caller may return")
    hold = stage.bound("hold_ms") / 1000 + stage.patience.answer
    await scene.listener.expect("cancel_call", within=hold, call_id=call_id)
    await scene.report("call_cancelled", call_id, phase="pending")
    await scene.listener.quiet()
    await scene.has_ended(call_id, "canceled")


@case(requirements=("RL-SYNC-028",))
async def abandoned_call_without_a_message_id_is_cancelled_at_once(stage: RelayStage) -> None:
    """A call without a `message_id` is cancelled as soon as its caller's connection is gone."""
    for ending in (Line.leave, Line.break_off):
        scene = await Scene.set(stage)
        call_id = await scene.ring(message_id=LEFT_OUT)
        await ending(scene.caller)
        at_once = min(stage.patience.answer, stage.bound("hold_ms") / 2_000)
        await scene.listener.expect("cancel_call", within=at_once, call_id=call_id)


@case(requirements=("RL-SYNC-028",))
async def half_closed_connection_is_gone(stage: RelayStage) -> None:
    """A caller that will send nothing more counts as gone, whether or not it still reads."""
    scene = await Scene.set(stage)
    call_id = await scene.ring(message_id=LEFT_OUT)
    scene.caller.half_close()
    at_once = min(stage.patience.answer, stage.bound("hold_ms") / 2_000)
    await scene.listener.expect("cancel_call", within=at_once, call_id=call_id)
    await scene.ring(await scene.another_caller())


@case(requirements=("RL-SYNC-028", "RL-SYNC-026"), needs=_HOLD)
async def one_attached_connection_is_enough(stage: RelayStage) -> None:
    """A call of which one connection is still attached is not abandoned."""
    scene = await Scene.set(stage)
    request = await scene.send_request()
    call_id = (await scene.caller.expect("call_status", state="ringing"))["call_id"]
    await scene.listener.expect("incoming_call", call_id=call_id)
    await scene.accept(call_id)
    second = await scene.another_caller()
    await second.send(request)
    await second.expect("call_status", state="answered", call_id=call_id)
    await scene.caller.break_off()
    await _pass(stage, "hold_ms")
    await scene.listener.quiet("somebody still waits for the call")
    scene.caller = second
    await scene.report("call_started", call_id)
    await second.expect("call_status", state="working", call_id=call_id)
    await scene.complete(call_id)


@case(requirements=("RL-SYNC-031",))
async def attached_connection_hears_no_status_twice(stage: RelayStage) -> None:
    """A request that is repeated where the call is waited for already is answered by its end only."""
    scene = await Scene.set(stage)
    request = await scene.send_request()
    call_id = (await scene.caller.expect("call_status", state="ringing"))["call_id"]
    await scene.listener.expect("incoming_call", call_id=call_id)
    for _ in range(3):
        await scene.caller.send(request)
    await scene.caller.quiet("it is attached already")
    await scene.work(call_id)
    await scene.caller.send(request)
    await scene.caller.quiet("it is attached already")
    await scene.complete(call_id)
    await scene.caller.quiet("the call has ended once")


@case(requirements=("RL-SYNC-030", "RL-SYNC-032", "RL-SYNC-033"))
async def ended_call_is_told_again(stage: RelayStage) -> None:
    """A caller that repeats the request of an ended call gets its status and its end, on any connection."""
    scene = await Scene.set(stage)
    request = await scene.send_request()
    call_id = (await scene.caller.expect("call_status", state="ringing"))["call_id"]
    await scene.listener.expect("incoming_call", call_id=call_id)
    await scene.work(call_id)
    sent = await scene.complete(call_id)
    for _ in range(2):
        line = await scene.another_caller()
        await line.send(request)
        await line.expect("call_status", call_id=call_id)
        await line.expect("call_outcome", call_id=call_id, envelope=sent["envelope"])
    await scene.listener.quiet("the call has run once")


@case(requirements=("RL-SYNC-032",))
async def end_without_an_outcome_is_told_again(stage: RelayStage) -> None:
    """An end by the relay's own word is told again like an outcome, with the `call_id`."""
    scene = await Scene.set(stage)
    request = await scene.send_request()
    call_id = (await scene.caller.expect("call_status", state="ringing"))["call_id"]
    await scene.listener.expect("incoming_call", call_id=call_id)
    await scene.report("call_rejected", call_id, code="protocol_error")
    await scene.caller.expect("call_error", code="protocol_error", call_id=call_id)
    line = await scene.another_caller()
    await line.send(request)
    await line.expect("call_status", call_id=call_id)
    await line.expect("call_error", code="protocol_error", call_id=call_id)


@case(requirements=("RL-SYNC-033", "RL-IDEM-005"), needs=Needs(bounds={"record_life_ms": 10_000}))
async def record_of_an_ended_call_goes_in_its_time(stage: RelayStage) -> None:
    """The record of an ended sync call is there for its time and then gone."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.work(call_id)
    await scene.complete(call_id)
    await scene.has_ended(call_id, "completed")
    await _pass(stage, "record_life_ms")
    answer = await stage.ask(scene.alice, "GET", f"/v1/calls/{call_id}")
    check(answer.status == 404, "404 for a record whose time is over", str(answer))
