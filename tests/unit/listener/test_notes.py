"""Notes to the owner of a listener, which peers could otherwise cause without end."""

import pytest

from ringline.listener.notes import Notes


@pytest.fixture
def told() -> list[str]:
    """What was passed on."""
    return []


class Clock:
    """Seconds, moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_same_text_is_told_once_a_minute(told: list[str]) -> None:
    clock = Clock()
    notes = Notes(told.append, clock)
    for clock.now in (0.0, 1.0, 59.9, 60.0, 61.0):
        notes("refused")
        notes(f"at {clock.now}")
    assert told.count("refused") == 2
    assert len(told) == 7


def test_a_flood_of_different_texts_is_cut_off_and_said_to_be(told: list[str]) -> None:
    clock = Clock()
    notes = Notes(told.append, clock)
    for number in range(10_000):
        notes(f"note {number}")
    assert len(told) == 121
    assert "left out" in told[-1]
    clock.now = 60.0
    notes("the next minute")
    assert told[-1] == "the next minute"
