"""What the pure part of a caller does with durable calls, and the strings and errors around them."""

from typing import Any

import pytest

from ringline.caller.claim import claim_of, is_claim, read_claim
from ringline.caller.effects import End, Learned, LostRelay, OutOfTime, Queued, Refused, Send, Tell
from ringline.caller.ends import error_of
from ringline.caller.pending import Outgoing
from ringline.caller.record_ends import ended_error
from ringline.caller.session import RETRY_MS, CallerSession
from ringline.protocol.errors import CallTimeout, ConfigError, ProtocolError, RelayError, TransportError
from ringline.protocol.frames import CallError, CallQueued, CallStatus
from ringline.protocol.instant import Instant
from ringline.protocol.limits import HOLD_MS

M, C = "1" * 32, "a" * 32
EXP = 1_790_000_600_000
LOST = TransportError("gone")


def at(mono: int) -> Instant:
    return Instant(1_790_000_000_000 + mono, mono)


def outgoing(**members: Any) -> Outgoing:
    values: dict[str, Any] = {
        "message_id": M,
        "correlation_id": C,
        "payload": b"frame",
        "deadline": 100_000,
        "durable_exp": EXP,
    }
    return Outgoing(**(values | members))


def queued(**members: Any) -> CallQueued:
    values: dict[str, Any] = {
        "call_id": "call",
        "message_id": M,
        "correlation_id": C,
        "submitted_at": EXP - 600_000,
        "expires_at": EXP,
    }
    return CallQueued(**(values | members))


@pytest.fixture
def session() -> CallerSession:
    """Connected, with a durable call that was sent."""
    session = CallerSession()
    session.opened(at(0))
    session.start(outgoing(), at(0))
    return session


def test_the_call_is_over_here_when_the_relay_has_stored_it(session: CallerSession) -> None:
    assert session.receive(queued(), at(1)) == [Learned(M, "call"), Queued(M, queued())]
    assert session.idle
    # What the relay says of it further is for whoever asks over HTTP.
    assert session.receive(CallStatus(state="working", call_id="call", correlation_id=C), at(2)) == []
    assert session.strays.late == 1


@pytest.mark.parametrize("members", [{"correlation_id": "b" * 32}, {"message_id": "2" * 32}])
def test_a_confirmation_of_another_call_is_no_confirmation(
    session: CallerSession, members: dict[str, Any]
) -> None:
    assert session.receive(queued(**members), at(1)) == []
    assert not session.idle


def test_a_confirmation_that_lasts_longer_than_what_was_sealed_is_an_error(session: CallerSession) -> None:
    learned, end = session.receive(queued(expires_at=EXP + 1), at(1))
    assert learned == Learned(M, "call")
    assert isinstance(end, End)
    assert isinstance(end.end, LostRelay)
    assert isinstance(end.end.error, ProtocolError)


def test_the_same_bytes_are_sent_on_the_next_connection_for_as_long_as_it_takes(
    session: CallerSession,
) -> None:
    assert session.lost(LOST, at(1)) == []
    assert session.tick(at(2 + HOLD_MS)) == []
    assert session.opened(at(3 + HOLD_MS)) == [Send(b"frame"), Tell(M, "sent_again", None)]


def test_whoever_stops_waiting_for_the_confirmation_cancels_nothing(session: CallerSession) -> None:
    assert session.tick(at(100_000)) == [End(M, OutOfTime(None, sent=True))]
    assert session.idle


def test_a_status_before_the_confirmation_is_not_taken_for_it(session: CallerSession) -> None:
    assert session.receive(CallStatus(state="ringing", call_id="call", correlation_id=C), at(1)) == []
    assert session.receive(queued(), at(2)) == [Learned(M, "call"), Queued(M, queued())]


def test_a_durable_call_is_sealed_once(session: CallerSession) -> None:
    error = CallError(origin="relay", code="timeout", correlation_id=C)
    assert session.receive(error, at(1)) == [End(M, Refused("timeout", None, None))]


def test_a_full_mailbox_is_tried_once_more(session: CallerSession) -> None:
    error = CallError(origin="relay", code="busy", correlation_id=C)
    assert session.receive(error, at(1)) == [Tell(M, "busy", None)]
    assert session.tick(at(1 + RETRY_MS)) == [Send(b"frame"), Tell(M, "sent_again", None)]
    assert session.receive(error, at(1_000)) == [End(M, Refused("busy", None, None))]


def test_a_receipt_names_callee_and_message() -> None:
    assert claim_of("bob-2", M) == f"rcpt_bob-2_{M}"
    assert is_claim(claim_of("bob-2", M))
    assert read_claim(claim_of("bob-2", M)) == ("bob-2", M)


@pytest.mark.parametrize("text", ["", "call", "rcpt_bob", f"rcpt__{M}", f"rcpt_Bob_{M}", f"rcpt_bob_{M}\n"])
def test_other_texts_are_no_receipts(text: str) -> None:
    with pytest.raises(ConfigError, match="no receipt"):
        read_claim(text)


@pytest.mark.parametrize(
    ("state", "exit_code"),
    [
        ("canceled", 15),
        ("expired", 16),
        ("delivery_failed", 17),
        ("indeterminate_execution", 18),
        ("revoked", 24),
    ],
)
def test_each_end_without_an_outcome_is_an_error_of_its_own(state: str, exit_code: int) -> None:
    error = ended_error(state, "receipt", call_id="call", message_id=M)
    assert error is not None
    assert (error.code, error.exit_code, error.receipt) == (state, exit_code, "receipt")


@pytest.mark.parametrize("state", ["queued", "leased", "accepted", "started", "completed", "failed"])
def test_other_states_are_no_such_end(state: str) -> None:
    assert ended_error(state, "receipt", call_id="call", message_id=M) is None


def test_a_refusal_of_the_mailbox_and_an_unconfirmed_call_say_what_is_true() -> None:
    offline = error_of(Refused("offline", None, None), "bob", M, None, 30, durable=True)
    assert isinstance(offline, RelayError)
    assert "takes no calls while away" in str(offline)
    late = error_of(OutOfTime(None, sent=True), "bob", M, None, 30, durable=True)
    assert isinstance(late, CallTimeout)
    assert "It may have it" in str(late)
