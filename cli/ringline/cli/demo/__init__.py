"""`ringline demo`: the product, shown at work and under attack."""

import sys

import click

from ringline.cli.page import command as page
from ringline.cli.report import tell
from ringline.protocol.codes import Family

__all__ = ["command"]

_FAILED = 1


@page(
    "demo",
    examples=[
        ("watch it, on a terminal", "ringline demo"),
        ("for machines: plain text, no colours, no pauses", "ringline demo --headless"),
    ],
    exits=[
        (0, "all as it should be"),
        (_FAILED, "something was not as it should be"),
        (Family.LOCAL, "config"),
    ],
    then="ringline relay dev",
)
@click.option("--headless", is_flag=True, help="Plain text, no colours, no pauses. [default when piped]")
def command(headless: bool) -> int:
    """Run a relay, a listener and a caller here, show what the relay saw, and refuse two attacks.

    Uses free ports of loopback and a temporary folder; touches none of your keys. Takes a few seconds.
    """
    from ringline.cli.demo.parties import Unexpected
    from ringline.cli.demo.stage import Stage
    from ringline.cli.demo.story import main

    try:
        main(Stage(plain=headless or not sys.stdout.isatty()))
    except Unexpected as error:
        tell(f"✗ not as it should be: {error}")
        return _FAILED
    return 0
