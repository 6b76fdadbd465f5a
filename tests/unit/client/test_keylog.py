"""A client holds a relay to its key log: what is lied about is refused or reported, never believed.

The relay is scripted; it has one key and shows whatever history a test wants, to all or to one.
"""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from ringline.client.address import DEFAULT_RELAY, RelayAddress
from ringline.client.generation import parse_identity_keys
from ringline.client.home import read_private
from ringline.client.keylog import FRESH_MS
from ringline.client.loghistory import READ_AT_ONCE
from ringline.client.logstate import followed_key
from ringline.protocol import bodies
from ringline.protocol.checkpoint import open_checkpoint
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import ConfigError, LogForked, RinglineError, TrustError
from ringline.protocol.fingerprint import fingerprint
from ringline.protocol.identity import SignedCard
from ringline.protocol.logentry import decode_entry
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import Reason, Revocation, SignedRevocation
from ringline_testing.agents import seed
from ringline_testing.lying_log import LogClient, LogRelay, log_relay
from ringline_testing.signed import Owner


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncGenerator[LogRelay]:
    async with log_relay(tmp_path) as started:
        yield started


def revocation(owner: Owner) -> SignedRevocation:
    statement = Revocation(card_id=owner.card.card.id, reason=Reason.COMPROMISED, ts=1)
    return SignedRevocation.sign(statement, owner.identity, by="identity")


def body(kt: object) -> bytes:
    """The JSON of an opened outcome with a view of the log in it."""
    assert isinstance(kt, bodies.Checkpoint)
    return bodies.encode_outcome(bodies.Outcome(reason="completed", reply=bodies.Reply(text="x"), kt=kt))


async def refused(client: LogClient, code: str, text: str, handle: str = "bob") -> TrustError:
    with pytest.raises(TrustError, match=text) as caught:
        await client.peers.resolve(handle)
    assert caught.value.code == code
    assert caught.value.next_step
    return caught.value


def later(relay: LogRelay) -> None:
    """Let what was learnt of the log become old."""
    relay.now += FRESH_MS + 1


# --- an honest relay


async def test_a_card_that_the_log_bears_out_is_believed_and_the_checkpoint_is_kept(relay: LogRelay) -> None:
    for name in ("bob", "carol", "dave"):
        relay.honest.publish(relay.owner(name))
    alice = await relay.client()
    assert (await alice.peers.resolve("bob")).card.card.handle == "bob"
    assert alice.notes == []
    again = await relay.client()
    assert again.log.history is not None
    seen = again.log.history.seen
    assert seen is not None
    assert (seen.size, seen.note) == (3, relay.honest.log().checkpoint())


async def test_a_log_that_grows_is_followed_from_one_process_to_the_next(relay: LogRelay) -> None:
    relay.honest.publish(relay.owner("bob"))
    for number in range(1, 300, 60):
        for extra in range(60):
            relay.honest.append(relay.owner(f"h{number}-{extra}").card)
        relay.honest.publish(relay.owner(f"peer{number}"))
        later(relay)
        client = await relay.client()
        await client.peers.resolve("bob")
        await client.peers.resolve(f"peer{number}")
        assert client.log.kt == bodies.Checkpoint(
            size=len(relay.honest.entries), root=b64encode(_root(relay))
        )


def _root(relay: LogRelay) -> bytes:
    log = relay.honest.log()
    return open_checkpoint(log.checkpoint(), log.key).root


async def test_what_was_proved_is_not_asked_for_again_while_it_is_fresh(relay: LogRelay) -> None:
    relay.honest.publish(relay.owner("bob"))
    await (await relay.client()).peers.resolve("bob")
    relay.server.asked.clear()
    await (await relay.client()).peers.resolve("bob")
    assert relay.asked == ["/v1/relay", "/v1/handles/bob"]
    later(relay)
    relay.server.asked.clear()
    await (await relay.client()).peers.resolve("bob")
    assert relay.asked == ["/v1/relay", "/v1/handles/bob", "/v1/log/checkpoint"]


async def test_a_card_that_was_published_since_the_last_look_is_looked_for_anew(relay: LogRelay) -> None:
    bob = relay.owner("bob")
    relay.honest.publish(bob)
    alice = await relay.client()
    await alice.peers.resolve("bob")
    relay.honest.publish(relay.owner("carol"))
    assert (await alice.peers.resolve("carol")).card.card.handle == "carol"


