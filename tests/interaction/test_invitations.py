"""Inviting and being invited over a relay that lies: nobody gets in who has not the invite's own secret."""

import dataclasses
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from ringline.client import Account, Contacts, Home, KeyLog, Peers, RelayAddress, RelayClock, RelayHttp
from ringline.client.admittance import admit_at_relay
from ringline.client.contacts import Pin
from ringline.client.invitations import Given, Invitations, pin_inviter
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import ConfigError, HttpProblem, LogForked, TransportError, TrustError
from ringline.protocol.invite import Invite
from ringline.protocol.shapes import Policy
from ringline.protocol.signing import SigningKey
from ringline_testing.middleman import Middleman, answer_json, middleman
from ringline_testing.relay import running_relay
from ringline_testing.signed import Answer, now_ms

REALM = "relay.example"
DAY_S = 86_400


class Person:
    """One person at one computer."""

    def __init__(self, folder: Path, url: str, handle: str) -> None:
        self.home = Home(folder)
        address = RelayAddress.parse(url, REALM)
        self.account = Account.create(self.home, address, handle, now_ms(), plain=True, suites=[1])
        self.clock = RelayClock()
        self.http = RelayHttp(address, self.account, self.clock)
        self.contacts = Contacts(self.home, self.home.contacts_file(address))
        self.invitations = Invitations(self.home, self.account, self.http, self.contacts)

    async def accept(self, text: str, given: Given | None = None) -> Pin:
        """Take an invite up as `ringline accept` does."""
        invite = Invite.parse(text)
        proof = invite.prove(self.account.handle, self.account.ipk)
        await self.http.publish(f"{invite.secret}:{proof}")
        pin_inviter(self.contacts, invite, given, now_ms())
        peers = Peers(self.account.address, self.http, self.contacts, self.clock)
        assert invite.inviter is not None
        return (await peers.resolve(invite.inviter)).pin


@dataclasses.dataclass
class World:
    """A relay with a liar in front of it, a person who invites and one who is invited."""

    liar: Middleman
    alice: Person
    bob: Person

    async def invite(self, given: Given | None = None, uses: int = 1) -> str:
        invite, _ = await self.alice.invitations.invite(given or Given(), uses=uses, ttl_s=DAY_S)
        return invite.format()


@asynccontextmanager
async def a_world(folder: Path) -> AsyncGenerator[World]:
    async with running_relay(realm=REALM) as relay, middleman(relay.port) as liar:
        url = f"http://127.0.0.1:{liar.port}"
        alice, bob = Person(folder / "a", url, "alice"), Person(folder / "b", url, "bob")
        await alice.http.publish()
        yield World(liar, alice, bob)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with a_world(tmp_path) as made:
        yield made


async def test_both_sides_pin_the_others_key(world: World) -> None:
    given = Given(tasks=("review",), calls_per_hour=5, label="bob at acme")
    assert await world.alice.invitations.open_door() is not None
    assert await world.alice.invitations.open_door() is None
    pin = await world.bob.accept(await world.invite(given), Given(tasks=("ask",)))
    assert (pin.ipk, pin.source, pin.state, pin.tasks) == (
        world.alice.account.ipk, "invite", "allowed", ("ask",),
    )  # fmt: skip
    (guest,) = await world.alice.invitations.meet()
    assert guest.pin == world.alice.contacts.pin(REALM, "bob")
    assert guest.pin is not None
    assert (guest.pin.ipk, guest.pin.state, guest.pin.tasks, guest.pin.calls_per_hour, guest.pin.label) == (
        world.bob.account.ipk, "allowed", ("review",), 5, "bob at acme",
    )  # fmt: skip
    assert guest.pin.verified_at is not None
    # He is met once, and by every process of hers.
    assert await world.alice.invitations.meet() == []
    again = Invitations(world.alice.home, world.alice.account, world.alice.http, world.alice.contacts)
    assert await again.meet() == []
    assert [kept.met for kept in again.kept()] == [("bob",)]


async def test_an_invite_hands_the_key_of_the_relays_log_on(tmp_path: Path) -> None:
    """So that a newcomer need not believe the relay that is to be held to its log."""
    relay_db = tmp_path / "relay.db"
    async with running_relay(realm=REALM, db=relay_db) as relay, middleman(relay.port) as liar:
        assert relay.log_key is not None
        alice = Person(tmp_path / "a", f"http://127.0.0.1:{liar.port}", "alice")
        await alice.http.publish()
        invite, _ = await alice.invitations.invite(Given(), uses=1, ttl_s=DAY_S)
        assert invite.log == relay.log_key.public
        told = [relay.log_key.public]
        forged = b64encode(SigningKey.generate().public)

        def fork(method: str, target: str, answer: Answer) -> Answer:
            return answer_json(answer, log_key=forged) if target == "/v1/relay" else answer

        liar.on_answer = fork
        bob = Person(tmp_path / "b", f"http://127.0.0.1:{liar.port}", "bob")
        with (
            closing(KeyLog(bob.home, bob.http, bob.clock)) as log,
            pytest.raises(LogForked, match="signed by another key"),
        ):
            await log.greet(await bob.http.info(), told)
        # Nobody is invited to a relay whose log is not the one that was seen.
        with pytest.raises(LogForked, match="signed by another key"):
            await alice.invitations.invite(Given(), uses=1, ttl_s=DAY_S)


