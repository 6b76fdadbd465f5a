"""What the pure part of a caller makes of frames, losses and time: effects are compared as lists."""

from typing import Any

import pytest

from ringline.caller.effects import (
    Cancel,
    Decided,
    End,
    Learned,
    Lookup,
    LostRelay,
    Open,
    OutOfTime,
    Refused,
    Reseal,
    Send,
    Tell,
    Unopened,
    Withdrawn,
)
from ringline.caller.pending import Outgoing
from ringline.caller.session import RETRY_MS, CallerSession
from ringline.protocol.errors import TransportError
from ringline.protocol.frames import (
    CallError,
    CallNotCancelled,
    CallOutcome,
    CallQueued,
    CallState,
    CallStatus,
    CancelCall,
    Envelope,
    RelayCode,
)
from ringline.protocol.instant import Instant
from ringline.protocol.limits import CANCEL_WAIT_MS, HOLD_MS

M1, M2 = "1" * 32, "2" * 32
C1, C2 = "a" * 32, "b" * 32
LOST = TransportError("gone")
HASH = "A" * 43
ENVELOPE = Envelope(v=1, suite=2, kid=HASH, sid=HASH, iat=1, exp=2, ct="AAAA")


def at(mono: int) -> Instant:
    return Instant(1_790_000_000_000 + mono, mono)


def outgoing(message_id: str = M1, correlation_id: str = C1, **members: Any) -> Outgoing:
    values: dict[str, Any] = {"payload": f"frame {message_id[0]}".encode(), "deadline": 100_000}
    return Outgoing(message_id=message_id, correlation_id=correlation_id, **(values | members))


def status(state: CallState = "ringing", call_id: str = "call", correlation_id: str = C1) -> CallStatus:
    return CallStatus(state=state, call_id=call_id, correlation_id=correlation_id)


def error(code: RelayCode, **members: Any) -> CallError:
    return CallError(origin="relay", code=code, **members)


def outcome(call_id: str = "call") -> CallOutcome:
    return CallOutcome(call_id=call_id, terminal="completed", envelope=ENVELOPE)


SENT = [Send(b"frame 1"), Tell(M1, "sent", None)]


@pytest.fixture
def session() -> CallerSession:
    """Connected, without a call."""
    session = CallerSession()
    session.opened(at(0))
    return session


@pytest.fixture
def ringing(session: CallerSession) -> CallerSession:
    """With a call that the relay has admitted."""
    session.start(outgoing(), at(0))
    session.receive(status(), at(1))
    return session


# --- sending


def test_a_call_waits_for_the_connection() -> None:
    session = CallerSession()
    assert session.start(outgoing(), at(0)) == []
    assert session.opened(at(1)) == SENT


def test_a_call_is_sent_at_once_on_a_connection_that_stands(session: CallerSession) -> None:
    assert session.start(outgoing(), at(0)) == SENT


