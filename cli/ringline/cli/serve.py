"""`ringline relay serve`: a relay for others."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ringline.cli.page import command as page
from ringline.cli.report import tell
from ringline.protocol.codes import Family

__all__ = ["command", "process_options", "setting_values"]

_F = TypeVar("_F", bound=Callable[..., Any])


def process_options(function: _F) -> _F:
    """Add what every relay may be told: ``--port``, ``--edge`` and ``--set``."""
    port = click.option(
        "--port",
        type=click.IntRange(0, 65_535),
        default=7575,
        show_default=True,
        help="TCP port; 0 takes a free one.",
    )
    edge = click.option(
        "--edge",
        type=click.Choice(["picows", "websockets"]),
        default="picows",
        show_default=True,
        help="WebSocket implementation: the fast one, or the portable one.",
    )
    values = click.option(
        "--set",
        "values",
        metavar="NAME=VALUE",
        multiple=True,
        help="Change a bound or a budget; may be repeated. 0 turns a budget off.",
    )
    return port(edge(values(function)))


def setting_values(values: tuple[str, ...]) -> dict[str, str]:
    """Return what ``--set`` was given, by name. Raises `click.UsageError`."""
    given: dict[str, str] = {}
    for value in values:
        name, equals, number = value.partition("=")
        if not equals:
            raise click.UsageError(f"--set takes NAME=VALUE, and {value!r} has no equals sign")
        given[name] = number
    return given


@page(
    "serve",
    examples=[
        (
            "behind a proxy on this computer that ends TLS; the first start shows the invite of `ada`",
            "ringline relay serve --db r.db --realm relay.example --admin ada"
            " --behind-proxy --trusted-proxy 127.0.0.1",
        ),
        (
            "with TLS of its own, where everybody can reach it",
            "ringline relay serve --db relay.db --realm relay.example --admin ada"
            " --host 0.0.0.0 --cert c.pem --key k.pem",
        ),
    ],
    exits=[(0, "stopped by Ctrl-C or SIGTERM"), (Family.LOCAL, "config")],
    then="ringline accept, and paste the administrator's invite",
)
@click.option(
    "--db", type=click.Path(dir_okay=False), required=True, help="The database file; made on the first start."
)
@click.option(
    "--realm", metavar="NAME", required=True, help="The name under which handles are known: a host name."
)
@click.option(
    "--admin",
    metavar="HANDLE",
    help="Who may remove identities and void invites; he enrols first, by an invite that is shown once.",
)
@click.option(
    "--url",
    metavar="URL",
    help="Base URL by which clients reach the relay. [default: https:// and the realm]",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@process_options
@click.option("--cert", type=click.Path(dir_okay=False), help="Certificate chain, PEM: TLS ends here.")
@click.option("--key", type=click.Path(dir_okay=False), help="Its private key, PEM.")
@click.option("--behind-proxy", is_flag=True, help="A proxy in front ends TLS and passes the requests on.")
@click.option(
    "--trusted-proxy",
    "proxies",
    metavar="ADDRESS",
    multiple=True,
    help="The proxy's address or network, whose X-Forwarded-For is believed; may be repeated. "
    "Needed with --behind-proxy.",
)
@click.option(
    "--admin-listen",
    metavar="HOST:PORT",
    help="Show /metrics and why the relay is not ready on a listener of their own, e.g. 127.0.0.1:9575. They "
    "are not on the port for clients.",
)
@click.option("--open-registration", is_flag=True, help="Let anybody take a free handle.")
@click.option(
    "--admin-invite",
    "invite_file",
    type=click.Path(dir_okay=False),
    help="Write the administrator's invite to this file. [default: to the terminal, else DB.admin-invite]",
)
def command(
    db: str,
    realm: str,
    admin: str | None,
    url: str | None,
    host: str,
    port: int,
    edge: str,
    values: tuple[str, ...],
    cert: str | None,
    key: str | None,
    behind_proxy: bool,
    proxies: tuple[str, ...],
    admin_listen: str | None,
    open_registration: bool,
    invite_file: str | None,
) -> None:
    """Run a relay for others: TLS here or in a proxy, registration by invite, everything kept in a file."""
    given = setting_values(values)
    from ringline.relay.serving import ServeOptions, run_serve

    options = ServeOptions(
        db=db,
        realm=realm,
        host=host,
        port=port,
        admin=admin,
        url=url,
        cert=cert,
        key=key,
        behind_proxy=behind_proxy,
        trusted_proxies=proxies,
        admin_listen=admin_listen,
        open_registration=open_registration,
        invite_file=invite_file,
        edge=edge,
        values=given,
    )
    run_serve(options, say=tell, on_terminal=sys.stderr.isatty())
