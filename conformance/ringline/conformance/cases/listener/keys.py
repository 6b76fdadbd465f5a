"""KEYS: what a listener publishes, and whose cards it believes."""

from dataclasses import replace
from typing import Any, Final

from ringline.conformance.identity import Identity, now_ms
from ringline.conformance.listener_scene import MINUTE, Scene
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.registry import Level, case
from ringline.conformance.stand_in import Asked
from ringline.conformance.verdict import check
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import SignedSuccession, Succession
from ringline.protocol.transcript import digest, label

__all__ = [
    "follows_a_succession",
    "forgets_no_pin_over_its_own_end",
    "opens_under_a_renewed_card",
    "publishes_before_it_connects",
    "publishes_for_the_usual_times",
    "refuses_a_card_of_another_identity",
    "refuses_a_card_that_changes_its_successor",
    "refuses_a_card_that_was_replaced_long_ago",
    "refuses_a_revoked_card",
    "refuses_a_second_card_of_one_serial",
    "refuses_a_succession_that_does_not_hold",
    "refuses_cards_of_another_form",
    "uses_two_keys",
]

_HOUR: Final = 60 * MINUTE
_DAY: Final = 24 * _HOUR


def _commitment(key: SigningKey) -> bytes:
    return digest(label("next") + key.public)


@case(requirements=("RL-KEYS-024",))
async def publishes_before_it_connects(stage: ListenerStage) -> None:
    """A new listener publishes its keys before it dials, and what is sealed to them opens."""
    scene = await Scene.set(stage, own=True)
    puts = [asked for asked in scene.house.relay.asked if asked.method == "PUT"]
    check(bool(puts) and puts[0].path == f"/v1/handles/{scene.house.handle}", "its keys first", puts)
    await scene.works()


@case(requirements=("RL-KEYS-001",))
async def uses_two_keys(stage: ListenerStage) -> None:
    """The operational key of its card is not its identity key."""
    scene = await Scene.set(stage)
    card = scene.house.published.card.card
    check(card.ipk != card.spk, "two keys", "one for both")
    check(card.serial == 1, "serial 1 on the first card", card.serial)


