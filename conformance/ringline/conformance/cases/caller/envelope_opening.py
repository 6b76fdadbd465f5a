"""ENVELOPE: which outcomes a caller believes. Behind each false one comes the true one."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from ringline.conformance.caller_scene import Scene, Taken, failure, reply
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.identity import Identity
from ringline.conformance.line import Frame
from ringline.conformance.registry import case
from ringline.conformance.seals import Damage
from ringline.conformance.verdict import Failed, check
from ringline.protocol.context import OutcomeContext
from ringline.protocol.frames import Terminal
from ringline.protocol.signing import SigningKey

__all__: list[str] = []

FORGED: Final = reply("forged")


async def not_believed(stage: CallerStage, *forging: Callable[[Taken], Frame]) -> None:
    """Pass when none of these outcomes counts, each in a call of its own, and the true one behind it does."""
    scene = await Scene.set(stage)
    for forge in forging:
        order, taken = await scene.ring(scene.peer())
        await taken.send(forge(taken))
        await taken.answer("true")
        await scene.replied(order, "true")


async def not_shown(stage: CallerStage, *forging: Callable[[Taken], Frame]) -> None:
    """Pass when none of these outcomes, which the callee has signed, is shown as what he says.

    To wait for a better one is right, and so is to give up at once: he will send no other.
    """
    scene = await Scene.set(stage)
    for forge in forging:
        order, taken = await scene.ring(scene.peer())
        await taken.send(forge(taken))
        await taken.answer("true")
        said = await order.end(scene.patient * 2)
        right = said["end"] == "local" or (said["end"] == "reply" and said["text"] == "true")
        check(right, "the reply that is good, or an error of the caller's own", said)


def around(taken: Taken, terminal: Terminal = "completed") -> OutcomeContext:
    """Return the true surroundings of an outcome."""
    return taken.context.answer(
        card_id=taken.peer.identity.card.card.id,
        reply_public=taken.opened.reply_public,
        call_id=taken.call_id,
        terminal=terminal,
        digest=taken.opened.digest,
        iat=taken.sealed.iat,
    )


def bound_otherwise(taken: Taken, **members: Any) -> Frame:
    """Return an outcome that looks right, and was sealed and signed for other surroundings."""
    context = around(taken)
    wrong = replace(context, **members).encode()
    damage = Damage(sealed_for=wrong, signed_for=wrong)
    return taken.outcome(FORGED, damage=damage, iat=context.iat)


def signed_otherwise(taken: Taken, **members: Any) -> Frame:
    """Return an outcome whose seal is right, and whose signature is of other surroundings."""
    context = around(taken)
    wrong = replace(context, **members).encode()
    return taken.outcome(FORGED, damage=Damage(signed_for=wrong), iat=context.iat)


async def judged(scene: Scene, taken: Taken, forged: Frame) -> None:
    """Send an outcome under a card for which the caller must ask the relay, and let him judge it.

    The true outcome behind it is of a card that he knows, and would else be opened first.
    """
    relay, path = scene.house.relay, f"/v1/handles/{taken.peer.handle}"
    known = sum(asked.path == path for asked in relay.asked)
    await taken.send(forged)
    with contextlib.suppress(Failed):
        await relay.until_asked(path, known + 1, scene.stage.patience.answer / 10)
    await asyncio.sleep(scene.stage.patience.quiet)


@case(requirements=("RL-ENVELOPE-031", "RL-ENVELOPE-039", "RL-ENVELOPE-040"))
async def another_signature_is_no_answer(stage: CallerStage) -> None:
    """An outcome that was sealed rightly, but signed by another key, is ignored."""
    await not_believed(
        stage, lambda taken: taken.outcome(FORGED, damage=Damage(signing_key=SigningKey.generate()))
    )


@case(requirements=("RL-ENVELOPE-031", "RL-ENVELOPE-037"))
async def a_signature_of_other_surroundings_is_no_answer(stage: CallerStage) -> None:
    """An outcome whose signature covers another call is ignored, though its seal opens."""
    await not_believed(
        stage,
        lambda taken: signed_otherwise(taken, call_id="another"),
        lambda taken: signed_otherwise(taken, request_digest=bytes(32)),
    )


@case(requirements=("RL-ENVELOPE-037", "RL-ENVELOPE-039", "RL-ENVELOPE-040"))
async def an_outcome_of_other_ids_is_no_answer(stage: CallerStage) -> None:
    """An outcome that was sealed for another call, message, correlation or request is ignored."""
    await not_believed(
        stage,
        lambda taken: bound_otherwise(taken, call_id="another"),
        lambda taken: bound_otherwise(taken, message_id="5" * 32),
        lambda taken: bound_otherwise(taken, correlation_id="5" * 32),
        lambda taken: bound_otherwise(taken, request_digest=bytes(32)),
    )


@case(requirements=("RL-ENVELOPE-037",))
async def an_outcome_of_other_parties_is_no_answer(stage: CallerStage) -> None:
    """An outcome that was sealed in another realm, mode or time, or between other handles, is ignored."""
    await not_believed(
        stage,
        lambda taken: bound_otherwise(taken, realm="relay.example"),
        lambda taken: bound_otherwise(taken, mode="durable"),
        lambda taken: bound_otherwise(taken, iat=taken.sealed.iat + 1),
        lambda taken: bound_otherwise(taken, sender=replace(around(taken).sender, handle="mallory")),
        lambda taken: bound_otherwise(taken, recipient=replace(around(taken).recipient, ipk=bytes(32))),
    )


@case(requirements=("RL-ENVELOPE-037", "RL-ENVELOPE-041"))
async def a_failure_is_not_shown_as_a_reply(stage: CallerStage) -> None:
    """An outcome is ignored under the other terminal than it was sealed for, and if its JSON does not fit."""
    await not_believed(
        stage,
        lambda taken: taken.outcome(failure(), "failed", frame={"terminal": "completed"}),
        lambda taken: taken.outcome(FORGED, "completed", frame={"terminal": "failed"}),
    )
    await not_shown(
        stage,
        lambda taken: taken.outcome(failure(), "completed"),
        lambda taken: taken.outcome(FORGED, "failed"),
    )


@case(requirements=("RL-ENVELOPE-038", "RL-ENVELOPE-040"))
async def an_outcome_of_a_stranger_is_no_answer(stage: CallerStage) -> None:
    """An outcome that somebody else has signed with a card of his own is ignored."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    other = Identity(handle=bob.handle, realm=bob.identity.realm)
    scene.house.relay.superseded[other.card_id] = {
        name: other.publication()[name] for name in ("card", "card_sig")
    }
    order, taken = await scene.ring(bob)
    await judged(scene, taken, taken.outcome(FORGED, by=other))
    await taken.answer("true")
    await scene.replied(order, "true")


