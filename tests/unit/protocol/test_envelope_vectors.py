"""Every byte of the envelope, from seeds to signed bytes, as ``spec/vectors/envelope.json`` has it.

Behaviour alone would not notice a binding that is gone, because the bindings overlap.
"""

from typing import Any

import msgspec
import pytest

from ringline.protocol import envelope
from ringline.protocol.context import OutcomeContext, Party, Recipient, RequestContext
from ringline.protocol.encoding import b64decode
from ringline.protocol.frames import Envelope
from ringline.protocol.identity import NO_NEXT, Card, SignedCard, next_commitment
from ringline.protocol.prekeys import Prekey, SealingKey, SignedPrekey
from ringline.protocol.signing import SigningKey
from ringline.protocol.suites import SUITES, PrivateKey, key_id
from ringline.protocol.transcript import digest
from ringline_testing.vectors import carried

Case = dict[str, Any]

CASES: list[Case] = carried("envelope.json")


@pytest.fixture(params=CASES, ids=lambda case: f"suite{case['suite']}")
def case(request: pytest.FixtureRequest) -> Case:
    """One of the carried cases, one per suite."""
    found: Case = request.param
    return found


def raw(text: str) -> bytes:
    return bytes.fromhex(text)


def signing_key(case: Case, name: str) -> SigningKey:
    return SigningKey(raw(case["seeds"][name]))


def sealing_key(case: Case) -> PrivateKey:
    return SUITES[case["suite"]].private_from_seed(raw(case["bob_hpke_seed"]))


def reply_key(case: Case) -> PrivateKey:
    return SUITES[case["suite"]].private_from_seed(raw(case["reply_seed"]))


def request_context(case: Case) -> RequestContext:
    """The context as the listener rebuilds it: from his own keys, his pin, and the frame."""
    part = case["request"]
    return RequestContext(
        realm=case["realm"],
        sender=Party(case["from_handle"], raw(case["alice_ipk"]), raw(case["alice_card_id"])),
        recipient=Recipient(case["to_handle"], raw(case["bob_ipk"]), case["suite"], sealing_key(case).public),
        mode=part["mode"],
        message_id=part["message_id"],
        correlation_id=part["correlation_id"],
        iat=part["iat"],
        exp=part["exp"],
    )


def outcome_context(case: Case) -> OutcomeContext:
    part = case["outcome"]
    return request_context(case).answer(
        card_id=raw(case["bob_card_id"]),
        reply_public=reply_key(case).public,
        call_id=part["call_id"],
        terminal=part["terminal"],
        digest=raw(case["request"]["request_digest"]),
        iat=part["iat"],
    )


def test_both_suites_have_a_case_and_no_member_is_left_unused() -> None:
    assert [case["suite"] for case in CASES] == [1, 2]
    for case in CASES:
        assert set(case) == {
            "suite", "realm", "now", "from_handle", "to_handle", "seeds", "bob_hpke_seed", "bob_hpke_pk",
            "alice_ipk", "bob_ipk", "alice_spk", "bob_spk", "reply_seed", "request", "outcome",
            "alice_card", "alice_card_sig", "alice_card_id", "bob_card", "bob_card_sig", "bob_card_id",
            "bob_prekeys", "bob_prekeys_sig", "bob_kid",
        }  # fmt: skip


def test_keys_come_from_their_seeds(case: Case) -> None:
    assert signing_key(case, "a-isk").public == raw(case["alice_ipk"])
    assert signing_key(case, "a-ssk").public == raw(case["alice_spk"])
    assert signing_key(case, "b-isk").public == raw(case["bob_ipk"])
    assert signing_key(case, "b-ssk").public == raw(case["bob_spk"])
    assert case["seeds"]["b-hpke"] == case["bob_hpke_seed"]
    assert case["seeds"]["reply"] == case["reply_seed"]
    assert sealing_key(case).public == raw(case["bob_hpke_pk"])
    assert sealing_key(case).key_id == raw(case["bob_kid"])
    assert key_id(case["suite"], raw(case["bob_hpke_pk"])) == raw(case["bob_kid"])


@pytest.mark.parametrize("who", ["alice", "bob"])
def test_cards_are_rebuilt_byte_for_byte(case: Case, who: str) -> None:
    letter = who[0]
    identity = signing_key(case, f"{letter}-isk")
    committed = NO_NEXT if who == "alice" else next_commitment(signing_key(case, "b-next").public)
    card = Card(
        realm=case["realm"],
        handle=who,
        ipk=identity.public,
        serial=1 if who == "alice" else 7,
        not_before=case["now"] - 1_000,
        not_after=case["now"] + 90 * 86_400_000,
        spk=signing_key(case, f"{letter}-ssk").public,
        next=committed,
    )
    assert card.encode() == raw(case[f"{who}_card"])
    assert card.id == raw(case[f"{who}_card_id"])
    assert SignedCard.sign(card, identity).signature == raw(case[f"{who}_card_sig"])
    assert SignedCard.parse(raw(case[f"{who}_card"]), raw(case[f"{who}_card_sig"])).card == card


