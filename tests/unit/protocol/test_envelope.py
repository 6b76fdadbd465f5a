"""What an envelope promises, and every attack on it that can be played here."""

import dataclasses
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringline.protocol import envelope
from ringline.protocol.context import OutcomeContext, Party, Recipient, RequestContext
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.envelope import (
    open_outcome,
    open_request,
    padded_size,
    seal_outcome,
    seal_request,
    sign_input,
)
from ringline.protocol.errors import CannotOpen, MessageTooLarge, ProtocolError, WeakKey
from ringline.protocol.frames import Envelope
from ringline.protocol.limits import (
    HPKE_OVERHEAD_BYTES,
    OUTCOME_CAP_BYTES,
    OUTCOME_CT_CHARS,
    PAD_FLOOR_BYTES,
    REQUEST_CAP_BYTES,
    REQUEST_CT_CHARS,
)
from ringline.protocol.signing import SigningKey, verify
from ringline.protocol.suites import SUITES, PrivateKey
from ringline.protocol.transcript import u8, vec
from ringline_testing.agents import NOW_MS, REALM, Agent, agent, seed

JSON = b'{"message":"hello"}'
ANSWER = b'{"reason":"completed","reply":{"text":"hi"}}'
MESSAGE_ID = "0b9f6d7e5a4c4c1e8f3f2d1c0b9a8877"
CORRELATION_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SUITE_IDS = sorted(SUITES)
SMALL_ORDER_CURVE_POINT = bytes(32)


@dataclasses.dataclass(frozen=True)
class Call:
    """Alice calls bob, and bob answers, in one suite."""

    alice: Agent
    bob: Agent
    reply_key: PrivateKey
    context: RequestContext
    sealed: envelope.SealedRequest
    answer_context: OutcomeContext
    answer: Envelope

    def open_request(self, **changes: Any) -> envelope.OpenedRequest:
        """Bob opens the request, with some part of what he rebuilds the context from changed."""
        context = dataclasses.replace(self.context, **changes)
        return open_request(self.sealed.envelope, self.bob.sealing, context, self.alice.operational.public)

    def open_answer(self, **changes: Any) -> envelope.OpenedOutcome:
        """Alice opens the outcome, with some part of what she rebuilds the context from changed."""
        context = dataclasses.replace(self.answer_context, **changes)
        return open_outcome(self.answer, self.reply_key, context, self.bob.operational.public)


def make_call(suite: int, *, mode: Any = "sync", message_id: str = MESSAGE_ID) -> Call:
    alice, bob = agent("alice", suite), agent("bob", suite)
    reply_key = SUITES[suite].private_from_seed(seed("reply"))
    context = RequestContext(
        realm=REALM,
        sender=alice.party,
        recipient=bob.recipient,
        mode=mode,
        message_id=message_id,
        correlation_id=CORRELATION_ID,
        iat=NOW_MS,
        exp=NOW_MS + 300_000,
    )
    sealed = seal_request(context, JSON, reply_key.public, alice.operational)
    answer_context = context.answer(
        card_id=bob.card.card.id,
        reply_public=reply_key.public,
        call_id="call_01",
        terminal="completed",
        digest=sealed.digest,
        iat=NOW_MS + 900,
    )
    answer = seal_outcome(answer_context, ANSWER, bob.operational)
    return Call(alice, bob, reply_key, context, sealed, answer_context, answer)


CALLS = {suite: make_call(suite) for suite in SUITE_IDS}


@pytest.fixture(params=SUITE_IDS, ids=lambda suite: f"suite{suite}")
def call(request: pytest.FixtureRequest) -> Call:
    """One call per suite."""
    return CALLS[request.param]


def craft(context: RequestContext | OutcomeContext, plaintext: bytes) -> Envelope:
    """Seal a plaintext of the attacker's making, otherwise by the rules."""
    recipient = context.recipient
    sealed = SUITES[recipient.suite].seal(recipient.public_key, envelope._info(context.encode()), plaintext)
    return Envelope(
        v=1,
        suite=recipient.suite,
        kid=b64encode(recipient.key_id),
        sid=b64encode(context.sender.card_id),
        iat=context.iat,
        exp=context.exp,
        ct=b64encode(sealed),
    )


