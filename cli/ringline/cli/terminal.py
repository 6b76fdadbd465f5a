"""Text of others on its way to a person or a program: never raw to a terminal, never changed in JSON.

A reply can hold escape sequences that repaint the screen, bidirectional controls that reorder a line, and
characters without a width that hide a second text. On a terminal each is written as ``\\x1b``, ``\\u202e``
or ``\\U000e0041``. A program that reads standard output gets the reply's own bytes.
"""

import json
import re
from typing import Final

__all__ = ["json_document", "shown", "shown_line"]

# Controls, format characters, separators of lines and paragraphs, tag characters, surrogates, and whatever
# else has no width or paints nothing. Kept are the few format characters that are drawn (U+0600-0605,
# U+06DD, U+070F, U+0890-0891, U+08E2, U+110BD, U+110CD): signs of the Arabic, Syriac and Kaithi scripts.
_UNSEEN: Final = (
    "\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb"
    "\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# The two variation selectors that choose between a drawing and a letter are kept where that choice exists,
# so that hearts stay red; a row of them behind letters would carry a hidden text.
_STRAY_SELECTOR: Final = (
    "(?<![\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff])(?!(?<=[0-9#*])\ufe0f\u20e3)[\ufe0e\ufe0f]"
)
_HIDDEN: Final = re.compile(f"[{_UNSEEN}]|{_STRAY_SELECTOR}")
_HIDDEN_IN_A_REPLY: Final = re.compile(f"(?![\n\t])[{_UNSEEN}]|{_STRAY_SELECTOR}")

_LINE_CHARS: Final = 500


def shown(text: str) -> str:
    """Return a text of several lines as it may be written to a terminal: line feeds and tabs stay.

    A carriage return in front of a line feed is dropped: it ends a line on other systems.
    """
    return _HIDDEN_IN_A_REPLY.sub(_escaped, text.replace("\r\n", "\n"))


def shown_line(text: str, limit: int = _LINE_CHARS) -> str:
    """Return a text for the middle of a line: line feeds and tabs are written out too.

    What is longer than ``limit`` characters ends with an ellipsis.
    """
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return _HIDDEN.sub(_escaped, cut)


def json_document(value: object) -> str:
    """Return ``value`` as one line of JSON that a terminal can show and that means exactly the same.

    Ordinary characters of any script stay readable; the others are written as ``\\uXXXX``.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    # Outside of strings there is none of these characters, so that every match is within one.
    return _HIDDEN.sub(lambda match: json.dumps(match[0])[1:-1] if match[0] > "\x7f" else "\\u007f", text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
