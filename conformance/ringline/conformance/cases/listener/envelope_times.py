"""ENVELOPE: requests that are too old, too early or too long-lived, or under a card that does not hold."""

from typing import Final

from ringline.conformance.identity import now_ms
from ringline.conformance.listener_scene import MINUTE, Scene
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.registry import Needs, case

__all__ = [
    "refuses_a_card_that_did_not_hold",
    "refuses_a_life_that_is_too_long",
    "refuses_a_request_from_the_future",
    "refuses_a_request_that_has_run_out",
    "refuses_what_was_to_be_run_before",
]

_DURABLE: Final = Needs(features=("durable",))

_HOUR = 60 * MINUTE
_DAY = 24 * _HOUR


@case(requirements=("RL-ENVELOPE-025", "RL-ENVELOPE-033"))
async def refuses_a_life_that_is_too_long(stage: ListenerStage) -> None:
    """A request is refused that ends before it begins, or lives longer than its mode allows."""
    scene = await Scene.set(stage)
    lives = [
        ("it ends as it begins", scene.seal(life=0)),
        ("it ends before it begins", scene.seal(life=-1_000)),
        ("a sync call lives longer than ten minutes", scene.seal(life=10 * MINUTE + 1)),
    ]
    if True in stage.modes:
        lives.append(("a durable call lives longer than 72 h", scene.seal(durable=True, life=72 * _HOUR + 1)))
    for why, sent in lives:
        await scene.refused(sent, why)
    await scene.works()


@case(requirements=("RL-ENVELOPE-026", "RL-ENVELOPE-033"))
async def refuses_a_request_from_the_future(stage: ListenerStage) -> None:
    """A request is refused that was sealed more than 120 s ahead of the listener's clock."""
    scene = await Scene.set(stage)
    for durable in stage.modes:
        # Two seconds more: the listener may take the relay's clock for its own, which tells whole seconds.
        sent = scene.seal(durable=durable, iat=now_ms() + 2 * MINUTE + 30_000)
        await scene.refused(sent, "it was sealed two and a half minutes ahead")
    await scene.works()


@case(requirements=("RL-ENVELOPE-027", "RL-ENVELOPE-033"))
async def refuses_a_request_that_has_run_out(stage: ListenerStage) -> None:
    """A request is refused whose time was over 120 s ago."""
    scene = await Scene.set(stage)
    for durable in stage.modes:
        frame = {"execute_by": now_ms() + MINUTE} if durable else {}
        sent = scene.seal(durable=durable, iat=now_ms() - 9 * MINUTE, life=6 * MINUTE, frame=frame)
        await scene.refused(sent, "it ran out three minutes ago")
    await scene.works()


@case(requirements=("RL-ENVELOPE-027", "RL-ENVELOPE-033"), needs=_DURABLE)
async def refuses_what_was_to_be_run_before(stage: ListenerStage) -> None:
    """A durable request is refused when its `execute_by` has passed."""
    scene = await Scene.set(stage)
    sent = scene.seal(durable=True, frame={"execute_by": now_ms() - 10_000})
    await scene.refused(sent, "it was to be run by ten seconds ago")
    await scene.works()


@case(requirements=("RL-ENVELOPE-022", "RL-ENVELOPE-033"))
async def refuses_a_card_that_did_not_hold(stage: ListenerStage) -> None:
    """A request is refused under a card that did not hold when it was sealed."""
    scene = await Scene.set(stage)
    early = scene.peer("early", not_before=now_ms() - 3 * MINUTE)
    sent = scene.seal(by=early, iat=now_ms() - 6 * MINUTE, life=9 * MINUTE)
    await scene.refused(sent, "its card begins three minutes after its iat")
    late = scene.peer("late", not_before=now_ms() - _DAY, life=_DAY - 3 * MINUTE)
    await scene.refused(scene.seal(by=late), "its card had run out three minutes before its iat")
    await scene.works()
