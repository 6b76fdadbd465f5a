"""Sliding windows are exact, and looking costs nothing."""

from hypothesis import given
from hypothesis import strategies as st

from ringline.relay.budget import HourlyBudget, Rate, TurnBudget, Window

HOUR = 3_600_000


def test_a_rate_counts_the_events_of_the_span_alone() -> None:
    rate = Rate(100)
    assert [rate.add(now) for now in (0, 0, 50, 99, 100, 151)] == [1, 2, 3, 4, 3, 3]


def test_a_rate_tells_when_one_more_would_be_within_the_limit() -> None:
    rate = Rate(100)
    assert rate.wait(3, 0) == 0
    for now in (0, 10, 20, 30):
        rate.add(now)
    # Of four, two must leave the span before a third fits: the second leaves at 110.
    assert rate.wait(3, 40) == 70
    assert rate.wait(4, 40) == 60
    assert rate.wait(5, 40) == 0


def test_the_thirty_first_within_an_hour_is_refused_and_told_when_the_next_passes() -> None:
    window: Window[str] = Window(30, HOUR)
    for minute in range(30):
        assert window.wait("al", minute * 60_000) == 0
        window.charge("al", minute * 60_000)
    assert window.wait("al", 1_800_000) == 1_800_000
    assert window.wait("al", HOUR - 1) == 1
    assert window.wait("al", HOUR) == 0
    window.charge("al", HOUR)
    assert window.wait("al", HOUR) == 60_000
    assert window.wait("bo", HOUR) == 0


def test_no_hour_holds_more_than_its_limit_wherever_it_begins() -> None:
    # A fixed window would let twice as many pass around its edge.
    window: Window[str] = Window(30, HOUR)
    for _ in range(30):
        window.charge("al", HOUR - 2_000)
    assert window.wait("al", HOUR + 1_000) == HOUR - 3_000


def test_a_limit_of_zero_is_none_and_remembers_nobody() -> None:
    window: Window[str] = Window(0, HOUR)
    for _ in range(100):
        assert window.wait("al", 0) == 0
        window.charge("al", 0)
    assert len(window) == 0


def test_keys_are_forgotten_when_their_last_charge_is_over() -> None:
    window: Window[int] = Window(3, 100)
    for now in range(1_000):
        window.charge(now, now)
    assert len(window) == 100
    window.purge(1_050)
    assert len(window) == 49


def test_a_look_of_one_whose_charges_are_over_does_not_spoil_the_charges_of_others() -> None:
    window: Window[str] = Window(1, 100)
    window.charge("al", 0)
    assert window.wait("al", 100) == 0
    window.charge("bo", 100)
    assert (len(window), window.wait("bo", 100)) == (1, 100)


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 120), st.booleans()), max_size=80),
)
def test_a_window_agrees_with_a_list_of_everything(limit: int, steps: list[tuple[str, int, bool]]) -> None:
    window: Window[str] = Window(limit, 100)
    log: list[tuple[str, int]] = []
    now = 0
    for key, pause, charges in steps:
        now += pause
        recent = [at for who, at in log if who == key and at > now - 100]
        wait = window.wait(key, now)
        if len(recent) < limit:
            assert wait == 0
            # Whoever may need not.
            if charges:
                window.charge(key, now)
                log.append((key, now))
        else:
            assert wait == recent[-limit] + 100 - now
            assert wait > 0


def test_both_hourly_budgets_are_charged_or_neither() -> None:
    hourly = HourlyBudget(3, 2, 100)
    assert hourly.take("al", "bo", 0) == 0
    assert hourly.take("al", "bo", 10) == 0
    # The pair has had its two, and asking did not cost the caller anything.
    assert hourly.take("al", "bo", 20) == 80
    assert hourly.take("al", "cy", 30) == 0
    # The caller has had three; the pair al-cy could have one more.
    assert hourly.take("al", "cy", 40) == 60
    assert hourly.take("al", "cy", 100) == 0


def test_the_wait_is_the_longer_of_both_budgets() -> None:
    hourly = HourlyBudget(2, 1, 100)
    hourly.take("al", "bo", 0)
    hourly.take("al", "cy", 50)
    assert hourly.take("al", "cy", 60) == 90


def test_hourly_budgets_of_others_are_their_own() -> None:
    hourly = HourlyBudget(1, 1, 100)
    assert hourly.take("al", "bo", 0) == 0
    assert hourly.take("bo", "al", 0) == 0


def test_one_of_the_hourly_budgets_can_be_off() -> None:
    hourly = HourlyBudget(0, 1, 100)
    assert [hourly.take("al", who, 0) for who in ("bo", "cy", "di", "bo")] == [0, 0, 0, 100]


def test_a_conversation_has_its_turns_within_the_window_of_the_first() -> None:
    turns = TurnBudget(3, 100)
    talk = ("al", "bo", "1")
    for now in (0, 50, 90):
        assert turns.wait(talk, now) == 0
        turns.charge(talk, now)
    assert turns.wait(talk, 90) == 10
    assert turns.wait(talk, 99) == 1
    # The window is anchored at the first turn: all of them come back at once.
    assert turns.wait(talk, 100) == 0
    for now in (100, 100, 100):
        assert turns.wait(talk, now) == 0
        turns.charge(talk, now)
    assert turns.wait(talk, 150) == 50


def test_turns_count_per_caller_callee_and_correlation_id() -> None:
    turns = TurnBudget(1, 100)
    turns.charge(("al", "bo", "1"), 0)
    assert turns.wait(("al", "bo", "1"), 0) == 100
    for other in (("al", "bo", "2"), ("al", "cy", "1"), ("cy", "bo", "1")):
        assert turns.wait(other, 0) == 0


def test_turns_can_be_off_and_are_forgotten() -> None:
    off = TurnBudget(0, 100)
    for _ in range(50):
        assert off.wait(("al", "bo", "1"), 0) == 0
        off.charge(("al", "bo", "1"), 0)
    assert len(off) == 0
    turns = TurnBudget(1, 100)
    for now in range(1_000):
        turns.charge(("al", "bo", str(now)), now)
    assert len(turns) == 100
