"""Keys: cards, prekey statements, successions and revocations as a relay takes and shows them."""

from dataclasses import replace
from typing import Any

from ringline.conformance.identity import Identity
from ringline.conformance.registry import case
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.identity import Card, next_commitment
from ringline.protocol.prekeys import Prekey, SealingKey, epoch_at, window
from ringline.protocol.signing import SigningKey

__all__: list[str] = []

_HOUR = 3_600_000
_DAY = 24 * _HOUR
_WEAK = (
    b"\x01" + bytes(31),
    bytes(32),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    b"\xee" + b"\xff" * 30 + b"\x7f",
)
"""The neutral point, one of order 4, one of order 8, and one that is not canonical."""


async def _status(stage: RelayStage, who: Identity, status: int, why: str, **changes: Any) -> None:
    """Pass when the publication of ``who`` is answered so; ``changes`` replace members of the body."""
    answer = await stage.publish(who, **changes)
    check(answer.status == status, f"{status} for {why}", str(answer))


def _signed(card: Card, key: SigningKey) -> dict[str, str]:
    return {"card": b64encode(card.encode()), "card_sig": b64encode(key.sign(card.encode()))}


@case(requirements=("RL-HTTP-018", "RL-HTTP-020", "RL-HTTP-024", "RL-KEYS-007"))
async def first_publication_enrols(stage: RelayStage) -> None:
    """The first publication of a handle is 201, its repetition and its next card 200."""
    alice = stage.stranger("alice")
    await _status(stage, alice, 201, "the first publication")
    await _status(stage, alice, 200, "the same again")
    await _status(stage, alice.renewed(), 200, "the next card")


@case(requirements=("RL-HTTP-019",))
async def publication_is_logged_in_under_its_own_card(stage: RelayStage) -> None:
    """A publication whose token another key signed, or another card, is 401 and enrols nobody."""
    alice, mallory = stage.stranger("alice"), await stage.identity("mallory")
    target = f"/v1/handles/{alice.handle}"
    answer = await stage.ask(mallory, "PUT", target, alice.publication())
    check(answer.status == 401, "401 under another's card", str(answer))
    thief = replace(alice, operational=mallory.operational)
    answer = await stage.ask(thief, "PUT", target, alice.publication())
    check(answer.status == 401, "401 under another key", str(answer))
    answer = await stage.ask(None, "PUT", target, alice.publication())
    check(answer.status == 401, "401 without a log-in", str(answer))
    await _status(stage, alice, 201, "the owner's own publication")


@case(requirements=("RL-HTTP-010", "RL-HTTP-021"))
async def publication_is_for_the_handle_of_its_card(stage: RelayStage) -> None:
    """A publication at another handle than the card's enrols nobody there."""
    alice = stage.stranger("alice")
    other = stage.handle("other")
    path = f"/v1/handles/{other}"
    answer = await stage.ask(alice, "PUT", path, alice.publication())
    check(answer.status in (400, 401, 403), "400, 401 or 403", str(answer))
    await _status(stage, stage.stranger("other"), 201, "the owner of that handle")


@case(requirements=("RL-KEYS-002", "RL-KEYS-003", "RL-KEYS-004"))
async def card_that_does_not_hold_is_malformed(stage: RelayStage) -> None:
    """A card with a wrong signature, one key in both roles, another realm or damaged bytes is 400."""
    alice = stage.stranger("alice")
    card = alice.card.card
    raw = card.encode()
    other = SigningKey.generate()
    await _status(stage, alice, 400, "another's signature", **_signed(card, other))
    await _status(stage, alice, 400, "the operational key's signature", **_signed(card, alice.operational))
    one = replace(alice, operational=alice.identity)
    await _status(stage, one, 400, "one key in both roles")
    elsewhere = replace(alice, realm="elsewhere.example")
    answer = await stage.ask(alice, "PUT", f"/v1/handles/{alice.handle}", elsewhere.publication(), headers=())
    check(answer.status == 400, "400 for a card of another realm", str(answer))
    for why, damaged in {
        "a byte more": raw + b"\0",
        "a byte less": raw[:-1],
        "another label": raw.replace(b"ringline-v1/card", b"ringline-v1/cart"),
        "serial 0": raw[:-116] + bytes(4) + raw[-112:] if raw[-116:-112] == b"\0\0\0\1" else raw + b"\0",
        "nothing": b"\0",
    }.items():
        signed = {"card": b64encode(damaged), "card_sig": b64encode(alice.identity.sign(damaged))}
        await _status(stage, alice, 400, why, **signed)
    await _status(stage, alice, 201, "a good card")


@case(requirements=("RL-KEYS-004", "RL-AUTH-011"))
async def weak_keys_are_refused(stage: RelayStage) -> None:
    """A card whose operational key has small order or is not canonical is 400."""
    alice = stage.stranger("alice")
    for weak in _WEAK:
        card = replace(alice.card.card, spk=weak)
        await _status(stage, alice, 400, f"the key {weak.hex()}", **_signed(card, alice.identity))


