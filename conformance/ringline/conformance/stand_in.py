"""A relay that the suite plays, for listeners and callers: it serves keys, and says what it is told.

It is no relay: nothing is routed. A case takes the connections that the subject opens and speaks on them
frame by frame, true or false. What the subject asks by HTTP is answered from what the case has laid out.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, Final, TypeAlias, final
from urllib.parse import parse_qs

import msgspec

from ringline.conformance.identity import Identity, now_ms
from ringline.conformance.subject import Unjudgeable
from ringline.conformance.timeline import Timeline, shorten
from ringline.conformance.verdict import Failed
from ringline.conformance.websocket import WebSocket, accept_proof
from ringline.protocol import token
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import RinglineError
from ringline.protocol.identity import SignedCard
from ringline.protocol.limits import SUBPROTOCOL
from ringline.protocol.prekeys import SignedPrekey

__all__ = ["REALM", "Answering", "Asked", "Dialled", "Published", "StandIn", "Told", "problem"]

REALM: Final = "localhost"
_HEAD_BYTES: Final = 65_536
_BODY_BYTES: Final = 4 * 1_048_576


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One HTTP request of the subject; header names in lower case. ``iss`` has logged in, None without."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    iss: str | None

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> dict[str, list[str]]:
        """The members of the query."""
        return parse_qs(self.target.partition("?")[2], keep_blank_values=True)

    def json(self) -> Any:
        """The body as JSON, None when it is none."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return None


Told: TypeAlias = tuple[int, Any] | tuple[int, Any, dict[str, str]]
"""A status, what becomes JSON (None: no body), and perhaps headers."""

