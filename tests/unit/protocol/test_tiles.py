"""A log is served as tiles and bundles with one name each, and proofs come out of them (C2SP tlog-tiles)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringline.protocol.errors import LogError
from ringline.protocol.merkle import (
    Node,
    Span,
    Tree,
    consistency_spans,
    inclusion_spans,
    leaf_hash,
    span_hash,
    verify_consistency,
    verify_inclusion,
)
from ringline.protocol.tiles import (
    TILE_WIDTH,
    Tile,
    TileHashes,
    bundles_of,
    decode_bundle,
    encode_bundle,
    tile_of,
    tiles_of,
)

SIZES = [1, 2, 255, 256, 257, 300, 511, 512, 513, 70_000]
TREE = Tree()
for _number in range(70_001):
    TREE.append(leaf_hash(_number.to_bytes(4, "big")))


def served(tile: Tile) -> bytes:
    """Return a tile as a relay cuts it out of its tree."""
    assert tile.level is not None
    start = tile.number * TILE_WIDTH
    return TREE.row(8 * tile.level, start, start + tile.width)


def hashes_for(spans: list[Span], size: int) -> TileHashes:
    return TileHashes(size, {tile: served(tile) for tile in tiles_of(spans, size)})


# --- names


@pytest.mark.parametrize(
    ("tile", "path"),
    [
        (Tile(0, 0), "tile/0/000"),
        (Tile(0, 1_234_067), "tile/0/x001/x234/067"),
        (Tile(0, 1_000), "tile/0/x001/000"),
        (Tile(1, 0, 17), "tile/1/000.p/17"),
        (Tile(0, 273, 112), "tile/0/273.p/112"),
        (Tile(None, 0, 44), "tile/entries/000.p/44"),
        (Tile(None, 1_234_067), "tile/entries/x001/x234/067"),
    ],
)
def test_the_paths_are_those_of_the_specification_and_are_read_back(tile: Tile, path: str) -> None:
    assert tile.path == path
    assert Tile.parse(path) == tile


@pytest.mark.parametrize(
    "path",
    [
        "",
        "tile/0",
        "tile/0/0",
        "tile/0/00",
        "tile/0/0000",
        "tile/00/000",
        "tile/8/000",
        "tile/64/000",
        "tile/-1/000",
        "tile/0/x000/000",  # a leading group of zeros: another name for 000
        "tile/0/001/x234/067",
        "tile/0/x001/x234",
        "tile/0/000.p/0",
        "tile/0/000.p/01",
        "tile/0/000.p/256",
        "tile/0/000.p/999",
        "tile/0/000.p/",
        "tile/0/000.p/1\n",
        "tile/0/000/",
        "tile/0/٠٠٠",
        "/tile/0/000",
        "tile/entry/000",
        "tile/data/000",
        "checkpoint",
    ],
)
def test_every_other_text_is_no_path(path: str) -> None:
    with pytest.raises(LogError, match="not the path of a tile"):
        Tile.parse(path)


@given(st.text(max_size=40))
def test_a_path_that_is_read_is_written_the_same(path: str) -> None:
    for text in (path, f"tile/0/{path}", f"tile/entries/{path}"):
        try:
            tile = Tile.parse(text)
        except LogError:
            continue
        assert tile.path == text


# --- hashes


def test_a_log_of_seventy_thousand_has_the_tiles_that_the_specification_counts() -> None:
    tiles = {tile_of(Node(0, index), 70_000)[0] for index in range(70_000)}
    assert sum(tile.width == 256 for tile in tiles) == 273
    assert [tile for tile in tiles if tile.width < 256] == [Tile(0, 273, 112)]
    assert {tile_of(Node(8, index), 70_000)[0] for index in range(273)} == {Tile(1, 0), Tile(1, 1, 17)}
    assert tile_of(Node(16, 0), 70_000)[0] == Tile(2, 0, 1)


def test_a_full_tile_is_one_hash_of_the_level_above() -> None:
    assert tile_of(Node(8, 0), 256) == (Tile(1, 0, 1), 0, 1)
    assert TileHashes(256, {Tile(1, 0, 1): served(Tile(1, 0, 1))}).get(Node(8, 0)) == TREE.root(256)


@pytest.mark.parametrize("size", SIZES)
def test_the_root_comes_out_of_the_tiles(size: int) -> None:
    assert span_hash(Span(0, size), hashes_for([Span(0, size)], size).get) == TREE.root(size)


@pytest.mark.parametrize("size", SIZES)
def test_inclusion_proofs_come_out_of_the_tiles_and_pass(size: int) -> None:
    for index in {0, 1, size // 2, size - 1} & set(range(size)):
        spans = inclusion_spans(index, size)
        get = hashes_for(spans, size).get
        proof = [span_hash(span, get) for span in spans]
        assert proof == TREE.inclusion(index, size)
        verify_inclusion(leaf_hash(index.to_bytes(4, "big")), index, size, proof, TREE.root(size))


@pytest.mark.parametrize("new", SIZES)
def test_consistency_proofs_come_out_of_the_tiles_and_pass(new: int) -> None:
    for old in {1, 2, 255, 256, 257, new // 2, new - 1, new} & set(range(1, new + 1)):
        spans = consistency_spans(old, new)
        get = hashes_for(spans, new).get
        proof = [span_hash(span, get) for span in spans]
        assert proof == TREE.consistency(old, new)
        verify_consistency(old, TREE.root(old), new, TREE.root(new), proof)


def test_a_proof_in_a_large_log_takes_few_tiles() -> None:
    assert len(tiles_of(inclusion_spans(12_345, 70_000), 70_000)) <= 4
    assert len(tiles_of(consistency_spans(12_345, 70_000), 70_000)) <= 4


def test_a_tile_of_another_length_is_refused() -> None:
    for data in (b"", served(Tile(0, 0, 3))[:-1], served(Tile(0, 0, 4))):
        with pytest.raises(LogError, match=r"tile/0/000.p/3 of the log has"):
            TileHashes(3, {Tile(0, 0, 3): data})


def test_a_tile_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyError):
        TileHashes(3, {}).get(Node(0, 0))


# --- entries


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_a_bundle_is_read_back_and_no_other_width_is(entries: list[bytes]) -> None:
    data = encode_bundle(entries)
    assert decode_bundle(data, len(entries)) == entries
    for width in (len(entries) + 1, len(entries) - 1):
        with pytest.raises(LogError):
            decode_bundle(data, width)


@given(st.binary(max_size=200), st.integers(0, 20))
def test_bytes_of_anybody_are_a_bundle_or_refused(data: bytes, width: int) -> None:
    try:
        entries = decode_bundle(data, width)
    except LogError:
        return
    assert encode_bundle(entries) == data


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_bundle_that_is_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(LogError):
        decode_bundle(encode_bundle([b"one", b"two"])[:-cut], 2)


def test_an_entry_whose_length_does_not_fit_is_a_mistake_of_the_program() -> None:
    with pytest.raises(ValueError, match="at most 65535 bytes"):
        encode_bundle([bytes(65_536)])


@pytest.mark.parametrize(
    ("span", "size", "paths"),
    [
        (Span(0, 0), 0, []),
        (Span(3, 3), 5, []),
        (Span(0, 5), 5, ["tile/entries/000.p/5"]),
        (Span(4, 5), 300, ["tile/entries/000"]),
        (Span(255, 257), 300, ["tile/entries/000", "tile/entries/001.p/44"]),
        (Span(256, 300), 300, ["tile/entries/001.p/44"]),
        (Span(0, 256), 256, ["tile/entries/000"]),
    ],
)
def test_entries_are_found_in_their_bundles(span: Span, size: int, paths: list[str]) -> None:
    assert [tile.path for tile in bundles_of(span, size)] == paths


def test_entries_beyond_the_log_are_a_mistake_of_the_program() -> None:
    with pytest.raises(ValueError, match="has no entries 3 to 6"):
        bundles_of(Span(3, 6), 5)
