"""Cancellation: who may ask, what the listener is told, and how it is decided."""

import asyncio
from uuid import uuid4

from ringline.conformance.line import Line
from ringline.conformance.registry import Needs, case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check

__all__: list[str] = []

_DURABLE = Needs(features=("durable",))
_WAIT = Needs(bounds={"cancel_wait_ms": 2_500})


async def _ask(line: Line, call_id: str) -> None:
    await line.send({"type": "cancel_call", "call_id": call_id})


@case(requirements=("RL-CANCEL-001", "RL-CANCEL-005", "RL-CANCEL-023"))
async def confirmed_cancel_ends_the_call(stage: RelayStage) -> None:
    """A `cancel_call` reaches the listener, and its `call_cancelled` ends the call as `canceled`."""
    scene = await Scene.set(stage)
    for working in (False, True):
        call_id = await scene.ring()
        if working:
            await scene.work(call_id)
        await _ask(scene.caller, call_id)
        await scene.listener.expect("cancel_call", call_id=call_id)
        await scene.report("call_cancelled", call_id, phase="running" if working else "pending")
        await scene.caller.expect("call_error", origin="relay", code="canceled", call_id=call_id)
        await scene.has_ended(call_id, "canceled")
        await scene.caller.quiet("the call has ended once")


@case(requirements=("RL-CANCEL-001", "RL-CANCEL-023"))
async def cancel_on_another_connection(stage: RelayStage) -> None:
    """A caller may cancel on a connection that has not asked for the call, and hears how it was decided."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    elsewhere = await stage.call_line(scene.alice, stage.handle("nobody"))
    await _ask(elsewhere, call_id)
    await scene.listener.expect("cancel_call", call_id=call_id)
    await scene.report("call_cancelled", call_id, phase="pending")
    await scene.caller.expect("call_error", code="canceled", call_id=call_id)
    await elsewhere.expect("call_error", code="canceled", call_id=call_id)


@case(requirements=("RL-CANCEL-002", "RL-PRIVACY-005"))
async def nobody_else_cancels(stage: RelayStage) -> None:
    """Another identity's cancellation, the callee's too, is answered as one of a call that never was."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    mallory = await stage.identity("mallory")
    for who in (mallory, scene.bob):
        line = await stage.call_line(who, scene.bob.handle)
        for name in (call_id, "never-was"):
            await _ask(line, name)
            await line.expect("call_not_cancelled", call_id=name, reason="unknown")
        answers = [
            await stage.ask(who, "POST", f"/v1/calls/{name}/cancel") for name in (call_id, "never-was")
        ]
        check(answers[0].status == 404, "404", str(answers[0]))
        check(answers[0].lasting == answers[1].lasting, "one 404 for both", repr(answers))
    await scene.listener.quiet("nobody who may has cancelled the call")
    await scene.accept(call_id)


@case(requirements=("RL-CANCEL-003",))
async def ended_call_is_not_cancelled(stage: RelayStage) -> None:
    """The cancellation of a call that has ended, as canceled too, is answered `already_terminal`."""
    scene = await Scene.set(stage)
    completed = await scene.ring()
    await scene.work(completed)
    await scene.complete(completed)
    canceled = await scene.ring()
    await _ask(scene.caller, canceled)
    await scene.listener.expect("cancel_call", call_id=canceled)
    await scene.report("call_cancelled", canceled, phase="pending")
    await scene.caller.expect("call_error", code="canceled", call_id=canceled)
    for call_id in (completed, canceled):
        await _ask(scene.caller, call_id)
        await scene.caller.expect("call_not_cancelled", call_id=call_id, reason="already_terminal")
        answer = await stage.ask(scene.alice, "POST", f"/v1/calls/{call_id}/cancel")
        told = (answer.status, answer.json().get("code"))
        check(told == (409, "already_terminal"), "409 already_terminal", repr(told))
    await scene.listener.quiet("there is nothing to cancel")


