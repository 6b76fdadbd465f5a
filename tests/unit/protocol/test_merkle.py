"""Roots and proofs are those of RFC 9162 §2.1, and nothing but a true proof passes."""

from collections.abc import Sequence
from hashlib import sha256

import pytest

from ringline.protocol.errors import LogError
from ringline.protocol.merkle import (
    EMPTY_ROOT,
    Frontier,
    Node,
    Span,
    Tree,
    consistency_spans,
    inclusion_spans,
    leaf_hash,
    span_hash,
    span_nodes,
    verify_consistency,
    verify_inclusion,
)

# The eight leaves and the roots over them that the tests of Certificate Transparency's programs share.
LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
# (leaf, size): the proof, as those tests have it.
INCLUSION = {
    (0, 1): [],
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
    (1, 5): [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
# (old size, new size): the proof.
CONSISTENCY = {
    (1, 1): [],
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
    (6, 7): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "b08693ec2e721597130641e8211e7eedccb4c26413963eee6c1e2ed16ffb1a5f",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
}
MOST = 70


def naive_root(hashes: Sequence[bytes]) -> bytes:
    """MTH of RFC 9162 §2.1.1, as it is written there, over hashes of leaves."""
    if not hashes:
        return sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    half = 1
    while half * 2 < len(hashes):
        half *= 2
    return sha256(b"\x01" + naive_root(hashes[:half]) + naive_root(hashes[half:])).digest()


def naive_inclusion(index: int, hashes: Sequence[bytes]) -> list[bytes]:
    """PATH of RFC 9162 §2.1.3.1."""
    if len(hashes) == 1:
        return []
    half = 1
    while half * 2 < len(hashes):
        half *= 2
    if index < half:
        return [*naive_inclusion(index, hashes[:half]), naive_root(hashes[half:])]
    return [*naive_inclusion(index - half, hashes[half:]), naive_root(hashes[:half])]


def naive_consistency(old: int, hashes: Sequence[bytes], known: bool = True) -> list[bytes]:
    """SUBPROOF of RFC 9162 §2.1.4.1."""
    if old == len(hashes):
        return [] if known else [naive_root(hashes)]
    half = 1
    while half * 2 < len(hashes):
        half *= 2
    if old <= half:
        return [*naive_consistency(old, hashes[:half], known), naive_root(hashes[half:])]
    return [*naive_consistency(old - half, hashes[half:], False), naive_root(hashes[:half])]


def tree(entries: Sequence[bytes]) -> Tree:
    grown = Tree()
    for entry in entries:
        grown.append(leaf_hash(entry))
    return grown


HASHES = [leaf_hash(number.to_bytes(2, "big")) for number in range(MOST)]
TREE = Tree()
for _hash in HASHES:
    TREE.append(_hash)


@pytest.mark.parametrize("size", range(9))
def test_the_published_roots_come_out(size: int) -> None:
    assert tree(LEAVES[:size]).root().hex() == ROOTS[size]
    assert tree(LEAVES).root(size).hex() == ROOTS[size]


def test_a_log_without_entries_has_the_hash_of_nothing_as_its_root() -> None:
    assert Tree().root() == EMPTY_ROOT == sha256(b"").digest()


def test_a_leaf_and_a_node_of_the_same_bytes_have_different_hashes() -> None:
    left, right = leaf_hash(b"left"), leaf_hash(b"right")
    assert leaf_hash(left + right) != tree([b"left", b"right"]).root()


@pytest.mark.parametrize(("place", "proof"), INCLUSION.items())
def test_the_published_inclusion_proofs_come_out_and_pass(place: tuple[int, int], proof: list[str]) -> None:
    index, size = place
    grown = tree(LEAVES)
    assert [part.hex() for part in grown.inclusion(index, size)] == proof
    verify_inclusion(leaf_hash(LEAVES[index]), index, size, grown.inclusion(index, size), grown.root(size))


@pytest.mark.parametrize(("sizes", "proof"), CONSISTENCY.items())
def test_the_published_consistency_proofs_come_out_and_pass(sizes: tuple[int, int], proof: list[str]) -> None:
    old, new = sizes
    grown = tree(LEAVES)
    assert [part.hex() for part in grown.consistency(old, new)] == proof
    verify_consistency(old, grown.root(old), new, grown.root(new), grown.consistency(old, new))


def test_every_root_up_to_seventy_leaves_is_that_of_the_definition() -> None:
    for size in range(MOST + 1):
        assert TREE.root(size) == naive_root(HASHES[:size])


def test_every_inclusion_proof_up_to_seventy_leaves_is_that_of_the_definition_and_passes() -> None:
    for size in range(1, MOST + 1):
        root = TREE.root(size)
        for index in range(size):
            proof = TREE.inclusion(index, size)
            assert proof == naive_inclusion(index, HASHES[:size])
            verify_inclusion(HASHES[index], index, size, proof, root)


def test_every_consistency_proof_up_to_seventy_leaves_is_that_of_the_definition_and_passes() -> None:
    for new in range(MOST + 1):
        for old in range(new + 1):
            proof = TREE.consistency(old, new)
            assert proof == ([] if old == 0 else naive_consistency(old, HASHES[:new]))
            verify_consistency(old, TREE.root(old), new, TREE.root(new), proof)


def changed(proof: Sequence[bytes]) -> list[list[bytes]]:
    """Proofs that are like one and are not it: a bit, a part more or less, two parts in another order."""
    found = [[*proof, HASHES[0]], [HASHES[0], *proof]]
    for at, part in enumerate(proof):
        flipped = bytes([part[0] ^ 0x10]) + part[1:]
        found.append([*proof[:at], flipped, *proof[at + 1 :]])
        found.append([*proof[:at], *proof[at + 1 :]])
    if len(proof) > 1:
        found.append([*proof[::-1]])
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 21, 33])
def test_no_other_proof_leaf_place_size_or_root_passes_as_included(size: int) -> None:
    root = TREE.root(size)
    for index in range(size):
        proof = TREE.inclusion(index, size)
        for other in changed(proof):
            with pytest.raises(LogError):
                verify_inclusion(HASHES[index], index, size, other, root)
        for leaf, place, total, top in (
            (HASHES[size], index, size, root),
            (HASHES[index], size, size, root),
            (HASHES[index], -1, size, root),
            (HASHES[index], index, size, TREE.root(size + 1)),
            (HASHES[index][:31], index, size, root),
            (HASHES[index], index, size, root[:31]),
        ):
            with pytest.raises(LogError):
                verify_inclusion(leaf, place, total, proof, top)
        for place in range(size):
            if place != index:
                with pytest.raises(LogError):
                    verify_inclusion(HASHES[index], place, size, proof, root)


