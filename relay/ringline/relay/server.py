"""The relay as a process: one port, one event loop, from start to drain.

Everything that knows sockets, clocks or signals is composed here; the rules are in the modules it composes.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from importlib.metadata import version
from types import TracebackType
from typing import Final, cast, final

from msgspec import UNSET
from starlette.applications import Starlette
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from ringline.protocol import shapes
from ringline.protocol.checkpoint import LogKey
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import ConfigError
from ringline.protocol.faults import fault_points
from ringline.protocol.instant import Instant
from ringline.protocol.limits import SUBPROTOCOL
from ringline.protocol.names import is_loopback
from ringline.protocol.signing import SigningKey
from ringline.protocol.suites import SUITES
from ringline.relay.auth import Authenticator
from ringline.relay.directory import Decision, Directory
from ringline.relay.doorkeeper import Doorkeeper
from ringline.relay.draws import Draws
from ringline.relay.edge import EDGES, EdgeLimits, edge_factory, port_factory
from ringline.relay.enrolment import Enrolment
from ringline.relay.entrance import LOOPBACK_NAMES, Entrance
from ringline.relay.gate import RelayGate, features
from ringline.relay.http import Routes
from ringline.relay.hub import Hub
from ringline.relay.invites import Minted
from ringline.relay.keylog import KeyLog
from ringline.relay.options import DEFAULT_PORT, DEVELOPMENT, RelayOptions
from ringline.relay.ports import BACKLOG, listen, url_of
from ringline.relay.registry import Registry
from ringline.relay.settings import Settings
from ringline.relay.sqlite import MEMORY, SqliteStore
from ringline.relay.sqlite_calls import SqliteCalls
from ringline.relay.store import StoreError
from ringline.relay.strangers import Strangers, networks
from ringline.relay.switchboard import Switchboard
from ringline.relay.telemetry import Telemetry, log_fault
from ringline.relay.tickets import Tickets

__all__ = ["RelayServer", "run", "run_dev"]

logger: Final = logging.getLogger("ringline.relay")

_DATE_EVERY_S: Final = 1.0
_CUT_OFF_S: Final = 1.0
_LOOK_EVERY_S: Final = 0.005


@final
class RelayServer:
    """A relay that runs within ``async with``; leaving it stops the relay at once.

    Use::

        async with RelayServer(RelayOptions(port=0)) as relay:
            print(relay.url)

    Entering raises `ConfigError`: a busy port, a database that cannot be used, an unknown edge.
    """

    def __init__(self, options: RelayOptions | None = None) -> None:
        self.options = options or RelayOptions()
        self.port = self.options.port
        """The port that is listened on, once the relay runs."""
        self.admin_url: str | None = None
        """The base URL of the listener for whoever runs it, once the relay runs; None without one."""
        self._draining = False
        self._log: KeyLog | None = None

    @property
    def url(self) -> str:
        """The base URL of its HTTP interface."""
        return url_of("http" if self.options.tls is None else "https", self.options.host, self.port)

    @property
    def ws_url(self) -> str:
        """The base URL of its WebSockets."""
        return self.url.replace("http", "ws", 1)

    @property
    def log_key(self) -> LogKey | None:
        """The key that signs the key log, for operators to hand out; None without one, and before it runs."""
        return None if self._log is None else self._log.key

    @property
    def realm(self) -> str:
        """The realm it serves."""
        return self.options.realm

    async def __aenter__(self) -> "RelayServer":
        options = self.options
        options.check()
        async with contextlib.AsyncExitStack() as stack:
            kind = "dev" if options.is_development else "serve"
            listening = stack.enter_context(
                listen(options.host, options.port, again=f"ringline relay {kind} --port ")
            )
            self.port = listening.getsockname()[1]
            looking = None
            if options.admin_listen is not None:
                host, port = options.admin_listen
                place = url_of("", host, 0).removeprefix("://").removesuffix("0")
                looking = stack.enter_context(
                    listen(host, port, again=f"ringline relay serve --admin-listen {place}")
                )
                self.admin_url = url_of("http", host, looking.getsockname()[1])
            self._compose(options)
            stack.push_async_callback(self._registry.close)
            stack.callback(self._calls.close)
            await self._serve(options, listening, looking)
            stack.pop_all()
        logger.info("relay started on port %d, edge %s", self.port, options.edge)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _compose(self, options: RelayOptions) -> None:
        settings, started = options.settings, options.clock()
        local = options.is_development
        strangers = Strangers(
            failures=settings.failed_logins_per_minute,
            claims=settings.claims_per_minute,
            trusted=networks(options.trusted_proxies),
        )
        path = options.db or MEMORY
        store = SqliteStore(path, realm=options.realm)
        try:
            # Without a file it would be a new log at every start, which clients take for a lie.
            log = self._log = None if options.db is None else KeyLog(options.realm, _log_key(store))
            directory = Directory(
                options.realm,
                accept="anyone" if local else "listed",
                invites=settings.invites,
                log=log,
            )
            self._registry = Registry(directory, store, blocking=path != MEMORY)
            if options.admin is not None and directory.is_removed(options.admin):
                # An invite for it could never be taken up.
                raise ConfigError(
                    f"the identity of the administrator {options.admin} was removed, and nobody gets its "
                    "handle again",
                    next_step="name another, enrolled or not: --admin HANDLE",
                )
        except ConfigError:
            store.close()
            raise
        self.enrolment = Enrolment(directory, is_open=options.is_open, admin=options.admin)
        try:
            self._calls = SqliteCalls(path, now=lambda: options.clock().wall)
            self.hub = self._open_calls(self._calls, settings, directory, started)
        except ConfigError:
            store.close()
            raise
        directory.met = self.hub.parties
        self.telemetry = Telemetry(self.hub.snapshot, self._calls.snapshot)
        self._board = Switchboard(
            self.hub, directory, options.clock, self.telemetry, warning=lambda: self._calls.trouble
        )
        authenticator = Authenticator(directory, started)
        tickets = Tickets(lambda: secrets.token_urlsafe(32))
        own_only = is_loopback(options.host) and not options.behind_proxy
        names = (*LOOPBACK_NAMES, options.host) if own_only else None
        self._entrance = Entrance(origins=options.origins, names=names)
        self._gate = RelayGate(
            entrance=self._entrance,
            authenticator=authenticator,
            directory=directory,
            tickets=tickets,
            board=self._board,
            settings=settings,
            strangers=strangers,
        )
        self._strangers = strangers
        self._routes = Routes(
            info=_info(options, started.wall, log),
            registry=self._registry,
            authenticator=authenticator,
            tickets=tickets,
            board=self._board,
            settings=settings,
            enrolment=self.enrolment,
            strangers=strangers,
            mint=_mint_invite,
            draw=secrets.randbelow,
            shows_itself=local,
        )

    async def invite_admin(self, ttl_s: int) -> shapes.InviteMade | None:
        """Make the invite by which the administrator takes his handle, in the place of earlier ones.

        Returns None when there is no administrator, or he has enrolled. Raises `HttpProblem` when it cannot
        be stored.
        """
        directory, admin = self._registry.directory, self.options.admin
        if admin is None or directory.is_enrolled(admin):
            return None
        now, minted = self.options.clock(), _mint_invite()
        await self._registry.commit(
            lambda: Decision(directory.invites.reserve(admin, minted, ttl_s, now), created=True)
        )
        return shapes.InviteMade(id=minted.id, invite=minted.text, expires_at=now.wall + ttl_s * 1_000)

    def _open_calls(
        self, calls: SqliteCalls, settings: Settings, directory: Directory, started: Instant
    ) -> Hub:
        """Take up the stored calls, and mend what a crash left behind."""
        try:
            for mended in calls.repair():
                logger.warning("the stored calls were mended: %s", mended)
            draws = Draws()
            return Hub(
                settings,
                directory,
                draws.call_id,
                started,
                store=calls,
                lease_ids=draws.uuid,
                reach=fault_points(os.environ),
            )
        except StoreError as error:
            calls.close()
            raise ConfigError(
                f"the stored calls cannot be read: {error}",
                next_step="restore the database from a copy, or name another file with --db",
            ) from None

    async def _serve(
        self, options: RelayOptions, listening: socket.socket, looking: socket.socket | None
    ) -> None:
        settings = options.settings
        bounds = options.edge_limits or EdgeLimits(
            max_buffered=settings.max_buffered_bytes,
            ping_interval=settings.ping_interval_ms / 1000,
            ping_timeout=settings.ping_timeout_ms / 1000,
        )
        self._state = ServerState()
        self._clock = options.clock
        self._date_timer: asyncio.TimerHandle | None = None
        self._tell_date()
        edge = edge_factory(options.edge, self._gate, bounds)
        app = self._guarded(self._routes.app(), self._entrance, self._strangers)
        self._servers = [await self._open(app, listening, bounds, edge, options.tls)]
        if looking is not None and options.admin_listen is not None:
            names = (
                (*LOOPBACK_NAMES, options.admin_listen[0]) if is_loopback(options.admin_listen[0]) else None
            )
            # Nobody logs in here, so there is no budget for it.
            nobody = Strangers(failures=0, claims=0)
            app = self._guarded(self._routes.lookout.app(), Entrance(names=names), nobody)
            self._servers.append(await self._open(app, looking, bounds, None, None))

    def _guarded(self, app: Starlette, entrance: Entrance, strangers: Strangers) -> Doorkeeper:
        release_s = self.options.settings.unknown_handle_release_ms / 1000
        return Doorkeeper(app, entrance, self.telemetry, strangers, self.options.clock, release_s=release_s)

    async def _open(
        self,
        app: Doorkeeper,
        listening: socket.socket,
        bounds: EdgeLimits,
        edge: type[asyncio.Protocol] | None,
        tls: ssl.SSLContext | None,
    ) -> asyncio.Server:
        """Serve an application on a socket; without an ``edge`` it has no WebSockets."""
        config = Config(
            app,
            http=port_factory(bounds),
            ws="none" if edge is None else edge,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
        )
        config.load()

        def protocol() -> asyncio.Protocol:
            # uvicorn's server polls for its end ten times a second; its protocols need only this much.
            make = cast("Callable[..., HttpToolsProtocol]", config.http_protocol_class)
            port = make(config=config, server_state=self._state, app_state={})
            # Else a handler of the root logger switches it on, and a ticket in a URL is logged.
            port.access_log = False
            return port

        return await asyncio.get_running_loop().create_server(
            protocol, sock=listening, backlog=BACKLOG, ssl=tls
        )

    def _tell_date(self) -> None:
        """Keep the ``Date`` of every answer true: clients correct their clocks by it (RL-AUTH-022)."""
        date = formatdate(self._clock().wall / 1000, usegmt=True)
        self._state.default_headers = [(b"date", date.encode())]
        self._date_timer = asyncio.get_running_loop().call_later(_DATE_EVERY_S, self._tell_date)

    # --- the end

    async def drain(self) -> None:
        """Take no new calls, and return when the running ones have ended or had their time.

        Connections are closed with 1001 as they become idle, and at the latest when the time is over
        (RL-TRANSPORT-038). The port stays open for those who wait for the end of a call.
        """
        if self._draining:
            return
        self._draining = True
        self._gate.open = False
        self._routes.stopping = True
        await self._board.drain()

    async def stop(self) -> None:
        """Close every connection with 1001; let go of the port and the store."""
        if any(server.is_serving() for server in self._servers):
            logger.info("relay stops")
        self._gate.open = False
        self._routes.stopping = True
        for server in self._servers:
            server.close()
        self._board.release_waiters()
        for connection in list(self._state.connections):
            connection.shutdown()
        await self._all_closed()
        self._board.stop()
        if self._date_timer is not None:
            self._date_timer.cancel()
        for server in self._servers:
            await server.wait_closed()
        self._calls.close()
        await self._registry.close()

    async def _all_closed(self) -> None:
        """Wait until clients have answered and hung up; who does not in time is cut off."""
        if await self._closed_within(self.options.closing_s):
            return
        for task in self._state.tasks:
            task.cancel()
        for connection in list(self._state.connections):
            # An HTTP connection has its transport for this, a WebSocket does it itself.
            getattr(getattr(connection, "transport", connection), "abort", lambda: None)()
        await self._closed_within(_CUT_OFF_S)

    async def _closed_within(self, seconds: float) -> bool:
        """Return True once uvicorn has no connection and no request any more, False after ``seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                # Two sets of uvicorn's, which tell nobody when they become empty.
                while self._state.connections or self._state.tasks:  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_EVERY_S)
                return True
        return False


