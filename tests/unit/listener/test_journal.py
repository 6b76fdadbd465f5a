"""The journal: at most once, whatever happens in between."""

import pytest

from ringline.listener.entries import End, EntryState, JournalError, Verdict
from ringline.listener.journal import Journal, JournalBounds
from ringline.protocol.limits import RECORD_LIFE_MS
from ringline_testing.journals import ALICE, BOB, DONE, NOW, Shelf, offer, take

LOST = End(
    b'{"reason":"indeterminate_execution","failure":{"code":"agent_error"}}',
    "failed",
    "indeterminate_execution",
)


def test_a_new_message_is_taken_with_its_request(journal: Journal) -> None:
    taking = take(journal, payload=b'{"message":"hi"}')
    assert taking.verdict is Verdict.FRESH
    entry = journal.find("call-1")
    assert entry == taking.entry
    assert entry is not None
    assert (entry.state, entry.request, entry.end) == (EntryState.TAKEN, b'{"message":"hi"}', None)
    assert entry.offers == {"call-1": offer("call-1")}
    assert journal.find("call-2") is None


def test_the_same_payload_under_another_call_joins(journal: Journal) -> None:
    first = take(journal, "call-1")
    second = take(journal, "call-2", exp=NOW + 700_000, digest=b"e" * 32)
    assert second.verdict is Verdict.JOINED
    assert first.entry is not None
    assert second.entry is not None
    assert second.entry.id == first.entry.id
    assert list(second.entry.offers) == ["call-1", "call-2"]
    assert second.entry.exp == NOW + 700_000
    assert second.entry.offers["call-2"].digest == b"e" * 32


def test_another_payload_under_the_same_key_is_a_conflict_and_changes_nothing(journal: Journal) -> None:
    take(journal, "call-1", b"{}")
    assert take(journal, "call-2", b'{"other":1}').verdict is Verdict.CONFLICT
    assert journal.find("call-2") is None


def test_the_key_is_the_callers_own(journal: Journal) -> None:
    take(journal, "call-1", b"{}")
    assert take(journal, "call-2", b'{"other":1}', from_ipk=BOB).verdict is Verdict.FRESH


def test_without_a_message_id_the_digest_is_the_key(journal: Journal) -> None:
    assert take(journal, "call-1", message_id="").verdict is Verdict.FRESH
    assert take(journal, "call-2", message_id="").verdict is Verdict.JOINED
    assert take(journal, "call-3", message_id="", digest=b"f" * 32).verdict is Verdict.FRESH


def test_the_request_is_forgotten_when_the_work_begins(shelf: Shelf) -> None:
    entry = take(shelf.journal(), payload=b'{"message":"a secret"}').entry
    assert entry is not None
    shelf.journal().begin(entry.id, granted=None, mint=None, now=NOW)
    after = shelf.journal().find("call-1")
    assert after is not None
    assert (after.state, after.request) == (EntryState.BEGUN, None)
    shelf.close()
    assert b"a secret" not in shelf.path.read_bytes()


def test_an_outcome_is_kept_with_its_end(shelf: Shelf) -> None:
    entry = take(shelf.journal()).entry
    assert entry is not None
    shelf.journal().begin(entry.id, granted=None, mint=None, now=NOW)
    shelf.journal().finish(entry.id, DONE, turn=None, now=NOW)
    after = shelf.crash().find("call-1")
    assert after is not None
    assert (after.state, after.end) == (EntryState.FINISHED, DONE)


def test_each_cancelled_call_is_kept_with_its_phase(shelf: Shelf) -> None:
    take(shelf.journal(), "call-1")
    entry = take(shelf.journal(), "call-2").entry
    assert entry is not None
    shelf.journal().cancel(entry.id, {"call-2": "pending"}, now=NOW)
    after = shelf.crash().find("call-1")
    assert after is not None
    assert after.state is EntryState.CANCELLED
    assert [one.cancelled for one in after.offers.values()] == [None, "pending"]
    shelf.journal().confirm("call-1", "pending")
    again = shelf.crash().find("call-1")
    assert again is not None
    assert again.offers["call-1"].cancelled == "pending"


@pytest.mark.parametrize("end", ["finish", "cancel"])
def test_no_step_leads_out_of_an_end(journal: Journal, end: str) -> None:
    entry = take(journal).entry
    assert entry is not None
    if end == "finish":
        journal.finish(entry.id, DONE, turn=None, now=NOW)
    else:
        journal.cancel(entry.id, {}, now=NOW)
    with pytest.raises(ValueError):
        journal.begin(entry.id, granted=None, mint=None, now=NOW)
    with pytest.raises(ValueError):
        journal.finish(entry.id, LOST, turn=None, now=NOW)
    with pytest.raises(ValueError):
        journal.cancel(entry.id, {}, now=NOW)
    after = journal.find("call-1")
    assert after is not None
    assert after.state is (EntryState.FINISHED if end == "finish" else EntryState.CANCELLED)


