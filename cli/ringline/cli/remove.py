"""`ringline relay remove`: take an identity away from a relay."""

import sys

import click

from ringline.cli.desk import Where, desk_options
from ringline.cli.output import write_document, write_text
from ringline.cli.page import command as page
from ringline.cli.report import tell
from ringline.protocol.codes import Family
from ringline.protocol.errors import ConfigError, HttpProblem

__all__ = ["command"]


@page(
    "remove",
    examples=[
        ("as the administrator", "ringline relay remove mallory --as ada --yes"),
        ("your own identity", "ringline relay remove bob --as bob --yes"),
    ],
    exits=[
        (0, "removed"),
        (Family.LOCAL, "config"),
        (Family.HTTP, "forbidden"),
        (Family.HTTP, "not_found"),
        (Family.HTTP, "unauthorized"),
        (Family.LOCAL, "relay_unreachable"),
    ],
    then="ringline invite NAME, if he is to come back under another handle",
)
@click.argument("handle")
@click.option("--yes", is_flag=True, help="Do not ask.")
@desk_options("The administrator, or the identity itself. [default: the only one here]")
def command(handle: str, yes: bool, where: Where) -> None:
    """Remove an identity from a relay for good: its connections end now, and nobody gets its handle again.

    Calls from it that wait are revoked; those to it end for their callers as if it were offline.
    """
    import asyncio

    from ringline.protocol.names import is_handle

    if not is_handle(handle):
        raise ConfigError(f"{handle[:64]!r} is no handle", next_step="ringline relay remove HANDLE")
    desk = where.open()
    if not yes:
        if where.machine or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise ConfigError(
                f"this cannot be undone: {handle} would be gone from {desk.address.base_url}",
                next_step="say that you mean it: --yes",
            )
        tell(f"{handle} will be gone from {desk.address.base_url} for good; nobody gets the handle again.")
        click.confirm("Remove it?", abort=True, err=True)

    async def remove() -> None:
        await desk.http.info()
        await desk.http.remove(handle)

    try:
        asyncio.run(remove())
    except HttpProblem as error:
        if error.code == "forbidden":
            raise HttpProblem(
                f"{desk.account.handle} is not the administrator of {desk.address.base_url}, "
                f"so it cannot remove {handle}",
                code="forbidden",
                next_step="name the administrator's identity: --as NAME",
            ) from None
        if error.code == "not_found":
            raise HttpProblem(
                f"there is no {handle} at {desk.address.base_url}",
                code="not_found",
                next_step="check the name",
            ) from None
        raise
    if where.machine:
        write_document({"v": 1, "ok": True, "handle": handle})
    else:
        write_text(f"✓ {handle} is removed from {desk.address.base_url}\n")
