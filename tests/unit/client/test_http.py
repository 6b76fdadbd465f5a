"""The relay's HTTP interface as a client uses it: log-in, its repair, and what each refusal becomes."""

from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ringline.client.account import Account
from ringline.client.address import RelayAddress
from ringline.client.clock import RelayClock, wall_ms
from ringline.client.home import Home
from ringline.client.http import RelayHttp
from ringline.protocol import token
from ringline.protocol.errors import ConfigError, HttpProblem, TransportError
from ringline.protocol.shapes import Policy
from ringline_testing.canned import Asked, CannedServer, canned_server, reply
from ringline_testing.relay import running_relay


def http(url: str, tmp_path: Path, *, realm: str = "localhost") -> RelayHttp:
    address = RelayAddress.parse(url, realm)
    account = Account.create(Home(tmp_path / "home"), address, "alice", wall_ms(), plain=True)
    return RelayHttp(address, account, RelayClock())


def problem(status: int, code: str, **members: Any) -> bytes:
    body = {"type": "about:blank", "title": "no", "status": status, "code": code} | members
    return reply(status, body, date=formatdate(usegmt=True))


INFO: dict[str, Any] = {
    "realm": "localhost",
    "version": "1",
    "protocols": ["ringline.v1"],
    "suites": [1, 2],
    "features": [],
    "limits": {},
    "budgets": {},
    "started_at": 1,
}
RECORD: dict[str, Any] = {
    "call_id": "c",
    "from": "alice",
    "to": "bob",
    "mode": "sync",
    "state": "ringing",
    "terminal_reason": None,
    "message_id": None,
    "correlation_id": "1" * 32,
    "submitted_at": 1,
    "expires_at": None,
    "started_at": None,
    "finished_at": None,
    "attempts": 1,
    "deferred_until": None,
    "cancel_requested": False,
    "outcome": None,
}


def claims(asked: Asked) -> token.Claims:
    return token.parse(asked.headers["authorization"].removeprefix("Bearer "))


# --- a real relay


async def test_keys_policy_tickets_and_records_of_a_real_relay(tmp_path: Path) -> None:
    async with running_relay() as relay:
        me = http(relay.url, tmp_path)
        assert (await me.info()).realm == "localhost"
        await me.publish()
        await me.publish()  # twice is once
        assert me.account.was_published
        keys = await me.keys("alice")
        card = await me.card("alice", me.account.card.card.id)
        assert keys.card == card.card
        await me.publish_prekeys()
        policy = Policy(offline=False, accept="listed", allow=["bob"], block=[])
        await me.set_policy(policy)
        assert await me.policy() == policy
        assert (await me.ticket("/v1/call/bob")).ticket
        assert await me.record("no-such-call") is None
        assert await me.cancel("no-such-call") == "unknown"
        with pytest.raises(HttpProblem) as caught:
            await me.keys("nobody")
        assert caught.value.code == "not_found"


async def test_a_development_relay_that_forgot_everybody_gets_the_keys_once_more(tmp_path: Path) -> None:
    async with running_relay() as relay:
        me = http(relay.url, tmp_path)
        # Never published here: log-in fails until the library publishes by itself.
        assert (await me.policy()).accept == "anyone"


async def test_a_clock_that_is_wrong_is_corrected_by_the_first_refusal(tmp_path: Path) -> None:
    said: list[str] = []
    async with running_relay() as relay:
        me = http(relay.url, tmp_path)
        me.clock = RelayClock(lambda: wall_ms() - 600_000, said.append)
        await me.publish()
        assert 595_000 < me.clock.offset_ms < 605_000
        assert len(said) == 1


# --- refusals of a scripted one


async def refusals(respond: Callable[[Asked], bytes | None], tmp_path: Path, **options: Any) -> CannedServer:
    async with canned_server(respond) as server:
        me = http(server.url, tmp_path, **options)
        with pytest.raises(HttpProblem) as caught:
            await me.policy()
        assert (caught.value.code, caught.value.exit_code) == ("unauthorized", 20)
    return server


async def test_every_try_has_a_token_of_its_own_for_this_very_request(tmp_path: Path) -> None:
    server = await refusals(lambda asked: problem(401, "unauthorized"), tmp_path, realm="relay.example")
    assert [asked.method for asked in server.asked] == ["GET", "GET"]
    first, second = map(claims, server.asked)
    assert (first.method, first.path, first.realm) == ("GET", "/v1/handles/alice/policy", "relay.example")
    assert first.jti != second.jti


async def test_in_the_development_realm_the_keys_are_published_once_and_the_request_made_again(
    tmp_path: Path,
) -> None:
    def respond(asked: Asked) -> bytes:
        return reply(201, {}) if asked.method == "PUT" else problem(401, "unauthorized")

    server = await refusals(respond, tmp_path)
    assert [asked.method for asked in server.asked] == ["GET", "GET", "PUT", "GET"]
    assert set(msgspec.json.decode(server.asked[2].body)) == {"card", "card_sig", "prekey", "prekey_sig"}


