"""One case for each question of ``spec/vectors``: it is refused, or it is accepted and gives these bytes.

The vectors are those of the checkout that this file is in, or of the folder that ``RINGLINE_VECTORS`` names.
"""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from ringline.conformance.registry import Case, Level, Needs, add
from ringline.conformance.vectors_subject import VectorsStage
from ringline.conformance.verdict import Failed, NotTested, check

__all__ = ["FOLDER", "part_of"]

FOLDER: Final = Path(os.environ.get("RINGLINE_VECTORS") or Path(__file__).parents[5] / "spec" / "vectors")

_PARTS: Final = {
    "chain": "chain",
    "invite": "invite",
    "keyfile": "keyfile",
    "log": "log",
    "revocation": "relay",
    "token": "relay",
    "trace": "relay",
}
_CLIENTS_READ: Final = ("relay_to_caller", "relay_to_listener")


def part_of(op: str, given: dict[str, Any]) -> tuple[str, ...]:
    """Return the part of the protocol that a question is about, if an implementation may be without it."""
    if op == "frame.read":
        return () if given["direction"] in _CLIENTS_READ else ("relay",)
    part = _PARTS.get(op.partition(".")[0])
    return () if part is None else (part,)


def _asking(vector: dict[str, Any]) -> Callable[[VectorsStage], Awaitable[None]]:
    async def run(stage: VectorsStage) -> None:
        answer = await stage.ask(vector["op"], vector["input"])
        expected = vector["expect"]
        if answer.get("result") == "unsupported":
            raise NotTested(f"the subject does not answer to {vector['op']}")
        check(answer.get("result") == expected["result"], expected["result"], answer)
        if expected["result"] == "refused":
            # An implementation that cannot tell which layer it was leaves it out.
            layer = answer.get("layer", expected["layer"])
            check(layer == expected["layer"], f"a refusal by the layer {expected['layer']}", str(layer))
            return
        wanted: dict[str, Any] = expected.get("output") or {}
        output: dict[str, Any] = answer.get("output") or {}
        if wanted and not wanted.keys() & output.keys():
            raise Failed(f"some of {', '.join(wanted)}", f"{', '.join(output) or 'nothing'}")
        for name in wanted.keys() & output.keys():
            check(output[name] == wanted[name], f"{name} {wanted[name]!r}", repr(output[name]))

    return run


def _vectors(data: bytes) -> list[dict[str, Any]]:
    """The vectors of a file; none of one in another form, which is carried from elsewhere."""
    content: Any = msgspec.json.decode(data)
    try:
        return msgspec.convert(content["vectors"], list[dict[str, Any]])
    except (TypeError, KeyError):
        return []


def _register(folder: Path) -> None:
    for file in sorted(folder.glob("*.json")):
        for vector in _vectors(file.read_bytes()):
            chapter, _, name = vector["id"].partition(".")
            add(
                Case(
                    role="vectors",
                    chapter=chapter,
                    name=name,
                    level=Level.MUST,
                    requirements=tuple(vector["requirements"]),
                    sentence=vector["says"],
                    needs=Needs(features=part_of(vector["op"], vector["input"])),
                    run=_asking(vector),
                )
            )


_register(FOLDER)
