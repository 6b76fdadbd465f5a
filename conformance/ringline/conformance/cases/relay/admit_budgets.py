"""Budgets: what is counted, over which time, and what is left to others."""

import asyncio
import contextlib

from ringline.conformance.identity import LEFT_OUT, fresh_id
from ringline.conformance.line import Line
from ringline.conformance.registry import Needs, case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import Failed, Neutral, check

__all__: list[str] = []

_DURABLE = Needs(features=("durable",))
# A busy machine may need more than a second for the frames that are too many in one.
_FLOODS = 5
_BUDGETS = (
    "calls_per_hour",
    "calls_per_pair_per_hour",
    "turns",
    "caller_places_percent",
    "outcome_resends",
    "frames_per_second",
    "connections_per_identity",
    "key_fetches_per_minute",
    "stored_calls",
    "stored_request_bytes",
    "stored_outcome_bytes",
    "stored_calls_per_pair",
    "stored_pair_percent",
    "stored_unlisted_percent",
    "starts",
)


@case(requirements=("RL-ADMIT-033", "RL-HTTP-014"))
async def every_budget_is_shown(stage: RelayStage) -> None:
    """`GET /v1/relay` shows every budget as a whole number."""
    missing = [name for name in _BUDGETS if name not in stage.info.budgets]
    check(not missing, "every budget", f"without {', '.join(missing)}")


@case(requirements=("RL-ADMIT-013",), needs=Needs(bounds={"calls_per_pair_per_hour": 20}))
async def budget_of_a_pair_is_of_that_pair(stage: RelayStage) -> None:
    """The budget of a caller for one callee is charged by calls to that callee."""
    units, whole = stage.budget("calls_per_pair_per_hour"), stage.budget("calls_per_hour")
    if units >= whole:
        raise Neutral(f"needs CALLS_PER_PAIR_PER_HOUR below {whole}")
    alice = await stage.identity("alice")
    one, other = [await stage.call_line(alice, stage.handle(name)) for name in ("one", "other")]
    for _ in range(units):
        await one.send(alice.request())
        await one.refused("unknown_handle")
    await one.send(alice.request())
    await one.refused("rate_limited")
    await other.send(alice.request())
    await other.refused("unknown_handle")


@case(
    requirements=("RL-ADMIT-029", "RL-ADMIT-031"),
    needs=Needs(bounds={"budget_window_ms": 6_000}),
)
async def hourly_window_slides(stage: RelayStage) -> None:
    """A unit is free again when its time is over, each by itself, and `retry_after_ms` tells when."""
    units = stage.units()
    window = stage.bound("budget_window_ms") / 1000
    alice = await stage.identity("alice")
    line = await stage.call_line(alice, stage.handle("nobody"))
    await line.send(alice.request())
    await line.refused("unknown_handle")
    await asyncio.sleep(window / 2)
    for _ in range(units - 1):
        await line.send(alice.request())
        await line.refused("unknown_handle")
    await line.send(alice.request())
    wait = (await line.refused("rate_limited"))["retry_after_ms"]
    check(0 < wait <= window * 500 + 50, "the time until the first unit is free", f"{wait} ms")
    await asyncio.sleep((wait + 20) / 1000)
    await line.send(alice.request())
    await line.refused("unknown_handle")
    await line.send(alice.request())
    await line.refused("rate_limited")


async def _turn(scene: Scene, correlation_id: str) -> None:
    call_id = await scene.ring(correlation_id=correlation_id)
    await scene.report("call_rejected", call_id, code="protocol_error")
    await scene.caller.expect("call_error", code="protocol_error", call_id=call_id)