async def test_a_publication_that_is_refused_is_not_repeated_for_ever(tmp_path: Path) -> None:
    server = await refusals(lambda asked: problem(401, "unauthorized"), tmp_path)
    assert [asked.method for asked in server.asked] == ["GET", "GET", "PUT", "PUT"]


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (400, "malformed", 32),
        (403, "forbidden", 20),
        (404, "not_found", 10),
        (409, "conflict", 2),
        (413, "too_large", 33),
        (429, "rate_limited", 13),
        (500, "internal_error", 70),
        (503, "unavailable", 30),
    ],
)
@pytest.mark.parametrize("known", [True, False])
async def test_a_problem_becomes_an_error_with_its_exit_code(
    tmp_path: Path, status: int, code: str, exit_code: int, *, known: bool
) -> None:
    def respond(asked: Asked) -> bytes:
        return problem(status, code if known else "word_of_a_later_version", detail="d\x1b[31m\nx")

    async with canned_server(respond) as server:
        with pytest.raises(HttpProblem) as caught:
            await http(server.url, tmp_path).policy()
    assert (caught.value.code, caught.value.exit_code) == (code, exit_code)
    # A text of the relay's reaches a terminal.
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (problem(429, "rate_limited", retry_after_ms=1_500), 1_500),
        (
            reply(429, {"type": "x", "title": "x", "status": 429, "code": "rate_limited"}, retry_after="7"),
            7_000,
        ),
        (
            reply(
                429, {"type": "x", "title": "x", "status": 429, "code": "rate_limited"}, retry_after="soon"
            ),
            None,
        ),
        (
            reply(
                429, {"type": "x", "title": "x", "status": 429, "code": "rate_limited"}, retry_after="1e99"
            ),
            None,
        ),
        (
            reply(429, {"type": "x", "title": "x", "status": 429, "code": "rate_limited"}, retry_after="nan"),
            None,
        ),
    ],
)
async def test_the_time_to_wait_is_told(tmp_path: Path, response: bytes, expected: int | None) -> None:
    async with canned_server(lambda asked: response) as server:
        with pytest.raises(HttpProblem) as caught:
            await http(server.url, tmp_path).policy()
    assert caught.value.retry_after_ms == expected


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (reply(200, b"<html>"), "not a Ringline relay"),
        (reply(200, {"accept": 3}), "not a Ringline relay"),
        (reply(200, b"[" * 100_000), "not a Ringline relay"),
        (reply(404, b"nope", content_type="text/html"), "not a Ringline relay"),
        (reply(400, b"{", content_type="application/problem+json"), "not a Ringline relay"),
        (reply(502, b"bad gateway", content_type="text/html"), "proxy in front"),
        (reply(301, location="https://elsewhere.example/"), "redirect"),
    ],
)
async def test_what_is_no_relay_is_told_apart(tmp_path: Path, response: bytes, text: str) -> None:
    async with canned_server(lambda asked: response) as server:
        with pytest.raises(TransportError, match=text) as caught:
            await http(server.url, tmp_path).policy()
    assert caught.value.next_step


async def test_members_of_a_later_relay_are_ignored(tmp_path: Path) -> None:
    async with canned_server(lambda asked: reply(200, INFO | {"later": [1]})) as server:
        assert (await http(server.url, tmp_path).info()).version == "1"


async def test_another_realm_is_a_hard_stop(tmp_path: Path) -> None:
    async with canned_server(lambda asked: reply(200, INFO | {"realm": "evil.example"})) as server:
        with pytest.raises(ConfigError, match=r"evil\.example, not localhost"):
            await http(server.url, tmp_path).info()
        assert "authorization" not in server.asked[0].headers


async def test_a_relay_without_a_common_version_is_told(tmp_path: Path) -> None:
    async with canned_server(lambda asked: reply(200, INFO | {"protocols": ["ringline.v9"]})) as server:
        with pytest.raises(TransportError) as caught:
            await http(server.url, tmp_path).info()
    assert (caught.value.code, caught.value.exit_code) == ("version_unsupported", 31)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (reply(200, {}), "canceled"),
        (reply(202, {}), "requested"),
        (problem(409, "already_terminal"), "already_terminal"),
        (problem(409, "too_late"), "too_late"),
        (problem(404, "not_found"), "unknown"),
        (problem(404, "unknown"), "unknown"),
    ],
)
async def test_the_answers_to_a_cancellation(tmp_path: Path, response: bytes, answer: str) -> None:
    async with canned_server(lambda asked: response) as server:
        assert await http(server.url, tmp_path).cancel("c") == answer
        assert (server.asked[0].method, server.asked[0].target) == ("POST", "/v1/calls/c/cancel")


async def test_a_record_is_waited_for(tmp_path: Path) -> None:
    async with canned_server(lambda asked: reply(200, RECORD)) as server:
        record = await http(server.url, tmp_path).record("c", wait_s=20)
        assert record is not None
        assert (record.from_, record.state) == ("alice", "ringing")
        assert server.asked[0].target == "/v1/calls/c?wait=20"
        assert claims(server.asked[0]).path == "/v1/calls/c"


async def test_a_taken_handle_is_told_with_the_way_out(tmp_path: Path) -> None:
    async with canned_server(lambda asked: problem(409, "conflict")) as server:
        me = http(server.url, tmp_path)
        with pytest.raises(HttpProblem, match="handle alice is taken"):
            await me.publish()
        assert not me.account.was_published
