"""A listener, a relay and a caller, all of them real."""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from ringline.caller import AsyncCaller, Cancelled, NotCancelled, Requested
from ringline.client import Account
from ringline.listener import Answer, Call, Command, Listener, Serving, TaskFailed
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import ConfigError, HttpProblem, PeerFailure, RelayError, TransportError
from ringline.protocol.limits import MESSAGE_BYTES, REPLY_BYTES
from ringline.relay.server import RelayServer
from ringline_testing.pids import alive
from ringline_testing.relay import running_relay

BOUND_S = 60.0


@dataclass
class World:
    """A relay, and whoever is at it, each with a home of his own."""

    relay: RelayServer
    folder: Path
    stack: AsyncExitStack
    notes: list[str] = field(default_factory=list[str])

    def listener(self, name: str = "bob", **members: Any) -> Listener:
        """Return a listener that does not serve yet."""
        members.setdefault("home", self.folder / name)
        return Listener(name, relay=self.relay.url, note=self.notes.append, **members)

    async def serve(self, listener: Listener) -> Serving:
        """Have it serve until the end of the test."""
        return await self.stack.enter_async_context(listener.serving())

    async def caller(self, name: str = "alice", **members: Any) -> AsyncCaller:
        """Return a caller that is greeted."""
        caller = AsyncCaller(name, relay=self.relay.url, home=self.folder / name, **members)
        return await self.stack.enter_async_context(caller)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A relay that is not bound by budgets."""
    async with AsyncExitStack() as stack:
        settings = {"turns": 0, "ring_bound_ms": 15_000}
        relay = await stack.enter_async_context(running_relay(settings=settings))
        yield World(relay, tmp_path, stack)


def say_in(call: Call) -> str:
    """Answer a call that was let in."""
    return "in"


def say_nothing() -> None:
    """Answer nothing."""


async def soon(true: Callable[[], bool]) -> None:
    """Wait until something is true that happens elsewhere."""
    async with asyncio.timeout(BOUND_S):
        while not true():  # noqa: ASYNC110 - it happens in another thread or process
            await asyncio.sleep(0.01)


async def within(result: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(result, BOUND_S)


class TestTasks:
    async def test_a_message_is_answered(self, world: World) -> None:
        listener = world.listener()
        seen: list[Call] = []

        @listener.answer
        def echo(call: Call) -> str:
            seen.append(call)
            return call.message

        serving = await world.serve(listener)
        alice = await world.caller()
        reply = await within(alice.call("bob", "hällo ☎"))
        assert (reply.text, reply.value, reply.task) == ("hällo ☎", None, "default")
        assert reply.signed_by.fingerprint == serving.fingerprint
        (call,) = seen
        account = await alice.account()
        assert (call.caller, call.fingerprint) == ("alice", account.fingerprint)
        assert (call.call_id, call.message_id) == (reply.call_id, reply.message_id)
        assert not call.durable
        assert "pinned the first key seen for alice" in "\n".join(world.notes)

    async def test_a_task_gets_its_arguments_checked(self, world: World) -> None:
        listener = world.listener()

        @listener.task
        async def add_up(numbers: list[int], call: Call, start: int = 100) -> dict[str, Any]:
            """Add numbers up."""
            return {"sum": sum(numbers, start), "for": call.caller}

        await world.serve(listener)
        alice = await world.caller()
        # The arguments say what is asked: a message is not needed beside them.
        reply = await within(alice.call("bob", task="add-up", args={"numbers": [1, 2]}))
        assert reply.value == {"sum": 103, "for": "alice"}
        assert reply.text == '{"sum": 103, "for": "alice"}'
        with pytest.raises(PeerFailure) as failure:
            await within(alice.call("bob", "please", task="add-up", args={"numbers": ["x"]}))
        # The word that says that nothing has run.
        assert failure.value.code == "task_unknown"
        assert "numbers" in (failure.value.detail or "")

    async def test_the_tasks_on_offer_are_told(self, world: World) -> None:
        listener = world.listener()

        @listener.answer
        def anything(call: Call) -> None:
            """Answer anything."""

        @listener.task(name="review")
        def function(diff: str, strict: bool = False) -> None:
            """Review a diff."""

        serving = await world.serve(listener)
        assert serving.tasks == ("default", "review")
        default, review = await within((await world.caller()).offered_tasks("bob"))
        assert (default.id, default.summary) == ("default", "Answer anything.")
        assert (review.id, review.summary) == ("review", "Review a diff.")
        assert review.args_schema["required"] == ["diff"]
        assert set(review.args_schema["properties"]) == {"diff", "strict"}

    async def test_an_unknown_task_is_refused_with_those_on_offer(self, world: World) -> None:
        listener = world.listener()
        listener.task(name="review")(say_nothing)
        await world.serve(listener)
        alice = await world.caller()
        for task in ("reveiw", None):
            with pytest.raises(PeerFailure) as failure:
                await within(alice.call("bob", "x", task=task))
            assert failure.value.code == "task_unknown"
            assert failure.value.offered == ("review",)

    async def test_only_a_text_that_was_meant_for_the_caller_leaves(self, world: World) -> None:
        listener = world.listener()

        @listener.task
        def on_purpose() -> None:
            raise TaskFailed("no such patch")

        @listener.task
        async def by_accident() -> None:
            raise KeyError("/var/lib/secret")

        @listener.task
        def ends_the_program() -> None:
            raise SystemExit(3)

        @listener.task
        async def gives_no_json() -> object:
            return object()

        @listener.task
        def gives_a_surrogate() -> str:
            return "\ud800"

        await world.serve(listener)
        alice = await world.caller()
        details: dict[str, str | None] = {}
        for task in listener.catalogue.ids:
            with pytest.raises(PeerFailure) as failure:
                await within(alice.call("bob", "x", task=task))
            assert failure.value.code == "agent_error"
            details[task] = failure.value.detail
        assert details["on-purpose"] == "no such patch"
        assert details["by-accident"] is None
        assert details["ends-the-program"] is None
        assert "no JSON" in (details["gives-no-json"] or "")
        assert "secret" not in str(details)
        assert any("/var/lib/secret" in note for note in world.notes)

    async def test_errors_are_exposed_only_when_asked_for(self, world: World) -> None:
        listener = world.listener(expose_errors=True)

        @listener.answer
        async def fail(call: Call) -> None:
            raise KeyError("what was missing")

        await world.serve(listener)
        with pytest.raises(PeerFailure) as failure:
            await within((await world.caller()).call("bob", "x"))
        assert failure.value.detail == "'what was missing'"

    async def test_text_and_value_together(self, world: World) -> None:
        listener = world.listener()

        @listener.answer
        def both(call: Call) -> Answer:
            return Answer("two lines", {"lines": 2})

        await world.serve(listener)
        reply = await within((await world.caller()).call("bob", "x"))
        assert (reply.text, reply.value) == ("two lines", {"lines": 2})

    async def test_the_largest_message_and_the_largest_reply_of_the_worst_characters(
        self, world: World
    ) -> None:
        listener = world.listener()

        @listener.answer
        def fourfold(call: Call) -> str:
            return "\x01" * (4 * len(call.message))

        await world.serve(listener)
        alice = await world.caller()
        reply = await within(alice.call("bob", "\x02" * MESSAGE_BYTES))
        assert reply.text == "\x01" * REPLY_BYTES

    async def test_one_byte_more_is_refused_by_the_listener(self, world: World) -> None:
        listener = world.listener()

        @listener.answer
        def too_much(call: Call) -> str:
            return "x" * (REPLY_BYTES + 1)

        await world.serve(listener)
        with pytest.raises(PeerFailure) as failure:
            await within((await world.caller()).call("bob", "x"))
        assert failure.value.code == "message_too_large"
        assert "256,001" in (failure.value.detail or "")

    async def test_a_program_answers(self, world: World) -> None:
        listener = world.listener()
        listener.answer_with(
            Command(argv=("sh", "-c", 'cat; echo " from $RINGLINE_FROM, turn $RINGLINE_TURN"'))
        )
        await world.serve(listener)
        alice = await world.caller()
        assert (await within(alice.call("bob", "hello"))).text == "hello from alice, turn 1\n"
        with pytest.raises(PeerFailure) as failure:
            await within(alice.call("bob", "hello", args={"a": 1}))
        assert "no arguments" in (failure.value.detail or "")

    async def test_a_program_that_fails_keeps_its_text(self, world: World) -> None:
        listener = world.listener()
        listener.answer_with(Command(argv=("sh", "-c", "cat; echo /var/lib/secret >&2; exit 3")))
        await world.serve(listener)
        with pytest.raises(PeerFailure) as failure:
            await within((await world.caller()).call("bob", "hello"))
        assert (failure.value.code, failure.value.detail) == ("agent_error", None)
        assert any("exit code 3: /var/lib/secret" in note for note in world.notes)


class TestConversations:
    async def test_turn_after_turn(self, world: World) -> None:
        listener = world.listener()
        seen: list[tuple[str, int]] = []

        @listener.answer
        def count(call: Call) -> str:
            assert call.conversation is not None
            seen.append((call.conversation.id, call.conversation.turn))
            return str(call.conversation.turn)

        await world.serve(listener)
        talk = (await world.caller()).conversation("bob")
        assert [(await within(talk.call("next"))).text for _ in range(10)] == [str(n) for n in range(1, 11)]
        assert len({context for context, _ in seen}) == 1
        with pytest.raises(ConfigError):
            await within(talk.call("one too many"))

    async def test_a_failed_turn_may_be_tried_again(self, world: World) -> None:
        listener = world.listener()

        @listener.answer
        def sometimes(call: Call) -> str:
            if call.message == "fail":
                raise TaskFailed("as you wish")
            return "ok"

        await world.serve(listener)
        talk = (await world.caller()).conversation("bob")
        await within(talk.call("one"))
        with pytest.raises(PeerFailure):
            await within(talk.call("fail"))
        assert (await within(talk.call("two"))).turn == 2

    async def test_a_conversation_goes_on_after_the_listener_was_restarted(self, world: World) -> None:
        def make() -> Listener:
            listener = world.listener()

            @listener.answer
            def turn(call: Call) -> str:
                return str(call.conversation and call.conversation.turn)

            return listener

        talk = (await world.caller()).conversation("bob")
        async with make().serving():
            await within(talk.call("one"))
        async with make().serving():
            assert (await within(talk.call("two"))).text == "2"


class TestCancel:
    async def test_an_async_handler_is_cancelled(self, world: World) -> None:
        listener = world.listener()
        began, ended = threading.Event(), threading.Event()

        @listener.answer
        async def sleep(call: Call) -> None:
            began.set()
            try:
                await asyncio.sleep(600)
            finally:
                ended.set()

        await world.serve(listener)
        call = (await world.caller()).start("bob", "x")
        await soon(began.is_set)
        assert isinstance(await within(call.cancel()), Cancelled)
        assert ended.is_set()
        with pytest.raises(RelayError) as error:
            await within(call.result())
        assert error.value.code == "canceled"

    async def test_a_plain_function_is_cancelled_when_it_has_returned(self, world: World) -> None:
        listener = world.listener()
        began, ended = threading.Event(), threading.Event()

        @listener.answer
        def poll(call: Call) -> str:
            began.set()
            while not call.wait_cancelled(0.02):
                pass
            ended.set()
            return "half of it"

        await world.serve(listener)
        call = (await world.caller()).start("bob", "x")
        await soon(began.is_set)
        assert isinstance(await within(call.cancel()), Cancelled)
        assert ended.is_set()

    async def test_the_processes_of_a_program_are_gone_when_it_is_confirmed(self, world: World) -> None:
        pids = world.folder / "pids"
        script = f"sleep 600 & echo $! >> {pids}; echo $$ >> {pids}; exec sleep 600"
        listener = world.listener()
        listener.answer_with(Command(argv=("sh", "-c", script)))
        await world.serve(listener)
        call = (await world.caller()).start("bob", "x")
        await soon(lambda: pids.exists() and pids.read_text().count("\n") == 2)
        assert isinstance(await within(call.cancel()), Cancelled)
        assert [pid for pid in pids.read_text().split() if alive(int(pid))] == []

    async def test_a_handler_that_does_not_stop_is_never_said_to_have(self, world: World) -> None:
        listener = world.listener()
        listener.service_options = replace(listener.service_options, patience_ms=300)
        began, go_on = threading.Event(), threading.Event()

        @listener.answer
        async def stubborn(call: Call) -> str:
            began.set()
            while not go_on.is_set():
                try:
                    await asyncio.sleep(0.02)
                except asyncio.CancelledError:
                    continue
            return "done all the same"

        await world.serve(listener)
        call = (await world.caller()).start("bob", "x")
        await soon(began.is_set)
        answer = await within(call.cancel())
        assert isinstance(answer, NotCancelled)
        assert answer.reason == "too_late"
        go_on.set()
        assert (await within(call.result())).text == "done all the same"

    async def test_a_waiting_call_is_removed(self, world: World) -> None:
        listener = world.listener(capacity=2)
        running: list[str] = []
        release = threading.Event()

        @listener.answer
        def wait(call: Call) -> str:
            running.append(call.message)
            release.wait(BOUND_S)
            return call.message

        await world.serve(listener)
        # Two callers: one of them holds at most half of the places.
        first = (await world.caller("alice")).start("bob", "first")
        second = (await world.caller("carol")).start("bob", "second")
        await soon(lambda: len(running) == 2)
        release.set()
        assert {(await within(one.result())).text for one in (first, second)} == {"first", "second"}

    async def test_a_cancel_beside_the_end_has_one_end(self, world: World) -> None:
        listener = world.listener()
        ran: list[str] = []

        @listener.answer
        async def short(call: Call) -> str:
            await asyncio.sleep(float(call.message))
            ran.append(call.call_id)
            return "done"

        await world.serve(listener)
        alice = await world.caller()
        ends: set[str] = set()
        for number in range(12):
            call = alice.start("bob", str(0.004 * (number % 4)))
            await asyncio.sleep(0.012 * (number % 6))
            cancellation = await within(call.cancel())
            try:
                await within(call.result())
                end = "reply"
            except RelayError as error:
                end = error.code
            ends.add(end)
            assert (end == "canceled") == isinstance(cancellation, Cancelled), (cancellation, end)
            assert not isinstance(cancellation, Requested)
        assert ends <= {"reply", "canceled"}
        assert (await within(alice.call("bob", "0"))).text == "done"


class TestSlowDisk:
    async def test_a_journal_on_a_slow_disk_holds_up_its_calls_and_not_the_connection(
        self, tmp_path: Path
    ) -> None:
        async with AsyncExitStack() as stack:
            # A silence of less than all the commits together would end the connection.
            settings = {"turns": 0, "ping_interval_ms": 100, "ping_timeout_ms": 1_000}
            relay = await stack.enter_async_context(running_relay(settings=settings))
            world = World(relay, tmp_path, stack)
            listener = world.listener(capacity=16)
            listener.answer(say_in)
            await world.serve(listener)
            commits: list[float] = []

            def slow(statement: str) -> None:
                if statement == "COMMIT":
                    commits.append(0.02)
                    time.sleep(0.02)

            assert listener._wire is not None
            loop, service = listener._wire
            loop.call_soon_threadsafe(service._journal._file.connection.set_trace_callback, slow)
            alice = await world.caller()
            for _ in range(3):
                replies = await within(asyncio.gather(*(alice.call("bob", str(n)) for n in range(8))))
                assert [reply.text for reply in replies] == ["in"] * 8
            assert sum(commits) > 1.1
            assert not [note for note in world.notes if "no connection" in note]

    async def test_nobody_else_can_hold_the_journals_write_lock(self, world: World) -> None:
        listener = world.listener()
        listener.answer(say_in)
        await world.serve(listener)
        (path,) = world.folder.rglob("journal.db")
        other = sqlite3.connect(path, timeout=0, isolation_level=None)
        with contextlib.closing(other), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        assert (await within((await world.caller()).call("bob", "x"))).text == "in"


class TestBlocking:
    """A blocking handler starves neither pings nor cancels."""

    async def test_a_blocked_thread_holds_up_nobody(self, world: World) -> None:
        listener = world.listener()
        release = threading.Event()

        @listener.answer
        def block(call: Call) -> str:
            if call.message == "block":
                release.wait(BOUND_S)
            return call.message

        await world.serve(listener)
        alice = await world.caller()
        blocked = alice.start("bob", "block")
        assert (await within(alice.call("bob", "free"))).text == "free"
        release.set()
        assert (await within(blocked.result())).text == "block"

    async def test_an_async_handler_that_blocks_its_loop_does_not_block_the_connection(
        self, tmp_path: Path
    ) -> None:
        # Longer than the relay's patience with a silent connection.
        settings = {"ping_interval_ms": 100, "ping_timeout_ms": 1_500, "grace_ms": 0}
        release = threading.Event()
        async with running_relay(settings=settings) as relay:
            listener = Listener("bob", relay=relay.url, home=tmp_path / "bob")

            @listener.answer
            async def block(call: Call) -> str:
                time.sleep(2.5)  # noqa: ASYNC251 - that is the mistake
                release.set()
                return "awake"

            # Handlers have a loop and a thread of their own here, since the test's loop is the relay's.
            thread = threading.Thread(target=lambda: asyncio.run(listener.serve()))
            thread.start()
            try:
                async with AsyncCaller("alice", relay=relay.url, home=tmp_path / "alice") as alice:
                    call = alice.start("bob", "x")
                    assert (await within(call.result())).text == "awake"
            finally:
                listener.stop()
                await asyncio.to_thread(thread.join, BOUND_S)
        assert release.is_set()


class TestAccess:
    async def test_only_those_who_are_allowed_are_let_in(self, world: World) -> None:
        listener = world.listener(allow=["alice"])
        listener.answer(say_in)
        serving = await world.serve(listener)
        assert serving.admits == ("alice",)
        assert (await within((await world.caller("alice")).call("bob", "x"))).text == "in"
        with pytest.raises(RelayError) as error:
            await within((await world.caller("mallory")).call("bob", "x"))
        assert error.value.code == "protocol_error"
        assert any("--allow mallory" in note for note in world.notes)

    async def test_a_known_peer_who_is_not_let_in_is_told_under_a_seal(self, world: World) -> None:
        listener = world.listener()
        listener.answer(say_in)
        async with listener.serving():
            await within((await world.caller("mallory")).call("bob", "x"))
        listener = world.listener(block=["mallory"])
        listener.answer(say_in)
        await world.serve(listener)
        with pytest.raises(PeerFailure) as failure:
            await within((await world.caller("mallory")).call("bob", "x"))
        assert failure.value.code == "blocked"

    async def test_off_the_development_realm_contacts_are_what_counts(self, tmp_path: Path) -> None:
        async with running_relay(realm="relay.example") as relay:
            common: dict[str, Any] = {"relay": relay.url, "realm": "relay.example", "plain": True}
            notes: list[str] = []
            async with AsyncExitStack() as stack:
                stranger = Listener("carol", home=tmp_path / "carol", **common)
                stranger.answer(say_in)
                carol = await stack.enter_async_context(stranger.serving())
                assert carol.admits == ()
                alice = AsyncCaller("alice", home=tmp_path / "alice", contacts=[carol.contact], **common)
                await stack.enter_async_context(alice)
                # The relay lets nobody through to her, not even for her keys.
                with pytest.raises(HttpProblem) as error:
                    await within(alice.call("carol", "x"))
                assert error.value.code == "not_found"
                account = await alice.account()
                contact = f"ringline://alice@relay.example/?at={relay.url}#k={_key(account.ipk)}"
                friend = Listener("bob", home=tmp_path / "bob", allow=[contact], note=notes.append, **common)
                friend.answer(say_in)
                bob = await stack.enter_async_context(friend.serving())
                again = AsyncCaller("alice", home=tmp_path / "alice", contacts=[bob.contact], **common)
                await stack.enter_async_context(again)
                assert (await within(again.call("bob", "x"))).text == "in"
            assert "told the relay to let through: alice" in notes

    async def test_a_handle_without_a_known_key_is_not_let_in_there(self, tmp_path: Path) -> None:
        async with running_relay(realm="relay.example") as relay:
            common: dict[str, Any] = {"relay": relay.url, "realm": "relay.example", "plain": True}
            notes: list[str] = []
            listener = Listener("bob", home=tmp_path / "bob", allow=["alice"], note=notes.append, **common)
            listener.answer(say_in)
            async with (
                listener.serving() as bob,
                AsyncCaller("alice", home=tmp_path / "alice", contacts=[bob.contact], **common) as alice,
            ):
                with pytest.raises(RelayError) as error:
                    await within(alice.call("bob", "x"))
                assert error.value.code == "protocol_error"
            assert any("no key is known for alice" in note for note in notes)


class TestWithoutJournal:
    async def test_nothing_is_taken_in_the_first_two_minutes(self, world: World) -> None:
        listener = world.listener(journal=False)
        listener.answer(say_in)
        await world.serve(listener)
        with pytest.raises(PeerFailure) as failure:
            await within((await world.caller()).call("bob", "x"))
        assert failure.value.code == "busy"
        assert "two minutes" in (failure.value.detail or "")
        assert not list(world.folder.rglob("journal.db"))


class TestSetUp:
    async def test_a_second_listener_of_the_same_identity_is_told_why(self, world: World) -> None:
        first, second = world.listener(), world.listener()
        for listener in (first, second):
            listener.answer(say_in)
        await world.serve(first)
        with pytest.raises(ConfigError) as error:
            await within(second.serve())
        assert "another process is listening with this identity" in str(error.value)
        assert (await within((await world.caller()).call("bob", "x"))).text == "in"

    async def test_a_program_without_a_note_finds_in_its_log_that_calls_can_come(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level("INFO", logger="ringline.listener"):
            await world.serve(world.listener())
        assert f"listening as bob at {world.relay.url}" in caplog.messages

    async def test_serving_twice_is_a_mistake(self, world: World) -> None:
        listener = world.listener()
        await world.serve(listener)
        with pytest.raises(ConfigError):
            await listener.serve()

    async def test_a_damaged_journal_stops_it_before_it_is_known_to_the_relay(self, world: World) -> None:
        listener = world.listener()
        async with listener.serving():
            pass
        (path,) = world.folder.rglob("journal.db")
        path.write_bytes(b"not a database" * 1_000)
        with pytest.raises(ConfigError) as error:
            await within(listener.serve())
        assert "damaged" in str(error.value)
        assert str(path) in (error.value.next_step or "")

    async def test_an_unreachable_relay_is_an_error_at_the_start(self, tmp_path: Path) -> None:
        async with running_relay() as relay:
            url = relay.url
        with pytest.raises(TransportError):
            await within(Listener("bob", relay=url, home=tmp_path).serve())

    async def test_a_taken_handle_is_an_error_at_the_start(self, world: World) -> None:
        await world.serve(world.listener("bob"))
        with pytest.raises(HttpProblem) as error:
            await within(world.listener("bob", home=world.folder / "other").serve())
        assert error.value.code == "conflict"

    @pytest.mark.parametrize(
        "members",
        [
            {"capacity": 0},
            {"capacity": 1_001},
            {"timeout": 0},
            {"timeout": 350.1},
            {"allow": ["Not A Handle"]},
        ],
    )
    def test_values_out_of_bounds_are_refused(self, tmp_path: Path, members: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            Listener("bob", home=tmp_path, **members)

    async def test_cancelling_serve_stops_at_once(self, world: World) -> None:
        listener = world.listener()
        began = threading.Event()

        @listener.answer
        async def sleep(call: Call) -> None:
            began.set()
            await asyncio.sleep(600)

        ready = threading.Event()

        def tell(serving: Serving) -> None:
            ready.set()

        listener._on_ready = tell
        task = asyncio.ensure_future(listener.serve())
        await soon(ready.is_set)
        call = (await world.caller()).start("bob", "x")
        await soon(began.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await within(task)
        with pytest.raises(PeerFailure) as failure:
            await within(call.result())
        assert failure.value.code == "agent_error"

    async def test_a_fault_does_not_end_the_renewal_of_keys(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[int] = []

        def due(account: Account, now_ms: int) -> bool:
            asked.append(now_ms)
            if len(asked) == 1:
                raise RuntimeError("what was secret")
            return False

        monkeypatch.setattr("ringline.listener.service._KEYS_EVERY_S", 0.02)
        monkeypatch.setattr(Account, "renewal_due", due)
        listener = world.listener()
        listener.answer(say_in)
        await world.serve(listener)
        await soon(lambda: len(asked) > 1)
        told = [note for note in world.notes if "could not be renewed" in note]
        assert told == ["the keys could not be renewed: RuntimeError"]


def _key(ipk: bytes) -> str:
    return b64encode(ipk)
