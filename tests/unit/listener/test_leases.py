"""Durable calls at the listener: leases, grants and rebinding."""

import pytest

from ringline.listener.effects import Broken
from ringline.protocol.limits import RECORD_LIFE_MS
from ringline_testing.journals import NOW, Shelf
from ringline_testing.talk import Talk, lease

L1, L2, L3 = lease(1), lease(2), lease(3)


@pytest.fixture
def talk(shelf: Shelf) -> Talk:
    """A listener with two places."""
    return Talk(shelf)


def state(talk: Talk, call_id: str = "call-1") -> str:
    entry = talk.shelf.journal().find(call_id)
    return "unknown" if entry is None else entry.state.value


def begun(talk: Talk) -> None:
    """Have a durable call at work under the first lease."""
    assert talk.call(lease=L1) == ["accepted call-1 under 1", "started call-1 under 1"]
    assert talk.grant(lease=L1) == ["run call-1"]


def test_the_handler_begins_only_when_the_start_was_granted(talk: Talk) -> None:
    assert talk.call(lease=L1) == ["accepted call-1 under 1", "started call-1 under 1"]
    assert state(talk) == "taken"
    assert talk.grant(lease=L1) == ["run call-1"]
    assert state(talk) == "begun"
    assert talk.done() == ["outcome call-1 reply under 1"]


def test_a_grant_counts_under_the_current_lease_and_once(talk: Talk) -> None:
    talk.call(lease=L1)
    assert talk.grant(lease=L2) == []
    assert talk.grant() == []
    assert talk.grant(lease=L1) == ["run call-1"]
    assert talk.grant(lease=L1) == []


def test_it_asks_only_when_a_place_is_free(talk: Talk) -> None:
    talk.call("call-1", message=1, lease=L1)
    talk.call("call-2", message=2, lease=L2)
    # Asking takes a place, or more would be granted than can run.
    assert talk.call("call-3", message=3, lease=L3) == ["accepted call-3 under 3"]
    talk.grant("call-1", lease=L1)
    assert talk.done("call-1") == ["outcome call-1 reply under 1", "started call-3 under 3"]


class TestLoss:
    """RL-DURABLE-037 to RL-DURABLE-041."""

    def test_work_that_waits_for_its_grant_is_dropped(self, talk: Talk) -> None:
        talk.call(lease=L1)
        talk.reconnect()
        # The answer of the old connection means nothing any more.
        assert talk.grant(lease=L1) == []
        assert state(talk) == "taken"
        assert talk.offer(lease=L2) == ["accepted call-1 under 2", "started call-1 under 2"]
        assert talk.grant(lease=L1) == []
        assert talk.grant(lease=L2) == ["run call-1"]

    def test_begun_work_goes_on_and_its_result_waits_for_a_lease(self, talk: Talk) -> None:
        begun(talk)
        talk.reconnect()
        assert talk.done() == []
        assert state(talk) == "finished"
        assert talk.offer(lease=L2) == ["outcome call-1 reply under 2"]

    def test_begun_work_that_is_alive_says_so_under_the_new_lease(self, talk: Talk) -> None:
        begun(talk)
        talk.reconnect()
        assert talk.offer(lease=L2) == ["accepted call-1 under 2", "started call-1 under 2"]
        assert talk.grant(lease=L2) == []
        assert talk.done() == ["outcome call-1 reply under 2"]

    def test_begun_work_of_a_process_that_is_gone_is_indeterminate(self, talk: Talk) -> None:
        begun(talk)
        talk.crash()
        assert talk.offer(lease=L2) == ["outcome call-1 agent_error ? under 2"]

    def test_taken_work_of_a_process_that_is_gone_asks_again(self, talk: Talk) -> None:
        talk.call(lease=L1)
        talk.crash()
        assert talk.offer(lease=L2) == ["accepted call-1 under 2", "started call-1 under 2"]
        assert talk.grant(lease=L2) == ["run call-1"]

    def test_a_finished_call_is_told_by_the_next_process(self, talk: Talk) -> None:
        begun(talk)
        talk.session.disconnected()
        talk.done()
        talk.crash()
        assert talk.offer(lease=L2) == ["outcome call-1 reply under 2"]

    def test_a_durable_outcome_is_kept_as_long_as_it_may_be_asked_for(self, talk: Talk) -> None:
        begun(talk)
        talk.done()
        talk.later(RECORD_LIFE_MS + 1)
        assert talk.offer(lease=L2) == ["outcome call-1 reply under 2"]

    def test_a_cancelled_call_is_confirmed_under_whatever_lease(self, talk: Talk) -> None:
        begun(talk)
        assert talk.cancel(lease=L1) == ["stop call-1"]
        talk.reconnect()
        assert talk.broke(stopped=True) == []
        assert talk.offer(lease=L2) == ["cancelled call-1 running under 2"]
        assert talk.cancel(lease=L2) == ["cancelled call-1 running under 2"]


