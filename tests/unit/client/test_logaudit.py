"""A whole log is read, and what no honest relay appends is found."""

from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ringline.client.contacts import Pin
from ringline.client.logaudit import LogAudit
from ringline.client.logverify import describe_entry, verify_log
from ringline.protocol.errors import ConfigError, LogForked
from ringline.protocol.fingerprint import fingerprint
from ringline.protocol.logentry import LogEntry, encode_entry
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import (
    Reason,
    Revocation,
    SignedRevocation,
    SignedSuccession,
    Succession,
)
from ringline_testing.agents import seed
from ringline_testing.lying_log import LogClient, LogRelay, log_relay
from ringline_testing.signed import Owner
from ringline_testing.weak_keys import NEUTRAL

REALM = "relay.example"
HEIR = SigningKey(seed("heir"))


def owner(handle: str = "bob", **members: Any) -> Owner:
    return Owner(handle=handle, port=0, realm=REALM, **members)


def revocation(of: Owner, signer: SigningKey | None = None) -> SignedRevocation:
    statement = Revocation(card_id=of.card.card.id, reason=Reason.RETIRED, ts=1)
    return SignedRevocation.sign(statement, signer or of.identity, by="identity")


def succession(of: Owner, *, old_signs: bool = True) -> SignedSuccession:
    statement = Succession(old_card_id=of.card.card.id, new_ipk=HEIR.public, ts=1)
    return SignedSuccession.sign(statement, HEIR, of.identity if old_signs else None)


def findings(*entries: LogEntry | bytes) -> list[str]:
    audit = LogAudit(REALM)
    found: list[str] = []
    for number, entry in enumerate(entries):
        found += audit.read(number, entry if isinstance(entry, bytes) else encode_entry(entry))
    return found


BOB = owner()
RENEWED = BOB.renewed()
SUCCEEDED = RENEWED.renewed(identity=HEIR)


def test_all_that_a_relay_may_take_is_without_fault_and_counted() -> None:
    audit = LogAudit(REALM)
    carol = owner("carol")
    entries: tuple[LogEntry, ...] = (
        BOB.card,
        carol.card,
        RENEWED.card,
        succession(RENEWED),
        SUCCEEDED.card,
        revocation(carol),
    )
    for number, entry in enumerate(entries):
        assert list(audit.read(number, encode_entry(entry))) == []
    assert (audit.cards, audit.handles, audit.successions, audit.revocations) == (4, 2, 1, 1)


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ((b"anything",), "of no known kind"),
        ((BOB.card.card.encode() + bytes(64),), "signature"),
        ((RENEWED.card,), "has the number 2"),
        ((BOB.card, owner().card), "does not follow card 1"),
        ((BOB.card, owner(serial=2).card), "no succession is shown"),
        ((BOB.card, BOB.renewed(serial=3).card), "does not follow card 1"),
        ((BOB.card, BOB.card), "does not follow card 1"),
        ((succession(BOB),), "not in the log before it"),
        ((BOB.card, succession(BOB, old_signs=False)), "has not signed"),
        ((BOB.card, RENEWED.card, succession(BOB)), "replaced before"),
        ((revocation(BOB),), "not in the log before it"),
        ((BOB.card, revocation(BOB, HEIR)), "signature"),
    ],
)
def test_what_no_honest_relay_appends_is_found(entries: tuple[LogEntry | bytes, ...], says: str) -> None:
    (finding,) = findings(*entries)
    assert finding.startswith(f"entry {len(entries) - 1} does not hold: ")
    assert says in finding


def test_a_card_of_another_realm_or_with_a_weak_key_is_found() -> None:
    (finding,) = findings(Owner(handle="bob", port=0, realm="other.example").card)
    assert "another realm" in finding
    data = bytearray(encode_entry(BOB.card))
    place = data.index(BOB.identity.public)
    data[place : place + 32] = NEUTRAL
    (finding,) = findings(bytes(data))
    assert "prime-order" in finding


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncGenerator[LogRelay]:
    async with log_relay(tmp_path) as started:
        yield started


async def verified(client: LogClient) -> tuple[list[str], list[int]]:
    pins = client.contacts.pins()
    report = await verify_log(client.log, REALM, client.account.handle, pins)
    return report.findings, report.own


async def test_a_log_that_holds_is_reported_with_what_it_says_of_the_reader(relay: LogRelay) -> None:
    alice = await relay.client()
    relay.honest.publish(relay.owner("bob"))
    relay.honest.publish(alice.owner)
    await alice.peers.resolve("bob")
    report = await verify_log(alice.log, REALM, "alice", alice.contacts.pins())
    assert (report.findings, report.own, report.pins, report.pinned) == ([], [1], 1, 1)
    assert report.before is not None
    assert (report.before.size, report.seen.size) == (2, 2)


