"""ENVELOPE: requests that do not open, whatever was changed about them; none of them runs anything."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

from ringline.conformance.identity import LEFT_OUT, fresh_id, now_ms
from ringline.conformance.listener_scene import MINUTE, Scene
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.registry import case
from ringline.conformance.seals import Damage
from ringline.protocol.context import Party, Recipient, RequestContext
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.signing import SigningKey
from ringline.protocol.suites import SUITES

__all__ = [
    "binds_the_frame",
    "binds_the_signature_to_all_of_it",
    "binds_what_surrounds_the_call",
    "judges_the_clear_ids",
    "refuses_a_ciphertext_that_was_damaged",
    "refuses_a_ciphertext_with_spare_bits",
    "refuses_a_key_that_it_does_not_have",
    "refuses_a_one_time_key_that_all_could_open",
    "refuses_a_plaintext_of_another_form",
    "refuses_a_signature_of_another_key",
    "refuses_an_unknown_suite",
]

_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def _others(true: RequestContext) -> Iterator[tuple[str, RequestContext]]:
    """Every surrounding with one part exchanged."""
    sender, to = true.sender, true.recipient
    other = SigningKey.generate().public
    public = SUITES[to.suite].generate().public
    yield "realm", replace(true, realm="other.example")
    yield "from_handle", replace(true, sender=Party("mallory", sender.ipk, sender.card_id))
    yield "from_ipk", replace(true, sender=Party(sender.handle, other, sender.card_id))
    yield "from_card_id", replace(true, sender=Party(sender.handle, sender.ipk, other))
    yield "to_handle", replace(true, recipient=Recipient("mallory", to.ipk, to.suite, to.public_key))
    yield "to_ipk", replace(true, recipient=Recipient(to.handle, other, to.suite, to.public_key))
    yield "to_key_id", replace(true, recipient=Recipient(to.handle, to.ipk, to.suite, public))
    yield "mode", replace(true, mode="durable" if true.mode == "sync" else "sync")
    yield "message_id", replace(true, message_id=fresh_id())
    yield "correlation_id", replace(true, correlation_id=fresh_id())
    yield "iat", replace(true, iat=true.iat - 1)
    yield "exp", replace(true, exp=true.exp - 1)


@case(requirements=("RL-ENVELOPE-018", "RL-ENVELOPE-024", "RL-ENVELOPE-033"))
async def binds_what_surrounds_the_call(stage: ListenerStage) -> None:
    """A request that was sealed for any other realm, side, key, mode, id or time than its own is refused."""
    scene = await Scene.set(stage)
    for durable in stage.modes:
        true = scene.context(durable=durable)
        for name, other in _others(true):
            encoded = other.encode()
            damage = Damage(sealed_for=encoded, signed_for=encoded)
            around = replace(true, message_id=true.message_id if name == "message_id" else fresh_id())
            if name != "message_id":
                encoded = replace(other, message_id=around.message_id).encode()
                damage = Damage(sealed_for=encoded, signed_for=encoded)
            sent = scene.seal(context=around, damage=damage)
            await scene.refused(sent, f"another {name} was sealed into a {true.mode} call")
    await scene.works()


@case(requirements=("RL-ENVELOPE-018", "RL-ENVELOPE-031", "RL-ENVELOPE-033"))
async def binds_the_signature_to_all_of_it(stage: ListenerStage) -> None:
    """A request whose signature is for other surroundings is refused, though it was encrypted for these."""
    scene = await Scene.set(stage)
    for name, other in _others(scene.context()):
        true = scene.context()
        members: dict[str, Any] = {} if name == "message_id" else {"message_id": true.message_id}
        damage = Damage(signed_for=replace(other, **members).encode())
        await scene.refused(scene.seal(context=true, damage=damage), f"another {name} was signed")
    await scene.works()


@case(requirements=("RL-ENVELOPE-018", "RL-ENVELOPE-028", "RL-ENVELOPE-033"))
async def binds_the_frame(stage: ListenerStage) -> None:
    """A relay that changes a frame around a request in good order sees it refused."""
    scene = await Scene.set(stage)
    mallory = scene.peer("mallory")
    leased = {
        "delivery_mode": "durable",
        "lease_id": str(uuid4()),
        "execute_by": now_ms() + MINUTE,
    }
    unleased = {"delivery_mode": LEFT_OUT, "lease_id": LEFT_OUT, "execute_by": LEFT_OUT}
    changed = [
        ("it has another message_id", scene.seal(frame={"message_id": fresh_id()})),
        ("it has lost its message_id", scene.seal(frame={"message_id": LEFT_OUT})),
        ("it was given a message_id", scene.seal(message_id="", frame={"message_id": fresh_id()})),
        ("it has another correlation_id", scene.seal(frame={"correlation_id": fresh_id()})),
        ("it is said to come from somebody else", scene.seal(frame={"from": mallory.handle})),
        ("its iat was changed", scene.seal(clear={"iat": now_ms() - MINUTE})),
        ("its exp was changed", scene.seal(clear={"exp": now_ms() + MINUTE})),
    ]
    if True in stage.modes:
        changed += [
            ("a sync call is offered as a durable one", scene.seal(frame=leased)),
            ("a durable call is offered as a sync one", scene.seal(durable=True, frame=unleased)),
        ]
    for why, sent in changed:
        await scene.refused(sent, why)
    await scene.works()


@case(requirements=("RL-ENVELOPE-031", "RL-ENVELOPE-033"))
async def refuses_a_signature_of_another_key(stage: ListenerStage) -> None:
    """A request that anybody but the holder of the card's operational key has signed is refused."""
    scene = await Scene.set(stage)
    damage = Damage(signing_key=SigningKey.generate())
    await scene.refused(scene.seal(damage=damage), "a stranger has signed it")
    damage = Damage(signing_key=scene.alice.identity)
    await scene.refused(scene.seal(damage=damage), "the identity key has signed it")
    await scene.works()


