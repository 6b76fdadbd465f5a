"""Calls that go well, and calls that are refused, through a real relay over both edges."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ringline.caller import AsyncCaller, Event
from ringline.client import Account
from ringline.protocol.bodies import Offer, Outcome, Reply
from ringline.protocol.contact import Contact
from ringline.protocol.errors import (
    BodyError,
    CallTimeout,
    ConfigError,
    HttpProblem,
    MessageTooLarge,
    PeerFailure,
    RelayError,
    TransportError,
    TrustError,
)
from ringline.protocol.fingerprint import fingerprint
from ringline.protocol.limits import MESSAGE_BYTES, REPLY_BYTES
from ringline.relay.server import RelayServer
from ringline_testing.relay import running_relay
from ringline_testing.scripted import ScriptedCall, echo, scripted_listener


@pytest.fixture(params=["picows", "websockets"])
async def relay(request: pytest.FixtureRequest) -> AsyncIterator[RelayServer]:
    async with running_relay(edge=request.param) as running:
        yield running


@pytest.fixture
async def one_relay() -> AsyncIterator[RelayServer]:
    """For what does not depend on the edge."""
    async with running_relay() as running:
        yield running


def caller(relay: RelayServer, home: Path, handle: str = "alice", **options: Any) -> AsyncCaller:
    return AsyncCaller(handle, relay=relay.url, home=home, note=lambda text: None, **options)


@pytest.mark.parametrize("suite", [1, 2])
async def test_a_reply_comes_back_signed(relay: RelayServer, tmp_path: Path, suite: int) -> None:
    async with scripted_listener(relay.port, "bob", suites=(suite,)) as bob, caller(relay, tmp_path) as me:
        reply = await me.call("bob", "hello", timeout=60)
        assert reply.text == "hello"
        assert reply.signed_by.handle == "bob"
        assert reply.signed_by.ipk == bob.owner.identity.public
        assert reply.signed_by.fingerprint == fingerprint(bob.owner.identity.public)
        assert reply.receipt.check().handle == "bob"
        assert bob.calls[0].frame.envelope.suite == suite
        assert bob.calls[0].frame.message_id == reply.message_id


async def test_the_largest_message_and_the_largest_reply_pass(relay: RelayServer, tmp_path: Path) -> None:
    # Control characters take the most JSON: six characters for one byte.
    message, text = "\x01" * MESSAGE_BYTES, "\x02" * REPLY_BYTES

    async def answer(call: ScriptedCall) -> None:
        assert call.request.message == message
        await call.reply(text)

    async with scripted_listener(relay.port, "bob", answer, suites=(2,)), caller(relay, tmp_path) as me:
        reply = await me.call("bob", message, timeout=60)
        assert reply.text == text


async def test_one_byte_more_is_refused_before_anything_is_sealed(
    one_relay: RelayServer, tmp_path: Path
) -> None:
    async with scripted_listener(one_relay.port, "bob") as bob, caller(one_relay, tmp_path) as me:
        with pytest.raises(MessageTooLarge, match=r"64,001 bytes.*Nothing was sealed"):
            await me.call("bob", "é" * 32_000 + "x", timeout=60)
        assert bob.calls == []


async def test_arguments_that_do_not_fit_are_refused_before_anything_is_sent(
    one_relay: RelayServer, tmp_path: Path
) -> None:
    async with scripted_listener(one_relay.port, "bob") as bob, caller(one_relay, tmp_path) as me:
        with pytest.raises(MessageTooLarge):
            await me.call("bob", "x", args={"blob": "y" * 400_000}, timeout=60)
        unaskable: list[tuple[str, dict[str, Any]]] = [
            ("", {}),
            ("\ud800", {}),
            ("x", {"task": "No Task"}),
            ("x", {"args": {"a": {1}}}),
        ]
        for message, options in unaskable:
            with pytest.raises(ConfigError, match="Nothing was sealed"):
                await me.call("bob", message, timeout=60, **options)
        wrong: list[dict[str, Any]] = [{"timeout": 0}, {"timeout": float("nan")}, {"message_id": "1"}]
        for options in wrong:
            with pytest.raises(ConfigError):
                await me.call("bob", "x", **options)
        with pytest.raises(ConfigError):
            await me.call("Bob", "x")
        assert bob.calls == []


async def test_task_arguments_and_value_travel_under_the_seal(one_relay: RelayServer, tmp_path: Path) -> None:
    async def answer(call: ScriptedCall) -> None:
        assert call.request.task == "review"
        assert call.request.args == {"strict": True, "of": [1, 2.5, None, "ü"]}
        await call.reply("done", value={"findings": []}, task="review")

    async with scripted_listener(one_relay.port, "bob", answer), caller(one_relay, tmp_path) as me:
        reply = await me.call(
            "bob", "x", task="review", args={"strict": True, "of": [1, 2.5, None, "ü"]}, timeout=60
        )
        assert (reply.text, reply.value, reply.task) == ("done", {"findings": []}, "review")


async def test_offered_tasks_are_asked_for_under_the_seal(one_relay: RelayServer, tmp_path: Path) -> None:
    async def answer(call: ScriptedCall) -> None:
        assert call.request.query == "tasks"
        await call.accept()
        await call.start()
        await call.finish(
            Outcome(
                reason="completed",
                reply=Reply(text=""),
                offered=(Offer(id="review", summary="Reviews."), Offer(id="default")),
            )
        )

    async with scripted_listener(one_relay.port, "bob", answer), caller(one_relay, tmp_path) as me:
        offered = await me.offered_tasks("bob", timeout=60)
        assert [offer.id for offer in offered] == ["review", "default"]


async def test_a_failure_of_the_peer_is_his_signed_word(one_relay: RelayServer, tmp_path: Path) -> None:
    async def refuse(call: ScriptedCall) -> None:
        await call.fail("task_unknown", detail="no such task", offered=("review",))

    async with scripted_listener(one_relay.port, "bob", refuse), caller(one_relay, tmp_path) as me:
        call = me.start("bob", "x", task="reveiw", timeout=60)
        with pytest.raises(PeerFailure) as caught:
            await call.result()
        assert (caught.value.code, caught.value.detail) == ("task_unknown", "no such task")
        assert caught.value.offered == ("review",)
        assert caught.value.call_id == call.call_id
        last = [event async for event in call.events()][-1]
        assert (last.name, last.source, last.authenticated) == ("failed", "peer", True)


async def test_work_whose_outcome_is_lost_says_so_with_its_own_exit_code(
    one_relay: RelayServer, tmp_path: Path
) -> None:
    from ringline.protocol.bodies import Failure

    async def lose(call: ScriptedCall) -> None:
        await call.finish(Outcome(reason="indeterminate_execution", failure=Failure(code="agent_error")))

    async with scripted_listener(one_relay.port, "bob", lose), caller(one_relay, tmp_path) as me:
        with pytest.raises(PeerFailure) as caught:
            await me.call("bob", "x", timeout=60)
        assert (caught.value.reason, caught.value.exit_code) == ("indeterminate_execution", 18)


@pytest.mark.parametrize(
    "body",
    [
        b'{"reply":{"text":"' + b"x" * 256_001 + b'"},"reason":"completed"}',
        b'{"reply":{"text":"x"},"reason":"completed","more":1}',
        b"\xff",
    ],
    ids=["reply too long", "unknown member", "no text"],
)
async def test_a_signed_answer_that_breaks_the_protocol_is_no_reason_to_call_again(
    one_relay: RelayServer, tmp_path: Path, body: bytes
) -> None:
    async def answer(call: ScriptedCall) -> None:
        await call.accept()
        await call.start()
        await call.listener.send(call.sealed_bytes(body, "completed"))

    async with scripted_listener(one_relay.port, "bob", answer), caller(one_relay, tmp_path) as me:
        call = me.start("bob", "x", timeout=60)
        with pytest.raises(BodyError, match="The call may have run") as caught:
            await call.result()
        assert "Nothing was" not in str(caught.value)
        assert (caught.value.call_id, caught.value.message_id) == (call.call_id, call.message_id)
        assert "twice" in (caught.value.next_step or "")


async def test_events_tell_who_says_it(relay: RelayServer, tmp_path: Path) -> None:
    async with scripted_listener(relay.port, "bob"), caller(relay, tmp_path) as me:
        async with me.start("bob", "hello", timeout=60) as call:
            seen: list[Event] = [event async for event in call.events()]
        told = [(event.name, event.source, event.authenticated) for event in seen]
        assert told == [
            ("sealed", "here", False),
            ("sent", "here", False),
            ("ringing", "relay", False),
            ("answered", "relay", False),
            ("working", "relay", False),
            ("completed", "peer", True),
        ]
        assert (await call.result()).text == "hello"
        assert {event.call_id for event in seen[2:]} == {call.call_id}


async def test_a_handle_that_does_not_exist_is_refused_by_the_relay(
    one_relay: RelayServer, tmp_path: Path
) -> None:
    async with caller(one_relay, tmp_path) as me:
        with pytest.raises(HttpProblem) as caught:
            await me.call("nobody", "x", timeout=60)
        assert (caught.value.code, caught.value.exit_code) == ("not_found", 10)


async def test_an_offline_handle_is_tried_once_more_and_then_said_to_be_offline(
    one_relay: RelayServer, tmp_path: Path
) -> None:
    async with scripted_listener(one_relay.port, "bob", connected=False), caller(one_relay, tmp_path) as me:
        call = me.start("bob", "x", timeout=60)
        with pytest.raises(RelayError, match="Nothing was delivered") as caught:
            await call.result()
        assert (caught.value.code, caught.value.call_id, caught.value.exit_code) == ("offline", None, 11)
        names = [event.name async for event in call.events()]
        assert names == ["sealed", "sent", "offline", "sent_again", "ended"]


async def test_a_handle_that_comes_online_meanwhile_gets_the_call(
    one_relay: RelayServer, tmp_path: Path
) -> None:
    async with (
        scripted_listener(one_relay.port, "bob", connected=False) as bob,
        caller(one_relay, tmp_path) as me,
    ):
        call = me.start("bob", "x", timeout=60)
        async for event in call.events():
            if event.name == "offline":
                break
        async with bob.listening():
            assert (await call.result()).text == "x"


async def test_the_time_of_the_caller_is_over(one_relay: RelayServer, tmp_path: Path) -> None:
    async def never(call: ScriptedCall) -> None:
        await call.accept()
        await call.start()

    async with scripted_listener(one_relay.port, "bob", never) as bob, caller(one_relay, tmp_path) as me:
        call = me.start("bob", "x", timeout=2)
        with pytest.raises(CallTimeout, match="may have run") as caught:
            await call.result()
        assert caught.value.exit_code == 14
        assert caught.value.message_id == call.message_id
        # A cancellation is asked for, without being waited for.
        async with asyncio.timeout(30):
            await (await bob.call()).cancel_asked.wait()


async def test_the_time_is_over_before_anything_was_sent(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        me = AsyncCaller("alice", relay=f"http://127.0.0.1:{port}", home=tmp_path)
        with pytest.raises(CallTimeout, match="Nothing was sent"):
            await me.call("bob", "x", timeout=0.3)
        await me.close()


async def test_an_unknown_peer_is_not_trusted_unless_told(one_relay: RelayServer, tmp_path: Path) -> None:
    async with scripted_listener(one_relay.port, "bob") as bob:
        async with caller(one_relay, tmp_path, trust_new=False) as me:
            with pytest.raises(TrustError, match="Nothing was sealed") as caught:
                await me.call("bob", "x", timeout=60)
            assert (caught.value.code, caught.value.exit_code) == ("untrusted_key", 21)
        contact = Contact(handle="bob", realm="localhost", ipk=bob.owner.identity.public, at=one_relay.url)
        async with caller(one_relay, tmp_path, trust_new=False, contacts=[contact.format()]) as me:
            assert (await me.call("bob", "x", timeout=60)).text == "x"
        # The pin stays.
        async with caller(one_relay, tmp_path, trust_new=False) as me:
            assert (await me.call("bob", "y", timeout=60)).text == "y"


async def test_a_contact_string_with_another_key_stops_the_call(
    one_relay: RelayServer, tmp_path: Path
) -> None:
    async with (
        scripted_listener(one_relay.port, "bob") as bob,
        scripted_listener(one_relay.port, "eve") as eve,
    ):
        contact = Contact(handle="bob", realm="localhost", ipk=eve.owner.identity.public, at=one_relay.url)
        async with caller(one_relay, tmp_path, contacts=[contact]) as me:
            with pytest.raises(TrustError) as caught:
                await me.call("bob", "x", timeout=60)
            assert caught.value.code == "key_changed"
        assert bob.calls == []


async def test_a_handle_calls_itself(one_relay: RelayServer, tmp_path: Path) -> None:
    async with caller(one_relay, tmp_path, trust_new=False) as me:
        # Nobody listens: what matters is that the own key needs no pin.
        with pytest.raises(RelayError) as caught:
            await me.call("alice", "x", timeout=60)
        assert caught.value.code == "offline"


async def test_the_hourly_budget_is_told_with_its_time(tmp_path: Path) -> None:
    async with (
        running_relay(settings={"calls_per_hour": 2}) as relay,
        scripted_listener(relay.port, "bob"),
        caller(relay, tmp_path) as me,
    ):
        for text in ("1", "2"):
            await me.call("bob", text, timeout=60)
        with pytest.raises(RelayError) as caught:
            await me.call("bob", "3", timeout=60)
        assert caught.value.code == "rate_limited"
        assert caught.value.retry_after_ms is not None
        assert 3_500_000 < caught.value.retry_after_ms <= 3_600_000


async def test_the_same_message_id_gives_the_reply_that_is_already_here(
    one_relay: RelayServer, tmp_path: Path
) -> None:
    message_id = "5" * 32
    async with scripted_listener(one_relay.port, "bob") as bob:
        async with caller(one_relay, tmp_path) as me:
            first = await me.call("bob", "x", timeout=60, message_id=message_id)
        async with caller(one_relay, tmp_path) as me:
            again = await me.call("bob", "x", timeout=60, message_id=message_id)
            assert again.receipt == first.receipt
            with pytest.raises(ConfigError, match="was used before"):
                await me.call("bob", "y", timeout=60, message_id=message_id)
        assert len(bob.calls) == 1


async def test_many_calls_at_once_share_one_connection(one_relay: RelayServer, tmp_path: Path) -> None:
    async with scripted_listener(one_relay.port, "bob", connected=False) as bob:
        bob.capacity = 100
        async with bob.listening(), caller(one_relay, tmp_path) as me:
            replies = await asyncio.gather(*(me.call("bob", f"{number}", timeout=60) for number in range(30)))
            assert [reply.text for reply in replies] == [f"{number}" for number in range(30)]
            assert len({reply.correlation_id for reply in replies}) == 30


async def test_the_default_identity_is_kept(one_relay: RelayServer, tmp_path: Path) -> None:
    handles: set[str] = set()
    async with scripted_listener(one_relay.port, "bob") as bob:
        for _ in range(2):
            async with AsyncCaller(relay=one_relay.url, home=tmp_path, note=lambda text: None) as me:
                await me.call("bob", "x", timeout=60)
                handles.add((await me.account()).handle)
        assert len(handles) == 1
        assert {call.frame.from_ for call in bob.calls} == handles


async def test_a_closed_caller_makes_no_call(one_relay: RelayServer, tmp_path: Path) -> None:
    async with scripted_listener(one_relay.port, "bob") as bob:
        me = caller(one_relay, tmp_path)
        await me.account()
        # Started and not sent yet when the caller is closed.
        call = me.start("bob", "x", timeout=60)
        await me.close()
        with pytest.raises((ConfigError, TransportError), match="closed"):
            await call.result()
        with pytest.raises(ConfigError, match="closed"):
            await me.call("bob", "x", timeout=60)
        await me.close()
        assert bob.calls == []


async def test_prekeys_of_the_day_are_published_by_a_caller_too(
    one_relay: RelayServer, tmp_path: Path
) -> None:
    async with caller(one_relay, tmp_path) as me:
        account = await me.account()
    path = account.home.identity_folder(account.address, "alice") / "published.json"
    yesterday = path.read_text()
    (epoch,) = epochs(account).keys()
    path.write_text(yesterday.replace(f'"{epoch}"', f'"{epoch - 1}"'))
    async with caller(one_relay, tmp_path) as me:
        assert set(epochs(await me.account())) == {epoch - 1, epoch}


def epochs(account: Account) -> dict[int, int]:
    return account._generations[0].published


async def test_nothing_listens_at_the_relays_port(tmp_path: Path) -> None:
    async with running_relay() as relay:
        url = relay.url
    with pytest.raises(TransportError, match="nothing listens") as caught:
        async with AsyncCaller("alice", relay=url, home=tmp_path):
            pass
    assert (caught.value.exit_code, caught.value.next_step) == (30, "start one: ringline relay dev")


async def test_a_taken_handle_is_told_with_the_way_out(one_relay: RelayServer, tmp_path: Path) -> None:
    async with scripted_listener(one_relay.port, "alice", echo):
        with pytest.raises(HttpProblem, match="the handle alice is taken") as caught:
            async with caller(one_relay, tmp_path):
                pass
        assert "--as" in (caught.value.next_step or "")
