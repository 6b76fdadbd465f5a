"""Meeting by a spoken code over HTTP: the routes of pairings (RL-HTTP-058 to RL-HTTP-068).

The guest has no log-in yet. What he may do is bounded by his address, and what he says by a secret that he
has made up when he claimed.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, TypeAlias, final

from starlette.requests import Request
from starlette.responses import Response

from ringline.protocol import names, shapes
from ringline.protocol.encoding import b64decode
from ringline.protocol.errors import EncodingError, HttpProblem
from ringline.relay.auth import Login
from ringline.relay.budget import Window
from ringline.relay.directory import Directory
from ringline.relay.doorkeeper import subject_of
from ringline.relay.pairings import Meeting, PairingBook
from ringline.relay.requests import no_body, parameters, read
from ringline.relay.responses import reply
from ringline.relay.settings import Settings
from ringline.relay.strangers import Strangers
from ringline.relay.switchboard import Switchboard

__all__ = ["PairingRoutes"]

_Endpoint = Callable[[Request], Awaitable[Response]]
_Side: TypeAlias = Literal["inviter", "guest"]

_MINUTE_MS: Final = 60_000
_WAIT: Final = re.compile(r"[0-9]|[1-4][0-9]|50")
_STOPPING: Final = "a pairing"  # no id of a call: what waits under it is released when the relay stops


@final
class PairingRoutes:
    """The routes of one relay by which two people meet."""

    def __init__(
        self,
        board: Switchboard,
        directory: Directory,
        settings: Settings,
        strangers: Strangers,
        *,
        login: Callable[[Request], Login],
        draw: Callable[[int], int],
    ) -> None:
        """``login`` lets the enrolled through, ``draw(n)`` returns a random number below ``n``."""
        self.book = PairingBook(settings.pairing_life_ms, draw=draw, is_enrolled=directory.is_enrolled)
        """What they say to each other."""
        self._board = board
        self._strangers = strangers
        self._login = login
        self._claims: Window[str] = Window(settings.pairing_claims_per_minute, _MINUTE_MS)
        self._waiting: dict[tuple[str, _Side], asyncio.Future[None]] = {}

    def table(self) -> tuple[tuple[str, Mapping[str, _Endpoint]], ...]:
        """Return the paths with their methods."""
        one = "/v1/pairings/{nameplate}"
        return (
            ("/v1/pairings", {"POST": self._post_pairing}),
            (one, {"GET": self._get_pairing, "DELETE": self._delete_pairing}),
            (f"{one}/claim", {"POST": self._post_claim}),
            (f"{one}/answer", {"POST": self._post_answer}),
            (f"{one}/reply", {"POST": self._post_reply}),
        )

    # --- the inviter

    async def _post_pairing(self, request: Request) -> Response:
        login = self._login(request)
        parameters(request)
        body = await read(request, shapes.PairingMessage)
        _check(body.message)
        made = self.book.open(login.handle, body.message, self._board.clock())
        return reply(shapes.PairingMade(nameplate=made.nameplate, expires_at=made.expires_at), 201)

    async def _get_pairing(self, request: Request) -> Response:
        login = self._login(request)
        seconds = _wait_of(request)
        nameplate = _nameplate(request)
        meeting = self.book.of_inviter(nameplate, login.handle, self._board.clock())
        if seconds and meeting.state in ("open", "claimed"):
            await self._wait(request, meeting, "inviter", seconds)
            # Its time may be over, and he may have been removed.
            meeting = self.book.of_inviter(nameplate, login.handle, self._board.clock())
        return _shown(meeting, meeting.answer)

    async def _post_reply(self, request: Request) -> Response:
        login = self._login(request)
        parameters(request)
        nameplate = _nameplate(request)
        body = await read(request, shapes.PairingMessage)
        _check(body.message)
        meeting = self.book.reply(nameplate, login.handle, body.message, self._board.clock())
        self._release(meeting)
        return _shown(meeting, meeting.answer)

    async def _delete_pairing(self, request: Request) -> Response:
        login = self._login(request)
        parameters(request)
        nameplate = _nameplate(request)
        await no_body(request)
        meeting = self.book.void(nameplate, login.handle, self._board.clock())
        self._release(meeting)
        return _shown(meeting, meeting.answer)

    # --- the guest

    async def _post_claim(self, request: Request) -> Response:
        subject = self._check_address(request)
        parameters(request)
        nameplate = _nameplate(request)
        body = await read(request, shapes.PairingClaim)
        # Others from there may have come while it was on its way.
        self._check_address(request)
        now = self._board.clock()
        # Whatever comes of it: who tries out numbers spends codes of others.
        self._claims.charge(subject, now.mono)
        meeting = self.book.claim(nameplate, body.claim, now)
        self._release(meeting)
        return reply(shapes.PairingOffer(message=meeting.offer, expires_at=meeting.expires_at))

    async def _post_answer(self, request: Request) -> Response:
        seconds = _wait_of(request)
        nameplate = _nameplate(request)
        body = await read(request, shapes.PairingAnswer)
        _check(body.message)
        now = self._board.clock()
        try:
            meeting = self.book.answer(nameplate, body.claim, body.message, now)
        except HttpProblem:
            # Whoever knows the secret of a claim guesses nothing: his neighbours' guesses do not stop him.
            self._claims.charge(self._check_address(request), now.mono)
            raise
        self._release(meeting)
        if seconds and meeting.state == "answered":
            await self._wait(request, meeting, "guest", seconds)
            meeting = self.book.claimed(nameplate, body.claim, self._board.clock())
        self.book.received(meeting)
        return _shown(meeting, None if meeting.state == "void" else meeting.reply)

    def _check_address(self, request: Request) -> str:
        """Pass an address from which not too many claims came, and return it. Raises `HttpProblem` (429)."""
        subject = subject_of(self._strangers, request.scope)
        wait = self._claims.wait(subject, self._board.clock().mono)
        if wait:
            raise HttpProblem("too many claims from this address", code="rate_limited", retry_after_ms=wait)
        return subject

    # --- waiting

    async def _wait(self, request: Request, meeting: Meeting, side: _Side, seconds: float) -> None:
        """Wait for the other side, the time, the client's going, the relay's stop, or a later request."""
        key = (meeting.nameplate, side)
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        _settle(self._waiting.get(key))
        self._waiting[key] = changed
        left_s = (meeting.ends - self._board.clock().mono) / 1_000
        gone = asyncio.ensure_future(_gone(request))
        try:
            async with self._board.end_of(_STOPPING) as stopped:
                await asyncio.wait(
                    {changed, stopped, gone},
                    timeout=max(0.0, min(seconds, left_s)),
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            gone.cancel()
            if self._waiting.get(key) is changed:
                del self._waiting[key]

    def _release(self, meeting: Meeting) -> None:
        _settle(self._waiting.get((meeting.nameplate, "inviter")))
        _settle(self._waiting.get((meeting.nameplate, "guest")))


def _settle(waiter: "asyncio.Future[None] | None") -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _shown(meeting: Meeting, message: str | None) -> Response:
    return reply(shapes.Pairing(state=meeting.state, message=message, expires_at=meeting.expires_at))


def _nameplate(request: Request) -> str:
    nameplate: str = request.path_params["nameplate"]
    if not names.is_nameplate(nameplate):
        raise HttpProblem(code="not_found")
    return nameplate


def _wait_of(request: Request) -> float:
    wait = parameters(request, "wait").get("wait", "0")
    if not _WAIT.fullmatch(wait):
        raise HttpProblem("wait is not a number of seconds from 0 to 50", code="malformed")
    return float(wait)


def _check(message: str) -> None:
    try:
        b64decode(message)
    except EncodingError:
        raise HttpProblem("message is not base64url", code="malformed") from None


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
