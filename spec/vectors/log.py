"""The key log: entries, roots, proofs, names of tiles, and checkpoints."""

import base64
from collections.abc import Iterator

from ringline.protocol.checkpoint import Checkpoint, LogKey, log_origin, sign_checkpoint
from ringline.protocol.encoding import b64encode
from ringline.protocol.identity import SignedCard
from ringline.protocol.logentry import LogEntry, encode_entry
from ringline.protocol.merkle import EMPTY_ROOT, Tree, leaf_hash
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import (
    Reason,
    Revocation,
    SignedRevocation,
    SignedSuccession,
    Succession,
)
from ringline.protocol.tiles import Tile, encode_bundle
from vectors.vector import NOW, REALM, Json, Party, Vector, accepted, refused, seed

__all__ = ["vectors"]

_FORMS = "RL-LOG-017"
_INCLUDED = "RL-LOG-006"
_CONTINUES = "RL-LOG-005"
_HEAD = ("RL-LOG-011", "RL-LOG-016")


def vectors() -> Iterator[Vector]:
    """Yield the vectors of this kind."""
    yield from _entries()
    tree = Tree()
    for number in range(9):
        tree.append(leaf_hash(_entry(number)))
    yield from _roots()
    yield from _inclusion(tree)
    yield from _consistency(tree)
    yield from _tiles()
    yield from _checkpoints(tree)


def _entry(number: int) -> bytes:
    """An entry of the trees here: what it says does not matter to a proof."""
    return f"entry {number}".encode()


def _entries() -> Iterator[Vector]:
    bob = Party("bob")
    card = bob.signed_card
    takes_over = Succession(old_card_id=card.card.id, new_ipk=bob.next.public, ts=NOW)
    called_back = Revocation(card_id=card.card.id, reason=Reason.COMPROMISED, ts=NOW)
    statements: dict[str, tuple[str, LogEntry]] = {
        "card": ("a card", card),
        "succession": (
            "a succession to the committed next key",
            SignedSuccession.sign(takes_over, bob.next),
        ),
        "succession_both": (
            "a succession that the old key has signed too",
            SignedSuccession.sign(takes_over, bob.next, bob.identity),
        ),
        "revocation": (
            "a revocation by the identity key",
            SignedRevocation.sign(called_back, bob.identity, by="identity"),
        ),
        "revocation_next": (
            "a revocation by the committed next key",
            SignedRevocation.sign(called_back, bob.next, by="next"),
        ),
    }
    good = None
    for name, (says, entry) in statements.items():
        data = encode_entry(entry)
        kind = name.partition("_")[0]
        names = entry.card.id if isinstance(entry, SignedCard) else card.card.id
        good = accepted(
            f"log_entry.{name}",
            "log.entry",
            says,
            {"hex": data.hex()},
            {"kind": kind, "card_id": b64encode(names), "leaf": leaf_hash(data).hex()},
            _FORMS,
        )
        yield good
        yield refused(f"log_entry.{name}_cut", good, "a byte less", {"hex": data[:-1].hex()}, "form", _FORMS)
    assert good is not None
    yield refused(
        "log_entry.prekey",
        good,
        "another statement: it is not logged",
        {"hex": (bob.prekey(1).encode() + bytes(64)).hex()},
        "form",
        _FORMS,
    )


def _roots() -> Iterator[Vector]:
    for size in (0, 1, 2, 3, 6, 7, 8):
        tree = Tree()
        entries = [_entry(number) for number in range(size)]
        for entry in entries:
            tree.append(leaf_hash(entry))
        yield accepted(
            f"log_root.{size}",
            "log.root",
            f"the root of {size} entries",
            {"entries": [entry.hex() for entry in entries]},
            {"root": tree.root().hex()},
        )


