"""HTTP, EXT and TRACE: what a listener makes of what it does not know."""

from typing import Any

from ringline.conformance.listener_scene import Scene
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.registry import case
from ringline.conformance.stand_in import Asked
from ringline.conformance.verdict import Failed, check

__all__ = ["ignores_what_it_does_not_know", "stops_at_another_realm"]


@case(requirements=("RL-HTTP-003", "RL-EXT-012"))
async def ignores_what_it_does_not_know(stage: ListenerStage) -> None:
    """Members of answers and features of the relay that there are not yet change nothing."""
    scene = await Scene.set(stage, own=True)
    relay = scene.house.relay
    carol = scene.peer("carol")

    def answering(asked: Asked) -> tuple[int, Any] | None:
        match asked.method, asked.path:
            case "GET", "/v1/relay":
                return 200, relay.description() | {"features": ["made-up", "more-2"], "more": {"a": [1]}}
            case "GET", path if path == f"/v1/handles/{carol.handle}":
                return 200, {"handle": carol.handle, "revoked": [], "more": None, **carol.publication()}
            case "GET", path if path.endswith("/policy"):
                return 200, relay.policy | {"more": True}
            case _:
                return None

    relay.answering = answering
    await scene.house.stop()
    await scene.house.start()
    check("features" not in scene.house.query, "no feature asked for", scene.house.query)
    await scene.works(by=carol)


@case(requirements=("RL-HTTP-016",))
async def stops_at_another_realm(stage: ListenerStage) -> None:
    """A relay that says it is of another realm is told no key and sent no upgrade."""
    scene = await Scene.set(stage, own=True)
    relay = scene.house.relay
    await scene.house.stop()
    relay.answering = lambda asked: (
        (200, relay.description() | {"realm": "other.example"}) if asked.path == "/v1/relay" else None
    )
    before = len(relay.asked)
    process = await scene.house.spawn()
    await relay.until_asked("/v1/relay", 2, stage.patience.answer * 3)
    await process.wait(2.0)
    try:
        dialled = await relay.next_dialled(0.1)
    except Failed:
        dialled = None
    check(dialled is None, "no connection", "an upgrade")
    told = [f"{each.method} {each.path}" for each in relay.asked[before:] if each.path != "/v1/relay"]
    check(not told, "no other request than the one about the relay", told)
