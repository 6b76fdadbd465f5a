"""Canonical unpadded base64url: each value has one text."""

from collections.abc import Iterator

from ringline.protocol.encoding import b64encode
from vectors.vector import Vector, accepted, refused, seed

__all__ = ["vectors"]

_OP = "base64url.decode"
_RULE = "RL-CONV-003"


def vectors() -> Iterator[Vector]:
    """Yield the vectors of this kind."""
    values = {
        "one_byte": b"\0",
        "two_bytes": b"\xff\xfe",
        "three_bytes": b"ABC",
        "url_alphabet": b"\xfb\xef\xbe\xff\xff\xff",
        "thirty_two_bytes": seed("base64url"),
    }
    made = {
        name: accepted(
            f"base64url.{name}",
            _OP,
            "the text of some bytes",
            {"text": b64encode(value)},
            {"hex": value.hex()},
            _RULE,
        )
        for name, value in values.items()
    }
    yield from made.values()
    whole, short, url = made["thirty_two_bytes"], made["one_byte"], made["url_alphabet"]
    text = str(whole.input["text"])
    for name, of, says, mutated in (
        ("empty", short, "no text at all", ""),
        ("length_of_no_value", short, "a single character is no byte", "A"),
        ("padding", short, "padding behind the text", "AA=="),
        ("trailing_bits", short, "a bit that is part of no byte", "AB"),
        ("trailing_bits_of_two", made["two_bytes"], "two bits that are part of no byte", "__5"),
        ("standard_alphabet", url, "the standard alphabet", "++++////"),
        ("leading_space", whole, "a space in front", f" {text}"),
        ("trailing_line_feed", whole, "a line feed behind", f"{text}\n"),
        ("inner_line_feed", whole, "a line feed inside", f"{text[:20]}\n{text[20:]}"),
        ("inner_padding", whole, "padding inside", f"{text[:20]}={text[21:]}"),
        ("full_width_letter", whole, "a letter that is none of ASCII", f"\uff21{text[1:]}"),
        ("zero_byte", whole, "a zero character", f"{text[:-1]}\0"),
    ):
        yield refused(f"base64url.{name}", of, says, {"text": mutated}, "encoding", _RULE)
