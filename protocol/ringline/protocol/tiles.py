"""A log cut into files that never change: tiles of hashes, and bundles of entries (C2SP tlog-tiles).

A tile holds up to 256 hashes of one level in eight of the tree; with it, and the tiles to the right and
above, a client computes any proof itself, so that whoever serves the log answers with bytes it has and
decides nothing. The last tile of a level is partial and is named with its width.

::

    tile/0/x001/x234/067         level 0, number 1,234,067: hashes of leaves
    tile/1/000.p/17              level 1, number 0, the first 17 hashes: roots of full tiles of level 0
    tile/entries/000.p/44        the first 44 entries themselves
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from ringline.protocol.errors import LogError
from ringline.protocol.identity import HASH_BYTES
from ringline.protocol.limits import INT_MAX
from ringline.protocol.merkle import Node, Span, node_hash, span_nodes

__all__ = [
    "ENTRY_BYTES",
    "TILE_WIDTH",
    "Tile",
    "TileHashes",
    "bundles_of",
    "decode_bundle",
    "encode_bundle",
    "tile_of",
    "tiles_of",
]

_HEIGHT: Final = 8

TILE_WIDTH: Final = 1 << _HEIGHT
"""Hashes in a full tile, entries in a full bundle."""

ENTRY_BYTES: Final = 65_535
"""Size of the largest entry: its length has two bytes in a bundle."""

_LEVELS: Final = 8  # 256**7 is more than any log has entries
_DIGITS: Final = 3
_PATH: Final = re.compile(
    r"tile/(entries|[0-7])/((?:x[0-9]{3}/){0,5}[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?", re.ASCII
)


@final
@dataclass(frozen=True, slots=True, order=True)
class Tile:
    """The name of one tile. ``level`` None: a bundle of entries. ``width`` is that of a partial one."""

    level: int | None
    number: int
    width: int = TILE_WIDTH

    @property
    def first(self) -> int:
        """The number of its first hash or entry within the level."""
        return self.number * TILE_WIDTH

    @property
    def path(self) -> str:
        """The path below the log's own, without a slash at the front."""
        groups: list[str] = []
        rest = self.number
        while True:
            rest, group = divmod(rest, 10**_DIGITS)
            groups.append(f"{'x' if groups else ''}{group:0{_DIGITS}}")
            if not rest:
                break
        kind = "entries" if self.level is None else str(self.level)
        partial = "" if self.width == TILE_WIDTH else f".p/{self.width}"
        return f"tile/{kind}/{'/'.join(reversed(groups))}{partial}"

    @classmethod
    def parse(cls, path: str) -> "Tile":
        """Read a path. Raises `LogError` for anything that `path` would not give."""
        match = _PATH.fullmatch(path)
        if match is None:
            raise LogError("not the path of a tile")
        kind, groups, width = match.groups()
        tile = cls(
            None if kind == "entries" else int(kind),
            int(groups.replace("x", "").replace("/", "")),
            TILE_WIDTH if width is None else int(width),
        )
        # One tile has one name: no leading groups of zeros, no partial tile that is full.
        if tile.path != path or tile.width > TILE_WIDTH:
            raise LogError("not the path of a tile")
        return tile


def _whole(level: int, number: int, size: int) -> Tile:
    """The tile of that level and number as a log of ``size`` entries has it."""
    width = min((size >> (_HEIGHT * level)) - number * TILE_WIDTH, TILE_WIDTH)
    return Tile(level, number, width)


def tile_of(node: Node, size: int) -> tuple[Tile, int, int]:
    """Return the tile that bears out a complete subtree, and which of its hashes: first and number.

    ``size`` is that of the log, which has the subtree. The number is a power of two; with one, it is the
    very hash.
    """
    level, height = divmod(node.level, _HEIGHT)
    first = node.number << height
    number, offset = divmod(first, TILE_WIDTH)
    return _whole(level, number, size), offset, 1 << height


def tiles_of(spans: Iterable[Span], size: int) -> list[Tile]:
    """Return the tiles that are needed to compute the hashes of ``spans`` in a log of ``size`` entries."""
    found = {tile_of(node, size)[0] for span in spans for node in span_nodes(span)}
    return sorted(found, key=lambda tile: (tile.level or 0, tile.number))


@final
class TileHashes:
    """The hashes of complete subtrees, computed from tiles that somebody served: nothing is proved yet.

    To be used as a `ringline.protocol.merkle.Lookup` for proofs, which prove themselves.
    """

    __slots__ = ("_size", "_tiles")

    def __init__(self, size: int, tiles: Mapping[Tile, bytes]) -> None:
        """Take the tiles of a log of ``size`` entries. Raises `LogError` for one of the wrong length."""
        for tile, data in tiles.items():
            if len(data) != tile.width * HASH_BYTES:
                raise LogError(f"{tile.path} of the log has {len(data)} bytes")
        self._size = size
        self._tiles = tiles

    def get(self, node: Node) -> bytes:
        """Return the hash of a complete subtree. Raises `KeyError` when its tile is not there."""
        tile, offset, number = tile_of(node, self._size)
        data = self._tiles[tile]
        hashes = [data[at * HASH_BYTES : (at + 1) * HASH_BYTES] for at in range(offset, offset + number)]
        while len(hashes) > 1:
            hashes = [node_hash(left, right) for left, right in zip(hashes[::2], hashes[1::2], strict=True)]
        return hashes[0]


# --- entries


def bundles_of(span: Span, size: int) -> list[Tile]:
    """Return the bundles that hold the entries of ``span`` in a log of ``size`` entries, in order."""
    if not 0 <= span.start <= span.end <= size <= INT_MAX:
        raise ValueError(f"a log of {size} entries has no entries {span.start} to {span.end}")
    if span.start == span.end:
        return []
    first, last = span.start // TILE_WIDTH, (span.end - 1) // TILE_WIDTH
    whole = (_whole(0, number, size) for number in range(first, last + 1))
    return [Tile(None, tile.number, tile.width) for tile in whole]


def encode_bundle(entries: Sequence[bytes]) -> bytes:
    """Return the entries one behind the other, each behind its length in two bytes.

    Raises `ValueError` for one of more than `ENTRY_BYTES`.
    """
    if any(len(entry) > ENTRY_BYTES for entry in entries):
        raise ValueError(f"an entry of a log has at most {ENTRY_BYTES} bytes")
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)


def decode_bundle(data: bytes, width: int) -> list[bytes]:
    """Return the ``width`` entries of a bundle. Raises `LogError` when it holds more or less than those."""
    entries: list[bytes] = []
    at = 0
    while at < len(data):
        start = at + 2
        at = start + int.from_bytes(data[at:start], "big")
        if start > len(data) or at > len(data):
            raise LogError("a bundle of entries is cut short")
        entries.append(data[start:at])
    if len(entries) != width:
        raise LogError(f"a bundle of {width} entries holds {len(entries)}")
    return entries
