"""A relay that the suite plays, for subjects that are listeners or callers: it serves keys and says what it is told.

It is no relay: nothing is routed. A case takes the connections that the subject opens and speaks on them
frame by frame, true or false. What the subject asks by HTTP is answered from what the case has laid out.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, Final, final
from urllib.parse import parse_qs

import msgspec

from ringline.conformance.identity import Identity, now_ms
from ringline.conformance.subject import Unjudgeable
from ringline.conformance.timeline import Timeline, shorten
from ringline.conformance.websocket import WebSocket, accept_proof
from ringline.protocol import token
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import RinglineError
from ringline.protocol.identity import SignedCard
from ringline.protocol.limits import SUBPROTOCOL
from ringline.protocol.prekeys import SignedPrekey

__all__ = ["REALM", "Answering", "Asked", "Dialled", "Published", "StandIn"]

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


Answering = Callable[[Asked], tuple[int, Any] | None]
"""Answers a request with a status and what becomes JSON; None leaves it to the stand-in."""


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

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
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

    # --- HTTP

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while (asked := await self._read(reader)) is not None:
                if "websocket" in asked.headers.get("upgrade", "").lower():
                    await self._upgrade(asked, reader, writer)
                    return
                status, body = await self._answer(asked)
                data = b"" if body is None else msgspec.json.encode(body)
                kind = "application/problem+json" if status >= 400 else "application/json"
                self.timeline.sent("http", f"{status} {shorten(data)}")
                writer.write(_head(status, ("Content-Type", kind), ("Content-Length", str(len(data)))) + data)
                await writer.drain()
            writer.close()
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            writer.transport.abort()

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
            who = claims.iss
            known = self.published.get(claims.iss)
            if asked.method == "PUT" and asked.path == f"/v1/handles/{claims.iss}":
                known = self._publication(claims.iss, asked.json()) or known
            if known is None:
                raise ValueError("a log-in before anything was published")
            token.verify(claims, known.card.card.spk)
            if (claims.aud, claims.htm, claims.htu) != (REALM, asked.method, asked.path):
                raise ValueError("a token for another realm or request")
        except (RinglineError, ValueError, TypeError) as error:
            self.timeline.diverges("http", f"a log-in that does not hold: {error}")
        return Asked(
            method=asked.method, target=asked.target, headers=asked.headers, body=asked.body, iss=who
        )

    def _publication(self, handle: str, body: Any) -> Published | None:
        try:
            raw = {name: b64decode(body[name]) for name in ("card", "card_sig", "prekey", "prekey_sig")}
            card = SignedCard.parse(raw["card"], raw["card_sig"])
            prekey = SignedPrekey.parse(raw["prekey"], raw["prekey_sig"], card.card)
        except (RinglineError, KeyError, TypeError) as error:
            self.timeline.diverges("http", f"keys that do not hold: {error}")
            return None
        return Published(card, prekey, dict(body))

    async def _answer(self, asked: Asked) -> tuple[int, Any]:
        self.asked.append(asked)
        self.timeline.received(
            "http", f"{asked.method} {asked.target}" + (f" {shorten(asked.body)}" if asked.body else "")
        )
        told = self.answering(asked)
        if told is not None:
            return told
        match asked.method, asked.path.strip("/").split("/"):
            case "GET", ["v1", "relay"]:
                return 200, _description()
            case "PUT", ["v1", "handles", handle]:
                made = self._publication(handle, asked.json())
                if made is None:
                    return 400, _problem(400, "malformed")
                async with self._news:
                    self.published[handle] = made
                    self._news.notify_all()
                return 201, {}
            case "PUT", ["v1", "handles", handle, "prekeys"] if handle in self.published:
                known = self.published[handle]
                made = self._publication(handle, known.body | (asked.json() or {}))
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
                return 404, _problem(404, "not_found")

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
            return 404, _problem(404, "not_found")
        if card is None:
            return 200, body
        if card[0] != b64encode(_card_id(body)):
            return 404, _problem(404, "not_found")
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
        if self.refuses_upgrades:
            data = msgspec.json.encode(_problem(self.refuses_upgrades, "unauthorized"))
            writer.write(
                _head(self.refuses_upgrades, ("Content-Length", str(len(data))), ("Connection", "close"))
                + data
            )
            writer.close()
            return
        writer.write(
            _head(
                101,
                ("Upgrade", "websocket"),
                ("Connection", "Upgrade"),
                ("Sec-WebSocket-Accept", accept_proof(asked.headers.get("sec-websocket-key", ""))),
                ("Sec-WebSocket-Protocol", SUBPROTOCOL),
            )
        )
        await self.dialled.put(Dialled(asked=asked, socket=WebSocket(reader, writer, serves=True)))


def _card_id(body: dict[str, Any]) -> bytes:
    return SignedCard.parse(b64decode(body["card"]), b64decode(body["card_sig"])).card.id


def _head(status: int, *headers: tuple[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} -", f"Date: {formatdate(usegmt=True)}", *(f"{n}: {v}" for n, v in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _problem(status: int, code: str) -> dict[str, Any]:
    return {"type": "about:blank", "title": code, "status": status, "code": code}


def _description() -> dict[str, Any]:
    return {
        "realm": REALM,
        "version": "0",
        "protocols": [SUBPROTOCOL],
        "suites": [1, 2],
        "features": [],
        "limits": {},
        "budgets": {},
        "started_at": now_ms() - 3_600_000,
    }
