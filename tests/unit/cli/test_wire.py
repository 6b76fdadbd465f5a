"""The recorder between clients and relay sees every byte, and its lies are what they claim to be."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from ringline.cli.demo.lies import FlippedBit, SwappedKeys
from ringline.cli.demo.wire import Meddler, Wire, forms
from ringline.protocol.encoding import b64decode

SECRET = "The merger is confidential."


@asynccontextmanager
async def wire(meddler: Meddler | None = None) -> AsyncGenerator[Wire]:
    """A recorder in front of a server that answers HTTP with JSON and sends WebSocket messages back."""

    def answer(connection: ServerConnection, request: Request) -> Response | None:
        if request.path.startswith("/v1/handles/"):
            return connection.respond(200, json.dumps({"handle": "bob", "card": "right", "revoked": []}))
        return None

    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    async with serve(echo, "127.0.0.1", 0, process_request=answer, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with Wire(port, meddler) as recorder:
            yield recorder


async def get(recorder: Wire, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(recorder.url.rsplit(":", 1)[1]))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.split(b"\r\n\r\n", 1)[1]


async def through(recorder: Wire, message: str) -> str:
    async with connect(recorder.url.replace("http", "ws") + "/v1/call/bob", compression=None) as socket:
        await socket.send(message)
        answer = await socket.recv()
    assert isinstance(answer, str)
    return answer


@pytest.mark.parametrize("length", [10, 200, 70_000])
async def test_masked_text_is_found(length: int) -> None:
    async with wire() as recorder:
        message = "x" * length + SECRET
        assert await through(recorder, message) == message
        assert "plain" in recorder.finds(SECRET)
        assert recorder.finds("something else") == []
        frames = [entry for entry in recorder.passed if entry.is_frame and entry.content]
        assert [(entry.direction, entry.content.decode()) for entry in frames] == [
            ("to relay", message),
            ("from relay", message),
        ]
        assert frames[0].request == "GET /v1/call/bob"
        assert recorder.bytes_seen > 2 * length


@pytest.mark.parametrize("shift", range(3))
@pytest.mark.parametrize("tail", ["", "x", "xx"])
async def test_text_within_base64_is_found_wherever_it_begins(shift: int, tail: str) -> None:
    import base64

    hidden = base64.urlsafe_b64encode(b"abc"[:shift] + b"abcdef" + (SECRET + tail).encode()).decode()
    async with wire() as recorder:
        await through(recorder, json.dumps({"ct": hidden}))
        assert any(name.startswith("base64url") for name in recorder.finds(SECRET))


def test_every_form_is_long_enough_not_to_be_found_by_chance() -> None:
    assert all(len(form) >= 8 for _, form in forms(SECRET))


async def test_swapped_keys_replace_the_answer_and_nothing_else() -> None:
    lie = SwappedKeys("bob", {"card": "wrong"})
    async with wire(lie) as recorder:
        assert json.loads(await get(recorder, "/v1/handles/bob")) == {
            "handle": "bob",
            "card": "wrong",
            "revoked": [],
        }
        assert json.loads(await get(recorder, "/v1/handles/eve"))["card"] == "right"
        assert await through(recorder, "{}") == "{}"
    assert lie.told == 1


async def test_a_flipped_bit_changes_one_bit_of_a_call_and_nothing_else() -> None:
    lie = FlippedBit()
    call = {"type": "incoming_call", "envelope": {"ct": "QUJD" * 30}}
    other = {"type": "call_outcome", "envelope": {"ct": "QUJD" * 30}}
    async with wire(lie) as recorder:
        text = json.dumps(call, separators=(",", ":"))
        got = json.loads(await through(recorder, text))
        before, after = b64decode(call["envelope"]["ct"]), b64decode(got["envelope"]["ct"])  # type: ignore[index]
        difference = int.from_bytes(before) ^ int.from_bytes(after)
        assert difference.bit_count() == 1
        assert got | {"envelope": call["envelope"]} == call
        unchanged = json.dumps(other, separators=(",", ":"))
        assert await through(recorder, unchanged) == unchanged
    assert lie.told == 1


async def test_a_relay_that_is_gone_ends_the_connection() -> None:
    async with Wire(1) as recorder:
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError, IndexError)):
            await asyncio.wait_for(get(recorder, "/"), 30)
