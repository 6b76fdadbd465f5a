"""Invites and enrolment, asked directly: who gets in by one, what is counted, what is told."""

from typing import Any

import msgspec
import pytest

from ringline.protocol import shapes
from ringline.protocol.errors import HttpProblem
from ringline.protocol.instant import Instant
from ringline.protocol.limits import INVITE_CLAIMS_FAILED, INVITE_KEPT_MS
from ringline.protocol.prekeys import Chain
from ringline.protocol.signing import SigningKey
from ringline.relay.directory import Decision, Directory
from ringline.relay.enrolment import Enrolment
from ringline.relay.invites import Minted, secret_hash
from ringline.relay.publication import read_publication
from ringline.relay.store import Change, InviteIssued
from ringline_testing.signed import Owner

START = 1_790_000_000_000
HOUR = 3_600_000
NOW = Instant(START, 5_000)
DAY_S = 86_400


class Desk:
    """A directory with its enrolment, whose decisions are applied at once."""

    def __init__(self, *, is_open: bool = False, admin: str | None = None, invites: int = 0) -> None:
        self.directory = Directory("localhost", accept="listed", invites=invites)
        self.enrolment = Enrolment(self.directory, is_open=is_open, admin=admin)
        self.log: list[Change] = []
        self._count = 0

    def do(self, decision: Decision) -> Decision:
        for change in decision.changes:
            self.directory.apply(change)
            self.log.append(change)
        if decision.refusal is not None:
            raise decision.refusal
        return decision

    def enrol(self, owner: Owner) -> Owner:
        """Let an owner in as if registration were open."""
        body = msgspec.convert(owner.publication(), shapes.KeysPublication)
        offer = read_publication(body, realm="localhost", now=NOW)
        self.do(self.directory.publish(offer, NOW))
        return owner

    def claim(self, owner: Owner, invite: str | None = None, now: Instant = NOW) -> Decision:
        body = msgspec.convert(owner.publication(), shapes.KeysPublication)
        offer = read_publication(body, realm="localhost", now=now)
        return self.do(self.enrolment.publish(offer, invite, now))

    def invite(self, inviter: str, *, uses: int = 1, ttl_s: int = DAY_S, now: Instant = NOW) -> Minted:
        self._count += 1
        minted = Minted(f"id-{self._count:04}", f"secret-{self._count:015}")
        request = shapes.InviteRequest(uses=uses, ttl_s=ttl_s)
        self.do(Decision(self.directory.invites.issue(inviter, request, minted, now)))
        return minted

    def shown(self, inviter: str, now: Instant = NOW) -> list[shapes.Invite]:
        return self.directory.invites.page(inviter, None, 100, now).invites

    def policy(self, handle: str, **members: Any) -> None:
        policy: dict[str, Any] = {"offline": False, "accept": "listed", "allow": [], "block": []}
        policy |= members
        self.do(self.directory.set_policy(handle, msgspec.convert(policy, shapes.Policy)))


