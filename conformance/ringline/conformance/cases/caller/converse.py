"""CONVERSE: how a caller goes on with a conversation."""

import secrets
from typing import Any

import msgspec

from ringline.conformance.caller_house import Order
from ringline.conformance.caller_scene import Peer, Scene, Taken, reply
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.registry import case
from ringline.conformance.verdict import check
from ringline.protocol.bodies import Request
from ringline.protocol.encoding import b64encode
from ringline.protocol.transcript import digest

__all__: list[str] = []


def fresh_context() -> str:
    """Return the name of a context that was never used."""
    return f"ctx_{b64encode(secrets.token_bytes(16))}"


async def turn(scene: Scene, bob: Peer, talk: int, message: str) -> tuple[Order, Taken]:
    """Have the next turn of a conversation asked, and receive it."""
    return await scene.ring(bob, message, conversation=talk)


def fresh_talk() -> int:
    """Return a number for a conversation that the subject has not had."""
    return secrets.randbelow(2**31)


def members(request: Request) -> dict[str, Any]:
    """Return what a request says of its conversation."""
    sent = msgspec.to_builtins(request)
    return {name: sent[name] for name in ("context_id", "turn", "prev") if name in sent}


@case(requirements=("RL-CONVERSE-002", "RL-CONVERSE-003"))
async def a_conversation_goes_on_from_its_last_outcome(stage: CallerStage) -> None:
    """The next turn names context, turn and the hash of the last outcome, under one correlation id."""
    scene = await Scene.set(stage)
    bob, context, talk = scene.peer(), fresh_context(), fresh_talk()
    order, first = await turn(scene, bob, talk, "one")
    check(set(members(first.request)) <= {"turn"}, "a first turn without context", members(first.request))
    said = [reply(f"answer {number}", context_id=context, turn=number) for number in (1, 2)]
    await first.send(first.outcome(said[0]))
    await scene.replied(order, "answer 1")
    order, second = await turn(scene, bob, talk, "two")
    wanted = {"context_id": context, "turn": 2, "prev": b64encode(digest(said[0]))}
    check(members(second.request) == wanted, str(wanted), members(second.request))
    await second.send(second.outcome(said[1]))
    await scene.replied(order, "answer 2")
    order, third = await turn(scene, bob, talk, "three")
    wanted = {"context_id": context, "turn": 3, "prev": b64encode(digest(said[1]))}
    check(members(third.request) == wanted, str(wanted), members(third.request))
    await third.send(third.outcome(reply("answer 3", context_id=context, turn=3)))
    await scene.replied(order, "answer 3")
    ids = {taken.frame["correlation_id"] for taken in (first, second, third)}
    check(len(ids) == 1, "one correlation id in the whole conversation", ids)


@case(requirements=("RL-CONVERSE-003", "RL-TRACE-006"))
async def each_conversation_has_a_correlation_id_of_its_own(stage: CallerStage) -> None:
    """Two conversations with one peer, and a call beside them, have three correlation ids."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    ids: set[str] = set()
    talks: list[dict[str, Any]] = [{"conversation": fresh_talk()}, {"conversation": fresh_talk()}, {}]
    for talk in talks:
        order, taken = await scene.ring(bob, **talk)
        ids.add(taken.frame["correlation_id"])
        await taken.answer()
        await scene.replied(order)
    check(len(ids) == 3, "three correlation ids", ids)


@case(requirements=("RL-CONVERSE-013", "RL-FRAME-027"))
async def turns_run_one_after_the_other(stage: CallerStage) -> None:
    """A turn that is asked while another runs is sent when that one has ended."""
    scene = await Scene.set(stage)
    bob, context, talk = scene.peer(), fresh_context(), fresh_talk()
    first_order = await scene.call(bob, "one", conversation=talk)
    first = await scene.request(first_order, bob)
    second_order = await scene.call(bob, "two", conversation=talk)
    await bob.silence(0.4, "the first turn waits for its first frame")
    await first.status("working")
    await bob.silence(0.2, "the first turn still runs")
    await first.send(first.outcome(reply("answer 1", context_id=context, turn=1)))
    await scene.replied(first_order, "answer 1")
    second = await scene.request(second_order, bob)
    check(members(second.request).get("turn") == 2, "turn 2", members(second.request))
    await second.status()
    await second.send(second.outcome(reply("answer 2", context_id=context, turn=2)))
    await scene.replied(second_order, "answer 2")
