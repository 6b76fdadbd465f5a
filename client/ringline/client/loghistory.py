"""One relay's key log as it was seen from here: it only grows, and its entries are those under its root.

Everything that is fetched is compared with the last checkpoint that was accepted, and that is kept in a file
which all processes of one person share. What contradicts it is kept too, as evidence.
"""

import asyncio
import base64
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, final

from ringline.client.clock import RelayClock
from ringline.client.home import Home
from ringline.client.http import RelayHttp
from ringline.client.logevidence import View, forked, keep, unproven
from ringline.client.logreader import LogReader
from ringline.client.logstate import LogState, Seen, SeenCard
from ringline.protocol.checkpoint import Checkpoint, LogKey
from ringline.protocol.errors import ConfigError, LogError, LogForked
from ringline.protocol.identity import SignedCard
from ringline.protocol.logentry import LogEntry, decode_entry, encode_entry
from ringline.protocol.merkle import (
    Frontier,
    Span,
    consistency_spans,
    inclusion_spans,
    leaf_hash,
    verify_consistency,
    verify_inclusion,
)
from ringline.protocol.statements import SignedRevocation

__all__ = ["READ_AT_ONCE", "LogHistory", "Said", "said_by"]

READ_AT_ONCE: Final = 2_048
"""Entries that are read on the way of a call. What is older in a longer log, `ringline log verify` reads."""

_TRIES: Final = 3

Said: TypeAlias = tuple[list[SeenCard], list[tuple[bytes, int]]]
"""What entries said: cards; and ids of cards that were called back, with the entry that does it."""


def said_by(entries: Iterable[LogEntry | None], start: int) -> Said:
    """Return what entries say that matters to anybody here; the first is number ``start``."""
    cards: list[SeenCard] = []
    revoked: list[tuple[bytes, int]] = []
    for number, entry in enumerate(entries, start):
        match entry:
            case SignedCard(card=card):
                cards.append(SeenCard(number, card.id, card.handle, card.serial, card.ipk))
            case SignedRevocation(revocation=revocation):
                revoked.append((revocation.card_id, number))
            case _:
                pass
    return cards, revoked


