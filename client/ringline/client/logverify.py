"""Reading a whole key log, from its first entry to its last, and saying what it is worth.

On the way of a call a client reads what is new and proves what it needs. This reads everything, so that it
finds what was wrong before anybody looked, and leaves nothing unread behind.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, final

from ringline.client.contacts import Pin
from ringline.client.keylog import KeyLog
from ringline.client.logaudit import LogAudit
from ringline.client.loghistory import LogHistory, Said, said_by
from ringline.client.logstate import Seen, SeenCard
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import ConfigError, LogError
from ringline.protocol.fingerprint import fingerprint
from ringline.protocol.identity import SignedCard
from ringline.protocol.logentry import LogEntry, decode_entry
from ringline.protocol.merkle import Frontier, Span, leaf_hash
from ringline.protocol.statements import SignedRevocation, SignedSuccession

__all__ = ["LogReport", "describe_entry", "verify_log"]

_AT_ONCE: Final = 2_048


@final
@dataclass(slots=True)
class LogReport:
    """What was found. ``before`` is the checkpoint that was accepted last: the present one continues it."""

    seen: Seen
    before: Seen | None
    audit: LogAudit
    own: list[int] = field(default_factory=list[int])
    """The entries that are cards of the own handle."""
    pins: int = 0
    """Peers whose key is pinned here."""
    pinned: int = 0
    """Those of them whose pinned card, or key when no card was seen yet, the log bears out."""
    findings: list[str] = field(default_factory=list[str])
    """What is wrong, a sentence each."""


async def verify_log(log: KeyLog, realm: str, own: str, pins: Iterable[Pin]) -> LogReport:
    """Read the whole log of a relay that was greeted, and check every entry.

    ``own`` is the own handle, ``pins`` the pins of the realm. Raises `ConfigError` for a relay without a log,
    `LogForked` when what it shows is not its own log, and `TransportError` or `HttpProblem`.
    """
    history = log.history
    if history is None:
        raise ConfigError(
            "this relay keeps no key log, so there is nothing to verify",
            next_step="a relay keeps one when it has a database: ringline relay dev --db relay.db",
        )
    before = history.seen
    seen = await log.read_new()
    assert seen is not None
    report = LogReport(seen, before, LogAudit(realm))
    (cards, revoked), frontier = await _read(history, seen, report)
    read = await asyncio.to_thread(history.state.read)
    await asyncio.to_thread(history.state.note_entries, read.size, frontier, cards, revoked)
    for card in cards:
        if card.handle == own:
            report.own.append(card.number)
    await log.check_all_own()
    _compare(report, cards, pins)
    return report


def _compare(report: LogReport, cards: Iterable[SeenCard], pins: Iterable[Pin]) -> None:
    """Compare the log with what is pinned: with the card, or after an invite with the key alone."""
    known: set[bytes] = set()
    keys: dict[str, set[bytes]] = {}
    for card in cards:
        known.add(card.card_id)
        keys.setdefault(card.handle, set()).add(card.ipk)
    for pin in pins:
        report.pins += 1
        logged = keys.get(pin.handle, set())
        if pin.card_id in known or (pin.card_id is None and pin.ipk in logged):
            report.pinned += 1
        elif pin.card_id is not None:
            report.findings.append(f"the card of {pin.handle} that is pinned here is not in the log")
        elif logged:
            report.findings.append(
                f"the log has cards of {pin.handle}, but none with the key that is pinned here"
            )


async def _read(history: LogHistory, seen: Seen, report: LogReport) -> tuple[Said, Frontier]:
    frontier = Frontier()
    entries: list[LogEntry | None] = []
    try:
        while frontier.size < seen.size:
            span = Span(frontier.size, min(frontier.size + _AT_ONCE, seen.size))
            for data in await history.reader.entries(span, seen.size):
                report.findings += report.audit.read(frontier.size, data)
                frontier.append(leaf_hash(data))
                entries.append(_decoded(data))
            # Signatures take their time; nothing else of this loop has to wait for all of them.
            await asyncio.sleep(0)
        if frontier.root() != seen.root:
            raise LogError("the entries that the relay shows are not those of its log")
    except LogError as error:
        raise await history.forked(str(error), None, seen.note) from error
    return said_by(entries, 0), frontier


def _decoded(data: bytes) -> LogEntry | None:
    try:
        return decode_entry(data)
    except LogError:
        # The audit has a finding about it.
        return None


def describe_entry(entry: LogEntry) -> str:
    """Return what an entry says, for people; names in it are of the patterns of names."""
    match entry:
        case SignedCard(card=card):
            return f"card {card.serial} of {card.handle}, key {fingerprint(card.ipk)}"
        case SignedSuccession(succession=succession):
            return f"a new identity key {fingerprint(succession.new_ipk)} takes over from a card"
        case SignedRevocation(revocation=revocation):
            return f"card {b64encode(revocation.card_id)} is called back: {revocation.reason.name.lower()}"
