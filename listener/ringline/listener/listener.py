"""`Listener`: serve a handle from Python.

::

    from ringline.listener import Call, Listener

    listener = Listener("reviewer")

    @listener.answer
    def greet(call: Call) -> str:
        return f"Hello {call.caller}, you wrote {len(call.message.split())} words."

    @listener.task
    async def review(call: Call, strict: bool = False) -> dict:
        \"\"\"Review the unified diff that is the message.\"\"\"
        return {"findings": await lint(call.message, strict), "for": call.caller}

    listener.run()

`Listener.answer` serves calls that name no task, `Listener.task` those that name this one; its further
parameters come from the call's ``args``. A text is the reply as it is; any other JSON value is its
``value``, and its text the JSON of it.
"""

import asyncio
import contextlib
import functools
import logging
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Collection
from pathlib import Path
from typing import Any, Final, final

from ringline.client import (
    Account,
    Contacts,
    Home,
    KeyLog,
    Passphrase,
    Peers,
    RelayClock,
    RelayHttp,
    meant_relay,
)
from ringline.client.clock import wall_ms
from ringline.client.inbox import Inbox
from ringline.client.invitations import Invitations
from ringline.listener.access import Access
from ringline.listener.catalogue import Catalogue
from ringline.listener.functions import Place
from ringline.listener.journal import Journal
from ringline.listener.offering import Offering
from ringline.listener.reception import Reception
from ringline.listener.service import Service, ServiceOptions
from ringline.listener.serving import Serving, callers, describe, let_in
from ringline.listener.waiting import WaitingRoom
from ringline.protocol.errors import ConfigError, RinglineError
from ringline.protocol.limits import WORK_BOUND_MAX_MS, WORK_BOUND_MS
from ringline.protocol.names import HANDLE_RULE, is_handle

__all__ = ["Listener"]

_log: Final = logging.getLogger(__name__)
_CAPACITY_MAX: Final = 1_000


