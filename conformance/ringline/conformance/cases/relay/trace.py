"""Trace context: what of a `traceparent` reaches the listener."""

from ringline.conformance.identity import fresh_id
from ringline.conformance.registry import case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage

__all__: list[str] = []

_SPAN = "00f067aa0ba902b7"


async def _forwarded(scene: Scene, correlation_id: str, given: str, wanted: str | None) -> None:
    """Pass when a request with this `traceparent` is offered with ``wanted``, None for none."""
    await scene.send_request(correlation_id=correlation_id, traceparent=given)
    status = await scene.caller.expect("call_status", state="ringing", correlation_id=correlation_id)
    await scene.listener.expect("incoming_call", call_id=status["call_id"], traceparent=wanted)
    await scene.report("call_rejected", status["call_id"], code="protocol_error")
    await scene.caller.expect("call_error", call_id=status["call_id"])


@case(requirements=("RL-TRACE-001",))
async def good_traceparent_is_forwarded_with_the_sampled_bit(stage: RelayStage) -> None:
    """A `traceparent` of version 00 and the call's trace is forwarded, of its flags the sampled bit."""
    scene = await Scene.set(stage)
    for given, wanted in (("00", "00"), ("01", "01"), ("ff", "01"), ("fe", "00"), ("03", "01")):
        trace = fresh_id()
        await _forwarded(scene, trace, f"00-{trace}-{_SPAN}-{given}", f"00-{trace}-{_SPAN}-{wanted}")


@case(requirements=("RL-TRACE-002",))
async def higher_version_is_forwarded_as_00(stage: RelayStage) -> None:
    """A `traceparent` of a higher version that begins like version 00 is forwarded as version 00."""
    scene = await Scene.set(stage)
    for version, rest in (("01", ""), ("cc", ""), ("fe", "-what-the-future-will-be-like")):
        trace = fresh_id()
        await _forwarded(scene, trace, f"{version}-{trace}-{_SPAN}-01{rest}", f"00-{trace}-{_SPAN}-01")


@case(requirements=("RL-TRACE-003",))
async def any_other_traceparent_is_dropped_and_the_call_goes_on(stage: RelayStage) -> None:
    """A `traceparent` of another trace, or in another form, is dropped; the call is handed out without."""
    scene = await Scene.set(stage)
    for form in (
        "",
        "x",
        "00-{trace}",
        "00-{trace}-{span}",
        "00-{trace}-{span}-01-more",
        "00-{trace}-{span}-01\n",
        " 00-{trace}-{span}-01",
        "00-{other}-{span}-01",
        "00-{trace}-0000000000000000-01",
        "00-{upper}-{span}-01",
        "00-{trace}-{span}-0G",
        "00-{trace}-{span}-1",
        "ff-{trace}-{span}-01",
        "01-{trace}-{span}-01x",
        "0-{trace}-{span}-01",
    ):
        trace = fresh_id()[:-1] + "a"
        given = form.format(trace=trace, span=_SPAN, other=fresh_id(), upper=trace.upper())
        await _forwarded(scene, trace, given, None)


@case(requirements=("RL-TRACE-004",))
async def long_traceparent_is_dropped(stage: RelayStage) -> None:
    """A `traceparent` of more than 512 bytes is dropped, and one of 512 is not."""
    scene = await Scene.set(stage)
    for size, kept in ((512, True), (513, False), (60_000, False)):
        trace = fresh_id()
        head = f"cc-{trace}-{_SPAN}-01-"
        wanted = f"00-{trace}-{_SPAN}-01" if kept else None
        await _forwarded(scene, trace, head + "x" * (size - len(head)), wanted)


@case(requirements=("RL-TRACE-005",))
async def traceparent_is_a_string(stage: RelayStage) -> None:
    """A frame whose `traceparent` is no string is refused."""
    scene = await Scene.set(stage)
    values: tuple[object, ...] = (1, True, ["x"], {"x": 1}, None)
    for value in values:
        await scene.send_request(traceparent=value)
        await scene.caller.refused()
    await scene.listener.quiet("each was refused")
