"""Two-phase cancellation of sync calls."""

import pytest

from ringline.protocol.frames import CallState, NotCancelledReason
from ringline.relay.effects import CancelAnswer, Close, Decided, Effect, Retire, Send
from ringline_testing.exchange import (
    Exchange,
    call_error,
    cancel,
    cancelled,
    incoming,
    not_cancelled,
    outcome,
    request,
    sent_to,
    started,
    status,
)


def post(x: Exchange, call: str, request_number: int = 1, caller: str = "alice") -> list[Effect]:
    return x.hub.cancel(caller, call, request_number, x.now)


@pytest.mark.parametrize("until", ["ringing", "answered", "working"])
def test_a_cancel_goes_to_the_listener_and_is_confirmed_by_it_alone(until: CallState) -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until=until)
    assert x.send(alice, cancel(call)) == [Send(bob, cancel(call))]
    record = x.hub.record("alice", call, x.now)
    assert record is not None
    assert record.cancel_requested
    assert x.wait(10_000) == []
    assert x.send(bob, cancelled(call)) == [
        Send(alice, call_error("canceled", request(), call_id=call)),
        Retire(call),
    ]
    assert x.state(call) == "canceled"


def test_asked_twice_there_is_one_cancel_call() -> None:
    x = Exchange()
    bob, alice, other = x.listener(), x.caller(), x.caller()
    call = x.begin(alice, request(), until="working")
    assert x.send(alice, cancel(call)) == [Send(bob, cancel(call))]
    assert x.send(alice, cancel(call)) == []
    assert x.send(other, cancel(call)) == []
    assert post(x, call) == []
    assert x.send(bob, cancelled(call)) == [
        Send(alice, call_error("canceled", request(), call_id=call)),
        Send(other, call_error("canceled", request(), call_id=call)),
        Decided(1, CancelAnswer.CANCELED),
        Retire(call),
    ]


def test_a_call_that_was_not_cancelled_goes_on_and_the_reason_is_carried_to_the_asker() -> None:
    reasons: tuple[NotCancelledReason, ...] = ("too_late", "already_terminal", "unknown")
    for reason in reasons:
        x = Exchange()
        bob, alice, other = x.listener(), x.caller(), x.caller()
        call = x.begin(alice, request(), until="working")
        x.send(other, request())
        x.send(alice, cancel(call))
        assert x.send(bob, not_cancelled(call, reason)) == [Send(alice, not_cancelled(call, reason))]
        record = x.hub.record("alice", call, x.now)
        assert record is not None
        assert not record.cancel_requested
        assert x.state(call) == "started"
        assert x.send(bob, outcome(call)) == [
            Send(alice, outcome(call)),
            Send(other, outcome(call)),
            Retire(call),
        ]


def test_a_cancel_after_a_refused_one_is_a_new_request() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.send(alice, cancel(call))
    x.send(bob, not_cancelled(call))
    assert x.send(alice, cancel(call)) == [Send(bob, cancel(call))]
    assert len(x.send(bob, cancelled(call))) == 2


def test_an_outcome_may_win_over_a_cancel_and_is_all_that_the_asker_hears() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.send(alice, cancel(call))
    assert x.send(bob, outcome(call)) == [Send(alice, outcome(call)), Retire(call)]
    assert x.state(call) == "completed"
    # The listener's answer to the cancel is late, and changes nothing.
    assert x.send(bob, cancelled(call)) == []
    assert x.send(bob, not_cancelled(call, "already_terminal")) == []
    assert x.state(call) == "completed"


def test_after_a_confirmed_cancel_no_outcome_counts() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.send(alice, cancel(call))
    x.send(bob, cancelled(call))
    assert x.send(bob, outcome(call)) == [Send(bob, cancel(call))]
    assert x.state(call) == "canceled"


def test_a_cancel_of_a_finished_call_is_already_terminal_of_a_canceled_one_too() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    done = x.finish(alice, request(1, 1))
    gone = x.begin(alice, request(2, 2))
    x.send(alice, cancel(gone))
    x.send(bob, cancelled(gone))
    for call in (done, gone):
        assert x.send(alice, cancel(call)) == [Send(alice, not_cancelled(call, "already_terminal"))]
        assert post(x, call) == [Decided(1, CancelAnswer.ALREADY_TERMINAL)]


