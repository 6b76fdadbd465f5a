"""Frames that are sent and taken: the rules of each kind beyond its shape."""

import msgspec

from ringline.conformance.identity import LEFT_OUT, fresh_id
from ringline.conformance.registry import Needs, case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check
from ringline.conformance.websocket import TEXT, masked

__all__: list[str] = []

_DURABLE = Needs(features=("durable",))
_LEASE = {"lease_id": "0f0e0d0c-0b0a-4908-8706-050403020100"}

_LEGAL = {
    ("completed", "completed"): "completed",
    ("failed", "failed"): "failed",
    ("failed", "indeterminate_execution"): "indeterminate_execution",
}
_REASONS = (
    "completed",
    "failed",
    "canceled",
    "expired",
    "delivery_failed",
    "revoked",
    "indeterminate_execution",
)


@case(requirements=("RL-FRAME-022",))
async def durable_request_without_message_id_is_refused(stage: RelayStage) -> None:
    """A durable `call_request` that names no message is refused."""
    scene = await Scene.set(stage, offline=True)
    request = await scene.send_request(delivery_mode="durable", message_id=LEFT_OUT)
    await scene.caller.refused(correlation_id=request["correlation_id"])
    await scene.listener.quiet("the request was refused")


@case(requirements=("RL-FRAME-023", "RL-FRAME-039", "RL-FRAME-040"))
async def request_without_a_mode_is_a_sync_call(stage: RelayStage) -> None:
    """A request without `delivery_mode` is handed out as a sync call, with its `message_id` if it had one."""
    scene = await Scene.set(stage)
    for message_id in (fresh_id(), LEFT_OUT):
        for mode in ("sync", LEFT_OUT):
            request = await scene.send_request(message_id=message_id, delivery_mode=mode)
            status = await scene.caller.expect("call_status", state="ringing")
            offer = await scene.listener.expect(
                "incoming_call",
                call_id=status["call_id"],
                message_id=request.get("message_id"),
                delivery_mode=None,
                lease_id=None,
                execute_by=None,
            )
            await scene.report("call_rejected", offer["call_id"], code="protocol_error")
            await scene.caller.expect("call_error", call_id=offer["call_id"])
            message_id = fresh_id() if message_id is not LEFT_OUT else LEFT_OUT


