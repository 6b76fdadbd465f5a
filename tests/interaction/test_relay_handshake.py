"""The opening handshake over both edges: who comes in, in which order it is judged, what a no looks like."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from ringline.protocol.identity import next_commitment
from ringline.protocol.signing import SigningKey
from ringline.relay.server import RelayServer
from ringline_testing import raw_peer
from ringline_testing.relay import running_relay
from ringline_testing.signed import Answer, Owner, exchange

EDGES = ("picows", "websockets")
SUBPROTOCOL = ("Sec-WebSocket-Protocol", "ringline.v1")


@pytest.fixture(params=EDGES)
async def relay(request: pytest.FixtureRequest) -> AsyncGenerator[RelayServer]:
    async with running_relay(edge=request.param) as relay:
        yield relay


async def upgrade(
    relay: RelayServer,
    target: str,
    *headers: tuple[str, str],
    subprotocol: bool = True,
    host: str | None = None,
    method: str = "GET",
) -> Answer:
    """Ask for an upgrade and return the answer, refusal or not."""
    sent = (
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", raw_peer.KEY),
        *([SUBPROTOCOL] if subprotocol else []),
        *headers,
    )
    return await exchange(relay.port, method, target, headers=sent, host=host)


def bearer(owner: Owner, target: str, **changes: Any) -> tuple[str, str]:
    """Return the header that logs in for ``target``."""
    arguments: dict[str, Any] = {"method": "GET", "path": target.partition("?")[0]}
    return ("Authorization", f"Bearer {owner.token(**(arguments | changes))}")


async def test_both_roles_come_in(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    for target in ("/v1/call/bob", bob.listen_target()):
        answer = await upgrade(relay, target, bearer(bob, target))
        assert answer.status == 101
        assert answer.header("sec-websocket-protocol") == "ringline.v1"
        assert answer.header("sec-websocket-extensions") is None


async def test_a_callers_handshake_does_not_look_at_its_target(relay: RelayServer) -> None:
    alice = await Owner.enrolled("alice", relay.port)
    await Owner.enrolled("bob", relay.port)
    answers: list[Answer] = []
    for target in ("/v1/call/bob", "/v1/call/nobody"):
        answers.append(await upgrade(relay, target, bearer(alice, target)))
    assert [answer.status for answer in answers] == [101, 101]
    assert answers[0].without_date() == answers[1].without_date()


@pytest.mark.parametrize(
    "target", ["/v1/call/B", "/v1/call/-x", "/v1/call/%62ob", "/v1/call/bob/", "/v1/relay"]
)
async def test_a_malformed_handle_or_another_path_is_not_found(relay: RelayServer, target: str) -> None:
    alice = await Owner.enrolled("alice", relay.port)
    answer = await upgrade(relay, target, ("Authorization", f"Bearer {alice.token('GET', '/v1/relay')}"))
    missing = await exchange(relay.port, "GET", "/nowhere")
    assert (answer.status, answer.body) == (404, missing.body)


async def test_every_failed_log_in_gets_the_same_bytes(relay: RelayServer) -> None:
    alice, bob = await Owner.enrolled("alice", relay.port), await Owner.enrolled("bob", relay.port)
    stranger = Owner(handle="stranger", port=relay.port)
    target, own = "/v1/call/bob", bob.listen_target()
    used = bearer(alice, target)
    assert (await upgrade(relay, target, used)).status == 101
    iat = int(relay.options.clock().wall / 1000)
    answers = {
        "no token": await upgrade(relay, target),
        "no token at a listener": await upgrade(relay, own),
        "not a token": await upgrade(relay, target, ("Authorization", "Bearer x.y.z")),
        "two tokens": await upgrade(relay, target, bearer(alice, target), bearer(alice, target)),
        "used": await upgrade(relay, target, used),
        "expired": await upgrade(relay, target, bearer(alice, target, iat=iat - 200)),
        "early": await upgrade(relay, target, bearer(alice, target, iat=iat + 200)),
        "another realm": await upgrade(relay, target, bearer(alice, target, realm="relay.example")),
        "another path": await upgrade(relay, target, bearer(alice, "/v1/call/alice")),
        "another method": await upgrade(relay, target, bearer(alice, target, method="POST")),
        "not enrolled": await upgrade(relay, target, bearer(stranger, target)),
        "another card": await upgrade(relay, target, bearer(alice.renewed(), target)),
        "another's mailbox": await upgrade(relay, own, bearer(alice, own)),
        "no such ticket": await upgrade(relay, f"{target}?ticket=x"),
        "ticket and token": await upgrade(relay, f"{target}?ticket=x", bearer(alice, target)),
    }
    # The next card's token is well made, but its card was never published.
    assert {answer.status for answer in answers.values()} == {401}
    assert len({answer.without_date() for answer in answers.values()}) == 1
    http = await exchange(relay.port, "GET", "/v1/calls")
    assert http.body == answers["no token"].body
    named = {"content-type", "www-authenticate", "cache-control", "date"}
    for answer in (http, answers["no token"]):
        assert {name for name, _ in answer.headers} >= named
        assert answer.header("www-authenticate") == "Bearer"


async def test_only_a_fully_verified_token_is_used_up(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    await Owner.enrolled("alice", relay.port)
    target = "/v1/call/bob"
    token = bearer(bob, target)
    assert (await upgrade(relay, "/v1/call/alice", token)).status == 401
    assert (await upgrade(relay, target, token, token)).status == 401
    # The subprotocol is looked at behind the token, so now it is used up.
    assert (await upgrade(relay, target, token, subprotocol=False)).status == 400
    assert (await upgrade(relay, target, token)).status == 401


async def test_the_token_is_judged_first_then_the_subprotocol_then_the_query_then_limits(
    relay: RelayServer,
) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    bad = f"/v1/listen/bob?instance=x&boot={uuid4()}&capacity=1"
    assert (await upgrade(relay, bad, subprotocol=False)).status == 401
    no_subprotocol = await upgrade(relay, bad, bearer(bob, bad), subprotocol=False)
    assert (no_subprotocol.status, "subprotocol" in no_subprotocol.json()["detail"]) == (400, True)
    query = await upgrade(relay, bad, bearer(bob, bad))
    assert (query.status, "instance" in query.json()["detail"]) == (400, True)


async def test_a_subprotocol_among_others_is_found(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    target = "/v1/call/bob"
    others = ("Sec-WebSocket-Protocol", "chat, ringline.v1"), ("Sec-WebSocket-Protocol", "ringline.v2")
    answer = await upgrade(relay, target, bearer(bob, target), *others, subprotocol=False)
    assert (answer.status, answer.header("sec-websocket-protocol")) == (101, "ringline.v1")
    other = ("Sec-WebSocket-Protocol", "ringline.v2, RINGLINE.V1")
    assert (await upgrade(relay, target, bearer(bob, target), other, subprotocol=False)).status == 400


INSTANCE, BOOT = "0b0e5f0c-8c53-4a55-a8f7-1f3a5d9d7c11", "5f3c7b60-9c1b-4b4e-8a2e-2f6d1c0a9e22"
GOOD = f"instance={INSTANCE}&boot={BOOT}&capacity=1"


LISTENER_QUERIES = (
    (GOOD, 101),
    (GOOD.replace("capacity=1", "capacity=1000"), 101),
    (f"{GOOD}&durable=0", 101),
    (f"capacity=7&boot={BOOT}&instance={INSTANCE}", 101),
    ("", 400),
    (f"boot={BOOT}&capacity=1", 400),
    (f"instance={INSTANCE}&capacity=1", 400),
    (f"instance={INSTANCE}&boot={BOOT}", 400),
    (f"{GOOD}&instance={INSTANCE}", 400),
    (f"{GOOD}&capacity=1", 400),
    (f"{GOOD}&colour=red", 400),
    (f"{GOOD}&", 400),
    (f"&{GOOD}", 400),
    (f"{GOOD}&durable", 400),
    (f"{GOOD}&durable=", 400),
    (f"{GOOD}&durable=1", 400),
    (f"{GOOD}&durable=0&durable=0", 400),
    (GOOD.replace("capacity=1", "capacity=0"), 400),
    (GOOD.replace("capacity=1", "capacity=1001"), 400),
    (GOOD.replace("capacity=1", "capacity=01"), 400),
    (GOOD.replace("capacity=1", "capacity=-1"), 400),
    (GOOD.replace("capacity=1", "capacity=1.0"), 400),
    (GOOD.replace("capacity=1", "capacity=+1"), 400),
    (GOOD.replace("capacity=1", "capacity="), 400),
    (GOOD.replace("capacity=1", "capacity=%31%0A"), 400),
    (GOOD.replace(INSTANCE, INSTANCE.upper()), 400),
    (GOOD.replace(INSTANCE, INSTANCE.replace("-", "")), 400),
    (GOOD.replace(INSTANCE, INSTANCE.replace("-4a55", "-1a55")), 400),
    (GOOD.replace(BOOT, "x"), 400),
    (f"{GOOD}&features=durable", 400),
    (f"{GOOD}&features=", 400),
    (f"{GOOD}&x=%FF", 400),
)


async def test_a_listeners_query_is_strict(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    for query, status in LISTENER_QUERIES:
        target = "/v1/listen/bob" + (f"?{query}" if query else "")
        answer = await upgrade(relay, target, bearer(bob, target))
        assert answer.status == status, query
        if status == 400:
            assert answer.json()["code"] == "malformed"


async def test_a_callers_query_is_strict(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    for query, status in {"": 101, "features=x": 400, "features=": 400, "x=1": 400, "x": 400}.items():
        target = "/v1/call/bob" + (f"?{query}" if query else "")
        assert (await upgrade(relay, target, bearer(bob, target))).status == status, query


async def test_one_identity_has_so_many_connections_and_no_more() -> None:
    async with running_relay(settings={"connections_per_identity": 2}) as relay:
        bob, alice = await Owner.enrolled("bob", relay.port), await Owner.enrolled("alice", relay.port)
        async with bob.calling("alice") as line, bob.listening():
            answer = await upgrade(relay, "/v1/call/bob", bearer(bob, "/v1/call/bob"))
            assert (answer.status, answer.json()["code"]) == (429, "rate_limited")
            assert answer.header("retry-after") == "1"
            own = bob.listen_target()
            assert (await upgrade(relay, own, bearer(bob, own))).status == 429
            # The query is looked at before the limits.
            bad = "/v1/call/bob?x=1"
            assert (await upgrade(relay, bad, bearer(bob, bad))).status == 400
            async with alice.calling("bob"):
                pass
            await line.socket.close()
            async with bob.calling("bob"):
                pass


# --- tickets


async def buy(owner: Owner, target: str) -> str:
    """Buy a ticket."""
    answer = await owner.ask("POST", "/v1/tickets", {"htu": target})
    assert answer.status == 201, answer
    ticket: str = answer.json()["ticket"]
    return ticket


async def test_a_ticket_opens_its_path_and_query_once(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    for target in ("/v1/call/bob", bob.listen_target()):
        ticket = await buy(bob, target)
        shown = f"{target}{'&' if '?' in target else '?'}ticket={ticket}"
        assert (await upgrade(relay, shown)).status == 101
        assert (await upgrade(relay, shown)).status == 401


async def test_a_ticket_opens_nothing_else(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    await Owner.enrolled("alice", relay.port)
    ticket = await buy(bob, "/v1/call/bob")
    for target in ("/v1/call/alice", "/v1/call/bob?features=x"):
        shown = f"{target}{'&' if '?' in target else '?'}ticket={ticket}"
        assert (await upgrade(relay, shown)).status == 401
    assert (await upgrade(relay, f"/v1/call/bob?ticket={ticket}")).status == 101


async def test_two_log_ins_at_once_are_none(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    ticket = await buy(bob, "/v1/call/bob")
    token = bearer(bob, "/v1/call/bob")
    assert (await upgrade(relay, f"/v1/call/bob?ticket={ticket}", token)).status == 401
    assert (await upgrade(relay, f"/v1/call/bob?ticket={ticket}&ticket={ticket}")).status == 401
    # Neither was used up.
    assert (await upgrade(relay, f"/v1/call/bob?ticket={ticket}")).status == 101
    assert (await upgrade(relay, "/v1/call/bob", token)).status == 101


async def test_a_ticket_for_anothers_mailbox_opens_nothing(relay: RelayServer) -> None:
    bob, alice = await Owner.enrolled("bob", relay.port), await Owner.enrolled("alice", relay.port)
    target = bob.listen_target()
    ticket = await buy(alice, target)
    assert (await upgrade(relay, f"{target}&ticket={ticket}")).status == 401


async def test_a_ticket_is_worth_nothing_once_its_card_is_revoked(relay: RelayServer) -> None:
    new = SigningKey.generate()
    bob = await Owner.enrolled("bob", relay.port, next=next_commitment(new.public))
    ticket = await buy(bob, "/v1/call/bob")
    revocation = bob.revocation(by="next", key=new)
    assert (await bob.ask("POST", "/v1/handles/bob/revocations", revocation)).status == 201
    assert (await upgrade(relay, f"/v1/call/bob?ticket={ticket}")).status == 401


async def test_a_tickets_handshake_is_as_strict_as_any(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    ticket = await buy(bob, "/v1/call/bob?x=1")
    assert (await upgrade(relay, f"/v1/call/bob?x=1&ticket={ticket}")).status == 400
    ticket = await buy(bob, "/v1/call/bob")
    assert (await upgrade(relay, f"/v1/call/bob?ticket={ticket}", subprotocol=False)).status == 400


# --- pages and names


PLACES = (
    (None, None, 101),
    (None, "http://127.0.0.1:{port}", 101),
    ("localhost:{port}", "http://localhost:{port}", 101),
    (None, "http://localhost:{port}", 403),
    (None, "https://evil.example", 403),
    (None, "null", 403),
    (None, "http://127.0.0.1.evil.example", 403),
    ("evil.example", None, 403),
    ("evil.example", "http://evil.example", 403),
    ("127.0.0.1.evil.example:{port}", None, 403),
)


async def test_foreign_pages_and_names_are_refused_before_anything_else(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    target = "/v1/call/bob"
    for host, origin, status in PLACES:
        token = bearer(bob, target)
        named = host and host.format(port=relay.port)
        extra = [("Origin", origin.format(port=relay.port))] if origin else []
        answer = await upgrade(relay, target, token, *extra, host=named)
        assert answer.status == status, (host, origin)
        if status == 403:
            # The token was not looked at.
            assert (await upgrade(relay, target, token)).status == 101
            http = await exchange(relay.port, "GET", "/v1/relay", headers=tuple(extra), host=named)
            assert (http.status, http.body) == (403, answer.body)


# --- revocation and replacement of what logged in


async def test_revocation_ends_the_cards_connections_and_no_others(relay: RelayServer) -> None:
    bob, alice = await Owner.enrolled("bob", relay.port), await Owner.enrolled("alice", relay.port)
    renewed = bob.renewed()
    assert (await renewed.publish()).status == 200
    async with (
        bob.calling("alice") as caller,
        bob.listening() as listener,
        renewed.calling("alice") as later,
        alice.calling("bob") as other,
    ):
        answer = await exchange(
            relay.port,
            "POST",
            "/v1/handles/bob/revocations",
            body=msgspec.json.encode(bob.revocation()),
        )
        assert answer.status == 201
        assert await caller.closed() == (4001, "revoked")
        assert await listener.closed() == (4001, "revoked")
        for line in (later, other):
            await line.send({"type": "call_request"})
            assert (await line.next())["code"] == "protocol_error"
    assert (await upgrade(relay, "/v1/call/bob", bearer(bob, "/v1/call/bob"))).status == 401
    assert (await upgrade(relay, "/v1/call/bob", bearer(renewed, "/v1/call/bob"))).status == 101


async def test_an_ordinary_rotation_closes_nothing(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    async with bob.calling("bob") as line:
        renewed = bob.renewed()
        assert (await renewed.publish()).status == 200
        await line.send({"type": "call_request"})
        assert (await line.next())["code"] == "protocol_error"
        async with bob.calling("bob"), renewed.calling("bob"):
            pass


@pytest.mark.parametrize("edge", EDGES)
async def test_some_refusals_leave_a_while_after_their_request_was_read(edge: str) -> None:
    """Asked in this order, answered in that one: the timed refusals come behind an untimed one."""
    async with running_relay(edge=edge, settings={"unknown_handle_release_ms": 1_000}) as relay:
        await _ask_in_order(relay)


async def _ask_in_order(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    order: list[str] = []

    async def ask(name: str, peer: raw_peer.RawPeer) -> None:
        answer = await peer.response()
        order.append(f"{name} {answer.status}")

    names = ("401", "403", "404", "400")
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        peers = [await asyncio.open_connection("127.0.0.1", relay.port) for _ in names]
        raw = [raw_peer.RawPeer(*pair) for pair in peers]
        target = "/v1/call/bob"
        raw[0].request(target)
        raw[1].request(target, headers=[("Origin", "null")])
        raw[2].request("/nowhere")
        # Two signatures are checked for this one, and still it is out first.
        raw[3].request(target, headers=[bearer(bob, target)])
        for name, peer in zip(names, raw, strict=True):
            tasks.create_task(ask(name, peer))
    for peer in raw:
        await peer.hang_up()
    assert order[0] == "400 400"
    assert sorted(order[1:]) == ["401 401", "403 403", "404 404"]
