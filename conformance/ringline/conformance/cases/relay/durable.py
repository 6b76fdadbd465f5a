"""Durable calls: the queue, leases, the grant of a start, and the return of an instance."""

import asyncio
from uuid import uuid4

from ringline.conformance.identity import fresh_id
from ringline.conformance.line import Frame, Line
from ringline.conformance.registry import Level, Needs, case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check

__all__: list[str] = []

_DURABLE = ("durable",)
_PLAIN = Needs(features=_DURABLE)
_LEASE = Needs(features=_DURABLE, bounds={"lease_ms": 5_000})
_REBIND = Needs(features=_DURABLE, bounds={"rebind_ms": 5_000})


async def _over(stage: RelayStage, bound: str) -> None:
    await asyncio.sleep(stage.bound(bound) / 1000 + 0.3)


@case(requirements=("RL-DURABLE-018", "RL-DURABLE-027", "RL-SYNC-007"), needs=_PLAIN)
async def call_is_stored_granted_and_answered(stage: RelayStage) -> None:
    """A durable call is queued, answered, working and ended by its outcome, and never ringing."""
    scene = await Scene.set(stage, offline=True, listening=False)
    receipt = await scene.submit()
    await scene.caller.quiet("nobody listens")
    await scene.has_ended(receipt["call_id"], "queued")
    await scene.listen()
    ids = await scene.take(receipt["call_id"])
    await scene.caller.quiet("nobody has accepted it")
    await scene.begin(ids)
    for state in ("answered", "working"):
        await scene.caller.expect(
            "call_status", state=state, call_id=ids["call_id"], correlation_id=receipt["correlation_id"]
        )
    sent = await scene.send_outcome(**ids)
    await scene.caller.expect("call_outcome", call_id=ids["call_id"], envelope=sent["envelope"])
    await scene.has_ended(ids["call_id"], "completed")


@case(requirements=("RL-DURABLE-006",), needs=_PLAIN)
async def caller_need_not_wait(stage: RelayStage) -> None:
    """A stored call whose caller has gone is handed out, begun and ended, and its outcome kept for him."""
    scene = await Scene.set(stage, offline=True, listening=False)
    receipt = await scene.submit()
    await scene.caller.leave()
    await scene.listen()
    ids = await scene.take(receipt["call_id"])
    await scene.begin(ids)
    sent = await scene.send_outcome(**ids)
    shown = await stage.record(scene.alice, ids["call_id"], wait=5)
    check(shown["state"] == "completed", "a completed call", repr(shown["state"]))
    check(shown["outcome"]["envelope"] == sent["envelope"], "the outcome", repr(shown["outcome"]))


@case(requirements=("RL-DURABLE-010", "RL-DURABLE-007", "RL-DURABLE-047"), needs=_LEASE)
async def lease_that_nobody_accepts_lapses(stage: RelayStage) -> None:
    """A call that is not accepted within its lease is taken back, counted, and handed out under another."""
    scene = await Scene.set(stage, offline=True)
    receipt = await scene.submit()
    first = await scene.take(receipt["call_id"])
    await scene.has_ended(receipt["call_id"], "leased")
    await _over(stage, "lease_ms")
    again = await scene.take(receipt["call_id"])
    check(again["lease_id"] != first["lease_id"], "another lease", "the same one")
    shown = await stage.record(scene.alice, receipt["call_id"])
    check(shown["attempts"] == 1, "one counted attempt", repr(shown["attempts"]))
    await scene.listener.send({"type": "call_accepted"} | first)
    await scene.listener.expect("call_rejected", code="protocol_error", **first)
    await scene.caller.quiet("that lease was gone")
    await scene.begin(again)


@case(requirements=("RL-DURABLE-011",), needs=_LEASE)
async def accepted_call_stays_with_its_connection(stage: RelayStage) -> None:
    """A call that was accepted outlives the time of its lease, and can still be begun."""
    scene = await Scene.set(stage, offline=True)
    receipt = await scene.submit()
    ids = await scene.take(receipt["call_id"])
    await scene.listener.send({"type": "call_accepted"} | ids)
    await scene.caller.expect("call_status", state="answered")
    await _over(stage, "lease_ms")
    await scene.listener.quiet("it was accepted")
    await scene.has_ended(receipt["call_id"], "accepted")
    await scene.listener.send({"type": "call_started"} | ids)
    await scene.listener.expect("call_started", **ids)