def _inclusion(tree: Tree) -> Iterator[Vector]:
    for index, size in ((0, 1), (0, 8), (5, 8), (2, 3), (1, 5), (8, 9), (6, 7)):
        given = {
            "leaf": leaf_hash(_entry(index)).hex(),
            "index": index,
            "size": size,
            "proof": [part.hex() for part in tree.inclusion(index, size)],
            "root": tree.root(size).hex(),
        }
        says = f"entry {index} of {size}"
        good = accepted(f"log_inclusion.{index}_{size}", "log.inclusion", says, given, {}, _INCLUDED)
        yield good
    proof = [part.hex() for part in tree.inclusion(5, 8)]
    good_given = {
        "leaf": leaf_hash(_entry(5)).hex(),
        "index": 5,
        "size": 8,
        "proof": proof,
        "root": tree.root(8).hex(),
    }
    good = accepted("log_inclusion.entry", "log.inclusion", "entry 5 of 8 again", good_given, {}, _INCLUDED)
    yield good
    mutations: tuple[tuple[str, str, Json], ...] = (
        ("other_leaf", "another entry at that place", {"leaf": leaf_hash(_entry(4)).hex()}),
        ("other_index", "another place", {"index": 4}),
        ("index_is_size", "a place that the log does not have", {"index": 8}),
        ("other_size", "a size at which the proof leads elsewhere", {"size": 6}),
        ("other_root", "another root", {"root": tree.root(7).hex()}),
        ("short", "a hash less", {"proof": proof[:-1]}),
        ("long", "a hash more", {"proof": [*proof, proof[0]]}),
        ("swapped", "two hashes in another order", {"proof": [proof[1], proof[0], *proof[2:]]}),
        ("no_proof", "no hash", {"proof": []}),
    )
    for name, says, changes in mutations:
        yield refused(f"log_inclusion.{name}", good, says, good_given | changes, "proof", _INCLUDED)


def _consistency(tree: Tree) -> Iterator[Vector]:
    for old, new in ((0, 5), (1, 1), (1, 8), (6, 8), (2, 5), (6, 7), (4, 8), (8, 9), (7, 9)):
        yield accepted(
            f"log_consistency.{old}_{new}",
            "log.consistency",
            f"from {old} to {new} entries",
            _pair(tree, old, new),
            {},
            _CONTINUES,
        )
    given = _pair(tree, 3, 8)
    good = accepted("log_consistency.grown", "log.consistency", "from 3 to 8", given, {}, _CONTINUES)
    yield good
    proof: list[str] = given["proof"]
    rewritten = Tree()
    for number in range(8):
        rewritten.append(leaf_hash(_entry(7 if number == 1 else number)))
    mutations: tuple[tuple[str, str, Json], ...] = (
        ("other_old_root", "another old root", {"old_root": tree.root(2).hex()}),
        ("other_new_root", "another new root", {"new_root": tree.root(7).hex()}),
        (
            "rewritten",
            "an old entry was rewritten: its proof, its root",
            {
                "new_root": rewritten.root(8).hex(),
                "proof": [part.hex() for part in rewritten.consistency(3, 8)],
            },
        ),
        ("shrunk", "the log has become smaller", {"old_size": 8, "new_size": 3}),
        ("short", "a hash less", {"proof": proof[:-1]}),
        ("long", "a hash more", {"proof": [*proof, proof[0]]}),
        ("no_proof", "no hash", {"proof": []}),
        ("same_size", "the same size and another root", {"old_size": 8}),
    )
    for name, says, changes in mutations:
        yield refused(f"log_consistency.{name}", good, says, given | changes, "proof", _CONTINUES)
    nothing = accepted(
        "log_consistency.nothing", "log.consistency", "from nothing", _pair(tree, 0, 8), {}, _CONTINUES
    )
    yield nothing
    yield refused(
        "log_consistency.nothing_other_root",
        nothing,
        "from nothing, under a root that nothing does not have",
        _pair(tree, 0, 8) | {"old_root": tree.root(1).hex()},
        "proof",
        _CONTINUES,
    )


def _pair(tree: Tree, old: int, new: int) -> Json:
    return {
        "old_size": old,
        "old_root": (tree.root(old) if old else EMPTY_ROOT).hex(),
        "new_size": new,
        "new_root": tree.root(new).hex(),
        "proof": [part.hex() for part in tree.consistency(old, new)],
    }


