"""The WebSocket that comes back by itself: what ends it, what does not, and what nobody can raise into it."""

import asyncio
import contextlib
import http
from collections.abc import AsyncGenerator, Awaitable, Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from ringline.client.account import Account
from ringline.client.address import RelayAddress
from ringline.client.backoff import Backoff
from ringline.client.clock import RelayClock, wall_ms
from ringline.client.home import Home
from ringline.client.http import RelayHttp
from ringline.client.link import Link
from ringline.protocol import token
from ringline.protocol.errors import HttpProblem, RinglineError, TransportError, TrustError
from ringline.protocol.frames import CallAccepted, CallStatus, Frame
from ringline.protocol.limits import LISTENER_FRAME_BYTES, SUBPROTOCOL, UNDECODABLE_FRAMES

STATUS = {"type": "call_status", "state": "ringing", "call_id": "c", "correlation_id": "1" * 32}
Play = Callable[[ServerConnection], Awaitable[None]]
Judge = Callable[[ServerConnection, Request], Response | None]


class User:
    """Writes down what a link tells."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.errors: list[RinglineError] = []
        self.delays: list[float] = []
        self.frames: list[Frame] = []
        self.raising: Exception | None = None
        self._changed = asyncio.Event()

    def opened(self) -> None:
        self._tell("opened")

    def frame(self, frame: Frame) -> None:
        self.frames.append(frame)
        self._tell("frame")
        if self.raising is not None:
            raise self.raising

    def lost(self, error: RinglineError, retry_s: float) -> None:
        self.errors.append(error)
        self.delays.append(retry_s)
        self._tell("lost")

    def ended(self, error: RinglineError) -> None:
        self.errors.append(error)
        self._tell("ended")

    def _tell(self, what: str) -> None:
        self.told.append(what)
        self._changed.set()

    async def until(self, what: str, times: int = 1) -> None:
        """Wait until that was told so many times."""
        async with asyncio.timeout(10):
            while self.told.count(what) < times:
                self._changed.clear()
                await self._changed.wait()


class Relay:
    """A scripted relay's WebSocket side: ``play`` is run for each connection, ``judge`` may refuse one."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[Request] = []
        self.received: list[Any] = []
        self.play: Play = self.read
        self.judge: Judge = lambda connection, request: None
        self._changed = asyncio.Event()

    async def read(self, connection: ServerConnection) -> None:
        """Keep what comes."""
        async for message in connection:
            self.received.append(message)
            self._changed.set()

    async def until(self, count: int) -> None:
        """Wait until so many messages came."""
        async with asyncio.timeout(10):
            while len(self.received) < count:
                self._changed.clear()
                await self._changed.wait()

    async def handle(self, connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            await self.play(connection)

    def look(self, connection: ServerConnection, request: Request) -> Response | None:
        self.requests.append(request)
        return self.judge(connection, request)


@contextlib.asynccontextmanager
async def scripted(tmp_path: Path, **options: Any) -> AsyncGenerator[tuple[Relay, User, Link]]:
    """A scripted relay, and a link to it that was not started yet."""
    relay = Relay()
    arguments: dict[str, Any] = {"subprotocols": [Subprotocol(SUBPROTOCOL)]} | options.pop("server", {})
    async with serve(
        relay.handle, "127.0.0.1", 0, process_request=relay.look, compression=None, **arguments
    ) as server:
        relay.port = next(iter(server.sockets)).getsockname()[1]
        address = RelayAddress.parse(f"http://127.0.0.1:{relay.port}", options.pop("realm", None))
        account = Account.create(Home(tmp_path / "home"), address, "alice", wall_ms(), plain=True)
        user = User()
        link = Link(
            RelayHttp(address, account, RelayClock()),
            options.pop("path", "/v1/call/bob"),
            options.pop("direction", "relay_to_caller"),
            user,
            backoff=Backoff(lambda: 0.0, base_s=0.02),
            **options,
        )
        try:
            yield relay, user, link
        finally:
            await link.close()


def problem(connection: ServerConnection, status: int, code: str, **headers: str) -> Response:
    response = connection.respond(http.HTTPStatus(status), "")
    body = msgspec.json.encode({"type": "x", "title": "x", "status": status, "code": code})
    for name in ("Content-Type", "Content-Length"):
        del response.headers[name]
    response.headers["Content-Type"] = "application/problem+json"
    response.headers["Content-Length"] = str(len(body))
    for name, value in headers.items():
        if name in response.headers:
            del response.headers[name]
        response.headers[name] = value
    return Response(response.status_code, response.reason_phrase, response.headers, body)


async def test_the_handshake_logs_in_for_this_path_and_asks_for_the_protocol(tmp_path: Path) -> None:
    path = "/v1/listen/alice?instance=x"
    async with scripted(tmp_path, path=path, direction="relay_to_listener") as (relay, user, link):
        link.start()
        await user.until("opened")
        request = relay.requests[0]
        assert request.path == path
        assert request.headers["Sec-WebSocket-Protocol"] == SUBPROTOCOL
        assert "Sec-WebSocket-Extensions" not in request.headers
        claims = token.parse(request.headers["Authorization"].removeprefix("Bearer "))
        # Without the query (RL-AUTH-005).
        assert (claims.method, claims.path) == ("GET", "/v1/listen/alice")


async def test_frames_go_both_ways_as_text(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (relay, user, link):

        async def greet(connection: ServerConnection) -> None:
            await connection.send(msgspec.json.encode(STATUS).decode())
            await relay.read(connection)

        relay.play = greet
        assert not link.send(CallAccepted(call_id="early"))
        link.start()
        await user.until("frame")
        assert link.send(CallAccepted(call_id="c"))
        await relay.until(1)
        assert relay.received == ['{"type":"call_accepted","call_id":"c"}']


async def test_what_was_sent_last_goes_out_before_the_close(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (relay, user, link):
        link.start()
        await user.until("opened")
        for number in range(50):
            link.send(CallAccepted(call_id=f"{number}"))
        await link.close()
        await relay.until(50)
        assert (link.connected, link.ended) == (False, True)


@pytest.mark.parametrize("code", [1000, 1001, 1008, 1009, 1011, 1012])
async def test_a_closed_connection_is_made_anew(tmp_path: Path, code: int) -> None:
    async with scripted(tmp_path) as (relay, user, link):
        seen: list[ServerConnection] = []

        async def close_once(connection: ServerConnection) -> None:
            seen.append(connection)
            if len(seen) == 1:
                await connection.close(code, "slow")
            else:
                await relay.read(connection)

        relay.play = close_once
        link.start()
        await user.until("opened", 2)
        assert user.told == ["opened", "lost", "opened"]


async def test_the_relays_wish_on_going_away_is_kept(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (relay, user, link):

        async def drain(connection: ServerConnection) -> None:
            await connection.close(1001, "retry=7000")

        relay.play = drain
        link.start()
        await user.until("lost")
        assert 7 <= user.delays[0] <= 7.1
        # A caller who has a call to make does not wait for it.
        relay.play = relay.read
        link.wake()
        await user.until("opened", 2)


@pytest.mark.parametrize(
    ("code", "kind", "word"), [(4000, TransportError, "took this one's place"), (4001, TrustError, "revoked")]
)
async def test_a_final_close_is_not_dialled_again(
    tmp_path: Path, code: int, kind: type[RinglineError], word: str
) -> None:
    async with scripted(tmp_path) as (relay, user, link):

        async def close(connection: ServerConnection) -> None:
            await connection.close(code)

        relay.play = close
        link.start()
        await user.until("ended")
        assert isinstance(user.errors[0], kind)
        assert word in str(user.errors[0])
        assert user.told == ["opened", "ended"]
        assert len(relay.requests) == 1
        assert not link.connected


async def test_a_401_corrects_the_clock_and_is_tried_once_more(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (relay, user, link):

        def late(connection: ServerConnection, request: Request) -> Response | None:
            if len(relay.requests) > 1:
                return None
            return problem(
                connection, 401, "unauthorized", Date=formatdate(wall_ms() / 1_000 + 900, usegmt=True)
            )

        relay.judge = late
        link.start()
        await user.until("opened")
        first, second = (
            token.parse(request.headers["Authorization"].removeprefix("Bearer "))
            for request in relay.requests
        )
        assert 895 <= second.iat - first.iat <= 905
        assert first.jti != second.jti


async def test_a_401_that_stays_is_final(tmp_path: Path) -> None:
    async with scripted(tmp_path, realm="relay.example") as (relay, user, link):
        relay.judge = lambda connection, request: problem(connection, 401, "unauthorized")
        link.start()
        await user.until("ended")
        assert isinstance(user.errors[0], HttpProblem)
        assert (user.errors[0].code, len(relay.requests)) == ("unauthorized", 2)


@pytest.mark.parametrize(("status", "code"), [(400, "malformed"), (403, "forbidden"), (404, "not_found")])
async def test_a_refused_handshake_is_final(tmp_path: Path, status: int, code: str) -> None:
    async with scripted(tmp_path) as (relay, user, link):
        relay.judge = lambda connection, request: problem(connection, status, code)
        link.start()
        await user.until("ended")
        assert user.errors[0].code == code


@pytest.mark.parametrize(("status", "code"), [(429, "rate_limited"), (503, "unavailable")])
async def test_a_relay_that_has_no_time_is_dialled_later(tmp_path: Path, status: int, code: str) -> None:
    async with scripted(tmp_path) as (relay, user, link):
        headers = {"Retry-After": "5"}
        relay.judge = lambda connection, request: problem(connection, status, code, **headers)
        link.start()
        await user.until("lost")
        assert user.errors[0].code == code
        assert 5 <= user.delays[0] <= 5.1


async def test_a_dropped_upgrade_is_final_at_first_and_a_matter_of_waiting_later(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (relay, user, link):

        async def close(connection: ServerConnection) -> None:
            await connection.close(1001)

        relay.play = close
        drop: Judge = lambda connection, request: problem(connection, 426, "upgrade_required")  # noqa: E731
        relay.judge = lambda connection, request: (
            drop(connection, request) if len(relay.requests) == 2 else None
        )
        link.start()
        await user.until("opened", 2)
        assert "drops the Upgrade header" in str(user.errors[1])
        assert "ended" not in user.told


async def test_a_relay_without_the_protocol_is_not_used(tmp_path: Path) -> None:
    async with scripted(tmp_path, server={"subprotocols": None}) as (_, user, link):
        link.start()
        await user.until("ended")
        assert user.errors[0].code == "version_unsupported"


async def test_damaged_frames_are_counted_and_the_twentieth_makes_a_new_connection(tmp_path: Path) -> None:
    codes: list[int | None] = []
    async with scripted(tmp_path) as (relay, user, link):

        async def spoil(connection: ServerConnection) -> None:
            if not codes:
                for _ in range(UNDECODABLE_FRAMES - 1):
                    await connection.send("{}")
                await connection.send(msgspec.json.encode(STATUS).decode())
                await connection.send(b"binary")
            try:
                await connection.recv()
            finally:
                await connection.wait_closed()
                codes.append(connection.close_code)

        relay.play = spoil
        link.start()
        await user.until("opened", 2)
        assert codes == [1008]
        assert len(user.frames) == 1
        assert link.damaged == UNDECODABLE_FRAMES


async def test_a_frame_of_another_direction_is_damage(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (relay, user, link):

        async def stray(connection: ServerConnection) -> None:
            await connection.send('{"type":"call_accepted","call_id":"c"}')
            await connection.send(msgspec.json.encode(STATUS).decode())
            await relay.read(connection)

        relay.play = stray
        link.start()
        await user.until("frame")
        assert link.damaged == 1


@pytest.mark.parametrize("raising", [ValueError("secret text"), KeyError(1), RecursionError()])
async def test_nothing_the_user_raises_ends_the_reader(
    tmp_path: Path, raising: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted(tmp_path) as (relay, user, link):

        async def twice(connection: ServerConnection) -> None:
            for _ in range(2):
                await connection.send(msgspec.json.encode(STATUS).decode())
            await relay.read(connection)

        relay.play = twice
        user.raising = raising
        with caplog.at_level("INFO"):
            link.start()
            await user.until("frame", 2)
        assert type(raising).__name__ in caplog.text
        assert "secret text" not in caplog.text


async def test_damaged_frames_are_told_once_per_connection_and_counted_at_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted(tmp_path) as (relay, user, link):

        async def spoil(connection: ServerConnection) -> None:
            if len(relay.requests) > 1:
                await relay.read(connection)
            for number in range(12):
                await connection.send("\x1b[2J" if number % 2 else b"\x00")
            await connection.close(1001)

        relay.play = spoil
        link.start()
        await user.until("opened", 2)
    assert [record.getMessage() for record in caplog.records if record.name == "ringline.client.link"] == [
        "the relay sent a frame that cannot be read; others of this connection are counted",
        "that connection had 12 frames that cannot be read",
    ]


async def test_no_token_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        async with scripted(tmp_path) as (relay, user, link):
            link.start()
            await user.until("opened")
            bearer = relay.requests[0].headers["Authorization"].removeprefix("Bearer ")
        texts = [
            record.getMessage()
            for record in caplog.records
            if not record.name.startswith("websockets.server")
        ]
        assert not any(bearer in text for text in texts)


async def test_a_time_to_wait_of_any_length_is_no_fault(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (relay, user, link):

        def far(connection: ServerConnection, request: Request) -> Response:
            response = problem(connection, 429, "rate_limited")
            response.body = b'{"type":"t","title":"t","status":429,"code":"rate_limited","retry_after_ms":1'
            response.body += b"0" * 400 + b"}"
            del response.headers["Content-Length"]
            response.headers["Content-Length"] = str(len(response.body))
            return response

        relay.judge = far
        link.start()
        await user.until("lost")
        assert user.errors[0].code == "rate_limited"


async def test_a_link_that_fails_over_a_fault_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: object) -> None:
        raise LookupError("secret text")

    async with scripted(tmp_path) as (_, user, link):
        monkeypatch.setattr(link._backoff, "opened", fail)
        link.start()
        await user.until("ended")
        assert link.ended or not link.connected
    assert "LookupError" in str(user.errors[0])
    assert "secret text" not in caplog.text + str(user.errors[0])


async def test_a_message_above_the_limit_closes_1009_and_one_at_the_limit_passes(tmp_path: Path) -> None:
    code: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    async with scripted(tmp_path) as (relay, user, link):

        async def flood(connection: ServerConnection) -> None:
            await connection.send(" " * (LISTENER_FRAME_BYTES - 2) + "{}")
            await connection.send(" " * (LISTENER_FRAME_BYTES + 1))
            await connection.wait_closed()
            if not code.done():
                code.set_result(connection.close_code)

        relay.play = flood
        link.start()
        await user.until("lost")
        assert link.damaged == 1  # the first was read, and is no frame
        assert await asyncio.wait_for(code, 30) == 1009


async def test_silence_is_noticed_by_pings(tmp_path: Path) -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        import base64
        import hashlib

        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(
            line.split(": ")[1] for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key")
        )
        digest = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
        lines = [
            "HTTP/1.1 101 Switching Protocols",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}",
            f"Sec-WebSocket-Protocol: {SUBPROTOCOL}",
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        await reader.read()
        writer.close()

    server = await asyncio.start_server(deaf, "127.0.0.1", 0)
    async with server:
        address = RelayAddress.parse(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        account = Account.create(Home(tmp_path / "home"), address, "alice", wall_ms())
        user = User()
        link = Link(
            RelayHttp(address, account, RelayClock()),
            "/v1/call/bob",
            "relay_to_caller",
            user,
            ping_interval_s=0.05,
            ping_timeout_s=0.05,
        )
        link.start()
        await user.until("lost")
        await link.close()


async def test_a_refused_port_is_dialled_again_and_told_each_time(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (_, user, link):
        pass
    user.told.clear()
    fresh = Link(
        link._dialler._http,
        "/v1/call/bob",
        "relay_to_caller",
        user,
        backoff=Backoff(lambda: 0.0, base_s=0.01),
    )
    fresh.start()
    await user.until("lost", 2)
    assert "nothing listens" in str(user.errors[-1])
    await fresh.close()


async def test_closing_twice_or_before_the_start_is_harmless(tmp_path: Path) -> None:
    async with scripted(tmp_path) as (_, user, link):
        await link.close()
        link.start()
        await user.until("opened")
        await link.close()
        await link.close()


async def test_every_frame_is_seen_once_whatever_else_goes_on_and_whenever_it_comes(tmp_path: Path) -> None:
    # A receive that is broken off by a timer can take a frame with it. Here one reader waits, and the
    # timers are elsewhere: sends, wakings, pings and cancelled closes fall between the frames.
    count = 3_000

    async def pour(relay: Relay, connection: ServerConnection) -> None:
        for number in range(count):
            await connection.send(msgspec.json.encode(STATUS | {"call_id": f"c{number}"}).decode())
            if number % 7 == 0:
                await asyncio.sleep(0)
        await relay.read(connection)

    async with scripted(tmp_path, ping_interval_s=0.005, ping_timeout_s=5.0) as (relay, user, link):
        relay.play = lambda connection: pour(relay, connection)
        link.start()
        await user.until("opened")
        async with asyncio.timeout(30):
            while len(user.frames) < count:
                link.wake()
                link.send(CallAccepted(call_id="c"))
                waiting = asyncio.create_task(user.until("frame", len(user.frames) + 1))
                await asyncio.sleep(0.001)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
        seen = [frame.call_id for frame in user.frames if isinstance(frame, CallStatus)]
        assert seen == [f"c{number}" for number in range(count)]
        assert user.told.count("lost") == 0
