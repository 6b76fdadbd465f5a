"""Dialling a relay's WebSocket and what its end means: which errors are worth another dial, which not.

A mistake in the set-up shows at the first dial and is final then; whatever goes wrong once a connection has
stood is a matter of waiting (RL-TRANSPORT-040 to RL-TRANSPORT-042).
"""

import asyncio
import logging
from email.message import Message
from typing import Final, final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException
from websockets.http11 import Response
from websockets.typing import Subprotocol

from ringline.client.exchange import Answer, unreachable
from ringline.client.http import RelayHttp
from ringline.client.refusal import problem_of
from ringline.protocol import closes
from ringline.protocol.closes import POLICY_REASONS, PROTOCOL_ERROR, REMOVED, may_reconnect, read_retry
from ringline.protocol.errors import ConfigError, HttpProblem, RinglineError, TransportError, TrustError
from ringline.protocol.limits import SUBPROTOCOL

__all__ = ["CLOSE_S", "Dialler", "FinalError"]

CLOSE_S: Final = 3.0
"""For the other side to answer a close."""

_OPEN_S: Final = 15.0
_ENDED: Final = "What was answered stays so; calls that ran have ended."
# The WebSocket package logs whole handshakes at debug level, log-in token included.
_silent: Final = logging.Logger("ringline.websocket", level=logging.CRITICAL + 1)


class FinalError(RinglineError):
    """Wraps an error after which nothing is dialled again."""

    def __init__(self, error: RinglineError) -> None:
        super().__init__(str(error))
        self.error = error


@final
class Dialler:
    """Dials one path of one relay. ``path`` begins with ``/v1/`` and may carry a query."""

    def __init__(self, http: RelayHttp, path: str, *, max_bytes: int, ping: tuple[float, float]) -> None:
        """``max_bytes`` bounds a message of the relay; ``ping`` is the interval and the bound, in seconds."""
        self._http = http
        self._path = path
        self._max_bytes = max_bytes
        self._ping = ping
        self._ever_opened = False
        self._card_id = b""

    async def dial(self) -> ClientConnection:
        """Return an open connection. Raises `FinalError`, or what may be retried."""
        done = 0
        while True:
            try:
                socket = await self._dial_once()
            except InvalidStatus as error:
                answer = _answer(error.response)
                if answer.status == 401:
                    try:
                        following = await self._http.recover(done, answer.header("Date"))
                        if following is not None:
                            done = following
                            continue
                    except HttpProblem as problem:
                        raise FinalError(problem) from error
                raise self._refused(answer) from error
            except InvalidHandshake:
                raise self._first(_dropped(self._http, None)) from None
            except TimeoutError:
                raise TransportError(
                    f"the relay at {self._http.address.base_url} did not answer the WebSocket handshake",
                    next_step="look at the relay and at the proxies in front of it",
                ) from None
            except OSError as error:
                raise unreachable(self._http.address, error) from error
            except (WebSocketException, EOFError, ValueError):
                raise self._first(_dropped(self._http, None)) from None
            self._ever_opened = True
            return socket

    async def _dial_once(self) -> ClientConnection:
        address = self._http.address
        self._card_id = self._http.account.card.card.id
        token = self._http.token("GET", self._path.partition("?")[0])
        socket = await _Connect(
            address.ws_url(self._path),
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            additional_headers={"Authorization": f"Bearer {token}"},
            user_agent_header="ringline",
            proxy=None,
            open_timeout=_OPEN_S,
            ping_interval=self._ping[0],
            ping_timeout=self._ping[1],
            close_timeout=CLOSE_S,
            max_size=self._max_bytes,
            logger=_silent,
            **({"ssl": self._http.tls} if address.is_secure else {}),
        )
        if socket.subprotocol != SUBPROTOCOL:
            await socket.close(PROTOCOL_ERROR)
            raise self._first(
                TransportError(
                    f"what answers at {address.base_url} did not agree to {SUBPROTOCOL}",
                    code="version_unsupported",
                    next_step="check --relay, and that both sides run a current Ringline",
                )
            )
        return socket

    def _refused(self, answer: Answer) -> RinglineError:
        """What to raise for a handshake that was answered with a status."""
        error = problem_of(self._http.address, "the connection", answer)
        if answer.status == 426 or (answer.status in (200, 400) and not isinstance(error, HttpProblem)):
            return self._first(_dropped(self._http, answer.status))
        if answer.status in (429, 500, 502, 503, 504):
            return error
        if isinstance(error, HttpProblem):
            return FinalError(error)
        return self._first(error)

    def _first(self, error: RinglineError) -> RinglineError:
        """Final at the first dial, where it is a mistake in the set-up; later on a matter of waiting."""
        return error if self._ever_opened else FinalError(error)

    async def why_closed(self, socket: ClientConnection) -> RinglineError:
        """Return what the end of a connection means. Raises `FinalError` for the final ones."""
        error = _closed(
            self._http.address.base_url,
            self._http.account.handle,
            socket.close_code,
            socket.close_reason or "",
        )
        if may_reconnect(socket.close_code):
            return error
        if socket.close_code == closes.REVOKED and await self._has_other_card():
            return TransportError(
                "the card of the connection was revoked; the keys that have replaced it are used from now on",
                retry_after_ms=0,
            )
        raise FinalError(error)

    async def _has_other_card(self) -> bool:
        """Whether the card of the last log-in was replaced meanwhile, by this process or another."""
        account = self._http.account
        try:
            await asyncio.to_thread(account.refresh, self._http.clock.own_ms())
        except ConfigError:
            return False
        return account.card.card.id != self._card_id


class _Connect(connect):
    """A dial that follows no redirect: the log-in token is for this relay alone."""

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


def _answer(response: Response) -> Answer:
    headers = Message()
    for name, value in response.headers.raw_items():
        headers[name] = value
    return Answer(response.status_code, headers, bytes(response.body or b""))


def _dropped(http: RelayHttp, status: int | None) -> TransportError:
    seen = "without finishing it" if status is None else f"with HTTP {status}"
    return TransportError(
        f"{http.address.base_url} answered the WebSocket upgrade {seen}: "
        "probably a proxy in front of the relay drops the Upgrade header. Nothing was sent.",
        next_step="let the proxy pass Upgrade and Connection on, and add X-Forwarded-For "
        "(nginx: proxy_http_version 1.1; "
        "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; "
        "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;)",
    )


def _closed(url: str, handle: str, code: int | None, reason: str) -> RinglineError:
    match code:
        case closes.REPLACED:
            return TransportError(
                "another connection of the same instance took this one's place",
                next_step="end one of the two processes that use the same journal",
            )
        case closes.REVOKED if reason == REMOVED:
            return TrustError(
                f"the relay closed the connection: it says that the identity of {handle} was removed from it",
                code="revoked",
                still_true=_ENDED,
                next_step=f"nobody gets the handle {handle} there again; ask the relay's administrator, "
                "or take another: ringline init --as NAME",
            )
        case closes.REVOKED:
            return TrustError(
                f"the relay closed the connection: it says that the keys of {handle} were revoked",
                code="revoked",
                still_true=_ENDED,
                next_step=f"make new keys, then start it again: ringline id rotate --as {handle}",
            )
        case closes.GOING_AWAY:
            return TransportError(f"the relay at {url} is going away", retry_after_ms=read_retry(reason))
        case closes.POLICY:
            told = reason if reason in POLICY_REASONS else "policy"
            return TransportError(f"the relay at {url} closed the connection: {told}")
        case _:
            return TransportError(f"the connection to the relay at {url} broke")