@case(requirements=("RL-ENVELOPE-028", "RL-ENVELOPE-020", "RL-ENVELOPE-033"))
async def judges_the_clear_ids(stage: ListenerStage) -> None:
    """A request whose `kid` or `sid` names another key or card than the one it was sealed with is refused."""
    scene = await Scene.set(stage)
    mallory = scene.peer("mallory")
    public = SUITES[scene.context().recipient.suite].generate()
    for why, sent in (
        ("its kid is that of another key", scene.seal(clear={"kid": b64encode(public.key_id)})),
        ("its sid is that of another card", scene.seal(clear={"sid": mallory.card_id})),
        ("its sid is that of no card", scene.seal(clear={"sid": b64encode(bytes(32))})),
    ):
        await scene.refused(sent, why)
    await scene.works()


@case(requirements=("RL-ENVELOPE-023", "RL-ENVELOPE-033"))
async def refuses_a_key_that_it_does_not_have(stage: ListenerStage) -> None:
    """A request that is sealed to a key which the listener never had is refused."""
    scene = await Scene.set(stage)
    true = scene.context()
    to = true.recipient
    other = Recipient(to.handle, to.ipk, to.suite, SUITES[to.suite].generate().public)
    await scene.refused(scene.seal(context=replace(true, recipient=other)), "nobody has its key")
    await scene.works()


@case(requirements=("RL-ENVELOPE-034", "RL-ENVELOPE-023"))
async def refuses_an_unknown_suite(stage: ListenerStage) -> None:
    """A request whose envelope names a suite that there is not, or another than its key's, is refused."""
    scene = await Scene.set(stage)
    suite = scene.context().recipient.suite
    for other in (0, 3 - suite, 3, 9, 65_535):
        await scene.refused(scene.seal(clear={"suite": other}), f"it names suite {other}")
    await scene.works()


