"""Cancelling: confirmed, refused, undecided, too early, too late."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ringline.caller import AsyncCaller, Cancelled, NotCancelled, Requested
from ringline.protocol.errors import RelayError
from ringline.protocol.limits import CANCEL_WAIT_MS
from ringline.relay.server import RelayServer
from ringline_testing.middleman import Frames, middleman
from ringline_testing.relay import running_relay
from ringline_testing.scripted import ScriptedCall, scripted_listener


@pytest.fixture(params=["picows", "websockets"])
async def relay(request: pytest.FixtureRequest) -> AsyncIterator[RelayServer]:
    async with running_relay(edge=request.param) as running:
        yield running


@pytest.fixture
async def one_relay() -> AsyncIterator[RelayServer]:
    async with running_relay() as running:
        yield running


def caller(url: str, home: Path) -> AsyncCaller:
    return AsyncCaller("alice", relay=url, home=home, note=lambda text: None)


async def stopping(call: ScriptedCall) -> None:
    """Work until it is cancelled, and say that it stopped."""
    await call.accept()
    await call.start()
    await call.cancel_asked.wait()
    await call.cancelled("running")


async def test_a_cancellation_is_told_when_the_listener_confirmed_it(
    relay: RelayServer, tmp_path: Path
) -> None:
    async with scripted_listener(relay.port, "bob", stopping) as bob, caller(relay.url, tmp_path) as me:
        call = me.start("bob", "x", timeout=60)
        await bob.call()
        assert await call.cancel() == Cancelled(call.call_id)
        with pytest.raises(RelayError) as caught:
            await call.result()
        assert (caught.value.code, caught.value.exit_code) == ("canceled", 15)
        assert await call.cancel() == NotCancelled(call.call_id, "already_terminal")
        kept = (await me.calls())[0]
        assert (kept.state, kept.signed, kept.call_id) == ("canceled", False, call.call_id)


async def test_a_call_that_another_process_cancelled_stands_so_in_the_list(
    one_relay: RelayServer, tmp_path: Path
) -> None:
    async with (
        scripted_listener(one_relay.port, "bob", stopping) as bob,
        caller(one_relay.url, tmp_path) as me,
        caller(one_relay.url, tmp_path) as other,
    ):
        call = me.start("bob", "x", timeout=60)
        await bob.call()
        assert call.call_id is not None
        assert await other.cancel(call.call_id) == Cancelled(call.call_id)
        assert (await other.kept(call.call_id)).state == "canceled"
        with pytest.raises(RelayError):
            await call.result()


async def test_a_call_that_was_never_delivered_stands_so_until_it_is_made_again(
    one_relay: RelayServer, tmp_path: Path
) -> None:
    async with (
        scripted_listener(one_relay.port, "bob", connected=False) as bob,
        caller(one_relay.url, tmp_path) as me,
    ):
        call = me.start("bob", "x", timeout=60)
        with pytest.raises(RelayError):
            await call.result()
        assert [(each.state, each.call_id) for each in await me.calls()] == [("refused", None)]
        async with bob.listening():
            assert (await me.call("bob", "x", timeout=60, message_id=call.message_id)).text == "x"
        assert [each.state for each in await me.calls()] == ["completed"]


async def test_a_cancellation_right_behind_the_start_is_held_until_the_call_has_an_id(
    one_relay: RelayServer, tmp_path: Path
) -> None:
    held: Frames = []

    def hold(frame: dict[str, Any]) -> Frames:
        held.append(frame)
        return []

    def types(frames: list[dict[str, Any]]) -> list[str]:
        return [frame["type"] for frame in frames]

    async with (
        scripted_listener(one_relay.port, "bob", stopping) as bob,
        middleman(one_relay.port) as middle,
        caller(middle.url, tmp_path) as me,
    ):
        middle.on_down = hold
        call = me.start("bob", "x", timeout=60)
        await middle.until(lambda: "call_request" in types(middle.up))
        cancelling = asyncio.create_task(call.cancel())
        await bob.call()
        assert "cancel_call" not in types(middle.up)
        middle.on_down = lambda frame: [frame]
        for frame in held:
            middle.passing[0].send(frame)
        assert await cancelling == Cancelled(call.call_id)


async def test_a_call_that_was_never_sent_is_withdrawn(one_relay: RelayServer, tmp_path: Path) -> None:
    async with scripted_listener(one_relay.port, "bob") as bob, caller(one_relay.url, tmp_path) as me:
        call = me.start("bob", "x", timeout=60)
        assert await call.cancel() == Cancelled(None)
        with pytest.raises(RelayError, match="Nothing was delivered") as caught:
            await call.result()
        assert caught.value.code == "canceled"
        assert bob.calls == []


async def test_the_listener_says_that_it_is_too_late_and_the_reply_comes(
    one_relay: RelayServer, tmp_path: Path
) -> None:
    async def too_late(call: ScriptedCall) -> None:
        await call.accept()
        await call.start()
        await call.cancel_asked.wait()
        await call.not_cancelled("too_late")
        await call.reply("done anyway")

    async with (
        scripted_listener(one_relay.port, "bob", too_late) as bob,
        caller(one_relay.url, tmp_path) as me,
    ):
        call = me.start("bob", "x", timeout=60)
        await bob.call()
        assert await call.cancel() == NotCancelled(call.call_id, "too_late")
        assert (await call.result()).text == "done anyway"


async def test_an_outcome_wins_over_a_cancellation(one_relay: RelayServer, tmp_path: Path) -> None:
    async def finish(call: ScriptedCall) -> None:
        await call.accept()
        await call.start()
        await call.cancel_asked.wait()
        await call.reply("first")

    async with scripted_listener(one_relay.port, "bob", finish) as bob, caller(one_relay.url, tmp_path) as me:
        call = me.start("bob", "x", timeout=60)
        await bob.call()
        assert await call.cancel() == NotCancelled(call.call_id, "already_terminal")
        assert (await call.result()).text == "first"


async def test_what_is_undecided_after_the_time_is_said_to_be_requested(
    one_relay: RelayServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CANCEL_WAIT_MS == 10_000
    monkeypatch.setattr("ringline.caller.patience.CANCEL_WAIT_MS", 300)

    async def deaf(call: ScriptedCall) -> None:
        await call.accept()
        await call.start()
        await call.cancel_asked.wait()

    async with scripted_listener(one_relay.port, "bob", deaf) as bob, caller(one_relay.url, tmp_path) as me:
        call = me.start("bob", "x", timeout=60)
        offer = await bob.call()
        assert await call.cancel() == Requested(call.call_id)
        assert not call.done
        await offer.cancelled()
        with pytest.raises(RelayError) as caught:
            await call.result()
        assert caught.value.code == "canceled"


async def test_leaving_the_block_cancels(one_relay: RelayServer, tmp_path: Path) -> None:
    async with (
        scripted_listener(one_relay.port, "bob", stopping) as bob,
        caller(one_relay.url, tmp_path) as me,
    ):
        async with me.start("bob", "x", timeout=60) as call:
            await bob.call()
        assert call.done
        assert bob.calls[0].cancel_asked.is_set()


async def test_a_cancelled_task_cancels_its_call(one_relay: RelayServer, tmp_path: Path) -> None:
    async with (
        scripted_listener(one_relay.port, "bob", stopping) as bob,
        caller(one_relay.url, tmp_path) as me,
    ):
        task = asyncio.create_task(me.call("bob", "x", timeout=60))
        offer = await bob.call()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(30):
            await offer.cancel_asked.wait()


async def test_a_call_of_another_process_is_cancelled_by_its_id(
    one_relay: RelayServer, tmp_path: Path
) -> None:
    async with (
        scripted_listener(one_relay.port, "bob", stopping) as bob,
        caller(one_relay.url, tmp_path) as me,
    ):
        call = me.start("bob", "x", timeout=60)
        offer = await bob.call()
        async with caller(one_relay.url, tmp_path) as other:
            assert await other.cancel(offer.call_id) == Cancelled(offer.call_id)
            assert await other.cancel(offer.call_id) == NotCancelled(offer.call_id, "already_terminal")
            assert await other.cancel("no-such-call") == NotCancelled("no-such-call", "unknown")
        with pytest.raises(RelayError):
            await call.result()


async def test_a_call_of_an_earlier_process_is_not_said_to_be_cancelled_before_the_relay_was_told(
    one_relay: RelayServer, tmp_path: Path
) -> None:
    message_id = "c" * 32
    async with scripted_listener(one_relay.port, "bob", stopping) as bob:
        first = caller(one_relay.url, tmp_path)
        first.start("bob", "x", timeout=60, message_id=message_id)
        offer = await bob.call()
        await first.close()
        assert not offer.cancel_asked.is_set()
        async with caller(one_relay.url, tmp_path) as second:
            again = second.start("bob", "x", timeout=60, message_id=message_id)
            assert await again.cancel() == Cancelled(offer.call_id)
            assert offer.cancel_asked.is_set()
            with pytest.raises(RelayError):
                await again.result()


async def test_a_cancellation_at_the_moment_when_all_is_ready_sends_nothing(
    one_relay: RelayServer, tmp_path: Path
) -> None:
    async with scripted_listener(one_relay.port, "bob") as bob, caller(one_relay.url, tmp_path) as me:
        await me.call("bob", "first", timeout=60)
        call = me.start("bob", "x", timeout=60)
        async for event in call.events():
            if event.name == "sealed":
                break
        cancellation = await call.cancel()
        with pytest.raises(RelayError) as caught:
            await call.result()
        assert (cancellation, caught.value.code) == (Cancelled(None), "canceled")
        assert len(bob.calls) == 1
