"""Who gets into a running relay, by which invite, and how he is shut out again."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from ringline.protocol.errors import ConfigError
from ringline.protocol.limits import SUBPROTOCOL
from ringline.protocol.signing import SigningKey
from ringline.relay.server import RelayServer
from ringline_testing.certificate import contexts
from ringline_testing.ports import lasting_port
from ringline_testing.relay import running_relay
from ringline_testing.signed import Answer, Owner, exchange, now_ms

REALM = "relay.example"
DAY_S = 86_400


def invited(**options: Any) -> Any:
    """Run a relay whose registration is closed, and whose administrator is `root`."""
    return running_relay(realm=REALM, open_registration=False, admin="root", **options)


@pytest.fixture
async def relay() -> AsyncGenerator[RelayServer]:
    async with invited() as relay:
        yield relay


async def administrator(relay: RelayServer) -> Owner:
    """Enrol the administrator by the relay's own invite."""
    made = await relay.invite_admin(DAY_S)
    assert made is not None
    root = Owner(handle="root", port=relay.port, realm=REALM)
    assert (await root.publish(invite=made.invite)).status == 201
    return root


async def invite(owner: Owner, *, uses: int = 1, ttl_s: int = DAY_S, **members: Any) -> dict[str, Any]:
    """Have an owner make an invite."""
    answer = await owner.ask("POST", "/v1/invites", {"uses": uses, "ttl_s": ttl_s} | members)
    assert answer.status == 201, answer
    made: dict[str, Any] = answer.json()
    return made


async def member(inviter: Owner, handle: str) -> Owner:
    """Enrol somebody by an invite of ``inviter``."""
    owner = Owner(handle=handle, port=inviter.port, realm=REALM)
    assert (await owner.publish(invite=(await invite(inviter))["invite"])).status == 201
    return owner


# --- registration


async def test_registration_is_closed_but_on_a_development_relay() -> None:
    async with running_relay(realm=REALM, open_registration=None) as relay:  # type: ignore[arg-type]
        assert (await Owner(handle="bob", port=relay.port, realm=REALM).publish()).status == 403
    async with running_relay(open_registration=None) as relay:  # type: ignore[arg-type]
        assert (await Owner(handle="bob", port=relay.port).publish()).status == 201


async def test_the_first_to_get_in_is_the_administrator(relay: RelayServer) -> None:
    await administrator(relay)
    # His invite is used up, and no second one is made.
    assert await relay.invite_admin(DAY_S) is None


async def test_an_invite_is_made_handed_over_and_taken_up(relay: RelayServer) -> None:
    root = await administrator(relay)
    made = await invite(root, label="for bob")
    assert set(made) == {"id", "invite", "expires_at"}
    assert abs(made["expires_at"] - now_ms() - DAY_S * 1_000) < 60_000
    (shown,) = (await root.ask("GET", "/v1/invites")).json()["invites"]
    assert (shown["state"], shown["label"], shown["uses"], shown["accepted"]) == ("open", "for bob", 1, [])
    assert made["invite"] not in str(shown)
    bob = Owner(handle="bob", port=relay.port, realm=REALM)
    assert (await bob.publish(invite=f"{made['invite']}:a-proof")).status == 201
    (shown,) = (await root.ask("GET", "/v1/invites")).json()["invites"]
    assert shown["state"] == "consumed"
    assert [(one["handle"], one["proof"]) for one in shown["accepted"]] == [("bob", "a-proof")]
    # Asked again, since the first answer may have been lost.
    assert (await bob.publish(invite=made["invite"])).status == 200
    assert (await bob.publish()).status == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"uses": 1},
        {"uses": 0, "ttl_s": DAY_S},
        {"uses": 9, "ttl_s": DAY_S},
        {"uses": 1, "ttl_s": 59},
        {"uses": 1, "ttl_s": 14 * DAY_S + 1},
        {"uses": True, "ttl_s": DAY_S},
        {"uses": 1, "ttl_s": DAY_S, "label": None},
        {"uses": 1, "ttl_s": DAY_S, "label": "x" * 101},
        {"uses": 1, "ttl_s": DAY_S, "handle": "bob"},
        [],
        b"{",
    ],
)
async def test_what_is_no_invite_request_is_malformed(relay: RelayServer, body: Any) -> None:
    root = await administrator(relay)
    assert (await root.ask("POST", "/v1/invites", body)).status == 400


