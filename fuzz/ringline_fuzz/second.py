"""Two implementations, one protocol: what Python accepts, the one in TypeScript accepts, and nothing else.

It was written from the specification alone, and is built by ``make node-peer``.
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from ringline_fuzz.json_mutation import mutate_json
from ringline_fuzz.material import vector_inputs
from ringline_fuzz.mutation import mutate_lines
from ringline_fuzz.target import Broken, Skipped, Target
from ringline_testing.vector_answers import answer

__all__ = ["TARGETS"]

_NODE: Final = Path(__file__).parents[2] / "spec" / "peers" / "node"
_TEXTS: Final = ("base64url.decode", "contact.read", "body.read_request", "body.read_outcome")
_DIRECTIONS: Final = ("relay_to_caller", "relay_to_listener")
_SIZE_LIMIT: Final = 60_000


class _Peer:
    """The other implementation, answering one line by another."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return its answer. Raises `Skipped` where it is not built, `Broken` when it ends."""
        if self._process is None:
            node = shutil.which("node")
            if node is None or not (_NODE / "dist" / "src" / "index.js").exists():
                raise Skipped("the second implementation is not built: make node-peer")
            self._process = subprocess.Popen(
                [node, str(_NODE / "subjects" / "vectors.mjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise Broken("the second implementation has ended")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


_PEER: Final = _Peer()


def _seeds() -> list[bytes]:
    """The operation in one line, and behind it the text that it is about."""
    found: list[bytes] = []
    for op in _TEXTS:
        for given in vector_inputs(op):
            if isinstance(given.get("text"), str) and len(given["text"]) < _SIZE_LIMIT:
                found.append(op.encode() + b"\n" + given["text"].encode("utf-8", "surrogatepass"))
    for given in vector_inputs("frame.read"):
        if given["direction"] in _DIRECTIONS and isinstance(given.get("text"), str):
            found.append(b"frame.read " + given["direction"].encode() + b"\n" + given["text"].encode())
    return found


def _damaged(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    first, _, text = data.partition(b"\n")
    mutate: Callable[[Random, bytes, Sequence[bytes]], bytes]
    mutate = mutate_json if first.startswith((b"body", b"frame")) else mutate_lines
    same = [other.partition(b"\n")[2] for other in others if other.startswith(first)]
    return first + b"\n" + mutate(random, text, same)


def _question(data: bytes) -> dict[str, Any] | None:
    first, _, text = data.partition(b"\n")
    op, _, direction = first.decode("latin-1").partition(" ")
    if len(text) > _SIZE_LIMIT:
        return None
    if op == "frame.read" and direction in _DIRECTIONS:
        return {"op": op, "input": {"direction": direction, "hex": text.hex()}}
    if op not in _TEXTS:
        return None
    try:
        return {"op": op, "input": {"text": text.decode("utf-8")}}
    except UnicodeDecodeError:
        return None


def _agreed(data: bytes) -> str:
    question = _question(data)
    if question is None:
        return "no question"
    theirs = _PEER.ask(question)
    ours = answer(question["op"], question["input"])
    if ours["result"] != theirs["result"]:
        raise Broken(f"Python: {ours}, TypeScript: {theirs}")
    if ours["result"] == "accepted":
        both = {name: value for name, value in ours["output"].items() if name in theirs["output"]}
        if both != {name: theirs["output"][name] for name in both}:
            raise Broken(f"Python: {ours}, TypeScript: {theirs}")
    return f"{question['op']} {ours['result']} {ours.get('layer', '')}"


TARGETS: Final = (
    Target(
        name="second-implementation",
        promise="what one implementation accepts the other accepts, and it means the same to both",
        seeds=_seeds,
        check=_agreed,
        mutate=_damaged,
        short=400,
        full=30_000,
        guided=False,
        close=_PEER.close,
    ),
)
