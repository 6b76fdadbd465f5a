"""Structs as JSON Schema (draft 2020-12) that every validator understands.

msgspec writes a schema from a struct with Python's patterns, which JSON Schema does not know, and under the
names of the classes. Here patterns become portable and definitions get the names of the wire.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, cast

__all__ = ["portable", "rewritten"]

_SECTIONS: Final = re.compile(r" \(RL-[A-Z]+-[0-9]+(?:(?:, | to )RL-[A-Z]+-[0-9]+)*\)")


def portable(pattern: str) -> dict[str, str | dict[str, str]]:
    """Return the schema keywords for one of our patterns, in what every validator understands.

    JSON Schema searches, and has no ``\\A``; Python's ``$`` lets a line feed pass and RE2 knows no
    look-ahead. So the pattern keeps to ``^…$``, and what it must not match is a keyword of its own.

    Raises `ValueError` for a pattern that is not matched in full.
    """
    match = re.fullmatch(r"\\A(?:\(\?!(?P<never>[^()]+)\))?(?P<body>.+)\\Z", pattern)
    if match is None:
        raise ValueError(f"not a pattern of ours: {pattern}")
    never = "\\n" if match["never"] is None else f"\\n|^{match['never']}"
    return {"pattern": f"^{match['body']}$", "not": {"pattern": never}}


def rewritten(node: object, names: Mapping[str, str], place: str) -> Any:
    """Return a schema of msgspec with portable patterns.

    ``names`` maps the names of its definitions to those they shall have, below ``place`` in the document.
    """
    if isinstance(node, list):
        return [rewritten(item, names, place) for item in cast("list[object]", node)]
    if not isinstance(node, dict):
        return node
    result: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", node).items():
        if key == "pattern" and isinstance(value, str):
            result |= portable(value)
        elif key == "$ref":
            result[key] = place + names[value.rsplit("/", 1)[1]]
        elif key == "enum" and len(value) == 1:
            result["const"] = value[0]
        # A member of a frame may be called so too: then its value is a schema.
        elif key == "title" and isinstance(value, str):
            result[key] = names[value]
        elif key == "description" and isinstance(value, str):
            # Where a rule stands is for whoever reads the code.
            result[key] = _SECTIONS.sub("", " ".join(value.replace("``", "`").split()))
        else:
            result[key] = rewritten(value, names, place)
    return result
