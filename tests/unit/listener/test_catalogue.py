"""Policy: who is let in, and what becomes of what they ask (envelope §3.7 steps 2 and 9)."""

from collections.abc import Callable

import pytest
from msgspec import UNSET

from ringline.listener.catalogue import Access, Catalogue, Errand
from ringline.listener.effects import Produced, Refusal
from ringline.listener.runtime import Command
from ringline.listener.tasks import Call, make_task
from ringline.protocol.bodies import Request
from ringline.protocol.errors import ConfigError
from ringline.protocol.limits import OFFERS

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


def judged(catalogue: Catalogue, handle: str = "alice", **members: object) -> object:
    return catalogue(Request(**{"message": "hi", **members}), handle)  # type: ignore[arg-type]


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
