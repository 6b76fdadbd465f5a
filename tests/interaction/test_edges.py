"""What a peer sees of an edge, byte for byte: both edges, on both event loops."""

import asyncio
import gc
import logging
import socket
import ssl
import subprocess
import sys
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import cast

import pytest
import uvicorn
import uvloop
from starlette.applications import Starlette

from ringline.protocol.limits import LISTENER_FRAME_BYTES
from ringline.relay.edge import (
    EDGES,
    Accepted,
    EdgeLimits,
    Handshake,
    Refused,
    edge_factory,
    port_factory,
)
from ringline_testing.certificate import contexts
from ringline_testing.checkout import ROOT
from ringline_testing.edge_server import Door, EdgeServer, Recorder, serve, until
from ringline_testing.raw_peer import Frame, RawPeer, connect, masked

LOOP_FACTORIES = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
FIN, MORE = 0x8, 0x0

# Long enough never to be reached by accident, short enough to end a test that hangs.
CALM = EdgeLimits(close_timeout=10, drop_timeout=10)


class Stage:
    """One edge, served with limits of the test's choice."""

    def __init__(self, edge: str) -> None:
        self.edge = edge
        self.door = Door()

    def serve(
        self, limits: EdgeLimits = CALM, tls: ssl.SSLContext | None = None
    ) -> AbstractAsyncContextManager[EdgeServer]:
        """Serve it."""
        return serve(self.edge, self.door, limits, tls)

    @asynccontextmanager
    async def meet(
        self, limits: EdgeLimits = CALM, *, lazy: bool = False
    ) -> AsyncGenerator[tuple[RawPeer, Recorder]]:
        """Serve it, and let one peer in; see `connect` for a lazy one."""
        async with asyncio.timeout(20), self.serve(limits) as server, connect(server.port, lazy=lazy) as peer:
            await peer.open()
            yield peer, await self.door.entered()


@pytest.fixture(params=EDGES)
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(request.param)


def echo(recorder: Recorder, payload: bytes) -> None:
    """Send every message back."""
    recorder.connection.send(payload)


# --- messages


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 300_000])
async def test_a_message_of_any_length_arrives_and_is_sent_whole(stage: Stage, size: int) -> None:
    async with stage.meet() as (peer, receiver):
        payload = b"x" * size
        peer.send(masked(TEXT, payload))
        assert await receiver.next() == ("message", payload, None)
        receiver.connection.send(payload)
        assert await peer.frame() == Frame(TEXT, payload)


async def test_binary_is_told_apart_and_may_hold_any_bytes(stage: Stage) -> None:
    async with stage.meet() as (peer, receiver):
        peer.send(masked(BINARY, b"\xff\x00"), masked(TEXT, b"a"))
        assert await receiver.next() == ("binary", b"\xff\x00", None)
        assert await receiver.next() == ("message", b"a", None)
        receiver.connection.send(b"\xff\x00", binary=True)
        assert await peer.frame() == Frame(BINARY, b"\xff\x00")


async def test_fragments_are_joined_and_control_frames_between_them_are_answered(stage: Stage) -> None:
    async with stage.meet() as (peer, receiver):
        peer.send(
            masked(TEXT, b"gr", flags=MORE),
            masked(PING, b"now"),
            masked(CONTINUATION, "ü".encode()[:1], flags=MORE),
            masked(CONTINUATION, b"", flags=MORE),
            masked(PONG, b"unasked"),
            masked(CONTINUATION, "üß".encode()[1:]),
        )
        assert await receiver.next() == ("message", "grüß".encode(), None)
        assert await peer.frame() == Frame(PONG, b"now")
        peer.send(masked(BINARY, b"1", flags=MORE), masked(CONTINUATION, b"2"))
        assert await receiver.next() == ("binary", b"12", None)


async def test_bytes_may_come_one_at_a_time(stage: Stage) -> None:
    async with stage.meet() as (peer, receiver):
        for byte in masked(TEXT, b"slow") + masked(PING, b"p"):
            peer.send(bytes([byte]))
            await asyncio.sleep(0)
        assert await receiver.next() == ("message", b"slow", None)
        assert await peer.frame() == Frame(PONG, b"p")


async def test_a_burst_is_delivered_in_order(stage: Stage) -> None:
    async with stage.meet() as (peer, receiver):
        texts = [b"%d" % number for number in range(5_000)]
        peer.send(*(masked(TEXT, text) for text in texts))
        assert [(await receiver.next())[1] for _ in texts] == texts
        for text in texts:
            receiver.connection.send(text)
        assert [(await peer.frame()).payload for _ in texts] == texts


# --- what closes a connection