@case(requirements=("RL-ENVELOPE-038",))
async def a_later_card_of_the_callee_may_sign(stage: CallerStage) -> None:
    """An outcome is taken that the callee signed with a card which he has published since."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order, taken = await scene.ring(bob)
    scene.becomes(bob, bob.identity.renewed())
    await taken.answer("by the next card")
    await scene.replied(order, "by the next card")


@case(requirements=("RL-KEYS-037",))
async def a_revoked_card_does_not_speak(stage: CallerStage) -> None:
    """An outcome under a card that the relay shows as revoked is ignored."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order, taken = await scene.ring(bob)
    revoked, present = bob.identity.renewed(), bob.identity
    scene.house.relay.superseded[revoked.card_id] = {
        name: revoked.publication()[name] for name in ("card", "card_sig")
    }
    scene.house.relay.revoked[bob.handle] = [revoked.card_id]
    await judged(scene, taken, taken.outcome(FORGED, by=revoked))
    await taken.send(taken.outcome(reply("true"), by=present))
    await scene.replied(order, "true")


@case(requirements=("RL-ENVELOPE-028",))
async def clear_names_are_those_of_the_seal(stage: CallerStage) -> None:
    """An outcome is ignored whose clear `kid` names another key, or its `sid` another card."""
    other = "A" * 43
    await not_believed(
        stage,
        lambda taken: taken.outcome(FORGED, clear={"kid": other}),
        lambda taken: taken.outcome(FORGED, clear={"sid": other}),
    )


@case(requirements=("RL-ENVELOPE-042",))
async def an_outcome_keeps_suite_and_time_of_its_request(stage: CallerStage) -> None:
    """An outcome is ignored whose envelope names another `exp` than the request, or another suite."""
    await not_believed(
        stage,
        lambda taken: taken.outcome(FORGED, exp=taken.sealed.exp + 1),
        lambda taken: taken.outcome(FORGED, clear={"exp": taken.sealed.exp - 1}),
        lambda taken: taken.outcome(FORGED, clear={"suite": 2}),
    )


@case(requirements=("RL-ENVELOPE-029",))
async def a_ciphertext_has_one_text(stage: CallerStage) -> None:
    """An outcome is ignored whose ciphertext is right, but not in the one form of base64url."""

    def respelt(taken: Taken) -> Frame:
        # The unused bits of the last character are set.
        frame = taken.outcome(FORGED)
        ct = frame["envelope"]["ct"]
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        spare = len(ct) % 4
        check(spare in (2, 3), "a ciphertext with unused bits", spare)
        frame["envelope"]["ct"] = ct[:-1] + alphabet[alphabet.index(ct[-1]) + 1]
        return frame

    # Of the two sizes of plaintext one leaves bits unused in suite 1: 2,048 and 48 bytes do.
    await not_believed(
        stage, respelt, lambda taken: taken.outcome(FORGED) | {"envelope": padded(taken.outcome(FORGED))}
    )


def padded(frame: Frame) -> Frame:
    """Return the envelope of a frame with a padding character behind its ciphertext."""
    envelope: Frame = frame["envelope"]
    return envelope | {"ct": envelope["ct"] + "="}


