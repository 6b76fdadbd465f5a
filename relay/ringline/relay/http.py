"""The HTTP interface: routes to the directory, the calls and the tickets."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringline.protocol import names, shapes
from ringline.protocol.errors import HttpProblem
from ringline.protocol.lifecycle import FINAL, State
from ringline.relay import openapi, problem, tickets
from ringline.relay.access_http import AccessRoutes
from ringline.relay.auth import Authenticator, Login
from ringline.relay.budget import Window
from ringline.relay.calls import Party
from ringline.relay.effects import CancelAnswer
from ringline.relay.enrolment import Enrolment
from ringline.relay.gate import is_websocket_target
from ringline.relay.invites import Minted
from ringline.relay.keylog_http import LogRoutes
from ringline.relay.lookout import Lookout, is_local
from ringline.relay.pairing_http import PairingRoutes
from ringline.relay.registry import Registry
from ringline.relay.requests import (
    LARGE_BODY_BYTES,
    authorization,
    check_owner,
    handle_of,
    no_body,
    parameters,
    read,
)
from ringline.relay.responses import refuse, reply
from ringline.relay.settings import Settings
from ringline.relay.strangers import Strangers
from ringline.relay.switchboard import Switchboard, store_problem

__all__ = ["Routes"]

_Endpoint = Callable[[Request], Awaitable[Response]]

_MINUTE_MS: Final = 60_000
_WAITS_PER_IDENTITY: Final = 32
_PAGE: Final = 50
_WAIT: Final = re.compile(r"[0-9]|[1-4][0-9]|50")
_CURSOR: Final = re.compile(r"[0-9]{1,15}|[0-9]{0,15}\.([A-Za-z0-9_-]{1,64}|~)?")
_PARTIES: Final[dict[str, Party]] = {"caller": "caller", "callee": "callee"}
_LIMIT: Final = re.compile(r"[1-9][0-9]?|100")
_STATES: Final = frozenset(state.record for state in State)
_ENDS: Final = frozenset(state.value for state in FINAL)


@final
class Routes:
    """The routes of one relay."""

    def __init__(
        self,
        *,
        info: shapes.RelayInfo,
        registry: Registry,
        authenticator: Authenticator,
        tickets: tickets.Tickets,
        board: Switchboard,
        settings: Settings,
        enrolment: Enrolment,
        strangers: Strangers,
        mint: Callable[[], Minted],
        draw: Callable[[int], int],
        shows_itself: bool,
    ) -> None:
        """All of one relay's; ``info`` is what it says about itself, ``mint`` draws invites.

        ``draw(n)`` returns a random number below ``n``.

        ``shows_itself``: what is for the operator is also here, for requests of this machine.
        """
        self._info = info
        self._registry = registry
        self._directory = registry.directory
        self._authenticator = authenticator
        self._tickets = tickets
        self._board = board
        self._access = AccessRoutes(
            registry, authenticator, board, enrolment, strangers, login=self._login, mint=mint
        )
        self._pairings = PairingRoutes(
            board, self._directory, settings, strangers, login=self._login, draw=draw
        )
        self._fetches: Window[str] = Window(settings.key_fetches_per_minute, _MINUTE_MS)
        self._waits: dict[str, int] = {}
        self._log: LogRoutes | None = None
        if self._directory.log is not None:
            self._log = LogRoutes(
                self._directory.log,
                registry,
                login=self._login,
                clock=board.clock,
                per_minute=settings.log_fetches_per_minute,
            )
        self._shows_itself = shows_itself
        self.lookout = Lookout(board, registry, strangers, stopping=lambda: self.stopping)
        """What the operator sees, for a listener of his own."""
        self.stopping = False
        """True while the relay drains: ``readyz`` is red, and nobody waits for a call's end any more."""

    def app(self) -> Starlette:
        """Return the ASGI application."""
        handle, call = "/v1/handles/{handle}", "/v1/calls/{call_id}"
        table: tuple[tuple[str, Mapping[str, _Endpoint]], ...] = (
            ("/v1/relay", {"GET": self._relay}),
            ("/v1/openapi.json", {"GET": self._openapi}),
            ("/healthz", {"GET": self._healthz}),
            ("/readyz", {"GET": self._readyz}),
            *((("/metrics", {"GET": self._metrics}),) if self._shows_itself else ()),
            (handle, {"GET": self._get_keys, **self._access.handle()}),
            (f"{handle}/prekeys", {"PUT": self._put_prekeys}),
            (f"{handle}/policy", {"GET": self._get_policy, "PUT": self._put_policy}),
            (f"{handle}/revocations", {"POST": self._post_revocation}),
            *self._access.table(),
            *self._pairings.table(),
            ("/v1/tickets", {"POST": self._post_ticket}),
            ("/v1/calls", {"GET": self._get_calls}),
            (call, {"GET": self._get_call}),
            (f"{call}/cancel", {"POST": self._post_cancel}),
            (f"{call}/ack", {"POST": self._post_ack}),
            (f"{call}/replay", {"POST": self._post_replay}),
            ("/v1/call/{handle}", {"GET": self._upgrade}),
            ("/v1/listen/{handle}", {"GET": self._upgrade}),
            *(() if self._log is None else self._log.table()),
        )
        app = Starlette(
            routes=[Route(path, _by_method(methods), methods=list(methods)) for path, methods in table],
            exception_handlers={HttpProblem: _on_problem, HTTPException: _on_routing, Exception: _on_fault},
        )
        app.router.redirect_slashes = False
        return app

    # --- public

    async def _relay(self, request: Request) -> Response:
        parameters(request)
        return reply(self._info)

    async def _openapi(self, request: Request) -> Response:
        parameters(request)
        headers = {"content-type": "application/json", "cache-control": "no-store"}
        return Response(openapi.document(), 200, headers)

    async def _healthz(self, request: Request) -> Response:
        return reply({"status": "ok"})

    async def _readyz(self, request: Request) -> Response:
        return await self.lookout.ready(reasons=self._shows_itself and is_local(request))

    async def _metrics(self, request: Request) -> Response:
        if not is_local(request):
            # For all others the route does not exist.
            raise HttpProblem(code="not_found")
        return self.lookout.metrics()

    async def _upgrade(self, request: Request) -> Response:
        handle_of(request)
        return refuse(problem.UPGRADE_REQUIRED)

    # --- handles

    async def _get_keys(self, request: Request) -> Response:
        login = self._login(request)
        handle = handle_of(request)
        now = self._board.clock()
        wait = self._fetches.wait(login.handle, now.mono)
        if wait:
            raise HttpProblem("too many requests for keys", code="rate_limited", retry_after_ms=wait)
        self._fetches.charge(login.handle, now.mono)
        card_id = parameters(request, "card").get("card")
        found: shapes.Keys | shapes.SupersededKeys | None
        if card_id is None:
            found = self._directory.keys(handle, login.handle, now)
        elif re.match(names.CARD_ID, card_id) is None:
            raise HttpProblem("card is not the id of a card", code="malformed")
        else:
            found = self._directory.superseded(handle, card_id, login.handle, now)
        if found is None:
            raise HttpProblem(code="not_found")
        return reply(found)

    async def _put_prekeys(self, request: Request) -> Response:
        login = self._owner(request)
        handle = login.handle
        body = await read(request, shapes.PrekeyPublication)
        now = self._board.clock()
        await self._registry.commit_for(login, now, lambda: self._directory.publish_prekey(handle, body, now))
        return reply(self._directory.published(handle))

    async def _get_policy(self, request: Request) -> Response:
        return reply(self._directory.policy(self._owner(request).handle))

    async def _put_policy(self, request: Request) -> Response:
        login = self._owner(request)
        handle = login.handle
        policy = await read(request, shapes.Policy, limit=LARGE_BODY_BYTES)
        now = self._board.clock()
        decision = await self._registry.commit_for(
            login, now, lambda: self._directory.set_policy(handle, policy)
        )
        if decision.changes:
            self._board.recheck(handle)
        return reply(self._directory.policy(handle))

    async def _post_revocation(self, request: Request) -> Response:
        handle = handle_of(request)
        parameters(request)
        body = await read(request, shapes.RevocationStatement)
        now = self._board.clock()
        decision = await self._registry.commit(lambda: self._directory.revoke(handle, body, now))
        if decision.changes:
            self._board.revoke(handle, body.card_id)
        return reply({"card_id": body.card_id}, 201 if decision.created else 200)

    # --- tickets

    async def _post_ticket(self, request: Request) -> Response:
        login = self._login(request)
        parameters(request)
        body = await read(request, shapes.TicketRequest)
        if not is_websocket_target(body.htu) or tickets.detach(body.htu.partition("?")[2])[1] is not None:
            raise HttpProblem("htu is the path and query of a WebSocket of this relay", code="malformed")
        ticket, ends = self._tickets.issue(login.handle, login.card_id, body.htu, self._board.clock())
        return reply(shapes.Ticket(ticket=ticket, expires_at=ends), 201)

    # --- calls

    async def _get_calls(self, request: Request) -> Response:
        login = self._login(request)
        given = parameters(request, "role", "state", "cursor", "limit")
        role, state, limit = given.get("role", "caller"), given.get("state"), given.get("limit", str(_PAGE))
        party = _PARTIES.get(role)
        cursor = given.get("cursor")
        if party is None:
            raise HttpProblem("role is caller or callee", code="malformed")
        if state is not None and state not in _STATES:
            raise HttpProblem("state is not a state of a call", code="malformed")
        if not _LIMIT.fullmatch(limit):
            raise HttpProblem("limit is not a number from 1 to 100", code="malformed")
        if cursor is not None and not _CURSOR.fullmatch(cursor):
            raise HttpProblem("cursor is not the next of a page", code="malformed")
        with self._board.settled():
            page = self._board.hub.records(
                login.handle, party, state, cursor, int(limit), self._board.clock()
            )
        return reply(page)

    async def _get_call(self, request: Request) -> Response:
        login = self._login(request)
        wait = parameters(request, "wait").get("wait", "0")
        if not _WAIT.fullmatch(wait):
            raise HttpProblem("wait is not a number of seconds from 0 to 50", code="malformed")
        record = self._record(login, request.path_params["call_id"])
        if record.state not in _ENDS and wait != "0" and not self.stopping:
            await self._wait(request, login, record.call_id, float(wait))
            record = self._record(login, record.call_id)
        return reply(record)

    async def _wait(self, request: Request, login: Login, call_id: str, seconds: float) -> None:
        """Wait until the call ended, the time is over, the client has gone or the relay stops."""
        if self._waits.get(login.handle, 0) >= _WAITS_PER_IDENTITY:
            raise HttpProblem("too many requests wait", code="rate_limited", retry_after_ms=1_000)
        self._waits[login.handle] = self._waits.get(login.handle, 0) + 1
        gone = asyncio.ensure_future(_gone(request))
        try:
            async with self._board.end_of(call_id) as ended:
                await asyncio.wait({ended, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            self._waits[login.handle] -= 1
            if not self._waits[login.handle]:
                del self._waits[login.handle]

    def _record(self, login: Login, call_id: str) -> shapes.CallRecord:
        with self._board.settled():
            record = self._board.hub.record(login.handle, call_id, self._board.clock())
        if record is None:
            # Another's call is as missing as one that never was.
            raise HttpProblem(code="not_found")
        return record

    async def _post_cancel(self, request: Request) -> Response:
        login = self._login(request)
        parameters(request)
        await no_body(request)
        call_id: str = request.path_params["call_id"]
        answer = await self._board.cancel(login.handle, call_id)
        if answer is CancelAnswer.MISSING:
            raise HttpProblem(code="unknown")
        if answer is CancelAnswer.UNAVAILABLE:
            raise store_problem()
        if answer.status == HTTPStatus.CONFLICT:
            return refuse(problem.not_cancelled(answer.value))
        return reply(self._record(login, call_id), answer.status)

    async def _post_ack(self, request: Request) -> Response:
        login = self._login(request)
        parameters(request)
        await no_body(request)
        call_id: str = request.path_params["call_id"]
        with self._board.settled():
            answer = self._board.hub.acknowledge(login.handle, call_id, self._board.clock())
        if answer == "missing":
            raise HttpProblem(code="not_found")
        if answer == "running":
            raise HttpProblem("the call has not ended", code="conflict")
        return reply(self._record(login, call_id))

    async def _post_replay(self, request: Request) -> Response:
        login = self._login(request)
        parameters(request)
        await no_body(request)
        call_id: str = request.path_params["call_id"]
        with self._board.settled():
            answer = self._board.hub.replay(login.handle, call_id, self._board.clock())
        if answer == "missing":
            raise HttpProblem(code="not_found")
        if answer == "conflict":
            raise HttpProblem("only a parked call can be replayed", code="conflict")
        return reply(self._record(login, call_id))

    # --- who asks

    def _login(self, request: Request) -> Login:
        login = self._authenticator.login(
            authorization(request), request.method, request.url.path, self._board.clock()
        )
        if login is None:
            raise HttpProblem(code="unauthorized")
        return login

    def _owner(self, request: Request) -> Login:
        """Return the log-in of the path's owner, who asks; the query is empty."""
        login = self._login(request)
        handle = handle_of(request)
        check_owner(login, handle)
        parameters(request)
        return login


def _by_method(endpoints: Mapping[str, _Endpoint]) -> _Endpoint:
    async def dispatch(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await endpoints[method](request)

    return dispatch


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpProblem)
    return refuse(problem.of(error))


async def _on_routing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        methods = (error.headers or {}).get("Allow", "").split(", ")
        return refuse(problem.METHOD_NOT_ALLOWED, {"allow": ", ".join(sorted(methods))})
    return refuse(problem.NOT_FOUND if error.status_code == HTTPStatus.NOT_FOUND else problem.MALFORMED)


async def _on_fault(request: Request, error: Exception) -> Response:
    # Starlette raises the error again behind this answer; the doorkeeper logs its name.
    return refuse(problem.INTERNAL)
