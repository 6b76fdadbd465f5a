"""The HTTP interface of a running relay."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from ringline.protocol.encoding import b64encode
from ringline.protocol.identity import next_commitment
from ringline.protocol.instant import Instant
from ringline.protocol.limits import CARD_GRACE_MS, CARD_LOGIN_GRACE_MS
from ringline.protocol.signing import SigningKey
from ringline.relay.clock import system_clock
from ringline.relay.server import RelayServer
from ringline.relay.settings import Settings
from ringline_testing.relay import running_relay
from ringline_testing.signed import Answer, Owner, exchange

IDENTITY_POINT = b"\x01" + bytes(31)
HOUR = 3_600_000


@pytest.fixture
async def relay() -> AsyncGenerator[RelayServer]:
    async with running_relay() as relay:
        yield relay


class ShiftedClock:
    """The machine's clock, some time later; the test says how much."""

    def __init__(self) -> None:
        self.ahead = 0

    def __call__(self) -> Instant:
        return system_clock().later(self.ahead)


def is_problem(answer: Answer, status: int, code: str) -> bool:
    """True for a problem document that says the same in head and body (RFC 9457)."""
    problem = answer.json()
    return (
        (answer.status, problem["status"], problem["code"]) == (status, status, code)
        and answer.header("content-type") == "application/problem+json"
        and {"type", "title"}
        <= problem.keys()
        <= {"type", "title", "status", "code", "detail", "retry_after_ms"}
    )


# --- public routes


async def test_a_relay_says_what_it_is(relay: RelayServer) -> None:
    answer = await exchange(relay.port, "GET", "/v1/relay")
    settings = relay.options.settings
    info = answer.json()
    assert info["limits"] == settings.limits()
    assert info["budgets"] == settings.budgets()
    assert (info["realm"], info["protocols"], info["suites"]) == ("localhost", ["ringline.v1"], [1, 2])
    assert info["features"] == []
    assert abs(info["started_at"] - system_clock().wall) < 600_000
    assert set(info) == {
        "realm", "version", "protocols", "suites", "features", "limits", "budgets", "started_at",
    }  # fmt: skip


async def test_settings_of_the_operator_are_shown() -> None:
    settings = Settings().with_values({"CALLS_PER_HOUR": "7", "RING_BOUND_MS": "1234"})
    async with running_relay(settings=settings) as relay:
        info = (await exchange(relay.port, "GET", "/v1/relay")).json()
    assert (info["budgets"]["calls_per_hour"], info["limits"]["ring_bound_ms"]) == (7, 1234)


async def test_a_relay_says_that_it_is_well(relay: RelayServer) -> None:
    health = await exchange(relay.port, "GET", "/healthz")
    assert (health.status, health.json()) == (200, {"status": "ok"})
    ready = await exchange(relay.port, "GET", "/readyz")
    assert (ready.status, ready.json()) == (200, {"ready": True, "reasons": [], "warnings": []})


async def test_a_proxys_guests_get_no_details(relay: RelayServer) -> None:
    forwarded = {"X-Forwarded-For": "203.0.113.7"}
    assert (await exchange(relay.port, "GET", "/readyz", headers=forwarded)).json() == {"ready": True}


async def test_answers_carry_a_date_and_no_name_of_a_server(relay: RelayServer) -> None:
    for target in ("/v1/relay", "/v1/calls", "/nowhere"):
        answer = await exchange(relay.port, "GET", target)
        assert answer.header("date") is not None
        assert answer.header("server") is None
        assert len([name for name, _ in answer.headers if name == "date"]) == 1


async def test_the_date_is_that_of_the_relays_clock() -> None:
    clock = ShiftedClock()
    clock.ahead = -20 * 365 * 24 * HOUR
    async with running_relay(clock=clock) as relay:
        date = (await exchange(relay.port, "GET", "/v1/calls")).header("date")
    assert date is not None
    assert f" {1970 + clock().wall // (365 * 24 * HOUR)}"[:3] in date


# --- methods, paths, queries, bodies


