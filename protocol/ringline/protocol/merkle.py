"""The Merkle tree of an append-only log: its hashes, its roots, and proofs about them (RFC 9162 §2.1).

A root stands for all leaves before it, in order. An inclusion proof shows that one leaf is among them; a
consistency proof shows that a later root has the same leaves and then more. Whoever keeps a root needs
nothing else to find out that a leaf was changed, moved, left out or taken back.

Written here because no library fits: what speaks these formats for Python is either under a licence that
would reach into every agent that calls, with proofs in a form of its own, or has been released for some
weeks. RFC 9162 gives the algorithms, and the roots and proofs that others publish are among the tests.

A proof is a list of hashes of spans of leaves. Which spans, and how a span is put together from the
complete subtrees that are stored, is computed here once, for the relay that has the tree in memory and for
the client that has fetched some tiles of it.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias, final

from ringline.protocol.errors import LogError
from ringline.protocol.identity import HASH_BYTES
from ringline.protocol.transcript import digest

__all__ = [
    "EMPTY_ROOT",
    "Frontier",
    "Lookup",
    "Node",
    "Span",
    "Tree",
    "consistency_spans",
    "inclusion_spans",
    "leaf_hash",
    "node_hash",
    "span_hash",
    "span_nodes",
    "verify_consistency",
    "verify_inclusion",
]

EMPTY_ROOT: Final = digest(b"")
"""The root of a log without entries (RFC 9162 §2.1.1)."""


class Node(NamedTuple):
    """A complete subtree: the leaves from ``number * 2**level`` on, ``2**level`` of them."""

    level: int
    number: int


class Span(NamedTuple):
    """The leaves from ``start`` up to, and without, ``end``."""

    start: int
    end: int


Lookup: TypeAlias = Callable[[Node], bytes]
"""Gives the hash of a complete subtree."""


def leaf_hash(entry: bytes) -> bytes:
    """Return the 32-byte hash of an entry as a leaf (RFC 9162 §2.1.1)."""
    return digest(b"\x00" + entry)


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the 32-byte hash of a node from those of its two halves (RFC 9162 §2.1.1)."""
    return digest(b"\x01" + left + right)


# --- which hashes a proof has


def inclusion_spans(index: int, size: int) -> list[Span]:
    """Return the spans of the inclusion proof of leaf ``index`` in a tree of ``size`` leaves, in its order.

    Raises `ValueError` when there is no such leaf. Source: RFC 9162 §2.1.3.1.
    """
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
    spans: list[Span] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            spans.append(Span(middle, end))
            end = middle
        else:
            spans.append(Span(start, middle))
            start = middle
    return spans[::-1]


def consistency_spans(old: int, new: int) -> list[Span]:
    """Return the spans of the consistency proof from ``old`` leaves to ``new`` ones, in its order.

    Empty from nothing, and from a tree to itself. Raises `ValueError` when ``new`` is less than ``old``.
    Source: RFC 9162 §2.1.4.1.
    """
    if not 0 <= old <= new:
        raise ValueError(f"a tree of {new} leaves is no continuation of one of {old}")
    spans: list[Span] = []
    start, end = 0, new
    # The subtree in which the old tree ends is narrowed down; what lies beside it is the proof.
    while 0 < old < end:
        middle = start + _split(end - start)
        if old <= middle:
            spans.append(Span(middle, end))
            end = middle
        else:
            spans.append(Span(start, middle))
            start = middle
    # Whoever holds the old root knows the whole old tree's hash already, and needs it only when it is
    # not itself one of the subtrees.
    if old > 0 and start > 0:
        spans.append(Span(start, end))
    return spans[::-1]


def span_nodes(span: Span) -> list[Node]:
    """Return the complete subtrees that a span of a proof, or a whole tree, is put together from.

    They are the largest ones, from left to right. Source: RFC 9162 §2.1.1.
    """
    nodes: list[Node] = []
    start = span.start
    while start < span.end:
        level = (span.end - start).bit_length() - 1
        nodes.append(Node(level, start >> level))
        start += 1 << level
    return nodes


def span_hash(span: Span, get: Lookup) -> bytes:
    """Return the hash of a span of a proof, or the root of a tree; ``get`` knows the complete subtrees."""
    nodes = span_nodes(span)
    if not nodes:
        return EMPTY_ROOT
    found = get(nodes[-1])
    for node in reversed(nodes[:-1]):
        found = node_hash(get(node), found)
    return found


def _split(size: int) -> int:
    """The largest power of two that is less than ``size``, which is at least 2."""
    return 1 << ((size - 1).bit_length() - 1)


# --- proofs as whoever receives them checks them


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> None:
    """Pass when the leaf with hash ``leaf`` is number ``index`` of the ``size`` leaves under ``root``.

    Raises `LogError` otherwise. Source: RFC 9162 §2.1.3.2.
    """
    if not 0 <= index < size:
        raise LogError(f"entry {index} is not within a log of {size}")
    _check_hashes(leaf, root, *proof)
    at, last = index, size - 1
    found = leaf
    for part in proof:
        if last == 0:
            raise LogError("the inclusion proof is too long")
        if at & 1 or at == last:
            found = node_hash(part, found)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            found = node_hash(found, part)
        at, last = at >> 1, last >> 1
    if last != 0 or found != root:
        raise LogError("the inclusion proof does not lead to the root of the log")


