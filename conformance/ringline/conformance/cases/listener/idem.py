"""IDEM: one message is run once, whatever the relay does with it."""

from typing import Final
from uuid import uuid4

from ringline.conformance.identity import LEFT_OUT, fresh_id
from ringline.conformance.listener_scene import Scene
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.registry import Needs, case
from ringline.conformance.seals import Sent
from ringline.conformance.verdict import check

__all__ = [
    "answers_a_known_call_unopened",
    "joins_a_call_to_running_work",
    "refuses_a_known_call_of_another_caller_or_message",
    "refuses_another_payload_under_a_known_name",
    "runs_a_message_once_in_both_modes",
    "runs_a_message_once_over_its_own_end",
    "runs_a_message_once_under_many_calls",
    "seals_an_outcome_for_each_call",
    "spares_what_has_killed_it_three_times",
    "tells_callers_apart",
    "tells_messages_without_a_name_apart",
]

_DURABLE: Final = Needs(features=("durable",))


@case(requirements=("RL-IDEM-017",))
async def answers_a_known_call_unopened(stage: ListenerStage) -> None:
    """A call that the journal knows is answered from it, whatever its envelope has become."""
    scene = await Scene.set(stage)
    sent = await scene.call()
    first = await scene.reply(sent)
    spoilt = sent.frame["envelope"] | {"ct": sent.frame["envelope"]["ct"][:-8]}
    for envelope in (sent.frame["envelope"], spoilt):
        again = sent.again(envelope=envelope)
        await scene.offer(again)
        reply = await scene.reply(again)
        check(reply == first, first.text, reply.text)
    scene.has_run(sent, 1)


@case(requirements=("RL-IDEM-018",))
async def refuses_a_known_call_of_another_caller_or_message(stage: ListenerStage) -> None:
    """A known `call_id` with another `from` or `message_id` is answered `call_rejected`."""
    scene = await Scene.set(stage)
    mallory = scene.peer("mallory")
    sent = await scene.call()
    await scene.reply(sent)
    for change in ({"from": mallory.handle}, {"message_id": fresh_id()}, {"message_id": LEFT_OUT}):
        frame = {name: value for name, value in (sent.frame | change).items() if value is not LEFT_OUT}
        await scene.line.send(frame)
        await scene.expect("call_rejected", sent)
    other = scene.seal(by=mallory, frame={"call_id": sent.call_id})
    await scene.refused(other, "its call_id is that of another caller's call")
    scene.has_run(sent, 1)


@case(requirements=("RL-IDEM-019", "RL-IDEM-016"))
async def joins_a_call_to_running_work(stage: ListenerStage) -> None:
    """A call that brings a message which runs already joins its work, and both get the reply."""
    scene = await Scene.set(stage)
    first = await scene.call(scene.message("slow 500"))
    await scene.accepted(first)
    second = first.again(call_id=f"{first.call_id}-b")
    await scene.offer(second)
    texts = {one.call_id: text for one, text in await _outcomes(scene, first, second)}
    check(len(texts) == 2 and len(set(texts.values())) == 1, "one reply for both", texts)
    scene.has_run(first, 1)


async def _outcomes(scene: Scene, *calls: Sent) -> list[tuple[Sent, str]]:
    """Receive the replies to these calls, in whatever order."""
    found: list[tuple[Sent, str]] = []
    left = {one.call_id: one for one in calls}
    while left:
        frame = await scene.line.next()
        if frame["type"] in ("call_accepted", "call_started"):
            continue
        check(frame.get("call_id") in left, f"outcomes of {sorted(left)}", frame)
        one = left.pop(frame["call_id"])
        reply = scene.opened(one, frame, "completed").reply
        found.append((one, str(getattr(reply, "text", ""))))
    return found


@case(requirements=("RL-IDEM-016", "RL-IDEM-019"))
async def runs_a_message_once_under_many_calls(stage: ListenerStage) -> None:
    """A message that is offered under twenty calls at once is run once and answered twenty times."""
    scene = await Scene.set(stage)
    sent = scene.seal(scene.message("slow 200"))
    calls = [sent.again(call_id=f"{sent.call_id}-{number}") for number in range(20)]
    for one in calls:
        await scene.offer(one)
    found = await _outcomes(scene, *calls)
    check(len({text for _, text in found}) == 1, "the same reply for all", found)
    scene.has_run(sent, 1)