@case(requirements=("RL-DURABLE-012",), needs=_PLAIN)
async def conversation_goes_in_order_one_at_a_time(stage: RelayStage) -> None:
    """The calls of a correlation id are handed out in their order, each when the one before has ended."""
    scene = await Scene.set(stage, offline=True, listening=False)
    correlation_id = fresh_id()
    made = [(await scene.submit(correlation_id=correlation_id))["call_id"] for _ in range(3)]
    await scene.listen(capacity=10)
    for call_id in made:
        ids = await scene.take(call_id)
        await scene.begin(ids)
        await scene.listener.quiet("the next waits for this one")
        await scene.send_outcome(**ids)


@case(requirements=("RL-DURABLE-014",), needs=_PLAIN)
async def conversation_holds_back_no_other(stage: RelayStage) -> None:
    """A call that waits for the one before it in its conversation holds back no other conversation."""
    scene = await Scene.set(stage, offline=True, listening=False)
    correlation_id = fresh_id()
    first = await scene.submit(correlation_id=correlation_id)
    await scene.submit(correlation_id=correlation_id)
    other = await scene.submit()
    await scene.listen(capacity=10)
    ids = await scene.take(first["call_id"])
    await scene.take(other["call_id"])
    await scene.begin(ids)
    await scene.listener.quiet("the second waits for the first")


@case(Level.SHOULD, requirements=("RL-DURABLE-013",), needs=_PLAIN)
async def callers_take_turns(stage: RelayStage) -> None:
    """A caller who came later and has few calls waiting need not wait for all of another's."""
    scene = await Scene.set(stage, offline=True, listening=False)
    carol = await stage.identity("carol")
    line = await stage.call_line(carol, scene.bob.handle)
    for _ in range(4):
        await scene.submit()
    await line.send(carol.request(delivery_mode="durable"))
    late = (await line.expect("call_queued"))["call_id"]
    await scene.listen(capacity=2)
    offered = [(await scene.take())["call_id"] for _ in range(2)]
    check(late in offered, "carol's call among the first two", repr(offered))


@case(requirements=("RL-DURABLE-015",), needs=_PLAIN)
async def conversation_stays_with_its_instance(stage: RelayStage) -> None:
    """A call of a conversation that an instance took is handed to that instance alone."""
    scene = await Scene.set(stage, offline=True)
    correlation_id = fresh_id()
    await scene.submit(correlation_id=correlation_id)
    ids = await scene.take()
    await scene.begin(ids)
    await scene.send_outcome(**ids)
    for kind in ("call_status", "call_status", "call_outcome"):
        await scene.caller.expect(kind)
    # The other instance is the less busy one from here on.
    await scene.started()
    other = await stage.listen_line(scene.bob, capacity=40)
    for _ in range(2):
        await scene.submit(correlation_id=correlation_id)
        ids = await scene.take()
        await scene.begin(ids)
        await scene.send_outcome(**ids)
        for kind in ("call_status", "call_status", "call_outcome"):
            await scene.caller.expect(kind)
    await other.quiet("the conversation is another instance's")


@case(
    requirements=("RL-DURABLE-016", "RL-DURABLE-017"),
    needs=Needs(features=_DURABLE, bounds={"starts": 6}),
)
async def starts_of_a_day_are_limited(stage: RelayStage) -> None:
    """A caller's calls beyond the starts of a day wait, with `deferred_until` in the record."""
    starts = stage.budget("starts", most=6)
    scene = await Scene.set(stage, offline=True, capacity=20)
    for _ in range(starts):
        await scene.started()
    receipt = await scene.submit()
    await scene.listener.quiet("the starts of the day are used up")
    shown = await stage.record(scene.alice, receipt["call_id"])
    told = (shown["state"], (shown["deferred_until"] or 0) > scene.alice.now())
    check(told == ("queued", True), "a queued call that is deferred", repr(told))
    carol = await stage.identity("carol")
    line = await stage.call_line(carol, scene.bob.handle)
    await line.send(carol.request(delivery_mode="durable"))
    other = (await line.expect("call_queued"))["call_id"]
    await scene.take(other)


