"""Write the files of vectors, or tell which of them is stale: one file for each kind, by its program.

python spec/vectors/make.py            write them
python spec/vectors/make.py --check    exit 1 when one differs from what its program says
"""

import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["FOLDER", "KINDS", "document", "main", "stale"]

KINDS: Final = (
    "base64url",
    "bodies",
    "fingerprints",
    "frames",
    "identities",
    "invites",
    "keyfiles",
    "keys",
    "log",
    "padding",
    "seals",
    "tokens",
    "trace",
)
FOLDER: Final = Path(__file__).resolve().parent


def document(kind: str) -> str:
    """Return the text of the file of one kind.

    Raises `ValueError` for two vectors of one id, and for one that mutates what is not there.
    """
    module = importlib.import_module(f"vectors.{kind}")
    made = list(module.vectors())
    ids = [vector.id for vector in made]
    if len(set(ids)) != len(ids):
        raise ValueError(f"{kind}: two vectors have one id: {sorted({i for i in ids if ids.count(i) > 1})}")
    unknown = {vector.mutates for vector in made if vector.mutates} - set(ids)
    if unknown:
        raise ValueError(f"{kind}: nothing there to mutate: {sorted(unknown)}")
    content = {
        "$schema": "./vectors.schema.json",
        "protocol": "ringline.v1",
        "kind": kind,
        "about": " ".join((module.__doc__ or "").split()),
        "vectors": [vector.document() for vector in made],
    }
    return json.dumps(content, indent=1, ensure_ascii=True) + "\n"


def stale() -> list[str]:
    """Return the names of the files that are not what their programs say."""
    return [
        f"{kind}.json"
        for kind in KINDS
        if not (file := FOLDER / f"{kind}.json").exists()
        or file.read_text(encoding="utf-8") != document(kind)
    ]


def main(arguments: Sequence[str]) -> int:
    """Write the files, or with ``--check`` only compare them; return the exit code."""
    if list(arguments) == ["--check"]:
        found = stale()
        for name in found:
            print(f"stale: vectors/{name}; write the vectors again: make spec-write", file=sys.stderr)
        return 1 if found else 0
    for kind in KINDS:
        (FOLDER / f"{kind}.json").write_text(document(kind), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.path[0] = str(FOLDER.parent)  # not this folder: its programs are named like modules of others
    sys.exit(main(sys.argv[1:]))
