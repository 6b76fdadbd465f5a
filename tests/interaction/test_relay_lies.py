"""A relay that lies to both sides of a call: what a real listener and a real caller make of it, and say.

What is told about keys and the log is in the neighbours of this file; `ringline_testing.lies` lists them all.
"""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ringline.caller import AsyncCaller, CallEnded, Cancelled, StillRunning
from ringline.cli.failure import explain, lines
from ringline.listener import Call, Listener
from ringline.protocol.errors import CannotOpen, ProtocolError, RelayError, RinglineError
from ringline.relay.clock import system_clock
from ringline_testing.middleman import Frames, Middleman, answer_json, middleman
from ringline_testing.relay import running_relay
from ringline_testing.signed import Answer, Owner

BOUND_S = 60.0
LEASE = "00000000-0000-4000-8000-000000000001"
UNSIGNED = "The relay says so; nobody has signed it."


@dataclass
class World:
    """An honest relay, the liar in front of it, and real agents who know the liar alone."""

    middle: Middleman
    port: int
    folder: Path
    stack: AsyncExitStack
    ran: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """Who ran what, asked by whom."""
    notes: list[str] = field(default_factory=list[str])
    """What listeners told their owners."""

    async def listen(self, name: str = "bob", **options: Any) -> None:
        """Have somebody listen, who says which message it was."""
        listener = Listener(
            name, relay=self.middle.url, home=self.folder / name, note=self.notes.append, **options
        )

        @listener.answer
        def answer(call: Call) -> str:
            self.ran.append((name, call.caller, call.message))
            return f"{name} heard {call.message}"

        del answer
        await self.stack.enter_async_context(listener.serving())

    def caller(self) -> AsyncCaller:
        """Return alice."""
        return AsyncCaller("alice", relay=self.middle.url, home=self.folder / "alice", note=lambda text: None)

    def sends(self, kind: str, call_id: str) -> Callable[[], bool]:
        """Return whether a listener has sent such a frame."""
        return lambda: any((each["type"], each.get("call_id")) == (kind, call_id) for each in self.middle.up)

    async def noted(self, text: str) -> None:
        """Wait until a listener has told its owner this."""
        async with asyncio.timeout(BOUND_S):
            while not any(text in note for note in self.notes):  # noqa: ASYNC110 - listeners have loops of their own
                await asyncio.sleep(0.01)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(running_relay())
        middle = await stack.enter_async_context(middleman(relay.port))
        yield World(middle, relay.port, tmp_path, stack)


def read(error: RinglineError) -> str:
    """Return what a person reads of an error, on one line."""
    return re.sub(r"\s+", " ", " ".join(lines(explain(error, peer="bob"))))


def bent(envelope: dict[str, Any]) -> dict[str, Any]:
    """Return an envelope with one character of its ciphertext changed."""
    ct = envelope["ct"]
    return envelope | {"ct": ct[:100] + ("A" if ct[100] != "A" else "B") + ct[101:]}


# --- to the listener

Change = Callable[[dict[str, Any]], dict[str, Any]]
CALLS_CHANGED: dict[str, Change] = {
    "altered": lambda frame: frame | {"envelope": bent(frame["envelope"])},
    "another message id": lambda frame: frame | {"message_id": "7" * 32},
    "made durable": lambda frame: (
        frame | {"delivery_mode": "durable", "lease_id": LEASE, "execute_by": frame["envelope"]["exp"]}
    ),
}


@pytest.mark.parametrize("change", CALLS_CHANGED.values(), ids=CALLS_CHANGED)
async def test_a_call_that_the_relay_changed_is_refused_and_never_runs(world: World, change: Change) -> None:
    await world.listen(offline=True)

    def lie(frame: dict[str, Any]) -> Frames:
        return [change(frame) if frame["type"] == "incoming_call" else frame]

    def hide(frame: dict[str, Any]) -> Frames:
        # The relay behind gave no lease, and is to hear of none.
        return [{name: value for name, value in frame.items() if name != "lease_id"}]

    world.middle.on_down, world.middle.on_up = lie, hide
    async with world.caller() as alice:
        with pytest.raises(RelayError) as caught:
            await alice.call("bob", "secret words", timeout=BOUND_S)
    assert "bob does not know you, or could not open the call" in read(caught.value)
    assert UNSIGNED in read(caught.value)
    await world.noted(" was refused: ")
    assert world.ran == []
    assert "secret words" not in " ".join(world.notes)


