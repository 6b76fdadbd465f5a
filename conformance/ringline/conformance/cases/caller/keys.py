"""KEYS: which cards and prekeys a caller seals to. All is said by the relay, and nothing may be sent."""

from ringline.conformance.caller_scene import Peer, Scene
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.identity import Identity, now_ms
from ringline.conformance.registry import case
from ringline.protocol.encoding import b64encode
from ringline.protocol.prekeys import SealingKey
from ringline.protocol.signing import SigningKey

__all__: list[str] = []

HOUR = 3_600_000
DAY = 24 * HOUR


@case(requirements=("RL-KEYS-003", "RL-KEYS-045"))
async def a_card_of_another_realm_is_refused(stage: CallerStage) -> None:
    """A card that was made for another realm is not sealed to."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    bob.identity.realm = "relay.example"
    await scene.refused(bob, "the card is of another realm")


@case(requirements=("RL-KEYS-045",))
async def a_card_of_another_handle_is_refused(stage: CallerStage) -> None:
    """The card of another handle, good as it is, is not sealed to in place of the one asked for."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    mallory = scene.peer("mallory")
    scene.shows(bob, **mallory.identity.publication())
    await scene.refused(bob, "the card is of another handle")


@case(requirements=("RL-KEYS-004",))
async def a_card_that_its_identity_key_has_not_signed_is_refused(stage: CallerStage) -> None:
    """A card with the signature of another key is not sealed to."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    card = bob.identity.card.card.encode()
    scene.shows(bob, card_sig=b64encode(SigningKey.generate().sign(card)))
    await scene.refused(bob, "the signature is another key's")


@case(requirements=("RL-KEYS-002",))
async def a_card_with_one_key_for_both_uses_is_refused(stage: CallerStage) -> None:
    """A card whose operational key is its identity key is not sealed to."""
    scene = await Scene.set(stage)
    one = SigningKey.generate()
    await scene.refused(scene.peer(identity=one, operational=one), "one key has both uses")


@case(requirements=("RL-KEYS-025",))
async def a_card_that_has_run_out_is_refused(stage: CallerStage) -> None:
    """A card whose time is over, or has not come, is not sealed to."""
    scene = await Scene.set(stage)
    for not_before in (now_ms() - 91 * DAY, now_ms() + HOUR):
        await scene.refused(scene.peer(not_before=not_before), "the card does not hold at present")


@case(requirements=("RL-KEYS-005",))
async def a_card_that_holds_too_long_is_refused(stage: CallerStage) -> None:
    """A card that is said to hold for more than 90 days and an hour is not sealed to."""
    scene = await Scene.set(stage)
    await scene.refused(scene.peer(life=90 * DAY + HOUR + 1), "the card claims too long a life")


@case(requirements=("RL-KEYS-013",))
async def a_prekey_that_the_card_has_not_signed_is_refused(stage: CallerStage) -> None:
    """A prekey statement with the signature of another key, or made under another card, is not sealed to."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    statement = bob.identity.prekey.prekey.encode()
    scene.shows(bob, prekey_sig=b64encode(SigningKey.generate().sign(statement)))
    await scene.refused(bob, "the signature is another key's")
    await scene.refused(scene.peer(prekey_changes={"card_id": bytes(32)}), "it is another card's")


@case(requirements=("RL-KEYS-025",))
async def a_prekey_that_has_run_out_is_refused(stage: CallerStage) -> None:
    """A prekey statement whose time is over, or has not come, is not sealed to."""
    scene = await Scene.set(stage)
    now = now_ms()
    for begin in (now - 15 * DAY, now + HOUR):
        times = {"not_before": begin, "not_after": begin + 14 * DAY}
        await scene.refused(scene.peer(prekey_changes=times), "the prekey does not hold at present")


@case(requirements=("RL-KEYS-016",))
async def a_prekey_that_holds_too_long_is_refused(stage: CallerStage) -> None:
    """A prekey statement that claims to hold for more than 14 days and an hour is not sealed to."""
    scene = await Scene.set(stage)
    begin = now_ms() - HOUR
    times = {"not_before": begin, "not_after": begin + 14 * DAY + HOUR + 1}
    await scene.refused(scene.peer(prekey_changes=times), "the prekey claims too long a life")


@case(requirements=("RL-KEYS-014", "RL-ENVELOPE-006"))
async def an_unusable_prekey_is_refused(stage: CallerStage) -> None:
    """A prekey of small order, for which everybody knows the secret, is not sealed to."""
    scene = await Scene.set(stage)
    keys = (SealingKey(1, bytes(32)),)
    await scene.refused(scene.peer(prekey_changes={"keys": keys}), "everybody can open it")


@case(requirements=("RL-KEYS-019",))
async def the_number_of_an_epoch_says_nothing_of_its_time(stage: CallerStage) -> None:
    """A prekey statement of a small epoch that holds at present is sealed to."""
    scene = await Scene.set(stage)
    order, taken = await scene.ring(scene.peer(prekey_changes={"epoch": 7}))
    await taken.answer()
    await scene.replied(order)


@case(requirements=("RL-KEYS-037",))
async def a_revoked_card_is_not_sealed_to(stage: CallerStage) -> None:
    """A card that the relay shows as revoked is not sealed to."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    scene.house.relay.revoked[bob.handle] = [bob.identity.card_id]
    await scene.refused(bob, "the card is revoked")


# --- where a key comes from


@case(requirements=("RL-KEYS-040",))
async def a_stranger_is_not_trusted_elsewhere(stage: CallerStage) -> None:
    """In another realm than localhost a handle without a pinned key is not sealed to."""
    scene = await Scene.set(stage, own=True, realm="relay.example")
    await scene.refused(scene.peer(), "nobody vouches for the key", "untrusted_key")


@case(requirements=("RL-KEYS-033", "RL-NAME-002"))
async def a_contact_string_vouches_for_a_key(stage: CallerStage) -> None:
    """A peer whose contact string was given is called in any realm, by that key and no other."""
    scene = await Scene.set(stage, own=True, realm="relay.example")
    bob = scene.peer()
    order, taken = await scene.ring(bob, to=bob.contact)
    await taken.answer()
    await scene.replied(order)
    carol = scene.peer("carol")
    contact = carol.contact
    scene.becomes(carol, Identity(handle=carol.handle, realm=carol.identity.realm))
    await scene.refused(carol, "the contact string names another key", "key_changed", to=contact)


def damaged(bob: Peer) -> list[str]:
    """Return what is no contact string of this realm."""
    contact = bob.contact
    return [
        contact[:-1],
        contact + "A",
        contact + "\n",
        contact.replace("ringline://", "RINGLINE://"),
        contact.replace(f"@{bob.identity.realm}/", "@relay.example/"),
        contact.replace(bob.handle, bob.handle.upper()),
        contact.partition("#k=")[0] + "#k=" + "A" * 43,
    ]


@case(requirements=("RL-KEYS-046", "RL-NAME-001"))
async def a_damaged_contact_string_is_refused(stage: CallerStage) -> None:
    """A contact string that is cut, respelt, of another realm or with an unusable key calls nobody."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    for contact in damaged(bob):
        await scene.refused(bob, f"{contact!r} is no contact string", to=contact)