def test_work_begins_once(journal: Journal) -> None:
    entry = take(journal).entry
    assert entry is not None
    journal.begin(entry.id, granted=None, mint=None, now=NOW)
    with pytest.raises(ValueError):
        journal.begin(entry.id, granted=None, mint=None, now=NOW)


def test_lease_bound_and_grant_are_kept(shelf: Shelf) -> None:
    entry = take(
        shelf.journal(), mode="durable", lease_id="l1", execute_by=NOW + 1_000, exp=NOW + 9_000_000
    ).entry
    assert entry is not None
    shelf.journal().offered("call-1", "l2", NOW + 2_000)
    shelf.journal().begin(entry.id, granted="call-1", mint=None, now=NOW)
    after = shelf.crash().find("call-1")
    assert after is not None
    one = after.offers["call-1"]
    assert (one.lease_id, one.execute_by, one.granted) == ("l2", NOW + 2_000, True)


def test_a_later_grant_is_kept(journal: Journal) -> None:
    take(journal, mode="durable", lease_id="l1", execute_by=NOW + 1_000)
    journal.granted("call-1")
    after = journal.find("call-1")
    assert after is not None
    assert after.offers["call-1"].granted


class TestDeaths:
    """RL-IDEM-027: a call that kills the process before anything began cannot do so for ever."""

    def test_each_process_that_dies_over_a_call_is_counted(self, shelf: Shelf) -> None:
        for deaths in range(4):
            assert shelf.crash().opening("call-1", NOW + 1) == deaths

    def test_a_call_that_was_dealt_with_is_not_counted(self, shelf: Shelf) -> None:
        for _ in range(3):
            shelf.crash().opening("call-1", NOW + 1)
            shelf.journal().closed("call-1")
        assert shelf.crash().opening("call-1", NOW + 1) == 0

    def test_deaths_stay_counted_when_a_later_process_gives_the_call_back(self, shelf: Shelf) -> None:
        shelf.journal().opening("call-1", NOW + 1)
        shelf.crash().opening("call-1", NOW + 1)
        shelf.journal().closed("call-1")
        assert shelf.reopen().opening("call-1", NOW + 1) == 1

    def test_an_orderly_end_is_no_death(self, shelf: Shelf) -> None:
        for _ in range(4):
            assert shelf.reopen().opening("call-1", NOW + 1) == 0
        # Nor after one.
        assert shelf.crash().opening("call-1", NOW + 1) == 1
        assert shelf.reopen().opening("call-1", NOW + 1) == 1

    def test_a_taken_call_that_has_not_begun_counts(self, shelf: Shelf) -> None:
        shelf.journal().opening("call-1", NOW + 1)
        take(shelf.journal())
        assert shelf.crash().opening("call-1", NOW + 1) == 1

    @pytest.mark.parametrize("step", ["begin", "finish", "cancel"])
    def test_begun_or_ended_work_is_no_reason_to_count(self, shelf: Shelf, step: str) -> None:
        shelf.journal().opening("call-1", NOW + 1)
        entry = take(shelf.journal()).entry
        assert entry is not None
        if step == "begin":
            shelf.journal().begin(entry.id, granted=None, mint=None, now=NOW)
        elif step == "finish":
            shelf.journal().finish(entry.id, DONE, turn=None, now=NOW)
        else:
            shelf.journal().cancel(entry.id, {}, now=NOW)
        assert shelf.crash().opening("call-1", NOW + 1) == 0

    def test_counts_are_forgotten_in_the_end(self, shelf: Shelf) -> None:
        shelf.journal().opening("call-1", NOW + 1)
        shelf.crash().purge(NOW, active=())
        assert shelf.journal().opening("call-1", NOW + 1) == 1
        shelf.crash().purge(NOW + 1, active=())
        assert shelf.journal().opening("call-1", NOW + 1) == 0


