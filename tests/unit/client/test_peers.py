"""Whom a caller seals to and whose signature a listener believes, whatever the relay shows."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ringline.client.account import Account
from ringline.client.address import RelayAddress
from ringline.client.clock import RelayClock, wall_ms
from ringline.client.contacts import Contacts, Pin
from ringline.client.home import Home, locked
from ringline.client.http import RelayHttp
from ringline.client.peers import Peers
from ringline.protocol.contact import Contact
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import ConfigError, HttpProblem, TrustError
from ringline.protocol.fingerprint import fingerprint
from ringline.protocol.identity import NO_NEXT, next_commitment
from ringline.protocol.limits import CARD_GRACE_MS, ENVELOPE_SKEW_MS, PREKEY_ROTATION_MS
from ringline.protocol.prekeys import Chain
from ringline.protocol.signing import SigningKey
from ringline_testing.canned import Asked, canned_server, reply
from ringline_testing.signed import Owner

HOUR = 3_600_000
DAY = 24 * HOUR


class Desk:
    """A relay that shows what the test wants, and alice who asks it."""

    def __init__(self, tmp_path: Path) -> None:
        self.shown: dict[str, dict[str, Any]] = {}
        self.cards: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.now = wall_ms()
        self.notes: list[str] = []
        self.home = Home(tmp_path / "home")
        self._address: RelayAddress | None = None
        self._http: RelayHttp | None = None

    def respond(self, asked: Asked) -> bytes:
        self.asked.append(asked.target)
        split = urlsplit(asked.target)
        handle = split.path.rsplit("/", 1)[1]
        card = parse_qs(split.query).get("card", [None])[0]
        body = self.shown.get(handle) if card is None else self.cards.get(card)
        if body is None:
            return reply(404, {"type": "x", "title": "x", "status": 404, "code": "not_found"})
        return reply(200, body)

    def show(self, owner: Owner, *, revoked: tuple[str, ...] = (), **changes: Any) -> None:
        """Show these keys as the current ones, and their card by its id."""
        body: dict[str, Any] = {"handle": owner.handle, "revoked": list(revoked)} | owner.publication()
        self.shown[owner.handle] = body | changes
        self.show_card(owner, revoked=revoked)

    def show_card(self, owner: Owner, *, revoked: tuple[str, ...] = (), **changes: Any) -> None:
        """Show a card by its id."""
        self.cards[owner.card_id] = {
            "handle": owner.handle,
            "card": b64encode(owner.card.card.encode()),
            "card_sig": b64encode(owner.card.signature),
            "revoked": list(revoked),
        } | changes

    @property
    def contacts(self) -> Contacts:
        assert self._address is not None
        return Contacts(self.home, self.home.contacts_file(self._address))

    def pin(self, handle: str = "bob") -> Pin | None:
        return self.contacts.pin("localhost", handle)

    def connect(self, url: str) -> None:
        self._address = RelayAddress.parse(url)
        account = Account.create(self.home, self._address, "alice", self.now)
        self._http = RelayHttp(self._address, account, RelayClock(lambda: self.now))

    def peers(self, **options: Any) -> Peers:
        """A new process of alice's."""
        assert self._address is not None
        assert self._http is not None
        clock = RelayClock(lambda: self.now)
        note = self.notes.append
        return Peers(self._address, self._http, self.contacts, clock, note=note, **options)


@contextlib.asynccontextmanager
async def running(tmp_path: Path) -> AsyncGenerator[Desk]:
    desk = Desk(tmp_path)
    async with canned_server(desk.respond) as server:
        desk.connect(server.url)
        yield desk


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk]:
    async with running(tmp_path) as started:
        yield started


def owner(handle: str = "bob", **members: Any) -> Owner:
    return Owner(handle=handle, port=0, **members)


def changed(before: Owner, **members: Any) -> Owner:
    return replace(before, **members)


def renewed(before: Owner, **members: Any) -> Owner:
    after = before.renewed(**members)
    assert isinstance(after, Owner)
    return after


