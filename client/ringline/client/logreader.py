"""Reading a relay's key log: files by their names, and proofs computed from them.

What is fetched is the relay's word alone. It becomes more than that only where the caller compares it with a
root that he has accepted.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, final

from ringline.client.http import RelayHttp
from ringline.protocol.checkpoint import Checkpoint, LogKey, open_checkpoint
from ringline.protocol.errors import HttpProblem, LogError
from ringline.protocol.merkle import Frontier, Span, span_hash, span_nodes
from ringline.protocol.tiles import Tile, TileHashes, bundles_of, decode_bundle, tiles_of

__all__ = ["LogReader"]

_AT_ONCE: Final = 4
_TILES_KEPT: Final = 64
_WAITS: Final = 5
_WAIT_MOST_S: Final = 60.0


@final
class LogReader:
    """Reads the log of the relay that ``http`` talks to.

    Every method raises `LogError` when the relay does not show what a log of that size has, or shows
    something malformed; `TransportError` and `HttpProblem` as `RelayHttp` does.
    """

    def __init__(self, http: RelayHttp) -> None:
        """Nothing is fetched before a method is called."""
        self._http = http
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._tiles: dict[Tile, bytes] = {}

    async def checkpoint(self) -> bytes:
        """Return the relay's present checkpoint, as it came."""
        return await self._file("checkpoint")

    def open(self, note: bytes, key: LogKey) -> Checkpoint:
        """Return what a checkpoint promises that ``key`` has signed."""
        return open_checkpoint(note, key)

    async def proof(self, spans: Sequence[Span], size: int) -> list[bytes]:
        """Return the hashes of ``spans`` in a log of ``size`` entries: a proof, which proves itself."""
        get = (await self._hashes(spans, size)).get
        return [span_hash(span, get) for span in spans]

    async def frontier(self, start: int, size: int) -> Frontier:
        """Return the frontier of the first ``start`` entries of a log of ``size``: proved by nothing yet."""
        if start == 0:
            return Frontier()
        span = Span(0, start)
        hashes = await self._hashes([span], size)
        return Frontier(start, [hashes.get(node) for node in span_nodes(span)])

    async def entries(self, span: Span, size: int) -> list[bytes]:
        """Return the entries of ``span`` of a log of ``size`` entries: proved by nothing yet."""
        tiles = bundles_of(span, size)
        bundles = await asyncio.gather(*(self._file(tile.path) for tile in tiles))
        found: list[bytes] = []
        for tile, data in zip(tiles, bundles, strict=True):
            found += decode_bundle(data, tile.width)
        skipped = span.start - (tiles[0].first if tiles else span.start)
        return found[skipped : skipped + span.end - span.start]

    async def _hashes(self, spans: Iterable[Span], size: int) -> TileHashes:
        wanted = tiles_of(spans, size)
        missing = [tile for tile in wanted if tile not in self._tiles]
        fetched = await asyncio.gather(*(self._file(tile.path) for tile in missing))
        tiles = {tile: self._tiles[tile] for tile in wanted if tile in self._tiles}
        tiles |= dict(zip(missing, fetched, strict=True))
        hashes = TileHashes(size, tiles)
        self._tiles |= tiles
        while len(self._tiles) > _TILES_KEPT:
            self._tiles.pop(next(iter(self._tiles)))
        return hashes

    async def _file(self, path: str) -> bytes:
        async with self._places:
            for _ in range(_WAITS):
                try:
                    return await self._http.log_file(path)
                except HttpProblem as error:
                    if error.code == "not_found":
                        raise LogError(f"the relay does not show {path} of its key log") from None
                    if error.code != "rate_limited":
                        raise
                    wait_s = (error.retry_after_ms or 1_000) / 1_000
                await asyncio.sleep(min(wait_s, _WAIT_MOST_S))
            return await self._http.log_file(path)

    def forget(self) -> None:
        """Fetch everything anew: what is kept in memory was not proved when it came."""
        self._tiles.clear()
