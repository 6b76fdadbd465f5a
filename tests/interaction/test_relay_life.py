"""A relay's start, restart, trouble with its storage, and end."""

import asyncio
import logging
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ringline.protocol.errors import ConfigError
from ringline.relay.options import RelayOptions
from ringline.relay.server import RelayServer
from ringline_testing import raw_peer
from ringline_testing.ports import lasting_port
from ringline_testing.relay import running_relay
from ringline_testing.signed import Owner, exchange, now_ms

EDGES = ("picows", "websockets")


# --- start


async def test_a_busy_port_is_a_clear_error() -> None:
    async with running_relay() as relay:
        with pytest.raises(ConfigError) as caught:
            async with running_relay(port=relay.port):
                pass
        assert f"cannot listen on 127.0.0.1 port {relay.port}" in str(caught.value)
        assert caught.value.next_step is not None
        assert f"ringline relay dev --port {relay.port + 1}" in caught.value.next_step
        # The relay that has the port is not disturbed.
        assert (await exchange(relay.port, "GET", "/healthz")).status == 200


async def test_a_failed_start_leaves_neither_port_nor_file_taken(tmp_path: Path) -> None:
    db = tmp_path / "relay.db"
    with pytest.raises(ConfigError):
        async with running_relay(edge="none", db=db):
            pass
    async with running_relay(db=db):
        pass
    with pytest.raises(ConfigError):
        async with running_relay(realm="NOT A REALM"):
            pass


async def test_a_relay_listens_on_ipv6_too() -> None:
    async with RelayServer(RelayOptions(host="::1", port=0)) as relay:
        assert relay.url == f"http://[::1]:{relay.port}"
        reader, writer = await asyncio.open_connection("::1", relay.port)
        writer.write(f"GET /healthz HTTP/1.1\r\nHost: [::1]:{relay.port}\r\n\r\n".encode())
        assert b" 200 " in await reader.readline()
        writer.close()


# --- restart


async def test_with_a_file_a_relay_remembers(tmp_path: Path) -> None:
    db = tmp_path / "relay.db"
    async with running_relay(db=db, port=lasting_port()) as relay:
        bob = await Owner.enrolled("bob", relay.port)
        alice = await Owner.enrolled("alice", relay.port)
        gone = await Owner.enrolled("gone", relay.port)
        policy: dict[str, Any] = {"offline": False, "accept": "listed", "allow": ["alice"], "block": []}
        assert (await bob.ask("PUT", "/v1/handles/bob/policy", policy)).status == 200
        revocation = "/v1/handles/gone/revocations"
        assert (await gone.ask("POST", revocation, gone.revocation())).status == 201
        port = relay.port
    async with running_relay(db=db, port=port):
        assert (await bob.ask("GET", "/v1/handles/bob/policy")).json() == policy
        assert (await alice.ask("GET", "/v1/handles/bob")).json()["card"] == bob.publication()["card"]
        assert (await gone.ask("GET", "/v1/calls")).status == 401
        assert (await bob.publish()).status == 200
        assert (await Owner(handle="bob", port=port).publish()).status == 409


async def test_without_a_file_a_relay_forgets() -> None:
    async with running_relay(port=lasting_port()) as relay:
        bob = await Owner.enrolled("bob", relay.port)
        port = relay.port
    async with running_relay(port=port):
        assert (await bob.ask("GET", "/v1/calls")).status == 401
        # What the library then does by itself on a development relay.
        assert (await bob.publish()).status == 201
        assert (await bob.ask("GET", "/v1/calls")).status == 200


