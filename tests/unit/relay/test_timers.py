"""One heap of what is to happen later."""

import math

from hypothesis import given
from hypothesis import strategies as st

from ringline.relay.timers import Alarm, BoundPassed, CancelWaited, DrainOver, HoldOver, RecordsOver, Timers


def test_alarms_are_raised_when_due_and_earliest_first() -> None:
    timers = Timers()
    timers.set(BoundPassed("late"), 30)
    timers.set(BoundPassed("early"), 10)
    timers.set(HoldOver("early"), 10)
    assert list(timers.expired(9)) == []
    assert list(timers.expired(10)) == [BoundPassed("early"), HoldOver("early")]
    assert list(timers.expired(29)) == []
    assert list(timers.expired(1_000)) == [BoundPassed("late")]
    assert len(timers) == 0


def test_alarms_of_different_kinds_never_stand_for_each_other() -> None:
    timers = Timers()
    timers.set(BoundPassed("x"), 5)
    timers.set(HoldOver("x"), 5)
    timers.set(DrainOver(), 5)
    timers.set(RecordsOver(), 5)
    timers.cancel(HoldOver("x"))
    timers.cancel(DrainOver())
    assert list(timers.expired(5)) == [BoundPassed("x"), RecordsOver()]


def test_an_alarm_that_is_set_again_is_moved() -> None:
    timers = Timers()
    timers.set(CancelWaited(1), 10)
    timers.set(CancelWaited(1), 20)
    assert list(timers.expired(15)) == []
    assert list(timers.expired(20)) == [CancelWaited(1)]
    timers.set(CancelWaited(1), 20)
    timers.set(CancelWaited(1), 10)
    assert list(timers.expired(10)) == [CancelWaited(1)]
    assert list(timers.expired(20)) == []


def test_an_alarm_that_was_raised_can_be_set_for_the_same_time_again() -> None:
    timers = Timers()
    timers.set(CancelWaited(1), 10)
    raised: list[Alarm] = []
    for alarm in timers.expired(10):
        raised.append(alarm)
        if len(raised) == 1:
            timers.set(CancelWaited(1), 10)
    assert raised == [CancelWaited(1)] * 2


def test_a_cancelled_alarm_is_never_raised_and_cancelling_twice_is_harmless() -> None:
    timers = Timers()
    timers.set(CancelWaited(1), 10)
    timers.cancel(CancelWaited(1))
    timers.cancel(CancelWaited(1))
    assert list(timers.expired(10)) == []


def test_next_is_never_later_than_the_next_alarm() -> None:
    timers = Timers()
    assert timers.next == math.inf
    timers.set(CancelWaited(1), 10)
    timers.set(CancelWaited(2), 20)
    assert timers.next == 10
    timers.cancel(CancelWaited(1))
    assert list(timers.expired(10)) == []
    assert timers.next == 20
    assert list(timers.expired(20)) == [CancelWaited(2)]
    assert timers.next == math.inf


def test_alarms_set_while_others_are_raised_are_raised_too_if_due() -> None:
    timers = Timers()
    timers.set(CancelWaited(0), 0)
    seen: list[int] = []
    for alarm in timers.expired(5):
        assert isinstance(alarm, CancelWaited)
        seen.append(alarm.request)
        timers.set(CancelWaited(alarm.request + 1), alarm.request + 1)
    assert seen == [0, 1, 2, 3, 4, 5]
    assert timers.next == 6


def test_leftovers_do_not_pile_up() -> None:
    timers = Timers()
    timers.set(CancelWaited(0), 1_000_000)
    for due in range(100_000):
        timers.set(CancelWaited(1), due)
        timers.set(BoundPassed(str(due)), due + 1)
        timers.cancel(BoundPassed(str(due)))
    assert len(timers) == 2
    assert len(timers._heap) < 200
    assert list(timers.expired(99_999)) == [CancelWaited(1)]
    assert timers.next == 1_000_000


@given(st.lists(st.tuples(st.sampled_from("scet"), st.integers(0, 5), st.integers(0, 30)), max_size=60))
def test_it_behaves_like_a_table_of_due_times(steps: list[tuple[str, int, int]]) -> None:
    timers, due, now = Timers(), dict[int, int](), 0
    for word, key, value in steps:
        if word == "s":
            timers.set(CancelWaited(key), value)
            due[key] = value
        elif word == "c":
            timers.cancel(CancelWaited(key))
            due.pop(key, None)
        elif word == "t":
            now = max(now, value)
            raised = [alarm.request for alarm in timers.expired(now) if isinstance(alarm, CancelWaited)]
            over = {key: at for key, at in due.items() if at <= now}
            assert sorted(raised) == sorted(over)
            assert [over[key] for key in raised] == sorted(over.values())
            due = {key: at for key, at in due.items() if at > now}
        assert timers.next <= min(due.values(), default=math.inf)
        assert len(timers) == len(due)