BROKEN = {
    "reserved bit 1": (1002, masked(TEXT, b"x", flags=0xC)),
    "reserved bit 2": (1002, masked(TEXT, b"x", flags=0xA)),
    "reserved bit 3": (1002, masked(PING, b"x", flags=0x9)),
    "reserved opcode": (1002, masked(0x3, b"x")),
    "reserved control opcode": (1002, masked(0xB, b"x")),
    "not masked": (1002, b"\x81\x01x"),
    "continuation of nothing": (1002, masked(CONTINUATION, b"x")),
    "continuation of a whole message": (1002, masked(TEXT, b"x") + masked(CONTINUATION, b"x")),
    "text within text": (1002, masked(TEXT, b"x", flags=MORE) + masked(TEXT, b"x")),
    "binary within text": (1002, masked(TEXT, b"x", flags=MORE) + masked(BINARY, b"x")),
    "fragmented ping": (1002, masked(PING, b"x", flags=MORE)),
    "fragmented close": (1002, masked(CLOSE, b"", flags=MORE)),
    "long ping": (1002, masked(PING, b"x" * 126)),
    "long close": (1002, masked(CLOSE, b"\x03\xe8" + b"x" * 124)),
    "half a close code": (1002, masked(CLOSE, b"\x03")),
    "text is not UTF-8": (1007, masked(TEXT, b"\xff")),
    "text ends within a character": (1007, masked(TEXT, b"\xc3")),
    "text with a surrogate": (1007, masked(TEXT, b"\xed\xa0\x80")),
    "fragment is not UTF-8": (
        1007,
        masked(TEXT, b"\xc3", flags=MORE) + masked(CONTINUATION, b"x", flags=MORE),
    ),
    "last fragment ends within a character": (
        1007,
        masked(TEXT, b"\xc3\xbc", flags=MORE) + masked(CONTINUATION, b"\xc3"),
    ),
    "close reason is not UTF-8": (1007, masked(CLOSE, b"\x03\xe8\xff")),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_frame_closes_with_its_code(stage: Stage, name: str) -> None:
    code, data = BROKEN[name]
    async with stage.meet() as (peer, receiver):
        # Nothing that follows is looked at.
        peer.send(data, masked(TEXT, b"never"), masked(PING, b"never"))
        assert (await peer.close_frame())[0] == code
        assert await peer.end() == b""
        told = await receiver.next()
        if told[0] == "message":
            assert told[1] == b"x"
            told = await receiver.next()
        assert told == ("closed", code, False)
        assert receiver.pending() == []


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535])
async def test_a_close_code_that_must_not_be_sent_is_a_protocol_error(stage: Stage, code: int) -> None:
    async with stage.meet() as (peer, receiver):
        peer.send(masked(CLOSE, code.to_bytes(2)))
        assert (await peer.close_frame())[0] == 1002
        assert await receiver.next() == ("closed", 1002, False)


async def test_what_came_before_a_broken_frame_is_delivered_and_answered(stage: Stage) -> None:
    stage.door.make = lambda: Recorder(echo)
    async with stage.meet() as (peer, receiver):
        peer.send(masked(TEXT, b"good"), masked(0x3, b"bad"))
        assert await peer.frame() == Frame(TEXT, b"good")
        assert (await peer.close_frame())[0] == 1002
        assert await receiver.next() == ("message", b"good", None)
        assert await receiver.next() == ("closed", 1002, False)


async def test_a_peer_that_goes_on_sending_still_reads_why_it_was_closed(stage: Stage) -> None:
    async with stage.meet() as (peer, _receiver):
        peer.send(masked(0x3, b"bad"))
        assert (await peer.close_frame())[0] == 1002
        assert await peer.end() == b""
        # The server has half-closed and reads on: a reset would raise here.
        for _ in range(50):
            peer.send(masked(TEXT, b"x" * 100_000))
            await peer.writer.drain()


async def test_a_peer_that_never_hangs_up_is_not_waited_for(stage: Stage) -> None:
    async with stage.meet(replace(CALM, close_timeout=0.05)) as (peer, receiver):
        peer.send(masked(0x3, b"bad"))
        assert (await peer.close_frame())[0] == 1002
        assert await receiver.next() == ("closed", 1002, False)

        async def go_on() -> None:
            while True:
                peer.send(masked(TEXT, b"x"))
                await peer.writer.drain()
                await asyncio.sleep(0.001)

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(go_on(), 10)


# --- sizes


@pytest.mark.parametrize("pieces", [1, 3])
async def test_the_longest_message_passes(stage: Stage, pieces: int) -> None:
    async with stage.meet() as (peer, receiver):
        peer.send(*fragments(b"x" * LISTENER_FRAME_BYTES, pieces))
        name, payload, _ = await receiver.next()
        assert name == "message"
        assert payload == b"x" * 2_063_019
        receiver.connection.send(b"x" * 2_063_019)
        assert len((await peer.frame()).payload) == 2_063_019


