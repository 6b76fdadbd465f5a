"""Damage to JSON, in its tree and in its spelling.

A text is read into a tree whose objects are lists of pairs, so that one member may come twice, is changed
there, and is written again in one of the many ways in which the same tree may be written.
"""

import json
from collections.abc import Sequence
from random import Random
from typing import Final, TypeAlias, cast, final

from ringline_fuzz.mutation import mutate_bytes, mutate_text

__all__ = ["Node", "Pairs", "mutate_json", "read_tree", "write_tree"]


@final
class Pairs:
    """The members of an object, in order; one name may come twice."""

    def __init__(self, members: "list[tuple[str, Node]]") -> None:
        self.members = members


class _Raw(str):
    """A value as it is to be written, whatever it is."""


Node: TypeAlias = "bool | int | float | str | list[Node] | Pairs | None"

_RAW: Final = (
    *(
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1",
        "-1",
        "1.0",
        "1e0",
        "1E3",
        "0.1",
        "2.5e-320",
        "1e400",
        "-1e400",
    ),
    *(
        "9007199254740991",
        "9007199254740992",
        "-9007199254740992",
        "18446744073709551616",
        "9" * 30,
        "9" * 5_000,
    ),
    *("01", "+1", ".5", "1.", "NaN", "Infinity", "-Infinity", "0x1", "'a'", "undefined"),
    *(
        '""',
        '"\\u0000"',
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '"\\uD83D\\uDE00"',
        '"\\x"',
        '"a',
        '"\t"',
        '"\x7f"',
    ),
    *("[]", "{}", "[[]]", '{"":{}}', "[" * 70 + "]" * 70, "[" * 100_000, '{"a":' * 2_000 + "1" + "}" * 2_000),
)
_NAMES: Final = (
    "",
    "type",
    "v",
    "__class__",
    "constructor",
    "__proto__",
    "from",
    "from_",
    "\ud800",
    "\0",
    ":",
)
_SPACES: Final = ("", "", "", " ", "\n", "\t", "\r\n", "  ")
_DEEP: Final = 200


def read_tree(data: bytes) -> Node:
    """Return the tree of a JSON text. Raises `ValueError` for what is none, `RecursionError` if too deep."""
    return cast("Node", json.loads(data.decode("utf-8"), object_pairs_hook=Pairs))


def write_tree(node: Node, random: Random | None = None) -> bytes:
    """Return the text of a tree; with ``random`` in an unusual spelling."""
    return _write(node, random).encode("utf-8", "surrogatepass")


def mutate_json(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return a JSON text after changes to its tree, to its spelling, or (one in eight) to its bytes."""
    if random.randrange(8) == 0:
        return mutate_bytes(random, data, others)
    try:
        tree = read_tree(data)
        for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
            tree = _changed(random, tree, others)
        out = write_tree(tree, random if random.randrange(2) else None)
    except (ValueError, RecursionError):
        return mutate_bytes(random, data, others)
    if random.randrange(30) == 0:
        out = random.choice((b"\xef\xbb\xbf", b" ", b"\0")) + out + random.choice((b"", b"\0", b"{}", b"//"))
    return out


def _changed(random: Random, tree: Node, others: Sequence[bytes]) -> Node:
    """The tree after one change. Trees from outside are shallow, so this may recurse."""
    match tree:
        case Pairs():
            return (
                _changed_object(random, tree, others)
                if tree.members and random.randrange(5)
                else _atom(random, tree)
            )
        case list() if tree and random.randrange(4):
            items = list(tree)
            at = random.randrange(len(items))
            match random.randrange(4):
                case 0:
                    del items[at]
                case 1:
                    items.insert(at, random.choice(items))
                case 2:
                    items = items * random.choice((2, 50))
                case _:
                    items[at] = _changed(random, items[at], others)
            return items
        case str() if random.randrange(3):
            return mutate_text(random, tree)
        case int() if not isinstance(tree, bool) and random.randrange(2):
            return tree + random.choice((-1, 1, 1_000, -1_000, 2**31, 2**53, 2**63, -tree, tree))
        case _:
            return _atom(random, tree)


def _changed_object(random: Random, tree: Pairs, others: Sequence[bytes]) -> Node:
    pairs = list(tree.members)
    at = random.randrange(len(pairs))
    name, value = pairs[at]
    match random.randrange(10):
        case 0:
            del pairs[at]
        case 1:
            pairs.insert(random.randrange(len(pairs) + 1), (name, value))
        case 2:
            pairs.insert(random.randrange(len(pairs) + 1), (name, _atom(random, value)))
        case 3:
            pairs.insert(at, (random.choice(_NAMES), _atom(random, value)))
        case 4:
            pairs[at] = (mutate_text(random, name), value)
        case 5:
            random.shuffle(pairs)
        case 6 if others:
            pairs[at] = (name, _borrowed(random, random.choice(others), name))
        case _:
            pairs[at] = (name, _changed(random, value, others))
    return Pairs(pairs)


def _borrowed(random: Random, other: bytes, name: str) -> Node:
    """The member of that name of another text, or any of its members."""
    try:
        tree = read_tree(other)
    except (ValueError, RecursionError):
        return None
    if not isinstance(tree, Pairs) or not tree.members:
        return tree
    return dict(tree.members).get(name, random.choice(tree.members)[1])


def _atom(random: Random, value: Node) -> Node:
    if random.randrange(6) == 0:
        return [value]
    if random.randrange(6) == 0:
        return Pairs([(random.choice(_NAMES), value)])
    return _Raw(random.choice(_RAW))


def _write(node: Node, random: Random | None, depth: int = 0) -> str:
    space = "" if random is None else random.choice(_SPACES)
    if depth > _DEEP:
        raise ValueError("too deep to be written")
    match node:
        case _Raw():
            return space + str(node)
        case Pairs():
            members = (
                f"{_string(name, random)}{space}:{_write(value, random, depth + 1)}"
                for name, value in node.members
            )
            return space + "{" + f"{space},".join(members) + space + "}"
        case list():
            return space + "[" + f"{space},".join(_write(item, random, depth + 1) for item in node) + "]"
        case str():
            return space + _string(node, random)
        case _:
            return space + json.dumps(node) + space


def _string(text: str, random: Random | None) -> str:
    if random is None or random.randrange(3):
        return json.dumps(text, ensure_ascii=random is None or bool(random.randrange(2)))
    # One character of it as an escape that need not be one.
    at = random.randrange(len(text) + 1)
    before, char, behind = text[:at], text[at : at + 1], text[at + 1 :]
    escaped = f"\\u{ord(char):04x}" if char and ord(char) < 0x1_0000 else char
    return f'"{json.dumps(before)[1:-1]}{escaped}{json.dumps(behind)[1:-1]}"'