Answering = Callable[[Asked], Told | None]
"""Answers a request; None leaves it to the stand-in."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Dialled:
    """A WebSocket that the subject has opened."""

    asked: Asked
    socket: WebSocket


@final
@dataclass(slots=True)
class Published:
    """What the subject has published under its handle, verified."""

    card: SignedCard
    prekey: SignedPrekey
    body: dict[str, Any] = field(repr=False)


@final
class StandIn:
    """The suite as a relay on a free port of loopback. Leaving it closes whatever is open."""

    def __init__(self, timeline: Timeline, realm: str = REALM) -> None:
        self.timeline = timeline
        self.realm = realm
        self.url = ""
        self.identities: dict[str, Identity] = {}
        """The peers of the subject, whose keys are served."""
        self.superseded: dict[str, dict[str, Any]] = {}
        """Bodies for ``?card=``, by card id."""
        self.revoked: dict[str, list[str]] = {}
        """Card ids shown as revoked, by handle."""
        self.published: dict[str, Published] = {}
        self.asked: list[Asked] = []
        """Every request but those for WebSockets, in order."""
        self.answering: Answering = lambda asked: None
        """What a case puts before the stand-in's own answers."""
        self.refuses_upgrades: int = 0
        """A status with which every WebSocket is refused, 0 for none."""
        self.holds: set[str] = set()
        """Paths whose requests are not answered any more."""
        self.upgrading: Answering = lambda asked: None
        """Refuses a WebSocket, as ``answering`` does a request; None lets it be opened."""
        self.upgrades: list[Asked] = []
        """Every request for a WebSocket, in order."""
        self.subprotocol: str | None = SUBPROTOCOL
        """What is selected in each handshake, None for nothing."""
        self.clock_ahead_s: float = 0.0
        """How much the ``Date`` of every answer is ahead of the suite's clock."""
        self._jtis: set[str] = set()
        self.dialled: asyncio.Queue[Dialled] = asyncio.Queue()
        self.policy: dict[str, Any] = {"offline": False, "accept": "anyone", "allow": [], "block": []}
        self._news = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> "StandIn":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=8 * 1_048_576)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            with contextlib.suppress(OSError, ssl.SSLError):
                writer.transport.abort()

    def serve(self, *identities: Identity) -> None:
        """Serve the keys of these identities from now on."""
        self.identities |= {each.handle: each for each in identities}

    async def until_published(self, handle: str, patience: float) -> Published:
        """Wait until ``handle`` has published its keys. Raises `Unjudgeable` when it does not."""
        try:
            async with asyncio.timeout(patience), self._news:
                await self._news.wait_for(lambda: handle in self.published)
        except TimeoutError:
            raise Unjudgeable(f"it published no keys for {handle} within {patience:g} s") from None
        return self.published[handle]

    async def next_dialled(self, within: float) -> Dialled:
        """Return the next WebSocket that the subject opens. Raises `Failed` when it opens none."""
        try:
            async with asyncio.timeout(within):
                return await self.dialled.get()
        except TimeoutError:
            raise Failed("a connection of the subject", f"it dials nothing within {within:g} s") from None

    async def until_asked(self, path: str, times: int, within: float) -> None:
        """Wait until a path was asked for so often. Raises `Failed` when it is not."""

        def often() -> bool:
            return sum(asked.path == path for asked in self.asked) >= times

        try:
            async with asyncio.timeout(within), self._news:
                await self._news.wait_for(often)
        except TimeoutError:
            raise Failed(f"a request for {path}", "nothing in time") from None

    async def _tell_news(self) -> None:
        async with self._news:
            self._news.notify_all()

    def description(self) -> dict[str, Any]:
        """Return what it says about itself."""
        return {
            "realm": self.realm,
            "version": "0",
            "protocols": [SUBPROTOCOL],
            "suites": [1, 2],
            "features": [],
            "limits": {},
            "budgets": {},
            "started_at": now_ms() - 3_600_000,
        }

    # --- HTTP

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while (asked := await self._read(reader)) is not None:
                if "websocket" in asked.headers.get("upgrade", "").lower():
                    await self._upgrade(asked, reader, writer)
                    return
                answer = await self._answer(asked)
                if asked.path in self.holds:
                    await reader.read()
                    break
                writer.write(self._written(answer))
                await writer.drain()
            writer.close()
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            writer.transport.abort()

    def _written(self, told: Told, *more: tuple[str, str]) -> bytes:
        """Return an answer as its bytes; it is noted as sent."""
        status, body, *rest = told
        data = b"" if body is None else msgspec.json.encode(body)
        kind = "application/problem+json" if status >= 400 else "application/json"
        self.timeline.sent("http", f"{status} {shorten(data)}")
        named = [("Content-Type", kind), ("Content-Length", str(len(data))), *more]
        for headers in rest:
            named += headers.items()
        return self._head(status, *named) + data

    def _head(self, status: int, *headers: tuple[str, str]) -> bytes:
        date = formatdate(time.time() + self.clock_ahead_s, usegmt=True)
        lines = [f"HTTP/1.1 {status} -", f"Date: {date}", *(f"{name}: {value}" for name, value in headers)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    async def _read(self, reader: asyncio.StreamReader) -> Asked | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except asyncio.IncompleteReadError:
            return None
        method, target, _ = head[0].split(" ", 2)
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        size = int(headers.get("content-length", "0"))
        if size > _BODY_BYTES:
            raise ValueError("a body beyond every limit")
        body = await reader.readexactly(size)
        asked = Asked(method=method, target=target, headers=headers, body=body, iss=None)
        return self._logged_in(asked)

    def _logged_in(self, asked: Asked) -> Asked:
        """Judge the log-in by the form that every token has; a wrong one is a divergence."""
        said = asked.headers.get("authorization", "")
        if not said:
            return asked
        who: str | None = None
        try:
            claims = token.parse(said.removeprefix("Bearer "))
            who = claims.handle
            known = self.published.get(who)
            if asked.method == "PUT" and asked.path == f"/v1/handles/{who}":
                known = self._publication(asked.json()) or known
            if known is None:
                raise ValueError("a log-in before anything was published")
            if claims.card_id != known.card.card.id:
                raise ValueError("a log-in by another card than the one that is published")
            token.verify(claims, known.card.card.spk)
            token.check(
                claims, realm=self.realm, method=asked.method, path=asked.path, now_s=float(claims.iat)
            )
            if claims.jti in self._jtis:
                raise ValueError("a token that was used before")
            self._jtis.add(claims.jti)
        except (RinglineError, ValueError, TypeError) as error:
            self.timeline.diverges("http", f"a log-in that does not hold: {error}")
        return Asked(
            method=asked.method, target=asked.target, headers=asked.headers, body=asked.body, iss=who
        )

    def _publication(self, body: Any) -> Published | None:
        try:
            raw = {name: b64decode(body[name]) for name in ("card", "card_sig", "prekey", "prekey_sig")}
            card = SignedCard.parse(raw["card"], raw["card_sig"])
            prekey = SignedPrekey.parse(raw["prekey"], raw["prekey_sig"], card.card)
        except (RinglineError, KeyError, TypeError) as error:
            self.timeline.diverges("http", f"keys that do not hold: {error}")
            return None
        return Published(card, prekey, dict(body))

    async def _answer(self, asked: Asked) -> Told:
        self.asked.append(asked)
        self.timeline.received(
            "http", f"{asked.method} {asked.target}" + (f" {shorten(asked.body)}" if asked.body else "")
        )
        await self._tell_news()
        told = self.answering(asked)
        if told is not None:
            return told
        match asked.method, asked.path.strip("/").split("/"):
            case "GET", ["v1", "relay"]:
                return 200, self.description()
            case "PUT", ["v1", "handles", handle]:
                made = self._publication(asked.json())
                if made is None:
                    return 400, problem(400, "malformed")
                async with self._news:
                    self.published[handle] = made
                    self._news.notify_all()
                return 201, {}
            case "PUT", ["v1", "handles", handle, "prekeys"] if handle in self.published:
                known = self.published[handle]
                made = self._publication(known.body | (asked.json() or {}))
                if made is not None:
                    self.published[handle] = made
                return 200, {}
            case "GET", ["v1", "handles", _, "policy"]:
                return 200, self.policy
            case "PUT", ["v1", "handles", _, "policy"]:
                self.policy = asked.json()
                return 200, self.policy
            case "GET", ["v1", "handles", handle]:
                return self._keys(handle, asked.query.get("card"))
            case "GET", ["v1", "calls"]:
                return 200, {"calls": [], "next": None}
            case _:
                return 404, problem(404, "not_found")

    def _keys(self, handle: str, card: list[str] | None) -> tuple[int, Any]:
        revoked = self.revoked.get(handle, [])
        if card is not None and card[0] in self.superseded:
            return 200, {"handle": handle, "revoked": revoked, **self.superseded[card[0]]}
        if handle in self.identities:
            who = self.identities[handle]
            body = {"handle": handle, "revoked": revoked, **who.publication()}
        elif handle in self.published:
            body = {"handle": handle, "revoked": revoked, **self.published[handle].body}
        else:
            return 404, problem(404, "not_found")
        if card is None:
            return 200, body
        if card[0] != b64encode(_card_id(body)):
            return 404, problem(404, "not_found")
        return 200, {name: body[name] for name in ("handle", "card", "card_sig", "revoked")}

    # --- WebSockets

    async def _upgrade(
        self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        name = asked.target.partition("?")[0]
        self.timeline.received("handshake", f"GET {asked.target} as an upgrade")
        offered = [each.strip() for each in asked.headers.get("sec-websocket-protocol", "").split(",")]
        if SUBPROTOCOL not in offered:
            self.timeline.diverges("handshake", f"{name} without {SUBPROTOCOL}")
        self.upgrades.append(asked)
        refused = self.upgrading(asked)
        if refused is None and self.refuses_upgrades:
            refused = self.refuses_upgrades, problem(self.refuses_upgrades, "unauthorized")
        if refused is not None:
            writer.write(self._written(refused, ("Connection", "close")))
            writer.close()
            return
        writer.write(
            self._head(
                101,
                ("Upgrade", "websocket"),
                ("Connection", "Upgrade"),
                ("Sec-WebSocket-Accept", accept_proof(asked.headers.get("sec-websocket-key", ""))),
                *(() if self.subprotocol is None else (("Sec-WebSocket-Protocol", self.subprotocol),)),
            )
        )
        await self.dialled.put(Dialled(asked=asked, socket=WebSocket(reader, writer, serves=True)))


def _card_id(body: dict[str, Any]) -> bytes:
    return SignedCard.parse(b64decode(body["card"]), b64decode(body["card_sig"])).card.id


def problem(status: int, code: str) -> dict[str, Any]:
    """Return a problem document."""
    return {"type": "about:blank", "title": code, "status": status, "code": code}
