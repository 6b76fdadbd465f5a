"""What a listener does with each frame, as conversations."""

from typing import Any

import pytest
from msgspec import UNSET

from ringline.listener.effects import Broken, Produced, Refusal
from ringline.listener.entries import EntryState
from ringline.listener.floor import PATIENCE_MS
from ringline.listener.journal import JournalBounds
from ringline.protocol.bodies import Request, link
from ringline.protocol.instant import Instant
from ringline.protocol.limits import RECORD_LIFE_MS, REPLY_BYTES, WORK_BOUND_MAX_MS
from ringline_testing.journals import BOB, NOW, Shelf
from ringline_testing.talk import Talk, Task, lease, message_id


@pytest.fixture
def talk(shelf: Shelf) -> Talk:
    """A listener with two places."""
    return Talk(shelf)


def state(talk: Talk, call_id: str = "call-1") -> str:
    entry = talk.shelf.journal().find(call_id)
    return "unknown" if entry is None else entry.state.value


class TestTheWholeWay:
    def test_a_call_is_opened_taken_begun_and_answered(self, talk: Talk) -> None:
        assert talk.offer() == ["open call-1"]
        assert talk.opened() == ["accepted call-1", "started call-1", "run call-1"]
        assert state(talk) == "begun"
        assert talk.jobs["call-1"].request.message == "hi"
        assert talk.done() == ["outcome call-1 reply"]
        assert state(talk) == "finished"
        reply = talk.outcomes["call-1"].reply
        assert reply is not UNSET
        assert (reply.text, reply.task, reply.turn) == ("done", "default", 1)
        assert talk.session.idle

    def test_a_call_that_does_not_open_is_rejected_in_the_clear_and_leaves_nothing(self, talk: Talk) -> None:
        talk.offer()
        assert talk.refused() == ["rejected call-1"]
        assert state(talk) == "unknown"
        talk.crash()
        assert talk.offer() == ["open call-1"]

    def test_failed_work_is_told_as_a_failure(self, talk: Talk) -> None:
        talk.call()
        words = talk.done(result=Broken("agent_error", "no such file", local="/var/lib/secret"))
        assert words == ["outcome call-1 agent_error"]
        failure = talk.outcomes["call-1"].failure
        assert failure is not UNSET
        assert failure.detail == "no such file"

    def test_more_calls_than_places_wait_their_turn(self, talk: Talk) -> None:
        for number in (1, 2):
            talk.call(f"call-{number}", message=number)
        assert talk.call("call-3", message=3) == ["accepted call-3"]
        assert talk.call("call-4", message=4) == ["accepted call-4"]
        assert talk.done("call-2") == ["outcome call-2 reply", "started call-3", "run call-3"]
        assert talk.done("call-1") == ["outcome call-1 reply", "started call-4", "run call-4"]

    def test_a_call_without_a_message_id_is_a_call(self, talk: Talk) -> None:
        talk.call(message=None)
        assert talk.done() == ["outcome call-1 reply"]

    def test_an_error_of_the_relay_is_noted_and_nothing_else(self, talk: Talk) -> None:
        from ringline.protocol.frames import CallError

        error = CallError(origin="relay", code="protocol_error")
        assert talk.words(talk.session.received(error, talk.now)) == []
        assert "protocol_error" in talk.notes[0]

    def test_a_grant_means_nothing_to_a_sync_call(self, talk: Talk) -> None:
        talk.call()
        assert talk.grant() == []
        assert talk.grant("call-9") == []


