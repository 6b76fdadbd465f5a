"""The key log over HTTP: a checkpoint, and files that never change (RL-LOG-012, RL-LOG-013, C2SP tlog-tiles).

Only for the enrolled (RL-LOG-003): the log tells which handles exist.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, final

from starlette.requests import Request
from starlette.responses import Response

from ringline.protocol.errors import HttpProblem, LogError
from ringline.protocol.instant import Instant
from ringline.protocol.tiles import Tile, encode_bundle
from ringline.relay.auth import Login
from ringline.relay.budget import Window
from ringline.relay.keylog import KeyLog
from ringline.relay.registry import Registry
from ringline.relay.requests import parameters
from ringline.relay.store import StoreError

__all__ = ["LogRoutes"]

_Endpoint = Callable[[Request], Awaitable[Response]]

_MINUTE_MS: Final = 60_000
_MEDIA: Final = "application/octet-stream"
# What a name stands for is the same for ever; but it is not for a cache that others read from.
_IMMUTABLE: Final = "private, max-age=31536000, immutable"


@final
class LogRoutes:
    """The routes of one relay's log."""

    def __init__(
        self,
        log: KeyLog,
        registry: Registry,
        *,
        login: Callable[[Request], Login],
        clock: Callable[[], Instant],
        per_minute: int,
    ) -> None:
        """``login`` lets the enrolled through, each for ``per_minute`` requests."""
        self._log = log
        self._registry = registry
        self._login = login
        self._clock = clock
        self._fetches: Window[str] = Window(per_minute, _MINUTE_MS)

    def table(self) -> tuple[tuple[str, Mapping[str, _Endpoint]], ...]:
        """Return paths with their methods."""
        return (
            ("/v1/log/checkpoint", {"GET": self._checkpoint}),
            ("/v1/log/tile/{tile:path}", {"GET": self._tile}),
        )

    async def _checkpoint(self, request: Request) -> Response:
        self._admit(request)
        headers = {"content-type": "text/plain; charset=utf-8", "cache-control": "no-store"}
        return Response(self._log.checkpoint(), 200, headers)

    async def _tile(self, request: Request) -> Response:
        self._admit(request)
        try:
            tile = Tile.parse(f"tile/{request.path_params['tile']}")
        except LogError:
            raise HttpProblem(code="not_found") from None
        data = await self._entries(tile) if tile.level is None else self._log.tile(tile)
        if data is None:
            raise HttpProblem(code="not_found")
        return Response(data, 200, {"content-type": _MEDIA, "cache-control": _IMMUTABLE})

    async def _entries(self, tile: Tile) -> bytes | None:
        span = self._log.entries_of(tile)
        if span is None:
            return None
        try:
            return encode_bundle(await self._registry.log_entries(*span))
        except StoreError:
            raise HttpProblem(
                "the relay's storage cannot be read", code="unavailable", retry_after_ms=5_000
            ) from None

    def _admit(self, request: Request) -> None:
        handle = self._login(request).handle
        parameters(request)
        now = self._clock()
        wait = self._fetches.wait(handle, now.mono)
        if wait:
            raise HttpProblem("too many requests to the key log", code="rate_limited", retry_after_ms=wait)
        self._fetches.charge(handle, now.mono)
