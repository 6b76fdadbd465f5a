"""Loss and return of either side of a sync call."""

import pytest

from ringline.protocol.frames import CallState
from ringline.relay.effects import Close, Retire, Send
from ringline_testing.exchange import (
    Exchange,
    accepted,
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

# --- the listener is lost


def test_a_lost_instance_has_fifteen_seconds_to_return_and_is_offered_its_calls_again() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    first, second = x.begin(alice, request(1, 1), until="working"), x.begin(alice, request(2, 2))
    assert x.lose(bob) == []
    assert x.wait(14_999) == []
    bob, effects = x.join()
    assert effects == [
        Send(bob, incoming(first, request(1, 1))),
        Send(bob, incoming(second, request(2, 2))),
    ]
    assert x.wait(1) == []
    # It re-states what is true: what the caller knows already is not repeated.
    assert x.send(bob, accepted(first)) == []
    assert x.send(bob, started(first)) == []
    assert x.send(bob, outcome(first)) == [Send(alice, outcome(first)), Retire(first)]
    assert x.send(bob, started(second)) == [Send(alice, status(second, request(2, 2), "working"))]


@pytest.mark.parametrize(
    ("until", "state"),
    [
        ("ringing", "expired"),
        ("answered", "indeterminate_execution"),
        ("working", "indeterminate_execution"),
    ],
)
def test_a_call_whose_instance_does_not_return_times_out(until: CallState, state: str) -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until=until)
    x.lose(bob)
    assert x.wait(14_999) == []
    assert x.wait(1) == [Send(alice, call_error("timeout", request(), call_id=call)), Retire(call)]
    assert x.state(call) == state
    # Back too late, it is offered nothing, and told to stop if it goes on.
    bob, effects = x.join()
    assert effects == []
    assert x.send(bob, outcome(call)) == [Send(bob, cancel(call))]


def test_a_call_is_never_given_to_another_instance() -> None:
    x = Exchange()
    bob, alice = x.listener("bob", "one"), x.caller()
    call = x.begin(alice, request(), listener=bob)
    x.lose(bob)
    other, effects = x.join("bob", "two")
    assert effects == []
    assert x.send(other, accepted(call)) == [Send(other, cancel(call))]
    assert x.send(other, outcome(call, "failed")) == [Send(other, cancel(call))]
    stranger, effects = x.join("eve", "one")
    assert effects == []
    assert x.send(stranger, accepted(call)) == [Send(stranger, cancel(call))]
    assert x.state(call) == "ringing"
    assert x.wait(15_000) == [Send(alice, call_error("timeout", request(), call_id=call)), Retire(call)]


def test_a_second_connection_of_an_instance_replaces_the_first_and_takes_its_calls() -> None:
    x = Exchange()
    first, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    second, effects = x.join()
    assert effects == [Close(first, 4000, "replaced"), Send(second, incoming(call, request()))]
    # What still arrives on the first is not read.
    assert x.send(first, outcome(call)) == []
    assert x.send(second, outcome(call)) == [Send(alice, outcome(call)), Retire(call)]


def test_a_late_close_of_a_replaced_connection_changes_nothing() -> None:
    x = Exchange()
    first, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    second, _ = x.join()
    x.wait(1_000)
    assert x.lose(first) == []
    # No grace runs: the connection that now holds the call is there.
    assert x.wait(100_000) == []
    assert x.send(second, outcome(call)) == [Send(alice, outcome(call)), Retire(call)]


def test_the_grace_starts_when_the_connection_that_now_holds_the_call_is_gone() -> None:
    x = Exchange()
    first, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.lose(first)
    x.wait(10_000)
    second, _ = x.join()
    x.wait(10_000)
    x.lose(second)
    assert x.wait(14_999) == []
    assert len(x.wait(1)) == 2
    assert x.state(call) == "indeterminate_execution"


def test_a_returned_instance_keeps_the_bounds_of_its_calls() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    x.wait(20_000)
    x.lose(bob)
    x.wait(5_000)
    bob, _ = x.join()
    assert x.wait(4_999) == []
    assert x.wait(1) == [
        Send(bob, cancel(call)),
        Send(alice, call_error("timeout", request(), call_id=call)),
        Retire(call),
    ]


