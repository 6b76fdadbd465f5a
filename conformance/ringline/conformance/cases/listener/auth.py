"""AUTH: how a listener logs in, and where to it does not."""

import asyncio
import re
from typing import Any, Final

import msgspec

from ringline.conformance.listener_scene import Scene
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.registry import case
from ringline.conformance.stand_in import REALM, Asked, StandIn
from ringline.conformance.verdict import Failed, check
from ringline.protocol.encoding import b64decode, b64encode

__all__ = ["follows_no_redirect", "logs_in_everywhere", "mints_each_token_anew"]

_JTI: Final = re.compile(r"[A-Za-z0-9_-]{16,64}")


def _tokens(scene: Scene) -> list[tuple[Asked, dict[str, Any], dict[str, Any]]]:
    """Return each request that logged in, with the header and the claims of its token."""
    found: list[tuple[Asked, dict[str, Any], dict[str, Any]]] = []
    for asked in (*scene.house.relay.asked, *scene.house.relay.upgrades):
        kind, _, text = asked.headers.get("authorization", "").partition(" ")
        if text:
            check(kind == "Bearer", "a bearer token", kind)
            header, claims, _ = text.split(".")
            found.append(
                (asked, msgspec.json.decode(b64decode(header)), msgspec.json.decode(b64decode(claims)))
            )
    return found


@case(requirements=("RL-AUTH-001", "RL-AUTH-005"))
async def logs_in_everywhere(stage: ListenerStage) -> None:
    """Every request but those that are open to all, and every upgrade, logs in for its method and path."""
    scene = await Scene.set(stage, own=True)
    await scene.works()
    await scene.lose()
    relay = scene.house.relay
    for asked in (*relay.asked, *relay.upgrades):
        if asked.path != "/v1/relay":
            check("authorization" in asked.headers, f"a log-in with {asked.method} {asked.path}", "none")
    for asked, _, claims in _tokens(scene):
        check(claims["htm"] == asked.method, f"htm {asked.method}", claims)
        check(claims["htu"] == asked.path, f"htu {asked.path}", claims)


@case(requirements=("RL-AUTH-002", "RL-AUTH-004", "RL-AUTH-006"))
async def mints_each_token_anew(stage: ListenerStage) -> None:
    """A token has the header and claims of this protocol, the card's id, and a `jti` of its own."""
    scene = await Scene.set(stage, own=True)
    await scene.works()
    await scene.lose()
    card = b64encode(scene.house.published.card.card.id)
    tokens = _tokens(scene)
    for _, header, claims in tokens:
        check(header == {"alg": "EdDSA", "typ": "JWT", "kid": card}, "the header of its card", header)
        wanted = {"iss": scene.house.handle, "sub": card, "aud": REALM}
        check(wanted.items() <= claims.items(), f"the claims {wanted}", claims)
        check(_JTI.fullmatch(claims["jti"]) is not None, "a jti of 16 to 64 characters", claims)
    jtis = {claims["jti"] for _, _, claims in tokens}
    check(len(tokens) > 3 and len(jtis) == len(tokens), "a jti for each token", len(jtis))


@case(requirements=("RL-AUTH-026",))
async def follows_no_redirect(stage: ListenerStage) -> None:
    """A redirect is not followed: another place is not shown the token."""
    scene = await Scene.set(stage, own=True)
    async with StandIn(stage.timeline) as elsewhere:
        await scene.house.stop()
        relay = scene.house.relay

        redirected = asyncio.Event()

        def answering(asked: Asked) -> Any:
            if asked.path == "/v1/relay":
                return None
            redirected.set()
            return 307, None, {"Location": f"{elsewhere.url}{asked.target}"}

        relay.answering = relay.upgrading = answering
        process = await scene.house.spawn()
        async with asyncio.timeout(stage.patience.answer * 4):
            await redirected.wait()
        await process.wait(1.0)
        try:
            dialled = await elsewhere.next_dialled(0.1)
        except Failed:
            dialled = None
        told = [f"{asked.method} {asked.target}" for asked in elsewhere.asked]
        check(dialled is None and not told, "no request to another place", told or "an upgrade")