def test_anothers_call_and_none_are_equally_unknown() -> None:
    x = Exchange()
    bob, alice, eve = x.listener(), x.caller(), x.caller("eve")
    call = x.begin(alice, request(), until="working")
    done = x.finish(alice, request(2, 2))
    for target in (call, done, "no-such-call"):
        assert x.send(eve, cancel(target)) == [Send(eve, not_cancelled(target, "unknown"))]
        assert post(x, target, caller="eve") == [Decided(1, CancelAnswer.MISSING)]
        # Only the caller cancels: not the callee either.
        assert post(x, target, caller="bob") == [Decided(1, CancelAnswer.MISSING)]
    assert x.state(call) == "started"
    assert x.send(bob, outcome(call)) == [Send(alice, outcome(call)), Retire(call)]


def test_an_unasked_cancellation_changes_nothing_and_is_counted() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    assert x.send(bob, cancelled(call)) == []
    assert x.send(bob, not_cancelled(call)) == []
    assert x.state(call) == "started"
    assert x.hub.snapshot()["cancels_unasked"] == 2


def test_a_cancel_right_behind_the_request_is_not_lost() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    effects = x.send(alice, request()) + x.send(alice, cancel("call-1"))
    assert sent_to(bob, effects) == [incoming("call-1", request()), cancel("call-1")]


def test_a_start_that_crosses_the_cancel_is_a_report_like_any_other() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    x.send(alice, cancel(call))
    assert x.send(bob, started(call)) == [Send(alice, status(call, request(), "working"))]
    assert len(x.send(bob, cancelled(call))) == 2


# --- loss


def test_the_request_is_repeated_right_behind_a_repeated_offer() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(1, 1), until="working")
    other = x.begin(alice, request(2, 2))
    x.send(alice, cancel(call))
    x.lose(bob)
    bob, effects = x.join()
    assert effects == [
        Send(bob, incoming(call, request(1, 1))),
        Send(bob, cancel(call)),
        Send(bob, incoming(other, request(2, 2))),
    ]
    assert x.send(bob, cancelled(call))[0] == Send(alice, call_error("canceled", request(1, 1), call_id=call))


def test_a_cancel_while_the_listener_is_away_waits_for_its_return() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.lose(bob)
    assert x.send(alice, cancel(call)) == []
    bob, effects = x.join()
    assert effects == [Send(bob, incoming(call, request())), Send(bob, cancel(call))]


def test_a_cancel_that_was_refused_is_not_repeated_behind_the_offer() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.send(alice, cancel(call))
    x.send(bob, not_cancelled(call))
    x.lose(bob)
    bob, effects = x.join()
    assert effects == [Send(bob, incoming(call, request()))]


def test_a_cancelling_call_whose_instance_does_not_return_times_out() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.send(alice, cancel(call))
    x.lose(bob)
    assert x.wait(15_000) == [Send(alice, call_error("timeout", request(), call_id=call)), Retire(call)]


def test_a_bound_that_passes_while_a_cancel_is_open_sends_no_second_one() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    x.send(alice, cancel(call))
    assert x.wait(30_000) == [Send(alice, call_error("timeout", request(), call_id=call)), Retire(call)]
    assert bob == 1


def test_a_bound_that_passes_after_a_refused_cancel_sends_one() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    x.send(alice, cancel(call))
    x.send(bob, not_cancelled(call))
    assert x.wait(30_000)[0] == Send(bob, cancel(call))


# --- askers that are not attached


def test_an_asker_that_is_not_attached_is_told_the_decision() -> None:
    x = Exchange()
    bob, alice, asker = x.listener(), x.caller(), x.caller("alice", "somebody")
    call = x.begin(alice, request(1, 1), until="working")
    x.send(asker, cancel(call))
    assert x.send(bob, not_cancelled(call)) == [Send(asker, not_cancelled(call))]
    x.send(asker, cancel(call))
    assert x.send(bob, outcome(call)) == [
        Send(alice, outcome(call)),
        Send(asker, not_cancelled(call, "already_terminal")),
        Retire(call),
    ]