async def test_invites_are_their_inviters_alone(relay: RelayServer) -> None:
    root = await administrator(relay)
    bob, carol = await member(root, "bob"), await member(root, "carol")
    made = await invite(bob)
    assert (await carol.ask("GET", "/v1/invites")).json() == {"invites": [], "next": None}
    foreign = await carol.ask("DELETE", f"/v1/invites/{made['id']}")
    missing = await carol.ask("DELETE", "/v1/invites/none")
    assert foreign.status == 404
    assert foreign.without_date() == missing.without_date()
    assert (await exchange(relay.port, "GET", "/v1/invites")).status == 401
    # The administrator may.
    assert (await root.ask("DELETE", f"/v1/invites/{made['id']}")).status == 200
    assert (await bob.ask("GET", "/v1/invites")).json()["invites"][0]["state"] == "void"
    dave = Owner(handle="dave", port=relay.port, realm=REALM)
    assert (await dave.publish(invite=made["invite"])).status == 403


async def test_claims_are_judged_by_the_invite_first_and_five_failures_void_it(relay: RelayServer) -> None:
    root = await administrator(relay)
    await member(root, "bob")
    made = await invite(root)
    wrong = f"{made['id']}.{'w' * 22}"
    thief = Owner(handle="bob", port=relay.port, realm=REALM)
    assert [(await thief.publish(invite=text)).status for text in (wrong, made["invite"])] == [403, 409]
    for _ in range(3):
        assert (await thief.publish(invite=made["invite"])).status == 409
    assert (await thief.publish(invite=made["invite"])).status == 403
    shown = (await root.ask("GET", "/v1/invites")).json()["invites"][0]
    assert (shown["state"], shown["failures"]) == ("failed", 5)


async def test_a_claim_in_anothers_name_is_no_claim(relay: RelayServer) -> None:
    """A card is worth nothing to whoever does not hold its operational key."""
    root = await administrator(relay)
    made = await invite(root)
    bob = Owner(handle="bob", port=relay.port, realm=REALM)
    body = bob.publication(invite=made["invite"])
    mallory = Owner(handle="bob", port=relay.port, realm=REALM)
    answer = await exchange(
        relay.port,
        "PUT",
        "/v1/handles/bob",
        headers=mallory.bearer("PUT", "/v1/handles/bob", card_id=bob.card.card.id),
        body=msgspec.json.encode(body),
    )
    assert answer.status == 401
    assert (await root.ask("GET", "/v1/invites")).json()["invites"][0]["failures"] == 0


async def test_what_was_invited_outlives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "relay.db"
    async with invited(db=path, port=lasting_port()) as relay:
        root = await administrator(relay)
        open_, used, failing = [await invite(root) for _ in range(3)]
        bob = Owner(handle="bob", port=relay.port, realm=REALM)
        assert (await bob.publish(invite=used["invite"] + ":proof")).status == 201
        thief = Owner(handle="bob", port=relay.port, realm=REALM)
        await thief.publish(invite=failing["invite"])
        before = (await root.ask("GET", "/v1/invites")).json()
        gone = await member(root, "gone")
        assert (await gone.ask("DELETE", "/v1/handles/gone")).status == 200
    assert used["invite"].split(".")[1].encode() not in path.read_bytes()
    async with invited(db=path, port=relay.port) as relay:
        after = (await root.ask("GET", "/v1/invites")).json()
        assert after["invites"][1:] == before["invites"]
        carol = Owner(handle="carol", port=relay.port, realm=REALM)
        assert (await carol.publish(invite=open_["invite"])).status == 201
        assert (await gone.ask("GET", "/v1/handles/gone/policy")).status == 401
        again = await invite(root)
        heir = Owner(handle="gone", port=relay.port, realm=REALM)
        assert (await heir.publish(invite=again["invite"])).status == 409
        assert await relay.invite_admin(DAY_S) is None


# --- reach


async def test_an_accepted_invite_lets_a_call_through(relay: RelayServer) -> None:
    root = await administrator(relay)
    bob, carol = await member(root, "bob"), await member(root, "carol")
    made = await invite(bob)
    policy: dict[str, Any] = {"offline": False, "accept": "invited", "allow": [], "block": []}
    assert (await bob.ask("PUT", "/v1/handles/bob/policy", policy)).status == 200

    async def code() -> str:
        async with carol.calling("bob") as line:
            await line.send(carol.request())
            answer: str = (await line.next())["code"]
            return answer

    assert await code() == "unknown_handle"
    assert (await carol.ask("GET", "/v1/handles/bob")).status == 404
    assert (await carol.publish(invite=made["invite"])).status == 200
    assert await code() == "offline"
    assert (await carol.ask("GET", "/v1/handles/bob")).status == 200
    await bob.ask("PUT", "/v1/handles/bob/policy", policy | {"block": ["carol"]})
    assert await code() == "unknown_handle"


