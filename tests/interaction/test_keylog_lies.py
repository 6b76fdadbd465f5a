"""Lies about keys by a relay with a key log, told to real callers and listeners through a man in the middle.

The relay behind is honest, and so is its log; whoever stands in front of it has its key and shows to one
client what he wants. Each lie is refused, or reported with what was seen.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ringline.caller import AsyncCaller
from ringline.listener import Call, Listener
from ringline.protocol.encoding import b64decode
from ringline.protocol.errors import LogForked, TrustError
from ringline.protocol.signing import SigningKey
from ringline.relay.server import RelayServer
from ringline_testing.lying_log import LogView
from ringline_testing.middleman import Middleman, answer_json, middleman
from ringline_testing.relay import running_relay
from ringline_testing.signed import Answer, Owner

BOUND_S = 60.0


@dataclass
class World:
    """An honest relay, one that lies in front of it, and whoever is at either."""

    relay: RelayServer
    middle: Middleman
    db: Path
    folder: Path
    stack: AsyncExitStack
    notes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    async def listen(self, name: str, url: str) -> None:
        """Have somebody listen, who echoes."""
        listener = Listener(
            name, relay=url, home=self.folder / name, note=self.notes.setdefault(name, []).append
        )

        @listener.answer
        def answer(call: Call) -> str:
            return call.message

        del answer
        await self.stack.enter_async_context(listener.serving())

    def caller(self, name: str, url: str) -> AsyncCaller:
        """Return a caller."""
        note = self.notes.setdefault(name, []).append
        return AsyncCaller(name, relay=url, home=self.folder / name, note=note)

    def view(self) -> LogView:
        """Return the log as it is in the relay's database, with the key to sign any other."""
        with closing(sqlite3.connect(self.db)) as run:
            entries = [entry for (entry,) in run.execute("SELECT entry FROM log_entries ORDER BY number")]
            (key,) = run.execute("SELECT value FROM facts WHERE name = 'log_key'").fetchone()
        return LogView("localhost", SigningKey(b64decode(key)), entries)

    def show_log(self, change: Callable[[LogView], None]) -> None:
        """Have the man in the middle show the log changed, whatever it is at the time."""

        def lie(method: str, target: str, answer: Answer) -> Answer:
            if not target.startswith("/v1/log/"):
                return answer
            view = self.view()
            change(view)
            data = view.file(target.removeprefix("/v1/log/"))
            return answer if data is None else Answer(200, answer.headers, data)

        self.middle.on_answer = lie

    def reported(self, name: str, text: str) -> Callable[[], bool]:
        """Return whether something was told to somebody."""
        return lambda: any(text in note for note in self.notes[name])

    def evidence(self, name: str) -> list[Path]:
        """Return the files of evidence of somebody."""
        return list((self.folder / name).rglob("evidence/*.txt"))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(running_relay(db=tmp_path / "relay.db"))
        middle = await stack.enter_async_context(middleman(relay.port))
        yield World(relay, middle, tmp_path / "relay.db", tmp_path, stack)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 - listeners have loops of their own
            await asyncio.sleep(0.01)


async def test_a_log_that_is_forked_for_one_client_is_reported_by_both_sides_of_a_call(world: World) -> None:
    dora = await Owner.enrolled("dora", world.relay.port)
    mallory = Owner(handle="dora", port=0)

    def fork(view: LogView) -> None:
        # To bob alone, dora is somebody else.
        assert view.entries[0] == dora.card.card.encode() + dora.card.signature
        view.entries[0] = mallory.card.card.encode() + mallory.card.signature

    world.show_log(fork)
    await world.listen("bob", world.middle.url)
    async with world.caller("alice", world.relay.url) as alice:
        reply = await alice.call("bob", "hello", timeout=BOUND_S)
    assert reply.text == "hello"
    for name, peer in (("alice", "bob"), ("bob", "alice")):
        await until(world.reported(name, f"{peer} says, sealed and signed"))
        assert len(world.evidence(name)) == 1


async def test_a_card_for_a_listeners_handle_that_he_did_not_publish_is_told_to_him(world: World) -> None:
    thief = Owner(handle="bob", port=0, serial=2).card
    world.show_log(lambda view: view.entries.append(thief.card.encode() + thief.signature))
    await world.listen("bob", world.middle.url)
    await until(world.reported("bob", "a card for your handle bob that you did not publish"))