async def test_a_renewal_and_a_succession_in_the_log_are_believed(relay: LogRelay) -> None:
    bob = relay.owner("bob")
    relay.honest.publish(bob)
    await (await relay.client()).peers.resolve("bob")
    renewed = bob.renewed()
    relay.honest.publish(renewed)
    assert (await (await relay.client()).peers.resolve("bob")).card.card.serial == 2
    heir = renewed.succeeded(SigningKey(seed("heir")), old_signs=True)
    relay.honest.publish(heir)
    assert (await (await relay.client()).peers.resolve("bob")).card.card.ipk == heir.identity.public


async def test_a_superseded_card_for_which_no_place_is_told_is_found_by_reading(relay: LogRelay) -> None:
    bob = relay.owner("bob")
    relay.honest.publish(bob)
    renewed = bob.renewed()
    relay.honest.publish(renewed)
    del relay.honest.cards[bob.card_id]["log_index"]
    alice = await relay.client()
    await alice.peers.resolve("bob")
    assert (await alice.peers.sender("bob", bob.card.card.id, relay.now)).card == bob.card


async def test_only_the_end_of_a_long_log_is_read_on_the_way_of_a_call(relay: LogRelay) -> None:
    signer = relay.owner("h")
    relay.honest.entries = [
        relay.owner(f"h{number}", identity=signer.identity, operational=signer.operational).card.card.encode()
        + bytes(64)
        for number in range(READ_AT_ONCE + 300)
    ]
    relay.honest.publish(relay.owner("bob"))
    alice = await relay.client()
    await alice.peers.resolve("bob")
    assert "/v1/log/tile/entries/000" not in relay.asked
    assert "/v1/log/tile/entries/001" in relay.asked
    assert alice.log.history is not None
    cards = [decode_entry(entry) for entry in relay.honest.entries[300:302]]
    numbers = [
        alice.log.history.state.number_of(entry.card.id) for entry in cards if isinstance(entry, SignedCard)
    ]
    assert numbers == [None, 301]
    assert alice.log.history.state.read().size == READ_AT_ONCE + 301


# --- lies about the history


async def test_another_history_than_before_is_refused_and_both_are_kept(relay: LogRelay) -> None:
    bob = relay.owner("bob")
    relay.honest.publish(bob)
    relay.honest.publish(relay.owner("carol"))
    alice = await relay.client()
    await alice.peers.resolve("bob")
    before = relay.honest.log().checkpoint()
    forged = relay.honest.fork()
    forged.entries = forged.entries[:1]
    forged.publish(relay.owner("mallory"))
    forged.publish(relay.owner("dave"))
    relay.views["alice"] = forged
    later(relay)
    client = await relay.client()
    error = await refused(client, "log_forked", "is not what it was: the log is not the one that was seen")
    assert isinstance(error, LogForked)
    assert "seen before  2 entries" in str(error)
    assert "shown now    3 entries" in str(error)
    (evidence,) = client.evidence()
    assert before.decode() in evidence
    assert forged.log().checkpoint().decode() in evidence
    assert error.evidence is not None
    assert error.evidence in str(error)
    assert Path(error.evidence).stat().st_mode & 0o777 == 0o600
    # What was accepted before stands, in every later process.
    again = await relay.client()
    assert again.log.history is not None
    assert again.log.history.seen is not None
    assert again.log.history.seen.note == before
    await refused(again, "log_forked", "is not what it was")
    assert len(again.evidence()) == 1


async def test_a_log_that_shrinks_is_refused(relay: LogRelay) -> None:
    for name in ("bob", "carol"):
        relay.honest.publish(relay.owner(name))
    await (await relay.client()).peers.resolve("bob")
    relay.honest.entries.pop()
    later(relay)
    await refused(await relay.client(), "log_forked", "it had 2 entries and has 1")


async def test_another_root_of_the_same_size_is_refused(relay: LogRelay) -> None:
    relay.honest.publish(relay.owner("bob"))
    relay.honest.append(relay.owner("carol").card)
    await (await relay.client()).peers.resolve("bob")
    relay.honest.entries[1] = relay.honest.entries[0]
    later(relay)
    await refused(await relay.client(), "log_forked", "is not the one that was seen before")


