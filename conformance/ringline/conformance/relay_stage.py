"""What a case for a relay works with: identities of its own, their connections, and what they ask by HTTP."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self, final
from uuid import uuid4

import msgspec

from ringline.conformance.address import Address
from ringline.conformance.http import Answer, Headers, exchange
from ringline.conformance.identity import Identity
from ringline.conformance.line import Frame, Line, Side
from ringline.conformance.subject import Patience
from ringline.conformance.timeline import Timeline, shorten
from ringline.conformance.verdict import Failed, Neutral, check
from ringline.conformance.websocket import WebSocket
from ringline.protocol.shapes import Problem, RelayInfo

__all__ = ["RelayStage", "listen_target"]


_AGAIN_S: Final = 0.03


@final
class RelayStage:
    """One case's view of the relay. Handles are new in each, so that budgets are full and cases independent.

    Every envelope of `note_secret`, and those that a `ringline.conformance.relay_scene.Scene` sends, are
    canaries: what carries one to anybody but the other side is a divergence.
    """

    def __init__(
        self,
        address: Address,
        info: RelayInfo,
        timeline: Timeline,
        patience: Patience,
        *,
        tag: str,
        offset_ms: int,
        invite: str | None,
    ) -> None:
        self.address = address
        self.info = info
        self.timeline = timeline
        self.patience = patience
        self._tag = tag
        self._offset_ms = offset_ms
        self._invite = invite
        self._lines: list[Line] = []
        self._names: dict[str, int] = {}
        self._owners: dict[str, int] = {}
        self._secrets: dict[bytes, frozenset[str]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line in self._lines:
            with contextlib.suppress(OSError):
                await line.dispose()

    def bound(self, name: str) -> int:
        """Return a bound of the subject in ms, by its name in ``limits``. Raises `Failed` without it."""
        value = self.info.limits.get(name)
        if value is None:
            raise Failed(f"the limit {name} in GET /v1/relay", "none")
        return value

    def budget(self, name: str, *, most: int = 200) -> int:
        """Return a budget of the subject, which must be small enough to be used up.

        Raises `Neutral` when it is off or larger than ``most``, `Failed` when it is not shown.
        """
        value = self.info.budgets.get(name)
        if value is None:
            raise Failed(f"the budget {name} in GET /v1/relay", "none")
        if not 0 < value <= most:
            raise Neutral(f"needs {name.upper()} from 1 to {most}")
        return value

    def units(self) -> int:
        """Return how many requests of one caller to one handle the hourly budgets let through."""
        whole = self.budget("calls_per_hour")
        return min(whole, self.info.budgets.get("calls_per_pair_per_hour") or whole)

    # --- identities

    def handle(self, name: str) -> str:
        """Return a handle that nobody has taken."""
        return f"{name}-{self._tag}"

    def stranger(self, name: str = "mallory", **members: Any) -> Identity:
        """Return an identity that is not enrolled; its handle begins with ``name``, and is nobody else's."""
        count = self._names[name] = self._names.get(name, 0) + 1
        handle = self.handle(name if count == 1 else f"{name}{count}")
        return Identity(handle=handle, realm=self.info.realm, offset_ms=self._offset_ms, **members)

    async def identity(self, name: str, **members: Any) -> Identity:
        """Return a new identity whose keys are published."""
        made = self.stranger(name, **members)
        answer = await self.publish(made)
        check(answer.status == 201, f"201 for the first publication of {made.handle}", str(answer))
        return made

    async def publish(self, who: Identity, **changes: Any) -> Answer:
        """Publish the keys of an identity; ``changes`` replace members of the body."""
        invite = {} if self._invite is None else {"invite": self._invite}
        body = who.publication() | invite | changes
        body = {name: value for name, value in body.items() if value is not None}
        return await self.ask(who, "PUT", f"/v1/handles/{who.handle}", body)

    async def set_policy(
        self,
        who: Identity,
        *,
        offline: bool = False,
        accept: str = "anyone",
        allow: Sequence[str] = (),
        block: Sequence[str] = (),
    ) -> None:
        """Set the whole policy of an identity. Raises `Failed` when that is not taken."""
        policy = {"offline": offline, "accept": accept, "allow": list(allow), "block": list(block)}
        answer = await self.ask(who, "PUT", f"/v1/handles/{who.handle}/policy", policy)
        check(answer.status == 200, "200 for a policy", str(answer))

    # --- HTTP

    async def ask(
        self,
        who: Identity | None,
        method: str,
        target: str,
        body: object = None,
        *,
        headers: Headers = (),
        host: str | None = None,
        within: float | None = None,
    ) -> Answer:
        """Send one request, logged in as ``who``; ``body`` is encoded as JSON unless it is bytes.

        Every answer that is an error is looked at: it must be a problem document.
        """
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        path = target.partition("?")[0]
        sent = headers if who is None else (who.bearer(method, path), *headers)
        name = f"http {'anonymous' if who is None else who.handle}"
        self.timeline.sent(name, f"{method} {target}" + ("" if data is None else f" {shorten(data)}"))
        try:
            answer = await exchange(
                self.address,
                method,
                target,
                headers=sent,
                body=data,
                host=host,
                patience=self.patience.answer if within is None else within,
            )
        except TimeoutError:
            raise Failed(f"an answer to {method} {path}", "none in time") from None
        except EOFError:
            raise Failed(f"an answer to {method} {path}", "an end of the connection") from None
        self.timeline.received(name, str(answer))
        self._look(name, answer, method)
        if who is not None:
            leak = self._leak(who.handle, answer.body)
            if leak is not None:
                self.timeline.diverges(name, leak)
        return answer

    def _look(self, name: str, answer: Answer, method: str) -> None:
        if answer.status < 400 or method == "HEAD":
            return
        kind = (answer.header("content-type") or "none").partition(";")[0].strip()
        if kind != "application/problem+json":
            self.timeline.diverges(name, f"a {answer.status} of type {kind} instead of a problem document")
            return
        try:
            problem = msgspec.json.decode(answer.body, type=Problem)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.timeline.diverges(name, f"no problem document: {error}")
            return
        if problem.status != answer.status:
            self.timeline.diverges(name, f"a problem of status {problem.status} in a {answer.status}")
        if answer.status in (429, 503) and not (answer.header("retry-after") or "").isdecimal():
            self.timeline.diverges(name, f"a {answer.status} without Retry-After")

    async def record(self, who: Identity, call_id: str, *, wait: int = 0) -> dict[str, Any]:
        """Return a call's record as one of its parties sees it. Raises `Failed` when there is none."""
        query = f"?wait={wait}" if wait else ""
        answer = await self.ask(who, "GET", f"/v1/calls/{call_id}{query}", within=self.patience.answer + wait)
        check(answer.status == 200, f"the record of call {call_id}", str(answer))
        shown: dict[str, Any] = answer.json()
        return shown

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        """Ask again until ``holds`` is true, for as long as an answer may take. Raises `Failed` then."""
        try:
            async with asyncio.timeout(self.patience.answer):
                while not await holds():  # noqa: ASYNC110
                    await asyncio.sleep(_AGAIN_S)
        except TimeoutError:
            raise Failed(what, "another state all the time") from None

    # --- WebSockets

    async def upgrade(
        self,
        target: str,
        *headers: tuple[str, str],
        subprotocols: str | None = "ringline.v1",
        method: str = "GET",
        host: str | None = None,
    ) -> Answer:
        """Ask for a WebSocket as told and return the answer; a connection that opens is dropped."""
        answer, socket = await self._dial(
            target, headers, subprotocols=subprotocols, method=method, host=host
        )
        socket.abort()
        await socket.hang_up()
        return answer

    async def _dial(
        self,
        target: str,
        headers: Headers,
        *,
        subprotocols: str | None = "ringline.v1",
        method: str = "GET",
        host: str | None = None,
        lazy: bool = False,
        name: str = "handshake",
    ) -> tuple[Answer, WebSocket]:
        shown = "".join(f", {key}: {_told(key, value)}" for key, value in headers)
        self.timeline.sent(name, f"{method} {target} as an upgrade{shown}")
        socket = await WebSocket.connect(self.address, lazy=lazy)
        try:
            async with asyncio.timeout(self.patience.answer):
                answer = await socket.upgrade(
                    self.address, target, headers, subprotocols=subprotocols, method=method, host=host
                )
        except TimeoutError:
            await socket.hang_up()
            raise Failed("an answer to the opening handshake", "none in time") from None
        except EOFError:
            await socket.hang_up()
            raise Failed("an answer to the opening handshake", "an end of the connection") from None
        except ValueError as error:
            await socket.hang_up()
            raise Failed("an HTTP answer to the opening handshake", str(error)) from None
        self.timeline.received(name, str(answer))
        self._look(name, answer, method)
        return answer, socket

    async def open_line(
        self, who: Identity, target: str, side: Side, *, stalls: bool = False, headers: Headers | None = None
    ) -> Line:
        """Open a WebSocket, logged in by header unless ``headers`` are given.

        A line that ``stalls`` never reads. Raises `Failed` when the upgrade is refused.
        """
        name = self._line_name(who)
        sent = (who.bearer("GET", target.partition("?")[0]),) if headers is None else headers
        answer, socket = await self._dial(target, sent, lazy=stalls, name=name)
        line = Line(socket, name, side, self.timeline, self.patience, self._inspect)
        self._lines.append(line)
        check(answer.status == 101, f"101 for {target}", str(answer))
        if not stalls:
            line.read()
        return line

    def _line_name(self, who: Identity) -> str:
        count = self._owners[who.handle] = self._owners.get(who.handle, 0) + 1
        return who.handle if count == 1 else f"{who.handle}#{count}"

    async def call_line(self, who: Identity, callee: str, *, query: str = "", stalls: bool = False) -> Line:
        """Open a caller's connection."""
        return await self.open_line(who, f"/v1/call/{callee}{query}", "caller", stalls=stalls)

    async def listen_line(
        self,
        who: Identity,
        *,
        capacity: int = 4,
        instance: str | None = None,
        boot: str | None = None,
        durable: bool = True,
    ) -> Line:
        """Open a listener's connection, of a new instance and process unless told."""
        return await self.open_line(
            who,
            listen_target(who, capacity=capacity, instance=instance, boot=boot, durable=durable),
            "listener",
        )

    # --- blindness

    def note_secret(self, frame: Frame, *readers: str) -> None:
        """Remember a frame's ciphertext: nobody but ``readers`` (handles) may be sent it."""
        ct: object = frame["envelope"].get("ct")
        if isinstance(ct, str) and len(ct) >= 32:
            self._secrets[ct[:32].encode()] = frozenset(readers)

    def _inspect(self, line: str, payload: bytes) -> str | None:
        return self._leak(line.partition("#")[0], payload)

    def _leak(self, handle: str, payload: bytes) -> str | None:
        for canary, readers in self._secrets.items():
            if canary in payload and handle not in readers:
                return "the ciphertext of a call reaches somebody who is not its other side"
        return None


def _told(name: str, value: str) -> str:
    """Return what a report may show of a header: it is kept and passed on, and a token is a secret."""
    return f"{value.partition(' ')[0]} …" if name.lower() == "authorization" else value


def listen_target(
    who: Identity,
    *,
    capacity: int = 4,
    instance: str | None = None,
    boot: str | None = None,
    durable: bool = True,
) -> str:
    """Return the path and query that listen for ``who``."""
    query = f"instance={instance or uuid4()}&boot={boot or uuid4()}&capacity={capacity}"
    return f"/v1/listen/{who.handle}?{query}{'' if durable else '&durable=0'}"