@case(requirements=("RL-IDEM-025",))
async def seals_an_outcome_for_each_call(stage: ListenerStage) -> None:
    """Two calls of one message get two ciphertexts, each of which opens for its own call alone."""
    scene = await Scene.set(stage)
    first = await scene.call()
    await scene.accepted(first)
    one = await scene.expect("call_outcome", first)
    scene.opened(first, one, "completed")
    # Sealed anew: the same message with another one-time key.
    second = scene.seal(first.json_bytes, context=first.context)
    await scene.offer(second)
    other = await scene.line.next()
    while other["type"] != "call_outcome":
        other = await scene.line.next()
    scene.opened(second, other, "completed")
    check(one["envelope"]["ct"] != other["envelope"]["ct"], "two ciphertexts", "one and the same")
    scene.has_run(first, 1)


@case(requirements=("RL-IDEM-020",))
async def refuses_another_payload_under_a_known_name(stage: ListenerStage) -> None:
    """A known message with another payload gets the sealed failure `duplicate_conflict`, and is not run."""
    scene = await Scene.set(stage)
    first = await scene.call()
    await scene.reply(first)
    other = await scene.call(scene.message(), message_id=first.context.message_id)
    await scene.failure(other, "duplicate_conflict")
    scene.has_run(other, 0)
    scene.has_run(first, 1)


@case(requirements=("RL-IDEM-015",))
async def tells_callers_apart(stage: ListenerStage) -> None:
    """Two callers who use the same `message_id` have named two messages."""
    scene = await Scene.set(stage)
    bob = scene.peer("bob")
    first = await scene.call()
    await scene.reply(first)
    other = await scene.call(scene.message(), by=bob, message_id=first.context.message_id)
    await scene.reply(other)
    scene.has_run(other, 1)


@case(requirements=("RL-IDEM-015", "RL-IDEM-016"))
async def tells_messages_without_a_name_apart(stage: ListenerStage) -> None:
    """Messages without `message_id` are one when their bytes are, and two when they were sealed twice."""
    scene = await Scene.set(stage)
    message = scene.message()
    first = await scene.call(message, message_id="")
    await scene.reply(first)
    again = first.again(call_id=f"{first.call_id}-b")
    await scene.offer(again)
    await scene.reply(again)
    scene.has_run(message, 1)
    await scene.reply(await scene.call(message, message_id=""))
    scene.has_run(message, 2)


@case(requirements=("RL-IDEM-016",), needs=_DURABLE)
async def runs_a_message_once_in_both_modes(stage: ListenerStage) -> None:
    """A message that was run in one mode is not run when it comes in the other."""
    scene = await Scene.set(stage)
    for durable in (False, True):
        first = await scene.call(durable=durable)
        if durable:
            await scene.grant(first)
        await scene.reply(first)
        name = first.context.message_id
        other = await scene.call(first.json_bytes, durable=not durable, message_id=name)
        if not durable:
            await scene.grant(other)
        await scene.outcome(other, "completed")
        scene.has_run(first, 1)


@case(requirements=("RL-IDEM-016", "RL-IDEM-024"))
async def runs_a_message_once_over_its_own_end(stage: ListenerStage) -> None:
    """A message that was run before its process died is answered, and not run, by the next one."""
    scene = await Scene.set(stage, own=True)
    sent = await scene.call()
    first = await scene.reply(sent)
    await scene.house.kill()
    await scene.house.start()
    for call_id in (sent.call_id, f"{sent.call_id}-b"):
        again = sent.again(call_id=call_id)
        await scene.offer(again)
        reply = await scene.reply(again)
        check(reply == first, first.text, reply.text)
    scene.has_run(sent, 1)


@case(requirements=("RL-IDEM-027",), needs=_DURABLE)
async def spares_what_has_killed_it_three_times(stage: ListenerStage) -> None:
    """A call over which three processes have died before it began is refused, and others are answered."""
    scene = await Scene.set(stage, own=True)
    relay = scene.house.relay
    poison = scene.seal(by=scene.peer("mallory"), durable=True)
    path = f"/v1/handles/{poison.frame['from']}"
    relay.holds.add(path)
    for times in (1, 2, 3):
        await scene.offer(poison.again(lease_id=str(uuid4())))
        await relay.until_asked(path, times, stage.patience.answer)
        await scene.house.kill()
        await scene.house.start()
    relay.holds.clear()
    again = poison.again(lease_id=str(uuid4()))
    await scene.refused(again, "three processes have died over it")
    await scene.works()
