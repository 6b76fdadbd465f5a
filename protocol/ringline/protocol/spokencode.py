"""Codes that one person can say to another: a number, and some words, as in ``7-crossover-clockwork``.

The number, which the relay gives out, says where the two meet. The words are the secret, and the relay is
never told them: what they are good for is in `ringline.protocol.pairing`. Each word is one of 256, so that
two of them are right by chance once in 65,536 times, and there is one try on each side.
"""

import re
from dataclasses import dataclass, field
from typing import Final, final

from ringline.protocol.codewords import THREE_SYLLABLES, TWO_SYLLABLES
from ringline.protocol.errors import InviteError
from ringline.protocol.names import is_nameplate

__all__ = ["CODE_WORDS", "CODE_WORDS_MOST", "SpokenCode", "completions", "draw_words", "password_of"]

CODE_WORDS: Final = 2
"""Words of a code unless more are asked for, and the fewest that there may be."""

CODE_WORDS_MOST: Final = 4

_LISTS: Final = (THREE_SYLLABLES, TWO_SYLLABLES)
_PLACES: Final = ("first", "second", "third", "fourth")
_GAP: Final = re.compile(r"[\s-]+")
_CHARS: Final = 128
_STEP: Final = "ask for the code again: it is a number and some words, such as 7-crossover-clockwork"


@final
@dataclass(frozen=True, slots=True)
class SpokenCode:
    """A number of a relay's, and the words. Raises `InviteError` for what no code has."""

    nameplate: str
    words: tuple[str, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not is_nameplate(self.nameplate):
            raise InviteError("a code begins with a number from 1 to 999", next_step=_STEP)
        if not CODE_WORDS <= len(self.words) <= CODE_WORDS_MOST:
            raise InviteError(
                f"a code has {CODE_WORDS} to {CODE_WORDS_MOST} words behind its number", next_step=_STEP
            )
        for at, word in enumerate(self.words):
            if word not in _LISTS[at % 2]:
                # A slip is told before the code's one try is spent on it; the word itself is not repeated.
                raise InviteError(f"the {_PLACES[at]} word is none that a code has there", next_step=_STEP)

    @property
    def password(self) -> bytes:
        """The secret of the two people, as it goes into the exchange."""
        return password_of(self.words)

    def format(self) -> str:
        """Return the code as it is written."""
        return "-".join((self.nameplate, *self.words))

    @classmethod
    def parse(cls, text: str) -> "SpokenCode":
        """Read a code as somebody has heard it: capitals and spaces for hyphens do no harm.

        Raises `InviteError` for what is no code; no message repeats any of the text.
        """
        if len(text) > _CHARS or not text.isascii():
            raise InviteError("this is no spoken code", next_step=_STEP)
        number, *words = _GAP.split(text.strip().lower())
        return cls(number, tuple(words))


def draw_words(chance: bytes) -> tuple[str, ...]:
    """Return one word for each byte of chance."""
    return tuple(_LISTS[at % 2][byte] for at, byte in enumerate(chance))


def password_of(words: tuple[str, ...]) -> bytes:
    """Return the secret that words stand for."""
    return "-".join(words).encode("ascii")


def completions(text: str) -> list[str]:
    """Return what a code may go on as that somebody has begun to type, the last word completed."""
    before, hyphen, begun = text.lower().rpartition("-")
    at = before.count("-")
    if not hyphen or at >= CODE_WORDS_MOST:
        return []
    return [f"{before}-{word}" for word in sorted(_LISTS[at % 2]) if word.startswith(begun)]
