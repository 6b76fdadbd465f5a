"""The relay's time is followed for tokens and envelopes, and for nothing else."""

from email.utils import formatdate

import pytest

from ringline.client.clock import WARN_ABOVE_MS, RelayClock

NOW = 1_790_000_000_000


def clock(said: list[str] | None = None) -> RelayClock:
    return RelayClock(lambda: NOW, None if said is None else said.append)


def date(offset_s: int) -> str:
    return formatdate(NOW / 1_000 + offset_s, usegmt=True)


@pytest.mark.parametrize("offset_s", [-3_600, -90, -10, 10, 90, 3_600])
def test_the_difference_is_taken_from_the_date(offset_s: int) -> None:
    followed = clock()
    assert followed.correct(date(offset_s))
    assert abs(followed.now_ms() - (NOW + offset_s * 1_000)) <= 500
    assert followed.own_ms() == NOW


@pytest.mark.parametrize("offset_s", [-1, 0, 1])
def test_a_difference_below_the_resolution_is_none(offset_s: int) -> None:
    followed = clock()
    assert not followed.correct(date(offset_s))
    assert followed.offset_ms == 0


def test_a_difference_can_go_away() -> None:
    followed = clock()
    followed.correct(date(600))
    assert followed.correct(date(0))
    assert followed.offset_ms == 0


@pytest.mark.parametrize("text", [None, "", "yesterday", "Mon, 99 Foo 2026 00:00:00 GMT", "1" * 5_000])
def test_what_is_no_date_changes_nothing(text: str | None) -> None:
    followed = clock()
    assert not followed.correct(text)
    assert followed.now_ms() == NOW


@pytest.mark.parametrize(("offset_s", "way"), [(90, "behind"), (-90, "ahead of")])
def test_a_large_difference_is_told_once(offset_s: int, way: str) -> None:
    said: list[str] = []
    followed = clock(said)
    followed.correct(date(offset_s))
    followed.correct(date(offset_s * 2))
    assert len(said) == 1
    assert way in said[0]


def test_a_small_difference_is_not_told() -> None:
    said: list[str] = []
    clock(said).correct(date(WARN_ABOVE_MS // 1_000 - 5))
    assert said == []
