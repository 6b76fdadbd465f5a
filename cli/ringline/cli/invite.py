"""`ringline invite`: make invites, see what became of them, withdraw them."""

from typing import TYPE_CHECKING, Any, Final

import click

from ringline.cli.desk import Desk, Where, desk_options
from ringline.cli.options import Span
from ringline.cli.output import write_document, write_text
from ringline.cli.page import SETTINGS
from ringline.cli.page import command as page
from ringline.cli.report import tell
from ringline.cli.terminal import shown_line
from ringline.protocol.codes import Family, lookup
from ringline.protocol.dates import spelled
from ringline.protocol.errors import RinglineError

if TYPE_CHECKING:
    from ringline.client.invitations import Given, Guest
    from ringline.protocol.shapes import Invite

__all__ = ["DEFAULT_CALLS", "command", "given_options", "read_given"]

DEFAULT_CALLS: Final = 30
"""Calls an hour of a peer who is let in, unless it is said otherwise: what a relay lets through anyway."""

_H, _L = Family.HTTP, Family.LOCAL
_NEW: Final = "new"
_WHOSE: Final = "The identity that invites. [default: the only one, else the one that calls by default]"
_LOOK_EVERY_S: Final = 1.0
_TAKEN_UP_S: Final = 120.0


class _NotYet(RinglineError):
    family = Family.END
    default_code = "still_running"


