"""Log-in: who sends a request. Every failure looks the same to whoever failed (RL-AUTH-021)."""

import heapq
from dataclasses import dataclass
from typing import Final, final

from ringline.protocol import token
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import TokenError
from ringline.protocol.identity import Card
from ringline.protocol.instant import Instant
from ringline.protocol.limits import TOKEN_MEMORY_S, TOKENS_LIVE
from ringline.relay.directory import Directory

__all__ = ["Authenticator", "Login", "TokenMemory"]

_SCHEME: Final = "bearer "


@dataclass(frozen=True, slots=True)
class Login:
    """Who was verified, and under which card (base64url of its id)."""

    handle: str
    card_id: str


@final
class TokenMemory:
    """The tokens that were used: a ``jti`` counts once, for 180 s from the token's ``iat``."""

    def __init__(self) -> None:
        self._used: dict[str, dict[str, None]] = {}
        self._expiries: list[tuple[int, int, str, str]] = []

    def use(self, handle: str, jti: str, iat: int, now: Instant) -> bool:
        """Use up ``jti`` of ``handle``; False when it was used before or too many are remembered."""
        self._forget(now)
        used = self._used.setdefault(handle, {})
        if jti in used or len(used) >= TOKENS_LIVE:
            return False
        used[jti] = None
        end = (iat + TOKEN_MEMORY_S) * 1000
        heapq.heappush(self._expiries, (end, now.mono + end - now.wall, handle, jti))
        return True

    def _forget(self, now: Instant) -> None:
        # Tokens are judged by the wall clock, so it must be over by that one; and by the other, since a
        # wall clock that was ahead for a moment would bring a token back to life when it is set right.
        while self._expiries and self._expiries[0][0] < now.wall and self._expiries[0][1] < now.mono:
            _, _, handle, jti = heapq.heappop(self._expiries)
            used = self._used[handle]
            del used[jti]
            if not used:
                del self._used[handle]


@final
class Authenticator:
    """Verifies log-in tokens in one order (RL-AUTH-007 to RL-AUTH-020)."""

    def __init__(self, directory: Directory, started: Instant) -> None:
        """``started`` is when this relay began to remember used tokens."""
        self._directory = directory
        self._started_s = started.wall / 1000
        self._memory = TokenMemory()

    def login(
        self, authorization: str | None, method: str, path: str, now: Instant, *, owner: str | None = None
    ) -> Login | None:
        """Return who logs in with an ``Authorization`` header, None for every failure.

        ``path`` is that of the request, without query. With ``owner`` only that handle may log in: a
        token of another is not used up.
        """
        claims = _claims(authorization)
        if claims is None:
            return None
        held = self._directory.login_card(claims.handle, b64encode(claims.card_id), now)
        # RL-AUTH-012: for a token that names no card the same work is done, under a key that nobody has.
        key = token.DUMMY_SPK if held is None else held.card.spk
        login = self._finish(claims, key, method, path, now, owner)
        return None if held is None else login

    def login_under(
        self, card: Card, authorization: str | None, method: str, path: str, now: Instant
    ) -> Login | None:
        """Return who publishes ``card``, whose own key must have signed the token (RL-HTTP-019).

        The card has been verified. One that its owner called back logs nobody in.
        """
        claims = _claims(authorization)
        if claims is None:
            return None
        mine = claims.handle == card.handle and claims.card_id == card.id
        if mine and self._directory.is_revoked(card.handle, b64encode(card.id)):
            mine = False
        login = self._finish(claims, card.spk if mine else token.DUMMY_SPK, method, path, now, card.handle)
        return login if mine else None

    def _finish(
        self, claims: token.Claims, key: bytes, method: str, path: str, now: Instant, owner: str | None
    ) -> Login | None:
        try:
            token.verify(claims, key)
            token.check(
                claims,
                realm=self._directory.realm,
                method=method,
                path=path,
                now_s=now.wall / 1000,
                started_s=self._started_s,
            )
        except TokenError:
            return None
        if owner is not None and claims.handle != owner:
            return None
        # Last, and only for a token that holds in every other way.
        if not self._memory.use(claims.handle, claims.jti, claims.iat, now):
            return None
        return Login(claims.handle, b64encode(claims.card_id))


def _claims(authorization: str | None) -> token.Claims | None:
    # RFC 9110 §11.1: the scheme's name is read in any case.
    if authorization is None or authorization[: len(_SCHEME)].lower() != _SCHEME:
        return None
    try:
        return token.parse(authorization[len(_SCHEME) :])
    except TokenError:
        return None