@case(requirements=("RL-FRAME-025",))
async def callers_cancel_has_no_lease(stage: RelayStage) -> None:
    """A caller's `cancel_call` with a `lease_id` is refused, and cancels nothing."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.caller.send({"type": "cancel_call", "call_id": call_id} | _LEASE)
    await scene.caller.refused(correlation_id=None)
    await scene.listener.quiet("nobody has cancelled the call")


@case(requirements=("RL-FRAME-026",))
async def one_request_of_a_correlation_id_waits_at_a_time(stage: RelayStage) -> None:
    """A second message of a correlation id whose first waits for its answer gets `protocol_error`."""
    alice = await stage.identity("alice")
    line = await stage.call_line(alice, stage.handle("nobody"))
    for message_ids in ((fresh_id(), fresh_id()), (fresh_id(), LEFT_OUT), (LEFT_OUT, LEFT_OUT)):
        correlation_id = fresh_id()
        pair = [alice.request(correlation_id=correlation_id, message_id=each) for each in message_ids]
        # In one piece, since the answer to the first comes a fixed time after it was read, and no sooner.
        pieces = b"".join(masked(TEXT, msgspec.json.encode(request)) for request in pair)
        await line.send_raw(pieces, f"two requests of {correlation_id} in one piece")
        codes = [(await line.expect("call_error", correlation_id=correlation_id))["code"] for _ in range(2)]
        check(sorted(codes) == ["protocol_error", "unknown_handle"], "one of each answer", repr(codes))


@case(requirements=("RL-FRAME-028", "RL-FRAME-031", "RL-SYNC-001"))
async def first_word_of_an_admitted_sync_call_is_its_status(stage: RelayStage) -> None:
    """The first frame for an admitted sync call is `call_status` `ringing` with both ids."""
    scene = await Scene.set(stage)
    request = await scene.send_request()
    status = await scene.caller.expect(
        "call_status", state="ringing", correlation_id=request["correlation_id"]
    )
    check(bool(status.get("call_id")), "a call_id in the status", repr(status))


@case(requirements=("RL-FRAME-029", "RL-FRAME-030", "RL-DURABLE-004"), needs=_DURABLE)
async def first_word_of_a_stored_call_is_its_receipt(stage: RelayStage) -> None:
    """The first frame for a stored call is `call_queued`; it expires at `exp`, or 72 h after submission."""
    scene = await Scene.set(stage, offline=True)
    before = scene.alice.now()
    life = stage.bound("durable_life_ms")
    soon, late = before + 3_600_000, before + 30 * 86_400_000
    receipt = await scene.submit(envelope={"exp": min(soon, before + life // 2)})
    check(receipt["expires_at"] == min(soon, before + life // 2), "expires_at at the exp", repr(receipt))
    receipt = await scene.submit(envelope={"exp": late})
    check(receipt["expires_at"] == receipt["submitted_at"] + life, "the longest life", repr(receipt))
    check(abs(receipt["submitted_at"] - before) < 60_000, "the present as submitted_at", repr(receipt))


@case(requirements=("RL-FRAME-032", "RL-FRAME-033"))
async def refusal_at_admission_names_the_request_and_no_call(stage: RelayStage) -> None:
    """A request that is not admitted is answered with its `correlation_id` and without a `call_id`."""
    scene = await Scene.set(stage, listening=False)
    request = await scene.send_request()
    await scene.caller.refused("offline", correlation_id=request["correlation_id"])
    nobody = await stage.call_line(scene.alice, stage.handle("nobody"))
    request = await scene.send_request(nobody)
    await nobody.refused("unknown_handle", correlation_id=request["correlation_id"])


@case(requirements=("RL-FRAME-036", "RL-FRAME-042"), needs=_DURABLE)
async def caller_is_never_told_a_lease(stage: RelayStage) -> None:
    """A durable outcome reaches the caller without the `lease_id`, and unchanged otherwise, again too."""
    scene = await Scene.set(stage, offline=True)
    request = await scene.send_request(delivery_mode="durable")
    receipt = await scene.caller.expect("call_queued")
    ids = await scene.take(receipt["call_id"])
    await scene.begin(ids)
    for _ in range(2):
        await scene.caller.expect("call_status", lease_id=None)
    sent = await scene.send_outcome(**ids)
    wanted = {"call_id": ids["call_id"], "lease_id": None, "envelope": sent["envelope"]}
    await scene.caller.expect("call_outcome", **wanted)
    again = await scene.another_caller()
    await again.send(request)
    await again.expect("call_queued", lease_id=None)
    await again.expect("call_outcome", **wanted)


@case(requirements=("RL-FRAME-038", "RL-DURABLE-007"), needs=_DURABLE)
async def durable_offer_has_its_four_members(stage: RelayStage) -> None:
    """The offer of a durable call has the message's id, the mode, a lease, and the receipt's end of time."""
    scene = await Scene.set(stage, offline=True)
    receipt = await scene.submit()
    offer = await scene.listener.expect(
        "incoming_call",
        call_id=receipt["call_id"],
        message_id=receipt["message_id"],
        correlation_id=receipt["correlation_id"],
        delivery_mode="durable",
        execute_by=receipt["expires_at"],
        from_=scene.alice.handle,
    )
    check(bool(offer.get("lease_id")), "a lease_id", repr(offer))


@case(requirements=("RL-FRAME-041", "RL-FRAME-042"))
async def offer_names_the_caller_and_keeps_the_envelope(stage: RelayStage) -> None:
    """An offer has the handle that logged in as `from`, and the envelope with every member unchanged."""
    scene = await Scene.set(stage)
    carol = await stage.identity("carol")
    for who, line in ((scene.alice, scene.caller), (carol, await stage.call_line(carol, scene.bob.handle))):
        request = who.request(ct_chars=40_001)
        await line.send(request)
        await scene.listener.expect(
            "incoming_call",
            from_=who.handle,
            envelope=request["envelope"],
            correlation_id=request["correlation_id"],
            message_id=request["message_id"],
        )


@case(requirements=("RL-FRAME-043",), needs=_DURABLE)
async def cancel_to_a_listener_has_the_calls_lease(stage: RelayStage) -> None:
    """A listener's `cancel_call` names the lease of a durable call, and none of a sync call."""
    scene = await Scene.set(stage, offline=True)
    sync = await scene.ring()
    await scene.caller.send({"type": "cancel_call", "call_id": sync})
    await scene.listener.expect("cancel_call", call_id=sync, lease_id=None)
    receipt = await scene.submit()
    ids = await scene.take(receipt["call_id"])
    await scene.caller.send({"type": "cancel_call", "call_id": ids["call_id"]})
    await scene.listener.expect("cancel_call", **ids)


