"""Receipts: what is saved is proved to anybody, and nothing else is."""

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ringline.protocol.bodies import Failure, Outcome, Reply, encode_outcome
from ringline.protocol.context import OutcomeContext, Party
from ringline.protocol.envelope import sign_input
from ringline.protocol.errors import BadSignature, ReceiptError, WeakKey
from ringline.protocol.fingerprint import fingerprint
from ringline.protocol.receipt import RECEIPT_BYTES, SignedContext, SignedOutcome
from ringline_testing.agents import NOW_MS, Agent, agent

ANSWER = encode_outcome(Outcome(reason="completed", reply=Reply(text="yes")))
DIGEST = bytes(range(32))


def context(by: Agent | None = None, to: Agent | None = None, **changes: Any) -> OutcomeContext:
    callee, caller = by or agent("bob"), to or agent("alice")
    members: dict[str, Any] = {
        "realm": callee.card.card.realm,
        "sender": callee.party,
        "recipient": caller.recipient,
        "mode": "durable",
        "message_id": "1" * 32,
        "correlation_id": "2" * 32,
        "iat": NOW_MS + 5,
        "exp": NOW_MS + 60_000,
        "call_id": "call-7",
        "terminal": "completed",
        "request_digest": DIGEST,
    }
    return OutcomeContext(**(members | changes))


def saved(answer: bytes = ANSWER, by: Agent | None = None, **changes: Any) -> SignedOutcome:
    """Return a receipt of bob's as his listener and the caller make it."""
    callee = by or agent("bob")
    encoded = context(callee, **changes).encode()
    return SignedOutcome(
        context=encoded,
        answer=answer,
        signature=callee.operational.sign(sign_input(encoded, answer)),
        card=callee.card.card.encode(),
        card_signature=callee.card.signature,
    )


def text(**changes: Any) -> bytes:
    """Return the file with members of its object replaced."""
    return json.dumps(json.loads(saved().format()) | changes).encode()


def test_what_is_saved_says_who_answered_whom_when_and_what() -> None:
    proof = SignedOutcome.parse(saved().format().encode()).verify()
    bob, alice = agent("bob"), agent("alice")
    assert proof.context == SignedContext(
        suite=2,
        realm="relay.example",
        callee="bob",
        callee_ipk=bob.identity.public,
        card_id=bob.card.card.id,
        caller="alice",
        caller_ipk=alice.identity.public,
        reply_key_id=alice.recipient.key_id,
        mode="durable",
        message_id="1" * 32,
        correlation_id="2" * 32,
        answered_at=NOW_MS + 5,
        expires_at=NOW_MS + 60_000,
        call_id="call-7",
        terminal="completed",
        request_digest=DIGEST,
    )
    assert (proof.card, proof.answer, proof.in_time) == (bob.card.card, ANSWER, True)
    assert proof.outcome is not None
    assert proof.outcome.reply == Reply(text="yes")
    assert proof.callee_fingerprint == fingerprint(bob.identity.public)
    assert proof.caller_fingerprint == fingerprint(alice.identity.public)


@pytest.mark.parametrize("mode", ["sync", "durable"])
@pytest.mark.parametrize("suite", [1, 2])
def test_every_kind_of_call_has_a_receipt(mode: str, suite: int) -> None:
    failed = encode_outcome(Outcome(reason="failed", failure=Failure(code="agent_error")))
    made = saved(
        failed,
        recipient=agent("alice", suite).recipient,
        mode=mode,
        terminal="failed",
        message_id="1" * 32 if mode == "durable" else "",
    )
    proof = SignedOutcome.parse(made.format().encode()).verify()
    assert (proof.context.mode, proof.context.suite, proof.context.terminal) == (mode, suite, "failed")


def test_a_file_can_be_shown_on_any_terminal() -> None:
    odd = encode_outcome(Outcome(reason="completed", reply=Reply(text="\x1b[2J\x7f \u202e é\n")))
    file = saved(odd).format()
    assert all(" " <= char < "\x7f" or char == "\n" for char in file)
    assert SignedOutcome.parse(file.encode()).answer == odd


@pytest.mark.parametrize("member", ["context", "answer", "signature", "card", "card_signature"])
def test_one_bit_that_is_changed_voids_it(member: str) -> None:
    whole = saved()
    data: bytes = getattr(whole, member)
    for at in range(0, len(data), 7):
        bent = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises((BadSignature, ReceiptError, WeakKey)) as caught:
            replace(whole, **{member: bent}).verify()
        assert caught.value.still_true == "Nothing is proved by this file."


def test_anothers_signature_card_or_answer_is_told_by_its_name() -> None:
    eve = agent("eve")
    other = saved(by=eve)
    with pytest.raises(BadSignature, match="the card of another than bob"):
        replace(saved(), card=other.card, card_signature=other.card_signature).verify()
    with pytest.raises(BadSignature, match="bob has not signed this answer"):
        replace(saved(), signature=other.signature).verify()
    with pytest.raises(BadSignature, match="bob has not signed this answer"):
        replace(saved(), answer=ANSWER.replace(b"yes", b"no!")).verify()
    with pytest.raises(BadSignature, match="not signed by the identity key that it names"):
        replace(saved(), card_signature=other.card_signature).verify()


