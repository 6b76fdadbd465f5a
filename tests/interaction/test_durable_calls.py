"""Durable calls between a real caller, relay and listener, and the ways in which one of them is away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from ringline.caller import AsyncCaller, CallCanceled, Caller, CallExpired, Cancelled, StillRunning
from ringline.client import RelayAddress, RelayClock, RelayHttp
from ringline.listener import Call, Listener
from ringline.protocol.errors import ConfigError, PeerFailure, RelayError, TransportError
from ringline.protocol.shapes import Policy
from ringline.relay.server import RelayServer
from ringline_testing.middleman import middleman
from ringline_testing.ports import lasting_port
from ringline_testing.relay import running_relay
from ringline_testing.signed import Answer

BOUND_S = 60.0


class World:
    """A relay with a database, and whoever is at it, each with a home of his own."""

    def __init__(self, relay: RelayServer, folder: Path) -> None:
        self.relay = relay
        self.folder = folder
        self.runs: list[str] = []
        self.notes: list[str] = []

    def listener(self, *, offline: bool = True, **members: Any) -> Listener:
        """Return bob's listener, which gives messages back and notes that it ran."""
        listener = Listener(
            "bob",
            relay=self.relay.url,
            home=self.folder / "bob",
            note=self.notes.append,
            offline=offline,
            **members,
        )

        def echo(call: Call) -> str:
            """Give it back."""
            self.runs.append(call.message)
            if call.message == "fail":
                raise RuntimeError
            return call.message

        listener.answer(echo)
        return listener

    def caller(self, name: str = "alice") -> AsyncCaller:
        """Return a caller over the home that all of them share, as one process after another does."""
        return AsyncCaller(name, relay=self.relay.url, home=self.folder / name, note=self.notes.append)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(running_relay(db=tmp_path / "relay.db"))
        yield World(relay, tmp_path)


async def within(result: Any) -> Any:
    return await asyncio.wait_for(result, BOUND_S)


async def test_a_call_waits_for_a_listener_that_is_away_and_another_process_has_the_reply(
    world: World,
) -> None:
    async with world.listener().serving():
        pass
    async with world.caller() as alice:
        receipt = await within(alice.submit("bob", "hello"))
        with pytest.raises(StillRunning, match="waits for bob"):
            await within(alice.result(receipt))
    assert world.runs == []
    async with world.listener(offline=False).serving(), world.caller() as later:
        reply = await within(later.result(receipt, wait=50))
        assert (reply.text, reply.signed_by.handle) == ("hello", "bob")
        record = await later.record(receipt)
        assert record is not None
        assert (record.state, record.outcome) == ("completed", None)
    assert world.runs == ["hello"]
    # The relay was told, so that it may forget; the reply is given again without it.
    async with world.caller() as alice:
        assert (await within(alice.result(receipt))).text == "hello"
        (kept,) = await alice.calls()
        assert (kept.state, kept.signed, kept.acknowledged, kept.mode) == (
            "completed",
            True,
            True,
            "durable",
        )


async def test_a_signed_failure_is_the_peers_word(world: World) -> None:
    async with world.listener().serving(), world.caller() as alice:
        receipt = await within(alice.submit("bob", "fail"))
        for _ in range(2):
            with pytest.raises(PeerFailure) as failure:
                await within(alice.result(receipt, wait=50))
            assert failure.value.code == "agent_error"