def _mint_invite() -> Minted:
    # 128 bits of secret; 64 are enough for an id that nobody else is told. An id is typed,
    # so it does not begin with a hyphen.
    return Minted(secrets.token_hex(8), b64encode(secrets.token_bytes(16)))


def _log_key(store: SqliteStore) -> SigningKey:
    try:
        return store.log_key()
    except StoreError as error:
        raise ConfigError(
            f"the key log cannot be read: {error}",
            next_step="restore the database from a copy, or name another file with --db",
        ) from None


def _info(options: RelayOptions, started: int, log: KeyLog | None) -> shapes.RelayInfo:
    return shapes.RelayInfo(
        realm=options.realm,
        version=version("ringline"),
        protocols=[SUBPROTOCOL],
        suites=list(SUITES),
        features=features(log),
        limits=options.settings.limits(),
        budgets=options.settings.budgets(),
        started_at=started,
        log_key=UNSET if log is None else b64encode(log.key.public),
    )


def run_dev(
    *,
    port: int = DEFAULT_PORT,
    host: str = "127.0.0.1",
    db: str | None = None,
    edge: str = EDGES[0],
    values: Mapping[str, str] | None = None,
    say: Callable[[str], None] = logger.info,
) -> None:
    """Run a relay for development until SIGTERM or SIGINT: loopback only, open registration.

    ``values`` are settings by the names of `ringline.relay.settings.TABLE`. ``say`` gets each line that
    is meant for a person. The first signal lets running calls end, the second stops at once.

    Raises `ConfigError` for what cannot be run; nothing was started then.
    """
    options = RelayOptions(
        host=host, port=port, db=db, edge=edge, settings=DEVELOPMENT.with_values(values or {})
    )
    run(options, say, _introduce)