def verify_consistency(
    old_size: int, old_root: bytes, new_size: int, new_root: bytes, proof: Sequence[bytes]
) -> None:
    """Pass when the tree of ``new_size`` leaves begins with the tree of ``old_size`` leaves.

    Raises `LogError` otherwise, also when the new tree is smaller. Source: RFC 9162 §2.1.4.2.
    """
    if not 0 <= old_size <= new_size:
        raise LogError(f"a log of {new_size} entries is no continuation of one of {old_size}")
    _check_hashes(old_root, new_root, *proof)
    if old_size in (0, new_size):
        if proof or old_root != (new_root if old_size else EMPTY_ROOT):
            raise LogError("the log is not the one that was seen before")
        return
    path = [old_root, *proof] if old_size & (old_size - 1) == 0 else list(proof)
    if not path:
        raise LogError("the consistency proof is too short")
    at, last = old_size - 1, new_size - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    old_found = new_found = path[0]
    for part in path[1:]:
        if last == 0:
            raise LogError("the consistency proof is too long")
        if at & 1 or at == last:
            old_found = node_hash(part, old_found)
            new_found = node_hash(part, new_found)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            new_found = node_hash(new_found, part)
        at, last = at >> 1, last >> 1
    if last != 0 or old_found != old_root or new_found != new_root:
        raise LogError("the log is not the one that was seen before")


def _check_hashes(*hashes: bytes) -> None:
    if any(len(part) != HASH_BYTES for part in hashes):
        raise LogError("a hash of the proof has the wrong length")


# --- the tree as whoever reads the log has it


@final
class Frontier:
    """The largest complete subtrees of a tree, from left to right: enough to append leaves to it.

    A reader who has only these can tell whether the entries he reads are those under a later root.
    """

    __slots__ = ("_hashes", "size")

    size: int
    """The number of leaves."""

    def __init__(self, size: int = 0, hashes: Sequence[bytes] = ()) -> None:
        """Begin with ``size`` leaves; ``hashes`` are those of `span_nodes` for all of them.

        Raises `LogError` when they are not as many, or not hashes.
        """
        if size < 0 or len(hashes) != size.bit_count():
            raise LogError(f"{len(hashes)} hashes are no frontier of {size} leaves")
        _check_hashes(*hashes)
        self.size = size
        self._hashes = list(hashes)

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """The hashes of the subtrees."""
        return tuple(self._hashes)

    def append(self, leaf: bytes) -> None:
        """Add the leaf with that hash."""
        found = leaf
        # Each one bit at the end of the number is a subtree that is now half of a larger one.
        for _ in range((~self.size & (self.size + 1)).bit_length() - 1):
            found = node_hash(self._hashes.pop(), found)
        self._hashes.append(found)
        self.size += 1

    def root(self) -> bytes:
        """Return the root of all leaves."""
        if not self._hashes:
            return EMPTY_ROOT
        found = self._hashes[-1]
        for part in reversed(self._hashes[:-1]):
            found = node_hash(part, found)
        return found


# --- the tree as whoever keeps the log has it


@final
class Tree:
    """A tree in memory: every complete subtree's hash, 64 bytes for each leaf in all."""

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        """Begin without leaves."""
        self._levels: list[bytearray] = [bytearray()]

    @property
    def size(self) -> int:
        """The number of leaves."""
        return len(self._levels[0]) // HASH_BYTES

    def append(self, leaf: bytes) -> None:
        """Add the leaf with that 32-byte hash. Raises `ValueError` for another length."""
        if len(leaf) != HASH_BYTES:
            raise ValueError("a leaf is a hash")
        found, level = leaf, 0
        while True:
            if level == len(self._levels):
                self._levels.append(bytearray())
            row = self._levels[level]
            row += found
            if len(row) // HASH_BYTES % 2:
                return
            found = node_hash(bytes(row[-2 * HASH_BYTES : -HASH_BYTES]), bytes(row[-HASH_BYTES:]))
            level += 1

    def get(self, node: Node) -> bytes:
        """Return the hash of a complete subtree. Raises `KeyError` when the tree has no such one."""
        row = self._levels[node.level] if node.level < len(self._levels) else b""
        found = bytes(row[node.number * HASH_BYTES : (node.number + 1) * HASH_BYTES])
        if len(found) != HASH_BYTES:
            raise KeyError(node)
        return found

    def row(self, level: int, start: int, end: int) -> bytes:
        """Return the hashes of the complete subtrees ``start`` up to ``end`` of a level, as one string."""
        row = self._levels[level] if level < len(self._levels) else b""
        return bytes(row[start * HASH_BYTES : end * HASH_BYTES])

    def root(self, size: int | None = None) -> bytes:
        """Return the root of the first ``size`` leaves, of all by default."""
        return span_hash(Span(0, self.size if size is None else size), self.get)

    def inclusion(self, index: int, size: int | None = None) -> list[bytes]:
        """Return the inclusion proof of a leaf among the first ``size``, all by default."""
        total = self.size if size is None else size
        return [span_hash(span, self.get) for span in inclusion_spans(index, total)]

    def consistency(self, old: int, new: int | None = None) -> list[bytes]:
        """Return the consistency proof from the first ``old`` leaves to the first ``new``, all by default."""
        total = self.size if new is None else new
        return [span_hash(span, self.get) for span in consistency_spans(old, total)]
