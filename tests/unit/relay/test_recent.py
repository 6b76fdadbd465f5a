"""A memory that forgets by age and by number."""

from ringline.relay.recent import Recent


def test_an_entry_is_seen_for_less_than_its_life() -> None:
    memory: Recent[str, int] = Recent(life=10)
    memory.put("a", 1, 100)
    assert memory.get("a", 109) == 1
    assert memory.get("a", 110) is None
    assert memory.get("b", 100) is None


def test_a_second_put_renews_and_replaces() -> None:
    memory: Recent[str, int] = Recent(life=10)
    memory.put("a", 1, 100)
    memory.put("a", 2, 105)
    assert memory.get("a", 114) == 2


def test_the_oldest_makes_room_when_the_memory_is_full() -> None:
    memory: Recent[str, int] = Recent(life=10, most=2)
    memory.put("a", 1, 0)
    memory.put("b", 2, 1)
    memory.put("a", 3, 2)  # renewed: now b is the oldest
    memory.put("c", 4, 3)
    assert (memory.get("a", 3), memory.get("b", 3), memory.get("c", 3)) == (3, None, 4)
    assert len(memory) == 2


def test_what_is_over_leaves_memory_by_itself_as_things_go_on() -> None:
    memory: Recent[int, int] = Recent(life=100)
    for now in range(10_000):
        memory.put(now, now, now)
    assert len(memory) <= 201


def test_purging_forgets_what_is_over_and_nothing_else() -> None:
    memory: Recent[str, int] = Recent(life=10)
    memory.put("a", 1, 0)
    memory.put("b", 2, 5)
    memory.purge(12)
    assert len(memory) == 1
    assert memory.get("b", 12) == 2
    memory.purge(15)
    assert len(memory) == 0
