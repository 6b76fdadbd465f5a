"""What is signed: cards, prekeys, successions, revocations, and the key log that keeps them."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from ringline.protocol.checkpoint import Checkpoint, LogKey, log_origin, open_checkpoint, sign_checkpoint
from ringline.protocol.errors import BadSignature, LogError, ProtocolError, StatementError, WeakKey
from ringline.protocol.identity import Card, SignedCard
from ringline.protocol.limits import INT_MAX
from ringline.protocol.logentry import decode_entry, encode_entry
from ringline.protocol.merkle import Frontier, Tree, leaf_hash, verify_consistency, verify_inclusion
from ringline.protocol.prekeys import Prekey, SignedPrekey
from ringline.protocol.signing import SIGNATURE_BYTES, SigningKey
from ringline.protocol.statements import (
    Revocation,
    SignedRevocation,
    SignedSuccession,
    Succession,
    check_replacement,
)
from ringline.protocol.tiles import Tile, TileHashes, decode_bundle, encode_bundle
from ringline_fuzz.json_mutation import mutate_json
from ringline_fuzz.material import ALICE, BOB, REALM, seed_of
from ringline_fuzz.mutation import mutate_bytes, mutate_lines
from ringline_fuzz.target import Broken, Target, outcome_of

__all__ = ["TARGETS"]

_REFUSALS: Final = (StatementError, BadSignature, WeakKey)
_LOG_KEY: Final = SigningKey(seed_of("log"))
_ENTRIES: Final = [
    encode_entry(entry)
    for person in (ALICE, BOB)
    for entry in (person.card, person.succession, person.revocation, person.revocation_by_next)
]


def _tree() -> Tree:
    tree = Tree()
    for number in range(300):
        tree.append(leaf_hash(_ENTRIES[number % len(_ENTRIES)] + number.to_bytes(2, "big")))
    return tree


_TREE: Final = _tree()


# --- statements: the signed bytes with a signature behind them


def _cut(data: bytes) -> tuple[bytes, bytes]:
    return data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]


def _same(data: bytes, written: bytes) -> None:
    if written != data:
        raise Broken("one statement has two encodings")


def _signed(
    read: Callable[[bytes, bytes], object], genuine: Callable[[], Sequence[bytes]]
) -> Callable[[bytes], str]:
    """Judge signed bytes: only what was signed holds."""

    def check(data: bytes) -> str:
        try:
            read(*_cut(data))
        except _REFUSALS as error:
            return outcome_of(error)
        if data not in genuine():
            raise Broken("a statement holds that nobody has signed")
        return "holds"

    return check


def _read_card(data: bytes, signature: bytes) -> None:
    card = Card.decode(data)
    _same(data, card.encode())
    SignedCard.parse(data, signature).verify(realm=REALM)
    card.check_life()


def _read_prekey(data: bytes, signature: bytes) -> None:
    _same(data, Prekey.decode(data).encode())
    prekey = SignedPrekey.parse(data, signature, ALICE.card.card).prekey
    prekey.check_life()
    prekey.best()


def _read_succession(data: bytes, signature: bytes) -> None:
    statement = Succession.decode(data)
    _same(data, statement.encode())
    signed = SignedSuccession(statement, signature, ALICE.succession.old_signature)
    signed.verify(ALICE.card.card)
    check_replacement(ALICE.card.card, BOB.card.card, signed)


def _read_revocation(data: bytes, signature: bytes) -> None:
    statement = Revocation.decode(data)
    _same(data, statement.encode())
    SignedRevocation(statement, signature).verify(ALICE.card.card)


def _cards() -> list[bytes]:
    return [person.card.card.encode() + person.card.signature for person in (ALICE, BOB)]


def _prekeys() -> list[bytes]:
    return [person.prekey.prekey.encode() + person.prekey.signature for person in (ALICE, BOB)]


def _successions() -> list[bytes]:
    return [ALICE.succession.succession.encode() + ALICE.succession.signature]


def _revocations() -> list[bytes]:
    return [ALICE.revocation.revocation.encode() + ALICE.revocation.signature]


# --- the key log


def _entry(data: bytes) -> str:
    try:
        entry = decode_entry(data)
    except LogError as error:
        return outcome_of(error)
    _same(data, encode_entry(entry))
    return type(entry).__name__


def _note(size: int) -> bytes:
    head = Checkpoint(log_origin(REALM), size, _TREE.root(size))
    return sign_checkpoint(head, _LOG_KEY)


def _notes() -> list[bytes]:
    witness = b"\xe2\x80\x94 witness.example/w AAAAAAAAAAAAAAAA\n"
    return [_note(0), _note(1), _note(256), _note(300), _note(300) + witness]


def _checkpoint(data: bytes) -> str:
    try:
        head = open_checkpoint(data, LogKey(log_origin(REALM), _LOG_KEY.public))
    except LogError as error:
        return outcome_of(error)
    # Signatures of others may stand around it; the log's own text is one of those that it has signed.
    if not any(_note(head.size).startswith(head.text.encode()) for _ in (0,)) or head.root != _TREE.root(
        head.size
    ):
        raise Broken("a checkpoint holds that the log has not signed")
    if head.size not in (0, 1, 256, 300):
        raise Broken("a checkpoint holds of a size that was never signed")
    return f"checkpoint {head.size}"


def _log_key(data: bytes) -> str:
    text = data.decode("utf-8", "surrogateescape")
    try:
        key = LogKey.parse(text)
    except (LogError, WeakKey) as error:
        return outcome_of(error)
    if key.format() != text:
        raise Broken("one key has two texts")
    return "key"


def _tile(data: bytes) -> str:
    path = data.decode("utf-8", "surrogateescape")
    try:
        tile = Tile.parse(path)
    except LogError as error:
        return outcome_of(error)
    if tile.path != path or not 0 < tile.width <= 256 or not 0 <= tile.first <= INT_MAX * 256:
        raise Broken("one tile has two names")
    return f"tile {tile.level}"


def _bundle(data: bytes) -> str:
    try:
        entries = decode_bundle(data, len(_ENTRIES))
    except LogError as error:
        return outcome_of(error)
    _same(data, encode_bundle(entries))
    return " ".join(_entry(entry) for entry in entries)


def _bundles() -> list[bytes]:
    return [encode_bundle(_ENTRIES)]


def _tile_hashes(data: bytes) -> str:
    """The bytes of one tile of a log of 300 entries: what a proof makes of them is for the proof to tell."""
    tiles = {Tile(0, 0): data, Tile(0, 1, 44): _TREE.row(0, 256, 300), Tile(1, 0, 1): _TREE.row(8, 0, 1)}
    try:
        hashes = TileHashes(300, tiles)
    except LogError as error:
        return outcome_of(error)
    proof = _inclusion_from(hashes)
    genuine = data == _TREE.row(0, 0, 256)
    try:
        verify_inclusion(_TREE.row(0, 7, 8), 7, 300, proof, _TREE.root())
    except LogError as error:
        if genuine:
            raise Broken("the right tile proves nothing") from error
        return outcome_of(error)
    return "proof"


def _inclusion_from(hashes: TileHashes) -> list[bytes]:
    from ringline.protocol.merkle import inclusion_spans, span_hash

    return [span_hash(span, hashes.get) for span in inclusion_spans(7, 300)]


def _proof(data: bytes) -> str:
    """A proof as JSON: kind, two numbers, hashes."""
    try:
        kind, first, second, given = msgspec.json.decode(data, type=tuple[str, int, int, list[str]])
        hashes = [bytes.fromhex(text) for text in given]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return "no case"
    if len(hashes) < 2:
        return "no case"
    one, other, *proof = hashes
    try:
        if kind == "inclusion":
            verify_inclusion(one, first, second, proof, other)
            right = 0 <= first < second <= 300 and one == _TREE.row(0, first, first + 1)
            right = right and other == _TREE.root(second) and proof == _TREE.inclusion(first, second)
        elif kind == "consistency":
            verify_consistency(first, one, second, other, proof)
            same = first == second and one == other and not proof
            right = 0 <= first <= second <= 300 and one == _TREE.root(first) and other == _TREE.root(second)
            right = (right and proof == _TREE.consistency(first, second)) or same
            # Every log continues the empty one, so nothing is proved of it.
            right = right or (first == 0 and not proof)
        else:
            Frontier(first, hashes).root()
            return "frontier"
    except LogError as error:
        return outcome_of(error)
    except ValueError as error:
        # Sizes are this program's own and no peer's: a checkpoint has been opened before.
        if 0 <= first <= INT_MAX and 0 <= second <= INT_MAX:
            raise
        return outcome_of(error)
    if not right:
        raise Broken("something is proved that is not so")
    return kind


def _proofs() -> list[bytes]:
    found: list[list[Any]] = []
    for index, size in ((0, 1), (7, 300), (299, 300), (255, 256), (5, 8)):
        hashes = [_TREE.row(0, index, index + 1), _TREE.root(size), *_TREE.inclusion(index, size)]
        found.append(["inclusion", index, size, [each.hex() for each in hashes]])
    for old, new in ((0, 300), (1, 2), (255, 256), (256, 300), (299, 300), (300, 300)):
        hashes = [_TREE.root(old), _TREE.root(new), *_TREE.consistency(old, new)]
        found.append(["consistency", old, new, [each.hex() for each in hashes]])
    found.append(["frontier", 3, 0, [b"a".hex() * 32, b"b".hex() * 32]])
    return [json.dumps(each).encode() for each in found]


def _with(read: Callable[[bytes], str]) -> Callable[[bytes], str]:
    """Judge what may end in any refusal of the protocol."""

    def check(data: bytes) -> str:
        try:
            return read(data)
        except ProtocolError as error:
            raise Broken(f"a refusal of another kind: {outcome_of(error)}") from error

    return check


TARGETS: Final = (
    Target(
        name="card",
        promise="a card holds as it was signed, in one encoding; all else is refused",
        seeds=_cards,
        check=_signed(_read_card, _cards),
    ),
    Target(
        name="prekey",
        promise="the same of prekey statements",
        seeds=_prekeys,
        check=_signed(_read_prekey, _prekeys),
    ),
    Target(
        name="succession",
        promise="the same of successions",
        seeds=_successions,
        check=_signed(_read_succession, _successions),
    ),
    Target(
        name="revocation",
        promise="the same of revocations",
        seeds=_revocations,
        check=_signed(_read_revocation, _revocations),
    ),
    Target(
        name="log-entry",
        promise="an entry of the key log has one encoding, everything else is a LogError",
        seeds=lambda: _ENTRIES,
        check=_with(_entry),
    ),
    Target(
        name="checkpoint",
        promise="a checkpoint says what the log has signed, everything else is a LogError",
        seeds=_notes,
        check=_with(_checkpoint),
        mutate=mutate_lines,
    ),
    Target(
        name="log-key",
        promise="the key of a log has one text, everything else is a LogError or WeakKey",
        seeds=lambda: [LogKey(log_origin(REALM), _LOG_KEY.public).format().encode()],
        check=_log_key,
        mutate=mutate_lines,
        short=1_000,
    ),
    Target(
        name="tile-path",
        promise="a tile has one path, everything else is a LogError",
        seeds=lambda: [b"tile/0/x001/x234/067", b"tile/1/000.p/17", b"tile/entries/000.p/44"],
        check=_with(_tile),
        mutate=mutate_lines,
        short=1_000,
    ),
    Target(
        name="bundle",
        promise="a bundle of entries has one encoding, everything else is a LogError",
        seeds=_bundles,
        check=_with(_bundle),
    ),
    Target(
        name="tile",
        promise="a tile of hashes that was damaged proves nothing, and is a LogError",
        seeds=lambda: [_TREE.row(0, 0, 256)],
        check=_with(_tile_hashes),
        mutate=mutate_bytes,
        short=100,
        full=5_000,
    ),
    Target(
        name="proof",
        promise="only what is so can be proved: every other proof is a LogError",
        seeds=_proofs,
        check=_with(_proof),
        mutate=mutate_json,
    ),
)