async def test_a_relabelled_call_is_told_by_the_name_it_was_given(world: World) -> None:
    await Owner.enrolled("mallory", world.port)
    await world.listen()

    def lie(frame: dict[str, Any]) -> Frames:
        return [frame | {"from": "mallory"} if frame["type"] == "incoming_call" else frame]

    world.middle.on_down = lie
    async with world.caller() as alice:
        with pytest.raises(RelayError):
            await alice.call("bob", "x", timeout=BOUND_S)
    await world.noted("a call from mallory was refused")
    assert world.ran == []


async def test_a_call_that_is_taken_to_somebody_else_is_refused_there(world: World) -> None:
    await world.listen("carol")
    await world.listen("bob")

    def redirect(frame: dict[str, Any]) -> Frames:
        if frame["type"] != "incoming_call":
            return [frame]
        (other,) = (each for each in world.middle.passing if each.target.startswith("/v1/listen/bob"))
        other.send(frame)
        return []

    world.middle.on_down = redirect
    async with world.caller() as alice:
        call = alice.start("carol", "for carol", timeout=BOUND_S)
        await world.noted("a call from alice was refused")
        call.abandon()
    assert world.ran == []


async def test_a_call_that_is_offered_again_under_another_id_runs_once(world: World) -> None:
    await world.listen()

    def double(frame: dict[str, Any]) -> Frames:
        return [frame, frame | {"call_id": "again"}] if frame["type"] == "incoming_call" else [frame]

    world.middle.on_down = double
    # The relay behind knows nothing of the second.
    world.middle.on_up = lambda frame: [] if frame.get("call_id") == "again" else [frame]
    async with world.caller() as alice:
        assert (await alice.call("bob", "x", timeout=BOUND_S)).text == "bob heard x"
    # It is answered with what the first run gave, and not run.
    await world.middle.until(world.sends("call_outcome", "again"))
    assert world.ran == [("bob", "alice", "x")]


async def test_a_call_that_is_replayed_after_its_end_is_not_run_again(world: World) -> None:
    await world.listen()
    offers: list[dict[str, Any]] = []

    def keep(frame: dict[str, Any]) -> Frames:
        offers.extend([frame] if frame["type"] == "incoming_call" else [])
        return [frame]

    world.middle.on_down = keep
    async with world.caller() as alice:
        assert (await alice.call("bob", "x", timeout=BOUND_S)).text == "bob heard x"
        world.middle.up.clear()
        world.middle.on_up = lambda frame: []
        (bob,) = (each for each in world.middle.passing if each.target.startswith("/v1/listen/bob"))
        for call_id in (offers[0]["call_id"], "later"):
            bob.send(offers[0] | {"call_id": call_id})
            await world.middle.until(world.sends("call_outcome", call_id))
    assert world.ran == [("bob", "alice", "x")]


# --- to the caller


def instead(world: World, make: Callable[[dict[str, Any]], Frames]) -> None:
    """Have frames made out of each outcome on its way to the caller."""
    world.middle.on_down = lambda frame: make(frame) if frame["type"] == "call_outcome" else [frame]


async def test_an_earlier_answer_is_not_taken_for_a_later_one(world: World) -> None:
    await world.listen()
    first: list[dict[str, Any]] = []

    def replay(frame: dict[str, Any]) -> Frames:
        first.append(frame)
        return [frame | {"envelope": first[0]["envelope"]}]

    instead(world, replay)
    async with world.caller() as alice:
        assert (await alice.call("bob", "yes?", timeout=BOUND_S)).text == "bob heard yes?"
        with pytest.raises(CannotOpen) as caught:
            await alice.call("bob", "no?", timeout=BOUND_S)
    assert "what the relay delivered as bob's answer is not what bob sealed for this call" in read(
        caught.value
    )


async def test_a_request_that_comes_back_is_not_taken_for_its_answer(world: World) -> None:
    await world.listen()

    def reflect(frame: dict[str, Any]) -> Frames:
        (asked,) = (each for each in world.middle.up if each["type"] == "call_request")
        return [frame | {"envelope": asked["envelope"] | {"sid": frame["envelope"]["sid"]}}]

    instead(world, reflect)
    async with world.caller() as alice:
        with pytest.raises(CannotOpen) as caught:
            await alice.call("bob", "x", timeout=BOUND_S)
    assert "is not what bob sealed for this call" in read(caught.value)