def owner(handle: str, **members: Any) -> Owner:
    defaults: dict[str, Any] = {
        "port": 0,
        "not_before": START - HOUR,
        "chain": Chain.start(START // (24 * HOUR)),
    }
    return Owner(handle=handle, **(defaults | members))


def refused(code: str) -> Any:
    return pytest.raises(HttpProblem, check=lambda error: error.code == code)


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.enrol(owner("alice"))
    return desk


# --- getting in


def test_without_an_invite_nobody_new_gets_in(desk: Desk) -> None:
    with refused("forbidden"):
        desk.claim(owner("bob"))
    # A taken handle is told in the same way.
    with refused("forbidden"):
        desk.claim(owner("alice"))


def test_a_garbage_succession_tells_no_more_than_nothing(desk: Desk) -> None:
    for handle in ("alice", "nobody"):
        with refused("forbidden"):
            desk.claim(owner(handle).succeeded(SigningKey.generate(), old_signs=True))


def test_an_invite_lets_one_handle_in(desk: Desk) -> None:
    invite = desk.invite("alice")
    assert desk.claim(owner("bob"), invite.text).created
    with refused("forbidden"):
        desk.claim(owner("carol"), invite.text)
    (shown,) = desk.shown("alice")
    assert shown.state == "consumed"
    assert [(one.handle, one.at) for one in shown.accepted] == [("bob", START)]
    assert shown.failures == 0


def test_an_invite_lets_in_as_many_as_it_is_for(desk: Desk) -> None:
    invite = desk.invite("alice", uses=2)
    desk.claim(owner("bob"), invite.text)
    assert desk.shown("alice")[0].state == "open"
    desk.claim(owner("carol"), invite.text)
    with refused("forbidden"):
        desk.claim(owner("dave"), invite.text)
    assert [one.handle for one in desk.shown("alice")[0].accepted] == ["bob", "carol"]


def test_whoever_lost_the_answer_asks_again(desk: Desk) -> None:
    invite, bob = desk.invite("alice"), owner("bob")
    desk.claim(bob, invite.text)
    again = desk.claim(bob, invite.text, Instant(START + 2 * DAY_S * 1_000, 6_000))
    assert (again.changes, again.created) == ((), False)


def test_an_enrolled_handle_takes_up_a_further_invite(desk: Desk) -> None:
    bob = desk.enrol(owner("bob"))
    invite = desk.invite("alice")
    assert not desk.claim(bob, invite.text).created
    assert desk.directory.invites.lets("alice", "bob")


def test_an_owner_republishes_without_an_invite(desk: Desk) -> None:
    bob = owner("bob")
    desk.claim(bob, desk.invite("alice").text)
    assert desk.claim(bob).changes == ()
    desk.claim(bob.renewed())


def test_a_rightful_heir_needs_no_invite(desk: Desk) -> None:
    bob = owner("bob")
    desk.claim(bob, desk.invite("alice").text)
    desk.claim(bob.succeeded(SigningKey.generate(), old_signs=True))


def test_the_proof_for_the_inviter_is_passed_on_as_it_came(desk: Desk) -> None:
    invite = desk.invite("alice", uses=2)
    desk.claim(owner("bob"), f"{invite.text}:proof-of-bob")
    desk.claim(owner("carol"), invite.text)
    assert [one.proof for one in desk.shown("alice")[0].accepted] == ["proof-of-bob", None]


@pytest.mark.parametrize("text", ["", "x", "id-0001", "id-0001.", "id-0001.wrong", "id-0001.secret-0:", "…"])
def test_what_is_no_invite_is_refused_like_a_wrong_one(desk: Desk, text: str) -> None:
    desk.invite("alice")
    with refused("forbidden"):
        desk.claim(owner("bob"), text)


# --- what fails


def test_the_invite_is_judged_before_the_handle(desk: Desk) -> None:
    invite = desk.invite("alice")
    desk.enrol(owner("bob"))
    with refused("forbidden"):
        desk.claim(owner("bob"), f"{invite.id}.{'w' * 22}")
    with refused("conflict"):
        desk.claim(owner("bob"), invite.text)


@pytest.mark.parametrize("how", ["wrong secret", "taken handle"])
def test_five_failed_claims_void_an_invite(desk: Desk, how: str) -> None:
    invite = desk.invite("alice")
    for number in range(INVITE_CLAIMS_FAILED):
        assert desk.shown("alice")[0].state == "open"
        with refused("forbidden" if how == "wrong secret" else "conflict"):
            if how == "wrong secret":
                desk.claim(owner("bob"), f"{invite.id}.{number:022}")
            else:
                desk.claim(owner("alice"), invite.text)
    assert desk.shown("alice")[0].state == "failed"
    with refused("forbidden"):
        desk.claim(owner("bob"), invite.text)


def test_an_invite_that_is_over_counts_nothing_more(desk: Desk) -> None:
    invite = desk.invite("alice")
    desk.claim(owner("bob"), invite.text)
    before = len(desk.log)
    for _ in range(3):
        with refused("forbidden"):
            desk.claim(owner("carol"), invite.text)
    assert len(desk.log) == before


def test_an_invite_runs_out(desk: Desk) -> None:
    invite = desk.invite("alice", ttl_s=60)
    last, over = Instant(START + 59_999, 1), Instant(START + 60_000, 1)
    assert desk.shown("alice", last)[0].state == "open"
    assert desk.shown("alice", over)[0].state == "expired"
    with refused("forbidden"):
        desk.claim(owner("bob"), invite.text, over)
    desk.claim(owner("bob"), invite.text, last)


def test_a_withdrawn_invite_lets_nobody_in(desk: Desk) -> None:
    invite = desk.invite("alice", uses=2)
    desk.claim(owner("bob"), invite.text)
    desk.do(Decision(desk.directory.invites.withdraw(invite.id, "alice", NOW, any_of=False)))
    assert desk.shown("alice")[0].state == "void"
    with refused("forbidden"):
        desk.claim(owner("carol"), invite.text)
    # What was accepted before stays so: to shut somebody out, there is the block list.
    assert desk.directory.invites.lets("alice", "bob")
    assert desk.directory.invites.withdraw(invite.id, "alice", NOW, any_of=False) == ()


def test_nobody_withdraws_or_sees_anothers_invites(desk: Desk) -> None:
    invite = desk.invite("alice")
    for id in (invite.id, "none"):
        with refused("not_found"):
            desk.directory.invites.withdraw(id, "bob", NOW, any_of=False)
    assert desk.shown("bob") == []
    assert desk.directory.invites.withdraw(invite.id, "bob", NOW, any_of=True) != ()


def test_an_own_invite_is_not_taken_up(desk: Desk) -> None:
    bob = desk.enrol(owner("bob"))
    with refused("conflict"):
        desk.claim(bob, desk.invite("bob").text)


def test_the_secret_is_kept_as_a_hash_alone(desk: Desk) -> None:
    invite = desk.invite("alice")
    (issued,) = [change for change in desk.log if isinstance(change, InviteIssued)]
    assert issued.secret_hash == secret_hash(invite.secret)
    assert invite.secret not in repr(desk.log)


# --- reaching


def test_an_accepted_invite_lets_its_caller_through_where_the_policy_says_so(desk: Desk) -> None:
    desk.claim(owner("bob"), desk.invite("alice").text)
    reach = desk.directory.may_reach
    assert not reach("bob", "alice")
    desk.policy("alice", accept="invited")
    assert reach("bob", "alice")
    assert not reach("alice", "bob")
    desk.enrol(owner("carol"))
    assert not reach("carol", "alice")
    desk.policy("alice", accept="invited", block=["bob"])
    assert not reach("bob", "alice")


# --- lists and bounds


def test_invites_are_listed_in_pages_the_newest_first(desk: Desk) -> None:
    made = [desk.invite("alice").id for _ in range(5)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = desk.directory.invites.page("alice", cursor, 2, NOW)
        seen += [one.id for one in page.invites]
        cursor = page.next
        if cursor is None:
            break
    assert seen == made[::-1]
    assert desk.directory.invites.page("alice", "unknown", 2, NOW).invites == []


def test_one_identity_keeps_only_so_many_invites() -> None:
    desk = Desk(invites=3)
    desk.enrol(owner("alice"))
    # Those that were taken up do not count, however many they are.
    for number in range(4):
        desk.claim(owner(f"guest-{number}"), desk.invite("alice").text)
    for _ in range(3):
        desk.invite("alice", ttl_s=60)
    with refused("rate_limited"):
        desk.invite("alice")
    # What is long over makes room; what lets somebody through is kept.
    later = Instant(START + 60_000 + INVITE_KEPT_MS, 9_000)
    desk.invite("alice", now=later)
    assert len(desk.shown("alice", later)) == 4 + 1


def test_an_invite_that_brought_nobody_new_counts_and_is_forgotten() -> None:
    """Else an inviter and one guest, who takes up each, could fill the relay for ever."""
    desk = Desk(invites=3)
    desk.enrol(owner("alice"))
    guest = owner("bob")
    for _ in range(1 + 3):
        desk.claim(guest, desk.invite("alice").text)
    with refused("rate_limited"):
        desk.invite("alice")
    later = Instant(START + DAY_S * 1000 + INVITE_KEPT_MS, 9_000)
    desk.invite("alice", now=later)
    # The one that let him in is kept, and he is let in still.
    assert [one.id for one in desk.shown("alice", later)] == ["id-0006", "id-0001"]
    assert desk.directory.invites.lets("alice", "bob")
    # A relay that was started again from what is stored says the same.
    again = Directory("localhost", accept="listed", invites=3)
    for change in desk.log:
        again.apply(change)
    assert again.invites.lets("alice", "bob")


def test_an_invite_whose_guest_was_removed_is_forgotten() -> None:
    desk = Desk(invites=3)
    desk.enrol(owner("alice"))
    desk.claim(owner("bob"), desk.invite("alice").text)
    desk.do(desk.enrolment.remove("bob", "bob", NOW))
    later = Instant(START + DAY_S * 1000 + INVITE_KEPT_MS, 9_000)
    desk.invite("alice", now=later)
    assert [one.id for one in desk.shown("alice", later)] == ["id-0002"]


# --- the administrator


def test_the_administrators_handle_is_for_the_relays_own_invite_alone() -> None:
    desk = Desk(is_open=True, admin="root")
    desk.enrol(owner("alice"))
    desk.claim(owner("bob"))
    with refused("forbidden"):
        desk.claim(owner("root"))
    with refused("conflict"):
        desk.claim(owner("root"), desk.invite("alice").text)
    minted = Minted("admin", "s" * 22)
    desk.do(Decision(desk.directory.invites.reserve("root", minted, DAY_S, NOW)))
    with refused("forbidden"):
        desk.claim(owner("carol"), minted.text)
    assert desk.claim(owner("root"), minted.text).created
    assert desk.enrolment.is_admin("root")
    assert not desk.enrolment.is_admin("bob")


def test_a_new_invite_for_the_administrator_takes_the_place_of_the_last(desk: Desk) -> None:
    enrolment = Enrolment(desk.directory, is_open=False, admin="root")
    first, second = Minted("one", "s" * 22), Minted("two", "t" * 22)
    for minted in (first, second):
        desk.do(Decision(desk.directory.invites.reserve("root", minted, DAY_S, NOW)))
    desk.enrolment = enrolment
    with refused("forbidden"):
        desk.claim(owner("root"), first.text)
    desk.claim(owner("root"), second.text)


def test_only_its_owner_and_the_administrator_remove_an_identity() -> None:
    desk = Desk(is_open=True, admin="root")
    for handle in ("alice", "bob", "root"):
        desk.enrol(owner(handle))
    for handle in ("alice", "nobody"):
        with refused("forbidden"):
            desk.enrolment.remove(handle, "bob", NOW)
    with refused("not_found"):
        desk.enrolment.remove("nobody", "root", NOW)
    desk.do(desk.enrolment.remove("alice", "root", NOW))
    desk.do(desk.enrolment.remove("bob", "bob", NOW))
    assert len(desk.directory) == 1


def test_a_removed_identity_is_gone_and_its_handle_stays_taken() -> None:
    desk = Desk(is_open=True)
    alice, bob = owner("alice"), owner("bob")
    desk.enrol(alice)
    invite = desk.invite("alice", uses=3)
    desk.claim(bob, invite.text)
    desk.policy("alice", accept="invited")
    desk.do(desk.directory.remove("alice", NOW))
    directory = desk.directory
    assert directory.login_card("alice", alice.card_id, NOW) is None
    assert directory.keys("alice", "bob", NOW) is None
    assert not directory.is_enrolled("alice")
    assert not directory.may_reach("bob", "alice")
    with refused("forbidden"):
        desk.claim(owner("carol"), invite.text)
    for heir in (alice, owner("alice")):
        with refused("conflict"):
            desk.claim(heir)