@case(requirements=("RL-FRAME-046",))
async def lease_on_a_frame_of_a_sync_call_is_refused(stage: RelayStage) -> None:
    """A frame about a sync call with a `lease_id` gets `protocol_error`, and the call stays as it is."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    for kind, members in (
        ("call_accepted", {}),
        ("call_started", {}),
        ("call_rejected", {"code": "protocol_error"}),
    ):
        await scene.report(kind, call_id, **members, **_LEASE)
        await scene.listener.refused()
    await scene.send_outcome(call_id, terminal="failed", **_LEASE)
    await scene.listener.refused()
    await scene.caller.quiet("nothing has happened to the call")
    await scene.accept(call_id)


@case(requirements=("RL-FRAME-046",), needs=_DURABLE)
async def durable_frame_without_a_lease_is_refused(stage: RelayStage) -> None:
    """A frame about a durable call without a `lease_id` gets `protocol_error`, and the call stays."""
    scene = await Scene.set(stage, offline=True)
    receipt = await scene.submit()
    ids = await scene.take(receipt["call_id"])
    for kind in ("call_accepted", "call_started"):
        await scene.report(kind, ids["call_id"])
        await scene.listener.refused()
    await scene.send_outcome(ids["call_id"], terminal="failed")
    await scene.listener.refused()
    await scene.has_ended(ids["call_id"], "leased")
    await scene.begin(ids)


@case(requirements=("RL-FRAME-047", "RL-FRAME-050"))
async def only_three_pairs_end_a_call(stage: RelayStage) -> None:
    """Of all pairs of `terminal` and `terminal_reason` three are taken, and the others change nothing."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.work(call_id)
    for terminal in ("completed", "failed"):
        for reason in _REASONS:
            if (terminal, reason) not in _LEGAL:
                await scene.send_outcome(call_id, terminal=terminal, terminal_reason=reason)
                await scene.listener.refused()
    await scene.caller.quiet("no outcome was taken")
    await scene.complete(call_id)
    for (terminal, reason), state in _LEGAL.items():
        call_id = await scene.ring()
        await scene.work(call_id)
        await scene.send_outcome(call_id, terminal=terminal, terminal_reason=reason)
        await scene.caller.expect("call_outcome", terminal=terminal, terminal_reason=reason)
        await scene.has_ended(call_id, state)


@case(requirements=("RL-FRAME-048",))
async def absent_reason_is_that_of_the_terminal(stage: RelayStage) -> None:
    """An outcome without `terminal_reason` ends the call as its `terminal` says."""
    scene = await Scene.set(stage)
    for terminal in ("completed", "failed"):
        call_id = await scene.ring()
        await scene.work(call_id)
        await scene.send_outcome(call_id, terminal=terminal)
        await scene.caller.expect("call_outcome", terminal=terminal)
        shown = await stage.record(scene.alice, call_id)
        told = (shown["state"], shown["terminal_reason"])
        check(told == (terminal, terminal), f"state and reason {terminal}", repr(told))


