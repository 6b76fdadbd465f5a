"""What a request must pass before it is opened, in order, with real keys that a real relay serves."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import UNSET, structs

from ringline.client import Account, Contacts, Home, Peers, RelayAddress, RelayClock, RelayHttp
from ringline.client.contacts import Pin
from ringline.client.inbox import Inbox
from ringline.listener import opening
from ringline.listener.access import Access
from ringline.listener.effects import Held, Opened, Unchecked
from ringline.listener.opening import Opener
from ringline.listener.waiting import WaitingRoom
from ringline.protocol.context import RequestContext
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.envelope import seal_request
from ringline.protocol.frames import IncomingCall
from ringline.protocol.limits import (
    DURABLE_LIFE_MS,
    ENVELOPE_SKEW_MS,
    SYNC_LIFE_MS,
)
from ringline.protocol.suites import SUITES, available_suites
from ringline_testing.relay import running_relay

SKEW = ENVELOPE_SKEW_MS
CORRELATION = "c" * 32
BODY = json.dumps({"message": "hi"}).encode()


@dataclass
class Party:
    """An identity at the relay, with everything it needs to call or to be called."""

    account: Account
    http: RelayHttp
    peers: Peers
    clock: RelayClock
    notes: list[str] = field(default_factory=list[str])


@dataclass
class Stage:
    """Alice calls bob; what bob's opener makes of it."""

    alice: Party
    bob: Party
    opener: Opener
    notes: list[str]

    async def frame(
        self,
        *,
        mode: Literal["sync", "durable"] = "sync",
        iat: int = 0,
        life: int = SYNC_LIFE_MS,
        message_id: str = "1" * 32,
        body: bytes = BODY,
        suite: int | None = None,
        **members: Any,
    ) -> IncomingCall:
        """Return alice's call as it is offered; ``iat`` in ms from now; ``members`` replace some."""
        peer = await self.alice.peers.resolve("bob")
        now = self.alice.clock.own_ms()
        recipient = peer.recipient
        context = RequestContext(
            realm="localhost",
            sender=self.alice.account.party,
            recipient=recipient,
            mode=mode,
            message_id=message_id,
            correlation_id=CORRELATION,
            iat=now + iat,
            exp=now + iat + life,
        )
        reply = SUITES[recipient.suite].generate()
        sealed = seal_request(context, body, reply.public, self.alice.account.operational)
        frame = IncomingCall(
            call_id="call-1",
            from_="alice",
            envelope=sealed.envelope,
            correlation_id=CORRELATION,
            message_id=message_id or UNSET,
            delivery_mode="durable" if mode == "durable" else UNSET,
            lease_id="00000000-0000-4000-8000-000000000001" if mode == "durable" else UNSET,
            execute_by=now + life if mode == "durable" else UNSET,
        )
        return structs.replace(frame, **members)

    async def open(self, frame: IncomingCall) -> Opened | None:
        """Have it opened."""
        self.notes.clear()
        opened = await self.opener.open(frame)
        assert not isinstance(opened, Unchecked | Held)
        return opened

    async def refusal(self, frame: IncomingCall) -> str:
        """Have it refused, and return what the owner is told."""
        assert await self.open(frame) is None
        return "\n".join(self.notes)


def changed(frame: IncomingCall, **members: Any) -> IncomingCall:
    """Return the frame with members of its envelope replaced."""
    return structs.replace(frame, envelope=structs.replace(frame.envelope, **members))


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(running_relay())
        address = RelayAddress.parse(relay.url)
        parties: dict[str, Party] = {}
        for handle in ("alice", "bob"):
            home = Home(tmp_path / handle)
            clock = RelayClock()
            account = Account.create(home, address, handle, clock.own_ms())
            http = RelayHttp(address, account, clock)
            contacts = Contacts(home, home.contacts_file(address))
            notes: list[str] = []
            peers = Peers(address, http, contacts, clock, note=notes.append)
            parties[handle] = Party(account, http, peers, clock, notes)
            await http.publish()
        bob = parties["bob"]
        notes = bob.notes
        opener = Opener(bob.account, bob.peers, bob.clock, Access(None), notes.append)
        yield Stage(parties["alice"], bob, opener, notes)


