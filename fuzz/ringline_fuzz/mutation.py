"""Damage to bytes and to text, chosen by a seeded generator and by nothing else."""

import base64
import binascii
import re
from collections.abc import Sequence
from random import Random
from typing import Final

__all__ = ["mutate_bytes", "mutate_lines", "mutate_text"]

_SIZE_LIMIT: Final = 200_000
_BYTES: Final = (0x00, 0x01, 0x0A, 0x0D, 0x20, 0x22, 0x2E, 0x2F, 0x30, 0x7F, 0x80, 0xC0, 0xFE, 0xFF)
_LENGTHS: Final = (b"\x00\x00", b"\x00\x01", b"\x00\x20", b"\x7f\xff", b"\xff\xff", b"\xff" * 8, b"\x00" * 8)
_TOKENS: Final = (
    b"\xed\xa0\x80",  # a surrogate as UTF-8
    b"\xc0\xaf",  # an overlong slash
    b"\xef\xbb\xbf",
    b"\xf4\x90\x80\x80",
    b"\r\n",
    b"\r\n\r\n",
    b"\x1b[2J",
    b"%00",
    b"%2e%2e/",
    b"9" * 25,
    b"9" * 5_000,
    b"-1",
    b"1e400",
    b"\\u0000",
    b"\\ud800",
)
_WORDS: Final = (
    "",
    "\0",
    "\n",
    "\r",
    "\x1b[31m",
    "\x7f",
    "\x85",
    "\u2028",
    "\u202e",
    "\ufeff",
    "\ud800",
    "\udcff",
    "ß",
    "é",
    "e\u0301",
    "\u0131",
    "\u0660",  # a digit, and none of ASCII
    "\u00b2",
    "\uff10",
    "\U0001f600",
    "=",
    "==",
    "/",
    "//",
    "..",
    "?",
    "#",
    "@",
    ":",
    "%",
    "%00",
    "%2F",
    "[",
    "]",
    "{",
    "}",
    "{0}",
    "%s",
    "-",
    "--",
    "-1",
    "+1",
    "0",
    "00",
    "0x10",
    "1_000",
    "1e3",
    "NaN",
    "9007199254740992",
    "18446744073709551616",
    "9" * 4_400,
    "a" * 300,
    "[" * 5_000,
    "nan",
    "inf",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "1969-12-31T23:59:59Z",
    " ",
    "\t",
    "\xa0",
)
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]{8,}")


def mutate_bytes(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return ``data`` after one to four changes of single bytes, runs of bytes, or whole parts."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
        _change(random, out, others)
    return bytes(out[:_SIZE_LIMIT])


def _change(random: Random, out: bytearray, others: Sequence[bytes]) -> None:
    at = random.randrange(len(out) + 1)
    span = min(random.choice((1, 1, 2, 4, 8, 32, 64, 256)), len(out) - at)
    match random.randrange(11):
        case 0 if at < len(out):
            out[at] ^= 1 << random.randrange(8)
        case 1 if at < len(out):
            out[at] = random.choice(_BYTES)
        case 2 if at < len(out):
            out[at] = random.randrange(256)
        case 3:
            out[at:at] = random.randbytes(random.choice((1, 2, 4, 32)))
        case 4:
            del out[at : at + span]
        case 5:
            out[at:at] = out[at : at + span]
        case 6:
            out[at:at] = random.choice(_TOKENS)
        case 7:
            length = random.choice(_LENGTHS)
            out[at : at + len(length)] = length
        case 8:
            del out[at:]
        case 9 if others:
            other = random.choice(others)
            start = random.randrange(len(other) + 1)
            out[at:] = other[start:]
        case _:
            other_at = random.randrange(len(out) + 1)
            part = bytes(out[other_at : other_at + span])
            out[at : at + span] = part


def mutate_text(random: Random, text: str) -> str:
    """Return ``text`` after one change; base64url may be damaged in the bytes that it stands for."""
    at = random.randrange(len(text) + 1)
    span = min(random.choice((1, 1, 1, 2, 8, 40)), len(text) - at)
    match random.randrange(10):
        case 0:
            return text[:at] + text[at + span :]
        case 1:
            return text[:at] + random.choice(_WORDS) + text[at:]
        case 2:
            return text[:at] + random.choice(_WORDS) + text[at + span :]
        case 3:
            return text[:at] + text[at : at + span] * random.choice((2, 3, 200)) + text[at + span :]
        case 4:
            return text.upper() if random.randrange(2) else text.swapcase()
        case 5:
            return text[:at]
        case 6:
            return random.choice(_WORDS)
        case 7:
            other = random.randrange(len(text) + 1)
            return text[:at] + text[other : other + span] + text[at + span :]
        case _:
            return _mutate_encoded(random, text)


def _mutate_encoded(random: Random, text: str) -> str:
    found = list(_BASE64URL.finditer(text))
    if not found:
        return text + random.choice(_WORDS)
    match = random.choice(found)
    word = match[0]
    try:
        data = base64.urlsafe_b64decode(word + "=" * (-len(word) % 4))
    except (binascii.Error, ValueError):
        return text[: match.start()] + text[match.end() :]
    damaged = base64.urlsafe_b64encode(mutate_bytes(random, data, ())).rstrip(b"=").decode()
    return text[: match.start()] + damaged + text[match.end() :]


def mutate_lines(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return a text after changes to lines, words or characters; now and then to bytes."""
    if random.randrange(8) == 0:
        return mutate_bytes(random, data, others)
    text = data.decode("utf-8", "surrogatepass") if _is_text(data) else data.decode("latin-1")
    for _ in range(random.choice((1, 1, 2, 3))):
        text = _mutate_line(random, text, others)
    return text[:_SIZE_LIMIT].encode("utf-8", "surrogatepass")


def _mutate_line(random: Random, text: str, others: Sequence[bytes]) -> str:
    lines = text.split("\n")
    at = random.randrange(len(lines))
    match random.randrange(9):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, random.choice(lines))
        case 2:
            other = random.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        case 3 if others:
            lines.insert(at, random.choice(random.choice(others).decode("utf-8", "replace").split("\n")))
        case 4:
            words = lines[at].split(" ")
            word = random.randrange(len(words))
            words[word] = mutate_text(random, words[word])
            lines[at] = " ".join(words)
        case 5:
            lines[at] = lines[at] + random.choice(("\r", " ", "\t", "\x0b", "\x0c", "\x85", "\u2028"))
        case _:
            lines[at] = mutate_text(random, lines[at])
    return "\n".join(lines)


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True