async def test_a_pinned_card_that_the_log_does_not_have_is_found(relay: LogRelay) -> None:
    alice = await relay.client()
    relay.honest.publish(relay.owner("bob"))
    await alice.peers.resolve("bob")
    # As if it had been pinned before there was a log.
    mallory = relay.owner("mallory")
    relay.honest.show(mallory, None)
    alice.peers._log = None
    await alice.peers.resolve("mallory")
    assert await verified(alice) == (["the card of mallory that is pinned here is not in the log"], [])


def _unseen(pin: Pin, before: Pin | None) -> Pin:
    assert before is None
    return pin


async def test_a_key_that_was_pinned_without_a_card_is_looked_for_too(relay: LogRelay) -> None:
    alice = await relay.client()
    bob = relay.owner("bob")
    relay.honest.publish(bob)
    for handle in ("bob", "carol"):
        alice.contacts.update(
            REALM,
            handle,
            partial(
                _unseen,
                Pin(realm=REALM, handle=handle, ipk=bob.identity.public, source="invite", first_seen=1),
            ),
        )
    report = await verify_log(alice.log, REALM, "alice", alice.contacts.pins())
    # Nothing is known of carol, which is no contradiction.
    assert (report.findings, report.pins, report.pinned) == ([], 2, 1)
    relay.honest.publish(relay.owner("carol"))
    assert await verified(alice) == (
        ["the log has cards of carol, but none with the key that is pinned here"],
        [],
    )


async def test_an_old_foreign_card_is_an_alarm_when_the_whole_log_is_read(relay: LogRelay) -> None:
    relay.honest.append(relay.owner("alice", serial=2).card)
    alice = await relay.client()
    await verified(alice)
    assert "a card for your handle alice" in alice.notes[0]


async def test_a_bundle_that_is_not_under_the_root_is_refused(relay: LogRelay) -> None:
    for name in ("bob", "carol"):
        relay.honest.publish(relay.owner(name))
    alice = await relay.client()
    await alice.log.read_new()
    relay.honest.bundles[0] = relay.honest.entries[1]
    with pytest.raises(LogForked, match="not those of its log"):
        await verified(alice)


async def test_there_is_nothing_to_verify_without_a_log(relay: LogRelay) -> None:
    relay.info["features"] = []
    with pytest.raises(ConfigError, match="keeps no key log"):
        await verified(await relay.client())


async def test_a_revocation_that_the_relay_took_and_left_out_of_its_log_is_found(relay: LogRelay) -> None:
    alice = await relay.client()
    relay.honest.publish(alice.owner)
    with pytest.raises(LogForked, match="its key log does not have it"):
        await alice.log.confirm_revocation(alice.account.card)
    statement = Revocation(card_id=alice.account.card.card.id, reason=Reason.RETIRED, ts=1)
    relay.honest.append(SignedRevocation(statement, bytes(64)))
    await alice.log.confirm_revocation(alice.account.card)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (BOB.card, f"card 1 of bob, key {fingerprint(BOB.identity.public)}"),
        (succession(BOB), f"a new identity key {fingerprint(HEIR.public)} takes over"),
        (revocation(BOB), "is called back: retired"),
    ],
    ids=["card", "succession", "revocation"],
)
def test_entries_are_told_in_words(entry: LogEntry, says: str) -> None:
    assert says in describe_entry(entry)


GARBAGE: list[Callable[[bytes], bytes]] = [
    lambda data: b"",
    lambda data: data[:-1],
    lambda data: data + b"\0",
    lambda data: bytes(len(data)),
    lambda data: b"\xff" * 40,
    lambda data: b"[" * 10_000,
    lambda data: data * 2,
]


@pytest.mark.parametrize("damage", GARBAGE)
@pytest.mark.parametrize("kind", ["checkpoint", "tile/0/", "tile/entries/"])
async def test_garbage_in_the_place_of_a_file_is_told_as_such(
    relay: LogRelay, kind: str, damage: Callable[[bytes], bytes]
) -> None:
    relay.honest.publish(relay.owner("bob"))
    alice = await relay.client()
    await alice.peers.resolve("bob")
    for name in ("carol", "dave", "erin"):
        relay.honest.publish(relay.owner(name))
    relay.damage = lambda path, data: damage(data) if path.startswith(kind) else data
    with pytest.raises(LogForked):
        await alice.peers.resolve("erin")