def test_one_message_id_is_under_way_once(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    with pytest.raises(ValueError, match="under way"):
        session.start(outgoing(), at(0))


def test_the_first_status_tells_the_id(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    assert session.receive(status(), at(1)) == [Learned(M1, "call"), Tell(M1, "ringing", "call")]


def test_status_goes_forward_and_is_told_once(ringing: CallerSession) -> None:
    assert ringing.receive(status("working"), at(2)) == [Tell(M1, "working", "call")]
    assert ringing.receive(status("answered"), at(3)) == []
    assert ringing.receive(status("working"), at(3)) == []
    assert ringing.strays.repeated == 2


def test_an_outcome_that_overtakes_every_status_is_opened_when_one_tells_whose_it_is(
    session: CallerSession,
) -> None:
    session.start(outgoing(), at(0))
    session.start(outgoing(M2, C2), at(0))
    assert session.receive(outcome(), at(1)) == []
    assert session.receive(status(call_id="other", correlation_id=C2), at(2))[0] == Learned(M2, "other")
    assert session.receive(status(), at(2)) == [
        Learned(M1, "call"),
        Open(M1, outcome()),
        Tell(M1, "ringing", "call"),
    ]


def test_an_end_that_the_relay_says_after_it_does_not_replace_it(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    session.receive(outcome(), at(1))
    effects = session.receive(error("timeout", call_id="call", correlation_id=C1), at(2))
    assert effects == [Learned(M1, "call"), Open(M1, outcome())]
    assert session.opened_outcome(M1) == []


def test_outcomes_of_unknown_calls_do_not_pile_up(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    for number in range(50):
        session.receive(outcome(f"call-{number}"), at(1))
    assert session.strays.unknown == 46
    # Nor does one outlast the connection that it came on.
    session.lost(LOST, at(2))
    session.opened(at(3))
    assert session.receive(status(call_id="call-0"), at(4))[0] == Learned(M1, "call-0")
    assert not any(isinstance(effect, Open) for effect in session.receive(status("working"), at(5)))


# --- ids that do not belong together


@pytest.mark.parametrize(
    "frame",
    [
        status(call_id="other", correlation_id=C2),
        error("canceled", call_id="other"),
        error("canceled", call_id="other", correlation_id=C2),
        error("offline", correlation_id=C2),
        error("offline"),
        outcome("other"),
        CallNotCancelled(call_id="other", reason="unknown"),
    ],
)
def test_frames_about_no_call_of_ours_are_counted(ringing: CallerSession, frame: Any) -> None:
    assert ringing.receive(frame, at(2)) == []
    assert ringing.strays.unknown == 1


@pytest.mark.parametrize(
    "frame",
    [
        status(call_id="call", correlation_id=C2),
        error("canceled", call_id="call", correlation_id=C2),
        CallNotCancelled(call_id="call", reason="unknown"),
        CallQueued(call_id="call", message_id=M1, correlation_id=C1, submitted_at=1, expires_at=2),
    ],
)
def test_frames_with_ids_that_do_not_fit_are_counted(ringing: CallerSession, frame: Any) -> None:
    assert ringing.receive(frame, at(2)) == []
    assert ringing.strays.mismatched == 1


def test_a_second_id_for_the_same_conversation_is_not_taken(ringing: CallerSession) -> None:
    assert ringing.receive(status(call_id="other"), at(2)) == []
    assert ringing.receive(error("canceled", call_id="other", correlation_id=C1), at(2)) == []
    assert ringing.receive(outcome(), at(2)) == [Open(M1, outcome())]


def test_a_status_before_anything_was_sent_is_not_taken() -> None:
    session = CallerSession()
    session.start(outgoing(), at(0))
    assert session.receive(status(), at(1)) == []


# --- ends


def test_an_error_with_the_calls_id_ends_it(ringing: CallerSession) -> None:
    assert ringing.receive(error("timeout", call_id="call"), at(2)) == [
        End(M1, Refused("timeout", "call", None))
    ]
    assert ringing.idle


def test_an_error_with_both_ids_ends_a_call_whose_first_answer_was_lost(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    assert session.receive(error("timeout", call_id="call", correlation_id=C1), at(1)) == [
        Learned(M1, "call"),
        End(M1, Refused("timeout", "call", None)),
    ]


def test_an_outcome_ends_the_call_when_it_was_opened(ringing: CallerSession) -> None:
    assert ringing.receive(outcome(), at(2)) == [Open(M1, outcome())]
    assert ringing.opened_outcome(M1) == []
    assert ringing.idle
    # RL-ENVELOPE-039: a later one is counted and ignored.
    assert ringing.receive(outcome(), at(3)) == []
    assert ringing.strays.late == 1


def test_a_timeout_beside_an_outcome_does_not_replace_it(ringing: CallerSession) -> None:
    ringing.receive(outcome(), at(2))
    assert ringing.receive(error("timeout", call_id="call"), at(2)) == []
    assert ringing.opened_outcome(M1) == []
    assert ringing.receive(error("timeout", call_id="call"), at(3)) == []
    assert ringing.strays.late == 1


def test_a_timeout_behind_an_outcome_that_does_not_open_is_the_end(ringing: CallerSession) -> None:
    ringing.receive(outcome(), at(2))
    ringing.receive(error("timeout", call_id="call"), at(2))
    assert ringing.unopened_outcome(M1, at(3)) == [End(M1, Refused("timeout", "call", None))]


def test_an_outcome_that_does_not_open_leaves_a_moment_for_the_true_one(ringing: CallerSession) -> None:
    ringing.receive(outcome(), at(2))
    assert ringing.unopened_outcome(M1, at(3)) == []
    assert ringing.deadline() == 1_003
    assert ringing.tick(at(1_002)) == []
    ringing.receive(outcome(), at(1_002))
    assert ringing.tick(at(2_000)) == []  # still being opened
    assert ringing.opened_outcome(M1) == []
    assert ringing.idle


def test_an_outcome_that_does_not_open_is_the_end_after_that_moment(ringing: CallerSession) -> None:
    ringing.receive(outcome(), at(2))
    ringing.unopened_outcome(M1, at(3))
    assert ringing.tick(at(1_003)) == [End(M1, Unopened())]


def test_a_retry_that_cost_the_last_unit_of_a_budget_does_not_hide_why_the_call_was_refused(
    session: CallerSession,
) -> None:
    session.start(outgoing(), at(0))
    session.receive(error("offline", correlation_id=C1), at(10))
    session.tick(at(10 + RETRY_MS))
    limited = error("rate_limited", correlation_id=C1, retry_after_ms=60_000)
    assert session.receive(limited, at(600)) == [End(M1, Refused("offline", None, 60_000))]


def test_a_budget_that_was_used_up_before_is_told_as_that(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    session.receive(error("rate_limited", correlation_id=C1), at(10))
    session.tick(at(10 + RETRY_MS))
    limited = error("rate_limited", correlation_id=C1)
    assert session.receive(limited, at(600)) == [End(M1, Refused("rate_limited", None, None))]


def test_an_outcome_that_cannot_be_checked_is_told_as_that_and_never_as_forged(
    ringing: CallerSession,
) -> None:
    why = TransportError("away")
    ringing.receive(outcome(), at(2))
    ringing.receive(outcome(), at(2))
    ringing.unopened_outcome(M1, at(3), why)
    ringing.unopened_outcome(M1, at(3))
    assert ringing.tick(at(1_003)) == [End(M1, Unopened(why))]


def test_the_relays_timeout_does_not_replace_an_outcome_that_cannot_be_checked(
    ringing: CallerSession,
) -> None:
    why = TransportError("away")
    ringing.receive(outcome(), at(2))
    ringing.receive(error("timeout", call_id="call"), at(2))
    assert ringing.unopened_outcome(M1, at(3), why) == [End(M1, Unopened(why))]


def test_a_caller_whose_time_is_over_is_told_of_the_outcome_that_cannot_be_checked(
    ringing: CallerSession,
) -> None:
    why = TransportError("away")
    ringing.receive(outcome(), at(99_999))
    ringing.unopened_outcome(M1, at(100_001), why)
    assert ringing.tick(at(100_001)) == [End(M1, Unopened(why))]


def test_forged_outcomes_neither_pile_up_nor_hold_a_caller_beyond_his_time(ringing: CallerSession) -> None:
    opened = [ringing.receive(outcome(), at(2)) for _ in range(100)]
    assert [effects for effects in opened if effects] == [[Open(M1, outcome())]] * 4
    assert ringing.strays.surplus == 96
    ringing.unopened_outcome(M1, at(3))
    # There is room for one more, until the moment for the true one is over.
    assert ringing.receive(outcome(), at(1_002)) == [Open(M1, outcome())]
    ringing.unopened_outcome(M1, at(1_002))
    assert ringing.receive(outcome(), at(1_003)) == []
    for _ in range(3):
        ringing.unopened_outcome(M1, at(1_004))
    assert ringing.tick(at(1_004)) == [End(M1, Unopened())]


def test_an_outcome_after_the_callers_time_is_not_begun_with(ringing: CallerSession) -> None:
    ringing.receive(outcome(), at(99_999))
    assert ringing.receive(outcome(), at(100_000)) == []
    ringing.unopened_outcome(M1, at(100_001))
    assert ringing.tick(at(100_001)) != []


def test_second_outcomes_that_come_while_the_first_is_opened_are_counted(ringing: CallerSession) -> None:
    ringing.receive(outcome(), at(2))
    ringing.receive(outcome(), at(2))
    ringing.opened_outcome(M1)
    assert ringing.opened_outcome(M1) == []
    assert ringing.unopened_outcome(M1, at(3)) == []
    assert ringing.strays.late == 2


# --- refusals


@pytest.mark.parametrize("code", ["offline", "busy", "rate_limited"])
def test_a_refusal_for_now_is_tried_once_more_with_the_same_bytes(
    session: CallerSession, code: RelayCode
) -> None:
    session.start(outgoing(), at(0))
    assert session.receive(error(code, correlation_id=C1), at(10)) == [Tell(M1, code, None)]  # type: ignore[arg-type]
    assert session.deadline() == 10 + RETRY_MS
    assert session.tick(at(10 + RETRY_MS - 1)) == []
    assert session.tick(at(10 + RETRY_MS)) == [Send(b"frame 1"), Tell(M1, "sent_again", None)]
    assert session.receive(error(code, correlation_id=C1), at(2_000)) == [End(M1, Refused(code, None, None))]


def test_the_relays_time_for_a_retry_is_kept(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    session.receive(error("busy", correlation_id=C1, retry_after_ms=5_000), at(10))
    assert session.deadline() == 5_010


def test_a_retry_after_the_callers_own_time_is_not_waited_for(session: CallerSession) -> None:
    session.start(outgoing(deadline=3_000), at(0))
    assert session.receive(error("rate_limited", correlation_id=C1, retry_after_ms=3_600_000), at(1)) == [
        End(M1, Refused("rate_limited", None, 3_600_000))
    ]


@pytest.mark.parametrize("code", ["unauthorized", "unknown_handle", "message_too_large", "protocol_error"])
def test_other_refusals_are_final(session: CallerSession, code: RelayCode) -> None:
    session.start(outgoing(), at(0))
    assert session.receive(error(code, correlation_id=C1), at(1)) == [End(M1, Refused(code, None, None))]


def test_an_ended_call_is_never_retried(ringing: CallerSession) -> None:
    assert ringing.receive(error("busy", call_id="call"), at(2)) == [End(M1, Refused("busy", "call", None))]


def test_a_retry_that_is_due_without_a_connection_waits_for_it(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    session.receive(error("busy", correlation_id=C1), at(0))
    session.lost(LOST, at(1))
    assert session.tick(at(RETRY_MS)) == []
    assert session.opened(at(2_000)) == [Send(b"frame 1"), Tell(M1, "sent_again", None)]


def test_an_error_without_ids_is_about_the_only_call_in_question(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    session.receive(status(), at(1))
    session.start(outgoing(M2, C2), at(1))
    assert session.receive(error("protocol_error"), at(2)) == [End(M2, Refused("protocol_error", None, None))]


def test_an_error_without_ids_ends_nothing_when_two_calls_are_in_question(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    session.start(outgoing(M2, C2), at(0))
    assert session.receive(error("protocol_error"), at(2)) == []
    assert session.strays.unknown == 1


# --- a relay that restarted


def test_a_request_that_was_never_sent_before_is_sealed_anew_once(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    assert session.receive(error("timeout", correlation_id=C1), at(1)) == [Reseal(M1)]
    assert session.resealed(M1, b"anew") == [Send(b"anew"), Tell(M1, "sent", None)]
    assert session.receive(error("timeout", correlation_id=C1), at(2)) == [
        End(M1, Refused("timeout", None, None))
    ]


def test_a_request_that_was_sent_before_is_not_sealed_anew(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    session.lost(LOST, at(1))
    session.opened(at(2))
    assert session.receive(error("timeout", correlation_id=C1), at(3)) == [
        End(M1, Refused("timeout", None, None))
    ]


def test_a_request_of_an_earlier_process_is_not_sealed_anew(session: CallerSession) -> None:
    session.start(outgoing(sent_before=True), at(0))
    assert session.receive(error("timeout", correlation_id=C1), at(3)) == [
        End(M1, Refused("timeout", None, None))
    ]


def test_a_resealing_that_fails_is_the_end(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    session.receive(error("timeout", correlation_id=C1), at(1))
    assert session.not_resealed(M1, LOST) == [End(M1, LostRelay(LOST, sent=False))]


# --- losing the connection


def test_a_dial_that_fails_ends_what_was_never_sent() -> None:
    session = CallerSession()
    session.start(outgoing(), at(0))
    assert session.lost(LOST, at(1)) == [End(M1, LostRelay(LOST, sent=False))]


def test_what_waits_for_its_retry_outlives_a_connection_but_not_a_failed_dial(
    session: CallerSession,
) -> None:
    session.start(outgoing(), at(0))
    session.receive(error("busy", correlation_id=C1), at(0))
    assert session.lost(LOST, at(1)) == []
    assert session.lost(LOST, at(2)) == [End(M1, LostRelay(LOST, sent=False))]


def test_a_request_without_an_answer_is_sent_again_on_the_next_connection(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    assert session.lost(LOST, at(1)) == []
    assert session.opened(at(2)) == [Send(b"frame 1"), Tell(M1, "sent_again", None)]


def test_a_call_with_an_id_is_asked_about_before_it_is_sent_again(ringing: CallerSession) -> None:
    ringing.lost(LOST, at(2))
    assert ringing.opened(at(3)) == [Lookup(M1, "call")]
    assert ringing.looked_up(M1, known=True, now=at(4)) == [
        Send(b"frame 1"),
        Tell(M1, "sent_again", "call"),
    ]
    # The present status is told anew; the caller knows it.
    assert ringing.receive(status(), at(5)) == []
    assert ringing.receive(status("answered"), at(5)) == [Tell(M1, "answered", "call")]


def test_a_call_that_the_relay_forgot_may_have_run_and_is_not_sent(ringing: CallerSession) -> None:
    ringing.lost(LOST, at(2))
    ringing.opened(at(3))
    assert ringing.looked_up(M1, known=False, now=at(4)) == [
        End(M1, Refused("timeout", "call", None, forgotten=True))
    ]


def test_a_question_that_fails_is_asked_again(ringing: CallerSession) -> None:
    ringing.lost(LOST, at(2))
    ringing.opened(at(3))
    assert ringing.looked_up(M1, known=None, now=at(4)) == []
    assert ringing.tick(at(1_003)) == []
    assert ringing.tick(at(1_004)) == [Lookup(M1, "call")]


def test_an_answer_to_a_question_of_a_lost_connection_is_not_used(ringing: CallerSession) -> None:
    ringing.lost(LOST, at(2))
    ringing.opened(at(3))
    ringing.lost(LOST, at(4))
    assert ringing.looked_up(M1, known=True, now=at(5)) == []
    assert ringing.opened(at(6)) == [Lookup(M1, "call")]


def test_a_call_of_an_earlier_process_is_asked_about_first(session: CallerSession) -> None:
    out = outgoing(sent_before=True, call_id="call")
    assert session.start(out, at(0)) == [Lookup(M1, "call")]


def test_a_connection_that_stays_away_ends_the_call_after_the_hold(ringing: CallerSession) -> None:
    ringing.lost(LOST, at(2))
    ringing.lost(LOST, at(5_000))
    assert ringing.deadline() == 2 + HOLD_MS
    assert ringing.tick(at(1 + HOLD_MS)) == []
    assert ringing.tick(at(2 + HOLD_MS)) == [End(M1, LostRelay(LOST, sent=True))]


def test_the_hold_counts_anew_after_the_relay_answered(ringing: CallerSession) -> None:
    ringing.lost(LOST, at(2))
    ringing.opened(at(3))
    ringing.looked_up(M1, known=True, now=at(4))
    ringing.receive(status(), at(5))
    ringing.lost(LOST, at(20_000))
    assert ringing.deadline() == 20_000 + HOLD_MS


def test_a_link_that_ends_for_good_ends_every_call(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    session.receive(status(), at(1))
    session.start(outgoing(M2, C2), at(1))
    session.receive(error("busy", correlation_id=C2), at(1))
    assert session.ended(LOST, at(2)) == [
        End(M1, LostRelay(LOST, sent=True)),
        # Refused for now: the relay has nothing of it.
        End(M2, LostRelay(LOST, sent=False)),
    ]


def test_a_caller_that_is_closed_waits_for_no_outcome(ringing: CallerSession) -> None:
    ringing.receive(outcome(), at(2))
    assert ringing.closed(LOST, at(3)) == [End(M1, LostRelay(LOST, sent=True))]
    assert ringing.opened_outcome(M1) == []


# --- cancelling


def test_a_cancellation_is_asked_and_the_confirmation_is_the_end(ringing: CallerSession) -> None:
    assert ringing.cancel(M1, at(2)) == [Cancel(CancelCall(call_id="call"))]
    assert ringing.cancel(M1, at(3)) == []  # asked once
    assert ringing.receive(error("canceled", call_id="call"), at(4)) == [
        Decided(M1, "canceled"),
        End(M1, Refused("canceled", "call", None)),
    ]


def test_a_cancellation_waits_for_the_id(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    assert session.cancel(M1, at(1)) == []
    assert session.receive(status(), at(2)) == [
        Learned(M1, "call"),
        Cancel(CancelCall(call_id="call")),
        Tell(M1, "ringing", "call"),
    ]


def test_a_cancellation_is_asked_again_on_the_next_connection(ringing: CallerSession) -> None:
    ringing.cancel(M1, at(2))
    ringing.lost(LOST, at(3))
    ringing.opened(at(4))
    ringing.looked_up(M1, known=True, now=at(5))
    assert ringing.receive(status(), at(6)) == [Cancel(CancelCall(call_id="call"))]


def test_a_cancellation_without_a_connection_is_asked_on_the_next(ringing: CallerSession) -> None:
    ringing.lost(LOST, at(2))
    assert ringing.cancel(M1, at(3)) == []
    ringing.opened(at(4))
    ringing.looked_up(M1, known=True, now=at(5))
    assert ringing.receive(status(), at(6)) == [Cancel(CancelCall(call_id="call"))]


def test_what_is_not_decided_in_time_is_requested_and_still_ends_later(ringing: CallerSession) -> None:
    ringing.cancel(M1, at(2))
    assert ringing.deadline() == 2 + CANCEL_WAIT_MS
    assert ringing.tick(at(2 + CANCEL_WAIT_MS)) == [Decided(M1, "requested")]
    assert ringing.receive(error("canceled", call_id="call"), at(50_000)) == [
        End(M1, Refused("canceled", "call", None))
    ]


@pytest.mark.parametrize("reason", ["already_terminal", "unknown", "too_late"])
def test_a_refused_cancellation_can_be_asked_again(ringing: CallerSession, reason: Any) -> None:
    ringing.cancel(M1, at(2))
    frame = CallNotCancelled(call_id="call", reason=reason)
    assert ringing.receive(frame, at(3)) == [Decided(M1, reason)]
    assert ringing.cancel(M1, at(4)) == [Cancel(CancelCall(call_id="call"))]


def test_an_outcome_wins_over_a_cancellation(ringing: CallerSession) -> None:
    ringing.cancel(M1, at(2))
    ringing.receive(outcome(), at(3))
    assert ringing.opened_outcome(M1) == [Decided(M1, "already_terminal")]


def test_what_was_never_sent_is_withdrawn() -> None:
    session = CallerSession()
    session.start(outgoing(), at(0))
    assert session.cancel(M1, at(1)) == [Decided(M1, "canceled"), End(M1, Withdrawn())]


def test_what_was_refused_and_waits_for_its_retry_is_withdrawn(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    session.receive(error("busy", correlation_id=C1), at(1))
    assert session.cancel(M1, at(2)) == [Decided(M1, "canceled"), End(M1, Withdrawn())]


def test_a_refusal_while_a_cancellation_is_held_is_not_retried(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    session.cancel(M1, at(1))
    assert session.receive(error("busy", correlation_id=C1), at(2)) == [
        Decided(M1, "already_terminal"),
        End(M1, Refused("busy", None, None)),
    ]


def test_a_call_that_is_lost_while_cancelling_is_only_requested(ringing: CallerSession) -> None:
    ringing.cancel(M1, at(2))
    assert ringing.ended(LOST, at(3)) == [
        Decided(M1, "requested"),
        End(M1, LostRelay(LOST, sent=True)),
    ]


def test_a_call_that_is_over_cannot_be_cancelled(session: CallerSession) -> None:
    assert session.cancel(M1, at(0)) == [Decided(M1, "already_terminal")]


# --- the caller's own time


def test_the_callers_time_ends_the_wait_and_asks_for_a_cancellation(ringing: CallerSession) -> None:
    assert ringing.tick(at(99_999)) == []
    assert ringing.tick(at(100_000)) == [
        Cancel(CancelCall(call_id="call")),
        End(M1, OutOfTime("call", sent=True)),
    ]
    assert ringing.tick(at(100_001)) == []


def test_a_call_that_gets_its_id_after_the_wait_is_cancelled_then(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    assert session.tick(at(100_000)) == [End(M1, OutOfTime(None, sent=True))]
    assert session.receive(status(), at(100_001)) == [
        Learned(M1, "call"),
        Cancel(CancelCall(call_id="call")),
    ]


def test_what_is_not_waited_for_is_forgotten_after_a_while(ringing: CallerSession) -> None:
    ringing.tick(at(100_000))
    assert not ringing.idle
    assert ringing.deadline() == 100_000 + HOLD_MS
    assert ringing.tick(at(100_000 + HOLD_MS)) == []
    assert ringing.idle


def test_what_is_not_waited_for_is_not_sent_again(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    session.give_up(M1, at(1))
    session.lost(LOST, at(2))
    assert session.opened(at(3)) == []


def test_an_outcome_after_the_wait_is_still_kept(ringing: CallerSession) -> None:
    ringing.give_up(M1, at(2))
    assert ringing.receive(outcome(), at(3)) == [Open(M1, outcome())]
    assert ringing.opened_outcome(M1) == []
    assert ringing.idle


def test_the_time_is_over_before_the_call_could_be_sent() -> None:
    session = CallerSession()
    session.start(outgoing(), at(0))
    assert session.tick(at(100_000)) == [End(M1, OutOfTime(None, sent=False))]


def test_an_outcome_that_is_being_opened_is_waited_for(ringing: CallerSession) -> None:
    ringing.receive(outcome(), at(99_999))
    assert ringing.deadline() is None
    assert ringing.tick(at(100_000)) == []


# --- several calls


def test_calls_end_each_by_its_own_id(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    session.start(outgoing(M2, C2), at(0))
    session.receive(status(call_id="one"), at(1))
    session.receive(status(call_id="two", correlation_id=C2), at(1))
    assert session.receive(error("canceled", call_id="two"), at(2)) == [
        End(M2, Refused("canceled", "two", None))
    ]
    assert not session.idle


def test_the_next_turn_of_a_conversation_is_told_apart_from_the_one_before(session: CallerSession) -> None:
    session.start(outgoing(), at(0))
    session.receive(status(call_id="one"), at(1))
    session.give_up(M1, at(2))
    session.start(outgoing(M2, C1), at(3))
    assert session.receive(status(call_id="two"), at(4)) == [Learned(M2, "two"), Tell(M2, "ringing", "two")]
    assert session.receive(status("working", call_id="one"), at(5)) == []
