"""ENVELOPE: what a caller seals."""

from typing import Final

from ringline.conformance.caller_scene import Scene
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.registry import Level, Needs, case
from ringline.conformance.verdict import check

__all__: list[str] = []

_DURABLE: Final = Needs(features=("durable",))

MINUTE = 60_000
HOUR = 60 * MINUTE


@case(requirements=("RL-ENVELOPE-003", "RL-ENVELOPE-010", "RL-ENVELOPE-011"))
async def a_request_opens_for_its_callee(stage: CallerStage) -> None:
    """A request is sealed, padded and signed so that its callee can open it, and its outcome is the reply."""
    scene = await Scene.set(stage)
    order, taken = await scene.ring(scene.peer(), "what is sealed")
    check(taken.request.message == "what is sealed", "the message under the seal", taken.request.message)
    await taken.answer("answered")
    await scene.replied(order, "answered")


@case(requirements=("RL-ENVELOPE-012", "RL-ENVELOPE-049", "RL-TRANSPORT-022", "RL-TRANSPORT-029"))
async def the_largest_message_is_sealed(stage: CallerStage) -> None:
    """A message of 64,000 bytes is sent as one text message, in a plaintext of the size of the formula."""
    scene = await Scene.set(stage)
    order, taken = await scene.ring(scene.peer(), "é" * 32_000)
    check(taken.request.message == "é" * 32_000, "the message whole", f"{len(taken.request.message)} chars")
    check(len(taken.sealed.ct) * 3 // 4 == 65_536 + 48, "65,536 bytes under the seal", len(taken.sealed.ct))
    await taken.answer()
    await scene.replied(order)


@case(requirements=("RL-ENVELOPE-012",))
async def sizes_are_padded(stage: CallerStage) -> None:
    """Messages of one and of some hundred bytes make ciphertexts of one size."""
    scene = await Scene.set(stage)
    sizes: list[int] = []
    for length in (1, 700):
        order, taken = await scene.ring(scene.peer(), "x" * length)
        sizes.append(len(taken.sealed.ct) * 3 // 4 - 48)
        await taken.answer()
        await scene.replied(order)
    check(sizes == [2_048, 2_048], "plaintexts of 2,048 bytes", sizes)


@case(requirements=("RL-ENVELOPE-013", "RL-ENVELOPE-049"))
async def a_message_that_is_too_large_is_not_sent(stage: CallerStage) -> None:
    """A message of 64,001 bytes is refused by the caller itself, before anything is sent."""
    scene = await Scene.set(stage)
    await scene.refused(scene.peer(), "it is too large", "message_too_large", message="x" * 63_999 + "é")


@case(requirements=("RL-ENVELOPE-013",))
async def a_body_that_is_too_large_is_not_sent(stage: CallerStage) -> None:
    """A body that does not fit under the seal, by its arguments, is refused before anything is sent."""
    scene = await Scene.set(stage)
    await scene.refused(scene.peer(), "it is too large", task="big", args={"text": "x" * 400_000})


@case(requirements=("RL-ENVELOPE-050",))
async def an_empty_message_is_not_sent(stage: CallerStage) -> None:
    """A request with an empty message, without task and arguments, is refused before anything is sent."""
    scene = await Scene.set(stage)
    await scene.refused(scene.peer(), "it asks for nothing", message="")


@case(requirements=("RL-ENVELOPE-009", "RL-NAME-006", "RL-TRACE-006"))
async def nothing_of_one_request_is_in_another(stage: CallerStage) -> None:
    """Two calls of the same words have their own one-time key, message id and correlation id."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    seen: list[tuple[bytes, str, str]] = []
    for _ in range(2):
        order, taken = await scene.ring(bob, "again")
        frame = taken.frame
        seen.append((taken.opened.reply_public, frame.get("message_id", ""), frame["correlation_id"]))
        await taken.answer()
        await scene.replied(order)
    for what, one, other in zip(("one-time key", "message id", "correlation id"), *seen, strict=True):
        check(one != other, f"a {what} of its own for each call", "one and the same")


@case(requirements=("RL-ENVELOPE-015",))
async def a_sync_request_is_good_for_ten_minutes(stage: CallerStage) -> None:
    """A sync request runs out at most 10 minutes after it was sealed."""
    scene = await Scene.set(stage)
    order, taken = await scene.ring(scene.peer())
    life = taken.sealed.exp - taken.sealed.iat
    check(0 < life <= 10 * MINUTE, "exp at most 10 minutes after iat", f"{life} ms")
    await taken.answer()
    await scene.replied(order)


@case(requirements=("RL-ENVELOPE-015", "RL-FRAME-021"), needs=_DURABLE)
async def a_durable_request_is_good_for_three_days(stage: CallerStage) -> None:
    """A durable request names its message and runs out at most 72 hours after it was sealed."""
    scene = await Scene.set(stage)
    _, taken = await scene.left(scene.peer())
    life = taken.sealed.exp - taken.sealed.iat
    check(0 < life <= 72 * HOUR, "exp at most 72 h after iat", f"{life} ms")
    check(taken.frame.get("delivery_mode") == "durable", "a durable request", taken.frame)


@case(Level.SHOULD, requirements=("RL-ENVELOPE-004",))
async def the_hybrid_is_preferred(stage: CallerStage) -> None:
    """A callee with keys of both suites is sealed to by the hybrid."""
    scene = await Scene.set(stage)
    order, taken = await scene.ring(scene.peer(suites=(1, 2)))
    check(taken.sealed.suite == 2, "suite 2", f"suite {taken.sealed.suite}")
    await taken.answer()
    await scene.replied(order)


@case(requirements=("RL-ENVELOPE-008", "RL-KEYS-015"))
async def an_unknown_suite_is_passed_over(stage: CallerStage) -> None:
    """A prekey statement that names a suite of the future too is good, and a key of a known suite is used."""
    scene = await Scene.set(stage)
    bob = scene.peer(foreign_suites=(999,))
    order, taken = await scene.ring(bob)
    check(taken.sealed.suite == 1, "suite 1", f"suite {taken.sealed.suite}")
    await taken.answer()
    await scene.replied(order)


@case(requirements=("RL-ENVELOPE-008",))
async def without_a_known_suite_nothing_is_sealed(stage: CallerStage) -> None:
    """A callee whose prekeys are all of suites of the future is not sealed to."""
    scene = await Scene.set(stage)
    await scene.refused(scene.peer(suites=(), foreign_suites=(999,)), "no suite is in common")
