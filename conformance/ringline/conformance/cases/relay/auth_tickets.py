"""Authentication: tickets, which stand in for tokens where no header can be sent."""

import secrets
from typing import Any

from ringline.conformance.identity import Identity
from ringline.conformance.registry import case
from ringline.conformance.relay_stage import RelayStage, listen_target
from ringline.conformance.verdict import check
from ringline.protocol.limits import TICKETS

__all__: list[str] = []

_CALLS = "/v1/calls"


async def _ticket(stage: RelayStage, who: Identity, target: str) -> str:
    answer = await stage.ask(who, "POST", "/v1/tickets", {"htu": target})
    check(answer.status == 201, "201 for a ticket", str(answer))
    shown: dict[str, Any] = answer.json()
    check(set(shown) == {"ticket", "expires_at"}, "ticket and expires_at", repr(sorted(shown)))
    life = shown["expires_at"] - who.now()
    check(0 < life <= 32_000, "a life of 30 s", f"{life} ms")
    ticket: str = shown["ticket"]
    return ticket


def _with(target: str, ticket: str) -> str:
    return f"{target}{'&' if '?' in target else '?'}ticket={ticket}"


@case(requirements=("RL-AUTH-027", "RL-AUTH-029"))
async def ticket_opens_its_path_once(stage: RelayStage) -> None:
    """A ticket opens the WebSocket that it was issued for, a caller's or a listener's, once."""
    bob = await stage.identity("bob")
    for target in (f"/v1/call/{bob.handle}", listen_target(bob)):
        ticket = await _ticket(stage, bob, target)
        first = await stage.upgrade(_with(target, ticket))
        check(first.status == 101, "101 with a ticket", str(first))
        second = await stage.upgrade(_with(target, ticket))
        check(second.status == 401, "401 with a used ticket", str(second))


@case(requirements=("RL-AUTH-027",))
async def ticket_is_for_websockets_only(stage: RelayStage) -> None:
    """A ticket is asked for with the path of a WebSocket and nothing else, else 400."""
    bob = await stage.identity("bob")
    call = f"/v1/call/{bob.handle}"
    bodies: list[object] = [{"htu": path} for path in ("/v1/calls", "", "/v1/call/B", f"http://x{call}")]
    bodies += [{}, {"htu": call, "more": 1}, {"htu": None}, [call]]
    for body in bodies:
        answer = await stage.ask(bob, "POST", "/v1/tickets", body)
        check(answer.status == 400, f"400 for {body}", str(answer))


@case(requirements=("RL-AUTH-028",))
async def ticket_opens_nothing_else(stage: RelayStage) -> None:
    """A ticket opens neither another path nor another query."""
    bob = await stage.identity("bob")
    target = listen_target(bob, capacity=1)
    ticket = await _ticket(stage, bob, target)
    others = (f"/v1/call/{bob.handle}", target.replace("capacity=1", "capacity=9"), f"{target}&durable=0")
    for other in others:
        answer = await stage.upgrade(_with(other, ticket))
        check(answer.status == 401, f"401 for {other}", str(answer))
    made_up = await stage.upgrade(_with(target, secrets.token_urlsafe(32)))
    check(made_up.status == 401, "401 for a ticket that nobody issued", str(made_up))


@case(requirements=("RL-AUTH-031",))
async def identity_holds_ten_tickets(stage: RelayStage) -> None:
    """An identity with 10 unused tickets is answered 429, and another is not."""
    alice, bob = await stage.identity("alice"), await stage.identity("bob")
    target = f"/v1/call/{bob.handle}"
    for _ in range(TICKETS):
        await _ticket(stage, alice, target)
    answer = await stage.ask(alice, "POST", "/v1/tickets", {"htu": target})
    check(answer.status == 429, "429", str(answer))
    await _ticket(stage, bob, target)


@case(requirements=("RL-AUTH-032",))
async def ticket_and_token_together_are_none(stage: RelayStage) -> None:
    """An upgrade with both a ticket and an `Authorization` header is refused."""
    bob = await stage.identity("bob")
    target = f"/v1/call/{bob.handle}"
    ticket = await _ticket(stage, bob, target)
    answer = await stage.upgrade(_with(target, ticket), bob.bearer("GET", target))
    check(answer.status == 401, "401", str(answer))


@case(requirements=("RL-AUTH-033",))
async def ticket_of_a_revoked_card_opens_nothing(stage: RelayStage) -> None:
    """A ticket whose card was revoked since is refused."""
    bob = await stage.identity("bob")
    target = f"/v1/call/{bob.handle}"
    ticket = await _ticket(stage, bob, target)
    await stage.ask(None, "POST", f"/v1/handles/{bob.handle}/revocations", bob.revocation())
    answer = await stage.upgrade(_with(target, ticket))
    check(answer.status == 401, "401", str(answer))