@final
class LogHistory:
    """For one caller at a time: `ringline.client.keylog.KeyLog` sees to that.

    Methods raise `LogForked` when the relay contradicts what it showed before, `ConfigError` when what was
    seen cannot be kept, and `TransportError` or `HttpProblem` when the relay cannot be asked.
    """

    def __init__(self, home: Home, http: RelayHttp, clock: RelayClock, state: LogState, key: LogKey) -> None:
        """Go on from what ``state`` holds; ``key`` is the log's."""
        self.state = state
        self.key = key
        self.seen: Seen | None = state.seen()
        self.reader = LogReader(http)
        self._home = home
        self._address = http.address
        self._clock = clock

    async def refresh(self) -> Seen:
        """Fetch the present checkpoint and accept it, if it continues the one that was accepted before."""
        for _ in range(_TRIES):
            held = await asyncio.to_thread(self.state.seen)
            note = b""
            try:
                note = await self.reader.checkpoint()
                shown = self.reader.open(note, self.key)
                await self._check_continues(held, shown)
            except LogError as error:
                raise await self.forked(str(error), held, note) from error
            after = Seen(note, shown.size, shown.root, self._clock.own_ms())
            # False: another process has gone on meanwhile, and this was not compared with what it saw.
            if await asyncio.to_thread(self.state.advance, held, after):
                self.seen = after
                return after
        raise ConfigError(
            f"other processes of yours keep writing {self.state.path}", next_step="try again in a moment"
        )

    async def _check_continues(self, held: Seen | None, shown: Checkpoint) -> None:
        if held is None:
            return
        if shown.size < held.size:
            raise LogError(f"it had {held.size:,} entries and has {shown.size:,}")
        proof: list[bytes] = []
        if 0 < held.size < shown.size:
            proof = await self.reader.proof(consistency_spans(held.size, shown.size), shown.size)
        verify_consistency(held.size, held.root, shown.size, shown.root, proof)

    async def prove(self, card: SignedCard, index: int, seen: Seen) -> None:
        """Pass a card that is entry ``index`` under ``seen``. Raises `TrustError` ``log_unproven``."""
        handle = card.card.handle
        if index >= seen.size:
            raise unproven(handle, f"it is said to be entry {index} of a log that has {seen.size:,}")
        try:
            proof = await self.reader.proof(inclusion_spans(index, seen.size), seen.size)
            verify_inclusion(leaf_hash(encode_entry(card)), index, seen.size, proof, seen.root)
        except LogError as error:
            self.reader.forget()
            raise unproven(handle, f"entry {index} is not this card ({error})") from error
        await asyncio.to_thread(self.state.note_proved, card.card.id, index)

    async def read(self, seen: Seen) -> None:
        """Read the entries up to ``seen`` that were not read yet, the last ones only if they are many."""
        for _ in range(_TRIES):
            before = await asyncio.to_thread(self.state.read)
            if before.size >= seen.size:
                return
            start = max(before.size, seen.size - READ_AT_ONCE)
            try:
                frontier = before if start == before.size else await self.reader.frontier(start, seen.size)
                read = before.size
                cards, revoked = said_by(await self._proved(frontier, seen), start)
            except LogError as error:
                raise await self.forked(str(error), None, seen.note) from error
            # False: another process has read on meanwhile.
            if await asyncio.to_thread(self.state.note_entries, read, frontier, cards, revoked):
                return

    async def between(self, start: int, seen: Seen) -> list[LogEntry]:
        """Return the entries from ``start`` up to ``seen``, proved to be those of the log."""
        try:
            return await self._proved(await self.reader.frontier(start, seen.size), seen)
        except LogError as error:
            raise await self.forked(str(error), None, seen.note) from error

    async def _proved(self, frontier: Frontier, seen: Seen) -> list[LogEntry]:
        """Read from the frontier on and append to it; the root of ``seen`` proves what was read."""
        data = await self.reader.entries(Span(frontier.size, seen.size), seen.size)
        for entry in data:
            frontier.append(leaf_hash(entry))
        if frontier.root() != seen.root:
            raise LogError("the entries that the relay shows are not those of its log")
        return [decode_entry(entry) for entry in data]

    async def compare(self, told: View, seen: Seen) -> None:
        """Pass a view of somebody else's that is the same log as ``seen``. Raises `LogError` for another."""
        if told.size > seen.size:
            raise LogError(f"it has {told.size:,} entries there and {seen.size:,} here")
        proof: list[bytes] = []
        if 0 < told.size < seen.size:
            proof = await self.reader.proof(consistency_spans(told.size, seen.size), seen.size)
        verify_consistency(told.size, told.root, seen.size, seen.root, proof)

    async def forked(self, why: str, held: Seen | None, note: bytes) -> LogForked:
        """Keep what contradicts as evidence, once, and return the error that tells of it."""
        # What is in memory was not proved when it came.
        self.reader.forget()
        views = {} if held is None else {"seen before": View.of(held)}
        if note:
            views["shown now"] = _shown(note)
        error = forked(self._address, why, views or {"shown now": View(0, b"")}, self.state.path)
        return await self.keep(f"fork: {error}", error, views)

    async def keep(self, subject: str, error: LogForked, views: Mapping[str, View]) -> LogForked:
        """Write ``error`` and ``views`` down as evidence, and as an alarm, unless ``subject`` was before."""
        now = self._clock.own_ms()
        known = await asyncio.to_thread(self.state.alarm, subject)
        if known is None:
            evidence = await asyncio.to_thread(keep, self._home, self._address, error, views, now)
            await asyncio.to_thread(self.state.raise_alarm, subject, str(error), now, evidence)
        else:
            evidence = known.evidence
        error.evidence = evidence
        if evidence is not None:
            first, *more = str(error).split("\n")
            error.args = ("\n".join([first, *more[:-2], f"  evidence     {evidence}", *more[-2:]]),)
        return error


def _shown(note: bytes) -> View:
    """What a note says, whoever signed it: to be shown as evidence, and believed in nothing."""
    lines = note.decode("utf-8", "replace").split("\n")
    try:
        return View(int(lines[1]), base64.b64decode(lines[2]), note)
    except (IndexError, ValueError):
        return View(0, b"", note)