@case(requirements=("RL-CANCEL-006",))
async def listener_is_asked_once(stage: RelayStage) -> None:
    """However often the caller asks, by WebSocket and HTTP, the listener gets one `cancel_call`."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    other = await scene.another_caller()
    for line in (scene.caller, scene.caller, other):
        await _ask(line, call_id)
    by_http = asyncio.create_task(
        stage.ask(scene.alice, "POST", f"/v1/calls/{call_id}/cancel", within=stage.patience.answer + 15)
    )
    await scene.listener.expect("cancel_call", call_id=call_id)
    await scene.listener.quiet("it was asked already")
    await scene.caller.quiet("nothing is decided")
    await scene.listener.quiet("it was asked already")
    await scene.report("call_cancelled", call_id, phase="pending")
    await scene.caller.expect("call_error", code="canceled", call_id=call_id)
    await other.expect("call_error", code="canceled", call_id=call_id)
    answer = await by_http
    # It may have come too late to be one of those who asked before the decision.
    check(answer.status in (200, 409), "200, or 409 behind the end", str(answer))


@case(requirements=("RL-CANCEL-010",))
async def asker_hears_nothing_before_the_decision(stage: RelayStage) -> None:
    """A caller who cancels is told nothing until the listener has answered."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.work(call_id)
    await _ask(scene.caller, call_id)
    await scene.listener.expect("cancel_call", call_id=call_id)
    await scene.caller.quiet("the listener has not answered")
    shown = await stage.record(scene.alice, call_id)
    told = (shown["state"], shown["cancel_requested"])
    check(told == ("started", True), "a started call with cancel_requested", repr(told))


@case(requirements=("RL-CANCEL-024", "RL-CANCEL-025"))
async def refused_cancel_leaves_the_call(stage: RelayStage) -> None:
    """A `call_not_cancelled` passes its reason to the caller, and a later cancellation is asked anew."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.work(call_id)
    for reason in ("too_late", "unknown", "already_terminal"):
        await _ask(scene.caller, call_id)
        await scene.listener.expect("cancel_call", call_id=call_id)
        await scene.report("call_not_cancelled", call_id, reason=reason)
        await scene.caller.expect("call_not_cancelled", call_id=call_id, reason=reason, lease_id=None)
        shown = await stage.record(scene.alice, call_id)
        told = (shown["state"], shown["cancel_requested"])
        check(told == ("started", False), "a started call without cancel_requested", repr(told))
    await scene.complete(call_id)


@case(requirements=("RL-CANCEL-026", "RL-CANCEL-027"))
async def outcome_may_still_win(stage: RelayStage) -> None:
    """An outcome that comes while a cancellation is requested ends the call, and answers who asked."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.work(call_id)
    elsewhere = await stage.call_line(scene.alice, stage.handle("nobody"))
    for line in (scene.caller, elsewhere):
        await _ask(line, call_id)
    await scene.listener.expect("cancel_call", call_id=call_id)
    await scene.complete(call_id)
    await scene.caller.quiet("the outcome is the answer")
    await elsewhere.expect("call_not_cancelled", call_id=call_id, reason="already_terminal")
    await scene.report("call_cancelled", call_id, phase="running")
    await scene.listener.quiet()
    await scene.has_ended(call_id, "completed")


@case(requirements=("RL-CANCEL-028",))
async def answer_that_nobody_asked_for_changes_nothing(stage: RelayStage) -> None:
    """A `call_cancelled` or `call_not_cancelled` without a request is not answered and changes nothing."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.report("call_cancelled", call_id, phase="pending")
    await scene.report("call_not_cancelled", call_id, reason="too_late")
    await scene.listener.quiet("it is only counted")
    await scene.caller.quiet("nobody has asked")
    await scene.work(call_id)
    await scene.complete(call_id)


@case(requirements=("RL-CANCEL-007", "RL-CANCEL-009", "RL-SYNC-022"))
async def request_outlives_the_listeners_connection(stage: RelayStage) -> None:
    """A cancellation that is requested follows the call to the instance's next connection."""
    instance = str(uuid4())
    scene = await Scene.set(stage, instance=instance)
    call_id = await scene.ring()
    await scene.work(call_id)
    await _ask(scene.caller, call_id)
    await scene.listener.expect("cancel_call", call_id=call_id)
    for ending in (Line.break_off, Line.leave):
        await ending(scene.listener)
        await scene.listen(instance=instance)
        await scene.listener.expect("incoming_call", call_id=call_id)
        await scene.listener.expect("cancel_call", call_id=call_id)
    await scene.report("call_cancelled", call_id, phase="running")
    await scene.caller.expect("call_error", code="canceled", call_id=call_id)


@case(requirements=("RL-CANCEL-007", "RL-CANCEL-009"))
async def cancel_while_the_listener_is_away(stage: RelayStage) -> None:
    """A cancellation that is asked for while the instance is away waits for its return."""
    instance = str(uuid4())
    scene = await Scene.set(stage, instance=instance)
    call_id = await scene.ring()
    await scene.listener.leave()
    await _ask(scene.caller, call_id)
    await scene.caller.quiet("the call may be running")
    await scene.listen(instance=instance)
    await scene.listener.expect("incoming_call", call_id=call_id)
    await scene.listener.expect("cancel_call", call_id=call_id)


