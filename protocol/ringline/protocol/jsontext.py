"""JSON text that has one reading, at every depth.

Parsers differ in what they make of two members with one name, of numbers beyond a double, of ``NaN`` and
of a lone surrogate; what is sealed or signed as JSON must not mean one thing here and another there
(RL-FRAME-003, RL-ENVELOPE-047). msgspec checks the rest, so both have to accept a text.
"""

import json
import math
import re
from typing import Final, Never

from ringline.protocol.errors import ProtocolError
from ringline.protocol.limits import INT_MAX

__all__ = ["check_json"]

# A string is skipped whole, also one that never ends: matching it again from each quote inside it would
# take quadratic time.
_STRING_OR_BRACKET: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
_INT_CHARS: Final = len(str(-INT_MAX))


def check_json(data: bytes, *, depth: int) -> None:
    """Pass a JSON text without duplicate member names, odd numbers or deep nesting.

    ``depth`` is how many objects and arrays may be open at once. Integers must be within
    ``-(2^53 - 1) .. 2^53 - 1``, other numbers finite.

    Raises `ProtocolError`, which quotes nothing of the text. Surrogates are left to msgspec.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ProtocolError("the JSON text is not UTF-8") from None
    if _depth(text, depth) > depth:
        raise ProtocolError(f"the JSON text is nested deeper than {depth}")
    try:
        json.loads(
            text,
            object_pairs_hook=_members,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_constant,
        )
    except ValueError as error:
        known = error.args[0] if isinstance(error, _Refusal) else "not JSON"
        raise ProtocolError(f"the JSON text is refused: {known}") from None


class _Refusal(ValueError):
    """Our own refusal, with a text of ours."""


def _depth(text: str, enough: int) -> int:
    """The deepest nesting, or any number up to ``enough`` when it cannot be deeper."""
    if text.count("[") + text.count("{") <= enough:
        return 0
    here = deepest = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        mark = match[0]
        if mark in "[{":
            here += 1
            deepest = max(deepest, here)
        elif mark in "]}":
            here -= 1
    return deepest


def _members(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise _Refusal("a member name occurs twice")


def _integer(digits: str) -> None:
    # The length first: turning a long text into a number takes quadratic time.
    if len(digits) > _INT_CHARS or abs(int(digits)) > INT_MAX:
        raise _Refusal("an integer is beyond 2^53 - 1")


def _number(digits: str) -> None:
    if not math.isfinite(float(digits)):
        raise _Refusal("a number is beyond what a double holds")


def _constant(name: str) -> Never:
    raise _Refusal(f"{name} is no JSON")
