"""The seam to picows: what its private constructor and its parser are relied upon to do."""

import asyncio
import gc
import importlib.metadata
import weakref
from dataclasses import replace

import pytest

from ringline.relay.edge import EdgeLimits
from ringline.relay.edge_picows import READ_BUFFER, PicowsLink
from ringline_testing.edge_server import Door, serve, until
from ringline_testing.raw_peer import connect, masked

TEXT, PONG = 0x1, 0xA


def test_the_minor_version_is_the_one_that_was_studied() -> None:
    assert importlib.metadata.version("picows").startswith("2.3.")


def room(link: object) -> int:
    """Return the size of the free part of a link's read buffer."""
    assert isinstance(link, PicowsLink)
    buffered: object = link.protocol
    assert isinstance(buffered, asyncio.BufferedProtocol)
    return len(memoryview(buffered.get_buffer(-1)))


async def test_the_loop_reads_into_the_parsers_own_buffer() -> None:
    door = Door()
    async with serve("picows", door, EdgeLimits()) as server, connect(server.port) as peer:
        await peer.open()
        link = (await door.entered()).connection
        assert isinstance(link, PicowsLink)
        await until(lambda: link._transport.get_protocol() is link.protocol)
        assert 2_048 <= room(link) <= READ_BUFFER


async def test_a_buffer_that_has_grown_is_freed_at_a_quiet_moment() -> None:
    door = Door()
    limits = replace(EdgeLimits(), ping_interval=0.05, ping_timeout=5)
    async with serve("picows", door, limits) as server, connect(server.port) as peer:
        await peer.open()
        receiver = await door.entered()
        peer.send(masked(TEXT, b"x" * 1_000_000))
        assert (await receiver.next())[0] == "message"
        assert room(receiver.connection) > 500_000
        assert (await peer.frame()).opcode == 0x9
        # Not while the beginning of the next frame lies in it.
        peer.send(masked(PONG), masked(TEXT, b"then"), masked(TEXT, b"next")[:7])
        assert await receiver.next() == ("message", b"then", None)
        peer.send(masked(TEXT, b"next")[7:])
        assert await receiver.next() == ("message", b"next", None)
        peer.send(masked(PONG))
        await until(lambda: room(receiver.connection) <= READ_BUFFER)
        peer.send(masked(TEXT, b"more"))
        assert await receiver.next() == ("message", b"more", None)


@pytest.mark.parametrize("size", [1, 3, READ_BUFFER - 300, READ_BUFFER, 100_000])
async def test_data_received_takes_pieces_of_any_size(size: int) -> None:
    """uvicorn's own reads come this way, one turn long."""
    door = Door()
    async with serve("picows", door, EdgeLimits()) as server, connect(server.port) as peer:
        await peer.open()
        receiver = await door.entered()
        link = receiver.connection
        assert isinstance(link, PicowsLink)
        texts = [b"a" * 10, b"b" * 70_000, b"", b"c" * 126]
        stream = b"".join(masked(TEXT, text) for text in texts)
        for start in range(0, len(stream), size):
            link.protocol.data_received(stream[start : start + size])
        assert [event[1] for event in receiver.pending()] == texts


async def test_a_closed_connection_frees_its_buffers_at_once() -> None:
    door = Door()
    async with serve("picows", door, EdgeLimits()) as server, connect(server.port) as peer:
        await peer.open()
        receiver = await door.entered()
        assert isinstance(receiver.connection, PicowsLink)
        parser = weakref.ref(receiver.connection.protocol)
        gc.disable()
        try:
            await peer.hang_up()
            assert (await receiver.next())[0] == "closed"
            await until(lambda: parser() is None)
        finally:
            gc.enable()