class TestRefusals:
    """RL-ENVELOPE-035: authenticated refusals are sealed, from ``accepted``, and start nothing."""

    def test_policy_is_applied_to_what_was_opened(self, shelf: Shelf) -> None:
        talk = Talk(
            shelf, judge=lambda request, handle, call_id: Refusal("task_unknown", offered=("review",))
        )
        assert talk.call() == ["accepted call-1", "outcome call-1 task_unknown"]
        failure = talk.outcomes["call-1"].failure
        assert failure is not UNSET
        assert failure.offered == ("review",)

    def test_policy_is_asked_with_caller_and_request(self, shelf: Shelf) -> None:
        asked: list[tuple[str, str]] = []

        def judge(request: Request, handle: str, call_id: str) -> Refusal:
            asked.append((handle, request.message))
            return Refusal("blocked")

        assert Talk(shelf, judge=judge).call() == ["accepted call-1", "outcome call-1 blocked"]
        assert asked == [("alice", "hi")]

    def test_a_message_over_its_limit_is_refused_under_a_seal(self, talk: Talk) -> None:
        talk.offer()
        assert talk.opened(text="x" * 64_001) == ["accepted call-1", "outcome call-1 message_too_large"]
        assert state(talk) == "unknown"

    @pytest.mark.parametrize("body", [b"", b"{}", b'{"message":"a","message":"b"}', b'{"message":"a","x":1}'])
    def test_json_that_breaks_its_rules_is_refused_under_a_seal(self, talk: Talk, body: bytes) -> None:
        talk.offer()
        assert talk.sealed("call-1", body) == ["accepted call-1", "outcome call-1 agent_error"]
        assert state(talk) == "unknown"

    def test_a_caller_over_his_share_is_told_busy(self, shelf: Shelf) -> None:
        shelf.bounds = JournalBounds(entries=4)
        talk = Talk(shelf)
        talk.call()
        assert talk.call("call-2", message=2) == ["accepted call-2", "outcome call-2 busy"]
        assert state(talk, "call-2") == "unknown"

    def test_without_a_journal_what_may_be_a_replay_is_refused(self, shelf: Shelf) -> None:
        # RL-IDEM-028: a replay of something that ran just before the restart cannot pass.
        boot = NOW - 60_000
        talk = Talk(shelf, not_before=boot + 120_000)
        words = talk.call(iat=boot + 120_000)
        assert words == ["accepted call-1", "outcome call-1 busy"]
        assert talk.call("call-2", iat=boot + 120_001)[-1] == "run call-2"

    def test_a_refused_message_gets_the_same_answer_again(self, shelf: Shelf) -> None:
        talk = Talk(shelf, judge=lambda request, handle, call_id: Refusal("blocked"))
        talk.call()
        talk.reconnect()
        assert talk.offer() == ["outcome call-1 blocked"]


class TestReplay:
    """RL-IDEM-016 to RL-IDEM-020."""

    def test_the_same_call_again_is_answered_from_the_journal(self, talk: Talk) -> None:
        talk.call()
        talk.reconnect()
        assert talk.offer() == ["accepted call-1", "started call-1"]
        assert talk.done() == ["outcome call-1 reply"]
        talk.reconnect()
        assert talk.offer() == ["started call-1", "outcome call-1 reply"]

    def test_a_reply_is_told_with_its_start_which_may_have_been_lost(self, talk: Talk) -> None:
        # A relay takes no reply from a call that has not started, and it may have heard nothing so far.
        talk.call()
        talk.session.disconnected()
        assert talk.done() == []
        talk.session.connected()
        assert talk.offer() == ["started call-1", "outcome call-1 reply"]

    def test_it_is_answered_whatever_has_run_out_meanwhile(self, talk: Talk) -> None:
        talk.call(exp=NOW + 1)
        talk.done()
        talk.later(100_000)
        assert talk.offer(exp=NOW + 1) == ["started call-1", "outcome call-1 reply"]

    @pytest.mark.parametrize("lie", [{"caller": "mallory"}, {"message": 2}, {"message": None}])
    def test_a_known_call_id_with_other_members_is_rejected(self, talk: Talk, lie: dict[str, Any]) -> None:
        talk.call()
        assert talk.offer(**lie) == ["rejected call-1"]
        # That word has ended the call at the relay; the work itself is not touched by it.
        assert talk.done() == []
        assert state(talk) == "finished"

    def test_the_same_payload_under_another_call_joins_the_work(self, talk: Talk) -> None:
        talk.call("call-1")
        assert talk.call("call-2", say={"key": 1}) == ["accepted call-2", "started call-2"]
        assert talk.done("call-1") == ["outcome call-1 reply", "outcome call-2 reply"]
        assert len(talk.jobs) == 1
        assert talk.json["call-1"] == talk.json["call-2"]

    def test_it_joins_what_waits(self, talk: Talk) -> None:
        talk.capacity = 1
        talk.restart()
        talk.call("call-0", message=7)
        assert talk.call("call-1") == ["accepted call-1"]
        assert talk.call("call-2") == ["accepted call-2"]
        words = talk.done("call-0")
        assert words == ["outcome call-0 reply", "started call-1", "started call-2", "run call-1"]

    def test_it_joins_the_result(self, talk: Talk) -> None:
        talk.call("call-1")
        talk.done("call-1")
        assert talk.call("call-2") == ["accepted call-2", "started call-2", "outcome call-2 reply"]
        assert talk.json["call-1"] == talk.json["call-2"]

    def test_another_payload_under_the_same_key_is_a_conflict(self, talk: Talk) -> None:
        talk.call("call-1", "one")
        words = talk.call("call-2", "other")
        assert words == ["accepted call-2", "outcome call-2 duplicate_conflict"]
        assert talk.done("call-1") == ["outcome call-1 reply"]

    def test_another_caller_may_use_the_same_message_id(self, talk: Talk) -> None:
        talk.call("call-1", "one")
        assert talk.call("call-2", "other", say={"ipk": BOB}, caller="bob")[-1] == "run call-2"

    def test_an_outcome_that_is_not_kept_any_more_is_told_as_lost(self, talk: Talk) -> None:
        talk.call()
        talk.done()
        talk.later(RECORD_LIFE_MS)
        assert talk.offer() == ["outcome call-1 agent_error ?"]
        assert talk.call("call-2") == ["accepted call-2", "outcome call-2 agent_error ?"]

    def test_two_calls_being_opened_at_once_share_the_work(self, talk: Talk) -> None:
        talk.offer("call-1")
        talk.offer("call-2")
        assert talk.opened("call-2")[-1] == "run call-2"
        assert talk.opened("call-1", key=1) == ["accepted call-1", "started call-1"]
        assert sorted(talk.done("call-2")) == ["outcome call-1 reply", "outcome call-2 reply"]


