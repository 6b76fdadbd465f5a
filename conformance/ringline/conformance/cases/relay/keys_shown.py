"""Keys: what is shown of them to whom, and how one is revoked."""

from typing import Any

from ringline.conformance.identity import Identity
from ringline.conformance.registry import case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check
from ringline.protocol.encoding import b64encode
from ringline.protocol.identity import next_commitment
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import RevokedBy

__all__: list[str] = []

_HOUR = 3_600_000


async def _published(stage: RelayStage, who: Identity) -> None:
    """Publish the next card of a handle."""
    answer = await stage.publish(who)
    check(answer.status == 200, "200 for the next card", str(answer))


@case(requirements=("RL-HTTP-025", "RL-KEYS-033"))
async def keys_are_shown_as_published(stage: RelayStage) -> None:
    """A handle's keys are shown as they were published, with the succession if there was one."""
    following = SigningKey.generate()
    alice = await stage.identity("alice")
    new = alice.succeeded(following, old_signs=True)
    await _published(stage, new)
    bob = await stage.identity("bob")
    for owner, who in ((new, new), (new, bob)):
        shown = (await stage.ask(who, "GET", f"/v1/handles/{owner.handle}")).json()
        wanted: dict[str, Any] = owner.publication() | {"handle": owner.handle, "revoked": []}
        told = {name: shown.get(name) for name in wanted}
        check(told == wanted, "what was published", repr(told))


@case(requirements=("RL-HTTP-026", "RL-HTTP-027"))
async def keys_are_shown_to_whoever_may_call(stage: RelayStage) -> None:
    """Keys are shown to their owner and to whoever may call, and are a missing handle's 404 to others."""
    alice, bob = await stage.identity("alice"), await stage.identity("bob")
    target = f"/v1/handles/{bob.handle}"
    policies: tuple[tuple[dict[str, Any], int], ...] = (
        ({"accept": "anyone"}, 200),
        ({"accept": "anyone", "block": [alice.handle]}, 404),
        ({"accept": "listed"}, 404),
        ({"accept": "listed", "allow": [alice.handle]}, 200),
    )
    for policy, status in policies:
        await stage.set_policy(bob, **policy)
        answer = await stage.ask(alice, "GET", target)
        check(answer.status == status, f"{status} under {policy}", str(answer))
        check((await stage.ask(bob, "GET", target)).status == 200, "200 for the owner", "another")
    await stage.set_policy(bob, accept="listed")
    answers = [
        await stage.ask(alice, "GET", f"/v1/handles/{name}{query}")
        for name in (bob.handle, stage.handle("nobody"))
        for query in ("", f"?card={bob.card_id}")
    ]
    check(len({answer.lasting for answer in answers}) == 1, "one 404", repr(answers))
    check((await stage.ask(None, "GET", target)).status == 401, "401 without a log-in", "another")


@case(requirements=("RL-HTTP-026",))
async def parties_of_a_call_see_each_others_keys(stage: RelayStage) -> None:
    """The other side of a call is shown the keys, whatever the policy says since, and nobody else is."""
    scene = await Scene.set(stage)
    await stage.set_policy(scene.alice, accept="listed")
    mallory = await stage.identity("mallory")
    target = f"/v1/handles/{scene.alice.handle}"
    check((await stage.ask(scene.bob, "GET", target)).status == 404, "404 before the call", "another")
    await scene.ring()
    check((await stage.ask(scene.bob, "GET", target)).status == 200, "200 after the call", "another")
    check((await stage.ask(mallory, "GET", target)).status == 404, "404 for another", "another")


@case(requirements=("RL-HTTP-028",))
async def superseded_cards_are_shown_for_96_hours(stage: RelayStage) -> None:
    """A card that was replaced is shown by its id until 96 h after its successor began, without prekeys."""
    begin = stage.stranger().now() - 120 * _HOUR
    for hours, status in ((95, 200), (97, 404)):
        alice = await stage.identity(f"a{hours}", not_before=begin)
        renewed = alice.renewed(not_before=alice.now() - hours * _HOUR)
        await _published(stage, renewed)
        for card, wanted in ((alice, status), (renewed, 200)):
            answer = await stage.ask(renewed, "GET", f"/v1/handles/{alice.handle}?card={card.card_id}")
            check(answer.status == wanted, f"{wanted} after {hours} h", str(answer))
            if wanted == 200:
                shown = answer.json()
                published = card.publication()
                told = {name: shown.get(name) for name in ("card", "card_sig", "prekey", "revoked")}
                expected: dict[str, Any] = {
                    "card": published["card"],
                    "card_sig": published["card_sig"],
                    "prekey": None,
                    "revoked": [],
                }
                check(told == expected, "that card and no prekey", repr(told))


