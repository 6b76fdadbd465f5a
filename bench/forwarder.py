"""The least that a relay could do: send on what arrives, by fixed places in it, and look at nothing else.

What sync calls are measured against. It sends as many frames as the relay does, among them one of its own for
``ringing``; it knows no identity, no limit and no call.

    python bench/forwarder.py
"""

import sys

import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server

# A frame is the number of its caller's connection in so many digits, and then what a frame of the relay is.
DIGITS = 8
RINGING = (
    b'{"type":"call_status","state":"ringing","call_id":"0123456789012345678901","correlation_id":"'
    + b"c" * 32
    + b'"}'
)

callers: list[WSTransport] = []
listeners: list[WSTransport] = []


class FromCaller(WSListener):
    """A caller's connection."""

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Give it the next number."""
        self.number = b"%08d" % len(callers)
        callers.append(transport)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Tell it that it rings, and the listener what it said."""
        if frame.msg_type == WSMsgType.TEXT:
            transport.send(WSMsgType.TEXT, RINGING)
            listeners[0].send(WSMsgType.TEXT, self.number + frame.get_payload_as_bytes())


class FromListener(WSListener):
    """The listener's connection."""

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Keep it."""
        listeners.append(transport)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Send on to the caller whose number it begins with."""
        if frame.msg_type == WSMsgType.TEXT:
            payload = frame.get_payload_as_bytes()
            callers[int(payload[:DIGITS])].send(WSMsgType.TEXT, payload[DIGITS:])


def accept(request: WSUpgradeRequest) -> WSListener:
    """Tell a caller from the listener."""
    return FromListener() if b"listen" in request.path else FromCaller()


async def main() -> None:
    """Serve until the process is ended."""
    server = await ws_create_server(accept, "127.0.0.1", 0, max_frame_size=2**22)
    print(f"port {server.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