@final
class Listener(Offering):
    """Serves one handle at one relay.

    Handlers run in the event loop of `serve` (async ones) or in threads (plain ones); the connection lives
    in a thread of its own, so that no handler can hold up pings or cancellations. A call is run at most
    once, whatever crashes (RL-IDEM-016).
    """

    def __init__(
        self,
        name: str,
        *,
        relay: str | None = None,
        realm: str | None = None,
        home: Home | Path | None = None,
        allow: Collection[str] | None = None,
        block: Collection[str] = (),
        trust_new: bool | None = None,
        capacity: int = 8,
        timeout: float = WORK_BOUND_MS / 1_000,
        drain: float = 30.0,
        journal: bool = True,
        offline: bool = False,
        passphrase: Passphrase | None = None,
        plain: bool | None = None,
        hold: bool = False,
        expose_errors: bool = False,
        note: Callable[[str], None] | None = None,
        on_ready: Callable[[Serving], None] | None = None,
    ) -> None:
        """Describe the listener; nothing is read, written or sent before `serve`.

        Args:
            name: the handle; its identity is made on first use.
            relay: base URL; None: ``RINGLINE_RELAY``, else the first relay that this person was invited to,
                else the development one. ``realm`` is by default ``localhost`` on loopback, else the URL's
                host.
            home: the state folder, or its path; by default `Home.default`.
            allow: handles or contact strings of those who may call. None: anyone on realm ``localhost``,
                nobody elsewhere.
            block: handles that may not, whatever ``allow`` says.
            trust_new: pin the first key seen of an allowed handle; by default on realm ``localhost`` only.
            capacity: messages that are worked on at once, 1 to 1,000.
            timeout: seconds for one message, at most 350 (RL-SYNC-015).
            drain: seconds for running calls when it is told to stop.
            journal: False keeps the journal in memory: then no durable calls, and none in the first two
                minutes (RL-TRANSPORT-019, RL-IDEM-028).
            offline: have the relay keep durable calls while nobody listens. It stays on at the relay; False
                leaves it as it is.
            hold: have durable calls of strangers, and of tasks that were not granted, wait in an inbox for
                the owner's word (``ringline inbox``), as many as half of ``capacity``; False refuses them.
            passphrase, plain: how the key files of a new identity are protected; see `Account.create`.
            expose_errors: send the text of any exception of a handler to the caller.
            note: told what the owner should know, one line each; handles, ids and local error texts.
            on_ready: told once, when the first connection stands.

        Raises:
            ConfigError: a value is out of bounds or malformed.
        """
        self._home = Home(home) if isinstance(home, Path) else home
        self.address = meant_relay(relay, realm, self._home or Home.default())
        if not is_handle(name):
            raise ConfigError(
                f"{name!r} is not a handle: {HANDLE_RULE}",
                next_step="choose another name",
            )
        if not 1 <= capacity <= _CAPACITY_MAX:
            raise ConfigError(f"the number of calls at once is 1 to {_CAPACITY_MAX:,}, not {capacity}")
        if not 0 < timeout * 1_000 <= WORK_BOUND_MAX_MS:
            raise ConfigError(
                f"the time for one call is at most {WORK_BOUND_MAX_MS // 1_000} seconds, not {timeout:g}",
                next_step="choose a shorter timeout; the relay itself waits no longer than six minutes",
            )
        if (offline or hold) and not journal:
            raise ConfigError(
                "durable calls need a journal on disk: they must not run twice after a crash",
                next_step="keep the journal, or leave the mailbox and the inbox off",
            )
        self.name = name
        contacts, handles = callers(allow)
        self._contacts = contacts
        open_to_all = allow is None and self.address.is_local
        self.access = Access(None if open_to_all else handles, frozenset(block))
        super().__init__(Catalogue(self.access))
        self._trust_new = trust_new
        self.service_options = ServiceOptions(
            capacity=capacity, bound_ms=int(timeout * 1_000), drain_s=drain, expose_errors=expose_errors
        )
        self._journal = journal
        self._offline = offline
        self._hold = hold
        self._passphrase = passphrase
        self._plain = plain
        self._note = note or _say_nothing
        self._on_ready = on_ready
        self._lock = threading.Lock()
        self._wire: tuple[asyncio.AbstractEventLoop, Service] | None = None
        self._serving = False
        self._stops = 0
        self._account: tuple[Account, bool] | None = None

    # --- serving

    async def serve(self) -> None:
        """Serve until `stop` is called, or cancelled, which stops at once.

        Raises:
            ConfigError: identity, journal or contacts cannot be used; the relay is of another realm.
            HttpProblem: the relay refuses this identity, e.g. its handle is taken.
            TransportError: the relay cannot be reached at the start, or another process took its place.
            TrustError: this identity's keys were revoked.
        """
        with self._lock:
            if self._serving:
                raise ConfigError("this listener is serving already")
            self._serving, self._stops = True, 0
        try:
            # Here and not beside the connection: it may have to ask a person for a passphrase.
            opened = self._account or self._open()
        except BaseException:
            self._serving = False
            raise
        self._account = None
        place = Place.here()
        loop = place.loop
        done: asyncio.Future[None] = loop.create_future()

        def settle(error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def body() -> None:
            error: BaseException | None = None
            try:
                asyncio.run(self._work(place, opened))
            except BaseException as caught:  # told where it can be raised
                error = caught
            with contextlib.suppress(RuntimeError):  # nobody waits any more
                loop.call_soon_threadsafe(settle, error)

        thread = threading.Thread(target=body, name=f"ringline {self.name}", daemon=True)
        thread.start()
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            self.stop()
            self.stop()
            # Calls are answered before it ends; their handlers are in this loop, so it must run on.
            with contextlib.suppress(RinglineError):
                await done
            raise
        finally:
            self._serving = False

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator[Serving]:
        """Serve within a block: it is entered when calls can come, and stops serving when it is left.

        Raises as `serve`.
        """
        ready: asyncio.Future[Serving] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()
        told = self._on_ready

        def settle(serving: Serving) -> None:
            if not ready.done():
                ready.set_result(serving)

        def tell(serving: Serving) -> None:
            if told is not None:
                told(serving)
            loop.call_soon_threadsafe(settle, serving)

        self._on_ready = tell
        task = loop.create_task(self.serve())
        try:
            either: list[asyncio.Future[Any]] = [task, ready]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                await task
                raise ConfigError("the listener was stopped before it was ready")
            yield ready.result()
            self.stop()
            await task
        finally:
            self._on_ready = told
            ready.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def run(self) -> None:
        """Serve in an event loop of its own until SIGINT, SIGTERM or SIGHUP.

        The first one drains: no more calls are taken, running ones are finished. The second stops now, and
        what runs is reported as indeterminate. Raises as `serve`. That calls can come is logged at INFO.
        """

        async def main() -> None:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self.stop)
            await self.serve()

        try:
            # Before signals are taken over: whoever is asked for a passphrase can still press Ctrl-C.
            self._account = self._open()
            asyncio.run(main())
        except RinglineError as error:
            # It says all there is to know: its way through threads and loops is noise on a terminal.
            raise error.with_traceback(None) from None

    def stop(self) -> None:
        """Stop serving, from any thread: the first call drains, the second stops now."""
        with self._lock:
            self._stops += 1
            wire = self._wire
        if wire is not None:
            with contextlib.suppress(RuntimeError):  # it has ended meanwhile
                wire[0].call_soon_threadsafe(wire[1].stop)

    def _open(self) -> tuple[Account, bool]:
        """Load the identity, or make it; whether it is new."""
        return Account.open(
            self._home or Home.default(),
            self.address,
            self.name,
            wall_ms(),
            passphrase=self._passphrase,
            plain=self._plain,
        )

    async def _work(self, place: Place, opened: tuple[Account, bool]) -> None:
        """What the connection's own thread does."""
        home = self._home or Home.default()
        clock = RelayClock(warn=self._note)
        account, is_new = opened
        http = RelayHttp(self.address, account, clock)
        contacts = Contacts(home, home.contacts_file(self.address))
        log = KeyLog(home, http, clock, self._note)
        peers = Peers(
            self.address, http, contacts, clock, trust_new=self._trust_new, note=self._note, log=log
        )
        for contact in self._contacts:
            peers.add(contact)
        self.access.contacts = functools.partial(contacts.pin, self.address.realm)
        reception = Reception(Invitations(home, account, http, contacts), self._note)
        room: WaitingRoom | None = None
        if self._hold:
            most = max(1, self.service_options.capacity // 2)
            room = WaitingRoom(Inbox(home, account), most=most, now=clock.own_ms, note=self._note)
            self.access.approved = room.approves
        path = home.journal_file(self.address, self.name) if self._journal else None
        with contextlib.closing(log), Journal(path) as journal:
            told = [contact.log for contact in self._contacts if contact.log is not None]
            await log.greet(await http.info(), told)
            await http.publish()
            wanted = self.access.allow or frozenset[str]()
            await let_in(http, wanted, offline=self._offline, note=self._note)
            await reception.meet()
            serving = describe(
                account,
                is_new=is_new,
                tasks=self.catalogue.ids,
                access=self.access,
                contacts=contacts,
                log_key=log.vouched,
            )

            def ready() -> None:
                _log.info("listening as %s at %s", serving.handle, serving.relay)
                if self._on_ready is not None:
                    self._on_ready(serving)

            service = Service(
                account,
                http,
                peers,
                clock,
                journal,
                self.catalogue,
                self.service_options,
                place=place,
                note=self._note,
                ready=ready,
                reception=reception,
                room=room,
                log=log,
            )
            self.access.keep_charges(journal, clock.own_ms)
            with self._lock:
                self._wire = (asyncio.get_running_loop(), service)
                stops = self._stops
            for _ in range(stops):
                service.stop()
            try:
                await service.run()
            finally:
                self.access.keep_charges(None, clock.own_ms)
                with self._lock:
                    self._wire = None


def _say_nothing(text: str) -> None:
    del text
