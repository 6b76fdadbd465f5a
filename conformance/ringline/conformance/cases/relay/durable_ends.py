"""Durable calls: attempts that fail, time that runs out, authority that is lost, and what is kept."""

import asyncio
from typing import Any
from uuid import uuid4

from ringline.conformance.line import Frame
from ringline.conformance.registry import Needs, case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check

__all__: list[str] = []

_DURABLE = ("durable",)
_PLAIN = Needs(features=_DURABLE)
_STOP = Needs(features=_DURABLE, bounds={"stop_wait_ms": 2_500})
_SHORT_MS = 1_500


async def _attempts(scene: Scene, call_id: str) -> int:
    shown = await scene.stage.record(scene.alice, call_id)
    attempts: int = shown["attempts"]
    return attempts


async def _lose(scene: Scene, call_id: str, *, boot: str | None = None) -> None:
    """Have the call handed to a process that dies before it has begun."""
    await scene.listen(boot=boot)
    await scene.take(call_id)
    await scene.listener.break_off()


async def _parked(stage: RelayStage, **request: object) -> tuple[Scene, str]:
    """Return a scene without a listener, and a call of it that is parked."""
    scene = await Scene.set(stage, offline=True, listening=False)
    receipt = await scene.submit(**request)
    for _ in range(stage.bound("attempts")):
        await _lose(scene, receipt["call_id"])
    await scene.reaches(receipt["call_id"], "delivery_failed")
    return scene, receipt["call_id"]


@case(requirements=("RL-DURABLE-048",), needs=_PLAIN)
async def broken_connection_is_a_counted_attempt(stage: RelayStage) -> None:
    """A connection that breaks with a call in hand that was not begun costs the call an attempt."""
    scene = await Scene.set(stage, offline=True, listening=False)
    receipt = await scene.submit()
    await _lose(scene, receipt["call_id"])
    await scene.reaches(receipt["call_id"], "queued")
    check(await _attempts(scene, receipt["call_id"]) == 1, "one attempt", "another count")
    await scene.listen()
    ids = await scene.take(receipt["call_id"])
    await scene.begin(ids)


@case(requirements=("RL-DURABLE-049", "RL-DURABLE-054"), needs=_PLAIN)
async def listeners_good_bye_is_no_attempt(stage: RelayStage) -> None:
    """A listener that closes in good order costs the call no attempt, and the call rests before the next."""
    scene = await Scene.set(stage, offline=True)
    receipt = await scene.submit()
    await scene.take(receipt["call_id"])
    began = scene.alice.now()
    await scene.listener.leave()
    await scene.reaches(receipt["call_id"], "queued")
    check(await _attempts(scene, receipt["call_id"]) == 0, "no attempt", "some")
    await scene.listen()
    rest = stage.bound("back_off_ms")
    await scene.listener.expect(
        "incoming_call", within=rest / 1000 + stage.patience.answer, call_id=receipt["call_id"]
    )
    took = scene.alice.now() - began
    check(took >= rest - 100, f"a rest of {rest} ms", f"{took} ms")


@case(requirements=("RL-DURABLE-050",), needs=_PLAIN)
async def attempt_is_taken_back_when_its_process_lives(stage: RelayStage) -> None:
    """An attempt that was counted for a broken connection is taken back when the same boot returns."""
    instance, boot = str(uuid4()), str(uuid4())
    scene = await Scene.set(stage, offline=True, instance=instance, boot=boot)
    receipt = await scene.submit()
    await scene.take(receipt["call_id"])
    await scene.listener.break_off()
    await scene.reaches(receipt["call_id"], "queued")
    check(await _attempts(scene, receipt["call_id"]) == 1, "one attempt", "another count")
    await scene.listen(instance=instance, boot=boot)

    async def none_left() -> bool:
        return not await _attempts(scene, receipt["call_id"])

    await stage.until(none_left, "no attempt any more")


