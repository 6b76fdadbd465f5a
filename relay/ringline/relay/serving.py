"""A relay for others than its own computer: what it must be told, and how its first identity gets in.

TLS ends here or in a proxy in front; registration is closed; the first to enrol is the administrator, by an
invite that is shown on a terminal or written to a file only its owner can read, and never to a log.
"""

import contextlib
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import final

from ringline.protocol.errors import ConfigError, InviteError
from ringline.protocol.invite import Invite
from ringline.protocol.limits import INVITE_LIFE_S
from ringline.protocol.names import is_loopback
from ringline.relay.edge import EDGES
from ringline.relay.options import DEFAULT_PORT, LOCAL_REALM, RelayOptions
from ringline.relay.ports import place_of
from ringline.relay.server import RelayServer, run
from ringline.relay.settings import Settings

__all__ = ["ServeOptions", "run_serve"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What an operator says. ``values`` are settings by the names of `ringline.relay.settings.TABLE`."""

    db: str
    realm: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    admin: str | None = None
    """The handle of the administrator."""
    url: str | None = None
    """Base URL by which clients reach it. None: ``https://<realm>``, or its own on loopback without TLS."""
    cert: str | None = None
    key: str | None = None
    behind_proxy: bool = False
    trusted_proxies: tuple[str, ...] = ()
    open_registration: bool = False
    admin_listen: str | None = None
    """``HOST:PORT`` of the listener for ``/metrics`` and the reasons of ``/readyz``."""
    invite_file: str | None = None
    """Where the administrator's invite is written; None: to the terminal, else beside the database."""
    edge: str = EDGES[0]
    values: Mapping[str, str] = field(default_factory=dict[str, str])

    def relay(self) -> RelayOptions:
        """Return how the relay is run. Raises `ConfigError` for what does not go together."""
        if self.realm == LOCAL_REALM:
            raise ConfigError(
                "realm localhost is for development relays",
                next_step="name the realm that your users will know, e.g. --realm relay.example, "
                "or run: ringline relay dev",
            )
        if self.admin is None and not self.open_registration:
            raise ConfigError(
                "nobody could ever enrol: registration is closed, and there is no administrator to invite",
                next_step="name one: --admin HANDLE",
            )
        if (self.cert is None) != (self.key is None):
            raise ConfigError("--cert and --key go together", next_step="give both, or neither")
        options = RelayOptions(
            host=self.host,
            port=self.port,
            db=self.db,
            edge=self.edge,
            realm=self.realm,
            settings=Settings().with_values(self.values),
            open_registration=self.open_registration,
            admin=self.admin,
            behind_proxy=self.behind_proxy,
            trusted_proxies=self.trusted_proxies,
            admin_listen=None if self.admin_listen is None else place_of(self.admin_listen),
            tls=None if self.cert is None or self.key is None else _tls(self.cert, self.key),
        )
        options.check()
        # Before anything is started: what clients are told must be a place.
        self.invite("x" * 16, self.public_url("http://127.0.0.1"))
        return options

    def invite(self, secret: str, url: str, log: bytes | None = None) -> str:
        """Return the administrator's invite as it is handed over; ``log`` is the key of the key log.

        Raises `ConfigError` for a bad URL.
        """
        try:
            return Invite(realm=self.realm, secret=secret, at=url, handle=self.admin, log=log).format()
        except InviteError as error:
            raise ConfigError(
                f"{url!r} in realm {self.realm!r}: {error}",
                next_step="for example --url https://relay.example",
            ) from None

    def public_url(self, own: str) -> str:
        """Return the base URL for clients; ``own`` is that of the running relay."""
        if self.url is not None:
            return self.url.rstrip("/")
        plain = self.cert is None and not self.behind_proxy and is_loopback(self.host)
        return own if plain else f"https://{self.realm}"


def run_serve(options: ServeOptions, *, say: Callable[[str], None], on_terminal: bool) -> None:
    """Run a relay until SIGTERM or SIGINT: the first lets running calls end, the second stops at once.

    ``say`` gets each line that is meant for a person; ``on_terminal`` tells that nobody keeps them.

    Raises `ConfigError` for what cannot be run; nothing was started then.
    """
    relay_options = options.relay()

    async def introduce(relay: RelayServer, say: Callable[[str], None]) -> None:
        url = options.public_url(relay.url)
        say(f"ringline {version('ringline')}  relay for realm {options.realm}, stored in {options.db}")
        say(f"  Listens   {relay.url}" + ("  (TLS ends in a proxy)" if options.behind_proxy else ""))
        say(f"  Clients   {url}")
        if relay.log_key is not None:
            say(f"  Key log   signed by {relay.log_key.format()}")
        say(f"  Register  {'anybody' if relay_options.is_open else 'by invite only'}")
        if relay.admin_url is not None:
            say(f"  Health    {relay.admin_url}/readyz  {relay.admin_url}/metrics")
        if options.admin is not None:
            await _invite_admin(relay, options, url, say, on_terminal=on_terminal)
        say("  Stop with  Ctrl-C or SIGTERM")

    run(relay_options, say, introduce)


async def _invite_admin(
    relay: RelayServer, options: ServeOptions, url: str, say: Callable[[str], None], *, on_terminal: bool
) -> None:
    """Tell how the administrator takes his handle, until he has; each start makes a new invite."""
    path = options.invite_file or f"{options.db}.admin-invite"
    made = await relay.invite_admin(INVITE_LIFE_S)
    if made is None:
        say(f"  Admin     {options.admin}")
        with contextlib.suppress(OSError):
            os.unlink(path)
        return
    text = options.invite(made.invite, url, None if relay.log_key is None else relay.log_key.public)
    say(f"  Admin     {options.admin}, who has not enrolled; his invite holds for 24 hours, once, and any")
    if on_terminal and options.invite_file is None:
        say("            earlier one no more. He pastes it when asked by:  ringline accept")
        say(f"\n{text}\n")
    else:
        _write_secret(path, text)
        say("            earlier one no more. It is in a file that only you may read:")
        say(f"            ringline accept --code-file {path}")


def _write_secret(path: str, text: str) -> None:
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{text}\n")
    except OSError as error:
        raise ConfigError(
            f"the administrator's invite cannot be written to {path}: {error.strerror}",
            next_step="name another file: --admin-invite FILE",
        ) from None


def _tls(cert: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(
            f"the certificate cannot be used: {reason}",
            next_step="give the chain and its key as PEM files that this user can read: --cert, --key",
        ) from None
    return context
