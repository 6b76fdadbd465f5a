"""HTTP: what a caller asks of a relay before it believes that it has found the right one."""

from ringline.conformance.caller_scene import Scene
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.identity import now_ms
from ringline.conformance.registry import case
from ringline.conformance.stand_in import Asked, Told
from ringline.conformance.verdict import check

__all__: list[str] = []


def description(realm: str) -> dict[str, object]:
    """Return what a relay of a realm says of itself, with members that nobody knows."""
    return {
        "realm": realm,
        "version": "0",
        "protocols": ["ringline.v1", "ringline.v9"],
        "suites": [1, 2, 999],
        "features": ["of-the-future"],
        "limits": {"unheard_of": 1},
        "budgets": {},
        "started_at": now_ms() - 60_000,
        "colour": "green",
    }


@case(requirements=("RL-HTTP-016", "RL-NAME-002"))
async def a_relay_of_another_realm_is_told_nothing(stage: CallerStage) -> None:
    """A relay that says it is of another realm than the configured one is sent no key, token or call."""
    scene = await Scene.set(stage, own=True)
    relay = scene.house.relay

    def stranger(asked: Asked) -> Told | None:
        return (200, description("relay.example")) if asked.path == "/v1/relay" else None

    relay.answering = stranger
    await scene.refused(scene.peer(), "the relay is of another realm")
    told = [asked.target for asked in [*relay.asked, *relay.upgrades] if asked.path != "/v1/relay"]
    check(not told, "nothing but GET /v1/relay", told)


@case(requirements=("RL-HTTP-003",))
async def a_relay_may_say_more_of_itself(stage: CallerStage) -> None:
    """Members and words that a caller does not know, in the relay's description, do no harm."""
    scene = await Scene.set(stage, own=True)
    relay = scene.house.relay
    answering = relay.answering

    def talkative(asked: Asked) -> Told | None:
        return (200, description("localhost")) if asked.path == "/v1/relay" else answering(asked)

    relay.answering = talkative
    order, taken = await scene.ring(scene.peer())
    await taken.answer()
    await scene.replied(order)