class _Group(click.Group):
    """A group whose first word may be missing: then it is a new invite."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``new`` in front of what names no command of the group."""
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = [_NEW, *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, and the options of the one whose name may be left out."""
        self.format_commands(ctx, formatter)
        records = [
            record for param in new.get_params(ctx) if (record := param.get_help_record(ctx)) is not None
        ]
        with formatter.section("Options of a new invite"):
            formatter.write_dl(records)


@click.group("invite", cls=_Group, context_settings=SETTINGS)
def command() -> None:
    """Invite somebody; see and withdraw invites.

    `ringline invite NAME` is short for `ringline invite new NAME`.
    """


def given_options(function: Any) -> Any:
    """Add ``--task`` and ``--calls-per-hour``: what a peer is let in for."""
    tasks = click.option(
        "--task",
        "tasks",
        metavar="ID",
        multiple=True,
        help="Let him call this task only; may be repeated. [default: every task]",
    )
    calls = click.option(
        "--calls-per-hour",
        type=click.IntRange(0, 100_000),
        default=DEFAULT_CALLS,
        show_default=True,
        help="How many calls of his are taken within an hour; 0 for any number.",
    )
    return tasks(calls(function))


def read_given(tasks: tuple[str, ...], calls_per_hour: int, label: str | None = None) -> "Given":
    """Return what a peer is let in for. Raises `click.UsageError` for what is no task or no label."""
    from ringline.client.contacts import LABEL_CHARS, is_label
    from ringline.client.invitations import Given
    from ringline.protocol.names import is_task_id

    for task in tasks:
        if not is_task_id(task):
            raise click.UsageError(
                f"{task!r} is no task: 1 to 64 of a-z, 0-9 and hyphen, the first no hyphen"
            )
    if label is not None and not is_label(label):
        raise click.UsageError(f"NAME is one line of at most {LABEL_CHARS} characters")
    return Given(tasks=tuple(sorted(set(tasks))) or None, calls_per_hour=calls_per_hour or None, label=label)


@page(
    _NEW,
    examples=[
        ("one line to hand over, good for a day and one person", "ringline invite alice"),
        (
            "he may call one task, five times an hour",
            "ringline invite new alice --task review --calls-per-hour 5",
        ),
        ("for a team; into a file, since the line is a secret", "ringline invite team --uses 8 > invite.txt"),
        ("a code to be said on the telephone, while you wait", "ringline invite alice --code"),
    ],
    exits=[
        (0, "the invite is printed; with --wait, it was taken up"),
        (_L, "config"),
        (_H, "unauthorized"),
        (_H, "rate_limited"),
        (_L, "relay_unreachable"),
        (_L, "code_failed"),
        (Family.END, "still_running"),
    ],
    then="ringline accept, on the other computer",
)
@click.argument("name", required=False)
@click.option(
    "--code",
    "spoken",
    is_flag=True,
    help="Show a short code to be said instead, and wait for him: one try, ten minutes.",
)
@click.option(
    "--words",
    type=click.IntRange(2, 4),
    default=2,
    show_default=True,
    help="Words of that code; each makes a guess 256 times less likely.",
)
@click.option("--uses", type=click.IntRange(1, 8), default=1, show_default=True, help="For how many people.")
@click.option(
    "--ttl",
    type=Span(0.02, 14 * 24),
    default=24.0,
    show_default=True,
    metavar="HOURS",
    help="How long it can be taken up.",
)
@given_options
@click.option(
    "--wait",
    type=Span(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Wait so long for it to be taken up. [default: not at all; ringline listen and invite ls tell too; "
    "with --code: as long as the code holds]",
)
@desk_options(_WHOSE)
def new(
    name: str | None,
    spoken: bool,
    words: int,
    uses: int,
    ttl: float,
    tasks: tuple[str, ...],
    calls_per_hour: int,
    wait: float,
    where: Where,
) -> int:
    """Print one line that lets somebody in: into the relay, and to you.

    NAME is what you call him, and stays on this computer; what he is called at the relay he chooses himself.
    Hand the line over by a way that you trust: whoever takes it up first is let in.

    With --code you say a few words instead, and both sides are there at once. Nobody between you, the relay
    included, can take up the invite without guessing them, and a wrong guess uses the code up. With --json
    the code is told on standard error.
    """
    import asyncio

    context = click.get_current_context()
    if spoken:
        _refuse_others(context)
    elif context.get_parameter_source("words") is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError("--words goes with --code")
    elif wait and where.machine:
        # The one document comes at the end, and nobody could hand over what is in it.
        raise click.UsageError("--wait and --json exclude each other: look with ringline invite ls --json")
    given = read_given(tasks, calls_per_hour, name)
    desk = where.open()
    if spoken:
        return asyncio.run(_new_by_code(desk, given, words, wait, machine=where.machine))
    return asyncio.run(_new(desk, given, uses, round(ttl * 3_600), wait, machine=where.machine))


async def _new(desk: Desk, given: "Given", uses: int, ttl_s: int, wait: float, *, machine: bool) -> int:
    await desk.http.info()
    # Nothing is said of an invite that could not be used.
    opened = await desk.invitations.open_door()
    invite, issued = await desk.invitations.invite(given, uses=uses, ttl_s=ttl_s)
    document: dict[str, Any] = {
        "v": 1,
        "ok": True,
        "id": issued.id,
        "invite": invite.format(),
        "expires_at": issued.expires_at,
        "uses": uses,
        "tasks": None if given.tasks is None else list(given.tasks),
        "calls_per_hour": given.calls_per_hour,
    }
    if machine:
        write_document(document)
        return 0
    write_text(f"{invite.format()}\n")
    _explain(desk, given, issued.id, issued.expires_at, uses, opened)
    guests = await _wait(desk, issued.id, wait)
    _tell_guests(desk, guests)
    if guests or not wait:
        return 0
    tell(f"  Nobody has taken it up within {wait:g} s; it holds on. Look again:  ringline invite ls")
    return lookup(Family.END, "still_running").exit_code


def _refuse_others(context: click.Context) -> None:
    for name in ("uses", "ttl"):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"--{name} and --code exclude each other: a code is for one person, at once"
            )


async def _new_by_code(desk: Desk, given: "Given", words: int, wait: float, *, machine: bool) -> int:
    from ringline.cli.peer_sheet import describe_peer
    from ringline.cli.spoken import LIFE_S, hand_over
    from ringline.protocol.pairing import check_installed

    check_installed()
    await desk.http.info()
    opened = await desk.invitations.open_door()
    if opened is not None and not machine:
        tell(f"  {opened}")
    issued = await hand_over(desk, given, words, wait or LIFE_S, machine=machine)
    # He has the invite in his hands, and takes it up at once.
    guests = await _wait(desk, issued.id, _TAKEN_UP_S)
    if not guests:
        raise _NotYet(
            f"The invite was handed over, and nobody has taken it up within {_TAKEN_UP_S:g} s.",
            still_true=f"It holds on until {_time(issued.expires_at)}.",
            next_step="look again: ringline invite ls",
        )
    if not machine:
        _tell_guests(desk, guests)
        return 0
    (guest,) = guests
    write_document(
        {
            "v": 1,
            "ok": True,
            "id": issued.id,
            "handle": guest.handle,
            "guest": None if guest.pin is None else describe_peer(desk.account, guest.pin),
            "trouble": guest.trouble,
        }
    )
    return 0


def _explain(
    desk: Desk, given: "Given", invite_id: str, expires_at: int, uses: int, opened: str | None
) -> None:
    from ringline.cli.peer_sheet import grant_words

    who = shown_line(given.label) if given.label else "whoever you give it to"
    times = "once" if uses == 1 else f"{uses} times"
    if opened is not None:
        tell(f"  {opened}")
    tell(f"✓ an invite for {who}: it can be taken up {times}, until {_time(expires_at)}")
    tell(f"  from       {desk.account.handle}  {desk.account.fingerprint}")
    tell(f"  it grants  {grant_words(given.tasks, given.calls_per_hour)}")
    tell("  Anyone who reads the line can take it up: hand it over by a way that you trust.")
    tell("  He types   ringline accept")
    tell(f"  See        ringline invite ls      Withdraw  ringline invite revoke {invite_id}")


async def _wait(desk: Desk, invite_id: str, seconds: float) -> "list[Guest]":
    """Return those who have taken the invite up within the time; one is enough."""
    import asyncio

    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while seconds:
        met = await desk.invitations.came_by(invite_id)
        if met or loop.time() >= end:
            return met
        await asyncio.sleep(min(_LOOK_EVERY_S, max(0.0, end - loop.time())))
    return []


def _tell_guests(desk: Desk, guests: "list[Guest]") -> None:
    from ringline.cli.peer_sheet import peer_sheet

    for guest in guests:
        if guest.pin is None:
            tell(f"! {guest.handle} took an invite up and was not let in: {guest.trouble}")
            continue
        tell(f"\n✓ {guest.handle} has taken your invite up, with the key of whoever you gave it to")
        tell(peer_sheet(desk.account, guest.pin).rstrip("\n"))
        tell(f"Next:  ringline listen --as {desk.account.handle} …, and he can call you")


@page(
    "ls",
    examples=[
        ("all of them, and who has come", "ringline invite ls"),
        ("for a program", "ringline invite ls --json"),
    ],
    exits=[(0, "printed"), (_L, "config"), (_H, "unauthorized"), (_L, "relay_unreachable")],
    then="ringline contacts show HANDLE, for whoever has come",
)
@desk_options(_WHOSE)
def ls(where: Where) -> None:
    """List your invites: open, consumed and by whom, failed, expired or void; let in who has come."""
    import asyncio

    desk = where.open()
    guests, told = asyncio.run(_look(desk))
    labels = {issued.id: issued.given for issued in desk.invitations.kept()}
    if where.machine:
        write_document(
            {
                "v": 1,
                "ok": True,
                "invites": [
                    {
                        "id": one.id,
                        "label": labels[one.id].label if one.id in labels else one.label,
                        "state": one.state,
                        "uses": one.uses,
                        "failures": one.failures,
                        "created_at": one.created_at,
                        "expires_at": one.expires_at,
                        "accepted": [{"handle": who.handle, "at": who.at} for who in one.accepted],
                    }
                    for one in told
                ],
            }
        )
        return
    _tell_guests(desk, guests)
    if not told:
        write_text("no invites yet\n")
    for one in told:
        given = labels.get(one.id)
        label = (given.label if given else one.label) or "-"
        write_text(f"{one.id}  {shown_line(label):<16}  {_state(one)}\n")


async def _look(desk: Desk) -> "tuple[list[Guest], list[Invite]]":
    await desk.http.info()
    guests = await desk.invitations.meet()
    return guests, await desk.http.invites()


def _state(one: "Invite") -> str:
    who = ", ".join(acceptance.handle for acceptance in one.accepted)
    by = f" by {who}" if who else ""
    match one.state:
        case "open":
            taken = f", taken up{by} so far" if who else ""
            return f"open until {_time(one.expires_at)}{taken}"
        case "consumed":
            return f"consumed{by}"
        case "failed":
            return f"failed: {one.failures} claims came to nothing; somebody tries it out, or mistypes{by}"
        case "expired":
            return f"expired {_time(one.expires_at)}{', taken up' + by if who else ', and nobody came'}"
        case "void":
            return f"void: withdrawn{', taken up before' + by if who else ''}"


@page(
    "revoke",
    examples=[("nobody can take it up any more", "ringline invite revoke 5fX0aQmJ1bE")],
    exits=[
        (0, "withdrawn, or over before"),
        (_L, "config"),
        (_H, "not_found"),
        (_H, "unauthorized"),
        (_L, "relay_unreachable"),
    ],
    then="ringline contacts block HANDLE, for whoever has come by it",
)
@click.argument("invite_id", metavar="ID")
@desk_options(_WHOSE)
def revoke(invite_id: str, where: Where) -> None:
    """Withdraw an invite. Who has taken it up before keeps what it gave him."""
    import asyncio

    from ringline.protocol.errors import ConfigError, HttpProblem
    from ringline.protocol.names import is_invite_id

    if not is_invite_id(invite_id):
        raise ConfigError("that is no id of an invite", next_step="see them: ringline invite ls")
    desk = where.open()

    async def withdraw() -> bool:
        await desk.http.info()
        return await desk.http.withdraw_invite(invite_id)

    if not asyncio.run(withdraw()):
        raise HttpProblem(
            f"{desk.account.handle} has no invite {invite_id}",
            code="not_found",
            next_step="see them: ringline invite ls",
        )
    if where.machine:
        write_document({"v": 1, "ok": True, "id": invite_id})
    else:
        write_text(f"✓ nobody can take up the invite {invite_id} any more\n")


def _time(time_ms: int) -> str:
    return spelled(time_ms, "%Y-%m-%d %H:%M", None)


command.add_command(new)
command.add_command(ls)
command.add_command(revoke)
