"""When to look at a card again."""

from ringline.relay.tenure import Tenures


def test_cards_come_up_in_the_order_of_their_ends() -> None:
    tenures = Tenures()
    tenures.note("bob", "b1", 200)
    tenures.note("alice", "a1", 100)
    assert tenures.next() == 100
    assert tenures.due(99) == []
    assert tenures.due(200) == [("alice", "a1"), ("bob", "b1")]
    assert tenures.next() is None


def test_an_earlier_end_counts_and_a_later_one_does_not() -> None:
    tenures = Tenures()
    tenures.note("alice", "a1", 200)
    tenures.note("alice", "a1", 300)
    assert tenures.next() == 200
    tenures.note("alice", "a1", 100)
    assert tenures.due(150) == [("alice", "a1")]
    assert tenures.due(400) == []


def test_a_card_can_be_noted_again_after_it_came_up() -> None:
    tenures = Tenures()
    tenures.note("alice", "a1", 100)
    tenures.due(100)
    tenures.note("alice", "a1", 300)
    assert tenures.due(300) == [("alice", "a1")]


def test_noting_the_same_end_again_takes_no_room() -> None:
    tenures = Tenures()
    for _ in range(100):
        tenures.note("alice", "a1", 100)
    assert len(tenures._ends) == 1