@case(requirements=("RL-FRAME-049",))
async def nothing_is_completed_before_it_started(stage: RelayStage) -> None:
    """An outcome `completed` of a call that has not started gets `protocol_error`, and the call goes on."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.send_outcome(call_id)
    await scene.listener.refused()
    await scene.accept(call_id)
    await scene.send_outcome(call_id)
    await scene.listener.refused()
    await scene.caller.quiet("the call has not started")
    await scene.report("call_started", call_id)
    await scene.caller.expect("call_status", state="working")
    await scene.complete(call_id)


@case(requirements=("RL-FRAME-050", "RL-SYNC-007"))
async def failure_is_taken_in_every_state(stage: RelayStage) -> None:
    """An outcome `failed` ends a call that is ringing, accepted or started."""
    scene = await Scene.set(stage)
    for reports in ((), ("call_accepted",), ("call_accepted", "call_started")):
        call_id = await scene.ring()
        for kind in reports:
            await scene.report(kind, call_id)
            await scene.caller.expect("call_status", call_id=call_id)
        sent = await scene.send_outcome(call_id, terminal="failed")
        await scene.caller.expect("call_outcome", terminal="failed", envelope=sent["envelope"])
        await scene.has_ended(call_id, "failed")


@case(requirements=("RL-FRAME-050", "RL-SYNC-008"))
async def rejection_is_taken_in_every_state(stage: RelayStage) -> None:
    """A `call_rejected` ends a call in any state: `protocol_error` with the `call_id`, `delivery_failed`."""
    scene = await Scene.set(stage)
    for reports in ((), ("call_accepted",), ("call_accepted", "call_started")):
        call_id = await scene.ring()
        for kind in reports:
            await scene.report(kind, call_id)
            await scene.caller.expect("call_status", call_id=call_id)
        await scene.report("call_rejected", call_id, code="protocol_error")
        await scene.caller.expect("call_error", origin="relay", code="protocol_error", call_id=call_id)
        await scene.has_ended(call_id, "delivery_failed")


@case(requirements=("RL-FRAME-052", "RL-SYNC-005"))
async def start_implies_acceptance(stage: RelayStage) -> None:
    """A call that is started without having been accepted is working, and can be completed."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.report("call_started", call_id)
    status = await scene.caller.expect("call_status", call_id=call_id)
    if status["state"] == "answered":
        status = await scene.caller.expect("call_status", call_id=call_id)
    check(status["state"] == "working", "working", repr(status))
    await scene.report("call_accepted", call_id)
    await scene.listener.quiet()
    await scene.caller.quiet("an acceptance behind the start is nothing new")
    await scene.complete(call_id)


@case(requirements=("RL-FRAME-053", "RL-SYNC-004"))
async def repeated_reports_are_nothing_new(stage: RelayStage) -> None:
    """A repeated acceptance or start tells the caller nothing, and is answered with nothing."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.accept(call_id)
    await scene.report("call_accepted", call_id)
    await scene.listener.quiet("a repetition is not answered")
    await scene.caller.quiet("a repetition is nothing new")
    await scene.report("call_started", call_id)
    await scene.caller.expect("call_status", state="working")
    for kind in ("call_started", "call_accepted", "call_started"):
        await scene.report(kind, call_id)
    await scene.listener.quiet("a repetition is not answered")
    await scene.caller.quiet("a repetition is nothing new")


@case(requirements=("RL-FRAME-054",))
async def either_phase_confirms(stage: RelayStage) -> None:
    """A `call_cancelled` ends a call that was to be cancelled, whichever phase it names."""
    scene = await Scene.set(stage)
    for phase in ("pending", "running"):
        for working in (False, True):
            call_id = await scene.ring()
            if working:
                await scene.work(call_id)
            await scene.caller.send({"type": "cancel_call", "call_id": call_id})
            await scene.listener.expect("cancel_call", call_id=call_id)
            await scene.report("call_cancelled", call_id, phase=phase)
            await scene.caller.expect("call_error", code="canceled", call_id=call_id)
