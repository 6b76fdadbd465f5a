"""Policy: who is let in, and what becomes of what they ask."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from ringline.client.contacts import Pin
from ringline.listener.access import Access
from ringline.listener.catalogue import Catalogue, Errand
from ringline.listener.effects import Produced, Refusal
from ringline.listener.journal import Journal
from ringline.listener.runtime import Command
from ringline.listener.tasks import Call, make_task
from ringline.protocol.bodies import Request
from ringline.protocol.errors import ConfigError
from ringline.protocol.limits import OFFERS
from ringline_testing.agents import NOW_MS, REALM, agent

ANYONE = Access(None)


def review(diff: str) -> str:
    """Review."""
    return diff


async def slow(call: Call) -> None:
    """Take time."""


@pytest.fixture
def catalogue() -> Catalogue:
    """A listener that offers a default task and one other."""
    made = Catalogue(ANYONE)
    made.add(make_task(slow, name="default", is_default=True))
    made.add(make_task(review))
    return made


def judged(catalogue: Catalogue, handle: str = "alice", **members: Any) -> object:
    given: dict[str, Any] = {"message": "hi", **members}
    return catalogue(Request(**given), handle)


class TestAccess:
    @pytest.mark.parametrize(
        ("access", "admitted"),
        [
            (Access(None), True),
            (Access(None, frozenset({"alice"})), False),
            (Access(frozenset()), False),
            (Access(frozenset({"alice"})), True),
            (Access(frozenset({"alice"}), frozenset({"alice"})), False),
            (Access(frozenset({"bob"})), False),
        ],
    )
    def test_block_wins_over_allow(self, access: Access, admitted: bool) -> None:
        assert access.admits("alice") is admitted

    def test_whoever_is_not_let_in_is_blocked_whatever_he_asks(self) -> None:
        catalogue = Catalogue(Access(frozenset({"bob"})))
        assert judged(catalogue) == Refusal("blocked")
        # He is not told what there is either.
        assert judged(catalogue, task="review") == Refusal("blocked")
        assert judged(catalogue, query="tasks") == Refusal("blocked")


def test_a_request_without_a_task_goes_to_the_default(catalogue: Catalogue) -> None:
    for members in ({}, {"task": "default"}):
        errand = judged(catalogue, **members)
        assert isinstance(errand, Errand)
        assert (errand.task, errand.converses, errand.stoppable) == ("default", True, True)


def test_a_task_gets_its_arguments(catalogue: Catalogue) -> None:
    errand = judged(catalogue, task="review", args={"diff": "x"})
    assert isinstance(errand, Errand)
    assert (errand.task, errand.keywords, errand.stoppable) == ("review", {"diff": "x"}, False)


def test_arguments_that_do_not_fit_start_nothing(catalogue: Catalogue) -> None:
    refusal = judged(catalogue, task="review", args={})
    assert isinstance(refusal, Refusal)
    assert refusal.code == "task_unknown"  # its word is that nothing has run
    assert refusal.detail is not None
    assert "diff" in refusal.detail


def test_an_unknown_task_is_told_what_there_is(catalogue: Catalogue) -> None:
    assert judged(catalogue, task="other") == Refusal("task_unknown", offered=("default", "review"))


def test_a_query_is_answered_with_all_tasks_and_no_conversation(catalogue: Catalogue) -> None:
    errand = judged(catalogue, query="tasks", message="")
    assert isinstance(errand, Errand)
    assert isinstance(errand.what, Produced)
    assert errand.what.text == "default\nreview"
    assert errand.what.offered is not UNSET
    assert [offer.id for offer in errand.what.offered] == ["default", "review"]
    assert not errand.converses
    assert errand.task is None


def test_a_program_takes_a_message_and_no_arguments() -> None:
    catalogue = Catalogue(ANYONE)
    catalogue.add_command(Command(argv=("cat",)))
    catalogue.add_command(Command(argv=("wc",)), "count")
    errand = judged(catalogue, task="count")
    assert isinstance(errand, Errand)
    assert errand.stoppable
    assert judged(catalogue, args={}) == judged(catalogue)
    refusal = judged(catalogue, args={"a": 1})
    assert isinstance(refusal, Refusal)
    assert refusal.code == "task_unknown"  # its word is that nothing has run


def test_names_are_unique_and_as_many_as_may_be_told() -> None:
    catalogue = Catalogue(ANYONE)
    catalogue.add_command(Command(argv=("cat",)))
    mistakes: tuple[Callable[[], None], ...] = (
        lambda: catalogue.add_command(Command(argv=("cat",))),
        lambda: catalogue.add(make_task(slow, name="default", is_default=True)),
        lambda: catalogue.add_command(Command(argv=("cat",)), "No Name"),
    )
    for again in mistakes:
        with pytest.raises(ConfigError):
            again()
    for number in range(OFFERS - 1):
        catalogue.add(make_task(review, name=f"task-{number}"))
    with pytest.raises(ConfigError):
        catalogue.add(make_task(review, name="one-too-many"))
    assert len(catalogue.offers()) == OFFERS


# --- what the owner's contacts say


def pin(**members: Any) -> Pin:
    """Return what is known of alice."""
    values: dict[str, Any] = {
        "realm": REALM,
        "handle": "alice",
        "ipk": agent("alice").identity.public,
        "source": "invite",
        "first_seen": NOW_MS,
    }
    return Pin(**(values | members))


def book(known: Pin | None) -> Any:
    def look(handle: str) -> Pin | None:
        return known if known is not None and handle == known.handle else None

    return look


def asked(catalogue: Catalogue, call_id: str) -> object:
    """Judge a call of alice for the task `review`, with arguments that fit."""
    return catalogue(Request(message="x", task="review", args={"diff": "d"}), "alice", call_id)


class TestContacts:
    @pytest.mark.parametrize(
        ("state", "allow", "admitted"),
        [
            ("allowed", frozenset[str](), True),
            ("pending", frozenset[str](), False),
            ("blocked", frozenset[str](), False),
            ("pending", frozenset({"alice"}), True),
            ("blocked", frozenset({"alice"}), False),
            ("pending", None, True),
            ("blocked", None, False),
        ],
    )
    def test_a_contact_is_let_in_as_it_says(
        self, state: str, allow: frozenset[str] | None, admitted: bool
    ) -> None:
        access = Access(allow, contacts=book(pin(state=state)))
        assert access.admits("alice") is admitted

    @pytest.mark.parametrize(("state", "runs"), [("pending", True), ("blocked", False)])
    def test_a_block_wins_over_the_word_on_one_call(self, state: str, runs: bool) -> None:
        catalogue = Catalogue(Access(frozenset(), contacts=book(pin(state=state))))
        catalogue.add(make_task(review))
        catalogue.access.approved = {"1"}.__contains__
        assert isinstance(asked(catalogue, "1"), Errand) is runs
        assert asked(catalogue, "2") == Refusal("blocked")

    def test_a_task_that_was_not_granted_is_as_good_as_none(self) -> None:
        catalogue = Catalogue(Access(frozenset(), contacts=book(pin(state="allowed", tasks=("review",)))))
        catalogue.add(make_task(review))
        catalogue.add(make_task(review, name="secret"))
        assert judged(catalogue, task="secret") == Refusal("task_unknown", offered=("review",))
        assert judged(catalogue, task="no-such") == Refusal("task_unknown", offered=("review",))
        assert isinstance(asked(catalogue, "1"), Errand)
        listed = judged(catalogue, query="tasks")
        assert isinstance(listed, Errand)
        assert isinstance(listed.what, Produced)
        assert listed.what.text == "review"
        assert [offer.id for offer in listed.what.offered or ()] == ["review"]

    def test_whoever_is_named_at_the_start_may_call_every_task(self) -> None:
        access = Access(frozenset({"alice"}), contacts=book(pin(state="allowed", tasks=("review",))))
        assert access.tasks("alice") is None

    def test_tasks_count_only_once_he_was_let_in(self) -> None:
        access = Access(None, contacts=book(pin(state="pending", tasks=("review",))))
        assert access.tasks("alice") is None

    def test_a_budget_is_so_many_calls_an_hour(self) -> None:
        now = [0]
        access = Access(
            frozenset(), contacts=book(pin(state="allowed", calls_per_hour=2)), clock=lambda: now[0]
        )
        assert access.charge("alice", "one") is None
        now[0] = 10 * 60_000
        assert access.charge("alice", "two") is None
        # The same call again costs nothing: it may be judged anew after a loss.
        assert access.charge("alice", "one") is None
        refusal = access.charge("alice", "three")
        assert refusal is not None
        assert (refusal.code, refusal.detail) == (
            "busy",
            "you have used up your 2 calls an hour; the next is free in 50 min",
        )
        now[0] = 60 * 60_000
        assert access.charge("alice", "three") is None
        assert access.charge("alice", "four") is not None

    def test_a_budget_goes_on_in_the_next_process(self, tmp_path: Path) -> None:
        """Else whoever sees a listener start again has a new hour."""
        known = book(pin(state="allowed", calls_per_hour=2))
        wall = 1_790_000_000_000
        with Journal(tmp_path / "journal.db") as journal:
            before = Access(frozenset(), contacts=known, clock=lambda: 99)
            before.keep_charges(journal, lambda: wall)
            assert before.charge("alice", "one") is None
            before.keep_charges(journal, lambda: wall + 10 * 60_000)
            assert before.charge("alice", "two") is None
        now = [5]
        with Journal(tmp_path / "journal.db") as journal:
            after = Access(frozenset(), contacts=known, clock=lambda: now[0])
            after.keep_charges(journal, lambda: wall + 20 * 60_000)
            refusal = after.charge("alice", "three")
            assert refusal is not None
            assert "the next is free in 40 min" in (refusal.detail or "")
            # One that a crash brings once more was paid for.
            assert after.charge("alice", "two") is None
            now[0] += 40 * 60_000
            assert after.charge("alice", "three") is None
            assert after.charge("alice", "four") is not None

    def test_a_clock_that_was_set_back_makes_no_charge_last_for_longer_than_an_hour(
        self, tmp_path: Path
    ) -> None:
        known = book(pin(state="allowed", calls_per_hour=1))
        now = [0]
        with Journal(tmp_path / "journal.db") as journal:
            journal.charge("alice", "one", 1_790_000_000_000)
            access = Access(frozenset(), contacts=known, clock=lambda: now[0])
            access.keep_charges(journal, lambda: 1_690_000_000_000)
            assert access.charge("alice", "two") is not None
            now[0] = 60 * 60_000
            assert access.charge("alice", "two") is None

    def test_a_charge_that_cannot_be_written_is_no_charge_and_no_run(self, tmp_path: Path) -> None:
        access = Access(frozenset(), contacts=book(pin(state="allowed", calls_per_hour=1)))
        catalogue = Catalogue(access)
        catalogue.add(make_task(review))
        with Journal(tmp_path / "journal.db") as journal:
            access.keep_charges(journal, lambda: 1)
        refused = asked(catalogue, "1")
        assert isinstance(refused, Refusal)
        assert refused.code == "busy"

    def test_what_is_refused_costs_nothing(self) -> None:
        access = Access(frozenset(), contacts=book(pin(state="allowed", calls_per_hour=1)))
        catalogue = Catalogue(access)
        catalogue.add(make_task(review))
        for number in range(3):
            assert isinstance(catalogue(Request(message="x", task="none"), "alice", str(number)), Refusal)
        assert isinstance(asked(catalogue, "4"), Errand)
        refusal = asked(catalogue, "5")
        assert isinstance(refusal, Refusal)
        assert refusal.code == "busy"

    def test_nobody_is_let_in_by_guess(self) -> None:
        def damaged(handle: str) -> Pin | None:
            raise ConfigError("the file is damaged")

        catalogue = Catalogue(Access(None, contacts=damaged))
        refusal = judged(catalogue)
        assert isinstance(refusal, Refusal)
        assert refusal.code == "busy"
