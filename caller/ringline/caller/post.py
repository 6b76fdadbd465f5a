"""What all calls of one caller share: identity, relay, peers, outbox and lines."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, ParamSpec, TypeVar, final

from msgspec import UnsetType

from ringline.caller.ends import forged
from ringline.caller.line import IDLE_S, Line
from ringline.caller.outbox import Outbox, Stored
from ringline.caller.receipt import Receipt
from ringline.caller.sealing import open_answer
from ringline.client import (
    Account,
    Background,
    Contacts,
    Home,
    KeyLog,
    Passphrase,
    Peers,
    RelayAddress,
    RelayClock,
    RelayHttp,
)
from ringline.client.expiry import news
from ringline.protocol.bodies import Checkpoint
from ringline.protocol.contact import Contact
from ringline.protocol.encoding import b64decode
from ringline.protocol.errors import CannotOpen, ConfigError, HttpProblem, RinglineError, TransportError
from ringline.protocol.frames import CallOutcome
from ringline.protocol.identity import SignedCard

__all__ = ["Post", "PostOptions"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_LINES_MAX: Final = 64
_COMPARE_S: Final = 5.0
_SIGNER_TRIES: Final = 3
_SIGNER_PAUSE_S: Final = 1.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PostOptions:
    """How a caller is set up; the fields are those of `AsyncCaller`."""

    address: RelayAddress
    home: Home
    handle: str | None
    passphrase: Passphrase | None
    plain: bool | None
    trust_new: bool | None
    min_suite: int
    contacts: tuple[Contact, ...]
    note: Callable[[str], None]
    idle_s: float = IDLE_S


@final
class Post:
    """Open one with `open`, and close it."""

    def __init__(
        self,
        options: PostOptions,
        account: Account,
        http: RelayHttp,
        peers: Peers,
        clock: RelayClock,
        outbox: Outbox,
        store: ThreadPoolExecutor,
        log: KeyLog,
    ) -> None:
        """For `open`."""
        self.address = options.address
        self.account = account
        self.http = http
        self.peers = peers
        self.clock = clock
        self.outbox = outbox
        self.note = options.note
        self._idle_s = options.idle_s
        self._store = store
        self._lines: dict[str, Line] = {}
        self._retired = Background("the close of a connection")
        self._storing = Background("a write to the outbox")
        self._log = log
        self._comparing = Background("a comparison of key logs")
        self._closed = False

    @classmethod
    async def open(cls, options: PostOptions) -> "Post":
        """Load or make the identity, greet the relay, publish the keys if that was never done.

        Raises `ConfigError`, `TransportError` or `HttpProblem`; nothing was sealed then.
        """
        clock = RelayClock(warn=options.note)
        account = await asyncio.to_thread(_account, options, clock.own_ms())
        http = RelayHttp(options.address, account, clock)
        log = KeyLog(options.home, http, clock, options.note)
        try:
            told = [contact.log for contact in options.contacts if contact.log is not None]
            await log.greet(await http.info(), told)
            return await cls._open(options, account, http, clock, log)
        except BaseException:
            log.close()
            raise

    @classmethod
    async def _open(
        cls, options: PostOptions, account: Account, http: RelayHttp, clock: RelayClock, log: KeyLog
    ) -> "Post":
        contacts = Contacts(options.home, options.home.contacts_file(options.address))
        peers = Peers(
            options.address,
            http,
            contacts,
            clock,
            trust_new=options.trust_new,
            min_suite=options.min_suite,
            note=options.note,
            log=log,
        )
        for contact in options.contacts:
            # In a thread: another process may hold the lock of the file.
            await asyncio.to_thread(peers.add, contact)
        if not account.was_published:
            await http.publish()
        elif account.rotation_due(clock.own_ms()):
            # Nobody calls a caller, as a rule; so this is for the next day's sake and may fail.
            with contextlib.suppress(HttpProblem):
                await http.publish_prekeys()
        # One thread for the outbox: it is used from one thread at a time, and commits do not block the loop.
        store = ThreadPoolExecutor(1, thread_name_prefix="ringline-outbox")
        path = options.home.outbox_file(options.address, account.handle)
        try:
            outbox = await asyncio.get_running_loop().run_in_executor(
                store, _outbox, options.home, path, clock
            )
        except BaseException:
            store.shutdown(wait=False)
            raise
        return cls(options, account, http, peers, clock, outbox, store, log)

    async def close(self) -> None:
        """Close every connection and the outbox, once. Calls under way end as lost."""
        lines, self._lines = list(self._lines.values()), {}
        for line in lines:
            self._retired.start(line.close())
        try:
            await self._retired.wait()
            await self._storing.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_COMPARE_S):
                    await self._comparing.wait()
            await self._comparing.close()
            await self.stored(self.outbox.close)
        finally:
            self._closed = True
            self._store.shutdown(wait=True)
            self._log.close()

    @property
    def kt(self) -> Checkpoint | UnsetType:
        """This side's view of the relay's key log, for what is sealed."""
        return self._log.kt

    def line(self, callee: str) -> Line:
        """Return the line to a callee, a new one if there is none that takes calls. Raises `ConfigError`."""
        self._check_open()
        line = self._lines.get(callee)
        if line is None or line.dead:
            self._make_room()
            line = Line(self.http, callee, self.clock, idle_s=self._idle_s)
            self._lines[callee] = line
        return line

    async def stored(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a method of the outbox in its thread. Raises `ConfigError` as it does, or when closed."""
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._store, lambda: work(*args, **kwargs))

    def store_soon(self, work: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Run a method of the outbox in its thread, after what was asked before.

        Nobody waits for it: a call goes on without it, and only a later process misses what was not kept.
        """
        if self._closed:
            return
        running = asyncio.get_running_loop().run_in_executor(self._store, lambda: work(*args, **kwargs))
        self._storing.start(self._stored_later(running))

    async def _stored_later(self, running: "asyncio.Future[object]") -> None:
        try:
            await running
        except ConfigError as error:
            self.note(f"what became of a call was not kept: {error}")

    async def keep(self, stored: Stored, frame: CallOutcome) -> Receipt:
        """Open the outcome of a kept call, keep it, and return what is kept.

        Raises `CannotOpen` for one that the callee has not sealed for this call; `TrustError` ``revoked``
        when its signer has revoked the key; `TransportError`, `HttpProblem` or `ConfigError` when it could
        not be checked, which says nothing against it.
        """
        try:
            card = await self._signer(stored.callee, b64decode(frame.envelope.sid), stored.to_ipk)
        except RinglineError as error:
            if forged(error):
                raise CannotOpen("signer") from error
            raise
        receipt = open_answer(
            stored,
            frame,
            realm=self.address.realm,
            own_handle=self.account.handle,
            card=card,
            now_ms=self.clock.own_ms(),
        )
        # Nobody waits for it: the reply is the callee's, whatever the relay shows to whom.
        self._comparing.start(self._log.heard(stored.callee, receipt.body))
        try:
            return await self.stored(self.outbox.answered, stored.callee, stored.message_id, receipt)
        except ConfigError as error:
            # The reply is good; only its receipt is not on disk, and the one-time key still is.
            self.note(f"the receipt was not kept: {error}")
        return receipt

    async def _signer(self, callee: str, card_id: bytes, ipk: bytes) -> SignedCard:
        """The card that signed. A relay that cannot tell it at once is asked again: the outcome is here."""
        for _ in range(_SIGNER_TRIES - 1):
            try:
                return await self.peers.signer(callee, card_id, ipk)
            except (TransportError, HttpProblem):
                await asyncio.sleep(_SIGNER_PAUSE_S)
        return await self.peers.signer(callee, card_id, ipk)

    def deadline(self, timeout_s: float) -> int:
        """Return the end of a wait from now, monotonic ms as the lines count them."""
        return int((time.monotonic() + timeout_s) * 1_000)

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError("this caller is closed", next_step="make a new one")

    def _make_room(self) -> None:
        """Keep the number of connections bounded: those without calls go, oldest first."""
        for callee, line in list(self._lines.items()):
            if line.dead:
                del self._lines[callee]
        for callee, line in list(self._lines.items()):
            if len(self._lines) < _LINES_MAX:
                return
            if line.session.idle:
                del self._lines[callee]
                self._retired.start(line.close())


def _outbox(home: Home, path: Path, clock: RelayClock) -> Outbox:
    outbox = Outbox(home, path)
    outbox.purge(clock.own_ms())
    return outbox


def _account(options: PostOptions, now_ms: int) -> Account:
    handle = options.handle or options.home.default_handle(options.address)
    account, new = Account.open(
        options.home,
        options.address,
        handle,
        now_ms,
        passphrase=options.passphrase,
        plain=options.plain,
    )
    if new:
        options.note(f"new identity {handle} at {options.address.base_url}: {account.fingerprint}")
    if account.renewal_due(now_ms):
        # Without the identity key it fails. The card still holds, and its owner is warned in time.
        with contextlib.suppress(ConfigError):
            account.renew(now_ms, options.passphrase)
    for warning in news(account, now_ms):
        options.note(warning)
    return account