@case(requirements=("RL-KEYS-005", "RL-KEYS-008"))
async def card_has_its_life(stage: RelayStage) -> None:
    """A card that claims too long a life, has run out or has not begun is 400."""
    now = stage.stranger().now()
    for why, begin, life in (
        ("a life over 90 days and 1 h", now - _HOUR, 90 * _DAY + _HOUR + 1),
        ("a card that has run out", now - 3 * _HOUR, 2 * _HOUR),
        ("a card that begins in an hour", now + _HOUR, 10 * _DAY),
    ):
        await _status(stage, stage.stranger("alice", not_before=begin, life=life), 400, why)
    longest = stage.stranger("alice", not_before=now - _HOUR, life=90 * _DAY + _HOUR)
    await _status(stage, longest, 201, "the longest life")


@case(requirements=("RL-KEYS-007", "RL-HTTP-021"))
async def serials_follow_one_another(stage: RelayStage) -> None:
    """A first card of another serial than 1, and a later one that is not the next, are 409."""
    await _status(stage, stage.stranger("early", serial=2), 409, "a first card of serial 2")
    alice = await stage.identity("alice")
    for serial in (1, 3, 9):
        await _status(stage, alice.renewed(serial=serial), 409, f"serial {serial} behind 1")
    await _status(stage, alice.renewed(), 200, "serial 2 behind 1")
    await _status(stage, alice, 409, "the card before")


@case(requirements=("RL-KEYS-009",))
async def cards_do_not_begin_before_their_predecessors(stage: RelayStage) -> None:
    """A card whose `not_before` is before that of the card it replaces is refused."""
    alice = await stage.identity("alice")
    await _status(stage, alice.renewed(not_before=alice.not_before - 1), 409, "an earlier beginning")
    await _status(stage, alice.renewed(not_before=alice.not_before), 200, "the same beginning")


@case(requirements=("RL-HTTP-021", "RL-KEYS-032"))
async def taken_handle_stays_with_its_identity(stage: RelayStage) -> None:
    """A card of another identity for a taken handle is 409, of whatever serial."""
    alice = await stage.identity("alice")
    for serial in (1, 2):
        thief = replace(
            alice, identity=SigningKey.generate(), operational=SigningKey.generate(), serial=serial
        )
        await _status(stage, thief, 409, f"another identity with serial {serial}")
    shown = await stage.ask(alice, "GET", f"/v1/handles/{alice.handle}")
    check(shown.json()["card"] == b64encode(alice.card.card.encode()), "the owner's card", str(shown))


@case(requirements=("RL-KEYS-010",))
async def commitment_stays_within_one_identity(stage: RelayStage) -> None:
    """A card of the same identity that changes the commitment to the next one is refused."""
    following, another = SigningKey.generate(), SigningKey.generate()
    alice = await stage.identity("alice", next=next_commitment(following.public))
    await _status(stage, alice.renewed(next=next_commitment(another.public)), 409, "another commitment")
    await _status(stage, alice.renewed(next=bytes(32)), 409, "no commitment any more")
    await _status(stage, alice.renewed(), 200, "the same commitment")
    bob = await stage.identity("bob")
    await _status(stage, bob.renewed(next=next_commitment(another.public)), 200, "a first commitment")


@case(requirements=("RL-KEYS-028", "RL-KEYS-029", "RL-KEYS-032"))
async def handle_passes_to_the_committed_identity(stage: RelayStage) -> None:
    """A handle passes to the identity that its card commits to, and to no other."""
    following, another = SigningKey.generate(), SigningKey.generate()
    alice = await stage.identity("alice", next=next_commitment(following.public))
    await _status(stage, alice.succeeded(another), 409, "a key that was not committed to")
    await _status(stage, alice.succeeded(another, old_signs=True), 409, "the old key's word for another")
    forged = alice.succeeded(following)
    body = forged.publication()["succession"]
    await _status(stage, forged, 400, "a forged succession", succession=body | {"sig": b64encode(bytes(64))})
    await _status(stage, alice.succeeded(following), 200, "the key that was committed to")
    await _status(stage, alice.renewed(), 409, "the identity before")


@case(requirements=("RL-KEYS-030", "RL-KEYS-031"))
async def handle_without_commitment_passes_with_the_old_signature(stage: RelayStage) -> None:
    """Without a commitment a handle passes by a succession that the old identity key has signed too."""
    following = SigningKey.generate()
    alice = await stage.identity("alice")
    await _status(stage, alice.succeeded(following), 409, "a succession without the old signature")
    forged = alice.succeeded(following, old_signs=True)
    body: dict[str, Any] = forged.publication()["succession"]
    answer = await stage.publish(forged, succession=body | {"old_sig": body["sig"]})
    check(answer.status in (400, 409), "400 or 409 for a forged old signature", str(answer))
    await _status(stage, alice.succeeded(following, old_signs=True), 200, "both signatures")


# --- prekeys