@pytest.mark.parametrize("new", [1, 2, 3, 7, 8, 21, 33])
def test_no_other_proof_size_or_root_passes_as_consistent(new: int) -> None:
    for old in range(1, new + 1):
        proof = TREE.consistency(old, new)
        for other in changed(proof):
            with pytest.raises(LogError):
                verify_consistency(old, TREE.root(old), new, TREE.root(new), other)
        for old_size, old_root, new_size, new_root in (
            (old, HASHES[-1], new, TREE.root(new)),
            (old, TREE.root(old), new, HASHES[-1]),
            (old, TREE.root(old)[:31], new, TREE.root(new)),
            (new + 1, TREE.root(old), new, TREE.root(new)),
            (-1, TREE.root(old), new, TREE.root(new)),
        ):
            with pytest.raises(LogError):
                verify_consistency(old_size, old_root, new_size, new_root, proof)


def test_from_nothing_every_log_is_consistent_but_only_with_nothing() -> None:
    verify_consistency(0, EMPTY_ROOT, 5, TREE.root(5), [])
    for root, proof in ((TREE.root(1), []), (EMPTY_ROOT, [HASHES[0]])):
        with pytest.raises(LogError):
            verify_consistency(0, root, 5, TREE.root(5), proof)


def test_a_rewritten_entry_leaves_no_consistency_proof_that_passes() -> None:
    other = Tree()
    for number, leaf in enumerate(HASHES[:20]):
        other.append(HASHES[-1] if number == 3 else leaf)
    for size in range(4, 20):
        with pytest.raises(LogError):
            verify_consistency(size, TREE.root(size), 20, other.root(), other.consistency(size))


def test_places_that_a_tree_does_not_have_are_mistakes_of_the_program() -> None:
    with pytest.raises(ValueError, match="no leaf 5"):
        inclusion_spans(5, 5)
    with pytest.raises(ValueError, match="no continuation"):
        consistency_spans(6, 5)
    with pytest.raises(ValueError, match="a leaf is a hash"):
        Tree().append(b"short")
    with pytest.raises(KeyError):
        tree(LEAVES[:3]).get(Node(1, 1))
    with pytest.raises(KeyError):
        span_hash(Span(0, 4), tree(LEAVES[:3]).get)


def test_a_frontier_grows_to_the_root_of_the_whole_tree_from_every_size() -> None:
    for start in range(MOST):
        frontier = Frontier(start, [TREE.get(node) for node in span_nodes(Span(0, start))])
        assert frontier.root() == TREE.root(start)
        for size in range(start + 1, MOST + 1):
            frontier.append(HASHES[size - 1])
            assert (frontier.size, frontier.root()) == (size, TREE.root(size))
        assert list(frontier.hashes) == [TREE.get(node) for node in span_nodes(Span(0, MOST))]


def test_a_frontier_of_too_few_or_damaged_hashes_is_refused() -> None:
    hashes = [TREE.get(node) for node in span_nodes(Span(0, 7))]
    for bad in (hashes[:-1], [*hashes, HASHES[0]], [*hashes[:-1], b"short"]):
        with pytest.raises(LogError):
            Frontier(7, bad)