def test_the_card_of_alice_has_the_size_that_the_design_gives(case: Case) -> None:
    assert len(raw(case["alice_card"])) == 156


def test_the_prekey_statement_is_rebuilt_byte_for_byte(case: Case) -> None:
    card = Card.decode(raw(case["bob_card"]))
    prekey = Prekey(
        card_id=card.id,
        epoch=12,
        not_before=case["now"] - 1_000,
        not_after=case["now"] + 2 * 86_400_000,
        keys=(SealingKey(case["suite"], sealing_key(case).public),),
    )
    assert prekey.encode() == raw(case["bob_prekeys"])
    signed = SignedPrekey.sign(prekey, signing_key(case, "b-ssk"))
    assert signed.signature == raw(case["bob_prekeys_sig"])
    assert SignedPrekey.parse(raw(case["bob_prekeys"]), raw(case["bob_prekeys_sig"]), card) == signed


@pytest.mark.parametrize("part", ["request", "outcome"])
def test_what_is_hashed_and_signed_is_rebuilt_byte_for_byte(case: Case, part: str) -> None:
    expected = case[part]
    context = request_context(case) if part == "request" else outcome_context(case)
    encoded = context.encode()
    assert encoded == raw(expected["ctx"])
    assert digest(encoded) == raw(expected["ctx_hash"])
    assert envelope._info(encoded) == raw(expected["info"])
    signed = envelope.sign_input(encoded, raw(expected["body"]))
    assert signed == raw(expected["sign_input"])
    if part == "request":
        assert envelope.request_digest(signed) == raw(expected["request_digest"])


@pytest.mark.parametrize("part", ["request", "outcome"])
def test_the_plaintext_under_the_seal_is_rebuilt_byte_for_byte(case: Case, part: str) -> None:
    expected = case[part]
    private, signer, cap = (
        (sealing_key(case), "a-ssk", 393_000) if part == "request" else (reply_key(case), "b-ssk", 1_545_000)
    )
    sealed = b64decode(expected["envelope"]["ct"])
    plaintext = SUITES[case["suite"]].open(private, raw(expected["info"]), sealed)
    body = raw(expected["body"])
    signature = signing_key(case, signer).sign(raw(expected["sign_input"]))
    head = b"\x01" + signature + len(body).to_bytes(4, "big")
    assert plaintext == (head + body).ljust(envelope.padded_size(len(body), cap), b"\0")
    assert len(sealed) == len(plaintext) + SUITES[case["suite"]].overhead


def test_the_request_opens_to_what_was_sealed(case: Case) -> None:
    part = case["request"]
    opened = envelope.open_request(
        msgspec.convert(part["envelope"], Envelope),
        sealing_key(case),
        request_context(case),
        raw(case["alice_spk"]),
    )
    assert opened.body == raw(part["body"])
    assert opened.reply_public == reply_key(case).public
    assert opened.json_bytes == '{"message":"Grüße ☎","context_id":null}'.encode()
    assert opened.digest == raw(part["request_digest"])
    assert opened.context == raw(part["ctx"])
    assert opened.signature == signing_key(case, "a-ssk").sign(raw(part["sign_input"]))


def test_the_outcome_opens_to_what_was_sealed(case: Case) -> None:
    part = case["outcome"]
    opened = envelope.open_outcome(
        msgspec.convert(part["envelope"], Envelope),
        reply_key(case),
        outcome_context(case),
        raw(case["bob_spk"]),
    )
    assert opened.json_bytes == raw(part["body"])
    assert opened.context == raw(part["ctx"])
    assert opened.signature == signing_key(case, "b-ssk").sign(raw(part["sign_input"]))


def test_sealing_afresh_differs_from_the_vector_in_the_ciphertext_alone(case: Case) -> None:
    part = case["request"]
    body = raw(part["body"])
    reply_public = reply_key(case).public
    sealed = envelope.seal_request(
        request_context(case), body[2 + len(reply_public) :], reply_public, signing_key(case, "a-ssk")
    )
    assert sealed.digest == raw(part["request_digest"])
    assert sealed.context == raw(part["ctx"])
    expected = msgspec.convert(part["envelope"], Envelope)
    assert msgspec.structs.replace(sealed.envelope, ct=expected.ct) == expected
    assert sealed.envelope.ct != expected.ct
    assert len(sealed.envelope.ct) == len(expected.ct)

    answer = envelope.seal_outcome(
        outcome_context(case), raw(case["outcome"]["body"]), signing_key(case, "b-ssk")
    )
    expected = msgspec.convert(case["outcome"]["envelope"], Envelope)
    assert msgspec.structs.replace(answer, ct=expected.ct) == expected
