"""A time that no calendar has is told by its number, and never ends a program."""

from datetime import timedelta, timezone

import pytest

from ringline.protocol.dates import is_dated, spelled
from ringline.protocol.limits import INT_MAX

FORM = "%Y-%m-%d %H:%M:%S"


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "1970-01-01 00:00:00"),
        (1_790_000_000_999, "2026-09-21 14:13:20"),
        (253_370_764_799_999, "9998-12-31 23:59:59"),
    ],
)
def test_a_time_has_its_date(time_ms: int, text: str) -> None:
    assert is_dated(time_ms)
    assert spelled(time_ms, FORM) == text


@pytest.mark.parametrize("time_ms", [-1, 253_370_764_800_000, INT_MAX, -INT_MAX, 2**200])
def test_a_time_without_a_date_is_told_by_its_number(time_ms: int) -> None:
    assert not is_dated(time_ms)
    assert spelled(time_ms, FORM, None) == f"{time_ms} ms after 1970"


@pytest.mark.parametrize("hours", [-23, 23])
def test_the_first_and_the_last_time_have_a_date_in_every_zone(hours: int) -> None:
    zone = timezone(timedelta(hours=hours))
    for time_ms in (0, 253_370_764_799_999):
        assert len(spelled(time_ms, FORM, zone)) == len("1970-01-01 00:00:00")