class TestRefusedLease:
    """RL-DURABLE-024: "this lease is gone"."""

    def test_waiting_work_is_dropped_and_nothing_is_said(self, talk: Talk) -> None:
        talk.call(lease=L1)
        assert talk.refuse_lease(lease=L1) == []
        assert talk.session.idle
        assert state(talk) == "taken"
        assert talk.offer(lease=L2) == ["accepted call-1 under 2", "started call-1 under 2"]

    def test_begun_work_is_stopped_and_nothing_is_said(self, talk: Talk) -> None:
        begun(talk)
        assert talk.refuse_lease(lease=L1) == ["stop call-1"]
        assert talk.broke(stopped=True) == []
        assert talk.offer(lease=L2) == ["outcome call-1 agent_error ? under 2"]

    def test_a_refusal_that_crossed_the_next_lease_is_ignored(self, talk: Talk) -> None:
        begun(talk)
        talk.offer(lease=L2)
        assert talk.refuse_lease(lease=L1) == []
        assert talk.refuse_lease() == []
        assert talk.done() == ["outcome call-1 reply under 2"]

    def test_a_call_that_is_opened_meanwhile_takes_nothing(self, talk: Talk) -> None:
        talk.offer(lease=L1)
        assert talk.refuse_lease(lease=L1) == []
        assert talk.opened() == []
        assert state(talk) == "unknown"

    def test_its_place_is_given_to_the_next(self, talk: Talk) -> None:
        talk.call("call-1", message=1, lease=L1)
        talk.call("call-2", message=2, lease=L2)
        talk.call("call-3", message=3, lease=L3)
        assert talk.refuse_lease("call-1", lease=L1) == ["started call-3 under 3"]


class TestCancel:
    def test_while_it_waits_for_its_grant_it_is_pending(self, talk: Talk) -> None:
        talk.call(lease=L1)
        assert talk.cancel(lease=L1) == ["cancelled call-1 pending under 1"]
        # The grant was on its way: it starts nothing.
        assert talk.grant(lease=L1) == []
        assert talk.jobs == {}

    def test_right_behind_the_call(self, talk: Talk) -> None:
        talk.offer(lease=L1)
        talk.cancel(lease=L1)
        assert talk.opened() == ["accepted call-1 under 1", "cancelled call-1 pending under 1"]

    def test_an_unknown_call_is_answered_under_the_lease_that_was_asked_for(self, talk: Talk) -> None:
        assert talk.cancel("call-9", lease=L3) == ["not_cancelled call-9 unknown under 3"]


