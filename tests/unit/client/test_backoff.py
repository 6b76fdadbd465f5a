"""Delays double, are spread, and start anew after a stable connection only."""

import pytest

from ringline.client.backoff import Backoff


def test_delays_double_up_to_a_ceiling() -> None:
    backoff = Backoff(lambda: 1.0, base_s=1, ceiling_s=10)
    assert [backoff.failed(0) for _ in range(6)] == [1, 2, 4, 8, 10, 10]


def test_chance_spreads_the_upper_half() -> None:
    low, high = Backoff(lambda: 0.0, base_s=8), Backoff(lambda: 1.0, base_s=8)
    assert (low.failed(0), high.failed(0)) == (4, 8)


def test_a_connection_that_is_dropped_at_once_resets_nothing() -> None:
    backoff = Backoff(lambda: 1.0, base_s=1, stable_s=10)
    delays: list[float] = []
    for now in range(3):
        backoff.opened(now)
        delays.append(backoff.failed(now + 0.5))
    assert delays == [1, 2, 4]


def test_a_stable_connection_resets() -> None:
    backoff = Backoff(lambda: 1.0, base_s=1, stable_s=10)
    backoff.failed(0)
    backoff.failed(0)
    backoff.opened(100)
    assert backoff.failed(110) == 1
    # The connection counts once: the failed dial behind it goes on doubling.
    assert backoff.failed(200) == 2


@pytest.mark.parametrize(("hint", "least"), [(0.0, 0.0), (5.0, 5.0), (1e9, 120.0), (-5.0, 0.0)])
def test_the_relays_wish_is_kept_within_bounds(hint: float, least: float) -> None:
    backoff = Backoff(lambda: 1.0, base_s=0.5)
    assert least <= backoff.failed(0, hint) <= least + 0.5


def test_many_failures_do_not_overflow() -> None:
    backoff = Backoff(lambda: 1.0)
    assert max(backoff.failed(0) for _ in range(5_000)) == 30