async def test_a_rewritten_entry_under_a_new_root_is_refused(relay: LogRelay) -> None:
    for name in ("bob", "carol", "dave"):
        relay.honest.publish(relay.owner(name))
    await (await relay.client()).peers.resolve("bob")
    relay.honest.entries[1] = relay.honest.entries[0]
    relay.honest.publish(relay.owner("erin"))
    later(relay)
    await refused(await relay.client(), "log_forked", "is not the one that was seen before")


async def test_an_entry_that_is_shown_otherwise_than_it_was_hashed_is_refused(relay: LogRelay) -> None:
    relay.honest.publish(relay.owner("bob"))
    number = relay.honest.append(revocation(relay.owner("carol")))
    relay.honest.bundles[number] = relay.honest.entries[0]
    await refused(await relay.client(), "log_forked", "not those of its log")


async def test_an_entry_that_is_no_statement_is_refused(relay: LogRelay) -> None:
    relay.honest.publish(relay.owner("bob"))
    relay.honest.entries.append(b"anything")
    await refused(await relay.client(), "log_forked", "of no known kind")


async def test_a_checkpoint_that_the_logs_key_did_not_sign_is_refused(relay: LogRelay) -> None:
    relay.honest.publish(relay.owner("bob"))
    relay.honest.signer = SigningKey(seed("another"))
    client = await relay.client()
    await refused(client, "log_forked", "not signed by the key")
    assert relay.honest.log().checkpoint().decode() in client.evidence()[0]


@pytest.mark.parametrize("hidden", ["checkpoint", "tile/0/000.p/3", "tile/entries/000.p/3"])
async def test_a_log_that_is_not_shown_is_not_believed(relay: LogRelay, hidden: str) -> None:
    relay.honest.publish(relay.owner("bob"))
    await (await relay.client()).peers.resolve("bob")
    for name in ("carol", "dave"):
        relay.honest.publish(relay.owner(name))
    relay.honest.hidden.add(hidden)
    await refused(await relay.client(), "log_forked", "does not show", handle="dave")


# --- lies about a card


async def test_a_card_that_one_victim_alone_is_shown_is_refused_and_not_pinned(relay: LogRelay) -> None:
    relay.honest.publish(relay.owner("carol"))
    relay.honest.show(relay.owner("bob"), 0)
    alice = await relay.client()
    await refused(alice, "log_unproven", "entry 0 is not this card")
    assert alice.peers.pinned("bob") is None


@pytest.mark.parametrize("number", [1, 2**53 - 1])
async def test_a_card_at_a_place_that_the_log_does_not_have_is_refused(relay: LogRelay, number: int) -> None:
    relay.honest.publish(relay.owner("carol"))
    relay.honest.show(relay.owner("bob"), number)
    await refused(await relay.client(), "log_unproven", "of a log that has 1")


async def test_a_card_without_a_place_is_refused_when_no_entry_is_that_card(relay: LogRelay) -> None:
    relay.honest.publish(relay.owner("carol"))
    relay.honest.show(relay.owner("bob"), None)
    await refused(await relay.client(), "log_unproven", "no entry is named")


async def test_a_card_with_another_signature_than_the_logs_is_refused(relay: LogRelay) -> None:
    bob = relay.owner("bob")
    number = relay.honest.append(bob.card)
    relay.honest.entries[number] = bob.card.card.encode() + bytes(64)
    relay.honest.show(bob, number)
    await refused(await relay.client(), "log_unproven", "entry 0 is not this card")


async def test_an_old_card_is_refused_although_the_log_has_it(relay: LogRelay) -> None:
    bob = relay.owner("bob")
    number = relay.honest.publish(bob)
    relay.honest.publish(bob.renewed())
    relay.honest.show(bob, number)
    await refused(
        await relay.client(), "log_unproven", "card number 1, and entry 1 is another card, number 2"
    )


async def test_two_cards_of_one_number_are_refused(relay: LogRelay) -> None:
    bob = relay.owner("bob")
    relay.honest.publish(bob)
    relay.honest.publish(relay.owner("bob"))
    await refused(await relay.client(), "log_unproven", "entry 0 is another card, number 1")


async def test_a_dropped_revocation_is_found_in_the_log(relay: LogRelay) -> None:
    bob = relay.owner("bob")
    relay.honest.publish(bob)
    alice = await relay.client()
    await alice.peers.resolve("bob")
    relay.honest.append(revocation(bob))
    later(relay)
    await refused(await relay.client(), "revoked", "entry 1 of its own key log says so")
    # A process that keeps keys in memory hears of it as soon as it has read the log.
    await alice.log.read_new()
    await refused(alice, "revoked", "entry 1 of its own key log says so")
    with pytest.raises(TrustError, match="called back"):
        await alice.peers.sender("bob", bob.card.card.id, relay.now)