class TestJoining:
    """RL-DURABLE-043: a durable call that joins asks for a start of its own, which begins no work."""

    def test_it_joins_running_work(self, talk: Talk) -> None:
        begun(talk)
        assert talk.call("call-2", lease=L2) == ["accepted call-2 under 2", "started call-2 under 2"]
        assert talk.grant("call-2", lease=L2) == []
        assert talk.done("call-1") == ["outcome call-1 reply under 1", "outcome call-2 reply under 2"]
        assert len(talk.jobs) == 1

    def test_its_outcome_waits_for_its_grant(self, talk: Talk) -> None:
        begun(talk)
        talk.call("call-2", lease=L2)
        assert talk.done("call-1") == ["outcome call-1 reply under 1"]
        assert talk.grant("call-2", lease=L2) == ["outcome call-2 reply under 2"]
        assert talk.grant("call-2", lease=L2) == []

    def test_it_joins_a_result(self, talk: Talk) -> None:
        begun(talk)
        talk.done("call-1")
        assert talk.call("call-2", lease=L2) == ["accepted call-2 under 2", "started call-2 under 2"]
        assert talk.grant("call-2", lease=L2) == ["outcome call-2 reply under 2"]
        # Once granted, it is told at once when it is offered again, also by the next process.
        talk.crash()
        assert talk.offer("call-2", lease=L3) == ["outcome call-2 reply under 3"]

    def test_a_failure_needs_no_grant(self, talk: Talk) -> None:
        begun(talk)
        talk.call("call-2", lease=L2)
        words = talk.done("call-1", Broken())
        assert words == ["outcome call-1 agent_error under 1", "outcome call-2 agent_error under 2"]

    def test_cancelled_work_answers_it_with_a_failure(self, talk: Talk) -> None:
        begun(talk)
        talk.cancel(lease=L1)
        talk.broke(stopped=True)
        words = talk.call("call-2", lease=L2)
        assert words == ["accepted call-2 under 2", "outcome call-2 agent_error under 2"]

    def test_a_sync_call_that_joins_starts_what_waits_for_a_grant(self, talk: Talk) -> None:
        talk.call("call-1", lease=L1)
        assert talk.call("call-2") == ["accepted call-2", "started call-2", "run call-1"]
        assert talk.grant("call-1", lease=L1) == []
        assert talk.done("call-1") == ["outcome call-1 reply under 1", "outcome call-2 reply"]

    def test_a_sync_call_that_joins_and_is_cancelled_starts_nothing(self, talk: Talk) -> None:
        talk.call("call-1", lease=L1)
        talk.offer("call-2")
        talk.cancel("call-2")
        assert talk.opened("call-2") == [
            "accepted call-2",
            "outcome call-1 agent_error under 1",
            "cancelled call-2 pending",
        ]
        assert talk.jobs == {}

    def test_a_finished_call_without_a_grant_can_still_clear_a_cancel(self, talk: Talk) -> None:
        begun(talk)
        talk.done("call-1")
        talk.call("call-2", lease=L2)
        # No grant comes while a cancel is requested: it is cleared, and the start is asked for again.
        words = talk.cancel("call-2", lease=L2)
        assert words == ["not_cancelled call-2 already_terminal under 2", "started call-2 under 2"]
        assert talk.grant("call-2", lease=L2) == ["outcome call-2 reply under 2"]


class TestTime:
    def test_work_is_stopped_at_execute_by(self, talk: Talk) -> None:
        talk.call(lease=L1, execute_by=NOW + 60_000)
        talk.grant(lease=L1)
        assert talk.later(59_999) == []
        assert talk.later(1) == ["stop call-1"]
        assert talk.broke(stopped=True) == ["outcome call-1 timeout under 1"]

    def test_work_that_has_not_begun_by_then_is_dropped(self, talk: Talk) -> None:
        talk.call(lease=L1, execute_by=NOW + 60_000)
        assert talk.later(60_000) == []
        assert talk.session.idle
        assert state(talk) == "taken"

    def test_by_the_listeners_own_clock_no_grant_starts_it_at_execute_by(self, talk: Talk) -> None:
        talk.call(lease=L1, execute_by=NOW + 60_000)
        # The grant comes before the timer has fired, from a relay whose clock is behind.
        talk.now = talk.now.later(60_000)
        assert talk.grant(lease=L1) == []
        assert state(talk) == "taken"
        assert talk.later(0) == []
        assert talk.session.idle

    def test_by_the_listeners_own_clock_a_place_that_becomes_free_is_not_asked_for(self, talk: Talk) -> None:
        talk.call("call-1", message=1, lease=L1)
        talk.call("call-2", message=2, lease=L2)
        talk.call("call-3", message=3, lease=L3, execute_by=NOW + 60_000)
        talk.grant("call-1", lease=L1)
        talk.now = talk.now.later(60_000)
        assert talk.done("call-1") == ["outcome call-1 reply under 1"]


class TestTheEnd:
    def test_a_draining_listener_leaves_durable_calls_alone(self, talk: Talk) -> None:
        talk.session.drain()
        assert talk.offer(lease=L1) == []
        assert state(talk) == "unknown"

    def test_a_taken_call_is_left_alone_too(self, talk: Talk) -> None:
        talk.call(lease=L1)
        talk.reconnect()
        talk.session.drain()
        assert talk.offer(lease=L2) == []
        assert state(talk) == "taken"

    def test_stopping_now_puts_back_what_has_not_begun(self, talk: Talk) -> None:
        talk.call(lease=L1)
        assert talk.stop() == []
        assert talk.session.idle
        assert state(talk) == "taken"
