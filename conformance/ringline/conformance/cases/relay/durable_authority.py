"""Durable calls: what becomes of them when one of the two sides loses its authority."""

from ringline.conformance.registry import Needs, case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check

__all__: list[str] = []

_DURABLE = ("durable",)
_PLAIN = Needs(features=_DURABLE)
_STOP = Needs(features=_DURABLE, bounds={"stop_wait_ms": 2_500})
# Time for all that is to be seen before a call is over, on a slow machine too.
_SHORT_MS = 4_000


@case(requirements=("RL-DURABLE-060", "RL-DURABLE-062", "RL-DURABLE-008"), needs=_PLAIN)
async def blocked_callers_calls_are_revoked_unseen(stage: RelayStage) -> None:
    """A queued call of a caller who is blocked is revoked; he sees it queued, and `offline` at its time."""
    for policy in ("block", "offline"):
        scene = await Scene.set(stage, offline=True, listening=False)
        receipt = await scene.submit(envelope={"exp": scene.alice.now() + _SHORT_MS})
        call_id = receipt["call_id"]
        if policy == "block":
            await stage.set_policy(scene.bob, offline=True, block=[scene.alice.handle])
        else:
            await stage.set_policy(scene.bob, offline=False)
        await scene.has_ended(call_id, "revoked", of=scene.bob)
        await scene.has_ended(call_id, "queued", of=scene.alice)
        await scene.caller.quiet("he must not learn when he was blocked")
        await scene.listen()
        await scene.listener.quiet("the call is revoked")
        await scene.caller.expect("call_error", code="offline", call_id=call_id)
        await scene.has_ended(call_id, "delivery_failed", of=scene.alice)


@case(requirements=("RL-DURABLE-062", "RL-IDEM-006", "RL-CANCEL-004"), needs=_PLAIN)
async def revoked_call_is_like_a_queued_one_to_its_caller(stage: RelayStage) -> None:
    """A caller who was blocked finds his call queued by every way that he may ask, and can cancel it."""
    scene = await Scene.set(stage, offline=True, listening=False)
    request = await scene.send_request(delivery_mode="durable")
    receipt = await scene.caller.expect("call_queued")
    call_id: str = receipt["call_id"]
    await stage.set_policy(scene.bob, offline=True, block=[scene.alice.handle])
    await scene.has_ended(call_id, "revoked", of=scene.bob)
    again = await scene.another_caller()
    await again.send(request)
    check(await again.expect("call_queued") == receipt, "the same receipt", "another")
    await again.quiet("to him the call is queued")
    early = await stage.ask(scene.alice, "POST", f"/v1/calls/{call_id}/ack")
    check(early.status == 409, "409 for an ack of a call that he must not know to have ended", str(early))
    await again.send({"type": "cancel_call", "call_id": call_id})
    for line in (again, scene.caller):
        await line.expect("call_error", code="canceled", call_id=call_id)
    await scene.has_ended(call_id, "canceled", of=scene.alice)


@case(requirements=("RL-DURABLE-060",), needs=_PLAIN)
async def accepted_call_is_revoked_from_its_listener(stage: RelayStage) -> None:
    """A call that a listener has in hand and not begun is taken from it when its caller is blocked."""
    scene = await Scene.set(stage, offline=True)
    receipt = await scene.submit()
    ids = await scene.take(receipt["call_id"])
    await scene.listener.send({"type": "call_accepted"} | ids)
    await scene.caller.expect("call_status", state="answered")
    await stage.set_policy(scene.bob, offline=True, block=[scene.alice.handle])
    await scene.listener.expect("cancel_call", **ids)
    await scene.has_ended(ids["call_id"], "revoked", of=scene.bob)


@case(requirements=("RL-DURABLE-061",), needs=_PLAIN)
async def begun_call_is_stopped_and_revoked(stage: RelayStage) -> None:
    """A begun call whose authority is lost is to be stopped, and ends as `revoked` when it was."""
    scene = await Scene.set(stage, offline=True)
    ids = await scene.started()
    await stage.set_policy(scene.bob, offline=True, block=[scene.alice.handle])
    await scene.listener.expect("cancel_call", **ids)
    await scene.has_ended(ids["call_id"], "started", of=scene.bob)
    await scene.listener.send({"type": "call_cancelled", "phase": "running"} | ids)
    await scene.reaches(ids["call_id"], "revoked")


@case(requirements=("RL-DURABLE-064",), needs=_PLAIN)
async def list_takes_nothing_back(stage: RelayStage) -> None:
    """A stored call stays when its caller is taken off the list, or the policy accepts him no more."""
    scene = await Scene.set(stage, offline=True, listening=False)
    await stage.set_policy(scene.bob, offline=True, accept="listed", allow=[scene.alice.handle])
    receipt = await scene.submit()
    await stage.set_policy(scene.bob, offline=True, accept="listed")
    await scene.has_ended(receipt["call_id"], "queued", of=scene.bob)
    await scene.listen()
    await scene.begin(await scene.take(receipt["call_id"]))


@case(requirements=("RL-DURABLE-063", "RL-KEYS-038"), needs=_PLAIN)
async def calls_under_a_revoked_card_end(stage: RelayStage) -> None:
    """A revocation ends the queued calls sealed under the card, and tells who is still logged in."""
    scene = await Scene.set(stage, offline=True, listening=False)
    renewed = scene.alice.renewed()
    check((await stage.publish(renewed)).status == 200, "200 for the next card", "another")
    line = await stage.call_line(renewed, scene.bob.handle)
    receipt = await scene.submit(line)
    kept = await scene.submit(line, envelope={"sid": renewed.card_id})
    await stage.ask(None, "POST", f"/v1/handles/{scene.alice.handle}/revocations", scene.alice.revocation())
    await line.expect("call_error", code="unauthorized", call_id=receipt["call_id"])
    await scene.has_ended(receipt["call_id"], "revoked", of=renewed)
    await scene.has_ended(kept["call_id"], "queued", of=renewed)


@case(requirements=("RL-KEYS-038",), needs=_PLAIN)
async def calls_to_a_handle_outlive_its_card(stage: RelayStage) -> None:
    """Queued calls to a handle stay when a card of that handle is revoked."""
    scene = await Scene.set(stage, offline=True, listening=False)
    receipt = await scene.submit()
    renewed = scene.bob.renewed()
    check((await stage.publish(renewed)).status == 200, "200 for the next card", "another")
    await stage.ask(None, "POST", f"/v1/handles/{scene.bob.handle}/revocations", scene.bob.revocation())
    scene.bob = renewed
    await scene.listen()
    await scene.begin(await scene.take(receipt["call_id"]))