@case(requirements=("RL-CANCEL-011", "RL-CANCEL-012"))
async def http_cancel_answers_the_decision(stage: RelayStage) -> None:
    """`POST …/cancel` answers 200 with the record when the call is canceled, 409 with the reason when not."""
    scene = await Scene.set(stage)
    for answer_with, status in (({"phase": "running"}, 200), ({"reason": "too_late"}, 409)):
        call_id = await scene.ring()
        await scene.work(call_id)
        asked = asyncio.create_task(
            stage.ask(scene.alice, "POST", f"/v1/calls/{call_id}/cancel", within=stage.patience.answer + 15)
        )
        await scene.listener.expect("cancel_call", call_id=call_id)
        kind = "call_cancelled" if status == 200 else "call_not_cancelled"
        await scene.report(kind, call_id, **answer_with)
        answer = await asked
        check(answer.status == status, f"{status} after {kind}", str(answer))
        if status == 200:
            await scene.caller.expect("call_error", code="canceled", call_id=call_id)
            check(answer.json()["state"] == "canceled", "the record of a canceled call", str(answer))
        else:
            check(answer.json()["code"] == "too_late", "the code too_late", str(answer))
            await scene.caller.quiet("it has not asked, and the call goes on")


@case(requirements=("RL-CANCEL-011",), needs=_WAIT)
async def http_cancel_waits_so_long(stage: RelayStage) -> None:
    """`POST …/cancel` that is not decided in time answers 202, and the request stands."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    wait = stage.bound("cancel_wait_ms")
    began = scene.alice.now()
    answer = await stage.ask(
        scene.alice,
        "POST",
        f"/v1/calls/{call_id}/cancel",
        within=wait / 1000 + stage.patience.answer,
    )
    took = scene.alice.now() - began
    check(answer.status == 202, "202", str(answer))
    check(took >= wait - 100, "an answer after the wait", f"{took} ms")
    check(answer.json()["cancel_requested"] is True, "cancel_requested in the record", str(answer))
    await scene.listener.expect("cancel_call", call_id=call_id)
    await scene.report("call_cancelled", call_id, phase="pending")
    await scene.caller.expect("call_error", code="canceled", call_id=call_id)


# --- durable calls


@case(requirements=("RL-CANCEL-004",), needs=_DURABLE)
async def queued_call_is_canceled_at_once(stage: RelayStage) -> None:
    """A durable call that nobody has is canceled at once, by frame and by HTTP, and never handed out."""
    scene = await Scene.set(stage, offline=True, listening=False)
    by_frame, by_http = await scene.submit(), await scene.submit()
    await _ask(scene.caller, by_frame["call_id"])
    await scene.caller.expect("call_error", code="canceled", call_id=by_frame["call_id"])
    answer = await stage.ask(scene.alice, "POST", f"/v1/calls/{by_http['call_id']}/cancel")
    told = (answer.status, answer.json().get("state"))
    check(told == (200, "canceled"), "200 and a canceled call", repr(told))
    await scene.caller.expect("call_error", code="canceled", call_id=by_http["call_id"])
    await scene.listen()
    await scene.listener.quiet("both calls have ended")


@case(requirements=("RL-CANCEL-002", "RL-PRIVACY-005"), needs=_DURABLE)
async def nobody_else_cancels_a_stored_call(stage: RelayStage) -> None:
    """Another identity's cancellation of a stored call, the callee's too, finds no such call."""
    scene = await Scene.set(stage, offline=True, listening=False)
    call_id = (await scene.submit())["call_id"]
    mallory = await stage.identity("mallory")
    for who in (mallory, scene.bob):
        line = await stage.call_line(who, scene.bob.handle)
        await _ask(line, call_id)
        await line.expect("call_not_cancelled", call_id=call_id, reason="unknown")
        answer = await stage.ask(who, "POST", f"/v1/calls/{call_id}/cancel")
        check(answer.status == 404, "404", str(answer))
    await scene.has_ended(call_id, "queued")


@case(requirements=("RL-CANCEL-005", "RL-CANCEL-023", "RL-FRAME-043"), needs=_DURABLE)
async def begun_durable_call_is_canceled_by_its_listener(stage: RelayStage) -> None:
    """A begun durable call ends as `canceled` when its listener has confirmed, and not before."""
    scene = await Scene.set(stage, offline=True)
    ids = await scene.started()
    await _ask(scene.caller, ids["call_id"])
    await scene.listener.expect("cancel_call", **ids)
    await scene.has_ended(ids["call_id"], "started")
    await scene.caller.quiet("the listener has not answered")
    await scene.listener.send({"type": "call_cancelled", "phase": "running"} | ids)
    await scene.caller.expect("call_error", code="canceled", call_id=ids["call_id"])
    await scene.has_ended(ids["call_id"], "canceled")


@case(requirements=("RL-CANCEL-029", "RL-CANCEL-030"), needs=_DURABLE)
async def release_of_a_cancelled_call_ends_it(stage: RelayStage) -> None:
    """A durable call that is to be cancelled and leaves a listener's hands unbegun ends as `canceled`."""
    for ending in (Line.break_off, Line.leave):
        scene = await Scene.set(stage, offline=True)
        receipt = await scene.submit()
        ids = await scene.take(receipt["call_id"])
        await scene.listener.send({"type": "call_accepted"} | ids)
        await scene.caller.expect("call_status", state="answered")
        await _ask(scene.caller, ids["call_id"])
        await scene.listener.expect("cancel_call", **ids)
        await ending(scene.listener)
        await scene.caller.expect("call_error", code="canceled", call_id=ids["call_id"])
        await scene.has_ended(ids["call_id"], "canceled")
        await scene.listen()
        await scene.listener.quiet("the call has ended")