@case(requirements=("RL-DURABLE-048", "RL-DURABLE-050"), needs=_PLAIN)
async def attempt_stands_when_the_process_was_another(stage: RelayStage) -> None:
    """An attempt that was counted stands when the instance returns as another process."""
    instance = str(uuid4())
    scene = await Scene.set(stage, offline=True, instance=instance)
    receipt = await scene.submit()
    await scene.take(receipt["call_id"])
    await scene.listener.break_off()
    await scene.reaches(receipt["call_id"], "queued")
    await scene.listen(instance=instance)
    await scene.take(receipt["call_id"])
    check(await _attempts(scene, receipt["call_id"]) == 1, "one attempt", "another count")


@case(requirements=("RL-DURABLE-051", "RL-DURABLE-052"), needs=_PLAIN)
async def last_attempt_parks_the_call(stage: RelayStage) -> None:
    """A call that killed so many processes is parked as `delivery_failed`, and its caller is not told."""
    scene, call_id = await _parked(stage)
    await scene.caller.quiet("it may be replayed")
    shown = await stage.record(scene.alice, call_id)
    told = (shown["state"], shown["finished_at"])
    check(told == ("delivery_failed", None), "a parked call", repr(told))
    await scene.listen()
    await scene.listener.quiet("the call is parked")


@case(requirements=("RL-HTTP-043", "RL-HTTP-044", "RL-DURABLE-052"), needs=_PLAIN)
async def callee_replays_a_parked_call(stage: RelayStage) -> None:
    """The callee's `replay` queues a parked call anew, with no attempts; nobody else's does."""
    scene, call_id = await _parked(stage)
    target = f"/v1/calls/{call_id}/replay"
    mallory = await stage.identity("mallory")
    for who in (scene.alice, mallory):
        answer = await stage.ask(who, "POST", target)
        check(answer.status == 404, "404 for anybody but the callee", str(answer))
    answer = await stage.ask(scene.bob, "POST", target)
    told = (answer.status, answer.json().get("state"), answer.json().get("attempts"))
    check(told == (200, "queued", 0), "200, queued, no attempts", repr(told))
    again = await stage.ask(scene.bob, "POST", target)
    check(again.status == 409, "409 for a call that is not parked", str(again))
    await scene.listen()
    ids = await scene.take(call_id)
    await scene.begin(ids)
    await scene.send_outcome(**ids)
    for kind in ("call_status", "call_status", "call_outcome"):
        await scene.caller.expect(kind, call_id=call_id)


@case(requirements=("RL-CANCEL-004", "RL-DURABLE-052"), needs=_PLAIN)
async def parked_call_is_canceled_at_once(stage: RelayStage) -> None:
    """A parked call is canceled at once when its caller cancels it."""
    scene, call_id = await _parked(stage)
    await scene.caller.send({"type": "cancel_call", "call_id": call_id})
    await scene.caller.expect("call_error", code="canceled", call_id=call_id)
    await scene.has_ended(call_id, "canceled")


@case(requirements=("RL-DURABLE-053",), needs=_PLAIN)
async def one_suspect_at_a_time(stage: RelayStage) -> None:
    """Of calls with a counted attempt a connection has one in hand that it has not begun; others go on."""
    scene = await Scene.set(stage, offline=True, listening=False)
    suspects = {(await scene.submit())["call_id"] for _ in range(2)}
    await scene.listen(capacity=10)
    for _ in range(2):
        await scene.take()
    await scene.listener.break_off()
    for call_id in suspects:
        await scene.reaches(call_id, "queued")
    healthy = (await scene.submit())["call_id"]
    await scene.listen(capacity=10)
    held = [await scene.take() for _ in range(2)]
    offered = {ids["call_id"] for ids in held}
    check(healthy in offered, "the call without an attempt", repr(offered))
    await scene.listener.quiet("one suspect is in hand")
    suspect = next(ids for ids in held if ids["call_id"] != healthy)
    await scene.begin(suspect)
    other = await scene.take()
    check({other["call_id"], suspect["call_id"]} == suspects, "the other suspect", repr(other))


# --- time


