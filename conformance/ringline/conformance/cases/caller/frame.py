"""FRAME: what a caller makes of frames that break their form, and of what is clear in those that do not."""

from collections.abc import Callable
from typing import Final

import msgspec

from ringline.conformance.caller_scene import Scene, Taken, failure, reply
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.identity import LEFT_OUT
from ringline.conformance.line import Frame
from ringline.conformance.registry import Level, case
from ringline.conformance.verdict import check

__all__: list[str] = []

REFUSED: Final = 20


def canceled(taken: Taken, **members: object) -> Frame:
    """Return a frame that would end the call, were it not for what ``members`` do to it."""
    frame = {"type": "call_error", "origin": "relay", "code": "canceled", "call_id": taken.call_id}
    return {name: value for name, value in (frame | members).items() if value is not LEFT_OUT}


async def passed_over(stage: CallerStage, *spoiling: Callable[[Taken], bytes]) -> None:
    """Pass when none of these is obeyed or answered, and the call goes on over the same connection."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order, taken = await scene.ring(bob)
    for spoil in spoiling:
        await taken.send(spoil(taken))
    await taken.answer("true")
    await scene.replied(order, "true")
    bob.nothing_more("a frame that is refused is not answered")
    check(len(bob.lines) == 1, "one connection", f"{len(bob.lines)}")


class Spoil:
    """What makes a refused frame of a call."""

    def __init__(self, text: str = "", **members: object) -> None:
        self.text = text
        self.members = members

    def __call__(self, taken: Taken) -> bytes:
        """Return the message."""
        good = msgspec.json.encode(canceled(taken, **self.members))
        return good if not self.text else self.text.replace("GOOD", good[1:-1].decode()).encode()


@case(requirements=("RL-FRAME-001", "RL-FRAME-017", "RL-FRAME-019"))
async def a_frame_of_another_direction_is_passed_over(stage: CallerStage) -> None:
    """Frames of an unknown type, or meant for a listener, are neither obeyed nor answered."""
    await passed_over(
        stage, Spoil(type="call_ended"), Spoil(type="call_cancelled"), Spoil('{"type":"cancel_call"}')
    )


@case(requirements=("RL-FRAME-002", "RL-FRAME-003", "RL-FRAME-017"))
async def a_frame_with_more_in_it_is_passed_over(stage: CallerStage) -> None:
    """Frames with an unknown member, or with one that is there twice, are neither obeyed nor answered."""
    await passed_over(stage, Spoil(more=1), Spoil('{GOOD,"code":"canceled"}'))


@case(requirements=("RL-FRAME-004", "RL-FRAME-005", "RL-FRAME-006", "RL-FRAME-007"))
async def a_frame_with_a_wrong_value_is_passed_over(stage: CallerStage) -> None:
    """Frames with null, a number as text, a fraction, or an id that breaks its pattern are not obeyed."""
    await passed_over(
        stage,
        Spoil(origin=LEFT_OUT),
        Spoil(correlation_id=None),
        Spoil(retry_after_ms="1"),
        Spoil('{GOOD,"retry_after_ms":1.0}'),
        Spoil('{GOOD,"retry_after_ms":1e3}'),
        Spoil(retry_after_ms=2**53),
        Spoil(correlation_id="0" * 32),
        Spoil(code="no_such_code"),
        lambda taken: msgspec.json.encode(taken.outcome(reply("forged"), frame={"lease_id": "no lease"})),
    )


@case(requirements=("RL-FRAME-008",))
async def a_message_that_is_no_frame_is_passed_over(stage: CallerStage) -> None:
    """Messages that are not one JSON object are not obeyed."""
    await passed_over(stage, Spoil("[{GOOD}]"), Spoil("{GOOD}{GOOD}"), Spoil("{GOOD"))


@case(requirements=("RL-FRAME-017", "RL-FRAME-018"))
async def too_many_refused_frames_end_the_connection(stage: CallerStage) -> None:
    """A connection with 20 frames that break their form is closed with 1008."""
    scene = await Scene.set(stage, own=True)
    bob = scene.peer()
    _, taken = await scene.ring(bob)
    for _ in range(REFUSED):
        await taken.send(canceled(taken, more=1))
    await bob.ended(taken.line)
    taken.line.judge_end(1008)
    bob.nothing_more("a frame that is refused is not answered")


@case(requirements=("RL-FRAME-019",))
async def some_refused_frames_do_not_end_the_connection(stage: CallerStage) -> None:
    """After 19 frames that break their form the connection goes on, and so does the call."""
    await passed_over(stage, *[Spoil(more=1)] * (REFUSED - 1))


@case(requirements=("RL-FRAME-037", "RL-FRAME-056", "RL-ENVELOPE-054"))
async def the_clear_reason_of_an_outcome_decides_nothing(stage: CallerStage) -> None:
    """An outcome is taken with a lease or a clear reason, and told with the reason under the seal."""
    scene = await Scene.set(stage)
    for clear in ({"terminal_reason": "failed"}, {"lease_id": "8c0b6a4e-2a55-4d0e-9d1f-0a4b7a1d3c11"}):
        order, taken = await scene.ring(scene.peer())
        await taken.send(
            taken.outcome(failure("agent_error", "indeterminate_execution"), "failed", frame=clear)
        )
        await scene.end(order, "peer", code="agent_error", reason="indeterminate_execution")
    order, taken = await scene.ring(scene.peer())
    lie = {"terminal_reason": "indeterminate_execution"}
    await taken.send(taken.outcome(reply("answered"), frame=lie))
    await scene.replied(order, "answered")


@case(requirements=("RL-FRAME-034",))
async def an_error_with_a_call_id_ends_that_call_alone(stage: CallerStage) -> None:
    """Of two calls to one peer the one ends whose id an error names, and the other goes on."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    first, one = await scene.ring(bob, "one")
    second, other = await scene.ring(bob, "other")
    await one.error("timeout", ends=True)
    await scene.end(first, "relay", code="timeout", call_id=one.call_id)
    await other.answer("the other")
    await scene.replied(second, "the other")


@case(requirements=("RL-FRAME-034",))
async def the_end_of_another_call_is_not_its_own(stage: CallerStage) -> None:
    """An error or a status that names a call which the caller does not have changes nothing."""
    scene = await Scene.set(stage)
    order, taken = await scene.ring(scene.peer())
    await taken.error("canceled", call_id="another", correlation_id="5" * 32)
    await taken.send({"type": "call_not_cancelled", "call_id": "another", "reason": "too_late"})
    await taken.answer()
    await scene.replied(order)


@case(Level.SHOULD, requirements=("RL-FRAME-024",))
async def every_request_names_its_message(stage: CallerStage) -> None:
    """A sync request has a `message_id` too."""
    scene = await Scene.set(stage)
    order, taken = await scene.ring(scene.peer())
    check("message_id" in taken.frame, "a message_id", taken.frame)
    await taken.answer()
    await scene.replied(order)