async def test_a_log_out_of_reach_is_no_lie_and_changes_nothing(relay: LogRelay) -> None:
    relay.honest.publish(relay.owner("bob"))
    relay.down = True
    alice = await relay.client()
    with pytest.raises(RinglineError) as caught:
        await alice.peers.resolve("bob")
    assert not isinstance(caught.value, TrustError)
    assert alice.evidence() == []
    relay.down = False
    await alice.peers.resolve("bob")


# --- the own handle


async def test_a_card_for_the_own_handle_is_an_alarm_once(relay: LogRelay) -> None:
    alice = await relay.client()
    relay.honest.publish(alice.owner)
    thief = relay.owner("alice", serial=2)
    relay.honest.append(thief.card)
    for _ in range(2):
        await alice.log.read_new()
    note = "\n".join(alice.notes)
    assert "a card for your handle alice that you did not publish" in note
    assert fingerprint(thief.identity.public) in note
    assert alice.account.fingerprint in note
    again = await relay.client()
    await again.log.read_new()
    assert again.notes == []
    assert again.log.history is not None
    (alarm,) = again.log.history.state.alarms()
    assert (alarm.text, alarm.seen) == (note, False)


async def test_a_card_of_the_own_key_that_was_not_made_here_is_an_alarm_that_says_so(relay: LogRelay) -> None:
    alice = await relay.client()
    relay.honest.publish(alice.owner)
    identity = _identity_key(alice)
    relay.honest.append(relay.owner("alice", identity=identity, serial=2).card)
    await alice.log.read_new()
    note = "\n".join(alice.notes)
    assert "signed with your identity key and was not made on this computer" in note


def _identity_key(client: LogClient) -> SigningKey:
    path = client.home.identity_key_file(client.address, client.account.handle)
    return SigningKey(parse_identity_keys(path, read_private(path), lambda: "").seed)


async def test_the_own_cards_are_no_alarm_whichever_process_renewed_them(relay: LogRelay) -> None:
    alice = await relay.client()
    relay.honest.publish(alice.owner)
    other = await relay.client()
    relay.now = other.account.card.card.not_after - 1
    other.account.renew(relay.now)
    relay.honest.append(other.account.card)
    for client in (alice, other):
        await client.log.read_new()
        assert client.notes == []
    assert alice.account.card == other.account.card


def looks(relay: LogRelay) -> int:
    return relay.asked.count("/v1/log/checkpoint")


async def until(relay: LogRelay, condition: Callable[[], bool]) -> None:
    """Wait for something that comes of one of the requests that keep coming."""
    async with asyncio.timeout(10):
        while not condition():
            relay.server.came.clear()
            await relay.server.came.wait()


async def test_whoever_watches_is_told_once_and_goes_on(relay: LogRelay) -> None:
    alice = await relay.client()
    relay.honest.publish(alice.owner)
    watching = asyncio.ensure_future(alice.log.watch(0.01))
    try:
        await until(relay, lambda: looks(relay) > 1)
        relay.honest.append(relay.owner("alice", serial=2).card)
        await until(relay, lambda: bool(alice.notes))
        relay.honest.entries.pop()
        await until(relay, lambda: "it had 2 entries and has 1" in "\n".join(alice.notes))
        before = looks(relay)
        await until(relay, lambda: looks(relay) > before + 2)
    finally:
        watching.cancel()
    told = "\n".join(alice.notes)
    assert told.count("your handle") == told.count("it had 2 entries and has 1") == 1


# --- peers


async def test_peers_who_see_the_same_log_have_nothing_to_report(relay: LogRelay) -> None:
    relay.honest.publish(relay.owner("dora"))
    alice = await relay.client()
    await alice.log.read_new()
    early = body(alice.log.kt)
    relay.honest.publish(relay.owner("carol"))
    bob = await relay.client("bob")
    await bob.log.read_new()
    await bob.log.heard("alice", early)
    await alice.log.heard("bob", body(bob.log.kt))
    assert (alice.notes, bob.notes) == ([], [])
    assert alice.log.kt == bob.log.kt