def test_the_ring_bound_runs_while_the_instance_is_away() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    x.wait(20_000)
    x.lose(bob)
    assert x.wait(10_000) == [Send(alice, call_error("timeout", request(), call_id=call)), Retire(call)]
    assert x.wait(100_000) == []


def test_other_instances_calls_are_untouched_by_a_loss() -> None:
    x = Exchange()
    one, two = x.listener("bob", "one"), x.listener("bob", "two")
    alice = x.caller()
    calls = [x.begin(alice, request(n, n), until="working") for n in (1, 2)]
    x.lose(one)
    effects = x.wait(15_000)
    assert [e for e in effects if isinstance(e, Retire)] == [Retire(calls[0])]
    assert x.send(two, outcome(calls[1])) == [Send(alice, outcome(calls[1])), Retire(calls[1])]


def test_an_instance_that_is_away_gets_no_new_calls() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    x.begin(alice, request())
    x.lose(bob)
    assert x.send(alice, request(2, 2)) == [Send(alice, call_error("offline", request(2, 2)))]


def test_a_new_process_of_the_same_instance_is_offered_its_calls_too() -> None:
    x = Exchange()
    bob, alice = x.listener(boot="first"), x.caller()
    call = x.begin(alice, request(), until="working")
    x.lose(bob)
    bob, effects = x.join(boot="second")
    assert effects == [Send(bob, incoming(call, request()))]
    end = outcome(call, "failed", "indeterminate_execution")
    assert x.send(bob, end) == [Send(alice, end), Retire(call)]


def test_what_was_offered_again_is_offered_at_every_return() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request())
    for _ in range(3):
        x.lose(bob)
        bob, effects = x.join()
        assert effects == [Send(bob, incoming(call, request()))]


def test_a_returned_instance_may_have_another_capacity() -> None:
    x = Exchange({"CALLER_PLACES_PERCENT": 0})
    bob, alice = x.listener(capacity=3), x.caller()
    calls = [x.begin(alice, request(n, n)) for n in (1, 2, 3)]
    x.lose(bob)
    bob, effects = x.join(capacity=1)
    assert len(effects) == 3
    assert x.send(alice, request(4, 4)) == [Send(alice, call_error("busy", request(4, 4)))]
    for call in calls:
        x.send(bob, outcome(call, "failed"))
    assert len(x.send(alice, request(4, 4))) == 2
    assert x.send(alice, request(5, 5)) == [Send(alice, call_error("busy", request(5, 5)))]


# --- the caller is lost


def test_a_call_with_a_message_id_is_held_for_thirty_seconds_and_then_cancelled() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    assert x.lose(alice) == []
    assert x.wait(29_999) == []
    assert x.wait(1) == [Send(bob, cancel(call))]
    assert x.state(call) == "started"
    assert x.send(bob, cancelled(call)) == [Retire(call)]
    assert x.state(call) == "canceled"


def test_a_call_without_a_message_id_is_cancelled_at_once() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(1, None), until="working")
    assert x.lose(alice) == [Send(bob, cancel(call))]
    assert x.send(bob, cancelled(call)) == [Retire(call)]


def test_a_caller_that_returns_in_time_keeps_its_call() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.lose(alice)
    x.wait(29_999)
    alice = x.caller()
    assert x.send(alice, request()) == [Send(alice, status(call, request(), "working"))]
    assert x.wait(60_000) == []
    assert x.send(bob, outcome(call)) == [Send(alice, outcome(call)), Retire(call)]


def test_each_loss_begins_a_hold_of_its_own() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.lose(alice)
    x.wait(20_000)
    alice = x.caller()
    x.send(alice, request())
    x.wait(5_000)
    x.lose(alice)
    assert x.wait(29_999) == []
    assert x.wait(1) == [Send(bob, cancel(call))]


def test_a_hold_begins_when_the_last_attached_connection_is_gone() -> None:
    x = Exchange()
    bob, first = x.listener(), x.caller()
    call = x.begin(first, request(), until="working")
    second = x.caller()
    x.send(second, request())
    x.lose(first)
    assert x.wait(60_000) == []
    x.lose(second)
    assert x.wait(29_999) == []
    assert x.wait(1) == [Send(bob, cancel(call))]