@case(requirements=("RL-HTTP-029",))
async def requests_for_keys_are_limited(stage: RelayStage) -> None:
    """Requests for keys beyond those of a minute are 429, and another identity's are not."""
    most = stage.budget("key_fetches_per_minute", most=200)
    alice, bob = await stage.identity("alice"), await stage.identity("bob")
    target = f"/v1/handles/{alice.handle}"
    for _ in range(most):
        check((await stage.ask(alice, "GET", target)).status == 200, "200", "another")
    answer = await stage.ask(alice, "GET", target)
    check(answer.status == 429, "429", str(answer))
    check((await stage.ask(bob, "GET", target)).status == 200, "200 for another identity", "another")


# --- revocation


@case(requirements=("RL-HTTP-030", "RL-HTTP-031", "RL-KEYS-034", "RL-KEYS-036"))
async def revocation_proves_itself(stage: RelayStage) -> None:
    """A revocation by the identity key, or the committed one, needs no log-in and is shown."""
    following = SigningKey.generate()
    signers: tuple[tuple[RevokedBy, SigningKey | None], ...] = (("identity", None), ("next", following))
    for by, key in signers:
        alice = await stage.identity(f"by-{by}", next=next_commitment(following.public))
        target = f"/v1/handles/{alice.handle}/revocations"
        body = alice.revocation(by=by, key=key)
        for status in (201, 200):
            answer = await stage.ask(None, "POST", target, body)
            check(answer.status == status, f"{status} for a revocation by {by}", str(answer))
        bob = await stage.identity("bob")
        shown = (await stage.ask(bob, "GET", f"/v1/handles/{alice.handle}")).json()
        check(shown["revoked"] == [alice.card_id], "the card among the revoked", repr(shown["revoked"]))


@case(requirements=("RL-HTTP-031", "RL-KEYS-035"))
async def revocation_that_does_not_hold_changes_nothing(stage: RelayStage) -> None:
    """A revocation by any other key is 400, one of a card or handle that is not there 404."""
    alice, mallory = await stage.identity("alice"), await stage.identity("mallory")
    target = f"/v1/handles/{alice.handle}/revocations"
    good = alice.revocation()
    for why, body in {
        "another identity's signature": good | {"sig": mallory.revocation()["sig"]},
        "the operational key's signature": alice.revocation(key=alice.operational),
        "a damaged signature": good | {"sig": b64encode(bytes(64))},
        "another time": good | {"ts": good["ts"] + 1},
        "another reason": good | {"reason": 2},
        "an unknown reason": good | {"reason": 9},
        "a key that was not committed to": alice.revocation(by="next", key=mallory.identity),
        "a further member": good | {"more": 1},
    }.items():
        answer = await stage.ask(None, "POST", target, body)
        check(answer.status == 400, f"400 for {why}", str(answer))
    for where, body in (
        (target, alice.renewed().revocation()),
        (f"/v1/handles/{stage.handle('nobody')}/revocations", good),
        (f"/v1/handles/{mallory.handle}/revocations", good),
    ):
        answer = await stage.ask(None, "POST", where, body)
        check(answer.status == 404, f"404 for {where}", str(answer))
    check((await stage.ask(alice, "GET", "/v1/calls")).status == 200, "200: not revoked", "another")


@case(requirements=("RL-KEYS-034", "RL-AUTH-010"))
async def revoked_card_is_not_published_again(stage: RelayStage) -> None:
    """A revoked card cannot be published again, and the next card can."""
    alice = await stage.identity("alice")
    await stage.ask(None, "POST", f"/v1/handles/{alice.handle}/revocations", alice.revocation())
    answer = await stage.publish(alice)
    check(answer.status in (401, 409), "401 or 409 for a revoked card", str(answer))
    await _published(stage, alice.renewed())