@pytest.mark.parametrize("pieces", [1, 3])
async def test_one_byte_more_closes_1009(stage: Stage, pieces: int) -> None:
    async with stage.meet() as (peer, receiver):
        peer.send(*fragments(b"x" * 2_063_020, pieces))
        assert (await peer.close_frame())[0] == 1009
        assert await receiver.next() == ("closed", 1009, False)


async def test_too_long_a_frame_is_refused_by_its_header(stage: Stage) -> None:
    async with stage.meet(replace(CALM, max_message=70_000)) as (peer, _receiver):
        peer.send(masked(TEXT, b"", length=70_001))
        assert (await peer.close_frame())[0] == 1009


async def test_fragments_are_counted_before_the_last(stage: Stage) -> None:
    async with stage.meet(replace(CALM, max_message=1_000)) as (peer, receiver):
        peer.send(masked(TEXT, b"x" * 600, flags=MORE), masked(CONTINUATION, b"x" * 401, flags=MORE))
        assert (await peer.close_frame())[0] == 1009
        assert await receiver.next() == ("closed", 1009, False)


def fragments(payload: bytes, pieces: int) -> list[bytes]:
    """Return a text message as so many frames."""
    step = -(-len(payload) // pieces)
    cuts = range(0, len(payload), step)
    return [
        masked(
            TEXT if start == 0 else CONTINUATION,
            payload[start : start + step],
            flags=FIN if start + step >= len(payload) else MORE,
        )
        for start in cuts
    ]


# --- closing


@pytest.mark.parametrize(
    ("payload", "code"),
    [(b"", 1005), (b"\x03\xe8", 1000), (b"\x03\xe9bye", 1001), (b"\x0f\xa0", 4000), (b"\x03\xf6", 1014)],
)
async def test_a_close_frame_is_answered_with_its_code(stage: Stage, payload: bytes, code: int) -> None:
    async with stage.meet() as (peer, receiver):
        peer.send(masked(CLOSE, payload), masked(TEXT, b"never"))
        assert await peer.frame() == Frame(CLOSE, payload[:2])
        assert await peer.end() == b""
        assert await receiver.next() == ("closed", code, True)
        assert receiver.pending() == []


async def test_a_close_frame_within_a_message_is_answered(stage: Stage) -> None:
    async with stage.meet() as (peer, receiver):
        peer.send(masked(TEXT, b"half", flags=MORE), masked(CLOSE, b"\x03\xe8"))
        assert await peer.close_frame() == (1000, "")
        assert await receiver.next() == ("closed", 1000, True)


async def test_the_relay_closes_and_the_peer_answers(stage: Stage) -> None:
    async with stage.meet() as (peer, receiver):
        receiver.connection.send(b"last")
        receiver.connection.close(4000, "replaced")
        receiver.connection.close(1000, "too late")
        receiver.connection.send(b"too late")
        assert await peer.frame() == Frame(TEXT, b"last")
        assert await peer.close_frame() == (4000, "replaced")
        # The peer had not read it yet.
        peer.send(masked(TEXT, b"never"), masked(PING, b"never"), masked(CLOSE, b"\x0f\xa0"))
        assert await peer.end() == b""
        assert await receiver.next() == ("closed", 4000, True)
        assert receiver.pending() == []


async def test_a_close_frame_that_is_not_answered_is_not_waited_for(stage: Stage) -> None:
    async with stage.meet(replace(CALM, close_timeout=0.05)) as (peer, receiver):
        receiver.connection.close(1000)
        assert await peer.close_frame() == (1000, "")
        assert await receiver.next() == ("closed", None, False)
        assert await peer.end() == b""


async def test_a_broken_frame_instead_of_the_answer_ends_it_too(stage: Stage) -> None:
    async with stage.meet() as (peer, receiver):
        receiver.connection.close(1000)
        assert await peer.close_frame() == (1000, "")
        peer.send(masked(0x3, b"bad"))
        assert await peer.end() == b""
        assert await receiver.next() == ("closed", 1002, False)


async def test_a_socket_that_just_ends_is_told(stage: Stage) -> None:
    async with stage.meet() as (peer, receiver):
        peer.send(masked(TEXT, b"half", flags=MORE))
        peer.writer.write_eof()
        assert await receiver.next() == ("closed", None, False)
        assert await peer.end() == b""


async def test_a_reset_is_told(stage: Stage) -> None:
    async with stage.meet() as (peer, receiver):
        peer.writer.transport.abort()
        assert await receiver.next() == ("closed", None, False)
        # Nothing of this may raise: the relay has not heard of it yet.
        receiver.connection.send(b"x")
        receiver.connection.close(1000)
        receiver.connection.abort()


async def test_abort_ends_it_and_is_told_in_a_later_turn(stage: Stage) -> None:
    async with stage.meet() as (peer, receiver):
        receiver.connection.abort()
        assert receiver.pending() == []
        assert await receiver.next() == ("closed", None, False)
        await peer.gone()


async def test_a_close_that_cannot_be_sent_is_the_relays_mistake(stage: Stage) -> None:
    async with stage.meet() as (peer, receiver):
        for code, reason in ((1005, ""), (999, ""), (1000, "ü" * 62)):
            with pytest.raises(ValueError, match="close"):
                receiver.connection.close(code, reason)
        receiver.connection.send(b"still open")
        assert await peer.frame() == Frame(TEXT, b"still open")


# --- a receiver that raises


def stumble(recorder: Recorder, payload: bytes) -> None:
    """Raise with the payload in the text."""
    raise RuntimeError(payload.decode())


async def test_an_exception_of_the_receiver_closes_1011_and_is_logged_without_its_text(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.door.make = lambda: Recorder(stumble)
    with caplog.at_level(logging.DEBUG):
        async with stage.meet() as (peer, receiver):
            peer.send(masked(TEXT, b"SECRET"), masked(TEXT, b"never"))
            assert await peer.close_frame() == (1011, "internal error")
            assert await receiver.next() == ("message", b"SECRET", None)
            assert await receiver.next() == ("closed", 1011, False)
            assert receiver.pending() == []
    assert "RuntimeError" in caplog.text
    assert "SECRET" not in caplog.text


async def test_an_exception_at_the_opening_closes_1011(stage: Stage) -> None:
    def fail(recorder: Recorder) -> None:
        raise KeyError("SECRET")

    stage.door.make = lambda: Recorder(on_opened=fail)
    async with stage.meet() as (peer, receiver):
        assert await peer.close_frame() == (1011, "internal error")
        assert await receiver.next() == ("closed", 1011, False)


async def test_what_a_peer_sends_is_logged_nowhere(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(1):
        async with stage.serve() as server, connect(server.port) as peer:
            await peer.open("/SECRET?ticket=SECRET", headers=[("authorization", "Bearer SECRET")])
            receiver = await stage.door.entered()
            receiver.connection.send(b"SECRET")
            peer.send(masked(TEXT, b"SECRET"), masked(PING, b"SECRET"), masked(CLOSE, b"\x00\x01SECRET"))
            await receiver.next()
            assert (await receiver.next())[0] == "closed"
    assert "SECRET" not in caplog.text
    # The libraries would have a line for each connection, and more at lower levels.
    assert {record.name for record in caplog.records} <= {"asyncio", "uvicorn.access", "uvicorn.error"}


# --- slow readers


async def test_a_slow_reader_is_dropped_at_the_bound_and_others_go_on(stage: Stage) -> None:
    limits = replace(CALM, max_buffered=1_000_000, drop_timeout=0.05)
    async with (
        stage.serve(limits) as server,
        connect(server.port) as quick,
        connect(server.port, lazy=True) as slow,
    ):
        await quick.open()
        fast = await stage.door.entered()
        await slow.open()
        lazy = await stage.door.entered()
        payload = b"x" * 100_000
        sent = 0
        most = 0
        while not (told := lazy.pending()):
            lazy.connection.send(payload)
            most = max(most, lazy.connection.buffered())
            sent += 1
            assert sent < 1_000
            fast.connection.send(b"%d" % sent)
            assert await quick.frame() == Frame(TEXT, b"%d" % sent)
        assert told == [("closed", 1008, False)]
        # One message, and its close frame, may be what went over.
        assert most <= limits.max_buffered + len(payload) + 100
        # It is not waited for either.
        await until(lambda: len(server.state.connections) == 1)
        # Nothing was lost on the way to the one that reads, and it is still there.
        quick.send(masked(TEXT, b"still here"))
        assert await fast.next() == ("message", b"still here", None)


async def test_sending_never_calls_the_receiver(stage: Stage) -> None:
    async with stage.meet(replace(CALM, max_buffered=100_000, drop_timeout=0.05), lazy=True) as (_, receiver):
        for _number in range(200):
            receiver.connection.send(b"x" * 100_000)
        assert receiver.pending() == []
        assert await receiver.next() == ("closed", 1008, False)


async def test_a_peer_that_half_closes_and_does_not_read_is_not_waited_for(stage: Stage) -> None:
    async with (
        stage.serve(replace(CALM, drop_timeout=0.05)) as server,
        connect(server.port, lazy=True) as peer,
    ):
        await peer.open()
        receiver = await stage.door.entered()
        while receiver.connection.buffered() < 1_000_000:
            receiver.connection.send(b"x" * 100_000)
            await asyncio.sleep(0)
        peer.writer.write_eof()
        assert await receiver.next() == ("closed", None, False)
        await until(lambda: not server.state.connections)


async def test_a_slow_reader_that_wakes_up_in_time_reads_why(stage: Stage) -> None:
    async with stage.meet(replace(CALM, max_buffered=200_000), lazy=True) as (peer, receiver):
        while not (told := receiver.pending()):
            receiver.connection.send(b"x" * 100_000)
            await asyncio.sleep(0)
        assert told == [("closed", 1008, False)]
        frame = await peer.frame()
        while frame.opcode == TEXT:
            assert len(frame.payload) == 100_000
            frame = await peer.frame()
        assert frame == Frame(CLOSE, b"\x03\xf0slow")
        assert await peer.end() == b""


async def test_a_peer_that_only_sends_pings_is_answered_in_order(stage: Stage) -> None:
    async with stage.meet() as (peer, receiver):
        peer.send(*(masked(PING, b"%d" % number) for number in range(5_000)))
        for number in range(5_000):
            assert await peer.frame() == Frame(PONG, b"%d" % number)
        assert receiver.pending() == []


async def test_a_flood_of_pings_that_nobody_reads_is_bounded(stage: Stage) -> None:
    limits = replace(CALM, max_buffered=100_000, drop_timeout=0.05)
    async with stage.meet(limits, lazy=True) as (peer, receiver):
        flood = masked(PING, b"x" * 125) * 2_000
        try:
            while not (told := receiver.pending()):
                peer.send(flood)
                await peer.writer.drain()
                assert receiver.connection.buffered() <= 400_000
        except ConnectionError:
            told = [await receiver.next()]
        assert told == [("closed", 1008, False)]


async def test_many_sends_of_one_turn_leave_together(stage: Stage) -> None:
    async with stage.meet() as (peer, receiver):
        for _ in range(100):
            receiver.connection.send(b"x")
        assert receiver.connection.buffered() == 300
        assert await peer.reader.readexactly(300) == b"\x81\x01x" * 100
        assert receiver.connection.buffered() == 0


# --- keep-alive

# A peer that never answers is soon given up; one that does has all the time that a busy machine needs.
QUICK = replace(CALM, ping_interval=0.05, ping_timeout=0.05, drop_timeout=0.05)
OFTEN = replace(CALM, ping_interval=0.02, ping_timeout=5)


async def test_a_silent_peer_is_dropped(stage: Stage) -> None:
    async with stage.meet(QUICK) as (peer, receiver):
        assert await peer.frame() == Frame(PING, b"")
        assert await peer.close_frame() == (1008, "idle")
        assert await receiver.next() == ("closed", 1008, False)
        await peer.gone()


async def test_a_peer_that_falls_silent_is_dropped(stage: Stage) -> None:
    async with stage.meet(replace(CALM, ping_interval=0.01, ping_timeout=0.5)) as (peer, receiver):
        peer.send(masked(TEXT, b"x"))
        assert await receiver.next() == ("message", b"x", None)
        assert await peer.frame() == Frame(PING, b"")
        peer.send(masked(PONG))
        assert await peer.frame() == Frame(PING, b"")
        assert await peer.close_frame() == (1008, "idle")


@pytest.mark.parametrize("answer", [masked(PONG), masked(TEXT, b"x"), masked(TEXT, b"x", flags=MORE)])
async def test_any_frame_keeps_a_peer(stage: Stage, answer: bytes) -> None:
    async with stage.meet(OFTEN) as (peer, receiver):
        for round_ in range(3):
            assert await peer.frame() == Frame(PING, b"")
            peer.send(answer if round_ == 0 or answer[0] != TEXT else masked(CONTINUATION, b"x", flags=MORE))
        assert await peer.frame() == Frame(PING, b"")
        assert [event for event in receiver.pending() if event[0] == "closed"] == []


async def test_half_a_frame_keeps_nobody(stage: Stage) -> None:
    async with stage.meet(QUICK) as (peer, receiver):
        assert await peer.frame() == Frame(PING, b"")
        peer.send(masked(TEXT, b"x" * 10, length=100))
        assert await peer.close_frame() == (1008, "idle")
        assert await receiver.next() == ("closed", 1008, False)


async def test_a_peer_that_is_gone_without_a_word_is_noticed(stage: Stage) -> None:
    """A half-open connection: the peer's side reads nothing and sends nothing, not even its end."""
    async with stage.serve(QUICK) as server, connect(server.port) as peer:
        await peer.open()
        receiver = await stage.door.entered()
        cast("asyncio.Transport", peer.writer.transport).pause_reading()
        assert await receiver.next() == ("closed", 1008, False)
        await until(lambda: not server.state.connections)
        assert receiver.connection.buffered() == 0


async def test_pings_stop_with_the_closing_handshake(stage: Stage) -> None:
    async with stage.meet(replace(QUICK, close_timeout=0.3)) as (peer, receiver):
        receiver.connection.close(1000)
        assert await peer.close_frame() == (1000, "")
        assert await peer.end() == b""
        assert await receiver.next() == ("closed", None, False)


# --- the opening handshake


async def test_the_gate_sees_the_request_as_it_was_sent(stage: Stage) -> None:
    async with stage.serve() as server, connect(server.port) as peer:
        before = asyncio.get_running_loop().time()
        await peer.open(
            "/v1/call/b%6Fb?a=1&b=%20",
            headers=[("X-One", " a "), ("x-one", "b"), ("Origin", "http://x"), ("X-Odd", "\xe9")],
        )
        await stage.door.entered()
        (request,) = stage.door.requests
        assert (request.method, request.path, request.query) == ("GET", "/v1/call/b%6Fb", "a=1&b=%20")
        assert request.all("x-one") == ("a", "b")
        assert (request.one("x-one"), request.one("origin"), request.one("x-odd")) == (
            None,
            "http://x",
            "\xe9",
        )
        assert request.remote == peer.writer.get_extra_info("sockname")
        assert not request.secure
        assert before <= request.received <= asyncio.get_running_loop().time()


async def test_the_gate_chooses_the_subprotocol_and_no_extension_is_accepted(stage: Stage) -> None:
    stage.door.judge = lambda request: Accepted(receiver=Recorder(), subprotocol="ringline.v1")
    async with stage.serve() as server, connect(server.port) as peer:
        response = await peer.open(
            headers=[
                ("sec-websocket-protocol", "other, ringline.v1"),
                ("sec-websocket-protocol", "third"),
                ("sec-websocket-extensions", "permessage-deflate"),
            ]
        )
        assert response.headers["sec-websocket-protocol"] == "ringline.v1"
        assert "sec-websocket-extensions" not in response.headers
        assert stage.door.requests[0].subprotocols() == ("other", "ringline.v1", "third")


async def test_without_a_subprotocol_none_is_named(stage: Stage) -> None:
    async with stage.serve() as server, connect(server.port) as peer:
        response = await peer.open(headers=[("sec-websocket-protocol", "other")])
        assert "sec-websocket-protocol" not in response.headers


@pytest.mark.parametrize(
    ("status", "without", "headers"),
    [
        (426, ["sec-websocket-version"], []),
        (426, ["sec-websocket-version"], [("sec-websocket-version", "8")]),
        (426, [], [("sec-websocket-version", "13")]),
        (400, ["sec-websocket-key"], []),
        (400, ["sec-websocket-key"], [("sec-websocket-key", "c2hvcnQ=")]),
        (400, ["sec-websocket-key"], [("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAA!==")]),
        (400, [], [("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==")]),
        (400, ["host"], []),
        (400, [], [("host", "again")]),
        (400, [], [("content-length", "5")]),
        (400, [], [("transfer-encoding", "chunked")]),
    ],
)
async def test_a_handshake_that_breaks_the_rules_never_reaches_the_gate(
    stage: Stage, status: int, without: list[str], headers: list[tuple[str, str]]
) -> None:
    async with stage.serve() as server, connect(server.port) as peer:
        body = b"5\r\nhello\r\n0\r\n\r\n" if ("transfer-encoding", "chunked") in headers else b"hello"
        peer.request(headers=headers, without=without, behind=body if "length" in str(headers) else b"")
        if ("transfer-encoding", "chunked") in headers:
            peer.send(body)
        response = await peer.response()
        assert response.status == status
        assert response.headers["content-type"] == "application/problem+json"
        assert response.headers["connection"] == "close"
        assert response.headers["date"]
        if status == 426:
            assert response.headers["sec-websocket-version"] == "13"
            assert response.headers["upgrade"] == "websocket"
        assert await peer.end() == b""
        assert stage.door.requests == []


async def test_another_method_is_not_allowed(stage: Stage) -> None:
    async with stage.serve() as server, connect(server.port) as peer:
        peer.request(method="POST")
        response = await peer.response()
        assert (response.status, response.headers["allow"]) == (405, "GET")
        assert stage.door.requests == []


@pytest.mark.parametrize(
    ("target", "path", "query"), [("http://x/v1/a?b", "/v1/a", "b"), ("http://x", "/", ""), ("/", "/", "")]
)
async def test_an_absolute_target_names_its_resource(
    stage: Stage, target: str, path: str, query: str
) -> None:
    async with stage.serve() as server, connect(server.port) as peer:
        await peer.open(target)
        assert (stage.door.requests[0].path, stage.door.requests[0].query) == (path, query)


@pytest.mark.parametrize("target", ["/a#b", "ftp://x/", "*"])
async def test_a_target_that_is_no_path_is_malformed(stage: Stage, target: str) -> None:
    async with stage.serve() as server, connect(server.port) as peer:
        peer.request(target)
        assert (await peer.response()).status == 400
        assert stage.door.requests == []


async def test_a_refusal_is_the_gates_answer(stage: Stage) -> None:
    stage.door.judge = lambda request: Refused(
        status=401, headers=(("www-authenticate", "Bearer"), ("Server", "mine")), body=b"no"
    )
    async with stage.serve() as server, connect(server.port) as peer:
        peer.request(behind=masked(TEXT, b"never"))
        response = await peer.response()
        assert (response.status, response.body) == (401, b"no")
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.headers["server"] == "mine"
        assert response.headers["date"] == "Thu, 01 Jan 1970 00:00:00 GMT"
        assert response.headers["connection"] == "close"
        # It reads on until the peer hangs up.
        peer.send(masked(TEXT, b"x" * 100_000))
        assert await peer.end() == b""
    assert not server.state.connections


async def test_a_refusal_leaves_at_its_release_and_not_before(stage: Stage) -> None:
    loop = asyncio.get_running_loop()
    order: list[str] = []

    def judge(request: Handshake) -> Refused:
        release = request.received + 0.05
        # Set before the edge's own timer, for a moment just before it.
        loop.call_at(release - 0.002, order.append, "before")
        return Refused(status=404, body=b"x", release=release)

    stage.door.judge = judge
    async with stage.serve() as server, connect(server.port) as peer:
        peer.request()
        # Bytes that come while the answer waits change nothing.
        await asyncio.sleep(0)
        peer.send(masked(TEXT, b"never"))
        response = await peer.response()
        order.append("answer")
        assert response.status == 404
        assert order == ["before", "answer"]
    assert len(stage.door.requests) == 1


async def test_a_release_that_has_passed_is_at_once(stage: Stage) -> None:
    stage.door.judge = lambda request: Refused(status=404, release=request.received - 1)
    async with stage.serve() as server, connect(server.port) as peer:
        peer.request()
        assert (await peer.response()).status == 404


async def test_a_peer_that_leaves_before_the_release_is_forgotten(stage: Stage) -> None:
    stage.door.judge = lambda request: Refused(status=404, release=request.received + 3_600)
    async with stage.serve() as server, connect(server.port) as peer:
        peer.request()
        await until(lambda: bool(stage.door.requests))
        waiting = [weakref.ref(connection) for connection in server.state.connections]
        assert len(waiting) == 1
        await peer.hang_up()
        await until(lambda: not server.state.connections)
        # Its timer is gone too.
        gc.collect()
        assert waiting[0]() is None


def raise_secret(request: Handshake) -> Refused:
    raise RuntimeError(f"SECRET {request.path}")


def accept_what_was_not_offered(request: Handshake) -> Accepted:
    return Accepted(receiver=Recorder(), subprotocol="not.offered")


def refuse_with_two_headers_in_one(request: Handshake) -> Refused:
    return Refused(status=400, headers=(("x", "a\r\nb: c"),))


def refuse_with_no_status(request: Handshake) -> Refused:
    return Refused(status=17)


@pytest.mark.parametrize(
    "judge",
    [raise_secret, accept_what_was_not_offered, refuse_with_two_headers_in_one, refuse_with_no_status],
)
async def test_a_gate_at_fault_is_answered_500(
    stage: Stage, judge: Callable[[Handshake], Accepted | Refused], caplog: pytest.LogCaptureFixture
) -> None:
    stage.door.judge = judge
    async with stage.serve() as server, connect(server.port) as peer:
        peer.request(headers=[("sec-websocket-protocol", "other")])
        response = await peer.response()
        assert response.status == 500
        assert b"internal_error" in response.body
        assert "SECRET" not in caplog.text
        assert b"SECRET" not in response.body


async def test_frames_behind_the_request_are_not_lost(stage: Stage) -> None:
    stage.door.make = lambda: Recorder(echo)
    async with stage.serve() as server, connect(server.port) as peer:
        peer.request(behind=masked(TEXT, b"early") + masked(TEXT, b"half a")[:5])
        assert (await peer.response()).status == 101
        assert await peer.frame() == Frame(TEXT, b"early")
        peer.send(masked(TEXT, b"half a")[5:])
        assert await peer.frame() == Frame(TEXT, b"half a")


async def test_a_broken_frame_behind_the_request_closes(stage: Stage) -> None:
    async with stage.serve() as server, connect(server.port) as peer:
        peer.request(behind=masked(0x3, b"bad"))
        assert (await peer.response()).status == 101
        assert (await peer.close_frame())[0] == 1002
        assert await peer.end() == b""


# --- HTTP on the same port, and the server


async def test_http_and_websocket_share_the_port(stage: Stage) -> None:
    async with stage.serve() as server, connect(server.port) as one, connect(server.port) as two:
        await one.open()
        receiver = await stage.door.entered()
        two.send(b"GET /world HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await two.response()).body == b"hello /world"
        # A kept connection may become a WebSocket later.
        await two.open()
        await stage.door.entered()
        one.send(masked(TEXT, b"x"))
        assert await receiver.next() == ("message", b"x", None)


async def test_an_upgrade_before_the_previous_answer_is_refused(stage: Stage) -> None:
    async with stage.serve() as server, connect(server.port) as peer:
        peer.send(b"GET /world HTTP/1.1\r\nHost: x\r\n\r\n")
        peer.request()
        assert (await peer.response()).status == 400
        assert stage.door.requests == []


async def test_a_request_head_that_does_not_arrive_is_given_up(stage: Stage) -> None:
    async with (
        stage.serve(replace(CALM, handshake_timeout=0.5)) as server,
        connect(server.port) as silent,
        connect(server.port) as partial,
        connect(server.port) as kept,
    ):
        partial.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
        kept.send(b"GET /world HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await kept.response()).status == 200
        kept.send(b"GET /world HTTP/1.1\r\n")
        for peer in (silent, partial, kept):
            await peer.gone()


async def test_a_request_that_has_arrived_is_not_timed(stage: Stage) -> None:
    stage.door.make = lambda: Recorder(echo)
    async with stage.meet(replace(CALM, handshake_timeout=0.5)) as (peer, _receiver):
        await asyncio.sleep(0.6)
        peer.send(masked(TEXT, b"still here"))
        assert await peer.frame() == Frame(TEXT, b"still here")


async def test_a_stopping_server_says_1001_and_why(stage: Stage) -> None:
    limits = replace(CALM, close_timeout=5)
    config = uvicorn.Config(
        Starlette(),
        http=port_factory(limits),
        ws=edge_factory(stage.edge, stage.door, limits),
        lifespan="off",
        log_config=None,
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(server.serve([listener]))
        async with connect(listener.getsockname()[1]) as peer:
            await peer.open()
            receiver = await stage.door.entered()
            server.should_exit = True
            assert await peer.close_frame() == (1001, "retry=1000")
            assert not running.done()
            peer.send(masked(CLOSE, b"\x03\xe9"))
            assert await peer.end() == b""
            assert await receiver.next() == ("closed", 1001, True)
            await peer.hang_up()
            await asyncio.wait_for(running, 10)


async def test_every_connection_has_its_own_number(stage: Stage) -> None:
    async with stage.serve() as server, connect(server.port) as one, connect(server.port) as two:
        await one.open()
        first = await stage.door.entered()
        await two.open()
        second = await stage.door.entered()
        assert first.connection.id != second.connection.id
        assert first.connection.remote == one.writer.get_extra_info("sockname")
        assert len(server.state.connections) == 2


# --- TLS that ends here: another transport, which cannot be half-closed


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a server and of a client that trusts it."""
    return contexts(tmp_path_factory.mktemp("tls"))


async def test_everything_works_within_tls(stage: Stage, tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    stage.door.make = lambda: Recorder(echo)
    async with (
        stage.serve(tls=tls[0]) as server,
        connect(server.port, tls=tls[1]) as polite,
        connect(server.port, tls=tls[1]) as rude,
    ):
        await polite.open()
        receiver = await stage.door.entered()
        assert stage.door.requests[0].secure
        for size in (1, 70_000, 500_000):
            polite.send(masked(TEXT, b"x" * size))
            assert await polite.frame() == Frame(TEXT, b"x" * size)
            await receiver.next()
        polite.send(masked(CLOSE, b"\x03\xe8"))
        assert await polite.close_frame() == (1000, "")
        assert await polite.end() == b""
        assert await receiver.next() == ("closed", 1000, True)
        await rude.open()
        receiver = await stage.door.entered()
        rude.send(masked(0x3, b"bad"))
        assert (await rude.close_frame())[0] == 1002
        assert await rude.end() == b""
        assert await receiver.next() == ("closed", 1002, False)


async def test_a_refusal_arrives_within_tls(stage: Stage, tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    stage.door.judge = lambda request: Refused(status=401, body=b"no")
    async with stage.serve(tls=tls[0]) as server, connect(server.port, tls=tls[1]) as peer:
        peer.request()
        assert (await peer.response()).body == b"no"
        assert await peer.end() == b""


# --- the Autobahn cases, in short


@pytest.mark.slow
@pytest.mark.parametrize("edge", EDGES)
def test_the_short_autobahn_cases_pass(edge: str) -> None:
    command = [sys.executable, "tests/compliance/autobahn.py", "--edge", edge, "--seconds", "60"]
    run = subprocess.run(
        [*command, "--cases", "1.*", "5.*", "7.*"], cwd=ROOT, capture_output=True, text=True, timeout=90
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert " cases: " in run.stdout