@case(requirements=("RL-CANCEL-030", "RL-CANCEL-031"), needs=_DURABLE)
async def start_is_not_granted_while_a_cancel_is_asked(stage: RelayStage) -> None:
    """A start asked for while a cancellation is requested is granted when the request is taken back."""
    scene = await Scene.set(stage, offline=True)
    receipt = await scene.submit()
    ids = await scene.take(receipt["call_id"])
    await scene.listener.send({"type": "call_accepted"} | ids)
    await scene.caller.expect("call_status", state="answered")
    await _ask(scene.caller, ids["call_id"])
    await scene.listener.expect("cancel_call", **ids)
    await scene.listener.send({"type": "call_started"} | ids)
    await scene.has_ended(ids["call_id"], "accepted")
    await scene.listener.quiet("a cancellation is requested")
    await scene.listener.send({"type": "call_not_cancelled", "reason": "too_late"} | ids)
    await scene.listener.expect("call_started", **ids)
    frames = [await scene.caller.next() for _ in range(2)]
    kinds = {frame["type"] for frame in frames}
    check(kinds == {"call_not_cancelled", "call_status"}, "the refusal and working", repr(frames))


@case(requirements=("RL-CANCEL-028", "RL-CANCEL-024"), needs=_DURABLE)
async def durable_cancel_that_is_refused_or_unasked(stage: RelayStage) -> None:
    """Of a durable call too, an unasked answer changes nothing and a refused cancellation leaves the call."""
    scene = await Scene.set(stage, offline=True)
    ids = await scene.started()
    await scene.listener.send({"type": "call_cancelled", "phase": "running"} | ids)
    await scene.has_ended(ids["call_id"], "started")
    await scene.listener.quiet("it is only counted")
    await _ask(scene.caller, ids["call_id"])
    await scene.listener.expect("cancel_call", **ids)
    await scene.listener.send({"type": "call_not_cancelled", "reason": "too_late"} | ids)
    await scene.caller.expect("call_not_cancelled", call_id=ids["call_id"], reason="too_late")
    await scene.send_outcome(**ids)
    await scene.caller.expect("call_outcome", call_id=ids["call_id"])


@case(requirements=("RL-CANCEL-007", "RL-CANCEL-009"), needs=_DURABLE)
async def requested_cancel_follows_a_begun_call(stage: RelayStage) -> None:
    """A cancellation of a begun durable call is sent right behind its next offer, under the new lease."""
    instance = str(uuid4())
    scene = await Scene.set(stage, offline=True, instance=instance)
    ids = await scene.started()
    await _ask(scene.caller, ids["call_id"])
    await scene.listener.expect("cancel_call", **ids)
    await scene.listener.break_off()
    await scene.listen(instance=instance)
    again = await scene.take(ids["call_id"])
    check(again["lease_id"] != ids["lease_id"], "a new lease", "the same one")
    await scene.listener.expect("cancel_call", **again)
    await scene.listener.send({"type": "call_cancelled", "phase": "running"} | again)
    await scene.caller.expect("call_error", code="canceled", call_id=ids["call_id"])