@case(requirements=("RL-DURABLE-056", "RL-DURABLE-004"), needs=_PLAIN)
async def queued_call_expires(stage: RelayStage) -> None:
    """A call that has not started by `execute_by` ends as `expired`, with `timeout` for its caller."""
    scene = await Scene.set(stage, offline=True, listening=False)
    receipt = await scene.submit(envelope=scene.soon())
    frame = await scene.caller.expect("call_error", code="timeout", call_id=receipt["call_id"])
    check(scene.alice.now() >= receipt["expires_at"] - 50, "an end after execute_by", repr(frame))
    await scene.has_ended(receipt["call_id"], "expired")


@case(requirements=("RL-DURABLE-056", "RL-DURABLE-028"), needs=_PLAIN)
async def accepted_call_expires(stage: RelayStage) -> None:
    """A call that a listener has accepted and not started by `execute_by` is taken from it, and ends."""
    scene = await Scene.set(stage, offline=True)
    receipt = await scene.submit(envelope=scene.soon())
    ids = await scene.take(receipt["call_id"])
    await scene.listener.send({"type": "call_accepted"} | ids)
    await scene.caller.expect("call_status", state="answered")
    await scene.caller.expect("call_error", code="timeout", call_id=ids["call_id"])
    await scene.listener.expect("cancel_call", **ids)
    await scene.has_ended(ids["call_id"], "expired")
    await scene.listener.send({"type": "call_started"} | ids)
    await scene.listener.expect("call_rejected", **ids)


@case(requirements=("RL-DURABLE-057",), needs=_PLAIN)
async def parked_call_fails_in_the_end(stage: RelayStage) -> None:
    """A parked call ends at `execute_by` as `delivery_failed`, with `offline` for its caller."""
    scene = await Scene.set(stage, offline=True, listening=False)
    receipt = await scene.submit(envelope={"exp": scene.alice.now() + 4_000})
    call_id = receipt["call_id"]
    for _ in range(stage.bound("attempts")):
        await _lose(scene, call_id)
    await scene.reaches(call_id, "delivery_failed")
    shown = await stage.record(scene.alice, call_id)
    check(shown["finished_at"] is None, "a parked call", repr(shown))
    within = 4 + stage.patience.answer
    await scene.caller.expect("call_error", within=within, code="offline", call_id=call_id)
    shown = await stage.record(scene.alice, call_id)
    told = (shown["state"], shown["finished_at"] is not None)
    check(told == ("delivery_failed", True), "a call that has ended", repr(told))


async def _begun_over_time(stage: RelayStage) -> tuple[Scene, Frame]:
    """Return a scene with a begun call whose time has run out, its listener asked to stop."""
    scene = await Scene.set(stage, offline=True)
    receipt = await scene.submit(envelope=scene.soon())
    ids = await scene.take(receipt["call_id"])
    await scene.begin(ids)
    for _ in range(2):
        await scene.caller.expect("call_status")
    await scene.listener.expect("cancel_call", **ids)
    return scene, ids


@case(requirements=("RL-DURABLE-058", "RL-DURABLE-059"), needs=_PLAIN)
async def outcome_after_the_time_still_counts(stage: RelayStage) -> None:
    """A begun call whose time is over ends by the outcome that its listener still sends."""
    scene, ids = await _begun_over_time(stage)
    await scene.send_outcome(**ids)
    await scene.caller.expect("call_outcome", call_id=ids["call_id"])
    await scene.has_ended(ids["call_id"], "completed")


@case(requirements=("RL-DURABLE-059",), needs=_PLAIN)
async def stopped_call_is_expired(stage: RelayStage) -> None:
    """A begun call whose time is over and whose listener has stopped it ends as `expired`."""
    scene, ids = await _begun_over_time(stage)
    await scene.listener.send({"type": "call_cancelled", "phase": "running"} | ids)
    await scene.caller.expect("call_error", code="timeout", call_id=ids["call_id"])
    await scene.has_ended(ids["call_id"], "expired")


