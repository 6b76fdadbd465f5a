"""`ringline log`: whether the relay's key log is what it was, and what it says of you."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from ringline.cli.calling import calling_options
from ringline.cli.chosen import Chosen
from ringline.cli.options import Span
from ringline.cli.page import SETTINGS
from ringline.cli.page import command as page
from ringline.protocol.codes import Family
from ringline.protocol.dates import spelled

if TYPE_CHECKING:
    from ringline.client import Account, KeyLog
    from ringline.client.loghistory import LogHistory
    from ringline.client.logstate import Alarm
    from ringline.client.logverify import LogReport
    from ringline.protocol.errors import LogForked

__all__ = ["command"]

_T = TypeVar("_T")
_L, _H = Family.LOCAL, Family.HTTP
_OWN = "The identity of yours that reads the log. [default: the one that calls by default]"
_FINDINGS = 10


@click.group("log", context_settings=SETTINGS)
def command() -> None:
    """Check the relay's key log, and watch it for keys that are not yours."""


@page(
    "verify",
    examples=[
        ("read the whole log and check every signature in it", "ringline log verify"),
        ("as the identity that you listen with", "ringline log verify --as reviewer"),
        ("report no more what you know of by now", "ringline log verify --seen"),
    ],
    exits=[
        (0, "nothing contradicts"),
        (_L, "log_forked"),
        (_L, "config"),
        (_H, "unauthorized"),
        (_L, "relay_unreachable"),
    ],
    then="ringline log watch",
)
@click.option("--seen", is_flag=True, help="You know of everything that was reported up to now.")
@calling_options(_OWN)
def verify(seen: bool, chosen: Chosen) -> int:
    """Read the relay's whole key log: that it continues what you saw, and that every entry holds."""
    from ringline.cli.output import require_output, write_document, write_text
    from ringline.cli.terminal import shown
    from ringline.client import Contacts
    from ringline.client.logverify import verify_log

    require_output()

    async def run(log: "KeyLog", account: "Account") -> "tuple[LogReport, list[Alarm]]":
        pins = Contacts(account.home, account.home.contacts_file(account.address)).pins()
        report = await verify_log(log, account.address.realm, account.handle, pins)
        state = _followed(log).state
        if seen:
            state.settle_alarms()
        alarms = [alarm for alarm in state.alarms() if not alarm.seen]
        if chosen.machine and not alarms and not report.findings:
            write_document({"v": 1, "ok": True, "log": _document(log, account, report)})
        elif not chosen.machine:
            write_text(shown(_sheet(log, account, report)))
        return report, alarms

    report, alarms = _follow(chosen, lambda line: None, run)
    if report.findings or alarms:
        raise _reported(report.findings, alarms)
    if not chosen.machine:
        write_text("✓ nothing contradicts\n")
    return 0


@page(
    "watch",
    examples=[
        ("tell every new entry, and loudly a card for your handle", "ringline log watch --as reviewer"),
        ("look once, for a timer of the system", "ringline log watch --once"),
    ],
    exits=[
        (0, "looked once, and nothing contradicts"),
        (_L, "log_forked"),
        (_L, "config"),
        (_L, "relay_unreachable"),
        (130, "interrupted"),
    ],
    then="ringline log verify",
)
@click.option(
    "--every",
    metavar="SECONDS",
    type=Span(1, 86_400),
    default=60.0,
    show_default=True,
    help="How often to look.",
)
@click.option("--once", is_flag=True, help="Look once and end.")
@calling_options(_OWN)
def watch(every: float, once: bool, chosen: Chosen) -> int:
    """Tell what is new in the relay's key log, as it comes; a listener watches by itself."""
    import asyncio

    from ringline.cli.output import require_output, write_document, write_text
    from ringline.cli.report import tell
    from ringline.cli.terminal import shown_line
    from ringline.client.logverify import describe_entry
    from ringline.protocol.errors import TransportError, TrustError

    require_output()

    def note(line: str) -> None:
        tell(f"{'  ' if line.startswith(' ') else '! '}{shown_line(line.strip())}")

    async def run(log: "KeyLog", account: "Account") -> "tuple[int, list[Alarm]]":
        history = _followed(log)
        known = history.seen.size if history.seen is not None else 0
        if not chosen.machine:
            write_text(f"watching the key log of {account.address.base_url} as {account.handle}\n")
        told = ""
        while True:
            try:
                seen = await log.read_new()
                assert seen is not None
                for number, entry in enumerate(await history.between(known, seen), known):
                    if not chosen.machine:
                        text = shown_line(describe_entry(entry))
                        write_text(f"{_time(seen.at)}  entry {number}  {text}\n")
                known = seen.size
            except (TrustError, TransportError) as error:
                if once:
                    raise
                if str(error) != told:
                    for line in str(error).split("\n"):
                        note(line)
                told = str(error)
            if once:
                return known, [alarm for alarm in history.state.alarms() if not alarm.seen]
            await asyncio.sleep(every)

    # Looked at once, what is found is told by the error that it ends with.
    size, alarms = _follow(chosen, (lambda line: None) if once else note, run)
    if alarms:
        raise _reported([], alarms)
    if chosen.machine:
        write_document({"v": 1, "ok": True, "size": size})
    return 0