class TestKeeping:
    """RL-IDEM-021, RL-IDEM-022: how long, and how much."""

    def test_a_row_is_kept_240_s_beyond_its_expiry(self, journal: Journal) -> None:
        take(journal)
        due = NOW + 600_000 + 240_000
        journal.purge(due - 1, active=())
        assert journal.find("call-1") is not None
        journal.purge(due, active=())
        assert journal.find("call-1") is None

    def test_work_that_is_alive_is_kept(self, journal: Journal) -> None:
        entry = take(journal).entry
        assert entry is not None
        journal.purge(NOW + 9_000_000, active={entry.id})
        assert journal.find("call-1") is not None

    def test_a_sync_outcome_is_dropped_after_ten_minutes_and_its_row_stays(self, journal: Journal) -> None:
        entry = take(journal).entry
        assert entry is not None
        journal.finish(entry.id, DONE, turn=None, now=NOW)
        journal.purge(NOW + RECORD_LIFE_MS - 1, active=())
        kept = journal.find("call-1")
        assert kept is not None
        assert kept.end == DONE
        journal.purge(NOW + RECORD_LIFE_MS, active=())
        dropped = journal.find("call-1")
        assert dropped is not None
        assert dropped.end == End(None, "completed", "completed")
        assert take(journal, "call-2", b'{"other":1}').verdict is Verdict.CONFLICT

    def test_a_durable_outcome_is_kept_with_its_row(self, journal: Journal) -> None:
        life = 72 * 3_600_000
        entry = take(journal, mode="durable", lease_id="l", execute_by=NOW + life, exp=NOW + life).entry
        assert entry is not None
        journal.finish(entry.id, DONE, turn=None, now=NOW)
        journal.purge(NOW + life, active=())
        kept = journal.find("call-1")
        assert kept is not None
        assert kept.end == DONE

    def test_a_caller_holds_a_quarter_of_the_rows(self, shelf: Shelf) -> None:
        shelf.bounds = JournalBounds(entries=8)
        journal = shelf.journal()
        verdicts = [take(journal, f"call-{n}", message_id=f"{n:032x}").verdict for n in (1, 2, 3)]
        assert verdicts == [Verdict.FRESH, Verdict.FRESH, Verdict.FULL]
        assert journal.find("call-3") is None
        # Others are not touched by it, and nothing unexpired was thrown out.
        assert take(journal, "call-4", message_id="4" * 32, from_ipk=BOB).verdict is Verdict.FRESH
        assert journal.find("call-1") is not None
        # What has run out makes room.
        journal.purge(NOW + 9_000_000, active=())
        assert take(journal, "call-5", message_id="5" * 32).verdict is Verdict.FRESH

    def test_a_caller_holds_a_quarter_of_the_bytes(self, shelf: Shelf) -> None:
        shelf.bounds = JournalBounds(bytes=400_000)
        journal = shelf.journal()
        assert take(journal, "call-1", b"x" * 90_000).verdict is Verdict.FRESH
        assert take(journal, "call-2", b"x" * 20_000, message_id="2" * 32).verdict is Verdict.FRESH
        assert take(journal, "call-3", message_id="3" * 32).verdict is Verdict.FULL
        assert take(journal, "call-3", message_id="3" * 32, from_ipk=BOB).verdict is Verdict.FRESH

    def test_outcomes_count_as_well(self, shelf: Shelf) -> None:
        shelf.bounds = JournalBounds(bytes=400_000)
        journal = shelf.journal()
        entry = take(journal, "call-1").entry
        assert entry is not None
        journal.finish(entry.id, End(b"x" * 100_000, "completed", "completed"), turn=None, now=NOW)
        assert take(journal, "call-2", message_id="2" * 32).verdict is Verdict.FULL
        journal.purge(NOW + RECORD_LIFE_MS, active=())
        assert take(journal, "call-2", message_id="2" * 32).verdict is Verdict.FRESH

    def test_joining_again_and_again_does_not_go_past_the_share(self, shelf: Shelf) -> None:
        shelf.bounds = JournalBounds(bytes=40_000)
        journal = shelf.journal()
        verdicts = [take(journal, f"call-{n}").verdict for n in range(10)]
        assert verdicts[0] is Verdict.FRESH
        assert verdicts[-1] is Verdict.FULL

    def test_the_whole_is_bounded_too(self, shelf: Shelf) -> None:
        shelf.bounds = JournalBounds(entries=8)
        journal = shelf.journal()
        callers = [bytes([n]) * 32 for n in range(9)]
        verdicts = [take(journal, f"call-{n}", from_ipk=ipk).verdict for n, ipk in enumerate(callers)]
        assert verdicts == [Verdict.FRESH] * 8 + [Verdict.FULL]

    def test_a_refused_step_leaves_the_count_right(self, shelf: Shelf) -> None:
        shelf.bounds = JournalBounds(bytes=400_000)
        journal = shelf.journal()
        entry = take(journal, "call-1").entry
        assert entry is not None
        journal.cancel(entry.id, {}, now=NOW)
        for _ in range(3):
            with pytest.raises(ValueError):
                journal.finish(entry.id, End(b"x" * 50_000, "completed", "completed"), turn=None, now=NOW)
        assert take(journal, "call-2", message_id="2" * 32).verdict is Verdict.FRESH


def test_a_call_id_belongs_to_one_message(journal: Journal) -> None:
    take(journal, "call-1")
    with pytest.raises(JournalError):
        take(journal, "call-1", message_id="3" * 32)
    entry = journal.find("call-1")
    assert entry is not None
    assert entry.from_ipk == ALICE
    assert entry.key == "1" * 32