@case(requirements=("RL-ENVELOPE-030", "RL-ENVELOPE-033"))
async def refuses_a_plaintext_of_another_form(stage: ListenerStage) -> None:
    """A plaintext of another version, length or padding than the one that the body has is refused."""
    scene = await Scene.set(stage)
    for why, damage in (
        ("its version is 0", Damage(version=0)),
        ("its version is 2", Damage(version=2)),
        ("its last padding byte is not zero", Damage(plaintext=lambda text: text[:-1] + b"\1")),
        ("it is padded to one byte more", Damage(plaintext=lambda text: text + b"\0")),
        ("it is padded to one byte less", Damage(plaintext=lambda text: text[:-1])),
        ("it is padded to the next size", Damage(plaintext=lambda text: text.ljust(2_176, b"\0"))),
        ("it is not padded", Damage(plaintext=lambda text: text.rstrip(b"\0"))),
        ("it is shorter than its head", Damage(plaintext=lambda text: text[:60])),
        ("it is empty", Damage(plaintext=lambda text: text[:0])),
        ("its body is longer than it", Damage(length=0xFFFF_FFFF)),
        ("its body ends within its JSON", Damage(length=40)),
    ):
        await scene.refused(scene.seal(damage=damage), why)
    await scene.works()


@case(requirements=("RL-ENVELOPE-032", "RL-ENVELOPE-006", "RL-ENVELOPE-033"))
async def refuses_a_one_time_key_that_all_could_open(stage: ListenerStage) -> None:
    """A request whose one-time key is of small order, of another form or of another length is refused."""
    scene = await Scene.set(stage)
    suite = scene.context().recipient.suite
    good = SUITES[suite].generate().public
    bad = {
        "of small order": good[:-32] + bytes(32),
        "one byte short": good[:-1],
        "one byte long": good + b"\0",
        "missing": b"",
        "spelled with its highest bit": good[:-1] + bytes([good[-1] | 0x80]),
    }
    if suite == 2:
        bad["not reduced"] = b"\xff" * 1_152 + good[1_152:]
    for why, public in bad.items():
        await scene.refused(scene.seal(reply_public=public), f"its one-time key is {why}")
    await scene.works()


@case(requirements=("RL-ENVELOPE-033",))
async def refuses_a_ciphertext_that_was_damaged(stage: ListenerStage) -> None:
    """A ciphertext that was cut, extended or changed in any part is refused."""
    scene = await Scene.set(stage)
    for why in ("its first byte", "its last byte", "its end", "its beginning", "something more", "nothing"):
        sent = scene.seal()
        ct = bytearray(b64decode(sent.frame["envelope"]["ct"]))
        match why:
            case "its first byte":
                ct[0] ^= 1
            case "its last byte":
                ct[-1] ^= 1
            case "its end":
                del ct[-16:]
            case "its beginning":
                del ct[:32]
            case "something more":
                ct += bytes(3)
            case _:
                ct = ct[:1]
        sent.frame["envelope"]["ct"] = b64encode(bytes(ct))
        await scene.refused(sent, f"of its ciphertext {why} was changed, cut or added")
    await scene.works()


@case(requirements=("RL-ENVELOPE-029", "RL-CONV-003"))
async def refuses_a_ciphertext_with_spare_bits(stage: ListenerStage) -> None:
    """A ciphertext whose text sets a bit that is no part of it is refused."""
    scene = await Scene.set(stage)
    spellings: tuple[Callable[[str], str], ...] = (
        lambda text: text[:-1] + _ALPHABET[_ALPHABET.index(text[-1]) | 1],
        lambda text: f"{text}=",
        lambda text: f" {text}",
        lambda text: f"{text[:40]} {text[40:]}",
        lambda text: f"{text}\n",
    )
    for respelt in spellings:
        sent = scene.seal()
        sent.frame["envelope"]["ct"] = respelt(sent.frame["envelope"]["ct"])
        await scene.refused(sent, "its ciphertext is spelt in another way")
    await scene.works()
