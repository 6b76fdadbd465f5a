"""Blindness: what a relay tells whom, over every way it has."""

from uuid import uuid4

from ringline.conformance.registry import Needs, case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check

__all__: list[str] = []


async def _nobody_else_sees(stage: RelayStage, handles: list[str], secrets: list[str]) -> None:
    """Read what the relay shows to strangers: none of it may hold a name or a ciphertext of others."""
    mallory = await stage.identity("mallory")
    for who, target in (
        (None, "/v1/relay"),
        (None, "/healthz"),
        (None, "/readyz"),
        (None, "/metrics"),
        (mallory, "/v1/calls?role=caller"),
        (mallory, "/v1/calls?role=callee"),
        (mallory, f"/v1/handles/{mallory.handle}"),
    ):
        text = (await stage.ask(who, "GET", target)).body.decode("utf-8", "replace")
        for name in (*handles, *secrets):
            check(name not in text, f"no name of others in {target}", name)


@case(requirements=("RL-PRIVACY-005", "RL-PRIVACY-001", "RL-PRIVACY-002"))
async def sync_call_is_nobody_elses(stage: RelayStage) -> None:
    """A sync call's ciphertexts reach the other side only, and no page of the relay names its parties."""
    scene = await Scene.set(stage)
    bystander = await stage.identity("bystander")
    lines = [
        await stage.call_line(bystander, scene.bob.handle),
        await stage.listen_line(bystander),
        await stage.listen_line(scene.bob),
    ]
    await lines[-1].leave()
    request = await scene.send_request()
    call_id = (await scene.caller.expect("call_status"))["call_id"]
    await scene.listener.expect("incoming_call", envelope=request["envelope"])
    await scene.work(call_id)
    sent = await scene.complete(call_id)
    for line in lines[:2]:
        await line.quiet("it has no part in the call")
    secrets = [request["envelope"]["ct"][:32], sent["envelope"]["ct"][:32], call_id]
    await _nobody_else_sees(stage, [scene.alice.handle, scene.bob.handle], secrets)


@case(requirements=("RL-PRIVACY-005",), needs=Needs(features=("durable",)))
async def durable_call_is_nobody_elses(stage: RelayStage) -> None:
    """A durable call's ciphertexts reach the other side only, while it is stored and when it has ended."""
    scene = await Scene.set(stage, offline=True, listening=False)
    receipt = await scene.submit()
    call_id: str = receipt["call_id"]
    for who in (scene.alice, scene.bob):
        check((await stage.record(who, call_id))["outcome"] is None, "no outcome yet", "one")
    await _nobody_else_sees(stage, [scene.alice.handle, scene.bob.handle], [call_id])
    instance = str(uuid4())
    await scene.listen(instance=instance)
    ids = await scene.take(call_id)
    await scene.begin(ids)
    await scene.send_outcome(**ids)
    for kind in ("call_status", "call_status", "call_outcome"):
        await scene.caller.expect(kind)
    check((await stage.record(scene.bob, call_id))["outcome"] is None, "no outcome for the callee", "one")
    await _nobody_else_sees(stage, [scene.alice.handle, scene.bob.handle], [call_id])


@case(requirements=("RL-PRIVACY-008", "RL-ADMIT-016"))
async def presence_is_told_to_callers_only(stage: RelayStage) -> None:
    """Whether a handle listens is no difference to whoever may not call it."""
    scene = await Scene.set(stage, listening=False)
    mallory = await stage.identity("mallory")
    await stage.set_policy(scene.bob, accept="listed", allow=[scene.alice.handle])
    seen: list[tuple[object, ...]] = []
    for _ in range(2):
        line = await stage.call_line(mallory, scene.bob.handle)
        await line.send(mallory.request())
        frame = await line.refused("unknown_handle")
        keys = await stage.ask(mallory, "GET", f"/v1/handles/{scene.bob.handle}")
        seen.append((sorted(frame), keys.lasting))
        if len(seen) == 1:
            await scene.listen()
    check(seen[0] == seen[1], "the same answers", repr(seen))
    await scene.ring()
