"""Calls that wait for their owner's word: at the session, and in the inbox."""

import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ringline.client.account import Account
from ringline.client.address import RelayAddress
from ringline.client.home import Home
from ringline.client.inbox import INBOX_ENTRIES, Inbox, Waiting
from ringline.listener.waiting import WaitingRoom
from ringline.protocol.errors import ConfigError
from ringline.protocol.frames import Envelope, IncomingCall
from ringline_testing.journals import NOW, Shelf
from ringline_testing.talk import Talk, incoming, lease

L1, L2 = lease(1), lease(2)
EXECUTE_BY = NOW + 3_600_000


@pytest.fixture
def talk(shelf: Shelf) -> Talk:
    return Talk(shelf)


def held(talk: Talk) -> Talk:
    """Have a durable call wait under the first lease."""
    assert talk.offer(lease=L1) == ["open call-1"]
    # Accepted holds the lease; nothing is started, and nothing is taken.
    assert talk.hold() == ["accepted call-1 under 1"]
    assert talk.session.held == ("call-1",)
    return talk


class TestSession:
    def test_a_call_that_waits_is_accepted_and_opened_again_once_it_was_decided(self, talk: Talk) -> None:
        held(talk)
        assert talk.reopen() == ["open call-1"]
        assert talk.session.held == ()
        assert talk.opened() == ["accepted call-1 under 1", "started call-1 under 1"]

    def test_a_call_that_was_denied_is_refused(self, talk: Talk) -> None:
        held(talk)
        talk.reopen()
        assert talk.refused() == ["rejected call-1 under 1"]

    def test_it_waits_on_over_a_loss(self, talk: Talk) -> None:
        held(talk)
        talk.reconnect()
        # Nobody may be told anything now; the relay offers it again.
        assert talk.reopen("call-9") == []
        assert talk.offer(lease=L2) == ["accepted call-1 under 2"]
        assert talk.reopen() == ["open call-1"]
        assert talk.opened() == ["accepted call-1 under 2", "started call-1 under 2"]

    def test_a_decision_during_a_loss_counts_when_it_comes_again(self, talk: Talk) -> None:
        held(talk)
        talk.reconnect()
        assert talk.reopen() == []
        assert talk.offer(lease=L2) == ["open call-1"]

    def test_it_is_cancelled_as_what_it_is_pending(self, talk: Talk) -> None:
        held(talk)
        assert talk.cancel(lease=L1) == ["cancelled call-1 pending under 1"]
        assert talk.session.held == ()
        assert talk.reopen() == []

    def test_a_cancel_that_came_while_it_was_looked_at_is_not_lost(self, talk: Talk) -> None:
        talk.offer(lease=L1)
        assert talk.cancel(lease=L1) == []
        assert talk.hold() == ["cancelled call-1 pending under 1"]
        assert talk.session.held == ()

    def test_a_refused_lease_ends_the_wait(self, talk: Talk) -> None:
        held(talk)
        assert talk.refuse_lease(lease=L1) == []
        assert talk.session.held == ()

    def test_its_time_is_over_at_execute_by(self, talk: Talk) -> None:
        held(talk)
        talk.later(72 * 3_600_000)
        assert talk.session.held == ()

    def test_processes_that_end_while_it_waits_have_not_died_over_it(self, talk: Talk) -> None:
        held(talk)
        for _ in range(4):
            talk.crash()
            assert talk.offer(lease=L1) == ["open call-1"]
            assert talk.hold() == ["accepted call-1 under 1"]

    def test_a_listener_that_ends_does_not_wait_for_its_owner(self, talk: Talk) -> None:
        held(talk)
        talk.session.drain()
        assert talk.session.idle


@pytest.fixture
def account(tmp_path: Path) -> Account:
    address = RelayAddress.parse("http://127.0.0.1:7575")
    return Account.create(Home(tmp_path), address, "bob", NOW, plain=True, suites=[1])


def waiting(number: int = 1, **members: Any) -> Waiting:
    values: dict[str, Any] = {
        "call_id": f"call-{number}",
        "handle": "alice",
        "ipk": "A" * 43,
        "known": False,
        "held_at": NOW,
        "execute_by": EXECUTE_BY,
        "bytes": 2_048,
    }
    return Waiting(**(values | members))


