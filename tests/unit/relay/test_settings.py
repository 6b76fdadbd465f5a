"""Bounds and budgets come from one table and from nowhere else."""

import dataclasses

import pytest

from ringline.protocol import limits
from ringline.protocol.errors import ConfigError
from ringline.relay.settings import TABLE, Kind, Settings


def test_the_table_and_the_value_have_the_same_names() -> None:
    assert [name.lower() for name in TABLE] == [entry.name for entry in dataclasses.fields(Settings)]


def test_every_default_lies_in_its_range() -> None:
    settings = Settings()
    for name, row in TABLE.items():
        assert getattr(settings, name.lower()) == row.default
        assert row.least <= row.default <= row.most


def test_the_defaults_are_the_numbers_of_the_protocol() -> None:
    settings = Settings()
    assert settings.calls_per_hour == 30
    assert settings.calls_per_pair_per_hour == 30
    assert settings.turns == 10
    assert settings.budget_window_ms == 3_600_000
    assert settings.turn_window_ms == 1_800_000
    assert settings.affinity_ms == 1_800_000
    assert settings.ring_bound_ms == 30_000
    assert settings.call_bound_ms == 360_000
    assert settings.grace_ms == 15_000
    assert settings.hold_ms == 30_000
    assert settings.record_life_ms == 600_000
    assert settings.records == 1_000_000
    assert settings.record_outcome_bytes == 268_435_456
    assert settings.party_life_ms == 96 * 3_600_000
    assert settings.cancel_wait_ms == 10_000
    assert settings.ping_interval_ms == settings.ping_timeout_ms == 20_000
    assert settings.undecodable_frames == 20
    assert settings.undecodable_window_ms == 60_000
    assert settings.unknown_handle_release_ms == 10
    assert settings.outcome_resends == 10


def test_values_are_taken_by_name_and_leave_the_rest_alone() -> None:
    settings = Settings().with_values({"RING_BOUND_MS": "250", "TURNS": "0"})
    assert (settings.ring_bound_ms, settings.turns) == (250, 0)
    assert dataclasses.replace(settings, ring_bound_ms=30_000, turns=10) == Settings()


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1.5", " 1", "1\n", "1_000", "٣", "ten", "1" * 16, "86400001", "0"]
)
def test_a_value_that_is_no_number_of_the_range_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings().with_values({"RING_BOUND_MS": text})
    assert "RING_BOUND_MS" in str(caught.value)
    assert caught.value.next_step is not None
    assert "from 1 to 86400000" in caught.value.next_step


@pytest.mark.parametrize("name", list(TABLE))
def test_the_ends_of_every_range_are_allowed_and_what_lies_beyond_is_not(name: str) -> None:
    row = TABLE[name]
    for value in (row.least, row.most):
        assert getattr(Settings().with_values({name: str(value)}), name.lower()) == value
    with pytest.raises(ConfigError):
        Settings().with_values({name: str(row.most + 1)})


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("RING_BOUND", "RING_BOUND_MS"), ("ring_bound_ms", "RING_BOUND_MS"), ("HOLDMS", "HOLD_MS")],
)
def test_an_unknown_name_is_refused_with_near_matches(wrong: str, near: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings().with_values({wrong: "1"})
    assert wrong in str(caught.value)
    assert caught.value.next_step is not None
    assert near in caught.value.next_step


def test_a_name_like_no_other_is_answered_with_all_of_them() -> None:
    with pytest.raises(ConfigError) as caught:
        Settings().with_values({"§": "1"})
    assert caught.value.next_step is not None
    assert all(name in caught.value.next_step for name in TABLE)


def test_the_relay_shows_its_limits_and_budgets_and_not_its_own_affairs() -> None:
    settings = Settings().with_values({"CALLS_PER_HOUR": "0", "HOLD_MS": "7"})
    shown, budgets = settings.limits(), settings.budgets()
    assert budgets["calls_per_hour"] == 0
    assert shown["hold_ms"] == 7
    assert shown["caller_frame_bytes"] == limits.CALLER_FRAME_BYTES == 527_019
    assert shown["listener_frame_bytes"] == limits.LISTENER_FRAME_BYTES == 2_063_019
    assert (shown["message_bytes"], shown["reply_bytes"]) == (64_000, 256_000)
    by_kind = {kind: {name.lower() for name, row in TABLE.items() if row.kind is kind} for kind in Kind}
    assert set(budgets) == by_kind[Kind.BUDGET]
    assert by_kind[Kind.BOUND] <= set(shown)
    assert by_kind[Kind.PROCESS] & (set(shown) | set(budgets)) == set()


def test_only_budgets_and_waits_can_be_turned_off() -> None:
    assert all(row.least == 0 for row in TABLE.values() if row.kind is Kind.BUDGET)