def test_an_asker_that_was_told_the_end_hears_no_status_of_the_call_any_more() -> None:
    x = Exchange()
    bob, alice, asker = x.listener(), x.caller(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.send(asker, cancel(call))
    end = call_error("canceled", request(), call_id=call)
    assert sent_to(asker, x.send(bob, cancelled(call))) == [end]
    assert x.send(asker, request()) == [Send(asker, end)]


def test_an_asker_that_has_gone_is_not_told() -> None:
    x = Exchange()
    bob, alice, asker = x.listener(), x.caller(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.send(asker, cancel(call))
    x.lose(asker)
    assert x.send(bob, not_cancelled(call)) == []
    x.send(alice, cancel(call))
    x.lose(alice)
    assert x.send(bob, cancelled(call)) == [Retire(call)]


def test_an_asker_whose_close_is_held_back_is_not_told_behind_it() -> None:
    x = Exchange()
    bob, alice, asker = x.listener(), x.caller(), x.caller("alice", "nobody")
    call = x.begin(alice, request(), until="working")
    x.send(asker, cancel(call))
    x.register.unreachable.add(("alice", "nobody"))
    x.send(asker, request(2, 2))
    for _ in range(21):
        x.text(asker, "x")
    assert x.send(bob, not_cancelled(call)) == []
    assert sent_to(asker, x.wait(10))[-1] == Close(asker, 1008, "frames")
    assert x.wait(1_000) == []


# --- HTTP


def test_an_http_cancel_is_answered_when_the_listener_confirms() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    assert post(x, call, 7) == [Send(bob, cancel(call))]
    x.wait(9_999)
    assert x.send(bob, cancelled(call)) == [
        Send(alice, call_error("canceled", request(), call_id=call)),
        Decided(7, CancelAnswer.CANCELED),
        Retire(call),
    ]
    assert x.wait(60_000) == []


def test_an_http_cancel_waits_ten_seconds_and_the_request_stands() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    post(x, call, 7)
    assert x.wait(9_999) == []
    assert x.wait(1) == [Decided(7, CancelAnswer.REQUESTED)]
    # Another one finds the flag up.
    assert post(x, call, 8) == []
    assert x.wait(10_000) == [Decided(8, CancelAnswer.REQUESTED)]
    assert x.send(bob, cancelled(call)) == [
        Send(alice, call_error("canceled", request(), call_id=call)),
        Retire(call),
    ]


@pytest.mark.parametrize(
    ("reason", "answer"),
    [
        ("too_late", CancelAnswer.TOO_LATE),
        ("already_terminal", CancelAnswer.ALREADY_TERMINAL),
        ("unknown", CancelAnswer.UNKNOWN),
    ],
)
def test_an_http_cancel_is_told_why_the_listener_did_not(
    reason: NotCancelledReason, answer: CancelAnswer
) -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    post(x, call, 7)
    # The caller's connection did not ask, so it hears nothing.
    assert x.send(bob, not_cancelled(call, reason)) == [Decided(7, answer)]
    assert x.wait(20_000) == []
    assert alice == 2


def test_an_http_cancel_that_the_end_overtakes_is_already_terminal() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    post(x, call, 7)
    assert x.send(bob, outcome(call)) == [
        Send(alice, outcome(call)),
        Decided(7, CancelAnswer.ALREADY_TERMINAL),
        Retire(call),
    ]


def test_http_cancels_that_wait_are_answered_each_at_its_time() -> None:
    x = Exchange()
    x.listener()
    alice = x.caller()
    call = x.begin(alice, request(), until="working")
    post(x, call, 1)
    x.wait(4_000)
    post(x, call, 2)
    assert x.wait(6_000) == [Decided(1, CancelAnswer.REQUESTED)]
    assert x.wait(4_000) == [Decided(2, CancelAnswer.REQUESTED)]


def test_each_answer_has_its_http_status() -> None:
    assert {answer: answer.status for answer in CancelAnswer} == {
        CancelAnswer.CANCELED: 200,
        CancelAnswer.REQUESTED: 202,
        CancelAnswer.ALREADY_TERMINAL: 409,
        CancelAnswer.TOO_LATE: 409,
        CancelAnswer.UNKNOWN: 409,
        CancelAnswer.MISSING: 404,
        CancelAnswer.UNAVAILABLE: 503,
    }


def test_nothing_is_kept_of_decided_requests() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    for n in range(1, 4):
        call = x.begin(alice, request(n, n), until="working")
        x.send(alice, cancel(call))
        post(x, call, n)
        x.send(bob, not_cancelled(call) if n == 1 else cancelled(call))
        if n == 1:
            post(x, call, 10)
            x.wait(10_000)
    assert x.hub._cancellation._askers._asked == {}
    assert x.hub._cancellation._askers._call_of == {}
