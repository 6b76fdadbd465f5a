"""What a relay shows of itself to whoever runs it, and to nobody else."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ringline.relay.hub import Hub
from ringline.relay.server import RelayServer
from ringline_testing.relay import running_relay
from ringline_testing.signed import Owner, exchange

OPEN: dict[str, Any] = {"offline": True, "accept": "anyone", "allow": [], "block": []}


async def metrics(relay: RelayServer) -> dict[str, int]:
    """Return what a scraper on this machine reads."""
    answer = await exchange(relay.port, "GET", "/metrics")
    assert (answer.status, answer.header("content-type")) == (200, "text/plain; version=0.0.4; charset=utf-8")
    lines = [line for line in answer.body.decode().splitlines() if not line.startswith("#")]
    return {name: int(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_a_scraper_on_this_machine_reads_counters_that_name_nobody(tmp_path: Path) -> None:
    handles = "canary-alice", "canary-bob", "canary-nobody"
    async with running_relay(db=tmp_path / "relay.db") as relay:
        alice, bob = [await Owner.enrolled(handle, relay.port) for handle in handles[:2]]
        assert (await bob.ask("PUT", f"/v1/handles/{bob.handle}/policy", OPEN)).status == 200
        ids: list[str] = []
        async with alice.calling(bob.handle) as line, bob.listening() as listener:
            for mode in ({}, {"delivery_mode": "durable"}):
                request = alice.request(**mode)
                await line.send(request)
                offer = await listener.next()
                lease = {"lease_id": offer["lease_id"]} if mode else {}
                await listener.send({"type": "call_started", "call_id": offer["call_id"]} | lease)
                if mode:
                    assert (await listener.next())["type"] == "call_started"
                await listener.send(bob.outcome(call_id=offer["call_id"], **lease))
                while (await line.next())["type"] != "call_outcome":
                    pass
                ids += [offer["call_id"], request["message_id"], request["correlation_id"], *lease.values()]
            async with alice.calling(handles[2]) as nowhere:
                await nowhere.send(alice.request())
                assert (await nowhere.next())["code"] == "unknown_handle"
            shown = await metrics(relay)
            answer = await exchange(relay.port, "GET", "/metrics")
    assert shown["ringline_relay_admitted_total"] == 1
    assert shown['ringline_relay_stored_total{step="admitted"}'] == 1
    assert shown['ringline_relay_stored_total{step="completed"}'] == 1
    assert shown['ringline_relay_ended_total{state="completed"}'] == 1
    assert shown['ringline_relay_refused_total{code="unknown_handle"}'] == 1
    assert shown["ringline_relay_store_commits_total"] >= 3
    assert shown["ringline_relay_listeners"] == 1
    assert shown["ringline_relay_store_bytes"] > 0
    assert shown["ringline_relay_store_failing"] == shown["ringline_relay_faults_total"] == 0
    assert [name for name in (*handles, *ids, "canary") if name in answer.body.decode()] == []


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded"])
async def test_for_a_proxys_guests_there_are_no_metrics(header: str) -> None:
    async with running_relay() as relay:
        answer = await exchange(relay.port, "GET", "/metrics", headers={header: "for=203.0.113.7"})
        missing = await exchange(relay.port, "GET", "/nowhere", headers={header: "for=203.0.113.7"})
    assert answer.status == 404
    assert answer.without_date() == missing.without_date()


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
async def test_the_port_for_clients_shows_its_operator_nothing(method: str) -> None:
    """A proxy on the same machine that adds no header looks like the operator: its guests must not pass."""
    async with running_relay(realm="relay.example", open_registration=True) as relay:
        ready = await exchange(relay.port, "GET", "/readyz")
        assert (ready.status, ready.json()) == (200, {"ready": True})
        answer = await exchange(relay.port, method, "/metrics")
        missing = await exchange(relay.port, method, "/nowhere")
    assert answer.status == 404
    assert answer.without_date() == missing.without_date()


async def test_the_operator_has_a_listener_of_his_own(tmp_path: Path) -> None:
    place = ("127.0.0.1", 0)
    async with running_relay(realm="relay.example", db=tmp_path / "relay.db", admin_listen=place) as relay:
        assert relay.admin_url is not None
        port = int(relay.admin_url.rpartition(":")[2])
        shown = await exchange(port, "GET", "/metrics")
        assert (shown.status, "ringline_relay_listeners 0" in shown.body.decode()) == (200, True)
        ready = await exchange(port, "GET", "/readyz")
        assert ready.json() == {"ready": True, "reasons": [], "warnings": []}
        assert (await exchange(port, "GET", "/healthz")).status == 200
        # It is nothing but that, and not for a page whose name resolves to this machine.
        for method, path in (("GET", "/v1/relay"), ("POST", "/metrics"), ("PUT", "/v1/handles/bob")):
            assert (await exchange(port, method, path)).status in (404, 405)
        foreign = await exchange(port, "GET", "/metrics", headers={"Host": "page.example"})
        assert foreign.status == 403
        await relay.drain()
        ready = await exchange(port, "GET", "/readyz")
        assert (ready.status, ready.json()["reasons"]) == (503, ["the relay is stopping"])
        assert (await exchange(relay.port, "GET", "/readyz")).json() == {"ready": False}


async def test_the_operators_listener_upgrades_nothing() -> None:
    async with running_relay(realm="relay.example", admin_listen=("127.0.0.1", 0)) as relay:
        assert relay.admin_url is not None
        port = int(relay.admin_url.rpartition(":")[2])
        upgrade = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        }
        assert (await exchange(port, "GET", "/v1/call/bob", headers=upgrade)).status == 404
        assert (await exchange(port, "GET", "/metrics", headers=upgrade)).status == 200


async def test_an_erasure_that_fails_is_a_warning_for_whoever_runs_the_relay(tmp_path: Path) -> None:
    async with running_relay(db=tmp_path / "relay.db") as relay:
        upkeep = relay._calls._file.upkeep
        assert upkeep is not None
        upkeep.trouble = "the database refuses its upkeep"
        ready = await exchange(relay.port, "GET", "/readyz")
        # Calls are served as ever.
        assert (ready.status, ready.json()["ready"], ready.json()["reasons"]) == (200, True, [])
        assert ready.json()["warnings"] == ["the database refuses its upkeep"]
        assert (await metrics(relay))["ringline_relay_erasure_late"] == 1
        guest = await exchange(relay.port, "GET", "/readyz", headers={"X-Forwarded-For": "203.0.113.7"})
        assert guest.json() == {"ready": True}


# --- faults of the relay itself


@pytest.mark.parametrize("method", ["commit", "tick"])
async def test_a_fault_in_a_turn_or_a_timer_is_logged_without_its_text(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    settings = {"store_retry_ms": 50, "ring_bound_ms": 50}
    async with running_relay(db=tmp_path / "relay.db", settings=settings) as relay:
        alice, bob = await Owner.enrolled("alice", relay.port), await Owner.enrolled("bob", relay.port)
        assert (await bob.ask("PUT", "/v1/handles/bob/policy", OPEN)).status == 200
        plain = getattr(Hub, method)
        failed = asyncio.Event()

        def broken(*_: Any) -> Any:
            monkeypatch.setattr(Hub, method, plain)
            failed.set()
            raise RuntimeError("secret text")

        async with alice.calling("bob") as line, bob.listening():
            monkeypatch.setattr(Hub, method, broken)
            await line.send(alice.request(**({"delivery_mode": "durable"} if method == "commit" else {})))
            async with asyncio.timeout(10):
                await failed.wait()
            if method == "commit":
                # No receipt: whether anything was stored is in doubt, and it is taken back.
                assert (await line.next())["code"] == "busy"
            else:
                # The timer goes on.
                answers = [await line.next(), await line.next()]
                assert [answer["type"] for answer in answers] == ["call_status", "call_error"]
            assert (await metrics(relay))["ringline_relay_faults_total"] == 1
            async with asyncio.timeout(10):
                while (await exchange(relay.port, "GET", "/readyz")).status != 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        async with alice.calling("bob") as line:
            await line.send(alice.request(delivery_mode="durable"))
            assert (await line.next())["type"] == "call_queued"
    assert heard == []
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


class Broken:
    """A connection on which nothing can be said."""

    def send(self, payload: bytes, *, binary: bool = False) -> None:
        """See `Connection`."""
        raise RuntimeError("secret text")


async def test_a_connection_that_cannot_be_written_to_keeps_no_word_from_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_relay() as relay:
        alice, bob = await Owner.enrolled("alice", relay.port), await Owner.enrolled("bob", relay.port)
        async with alice.calling("bob") as line:
            lines = relay._board._lines
            (callers,) = lines
            async with bob.listening() as listener:
                monkeypatch.setitem(lines, callers, Broken())
                # Its caller would be told first.
                await line.send(alice.request())
                assert (await listener.next())["type"] == "incoming_call"
    assert "a Send of the hub raised RuntimeError" in caplog.text
    assert "secret" not in caplog.text
