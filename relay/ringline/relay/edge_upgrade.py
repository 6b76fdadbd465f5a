"""Where a socket leaves uvicorn's HTTP and becomes a WebSocket, for both edges.

uvicorn makes one `_Upgrade` per upgrade request, gives it the socket and the request, and puts it on the
transport. It asks the gate, writes the answer, and one turn of the loop later leaves the socket to a
`Link` or, when the answer was a refusal, to a `Departure`.
"""

import asyncio
import logging
import sys
from typing import Any, ClassVar, Final, Protocol, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr
from uvicorn.server import ServerState

from ringline.protocol.errors import HttpProblem
from ringline.protocol.whereabouts import whereabouts
from ringline.relay import problem
from ringline.relay.edge import EdgeLimits, Gate, Receiver, Refused
from ringline.relay.edge_handshake import (
    Headers,
    UpgradeError,
    answer,
    read_upgrade,
    refusal,
    switching_protocols,
)
from ringline.relay.edge_link import Departure, Link

__all__ = ["bind", "bind_port"]

logger = logging.getLogger("ringline.relay.edge")

_HEAD_BYTES: Final = 65_536


class _LinkFactory(Protocol):
    def __call__(
        self,
        *,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        gate: Gate,
        receiver: Receiver,
        limits: EdgeLimits,
        remote: tuple[str, int] | None,
        connections: set[object],
    ) -> Link: ...


def bind(link: _LinkFactory, gate: Gate, limits: EdgeLimits) -> type[asyncio.Protocol]:
    """Return the class that uvicorn calls at every upgrade, for links of one kind and one gate."""
    return type("Upgrade", (_Upgrade,), {"_make_link": staticmethod(link), "_gate": gate, "_limits": limits})


def bind_port(limits: EdgeLimits) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol with the head time-out of ``limits``."""
    return type("Port", (_Port,), {"_head_timeout": limits.handshake_timeout})


class _Upgrade(asyncio.Protocol):
    _make_link: ClassVar[_LinkFactory]
    _gate: ClassVar[Gate]
    _limits: ClassVar[EdgeLimits]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._loop = _loop or asyncio.get_running_loop()
        self._server_state = server_state
        # uvicorn names the classes that may be in here, but asks no more of them than shutdown().
        self._connections = cast("set[object]", server_state.connections)
        self._transport: asyncio.Transport | None = None
        self._link: Link | None = None
        self._departure: Departure | None = None
        self._release: asyncio.TimerHandle | None = None

    # --- asyncio.Protocol, until the next turn of the loop after the answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        heir = self._heir()
        if heir is not None:
            heir.data_received(data)
        elif self._release is None and self._transport is not None:
            self._decide(self._transport, data)

    def eof_received(self) -> bool | None:
        heir = self._heir()
        return None if heir is None else heir.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        heir = self._heir()
        if heir is not None:
            heir.connection_lost(exc)
        if self._release is not None:
            self._release.cancel()
        self._connections.discard(self)

    def shutdown(self) -> None:
        """Leave an answer that waits for its time alone: uvicorn is stopping, and waits for it."""

    # --- within

    def _heir(self) -> asyncio.Protocol | None:
        return self._departure if self._link is None else self._link.protocol

    def _decide(self, transport: asyncio.Transport, request: bytes) -> None:
        remote = get_remote_addr(transport)
        # Every response of the server carries these, the date among them.
        common: Headers = tuple(
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in self._server_state.default_headers
        )
        receiver: Receiver | None = None
        release: float | None = None
        try:
            upgrade = read_upgrade(
                request,
                remote=remote,
                secure=transport.get_extra_info("sslcontext") is not None,
                received=self._loop.time(),
            )
            verdict = self._gate.handshake(upgrade.handshake)
            if isinstance(verdict, Refused):
                response, release = answer(verdict, common), verdict.release
            else:
                offers = upgrade.handshake.subprotocols()
                if verdict.subprotocol is not None and verdict.subprotocol not in offers:
                    raise ValueError("the gate accepted a subprotocol that was not on offer")
                response = switching_protocols(upgrade.key, verdict.subprotocol, common)
                receiver = verdict.receiver
        except UpgradeError as error:
            response = answer(error.refused, common)
        except Exception as exc:
            logger.error("an opening handshake raised %s; answering 500", whereabouts(exc))
            response = answer(refusal(problem.of(HttpProblem(code="internal_error"))), common)
        if receiver is not None:
            self._accept(transport, response, receiver, remote)
        elif release is None:
            self._refuse(transport, response)
        else:
            self._release = self._loop.call_at(release, self._refuse, transport, response)

    def _refuse(self, transport: asyncio.Transport, response: bytes) -> None:
        transport.write(response)
        self._departure = Departure(
            transport, self._loop, self._limits.close_timeout, lambda: self._connections.discard(self)
        )
        self._loop.call_soon(self._hand_over, transport)

    def _accept(
        self,
        transport: asyncio.Transport,
        response: bytes,
        receiver: Receiver,
        remote: tuple[str, int] | None,
    ) -> None:
        transport.write(response)
        self._link = self._make_link(
            transport=transport,
            loop=self._loop,
            gate=self._gate,
            receiver=receiver,
            limits=self._limits,
            remote=remote,
            connections=self._connections,
        )
        self._connections.discard(self)
        self._loop.call_soon(self._hand_over, transport)
        self._link.open()

    def _hand_over(self, transport: asyncio.Transport) -> None:
        """uvicorn put this object on the transport after `data_received`: let the heir take its place."""
        if self._link is not None:
            self._link.attach()
        elif self._departure is not None and not transport.is_closing():
            transport.set_protocol(self._departure)


class _Port(HttpToolsProtocol):
    """uvicorn's HTTP, and three things it does not do.

    It hands over bytes that a client sent in one piece with its upgrade request, which uvicorn drops; it
    does not wait for ever for the head of a request; and it does not take heads and trailers of any length,
    which the parser keeps in memory.
    """

    _head_timeout: ClassVar[float]
    _head_timer: asyncio.TimerHandle | None = None
    _segment: bytes = b""
    _steps: int = 0
    _kept: int = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.timeout_keep_alive_task is not None:
            # The next request of a kept connection begins: uvicorn stops its own timer here.
            self._await_head()
        self._segment = data
        steps = self._steps
        try:
            super().data_received(data)
        finally:
            self._segment = b""
        # What brings neither the end of a head nor a piece of a body is kept by the parser.
        self._kept = self._kept + len(data) if self._steps == steps else 0
        if self._kept > _HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("Request head too large.")

    def on_headers_complete(self) -> None:
        self._steps += 1
        self._head_arrived()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._steps += 1
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._steps += 1
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        # Called while uvicorn handles the parser's exception, which says where the request ended.
        end = sys.exception()
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:
            # Its answer would be written into the middle of the WebSocket.
            self.send_400_response("Upgrade before the previous response.")
            return
        super().handle_websocket_upgrade()
        if isinstance(end, httptools.HttpParserUpgrade):
            early = self._segment[end.args[0] :]
            if early:
                cast("asyncio.Protocol", self.transport.get_protocol()).data_received(early)

    def _await_head(self) -> None:
        self._head_arrived()
        self._head_timer = self.loop.call_later(self._head_timeout, self.transport.abort)

    def _head_arrived(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
