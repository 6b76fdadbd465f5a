"""The relay's key log: what becomes an entry, in which order, and what is cut out of it."""

from dataclasses import replace

import msgspec
import pytest

from ringline.protocol.checkpoint import Checkpoint, open_checkpoint
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import HttpProblem
from ringline.protocol.instant import Instant
from ringline.protocol.logentry import LogEntry, decode_entry
from ringline.protocol.merkle import Tree, leaf_hash
from ringline.protocol.shapes import KeysPublication, RevocationStatement
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import SignedRevocation
from ringline.protocol.tiles import Tile
from ringline.relay.directory import Decision, Directory
from ringline.relay.keylog import KeyLog, unlogged
from ringline.relay.publication import read_publication
from ringline.relay.store import CardPublished, CardRevoked, Change, LogAppended
from ringline_testing.agents import seed
from ringline_testing.signed import Owner, now_ms

SIGNER = SigningKey(seed("log"))


class Stage:
    """A directory with a log, whose decisions are applied at once."""

    def __init__(self) -> None:
        self.log = KeyLog("localhost", SIGNER)
        self.directory = Directory("localhost", log=self.log)
        self.changes: list[Change] = []
        self._moment = now()

    def now(self) -> Instant:
        """Let some time pass, and return the new time."""
        self._moment = Instant(mono=0, wall=self._moment.wall + 10)
        return self._moment

    def take(self, decision: Decision) -> list[LogEntry]:
        """Apply a decision and return what it added to the log."""
        self.changes += decision.changes
        for change in decision.changes:
            self.directory.apply(change)
        return [decode_entry(change.entry) for change in decision.changes if isinstance(change, LogAppended)]

    def publish(self, owner: Owner) -> list[LogEntry]:
        at = self.now()
        body = msgspec.convert(owner.publication(), KeysPublication)
        offer = read_publication(body, realm="localhost", now=at)
        return self.take(self.directory.publish(offer, at))

    def revoke(self, owner: Owner) -> list[LogEntry]:
        body = msgspec.convert(owner.revocation(), RevocationStatement)
        return self.take(self.directory.revoke(owner.handle, body, self.now()))


def now() -> Instant:
    return Instant(mono=0, wall=now_ms())


def test_a_card_a_renewal_a_succession_and_a_revocation_become_entries_in_this_order() -> None:
    stage = Stage()
    alice = Owner(handle="alice", port=0)
    assert stage.publish(alice) == [alice.card]
    renewed = alice.renewed()
    assert stage.publish(renewed) == [renewed.card]
    heir = renewed.succeeded(SigningKey(seed("heir")), old_signs=True)
    assert stage.publish(heir) == [heir.succession, heir.card]
    (revocation,) = stage.revoke(heir)
    assert isinstance(revocation, SignedRevocation)
    revocation.verify(heir.card.card)
    assert stage.log.size == 5


def test_what_changes_nothing_adds_nothing() -> None:
    stage = Stage()
    alice = Owner(handle="alice", port=0)
    stage.publish(alice)
    stage.revoke(alice)
    assert stage.log.size == 2
    assert stage.revoke(alice) == []
    with pytest.raises(HttpProblem):
        stage.publish(alice)
    assert stage.log.size == 2


def test_the_keys_of_a_handle_tell_where_its_card_is_in_the_log() -> None:
    stage = Stage()
    alice, bob = Owner(handle="alice", port=0), Owner(handle="bob", port=0)
    stage.publish(alice)
    stage.publish(bob)
    renewed = bob.renewed()
    stage.publish(renewed)
    keys = stage.directory.keys("bob", "bob", now())
    assert keys is not None
    assert keys.log_index == 2
    former = stage.directory.superseded("bob", bob.card_id, "bob", now())
    assert former is not None
    assert former.log_index == 1


def test_without_a_log_nothing_is_told_of_one() -> None:
    directory = Directory("localhost")
    alice = Owner(handle="alice", port=0)
    offer = read_publication(
        msgspec.convert(alice.publication(), KeysPublication), realm="localhost", now=now()
    )
    decision = directory.publish(offer, now())
    assert not any(isinstance(change, LogAppended) for change in decision.changes)
    for change in decision.changes:
        directory.apply(change)
    keys = directory.keys("alice", "alice", now())
    assert keys is not None
    assert not isinstance(keys.log_index, int)


def test_the_checkpoint_is_over_what_was_applied_and_not_over_what_was_only_decided() -> None:
    log = KeyLog("localhost", SIGNER)
    changes = log.next([Owner(handle=name, port=0).card for name in ("alice", "bob")])
    assert open_checkpoint(log.checkpoint(), log.key).size == 0
    for size, change in enumerate(changes, 1):
        log.apply(change)
        checkpoint = open_checkpoint(log.checkpoint(), log.key)
        tree = Tree()
        for done in changes[:size]:
            tree.append(leaf_hash(done.entry))
        assert checkpoint == Checkpoint("localhost/v1/log", size, tree.root())