class TestCrash:
    """RL-DURABLE-041: what a process leaves behind when it is killed."""

    def test_while_opening_nothing_was_taken(self, talk: Talk) -> None:
        talk.offer()
        talk.crash()
        assert talk.offer() == ["open call-1"]
        assert talk.opened()[-1] == "run call-1"

    def test_a_call_that_kills_every_process_is_refused_unopened(self, talk: Talk) -> None:
        for _ in range(3):
            assert talk.offer() == ["open call-1"]
            talk.crash()
        assert talk.offer() == ["rejected call-1"]
        assert talk.call("call-2", message=2)[-1] == "run call-2"

    def test_a_call_that_could_not_be_checked_is_refused_and_a_durable_one_is_left_to_come_again(
        self, talk: Talk
    ) -> None:
        assert talk.offer() == ["open call-1"]
        assert talk.unchecked() == ["rejected call-1"]
        assert talk.offer("call-2", message=2, lease=lease(1)) == ["open call-2"]
        assert talk.unchecked("call-2") == []
        # However often that happens, no process has died over it.
        for number in range(2, 6):
            assert talk.offer("call-2", message=2, lease=lease(number)) == ["open call-2"]
            assert talk.unchecked("call-2") == []
        talk.offer("call-2", message=2, lease=lease(9))
        assert talk.opened("call-2") == ["accepted call-2 under 9", "started call-2 under 9"]

    def test_while_taken_it_may_be_begun_by_the_next_process(self, talk: Talk) -> None:
        talk.capacity = 0
        talk.restart()
        assert talk.call(text="first") == ["accepted call-1"]
        talk.capacity = 2
        talk.crash()
        assert talk.offer() == ["accepted call-1", "started call-1", "run call-1"]
        assert talk.jobs["call-1"].request.message == "first"

    def test_a_taken_call_over_which_three_processes_died_fails_under_a_seal(self, talk: Talk) -> None:
        talk.capacity = 0
        talk.restart()
        talk.call()
        for _ in range(2):
            talk.crash()
            assert talk.offer() == ["accepted call-1"]
        talk.crash()
        assert talk.offer() == ["accepted call-1", "outcome call-1 agent_error"]

    def test_orderly_ends_are_not_held_against_a_call(self, talk: Talk) -> None:
        talk.capacity = 0
        talk.restart()
        talk.call()
        for _ in range(5):
            talk.restart()
            assert talk.offer() == ["accepted call-1"]

    def test_begun_work_is_never_run_again(self, talk: Talk) -> None:
        talk.call()
        talk.crash()
        assert talk.offer() == ["outcome call-1 agent_error ?"]
        talk.crash()
        assert talk.offer() == ["outcome call-1 agent_error ?"]
        assert len(talk.jobs) == 1

    def test_a_second_call_of_begun_work_is_not_run_either(self, talk: Talk) -> None:
        talk.call("call-1")
        talk.crash()
        assert talk.call("call-2") == ["accepted call-2", "outcome call-2 agent_error ?"]

    def test_a_cancel_of_begun_work_is_not_claimed(self, talk: Talk) -> None:
        # A process group that is only presumed dead is begun, not cancelled.
        talk.call()
        talk.crash()
        assert talk.offer() == ["outcome call-1 agent_error ?"]
        assert talk.cancel() == ["not_cancelled call-1 already_terminal"]

    def test_finished_work_is_told_from_the_journal(self, talk: Talk) -> None:
        talk.call()
        talk.done()
        told = talk.json["call-1"]
        talk.crash()
        assert talk.offer() == ["started call-1", "outcome call-1 reply"]
        assert talk.json["call-1"] == told

    def test_a_confirmed_cancellation_stays_one(self, talk: Talk) -> None:
        talk.call()
        talk.cancel()
        assert talk.broke(stopped=True) == ["cancelled call-1 running"]
        talk.crash()
        assert talk.offer() == ["cancelled call-1 running"]
        assert talk.cancel() == ["cancelled call-1 running"]


