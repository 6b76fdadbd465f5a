"""Sync calls: from the request to the outcome, their bounds, and the loss of either side."""

from ringline.conformance.identity import fresh_id
from ringline.conformance.registry import Level, Needs, case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check

__all__: list[str] = []

_RING = Needs(bounds={"ring_bound_ms": 6_000, "call_bound_ms": 12_000})


@case(requirements=("RL-SYNC-001",))
async def admitted_call_rings_at_one_listener(stage: RelayStage) -> None:
    """An admitted call is offered to one listener connection, and its caller told that it rings."""
    scene = await Scene.set(stage)
    other = await stage.listen_line(scene.bob)
    await scene.send_request()
    status = await scene.caller.expect("call_status", state="ringing")
    await scene.report("call_accepted", status["call_id"])
    frame = await scene.listener.next()
    first = frame.get("type") == "incoming_call"
    if not first:
        check(frame.get("type") == "cancel_call", "an offer, or no such call here", repr(frame))
        await other.expect("incoming_call", call_id=status["call_id"])
    await (other if first else scene.listener).quiet("the call is with another instance")


@case(requirements=("RL-SYNC-002", "RL-SYNC-004"))
async def answered_after_accepted(stage: RelayStage) -> None:
    """A caller hears `answered` when the listener has accepted the call, and not before."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.caller.quiet("nobody has accepted the call")
    await scene.accept(call_id)
    await scene.caller.quiet("nobody has started the call")


@case(requirements=("RL-SYNC-003", "RL-SYNC-004"))
async def working_after_started(stage: RelayStage) -> None:
    """A caller hears `working` when the listener has started the call, after `answered`."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.work(call_id)
    await scene.caller.quiet("there is no outcome yet")


@case(requirements=("RL-SYNC-007", "RL-SYNC-009"))
async def outcome_reaches_every_attached_connection_once(stage: RelayStage) -> None:
    """An outcome reaches each of the caller's connections that repeated the request, once."""
    scene = await Scene.set(stage)
    request = await scene.send_request()
    call_id = (await scene.caller.expect("call_status", state="ringing"))["call_id"]
    await scene.listener.expect("incoming_call", call_id=call_id)
    lines = [scene.caller, await scene.another_caller(), await scene.another_caller()]
    for line in lines[1:]:
        await line.send(request)
        await line.expect("call_status", state="ringing", call_id=call_id)
    aside = await scene.another_caller()
    await scene.report("call_started", call_id)
    sent = await scene.send_outcome(call_id)
    for line in lines:
        frame = await line.next()
        while frame["type"] == "call_status":
            frame = await line.next()
        check(frame.get("envelope") == sent["envelope"], "the outcome", repr(frame["type"]))
        await line.quiet("the call has ended once")
    await aside.quiet("it has not asked for the call")


@case(requirements=("RL-SYNC-010", "RL-SYNC-011"))
async def first_end_is_the_only_one(stage: RelayStage) -> None:
    """After its outcome a call is over: a later one changes nothing and is answered with `cancel_call`."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.work(call_id)
    await scene.complete(call_id)
    for terminal in ("completed", "failed"):
        await scene.send_outcome(call_id, terminal=terminal)
        await scene.listener.expect("cancel_call", call_id=call_id)
    await scene.report("call_rejected", call_id, code="protocol_error")
    await scene.listener.expect("cancel_call", call_id=call_id)
    await scene.caller.quiet("the call had ended")
    await scene.has_ended(call_id, "completed")


@case(requirements=("RL-SYNC-010", "RL-CANCEL-028"))
async def late_answers_to_a_cancel_stay_unanswered(stage: RelayStage) -> None:
    """A `call_cancelled` or `call_not_cancelled` of a call that is over or unknown is not answered."""
    scene = await Scene.set(stage)
    ended = await scene.ring()
    await scene.work(ended)
    await scene.complete(ended)
    for call_id in (ended, "unknown-to-the-relay"):
        await scene.report("call_cancelled", call_id, phase="running")
        await scene.report("call_not_cancelled", call_id, reason="unknown")
    await scene.listener.quiet("they would answer each other for ever")
    await scene.has_ended(ended, "completed")


@case(requirements=("RL-SYNC-010", "RL-SYNC-019"))
async def listener_reports_its_own_calls_only(stage: RelayStage) -> None:
    """A frame about a call that another listener has is answered with `cancel_call`, without effect."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    mallory = await stage.identity("mallory")
    for thief in (await stage.listen_line(mallory), await stage.listen_line(scene.bob)):
        for frame in (
            {"type": "call_accepted", "call_id": call_id},
            {"type": "call_started", "call_id": call_id},
            {"type": "call_rejected", "call_id": call_id, "code": "protocol_error"},
            mallory.outcome(call_id, terminal="failed"),
        ):
            await thief.send(frame)
            await thief.expect("cancel_call", call_id=call_id)
    await scene.caller.quiet("the call is in other hands")
    await scene.work(call_id)
    await scene.complete(call_id)