async def test_head_is_a_get_without_its_body(relay: RelayServer) -> None:
    get = await exchange(relay.port, "GET", "/v1/relay")
    head = await exchange(relay.port, "HEAD", "/v1/relay")
    assert head.without_date()[:2] == get.without_date()[:2]
    bob = await Owner.enrolled("bob", relay.port)
    assert (await bob.ask("HEAD", "/v1/handles/bob")).status == 200
    assert (await bob.ask("HEAD", "/v1/handles/nobody")).status == 404


async def test_a_method_that_a_route_does_not_have(relay: RelayServer) -> None:
    allowed = {
        "/v1/relay": ("POST", "GET, HEAD"),
        "/v1/handles/bob": ("POST", "DELETE, GET, HEAD, PUT"),
        "/v1/invites": ("DELETE", "GET, HEAD, POST"),
        "/v1/invites/x": ("GET", "DELETE"),
        "/v1/handles/bob/prekeys": ("GET", "PUT"),
        "/v1/tickets": ("GET", "POST"),
        "/v1/call/bob": ("POST", "GET, HEAD"),
    }
    for path, (method, allow) in allowed.items():
        answer = await exchange(relay.port, method, path)
        assert (answer.status, answer.header("allow")) == (405, allow), path
        assert is_problem(answer, 405, "malformed")


async def test_options_tells_methods_and_shares_nothing(relay: RelayServer) -> None:
    asked = {"Access-Control-Request-Method": "PUT"}
    answer = await exchange(relay.port, "OPTIONS", "/v1/handles/bob", headers=asked)
    assert (answer.status, answer.header("allow")) == (204, "GET, HEAD, PUT, POST, DELETE, OPTIONS")
    assert not [name for name, _ in answer.headers if name.startswith("access-control")]


async def test_listed_pages_and_no_others_may_read_answers() -> None:
    listed = "https://console.example"
    async with running_relay(origins=(listed,)) as relay:
        answer = await exchange(relay.port, "GET", "/v1/relay", headers={"Origin": listed})
        assert answer.header("access-control-allow-origin") == listed
        assert answer.header("vary") == "Origin"
        asked = {"Origin": listed, "Access-Control-Request-Method": "PUT"}
        preflight = await exchange(relay.port, "OPTIONS", "/v1/handles/bob", headers=asked)
        assert preflight.header("access-control-allow-origin") == listed
        assert preflight.header("access-control-allow-headers") == "Authorization, Content-Type"
        own = f"http://127.0.0.1:{relay.port}"
        answer = await exchange(relay.port, "GET", "/v1/relay", headers={"Origin": own})
        assert (answer.status, answer.header("access-control-allow-origin")) == (200, None)
        assert (await exchange(relay.port, "GET", "/v1/relay", headers={"Origin": "null"})).status == 403


