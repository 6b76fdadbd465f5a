"""Conversations: turns one after the other, tied together under the seal."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import UNSET

from ringline.caller import AsyncCaller
from ringline.protocol.bodies import link
from ringline.protocol.errors import ConfigError, PeerFailure, ProtocolError
from ringline.relay.server import RelayServer
from ringline_testing.relay import running_relay
from ringline_testing.scripted import ScriptedCall, scripted_listener

CONTEXT = "ctx_" + "A" * 22


@pytest.fixture
async def relay() -> AsyncIterator[RelayServer]:
    async with running_relay() as running:
        yield running


def caller(relay: RelayServer, home: Path) -> AsyncCaller:
    return AsyncCaller("alice", relay=relay.url, home=home, note=lambda text: None)


async def converse(call: ScriptedCall) -> None:
    """Keep one context and answer with the number of the turn."""
    turn = 1 if call.request.turn is UNSET else call.request.turn
    await call.reply(f"turn {turn}", context_id=CONTEXT, turn=turn)


async def test_turns_carry_context_number_and_the_digest_of_the_answer_before(
    relay: RelayServer, tmp_path: Path
) -> None:
    async with scripted_listener(relay.port, "bob", converse) as bob, caller(relay, tmp_path) as me:
        talk = me.conversation("bob", task="chat")
        replies = [await talk.call(f"{number}", timeout=60) for number in (1, 2, 3)]
        requests = [call.request for call in bob.calls]
        assert [request.context_id for request in requests] == [UNSET, CONTEXT, CONTEXT]
        assert [request.turn for request in requests] == [UNSET, 2, 3]
        assert [request.prev for request in requests] == [
            UNSET,
            link(replies[0].receipt.body),
            link(replies[1].receipt.body),
        ]
        assert {request.task for request in requests} == {"chat"}
        # The relay sees that they belong together, and nothing else.
        assert {call.frame.correlation_id for call in bob.calls} == {talk.correlation_id}
        assert talk.turns == 3


async def test_two_turns_at_once_run_one_after_the_other(relay: RelayServer, tmp_path: Path) -> None:
    async with scripted_listener(relay.port, "bob", converse) as bob, caller(relay, tmp_path) as me:
        talk = me.conversation("bob")
        await asyncio.gather(talk.call("a", timeout=60), talk.call("b", timeout=10))
        assert [call.request.turn for call in bob.calls] == [UNSET, 2]


async def test_conversations_do_not_share_what_the_relay_sees(relay: RelayServer, tmp_path: Path) -> None:
    async with caller(relay, tmp_path) as me:
        assert me.conversation("bob").correlation_id != me.conversation("bob").correlation_id


async def test_a_failed_turn_can_be_asked_again(relay: RelayServer, tmp_path: Path) -> None:
    async def fail_once(call: ScriptedCall) -> None:
        if len(call.listener.calls) == 2:
            await call.fail("agent_error")
        else:
            await converse(call)

    async with scripted_listener(relay.port, "bob", fail_once) as bob, caller(relay, tmp_path) as me:
        talk = me.conversation("bob")
        await talk.call("1", timeout=60)
        with pytest.raises(PeerFailure):
            await talk.call("2", timeout=60)
        assert (await talk.call("2", timeout=60)).text == "turn 2"
        assert [call.request.turn for call in bob.calls] == [UNSET, 2, 2]


async def test_a_forgotten_context_ends_the_conversation(relay: RelayServer, tmp_path: Path) -> None:
    async def forget(call: ScriptedCall) -> None:
        if call.request.turn is UNSET:
            await converse(call)
        else:
            await call.fail("context_unknown")

    async with scripted_listener(relay.port, "bob", forget) as bob, caller(relay, tmp_path) as me:
        talk = me.conversation("bob")
        await talk.call("1", timeout=60)
        with pytest.raises(PeerFailure) as caught:
            await talk.call("2", timeout=60)
        assert caught.value.code == "context_unknown"
        with pytest.raises(ConfigError, match="is over after 1 turns"):
            await talk.call("3", timeout=60)
        assert len(bob.calls) == 2


async def test_an_eleventh_turn_is_not_sent(relay: RelayServer, tmp_path: Path) -> None:
    async with scripted_listener(relay.port, "bob", converse) as bob, caller(relay, tmp_path) as me:
        talk = me.conversation("bob")
        for number in range(10):
            await talk.call(f"{number}", timeout=60)
        with pytest.raises(ConfigError, match="is over after 10 turns"):
            await talk.call("11", timeout=60)
        assert len(bob.calls) == 10


@pytest.mark.parametrize(
    ("context_id", "turn"), [("ctx_" + "B" * 22, 2), (CONTEXT, 3), (CONTEXT, None), (None, None)]
)
async def test_an_answer_of_another_context_or_turn_is_not_taken(
    relay: RelayServer, tmp_path: Path, context_id: str | None, turn: int | None
) -> None:
    async def stray(call: ScriptedCall) -> None:
        if call.request.turn is UNSET:
            await converse(call)
        else:
            members = {"context_id": context_id, "turn": turn}
            await call.reply("x", **{name: value for name, value in members.items() if value is not None})

    async with scripted_listener(relay.port, "bob", stray), caller(relay, tmp_path) as me:
        talk = me.conversation("bob")
        await talk.call("1", timeout=60)
        with pytest.raises(ProtocolError, match="another"):
            await talk.call("2", timeout=60)


async def test_a_callee_without_contexts_is_told_apart(relay: RelayServer, tmp_path: Path) -> None:
    async with scripted_listener(relay.port, "bob"), caller(relay, tmp_path) as me:
        talk = me.conversation("bob")
        assert (await talk.call("1", timeout=60)).context_id is None
        with pytest.raises(ConfigError, match="keeps no context"):
            await talk.call("2", timeout=60)