async def test_a_log_that_is_forked_for_one_client_is_found_by_what_peers_seal(relay: LogRelay) -> None:
    relay.honest.publish(relay.owner("dora"))
    relay.honest.publish(relay.owner("carol"))
    forged = relay.views["alice"] = relay.honest.fork()
    forged.entries.pop()
    forged.publish(relay.owner("mallory"))
    alice, bob = await relay.client("alice"), await relay.client("bob")
    for client in (alice, bob):
        await client.log.read_new()
    await bob.log.heard("alice", body(alice.log.kt))
    note = "\n".join(bob.notes)
    assert "alice says, sealed and signed, that the key log of" in note
    assert "told by alice  2 entries, root" in note
    assert "shown here     2 entries, root" in note
    assert "alice tells something false" in note
    assert "ringline log verify" in note
    (evidence,) = bob.evidence()
    assert relay.honest.log().checkpoint().decode() in evidence
    told = alice.log.kt
    assert isinstance(told, bodies.Checkpoint)
    assert told.root in evidence
    # It is told once, and calls go on: any peer could say such a thing.
    told_once = list(bob.notes)
    relay.now += 3_600_000
    await bob.log.heard("alice", body(alice.log.kt))
    assert bob.notes == told_once
    await bob.peers.resolve("carol")


async def test_a_log_that_is_held_back_from_one_client_is_found_by_what_peers_seal(relay: LogRelay) -> None:
    relay.honest.publish(relay.owner("dora"))
    relay.views["bob"] = relay.honest.fork()
    relay.honest.publish(relay.owner("carol"))
    alice, bob = await relay.client("alice"), await relay.client("bob")
    for client in (alice, bob):
        await client.log.read_new()
    await bob.log.heard("alice", body(alice.log.kt))
    assert "it has 2 entries there and 1 here" in "\n".join(bob.notes)


async def test_one_peer_cannot_have_the_log_read_over_and_over(relay: LogRelay) -> None:
    relay.honest.publish(relay.owner("bob"))
    alice = await relay.client()
    await alice.log.read_new()
    for number in range(3):
        kt = bodies.Checkpoint(size=1, root=b64encode(bytes([number]) * 32))
        await alice.log.heard("mallory", body(kt))
    assert "\n".join(alice.notes).count("mallory says") == 1


@pytest.mark.parametrize("data", [b"", b"{}", b'{"kt":null}', b'{"kt":{"size":1}}', b"[" * 5_000, b"\xff"])
async def test_a_body_without_a_view_is_passed_over(relay: LogRelay, data: bytes) -> None:
    relay.honest.publish(relay.owner("bob"))
    alice = await relay.client()
    await alice.log.read_new()
    await alice.log.heard("bob", data)
    assert alice.notes == []


async def test_nothing_is_told_to_peers_before_something_was_seen(relay: LogRelay) -> None:
    alice = await relay.client()
    assert not isinstance(alice.log.kt, bodies.Checkpoint)


# --- whether there is a log, and under which key


async def test_a_relay_that_has_no_log_any_more_is_refused(relay: LogRelay) -> None:
    relay.honest.publish(relay.owner("bob"))
    await (await relay.client()).peers.resolve("bob")
    relay.info["features"] = []
    with pytest.raises(LogForked, match="does not show its key log any more: it had 1 entry") as caught:
        await relay.client()
    assert caught.value.next_step is not None
    assert "keylog.db" in caught.value.next_step


async def test_a_relay_that_never_had_a_log_is_used_without_and_leaves_no_file(relay: LogRelay) -> None:
    relay.info["features"] = []
    del relay.info["log_key"]
    relay.honest.show(relay.owner("bob"), None)
    alice = await relay.client()
    await alice.peers.resolve("bob")
    assert not alice.home.keylog_file(alice.address).exists()


async def test_another_key_of_the_log_is_refused(relay: LogRelay) -> None:
    await relay.client()
    other = SigningKey(seed("another"))
    relay.signer = relay.honest.signer = other
    relay.info["log_key"] = b64encode(other.public)
    with pytest.raises(LogForked, match="signed by another key") as caught:
        await relay.client()
    assert b64encode(other.public) in str(caught.value)


async def test_the_key_that_a_contact_string_names_goes_before_what_the_relay_says(relay: LogRelay) -> None:
    await relay.client(told=(relay.signer.public,))
    with pytest.raises(LogForked, match="signed by another key"):
        await relay.client("bob", told=(SigningKey(seed("another")).public,))
    relay.info["features"] = []
    with pytest.raises(LogForked, match="its key was told here by a contact"):
        await relay.client("carol", told=(relay.signer.public,))