@case(requirements=("RL-ADMIT-030", "RL-ADMIT-023", "RL-ADMIT-031"))
async def conversation_has_its_turns(stage: RelayStage) -> None:
    """The calls of one correlation id are limited, and those of another id and to another handle are not."""
    turns = stage.budget("turns", most=25)
    scene = await Scene.set(stage)
    correlation_id = fresh_id()
    for _ in range(turns):
        await _turn(scene, correlation_id)
    await scene.send_request(correlation_id=correlation_id)
    frame = await scene.caller.refused("rate_limited", correlation_id=correlation_id)
    wait, window = frame.get("retry_after_ms"), stage.bound("turn_window_ms")
    check(isinstance(wait, int) and 0 < wait <= window, "retry_after_ms in the window", repr(frame))
    await _turn(scene, fresh_id())
    carol = await stage.identity("carol")
    line = await stage.call_line(carol, scene.bob.handle)
    await line.send(carol.request(correlation_id=correlation_id))
    await line.expect("call_status", state="ringing")


@case(requirements=("RL-ADMIT-024",))
async def refused_request_is_no_turn(stage: RelayStage) -> None:
    """A request that is refused as `busy` or `offline` costs no turn of its conversation."""
    turns = stage.budget("turns", most=25)
    scene = await Scene.set(stage, listening=False)
    correlation_id = fresh_id()
    for _ in range(3):
        await scene.send_request(correlation_id=correlation_id)
        await scene.caller.refused("offline")
    await scene.listen()
    for _ in range(turns):
        await _turn(scene, correlation_id)
    await scene.send_request(correlation_id=correlation_id)
    await scene.caller.refused("rate_limited")


@case(requirements=("RL-ADMIT-030",), needs=Needs(bounds={"turn_window_ms": 6_000}))
async def turns_are_counted_from_the_first(stage: RelayStage) -> None:
    """The turns of a conversation are all free again when the time from the first of them is over."""
    turns = stage.budget("turns", most=25)
    scene = await Scene.set(stage)
    correlation_id, window = fresh_id(), stage.bound("turn_window_ms")
    await _turn(scene, correlation_id)
    first = scene.alice.now()
    # So that the first turn and the last are not at the same time.
    await asyncio.sleep(window / 6_000)
    for _ in range(turns - 1):
        await _turn(scene, correlation_id)
    passed = scene.alice.now() - first
    await scene.send_request(correlation_id=correlation_id)
    wait = (await scene.caller.refused("rate_limited"))["retry_after_ms"]
    check(wait <= window - passed + 20, "the time from the first turn on", f"{wait} ms, {passed} ms after it")
    await asyncio.sleep((wait + 20) / 1000)
    for _ in range(2):
        await _turn(scene, correlation_id)


@case(requirements=("RL-ADMIT-032",))
async def one_caller_takes_half_of_the_places(stage: RelayStage) -> None:
    """One caller holds at most half of a handle's places, and the rest is left to others."""
    if stage.info.budgets.get("caller_places_percent") != 50:
        raise Neutral("needs CALLER_PLACES_PERCENT=50")
    scene = await Scene.set(stage, capacity=5)
    carol = await stage.identity("carol")
    line = await stage.call_line(carol, scene.bob.handle)
    for _ in range(2):
        await scene.ring()
    await scene.send_request()
    await scene.caller.refused("busy")
    for _ in range(2):
        await line.send(carol.request())
        await line.expect("call_status", state="ringing")
    await line.send(carol.request())
    await line.refused("busy")


@case(requirements=("RL-ADMIT-036", "RL-ADMIT-022"), needs=_DURABLE)
async def one_caller_stores_so_many_calls(stage: RelayStage) -> None:
    """A caller with ten unfinished calls at a callee gets `busy` with `retry_after_ms`; another does not."""
    most = stage.budget("stored_calls_per_pair", most=25)
    scene = await Scene.set(stage, offline=True, listening=False)
    receipts = [await scene.submit() for _ in range(most)]
    await scene.send_request(delivery_mode="durable")
    frame = await scene.caller.refused("busy")
    check(isinstance(frame.get("retry_after_ms"), int), "retry_after_ms", repr(frame))
    carol = await stage.identity("carol")
    line = await stage.call_line(carol, scene.bob.handle)
    await line.send(carol.request(delivery_mode="durable"))
    await line.expect("call_queued")
    await stage.ask(scene.alice, "POST", f"/v1/calls/{receipts[0]['call_id']}/cancel")
    await scene.caller.expect("call_error", code="canceled")
    await scene.submit()


