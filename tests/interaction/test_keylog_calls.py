"""Calls over a relay with a key log: both sides follow it, and seal for each other what they see of it."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec import UNSET

from ringline.caller import AsyncCaller
from ringline.client import Home, RelayAddress
from ringline.listener import Call, Listener
from ringline.protocol.bodies import Checkpoint, Outcome, Reply, decode_outcome
from ringline.protocol.encoding import b64encode
from ringline.relay.server import RelayServer
from ringline_testing.relay import running_relay
from ringline_testing.scripted import ScriptedCall, scripted_listener
from ringline_testing.signed import Owner


@dataclass
class World:
    """A relay with a database, and whoever is at it, each with a home of his own."""

    relay: RelayServer
    folder: Path
    stack: AsyncExitStack
    notes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    async def listen(self, name: str = "bob") -> None:
        listener = Listener(
            name, relay=self.relay.url, home=self.folder / name, note=self.notes.setdefault(name, []).append
        )

        @listener.answer
        def answer(call: Call) -> str:
            return call.message

        del answer
        await self.stack.enter_async_context(listener.serving())

    def caller(self, name: str = "alice") -> AsyncCaller:
        note = self.notes.setdefault(name, []).append
        return AsyncCaller(name, relay=self.relay.url, home=self.folder / name, note=note)

    def state(self, name: str) -> Path:
        return Home(self.folder / name).keylog_file(RelayAddress.parse(self.relay.url))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(running_relay(db=tmp_path / "relay.db"))
        yield World(relay, tmp_path, stack)


def told(notes: list[str]) -> list[str]:
    return [note for note in notes if "key log of" in note]


async def test_caller_and_listener_seal_the_same_view_and_have_nothing_to_report(world: World) -> None:
    await world.listen()
    async with world.caller() as alice:
        reply = await alice.call("bob", "hello", timeout=60)
    outcome = decode_outcome(reply.receipt.body)
    assert isinstance(outcome.kt, Checkpoint)
    assert outcome.kt.size >= 1
    assert world.state("alice").exists()
    assert world.state("bob").exists()
    assert told(world.notes["alice"]) == told(world.notes["bob"]) == []


async def test_a_request_carries_the_callers_view(world: World) -> None:
    async with scripted_listener(world.relay.port, "bob") as bob, world.caller() as alice:
        await alice.call("bob", "hello", timeout=60)
        view = bob.calls[0].request.kt
        assert isinstance(view, Checkpoint)
        assert view.size == 2


async def test_the_same_message_is_the_same_however_the_log_has_grown(world: World) -> None:
    message_id = "1" * 32
    async with scripted_listener(world.relay.port, "bob") as bob:
        for number in range(2):
            await Owner.enrolled(f"other{number}", world.relay.port)
            async with world.caller() as alice:
                reply = await alice.call("bob", "hello", message_id=message_id, timeout=60)
                assert reply.text == "hello"
        assert len(bob.calls) == 1


async def test_the_turns_of_a_conversation_follow_one_another_while_the_log_grows(world: World) -> None:
    await world.listen()
    async with world.caller() as alice:
        talk = alice.conversation("bob")
        for turn in range(3):
            assert (await talk.call(f"turn {turn}", timeout=60)).text == f"turn {turn}"
            await Owner.enrolled(f"other{turn}", world.relay.port)
            async with world.caller("carol") as carol:
                await carol.call("bob", "between", timeout=60)


async def test_a_listener_who_sees_another_log_is_reported_to_whoever_called_him(world: World) -> None:
    async def lie(call: ScriptedCall) -> None:
        await call.accept()
        await call.start()
        kt = Checkpoint(size=1, root=b64encode(bytes(32)))
        await call.finish(Outcome(reason="completed", reply=Reply(text="hello"), kt=kt))

    async with scripted_listener(world.relay.port, "bob", lie):
        async with world.caller() as alice:
            reply = await alice.call("bob", "hello", timeout=60)
        # The reply is bob's, whatever the relay shows to whom.
        assert reply.text == "hello"
    (note,) = told(world.notes["alice"])
    assert "bob says, sealed and signed" in note
    (evidence,) = world.state("alice").parent.glob("evidence/*.txt")
    assert b64encode(bytes(32)) in evidence.read_text()


async def test_a_caller_who_sees_another_log_is_reported_to_the_listener_and_still_answered(
    world: World,
) -> None:
    await world.listen()
    async with scripted_listener(world.relay.port, "carol"), world.caller() as alice:
        await alice.call("carol", "hello", timeout=60)
    with closing(sqlite3.connect(world.state("alice"))) as run:
        # As if the relay had shown alice another history, and she had no reason to look again yet.
        run.execute("UPDATE facts SET value = ? WHERE name = 'root'", (b64encode(bytes(32)),))
        run.execute("INSERT OR IGNORE INTO proved SELECT card_id, number FROM cards")
        run.commit()
    async with world.caller() as alice:
        assert (await alice.call("bob", "hello", timeout=60)).text == "hello"
    async with asyncio.timeout(20):
        while not told(world.notes["bob"]):  # noqa: ASYNC110 - the listener has a loop of its own
            await asyncio.sleep(0.01)
    (note,) = told(world.notes["bob"])
    assert "alice says, sealed and signed" in note


async def test_without_a_database_there_is_nothing_to_follow(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        world = World(await stack.enter_async_context(running_relay()), tmp_path, stack)
        await world.listen()
        async with world.caller() as alice:
            reply = await alice.call("bob", "hello", timeout=60)
        assert decode_outcome(reply.receipt.body).kt is UNSET
        assert not world.state("alice").exists()
