"""A relay in a process of its own, and callers and a listener that keep it busy over real sockets.

The relay is the product's own command with raised budgets. What loads it is lean, so that the relay and not
the load is what is measured; the relay's processor time is read from the kernel.
"""

import asyncio
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final

import msgspec
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from ringline.protocol.limits import SUBPROTOCOL

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from ringline_testing.signed import Owner, exchange

__all__ = [
    "BareCaller",
    "BareListener",
    "Caller",
    "Listener",
    "Owner",
    "all_of",
    "connect",
    "enrolled",
    "head_of",
    "metric",
    "process",
    "processor_time",
    "relay",
    "tail_of",
]

_SETTINGS: Final = {
    # A bench asks more of one identity than any owner: the budgets are kept and counted, and higher.
    "CALLS_PER_HOUR": 100_000,
    "CALLS_PER_PAIR_PER_HOUR": 100_000,
    "FRAMES_PER_SECOND": 1_000_000,
    "STORED_CALLS": 1_000_000,
    "STORED_CALLS_PER_PAIR": 100_000,
    "STORED_REQUEST_BYTES": 2**33,
    "STORED_OUTCOME_BYTES": 2**33,
    "STARTS": 100,
    "CALLER_PLACES_PERCENT": 50,
}


@contextmanager
def process(argv: list[str], ready: str) -> Iterator[tuple[int, int]]:
    """Run a server until the block is left; give its process id and the port that ``ready`` finds."""
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            told = ""
            while (found := re.search(ready, told)) is None:
                line = server.stderr.readline()
                assert line, told
                told += line
            # What it says later is read too, or it would block one day.
            reading = subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL)
            yield server.pid, int(found[1])
        finally:
            server.terminate()
            server.wait(30)
            reading.wait(30)


def relay(db: Path | None) -> Any:
    """Run ``ringline relay dev``, with a file or in memory."""
    argv = [str(Path(sys.executable).with_name("ringline")), "relay", "dev", "--port", "0"]
    argv += [] if db is None else ["--db", str(db)]
    argv += [part for name, value in _SETTINGS.items() for part in ("--set", f"{name}={value}")]
    return process(argv, r"ws://127\.0\.0\.1:(\d+)[\s\S]*Next:")


def processor_time(pid: int) -> float:
    """Return the seconds that all threads of a process have spent."""
    ns = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as file:
            ns += int(file.read().split()[0])
    return ns / 1e9


async def metric(port: int, name: str) -> int:
    """Return a number of the relay's ``/metrics``."""
    text = (await exchange(port, "GET", "/metrics")).body.decode()
    found = re.search(rf"(?m)^ringline_relay_{name} (\d+)$", text)
    assert found is not None, name
    return int(found[1])


async def enrolled(port: int, callers: int) -> tuple[list[Owner], Owner]:
    """Enrol so many callers and a listener that takes durable calls of them."""
    owners = [await Owner.enrolled(f"caller-{number}", port) for number in range(callers)]
    bob = await Owner.enrolled("bob", port)
    allow = [owner.handle for owner in owners]
    policy = {"offline": True, "accept": "anyone", "allow": allow, "block": []}
    assert (await bob.ask("PUT", "/v1/handles/bob/policy", policy)).status == 200
    return owners, bob


