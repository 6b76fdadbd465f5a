"""A caller's process, its state folder, the relay that the suite plays to it, and the orders it is given."""

import asyncio
import contextlib
import itertools
import secrets
import shutil
import tempfile
from collections import deque
from pathlib import Path
from typing import Any, Final, final

import msgspec

from ringline.conformance.command_process import CommandProcess
from ringline.conformance.stand_in import REALM, Dialled, StandIn
from ringline.conformance.subject import Patience, Unjudgeable
from ringline.conformance.timeline import Timeline, shorten
from ringline.conformance.verdict import Failed

__all__ = ["CallerHouse", "Order"]

_ODD_LINES: Final = 5
_START: Final = 6.0
"""A process starts slower than it answers, by so many times."""


@final
class Order:
    """Something that the subject was told to do, and what it says came of it."""

    def __init__(self, number: int, house: "CallerHouse") -> None:
        self.number = number
        self.answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._house = house

    @property
    def ended(self) -> bool:
        """True when the subject has said what came of it."""
        return self.answer.done()

    async def end(self, within: float) -> dict[str, Any]:
        """Return what the subject says came of it. Raises `Failed` when it says nothing."""
        done, _ = await asyncio.wait({self.answer}, timeout=within)
        if not done:
            said = f"; it said: {self._house.process.said}" if self._house.process.said else ""
            raise Failed("an end of what the subject was told to do", f"nothing within {within:g} s{said}")
        return self.answer.result()


@final
class CallerHouse:
    """One identity of a subject with all that belongs to it. A case has it for itself."""

    def __init__(
        self, arguments: list[str], patience: Patience, timeline: Timeline, realm: str = REALM
    ) -> None:
        self.relay = StandIn(timeline, realm)
        self.realm = realm
        self.handle = f"subject-{secrets.token_hex(4)}"
        self.folder = Path(tempfile.mkdtemp(prefix="ringline-conformance-"))
        self.process: CommandProcess
        self.clean = True
        """Whether another case may have it afterwards."""
        self._arguments = arguments
        self._patience = patience
        self._timeline = timeline
        self._orders: dict[int, Order] = {}
        self._numbers = itertools.count(1)
        self._odd: deque[str] = deque(maxlen=_ODD_LINES)
        self._hearing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start the subject for the first time. Raises `Unjudgeable`."""
        await self.relay.__aenter__()
        await self.start()

    async def probe(self) -> None:
        """Find out whether it obeys, by a call to somebody who is not there. Raises `Unjudgeable`."""
        order = await self.order("call", to="nobody-is-there", message="hello", timeout_ms=10_000)
        try:
            await order.end(self._patience.answer * _START)
        except Failed as error:
            odd = "".join(f"\n{line}" for line in self._odd)
            wrote = f"; lines on stdout that answer nothing it was told:{odd}" if odd else ""
            said = f"; it said on stderr:\n{self.process.said}" if self.process.said else ""
            raise Unjudgeable(f"the caller does not obey: {error.actual}{wrote}{said}") from None

    def record(self, timeline: Timeline) -> None:
        """Put what passes from now on on the record of another case."""
        self.relay.timeline = self._timeline = timeline

    def forget(self) -> None:
        """Take back whatever a case has laid out."""
        relay = self.relay
        relay.identities, relay.superseded, relay.revoked = {}, {}, {}
        relay.answering = relay.upgrading = lambda asked: None
        relay.asked, relay.upgrades = [], []

    # --- the process

    async def start(self) -> None:
        """Start a process on the state folder. Raises `Unjudgeable`."""
        self.process = await CommandProcess.start(
            self._arguments,
            url=self.relay.url,
            realm=self.realm,
            handle=self.handle,
            home=self.folder,
            talks=True,
        )
        self._hearing = asyncio.create_task(self._hear(self.process))

    async def restart(self) -> None:
        """End the process in good order, and start another one in the same folder."""
        self._timeline.remark("subject", "is ended and started again")
        await self.process.stop(self._patience.answer)
        await self.start()

    async def kill(self) -> None:
        """Let the process die where it stands."""
        self._timeline.remark("subject", "is killed")
        await self.process.kill()

    async def _hear(self, process: CommandProcess) -> None:
        stream = process.process.stdout
        assert stream is not None
        with contextlib.suppress(OSError, ValueError):
            while line := await stream.readline():
                self._take(line.strip())

    def _take(self, line: bytes) -> None:
        self._timeline.received("subject", shorten(line))
        try:
            said = msgspec.json.decode(line, type=dict[str, Any])
            order = self._orders[said["id"]]
        except (msgspec.MsgspecError, KeyError, TypeError):
            self._odd.append(shorten(line))
            self._timeline.diverges("subject", "a line that answers nothing it was told")
            return
        if "end" not in said:
            return
        if order.answer.done():
            self._timeline.diverges("subject", "a second end of one order")
            return
        order.answer.set_result(said)

    async def order(self, do: str, **members: Any) -> Order:
        """Tell the subject to do something."""
        order = Order(next(self._numbers), self)
        self._orders[order.number] = order
        data = msgspec.json.encode({"id": order.number, "do": do} | members)
        self._timeline.sent("subject", shorten(data))
        stream = self.process.process.stdin
        assert stream is not None
        with contextlib.suppress(OSError):
            stream.write(data + b"\n")
            await stream.drain()
        return order

    # --- connections

    async def next_dialled(self, within: float) -> Dialled:
        """Return the next connection of the subject, to whomever. Raises `Failed` when none comes."""
        try:
            async with asyncio.timeout(within):
                return await self.relay.dialled.get()
        except TimeoutError:
            raise Failed("a connection of the caller", f"none within {within:g} s") from None

    @property
    def alive(self) -> bool:
        """True while the process runs and nothing of what it was told is left to do."""
        return not self.process.ended and all(order.ended for order in self._orders.values())

    async def close(self) -> None:
        """End whatever belongs to it."""
        await self.process.kill()
        if self._hearing is not None:
            self._hearing.cancel()
        await self.relay.__aexit__()
        shutil.rmtree(self.folder, ignore_errors=True)