async def test_a_revocation_that_the_relay_drops_is_found_in_its_log(world: World) -> None:
    bob = await Owner.enrolled("bob", world.relay.port)
    assert (await bob.ask("POST", "/v1/handles/bob/revocations", bob.revocation())).status == 201

    def drop(method: str, target: str, answer: Answer) -> Answer:
        return answer_json(answer, revoked=[]) if target == "/v1/handles/bob" else answer

    world.middle.on_answer = drop
    async with world.caller("alice", world.middle.url) as alice:
        with pytest.raises(TrustError, match="entry 1 of its own key log says so") as caught:
            await alice.call("bob", "hello", timeout=BOUND_S)
    assert caught.value.code == "revoked"


async def test_an_old_card_that_the_relay_serves_is_refused_at_the_first_contact(world: World) -> None:
    bob = await Owner.enrolled("bob", world.relay.port)
    old = await bob.ask("GET", "/v1/handles/bob")
    renewed = bob.renewed()
    assert (await renewed.publish()).status == 200

    def replay(method: str, target: str, answer: Answer) -> Answer:
        return old if target == "/v1/handles/bob" else answer

    world.middle.on_answer = replay
    async with world.caller("alice", world.middle.url) as alice:
        with pytest.raises(TrustError, match="card number 1, and entry 1 is another card") as caught:
            await alice.call("bob", "hello", timeout=BOUND_S)
    assert caught.value.code == "log_unproven"


async def test_a_key_that_the_relay_swaps_for_one_victim_is_refused_at_the_first_contact(
    world: World,
) -> None:
    bob = await Owner.enrolled("bob", world.relay.port)
    mallory = Owner(handle="bob", port=0)

    def swap(method: str, target: str, answer: Answer) -> Answer:
        return answer_json(answer, **mallory.publication()) if target == "/v1/handles/bob" else answer

    world.middle.on_answer = swap
    async with world.caller("alice", world.middle.url) as alice:
        with pytest.raises(TrustError, match="entry 0 is not this card") as caught:
            await alice.call("bob", "hello", timeout=BOUND_S)
    assert caught.value.code == "log_unproven"
    del bob


@pytest.mark.parametrize("under_its_root", [True, False])
async def test_an_entry_that_is_rewritten_after_it_was_seen_is_refused(
    world: World, under_its_root: bool
) -> None:
    for name in ("dora", "bob"):
        await Owner.enrolled(name, world.relay.port)
    async with world.caller("alice", world.middle.url) as alice:
        with pytest.raises(Exception, match="offline"):
            await alice.call("bob", "hello", timeout=BOUND_S)

    def rewrite(view: LogView) -> None:
        if under_its_root:
            view.entries[0] = view.entries[1]
        else:
            last = len(view.entries) - 1
            view.bundles[last] = view.entries[0]

    world.show_log(rewrite)
    await Owner.enrolled("carol", world.relay.port)
    async with world.caller("alice", world.middle.url) as alice:
        with pytest.raises(LogForked, match="is not what it was"):
            await alice.call("carol", "hello", timeout=BOUND_S)
    (evidence,) = world.evidence("alice")
    assert "localhost/v1/log" in evidence.read_text()


async def test_a_log_that_the_relay_denies_is_asked_for(world: World) -> None:
    """In the development realm another relay may answer tomorrow; what is said of it is that much."""
    await Owner.enrolled("bob", world.relay.port)
    async with world.caller("alice", world.middle.url) as alice:
        with pytest.raises(Exception, match="offline"):
            await alice.call("bob", "hello", timeout=BOUND_S)

    def deny(method: str, target: str, answer: Answer) -> Answer:
        return answer_json(answer, features=[]) if target == "/v1/relay" else answer

    world.middle.on_answer = deny
    async with world.caller("alice", world.middle.url) as alice:
        with pytest.raises(Exception, match="offline"):
            await alice.call("bob", "hello", timeout=BOUND_S)
    assert any("another development relay answers here" in note for note in world.notes["alice"])