async def test_the_two_sides_of_an_invite_see_each_others_keys_and_nobody_elses(relay: RelayServer) -> None:
    root = await administrator(relay)
    bob, carol, dave = [await member(root, name) for name in ("bob", "carol", "dave")]
    assert (await carol.publish(invite=(await invite(bob))["invite"])).status == 200
    seen = {
        (one.handle, other.handle): (await one.ask("GET", f"/v1/handles/{other.handle}")).status
        for one in (bob, carol, dave)
        for other in (bob, carol, dave)
        if one is not other
    }
    assert {pair for pair, status in seen.items() if status == 200} == {("bob", "carol"), ("carol", "bob")}


# --- removal


async def test_a_removed_identity_loses_its_sockets_at_once_and_its_calls(relay: RelayServer) -> None:
    root = await administrator(relay)
    bob, carol = await member(root, "bob"), await member(root, "carol")
    policy: dict[str, Any] = {"offline": True, "accept": "anyone", "allow": [], "block": []}
    for owner in (bob, carol):
        assert (await owner.ask("PUT", f"/v1/handles/{owner.handle}/policy", policy)).status == 200
    durable = {"delivery_mode": "durable"}
    async with bob.calling("carol") as out, carol.calling("bob") as into, bob.listening() as listener:
        await out.send(bob.request(**durable))
        from_bob = (await out.next())["call_id"]
        await into.send(carol.request(**durable))
        to_bob = (await into.next())["call_id"]
        await listener.next()
        assert (await carol.ask("DELETE", "/v1/handles/bob")).status == 403
        assert (await root.ask("DELETE", "/v1/handles/bob")).status == 200
        assert (await root.ask("DELETE", "/v1/handles/bob")).status == 404
        assert (await drained(out)).code == 4001
        assert (await drained(listener)).code == 4001
    assert (await bob.ask("GET", f"/v1/calls/{from_bob}")).status == 401
    # What was sealed by him is gone from the callee's queue; what is for him its caller still sees queued.
    assert (await carol.ask("GET", f"/v1/calls/{from_bob}")).json()["state"] == "revoked"
    assert (await carol.ask("GET", f"/v1/calls/{to_bob}")).json()["state"] == "queued"
    assert (await carol.ask("GET", "/v1/handles/bob")).status in (200, 404)


async def test_running_calls_of_a_removed_identity_end_at_once() -> None:
    """Nobody comes back for them, so nothing is held for the usual time."""
    hour = 3_600_000
    async with invited(settings={"hold_ms": hour, "grace_ms": hour}) as relay:
        root = await administrator(relay)
        bob, carol = await member(root, "bob"), await member(root, "carol")
        policy: dict[str, Any] = {"offline": False, "accept": "anyone", "allow": [], "block": []}
        for owner in (bob, carol):
            assert (await owner.ask("PUT", f"/v1/handles/{owner.handle}/policy", policy)).status == 200
        async with (
            bob.calling("carol") as out,
            carol.calling("bob") as into,
            bob.listening() as bobs,
            carol.listening() as carols,
        ):
            ids: list[str] = []
            for line, caller, listener in ((out, bob, carols), (into, carol, bobs)):
                # With a message id: it could be asked for again, and is held for that.
                await line.send(caller.request())
                ids.append((await listener.next())["call_id"])
                await listener.send({"type": "call_started", "call_id": ids[-1]})
                while (await line.next())["state"] != "working":
                    pass
            assert (await root.ask("DELETE", "/v1/handles/bob")).status == 200
            # Whoever works for him is to stop; whoever waits for him hears what is known.
            assert (await carols.next()) == {"type": "cancel_call", "call_id": ids[0]}
            told = await into.next()
            assert (told["type"], told["code"], told["call_id"]) == ("call_error", "timeout", ids[1])
        assert (await carol.ask("GET", f"/v1/calls/{ids[1]}")).json()["state"] == "indeterminate_execution"