@case(Level.SHOULD, requirements=("RL-KEYS-006", "RL-KEYS-021"))
async def publishes_for_the_usual_times(stage: ListenerStage) -> None:
    """Its card begins an hour ago and lives 90 days; its prekeys are those of today's epoch."""
    scene = await Scene.set(stage)
    card, prekey = scene.house.published.card.card, scene.house.published.prekey.prekey
    now = now_ms()
    check(card.not_after - card.not_before == 90 * _DAY, "90 days", card.not_after - card.not_before)
    check(abs(now - _HOUR - card.not_before) < 10 * MINUTE, "an hour ago", now - card.not_before)
    check(prekey.epoch in (now // _DAY, (now - 10 * MINUTE) // _DAY), "today's epoch", prekey.epoch)
    times = (prekey.epoch * _DAY - _HOUR, (prekey.epoch + 14) * _DAY)
    check((prekey.not_before, prekey.not_after) == times, f"the times {times}", prekey)


@case(requirements=("RL-ENVELOPE-020", "RL-KEYS-033"))
async def refuses_a_card_of_another_identity(stage: ListenerStage) -> None:
    """A call under a key that the relay shows for a known handle, without a succession, is refused."""
    scene = await Scene.set(stage)
    await scene.works()
    other = Identity(handle=scene.alice.handle, realm=scene.alice.realm, serial=2)
    scene.house.relay.serve(other)
    await scene.refused(scene.seal(by=other), "the relay has exchanged the caller's key")
    scene.house.relay.serve(scene.alice)
    await scene.works()


@case(requirements=("RL-KEYS-041", "RL-KEYS-033"))
async def forgets_no_pin_over_its_own_end(stage: ListenerStage) -> None:
    """A key that was pinned by one process is not exchanged under the next."""
    scene = await Scene.set(stage, own=True)
    await scene.works()
    await scene.house.stop()
    await scene.house.start()
    other = Identity(handle=scene.alice.handle, realm=scene.alice.realm)
    scene.house.relay.serve(other)
    await scene.refused(scene.seal(by=other), "another key was pinned before the restart")
    scene.house.relay.serve(scene.alice)
    await scene.works()


@case(requirements=("RL-ENVELOPE-020", "RL-KEYS-033"))
async def follows_a_succession(stage: ListenerStage) -> None:
    """A call under another identity is answered when the last card vouches for it, in either way."""
    scene = await Scene.set(stage)
    relay = scene.house.relay
    await scene.works()
    new = SigningKey.generate()
    later = scene.alice.succeeded(new, old_signs=True)
    relay.superseded[scene.alice.card_id] = scene.alice.publication()
    relay.serve(later)
    await scene.works(by=later)
    following = SigningKey.generate()
    bob = scene.peer("bob", next=_commitment(following))
    await scene.works(by=bob)
    later = bob.succeeded(following)
    relay.superseded[bob.card_id] = bob.publication()
    relay.serve(later)
    await scene.works(by=later)


@case(
    requirements=(
        "RL-KEYS-028",
        "RL-KEYS-029",
        "RL-KEYS-030",
        "RL-KEYS-031",
        "RL-KEYS-033",
        "RL-ENVELOPE-020",
    )
)
async def refuses_a_succession_that_does_not_hold(stage: ListenerStage) -> None:
    """A call under another identity is refused when the last card does not vouch for it."""
    scene = await Scene.set(stage)
    relay = scene.house.relay
    new, promised, stranger, own = (SigningKey.generate() for _ in range(4))

    def handed(old: Identity, *signers: SigningKey | None) -> Identity:
        statement = Succession(old_card_id=old.card.card.id, new_ipk=new.public, ts=now_ms())
        later = old.succeeded(new)
        message = statement.encode()
        first, second = (None if signer is None else signer.sign(message) for signer in signers)
        assert first is not None
        later.succession = SignedSuccession(statement, first, second)
        return later

    for why, commits_to, first, second in (
        ("only the new key signs, and nothing was committed to", None, new, None),
        ("a stranger signs for the old key", None, new, stranger),
        ("a stranger signs for the new key", None, stranger, own),
        ("a stranger signs for the key that was committed to", new, stranger, None),
        ("a stranger signs for the old key, where it need not sign", new, new, stranger),
        ("another key was committed to", promised, new, None),
        ("another key was committed to, though the old one signs", promised, new, own),
    ):
        commitment = {} if commits_to is None else {"next": _commitment(commits_to)}
        old = scene.peer("carol", identity=SigningKey.generate() if second is not own else own, **commitment)
        await scene.works(by=old)
        later = handed(old, first, second)
        relay.superseded[old.card_id] = old.publication()
        relay.serve(later)
        await scene.refused(scene.seal(by=later), why)
    await scene.works()


@case(requirements=("RL-ENVELOPE-018",))
async def opens_under_a_renewed_card(stage: ListenerStage) -> None:
    """A call under the next card of a known identity is answered."""
    scene = await Scene.set(stage)
    await scene.works()
    later = scene.alice.renewed()
    scene.house.relay.superseded[scene.alice.card_id] = scene.alice.publication()
    scene.house.relay.serve(later)
    await scene.works(by=later)


@case(requirements=("RL-ENVELOPE-021", "RL-ENVELOPE-033"))
async def refuses_a_card_that_was_replaced_long_ago(stage: ListenerStage) -> None:
    """A call under a card whose successor began more than 96 h ago is refused."""
    scene = await Scene.set(stage)
    old = scene.peer("carol", not_before=now_ms() - 200 * _HOUR)
    later = old.renewed(not_before=now_ms() - 97 * _HOUR)
    scene.house.relay.superseded[old.card_id] = old.publication()
    scene.house.relay.serve(later)
    await scene.works(by=later)
    await scene.refused(scene.seal(by=old), "its card was replaced 97 hours ago")


@case(requirements=("RL-KEYS-037", "RL-ENVELOPE-021", "RL-ENVELOPE-033"))
async def refuses_a_revoked_card(stage: ListenerStage) -> None:
    """A call under a card that the relay shows as revoked is refused."""
    scene = await Scene.set(stage)
    carol = scene.peer("carol")
    scene.house.relay.revoked[carol.handle] = [carol.card_id]
    await scene.refused(scene.seal(by=carol), "its card is revoked")
    old = scene.peer("dave", not_before=now_ms() - 2 * _HOUR)
    later = old.renewed()
    relay = scene.house.relay
    relay.superseded[old.card_id] = old.publication()
    relay.serve(later)
    relay.revoked[old.handle] = [old.card_id]
    await scene.works(by=later)
    await scene.refused(scene.seal(by=old), "its card, which was replaced, is revoked")


@case(requirements=("RL-KEYS-042",))
async def refuses_a_second_card_of_one_serial(stage: ListenerStage) -> None:
    """A call under another card of a known identity with the same serial is refused."""
    scene = await Scene.set(stage)
    await scene.works()
    twin = replace(scene.alice, operational=SigningKey.generate())
    scene.house.relay.serve(twin)
    await scene.refused(scene.seal(by=twin), "there are two cards of one serial")
    scene.house.relay.serve(scene.alice)
    await scene.works()


@case(requirements=("RL-KEYS-010",))
async def refuses_a_card_that_changes_its_successor(stage: ListenerStage) -> None:
    """A call under a card that commits to another successor than the card before it is refused."""
    scene = await Scene.set(stage)
    carol = scene.peer("carol", next=_commitment(SigningKey.generate()))
    await scene.works(by=carol)
    later = carol.renewed(next=_commitment(SigningKey.generate()))
    scene.house.relay.superseded[carol.card_id] = carol.publication()
    scene.house.relay.serve(later)
    await scene.refused(scene.seal(by=later), "its card commits to another successor")


@case(requirements=("RL-KEYS-002", "RL-KEYS-003", "RL-KEYS-004", "RL-KEYS-005", "RL-KEYS-045"))
async def refuses_cards_of_another_form(stage: ListenerStage) -> None:
    """A call under a card that nobody may believe is refused, though the relay shows it as current."""
    scene = await Scene.set(stage)
    relay = scene.house.relay
    one = SigningKey.generate()
    forms: list[tuple[str, Identity]] = [
        ("lives longer than 90 days and an hour", scene.peer("carol", life=91 * _DAY)),
        ("is of another realm", replace(scene.peer("carol"), realm="other.example")),
        ("has one key for both", scene.peer("carol", identity=one, operational=one)),
    ]
    other = scene.peer("carol")
    forms.append(("is of another handle", replace(other, handle=f"{other.handle}x")))
    shown = {other.handle: forms[-1][1].publication()}
    damaged = scene.peer("carol")
    signature = bytearray(b64decode(damaged.publication()["card_sig"]))
    signature[0] ^= 1
    shown[damaged.handle] = damaged.publication(card_sig=b64encode(bytes(signature)))
    forms.append(("has a signature that does not verify", damaged))
    foreign = forms[1][1]
    shown[foreign.handle] = foreign.publication()

    def answering(asked: Asked) -> tuple[int, Any] | None:
        handle = asked.path.removeprefix("/v1/handles/")
        if handle in shown:
            return 200, {"handle": handle, "revoked": [], **shown[handle]}
        return None

    relay.answering = answering
    for why, who in forms:
        sent = scene.seal(by=who, frame={"from": other.handle} if who.handle.endswith("x") else None)
        await scene.refused(sent, f"its card {why}")
    await scene.works()