@case(requirements=("RL-DURABLE-059",), needs=_STOP)
async def call_that_is_not_stopped_is_in_doubt(stage: RelayStage) -> None:
    """A begun call whose time is over and whose listener says nothing ends as `indeterminate_execution`."""
    scene, ids = await _begun_over_time(stage)
    within = stage.bound("stop_wait_ms") / 1000 + stage.patience.answer
    await scene.caller.expect("call_error", within=within, code="timeout", call_id=ids["call_id"])
    await scene.has_ended(ids["call_id"], "indeterminate_execution")


@case(requirements=("RL-DURABLE-059",), needs=_PLAIN)
async def stopped_call_is_canceled_if_the_caller_had_asked(stage: RelayStage) -> None:
    """A begun call that its caller wanted cancelled ends as `canceled` also when its time has run out."""
    scene = await Scene.set(stage, offline=True)
    receipt = await scene.submit(envelope=scene.soon())
    ids = await scene.take(receipt["call_id"])
    await scene.begin(ids)
    for _ in range(2):
        await scene.caller.expect("call_status")
    await scene.caller.send({"type": "cancel_call", "call_id": ids["call_id"]})
    await scene.listener.expect("cancel_call", **ids)
    await asyncio.sleep(max(0, receipt["expires_at"] + 100 - scene.alice.now()) / 1000)
    await scene.listener.send({"type": "call_cancelled", "phase": "running"} | ids)
    await scene.caller.expect("call_error", code="canceled", call_id=ids["call_id"])
    await scene.has_ended(ids["call_id"], "canceled")


# --- what is kept


@case(requirements=("RL-DURABLE-066", "RL-HTTP-040", "RL-HTTP-042"), needs=_PLAIN)
async def outcome_is_kept_until_it_is_acknowledged(stage: RelayStage) -> None:
    """The outcome of a durable call is kept until its caller's `ack`, which may be repeated."""
    scene = await Scene.set(stage, offline=True)
    ids = await scene.started()
    path = f"/v1/calls/{ids['call_id']}"
    early = await stage.ask(scene.alice, "POST", f"{path}/ack")
    check(early.status == 409, "409 before the end", str(early))
    sent = await scene.send_outcome(**ids)
    await scene.caller.expect("call_outcome")
    for _ in range(2):
        kept: dict[str, Any] = (await stage.record(scene.alice, ids["call_id"]))["outcome"] or {}
        check(kept.get("envelope") == sent["envelope"], "the outcome", repr(kept))
    others = await stage.ask(scene.bob, "POST", f"{path}/ack")
    check(others.status == 404, "404 for anybody but the caller", str(others))
    for _ in range(2):
        answer = await stage.ask(scene.alice, "POST", f"{path}/ack")
        check(answer.status == 200, "200", str(answer))
        check(answer.json()["outcome"] is None, "a record without its outcome", str(answer))
    shown = await stage.record(scene.alice, ids["call_id"])
    told = (shown["state"], shown["outcome"])
    check(told == ("completed", None), "a completed call without its outcome", repr(told))


@case(
    requirements=("RL-DURABLE-067", "RL-DURABLE-066"),
    needs=Needs(features=_DURABLE, bounds={"stored_record_life_ms": 4_000}),
)
async def record_of_a_durable_call_goes_in_its_time(stage: RelayStage) -> None:
    """The record of a durable call is there for its time behind `execute_by`, and then gone."""
    scene = await Scene.set(stage, offline=True)
    receipt = await scene.submit(envelope=scene.soon())
    ids = await scene.take(receipt["call_id"])
    await scene.begin(ids)
    await scene.send_outcome(**ids)
    for kind in ("call_status", "call_status", "call_outcome"):
        await scene.caller.expect(kind)
    await scene.has_ended(ids["call_id"], "completed")
    await asyncio.sleep(max(0, receipt["expires_at"] + 300 - scene.alice.now()) / 1000)
    await scene.has_ended(ids["call_id"], "completed")
    await asyncio.sleep(stage.bound("stored_record_life_ms") / 1000)

    async def gone() -> bool:
        return (await stage.ask(scene.alice, "GET", f"/v1/calls/{ids['call_id']}")).status == 404

    await stage.until(gone, "404 for a record whose time is over")