@pytest.mark.parametrize("code", ["timeout", "canceled", "offline"])
async def test_an_end_that_the_relay_invents_is_its_word_alone(world: World, code: str) -> None:
    await world.listen()
    instead(
        world,
        lambda frame: [{"type": "call_error", "origin": "relay", "code": code, "call_id": frame["call_id"]}],
    )
    async with world.caller() as alice:
        with pytest.raises(RelayError) as caught:
            await alice.call("bob", "x", timeout=BOUND_S)
    assert caught.value.code == code
    assert "The relay says so; nobody has signed it." in read(caught.value)


async def test_a_cancellation_that_the_relay_invents_is_its_word_alone(world: World) -> None:
    await world.listen()
    held: list[dict[str, Any]] = []
    started = asyncio.Event()

    def hold(frame: dict[str, Any]) -> Frames:
        held.append(frame)
        started.set()
        return []

    def confirm(frame: dict[str, Any]) -> Frames:
        if frame["type"] != "cancel_call":
            return [frame]
        lie = {"type": "call_error", "origin": "relay", "code": "canceled", "call_id": frame["call_id"]}
        for each in world.middle.passing:
            if each.target.startswith("/v1/call/"):
                each.send(lie)
        return []

    instead(world, hold)
    world.middle.on_up = confirm
    async with world.caller() as alice:
        call = alice.start("bob", "x", timeout=BOUND_S)
        await asyncio.wait_for(started.wait(), BOUND_S)
        assert isinstance(await call.cancel(), Cancelled)
        with pytest.raises(RelayError) as caught:
            await call.result()
        assert "The relay says so; nobody has signed it." in read(caught.value)
        (kept,) = await alice.calls()
        assert (kept.state, kept.signed) == ("canceled", False)
    assert world.ran == [("bob", "alice", "x")]


async def test_work_that_the_relay_has_stopped_unasked_yields_no_answer(world: World) -> None:
    """A ``cancel_call`` has no signature: its listener cannot tell that its caller sent none."""
    begun, stopped = threading.Event(), threading.Event()
    listener = Listener("bob", relay=world.middle.url, home=world.folder / "bob", note=world.notes.append)

    @listener.answer
    async def answer(call: Call) -> str:
        begun.set()
        try:
            await asyncio.sleep(BOUND_S)
        except asyncio.CancelledError:
            stopped.set()
            raise
        return "never"

    del answer
    await world.stack.enter_async_context(listener.serving())

    def forge(frame: dict[str, Any]) -> Frames:
        if frame["type"] == "call_cancelled":
            # The relay behind asked for nothing, and is to hear of nothing; its caller hears the liar.
            lie = {"type": "call_error", "origin": "relay", "code": "canceled", "call_id": frame["call_id"]}
            tell("/v1/call/", lie)
            return []
        return [frame]

    def tell(where: str, frame: dict[str, Any]) -> None:
        for each in world.middle.passing:
            if each.target.startswith(where):
                each.send(frame)

    world.middle.on_up = forge
    async with world.caller() as alice:
        call = alice.start("bob", "x", timeout=BOUND_S)
        assert await asyncio.to_thread(begun.wait, BOUND_S)
        (started,) = [frame for frame in world.middle.up if frame["type"] == "call_started"]
        tell("/v1/listen/", {"type": "cancel_call", "call_id": started["call_id"]})
        with pytest.raises(RelayError) as caught:
            await call.result()
        assert caught.value.code == "canceled"
        assert "The relay says so; nobody has signed it." in read(caught.value)
        (kept,) = await alice.calls()
        assert (kept.state, kept.signed) == ("canceled", False)
    assert stopped.is_set()


async def test_a_clock_of_the_relays_that_is_wrong_is_told_to_both_sides(tmp_path: Path) -> None:
    """They log in by the relay's time, since they must; how long keys hold is judged by their own."""
    heard: list[str] = []
    notes: list[str] = []
    async with running_relay(clock=lambda: system_clock().later(86_400_000)) as relay:
        listener = Listener("bob", relay=relay.url, home=tmp_path / "bob", note=notes.append)

        @listener.answer
        def answer(call: Call) -> str:
            return f"bob heard {call.message}"

        del answer
        async with (
            listener.serving(),
            AsyncCaller("alice", relay=relay.url, home=tmp_path / "alice", note=heard.append) as alice,
        ):
            reply = await alice.call("bob", "x", timeout=BOUND_S)
            assert (reply.text, reply.signed_by.handle) == ("bob heard x", "bob")
    for told in (heard, notes):
        (note,) = [note for note in told if "clock" in note]
        assert "behind the relay's; set it, because keys are judged by it" in note


