"""Invites, and the removal of an identity."""

from typing import Any

from ringline.conformance.identity import Identity
from ringline.conformance.registry import case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check

__all__: list[str] = []

_FAILURES = 5


async def _issue(stage: RelayStage, who: Identity, *, uses: int = 1) -> dict[str, Any]:
    answer = await stage.ask(who, "POST", "/v1/invites", {"uses": uses, "ttl_s": 600})
    check(answer.status == 201, "201 for an invite", str(answer))
    made: dict[str, Any] = answer.json()
    check({"id", "invite", "expires_at"} <= made.keys(), "id, invite and expires_at", repr(sorted(made)))
    return made


async def _shown(stage: RelayStage, who: Identity, invite_id: str) -> dict[str, Any]:
    answer = await stage.ask(who, "GET", "/v1/invites")
    check(answer.status == 200, "200 for the invites", str(answer))
    found: list[dict[str, Any]] = [each for each in answer.json()["invites"] if each["id"] == invite_id]
    check(len(found) == 1, f"the invite {invite_id} once", repr(len(found)))
    return found[0]


async def _claim(stage: RelayStage, who: Identity, invite: str, status: int, why: str) -> None:
    answer = await stage.publish(who, invite=invite)
    check(answer.status == status, f"{status} for {why}", str(answer))


@case(requirements=("RL-HTTP-051", "RL-HTTP-052"))
async def invite_is_told_once(stage: RelayStage) -> None:
    """An invite is in the answer that issues it, and never again in a list."""
    alice = await stage.identity("alice")
    made = await _issue(stage, alice)
    answer = await stage.ask(alice, "GET", "/v1/invites")
    secret = made["invite"].removeprefix(f"{made['id']}.")
    check(secret.encode() not in answer.body, "a list without the invite", "the invite in it")
    check((await _shown(stage, alice, made["id"]))["state"] == "open", "an open invite", "another state")


@case(requirements=("RL-HTTP-052", "RL-HTTP-053"))
async def invites_are_the_inviters_own(stage: RelayStage) -> None:
    """Another identity neither sees nor voids an invite: its 404 is that of one that does not exist."""
    alice, mallory = await stage.identity("alice"), await stage.identity("mallory")
    made = await _issue(stage, alice)
    answer = await stage.ask(mallory, "GET", "/v1/invites")
    check(made["id"].encode() not in answer.body, "a list without it", str(answer))
    foreign = await stage.ask(mallory, "DELETE", f"/v1/invites/{made['id']}")
    missing = await stage.ask(mallory, "DELETE", "/v1/invites/none")
    check(foreign.status == 404, "404", str(foreign))
    check(foreign.lasting == missing.lasting, "the answer about a missing one", str(foreign))
    check((await _shown(stage, alice, made["id"]))["state"] == "open", "an open invite", "another state")


@case(requirements=("RL-HTTP-052", "RL-HTTP-054"))
async def invite_is_taken_up_as_often_as_it_is_for(stage: RelayStage) -> None:
    """An invite for two enrols two, who are told to the inviter, and is then over."""
    alice = await stage.identity("alice")
    made = await _issue(stage, alice, uses=2)
    guests = [stage.stranger(name) for name in ("bob", "carol")]
    for guest in guests:
        await _claim(stage, guest, made["invite"], 201, "a claim with an invite")
    await _claim(stage, stage.stranger("dave"), made["invite"], 403, "a claim with an invite that is used up")
    shown = await _shown(stage, alice, made["id"])
    names = [each["handle"] for each in shown["accepted"]]
    check(names == [guest.handle for guest in guests], "both who took it up", repr(names))
    check(shown["state"] == "consumed", "the state consumed", repr(shown["state"]))


@case(requirements=("RL-HTTP-055",))
async def lost_answer_to_a_claim_is_asked_for_again(stage: RelayStage) -> None:
    """The same claim by whom it let in is 200, and takes no other use of the invite."""
    alice, bob, carol = await stage.identity("alice"), stage.stranger("bob"), stage.stranger("carol")
    made = await _issue(stage, alice, uses=2)
    await _claim(stage, bob, made["invite"], 201, "a claim")
    await _claim(stage, bob, made["invite"], 200, "the same claim")
    await _claim(stage, carol, made["invite"], 201, "the second use")


