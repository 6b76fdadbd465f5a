"""Relays within this process, one for each edge and one behind a proxy, spoken to by bare sockets.

Nothing here is decided by the speed of the machine: how long an answer is waited for tells only when to hang
up, and what is compared is asked once more with more patience before it counts.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from ringline.relay.edge import EDGES, EdgeLimits
from ringline.relay.options import RelayOptions
from ringline.relay.server import RelayServer
from ringline.relay.settings import Settings
from ringline_fuzz.target import Broken
from ringline_testing.signed import Owner

__all__ = ["STAGE", "Peer", "Stage"]

_T = TypeVar("_T")

_HANDLES: Final = ("alice", "bob")
_TURNS: Final = 200
_HANG_S: Final = 30.0
_LIMITS: Final = EdgeLimits(handshake_timeout=20, close_timeout=10, drop_timeout=10)
_SETTINGS: Final = Settings(
    calls_per_hour=0,
    calls_per_pair_per_hour=0,
    turns=0,
    frames_per_second=0,
    connections_per_identity=0,
    key_fetches_per_minute=0,
    log_fetches_per_minute=0,
    claims_per_minute=0,
    failed_logins_per_minute=0,
    invites=0,
    unknown_handle_release_ms=0,
)
PATIENCE_S: Final = 0.05


class _Faults(logging.Handler):
    """Keeps what a relay logs as a fault."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(
            f"{record.name}: {record.getMessage()}{' with a traceback' if record.exc_info else ''}"
        )


class Peer:
    """One socket to a relay."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: float) -> None:
        self._reader = reader
        self._writer = writer
        self._patience = patience

    async def talk(self, data: bytes) -> bytes:
        """Send bytes and return all that comes; hang up when nothing does.

        Raises `Broken` when the relay then does not let go of the socket.
        """
        with contextlib.suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()
        said = bytearray()
        half = False
        try:
            async with asyncio.timeout(_HANG_S):
                while True:
                    try:
                        piece = await asyncio.wait_for(
                            self._reader.read(65_536), None if half else self._patience
                        )
                    except TimeoutError:
                        self._writer.write_eof()
                        half = True
                        continue
                    if not piece:
                        return bytes(said)
                    said += piece
        except TimeoutError as error:
            raise Broken("the connection hangs: nothing comes, and it is not closed") from error
        except (ConnectionError, OSError):
            return bytes(said)

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Stage:
    """The relays, made when they are needed and made anew after some inputs."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stack: contextlib.AsyncExitStack | None = None
        self._left = 0
        self._faults = _Faults()
        self.relays: dict[str, RelayServer] = {}
        self.owners: dict[str, dict[str, Owner]] = {}

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run ``work`` in the relays' loop."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            for name in ("ringline", "uvicorn", "asyncio"):
                logging.getLogger(name).addHandler(self._faults)
        if self._left == 0:
            self._loop.run_until_complete(self._renew())
        self._left -= 1
        self._faults.told.clear()
        return self._loop.run_until_complete(work)

    def check_faults(self) -> None:
        """Raises `Broken` when a relay has logged a fault."""
        if self._faults.told:
            raise Broken(f"a relay logs a fault: {self._faults.told}")

    async def connect(self, name: str, patience: float = PATIENCE_S) -> Peer:
        """Open a socket to the relay of that name."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.relays[name].port, limit=2**22)
        return Peer(reader, writer, patience)

    def close(self) -> None:
        """Stop the relays."""
        if self._loop is not None:
            self._loop.run_until_complete(self._stop())
            self._loop.close()
            self._loop = None
            for name in ("ringline", "uvicorn", "asyncio"):
                logging.getLogger(name).removeHandler(self._faults)

    async def _stop(self) -> None:
        if self._stack is not None:
            await self._stack.aclose()
        self._stack, self._left = None, 0

    async def _renew(self) -> None:
        await self._stop()
        self._stack = contextlib.AsyncExitStack()
        for edge in EDGES:
            await self._start(edge, RelayOptions(port=0, edge=edge, settings=_SETTINGS, edge_limits=_LIMITS))
        await self._start(
            "proxy",
            RelayOptions(
                port=0,
                realm="relay.example",
                open_registration=True,
                settings=_SETTINGS,
                edge_limits=_LIMITS,
                behind_proxy=True,
                trusted_proxies=("127.0.0.1",),
            ),
        )
        self._left = _TURNS

    async def _start(self, name: str, options: RelayOptions) -> None:
        assert self._stack is not None
        relay = await self._stack.enter_async_context(RelayServer(options))
        self.relays[name] = relay
        self.owners[name] = {
            handle: await Owner.enrolled(handle, relay.port, realm=options.realm) for handle in _HANDLES
        }


STAGE: Final = Stage()
