"""The directory's rules, asked directly: who may publish what, who may see whom, who may log in."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from ringline.protocol import shapes
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import HttpProblem
from ringline.protocol.identity import next_commitment
from ringline.protocol.instant import Instant
from ringline.protocol.limits import (
    CARD_GRACE_MS,
    CARD_LIFE_MS,
    CARD_LOGIN_GRACE_MS,
    CLOCK_SLACK_MS,
    PREKEY_LIFE_MS,
)
from ringline.protocol.prekeys import Chain, Prekey, SignedPrekey
from ringline.protocol.signing import SigningKey
from ringline.relay.directory import RECENT_CARDS, Accept, Decision, Directory
from ringline.relay.publication import read_publication
from ringline.relay.store import Change
from ringline_testing.signed import Owner

START = 1_790_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR
EPOCH = START // DAY
NOW = Instant(START, 5_000)
IDENTITY_POINT = b"\x01" + bytes(31)


class Desk:
    """A directory whose decisions are applied at once, as if the disk were instant."""

    def __init__(self, **options: Any) -> None:
        defaults: dict[str, Any] = {"accept": "anyone"}
        self.directory = Directory("localhost", **(defaults | options))
        self.log: list[Change] = []

    def do(self, decision: Decision) -> Decision:
        for change in decision.changes:
            self.directory.apply(change)
            self.log.append(change)
        return decision

    def publish(self, owner: Owner, now: Instant = NOW, **changes: Any) -> Decision:
        body = msgspec.convert(owner.publication(**changes), shapes.KeysPublication)
        return self.do(self.directory.publish(read_publication(body, realm="localhost", now=now), now))

    def prekey(self, owner: Owner, now: Instant = NOW, **changes: Any) -> Decision:
        body = msgspec.convert(owner.prekey_publication() | changes, shapes.PrekeyPublication)
        return self.do(self.directory.publish_prekey(owner.handle, body, now))

    def revoke(self, owner: Owner, now: Instant = NOW, **changes: Any) -> Decision:
        body = msgspec.convert(owner.revocation(**changes), shapes.RevocationStatement)
        return self.do(self.directory.revoke(owner.handle, body, now))

    def policy(self, handle: str, **members: Any) -> Decision:
        policy: dict[str, Any] = {"offline": False, "accept": "listed", "allow": [], "block": []}
        policy |= members
        return self.do(self.directory.set_policy(handle, msgspec.convert(policy, shapes.Policy)))


def owner(handle: str = "alice", **members: Any) -> Owner:
    """Return an owner whose card begins an hour before `NOW`."""
    defaults: dict[str, Any] = {"port": 0, "not_before": START - HOUR, "chain": Chain.start(EPOCH)}
    return Owner(handle=handle, **(defaults | members))


@pytest.fixture
def desk() -> Desk:
    return Desk()


def refused(code: str) -> Any:
    """Expect a refusal with one of the HTTP codes of the error registry."""
    return pytest.raises(HttpProblem, check=lambda error: error.code == code)


# --- publication


def test_a_first_publication_creates_the_handle(desk: Desk) -> None:
    alice = owner()
    assert desk.publish(alice).created
    assert desk.directory.published("alice") == shapes.Published(
        handle="alice", card_id=alice.card_id, serial=1, prekey_epoch=EPOCH
    )
    keys = desk.directory.keys("alice", "alice", NOW)
    assert keys is not None
    assert b64decode(keys.card) == alice.card.card.encode()
    assert b64decode(keys.card_sig) == alice.card.signature
    assert b64decode(keys.prekey) == alice.prekey.prekey.encode()


def test_an_identical_republication_changes_nothing(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    again = desk.publish(alice, Instant(START + DAY, 5_000 + DAY))
    assert again == Decision((), created=False)


@pytest.mark.parametrize("serial", [2, 7])
def test_a_first_card_has_serial_one(desk: Desk, serial: int) -> None:
    with refused("conflict"):
        desk.publish(owner(serial=serial))
    assert len(desk.directory) == 0


def test_a_first_card_succeeds_to_nobody(desk: Desk) -> None:
    new = SigningKey.generate()
    heir = owner(next=next_commitment(new.public)).succeeded(new, serial=1)
    with refused("conflict"):
        desk.publish(heir)


def test_a_taken_handle_stays_with_its_identity(desk: Desk) -> None:
    desk.publish(owner())
    with refused("conflict"):
        desk.publish(owner())
    with refused("conflict"):
        desk.publish(owner(serial=2))


@pytest.mark.parametrize("serial", [1, 3, 4])
def test_a_later_card_has_the_next_serial(desk: Desk, serial: int) -> None:
    alice = owner()
    desk.publish(alice)
    with refused("conflict"):
        desk.publish(alice.renewed(serial=serial))
    assert not desk.publish(alice.renewed()).created
    assert desk.directory.published("alice").serial == 2


def test_a_replaced_card_cannot_be_published_again(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    desk.publish(alice.renewed())
    with refused("conflict"):
        desk.publish(alice)


def test_a_card_does_not_begin_before_the_one_it_replaces(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    with refused("conflict"):
        desk.publish(alice.renewed(not_before=alice.not_before - 1))
    desk.publish(alice.renewed(not_before=alice.not_before))


def test_a_card_with_another_signature_is_a_conflict(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    # Ed25519 lets the signer make as many signatures as he likes; the log of keys has one.
    body = msgspec.convert(alice.publication(), shapes.KeysPublication)
    offer = read_publication(body, realm="localhost", now=NOW)
    other = replace(offer, card=replace(offer.card, signature=bytes(64)))
    with refused("conflict"):
        desk.directory.publish(other, NOW)


def test_an_identity_keeps_its_commitment(desk: Desk) -> None:
    first, second = SigningKey.generate(), SigningKey.generate()
    alice = owner(next=next_commitment(first.public))
    desk.publish(alice)
    # A thief of the identity key must not be able to choose the identity that follows.
    with refused("conflict"):
        desk.publish(alice.renewed(next=next_commitment(second.public)))
    with refused("conflict"):
        desk.publish(alice.renewed(next=bytes(32)))
    desk.publish(alice.renewed())


def test_an_identity_without_a_commitment_may_make_one(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    desk.publish(alice.renewed(next=next_commitment(SigningKey.generate().public)))


def test_a_handle_passes_to_the_committed_identity(desk: Desk) -> None:
    new = SigningKey.generate()
    alice = owner(next=next_commitment(new.public))
    desk.publish(alice)
    heir = alice.succeeded(new)
    assert not desk.publish(heir).created
    keys = desk.directory.keys("alice", "alice", NOW)
    assert keys is not None
    assert keys.card == b64encode(heir.card.card.encode())
    assert msgspec.to_builtins(keys)["succession"] == heir.publication()["succession"]


def test_a_succession_stays_to_be_seen_after_the_next_ordinary_card(desk: Desk) -> None:
    new = SigningKey.generate()
    alice = owner(next=next_commitment(new.public))
    desk.publish(alice)
    heir = alice.succeeded(new)
    desk.publish(heir)
    desk.publish(heir.renewed())
    keys = desk.directory.keys("alice", "alice", NOW)
    assert keys is not None
    assert msgspec.to_builtins(keys)["succession"] == heir.publication()["succession"]
    # The owner may go on showing it; another one is not taken.
    later = heir.renewed().renewed(succession=heir.succession)
    desk.publish(later)
    with refused("conflict"):
        desk.publish(later.renewed(succession=later.succeeded(SigningKey.generate()).succession))


def test_a_handle_does_not_pass_to_another_identity_than_the_committed_one(desk: Desk) -> None:
    alice = owner(next=next_commitment(SigningKey.generate().public))
    desk.publish(alice)
    thief = SigningKey.generate()
    for old_signs in (False, True):
        with refused("conflict"):
            desk.publish(alice.succeeded(thief, old_signs=old_signs))


def test_without_a_commitment_the_old_identity_signs_the_succession(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    new = SigningKey.generate()
    with refused("conflict"):
        desk.publish(alice.succeeded(new))
    desk.publish(alice.succeeded(new, old_signs=True))


def test_a_succession_names_the_current_card(desk: Desk) -> None:
    new = SigningKey.generate()
    alice = owner(next=next_commitment(new.public))
    desk.publish(alice)
    desk.publish(alice.renewed())
    with refused("conflict"):
        desk.publish(alice.succeeded(new, serial=3))


def test_a_succession_is_signed_by_the_new_identity(desk: Desk) -> None:
    new = SigningKey.generate()
    alice = owner(next=next_commitment(new.public))
    desk.publish(alice)
    heir = alice.succeeded(new)
    assert heir.succession is not None
    with refused("malformed"):
        desk.publish(replace(heir, succession=replace(heir.succession, signature=bytes(64))))


def test_a_card_of_the_same_identity_brings_no_succession(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    foreign = alice.succeeded(SigningKey.generate(), old_signs=True).succession
    with refused("conflict"):
        desk.publish(alice.renewed(succession=foreign))


def test_cards_cannot_be_piled_up(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    for _ in range(RECENT_CARDS):
        alice = alice.renewed()
        desk.publish(alice)
    with pytest.raises(HttpProblem) as caught:
        desk.publish(alice.renewed())
    assert caught.value.code == "rate_limited"
    wait = caught.value.retry_after_ms
    assert wait == CARD_GRACE_MS - HOUR
    later = Instant(START + wait, NOW.mono + wait)
    desk.publish(alice.renewed(chain=Chain.start(later.wall // DAY)), later)


# --- what a publication is made of


def test_a_card_of_another_realm_is_malformed(desk: Desk) -> None:
    with refused("malformed"):
        desk.publish(owner(realm="relay.example"))


@pytest.mark.parametrize("role", ["identity", "operational"])
def test_a_weak_key_is_malformed(desk: Desk, role: str) -> None:
    alice = owner()
    body = alice.publication()
    key = (alice.identity if role == "identity" else alice.operational).public
    card = b64decode(body["card"]).replace(key, IDENTITY_POINT)
    with refused("malformed"):
        desk.publish(alice, card=b64encode(card), card_sig=b64encode(alice.identity.sign(card)))


def test_one_key_in_both_roles_is_malformed(desk: Desk) -> None:
    key = SigningKey.generate()
    with refused("malformed"):
        desk.publish(owner(identity=key, operational=key))


@pytest.mark.parametrize("member", ["card_sig", "prekey_sig"])
def test_a_signature_that_does_not_hold_is_malformed(desk: Desk, member: str) -> None:
    with refused("malformed"):
        desk.publish(owner(), NOW, **{member: b64encode(bytes(64))})


@pytest.mark.parametrize("member", ["card", "card_sig", "prekey", "prekey_sig"])
@pytest.mark.parametrize("damage", ["AA", "A", "AB", "A-_" * 40])
def test_bytes_that_are_no_statement_are_malformed(desk: Desk, member: str, damage: str) -> None:
    with refused("malformed"):
        desk.publish(owner(), NOW, **{member: damage})


def test_a_card_lives_for_ninety_days_and_an_hour_at_most(desk: Desk) -> None:
    with refused("malformed"):
        desk.publish(owner(life=CARD_LIFE_MS + 1))
    desk.publish(owner(life=CARD_LIFE_MS))


def test_a_card_is_published_within_its_life(desk: Desk) -> None:
    alice = owner(life=2 * HOUR)
    with refused("malformed"):
        desk.publish(alice, Instant(START + HOUR, 0))
    with refused("malformed"):
        desk.publish(alice, Instant(START - HOUR - 120_001, 0))
    desk.publish(alice, Instant(START + HOUR - 1, 0))


def prekey_of(alice: Owner, **members: Any) -> Any:
    """Return a prekey publication with some members of the statement replaced, signed all the same."""
    statement = alice.prekey.prekey
    values = {
        name: getattr(statement, name) for name in ("card_id", "epoch", "not_before", "not_after", "keys")
    }
    signed = SignedPrekey.sign(Prekey(**(values | members)), alice.operational)
    return {"prekey": b64encode(signed.prekey.encode()), "prekey_sig": b64encode(signed.signature)}


def test_a_prekey_lives_for_fourteen_days_and_an_hour_at_most(desk: Desk) -> None:
    alice = owner()
    begin = START - HOUR
    with refused("malformed"):
        desk.publish(alice, **prekey_of(alice, not_before=begin, not_after=begin + PREKEY_LIFE_MS + 1))
    desk.publish(alice, **prekey_of(alice, not_before=begin, not_after=begin + PREKEY_LIFE_MS))


def test_a_prekey_is_published_within_its_life(desk: Desk) -> None:
    alice = owner()
    with refused("malformed"):
        desk.publish(alice, **prekey_of(alice, not_before=START - DAY, not_after=START))
    with refused("malformed"):
        desk.publish(alice, **prekey_of(alice, not_before=START + 120_001, not_after=START + DAY))
    desk.publish(alice, **prekey_of(alice, not_before=START + 120_000, not_after=START + DAY))


def test_a_prekey_with_a_weak_key_is_malformed(desk: Desk) -> None:
    alice = owner()
    keys = (replace(alice.prekey.prekey.keys[0], public=bytes(32)),)
    with refused("malformed"):
        desk.publish(alice, **prekey_of(alice, keys=keys))


# --- prekeys


def test_a_prekey_of_a_higher_epoch_replaces_the_one_before(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    tomorrow = Instant(START + DAY, 0)
    later = replace(alice, chain=alice.chain.at(EPOCH + 1))
    assert desk.prekey(later, tomorrow).changes
    assert desk.directory.published("alice").prekey_epoch == EPOCH + 1
    keys = desk.directory.keys("alice", "alice", tomorrow)
    assert keys is not None
    assert keys.prekey == later.prekey_publication()["prekey"]


def test_two_hosts_publish_the_same_prekey(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    assert desk.prekey(alice) == Decision(())


def test_a_lower_epoch_or_an_equal_one_with_other_bytes_is_a_conflict(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    with refused("conflict"):
        desk.prekey(alice, **prekey_of(alice, epoch=EPOCH - 1))
    with refused("conflict"):
        desk.prekey(replace(alice, chain=Chain.start(EPOCH)))
    assert desk.directory.published("alice").prekey_epoch == EPOCH


def test_epochs_compare_within_one_card(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice, **prekey_of(alice, epoch=EPOCH + 9))
    renewed = alice.renewed()
    desk.publish(renewed)
    assert desk.directory.published("alice").prekey_epoch == EPOCH


def test_a_prekey_of_another_card_is_a_conflict(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    desk.publish(alice.renewed())
    with refused("conflict"):
        desk.prekey(replace(alice, chain=alice.chain.at(EPOCH + 1)), Instant(START + DAY, 0))


def test_a_prekey_that_the_current_card_did_not_sign_is_malformed(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    with refused("malformed"):
        desk.prekey(replace(alice, chain=alice.chain.at(EPOCH + 1)), prekey_sig=b64encode(bytes(64)))


def test_a_republished_card_may_bring_the_next_prekey(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    desk.publish(replace(alice, chain=alice.chain.at(EPOCH + 1)), Instant(START + DAY, 0))
    assert desk.directory.published("alice").prekey_epoch == EPOCH + 1
    with refused("conflict"):
        desk.publish(alice)


# --- revocation


def test_the_identity_revokes_a_card(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    assert desk.revoke(alice).created
    assert desk.directory.is_revoked("alice", alice.card_id)
    keys = desk.directory.keys("alice", "alice", NOW)
    assert keys is not None
    assert keys.revoked == [alice.card_id]


def test_a_repeated_revocation_changes_nothing(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    desk.revoke(alice)
    assert desk.revoke(alice) == Decision((), created=False)


def test_the_committed_next_identity_revokes_a_card(desk: Desk) -> None:
    new = SigningKey.generate()
    alice = owner(next=next_commitment(new.public))
    desk.publish(alice)
    with refused("malformed"):
        desk.revoke(alice, by="next", key=SigningKey.generate())
    assert desk.revoke(alice, by="next", key=new).created


def test_a_card_without_a_commitment_is_revoked_by_its_identity_alone(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    with refused("malformed"):
        desk.revoke(alice, by="next", key=SigningKey.generate())
    with refused("malformed"):
        desk.revoke(alice, key=alice.operational)
    assert not desk.directory.is_revoked("alice", alice.card_id)


@pytest.mark.parametrize("reason", [3, 255])
def test_a_revocation_gives_a_known_reason(desk: Desk, reason: int) -> None:
    alice = owner()
    desk.publish(alice)
    with refused("malformed"):
        desk.revoke(alice, reason=reason)


def test_a_revocation_of_what_is_not_here_is_not_found(desk: Desk) -> None:
    alice = owner()
    with refused("not_found"):
        desk.revoke(alice)
    desk.publish(alice)
    with refused("not_found"):
        desk.revoke(alice.renewed())


def test_a_replaced_card_can_still_be_revoked(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    desk.publish(alice.renewed())
    assert desk.revoke(alice).created
    assert desk.directory.login_card("alice", alice.card_id, NOW) is None
    assert not desk.directory.sender_valid("alice", alice.card_id, NOW)


def test_a_revoked_card_cannot_be_published_again(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    desk.revoke(alice)
    with refused("conflict"):
        desk.publish(alice)
    desk.publish(alice.renewed())


# --- log-in and sending


def test_the_card_before_logs_in_for_48_hours(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    renewed = alice.renewed(not_before=START)
    desk.publish(renewed)
    end = START + CARD_LOGIN_GRACE_MS
    assert desk.directory.logs_in_until("alice", alice.card_id) == end
    assert desk.directory.login_card("alice", alice.card_id, Instant(end - 1, 0)) is not None
    assert desk.directory.login_card("alice", alice.card_id, Instant(end, 0)) is None
    assert desk.directory.login_card("alice", renewed.card_id, Instant(end, 0)) is not None


def test_an_expired_card_does_not_log_in(desk: Desk) -> None:
    alice = owner(life=2 * HOUR)
    desk.publish(alice)
    end = START + HOUR
    assert desk.directory.login_card("alice", alice.card_id, Instant(end - 1, 0)) is not None
    assert desk.directory.login_card("alice", alice.card_id, Instant(end, 0)) is None


def test_unknown_cards_do_not_log_in(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    assert desk.directory.login_card("alice", owner().card_id, NOW) is None
    assert desk.directory.login_card("bob", alice.card_id, NOW) is None
    assert desk.directory.logs_in_until("bob", alice.card_id) == 0


def test_a_sender_uses_his_card_for_96_hours_after_its_replacement(desk: Desk) -> None:
    alice = owner()
    desk.publish(alice)
    desk.publish(alice.renewed(not_before=START))
    end = START + CARD_GRACE_MS
    assert desk.directory.sender_valid("alice", alice.card_id, Instant(end - 1, 0))
    assert not desk.directory.sender_valid("alice", alice.card_id, Instant(end, 0))
    assert not desk.directory.sender_valid("bob", alice.card_id, NOW)


# --- policy and visibility


def test_policies_default_to_the_relays_choice() -> None:
    choices: tuple[tuple[Accept, bool], ...] = (("anyone", True), ("listed", False), ("invited", False))
    for accept, reached in choices:
        desk = Desk(accept=accept)
        desk.publish(owner("bob"))
        assert desk.directory.policy("bob") == shapes.Policy(offline=False, accept=accept, allow=[], block=[])
        assert desk.directory.may_reach("alice", "bob") is reached


@pytest.mark.parametrize(
    ("policy", "reached"),
    [
        ({"accept": "anyone"}, True),
        ({"accept": "anyone", "block": ["alice"]}, False),
        ({"accept": "listed"}, False),
        ({"accept": "listed", "allow": ["alice"]}, True),
        ({"accept": "listed", "allow": ["carol"]}, False),
        ({"accept": "invited", "allow": ["alice"]}, True),
        ({"accept": "listed", "allow": ["alice"], "block": ["alice"]}, False),
    ],
)
def test_a_policy_tells_who_reaches_a_handle(desk: Desk, policy: dict[str, Any], reached: bool) -> None:
    desk.publish(owner("bob"))
    desk.policy("bob", **policy)
    assert desk.directory.may_reach("alice", "bob") is reached


def test_a_handle_reaches_itself_and_nobody_reaches_a_missing_one(desk: Desk) -> None:
    desk.publish(owner("bob"))
    desk.policy("bob")
    assert desk.directory.may_reach("bob", "bob")
    assert not desk.directory.may_reach("bob", "nobody")
    assert not desk.directory.may_reach("nobody", "nobody")


def test_stored_calls_are_off_until_the_owner_switches_them_on(desk: Desk) -> None:
    desk.publish(owner("bob"))
    assert not desk.directory.takes_durable("bob")
    desk.policy("bob", offline=True)
    assert desk.directory.takes_durable("bob")
    assert not desk.directory.takes_durable("nobody")


def test_keys_are_seen_by_whoever_may_call_and_by_parties_of_a_call() -> None:
    met: list[tuple[str, str, Instant]] = []

    def parties(a: str, b: str, now: Instant) -> bool:
        met.append((a, b, now))
        return a == "carol"

    desk = Desk(accept="listed", met=parties)
    desk.publish(owner("bob"))
    desk.policy("bob", allow=["alice"])
    seen = {name: desk.directory.keys("bob", name, NOW) for name in ("bob", "alice", "carol", "dave")}
    assert {name for name, keys in seen.items() if keys is not None} == {"bob", "alice", "carol"}
    assert ("dave", "bob", NOW) in met
    assert desk.directory.keys("nobody", "alice", NOW) is None


def test_a_replaced_card_is_served_by_its_id_for_96_hours(desk: Desk) -> None:
    bob = owner("bob")
    desk.publish(bob)
    desk.publish(bob.renewed(not_before=START))
    desk.revoke(bob)
    end = START + CARD_GRACE_MS
    served = desk.directory.superseded("bob", bob.card_id, "alice", Instant(end - 1, 0))
    assert served == shapes.SupersededKeys(
        handle="bob",
        card=b64encode(bob.card.card.encode()),
        card_sig=b64encode(bob.card.signature),
        revoked=[bob.card_id],
    )
    assert desk.directory.superseded("bob", bob.card_id, "alice", Instant(end, 0)) is None
    assert desk.directory.superseded("bob", owner().card_id, "alice", NOW) is None
    desk.policy("bob")
    assert desk.directory.superseded("bob", bob.card_id, "alice", NOW) is None


# --- changes


def test_a_directory_is_what_its_changes_make_it(desk: Desk) -> None:
    new = SigningKey.generate()
    bob = owner("bob", next=next_commitment(new.public))
    desk.publish(owner("alice"))
    desk.publish(bob)
    desk.policy("bob", allow=["alice"])
    heir = bob.succeeded(new, not_before=START)
    desk.publish(heir)
    desk.prekey(replace(heir, chain=heir.chain.at(EPOCH + 1)), Instant(START + DAY, 0))
    desk.revoke(bob)
    copy = Directory("localhost")
    for change in desk.log:
        copy.apply(change)
    later = Instant(START + DAY, 0)
    assert copy.keys("bob", "alice", later) == desk.directory.keys("bob", "alice", later)
    assert copy.policy("bob") == desk.directory.policy("bob")
    assert copy.is_revoked("bob", bob.card_id)
    assert copy.logs_in_until("bob", heir.card_id) == desk.directory.logs_in_until("bob", heir.card_id)
    assert copy.may_reach("alice", "bob")
    assert not copy.may_reach("carol", "bob")


def test_a_stored_card_of_another_realm_is_refused(desk: Desk) -> None:
    desk.publish(owner())
    with pytest.raises(ValueError, match="stored card"):
        Directory("relay.example").apply(desk.log[0])


def test_the_clock_slack_is_part_of_the_lives() -> None:
    assert (CARD_LIFE_MS - 90 * DAY, PREKEY_LIFE_MS - 14 * DAY) == (CLOCK_SLACK_MS, CLOCK_SLACK_MS)