def _tiles() -> Iterator[Vector]:
    good = None
    for name, tile in (
        ("first", Tile(0, 0)),
        ("large_number", Tile(0, 1_234_067)),
        ("upper_partial", Tile(1, 0, 17)),
        ("entries", Tile(None, 1_000)),
        ("entries_partial", Tile(None, 0, 44)),
    ):
        good = accepted(
            f"log_tile.{name}",
            "log.tile",
            "the name of a tile, or of a bundle, which has no level",
            {"path": tile.path},
            {"level": tile.level, "number": tile.number, "width": tile.width},
        )
        yield good
    assert good is not None
    for name, path in (
        ("short_group", "tile/0/44"),
        ("leading_zeros", "tile/0/x000/044"),
        ("no_x", "tile/0/001/044"),
        ("full_partial", "tile/0/000.p/256"),
        ("empty", "tile/0/000.p/0"),
        ("leading_zero_width", "tile/entries/000.p/044"),
        ("level_name", "tile/data/000.p/44"),
        ("line_feed", "tile/entries/000.p/44\n"),
    ):
        yield refused(f"log_tile.{name}", good, "another spelling, or none", {"path": path}, "form")
    bundle = encode_bundle([_entry(0), b"", _entry(2)])
    whole = accepted(
        "log_bundle.three",
        "log.bundle",
        "three entries, one of them without bytes",
        {"hex": bundle.hex(), "width": 3},
        {"entries": [_entry(0).hex(), "", _entry(2).hex()]},
    )
    yield whole
    for name, data, width in (
        ("cut", bundle[:-1], 3),
        ("half_a_length", bundle + b"\0", 3),
        ("too_many", bundle, 2),
        ("too_few", bundle, 4),
    ):
        given = {"hex": data.hex(), "width": width}
        yield refused(f"log_bundle.{name}", whole, "not the entries of that width", given, "form")


def _checkpoints(tree: Tree) -> Iterator[Vector]:
    signer = SigningKey(seed("log"))
    key = LogKey(log_origin(REALM), signer.public)
    head = Checkpoint(key.name, 9, tree.root())
    note = sign_checkpoint(head, signer).decode()
    text, _, below = note.partition("\n\n")
    output = {"size": 9, "root": tree.root().hex()}

    def given(changed: str) -> Json:
        return {"text": changed, "key": key.format()}

    def signed(changed: str) -> str:
        line = base64.b64encode(key.id + signer.sign(changed.encode())).decode()
        return f"{changed}\n— {key.name} {line}\n"

    good = accepted("log_checkpoint.good", "log.checkpoint", "signed by the log", given(note), output, *_HEAD)
    yield good
    witness = LogKey("witness.example/w1", SigningKey(seed("witness")).public)
    theirs = base64.b64encode(witness.id + SigningKey(seed("witness")).sign(f"{text}\n".encode())).decode()
    for name, says, changed in (
        ("witnessed", "with the signature of somebody else too", f"{note}— {witness.name} {theirs}\n"),
        ("extended", "with a line of an extension", signed(f"{text}\nan extension\n")),
        (
            "empty_log",
            "of a log without entries",
            sign_checkpoint(Checkpoint(key.name, 0, EMPTY_ROOT), signer).decode(),
        ),
    ):
        size = 0 if name == "empty_log" else 9
        root = (EMPTY_ROOT if name == "empty_log" else tree.root()).hex()
        yield accepted(
            f"log_checkpoint.{name}",
            "log.checkpoint",
            says,
            given(changed),
            {"size": size, "root": root},
            *_HEAD,
        )
    lines = text.split("\n")
    other = sign_checkpoint(head, SigningKey(seed("another log"))).decode()
    renamed = sign_checkpoint(Checkpoint("relay.example/v2/log", 9, tree.root()), signer).decode()
    for name, says, changed, layer in (
        ("other_key", "signed by another key of that name", other, "signature"),
        ("other_size", "another size under the signature", note.replace("\n9\n", "\n8\n"), "signature"),
        ("unsigned", "no signature", f"{text}\n\n", "form"),
        ("other_log", "of another log, whose name its key has too", renamed, "signature"),
        (
            "moved",
            "another log's name in the text, signed",
            signed(f"relay.example/v2/log\n9\n{lines[2]}\n"),
            "form",
        ),
        (
            "leading_zero",
            "the size with a zero before it, signed",
            signed(f"{key.name}\n09\n{lines[2]}\n"),
            "form",
        ),
        (
            "root_unpadded",
            "the root without padding, signed",
            signed(f"{key.name}\n9\n{lines[2][:-1]}\n"),
            "form",
        ),
        ("no_root", "no root, signed", signed(f"{key.name}\n9\n"), "form"),
        ("no_empty_line", "no line between text and signature", f"{text}\n{below}", "form"),
        ("carriage_return", "a carriage return", note.replace("\n9\n", "\n9\r\n"), "form"),
    ):
        yield refused(f"log_checkpoint.{name}", good, says, given(changed), layer, *_HEAD)