@pytest.mark.parametrize("index", [0, 2])
def test_an_entry_that_is_not_the_next_is_refused(index: int) -> None:
    log = KeyLog("localhost", SIGNER)
    log.apply(log.next([Owner(handle="alice", port=0).card])[0])
    with pytest.raises(ValueError, match="does not follow"):
        log.apply(LogAppended(index=index, entry=b"", card_id=None))


def test_a_tile_is_cut_to_any_width_that_the_log_has_reached() -> None:
    log = KeyLog("localhost", SIGNER)
    for number in range(300):
        log.apply(LogAppended(index=number, entry=number.to_bytes(2, "big"), card_id=None))
    full = log.tile(Tile(0, 0))
    assert full is not None
    assert len(full) == 256 * 32
    for width in (1, 44):
        part = log.tile(Tile(0, 1, width))
        assert part is not None
        assert len(part) == 32 * width
    assert log.tile(Tile(0, 0, 5)) == full[: 5 * 32]
    assert log.tile(Tile(1, 0, 1)) is not None
    for missing in (Tile(0, 1), Tile(0, 1, 45), Tile(0, 2, 1), Tile(1, 0, 2), Tile(2, 0, 1), Tile(7, 0, 1)):
        assert log.tile(missing) is None
    assert log.entries_of(Tile(None, 1, 44)) == (256, 300)
    assert log.entries_of(Tile(None, 1, 45)) is None
    with pytest.raises(ValueError, match="in the store"):
        log.tile(Tile(None, 0))


# --- a database that is older than the log


def without_log(changes: list[Change]) -> list[Change]:
    return [change for change in changes if not isinstance(change, LogAppended)]


def test_a_store_without_a_log_gets_all_it_holds_in_the_order_in_which_it_came() -> None:
    stage = Stage()
    alice, bob = Owner(handle="alice", port=0), Owner(handle="bob", port=0)
    for owner in (bob, alice):
        stage.publish(owner)
    heir = alice.succeeded(SigningKey(seed("heir")), old_signs=True)
    stage.publish(heir)
    stage.revoke(bob)
    fresh = KeyLog("localhost", SIGNER)
    stored = without_log(stage.changes)
    # As a store gives it back: by kind, and cards by handle.
    stored.sort(key=lambda change: (not isinstance(change, CardPublished), getattr(change, "handle", "")))
    entries = [decode_entry(change.entry) for change in unlogged(fresh, stored)]
    assert entries[:4] == [bob.card, alice.card, heir.succession, heir.card]
    assert [type(entry) for entry in entries[4:]] == [SignedRevocation]
    assert [change.card_id for change in unlogged(fresh, stored)].count(b64encode(heir.card.card.id)) == 1


def test_a_clock_that_was_set_back_does_not_turn_the_order_of_a_handles_cards_round() -> None:
    """Whoever reads the log takes a lower serial behind a higher one for a lie of the relay."""
    stage = Stage()
    first = Owner(handle="alice", port=0)
    second = first.renewed()
    third = second.renewed()
    for owner in (first, second, third):
        stage.publish(owner)
    stage.revoke(first)
    at = {first.card_id: 5_000, second.card_id: 3_000, third.card_id: 4_000}
    stored: list[Change] = []
    for change in without_log(stage.changes):
        if isinstance(change, CardPublished):
            stored.append(replace(change, at=at[change.card_id]))
        elif isinstance(change, CardRevoked):
            stored.append(replace(change, at=1_000))
        else:
            stored.append(change)
    entries = [decode_entry(change.entry) for change in unlogged(KeyLog("localhost", SIGNER), stored)]
    assert entries[:3] == [first.card, second.card, third.card]
    assert [type(entry) for entry in entries[3:]] == [SignedRevocation]


def test_a_store_whose_log_is_whole_gets_nothing() -> None:
    stage = Stage()
    stage.publish(Owner(handle="alice", port=0))
    assert unlogged(stage.log, stage.changes) == ()


def test_a_store_whose_log_has_lost_a_statement_is_not_mended_in_silence() -> None:
    stage = Stage()
    for name in ("alice", "bob"):
        stage.publish(Owner(handle=name, port=0))
    cut = [change for change in stage.changes if not isinstance(change, LogAppended) or change.index == 0]
    with pytest.raises(ValueError, match="does not have the entries"):
        unlogged(stage.log, cut)