@case(requirements=("RL-SYNC-041", "RL-DURABLE-007"), needs=_PLAIN)
async def capacity_bounds_both_modes_together(stage: RelayStage) -> None:
    """An instance has no more calls in hand than its capacity, sync and durable ones together."""
    scene = await Scene.set(stage, offline=True, capacity=2)
    ids = await scene.started()
    await scene.ring()
    await scene.submit()
    await scene.listener.quiet("both places are taken")
    carol = await stage.identity("carol")
    line = await stage.call_line(carol, scene.bob.handle)
    await line.send(carol.request())
    await line.refused("busy")
    await scene.send_outcome(**ids)
    await scene.take()


# --- leases that are gone


def _frames(ids: Frame, scene: Scene) -> list[Frame]:
    outcome = scene.bob.outcome(**ids, terminal="failed")
    return [
        {"type": "call_accepted"} | ids,
        {"type": "call_started"} | ids,
        {"type": "call_rejected", "code": "protocol_error"} | ids,
        outcome,
    ]


async def _stale(scene: Scene, line: Line, ids: Frame) -> None:
    """Pass when every frame under this lease is answered that it is gone, answers to cancels apart."""
    for frame in _frames(ids, scene):
        await line.send(frame)
        await line.expect("call_rejected", code="protocol_error", **ids)
    await line.send({"type": "call_cancelled", "phase": "running"} | ids)
    await line.send({"type": "call_not_cancelled", "reason": "unknown"} | ids)
    await line.quiet("late answers to a cancel are not answered")


@case(requirements=("RL-DURABLE-019", "RL-DURABLE-020", "RL-DURABLE-022"), needs=_PLAIN)
async def another_lease_is_gone(stage: RelayStage) -> None:
    """Frames under a lease that the call does not have are answered with it, and change nothing."""
    scene = await Scene.set(stage, offline=True)
    ids = await scene.started()
    await _stale(scene, scene.listener, ids | {"lease_id": str(uuid4())})
    await scene.caller.quiet("nothing has happened to the call")
    await scene.has_ended(ids["call_id"], "started")
    await scene.send_outcome(**ids)
    await scene.caller.expect("call_outcome", call_id=ids["call_id"])


@case(requirements=("RL-DURABLE-019",), needs=_PLAIN)
async def lease_is_of_one_connection(stage: RelayStage) -> None:
    """Frames under a right lease on another connection, of the same handle too, are stale."""
    scene = await Scene.set(stage, offline=True)
    ids = await scene.started()
    mallory = await stage.identity("mallory")
    for line in (await stage.listen_line(scene.bob), await stage.listen_line(mallory)):
        await _stale(scene, line, ids)
    await scene.has_ended(ids["call_id"], "started")


@case(requirements=("RL-DURABLE-021", "RL-DURABLE-020"), needs=_PLAIN)
async def ended_and_unknown_calls_have_no_lease(stage: RelayStage) -> None:
    """Frames with a lease about a durable call that has ended, or never was, are stale."""
    scene = await Scene.set(stage, offline=True)
    ids = await scene.started()
    await scene.send_outcome(**ids)
    await scene.caller.expect("call_outcome")
    await _stale(scene, scene.listener, ids)
    await _stale(scene, scene.listener, {"call_id": "never-was", "lease_id": str(uuid4())})
    await scene.has_ended(ids["call_id"], "completed")
    await scene.caller.quiet("the call has ended once")


# --- the grant


@case(requirements=("RL-DURABLE-029",), needs=_PLAIN)
async def repeated_start_is_granted_again(stage: RelayStage) -> None:
    """A start that is asked for again is granted again, and tells the caller nothing new."""
    scene = await Scene.set(stage, offline=True)
    ids = await scene.started()
    for _ in range(2):
        await scene.listener.send({"type": "call_started"} | ids)
        await scene.listener.expect("call_started", **ids)
    await scene.caller.quiet("that it works is known")


@case(requirements=("RL-FRAME-049", "RL-DURABLE-036"), needs=_PLAIN)
async def nothing_is_completed_without_a_grant(stage: RelayStage) -> None:
    """An outcome `completed` of a durable call that was not granted its start is refused."""
    scene = await Scene.set(stage, offline=True)
    receipt = await scene.submit()
    ids = await scene.take(receipt["call_id"])
    await scene.listener.send({"type": "call_accepted"} | ids)
    await scene.send_outcome(**ids)
    await scene.listener.refused()
    await scene.has_ended(ids["call_id"], "accepted")
    await scene.send_outcome(**ids, terminal="failed")
    await scene.has_ended(ids["call_id"], "failed", wait=5)