command.add_command(verify)
command.add_command(watch)


def _follow(
    chosen: Chosen, note: Callable[[str], None], run: "Callable[[KeyLog, Account], Awaitable[_T]]"
) -> _T:
    """Run ``run`` with the log of the chosen relay, greeted, as the chosen identity."""
    import asyncio
    import contextlib

    from ringline.cli.identity import locking, open_account
    from ringline.client import Home, KeyLog, RelayClock, RelayHttp

    home, address = Home.default(), chosen.address()
    lock = locking(home, address, chosen.own, chosen.passphrase_file, chosen.plain)
    account, is_new = open_account(home, address, chosen.own, lock)

    async def follow() -> _T:
        clock = RelayClock()
        http = RelayHttp(address, account, clock)
        info = await http.info()
        if is_new or not account.was_published:
            # The log is for the enrolled.
            await http.publish()
        with contextlib.closing(KeyLog(home, http, clock, note)) as log:
            await log.greet(info)
            return await run(log, account)

    return asyncio.run(follow())


def _followed(log: "KeyLog") -> "LogHistory":
    """The log that is followed. Raises `ConfigError` when the relay has none."""
    from ringline.protocol.errors import ConfigError

    if log.history is None:
        raise ConfigError(
            "this relay keeps no key log, so there is nothing to look at",
            next_step="a relay keeps one when it has a database: ringline relay dev --db relay.db",
        )
    return log.history


def _reported(findings: list[str], alarms: "list[Alarm]") -> "LogForked":
    """The error for what is wrong with the log, and for what was reported before and not settled."""
    from ringline.protocol.errors import LogForked

    rows: list[str] = []
    if findings:
        places = "one place" if len(findings) == 1 else f"{len(findings)} places"
        rows.append(f"the relay's key log does not hold in {places}:")
        rows += [f"  {finding}" for finding in findings[:_FINDINGS]]
        if len(findings) > _FINDINGS:
            rows.append(f"  and {len(findings) - _FINDINGS} more")
    for alarm in alarms:
        first, *more = alarm.text.split("\n")
        rows.append(f"reported on {_time(alarm.at)}: {first}")
        rows += [line for line in more if not line.strip().startswith("Next:")]
        if alarm.evidence is not None:
            rows.append(f"  evidence  {alarm.evidence}")
    return LogForked(
        "\n".join(rows),
        still_true="The keys that are known here stay as they are.",
        next_step="ask the relay's operator by another way; "
        "to hear no more of what was reported: ringline log verify --seen",
    )


def _sheet(log: "KeyLog", account: "Account", report: "LogReport") -> str:
    """The report as lines for a person."""
    from ringline.protocol.encoding import b64encode

    history = _followed(log)
    kept = history.state.key()
    who = "a contact string" if kept is not None and kept[1] == "contact" else "the relay, at first contact"
    audit, seen, before = report.audit, report.seen, report.before
    rows = [
        ("entries", f"{seen.size:,}, root {b64encode(seen.root)}"),
        ("signed by", f"{b64encode(history.key.public)}, told by {who}"),
        ("continues", "nothing yet: it was looked at for the first time"),
        ("holds", f"{audit.cards:,} cards of {audit.handles:,} handles, "
         f"{audit.successions:,} successions, {audit.revocations:,} revocations"),
        ("yours", ", ".join(f"entry {number}" for number in report.own) or f"no card of {account.handle}"),
        ("pinned", f"{report.pinned:,} of the {report.pins:,} peers whose key is pinned here are in it"),
    ]  # fmt: skip
    if before is not None:
        rows[2] = ("continues", f"the {before.size:,} that were seen on {_time(before.at)}")
    text = f"key log of {account.address.base_url}  (realm {account.address.realm})\n"
    return text + "".join(f"  {name:<10} {value}\n" for name, value in rows)


def _document(log: "KeyLog", account: "Account", report: "LogReport") -> dict[str, object]:
    from ringline.protocol.encoding import b64encode

    history = _followed(log)
    kept = history.state.key()
    return {
        "relay": account.address.base_url,
        "realm": account.address.realm,
        "key": b64encode(history.key.public),
        "key_from": None if kept is None else kept[1],
        "verifier": history.key.format(),
        "size": report.seen.size,
        "root": b64encode(report.seen.root),
        "continues": None if report.before is None else report.before.size,
        "cards": report.audit.cards,
        "handles": report.audit.handles,
        "successions": report.audit.successions,
        "revocations": report.audit.revocations,
        "own_entries": report.own,
        "pins": report.pins,
        "pinned": report.pinned,
    }


def _time(ms: int) -> str:
    return spelled(ms, "%Y-%m-%d %H:%M:%SZ")
