"""Bytes on an open WebSocket of a relay, beside both edges: a caller's and a listener's."""

import json
import struct
from collections.abc import Sequence
from random import Random
from typing import Final

from ringline.relay.edge import EDGES
from ringline_fuzz.json_mutation import mutate_json
from ringline_fuzz.material import ALICE, seed_of, vector_inputs
from ringline_fuzz.mutation import mutate_bytes
from ringline_fuzz.relay_stage import PATIENCE_S, STAGE
from ringline_fuzz.target import Broken, Target
from ringline_testing.raw_peer import KEY, masked
from ringline_testing.signed import Owner

__all__ = ["TARGETS"]

_MESSAGE_BYTES: Final = 8_192
_CONTROL: Final = 0x8
_ROLES: Final = (b"c", b"l")


def _messages(direction: str) -> list[bytes]:
    inputs = [given for given in vector_inputs("frame.read") if given["direction"] == direction]
    texts = [given["text"] for given in inputs if isinstance(given.get("text"), str)]
    return [text.encode("utf-8", "surrogatepass") for text in texts if len(text) < _MESSAGE_BYTES]


def _seeds() -> list[bytes]:
    """A role, and behind it what is sent: frames of a client, one by one and in odd ways."""
    found: list[bytes] = []
    owner = Owner(handle="alice", port=0, identity=ALICE.identity, operational=ALICE.operational)
    asked = json.dumps(owner.request(correlation_id="1" * 32, message_id="2" * 32)).encode()
    durable = asked[:-1] + b', "delivery_mode": "durable"}'
    for role, direction in zip(_ROLES, ("caller_to_relay", "listener_to_relay"), strict=True):
        found += [role + masked(1, message) for message in _messages(direction)]
    whole = masked(1, asked)
    found += [
        b"c" + whole,
        b"c" + whole + whole + masked(1, durable),
        b"c" + masked(1, asked[:40], flags=0) + masked(9, b"ping") + masked(0, asked[40:]),
        b"c" + masked(8, struct.pack("!H", 1000) + b"bye"),
        b"c" + masked(8, struct.pack("!H", 1005)),
        b"l" + masked(10, b"pong") + masked(9, b"x" * 125),
        b"l" + masked(2, seed_of("binary")),
        b"l" + masked(1, b"", length=2**62),
        b"l" + masked(1, b"x" * 70_000),
        b"c" + masked(1, b"\xff\xfe"),
        b"c" + masked(1, b"{", flags=0xC),
    ]
    return found


def _damaged(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    role, sent = data[:1], data[1:]
    match random.randrange(6):
        case 0:
            message = random.choice(_messages("caller_to_relay" if role == b"c" else "listener_to_relay"))
            return role + masked(random.choice((1, 1, 1, 2, 0)), mutate_json(random, message, ()))
        case 1:
            opcode, size = random.randrange(16), random.choice((0, 1, 2, 125, 126, 200))
            return role + sent + masked(opcode, random.randbytes(size), flags=random.randrange(16))
        case 2:
            return role + sent + random.choice(others)[1:]
        case 3:
            return role + masked(
                8, random.choice((struct.pack("!H", random.randrange(65_536)), b"", b"\x03"))
            )
        case _:
            return random.choice(_ROLES) + mutate_bytes(random, sent, [other[1:] for other in others])


def _frames(said: bytes) -> list[str]:
    """The frames of a relay in short: its messages by type and code, its close by code."""
    found: list[str] = []
    while len(said) >= 2:
        first, size = said[0], said[1]
        at = 2
        if size & 0x80:
            raise Broken("a relay masks")
        if size >= 126:
            width = 2 if size == 126 else 8
            size, at = int.from_bytes(said[2 : 2 + width], "big"), 2 + width
        payload, said = said[at : at + size], said[at + size :]
        opcode = first & 0xF
        if not first & 0x80 or first & 0x70:
            raise Broken("a relay fragments, or sets reserved bits")
        if opcode == _CONTROL:
            found.append(f"close {int.from_bytes(payload[:2], 'big')}")
        elif opcode == 1:
            frame = json.loads(payload)
            found.append(f"{frame['type']} {frame.get('code', '')}{frame.get('state', '')}")
        elif opcode != 10:
            raise Broken(f"a relay sends opcode {opcode}")
        else:
            found.append("pong")
    return found


async def _say(edge: str, data: bytes, patience: float) -> list[str]:
    owner = STAGE.owners[edge]["alice"]
    target = owner.call_path("bob") if data[:1] == b"c" else owner.listen_target()
    token = owner.token("GET", target.partition("?")[0])
    head = (
        f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Protocol: ringline.v1\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    )
    peer = await STAGE.connect(edge, patience)
    try:
        said = await peer.talk(head.encode() + data[1:] + masked(8, struct.pack("!H", 1000)))
    finally:
        await peer.close()
    answer, _, frames = said.partition(b"\r\n\r\n")
    if not answer.startswith(b"HTTP/1.1 101 "):
        raise Broken(f"the handshake was refused: {answer[:100]!r}")
    return _frames(frames)


async def _beside_both(data: bytes) -> str:
    for patience in (PATIENCE_S, 2.0):
        said = [await _say(edge, data, patience) for edge in EDGES]
        if said[0] == said[1]:
            return " ".join(said[0][:4])
    raise Broken(f"the edges answer differently: {dict(zip(EDGES, said, strict=True))}")


def _websocket(data: bytes) -> str:
    if data[:1] not in _ROLES:
        return "no role"
    outcome = STAGE.run(_beside_both(data))
    STAGE.check_faults()
    return outcome


TARGETS: Final = (
    Target(
        name="websocket",
        promise="whatever bytes come, a relay answers in frames of its own, closes, and logs no fault; "
        "both edges say the same",
        seeds=_seeds,
        check=_websocket,
        mutate=_damaged,
        short=50,
        full=10_000,
        close=STAGE.close,
    ),
)
