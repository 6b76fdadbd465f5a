"""Handing an invite over by a spoken code: both sides of the exchange at the relay, for clients.

What is said, and what it is good for, is in `ringline.protocol.pairing`. Whoever invites has one try at it,
and so has whoever is invited: whatever fails uses the code up, and both are told.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, TypeVar, final

import msgspec

from ringline.client.address import RelayAddress
from ringline.client.exchange import exchange, tls_context
from ringline.client.http import HEADERS, RelayHttp, relay_info
from ringline.client.refusal import decode, problem_of
from ringline.protocol import shapes
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import (
    EncodingError,
    HttpProblem,
    InviteError,
    PairingError,
    RinglineError,
    TransportError,
)
from ringline.protocol.invite import Invite
from ringline.protocol.pairing import Guest, Inviter, Keys, check_installed
from ringline.protocol.spokencode import CODE_WORDS, SpokenCode, draw_words, password_of

__all__ = ["SpokenInvite", "take_up"]

_T = TypeVar("_T")

_PATH: Final = "/v1/pairings"
_WAIT_S: Final = 25
_ANSWER_S: Final = 15.0
_GIVE_UP_S: Final = 5.0
_TRIES: Final = 5
_AGAIN_S: Final = 1.0
_PACE_S: Final = 0.2
_CLAIM_BYTES: Final = 16
# The longest that any relay keeps a code: one that lies must not have somebody wait for ever.
_LIFE_S: Final = 3_600.0
_NEW: Final = "make a new code, and say it again: ringline invite --code"
_ASK: Final = "ask for a new code: ringline invite --code, on the other side"


@final
class SpokenInvite:
    """The inviter's side of one code, within ``async with``; leaving it before the end gives the code up.

    Every method raises `TransportError` and `HttpProblem` as `RelayHttp` does, `PairingError` when the code
    came to nothing.
    """

    def __init__(self, http: RelayHttp, *, words: int = CODE_WORDS) -> None:
        """Nothing is sent before it is entered. Raises `ConfigError` where codes do not work."""
        self._http = http
        self._words = draw_words(secrets.token_bytes(words))
        self._side = Inviter(password_of(self._words), secrets.token_bytes)
        self._place = ""
        self._nameplate = ""
        self._keys: Keys | None = None
        self._is_over = False

    async def __aenter__(self) -> SpokenCode:
        """Have the relay give out a number, and return the code to be said."""
        body = shapes.PairingMessage(message=b64encode(self._side.offer))
        made = await self._http.ask("POST", _PATH, shapes.PairingMade, body=body)
        self._nameplate = made.nameplate
        self._place = f"{_PATH}/{made.nameplate}"
        return SpokenCode(made.nameplate, self._words)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_over:
            self._is_over = True
            # A guest who waits is told; and else nobody could claim it any more.
            with contextlib.suppress(RinglineError, TimeoutError):
                async with asyncio.timeout(_GIVE_UP_S):
                    await self._http.ask("DELETE", self._place, shapes.Pairing)

    async def meet(self, wait_s: float, note: Callable[[str], None] = lambda text: None) -> None:
        """Wait ``wait_s`` seconds for somebody who has the words; no longer than the relay keeps the code.

        ``note`` is told when somebody takes the code. Raises `PairingError` when nobody comes, or somebody
        with other words.
        """
        said = "open"
        try:
            async with asyncio.timeout(min(wait_s, _LIFE_S)):
                # Somebody may have been quick; afterwards the relay tells what changes.
                seen = await _paced(lambda: self._look(0))
                while True:
                    # Who is quick has answered before the relay was asked again.
                    if said == "open" and seen.state != "open":
                        note("somebody has taken the code")
                    said = seen.state
                    if seen.message is not None:
                        break
                    seen = await _paced(lambda: self._look(_WAIT_S))
        except TimeoutError:
            raise _nobody(said) from None
        except HttpProblem as error:
            if error.code != "not_found":
                raise
            self._is_over = True
            raise _nobody(said) from None
        self._keys = self._side.meet(
            _bytes(seen.message), realm=self._http.address.realm, nameplate=self._nameplate
        )

    async def hand_over(self, invite: str) -> None:
        """Give the invite to whoever was met."""
        assert self._keys is not None, "nobody was met"
        body = shapes.PairingMessage(message=b64encode(self._keys.seal(invite)))
        try:
            await _persist(lambda: self._http.ask("POST", f"{self._place}/reply", shapes.Pairing, body=body))
        except HttpProblem as error:
            if error.code not in ("not_found", "conflict"):
                raise
            raise PairingError(
                "the code was right, but its time was over before the invite was handed over", next_step=_NEW
            ) from None
        self._is_over = True

    async def _look(self, wait_s: int) -> shapes.Pairing:
        return await self._http.ask(
            "GET", self._place, shapes.Pairing, query=f"?wait={wait_s}", timeout_s=_ANSWER_S + wait_s
        )


async def take_up(address: RelayAddress, code: SpokenCode) -> Invite:
    """Return the invite that the inviter, and not the relay, hands over to whoever has his code.

    Raises `PairingError` when the code came to nothing, `InviteError` for an invite that is none or into
    another realm, `ConfigError` where codes do not work and for a relay of another realm, `TransportError`
    and `HttpProblem` as `RelayHttp` does.
    """
    check_installed()
    tls = tls_context(address)
    await relay_info(address, tls)
    place, claim = f"{_PATH}/{code.nameplate}", b64encode(secrets.token_bytes(_CLAIM_BYTES))

    async def post(path: str, body: msgspec.Struct, shape: type[_T], wait_s: int = 0) -> _T:
        answer = await exchange(
            address,
            "POST",
            place + path + (f"?wait={wait_s}" if wait_s else ""),
            headers={**HEADERS, "Content-Type": "application/json"},
            body=msgspec.json.encode(body),
            tls=tls,
            timeout_s=_ANSWER_S + wait_s,
        )
        if answer.status != 200:
            raise problem_of(address, "a spoken code", answer)
        return decode(address, answer, shape)

    try:
        offer = await _persist(lambda: post("/claim", shapes.PairingClaim(claim=claim), shapes.PairingOffer))
    except HttpProblem as error:
        if error.code != "not_found":
            raise
        raise PairingError(
            f"no code with the number {code.nameplate} waits at {address.base_url}: it was used before, "
            "given up, has run out, or has another number",
            still_true="Nothing was tried: a code that is still open holds on.",
            next_step=_ASK,
        ) from None
    guest = Guest(
        code.password,
        secrets.token_bytes,
        offer=_bytes(offer.message),
        realm=address.realm,
        nameplate=code.nameplate,
    )
    answer = shapes.PairingAnswer(claim=claim, message=b64encode(guest.answer))
    try:
        async with asyncio.timeout(_LIFE_S):
            while True:
                seen = await _paced(lambda: post("/answer", answer, shapes.Pairing, _WAIT_S))
                if seen.state == "void":
                    raise PairingError(
                        "the other side has ended it: its words are not these, or it has given the code up",
                        next_step=_ASK,
                    )
                if seen.message is not None:
                    return _read(guest.keys.open(_bytes(seen.message)), address)
    except TimeoutError:
        raise PairingError("the other side has not replied in time", next_step=_ASK) from None
    except HttpProblem as error:
        if error.code != "not_found":
            raise
        raise PairingError("the code has run out before the other side replied", next_step=_ASK) from None


async def _persist(ask: Callable[[], Awaitable[_T]]) -> _T:
    """Ask, and ask again where the relay is away for a moment: every request here may be made twice."""
    for left in range(_TRIES, 0, -1):
        try:
            return await ask()
        except (TransportError, HttpProblem) as error:
            if left == 1 or error.code not in ("relay_unreachable", "unavailable"):
                raise
        await asyncio.sleep(_AGAIN_S)
    raise AssertionError("the last try returns or raises")


async def _paced(look: Callable[[], Awaitable[shapes.Pairing]]) -> shapes.Pairing:
    """Look how far the other side is, and not at once again: a relay need not wait as it was asked to."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    seen = await _persist(look)
    if seen.message is None and seen.state != "void":
        await asyncio.sleep(max(0.0, began + _PACE_S - loop.time()))
    return seen


def _read(text: str, address: RelayAddress) -> Invite:
    invite = Invite.parse(text)
    if invite.realm != address.realm:
        raise InviteError(
            f"the code was good for an invite into realm {invite.realm}, and it was used in {address.realm}",
            next_step="ask for an invite as a line: ringline invite",
        )
    return invite


def _bytes(message: str | None) -> bytes:
    try:
        return b64decode(message or "")
    except EncodingError:
        raise PairingError("what the relay handed on is no message of a pairing", next_step=_NEW) from None


def _nobody(state: str) -> PairingError:
    if state == "open":
        what = "nobody has used the code in time"
    else:
        what = "somebody took the code, and did not say the words in time"
    return PairingError(what, next_step=_NEW)