@case(requirements=("RL-FRAME-050", "RL-SYNC-008"), needs=_PLAIN)
async def durable_rejection_is_final(stage: RelayStage) -> None:
    """A `call_rejected` ends a durable call: `protocol_error` with the `call_id`, `delivery_failed`."""
    scene = await Scene.set(stage, offline=True)
    receipt = await scene.submit()
    ids = await scene.take(receipt["call_id"])
    await scene.listener.send({"type": "call_rejected", "code": "protocol_error"} | ids)
    await scene.caller.expect("call_error", code="protocol_error", call_id=ids["call_id"])
    shown = await stage.record(scene.alice, ids["call_id"])
    told = (shown["state"], shown["finished_at"] is not None)
    check(told == ("delivery_failed", True), "a call that has ended", repr(told))
    await scene.listener.quiet("it has ended")


# --- the return of an instance


@case(requirements=("RL-DURABLE-035", "RL-DURABLE-038"), needs=_PLAIN)
async def begun_call_waits_for_its_instance(stage: RelayStage) -> None:
    """A begun call whose connection is lost goes to no other instance, and to its own under a new lease."""
    for ending in (Line.break_off, Line.leave):
        instance = str(uuid4())
        scene = await Scene.set(stage, offline=True, instance=instance)
        ids = await scene.started()
        await ending(scene.listener)
        other = await stage.listen_line(scene.bob)
        await scene.has_ended(ids["call_id"], "started")
        await other.quiet("the call was begun elsewhere")
        await scene.listen(instance=instance)
        again = await scene.take(ids["call_id"])
        check(again["lease_id"] != ids["lease_id"], "a new lease", "the same one")
        await _stale(scene, scene.listener, ids)
        await scene.listener.send({"type": "call_started"} | again)
        await scene.listener.expect("call_started", **again)
        await scene.send_outcome(**again)
        await scene.caller.expect("call_outcome", call_id=ids["call_id"])


@case(requirements=("RL-DURABLE-038",), needs=_PLAIN)
async def begun_calls_come_first_whatever_the_capacity(stage: RelayStage) -> None:
    """An instance that returns gets all it has begun, beyond its capacity, before anything fresh."""
    instance = str(uuid4())
    scene = await Scene.set(stage, offline=True, instance=instance, capacity=6)
    begun = {(await scene.started())["call_id"] for _ in range(3)}
    await scene.listener.leave()
    fresh = await scene.submit()
    await scene.listen(instance=instance, capacity=1)
    held = [await scene.take() for _ in range(3)]
    check({ids["call_id"] for ids in held} == begun, "the begun calls first", repr(held))
    await scene.listener.quiet("there is no free place")
    for ids in held:
        await scene.send_outcome(**ids)
    await scene.take(fresh["call_id"])


@case(requirements=("RL-DURABLE-039",), needs=_LEASE)
async def returned_call_has_no_lease_bound(stage: RelayStage) -> None:
    """A begun call that was offered again stays with its connection, accepted or not."""
    instance = str(uuid4())
    scene = await Scene.set(stage, offline=True, instance=instance)
    ids = await scene.started()
    await scene.listener.break_off()
    await scene.listen(instance=instance)
    again = await scene.take(ids["call_id"])
    await _over(stage, "lease_ms")
    await scene.listener.quiet("the lease lasts as long as the connection")
    await scene.send_outcome(**again)
    await scene.caller.expect("call_outcome", call_id=ids["call_id"])


@case(requirements=("RL-DURABLE-045",), needs=_REBIND)
async def instance_that_stays_away_leaves_its_calls_in_doubt(stage: RelayStage) -> None:
    """A begun call whose instance is not back in time ends: `indeterminate_execution`, `timeout`."""
    scene = await Scene.set(stage, offline=True)
    ids = await scene.started()
    await scene.listener.break_off()
    within = stage.bound("rebind_ms") / 1000 + stage.patience.answer
    await scene.caller.expect("call_error", within=within, code="timeout", call_id=ids["call_id"])
    await scene.has_ended(ids["call_id"], "indeterminate_execution")
