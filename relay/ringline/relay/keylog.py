"""The key log of a relay: what it has taken of cards, successions and revocations, in order (RL-LOG-001).

The tree is in memory, 64 bytes for each entry; the entries themselves are in the store. Everything that is
served is cut out of the two, so a relay can answer for its log in no other way than it once did.
"""

from collections.abc import Iterable, Iterator
from typing import Final, final

import msgspec

from ringline.protocol.checkpoint import Checkpoint, LogKey, log_origin, sign_checkpoint
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.identity import Card, SignedCard
from ringline.protocol.logentry import LogEntry, encode_entry
from ringline.protocol.merkle import Tree, leaf_hash
from ringline.protocol.shapes import SuccessionStatement
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import Reason, Revocation, SignedRevocation
from ringline.protocol.tiles import TILE_WIDTH, Tile
from ringline.relay.publication import read_succession
from ringline.relay.store import CardPublished, CardRevoked, Change, LogAppended

__all__ = ["FEATURE", "KeyLog", "unlogged"]

FEATURE: Final = "keylog"
"""The feature that a relay with a log names (RL-EXT-001)."""

_HEIGHT: Final = TILE_WIDTH.bit_length() - 1
_successions: Final = msgspec.json.Decoder(SuccessionStatement)


@final
class KeyLog:
    """The log of one realm. It grows by what `apply` is given, which is safe on disk before."""

    def __init__(self, realm: str, key: SigningKey) -> None:
        """Begin without entries; ``key`` signs the checkpoints."""
        self._origin = log_origin(realm)
        self._signer = key
        self._tree = Tree()
        self._cards: dict[str, int] = {}
        self._checkpoint: bytes | None = None

    @property
    def key(self) -> LogKey:
        """The key under which clients verify the checkpoints."""
        return LogKey(self._origin, self._signer.public)

    @property
    def size(self) -> int:
        """The number of entries."""
        return self._tree.size

    def next(self, entries: Iterable[LogEntry]) -> tuple[LogAppended, ...]:
        """Return the changes that append ``entries``: to be stored, and then applied, together."""
        return tuple(
            LogAppended(
                index=index,
                entry=encode_entry(entry),
                card_id=b64encode(entry.card.id) if isinstance(entry, SignedCard) else None,
            )
            for index, entry in enumerate(entries, self.size)
        )

    def apply(self, change: LogAppended) -> None:
        """Append an entry. Raises `ValueError` for one that is not the next."""
        if change.index != self.size:
            raise ValueError(f"entry {change.index} of the key log does not follow the first {self.size}")
        self._tree.append(leaf_hash(change.entry))
        if change.card_id is not None:
            self._cards[change.card_id] = change.index
        self._checkpoint = None

    def index_of(self, card_id: str) -> int | None:
        """Return which entry a card is, by its base64url id; None for one that is not in the log."""
        return self._cards.get(card_id)

    def checkpoint(self) -> bytes:
        """Return the signed checkpoint over all entries."""
        if self._checkpoint is None:
            checkpoint = Checkpoint(self._origin, self.size, self._tree.root())
            self._checkpoint = sign_checkpoint(checkpoint, self._signer)
        return self._checkpoint

    def tile(self, tile: Tile) -> bytes | None:
        """Return the hashes of a tile, full or partial; None when the log has less than those.

        Raises `ValueError` for a bundle of entries, which are not in memory.
        """
        if tile.level is None:
            raise ValueError("entries are in the store")
        start = tile.number * TILE_WIDTH
        level = tile.level * _HEIGHT
        if start + tile.width > self.size >> level:
            return None
        return self._tree.row(level, start, start + tile.width)

    def entries_of(self, tile: Tile) -> tuple[int, int] | None:
        """Return which entries a bundle holds, first and end; None when the log has less than those."""
        start = tile.number * TILE_WIDTH
        return None if start + tile.width > self.size else (start, start + tile.width)


def unlogged(log: KeyLog, changes: Iterable[Change]) -> tuple[LogAppended, ...]:
    """Return what appends every stored statement that the log lacks, in the order in which they came.

    ``changes`` is all that is stored, the log's own entries too, which have been applied. A database from
    before there was a log has all its statements to add, and otherwise none is missing: a statement and its
    entry are written together. Cards of one handle come in the order of their serials, and before what
    revokes them.
    """
    dated: list[tuple[int, int, LogEntry]] = []
    last: dict[str, int] = {}
    carded: dict[str, int] = {}
    entries = 0
    for change in changes:
        match change:
            case CardPublished():
                # The clock may have been set back between two cards: whoever reads the log takes a lower
                # serial behind a higher one for a lie.
                at = last[change.handle] = carded[change.card_id] = max(change.at, last.get(change.handle, 0))
                dated += ((at, 0, entry) for entry in _published(change))
            case CardRevoked():
                dated.append((max(change.at, carded.get(change.card_id, 0)), 1, _revoked(change)))
            case LogAppended():
                entries += 1
            case _:
                pass
    if entries == len(dated):
        return ()
    if entries:
        raise ValueError("the key log does not have the entries of what is stored")
    # Stable, so that the cards of a handle stay in the order of their serials.
    dated.sort(key=lambda item: item[:2])
    return log.next(entry for _, _, entry in dated)


def _published(change: CardPublished) -> Iterator[LogEntry]:
    if change.succession is not None:
        yield read_succession(_successions.decode(change.succession))
    yield SignedCard(Card.decode(change.card), change.card_sig)


def _revoked(change: CardRevoked) -> SignedRevocation:
    statement = Revocation(card_id=b64decode(change.card_id), reason=Reason(change.reason), ts=change.ts)
    return SignedRevocation(statement, change.signature, change.next_ipk)