async def test_an_administrator_who_was_removed_is_replaced_by_another(tmp_path: Path) -> None:
    """Nobody gets his handle again, so an invite for it would be one that nobody can take up."""
    kept = tmp_path / "relay.db"
    async with invited(db=kept) as relay:
        root = await administrator(relay)
        assert (await root.ask("DELETE", "/v1/handles/root")).status == 200
    with pytest.raises(ConfigError, match="root was removed") as caught:
        async with invited(db=kept):
            pass
    assert "--admin" in (caught.value.next_step or "")
    async with running_relay(realm=REALM, open_registration=False, admin="ada", db=kept) as relay:
        made = await relay.invite_admin(DAY_S)
        assert made is not None
        ada = Owner(handle="ada", port=relay.port, realm=REALM)
        assert (await ada.publish(invite=made.invite)).status == 201


async def drained(line: Any) -> Any:
    """Read to the end of a line, and return the relay's close frame."""
    async with asyncio.timeout(10):
        await line.socket.wait_closed()
    return line.socket.protocol.close_rcvd


# --- addresses


async def test_an_address_whose_log_ins_fail_is_put_off_before_any_is_checked() -> None:
    async with running_relay(settings={"failed_logins_per_minute": 3}) as relay:
        bob = await Owner.enrolled("bob", relay.port)
        bad = {"Authorization": "Bearer x"}
        for _ in range(2):
            assert (await exchange(relay.port, "GET", "/v1/calls", headers=bad)).status == 401
        assert (await upgrade(relay, bad)).status == 401
        for answer in (
            await exchange(relay.port, "GET", "/v1/calls", headers=bad),
            await bob.ask("GET", "/v1/handles/bob/policy"),
            await upgrade(relay, bob.bearer("GET", "/v1/call/bob")),
        ):
            assert answer.status == 429
            assert 0 < int(answer.header("retry-after") or "0") <= 60
        assert (await exchange(relay.port, "GET", "/v1/relay")).status == 200


async def test_who_brings_no_log_in_has_failed_at_none() -> None:
    """Else a stranger locks out all who share an address with him, by asking without a name."""
    async with running_relay(settings={"failed_logins_per_minute": 1}) as relay:
        bob = await Owner.enrolled("bob", relay.port)
        for _ in range(3):
            assert (await exchange(relay.port, "GET", "/v1/calls")).status == 401
            assert (await upgrade(relay, {})).status == 401
        assert (await bob.ask("GET", "/v1/handles/bob/policy")).status == 200
        # A ticket is a log-in, and one that opens nothing has failed.
        assert (await upgrade(relay, {}, query="?ticket=" + "x" * 43)).status == 401
        assert (await bob.ask("GET", "/v1/handles/bob/policy")).status == 429


async def upgrade(relay: RelayServer, headers: dict[str, str], query: str = "") -> Answer:
    usual = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    return await exchange(relay.port, "GET", f"/v1/call/bob{query}", headers=usual | headers)


async def test_claims_of_one_address_are_bounded_and_republications_are_not() -> None:
    async with running_relay(settings={"claims_per_minute": 2}) as relay:
        bob = await Owner.enrolled("bob", relay.port)
        for _ in range(4):
            assert (await bob.publish()).status == 200
        assert (await Owner(handle="carol", port=relay.port).publish(card_sig="AA")).status == 400
        answer = await Owner(handle="carol", port=relay.port).publish()
        assert answer.status == 429
        assert answer.header("retry-after") is not None


async def test_a_trusted_proxys_guests_have_a_budget_each() -> None:
    settings = {"failed_logins_per_minute": 1}
    async with running_relay(settings=settings, trusted_proxies=("127.0.0.1",)) as relay:

        async def status(address: str) -> int:
            headers = {"Authorization": "Bearer x", "X-Forwarded-For": f"1.2.3.4, {address}"}
            return (await exchange(relay.port, "GET", "/v1/calls", headers=headers)).status

        assert [await status("203.0.113.7"), await status("203.0.113.7")] == [401, 429]
        assert await status("203.0.113.8") == 401


async def test_a_proxy_that_does_not_say_for_whom_it_asks_locks_nobody_out() -> None:
    """All its clients would be one address: a stranger among them could use up the budget of all."""
    settings = {"failed_logins_per_minute": 1}
    async with running_relay(settings=settings, trusted_proxies=("127.0.0.1",)) as relay:
        bob = await Owner.enrolled("bob", relay.port)
        ready = (await exchange(relay.port, "GET", "/readyz")).json()
        assert ready["warnings"] == []
        for _ in range(3):
            bad = {"Authorization": "Bearer x"}
            assert (await exchange(relay.port, "GET", "/v1/calls", headers=bad)).status == 401
            assert (await upgrade(relay, bad)).status == 401
        assert (await bob.ask("GET", "/v1/handles/bob/policy")).status == 200
        (warning,) = (await exchange(relay.port, "GET", "/readyz")).json()["warnings"]
        assert "without X-Forwarded-For" in warning