async def test_a_wrong_time_in_one_answer_costs_a_second_try(world: World) -> None:
    await world.listen()
    false = formatdate(1_000_000_000, usegmt=True)
    lies: list[str] = []

    def lie(method: str, target: str, answer: Answer) -> Answer:
        if lies or not target.startswith("/v1/handles/alice"):
            return answer
        lies.append(target)
        kept = tuple(pair for pair in answer.headers if pair[0].lower() != "date")
        return Answer(401, (*kept, ("date", false)), answer.body)

    world.middle.on_answer = lie
    async with world.caller() as alice:
        reply = await alice.call("bob", "x", timeout=BOUND_S)
    assert (reply.text, reply.signed_by.handle) == ("bob heard x", "bob")
    assert lies


async def test_an_answer_that_overtakes_its_statuses_is_the_answer(world: World) -> None:
    """Every status, also the first, which alone tells whose call the answer is."""
    await world.listen()
    held: Frames = []

    def reorder(frame: dict[str, Any]) -> Frames:
        if frame["type"] == "call_status":
            held.append(frame)
            return []
        return [frame, *held] if frame["type"] == "call_outcome" else [frame]

    world.middle.on_down = reorder
    async with world.caller() as alice:
        for message in ("x", "y"):
            reply = await alice.call("bob", message, timeout=BOUND_S)
            assert (reply.text, reply.signed_by.handle) == (f"bob heard {message}", "bob")
    assert held


# --- about what waits

Record = dict[str, Any]
INVENTED: dict[str, tuple[Record, type[RinglineError], str]] = {
    "expired": (
        {"state": "expired", "outcome": None, "finished_at": 5},
        CallEnded,
        "The relay's record of the call says so; nobody has signed it.",
    ),
    "canceled": (
        {"state": "canceled", "outcome": None, "finished_at": 5},
        CallEnded,
        "The relay's record of the call says so; nobody has signed it.",
    ),
    "withheld": (
        {"state": "working", "outcome": None, "finished_at": None},
        StillRunning,
        "the call has not ended yet",
    ),
    "another's": ({"to": "carol"}, ProtocolError, "the relay answered with another call's record"),
}


@pytest.mark.parametrize(("record", "kind", "told"), INVENTED.values(), ids=INVENTED)
async def test_a_record_that_the_relay_invents_is_no_answer_and_the_true_one_stays_good(
    world: World, record: Record, kind: type[RinglineError], told: str
) -> None:
    await world.listen(offline=True)
    async with world.caller() as alice:
        receipt = await alice.submit("bob", "x")

        def lie(method: str, target: str, answer: Answer) -> Answer:
            mine = method == "GET" and target.startswith("/v1/calls/") and answer.status == 200
            return answer_json(answer, **record) if mine else answer

        world.middle.on_answer = lie
        with pytest.raises(kind) as caught:
            await asyncio.wait_for(alice.result(receipt, wait=0), BOUND_S)
        assert told in read(caught.value)
        world.middle.on_answer = lambda method, target, answer: answer
        assert (await asyncio.wait_for(alice.result(receipt, wait=10), BOUND_S)).text == "bob heard x"


async def test_a_call_that_the_relay_denies_is_not_said_to_have_failed(world: World) -> None:
    await world.listen(offline=True)
    async with world.caller() as alice:
        receipt = await alice.submit("bob", "x")
        missing = {"type": "about:blank", "title": "no", "status": 404, "code": "not_found"}

        def deny(method: str, target: str, answer: Answer) -> Answer:
            if not target.startswith("/v1/calls/"):
                return answer
            kind = (("content-type", "application/problem+json"),)
            return Answer(404, kind, msgspec.json.encode(missing))

        world.middle.on_answer = deny
        with pytest.raises(CallEnded, match="the relay does not know the call any more") as caught:
            await asyncio.wait_for(alice.result(receipt), BOUND_S)
        assert "It may have run" in read(caught.value)