class TestConnection:
    """RL-SYNC-025, RL-DURABLE-040: what is said after a loss is what the relay asks for again."""

    def test_nothing_is_sent_for_a_call_that_was_not_offered_again(self, talk: Talk) -> None:
        talk.call()
        talk.reconnect()
        assert talk.done() == []
        assert talk.offer() == ["started call-1", "outcome call-1 reply"]

    def test_waiting_work_is_dropped_and_taken_up_with_the_next_offer(self, talk: Talk) -> None:
        talk.call("call-1", message=1)
        talk.call("call-2", message=2)
        talk.call("call-3", "third", message=3)
        talk.reconnect()
        talk.done("call-1")
        assert "call-3" not in talk.jobs
        assert talk.offer("call-3", message=3) == ["accepted call-3", "started call-3", "run call-3"]
        assert talk.jobs["call-3"].request.message == "third"

    def test_an_opening_that_outlives_its_connection_takes_nothing(self, talk: Talk) -> None:
        talk.offer()
        talk.reconnect()
        assert talk.opened() == []
        assert state(talk) == "unknown"
        assert talk.offer() == ["open call-1"]

    def test_an_opening_is_used_when_the_call_is_offered_again_meanwhile(self, talk: Talk) -> None:
        talk.offer()
        talk.reconnect()
        assert talk.offer() == []
        assert talk.opened()[-1] == "run call-1"

    def test_a_repeated_offer_changes_nothing(self, talk: Talk) -> None:
        talk.call()
        assert talk.offer() == ["accepted call-1", "started call-1"]
        assert talk.offer() == ["accepted call-1", "started call-1"]
        assert talk.done() == ["outcome call-1 reply"]