async def _prekeys(stage: RelayStage, who: Identity, status: int, why: str, **changes: Any) -> None:
    answer = await stage.ask(
        who, "PUT", f"/v1/handles/{who.handle}/prekeys", who.prekey_publication() | changes
    )
    check(answer.status == status, f"{status} for {why}", str(answer))


def _statement(who: Identity, **changes: Any) -> dict[str, str]:
    """Return the body for a statement with other fields, signed by its card's operational key."""
    raw = replace(who.prekey.prekey, **changes).encode()
    return {"prekey": b64encode(raw), "prekey_sig": b64encode(who.operational.sign(raw))}


@case(requirements=("RL-HTTP-022", "RL-HTTP-023", "RL-HTTP-024"))
async def epochs_rise(stage: RelayStage) -> None:
    """A prekey statement of a higher epoch is taken, the same again is 200, any other is 409."""
    now = stage.stranger().now()
    alice = await stage.identity("alice")
    epoch = epoch_at(now)
    await _prekeys(stage, alice, 200, "the same statement again")
    await _prekeys(stage, alice.with_prekey_of(epoch), 409, "other keys of the same epoch")
    await _prekeys(stage, alice.with_prekey_of(epoch - 1), 409, "a lower epoch")
    begin, end = window(epoch)
    later = _statement(alice, epoch=epoch + 1, not_before=begin, not_after=end)
    await _prekeys(stage, alice, 200, "a higher epoch", **later)
    await _prekeys(stage, alice, 409, "the epoch before")
    shown = await stage.ask(alice, "GET", f"/v1/handles/{alice.handle}")
    check(shown.json()["prekey"] == later["prekey"], "the later statement", str(shown))


@case(requirements=("RL-HTTP-023", "RL-KEYS-013"))
async def prekey_is_signed_under_the_current_card(stage: RelayStage) -> None:
    """A prekey statement signed by another key is 400, and one under another card 409."""
    alice = await stage.identity("alice")
    renewed = alice.renewed()
    await _status(stage, renewed, 200, "the next card")
    raw = renewed.prekey.prekey.encode()
    for key in (alice.operational, renewed.identity, SigningKey.generate()):
        await _prekeys(stage, renewed, 400, "another key", prekey_sig=b64encode(key.sign(raw)))
    before = alice.prekey_publication()
    await _prekeys(stage, renewed, 409, "the card before", **before)


@case(requirements=("RL-KEYS-014", "RL-KEYS-016", "RL-KEYS-017"))
async def prekey_statement_that_does_not_hold_is_malformed(stage: RelayStage) -> None:
    """A prekey statement with too long a life, out of time, without keys or with unusable ones is 400."""
    alice = await stage.identity("alice")
    base = alice.prekey.prekey
    epoch = base.epoch + 1
    now = alice.now()
    key = base.keys[0]
    for why, changes in {
        "a life over 14 days and 1 h": {"not_before": now, "not_after": now + 14 * _DAY + _HOUR + 1},
        "a statement that has run out": {"not_before": now - _DAY, "not_after": now - _HOUR},
        "one that begins in an hour": {"not_before": now + _HOUR, "not_after": now + _DAY},
    }.items():
        await _prekeys(stage, alice, 400, why, **_statement(alice, epoch=epoch, **changes))
    good = b64decode(_statement(alice, epoch=epoch)["prekey"])
    short = Prekey(
        card_id=base.card_id,
        epoch=epoch,
        not_before=base.not_before,
        not_after=base.not_after,
        keys=(SealingKey(key.suite, key.public),),
    ).encode()
    check(good == short, "the suite's own bytes", "others")
    tail = len(key.public) + 4
    for why, raw in {
        "no keys": good[: -tail - 1] + b"\0",
        "a key too short": good[: -tail + 2] + (len(key.public) - 1).to_bytes(2, "big") + key.public[:-1],
        "the same suite twice": good[: -tail - 1] + b"\2" + good[-tail:] * 2,
        "bytes behind": good + b"\0",
        "an all-zero key": good[: -len(key.public)] + bytes(len(key.public)),
    }.items():
        signed = {"prekey": b64encode(raw), "prekey_sig": b64encode(alice.operational.sign(raw))}
        await _prekeys(stage, alice, 400, why, **signed)
    await _prekeys(stage, alice, 200, "a good one", **_statement(alice, epoch=epoch))


@case(requirements=("RL-HTTP-011", "RL-CONV-003"))
async def binary_values_have_one_form(stage: RelayStage) -> None:
    """A binary value in another form than canonical unpadded base64url is 400."""
    alice = stage.stranger("alice")
    body = alice.publication()
    signature: str = body["card_sig"]
    loose = signature[:-1] + chr(ord(signature[-1]) + 1)
    for why, text in {
        "padding": f"{signature}==",
        "a line feed": f"{signature}\n",
        "white space": f" {signature}",
        "the standard alphabet": "+/" + signature[2:],
        "loose bits": loose,
        "nothing": "",
        "a list": [signature],
    }.items():
        await _status(stage, alice, 400, why, card_sig=text)
    await _status(stage, alice, 201, "the canonical form")