@case(requirements=("RL-HTTP-050", "RL-HTTP-053"))
async def invite_that_does_not_hold_enrols_nobody(stage: RelayStage) -> None:
    """A claim with an invite that is void, damaged or made up is 403, whether or not the handle is taken."""
    alice, taken = await stage.identity("alice"), await stage.identity("taken")
    made = await _issue(stage, alice)
    answer = await stage.ask(alice, "DELETE", f"/v1/invites/{made['id']}")
    check(answer.status == 200, "200 for the withdrawal", str(answer))
    rival = Identity(handle=taken.handle, realm=taken.realm, offset_ms=taken.offset_ms)
    good = await _issue(stage, alice)
    for invite, why in (
        (made["invite"], "a void invite"),
        (f"{good['id']}.{'x' * 22}", "a secret that is made up"),
        (f"none.{'x' * 22}", "an invite that does not exist"),
        ("x" * 30, "what is no invite"),
    ):
        await _claim(stage, stage.stranger("bob"), invite, 403, why)
        await _claim(stage, rival, invite, 403, f"{why}, for a handle that is taken")


@case(requirements=("RL-HTTP-046",))
async def five_claims_that_come_to_nothing_void_an_invite(stage: RelayStage) -> None:
    """An invite with which five handles were tried that are taken is over."""
    alice, taken = await stage.identity("alice"), await stage.identity("taken")
    made = await _issue(stage, alice)
    for _ in range(_FAILURES):
        rival = Identity(handle=taken.handle, realm=taken.realm, offset_ms=taken.offset_ms)
        await _claim(stage, rival, made["invite"], 409, "a handle that is taken")
    await _claim(stage, stage.stranger("bob"), made["invite"], 403, "the claim after five")
    shown = await _shown(stage, alice, made["id"])
    check(shown["state"] == "failed", "the state failed", repr(shown["state"]))


@case(requirements=("RL-ADMIT-018",))
async def accepted_invite_lets_its_holder_call(stage: RelayStage) -> None:
    """With policy `invited` the inviter is reached by who took an invite up, and by nobody else."""
    alice, stranger = await stage.identity("alice"), await stage.identity("stranger")
    await stage.set_policy(alice, accept="invited")
    made, bob = await _issue(stage, alice), stage.stranger("bob")
    await _claim(stage, bob, made["invite"], 201, "a claim")
    line = await stage.call_line(bob, alice.handle)
    await line.send(bob.request())
    await line.expect("call_error", code="offline")
    other = await stage.call_line(stranger, alice.handle)
    await other.send(stranger.request())
    await other.expect("call_error", code="unknown_handle")


@case(requirements=("RL-HTTP-010", "RL-HTTP-057"))
async def identity_is_removed_by_its_owner(stage: RelayStage) -> None:
    """A removed identity is gone: its connections end, it logs in no more, and nobody reaches it."""
    scene = await Scene.set(stage)
    path = f"/v1/handles/{scene.bob.handle}"
    answer = await stage.ask(scene.alice, "DELETE", path)
    check(answer.status == 403, "403 for another's identity", str(answer))
    answer = await stage.ask(scene.bob, "DELETE", path)
    check(answer.status == 200, "200 for the own one", str(answer))
    await scene.listener.closed(4001)
    answer = await stage.ask(scene.bob, "GET", "/v1/calls")
    check(answer.status == 401, "401 for who was removed", str(answer))
    await scene.send_request()
    await scene.caller.expect("call_error", code="unknown_handle")


@case(requirements=("RL-HTTP-057", "RL-DURABLE-060", "RL-DURABLE-062"))
async def removal_of_the_callee_ends_its_durable_calls(stage: RelayStage) -> None:
    """A durable call to an identity that was removed looks to its caller as if it still waited."""
    scene = await Scene.set(stage, offline=True, listening=False)
    receipt = await scene.submit()
    answer = await stage.ask(scene.bob, "DELETE", f"/v1/handles/{scene.bob.handle}")
    check(answer.status == 200, "200", str(answer))
    await scene.has_ended(receipt["call_id"], "queued")


@case(requirements=("RL-HTTP-057",))
async def removal_of_the_callee_ends_its_sync_calls(stage: RelayStage) -> None:
    """Whoever waits for an identity that is removed hears at once that nobody will answer."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.work(call_id)
    answer = await stage.ask(scene.bob, "DELETE", f"/v1/handles/{scene.bob.handle}")
    check(answer.status == 200, "200", str(answer))
    await scene.caller.expect("call_error", code="timeout", call_id=call_id)


@case(requirements=("RL-HTTP-057",))
async def removal_of_the_caller_stops_his_sync_calls(stage: RelayStage) -> None:
    """Whoever works for an identity that is removed is told at once to stop: nobody comes back for it."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.work(call_id)
    answer = await stage.ask(scene.alice, "DELETE", f"/v1/handles/{scene.alice.handle}")
    check(answer.status == 200, "200", str(answer))
    await scene.listener.expect("cancel_call", call_id=call_id)


@case(requirements=("RL-HTTP-047",))
async def open_relay_enrols_without_an_invite(stage: RelayStage) -> None:
    """A publication without an invite takes a free handle."""
    answer = await stage.publish(stage.stranger("alice"), invite=None)
    check(answer.status == 201, "201", str(answer))
