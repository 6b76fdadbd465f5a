"""What is kept of a key log: several processes write it, and none goes back behind another."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ringline.client.logstate import LogState, Seen, SeenCard
from ringline.protocol.errors import ConfigError
from ringline.protocol.merkle import Frontier, leaf_hash


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keylog.db"


@pytest.fixture
def state(path: Path) -> Iterator[LogState]:
    with closing(LogState(path)) as opened:
        yield opened


def seen(size: int, root: int = 0) -> Seen:
    return Seen(b"note", size, bytes([root]) * 32, 1)


def frontier(size: int) -> Frontier:
    grown = Frontier()
    for number in range(size):
        grown.append(leaf_hash(bytes([number])))
    return grown


def card(number: int, serial: int = 1, handle: str = "bob") -> SeenCard:
    return SeenCard(number, bytes([number]) * 32, handle, serial, bytes(32))


def test_a_checkpoint_replaces_only_the_one_that_it_was_compared_with(state: LogState, path: Path) -> None:
    assert state.seen() is None
    assert state.advance(None, seen(3))
    # Another process compared with nothing, or with another one, meanwhile.
    for before in (None, seen(2), seen(3, 1)):
        assert not state.advance(before, seen(9))
    assert state.seen() == seen(3)
    assert state.advance(seen(3), seen(4))
    with closing(LogState(path)) as again:
        assert again.seen() == seen(4)


def test_entries_are_kept_once_however_many_processes_read_them(state: LogState) -> None:
    assert state.read().size == 0
    assert state.note_entries(0, frontier(3), [card(1)], [(b"r" * 32, 2)])
    assert not state.note_entries(0, frontier(2), [card(0)], [])
    assert state.read().hashes == frontier(3).hashes
    assert (state.number_of(card(1).card_id), state.number_of(card(0).card_id)) == (1, None)
    assert (state.revoked_at(b"r" * 32), state.revoked_at(b"s" * 32)) == (2, None)


def test_a_rival_is_another_card_of_the_handle_that_is_not_earlier(state: LogState) -> None:
    cards = [card(1), card(2, 2), card(3, 3), card(4, 9, "carol")]
    state.note_entries(0, frontier(5), cards, [])
    assert state.rival("bob", 3, card(3).card_id) is None
    assert state.rival("bob", 2, card(2).card_id) == cards[2]
    assert state.rival("bob", 3, card(9).card_id) == cards[2]
    assert state.rival("dave", 1, card(9).card_id) is None


def test_the_own_cards_are_looked_at_once_by_each_handle(state: LogState) -> None:
    state.note_entries(0, frontier(3), [card(1), card(2, 1, "carol")], [])
    assert state.unchecked("bob") == ([card(1)], 3)
    state.note_checked("bob", 3)
    state.note_checked("bob", 1)
    assert state.unchecked("bob") == ([], 3)
    assert state.unchecked("bob", 0) == ([card(1)], 3)
    assert state.unchecked("carol") == ([card(2, 1, "carol")], 3)


def test_the_first_key_stays_and_may_be_vouched_for_later(state: LogState) -> None:
    assert state.key() is None
    assert state.pin_key(b"k" * 32, "relay") == (b"k" * 32, "relay")
    assert state.pin_key(b"x" * 32, "contact") == (b"k" * 32, "relay")
    assert state.pin_key(b"k" * 32, "contact") == (b"k" * 32, "contact")
    assert state.pin_key(b"k" * 32, "relay") == (b"k" * 32, "contact")


def test_an_alarm_is_raised_once_and_settled_by_its_owner(state: LogState) -> None:
    assert state.raise_alarm("card x", "look", 5, "/evidence")
    assert not state.raise_alarm("card x", "look again", 6)
    (alarm,) = state.alarms()
    assert (alarm.text, alarm.at, alarm.seen, alarm.evidence) == ("look", 5, False, "/evidence")
    assert state.alarm("card x") == alarm
    assert state.alarm("card y") is None
    state.settle_alarms()
    assert [alarm.seen for alarm in state.alarms()] == [True]


def test_what_was_forgotten_is_gone_but_alarms_stay(state: LogState) -> None:
    state.pin_key(b"k" * 32, "relay")
    state.advance(None, seen(3))
    state.note_entries(0, frontier(3), [card(1)], [(b"r" * 32, 2)])
    state.note_proved(card(1).card_id, 1)
    state.raise_alarm("card x", "look", 5)
    state.forget()
    assert (state.key(), state.seen(), state.read().size) == (None, None, 0)
    assert not state.proved(card(1).card_id)
    assert state.number_of(card(1).card_id) is state.revoked_at(b"r" * 32) is None
    assert len(state.alarms()) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("PRAGMA user_version = 99", "later version"),
        ("PRAGMA application_id = 7", "another program"),
    ],
)
def test_a_file_of_another_program_or_a_later_version_is_left_alone(
    path: Path, change: str, says: str
) -> None:
    LogState(path).close()
    with closing(sqlite3.connect(path)) as run:
        run.execute(change)
    with pytest.raises(ConfigError, match=says) as caught:
        LogState(path)
    assert caught.value.next_step