async def test_without_an_invite_the_relay_is_not_asked(world: World) -> None:
    before = len(world.liar.requests)
    assert await world.bob.invitations.meet() == []
    assert len(world.liar.requests) == before


@pytest.mark.parametrize("lie", ["another handle", "another proof", "no proof", "invented"])
async def test_whoever_the_relay_invents_is_not_let_in(world: World, lie: str, tmp_path: Path) -> None:
    """The relay knows its own secret of the invite, and can enrol whom it likes."""
    mallory = Person(tmp_path / "m", f"http://127.0.0.1:{world.liar.port}", "mallory")
    await mallory.http.publish()
    text = await world.invite()
    if lie != "invented":
        await world.bob.accept(text)

    def invent(method: str, target: str, answer: Answer) -> Answer:
        if not target.startswith("/v1/invites") or method != "GET":
            return answer
        (invite,) = answer.json()["invites"]
        told: list[dict[str, Any]] = invite["accepted"] or [{"handle": "mallory", "at": 0, "proof": "A" * 43}]
        match lie:
            case "another handle":
                told[0]["handle"] = "mallory"
            case "another proof":
                told[0]["proof"] = "A" * 43
            case "no proof":
                told[0]["proof"] = None
            case _:
                pass
        return answer_json(answer, invites=[invite | {"accepted": told}])

    # So that the keys of whoever it names can be seen.
    await mallory.http.set_policy(Policy(offline=False, accept="anyone", allow=[], block=[]))
    world.liar.on_answer = invent
    (guest,) = await world.alice.invitations.meet()
    assert guest.pin is None
    assert "nothing shows that the key" in (guest.trouble or "")
    assert world.alice.contacts.pins() == ()


async def test_a_guest_who_proves_nothing_uses_up_no_look_ups_of_keys(world: World) -> None:
    """A stranger's calls make a listener look each second, and keys are looked up 60 times a minute."""
    invite = Invite.parse(await world.invite(uses=3))
    await world.bob.http.publish(f"{invite.secret}:{'A' * 43}")

    async def looks(ahead_ms: int) -> int:
        started = len(world.liar.requests)
        world.alice.clock.own_ms = lambda: start_ms + ahead_ms  # type: ignore[method-assign]
        for _ in range(3):
            (guest,) = await world.alice.invitations.meet()
            assert guest.pin is None
            assert guest.trouble is not None
        return world.liar.requests[started:].count(("GET", "/v1/handles/bob"))

    start_ms = now_ms()
    assert await looks(0) == 2
    assert await looks(9_999) == 0
    assert await looks(10_000) == 1
    assert await looks(70_000) == 1
    # It is never the last: what was seen may have been the relay's doing.
    assert await looks(670_000) == 1
    assert await looks(1_269_999) == 0


async def test_a_relay_that_tells_of_ever_other_guests_fills_no_memory(world: World) -> None:
    invite = Invite.parse(await world.invite(uses=3))
    await world.bob.http.publish(f"{invite.secret}:{'A' * 43}")
    invitations, told = world.alice.invitations, 0

    def another(method: str, target: str, answer: Answer) -> Answer:
        nonlocal told
        if not target.startswith("/v1/invites") or method != "GET":
            return answer
        told += 1
        return answer._replace(body=answer.body.replace(b"A" * 43, b"%d" % told * 42 + b"A"))

    world.liar.on_answer = another
    for _ in range(3):
        assert [guest.pin for guest in await invitations.meet()] == [None]
        assert len(invitations._refused) == 1
    assert told == 3


async def test_another_key_of_the_invited_is_not_let_in(world: World, tmp_path: Path) -> None:
    await world.bob.accept(await world.invite())
    thief = Person(tmp_path / "t", f"http://127.0.0.1:{world.liar.port}", "bob")
    keys = thief.account.publication(now_ms())

    def swap(method: str, target: str, answer: Answer) -> Answer:
        if target != "/v1/handles/bob" or method != "GET":
            return answer
        return answer_json(
            answer, card=keys.card, card_sig=keys.card_sig, prekey=keys.prekey, prekey_sig=keys.prekey_sig
        )

    world.liar.on_answer = swap
    (guest,) = await world.alice.invitations.meet()
    assert guest.pin is None
    assert thief.account.fingerprint in (guest.trouble or "")
    # Once the truth is told, he is let in.
    world.liar.on_answer = lambda method, target, answer: answer
    (guest,) = await world.alice.invitations.meet()
    assert guest.pin is not None