def test_eve_cannot_sign_for_bob_with_a_card_of_her_own() -> None:
    # The right handle and realm, and bob's identity in the context: only the card is hers.
    bob, eve = agent("bob"), agent("eve")
    forged = replace(eve.card.card, handle="bob")
    encoded = context(sender=Party("bob", bob.identity.public, forged.id)).encode()
    made = SignedOutcome(
        context=encoded,
        answer=ANSWER,
        signature=eve.operational.sign(sign_input(encoded, ANSWER)),
        card=forged.encode(),
        card_signature=eve.identity.sign(forged.encode()),
    )
    with pytest.raises(BadSignature, match="the card of another than bob"):
        made.verify()


@pytest.mark.parametrize("change", [{"realm": "other.example"}, {"sender": None}])
def test_the_card_must_be_the_one_that_the_context_names(change: dict[str, Any]) -> None:
    bob = agent("bob")
    if "sender" in change:
        change = {"sender": Party("bob", bob.identity.public, bytes(32))}
    with pytest.raises(BadSignature, match="the card of another"):
        saved(**change).verify()


def test_a_key_under_which_anybody_signs_proves_nothing() -> None:
    bob = agent("bob")
    weak = bytes([1]) + bytes(31)
    card = replace(bob.card.card, spk=weak)
    encoded = context(sender=Party("bob", bob.identity.public, card.id)).encode()
    made = SignedOutcome(
        context=encoded,
        answer=ANSWER,
        signature=weak + bytes(32),
        card=card.encode(),
        card_signature=bob.identity.sign(card.encode()),
    )
    with pytest.raises(WeakKey, match="anybody can sign"):
        made.verify()


def test_one_key_in_two_roles_is_refused() -> None:
    bob = agent("bob")
    card = replace(bob.card.card, spk=bob.identity.public)
    encoded = context(sender=Party("bob", bob.identity.public, card.id)).encode()
    made = SignedOutcome(
        context=encoded,
        answer=ANSWER,
        signature=bob.identity.sign(sign_input(encoded, ANSWER)),
        card=card.encode(),
        card_signature=bob.identity.sign(card.encode()),
    )
    with pytest.raises(BadSignature, match="does not hold"):
        made.verify()


def test_a_request_is_no_receipt() -> None:
    encoded = bytearray(context().encode())
    # The direction, right behind the label.
    at = encoded.index(b"/ctx") + 4
    assert encoded[at] == 2
    encoded[at] = 1
    with pytest.raises(ReceiptError, match="not that of an answer"):
        SignedContext.decode(bytes(encoded))


def test_a_time_outside_the_cards_life_is_told_and_not_refused() -> None:
    late = agent("bob").card.card.not_after
    assert not saved(iat=late).verify().in_time
    assert saved(iat=late - 1).verify().in_time


def test_what_was_signed_is_proved_even_if_it_breaks_the_protocol() -> None:
    for answer in (b"{}", b'{"reason":"failed","failure":{"code":"agent_error"}}'):
        proof = SignedOutcome.parse(saved(answer).format().encode()).verify()
        assert (proof.outcome, proof.answer) == (None, answer)
    with pytest.raises(ReceiptError, match="no text"):
        saved(b"\xff").format()


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        text(format="another"),
        text(more=1),
        text(context=""),
        text(context="AAE="),
        text(signature="AA"),
        text(card_sig="A" * 87),
        text(v="1"),
        text(v=0),
        text(answer="\ud800"),
        text(card="AAAA"),
        text()[:-1] + b', "v": 1}',
        b" " * (RECEIPT_BYTES + 1),
    ],
    ids=range(17),
)
def test_what_is_no_receipt_is_refused_in_plain_words(file: bytes) -> None:
    with pytest.raises(ReceiptError, match="no receipt that can be checked") as caught:
        SignedOutcome.parse(file).verify()
    assert (caught.value.code, caught.value.exit_code) == ("config", 2)
    assert caught.value.next_step


def test_a_later_version_is_named() -> None:
    with pytest.raises(ReceiptError, match="of version 2, and this program knows 1"):
        SignedOutcome.parse(text(v=2))


KEYS = ("format", "v", "context", "answer", "signature", "card", "card_sig", "extra")
values = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text(), max_size=2)
files = st.dictionaries(st.sampled_from(KEYS), values).map(lambda members: text(**members))


@given(st.binary(max_size=400) | files)
def test_whatever_is_read_gives_a_proof_or_a_clear_error(file: bytes) -> None:
    with contextlib.suppress(ReceiptError, BadSignature, WeakKey):
        assert SignedOutcome.parse(file).verify().answer == ANSWER


@given(st.binary(max_size=64), st.integers(0, 400), st.integers(0, 64))
def test_a_damaged_context_is_never_taken_for_the_signed_one(junk: bytes, at: int, cut: int) -> None:
    encoded = context().encode()
    bent = encoded[:at] + junk + encoded[at + cut :]
    assume(bent != encoded)
    with pytest.raises((ReceiptError, BadSignature)):
        replace(saved(), context=bent).verify()
