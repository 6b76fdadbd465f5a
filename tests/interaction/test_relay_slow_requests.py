"""Requests whose body is held back: what changes meanwhile counts, and not what was true when they began."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Final, final

import msgspec
import pytest

from ringline.relay.server import RelayServer
from ringline_testing.relay import running_relay
from ringline_testing.signed import Owner

REALM: Final = "relay.example"
_PATIENCE_S: Final = 30.0
_INVITE: Final = {"uses": 1, "ttl_s": 86_400}
_POLICY: Final[dict[str, Any]] = {"offline": True, "accept": "anyone", "allow": [], "block": []}


@final
class Held:
    """A request of which the last byte is still missing, and which the relay has begun to serve."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, last: bytes) -> None:
        self._reader = reader
        self._writer = writer
        self._last = last

    async def finish(self) -> int:
        """Send the last byte and return the status of the answer."""
        async with asyncio.timeout(_PATIENCE_S):
            self._writer.write(self._last)
            return int((await self._reader.readline()).split()[1])


@contextlib.asynccontextmanager
async def held(owner: Owner, method: str, path: str, body: object) -> AsyncGenerator[Held]:
    """Send a request all but its last byte; what is asked afterwards is served later."""
    data = msgspec.json.encode(body)
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{owner.port}", f"Content-Length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in owner.bearer(method, path).items()]
    # With this the relay says itself that it waits for the body: its route has let the request in.
    lines.append("Expect: 100-continue")
    async with asyncio.timeout(_PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", owner.port)
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode())
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(data[:-1])
            yield Held(reader, writer, data[-1:])
        finally:
            writer.close()


@pytest.fixture
async def relay() -> AsyncGenerator[RelayServer]:
    async with running_relay(realm=REALM, admin="root") as relay:
        yield relay


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/invites", _INVITE),
        ("PUT", "/v1/handles/eve/policy", _POLICY),
        ("DELETE", "/v1/handles/eve", {}),
    ],
)
@pytest.mark.parametrize("by", ["removal", "revocation"])
async def test_whoever_is_shut_out_changes_nothing_by_a_request_that_he_had_begun(
    relay: RelayServer, by: str, method: str, path: str, body: object
) -> None:
    eve = await Owner.enrolled("eve", relay.port, realm=REALM)
    async with held(eve, method, path, body) as request:
        if by == "removal":
            assert (await eve.ask("DELETE", "/v1/handles/eve")).status == 200
        else:
            answer = await eve.ask("POST", "/v1/handles/eve/revocations", eve.revocation())
            assert answer.status == 201
        assert await request.finish() == 401
    assert (await Owner(handle="eve", port=relay.port, realm=REALM).publish()).status == 409


async def test_claims_that_were_begun_at_the_same_time_share_the_budget_of_their_address() -> None:
    async with (
        running_relay(settings={"claims_per_minute": 2}) as relay,
        contextlib.AsyncExitStack() as stack,
    ):
        requests: list[Held] = []
        for number in range(4):
            owner = Owner(handle=f"eve{number}", port=relay.port)
            claim = held(owner, "PUT", f"/v1/handles/eve{number}", owner.publication())
            requests.append(await stack.enter_async_context(claim))
        answers = [await request.finish() for request in requests]
        assert answers == [201, 201, 429, 429]