def plaintext_of(
    context: RequestContext | OutcomeContext,
    body: bytes,
    signer: SigningKey,
    *,
    version: int = 1,
    size: int | None = None,
    length: int | None = None,
    signature: bytes | None = None,
) -> bytes:
    """The plaintext by the rules, but for what is given."""
    signature = signature or signer.sign(sign_input(context.encode(), body))
    size = len(body) if size is None else size
    length = padded_size(len(body), REQUEST_CAP_BYTES) if length is None else length
    return (u8(version) + signature + size.to_bytes(4, "big") + body).ljust(length, b"\0")


def refused(reason: str) -> Any:
    """Expect a refusal for that inner reason: another would mean that another rule did the work."""
    return pytest.raises(CannotOpen, check=lambda error: error.reason == reason)


# --- the round trip


def test_a_request_and_its_outcome_open_for_those_they_are_for(call: Call) -> None:
    request = call.open_request()
    assert request.json_bytes == JSON
    assert request.reply_public == call.reply_key.public
    assert request.digest == call.sealed.digest
    assert request.context == call.sealed.context == call.context.encode()
    outcome = call.open_answer()
    assert outcome.json_bytes == ANSWER


@pytest.mark.parametrize("suite", SUITE_IDS)
@pytest.mark.parametrize(("mode", "message_id"), [("durable", MESSAGE_ID), ("sync", "")])
def test_a_durable_call_and_one_without_a_message_id_round_trip(
    suite: int, mode: str, message_id: str
) -> None:
    call = make_call(suite, mode=mode, message_id=message_id)
    assert call.open_request().json_bytes == JSON
    assert call.open_answer().json_bytes == ANSWER


@pytest.mark.parametrize("suite", SUITE_IDS)
@given(body=st.binary(max_size=9_000))
@settings(max_examples=30)
def test_any_json_bytes_round_trip(suite: int, body: bytes) -> None:
    call = CALLS[suite]
    sealed = seal_request(call.context, body, call.reply_key.public, call.alice.operational)
    opened = open_request(sealed.envelope, call.bob.sealing, call.context, call.alice.operational.public)
    assert opened.json_bytes == body
    answer = seal_outcome(call.answer_context, body, call.bob.operational)
    answered = open_outcome(answer, call.reply_key, call.answer_context, call.bob.operational.public)
    assert answered.json_bytes == body


def test_two_sealings_of_one_request_share_nothing_but_their_digest(call: Call) -> None:
    again = seal_request(call.context, JSON, call.reply_key.public, call.alice.operational)
    assert again.envelope.ct != call.sealed.envelope.ct
    assert again.digest == call.sealed.digest


def test_the_reply_key_must_be_of_the_recipients_suite(call: Call) -> None:
    other = SUITES[3 - call.bob.sealing.suite].private_from_seed(seed("reply")).public
    with pytest.raises(ValueError, match="suite"):
        seal_request(call.context, JSON, other, call.alice.operational)


# --- sizes


def padme(length: int) -> int:
    """PADME as its formula is written, in other words than the product's."""
    exponent = 0
    while 2 ** (exponent + 1) <= length:
        exponent += 1
    bits = 0
    while 2 ** (bits + 1) <= exponent:
        bits += 1
    step = 2 ** (exponent - (bits + 1))
    return next(size for size in range(length, length + step) if size % step == 0)


@given(size=st.integers(0, OUTCOME_CAP_BYTES - 69))
def test_the_padded_size_follows_the_formula(size: int) -> None:
    assert padded_size(size, 10**9) == padme(max(69 + size, 2048))


