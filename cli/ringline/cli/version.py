"""`ringline version`."""

from typing import Final

from ringline.cli.options import json_option
from ringline.cli.output import write_document, write_text
from ringline.cli.page import command as page

__all__ = ["VERSION", "command"]

VERSION: Final = "0.1.0"
"""The version of the distribution. Written here because asking the installed metadata takes longer than
all the rest of `ringline version`; a test compares the two."""


@page(
    "version",
    examples=[
        ("the version of the product", "ringline version"),
        ("for a program", "ringline version --json"),
    ],
    exits=[(0, "printed")],
    then="ringline demo",
)
@json_option
def command(machine: bool) -> None:
    """Print the version of Ringline and of the protocol that it speaks."""
    if machine:
        write_document({"v": 1, "ok": True, "version": VERSION, "protocols": ["ringline.v1"]})
    else:
        write_text(f"ringline {VERSION}  (protocol ringline.v1)\n")