async def test_a_restarted_relay_takes_no_token_of_before(tmp_path: Path) -> None:
    db = tmp_path / "relay.db"
    async with running_relay(db=db, port=lasting_port()) as relay:
        bob = await Owner.enrolled("bob", relay.port)
        port = relay.port
        token = bob.bearer("GET", "/v1/calls", iat=now_ms() // 1000 - 5)
        late = await exchange(port, "GET", "/v1/calls", headers=token)
        assert late.status == 401, "a relay remembers only the tokens since its own start"
    async with running_relay(db=db, port=port):
        assert (await exchange(port, "GET", "/v1/calls", headers=token)).status == 401
        assert (await bob.ask("GET", "/v1/calls")).status == 200


# --- trouble with the file


async def test_a_file_that_cannot_be_written_refuses_changes_and_serves_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    db = tmp_path / "relay.db"
    async with running_relay(db=db) as relay:
        bob = await Owner.enrolled("bob", relay.port)
        with closing(sqlite3.connect(db, isolation_level=None)) as holder:
            relay._registry._store._connection.execute("PRAGMA busy_timeout=50")  # type: ignore[attr-defined]
            holder.execute("BEGIN IMMEDIATE")
            refused = await Owner(handle="late", port=relay.port).publish()
            assert (refused.status, refused.json()["code"]) == (503, "unavailable")
            assert refused.header("retry-after") == "5"
            ready = await exchange(relay.port, "GET", "/readyz")
            assert (ready.status, ready.json()["ready"]) == (503, False)
            assert "locked" in ready.json()["reasons"][0]
            assert ready.header("retry-after") is not None
            # Reads and calls go on; nothing is half done.
            assert (await bob.ask("GET", "/v1/handles/bob")).status == 200
            assert (await bob.ask("GET", "/v1/handles/late")).status == 404
            async with bob.calling("bob"), bob.listening():
                pass
        assert (await Owner(handle="late", port=relay.port).publish()).status == 201
        assert (await exchange(relay.port, "GET", "/readyz")).status == 200
    assert "cannot be written" in caplog.text
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_write_that_waits_holds_up_nobody_else(tmp_path: Path) -> None:
    db = tmp_path / "relay.db"
    async with running_relay(db=db) as relay:
        bob = await Owner.enrolled("bob", relay.port)
        with closing(sqlite3.connect(db, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            late = asyncio.ensure_future(Owner(handle="late", port=relay.port).publish())
            async with bob.calling("bob") as line:
                await line.send("x")
                assert (await line.next())["code"] == "protocol_error"
            assert (await bob.ask("GET", "/v1/handles/bob")).status == 200
            assert not late.done()
            holder.execute("ROLLBACK")
            assert (await late).status == 201


async def test_a_publication_whose_client_went_away_is_all_or_nothing(tmp_path: Path) -> None:
    db = tmp_path / "relay.db"
    async with running_relay(db=db) as relay:
        late = Owner(handle="late", port=relay.port)
        with closing(sqlite3.connect(db, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            asking = asyncio.ensure_future(late.publish())
            async with asyncio.timeout(10):
                while not relay._registry._writing.locked():  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            asking.cancel()
            holder.execute("ROLLBACK")
        bob = await Owner.enrolled("bob", relay.port)
        # What is on disk is in memory too.
        assert (await bob.ask("GET", "/v1/handles/late")).status == 200
        assert (await late.publish()).status == 200


# --- the end


@pytest.mark.parametrize("edge", EDGES)
async def test_stopping_closes_connections_with_the_time_to_come_back(edge: str, tmp_path: Path) -> None:
    async with running_relay(edge=edge, settings={"drain_retry_ms": 1234}, db=tmp_path / "relay.db") as relay:
        bob = await Owner.enrolled("bob", relay.port)
        async with bob.calling("bob") as caller, bob.listening() as listener:
            await relay.stop()
            assert await caller.closed() == (1001, "retry=1234")
            assert await listener.closed() == (1001, "retry=1234")
        with pytest.raises(ConnectionRefusedError):
            await exchange(relay.port, "GET", "/healthz")


async def test_whoever_waits_for_a_cancellation_is_answered_when_the_relay_stops() -> None:
    async with running_relay() as relay:
        bob = await Owner.enrolled("bob", relay.port)
        async with bob.listening() as listener, bob.calling("bob") as caller:
            await caller.send(bob.request())
            call_id = (await listener.next())["call_id"]
            asking = asyncio.ensure_future(bob.ask("POST", f"/v1/calls/{call_id}/cancel"))
            assert (await listener.next())["type"] == "cancel_call"
            await relay.stop()
            answer = await asking
            assert (answer.status, answer.json()["cancel_requested"]) == (202, True)


@pytest.mark.parametrize("edge", EDGES)
async def test_a_client_that_does_not_answer_is_cut_off(edge: str) -> None:
    async with running_relay(edge=edge, closing_s=0.05) as relay:
        bob = await Owner.enrolled("bob", relay.port)
        async with asyncio.timeout(20), raw_peer.connect(relay.port) as peer:
            token = ("Authorization", bob.bearer("GET", "/v1/call/bob")["Authorization"])
            await peer.open("/v1/call/bob", headers=[token, ("Sec-WebSocket-Protocol", "ringline.v1")])
            await relay.stop()
            assert len(relay._board) == 0
            await peer.gone()


@pytest.mark.parametrize("edge", EDGES)
async def test_a_drain_lets_running_calls_end_and_begins_none(edge: str) -> None:
    async with running_relay(edge=edge) as relay:
        bob, alice = await Owner.enrolled("bob", relay.port), await Owner.enrolled("alice", relay.port)
        async with (
            bob.listening(capacity=4) as listener,
            alice.calling("bob") as caller,
            alice.calling("bob") as idle,
        ):
            await caller.send(alice.request())
            call_id = (await listener.next())["call_id"]
            assert (await caller.next())["state"] == "ringing"
            await listener.send({"type": "call_started", "call_id": call_id})
            assert (await caller.next())["state"] == "working"
            draining = asyncio.ensure_future(relay.drain())
            assert await idle.closed() == (1001, "retry=2000")
            await caller.send(alice.request())
            busy = await caller.next()
            assert (busy["code"], busy.get("call_id")) == ("busy", None)
            assert busy["retry_after_ms"] == 2_000
            ready = await exchange(relay.port, "GET", "/readyz")
            assert (ready.status, ready.json()["reasons"]) == (503, ["the relay is stopping"])
            refused = await alice.ask("GET", "/v1/call/bob", headers=UPGRADE)
            assert (refused.status, refused.json()["code"]) == (503, "unavailable")
            assert refused.header("retry-after") is not None
            assert not draining.done()
            outcome = bob.outcome(call_id)
            await listener.send(outcome)
            assert await caller.next() == outcome
            assert await caller.closed() == (1001, "retry=2000")
            assert await listener.closed() == (1001, "retry=2000")
            async with asyncio.timeout(10):
                await draining


UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAECAwQFBgcICQoLDA0ODw==",
    "Sec-WebSocket-Protocol": "ringline.v1",
}


async def test_a_drain_has_a_bound() -> None:
    async with running_relay(settings={"drain_bound_ms": 50}) as relay:
        bob = await Owner.enrolled("bob", relay.port)
        async with bob.listening() as listener, bob.calling("bob") as caller:
            await caller.send(bob.request())
            call_id = (await listener.next())["call_id"]
            async with asyncio.timeout(10):
                await relay.drain()
            assert (await caller.next())["state"] == "ringing"
            error = await caller.next()
            assert (error["code"], error["call_id"]) == ("timeout", call_id)
            assert (await caller.closed())[0] == 1001


async def test_whoever_waits_for_a_record_is_answered_when_the_relay_stops() -> None:
    async with running_relay() as relay:
        bob = await Owner.enrolled("bob", relay.port)
        async with bob.listening() as listener, bob.calling("bob") as caller:
            await caller.send(bob.request())
            call_id = (await listener.next())["call_id"]
            reading = asyncio.ensure_future(bob.ask("GET", f"/v1/calls/{call_id}?wait=50"))
            async with asyncio.timeout(10):
                while not relay._board._waiting:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            await relay.stop()
            record = await reading
            assert (record.status, record.json()["call_id"]) == (200, call_id)


async def test_an_idle_http_connection_does_not_hold_up_the_end() -> None:
    async with running_relay(closing_s=120) as relay:
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b" 200 " in await reader.readline()
        silent_reader, silent_writer = await asyncio.open_connection("127.0.0.1", relay.port)
        async with asyncio.timeout(30):
            await relay.stop()
            assert await silent_reader.read() == b""
        for each in (writer, silent_writer):
            each.close()


async def test_nothing_is_left_when_connections_are_gone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with running_relay() as relay:
        bob = await Owner.enrolled("bob", relay.port)
        for _ in range(5):
            async with bob.calling("bob") as caller, bob.listening() as listener:
                await caller.send(bob.request())
                await caller.next()
                caller.socket.transport.abort()
                listener.socket.transport.abort()
        async with asyncio.timeout(10):
            while len(relay._board):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert relay._board._held == {}
        assert relay.hub.snapshot()["now_callers"] == 0
    assert caplog.text == ""


async def test_no_answer_waits_for_the_acknowledgement_of_its_first_part() -> None:
    """Nagle's algorithm would hold the second part of each answer back for 40 ms."""
    async with running_relay() as relay:
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        connections: set[Any] = set(relay._state.connections)
        (connection,) = connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
