"""Tickets: a log-in for clients that cannot send headers with a WebSocket handshake.

A token buys one; it opens one path with one query, once, within half a minute (RL-AUTH-027 to RL-AUTH-030).
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, final

from ringline.protocol.errors import HttpProblem
from ringline.protocol.instant import Instant
from ringline.protocol.limits import TICKET_LIFE_MS, TICKETS

__all__ = ["PARAMETER", "Tickets", "detach"]

PARAMETER: Final = "ticket"
"""The query parameter that carries a ticket."""


def detach(query: str) -> tuple[str, str | None]:
    """Return ``query`` without its ticket, otherwise untouched, and the ticket; None without exactly one.

    What is left is compared with the text that the ticket was bought for, so it is not decoded.
    """
    parts = query.split("&")
    prefix = PARAMETER + "="
    found = [part for part in parts if part.startswith(prefix)]
    if len(found) != 1:
        return query, None
    return "&".join(part for part in parts if part is not found[0]), found[0].removeprefix(prefix)


@dataclass(frozen=True, slots=True)
class _Grant:
    handle: str
    card_id: str
    target: str


@final
class Tickets:
    """The live tickets of a relay. Held by their hash: a look-up tells nothing by its time."""

    def __init__(self, ids: Callable[[], str]) -> None:
        """``ids`` returns an unguessable string of URL-safe characters at each call."""
        self._ids = ids
        self._grants: dict[bytes, _Grant] = {}
        # Per handle, by age: all live equally long, so the first ends first.
        self._live: dict[str, dict[bytes, int]] = {}
        self._expiries: list[tuple[int, bytes]] = []

    def issue(self, handle: str, card_id: str, target: str, now: Instant) -> tuple[str, int]:
        """Return a new ticket for ``target`` (path and query) and the Unix ms at which it ends.

        Raises `HttpProblem` (429) when ``handle`` holds `TICKETS` live ones.
        """
        self._expire(now)
        live = self._live.setdefault(handle, {})
        if len(live) >= TICKETS:
            wait = next(iter(live.values())) - now.mono
            raise HttpProblem(f"{TICKETS} tickets are unused", code="rate_limited", retry_after_ms=wait)
        ticket = self._ids()
        key = _hash(ticket)
        expires = now.mono + TICKET_LIFE_MS
        self._grants[key] = _Grant(handle, card_id, target)
        live[key] = expires
        heapq.heappush(self._expiries, (expires, key))
        return ticket, now.wall + TICKET_LIFE_MS

    def redeem(self, ticket: str, target: str, now: Instant) -> tuple[str, str] | None:
        """Use the ticket up and return its handle and card id; None if it does not open ``target`` now.

        A ticket that is shown at another target is not used up, as a token is not.
        """
        self._expire(now)
        key = _hash(ticket)
        grant = self._grants.get(key)
        if grant is None or grant.target != target:
            return None
        self._drop(key)
        return grant.handle, grant.card_id

    def _expire(self, now: Instant) -> None:
        while self._expiries and self._expiries[0][0] <= now.mono:
            self._drop(heapq.heappop(self._expiries)[1])

    def _drop(self, key: bytes) -> None:
        grant = self._grants.pop(key, None)
        if grant is None:
            return
        live = self._live[grant.handle]
        del live[key]
        if not live:
            del self._live[grant.handle]


def _hash(ticket: str) -> bytes:
    return sha256(ticket.encode("utf-8", "surrogatepass")).digest()
