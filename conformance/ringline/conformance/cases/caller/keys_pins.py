"""KEYS: what a caller remembers of a peer over its own restart, and what it lets follow from that."""

from dataclasses import replace
from typing import Any

from ringline.conformance.caller_scene import Peer, Scene
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.identity import Identity
from ringline.conformance.registry import case
from ringline.protocol.identity import NO_NEXT, next_commitment
from ringline.protocol.prekeys import Chain
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import SignedSuccession

__all__: list[str] = []


async def known(stage: CallerStage, **members: Any) -> tuple[Scene, Peer]:
    """Have a peer called once, and the caller started again, so that it knows only what it has kept."""
    scene = await Scene.set(stage)
    bob = scene.peer(**members)
    order, taken = await scene.ring(bob)
    await taken.answer()
    await scene.replied(order)
    await scene.house.restart()
    return scene, bob


async def followed(scene: Scene, bob: Peer, identity: Identity) -> None:
    """Pass when the peer is called under what he has become."""
    scene.becomes(bob, identity)
    order, taken = await scene.ring(bob)
    await taken.answer("followed")
    await scene.replied(order, "followed")


async def not_followed(scene: Scene, bob: Peer, identity: Identity, why: str) -> None:
    """Pass when the peer is not called under what the relay shows for him."""
    scene.becomes(bob, identity)
    await scene.refused(bob, why, "key_changed", "bad_signature", "untrusted_key")


@case(requirements=("RL-KEYS-033", "RL-KEYS-041"))
async def another_identity_is_refused(stage: CallerStage) -> None:
    """Another identity under a known handle is not sealed to, by a later process either."""
    scene, bob = await known(stage)
    stranger = Identity(handle=bob.handle, realm=bob.identity.realm, serial=2)
    await not_followed(scene, bob, stranger, "it is another identity")


@case(requirements=("RL-KEYS-041", "RL-KEYS-042"))
async def an_older_card_is_refused(stage: CallerStage) -> None:
    """A card with a lower serial than was seen before is not sealed to."""
    scene, bob = await known(stage, serial=5)
    await not_followed(scene, bob, replace(bob.identity, serial=4), "its serial is lower")


@case(requirements=("RL-KEYS-042",))
async def a_second_card_of_one_serial_is_refused(stage: CallerStage) -> None:
    """A card with the serial of the one that was seen, and other bytes, is not sealed to."""
    scene, bob = await known(stage)
    other = replace(bob.identity, operational=SigningKey.generate())
    await not_followed(scene, bob, other, "it is another card of the same serial")


@case(requirements=("RL-KEYS-020", "RL-KEYS-041"))
async def an_older_prekey_is_refused(stage: CallerStage) -> None:
    """Prekeys of a lower epoch than was seen under the same card are not sealed to."""
    scene, bob = await known(stage)
    earlier = bob.identity.with_prekey_of(bob.identity.chain.epoch - 1)
    await not_followed(scene, bob, earlier, "its epoch is lower")


@case(requirements=("RL-KEYS-020", "RL-KEYS-042"))
async def a_later_card_begins_its_epochs_anew(stage: CallerStage) -> None:
    """The next card of the known identity is sealed to, though its prekeys are of a lower epoch."""
    scene, bob = await known(stage)
    await followed(scene, bob, bob.identity.renewed(chain=Chain.start(bob.identity.chain.epoch - 2)))


@case(requirements=("RL-KEYS-010",))
async def a_changed_commitment_is_refused(stage: CallerStage) -> None:
    """A later card that names another successor than the one before it, or none, is not sealed to."""
    scene, bob = await known(stage, next=next_commitment(SigningKey.generate().public))
    before = bob.identity
    for following in (NO_NEXT, next_commitment(SigningKey.generate().public)):
        await not_followed(scene, bob, before.renewed(next=following), "it names another successor")


@case(requirements=("RL-KEYS-033",))
async def a_succession_is_followed(stage: CallerStage) -> None:
    """A new identity is sealed to when the known one has signed that it follows, or has committed to it."""
    new = SigningKey.generate()
    scene, bob = await known(stage)
    await followed(scene, bob, bob.identity.succeeded(new, old_signs=True))
    scene, bob = await known(stage, next=next_commitment(new.public))
    await followed(scene, bob, bob.identity.succeeded(new))


@case(requirements=("RL-KEYS-030", "RL-KEYS-033"))
async def a_succession_that_the_old_key_has_not_signed_is_refused(stage: CallerStage) -> None:
    """From a card without commitment nobody follows whom its identity key has not signed for."""
    scene, bob = await known(stage)
    old = bob.identity
    await not_followed(scene, bob, old.succeeded(SigningKey.generate()), "the old key has not signed")
    forged = old.succeeded(SigningKey.generate(), old_signs=True)
    assert forged.succession is not None
    signature = SigningKey.generate().sign(b"something else")
    forged = replace(forged, succession=replace(forged.succession, old_signature=signature))
    await not_followed(scene, bob, forged, "the old signature is another key's")


@case(requirements=("RL-KEYS-029",))
async def a_succession_to_another_key_than_was_committed_to_is_refused(stage: CallerStage) -> None:
    """From a card with a commitment nobody follows but that key, even if the old identity signs for him."""
    scene, bob = await known(stage, next=next_commitment(SigningKey.generate().public))
    other = bob.identity.succeeded(SigningKey.generate(), old_signs=True)
    await not_followed(scene, bob, other, "the card commits to another key")


@case(requirements=("RL-KEYS-028", "RL-KEYS-031"))
async def a_succession_with_a_false_signature_is_refused(stage: CallerStage) -> None:
    """A succession is refused that the new key has not signed, or whose old signature does not hold."""
    new = SigningKey.generate()
    scene, bob = await known(stage, next=next_commitment(new.public))
    right = bob.identity.succeeded(new)
    assert right.succession is not None
    statement = right.succession.succession
    signature = SigningKey.generate().sign(statement.encode())
    for damaged in (
        SignedSuccession(statement, signature),
        SignedSuccession(statement, right.succession.signature, signature),
    ):
        await not_followed(scene, bob, replace(right, succession=damaged), "a signature does not hold")


@case(requirements=("RL-KEYS-033",))
async def a_succession_from_a_card_that_was_not_seen_is_refused(stage: CallerStage) -> None:
    """A succession from a later card of the known identity does not carry from the one that was seen."""
    scene, bob = await known(stage)
    unseen = bob.identity.renewed().succeeded(SigningKey.generate(), old_signs=True)
    await not_followed(scene, bob, unseen, "it does not follow from the card that was seen")
