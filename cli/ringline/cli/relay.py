"""`ringline relay`: a relay for development, and one for others."""

import click

from ringline.cli.output import write_text
from ringline.cli.page import SETTINGS
from ringline.cli.page import command as page
from ringline.cli.remove import command as remove
from ringline.cli.report import tell
from ringline.cli.serve import command as serve
from ringline.cli.serve import process_options, setting_values
from ringline.protocol.codes import Family

__all__ = ["command"]


@click.group("relay", context_settings=SETTINGS)
def command() -> None:
    """Run a relay."""


def _show_settings(context: click.Context, param: click.Parameter, value: bool) -> None:
    """Print the settings and end, as ``--help`` does."""
    del param
    if not value or context.resilient_parsing:
        return
    from ringline.relay.settings import TABLE

    width = max(map(len, TABLE))
    write_text(
        "".join(
            f"{name:<{width}}  {row.default:>10} {row.unit:<11}  {row.kind}: {row.help}\n"
            for name, row in TABLE.items()
        )
    )
    context.exit()


@page(
    "dev",
    examples=[
        ("in memory, on port 7575 of this computer; Ctrl-C stops it", "ringline relay dev"),
        ("keep handles, keys and durable calls over a restart", "ringline relay dev --db relay.db"),
        ("any free port, and shorter bounds", "ringline relay dev --port 0 --set RING_BOUND_MS=5000"),
    ],
    exits=[(0, "stopped by Ctrl-C or SIGTERM"), (Family.LOCAL, "config")],
    then="ringline listen --as echo --run cat",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address on loopback to listen on.")
@click.option(
    "--db",
    type=click.Path(dir_okay=False),
    help="Keep handles, keys and durable calls in this file. [default: in memory]",
)
@process_options
@click.option(
    "--settings",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_settings,
    help="List what --set can change, and exit.",
)
def dev(port: int, host: str, db: str | None, edge: str, values: tuple[str, ...]) -> None:
    """Run a relay for development: loopback only, open registration, in memory without --db.

    Not for production: whoever can reach the port can take a handle.
    """
    from ringline.relay.server import run_dev

    run_dev(port=port, host=host, db=db, edge=edge, values=setting_values(values), say=tell)


command.add_command(dev)
command.add_command(serve)
command.add_command(remove)