@case(requirements=("RL-ENVELOPE-030", "RL-ENVELOPE-039"))
async def a_plaintext_has_one_padding(stage: CallerStage) -> None:
    """An outcome is ignored whose plaintext has another version, length, size or padding."""

    def spoilt(plaintext: Callable[[bytes], bytes]) -> Callable[[Taken], Frame]:
        return lambda taken: taken.outcome(FORGED, damage=Damage(plaintext=plaintext))

    await not_believed(
        stage,
        lambda taken: taken.outcome(FORGED, damage=Damage(version=2)),
        lambda taken: taken.outcome(FORGED, damage=Damage(length=1_000_000)),
        spoilt(lambda plain: plain[:-1] + b"\1"),
        spoilt(lambda plain: plain + bytes(128)),
        spoilt(lambda plain: plain[:-1]),
        spoilt(lambda plain: plain[:40]),
    )


@case(requirements=("RL-ENVELOPE-046", "RL-ENVELOPE-047", "RL-ENVELOPE-048"))
async def sealed_json_is_read_strictly(stage: CallerStage) -> None:
    """An outcome is ignored whose JSON has an unknown or repeated member, a null, or a number too large."""
    await not_shown(
        stage,
        lambda taken: taken.outcome(b'{"reason":"completed","reply":{"text":"forged","more":1}}'),
        lambda taken: taken.outcome(b'{"reason":"completed","reply":{"text":"forged","text":"forged"}}'),
        lambda taken: taken.outcome(b'{"reason":"completed","reply":{"text":"forged"},"failure":null}'),
        lambda taken: taken.outcome(
            b'{"reason":"completed","reply":{"text":"forged","value":9007199254740993}}'
        ),
        lambda taken: taken.outcome(b'{"reason":"completed","reply":{"text":"forged \\ud800"}}'),
    )


@case(requirements=("RL-ENVELOPE-049", "RL-ENVELOPE-052"))
async def an_outcome_beyond_its_limits_is_no_answer(stage: CallerStage) -> None:
    """An outcome is ignored with a reply of more than 256,000 bytes, or a detail of more than 500."""
    await not_shown(
        stage,
        lambda taken: taken.outcome(reply("x" * 256_001)),
        lambda taken: taken.outcome(failure(detail="é" * 251), "failed"),
        lambda taken: taken.outcome(failure(offered=[f"task-{n}" for n in range(51)]), "failed"),
    )


@case(requirements=("RL-ENVELOPE-049",))
async def the_largest_reply_is_taken(stage: CallerStage) -> None:
    """A reply of 256,000 bytes is the reply."""
    scene = await Scene.set(stage)
    order, taken = await scene.ring(scene.peer())
    await taken.answer("é" * 128_000)
    await scene.replied(order, "é" * 128_000)


@case(requirements=("RL-ENVELOPE-045",))
async def the_times_of_an_outcome_are_not_judged(stage: CallerStage) -> None:
    """An outcome that was sealed long ago, or by a clock that is ahead, is taken."""
    scene = await Scene.set(stage)
    for iat in (1_000, 4_000_000_000_000):
        order, taken = await scene.ring(scene.peer())
        await taken.send(taken.outcome(reply("at another time"), iat=iat))
        await scene.replied(order, "at another time")


@case(requirements=("RL-ENVELOPE-037",))
async def a_request_is_not_its_own_outcome(stage: CallerStage) -> None:
    """The envelope of the request itself, sent back, is ignored, and so is that of another call's outcome."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order, first = await scene.ring(bob)
    before = first.outcome(reply("of the first call"))
    await first.send(before)
    await scene.replied(order, "of the first call")
    order, taken = await scene.ring(bob)
    await taken.send(taken.outcome(FORGED) | {"envelope": taken.frame["envelope"]})
    await taken.send(before | {"call_id": taken.call_id})
    await taken.answer("true")
    await scene.replied(order, "true")


@case(requirements=("RL-ENVELOPE-040",))
async def what_does_not_open_is_no_word_of_the_peer(stage: CallerStage) -> None:
    """A call of which nothing but false outcomes arrive does not end as answered or failed by the peer."""
    scene = await Scene.set(stage)
    order, taken = await scene.ring(scene.peer(), timeout_ms=3_000)
    await taken.send(taken.outcome(FORGED, damage=Damage(signing_key=SigningKey.generate())))
    await scene.end(order, "local")


@case(requirements=("RL-ENVELOPE-039", "RL-SYNC-035"))
async def the_first_outcome_counts(stage: CallerStage) -> None:
    """Of two outcomes that both open the first is the reply, whatever comes behind it."""
    scene = await Scene.set(stage)
    order, taken = await scene.ring(scene.peer())
    await taken.answer("first")
    await taken.answer("second")
    await taken.error("canceled", ends=True)
    await scene.replied(order, "first")