async def test_whatever_is_missing_is_missing_in_the_same_bytes(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    alice = await Owner.enrolled("alice", relay.port)
    closed: dict[str, Any] = {"offline": False, "accept": "listed", "allow": [], "block": []}
    assert (await alice.ask("PUT", "/v1/handles/alice/policy", closed)).status == 200
    answers = [
        await exchange(relay.port, "GET", "/nowhere"),
        await exchange(relay.port, "GET", "/v1/"),
        await exchange(relay.port, "GET", "/v1/relay/"),
        await exchange(relay.port, "GET", "/v1/rel%61y"),
        await bob.ask("GET", "/v1/handles/nobody"),
        await bob.ask("GET", "/v1/handles/alice"),
        await bob.ask("GET", f"/v1/handles/alice?card={alice.card_id}"),
        await bob.ask("GET", f"/v1/handles/bob?card={alice.card_id}"),
        await bob.ask("GET", "/v1/handles/NOBODY"),
        await bob.ask("GET", "/v1/handles/x"),
        await bob.ask("GET", "/v1/calls/none"),
        await bob.ask("GET", "/v1/calls/none?wait=50"),
        await bob.ask("POST", "/v1/calls/none/ack"),
        await bob.ask("POST", "/v1/calls/none/replay"),
        await bob.ask("PUT", "/v1/handles/B/policy", closed),
        await exchange(relay.port, "PUT", "/v1/handles/B", body=b"{}"),
        await exchange(
            relay.port, "POST", "/v1/handles/none/revocations", body=msgspec.json.encode(bob.revocation())
        ),
        await exchange(
            relay.port, "POST", "/v1/handles/alice/revocations", body=msgspec.json.encode(bob.revocation())
        ),
    ]
    assert {answer.status for answer in answers} == {404}
    assert len({answer.without_date() for answer in answers}) == 1


async def test_queries_are_closed(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    for target in (
        "/v1/relay?x=1",
        "/v1/handles/bob?x=1",
        "/v1/handles/bob?card=x",
        f"/v1/handles/bob?card={bob.card_id}&card={bob.card_id}",
        "/v1/handles/bob/policy?x=1",
        "/v1/calls?role=both",
        "/v1/calls?state=sleeping",
        "/v1/calls?limit=0",
        "/v1/calls?limit=101",
        "/v1/calls?cursor=-1",
        "/v1/calls?cursor=9999999999999999",
        "/v1/calls?role=caller&role=callee",
        "/v1/calls?&",
    ):
        answer = await bob.ask("GET", target)
        assert is_problem(answer, 400, "malformed"), target


async def test_waits_are_whole_seconds_up_to_fifty(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    for wait in ("51", "-1", "1.5", "007", "x", "", "50%0A"):
        assert is_problem(await bob.ask("GET", f"/v1/calls/none?wait={wait}"), 400, "malformed"), wait


GOOD_POLICY = b'{"offline":false,"accept":"anyone","allow":[],"block":[]}'


async def test_bodies_are_closed_and_read_strictly(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    assert (await bob.ask("PUT", "/v1/handles/bob/policy", GOOD_POLICY)).status == 200
    for body in (
        b"",
        b"{}",
        b"null",
        b"[]",
        b"not json",
        GOOD_POLICY + b"x",
        GOOD_POLICY[:-1] + b',"more":1}',
        GOOD_POLICY[:-1] + b',"block":["alice"]}',
        GOOD_POLICY.replace(b"false", b"0"),
        GOOD_POLICY.replace(b"false", b"null"),
        GOOD_POLICY.replace(b"anyone", b"everyone"),
        GOOD_POLICY.replace(b"[]", b'["UPPER"]', 1),
        GOOD_POLICY.replace(b"[]", b'["alice\\n"]', 1),
        GOOD_POLICY.replace(b"[]", b"[[[[[[]]]]]]", 1),
        b"\xef\xbb\xbf" + GOOD_POLICY,
        b'{"offline":false,"accept":"\xff","allow":[],"block":[]}',
        b"[" * 60_000,
    ):
        answer = await bob.ask("PUT", "/v1/handles/bob/policy", body)
        assert is_problem(answer, 400, "malformed"), body
    assert (await bob.ask("GET", "/v1/handles/bob/policy")).body == GOOD_POLICY


async def test_bodies_are_bounded(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    fits = b'{"htu":"/v1/call/bob"}'
    assert (await bob.ask("POST", "/v1/tickets", fits + b" " * (65_536 - len(fits)))).status == 201
    for method, path, size in (
        ("POST", "/v1/tickets", 65_537),
        ("PUT", "/v1/handles/bob", 65_537),
        ("PUT", "/v1/handles/bob/policy", 1_048_577),
        ("POST", "/v1/handles/bob/revocations", 65_537),
        ("POST", "/v1/calls/none/cancel", 65_537),
    ):
        assert is_problem(await bob.ask(method, path, b" " * size), 413, "too_large"), path


async def test_a_body_in_chunks_is_bounded_too(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    token = bob.bearer("POST", "/v1/tickets")["Authorization"]
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(
            f"POST /v1/tickets HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        for _ in range(70):
            writer.write(b"3e8\r\n" + b" " * 1_000 + b"\r\n")
        assert b" 413 " in await reader.readline()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.mark.parametrize(
    ("begin", "endless"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"X-Filler: " + b"x" * 1_000 + b"\r\n"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-One: ", b"x" * 1_000),
        (b"GET /", b"x" * 1_000),
        (
            b"POST /v1/tickets HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            b"X-Trailer: " + b"x" * 1_000 + b"\r\n",
        ),
    ],
)
async def test_heads_and_trailers_are_bounded(relay: RelayServer, begin: bytes, endless: bytes) -> None:
    async with asyncio.timeout(10):
        _, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(begin)
        with contextlib.suppress(ConnectionError):
            # Well above the bound, and above what the sockets in between hold.
            for _ in range(64):
                writer.write(endless * 1_000)
                await writer.drain()
            pytest.fail("it takes heads of any length")
        writer.close()
    assert (await exchange(relay.port, "GET", "/healthz")).status == 200


# --- log-in


async def test_every_route_but_the_public_ones_asks_for_a_log_in(relay: RelayServer) -> None:
    await Owner.enrolled("bob", relay.port)
    body = msgspec.json.encode(Owner(handle="bob", port=relay.port).publication())
    answers = [
        await exchange(relay.port, method, path, body=body if method == "PUT" else None)
        for method, path in (
            ("GET", "/v1/handles/bob"),
            ("GET", "/v1/handles/nobody"),
            ("PUT", "/v1/handles/bob"),
            ("PUT", "/v1/handles/bob/prekeys"),
            ("GET", "/v1/handles/bob/policy"),
            ("PUT", "/v1/handles/bob/policy"),
            ("POST", "/v1/tickets"),
            ("GET", "/v1/calls"),
            ("GET", "/v1/calls/none"),
            ("POST", "/v1/calls/none/cancel"),
            ("POST", "/v1/calls/none/ack"),
            ("POST", "/v1/calls/none/replay"),
        )
    ]
    assert {answer.status for answer in answers} == {401}
    assert len({answer.without_date() for answer in answers}) == 1
    assert is_problem(answers[0], 401, "unauthorized")


async def test_one_handle_is_as_forbidden_as_another(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    await Owner.enrolled("alice", relay.port)
    answers: list[Answer] = []
    for other in ("alice", "nobody"):
        answers += [
            await bob.ask("PUT", f"/v1/handles/{other}", bob.publication()),
            await bob.ask("PUT", f"/v1/handles/{other}/prekeys", bob.prekey_publication()),
            await bob.ask("GET", f"/v1/handles/{other}/policy"),
            await bob.ask("PUT", f"/v1/handles/{other}/policy", b"not even json"),
        ]
    assert {answer.status for answer in answers} == {403}
    assert len({answer.without_date() for answer in answers}) == 1


async def test_some_refusals_leave_a_while_after_their_request_was_read() -> None:
    """Asked in this order, answered in that one: the timed refusals come behind untimed answers."""
    async with running_relay(settings={"unknown_handle_release_ms": 1_000}) as relay:
        bob = await Owner.enrolled("bob", relay.port)
        order: list[int] = []

        async def ask(method: str, target: str, **request: Any) -> None:
            order.append((await exchange(relay.port, method, target, **request)).status)

        token, other = bob.bearer("GET", "/v1/handles/bob"), bob.bearer("GET", "/v1/calls")
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            tasks.create_task(ask("GET", "/v1/handles/bob"))
            tasks.create_task(ask("GET", "/v1/relay", headers={"Origin": "null"}))
            tasks.create_task(ask("GET", "/nowhere"))
            # Two signatures are checked for these, and still they are out first.
            tasks.create_task(ask("GET", "/v1/handles/bob", headers=token))
            tasks.create_task(ask("GET", "/v1/calls?x=1", headers=other))
    assert sorted(order[:2]) == [200, 400]
    assert sorted(order[2:]) == [401, 403, 404]


async def test_a_ticket_is_no_log_in_of_http(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    ticket = (await bob.ask("POST", "/v1/tickets", {"htu": "/v1/call/bob"})).json()["ticket"]
    assert (await exchange(relay.port, "GET", f"/v1/calls?ticket={ticket}")).status == 401


async def test_tickets_are_for_websockets_and_ten_at_a_time(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    for htu in ("/v1/relay", "/v1/call/", "/v1/call/B", "/v1/call/bob?ticket=x", "http://x/v1/call/bob", ""):
        answer = await bob.ask("POST", "/v1/tickets", {"htu": htu})
        assert is_problem(answer, 400, "malformed"), htu
    for _ in range(10):
        assert (await bob.ask("POST", "/v1/tickets", {"htu": "/v1/call/bob"})).status == 201
    answer = await bob.ask("POST", "/v1/tickets", {"htu": "/v1/call/bob"})
    assert is_problem(answer, 429, "rate_limited")
    assert 1 <= int(answer.header("retry-after") or 0) <= 30
    assert 0 < answer.json()["retry_after_ms"] <= 30_000


# --- keys


async def test_keys_are_published_read_and_published_again(relay: RelayServer) -> None:
    bob = Owner(handle="bob", port=relay.port)
    published = await bob.publish()
    assert published.status == 201
    assert published.json() == {
        "handle": "bob", "card_id": bob.card_id, "serial": 1, "prekey_epoch": bob.chain.epoch,
    }  # fmt: skip
    assert (await bob.publish()).status == 200
    alice = await Owner.enrolled("alice", relay.port)
    read = await alice.ask("GET", "/v1/handles/bob")
    assert read.json() == bob.publication() | {"handle": "bob", "revoked": []}
    one = await alice.ask("GET", f"/v1/handles/bob?card={bob.card_id}")
    card = {name: bob.publication()[name] for name in ("card", "card_sig")}
    assert one.json() == card | {"handle": "bob", "revoked": []}


async def test_a_taken_handle_is_a_conflict(relay: RelayServer) -> None:
    await Owner.enrolled("bob", relay.port)
    answer = await Owner(handle="bob", port=relay.port).publish()
    assert is_problem(answer, 409, "conflict")
    assert answer.json()["detail"] == "this handle belongs to another identity"


async def test_keys_are_checked_before_the_log_in_and_the_log_in_before_the_directory(
    relay: RelayServer,
) -> None:
    bob = Owner(handle="bob", port=relay.port)
    await Owner.enrolled("bob", relay.port)
    card = bob.card.card.encode().replace(bob.operational.public, IDENTITY_POINT)
    weak = bob.publication(card=b64encode(card), card_sig=b64encode(bob.identity.sign(card)))
    body = msgspec.json.encode(weak)
    # RL-HTTP-019: a weak key is a 400 with and without a token, before anybody has a role.
    assert is_problem(await exchange(relay.port, "PUT", "/v1/handles/bob", body=body), 400, "malformed")
    assert is_problem(await bob.ask("PUT", "/v1/handles/bob", weak), 400, "malformed")
    # Without a valid token nobody learns that the handle is taken.
    body = msgspec.json.encode(bob.publication())
    assert (await exchange(relay.port, "PUT", "/v1/handles/bob", body=body)).status == 401
    assert (await bob.ask("PUT", "/v1/handles/bob", bob.publication())).status == 409


async def test_the_token_of_a_publication_is_that_of_its_card(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    renewed = bob.renewed()
    answer = await bob.ask("PUT", "/v1/handles/bob", renewed.publication())
    assert answer.status == 401
    assert (await renewed.publish()).status == 200


async def test_a_handle_passes_on_by_succession(relay: RelayServer) -> None:
    new = SigningKey.generate()
    bob = await Owner.enrolled("bob", relay.port, next=next_commitment(new.public))
    heir = bob.succeeded(new)
    assert (await heir.publish()).status == 200
    keys = (await heir.ask("GET", "/v1/handles/bob")).json()
    assert keys["succession"] == heir.publication()["succession"]
    # Succession is a rotation too: the old card still logs in.
    assert (await bob.ask("GET", "/v1/calls")).status == 200
    assert is_problem(await bob.publish(), 409, "conflict")


async def test_prekeys_rise(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    path = "/v1/handles/bob/prekeys"
    assert (await bob.ask("PUT", path, bob.prekey_publication())).status == 200
    other = bob.renewed(serial=1, operational=bob.operational)
    assert is_problem(await bob.ask("PUT", path, other.prekey_publication()), 409, "conflict")
    assert is_problem(await bob.ask("PUT", path, {"prekey": "AA", "prekey_sig": "AA"}), 400, "malformed")


async def test_a_revocation_proves_itself_and_needs_no_token(relay: RelayServer) -> None:
    bob = await Owner.enrolled("bob", relay.port)
    path = "/v1/handles/bob/revocations"

    async def send(**changes: Any) -> Answer:
        return await exchange(relay.port, "POST", path, body=msgspec.json.encode(bob.revocation(**changes)))

    assert is_problem(await send(sig=b64encode(bytes(64))), 400, "malformed")
    assert is_problem(await send(key=bob.operational), 400, "malformed")
    assert is_problem(await send(reason=3), 400, "malformed")
    assert is_problem(await send(by="next"), 400, "malformed")
    first = await send()
    assert (first.status, first.json()) == (201, {"card_id": bob.card_id})
    assert (await send()).status == 200
    assert (await bob.ask("GET", "/v1/calls")).status == 401
    assert (await bob.publish()).status == 401
    renewed = bob.renewed()
    assert (await renewed.publish()).status == 200
    assert (await renewed.ask("GET", "/v1/handles/bob")).json()["revoked"] == [bob.card_id]


async def test_a_policy_is_replaced_as_a_whole(relay: RelayServer) -> None:
    bob, alice = await Owner.enrolled("bob", relay.port), await Owner.enrolled("alice", relay.port)
    path = "/v1/handles/bob/policy"
    assert (await bob.ask("GET", path)).body == GOOD_POLICY
    policy: dict[str, Any] = {"offline": False, "accept": "listed", "allow": ["carol", "alice"], "block": []}
    assert (await bob.ask("PUT", path, policy)).json() == policy
    assert (await bob.ask("PUT", path, policy)).json() == policy
    assert (await alice.ask("GET", "/v1/handles/bob")).status == 200
    assert (await bob.ask("PUT", path, policy | {"block": ["alice"]})).status == 200
    assert (await alice.ask("GET", "/v1/handles/bob")).status == 404
    assert (await bob.ask("GET", path)).json()["block"] == ["alice"]
    assert (await bob.ask("PUT", path, policy | {"offline": True})).status == 200
    assert (await bob.ask("GET", path)).json() == policy | {"offline": True}


async def test_a_realm_of_its_own_lists_by_default() -> None:
    async with running_relay(realm="relay.example") as relay:
        bob = await Owner.enrolled("bob", relay.port, realm="relay.example")
        assert (await bob.ask("GET", "/v1/handles/bob/policy")).json()["accept"] == "listed"
        assert is_problem(await Owner(handle="alice", port=relay.port).publish(), 400, "malformed")


async def test_keys_are_fetched_so_often_and_no_oftener() -> None:
    async with running_relay(settings={"key_fetches_per_minute": 3}) as relay:
        bob, alice = await Owner.enrolled("bob", relay.port), await Owner.enrolled("alice", relay.port)
        for target in ("/v1/handles/bob", "/v1/handles/nobody", "/v1/handles/bob?card=x"):
            assert (await bob.ask("GET", target)).status in (200, 404, 400)
        answer = await bob.ask("GET", "/v1/handles/bob")
        assert is_problem(answer, 429, "rate_limited")
        assert 1 <= int(answer.header("retry-after") or 0) <= 60
        assert (await alice.ask("GET", "/v1/handles/bob")).status == 200


# --- time


async def test_a_card_that_was_replaced_loses_its_log_in_and_then_its_place() -> None:
    clock = ShiftedClock()
    async with running_relay(clock=clock) as relay:
        bob = await Owner.enrolled("bob", relay.port)
        renewed = bob.renewed()
        assert (await renewed.publish()).status == 200
        target = f"/v1/handles/bob?card={bob.card_id}"

        async def ask(who: Owner) -> int:
            return (await who.ask("GET", target, iat=clock().wall // 1000)).status

        assert (await ask(bob), await ask(renewed)) == (200, 200)
        clock.ahead = CARD_LOGIN_GRACE_MS - HOUR + 60_000
        assert (await ask(bob), await ask(renewed)) == (401, 200)
        clock.ahead = CARD_GRACE_MS - HOUR + 60_000
        assert (await ask(bob), await ask(renewed)) == (401, 404)


async def test_connections_of_a_card_that_expired_are_sent_away() -> None:
    clock = ShiftedClock()
    async with running_relay(clock=clock) as relay:
        bob, alice = (
            await Owner.enrolled("bob", relay.port, life=2 * HOUR),
            await Owner.enrolled("alice", relay.port),
        )
        async with bob.calling("bob") as caller, bob.listening() as listener:
            clock.ahead = HOUR
            # The relay looks at the wall clock once a minute, and whenever somebody comes.
            async with alice.dial("/v1/call/bob", iat=clock().wall // 1000) as other:
                assert await caller.closed() == (1001, "retry=0")
                assert await listener.closed() == (1001, "retry=0")
                await other.send({"type": "call_request"})
                assert (await other.next())["code"] == "protocol_error"


async def test_connections_of_a_card_replaced_48_hours_ago_are_sent_away() -> None:
    clock = ShiftedClock()
    async with running_relay(clock=clock) as relay:
        bob = await Owner.enrolled("bob", relay.port)
        async with bob.calling("bob") as line:
            renewed = bob.renewed()
            assert (await renewed.publish()).status == 200
            clock.ahead = CARD_LOGIN_GRACE_MS - HOUR
            async with renewed.dial("/v1/call/bob", iat=clock().wall // 1000) as later:
                assert await line.closed() == (1001, "retry=0")
                await later.send({"type": "call_request"})
                assert (await later.next())["code"] == "protocol_error"


# --- faults


async def test_a_fault_shows_nothing_but_itself(
    relay: RelayServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret text")

    monkeypatch.setattr(relay._routes._directory, "keys", broken)
    bob = await Owner.enrolled("bob", relay.port)
    answer = await bob.ask("GET", "/v1/handles/bob")
    assert is_problem(answer, 500, "internal_error")
    assert b"secret" not in answer.body
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


async def test_a_request_that_is_no_http_hurts_nobody(relay: RelayServer) -> None:
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(b"\x16\x03\x01 what is this\r\n\r\n")
        assert b" 400 " in await reader.readline()
        writer.close()
    assert (await exchange(relay.port, "GET", "/healthz")).status == 200


@pytest.mark.parametrize("edge", ["picows", "websockets"])
async def test_nothing_of_a_log_in_is_logged(
    edge: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("DEBUG")
    async with running_relay(edge=edge) as relay:
        # As an application does that configures logging for everything it runs.
        monkeypatch.setattr(logging.getLogger("uvicorn.access"), "propagate", True)
        secrets = await _log_in_in_every_way(relay)
    # What the test's own client logs is not the relay's.
    logged = "\n".join(record.getMessage() for record in caplog.records if record.name != "websockets.client")
    assert "relay started" in logged
    assert not [secret for secret in secrets if secret in logged]
    # Handles are for whoever looks for a fault (RL-PRIVACY-002).
    above = [record.getMessage() for record in caplog.records if record.levelname != "DEBUG"]
    assert not [line for line in above if "bob" in line]
    assert [line for line in logged.splitlines() if line.endswith("opened: caller bob")]


async def _log_in_in_every_way(relay: RelayServer) -> tuple[str, ...]:
    """Use a token and a ticket, well and badly; return what must not be logged."""
    bob = await Owner.enrolled("bob", relay.port)
    ticket = (await bob.ask("POST", "/v1/tickets", {"htu": "/v1/call/bob"})).json()["ticket"]
    token = bob.token("GET", "/v1/calls")
    await exchange(relay.port, "GET", "/v1/calls", headers={"Authorization": f"Bearer {token}"})
    await exchange(relay.port, "GET", f"/v1/calls?ticket={ticket}")
    async with bob.calling("bob"), bob.listening() as line:
        await line.send("not a frame: secret-text")
        await line.next()
    return ticket, token.rsplit(".", 1)[1], "Bearer", "secret-text"
