"""Following a relay's key log, so that the relay cannot show one history here and another there.

Three things are demanded of the relay: that its log only grows, that a card which it shows is in the log,
and that the log says nothing else about the handle than the relay does. A fourth is asked of peers: that
they see the same log. And the owner of a handle is told of every card for it that he did not publish
(RL-LOG-005, RL-LOG-006, RL-LOG-009, RL-LOG-007).

Nothing here can make a relay honest. But it cannot lie to some and not to others for long without leaving
what it has signed in the hands of those it lied to.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar, final

import msgspec
from msgspec import UNSET, UnsetType

from ringline.client.clock import RelayClock
from ringline.client.home import Home
from ringline.client.http import RelayHttp
from ringline.client.logevidence import (
    View,
    contradicted,
    foreign_card,
    gone,
    other_key,
    revoked,
    unproven,
)
from ringline.client.loghistory import LogHistory
from ringline.client.logstate import KeySource, LogState, Seen, SeenCard
from ringline.protocol import bodies
from ringline.protocol.checkpoint import LogKey, log_origin
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import (
    ConfigError,
    EncodingError,
    LogError,
    LogForked,
    RinglineError,
    TrustError,
    WeakKey,
)
from ringline.protocol.fingerprint import fingerprint
from ringline.protocol.identity import SignedCard
from ringline.protocol.shapes import RelayInfo
from ringline.protocol.signing import PUBLIC_BYTES

__all__ = ["FRESH_MS", "KeyLog"]

FRESH_MS: Final = 600_000
"""For how long what the log said last is acted upon without asking again, in ms."""

_K = TypeVar("_K")
_V = TypeVar("_V")

_FEATURE: Final = "keylog"
_HEARD_EVERY_MS: Final = 60_000
_HEARD_KEPT: Final = 256


class _Gossip(msgspec.Struct, frozen=True):
    """The one member of a sealed body that matters here."""

    kt: bodies.Checkpoint | UnsetType = UNSET


_gossip: Final = msgspec.json.Decoder(_Gossip)


@final
class KeyLog:
    """The key log of one relay, as one identity follows it.

    Call `greet` with what the relay says of itself before anything else. Without a log at the relay, and
    without one that was seen before, every other method does nothing. ``note`` is told what the owner must
    hear, one line each.

    Methods raise `LogForked` when the relay contradicts what it showed before, `ConfigError` when what was
    seen cannot be kept, and `TransportError` or `HttpProblem` when the relay cannot be asked.
    """

    def __init__(
        self, home: Home, http: RelayHttp, clock: RelayClock, note: Callable[[str], None] | None = None
    ) -> None:
        """Nothing is read or fetched before `greet`."""
        self._home = home
        self._http = http
        self._address = http.address
        self._clock = clock
        self._note = note or _say_nothing
        self._path = home.keylog_file(self._address)
        self._state: LogState | None = None
        self._turn = asyncio.Lock()
        self._heard: dict[tuple[int, str], None] = {}
        self._heard_at: dict[str, int] = {}
        self.history: LogHistory | None = None
        """What is followed; None while there is no log."""

    @property
    def kt(self) -> bodies.Checkpoint | UnsetType:
        """What goes into sealed bodies, for peers to compare (RL-LOG-008)."""
        seen = None if self.history is None else self.history.seen
        return UNSET if seen is None else bodies.Checkpoint(size=seen.size, root=b64encode(seen.root))

    @property
    def vouched(self) -> bytes | None:
        """The key of the log that own contact strings and invites hand on; None in the development realm."""
        return None if self.history is None or self._address.is_local else self.history.key.public

    def close(self) -> None:
        """Let go of the file."""
        if self._state is not None:
            self._state.close()

    # --- whether there is a log, and under which key

    async def greet(self, info: RelayInfo, told: Iterable[bytes] = ()) -> None:
        """Begin to follow the log of a relay. ``told`` are keys of its log that contact strings or invites
        named.

        Raises `LogForked` when the relay has no log any more, or one under another key.
        """
        vouched = list(told)
        has = _FEATURE in info.features
        if not has and not vouched and not await asyncio.to_thread(self._path.exists):
            return
        shown = _key_of(info) if has else None
        state = self._state = await asyncio.to_thread(self._open)
        kept, seen = await asyncio.to_thread(state.key), await asyncio.to_thread(state.seen)
        if kept is not None and kept[0] != shown and self._address.is_local:
            # RL-LOG-010: but in realm localhost, where another relay may have been started.
            self._note(
                "another development relay answers here than before: what was seen of the key log of the "
                "former is forgotten"
            )
            await asyncio.to_thread(state.forget)
            kept = seen = None
        known = [*vouched, *([] if kept is None else [kept[0]])]
        if not has:
            if known:
                raise gone(self._address, seen, self._path)
            return
        for key in known:
            if key != shown:
                raise other_key(self._address, key, shown, self._path)
        if shown is None:
            raise LogForked(
                f"the relay at {self._address.base_url} names a key log and no key of it",
                next_step="ask the relay's operator",
            )
        try:
            log_key = LogKey(log_origin(self._address.realm), shown)
        except WeakKey:
            raise LogForked(
                f"the relay at {self._address.base_url} names a key of its log that must not be used: "
                "anybody can sign under it",
                next_step="ask the relay's operator",
            ) from None
        source: KeySource = "contact" if vouched else "relay"
        await asyncio.to_thread(state.pin_key, shown, source)
        self.history = await asyncio.to_thread(
            LogHistory, self._home, self._http, self._clock, state, log_key
        )

    def _open(self) -> LogState:
        self._home.make(self._path.parent)
        return self._state or LogState(self._path)

    # --- that it has the cards which the relay shows

    async def admit(self, card: SignedCard, log_index: int | UnsetType, *, current: bool) -> None:
        """Pass a card, verified before, that the relay shows as entry ``log_index`` of its log.

        ``current``: it is shown as the present card of its handle. Raises `TrustError` besides:
        ``log_unproven`` for a card that the log does not have, or has a later one beside; ``revoked`` for one
        that the log calls back, whatever the relay says of it.
        """
        history = self.history
        if history is None:
            return
        card_id, handle = card.card.id, card.card.handle
        async with self._turn:
            seen = history.seen
            proved = await asyncio.to_thread(history.state.proved, card_id)
            index = None if log_index is UNSET else log_index
            behind = index is None or seen is None or index >= seen.size
            if seen is None or not self._is_fresh(seen) or (behind and not proved):
                seen = await history.refresh()
            await self._read(history, seen)
            if not proved:
                if index is None:
                    index = await asyncio.to_thread(history.state.number_of, card_id)
                if index is None:
                    raise unproven(handle, "no entry is named for it, and none that was read is this card")
                await history.prove(card, index, seen)
            await asyncio.to_thread(self._check_said, history, card, current)

    def _check_said(self, history: LogHistory, card: SignedCard, current: bool) -> None:
        """Compare what the relay shows with what its log says."""
        self.check_revoked(card)
        mine = card.card
        rival = history.state.rival(mine.handle, mine.serial, mine.id) if current else None
        if rival is not None:
            raise unproven(
                mine.handle,
                f"it is card number {mine.serial}, and entry {rival.number} is another card, "
                f"number {rival.serial}",
            )

    def check_revoked(self, card: SignedCard) -> None:
        """Pass a card that no entry which was read calls back; asks nobody.

        Raises `TrustError` ``revoked``.
        """
        number = None if self.history is None else self.history.state.revoked_at(card.card.id)
        if number is not None:
            raise revoked(card.card.handle, number)

    def _is_fresh(self, seen: Seen) -> bool:
        return 0 <= self._clock.own_ms() - seen.at <= FRESH_MS

    async def confirm_revocation(self, card: SignedCard) -> None:
        """Pass when the log says that an own card was called back: to be asked after it was.

        Raises `LogForked` when the relay has taken the statement and its log does not have it.
        """
        history = self.history
        if history is None:
            return
        await self.read_new()
        if await asyncio.to_thread(history.state.revoked_at, card.card.id) is None:
            raise LogForked(
                f"the relay at {self._address.base_url} took the revocation of card {card.card.serial} of "
                f"{card.card.handle}, and its key log does not have it",
                still_true="The statement was made; whoever relies on the log alone does not hear of it.",
                next_step="tell your peers by another way, and ask the relay's operator why",
            )

    # --- what it says

    async def read_new(self) -> Seen | None:
        """Ask for the present checkpoint and read what is new. Returns the checkpoint, None without a log."""
        if self.history is None:
            return None
        async with self._turn:
            seen = await self.history.refresh()
            await self._read(self.history, seen)
            return seen

    async def _read(self, history: LogHistory, seen: Seen) -> None:
        await history.read(seen)
        # What is read is shared by all identities of this home, and each looks for its own handle.
        handle = self._http.account.handle
        cards, end = await asyncio.to_thread(history.state.unchecked, handle)
        for card in cards:
            await self._check_own(history, card)
        await asyncio.to_thread(history.state.note_checked, handle, end)

    async def check_all_own(self) -> None:
        """Look at every card of the own handle in the log, also at those that were looked at before."""
        if self.history is not None:
            rows, _ = await asyncio.to_thread(self.history.state.unchecked, self._http.account.handle, 0)
            for card in rows:
                await self._check_own(self.history, card)

    async def _check_own(self, history: LogHistory, card: SeenCard) -> None:
        """Alarm the owner of the own handle of a card for it that he did not publish."""
        account = self._http.account
        if card.card_id != account.card.card.id and card.serial >= account.card.card.serial:
            # Another process of this identity may have renewed its card.
            await asyncio.to_thread(account.refresh, self._clock.own_ms())
        own = account.card.card
        if card.card_id == own.id or card.serial < own.serial:
            # An earlier one: of this identity, or of the one that handed over to it.
            return
        why = (
            "you did not publish"
            if card.ipk != account.ipk
            else "is signed with your identity key and was not made on this computer"
        )
        text = foreign_card(card.handle, card.number, fingerprint(card.ipk), account.fingerprint, why)
        subject = f"card {b64encode(card.card_id)}"
        if await asyncio.to_thread(history.state.raise_alarm, subject, text, self._clock.own_ms()):
            self._tell(text)

    async def watch(self, every_s: float) -> None:
        """Read what is new every ``every_s`` seconds, for ever. What contradicts is told, once each."""
        told = ""
        while True:
            try:
                await self.read_new()
            except (TrustError, ConfigError) as error:
                if str(error) != told:
                    told = str(error)
                    self._tell(_sentences(error))
            except RinglineError:
                # The relay is away: what it shows when it is back has to continue this.
                pass
            await asyncio.sleep(every_s)

    # --- that peers see the same

    async def heard(self, handle: str, body: bytes) -> None:
        """Compare the view of the log that a peer has sealed into ``body``, opened JSON, with the own one.

        What contradicts is kept as evidence and told to the owner; nothing is raised for it, because a
        peer can say anything. A view is compared once, and of each peer one a minute.
        """
        history = self.history
        told = None if history is None else _view(body)
        now = self._clock.own_ms()
        if history is None or told is None or not self._is_news(handle, told, now):
            return
        self._heard_at[handle] = now
        try:
            await self._compare(history, handle, told)
        except (TrustError, ConfigError) as error:
            self._tell(_sentences(error))
        except RinglineError:
            # The relay is away; the next time that the two speak, they compare what there is then.
            pass

    async def _compare(self, history: LogHistory, handle: str, told: View) -> None:
        async with self._turn:
            seen = history.seen
            if seen is None or told.size > seen.size:
                seen = await history.refresh()
            try:
                await history.compare(told, seen)
            except LogError as error:
                await self._contradicted(history, handle, told, seen, str(error))
                return
            self._heard[told.size, b64encode(told.root)] = None
            _trim(self._heard)
            _trim(self._heard_at)

    def _is_news(self, handle: str, told: View, now: int) -> bool:
        if (told.size, b64encode(told.root)) in self._heard:
            return False
        last = self._heard_at.get(handle)
        return last is None or not 0 <= now - last < _HEARD_EVERY_MS

    async def _contradicted(self, history: LogHistory, handle: str, told: View, seen: Seen, why: str) -> None:
        subject = f"peer {handle}: {told}"
        if await asyncio.to_thread(history.state.alarm, subject) is None:
            views = {f"told by {handle}": told, "shown here": View.of(seen)}
            error = contradicted(self._address, handle, why, views)
            self._tell(_sentences(await history.keep(subject, error, views)))

    def _tell(self, text: str) -> None:
        """Tell the owner, line by line."""
        for line in text.split("\n"):
            self._note(line)


def _trim(kept: dict[_K, _V]) -> None:
    while len(kept) > _HEARD_KEPT:
        kept.pop(next(iter(kept)))


def _view(body: bytes) -> View | None:
    """The view of the log in a sealed body, None when there is none that can be read."""
    try:
        told = _gossip.decode(body).kt
        return None if told is UNSET else View(told.size, b64decode(told.root))
    except (msgspec.MsgspecError, EncodingError, RecursionError, ValueError):
        return None


def _sentences(error: RinglineError) -> str:
    parts = [str(error), error.still_true, error.next_step and f"Next: {error.next_step}"]
    return "\n  ".join(part for part in parts if part)


def _key_of(info: RelayInfo) -> bytes | None:
    if info.log_key is UNSET:
        return None
    try:
        return b64decode(info.log_key, length=PUBLIC_BYTES)
    except EncodingError:
        return None


def _say_nothing(text: str) -> None:
    del text
