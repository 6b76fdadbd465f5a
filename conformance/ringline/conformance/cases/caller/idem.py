"""IDEM: what a caller repeats by itself, and how."""

import time
from typing import Final

from ringline.conformance.caller_house import Order
from ringline.conformance.caller_scene import Peer, Scene, Taken
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.registry import Needs, case
from ringline.conformance.verdict import check

__all__: list[str] = []

_DURABLE: Final = Needs(features=("durable",))


async def sendings(scene: Scene, order: Order, bob: Peer, code: str) -> list[Taken]:
    """Refuse every sending of a request without `call_id`, and return them all when the call has ended."""
    requests: list[Taken] = []
    while (taken := await scene.sending(order, bob)) is not None:
        requests.append(taken)
        await taken.error(code)
    await scene.end(order, "relay", code=code)
    return requests


def sent_alike(requests: list[Taken], most: int) -> None:
    """Pass when there are so many sendings at most, all of the same bytes."""
    check(1 <= len(requests) <= most, f"{most} sendings at most", f"{len(requests)}")
    check(len({each.as_sent for each in requests}) == 1, "the same bytes again", "others")


@case(requirements=("RL-IDEM-011", "RL-IDEM-013"))
async def a_refusal_that_may_pass_is_repeated_once_at_most(stage: CallerStage) -> None:
    """A request that is refused with `offline` or `busy` is sent once more at most, as it was."""
    scene = await Scene.set(stage)
    for code in ("offline", "busy"):
        bob = scene.peer()
        sent_alike(await sendings(scene, await scene.call(bob), bob, code), 2)


@case(requirements=("RL-IDEM-013",))
async def a_repetition_waits_as_long_as_it_is_told(stage: CallerStage) -> None:
    """A request that is refused with `retry_after_ms` is not sent again before."""
    scene = await Scene.set(stage)
    for code in ("rate_limited", "offline"):
        bob = scene.peer()
        order = await scene.call(bob)
        taken = await scene.request(order, bob)
        began = time.monotonic()
        await taken.error(code, retry_after_ms=1_500)
        again = await scene.sending(order, bob)
        if again is None:
            # Not to repeat it is right too.
            continue
        waited = time.monotonic() - began
        check(waited >= 1.4, "1.5 s before the request comes again", f"{waited:.2f} s")
        await again.status()
        await again.answer()
        await scene.replied(order)


@case(requirements=("RL-IDEM-014",))
async def a_refusal_for_good_is_not_repeated(stage: CallerStage) -> None:
    """A request that is refused for good, without `call_id`, is not sent again."""
    scene = await Scene.set(stage)
    for code in ("unauthorized", "unknown_handle", "message_too_large", "protocol_error"):
        bob = scene.peer()
        sent_alike(await sendings(scene, await scene.call(bob), bob, code), 1)
        await bob.silence(stage.patience.quiet, f"{code} is for good")


@case(requirements=("RL-IDEM-012", "RL-FRAME-034"))
async def an_end_by_the_relay_is_not_repeated(stage: CallerStage) -> None:
    """A call that the relay has ended, by an error with its `call_id`, is not sent again."""
    scene = await Scene.set(stage)
    for code in ("timeout", "offline", "protocol_error"):
        bob = scene.peer()
        order, taken = await scene.ring(bob)
        await taken.error(code, ends=True)
        await scene.end(order, "relay", code=code)
        await bob.silence(0.8, "the call had ended")


@case(requirements=("RL-IDEM-011",))
async def one_message_id_is_not_sealed_twice(stage: CallerStage) -> None:
    """Told to send another message under a `message_id` that was used, a caller sends nothing new."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    name = "5eed" * 8
    order, first = await scene.ring(bob, "one thing", message_id=name)
    check(first.frame.get("message_id") == name, "the message_id that was told", first.frame)
    await first.answer("of the one thing")
    await scene.replied(order, "of the one thing")
    order = await scene.call(bob, "another thing", message_id=name)
    again = await scene.sending(order, bob)
    right = again is None or again.as_sent == first.as_sent
    check(right, "nothing else under the same message_id", again and again.frame)


@case(requirements=("RL-IDEM-011",), needs=_DURABLE)
async def a_message_that_is_made_again_is_the_same(stage: CallerStage) -> None:
    """A durable message that is submitted again under its `message_id` has the bytes of before."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    name = "0ddba11" * 4 + "0000"
    order = await scene.submit(bob, message_id=name)
    first = await scene.request(order, bob)
    await first.line.break_off()
    again = await scene.request(order, bob)
    check(again.as_sent == first.as_sent, "the very bytes of the first sending", again.frame)
    await again.queued()
    await scene.end(order, "receipt")