class TestCancel:
    """RL-CANCEL-015 to RL-CANCEL-022."""

    def test_an_unknown_call(self, talk: Talk) -> None:
        assert talk.cancel("call-9") == ["not_cancelled call-9 unknown"]

    def test_right_behind_the_call_nothing_begins(self, talk: Talk) -> None:
        assert talk.offer() == ["open call-1"]
        assert talk.cancel() == []
        assert talk.opened() == ["accepted call-1", "cancelled call-1 pending"]
        assert talk.jobs == {}
        assert state(talk) == "cancelled"

    def test_right_behind_a_call_that_is_refused_the_refusal_is_told(self, talk: Talk) -> None:
        talk.offer()
        talk.cancel()
        assert talk.refused() == ["rejected call-1"]

    def test_right_behind_a_call_that_policy_refuses(self, shelf: Shelf) -> None:
        talk = Talk(shelf, judge=lambda request, handle, call_id: Refusal("blocked"))
        talk.offer()
        talk.cancel()
        assert talk.opened() == ["accepted call-1", "outcome call-1 blocked"]

    def test_waiting_work_is_removed(self, talk: Talk) -> None:
        for number in (1, 2, 3):
            talk.call(f"call-{number}", message=number)
        assert talk.cancel("call-3") == ["cancelled call-3 pending"]
        assert talk.done("call-1") == ["outcome call-1 reply"]

    def test_running_work_is_cancelled_only_when_it_was_seen_to_stop(self, talk: Talk) -> None:
        talk.call()
        assert talk.cancel() == ["stop call-1"]
        assert talk.cancel() == []
        assert state(talk) == "begun"
        assert talk.broke(stopped=True) == ["cancelled call-1 running"]
        assert state(talk) == "cancelled"

    def test_what_stopped_work_came_to_is_not_trusted(self, talk: Talk) -> None:
        talk.call()
        talk.cancel()
        assert talk.done(stopped=True) == ["cancelled call-1 running"]

    def test_work_that_ended_by_itself_wins(self, talk: Talk) -> None:
        talk.call()
        talk.cancel()
        assert talk.done(stopped=False) == ["outcome call-1 reply"]
        assert state(talk) == "finished"

    def test_work_that_does_not_stop_is_not_claimed_to_have(self, talk: Talk) -> None:
        talk.call()
        talk.cancel()
        assert talk.later(PATIENCE_MS - 1) == []
        assert talk.later(1) == ["not_cancelled call-1 too_late"]
        # A later cancel is a new request, and its outcome may still come.
        assert talk.cancel() == ["stop call-1"]
        assert talk.done() == ["outcome call-1 reply"]

    def test_after_too_late_the_end_is_what_the_work_says(self, talk: Talk) -> None:
        talk.call()
        talk.cancel()
        talk.later(PATIENCE_MS)
        assert talk.done(stopped=True) == ["outcome call-1 reply"]

    def test_a_plain_function_is_answered_for_when_it_returns(self, shelf: Shelf) -> None:
        talk = Talk(shelf, judge=lambda request, handle, call_id: Task(stoppable=False))
        talk.call()
        talk.cancel()
        assert talk.later(10 * PATIENCE_MS) == []
        assert talk.done(stopped=True) == ["cancelled call-1 running"]

    def test_finished_work_is_terminal(self, talk: Talk) -> None:
        talk.call()
        talk.done()
        assert talk.cancel() == ["not_cancelled call-1 already_terminal"]
        # The relay answers a late outcome by a cancel: no outcome may follow, or they would never end.
        assert talk.cancel() == ["not_cancelled call-1 already_terminal"]

    def test_the_cancellation_of_one_call_fails_those_that_joined(self, talk: Talk) -> None:
        talk.call("call-1")
        talk.call("call-2")
        talk.cancel("call-2")
        assert talk.broke("call-1", stopped=True) == [
            "outcome call-1 agent_error",
            "cancelled call-2 running",
        ]

    def test_both_may_ask(self, talk: Talk) -> None:
        talk.call("call-1")
        talk.call("call-2")
        assert talk.cancel("call-2") == ["stop call-1"]
        assert talk.cancel("call-1") == []
        words = talk.broke("call-1", stopped=True)
        assert words == ["cancelled call-1 running", "cancelled call-2 running"]

    def test_cancelled_work_answers_a_call_that_joins_it(self, talk: Talk) -> None:
        talk.call("call-1")
        talk.cancel("call-1")
        talk.broke("call-1", stopped=True)
        assert talk.call("call-2") == ["accepted call-2", "outcome call-2 agent_error"]
        assert talk.cancel("call-2") == ["not_cancelled call-2 already_terminal"]

    def test_a_call_that_joined_may_still_be_confirmed(self, talk: Talk) -> None:
        talk.call("call-1")
        talk.call("call-2")
        talk.cancel("call-1")
        talk.reconnect()
        talk.broke("call-1", stopped=True)
        # Nothing was told to call-2 on this connection, and its work has stopped.
        assert talk.cancel("call-2") == ["cancelled call-2 running"]
        talk.crash()
        assert talk.offer("call-2") == ["cancelled call-2 running"]

    def test_a_cancel_survives_the_loss_of_the_connection(self, talk: Talk) -> None:
        talk.call()
        talk.cancel()
        talk.reconnect()
        assert talk.broke(stopped=True) == []
        assert talk.offer() == ["cancelled call-1 running"]

    def test_a_taken_call_of_an_earlier_connection_is_removed(self, talk: Talk) -> None:
        talk.capacity = 0
        talk.restart()
        talk.call()
        talk.reconnect()
        assert talk.cancel() == ["cancelled call-1 pending"]
        assert talk.offer() == ["cancelled call-1 pending"]

    @pytest.mark.parametrize("begun", [False, True])
    def test_a_call_whose_message_was_brought_again_by_another(self, talk: Talk, begun: bool) -> None:
        talk.capacity = 0
        talk.restart()
        talk.call("call-1")
        talk.capacity = 1 if begun else 0
        talk.restart()
        talk.call("call-2")
        if not begun:
            words = talk.cancel("call-1")
            assert words == ["outcome call-2 agent_error", "cancelled call-1 pending"]
        else:
            assert talk.cancel("call-1") == ["stop call-2"]
            words = talk.broke("call-2", stopped=True)
            assert words == ["outcome call-2 agent_error", "cancelled call-1 running"]
        assert state(talk) == "cancelled"

    def test_an_outcome_that_was_not_told_yet_is_told_instead(self, talk: Talk) -> None:
        talk.call()
        talk.session.disconnected()
        talk.done()
        talk.session.connected()
        # The cancel and the offer are one behind the other; the offer is answered with the outcome.
        assert talk.offer() == ["started call-1", "outcome call-1 reply"]
        assert talk.cancel() == ["not_cancelled call-1 already_terminal"]