def sealed(owner: Owner, size: int) -> str:
    """Return an envelope of ``size`` bytes of JSON that a relay cannot tell from a sealed one."""
    envelope = owner.request()["envelope"] | {"ct": ""}
    room = size - len(msgspec.json.encode(envelope))
    return msgspec.json.encode(envelope | {"ct": "A" * (room // 4 * 4)}).decode()


def head_of(owner: Owner, size: int, *, durable: bool) -> str:
    """Return a request up to its ids."""
    mode = ',"delivery_mode":"durable"' if durable else ""
    return '{"type":"call_request","envelope":' + sealed(owner, size) + mode


def tail_of(owner: Owner, size: int) -> str:
    """Return an outcome from behind its call id."""
    return '","terminal":"completed","envelope":' + sealed(owner, size) + "}"


class Told(msgspec.Struct):
    """What the load looks at of a frame."""

    type: str
    call_id: str = ""
    message_id: str = ""
    correlation_id: str = ""
    lease_id: str = ""
    state: str = ""
    code: str = ""


_read: Final = msgspec.json.Decoder(Told)


class _End(WSListener):
    """One end of a connection to a server."""

    transport: WSTransport

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.TEXT:
            self.heard(_read.decode(frame.get_payload_as_bytes()))

    def heard(self, told: Told) -> None:
        raise NotImplementedError

    def send(self, text: str) -> None:
        self.transport.send(WSMsgType.TEXT, text.encode())


@final
class Caller(_End):
    """One caller's connection. ``admitted`` and ``ended`` are told the seconds that a call took so far."""

    def __init__(
        self,
        owner: Owner,
        size: int,
        *,
        durable: bool,
        admitted: Callable[["Caller", float], None],
        ended: Callable[["Caller", float], None],
    ) -> None:
        self._head = head_of(owner, size, durable=durable)
        self._begun: dict[str, float] = {}
        self._admitted = admitted
        self._ended = ended

    def call(self) -> None:
        """Make one more call, in a conversation of its own."""
        message, correlation = secrets.token_hex(16), secrets.token_hex(16)
        self._begun[correlation] = time.perf_counter()
        self.send(f'{self._head},"correlation_id":"{correlation}","message_id":"{message}"}}')

    def heard(self, told: Told) -> None:
        """Take a frame of the relay."""
        if told.type == "call_queued" or told.state == "ringing":
            begun = self._begun[told.call_id] = self._begun.pop(told.correlation_id)
            self._admitted(self, time.perf_counter() - begun)
        elif told.type == "call_outcome":
            self._ended(self, time.perf_counter() - self._begun.pop(told.call_id))
        elif told.type != "call_status":
            raise RuntimeError(f"the relay said {told}")


@final
class Listener(_End):
    """A listener that accepts what it is given, and answers it as soon as it may."""

    def __init__(self, owner: Owner, size: int) -> None:
        self._tail = tail_of(owner, size)

    def heard(self, told: Told) -> None:
        """Take a frame of the relay."""
        ids = f'"call_id":"{told.call_id}"'
        if told.type == "incoming_call" and told.lease_id:
            ids += f',"lease_id":"{told.lease_id}"'
            self.send(f'{{"type":"call_accepted",{ids}}}')
            self.send(f'{{"type":"call_started",{ids}}}')
        elif told.type == "incoming_call":
            self.send(f'{{"type":"call_accepted",{ids}}}')
            self.send(f'{{"type":"call_started",{ids}}}')
            self.send(f'{{"type":"call_outcome",{ids[:-1]}{self._tail}')
        elif told.type == "call_started":
            self.send(f'{{"type":"call_outcome","lease_id":"{told.lease_id}",{ids[:-1]}{self._tail}')
        else:
            raise RuntimeError(f"the relay said {told}")


@final
class BareCaller(_End):
    """A caller of the forwarder: what it sends and is sent is as long as with the relay."""

    def __init__(self, head: str, ended: Callable[["BareCaller", float], None]) -> None:
        self._head = head
        self._ended = ended
        self._begun: list[float] = []

    def call(self) -> None:
        """Make one more call."""
        self._begun.append(time.perf_counter())
        ids = secrets.token_hex(16), secrets.token_hex(16)
        self.send(f'{self._head},"correlation_id":"{ids[0]}","message_id":"{ids[1]}"}}')

    def heard(self, told: Told) -> None:
        """Take a frame that was sent on."""
        if told.type == "call_outcome":
            self._ended(self, time.perf_counter() - self._begun.pop(0))


@final
class BareListener(_End):
    """A listener behind the forwarder."""

    def __init__(self, tail: str) -> None:
        self._tail = tail

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Answer the caller whose number a frame begins with."""
        if frame.msg_type == WSMsgType.TEXT:
            payload = frame.get_payload_as_bytes()
            number, told = payload[:8].decode(), _read.decode(payload[8:])
            ids = f'"call_id":"{told.correlation_id[:22]}"'
            self.send(f'{number}{{"type":"call_accepted",{ids}}}')
            self.send(f'{number}{{"type":"call_started",{ids}}}')
            self.send(f'{number}{{"type":"call_outcome",{ids[:-1]}{self._tail}')


async def connect(end: _End, owner: Owner, target: str) -> None:
    """Open the connection of a caller or a listener."""
    path = target.partition("?")[0]
    headers = owner.bearer("GET", path) | {"Sec-WebSocket-Protocol": SUBPROTOCOL}
    await ws_connect(
        lambda: end, f"ws://127.0.0.1:{owner.port}{target}", extra_headers=headers, max_frame_size=2**22
    )


def all_of(count: int, patience_s: float = 120) -> tuple[asyncio.Future[None], Callable[[], int]]:
    """Return a future that is done when the function was called so often; it returns how many are left."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = count

    def tick() -> int:
        nonlocal left
        left -= 1
        if left == 0:
            done.set_result(None)
        return left

    asyncio.get_running_loop().call_later(patience_s, lambda: done.done() or done.cancel())
    return done, tick
