"""Cards, prekey statements, successions and revocations. Binary is base64url, as over HTTP."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import nacl.bindings

from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.identity import Card, next_commitment
from ringline.protocol.limits import CARD_LIFE_MS, PREKEY_LIFE_MS
from ringline.protocol.prekeys import Prekey, SealingKey
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import Reason, Revocation, SignedRevocation, SignedSuccession, Succession
from ringline.protocol.transcript import label, u8, u16, u32, u64, vec
from vectors.vector import NOW, REALM, Json, Party, Vector, accepted, refused, seed

__all__ = ["vectors"]

IDENTITY_POINT = b"\x01" + bytes(31)
MIXED_ORDER = bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa")  # order 8
NON_CANONICAL = bytes.fromhex("ee" + "ff" * 30 + "7f")
_WEAK = {"identity_point": IDENTITY_POINT, "small_order": MIXED_ORDER, "not_canonical": NON_CANONICAL}

ALICE, BOB = Party("alice"), Party("bob", commits=False)


def vectors() -> Iterator[Vector]:
    """Yield the vectors of this kind."""
    yield from _cards()
    yield from _prekeys()
    yield from _successions()
    yield from _revocations()


# --- cards


def _card_bytes(card: Card, **changes: Any) -> bytes:
    """The bytes of a card with fields that a `Card` could not have."""
    fields: Json = {name: getattr(card, name) for name in card.__slots__} | changes
    return b"".join(
        (
            changes.get("label", label("card")),
            vec(fields["realm"].encode()),
            vec(fields["handle"].encode()),
            fields["ipk"],
            u32(fields["serial"]),
            u64(fields["not_before"]),
            u64(fields["not_after"]),
            fields["spk"],
            fields["next"],
        )
    )


def _signed(data: bytes, key: SigningKey) -> Json:
    return {"card": b64encode(data), "card_sig": b64encode(key.sign(data))}


def _cards() -> Iterator[Vector]:
    card, identity = ALICE.card(), ALICE.identity
    asked = {"realm": REALM, "handle": "alice"}
    good = accepted(
        "card.alice",
        "card.read",
        "a card that commits to the next identity",
        asked | _signed(card.encode(), identity),
        _card_output(card),
        "RL-KEYS-004",
    )
    yield good
    longest = ALICE.card(not_after=card.not_before + CARD_LIFE_MS)
    yield accepted(
        "card.longest",
        "card.read",
        "the longest life",
        asked | _signed(longest.encode(), identity),
        _card_output(longest),
        "RL-KEYS-005",
    )
    yield accepted(
        "card.no_next",
        "card.read",
        "a card that commits to nobody",
        {"realm": REALM, "handle": "bob"} | _signed(BOB.card().encode(), BOB.identity),
        _card_output(BOB.card()),
        "RL-KEYS-004",
    )
    structures: tuple[tuple[str, str, Json], ...] = (
        ("other_label", "the label of another structure", {"label": label("prekey")}),
        ("other_version", "the label of another version", {"label": vec(b"ringline-v2/card")}),
        ("handle_upper_case", "a handle with capitals", {"handle": "Alice"}),
        ("handle_empty", "no handle", {"handle": ""}),
        ("realm_with_port", "a realm with a port", {"realm": f"{REALM}:443"}),
        ("serial_zero", "serial 0", {"serial": 0}),
        ("ends_before_it_begins", "a life that ends as it begins", {"not_after": card.not_before}),
        ("time_too_large", "2^53", {"not_after": 2**53}),
        ("lives_too_long", "a millisecond too long", {"not_after": card.not_before + CARD_LIFE_MS + 1}),
        ("one_key", "one key in both roles", {"spk": identity.public}),
    )
    for name, says, changes in structures:
        rule = {"lives_too_long": "RL-KEYS-005", "one_key": "RL-KEYS-002"}.get(name, "RL-KEYS-003")
        rule = "RL-ENVELOPE-002" if "label" in changes else rule
        given = asked | _signed(_card_bytes(card, **changes), identity)
        yield refused(f"card.{name}", good, says, given, "structure", rule)
    data = card.encode()
    for name, says, changed in (
        ("cut_short", "a byte less", data[:-1]),
        ("byte_more", "a byte more", data + b"\0"),
    ):
        yield refused(
            f"card.{name}", good, says, asked | _signed(changed, identity), "structure", "RL-ENVELOPE-002"
        )
    for name, says, change in (
        ("other_handle_asked", "the card of another handle than was asked for", {"handle": "alicf"}),
        ("other_realm_asked", "the card of another realm than was asked for", {"realm": "relay.exampl"}),
    ):
        yield refused(f"card.{name}", good, says, good.input | change, "structure", "RL-KEYS-045")
    for name, point in _WEAK.items():
        # Under a weak key one signature holds for every message; here it is the neutral one.
        weak = {"card": b64encode(_card_bytes(card, ipk=point)), "card_sig": b64encode(point + bytes(32))}
        yield refused(
            f"card.identity_key_{name}",
            good,
            "an identity key that signs all",
            asked | weak,
            "key",
            "RL-KEYS-004",
        )
        given = asked | _signed(_card_bytes(card, spk=point), identity)
        yield refused(
            f"card.operational_key_{name}",
            good,
            "an operational key that signs all",
            given,
            "key",
            "RL-KEYS-004",
        )
    yield from _wrong_signatures(good, "card_sig", SigningKey(seed("mallory identity")), data)
    beside = b64encode(_signed_beside_the_group(identity, data))
    says = "an `R` of mixed order, which an equation with the cofactor lets pass"
    yield refused(
        "card.mixed_order", good, says, good.input | {"card_sig": beside}, "signature", "RL-ENVELOPE-007"
    )


def _card_output(card: Card) -> Json:
    return {
        "card_id": b64encode(card.id),
        "ipk": card.ipk.hex(),
        "spk": card.spk.hex(),
        "serial": card.serial,
        "not_before": card.not_before,
        "not_after": card.not_after,
        "next": card.next.hex(),
    }


def _signed_beside_the_group(key: SigningKey, data: bytes) -> bytes:
    """Return a signature whose `R` has the point of order 2 added: its holder alone can make one."""
    order = 2**252 + 27742317777372353535851937790883648493
    point_of_order_2 = b"\xec" + b"\xff" * 30 + b"\x7f"
    secret = int.from_bytes(hashlib.sha512(key.seed).digest()[:32], "little") & (1 << 254) - 8 | 1 << 254
    nonce = int.from_bytes(seed("nonce of mixed order"), "little") % order
    in_group = nacl.bindings.crypto_scalarmult_ed25519_base_noclamp(nonce.to_bytes(32, "little"))
    r = nacl.bindings.crypto_core_ed25519_add(in_group, point_of_order_2)
    challenge = int.from_bytes(hashlib.sha512(r + key.public + data).digest(), "little")
    return r + ((nonce + challenge * secret) % order).to_bytes(32, "little")


def _wrong_signatures(good: Vector, member: str, other: SigningKey, data: bytes) -> Iterator[Vector]:
    kind = good.id.partition(".")[0]
    right = b64decode(good.input[member])
    order = 2**252 + 27742317777372353535851937790883648493
    s = int.from_bytes(right[32:], "little")
    rule = {"card": "RL-KEYS-004", "prekey": "RL-KEYS-013"}[kind]
    for name, says, signature, which in (
        ("flipped_bit", "one bit of the signature", bytes([right[0] ^ 1]) + right[1:], rule),
        ("other_signer", "a signature by another key", other.sign(data), rule),
        (
            "malleable",
            "the other spelling of the same signature",
            right[:32] + (s + order).to_bytes(32, "little"),
            "RL-ENVELOPE-007",
        ),
        ("zero_signature", "a signature of zeros", bytes(64), rule),
    ):
        given = good.input | {member: b64encode(signature)}
        yield refused(f"{kind}.{name}", good, says, given, "signature", which)
    yield refused(
        f"{kind}.short_signature",
        good,
        "a signature that is cut short",
        good.input | {member: b64encode(right[:-1])},
        "structure",
        rule,
    )


# --- prekeys


def _prekey_bytes(prekey: Prekey, **changes: Any) -> bytes:
    fields: Json = {name: getattr(prekey, name) for name in prekey.__slots__} | changes
    keys: list[tuple[int, bytes]] = changes.get("keys", [(key.suite, key.public) for key in prekey.keys])
    return b"".join(
        (
            label("prekey"),
            fields["card_id"],
            u32(fields["epoch"]),
            u64(fields["not_before"]),
            u64(fields["not_after"]),
            u8(len(keys)),
            *(u16(suite) + vec(public) for suite, public in keys),
        )
    )


def _prekey_input(data: bytes, key: SigningKey) -> Json:
    return ALICE.shown_card() | {"prekey": b64encode(data), "prekey_sig": b64encode(key.sign(data))}


def _prekey_output(prekey: Prekey) -> Json:
    return {
        "epoch": prekey.epoch,
        "not_before": prekey.not_before,
        "not_after": prekey.not_after,
        "keys": [
            {"suite": key.suite, "public": key.public.hex(), "key_id": b64encode(key.key_id)}
            for key in prekey.keys
        ],
    }


def _prekeys() -> Iterator[Vector]:
    operational = ALICE.operational
    both = ALICE.prekey(1, 2)
    good = accepted(
        "prekey.both_suites",
        "prekey.read",
        "a statement with a key of each suite",
        _prekey_input(both.encode(), operational),
        _prekey_output(both),
        "RL-KEYS-013",
    )
    yield good
    one = ALICE.prekey(1)
    alone = accepted(
        "prekey.first_suite",
        "prekey.read",
        "a statement with one key",
        _prekey_input(one.encode(), operational),
        _prekey_output(one),
        "RL-KEYS-013",
    )
    yield alone
    later = replace(one, keys=(*one.keys, SealingKey(9, b"a key of a suite that is yet to come")))
    yield accepted(
        "prekey.unknown_suite",
        "prekey.read",
        "a suite that nobody knows is kept and passed over",
        _prekey_input(later.encode(), operational),
        _prekey_output(later),
        "RL-KEYS-015",
    )
    odd = replace(one, epoch=4_000_000_000, not_after=one.not_before + PREKEY_LIFE_MS)
    yield accepted(
        "prekey.epoch_of_no_day",
        "prekey.read",
        "an epoch that is the number of no day, and the longest life",
        _prekey_input(odd.encode(), operational),
        _prekey_output(odd),
        "RL-KEYS-019",
    )
    public, hybrid = one.keys[0].public, both.keys[1].public
    high = public[:-1] + bytes([public[-1] | 0x80])
    unreduced = b"\xff" * 384 + hybrid[384:]
    changes: tuple[tuple[str, str, Json, str, str], ...] = (
        ("no_keys", "no key", {"keys": []}, "structure", "RL-KEYS-014"),
        ("suite_twice", "a suite twice", {"keys": [(1, public), (1, public)]}, "structure", "RL-KEYS-014"),
        (
            "suites_descend",
            "suites in the wrong order",
            {"keys": [(2, hybrid), (1, public)]},
            "structure",
            "RL-KEYS-014",
        ),
        ("short_key", "a key that is cut short", {"keys": [(1, public[:-1])]}, "structure", "RL-KEYS-014"),
        (
            "other_card",
            "a statement under another card",
            {"card_id": BOB.card().id},
            "structure",
            "RL-KEYS-013",
        ),
        (
            "lives_too_long",
            "a millisecond too long",
            {"not_after": one.not_before + PREKEY_LIFE_MS + 1},
            "structure",
            "RL-KEYS-016",
        ),
        (
            "ends_before_it_begins",
            "a life that ends as it begins",
            {"not_after": one.not_before},
            "structure",
            "RL-KEYS-016",
        ),
        ("zero_point", "a point of small order", {"keys": [(1, bytes(32))]}, "key", "RL-ENVELOPE-006"),
        (
            "point_of_order_8",
            "a point of small order",
            {
                "keys": [
                    (1, bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"))
                ]
            },
            "key",
            "RL-ENVELOPE-006",
        ),
        ("high_bit", "the second spelling of a point", {"keys": [(1, high)]}, "key", "RL-ENVELOPE-006"),
        (
            "hybrid_zero_point",
            "a point of small order in the hybrid",
            {"keys": [(2, hybrid[:1184] + bytes(32))]},
            "key",
            "RL-ENVELOPE-006",
        ),
        (
            "hybrid_not_reduced",
            "a coefficient beyond the modulus",
            {"keys": [(2, unreduced)]},
            "key",
            "RL-ENVELOPE-006",
        ),
    )
    for name, says, change, layer, rule in changes:
        given = _prekey_input(_prekey_bytes(one, **change), operational)
        yield refused(f"prekey.{name}", alone, says, given, layer, rule)
    data = one.encode()
    yield refused(
        "prekey.byte_more",
        alone,
        "a byte more",
        _prekey_input(data + b"\0", operational),
        "structure",
        "RL-ENVELOPE-002",
    )
    yield refused(
        "prekey.signed_by_identity",
        alone,
        "a statement that the identity key signed",
        _prekey_input(data, ALICE.identity),
        "signature",
        "RL-KEYS-013",
    )
    yield from _wrong_signatures(alone, "prekey_sig", BOB.operational, data)


# --- successions and revocations


def _succession_input(old: Party, signed: SignedSuccession) -> Json:
    statement = signed.succession
    shown: Json = {
        "old_card_id": b64encode(statement.old_card_id),
        "new_ipk": b64encode(statement.new_ipk),
        "ts": statement.ts,
        "sig": b64encode(signed.signature),
    }
    if signed.old_signature is not None:
        shown["old_sig"] = b64encode(signed.old_signature)
    return old.shown_card() | {"succession": shown}


def _successions() -> Iterator[Vector]:
    new = ALICE.next
    statement = Succession(old_card_id=ALICE.card().id, new_ipk=new.public, ts=NOW)
    committed = accepted(
        "succession.committed",
        "succession.read",
        "the key to which the old card commits",
        _succession_input(ALICE, SignedSuccession.sign(statement, new)),
        {"new_ipk": new.public.hex(), "signed": statement.encode().hex()},
        "RL-KEYS-028",
    )
    yield committed
    yield accepted(
        "succession.both_signed",
        "succession.read",
        "an old signature where none is needed",
        _succession_input(ALICE, SignedSuccession.sign(statement, new, ALICE.identity)),
        {"new_ipk": new.public.hex(), "signed": statement.encode().hex()},
        "RL-KEYS-031",
    )
    free = SigningKey(seed("bob's new identity"))
    without = Succession(old_card_id=BOB.card().id, new_ipk=free.public, ts=NOW)
    uncommitted = accepted(
        "succession.uncommitted",
        "succession.read",
        "from a card that commits to nobody, signed by both keys",
        _succession_input(BOB, SignedSuccession.sign(without, free, BOB.identity)),
        {"new_ipk": free.public.hex(), "signed": without.encode().hex()},
        "RL-KEYS-030",
    )
    yield uncommitted
    other = replace(statement, new_ipk=free.public)
    same = replace(without, new_ipk=BOB.identity.public)
    elsewhere = replace(statement, old_card_id=BOB.card().id)
    for name, of, says, given, layer, rule in (
        (
            "not_committed",
            committed,
            "another key than the committed one, signed by the old identity too",
            _succession_input(ALICE, SignedSuccession.sign(other, free, ALICE.identity)),
            "structure",
            "RL-KEYS-029",
        ),
        (
            "old_has_not_signed",
            uncommitted,
            "from a card that commits to nobody, without its signature",
            _succession_input(BOB, SignedSuccession.sign(without, free)),
            "structure",
            "RL-KEYS-030",
        ),
        (
            "old_signature_wrong",
            committed,
            "an old signature that is not needed and does not hold",
            _succession_input(ALICE, SignedSuccession.sign(statement, new, BOB.identity)),
            "signature",
            "RL-KEYS-031",
        ),
        (
            "new_has_not_signed",
            committed,
            "signed by another key than the one it names",
            _succession_input(ALICE, SignedSuccession(statement, free.sign(statement.encode()))),
            "signature",
            "RL-KEYS-028",
        ),
        (
            "same_key",
            uncommitted,
            "the key that is there already",
            _succession_input(BOB, SignedSuccession.sign(same, BOB.identity, BOB.identity)),
            "structure",
            "RL-KEYS-054",
        ),
        (
            "other_card",
            committed,
            "a succession from another card",
            _succession_input(ALICE, SignedSuccession.sign(elsewhere, new)),
            "structure",
            "RL-KEYS-033",
        ),
        (
            "other_time",
            committed,
            "a time that was not signed",
            _succession_input(
                ALICE, SignedSuccession(replace(statement, ts=NOW + 1), new.sign(statement.encode()))
            ),
            "signature",
            "RL-KEYS-028",
        ),
    ):
        yield refused(f"succession.{name}", of, says, given, layer, rule)


def _revocation_input(party: Party, signed: SignedRevocation) -> Json:
    shown: Json = {
        "card_id": b64encode(signed.revocation.card_id),
        "reason": int(signed.revocation.reason),
        "ts": signed.revocation.ts,
        "by": signed.by,
        "sig": b64encode(signed.signature),
    }
    if signed.next_ipk is not None:
        shown["next_ipk"] = b64encode(signed.next_ipk)
    return party.shown_card() | {"revocation": shown}


def _revocations() -> Iterator[Vector]:
    statement = Revocation(card_id=ALICE.card().id, reason=Reason.COMPROMISED, ts=NOW)
    output = {"signed": statement.encode().hex()}
    by_identity = accepted(
        "revocation.by_identity",
        "revocation.read",
        "signed by the card's identity key",
        _revocation_input(ALICE, SignedRevocation.sign(statement, ALICE.identity, by="identity")),
        output,
        "RL-KEYS-034",
    )
    yield by_identity
    by_next = accepted(
        "revocation.by_next",
        "revocation.read",
        "signed by the key to which the card commits",
        _revocation_input(ALICE, SignedRevocation.sign(statement, ALICE.next, by="next")),
        output,
        "RL-KEYS-034",
    )
    yield by_next
    elsewhere = replace(statement, card_id=BOB.card().id)
    bobs = Revocation(card_id=BOB.card().id, reason=Reason.RETIRED, ts=NOW)
    stranger = SigningKey(seed("mallory identity"))
    assert next_commitment(stranger.public) != ALICE.card().next
    for name, of, says, given, layer, rule in (
        (
            "by_operational",
            by_identity,
            "signed by the operational key",
            _revocation_input(ALICE, SignedRevocation.sign(statement, ALICE.operational, by="identity")),
            "signature",
            "RL-KEYS-035",
        ),
        (
            "by_stranger",
            by_next,
            "signed by a next key to which nobody commits",
            _revocation_input(ALICE, SignedRevocation.sign(statement, stranger, by="next")),
            "structure",
            "RL-KEYS-035",
        ),
        (
            "by_next_of_nobody",
            by_next,
            "signed by a next key where the card has none",
            _revocation_input(BOB, SignedRevocation.sign(bobs, stranger, by="next")),
            "structure",
            "RL-KEYS-035",
        ),
        (
            "other_card",
            by_identity,
            "a revocation of another card",
            _revocation_input(ALICE, SignedRevocation.sign(elsewhere, ALICE.identity, by="identity")),
            "structure",
            "RL-KEYS-035",
        ),
        (
            "other_reason",
            by_identity,
            "a reason that was not signed",
            _revocation_input(
                ALICE,
                SignedRevocation(
                    replace(statement, reason=Reason.RETIRED), ALICE.identity.sign(statement.encode())
                ),
            ),
            "signature",
            "RL-KEYS-035",
        ),
    ):
        yield refused(f"revocation.{name}", of, says, given, layer, rule)
    unknown = by_identity.input | {"revocation": by_identity.input["revocation"] | {"reason": 3}}
    yield refused(
        "revocation.unknown_reason", by_identity, "a reason that is none", unknown, "structure", "RL-HTTP-031"
    )