class TestBounds:
    """RL-SYNC-015, RL-SYNC-016: a slow agent is reported by the callee, sealed."""

    def test_work_beyond_its_bound_is_stopped_and_reported(self, talk: Talk) -> None:
        talk.call()
        assert talk.later(299_999) == []
        assert talk.later(1) == ["stop call-1"]
        assert talk.broke(stopped=True) == ["outcome call-1 timeout"]

    def test_work_that_ends_at_its_bound_by_itself_wins(self, talk: Talk) -> None:
        talk.call()
        talk.later(300_000)
        assert talk.done(stopped=False) == ["outcome call-1 reply"]

    def test_work_that_cannot_be_stopped_is_reported_as_indeterminate(self, talk: Talk) -> None:
        talk.capacity = 1
        talk.restart()
        talk.call()
        talk.later(300_000)
        assert talk.later(PATIENCE_MS) == ["outcome call-1 timeout ?"]
        # It keeps its place until it was seen to end, and what it comes to then is nobody's any more.
        assert talk.call("call-2", message=2) == ["accepted call-2"]
        assert talk.session.idle is False
        assert talk.done("call-1") == ["started call-2", "run call-2"]
        assert talk.offer("call-1") == ["outcome call-1 timeout ?"]

    def test_the_call_is_reported_350_s_after_it_came_in_however_long_it_waited(self, talk: Talk) -> None:
        talk.capacity = 1
        talk.restart()
        talk.call("call-1", message=1)
        talk.call("call-2", message=2)
        talk.later(200_000)
        assert talk.done("call-1")[-1] == "run call-2"
        assert talk.later(WORK_BOUND_MAX_MS - 200_000 - 1) == []
        assert talk.later(1) == ["stop call-2"]

    def test_a_call_that_never_got_a_place_is_told_busy(self, talk: Talk) -> None:
        talk.capacity = 0
        talk.restart()
        talk.call()
        talk.later(WORK_BOUND_MAX_MS - 1)
        assert talk.later(1) == ["outcome call-1 busy"]

    def test_a_cancel_while_it_is_stopped_for_its_bound(self, talk: Talk) -> None:
        talk.call()
        talk.later(300_000)
        assert talk.cancel() == []
        assert talk.broke(stopped=True) == ["cancelled call-1 running"]

    def test_a_bound_while_its_cancellation_is_awaited(self, shelf: Shelf) -> None:
        talk = Talk(shelf, judge=lambda request, handle, call_id: Task(stoppable=False))
        talk.call()
        talk.cancel()
        assert talk.later(300_000) == []
        assert talk.later(PATIENCE_MS) == ["outcome call-1 timeout ?"]

    def test_a_wall_clock_that_jumps_moves_no_bound(self, talk: Talk) -> None:
        talk.call()
        talk.now = Instant(talk.now.wall + 86_400_000, talk.now.mono)
        assert talk.later(1) == []
        talk.now = Instant(NOW - 86_400_000, talk.now.mono)
        assert talk.later(1) == []
        assert talk.done() == ["outcome call-1 reply"]