@given(size=st.integers(0, OUTCOME_CAP_BYTES - 69))
def test_padding_never_shrinks_costs_at_most_an_eighth_and_hides_short_bodies(size: int) -> None:
    padded = padded_size(size, OUTCOME_CAP_BYTES)
    assert size + 69 <= padded <= OUTCOME_CAP_BYTES
    assert padded <= max(PAD_FLOOR_BYTES, (size + 69) * 9 // 8)


def test_few_sizes_show() -> None:
    assert len({padded_size(size, REQUEST_CAP_BYTES) for size in range(1, 64_001)}) == 81


@pytest.mark.parametrize(
    ("cap", "chars"), [(REQUEST_CAP_BYTES, REQUEST_CT_CHARS), (OUTCOME_CAP_BYTES, OUTCOME_CT_CHARS)]
)
def test_at_the_cap_padding_stops_instead_of_breaking_the_frame(cap: int, chars: int) -> None:
    assert padded_size(cap - 69, 10**9) > cap
    assert padded_size(cap - 69, cap) == cap
    assert len(b64encode(bytes(cap + HPKE_OVERHEAD_BYTES))) == chars


def test_a_request_exactly_at_the_cap_goes_and_one_byte_more_is_not_sealed(call: Call) -> None:
    fits = REQUEST_CAP_BYTES - 69 - 2 - len(call.reply_key.public)
    sealed = seal_request(call.context, b"x" * fits, call.reply_key.public, call.alice.operational)
    overhead = SUITES[call.bob.sealing.suite].overhead
    assert len(b64decode(sealed.envelope.ct)) == REQUEST_CAP_BYTES + overhead
    opened = open_request(sealed.envelope, call.bob.sealing, call.context, call.alice.operational.public)
    assert opened.json_bytes == b"x" * fits
    with pytest.raises(MessageTooLarge):
        seal_request(call.context, b"x" * (fits + 1), call.reply_key.public, call.alice.operational)


def test_an_outcome_exactly_at_the_cap_goes_and_one_byte_more_is_not_sealed(call: Call) -> None:
    fits = OUTCOME_CAP_BYTES - 69
    answer = seal_outcome(call.answer_context, b"x" * fits, call.bob.operational)
    assert len(b64decode(answer.ct)) == OUTCOME_CAP_BYTES + SUITES[call.bob.sealing.suite].overhead
    opened = open_outcome(answer, call.reply_key, call.answer_context, call.bob.operational.public)
    assert opened.json_bytes == b"x" * fits
    with pytest.raises(MessageTooLarge):
        seal_outcome(call.answer_context, b"x" * (fits + 1), call.bob.operational)


# --- threat 1: bytes changed on the way


@pytest.mark.parametrize("suite", SUITE_IDS)
@given(data=st.data())
@settings(max_examples=120)
def test_no_byte_of_a_ciphertext_can_be_changed(suite: int, data: st.DataObject) -> None:
    call = CALLS[suite]
    sealed = bytearray(b64decode(call.sealed.envelope.ct))
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= data.draw(st.integers(1, 255))
    damaged = msgspec.structs.replace(call.sealed.envelope, ct=b64encode(bytes(sealed)))
    with pytest.raises(CannotOpen):
        open_request(damaged, call.bob.sealing, call.context, call.alice.operational.public)


@pytest.mark.parametrize("cut", [0, 1, 31, 32, 47, 48, 1119, 1120, 1136, 2000])
def test_a_ciphertext_that_is_cut_short_does_not_open(call: Call, cut: int) -> None:
    sealed = b64decode(call.sealed.envelope.ct)[:cut]
    damaged = msgspec.structs.replace(call.sealed.envelope, ct=b64encode(sealed))
    with pytest.raises(CannotOpen):
        open_request(damaged, call.bob.sealing, call.context, call.alice.operational.public)


def test_a_ciphertext_with_something_behind_it_does_not_open(call: Call) -> None:
    longer = b64encode(b64decode(call.sealed.envelope.ct) + b"\0")
    damaged = msgspec.structs.replace(call.sealed.envelope, ct=longer)
    with refused("seal"):
        open_request(damaged, call.bob.sealing, call.context, call.alice.operational.public)


def test_a_second_spelling_of_a_ciphertext_is_refused(call: Call) -> None:
    text = call.sealed.envelope.ct
    for spelling in (text + "=", text + "\n", " " + text, text[:-1] + chr(ord(text[-1]) + 1)):
        damaged = msgspec.structs.replace(call.sealed.envelope, ct=spelling)
        with pytest.raises(CannotOpen):
            open_request(damaged, call.bob.sealing, call.context, call.alice.operational.public)


@given(text=st.text(max_size=3_000))
def test_garbage_in_place_of_a_ciphertext_raises_nothing_but_cannot_open(text: str) -> None:
    call = CALLS[2]
    damaged = msgspec.structs.replace(call.sealed.envelope, ct=text)
    with pytest.raises(CannotOpen):
        open_request(damaged, call.bob.sealing, call.context, call.alice.operational.public)


# --- threats 2-4 and 9-15: what the seal binds

OTHER = agent("carol", 2)

REQUEST_CHANGES: dict[str, dict[str, Any]] = {
    "realm": {"realm": "other.example"},
    "mode": {"mode": "durable"},
    "message_id": {"message_id": "1" * 32},
    "no message_id": {"message_id": ""},
    "correlation_id": {"correlation_id": "1" * 32},
}
ANSWER_CHANGES: dict[str, dict[str, Any]] = {
    **REQUEST_CHANGES,
    "call_id": {"call_id": "call_02"},
    "terminal": {"terminal": "failed"},
    "request_digest": {"request_digest": bytes(32)},
}


@pytest.mark.parametrize("change", REQUEST_CHANGES)
def test_a_request_does_not_open_under_another_frame(call: Call, change: str) -> None:
    with refused("seal"):
        call.open_request(**REQUEST_CHANGES[change])


@pytest.mark.parametrize("change", ANSWER_CHANGES)
def test_an_outcome_does_not_open_under_another_frame_or_for_another_request(call: Call, change: str) -> None:
    with refused("seal"):
        call.open_answer(**ANSWER_CHANGES[change])


@pytest.mark.parametrize("field", ["handle", "ipk", "card_id"])
def test_the_sender_is_bound(call: Call, field: str) -> None:
    values: dict[str, Any] = {
        "handle": "carol",
        "ipk": OTHER.identity.public,
        "card_id": OTHER.card.card.id,
    }
    sender = dataclasses.replace(call.context.sender, **{field: values[field]})
    changed = dataclasses.replace(call.context, sender=sender)
    claimed = msgspec.structs.replace(call.sealed.envelope, sid=b64encode(sender.card_id))
    with refused("seal"):
        open_request(claimed, call.bob.sealing, changed, call.alice.operational.public)


@pytest.mark.parametrize("field", ["handle", "ipk"])
def test_the_recipient_is_bound(call: Call, field: str) -> None:
    values: dict[str, Any] = {"handle": "carol", "ipk": OTHER.identity.public}
    recipient = dataclasses.replace(call.context.recipient, **{field: values[field]})
    with refused("seal"):
        call.open_request(recipient=recipient)


@pytest.mark.parametrize("field", ["iat", "exp"])
def test_the_times_are_bound_even_when_the_clear_ones_are_changed_with_them(call: Call, field: str) -> None:
    later = {field: getattr(call.context, field) + 1}
    claimed = msgspec.structs.replace(call.sealed.envelope, **later)
    with refused("seal"):
        open_request(
            claimed,
            call.bob.sealing,
            dataclasses.replace(call.context, **later),
            call.alice.operational.public,
        )


def test_clear_members_that_differ_from_the_context_are_refused(call: Call) -> None:
    changes: list[dict[str, Any]] = [
        {"v": 2},
        {"suite": 3 - call.bob.sealing.suite},
        {"suite": 7},
        {"iat": NOW_MS + 1},
        {"exp": NOW_MS + 1},
        {"kid": b64encode(bytes(32))},
        {"sid": b64encode(bytes(32))},
        {"kid": "not base64url"},
    ]
    for change in changes:
        changed = msgspec.structs.replace(call.sealed.envelope, **change)
        with pytest.raises(CannotOpen, check=lambda error: error.reason.startswith("clear")):
            open_request(changed, call.bob.sealing, call.context, call.alice.operational.public)


def test_another_key_than_that_of_the_context_opens_nothing(call: Call) -> None:
    other_suite = agent("bob", 3 - call.bob.sealing.suite)
    for private in (agent("carol", call.bob.sealing.suite).sealing, other_suite.sealing):
        with refused("key"):
            open_request(call.sealed.envelope, private, call.context, call.alice.operational.public)


def test_strip_and_resign_a_peer_cannot_pass_off_anothers_ciphertext_as_its_own(call: Call) -> None:
    mallory = agent("mallory", call.bob.sealing.suite)
    claimed = msgspec.structs.replace(call.sealed.envelope, sid=b64encode(mallory.card.card.id))
    with refused("seal"):
        open_request(
            claimed,
            call.bob.sealing,
            dataclasses.replace(call.context, sender=mallory.party),
            mallory.operational.public,
        )


def test_surreptitious_forwarding_a_recipient_cannot_pass_a_signed_request_on(call: Call) -> None:
    """Bob seals what alice signed for him to carol, by the rules: only the signature can tell."""
    carol = agent("carol", call.bob.sealing.suite)
    opened = call.open_request()
    forwarded = dataclasses.replace(call.context, recipient=carol.recipient)
    forged = craft(
        forwarded, plaintext_of(forwarded, opened.body, call.bob.operational, signature=opened.signature)
    )
    with refused("signature"):
        open_request(forged, carol.sealing, forwarded, call.alice.operational.public)


def test_misbinding_a_key_registered_under_a_second_handle_takes_nothing_over(call: Call) -> None:
    """Mallory registers the keys of alice as her own: nobody has to prove possession, so the handle binds."""
    as_mallory = dataclasses.replace(call.context.sender, handle="mallory")
    with refused("seal"):
        call.open_request(sender=as_mallory)


def test_misbinding_a_prekey_published_by_another_gives_its_owner_nothing_meant_for_the_other(
    call: Call,
) -> None:
    """Mallory publishes bob's prekey as hers; the relay brings what alice sealed for mallory to bob."""
    mallory = agent("mallory", call.bob.sealing.suite)
    target = Recipient("mallory", mallory.identity.public, call.bob.sealing.suite, call.bob.sealing.public)
    for_mallory = dataclasses.replace(call.context, recipient=target)
    sealed = seal_request(for_mallory, JSON, call.reply_key.public, call.alice.operational)
    with refused("seal"):
        open_request(sealed.envelope, call.bob.sealing, call.context, call.alice.operational.public)


def test_a_signature_binds_the_context_even_without_the_seal(call: Call) -> None:
    """With the right keys a whole seal can be made for a changed context; what was signed still tells."""
    body = vec(call.reply_key.public) + JSON
    signature = call.alice.operational.sign(sign_input(call.context.encode(), body))
    for change in REQUEST_CHANGES.values():
        changed = dataclasses.replace(call.context, **change)
        forged = craft(changed, plaintext_of(changed, body, call.alice.operational, signature=signature))
        with refused("signature"):
            open_request(forged, call.bob.sealing, changed, call.alice.operational.public)


def test_a_signature_binds_the_body(call: Call) -> None:
    body = vec(call.reply_key.public) + JSON
    other = vec(call.reply_key.public) + b'{"message":"other"}'
    signature = call.alice.operational.sign(sign_input(call.context.encode(), other))
    forged = craft(
        call.context, plaintext_of(call.context, body, call.alice.operational, signature=signature)
    )
    with refused("signature"):
        open_request(forged, call.bob.sealing, call.context, call.alice.operational.public)


# --- threats 6-8: keys and requests that are not the ones


def test_a_stolen_decryption_key_does_not_let_a_thief_write_to_its_owner(call: Call) -> None:
    thief = SigningKey(seed("thief"))
    forged = seal_request(call.context, JSON, call.reply_key.public, thief)
    with refused("signature"):
        open_request(forged.envelope, call.bob.sealing, call.context, call.alice.operational.public)


def test_a_stolen_reply_key_does_not_let_a_thief_answer(call: Call) -> None:
    forged = seal_outcome(call.answer_context, ANSWER, SigningKey(seed("thief")))
    with refused("signature"):
        open_outcome(forged, call.reply_key, call.answer_context, call.bob.operational.public)


def test_the_identity_key_does_not_sign_messages(call: Call) -> None:
    forged = seal_outcome(call.answer_context, ANSWER, call.bob.identity)
    with refused("signature"):
        open_outcome(forged, call.reply_key, call.answer_context, call.bob.operational.public)


def test_reflection_a_request_is_not_its_own_outcome(call: Call) -> None:
    """Alice calls herself with one key in both places, so that nothing but the direction differs."""
    alice = call.alice
    recipient = Recipient(alice.handle, alice.identity.public, call.reply_key.suite, call.reply_key.public)
    context = dataclasses.replace(call.context, recipient=recipient)
    sealed = seal_request(context, JSON, call.reply_key.public, alice.operational)
    answer_context = context.answer(
        card_id=alice.card.card.id,
        reply_public=call.reply_key.public,
        call_id="call_01",
        terminal="completed",
        digest=sealed.digest,
        iat=context.iat,
    )
    with refused("seal"):
        open_outcome(sealed.envelope, call.reply_key, answer_context, alice.operational.public)


def test_an_outcome_answers_one_request_even_when_its_reply_key_was_used_twice(call: Call) -> None:
    other = dataclasses.replace(call.context, iat=call.context.iat + 1)
    sealed = seal_request(other, JSON, call.reply_key.public, call.alice.operational)
    assert sealed.digest != call.sealed.digest
    with refused("seal"):
        call.open_answer(request_digest=sealed.digest)


def test_the_direction_alone_makes_two_contexts_differ(call: Call) -> None:
    outcome = call.answer_context
    request = RequestContext(
        realm=outcome.realm,
        sender=outcome.sender,
        recipient=outcome.recipient,
        mode=outcome.mode,
        message_id=outcome.message_id,
        correlation_id=outcome.correlation_id,
        iat=outcome.iat,
        exp=outcome.exp,
    )
    common = len(request.encode())
    differing = [
        i for i, (a, b) in enumerate(zip(request.encode(), outcome.encode(), strict=False)) if a != b
    ]
    assert len(differing) == 1
    assert outcome.encode()[common:] == vec(b"call_01") + b"\x01" + call.sealed.digest


# --- threats 5, 27, 28 and step 7: what is under the seal


def request_body(call: Call, reply_public: bytes | None = None) -> bytes:
    return vec(call.reply_key.public if reply_public is None else reply_public) + JSON


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_of_the_plaintext_is_refused(call: Call, version: int) -> None:
    plaintext = plaintext_of(call.context, request_body(call), call.alice.operational, version=version)
    with refused("plaintext version"):
        open_request(
            craft(call.context, plaintext), call.bob.sealing, call.context, call.alice.operational.public
        )


@pytest.mark.parametrize("size", [0, 1, 68])
def test_a_plaintext_too_short_for_its_head_is_refused(call: Call, size: int) -> None:
    forged = craft(call.context, b"\x01".ljust(size, b"\0")[:size])
    with refused("plaintext version" if size < 69 else "plaintext length"):
        open_request(forged, call.bob.sealing, call.context, call.alice.operational.public)


@pytest.mark.parametrize("size", [0xFFFF_FFFF, 2048 - 69 + 1])
def test_a_body_longer_than_the_plaintext_is_refused(call: Call, size: int) -> None:
    body = request_body(call)
    plaintext = plaintext_of(call.context, body, call.alice.operational, size=size)
    with refused("plaintext length"):
        open_request(
            craft(call.context, plaintext), call.bob.sealing, call.context, call.alice.operational.public
        )


@pytest.mark.parametrize("size", [REQUEST_CAP_BYTES - 68, 0xFFFF_FFFF])
def test_a_body_longer_than_a_plaintext_at_the_cap_is_refused_though_the_padding_is_right(
    call: Call, size: int
) -> None:
    """At the cap every longer body has the same amount of padding, so that check alone would pass it."""
    body = request_body(call)
    plaintext = plaintext_of(call.context, body, call.alice.operational, size=size, length=REQUEST_CAP_BYTES)
    assert padded_size(size, REQUEST_CAP_BYTES) == len(plaintext)
    with refused("plaintext length"):
        open_request(
            craft(call.context, plaintext), call.bob.sealing, call.context, call.alice.operational.public
        )


@pytest.mark.parametrize("length", [2047, 2049, 2112, 4096, REQUEST_CAP_BYTES])
def test_any_other_amount_of_padding_is_refused(call: Call, length: int) -> None:
    plaintext = plaintext_of(call.context, request_body(call), call.alice.operational, length=length)
    with refused("plaintext length"):
        open_request(
            craft(call.context, plaintext), call.bob.sealing, call.context, call.alice.operational.public
        )


@pytest.mark.parametrize("at", [-1, -100])
def test_padding_that_is_not_all_zero_is_refused(call: Call, at: int) -> None:
    plaintext = bytearray(plaintext_of(call.context, request_body(call), call.alice.operational))
    plaintext[at] = 1
    with refused("padding"):
        open_request(
            craft(call.context, bytes(plaintext)),
            call.bob.sealing,
            call.context,
            call.alice.operational.public,
        )


def test_a_plaintext_beyond_the_cap_is_refused_though_its_padding_is_right(call: Call) -> None:
    body = request_body(call).ljust(REQUEST_CAP_BYTES, b" ")
    plaintext = plaintext_of(call.context, body, call.alice.operational, length=padded_size(len(body), 10**9))
    with refused("plaintext length"):
        open_request(
            craft(call.context, plaintext), call.bob.sealing, call.context, call.alice.operational.public
        )


def test_steps_are_taken_in_order_padding_before_signature_before_reply_key(call: Call) -> None:
    stranger = SigningKey(seed("thief"))
    bad_key = request_body(call, b"short")
    padded_wrongly = plaintext_of(call.context, bad_key, stranger, length=2049)
    signed_wrongly = plaintext_of(call.context, bad_key, stranger)
    only_key_wrong = plaintext_of(call.context, bad_key, call.alice.operational)
    for plaintext, reason in (
        (padded_wrongly, "plaintext length"),
        (signed_wrongly, "signature"),
        (only_key_wrong, "reply key"),
    ):
        with refused(reason):
            open_request(
                craft(call.context, plaintext),
                call.bob.sealing,
                call.context,
                call.alice.operational.public,
            )


def test_a_reply_key_that_must_not_be_sealed_to_is_refused(call: Call) -> None:
    good = call.reply_key.public
    other = SUITES[3 - call.reply_key.suite].private_from_seed(seed("reply")).public
    bad_keys = [
        b"",
        good[:-1],
        good + b"\0",
        other,
        good[:-32] + SMALL_ORDER_CURVE_POINT,
        good[:-1] + bytes([good[-1] | 0x80]),
    ]
    if call.reply_key.suite == 2:
        bad_keys.append(b"\xff" * 1184 + good[-32:])
    for bad in bad_keys:
        forged = craft(
            call.context, plaintext_of(call.context, request_body(call, bad), call.alice.operational)
        )
        with refused("reply key"):
            open_request(forged, call.bob.sealing, call.context, call.alice.operational.public)


def test_a_body_that_ends_inside_its_reply_key_is_refused(call: Call) -> None:
    for body in (b"", b"\0", b"\0\x20", b"\xff\xff" + bytes(100)):
        forged = craft(call.context, plaintext_of(call.context, body, call.alice.operational))
        with refused("reply key"):
            open_request(forged, call.bob.sealing, call.context, call.alice.operational.public)


def test_a_low_order_encapsulated_key_does_not_open(call: Call) -> None:
    sealed = b64decode(call.sealed.envelope.ct)
    nenc = SUITES[call.bob.sealing.suite].nenc
    forged = sealed[: nenc - 32] + SMALL_ORDER_CURVE_POINT + sealed[nenc:]
    damaged = msgspec.structs.replace(call.sealed.envelope, ct=b64encode(forged))
    with refused("seal"):
        open_request(damaged, call.bob.sealing, call.context, call.alice.operational.public)


def test_nothing_is_sealed_to_a_low_order_key(call: Call) -> None:
    bob = call.bob.sealing
    recipient = dataclasses.replace(
        call.context.recipient, public_key=bob.public[:-32] + SMALL_ORDER_CURVE_POINT
    )
    with pytest.raises(WeakKey):
        seal_request(
            dataclasses.replace(call.context, recipient=recipient),
            JSON,
            call.reply_key.public,
            call.alice.operational,
        )


def test_a_senders_key_of_the_wrong_length_is_a_signature_that_does_not_hold(call: Call) -> None:
    with refused("signature"):
        open_request(call.sealed.envelope, call.bob.sealing, call.context, b"short")


# --- threats 21, 25: receipts, and one error


def test_an_opened_outcome_is_a_receipt_that_anybody_can_check(call: Call) -> None:
    outcome = call.open_answer()
    verify(call.bob.card.card.spk, sign_input(outcome.context, outcome.json_bytes), outcome.signature)
    assert outcome.context == call.answer_context.encode()


def test_an_opened_request_is_a_receipt_that_anybody_can_check(call: Call) -> None:
    request = call.open_request()
    verify(call.alice.card.card.spk, sign_input(request.context, request.body), request.signature)
    assert request.body == vec(request.reply_public) + request.json_bytes


def test_every_cause_looks_the_same_from_outside(call: Call) -> None:
    errors: list[CannotOpen] = []
    for change in REQUEST_CHANGES.values():
        with pytest.raises(CannotOpen) as caught:
            call.open_request(**change)
        errors.append(caught.value)
    with pytest.raises(CannotOpen) as caught:
        open_request(call.sealed.envelope, call.bob.sealing, call.context, b"short")
    errors.append(caught.value)
    assert len({error.reason for error in errors}) > 1
    assert len({(str(error), repr(error), error.code) for error in errors}) == 1
    assert all(error.__cause__ is None for error in errors)


def test_nothing_secret_shows_in_a_repr(call: Call) -> None:
    secrets = [call.reply_key.seed, call.alice.operational.seed, call.bob.sealing.seed]
    shown = repr([call.reply_key, call.alice.operational, call.bob.sealing, call.alice])
    for secret in secrets:
        assert secret.hex() not in shown
        assert b64encode(secret) not in shown
        assert repr(secret) not in shown


# --- contexts and what they are made of


@pytest.mark.parametrize(
    "change",
    [
        {"realm": "Relay.example"},
        {"realm": ""},
        {"mode": "later"},
        {"message_id": "0" * 32},
        {"message_id": "", "mode": "durable"},
        {"message_id": MESSAGE_ID.upper()},
        {"correlation_id": ""},
        {"iat": -1},
        {"exp": 2**53},
    ],
    ids=str,
)
def test_a_context_of_malformed_parts_is_not_made(change: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        dataclasses.replace(CALLS[1].context, **change)


@pytest.mark.parametrize(
    "change",
    [{"call_id": ""}, {"call_id": "a b"}, {"terminal": "canceled"}, {"request_digest": b"short"}],
    ids=str,
)
def test_an_outcome_context_of_malformed_parts_is_not_made(change: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        dataclasses.replace(CALLS[1].answer_context, **change)


def test_parties_of_malformed_parts_are_not_made() -> None:
    key = bytes(32)
    for handle, ipk, card_id in (("A", key, key), ("alice", key[1:], key), ("alice", key, key[1:])):
        with pytest.raises(ProtocolError):
            Party(handle, ipk, card_id)
    for handle, ipk, suite, public in (
        ("A", key, 1, key),
        ("alice", key[1:], 1, key),
        ("alice", key, 1, key[1:]),
        ("alice", key, 2, key),
        ("alice", key, 3, key),
    ):
        with pytest.raises(ProtocolError):
            Recipient(handle, ipk, suite, public)


def test_an_envelope_has_exactly_the_members_of_the_protocol(call: Call) -> None:
    written = json.loads(msgspec.json.encode(call.sealed.envelope))
    assert list(written) == ["v", "suite", "kid", "sid", "iat", "exp", "ct"]
    assert msgspec.convert(written, Envelope) == call.sealed.envelope