# --- bounds


async def _timed_out(scene: Scene, call_id: str, within_ms: int, state: str) -> None:
    patience = within_ms / 1000 + scene.stage.patience.answer
    await scene.caller.expect("call_error", within=patience, code="timeout", call_id=call_id)
    await scene.listener.expect("cancel_call", call_id=call_id)
    await scene.has_ended(call_id, state)


@case(requirements=("RL-SYNC-012", "RL-SYNC-014"), needs=_RING)
async def call_that_nobody_accepts_expires(stage: RelayStage) -> None:
    """A call that is not accepted within the ring bound ends: `timeout`, `cancel_call`, `expired`."""
    scene = await Scene.set(stage)
    began = scene.alice.now()
    call_id = await scene.ring()
    await _timed_out(scene, call_id, stage.bound("ring_bound_ms"), "expired")
    took = scene.alice.now() - began
    check(took >= stage.bound("ring_bound_ms") - 100, "an end after the bound", f"{took} ms")
    # However patient the suite is: an end at the later bound is not that of this one.
    check(took < stage.bound("call_bound_ms"), "an end at the ring bound", f"{took} ms")
    await scene.report("call_accepted", call_id)
    await scene.listener.expect("cancel_call", call_id=call_id)
    await scene.caller.quiet("the call had ended")


@case(requirements=("RL-SYNC-013", "RL-SYNC-014"), needs=_RING)
async def call_that_does_not_end_is_ended(stage: RelayStage) -> None:
    """An accepted call outlives the ring bound and ends at the call bound: `indeterminate_execution`."""
    scene = await Scene.set(stage)
    began = scene.alice.now()
    call_id = await scene.ring()
    await scene.accept(call_id)
    await _timed_out(scene, call_id, stage.bound("call_bound_ms"), "indeterminate_execution")
    took = scene.alice.now() - began
    check(took >= stage.bound("call_bound_ms") - 100, "an end after the bound", f"{took} ms")
    await scene.send_outcome(call_id, terminal="failed")
    await scene.listener.expect("cancel_call", call_id=call_id)
    await scene.caller.quiet("the call had ended")


# --- conversations and instances


@case(requirements=("RL-SYNC-039",))
async def conversation_stays_with_its_instance(stage: RelayStage) -> None:
    """The calls of a correlation id go to the instance that took the first, or are `busy` when it is full."""
    scene = await Scene.set(stage, capacity=2)
    correlation_id = fresh_id()
    call_id = await scene.ring(correlation_id=correlation_id)
    await scene.work(call_id)
    await scene.complete(call_id)
    other = await stage.listen_line(scene.bob, capacity=40)
    call_id = await scene.ring(correlation_id=correlation_id)
    await other.quiet("the conversation is with another instance")
    # Fill the instance by another caller, while there is no other instance to go to.
    carol = await stage.identity("carol")
    await other.leave()
    line = await stage.call_line(carol, scene.bob.handle)
    await line.send(carol.request())
    await line.expect("call_status", state="ringing")
    await scene.listener.expect("incoming_call", from_=carol.handle)
    other = await stage.listen_line(scene.bob, capacity=40)
    await scene.send_request(correlation_id=correlation_id)
    await scene.caller.refused("busy", correlation_id=correlation_id)
    await scene.send_request()
    status = await scene.caller.expect("call_status", state="ringing")
    await other.expect("incoming_call", call_id=status["call_id"])


@case(Level.SHOULD, requirements=("RL-SYNC-040",))
async def least_busy_instance_is_asked_first(stage: RelayStage) -> None:
    """A call of a new conversation goes to the instance with the smallest share of its places in use."""
    scene = await Scene.set(stage, capacity=2)
    await scene.ring()
    large = await stage.listen_line(scene.bob, capacity=20)
    for _ in range(4):
        await scene.send_request()
        status = await scene.caller.expect("call_status", state="ringing")
        await large.expect("incoming_call", call_id=status["call_id"])


@case(requirements=("RL-SYNC-041",))
async def capacity_is_not_exceeded(stage: RelayStage) -> None:
    """An instance never has more calls in hand than its capacity, whoever calls."""
    scene = await Scene.set(stage, capacity=3)
    callers = [await stage.identity(f"c{number}") for number in range(5)]
    states: list[str] = []
    for who in callers:
        line = await stage.call_line(who, scene.bob.handle)
        await line.send(who.request())
        frame = await line.next()
        states.append(frame.get("state") or frame.get("code") or "")
    check(states == ["ringing"] * 3 + ["busy"] * 2, "three calls and twice busy", repr(states))
