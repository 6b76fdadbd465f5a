"""From a question to a sealed call and back to an answer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ringline.caller.outbox import Stored
from ringline.caller.sealing import Question, open_answer, read_answer, seal_call
from ringline.client import Account, Home, Peer, Pin, RelayAddress
from ringline.protocol import codec
from ringline.protocol.bodies import Failure, Outcome, Reply, decode_request, encode_outcome
from ringline.protocol.context import Party, RequestContext
from ringline.protocol.envelope import open_request, seal_outcome
from ringline.protocol.errors import (
    BadSignature,
    CannotOpen,
    ConfigError,
    MessageTooLarge,
    PeerFailure,
)
from ringline.protocol.frames import CallOutcome, CallRequest
from ringline.protocol.limits import CALLER_FRAME_BYTES, MESSAGE_BYTES, SYNC_LIFE_MS
from ringline.protocol.prekeys import SealingKey
from ringline.protocol.suites import SUITES
from ringline_testing.agents import NOW_MS, Agent, agent

ADDRESS = RelayAddress.parse("https://relay.example")
MESSAGE_ID, CORRELATION_ID = "1" * 32, "2" * 32


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account.create(Home(tmp_path), ADDRESS, "alice", NOW_MS, plain=True)


def peer(who: Agent) -> Peer:
    ipk = who.identity.public
    pin = Pin(realm=ADDRESS.realm, handle=who.handle, ipk=ipk, source="tofu", first_seen=NOW_MS)
    return Peer(pin, who.card, SealingKey(who.sealing.suite, who.sealing.public), NOW_MS)


def seal(account: Account, question: Question, suite: int = 2, **members: Any) -> Stored:
    values: dict[str, Any] = {"message_id": MESSAGE_ID, "correlation_id": CORRELATION_ID, "now_ms": NOW_MS}
    body = question.body(members.pop("traceparent", None))
    return seal_call(account, peer(agent("bob", suite)), body, **(values | members))


def answer(
    account: Account, stored: Stored, outcome: Outcome, *, by: Agent, call_id: str = "call"
) -> CallOutcome:
    """Answer a stored call as ``by`` would."""
    frame = codec.decode(stored.payload, "caller_to_relay")
    assert isinstance(frame, CallRequest)
    context = RequestContext(
        realm=ADDRESS.realm,
        sender=account.party,
        recipient=by.recipient,
        mode=stored.mode,
        message_id=MESSAGE_ID,
        correlation_id=CORRELATION_ID,
        iat=frame.envelope.iat,
        exp=frame.envelope.exp,
    )
    opened = open_request(frame.envelope, by.sealing, context, account.card.card.spk)
    outcome_context = context.answer(
        card_id=by.card.card.id,
        reply_public=opened.reply_public,
        call_id=call_id,
        terminal=outcome.terminal,
        digest=opened.digest,
        iat=NOW_MS + 1,
    )
    envelope = seal_outcome(outcome_context, encode_outcome(outcome), by.operational)
    return CallOutcome(call_id=call_id, terminal=outcome.terminal, envelope=envelope)


COMPLETED = Outcome(reason="completed", reply=Reply(text="yes"))


@pytest.mark.parametrize("suite", [1, 2])
def test_a_call_is_sealed_so_that_the_callee_opens_it(account: Account, suite: int) -> None:
    question = Question(message="hello", task="review", args={"a": 1}, context_id=None)
    stored = seal(account, question, suite, traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01")
    frame = codec.decode(stored.payload, "caller_to_relay")
    assert isinstance(frame, CallRequest)
    assert (frame.message_id, frame.correlation_id) == (MESSAGE_ID, CORRELATION_ID)
    assert frame.envelope.exp - frame.envelope.iat == SYNC_LIFE_MS
    assert frame.envelope.suite == stored.suite == suite
    bob = agent("bob", suite)
    context = RequestContext(
        realm=ADDRESS.realm,
        sender=Party("alice", account.ipk, account.card.card.id),
        recipient=bob.recipient,
        mode="sync",
        message_id=MESSAGE_ID,
        correlation_id=CORRELATION_ID,
        iat=NOW_MS,
        exp=NOW_MS + SYNC_LIFE_MS,
    )
    opened = open_request(frame.envelope, bob.sealing, context, account.card.card.spk)
    assert opened.digest == stored.digest
    assert stored.reply_seed is not None
    assert opened.reply_public == SUITES[suite].private_from_seed(stored.reply_seed).public
    request = decode_request(opened.json_bytes)
    assert (request.message, request.task, request.args) == ("hello", "review", {"a": 1})
    assert request.traceparent == "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    # The trace of the application is not in the clear.
    assert b"traceparent" not in stored.payload


def test_every_sealing_has_a_reply_key_of_its_own(account: Account) -> None:
    one, two = (seal(account, Question(message="x")) for _ in range(2))
    assert one.reply_seed != two.reply_seed
    assert one.payload != two.payload
    assert one.content == two.content


def test_a_repeat_is_known_by_what_is_asked_and_not_by_its_trace(account: Account) -> None:
    plain = seal(account, Question(message="x"))
    traced = seal(account, Question(message="x"), traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01")
    other = seal(account, Question(message="y"))
    assert plain.content == traced.content != other.content


def test_the_largest_message_fits_and_one_byte_more_is_told(account: Account) -> None:
    # Six characters of JSON for each byte: the worst there is.
    stored = seal(account, Question(message="\x00" * MESSAGE_BYTES))
    assert len(stored.payload) <= CALLER_FRAME_BYTES
    with pytest.raises(MessageTooLarge, match=r"64,001 bytes of UTF-8; 64,000 are allowed"):
        Question(message="x" * (MESSAGE_BYTES + 1)).body()
    with pytest.raises(MessageTooLarge, match=r"64,002 bytes"):
        Question(message="é" * (MESSAGE_BYTES // 2 + 1)).body()


def test_a_frame_over_the_limit_is_not_sent(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(seal(account, Question(message="x")).payload)
    monkeypatch.setattr("ringline.caller.sealing.CALLER_FRAME_BYTES", size)
    seal(account, Question(message="x"))
    monkeypatch.setattr("ringline.caller.sealing.CALLER_FRAME_BYTES", size - 1)
    with pytest.raises(MessageTooLarge, match="Nothing was sent"):
        seal(account, Question(message="x"))


@pytest.mark.parametrize(
    "question",
    [
        Question(message=""),
        Question(message="\ud800"),
        Question(message="x", task="No Task"),
        Question(message="x", args={"a": float("nan")}),
        Question(message="x", args={"a": 2**60}),
        Question(message="x", args={"a": object()}),
        Question(message="x", context_id="ctx_short"),
        Question(message="x", turn=0),
    ],
)
def test_what_the_peer_would_refuse_is_not_sealed(account: Account, question: Question) -> None:
    with pytest.raises(ConfigError, match="Nothing was sealed"):
        seal(account, question)


def test_an_answer_is_opened_and_its_receipt_holds(account: Account) -> None:
    stored = seal(account, Question(message="x"))
    bob = agent("bob")
    frame = answer(account, stored, COMPLETED, by=bob)
    receipt = open_answer(
        stored, frame, realm=ADDRESS.realm, own_handle="alice", card=bob.card, now_ms=NOW_MS
    )
    assert receipt.check() == bob.card.card
    assert read_answer(receipt, MESSAGE_ID).outcome == COMPLETED
    for forged in (
        replace(receipt, body=receipt.body + b" "),
        replace(receipt, context=receipt.context + b"x"),
    ):
        with pytest.raises(BadSignature):
            forged.check()


def test_a_durable_call_says_so_and_its_answer_is_of_a_durable_call(account: Account) -> None:
    stored = seal(account, Question(message="x"), durable_ms=3_600_000)
    frame = codec.decode(stored.payload, "caller_to_relay")
    assert isinstance(frame, CallRequest)
    assert (frame.delivery_mode, frame.envelope.exp, stored.exp) == (
        "durable",
        NOW_MS + 3_600_000,
        NOW_MS + 3_600_000,
    )
    bob = agent("bob")
    outcome = answer(account, stored, COMPLETED, by=bob)
    receipt = open_answer(
        stored, outcome, realm=ADDRESS.realm, own_handle="alice", card=bob.card, now_ms=NOW_MS
    )
    assert read_answer(receipt, MESSAGE_ID).outcome == COMPLETED
    with pytest.raises(CannotOpen):
        open_answer(
            replace(stored, mode="sync"),
            outcome,
            realm=ADDRESS.realm,
            own_handle="alice",
            card=bob.card,
            now_ms=NOW_MS,
        )


@pytest.mark.parametrize("member", ["realm", "own_handle", "card"])
def test_an_answer_of_another_context_does_not_open(account: Account, member: str) -> None:
    stored = seal(account, Question(message="x"))
    bob = agent("bob")
    frame = answer(account, stored, COMPLETED, by=bob)
    arguments: dict[str, Any] = {"realm": ADDRESS.realm, "own_handle": "alice", "card": bob.card}
    arguments[member] = {"realm": "other.example", "own_handle": "bob", "card": agent("eve").card}[member]
    with pytest.raises(CannotOpen):
        open_answer(stored, frame, now_ms=NOW_MS, **arguments)


@pytest.mark.parametrize(
    "change",
    [
        {"message_id": "3" * 32},
        {"correlation_id": "3" * 32},
        {"digest": bytes(32)},
        {"from_ipk": bytes(32)},
        {"to_ipk": bytes(32)},
        {"exp": NOW_MS},
        {"mode": "durable"},
        {"reply_seed": bytes(32)},
        {"reply_seed": None},
    ],
)
def test_an_answer_belongs_to_one_call_alone(account: Account, change: dict[str, Any]) -> None:
    stored = seal(account, Question(message="x"))
    bob = agent("bob")
    frame = answer(account, stored, COMPLETED, by=bob)
    with pytest.raises(CannotOpen):
        open_answer(
            replace(stored, **change),
            frame,
            realm=ADDRESS.realm,
            own_handle="alice",
            card=bob.card,
            now_ms=NOW_MS,
        )


@pytest.mark.parametrize("change", [{"call_id": "other"}, {"terminal": "failed"}])
def test_what_the_frame_says_is_bound(account: Account, change: dict[str, Any]) -> None:
    stored = seal(account, Question(message="x"))
    bob = agent("bob")
    frame = msgspec.structs.replace(answer(account, stored, COMPLETED, by=bob), **change)
    with pytest.raises(CannotOpen):
        open_answer(stored, frame, realm=ADDRESS.realm, own_handle="alice", card=bob.card, now_ms=NOW_MS)


def test_a_failure_is_raised_as_the_peers_word(account: Account) -> None:
    stored = seal(account, Question(message="x"))
    bob = agent("bob")
    outcome = Outcome(reason="failed", failure=Failure(code="blocked", detail="no"))
    receipt = open_answer(
        stored,
        answer(account, stored, outcome, by=bob),
        realm=ADDRESS.realm,
        own_handle="alice",
        card=bob.card,
        now_ms=NOW_MS,
    )
    with pytest.raises(PeerFailure) as caught:
        read_answer(receipt, MESSAGE_ID)
    failure = caught.value
    assert (failure.code, failure.detail, failure.call_id, failure.message_id) == (
        "blocked",
        "no",
        "call",
        MESSAGE_ID,
    )
    assert str(failure).endswith(": no")


def test_the_text_of_a_failure_has_the_peers_words_and_nothing_that_a_terminal_obeys() -> None:
    failure = PeerFailure(code="agent_error", detail="\x1b[2Jgone\u202e\nfaked")
    assert str(failure) == "the peer's program failed: ?[2Jgone??faked"
    assert str(PeerFailure(code="agent_error")) == "the peer's program failed"
