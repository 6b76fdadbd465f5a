"""`ringline policy`: who gets through the relay to an own handle, and whether calls wait there."""

from typing import TYPE_CHECKING, Literal, cast

import click

from ringline.cli.desk import Desk, Where, desk_options
from ringline.cli.output import require_output, write_document, write_text
from ringline.cli.page import command as page
from ringline.protocol.codes import Family

if TYPE_CHECKING:
    from ringline.protocol.shapes import Policy

__all__ = ["command"]

_ACCEPT = {
    "anyone": "whoever the relay knows",
    "listed": "whom you let in by `ringline contacts allow`",
    "invited": "whom you let in, and who has taken up an invite of yours",
}
_SHOWN = 20


@page(
    "policy",
    examples=[
        ("show it", "ringline policy --as reviewer"),
        (
            "have the relay keep no calls while nobody listens, and give up those that wait",
            "ringline policy --as reviewer --no-offline",
        ),
        ("be found by those alone whom you named", "ringline policy --as reviewer --accept listed"),
    ],
    exits=[
        (0, "shown, or changed and shown"),
        (Family.LOCAL, "config"),
        (Family.HTTP, "unauthorized"),
        (Family.LOCAL, "relay_unreachable"),
    ],
    then="ringline contacts ls, for what each of them may call",
)
@click.option(
    "--accept",
    type=click.Choice(list(_ACCEPT)),
    help="Whose calls the relay passes on; to all others the handle does not exist.",
)
@click.option(
    "--offline/--no-offline",
    default=None,
    help="Whether the relay keeps durable calls while nobody listens. Turned off, those that wait end.",
)
@desk_options(
    "The identity of yours that is called. [default: the only one, else the one that calls by default]"
)
def command(accept: str | None, offline: bool | None, where: Where) -> None:
    """Show or change what the relay does with calls to a handle of yours.

    It only keeps callers away: a listener also judges each of them by its own contacts, whatever the relay
    lets through.
    """
    import asyncio

    if where.machine:
        require_output()
    desk = where.open()
    policy = asyncio.run(_settle(desk, accept, offline))
    if where.machine:
        write_document(
            {
                "v": 1,
                "ok": True,
                "handle": desk.account.handle,
                "accept": policy.accept,
                "offline": policy.offline,
                "allow": policy.allow,
                "block": policy.block,
            }
        )
    else:
        write_text(_lines(desk, policy))


async def _settle(desk: Desk, accept: str | None, offline: bool | None) -> "Policy":
    """Change what was asked for, nothing else, and return what the relay then has."""
    from ringline.protocol.shapes import Policy

    await desk.http.info()
    policy = await desk.http.policy()
    wanted = Policy(
        offline=policy.offline if offline is None else offline,
        accept=policy.accept if accept is None else cast(Literal["anyone", "listed", "invited"], accept),
        allow=policy.allow,
        block=policy.block,
    )
    if wanted != policy:
        await desk.http.set_policy(wanted)
    return wanted


def _lines(desk: Desk, policy: "Policy") -> str:
    kept = "kept while nobody listens" if policy.offline else "refused while nobody listens"
    rows = [
        ("let through", f"{policy.accept}: {_ACCEPT[policy.accept]}"),
        ("let in", _names(policy.allow)),
        ("shut out", _names(policy.block)),
        ("durable calls", kept),
    ]
    text = "".join(f"  {name:<14} {value}\n" for name, value in rows)
    return f"{desk.account.handle} at {desk.address.base_url}\n{text}"


def _names(handles: list[str]) -> str:
    shown = ", ".join(sorted(handles)[:_SHOWN])
    return f"{shown} and {len(handles) - _SHOWN} more: --json" if len(handles) > _SHOWN else shown or "nobody"