def run(
    options: RelayOptions,
    say: Callable[[str], None],
    introduce: Callable[[RelayServer, Callable[[str], None]], Awaitable[None]],
) -> None:
    """Run a relay until SIGTERM or SIGINT; ``introduce`` says what is served once it runs.

    Raises as `RelayServer` does.
    """
    # What strangers send is no reason to write a line for each; our own loggers say what matters.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(options, say, introduce))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed: about half the cost of a call (it is not on Windows)."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _run(
    options: RelayOptions,
    say: Callable[[str], None],
    introduce: Callable[[RelayServer, Callable[[str], None]], Awaitable[None]],
) -> None:
    asked = asyncio.Event()
    pressed = asyncio.Event()

    def ask() -> None:
        if asked.is_set():
            pressed.set()
        asked.set()

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_fault)
    async with RelayServer(options) as relay:
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, ask)
        await introduce(relay, say)
        await asked.wait()
        draining, hurry = asyncio.ensure_future(relay.drain()), asyncio.ensure_future(pressed.wait())
        # One turn of the loop, in which both begin: what is said then is true.
        await asyncio.sleep(0)
        bound = options.settings.drain_bound_ms / 1000
        say(f"Stopping: no new calls; running ones get up to {bound:g} s. Ctrl-C again stops at once.")
        await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
        for task in (draining, hurry):
            task.cancel()
    say("Stopped.")


async def _introduce(relay: RelayServer, say: Callable[[str], None]) -> None:
    options = relay.options
    storage = f"stored in {options.db}" if options.db else "memory storage"
    say(
        f"ringline {version('ringline')}  DEV relay – {storage}, loopback only, open registration."
        " Not for production."
    )
    say(f"  Relay     {relay.ws_url}")
    say(f"  HTTP      {relay.url}/v1/relay")
    say(f"  Health    {relay.url}/readyz  {relay.url}/metrics")
    if options.db is None:
        say("  Durable calls are kept in memory too, and forgotten when this relay stops.")
        say("  Keep data with  --db relay.db      Stop with  Ctrl-C")
    else:
        say("  Stop with  Ctrl-C")
    # Elsewhere than where the commands look by themselves, they have to be told.
    place = "" if (options.host, relay.port) == ("127.0.0.1", DEFAULT_PORT) else f"--relay {relay.url} "
    say(f"Next:  ringline listen --as echo {place}--run cat")