# --- TLS


@pytest.mark.parametrize("edge", ["picows", "websockets"])
async def test_a_relay_ends_tls_itself_when_it_is_given_a_certificate(edge: str, tmp_path: Path) -> None:
    server, client = contexts(tmp_path)
    async with running_relay(edge=edge, tls=server) as relay:
        assert relay.url.startswith("https://")
        bob = Owner(handle="bob", port=relay.port)
        body = msgspec.json.encode(bob.publication())
        lines = ["PUT /v1/handles/bob HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in bob.bearer("PUT", "/v1/handles/bob").items()]
        reader, writer = await asyncio.open_connection("localhost", relay.port, ssl=client)
        async with asyncio.timeout(10):
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            assert (await reader.readline()).startswith(b"HTTP/1.1 201")
        writer.close()
        async with connect(
            f"wss://localhost:{relay.port}/v1/call/bob",
            ssl=client,
            additional_headers=bob.bearer("GET", "/v1/call/bob"),
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            proxy=None,
        ) as socket:
            await socket.send(msgspec.json.encode(bob.request()).decode())
            assert msgspec.json.decode(await socket.recv())["code"] == "offline"


# --- uniform answers


async def test_a_stranger_cannot_tell_one_handle_from_another(relay: RelayServer) -> None:
    """Existing, online, blocking him, removed, missing: the same bytes on every route he can ask."""
    root = await administrator(relay)
    bob, carol, gone = [await member(root, name) for name in ("bob", "carol", "gone")]
    await carol.ask(
        "PUT",
        "/v1/handles/carol/policy",
        {"offline": True, "accept": "listed", "allow": [], "block": ["dave"]},
    )
    await gone.ask("DELETE", "/v1/handles/gone")
    dave = await member(root, "dave")
    handles = ("bob", "carol", "gone", "missing")
    async with bob.listening():
        for who in (None, dave):
            answers = {handle: await asked(relay, who, handle) for handle in handles}
            assert all(answers[handle] == answers["missing"] for handle in handles), who


async def asked(relay: RelayServer, who: Owner | None, handle: str) -> list[Any]:
    """Ask everything about a handle that a stranger can, and return what may be compared."""
    path = f"/v1/handles/{handle}"
    routes: list[tuple[str, str, Any]] = [
        ("GET", path, None),
        ("GET", f"{path}?card={'A' * 43}", None),
        ("DELETE", path, None),
        ("GET", f"{path}/policy", None),
        ("PUT", f"{path}/policy", {"offline": False, "accept": "anyone", "allow": [], "block": []}),
        ("PUT", f"{path}/prekeys", {}),
        ("POST", f"{path}/revocations", Owner(handle=handle, port=0, realm=REALM).revocation()),
        ("POST", "/v1/tickets", {"htu": f"/v1/call/{handle}"}),
    ]
    seen: list[Any] = []
    for method, target, body in routes:
        if who is None:
            data = None if body is None else msgspec.json.encode(body)
            answer = await exchange(relay.port, method, target, body=data)
        else:
            answer = await who.ask(method, target, body)
        seen.append((method, target.replace(handle, "?"), answer.status, comparable(answer)))
    # A claim: his own keys for that handle, with and without a succession he made up himself.
    claim = Owner(handle=handle, port=relay.port, realm=REALM)
    heir = claim.succeeded(SigningKey.generate(), old_signs=True, serial=2)
    seen += [(await one.publish()).without_date() for one in (claim, heir)]
    # Hijack: the owner's route with his own log-in.
    if who is not None:
        async with who.calling(handle) as line:
            for mode in ({}, {"delivery_mode": "durable"}):
                request = who.request(**mode)
                await line.send(request)
                frame = await line.next()
                assert frame.pop("correlation_id") == request["correlation_id"]
                seen.append(frame)
    return seen


def comparable(answer: Answer) -> Any:
    """Everything but the date, and the ticket of a request for one."""
    status, headers, body = answer.without_date()
    return (status, headers, b"" if status == 201 else body)
