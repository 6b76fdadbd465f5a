"""AUTH: how a caller logs in, and what it makes of a relay with another time or another place."""

import time
from typing import Final

from ringline.conformance.caller_scene import Scene
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.identity import now_ms
from ringline.conformance.registry import Level, case
from ringline.conformance.stand_in import Asked, StandIn, Told, problem
from ringline.conformance.verdict import check
from ringline.protocol import token

__all__: list[str] = []

HOUR_S: Final = 3_600.0
PUBLIC: Final = "/v1/relay"


def claims_of(asked: Asked) -> token.Claims:
    """Return what the token of a request says."""
    return token.parse(asked.headers.get("authorization", "").removeprefix("Bearer "))


@case(
    requirements=(
        "RL-AUTH-001",
        "RL-AUTH-002",
        "RL-AUTH-003",
        "RL-AUTH-004",
        "RL-AUTH-005",
        "RL-AUTH-006",
        "RL-AUTH-007",
    )
)
async def every_request_has_a_token_of_its_own(stage: CallerStage) -> None:
    """Every request but the public one carries a token for it alone, signed by the published card's key."""
    scene = await Scene.set(stage, own=True)
    bob = scene.peer()
    order, taken = await scene.ring(bob)
    scene.records[taken.call_id] = taken.record("started", ended=False)
    for _ in range(2):
        # A call whose connection is lost is asked about before it is sent again.
        call_id = taken.call_id
        await taken.line.break_off()
        taken = await scene.request(order, bob)
        taken.call_id = call_id
        await taken.status("working")
    await taken.answer()
    await scene.replied(order)
    # What is wrong with a token is noticed where it is received.
    relay = scene.house.relay
    for asked in [*relay.asked, *relay.upgrades]:
        if asked.path != PUBLIC:
            check(asked.iss == scene.house.handle, f"a log-in with {asked.method} {asked.target}", asked.iss)
            life = claims_of(asked).exp - claims_of(asked).iat
            check(0 < life <= 60, "exp at most 60 s after iat", f"{life} s")
    check(bool(relay.upgrades), "a WebSocket", "none")


@case(Level.SHOULD, requirements=("RL-AUTH-023", "RL-AUTH-024"))
async def the_time_is_taken_from_the_relay(stage: CallerStage) -> None:
    """After a 401 the time of the relay is taken from its `Date`, for tokens and envelopes."""
    scene = await Scene.set(stage, own=True)
    bob = scene.peer()
    relay = scene.house.relay
    relay.clock_ahead_s = 6 * HOUR_S
    answering = relay.answering

    def judging(asked: Asked) -> Told | None:
        if asked.path == PUBLIC or abs(claims_of(asked).iat - time.time() - relay.clock_ahead_s) <= 120:
            return None
        return 401, problem(401, "unauthorized")

    relay.answering = lambda asked: judging(asked) or answering(asked)
    relay.upgrading = judging
    order, taken = await scene.ring(bob)
    ahead = (taken.sealed.iat - now_ms()) / 1_000
    check(abs(ahead - 6 * HOUR_S) < 120, "an iat by the relay's clock", f"{ahead:.0f} s ahead")
    await taken.answer()
    await scene.replied(order)


@case(Level.SHOULD, requirements=("RL-AUTH-023",))
async def the_time_is_taken_from_a_handshake(stage: CallerStage) -> None:
    """A handshake that is answered 401 is tried once more with the time of that answer."""
    scene = await Scene.set(stage, own=True)
    bob = scene.peer()
    relay = scene.house.relay
    first, other = await scene.ring(bob, "before")
    await other.answer()
    await scene.replied(first)
    relay.clock_ahead_s = HOUR_S

    def judging(asked: Asked) -> Told | None:
        right = abs(claims_of(asked).iat - time.time() - HOUR_S) <= 120
        return None if right else (401, problem(401, "unauthorized"))

    relay.upgrading = judging
    order, taken = await scene.ring(scene.peer())
    await taken.answer()
    await scene.replied(order)


@case(requirements=("RL-AUTH-026",))
async def a_redirect_is_not_followed(stage: CallerStage) -> None:
    """A request or a handshake that is redirected takes its token nowhere."""
    scene = await Scene.set(stage, own=True)
    async with StandIn(stage.timeline) as elsewhere:
        relay = scene.house.relay
        bob, carol = scene.peer(), scene.peer("carol")
        answering = relay.answering

        def redirecting(asked: Asked) -> Told | None:
            to = {"Location": f"{elsewhere.url}{asked.target}"}
            return (307, None, to) if asked.path == f"/v1/handles/{carol.handle}" else answering(asked)

        relay.answering = redirecting
        relay.upgrading = lambda asked: (307, None, {"Location": f"{elsewhere.url}{asked.target}"})
        for peer in (bob, carol):
            order = await scene.call(peer, timeout_ms=3_000)
            said = await order.end(scene.patient * 2)
            check(said["end"] in ("local", "relay"), "an error", said)
        went = [*elsewhere.asked, *elsewhere.upgrades]
        check(not went, "no request to another place", [asked.target for asked in went])