class TestOutcomes:
    """What does not fit or cannot be sent is found before anything is committed as the end."""

    @pytest.mark.parametrize(
        ("produced", "word"),
        [
            (Produced("x" * REPLY_BYTES), "reply"),
            (Produced("x" * (REPLY_BYTES + 1)), "message_too_large"),
            (Produced("é" * (REPLY_BYTES // 2) + "x"), "message_too_large"),
            (Produced("\x01" * REPLY_BYTES), "reply"),
            (Produced("", value=["\x01" * 2_000] * 200), "message_too_large"),
            (Produced("a lone \ud800 surrogate"), "agent_error"),
            (Produced("", value={"a": "\udfff"}), "agent_error"),
            (Produced("", value=float("nan")), "agent_error"),
            (Produced("", value=b"bytes"), "agent_error"),
            (Produced("", value=2**60), "agent_error"),
            (Produced("", value=None), "reply"),
        ],
    )
    def test_each_result_has_one_honest_end(self, talk: Talk, produced: Produced, word: str) -> None:
        talk.call()
        assert talk.done(result=produced) == [f"outcome call-1 {word}"]
        assert state(talk) == "finished"
        assert talk.session.idle

    def test_a_long_detail_is_cut_on_a_code_point(self, talk: Talk) -> None:
        talk.call()
        talk.done(result=Broken("agent_error", "é" * 400))
        failure = talk.outcomes["call-1"].failure
        assert failure is not UNSET
        assert failure.detail == "é" * 250


class TestConversations:
    """RL-CONVERSE-001 to RL-CONVERSE-012."""

    def test_turn_after_turn(self, talk: Talk) -> None:
        talk.call("call-1", message=1)
        talk.done("call-1")
        context, previous = "ctx_" + f"{1:022d}", talk.json["call-1"]
        say = {"context_id": context, "turn": 2, "prev": link(previous)}
        assert talk.call("call-2", message=2, say=say)[-1] == "run call-2"
        assert (talk.jobs["call-2"].context_id, talk.jobs["call-2"].turn) == (context, 2)
        talk.done("call-2")
        reply = talk.outcomes["call-2"].reply
        assert reply is not UNSET
        assert (reply.context_id, reply.turn) == (context, 2)
        # The same turn again, another one, and one of somebody else.
        assert talk.call("call-3", message=3, say=say) == [
            "accepted call-3",
            "outcome call-3 context_unknown",
        ]
        say = {"context_id": context, "turn": 3, "prev": link(talk.json["call-2"])}
        words = talk.call("call-4", message=4, say={**say, "ipk": BOB}, caller="bob")
        assert words == ["accepted call-4", "outcome call-4 context_unknown"]
        assert talk.call("call-5", message=5, say=say)[-1] == "run call-5"

    def test_a_conversation_survives_the_process(self, talk: Talk) -> None:
        talk.call("call-1", message=1)
        talk.done("call-1")
        talk.crash()
        say = {"context_id": "ctx_" + f"{1:022d}", "turn": 2, "prev": link(talk.json["call-1"])}
        assert talk.call("call-2", message=2, say=say)[-1] == "run call-2"

    def test_two_at_once_have_one_winner(self, talk: Talk) -> None:
        talk.call("call-1", message=1)
        talk.done("call-1")
        say = {"context_id": "ctx_" + f"{1:022d}", "turn": 2, "prev": link(talk.json["call-1"])}
        assert talk.call("call-2", message=2, say=say)[-1] == "run call-2"
        assert talk.call("call-3", message=3, say=say)[-1] == "outcome call-3 context_unknown"
        assert talk.done("call-2") == ["outcome call-2 reply"]

    def test_a_failed_turn_may_be_tried_again(self, talk: Talk) -> None:
        talk.call("call-1", message=1)
        talk.done("call-1")
        say = {"context_id": "ctx_" + f"{1:022d}", "turn": 2, "prev": link(talk.json["call-1"])}
        talk.call("call-2", message=2, say=say)
        talk.broke("call-2")
        assert talk.call("call-3", message=3, say=say)[-1] == "run call-3"

    def test_a_turn_without_its_context_is_refused(self, talk: Talk) -> None:
        assert talk.call(say={"turn": 2})[-1] == "outcome call-1 context_unknown"
        assert talk.call("call-2", message=2, say={"prev": link(b"")})[-1] == "outcome call-2 context_unknown"
        assert talk.call("call-3", message=3, say={"turn": 1})[-1] == "run call-3"

    def test_a_task_that_does_not_converse_takes_no_turns(self, shelf: Shelf) -> None:
        talk = Talk(shelf, judge=lambda request, handle, call_id: Task(converses=False))
        talk.call("call-1", message=1)
        talk.done("call-1")
        reply = talk.outcomes["call-1"].reply
        assert reply is not UNSET
        assert (reply.context_id, reply.turn) == (UNSET, UNSET)
        say = {"context_id": "ctx_" + "A" * 22, "turn": 2, "prev": link(b"")}
        assert talk.call("call-2", message=2, say=say)[-1] == "outcome call-2 context_unknown"


class TestTheEnd:
    def test_a_draining_listener_finishes_and_takes_no_more(self, talk: Talk) -> None:
        talk.call("call-1", message=1)
        talk.session.drain()
        assert talk.call("call-2", message=2) == ["accepted call-2", "outcome call-2 busy"]
        assert state(talk, "call-2") == "unknown"
        assert not talk.session.idle
        assert talk.done("call-1") == ["outcome call-1 reply"]
        assert talk.session.idle

    def test_what_waits_is_still_done_while_draining(self, talk: Talk) -> None:
        for number in (1, 2, 3):
            talk.call(f"call-{number}", message=number)
        talk.session.drain()
        assert talk.done("call-1")[-1] == "run call-3"

    def test_stopping_now_reports_running_work_as_indeterminate(self, talk: Talk) -> None:
        for number in (1, 2, 3):
            talk.call(f"call-{number}", message=number)
        assert talk.stop() == ["stop call-1 now", "stop call-2 now", "outcome call-3 busy"]
        assert talk.broke("call-1", stopped=True) == ["outcome call-1 agent_error ?"]
        assert talk.later(PATIENCE_MS) == ["outcome call-2 agent_error ?"]
        assert talk.session.idle
        assert (
            talk.words(talk.session.ended(talk.jobs["call-2"].entry_id, Broken(), stopped=True, now=talk.now))
            == []
        )

    def test_a_call_offered_while_stopping_is_told_so(self, talk: Talk) -> None:
        talk.offer()
        talk.stop()
        assert talk.opened() == ["accepted call-1", "outcome call-1 busy"]


class TestDisk:
    """What the journal cannot take is neither said nor done."""

    @pytest.fixture
    def full(self, talk: Talk) -> Any:
        """A switch that takes the room for new pages away, and gives it back."""

        class Switch:
            def on(self) -> None:
                run = talk.shelf.journal()._file.connection
                # Free pages would be used before the file grows.
                run.execute("VACUUM")
                (pages,) = run.execute("PRAGMA page_count").fetchone()
                run.execute(f"PRAGMA max_page_count = {pages}")

            def off(self) -> None:
                talk.shelf.journal()._file.connection.execute("PRAGMA max_page_count = 1000000")

        return Switch()

    def test_a_message_that_cannot_be_journalled_is_not_taken(self, talk: Talk, full: Any) -> None:
        talk.offer()
        full.on()
        assert talk.opened(text="x" * 60_000) == ["accepted call-1", "outcome call-1 busy"]
        assert "disk" in talk.notes[0] or "full" in talk.notes[0]
        full.off()
        assert talk.call("call-2", message=2)[-1] == "run call-2"

    def test_with_no_room_at_all_a_call_is_told_busy_under_its_seal_and_not_taken(self, talk: Talk) -> None:
        run = talk.shelf.journal()._file.connection
        run.execute("PRAGMA query_only = 1")
        assert talk.offer() == ["open call-1"]
        assert talk.notes
        run.execute("PRAGMA query_only = 0")
        # It was not counted before it was opened, so it is not taken, even with room again.
        assert talk.opened() == ["accepted call-1", "outcome call-1 busy"]
        assert state(talk) == "unknown"
        assert talk.call("call-2", message=2)[-1] == "run call-2"

    def test_with_no_room_at_all_a_durable_call_is_left_with_the_relay(self, talk: Talk) -> None:
        run = talk.shelf.journal()._file.connection
        run.execute("PRAGMA query_only = 1")
        assert talk.offer(lease=lease(1)) == []
        assert talk.notes
        run.execute("PRAGMA query_only = 0")
        assert talk.offer(lease=lease(2)) == ["open call-1"]
        assert talk.opened() == ["accepted call-1 under 2", "started call-1 under 2"]

    def test_an_outcome_waits_until_it_is_on_disk(self, talk: Talk, full: Any) -> None:
        talk.call()
        full.on()
        assert talk.done(result=Produced("x" * 200_000)) == []
        assert state(talk) == "begun"
        assert talk.cancel() == []
        assert not talk.session.idle
        assert talk.later(1_000) == []
        full.off()
        assert talk.later(1_000) == ["outcome call-1 reply"]
        assert len(talk.notes) == 1

    def test_work_that_ends_while_its_report_waits_for_the_disk_gives_its_place_back(
        self, shelf: Shelf
    ) -> None:
        talk = Talk(shelf, capacity=1)
        talk.call()
        talk.later(300_000)
        run = talk.shelf.journal()._file.connection
        # Nothing can be written at all.
        run.execute("PRAGMA query_only = 1")
        assert talk.later(PATIENCE_MS) == []
        assert talk.done(stopped=True) == []
        run.execute("PRAGMA query_only = 0")
        assert talk.later(1_000) == ["outcome call-1 timeout ?"]
        assert talk.call("call-2", message=2)[-1] == "run call-2"

    def test_an_unsettled_outcome_goes_to_a_call_that_is_offered_again(self, talk: Talk, full: Any) -> None:
        talk.call()
        full.on()
        talk.done(result=Produced("x" * 200_000))
        talk.reconnect()
        assert talk.offer() == ["accepted call-1", "started call-1"]
        full.off()
        assert talk.later(1_000) == ["outcome call-1 reply"]


def test_rows_are_purged_by_the_timer(talk: Talk) -> None:
    talk.call(exp=NOW + 1_000)
    talk.done()
    talk.later(241_000)
    assert state(talk) == "unknown"


def test_running_work_is_not_purged(shelf: Shelf) -> None:
    talk = Talk(shelf, bound_ms=WORK_BOUND_MAX_MS)
    talk.call(exp=NOW + 1_000)
    talk.later(300_000)
    assert talk.done() == ["outcome call-1 reply"]


def test_message_ids_are_what_the_frame_says(talk: Talk) -> None:
    talk.call(message=5)
    entry = talk.shelf.journal().find("call-1")
    assert entry is not None
    assert entry.key == message_id(5)
    assert entry.state is EntryState.BEGUN