def test_a_late_close_of_a_callers_old_connection_changes_nothing() -> None:
    x = Exchange()
    bob, old = x.listener(), x.caller()
    call = x.begin(old, request(), until="working")
    new = x.caller()
    x.send(new, request())
    x.wait(500)
    assert x.lose(old) == []
    assert x.wait(60_000) == []
    assert x.send(bob, outcome(call)) == [Send(new, outcome(call)), Retire(call)]


def test_a_connection_is_attached_only_to_the_calls_it_asked_for() -> None:
    x = Exchange()
    bob, first, second = x.listener(), x.caller(), x.caller()
    call = x.begin(first, request(1, 1), until="working")
    x.begin(second, request(2, 2), until="working")
    assert x.send(bob, outcome(call)) == [Send(first, outcome(call)), Retire(call)]
    other = x.begin(first, request(3, 3), until="working")
    x.lose(first)
    assert x.wait(30_000) == [Send(bob, cancel(other))]


def test_an_outcome_that_comes_while_nobody_is_attached_is_kept_for_the_return() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.lose(alice)
    assert x.send(bob, outcome(call)) == [Retire(call)]
    assert x.wait(30_000) == []
    record = x.hub.record("bob", call, x.now)
    assert record is not None
    assert not record.cancel_requested  # the hold ended with the call
    alice = x.caller()
    assert x.send(alice, request()) == [
        Send(alice, status(call, request(), "working")),
        Send(alice, outcome(call)),
    ]


def test_a_caller_that_returns_after_the_hold_still_learns_the_end() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.lose(alice)
    x.wait(30_000)
    alice = x.caller()
    assert x.send(alice, request()) == [Send(alice, status(call, request(), "working"))]
    assert x.send(bob, cancelled(call)) == [
        Send(alice, call_error("canceled", request(), call_id=call)),
        Retire(call),
    ]


def test_an_abandoned_call_that_cannot_be_stopped_goes_on_to_its_end() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.lose(alice)
    x.wait(30_000)
    assert x.send(bob, not_cancelled(call, "too_late")) == []
    alice = x.caller()
    x.send(alice, request())
    assert x.send(bob, outcome(call)) == [Send(alice, outcome(call)), Retire(call)]


def test_an_abandoned_call_whose_listener_stays_silent_ends_by_its_bound() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.lose(alice)
    x.wait(30_000)
    # It was asked to stop already, so it is not asked again.
    assert x.wait(330_000) == [Retire(call)]
    assert (bob, x.state(call)) == (1, "indeterminate_execution")


# --- both are lost


def test_a_hold_that_ends_while_the_listener_is_away_is_told_right_behind_the_offer() -> None:
    x = Exchange({"HOLD_MS": 5_000})
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.lose(alice)
    x.wait(1_000)
    x.lose(bob)
    assert x.wait(5_000) == []
    bob, effects = x.join()
    assert effects == [Send(bob, incoming(call, request())), Send(bob, cancel(call))]
    assert x.send(bob, cancelled(call)) == [Retire(call)]


def test_both_sides_may_return() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="answered")
    x.lose(alice)
    x.lose(bob)
    x.wait(10_000)
    bob, offered = x.join()
    alice = x.caller()
    assert offered == [Send(bob, incoming(call, request()))]
    assert x.send(alice, request()) == [Send(alice, status(call, request(), "answered"))]
    assert x.send(bob, started(call)) == [Send(alice, status(call, request(), "working"))]


def test_a_call_that_ends_while_its_instance_is_away_leaves_no_trace_of_it() -> None:
    x = Exchange({"CALL_BOUND_MS": 1_000, "GRACE_MS": 15_000})
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.lose(bob)
    assert x.wait(1_000)[-1] == Retire(call)
    x.lose(alice)
    assert x.wait(600_000) == []
    assert x.hub.deadline() is None
    assert len(x.hub._presence._desks) == 0


def test_a_listener_that_has_no_calls_is_forgotten_at_once() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    x.finish(alice, request())
    x.lose(bob)
    assert len(x.hub._presence._desks) == 0


def test_calls_of_a_lost_handle_do_not_reach_a_connection_of_another() -> None:
    x = Exchange()
    bob, alice = x.listener(), x.caller()
    call = x.begin(alice, request(), until="working")
    x.lose(bob)
    eve, effects = x.join("eve", "one")
    assert effects == []
    bob, effects = x.join()
    assert sent_to(bob, effects) == [incoming(call, request())]
    assert sent_to(eve, effects) == []
