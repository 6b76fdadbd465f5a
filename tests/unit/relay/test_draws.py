"""Ids that are drawn many at a time."""

import hashlib
import re

from ringline.protocol import names
from ringline.relay.draws import Draws

MANY = 3 * 256 * 2  # more than is drawn at once


def counted(seen: list[int]) -> Draws:
    """Return draws whose randomness is noted, and differs each time."""

    def random(size: int) -> bytes:
        seen.append(size)
        return hashlib.shake_256(len(seen).to_bytes(4, "big")).digest(size)

    return Draws(random)


def test_no_two_ids_of_many_draws_are_the_same() -> None:
    draws = Draws()
    assert len({draws.call_id() for _ in range(MANY)}) == MANY
    assert len({draws.uuid() for _ in range(MANY)}) == MANY


def test_every_id_has_the_form_of_its_kind() -> None:
    draws = Draws()
    for _ in range(MANY):
        call_id = draws.call_id()
        assert len(call_id) == 22
        assert re.search(names.CALL_ID, call_id), call_id
        assert names.is_uuid4(draws.uuid())


def test_every_character_of_an_id_is_random_and_used_once() -> None:
    seen: list[int] = []
    draws = counted(seen)
    calls = [draws.call_id() for _ in range(MANY)]
    # 22 characters of 6 bits each, and none of them given out twice.
    assert sum(seen) * 8 == MANY * 22 * 6
    assert all(len({call[place] for call in calls}) > 60 for place in range(22))
    seen.clear()
    uuids = [draws.uuid() for _ in range(MANY)]
    assert sum(seen) == MANY * 16
    digits = [text.replace("-", "") for text in uuids]
    assert all(len({text[place] for text in digits}) == 16 for place in range(32) if place not in (12, 16))
    assert {text[16] for text in digits} == set("89ab")


def test_nothing_is_drawn_before_it_is_needed() -> None:
    seen: list[int] = []
    draws = counted(seen)
    assert seen == []
    draws.call_id()
    assert len(seen) == 1