async def test_a_call_that_is_right_opens(stage: Stage) -> None:
    opened = await stage.open(await stage.frame())
    assert opened is not None
    assert opened.json == BODY
    assert (opened.from_ipk, opened.own_ipk) == (stage.alice.account.ipk, stage.bob.account.ipk)
    assert opened.suite == max(available_suites())


async def test_without_a_message_id_too(stage: Stage) -> None:
    assert await stage.open(await stage.frame(message_id="")) is not None


async def test_a_durable_call_opens(stage: Stage) -> None:
    assert await stage.open(await stage.frame(mode="durable", life=DURABLE_LIFE_MS)) is not None


class TestStep1:
    async def test_an_unknown_suite(self, stage: Stage) -> None:
        assert "suite 9" in await stage.refusal(changed(await stage.frame(), suite=9))


class TestStep2:
    async def test_a_stranger_is_refused_before_anything_is_decrypted(self, stage: Stage) -> None:
        # Nothing of it would pass a later step; neither is the relay asked for his keys.
        frame = changed(await stage.frame(from_="mallory"), kid=b64encode(b"x" * 32), iat=0, exp=1, ct="AA")
        opener = Opener(
            stage.bob.account,
            stage.bob.peers,
            stage.bob.clock,
            Access(frozenset({"alice"})),
            stage.notes.append,
        )
        stage.notes.clear()
        assert await opener.open(frame) is None
        assert stage.notes == [
            "a call from mallory was refused: let it in with --allow mallory, "
            "or invite its owner: ringline invite"
        ]

    async def test_on_the_development_realm_a_new_caller_is_pinned_with_a_note(self, stage: Stage) -> None:
        await stage.open(await stage.frame())
        assert stage.notes == [f"pinned the first key seen for alice: {stage.alice.account.fingerprint}"]
        pin = stage.bob.peers.pinned("alice")
        assert pin is not None
        assert pin.source == "tofu"

    async def test_a_handle_that_does_not_exist(self, stage: Stage) -> None:
        assert "mallory" in await stage.refusal(await stage.frame(from_="mallory"))

    async def test_a_card_that_the_relay_does_not_know(self, stage: Stage) -> None:
        await stage.open(await stage.frame())
        frame = changed(await stage.frame(), sid=b64encode(b"x" * 32))
        assert "no card of alice" in await stage.refusal(frame)

    async def test_another_identity_under_a_known_handle(self, stage: Stage, tmp_path: Path) -> None:
        await stage.open(await stage.frame())
        contacts = stage.bob.peers._contacts
        impostor = Account.create(
            Home(tmp_path / "impostor"), stage.bob.account.address, "alice", stage.bob.clock.own_ms()
        )

        def swap(pin: Any) -> Any:
            return replace(pin, ipk=impostor.ipk, card=impostor.card)

        contacts.update("localhost", "alice", swap)
        told = await stage.refusal(await stage.frame())
        assert "key of alice is not the one that is known here" in told

    async def test_the_relay_is_away_for_a_while(
        self, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(opening, "_RETRIES_S", (0.01, 0.02))
        # The address of a relay that is not there any more.
        async with running_relay() as gone:
            address = RelayAddress.parse(gone.url)
        home = Home(tmp_path / "away")
        account = Account.create(home, address, "bob", stage.bob.clock.own_ms())
        http = RelayHttp(address, account, stage.bob.clock)
        peers = Peers(address, http, Contacts(home, home.contacts_file(address)), stage.bob.clock)
        opener = Opener(account, peers, stage.bob.clock, Access(None), stage.notes.append)
        frame = await stage.frame()
        stage.notes.clear()
        assert await opener.open(frame) == Unchecked()
        assert len(stage.notes) == 1
        assert "could not be checked" in stage.notes[0]


class TestStep3:
    async def test_a_key_that_is_not_here_any_more(self, stage: Stage) -> None:
        # What comes later would be refused too: it lives too long.
        frame = changed(await stage.frame(life=SYNC_LIFE_MS + 1), kid=b64encode(b"x" * 32))
        assert "is not here any more" in await stage.refusal(frame)


class TestStep4:
    """Times; ``ct`` is broken as well, so a refusal for another reason would tell."""

    @pytest.mark.parametrize(
        ("members", "told"),
        [
            ({"life": SYNC_LIFE_MS + 1}, "out of bounds"),
            ({"life": DURABLE_LIFE_MS + 1, "mode": "durable"}, "out of bounds"),
            ({"iat": -SYNC_LIFE_MS - SKEW - 5_000, "life": SYNC_LIFE_MS}, "has run out"),
        ],
    )
    async def test_bounds(self, stage: Stage, members: dict[str, Any], told: str) -> None:
        frame = changed(await stage.frame(**members), ct="AA")
        assert told in await stage.refusal(frame)

    async def test_just_within_the_bounds_it_opens(self, stage: Stage) -> None:
        assert await stage.open(await stage.frame(iat=SKEW - 5_000)) is not None
        assert await stage.open(await stage.frame(iat=-SYNC_LIFE_MS - SKEW + 5_000)) is not None

    async def test_from_the_future(self, stage: Stage) -> None:
        frame = await stage.frame(iat=SKEW + 5_000)
        assert "in the future" in await stage.refusal(changed(frame, ct="AA"))

    async def test_execute_by_is_over(self, stage: Stage) -> None:
        frame = await stage.frame(mode="durable", execute_by=stage.bob.clock.own_ms() - 1)
        assert "its time to run is over" in await stage.refusal(frame)

    async def test_a_relay_that_tells_a_wrong_time_revives_nothing(self, stage: Stage) -> None:
        # The journal forgets by the computer's own clock: a call that it may have forgotten must not open.
        frame = await stage.frame(iat=-SYNC_LIFE_MS - SKEW - 5_000)
        stage.bob.clock.offset_ms = -SYNC_LIFE_MS
        assert "has run out" in await stage.refusal(frame)


class TestSteps5To9:
    """Every value of the context is taken from what is known here: change one, and it does not open."""

    @pytest.mark.parametrize(
        "members",
        [
            {"correlation_id": "d" * 32},
            {"message_id": "2" * 32},
            {"message_id": UNSET},
            {
                "delivery_mode": "durable",
                "lease_id": "00000000-0000-4000-8000-000000000001",
                "execute_by": 2**52,
            },
        ],
    )
    async def test_members_of_the_frame(self, stage: Stage, members: dict[str, Any]) -> None:
        frame = structs.replace(await stage.frame(), **members)
        assert "does not open" in await stage.refusal(frame)

    async def test_times_of_the_envelope(self, stage: Stage) -> None:
        frame = await stage.frame(life=SYNC_LIFE_MS - 1_000)
        for name in ("iat", "exp"):
            moved = changed(frame, **{name: getattr(frame.envelope, name) + 1})
            assert "does not open" in await stage.refusal(moved)

    async def test_every_part_of_the_ciphertext(self, stage: Stage) -> None:
        frame = await stage.frame()
        sealed = bytearray(b64decode(frame.envelope.ct))
        for place in (0, 1_000, 1_119, 1_120, len(sealed) // 2, len(sealed) - 1):
            flipped = bytearray(sealed)
            flipped[place] ^= 1
            told = await stage.refusal(changed(frame, ct=b64encode(bytes(flipped))))
            assert "does not open" in told
        assert "does not open" in await stage.refusal(changed(frame, ct="not canonical, not even base64"))

    async def test_a_call_of_alice_under_another_name(self, stage: Stage) -> None:
        await stage.open(await stage.frame())
        frame = structs.replace(await stage.frame(), from_="bob")
        assert await stage.open(frame) is None

    async def test_a_signature_by_another_key(self, stage: Stage) -> None:
        await stage.open(await stage.frame())
        stage.alice.account._generations[0].operational = stage.bob.account.operational
        assert "does not open" in await stage.refusal(await stage.frame())


class TestHolding:
    """Durable calls that nobody allowed wait for their owner's word (RL-DURABLE-070)."""

    @pytest.fixture
    def access(self, stage: Stage) -> Access:
        contacts = stage.bob.peers._contacts
        return Access(frozenset(), contacts=lambda handle: contacts.pin("localhost", handle))

    @pytest.fixture
    def inbox(self, stage: Stage) -> Inbox:
        return Inbox(stage.bob.account.home, stage.bob.account)

    @pytest.fixture
    def holding(self, stage: Stage, access: Access, inbox: Inbox) -> Opener:
        bob = stage.bob
        room = WaitingRoom(inbox, most=4, now=bob.clock.own_ms, note=stage.notes.append)
        return Opener(bob.account, bob.peers, bob.clock, access, stage.notes.append, None, room)

    def pin(self, stage: Stage, **members: Any) -> None:
        pin = Pin(
            realm="localhost", handle="alice", ipk=stage.alice.account.ipk, source="invite", first_seen=1
        )
        stage.bob.peers._contacts.update("localhost", "alice", lambda _: replace(pin, **members))

    async def test_a_strangers_call_waits_without_being_opened(
        self, stage: Stage, holding: Opener, inbox: Inbox
    ) -> None:
        # It would not open: nobody has tried.
        frame = changed(await stage.frame(mode="durable", life=DURABLE_LIFE_MS), ct="AA")
        assert await holding.open(frame) == Held()
        (waiting,) = inbox.calls()
        assert (waiting.handle, waiting.known, waiting.task) == ("alice", False, None)
        assert waiting.ipk == b64encode(stage.alice.account.ipk)
        # Looking at his key has pinned nothing.
        assert stage.bob.peers.pinned("alice") is None
        inbox.decide("call-1", "denied")
        assert await holding.open(frame) is None

    async def test_once_it_was_let_through_it_opens_under_the_key_that_was_shown(
        self, stage: Stage, holding: Opener, inbox: Inbox
    ) -> None:
        frame = await stage.frame(mode="durable", life=DURABLE_LIFE_MS)
        assert await holding.open(frame) == Held()
        self.pin(stage)
        inbox.decide("call-1", "once")
        assert isinstance(await holding.open(frame), Opened)

    @pytest.mark.parametrize("mode", ["sync", "durable"])
    async def test_the_word_on_one_call_is_none_on_another_that_the_relay_gives_its_id(
        self, stage: Stage, holding: Opener, inbox: Inbox, mode: Literal["sync", "durable"]
    ) -> None:
        self.pin(stage, state="pending")
        assert await holding.open(await stage.frame(mode="durable", life=DURABLE_LIFE_MS)) == Held()
        inbox.decide("call-1", "once")
        other = await holding.open(await stage.frame(mode=mode, message_id="2" * 32))
        # A durable one waits for a word of its own; what becomes of the other is said under a seal.
        assert other == Held() if mode == "durable" else isinstance(other, Opened)
        assert not WaitingRoom(inbox, most=4, now=int, note=stage.notes.append).approves("call-1")

    async def test_a_sync_call_of_a_stranger_is_refused(
        self, stage: Stage, holding: Opener, inbox: Inbox
    ) -> None:
        assert await holding.open(await stage.frame()) is None
        assert inbox.calls() == ()

    @pytest.mark.parametrize(
        ("members", "held"),
        [
            ({"state": "pending"}, True),
            ({"state": "allowed", "tasks": ("other",)}, True),
            ({"state": "allowed", "tasks": ("default",)}, False),
            ({"state": "allowed"}, False),
            ({"state": "blocked"}, False),
        ],
    )
    async def test_a_known_callers_call_waits_if_it_was_not_granted(
        self, stage: Stage, holding: Opener, inbox: Inbox, members: dict[str, Any], held: bool
    ) -> None:
        self.pin(stage, **members)
        opened = await holding.open(await stage.frame(mode="durable", life=DURABLE_LIFE_MS))
        if held:
            assert opened == Held()
            (waiting,) = inbox.calls()
            assert (waiting.known, waiting.task) == (True, "default")
        else:
            # What becomes of it is said under a seal.
            assert isinstance(opened, Opened)
            assert inbox.calls() == ()