class TestInbox:
    def test_what_one_process_holds_another_decides(self, account: Account) -> None:
        one, other = Inbox(account.home, account), Inbox(account.home, account)
        assert one.hold(waiting(), NOW)
        assert other.find("call-1") == waiting()
        other.decide("call-1", "once")
        decided = one.find("call-1")
        assert decided is not None
        assert (decided.decision, decided.is_open) == ("once", False)
        one.drop("call-1")
        assert other.calls() == ()
        assert stat.S_IMODE(one.path.stat().st_mode) == 0o600

    def test_it_is_bounded_and_what_is_over_makes_room(self, account: Account) -> None:
        inbox = Inbox(account.home, account)
        inbox.hold(waiting(), NOW)
        text = inbox.path.read_text()
        entry = text[text.index("{", 1) : text.rindex("}", 0, text.rindex("]"))] + "}"
        many = ",".join(entry.replace("call-1", f"call-{number}") for number in range(INBOX_ENTRIES))
        inbox.path.write_text(f'{{"version":1,"calls":[{many}]}}')
        assert not inbox.hold(waiting(9_999), NOW)
        assert inbox.hold(waiting(9_999, execute_by=EXECUTE_BY + 1), EXECUTE_BY)
        assert [one.call_id for one in inbox.calls()] == ["call-9999"]

    @pytest.mark.parametrize("damage", ["{", "[]", '{"version":2,"calls":[]}', '{"version":1,"calls":[{}]}'])
    def test_a_damaged_one_is_left_as_it_is(self, account: Account, damage: str) -> None:
        inbox = Inbox(account.home, account)
        inbox.hold(waiting(), NOW)
        inbox.path.write_text(damage)
        for attempt in (inbox.calls, lambda: inbox.drop("call-1")):
            with pytest.raises(ConfigError, match="damaged"):
                attempt()
        assert inbox.path.read_text() == damage


def replace_ct(frame: IncomingCall, ct: str) -> Envelope:
    return msgspec.structs.replace(frame.envelope, ct=ct)


class TestRoom:
    def room(self, account: Account, most: int = 1) -> tuple[WaitingRoom, list[str]]:
        notes: list[str] = []
        room = WaitingRoom(Inbox(account.home, account), most=most, now=lambda: NOW, note=notes.append)
        return room, notes

    def test_a_durable_call_waits_until_it_was_decided(self, account: Account) -> None:
        room, notes = self.room(account)
        frame = incoming("call-1", lease=L1)
        for _ in range(2):
            assert room.holds(frame, bytes(32), known=False, task=None)
        assert len(notes) == 1
        assert "ringline inbox show call-1" in notes[0]
        assert not room.decided("call-1")
        assert not room.approves("call-1")
        Inbox(account.home, account).decide("call-1", "once")
        assert not room.holds(frame, bytes(32), known=False, task=None)
        assert room.decided("call-1")
        assert room.approves("call-1")

    def test_what_was_denied_is_not_approved(self, account: Account) -> None:
        room, _ = self.room(account)
        room.holds(incoming("call-1", lease=L1), bytes(32), known=True, task="review")
        Inbox(account.home, account).decide("call-1", "denied")
        assert room.decided("call-1")
        assert not room.approves("call-1")

    def test_what_was_decided_of_one_call_says_nothing_of_another_under_its_id(
        self, account: Account
    ) -> None:
        room, _ = self.room(account)
        meant = incoming("call-1", lease=L1)
        room.holds(meant, bytes(32), known=True, task="review")
        Inbox(account.home, account).decide("call-1", "once")
        room.recognise(meant)
        assert room.approves("call-1")
        # The relay chooses ids: it may well offer another's, and without having it wait.
        other = msgspec.structs.replace(incoming("call-1"), envelope=replace_ct(meant, "AB"))
        room.recognise(other)
        assert not room.approves("call-1")

    def test_a_sync_call_never_waits(self, account: Account) -> None:
        room, notes = self.room(account)
        assert not room.holds(incoming("call-1"), bytes(32), known=False, task=None)
        assert notes == []

    def test_only_so_many_wait(self, account: Account) -> None:
        room, _ = self.room(account, most=2)
        held = [
            room.holds(incoming(f"call-{number}", lease=L1), bytes(32), known=False, task=None)
            for number in range(3)
        ]
        assert held == [True, True, False]
        room.gone("call-0")
        assert room.holds(incoming("call-2", lease=L1), bytes(32), known=False, task=None)