def succeeded(before: Owner, new: SigningKey, **members: Any) -> Owner:
    after = before.succeeded(new, **members)
    assert isinstance(after, Owner)
    return after


async def refused(desk: Desk, code: str, text: str = "Nothing was sealed", **options: Any) -> TrustError:
    """Resolve bob in a new process, and expect to be stopped."""
    with pytest.raises(TrustError, match=text) as caught:
        await desk.peers(**options).resolve("bob")
    assert caught.value.code == code
    return caught.value


# --- first contact


async def test_in_the_development_realm_the_first_key_is_pinned_with_a_note(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    peer = await desk.peers().resolve("bob")
    assert peer.recipient.ipk == bob.identity.public
    assert peer.recipient.public_key == bob.chain.private(1).public
    pin = desk.pin()
    assert pin is not None
    assert (pin.source, pin.ipk, pin.serial, pin.prekey_epoch) == (
        "tofu",
        bob.identity.public,
        1,
        bob.chain.epoch,
    )
    assert pin.verified_at is None
    assert fingerprint(bob.identity.public) in desk.notes[0]


async def test_without_trust_nothing_is_asked_and_nothing_pinned(desk: Desk) -> None:
    desk.show(owner())
    error = await refused(desk, "untrusted_key", trust_new=False)
    assert "--trust-new" in (error.next_step or "")
    assert desk.asked == []
    assert desk.pin() is None


async def test_a_contact_string_vouches_for_the_key(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    peers = desk.peers(trust_new=False)
    contact = Contact(handle="bob", realm="localhost", ipk=bob.identity.public)
    added = peers.add(contact)
    assert (added.source, added.card, added.verified_at) == ("contact", None, desk.now)
    await peers.resolve("bob")
    pin = desk.pin()
    assert pin is not None
    assert (pin.source, pin.serial) == ("contact", 1)
    assert desk.notes == []


async def test_a_contact_string_against_the_relays_key(desk: Desk) -> None:
    desk.show(owner())
    peers = desk.peers()
    peers.add(Contact(handle="bob", realm="localhost", ipk=owner().identity.public))
    with pytest.raises(TrustError) as caught:
        await peers.resolve("bob")
    assert caught.value.code == "key_changed"


async def test_a_contact_string_against_the_pinned_key(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    peers = desk.peers()
    await peers.resolve("bob")
    with pytest.raises(TrustError) as caught:
        peers.add(Contact(handle="bob", realm="localhost", ipk=owner().identity.public))
    assert caught.value.code == "key_changed"
    # The right one turns a first key into a verified one.
    assert (
        peers.add(Contact(handle="bob", realm="localhost", ipk=bob.identity.public)).verified_at == desk.now
    )


async def test_a_contact_of_another_realm_is_refused(desk: Desk) -> None:
    with pytest.raises(ConfigError, match=r"of realm relay\.example") as caught:
        desk.peers().add(Contact(handle="bob", realm="relay.example", ipk=owner().identity.public))
    assert "https://relay.example" in (caught.value.next_step or "")


async def test_a_handle_that_is_not_there(desk: Desk) -> None:
    with pytest.raises(HttpProblem, match=r"no bob at .* that you may call") as caught:
        await desk.peers().resolve("bob")
    assert (caught.value.code, caught.value.exit_code) == ("not_found", 10)


# --- the own handle


async def test_the_own_key_needs_no_pin_and_no_other_is_taken_for_it(desk: Desk) -> None:
    desk.show(owner("alice"))
    with pytest.raises(TrustError) as caught:
        await desk.peers().resolve("alice")
    assert caught.value.code == "key_changed"


# --- what the relay shows must hold


@pytest.mark.parametrize("member", ["card", "card_sig", "prekey", "prekey_sig"])
@pytest.mark.parametrize("damage", ["stranger", "garbage", "not base64"])
async def test_keys_that_do_not_hold_are_not_pinned(desk: Desk, member: str, damage: str) -> None:
    bob = owner()
    value = {
        "stranger": owner().publication()[member],
        "garbage": b64encode(b"garbage"),
        "not base64": "AAAAB",
    }[damage]
    changes: dict[str, Any] = {member: value}
    desk.show(bob, **changes)
    await refused(desk, "bad_signature", "Nothing was sealed")
    assert desk.pin() is None


async def test_a_card_of_another_realm_does_not_hold(desk: Desk) -> None:
    desk.show(owner(realm="relay.example"))
    await refused(desk, "bad_signature", "another realm")


async def test_a_card_that_claims_to_hold_too_long_does_not(desk: Desk) -> None:
    desk.show(owner(life=91 * DAY))
    await refused(desk, "bad_signature", "longer than")


async def test_a_revoked_card_is_not_sealed_to(desk: Desk) -> None:
    bob = owner()
    desk.show(bob, revoked=(bob.card_id,))
    await refused(desk, "revoked")


async def test_a_card_that_ran_out_is_not_sealed_to(desk: Desk) -> None:
    desk.show(owner(not_before=desk.now - 90 * DAY - ENVELOPE_SKEW_MS, life=90 * DAY))
    await refused(desk, "untrusted_key", "card of bob do not hold")


async def test_prekeys_that_ran_out_are_not_sealed_to(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    desk.now += 15 * DAY
    await refused(desk, "untrusted_key", "prekeys of bob do not hold")


async def test_a_relay_that_tells_another_time_does_not_make_old_keys_good(desk: Desk) -> None:
    desk.show(owner())
    desk.now += 15 * DAY
    peers = desk.peers()
    peers._clock.offset_ms = -15 * DAY
    with pytest.raises(TrustError):
        await peers.resolve("bob")


@pytest.mark.parametrize(("suites", "lowest", "expected"), [((1, 2), 1, 2), ((1,), 1, 1), ((2,), 2, 2)])
async def test_the_highest_suite_is_sealed_to(
    desk: Desk, suites: tuple[int, ...], lowest: int, expected: int
) -> None:
    desk.show(owner(suites=suites))
    assert (await desk.peers(min_suite=lowest).resolve("bob")).recipient.suite == expected


async def test_a_suite_below_the_lowest_allowed_is_not_sealed_to(desk: Desk) -> None:
    desk.show(owner(suites=(1,)))
    await refused(desk, "untrusted_key", "no key of a suite", min_suite=2)


# --- a pinned peer


async def test_another_key_is_a_hard_stop_and_the_pin_stays(desk: Desk) -> None:
    bob, eve = owner(), owner()
    desk.show(bob)
    await desk.peers().resolve("bob")
    desk.show(eve)
    for options in ({}, {"trust_new": True}):
        error = await refused(desk, "key_changed", "Nothing was sealed", **options)
        assert fingerprint(bob.identity.public) in str(error)
        assert fingerprint(eve.identity.public) in str(error)
        assert str(desk.contacts.path) in (error.next_step or "")
    pin = desk.pin()
    assert pin is not None
    assert pin.ipk == bob.identity.public


async def test_older_prekeys_of_the_same_card_are_refused(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    await desk.peers().resolve("bob")
    desk.show(changed(bob, chain=Chain.start(bob.chain.epoch - 1)))
    await refused(desk, "key_changed", "older prekeys")
    desk.show(bob)
    await desk.peers().resolve("bob")


async def test_an_older_card_is_refused(desk: Desk) -> None:
    bob = owner()
    later = renewed(bob)
    desk.show(later)
    await desk.peers().resolve("bob")
    desk.show(bob)
    await refused(desk, "key_changed", "older card")
    # Nor another card with the same serial.
    desk.show(changed(later, operational=SigningKey.generate()))
    await refused(desk, "key_changed", "older card")


async def test_a_later_card_of_the_same_identity_is_taken(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    await desk.peers().resolve("bob")
    # A new card begins a new chain, whose epoch may be any.
    later = renewed(bob, chain=Chain.start(bob.chain.epoch - 1))
    desk.show(later)
    await desk.peers().resolve("bob")
    pin = desk.pin()
    assert pin is not None
    assert (pin.serial, pin.prekey_epoch, pin.source) == (2, bob.chain.epoch - 1, "tofu")


async def test_a_card_of_the_same_identity_that_names_another_successor_is_refused(desk: Desk) -> None:
    true, thief = SigningKey.generate(), SigningKey.generate()
    bob = owner(next=next_commitment(true.public))
    desk.show(bob)
    await desk.peers().resolve("bob")
    for named in (NO_NEXT, next_commitment(thief.public)):
        # Whoever has stolen the identity key can sign this card.
        desk.show(renewed(bob, next=named))
        await refused(desk, "key_changed", "another successor")
    pin = desk.pin()
    assert pin is not None
    assert pin.serial == 1


async def test_an_identity_that_named_no_successor_may_name_one(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    await desk.peers().resolve("bob")
    desk.show(renewed(bob, next=next_commitment(SigningKey.generate().public)))
    assert (await desk.peers().resolve("bob")).pin.serial == 2


async def test_a_successor_that_the_pinned_card_committed_to_is_taken_with_a_note(desk: Desk) -> None:
    new = SigningKey.generate()
    bob = owner(next=next_commitment(new.public))
    desk.show(bob)
    await desk.peers().resolve("bob")
    desk.show(succeeded(bob, new))
    await desk.peers().resolve("bob")
    pin = desk.pin()
    assert pin is not None
    assert (pin.ipk, pin.source, pin.serial) == (new.public, "succession", 2)
    assert fingerprint(new.public) in desk.notes[-1]


async def test_a_successor_that_nobody_committed_to_needs_the_old_keys_signature(desk: Desk) -> None:
    bob, new = owner(), SigningKey.generate()
    desk.show(bob)
    await desk.peers().resolve("bob")
    desk.show(succeeded(bob, new))
    await refused(desk, "key_changed", "has not signed")
    desk.show(succeeded(bob, new, old_signs=True))
    assert (await desk.peers().resolve("bob")).pin.source == "succession"


async def test_a_successor_other_than_the_committed_one_is_refused(desk: Desk) -> None:
    bob = owner(next=next_commitment(SigningKey.generate().public))
    desk.show(bob)
    await desk.peers().resolve("bob")
    desk.show(succeeded(bob, SigningKey.generate(), old_signs=True))
    await refused(desk, "key_changed", "committed to")


async def test_a_key_without_a_card_seen_cannot_be_succeeded(desk: Desk) -> None:
    bob, new = owner(), SigningKey.generate()
    peers = desk.peers()
    peers.add(Contact(handle="bob", realm="localhost", ipk=bob.identity.public))
    desk.show(succeeded(bob, new, old_signs=True))
    with pytest.raises(TrustError, match="no card of the known key"):
        await peers.resolve("bob")


# --- memory


async def test_keys_are_remembered_for_a_day_and_no_longer(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    peers = desk.peers()
    await peers.resolve("bob")
    desk.now += PREKEY_ROTATION_MS
    await peers.resolve("bob")
    assert len(desk.asked) == 1
    desk.now += 1
    await peers.resolve("bob")
    assert len(desk.asked) == 2
    peers.forget("bob")
    await peers.resolve("bob")
    assert len(desk.asked) == 3


async def test_a_pin_that_is_deleted_is_not_remembered(desk: Desk) -> None:
    desk.show(owner())
    peers = desk.peers()
    await peers.resolve("bob")
    desk.contacts.update("localhost", "bob", lambda _: None)
    await peers.resolve("bob")
    assert len(desk.asked) == 2
    assert desk.pin() is not None


# --- senders (a listener's side)


async def sender(desk: Desk, who: Owner, iat: int | None = None, **options: Any) -> bytes:
    """Return the key that a listener believes for an envelope of ``who``'s card."""
    card_id = who.card.card.id
    believed = await desk.peers(**options).sender("bob", card_id, desk.now if iat is None else iat)
    assert believed.card == who.card
    return believed.card.card.spk


async def test_the_pinned_card_speaks_for_its_handle(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    assert await sender(desk, bob) == bob.operational.public
    assert desk.pin() is not None


async def test_an_unknown_sender_is_refused_before_anything_is_asked(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    with pytest.raises(TrustError) as caught:
        await sender(desk, bob, trust_new=False)
    assert caught.value.code == "untrusted_key"
    assert desk.asked == []


async def test_who_only_calls_may_let_his_prekeys_run_out(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    desk.now += 20 * DAY
    assert await sender(desk, bob) == bob.operational.public
    with pytest.raises(TrustError, match="prekeys"):
        await desk.peers().resolve("bob")


async def test_a_key_that_is_known_already_is_read_without_the_files_lock(desk: Desk) -> None:
    desk.show(owner())
    await desk.peers().resolve("bob")
    with locked(desk.contacts.path.parent / ".lock"):
        await desk.peers().resolve("bob")


async def test_a_later_card_of_the_pinned_identity_speaks(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    await sender(desk, bob)
    later = renewed(bob)
    desk.show_card(later)
    assert await sender(desk, later) == later.operational.public


async def test_a_card_of_the_pinned_identity_that_names_another_successor_does_not_speak(desk: Desk) -> None:
    bob = owner(next=next_commitment(SigningKey.generate().public))
    desk.show(bob)
    await sender(desk, bob)
    desk.show(renewed(bob, serial=2))
    await desk.peers().resolve("bob")
    # Before the pinned card, or after it.
    for serial in (1, 3):
        other = renewed(bob, serial=serial, next=next_commitment(SigningKey.generate().public))
        desk.show_card(other)
        with pytest.raises(TrustError, match="another successor"):
            await sender(desk, other)


async def test_a_replaced_card_speaks_for_96_hours(desk: Desk) -> None:
    bob = owner(not_before=desk.now - 10 * DAY)
    later = renewed(bob, not_before=desk.now - HOUR)
    desk.show(later)
    desk.show_card(bob)
    await desk.peers().resolve("bob")
    await sender(desk, bob)
    desk.now += CARD_GRACE_MS - HOUR - 1
    await sender(desk, bob)
    desk.now += 1
    with pytest.raises(TrustError, match="replaced long ago"):
        await sender(desk, bob)


async def test_a_card_of_another_identity_does_not_speak(desk: Desk) -> None:
    bob, eve = owner(), owner(serial=2)
    desk.show(bob)
    await desk.peers().resolve("bob")
    desk.show_card(eve)
    with pytest.raises(TrustError) as caught:
        await sender(desk, eve)
    assert caught.value.code == "key_changed"
    desk.show(eve)
    with pytest.raises(TrustError):
        await sender(desk, eve)


async def test_another_card_of_the_pinned_serial_does_not_speak(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    await desk.peers().resolve("bob")
    twin = changed(bob, operational=SigningKey.generate())
    desk.show_card(twin)
    with pytest.raises(TrustError, match="two cards of one serial"):
        await sender(desk, twin)


async def test_an_earlier_identity_without_succession_does_not_speak(desk: Desk) -> None:
    bob, eve = owner(serial=2), owner(serial=1)
    desk.show(bob)
    await desk.peers().resolve("bob")
    desk.show_card(eve)
    with pytest.raises(TrustError, match="no succession from it") as caught:
        await sender(desk, eve)
    assert caught.value.code == "key_changed"


async def test_who_succeeds_rightly_may_what_he_might_and_is_to_be_compared_anew(desk: Desk) -> None:
    new = SigningKey.generate()
    bob = owner(next=next_commitment(new.public))
    desk.show(bob)
    pin = (await desk.peers().resolve("bob")).pin
    grants: dict[str, Any] = {
        "state": "allowed",
        "tasks": ("review",),
        "calls_per_hour": 3,
        "label": "bob",
        "verified_at": 7,
    }
    desk.contacts.update(pin.realm, "bob", lambda known: replace(known or pin, **grants))
    desk.show(succeeded(bob, new))
    after = (await desk.peers().resolve("bob")).pin
    assert (after.ipk, after.source, after.verified_at) == (new.public, "succession", None)
    assert (after.state, after.tasks, after.calls_per_hour, after.label) == ("allowed", ("review",), 3, "bob")


async def test_a_succession_that_nobody_signed_makes_no_predecessor(desk: Desk) -> None:
    eve, new = owner(), SigningKey.generate()
    bob = succeeded(eve, new, old_signs=True)
    desk.show(changed(bob, succession=None))
    await desk.peers().resolve("bob")
    forged = bob.publication()["succession"] | {"sig": b64encode(bytes(64))}
    desk.show(bob, succession=forged)
    desk.show_card(eve)
    with pytest.raises(TrustError):
        await sender(desk, eve)
    desk.show(bob)
    assert await sender(desk, eve) == eve.operational.public


async def test_a_successor_speaks_when_the_relay_shows_the_succession(desk: Desk) -> None:
    new = SigningKey.generate()
    bob = owner(next=next_commitment(new.public))
    desk.show(bob)
    await desk.peers().resolve("bob")
    after = succeeded(bob, new)
    desk.show(after)
    assert await sender(desk, after) == after.operational.public


async def test_a_direct_predecessor_speaks_for_96_hours(desk: Desk) -> None:
    new = SigningKey.generate()
    bob = owner(next=next_commitment(new.public))
    desk.show(bob)
    await desk.peers().resolve("bob")
    after = succeeded(bob, new)
    desk.show(after)
    await desk.peers().resolve("bob")
    await sender(desk, bob)
    desk.now += CARD_GRACE_MS
    with pytest.raises(TrustError):
        await sender(desk, bob)


async def test_a_revoked_card_never_speaks(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    await desk.peers().resolve("bob")
    desk.show_card(bob, revoked=(bob.card_id,))
    with pytest.raises(TrustError) as caught:
        await sender(desk, bob)
    assert caught.value.code == "revoked"
    later = renewed(bob)
    desk.show_card(later, revoked=(later.card_id,))
    with pytest.raises(TrustError) as caught:
        await sender(desk, later)
    assert caught.value.code == "revoked"


async def test_a_card_speaks_only_for_what_was_sealed_while_it_held(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    start, end = bob.card.card.not_before, bob.card.card.not_after
    for iat in (start - ENVELOPE_SKEW_MS, end + ENVELOPE_SKEW_MS - 1):
        await sender(desk, bob, iat)
    for iat in (start - ENVELOPE_SKEW_MS - 1, end + ENVELOPE_SKEW_MS):
        with pytest.raises(TrustError, match="did not hold"):
            await sender(desk, bob, iat)


async def test_a_relay_that_shows_another_card_than_asked_for(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    await desk.peers().resolve("bob")
    later = renewed(bob)
    desk.show_card(later)
    desk.cards[b64encode(bytes(32))] = desk.cards[later.card_id]
    with pytest.raises(TrustError, match="another card"):
        await desk.peers().sender("bob", bytes(32), desk.now)


async def test_a_relay_that_cannot_be_asked_does_not_silence_a_pinned_peer(desk: Desk) -> None:
    bob = owner()
    desk.show(bob)
    await desk.peers().resolve("bob")
    desk.cards.clear()
    await sender(desk, bob)


# --- signers (a caller's side)


async def test_the_signer_of_an_outcome_is_of_the_identity_that_was_called(desk: Desk) -> None:
    bob, eve = owner(), owner()
    desk.show(bob)
    peers = desk.peers()
    await peers.resolve("bob")
    ipk = bob.identity.public
    assert await peers.signer("bob", bob.card.card.id, ipk) == bob.card
    later = renewed(bob)
    desk.show_card(later)
    assert await peers.signer("bob", later.card.card.id, ipk) == later.card
    desk.show_card(eve)
    with pytest.raises(TrustError, match="another identity"):
        await peers.signer("bob", eve.card.card.id, ipk)
    last = renewed(later)
    desk.show_card(last, revoked=(last.card_id,))
    with pytest.raises(TrustError):
        await peers.signer("bob", last.card.card.id, ipk)