async def test_an_answer_that_cannot_be_checked_stays_with_the_relay_and_its_receipt_good(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringline.caller.post._SIGNER_PAUSE_S", 0.01)
    async with middleman(world.relay.port) as middle, world.listener().serving():
        caller = AsyncCaller("alice", relay=middle.url, home=world.folder / "alice", note=world.notes.append)
        async with caller as me:
            receipt = await within(me.submit("bob", "x"))
            # Without a pin the signer's card has to be asked for; that route is away.
            (await me._ready()).peers._contacts.path.unlink()

            def refuse(method: str, target: str, answer: Answer) -> Answer:
                return Answer(503, (), b"") if "?card=" in target else answer

            middle.on_answer = refuse
            with pytest.raises(TransportError, match="could not be checked") as caught:
                await within(me.result(receipt, wait=50))
            assert receipt in (caught.value.next_step or "")
            assert "not lost" in (caught.value.still_true or "")
            assert not [target for _, target in middle.requests if target.endswith("/ack")]
            kept = await me.kept(receipt)
            assert (kept.signed, kept.acknowledged, kept.call_id) == (False, False, caught.value.call_id)
            middle.on_answer = lambda method, target, answer: answer
            assert (await within(me.result(receipt, wait=50))).text == "x"
            assert (await me.kept(receipt)).acknowledged
    assert world.runs == ["x"]


async def test_who_takes_no_durable_calls_is_offline(world: World) -> None:
    async with world.listener(offline=False).serving(), world.caller() as alice:
        with pytest.raises(RelayError, match="takes no calls while away") as error:
            await within(alice.submit("bob", "hello"))
        assert error.value.code == "offline"


async def test_a_call_that_waits_is_cancelled_and_never_runs(world: World) -> None:
    async with world.listener().serving():
        pass
    async with world.caller() as alice:
        receipt = await within(alice.submit("bob", "hello"))
        answer = await within(alice.cancel(receipt))
        assert isinstance(answer, Cancelled)
        with pytest.raises(CallCanceled) as error:
            await within(alice.result(receipt))
        assert error.value.exit_code == 15
    async with world.listener().serving():
        pass
    assert world.runs == []


async def test_the_same_id_is_one_call_and_another_text_under_it_is_refused(world: World) -> None:
    name = "7" * 32
    async with world.listener().serving(), world.caller() as alice:
        receipt = await within(alice.submit("bob", "once", message_id=name))
        assert receipt == f"rcpt_bob_{name}"
        assert await within(alice.submit("bob", "once", message_id=name)) == receipt
        with pytest.raises(ConfigError, match="used before for another message"):
            await within(alice.submit("bob", "twice", message_id=name))
        assert (await within(alice.result(receipt, wait=50))).text == "once"
        assert await within(alice.submit("bob", "once", message_id=name)) == receipt
    assert world.runs == ["once"]


async def test_turning_the_mailbox_on_keeps_the_rest_of_the_policy(world: World) -> None:
    async with world.caller("bob") as bob:
        http = RelayHttp(RelayAddress.parse(world.relay.url), await bob.account(), RelayClock())
        await http.set_policy(Policy(offline=False, accept="listed", allow=["alice"], block=["mallory"]))
        async with world.listener().serving():
            pass
        told = [note for note in world.notes if "keep durable calls" in note]
        async with world.listener().serving():
            pass
        assert await http.policy() == Policy(
            offline=True, accept="listed", allow=["alice"], block=["mallory"]
        )
    assert len(told) == 1


async def test_begun_work_outlives_the_relay_and_its_reply_is_told_to_the_next(tmp_path: Path) -> None:
    began, go = asyncio.Event(), asyncio.Event()
    runs = 0

    async def work(call: Call) -> str:
        """Take long enough for the relay to go."""
        nonlocal runs
        runs += 1
        began.set()
        await go.wait()
        return call.message

    async with AsyncExitStack() as stack:
        first = AsyncExitStack()
        relay = await first.enter_async_context(running_relay(db=tmp_path / "relay.db", port=lasting_port()))
        listener = Listener("bob", relay=relay.url, home=tmp_path / "bob", offline=True)
        listener.answer(work)
        await stack.enter_async_context(listener.serving())
        alice = await stack.enter_async_context(
            AsyncCaller("alice", relay=relay.url, home=tmp_path / "alice", note=lambda text: None)
        )
        receipt = await within(alice.submit("bob", "long"))
        await within(began.wait())
        waiting = asyncio.ensure_future(alice.result(receipt, wait=50))
        await first.aclose()
        go.set()
        await stack.enter_async_context(running_relay(db=tmp_path / "relay.db", port=relay.port))
        assert (await within(waiting)).text == "long"
    assert runs == 1


async def test_fifty_at_once_under_one_id_run_once(world: World) -> None:
    async with world.caller() as alice, world.listener().serving():
        await within(alice.submit("bob", "same", message_id="5" * 32))
        tries = [alice.submit("bob", "same", message_id="5" * 32) for _ in range(50)]
        assert set(await within(asyncio.gather(*tries))) == {f"rcpt_bob_{'5' * 32}"}
        results = [alice.result(f"rcpt_bob_{'5' * 32}", wait=50) for _ in range(5)]
        assert {reply.text for reply in await within(asyncio.gather(*results))} == {"same"}
    assert world.runs == ["same"]


async def test_begun_work_is_cancelled_when_it_is_seen_to_stop(world: World) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    async def hang(call: Call) -> str:
        """Run until it is told to stop."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return call.message

    listener = Listener("carol", relay=world.relay.url, home=world.folder / "carol", offline=True)
    listener.answer(hang)
    async with listener.serving(), world.caller() as alice:
        receipt = await within(alice.submit("carol", "x"))
        await within(began.wait())
        assert isinstance(await within(alice.cancel(receipt)), Cancelled)
        assert stopped.is_set()
        with pytest.raises(CallCanceled):
            await within(alice.result(receipt))


async def test_a_call_that_nobody_begins_in_time_expires(world: World) -> None:
    async with world.listener().serving():
        pass
    async with world.caller() as alice:
        receipt = await within(alice.submit("bob", "late", expires=2.5))
        with pytest.raises(CallExpired) as error:
            await within(alice.result(receipt, wait=50))
        assert error.value.exit_code == 16
        (kept,) = await alice.calls()
        assert (kept.state, kept.signed) == ("expired", False)
    async with world.listener().serving():
        pass
    assert world.runs == []


async def test_the_programs_without_a_loop_have_the_same(world: World) -> None:
    def use() -> tuple[str, str]:
        with Caller("alice", relay=world.relay.url, home=world.folder / "alice") as alice:
            receipt = alice.submit("bob", "plain")
            return alice.result(receipt, wait=50).text, alice.calls()[0].receipt

    async with world.listener().serving():
        text, receipt = await within(asyncio.to_thread(use))
    assert (text, receipt[:9]) == ("plain", "rcpt_bob_")


async def test_a_listener_without_a_journal_is_given_no_durable_call(world: World) -> None:
    with pytest.raises(ConfigError, match="need a journal"):
        world.listener(journal=False)
    async with world.listener().serving():
        pass
    async with world.listener(offline=False, journal=False).serving(), world.caller() as alice:
        receipt = await within(alice.submit("bob", "kept"))
        with pytest.raises(StillRunning, match="waits for bob"):
            await within(alice.result(receipt, wait=1))
    async with world.listener().serving(), world.caller() as alice:
        assert (await within(alice.result(receipt, wait=50))).text == "kept"
    assert world.runs == ["kept"]


async def test_the_receipt_of_another_identity_is_none(world: World) -> None:
    async with world.caller("mallory") as mallory:
        for receipt in (f"rcpt_bob_{'5' * 32}", "a-call-id"):
            with pytest.raises(ConfigError, match="no such call"):
                await within(mallory.result(receipt))
