"""What every HTTP request passes before its route, and every answer on its way out.

Origin and Host; paths with one spelling; refusals that leave when their time has come; nothing that a route
raises reaches the server's log with its text.
"""

import asyncio
import logging
from http import HTTPStatus
from typing import Final, final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringline.protocol.errors import HttpProblem
from ringline.protocol.whereabouts import whereabouts
from ringline.relay import problem
from ringline.relay.clock import Clock
from ringline.relay.entrance import Entrance
from ringline.relay.problem import Answer
from ringline.relay.strangers import Strangers
from ringline.relay.telemetry import Telemetry

__all__ = ["Doorkeeper", "subject_of"]

logger: Final = logging.getLogger("ringline.relay.http")

_METHODS: Final = "GET, HEAD, PUT, POST, DELETE, OPTIONS"
_PUBLIC: Final = frozenset({"/v1/relay", "/healthz", "/readyz"})


@final
class Doorkeeper:
    """ASGI middleware around the routes."""

    def __init__(
        self,
        app: ASGIApp,
        entrance: Entrance,
        telemetry: Telemetry,
        strangers: Strangers,
        clock: Clock,
        *,
        release_s: float,
    ) -> None:
        """``release_s`` is the time, from the moment a request was read, before which no 401, 403 or 404
        leaves (RL-HTTP-009). An address from which too many log-ins failed gets no further than here."""
        self._app = app
        self._entrance = entrance
        self._telemetry = telemetry
        self._strangers = strangers
        self._clock = clock
        self._release_s = release_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        loop = asyncio.get_running_loop()
        read_at = loop.time()
        started = False
        hosts, origins = _values(scope, b"host"), _values(scope, b"origin")
        subject = subject_of(self._strangers, scope)
        # Who brings no log-in has failed at none: his 401 costs no look-up and no signature.
        logs_in = bool(_values(scope, b"authorization"))
        shared = origins[0] if len(origins) == 1 and self._entrance.shares_with(origins[0]) else None

        async def receive_timed() -> Message:
            nonlocal read_at
            message = await receive()
            if message["type"] == "http.request" and message.get("body"):
                # A request is read when its last byte is.
                read_at = loop.time()
            return message

        async def send_timed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if message["status"] == HTTPStatus.UNAUTHORIZED and logs_in:
                    self._strangers.failed_login(subject, self._clock())
                self._telemetry.answered(message["status"])
                if shared is not None:
                    message["headers"] = [
                        *message.get("headers", ()),
                        (b"access-control-allow-origin", shared.encode("latin-1")),
                        (b"vary", b"Origin"),
                    ]
                if message["status"] in problem.RELEASE_STATUSES:
                    await asyncio.sleep(max(0.0, read_at + self._release_s - loop.time()))
            await send(message)

        async def answer(refusal: Answer) -> None:
            headers = [(name.encode(), value.encode()) for name, value in refusal.headers]
            if refusal.status != 204:
                # RFC 9110 §8.6: a 204 has neither a body nor its length.
                headers.append((b"content-length", str(len(refusal.body)).encode()))
            await send_timed({"type": "http.response.start", "status": refusal.status, "headers": headers})
            await send_timed({"type": "http.response.body", "body": refusal.body})

        if not self._entrance.admits(hosts, origins):
            await answer(problem.FORBIDDEN)
        elif b"%" in scope["raw_path"]:
            # No name of this interface needs escaping, and a token names the path as it was sent.
            await answer(problem.NOT_FOUND)
        elif scope["method"] == "OPTIONS":
            await answer(_options(shared))
        else:
            try:
                if scope["path"] not in _PUBLIC:
                    self._strangers.check_login(subject, self._clock())
                await self._app(scope, receive_timed, send_timed)
            except HttpProblem as error:
                await answer(problem.of(error))
            except Exception as error:
                logger.error("a request raised %s", whereabouts(error))
                if not started:
                    await answer(problem.INTERNAL)


def _options(shared: str | None) -> Answer:
    allow = (("allow", _METHODS),)
    if shared is None:
        return Answer(204, allow, b"")
    return Answer(
        204,
        (
            *allow,
            ("access-control-allow-methods", _METHODS),
            ("access-control-allow-headers", "Authorization, Content-Type"),
            ("access-control-max-age", "600"),
        ),
        b"",
    )


def subject_of(strangers: Strangers, scope: Scope) -> str:
    """Return whose budget a request is charged to (`Strangers.subject`)."""
    client = scope.get("client")
    return strangers.subject(client[0] if client else "", _values(scope, b"x-forwarded-for"))


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]