@case(requirements=("RL-ADMIT-034", "RL-ADMIT-037"), needs=_DURABLE)
async def strangers_store_half_of_the_calls(stage: RelayStage) -> None:
    """Callers who are not on the list fill at most half of a mailbox, and those who are the rest of it."""
    whole = stage.budget("stored_calls", most=100)
    each = stage.budget("stored_calls_per_pair", most=50)
    if stage.info.budgets.get("stored_unlisted_percent") != 50:
        raise Neutral("needs STORED_UNLISTED_PERCENT=50")
    half, bob = whole // 2, await stage.identity("bob")
    friends = [await stage.identity(f"d{number}") for number in range((whole - half) // each + 1)]
    strangers = [await stage.identity(f"c{number}") for number in range(half // each + 1)]
    await stage.set_policy(bob, offline=True, allow=[friend.handle for friend in friends])
    for callers, most in ((strangers, half), (friends, whole - half)):
        left = most
        lines = [await stage.call_line(caller, bob.handle) for caller in callers]
        for caller, line in zip(callers, lines, strict=True):
            for _ in range(min(each, left)):
                await line.send(caller.request(delivery_mode="durable"))
                await line.expect("call_queued")
                left -= 1
        # The last of them has called less often than one may.
        await lines[-1].send(callers[-1].request(delivery_mode="durable"))
        await lines[-1].refused("busy")


@case(requirements=("RL-ADMIT-038",))
async def outcome_is_sent_again_so_often(stage: RelayStage) -> None:
    """A stored outcome is sent again at most so often, and then the repetition gets `rate_limited`."""
    most = stage.budget("outcome_resends", most=25)
    scene = await Scene.set(stage)
    request = await scene.send_request()
    call_id = (await scene.caller.expect("call_status"))["call_id"]
    await scene.listener.expect("incoming_call", call_id=call_id)
    await scene.work(call_id)
    await scene.complete(call_id)
    for _ in range(most):
        await scene.caller.send(request)
        await scene.caller.expect("call_outcome", call_id=call_id)
    await scene.caller.send(request)
    await scene.caller.refused("rate_limited", correlation_id=request["correlation_id"])
    shown = await stage.record(scene.alice, call_id)
    told = (shown["state"], shown["outcome"])
    check(told == ("completed", None), "the record without its outcome", repr(told))


@case(requirements=("RL-ADMIT-038",), needs=_DURABLE)
async def durable_outcome_is_sent_again_so_often(stage: RelayStage) -> None:
    """The outcome of a durable call too is sent again at most so often, and is then still kept."""
    most = stage.budget("outcome_resends", most=25)
    scene = await Scene.set(stage, offline=True)
    request = await scene.send_request(delivery_mode="durable")
    receipt = await scene.caller.expect("call_queued")
    ids = await scene.take(receipt["call_id"])
    await scene.begin(ids)
    await scene.send_outcome(**ids)
    for kind in ("call_status", "call_status", "call_outcome"):
        await scene.caller.expect(kind)
    for _ in range(most):
        await scene.caller.send(request)
        await scene.caller.expect("call_queued", call_id=ids["call_id"])
        await scene.caller.expect("call_outcome", call_id=ids["call_id"])
    await scene.caller.send(request)
    await scene.caller.refused("rate_limited", correlation_id=request["correlation_id"])
    await scene.caller.quiet("it was sent often enough")
    await scene.has_ended(ids["call_id"], "completed")


@case(requirements=("RL-ADMIT-039",))
async def reading_the_outcome_counts_too(stage: RelayStage) -> None:
    """A reading of a record with its outcome counts as a sending; beyond, the outcome is null."""
    most = stage.budget("outcome_resends", most=25)
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    await scene.work(call_id)
    sent = await scene.complete(call_id)
    for _ in range(most):
        shown = await stage.record(scene.alice, call_id)
        check(shown["outcome"] is not None, "the outcome in the record", "null")
        check(shown["outcome"]["envelope"] == sent["envelope"], "the envelope as it was sent", "another")
    shown = await stage.record(scene.alice, call_id)
    check(shown["outcome"] is None, "no outcome any more", "an outcome")


async def _flood(line: Line, count: int) -> None:
    """Send so many frames as fast as they can be written."""
    for start in range(0, count, 500):
        for number in range(start, min(start + 500, count)):
            line.socket.send(b'{"type":"call_accepted","call_id":"f%d"}' % number)
        await line.socket.drain()


@case(requirements=("RL-ADMIT-040",))
async def hurried_connection_is_slowed_down(stage: RelayStage) -> None:
    """Frames beyond those of one second get `rate_limited` without ids, and the connection lives on."""
    most = stage.budget("frames_per_second", most=5_000)
    scene = await Scene.set(stage)
    codes: set[str] = set()
    for _ in range(_FLOODS):
        await _flood(scene.listener, most + most // 4)
        for _ in range(most + most // 4):
            frame = await scene.listener.next()
            if frame["type"] == "call_error":
                check(not {"call_id", "correlation_id"} & set(frame), "no ids", repr(frame))
                codes.add(frame["code"])
        check(codes <= {"rate_limited"}, "rate_limited or the usual answer", repr(codes))
        if codes:
            break
    else:
        raise Neutral("needs a faster machine: the frames took more than a second")
    await asyncio.sleep(1.1)
    await scene.ring()


@case(requirements=("RL-ADMIT-041",))
async def flood_ends_the_connection(stage: RelayStage) -> None:
    """More than twice as many frames in a second close the connection with 1008."""
    most = stage.budget("frames_per_second", most=5_000)
    scene = await Scene.set(stage)
    for _ in range(_FLOODS):
        await _flood(scene.listener, 2 * most + 500)
        with contextlib.suppress(Failed):
            await scene.listener.drain_until_end()
            break
    else:
        raise Neutral("needs a faster machine: the frames took more than a second")
    scene.listener.judge_end(1008)


@case(requirements=("RL-ADMIT-042",))
async def identity_has_so_many_connections(stage: RelayStage) -> None:
    """An upgrade beyond the connections of one identity is answered 429, and another's is not."""
    most = stage.budget("connections_per_identity", most=200)
    alice, bob = await stage.identity("alice"), await stage.identity("bob")
    target = f"/v1/call/{bob.handle}"
    lines = [await stage.call_line(alice, bob.handle) for _ in range(most)]
    answer = await stage.upgrade(target, alice.bearer("GET", target))
    check(answer.status == 429, "429", str(answer))
    answer = await stage.upgrade(target, bob.bearer("GET", target))
    check(answer.status == 101, "101 for another identity", str(answer))
    await lines[0].leave()
    answer = await stage.upgrade(target, alice.bearer("GET", target))
    check(answer.status == 101, "101 when one has gone", str(answer))


@case(requirements=("RL-ADMIT-013", "RL-ADMIT-007"))
async def limited_request_can_be_sent_again(stage: RelayStage) -> None:
    """A request that got `rate_limited` was not taken: it is no duplicate, and leaves no record."""
    units = stage.units()
    alice = await stage.identity("alice")
    line = await stage.call_line(alice, stage.handle("nobody"))
    for _ in range(units):
        await line.send(alice.request(message_id=LEFT_OUT))
        await line.refused("unknown_handle")
    request = alice.request()
    for _ in range(3):
        await line.send(request)
        await line.refused("rate_limited", correlation_id=request["correlation_id"])