async def test_another_key_of_the_inviter_stops_the_invited(world: World, tmp_path: Path) -> None:
    thief = Person(tmp_path / "t", f"http://127.0.0.1:{world.liar.port}", "alice")
    keys = thief.account.publication(now_ms())

    def swap(method: str, target: str, answer: Answer) -> Answer:
        if target != "/v1/handles/alice" or method != "GET":
            return answer
        return answer_json(
            answer, card=keys.card, card_sig=keys.card_sig, prekey=keys.prekey, prekey_sig=keys.prekey_sig
        )

    world.liar.on_answer = swap
    with pytest.raises(TrustError) as caught:
        await world.bob.accept(await world.invite())
    assert caught.value.code == "key_changed"
    pin = world.bob.contacts.pin(REALM, "alice")
    assert pin is not None
    assert pin.ipk == world.alice.account.ipk


async def test_an_invite_does_not_change_a_key_that_is_known(world: World) -> None:
    other = SigningKey.generate().public
    put(world.bob.contacts, Pin(realm=REALM, handle="alice", ipk=other, source="tofu", first_seen=1))
    with pytest.raises(TrustError, match="another key of alice") as caught:
        await world.bob.accept(await world.invite())
    assert caught.value.code == "key_changed"
    put(world.alice.contacts, Pin(realm=REALM, handle="bob", ipk=other, source="tofu", first_seen=1))
    (guest,) = await world.alice.invitations.meet()
    assert guest.pin is None
    assert "another key is known" in (guest.trouble or "")


def put(contacts: Contacts, pin: Pin) -> None:
    contacts.update(pin.realm, pin.handle, lambda _: pin)


async def test_whoever_is_blocked_stays_so(world: World) -> None:
    ipk = world.bob.account.ipk
    put(
        world.alice.contacts,
        Pin(realm=REALM, handle="bob", ipk=ipk, source="tofu", first_seen=1, state="blocked"),
    )
    await world.bob.accept(await world.invite())
    (guest,) = await world.alice.invitations.meet()
    assert guest.pin is not None
    assert guest.pin.state == "blocked"


async def test_a_first_key_that_was_only_seen_is_vouched_for_by_an_invite(world: World) -> None:
    ipk = world.bob.account.ipk
    put(world.alice.contacts, Pin(realm=REALM, handle="bob", ipk=ipk, source="tofu", first_seen=1))
    await world.bob.accept(await world.invite())
    (guest,) = await world.alice.invitations.meet()
    assert guest.pin is not None
    assert (guest.pin.source, guest.pin.first_seen) == ("invite", 1)
    assert guest.pin.verified_at is not None


async def test_what_the_relay_refuses_is_said_in_words(world: World, tmp_path: Path) -> None:
    text = await world.invite()
    await world.bob.accept(text)
    carol = Person(tmp_path / "c", f"http://127.0.0.1:{world.liar.port}", "carol")
    with pytest.raises(HttpProblem, match="does not take this invite") as caught:
        await carol.accept(text)
    assert caught.value.code == "forbidden"
    assert not await world.bob.http.withdraw_invite("none")


async def test_a_damaged_file_of_invites_is_not_written_over(world: World) -> None:
    await world.invite()
    path = world.alice.invitations.path
    other = path.read_text().replace('"pairing": "', '"pairing": "!')
    for damage in ("{", "[]", '{"version":2,"invites":[]}', other):
        path.write_text(damage)
        with pytest.raises(ConfigError, match="damaged"):
            await world.alice.invitations.meet()
        with pytest.raises(ConfigError, match="damaged"):
            await world.invite()
        assert path.read_text() == damage


async def test_the_relay_is_told_whom_to_let_through_and_says_when_it_was_not(world: World) -> None:
    http = world.alice.http
    for admittance, allow, block in (
        ("allowed", ["bob"], []),
        ("blocked", [], ["bob"]),
        ("allowed", ["bob"], []),
        ("neither", [], []),
    ):
        assert await admit_at_relay(http, "bob", admittance) is None  # type: ignore[arg-type]
        policy = await http.policy()
        assert (policy.allow, policy.block, policy.accept) == (allow, block, "listed")
    nowhere = RelayAddress.parse("http://127.0.0.1:1", REALM)
    lost = RelayHttp(nowhere, world.alice.account, world.alice.clock)
    assert isinstance(await admit_at_relay(lost, "bob", "blocked"), TransportError)
