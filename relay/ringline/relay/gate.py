"""The opening handshake: who may open which WebSocket.

A caller's handshake never looks at its target: it tells nothing about any other handle (RL-TRANSPORT-007).
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, final
from urllib.parse import parse_qsl

from ringline.protocol import names
from ringline.protocol.closes import retry_reason
from ringline.protocol.errors import HttpProblem
from ringline.protocol.limits import SUBPROTOCOL
from ringline.relay import problem, tickets
from ringline.relay.auth import Authenticator, Login
from ringline.relay.directory import Directory
from ringline.relay.edge import Accepted, Handshake, Receiver, Refused
from ringline.relay.entrance import Entrance
from ringline.relay.keylog import FEATURE, KeyLog
from ringline.relay.lines import CallerLine, ListenerLine
from ringline.relay.settings import Settings
from ringline.relay.strangers import Strangers
from ringline.relay.switchboard import Switchboard

__all__ = ["RelayGate", "features", "is_websocket_target"]

_ROUTE: Final = re.compile(r"/v1/(call|listen)/([a-z0-9][a-z0-9-]{1,30})")
_CAPACITY: Final = re.compile(r"[1-9][0-9]{0,2}|1000")
_FIELDS: Final = 16


def is_websocket_target(target: str) -> bool:
    """True when ``target``, a path with or without query, is one that a ticket can open."""
    return _ROUTE.fullmatch(target.partition("?")[0]) is not None


def features(log: KeyLog | None) -> list[str]:
    """Return the features of a relay, each of which a connection may ask for (RL-EXT-001)."""
    return [] if log is None else [FEATURE]


@final
class RelayGate:
    """See `ringline.relay.edge.Gate`."""

    def __init__(
        self,
        *,
        entrance: Entrance,
        authenticator: Authenticator,
        directory: Directory,
        tickets: tickets.Tickets,
        board: Switchboard,
        settings: Settings,
        strangers: Strangers,
    ) -> None:
        """All of one relay's."""
        self._entrance = entrance
        self._authenticator = authenticator
        self._directory = directory
        self._tickets = tickets
        self._board = board
        self._settings = settings
        self._strangers = strangers
        self._release_s = settings.unknown_handle_release_ms / 1000
        self.open = True
        """False while the relay stops: every handshake is answered 503."""

    def handshake(self, request: Handshake) -> Accepted | Refused:
        """See `Gate.handshake`."""
        subject = self._strangers.subject(
            request.remote[0] if request.remote is not None else "", request.all("x-forwarded-for")
        )
        try:
            self._strangers.check_login(subject, self._board.clock())
            receiver = self._admit(request)
        except HttpProblem as error:
            answer = problem.of(error)
            if answer.status == HTTPStatus.UNAUTHORIZED and _logs_in(request):
                self._strangers.failed_login(subject, self._board.clock())
            self._board.telemetry.refused(answer.status)
            timed = answer.status in problem.RELEASE_STATUSES
            return Refused(
                status=answer.status,
                headers=answer.headers,
                body=answer.body,
                release=request.received + self._release_s if timed else None,
            )
        return Accepted(receiver=receiver, subprotocol=SUBPROTOCOL)

    def farewell(self) -> str:
        """See `Gate.farewell`."""
        return retry_reason(self._settings.drain_retry_ms)

    def _admit(self, request: Handshake) -> Receiver:
        """Return the receiver of a handshake that is let in; the order is that of RL-TRANSPORT-011."""
        if not self._entrance.admits(request.all("host"), request.all("origin")):
            raise HttpProblem(code="forbidden")
        route = _ROUTE.fullmatch(request.path)
        if route is None:
            raise HttpProblem(code="not_found")
        role, handle = route.groups()
        if not self.open:
            raise HttpProblem("the relay is stopping", code="unavailable")
        query, ticket = tickets.detach(request.query)
        login = self._login(request, query, ticket, owner=handle if role == "listen" else None)
        if login is None:
            raise HttpProblem(code="unauthorized")
        if SUBPROTOCOL not in request.subprotocols():
            raise HttpProblem(f"the subprotocol {SUBPROTOCOL} is required", code="malformed")
        if role == "call":
            self._parameters(query, required=(), optional=("features",))
            self._check_limits(login)
            return CallerLine(self._board, login, handle)
        line = self._listener(login, query)
        self._check_limits(login)
        return line

    def _login(self, request: Handshake, query: str, ticket: str | None, owner: str | None) -> Login | None:
        now = self._board.clock()
        if ticket is None:
            return self._authenticator.login(
                request.one("authorization"), request.method, request.path, now, owner=owner
            )
        if request.all("authorization"):
            return None
        target = f"{request.path}?{query}" if query else request.path
        bought = self._tickets.redeem(ticket, target, now)
        if bought is None or (owner is not None and bought[0] != owner):
            return None
        # The card may have been called back since.
        return Login(*bought) if self._directory.login_card(*bought, now) is not None else None

    def _listener(self, login: Login, query: str) -> ListenerLine:
        given = self._parameters(
            query, required=("instance", "boot", "capacity"), optional=("durable", "features")
        )
        for name in ("instance", "boot"):
            if not names.is_uuid4(given[name]):
                raise HttpProblem(f"{name} is not a lower-case UUID of version 4", code="malformed")
        if not _CAPACITY.fullmatch(given["capacity"]):
            raise HttpProblem("capacity is not a number from 1 to 1000", code="malformed")
        if given.get("durable", "0") != "0":
            raise HttpProblem("durable is 0 or absent", code="malformed")
        return ListenerLine(
            self._board,
            login,
            instance=given["instance"],
            boot=given["boot"],
            capacity=int(given["capacity"]),
            durable="durable" not in given,
        )

    def _parameters(
        self, query: str, *, required: tuple[str, ...], optional: tuple[str, ...]
    ) -> Mapping[str, str]:
        given = _parameters(query, required=required, optional=optional)
        asked = given.get("features")
        # RL-EXT-003: a feature that the relay does not have is answered 400. RL-EXT-004: all others are in
        # force.
        if asked is not None and not set(asked.split(",")) <= set(features(self._directory.log)):
            raise HttpProblem("a feature in the query is not one of this relay's", code="malformed")
        return given

    def _check_limits(self, login: Login) -> None:
        most = self._settings.connections_per_identity
        if most and self._board.connections_of(login.handle) >= most:
            raise HttpProblem(
                f"this identity has {most} connections open", code="rate_limited", retry_after_ms=1_000
            )


def _logs_in(request: Handshake) -> bool:
    """True when a handshake brings a log-in, good or bad: to bring none is no log-in that failed."""
    return bool(request.all("authorization")) or tickets.detach(request.query)[1] is not None


def _parameters(query: str, *, required: tuple[str, ...], optional: tuple[str, ...]) -> Mapping[str, str]:
    """Return the parameters of an upgrade: known ones, each once.

    Raises `HttpProblem` (400).
    """
    try:
        pairs = (
            parse_qsl(
                query,
                keep_blank_values=True,
                strict_parsing=True,
                encoding="ascii",
                errors="strict",
                max_num_fields=_FIELDS,
            )
            if query
            else []
        )
    except ValueError:
        raise HttpProblem("the query cannot be read", code="malformed") from None
    given = dict(pairs)
    if len(given) != len(pairs) or not set(required) <= given.keys() <= {*required, *optional}:
        allowed = ", ".join((*required, *optional))
        raise HttpProblem(f"the query takes each of {allowed} at most once", code="malformed")
    return given