@pytest.mark.parametrize("key", [None, "", "AAAA", b64encode(bytes(32))])
async def test_a_log_without_a_usable_key_is_refused(relay: LogRelay, key: str | None) -> None:
    relay.info["log_key"] = key
    if key is None:
        del relay.info["log_key"]
    with pytest.raises(RinglineError):
        await relay.client()


async def test_a_development_relay_may_be_replaced_and_that_is_told(tmp_path: Path) -> None:
    async with log_relay(tmp_path, "localhost") as relay:
        relay.honest.publish(relay.owner("bob"))
        await (await relay.client()).peers.resolve("bob")
        other = SigningKey(seed("another"))
        relay.honest.signer = other
        relay.honest.entries.clear()
        relay.info["log_key"] = b64encode(other.public)
        relay.honest.publish(relay.owner("carol"))
        alice = await relay.client()
        assert "another development relay answers here" in alice.notes[0]
        await alice.peers.resolve("carol")
        relay.info["features"] = []
        del relay.info["log_key"]
        assert "another development relay" in (await relay.client()).notes[0]


# --- the file


async def test_the_file_is_for_its_owner_alone(relay: LogRelay) -> None:
    alice = await relay.client()
    path = alice.home.keylog_file(alice.address)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="can be read or changed by others"):
        await relay.client()


@pytest.mark.parametrize("data", [b"not a database", b"SQLite format 3\0" + bytes(200)])
async def test_a_damaged_file_is_named_and_left_alone(relay: LogRelay, data: bytes) -> None:
    alice = await relay.client()
    path = alice.home.keylog_file(alice.address)
    alice.log.close()
    for other in path.parent.glob("keylog.db*"):
        other.unlink()
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=r"keylog\.db"):
        await relay.client()
    assert path.read_bytes() == data


async def test_two_processes_go_on_from_what_either_has_seen(relay: LogRelay) -> None:
    relay.honest.publish(relay.owner("bob"))
    one, other = await relay.client(), await relay.client()
    await one.log.read_new()
    relay.honest.publish(relay.owner("carol"))
    await other.log.read_new()
    forged = relay.views["alice"] = relay.honest.fork()
    forged.entries = forged.entries[:1]
    forged.publish(relay.owner("mallory"))
    # What it had seen itself would be continued by this; what the other has seen is not.
    with pytest.raises(LogForked):
        await one.log.read_new()


@pytest.mark.parametrize("name", ["size", "read", "root", "frontier", "note", "key", "at"])
async def test_a_fact_that_was_tampered_with_is_no_traceback(relay: LogRelay, name: str) -> None:
    relay.honest.publish(relay.owner("bob"))
    alice = await relay.client()
    await alice.peers.resolve("bob")
    path = alice.home.keylog_file(alice.address)
    with closing(sqlite3.connect(path)) as run:
        run.execute("UPDATE facts SET value = '?' WHERE name = ?", (name,))
        run.commit()
    later(relay)
    with pytest.raises(ConfigError, match=r"keylog\.db is damaged"):
        await (await relay.client()).peers.resolve("bob")


async def test_each_identity_of_a_home_is_told_of_its_own_handle_whoever_has_read_the_log(
    relay: LogRelay,
) -> None:
    for name in ("alice", "zoe"):
        relay.honest.publish((await relay.client(name, home="shared")).owner)
    relay.honest.append(relay.owner("zoe", serial=2).card)
    alice = await relay.client("alice", home="shared")
    zoe = await relay.client("zoe", home="shared")
    await alice.log.read_new()
    assert alice.notes == []
    await zoe.log.read_new()
    assert "a card for your handle zoe" in zoe.notes[0]


async def test_the_key_of_the_log_is_handed_on_but_not_that_of_a_development_relay(tmp_path: Path) -> None:
    for realm, told in (("relay.example", True), ("localhost", False)):
        async with log_relay(tmp_path / realm, realm) as relay:
            alice = await relay.client()
            key = relay.signer.public if told else None
            assert alice.log.vouched == key
            assert followed_key(alice.home, alice.address) == key
            assert not alice.home.keylog_file(RelayAddress.parse(DEFAULT_RELAY)).exists()
            assert followed_key(alice.home, RelayAddress.parse("https://other.example")) is None
