"""HTTP to a relay: any bytes, with and without a log-in, at every route."""

import json
import re
from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from ringline.protocol.codes import Family, lookup
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import TokenError
from ringline.protocol.shapes import Problem
from ringline.relay.interface import OPERATIONS
from ringline_fuzz.json_mutation import mutate_json
from ringline_fuzz.material import ALICE
from ringline_fuzz.mutation import mutate_bytes, mutate_lines, mutate_text
from ringline_fuzz.relay_stage import PATIENCE_S, STAGE
from ringline_fuzz.target import Broken, Target
from ringline_testing.signed import Owner

__all__ = ["TARGETS"]

_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[^\r\n]*\r\n")
_LENGTH: Final = re.compile(rb"(?im)^content-length: *([0-9]+)\r$")
_PROBLEM: Final = re.compile(rb"(?im)^content-type: *application/problem\+json\r$")
_STATUS_ONLY: Final = {405: "malformed"}
_SENTINEL: Final = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
_UPGRADE: Final = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAECAwQFBgcICQoLDA0ODw==\r\nSec-WebSocket-Protocol: ringline.v1\r\n"
)
_UUID: Final = "0f8fad5b-d9cb-469f-a165-70867728950e"


def _bodies(owner: Owner) -> dict[str, object]:
    """A right body for each operation that takes one, by method and path."""
    return {
        "PUT /v1/handles/{handle}": owner.publication(),
        "PUT /v1/handles/{handle}/prekeys": owner.prekey_publication(),
        "PUT /v1/handles/{handle}/policy": {
            "offline": True,
            "accept": "listed",
            "allow": ["bob"],
            "block": [],
        },
        "POST /v1/handles/{handle}/revocations": owner.revocation(),
        "POST /v1/tickets": {"htu": "/v1/call/bob"},
        "POST /v1/invites": {"uses": 2, "ttl_s": 86_400, "label": "a"},
    }


def _paths(path: str) -> list[str]:
    values = {"handle": "alice", "call_id": "call-1", "invite_id": "invite-1", "tile": "0/000.p/1"}
    filled = re.sub(r"\{([a-z_]+)(?::path)?\}", lambda found: values.get(found[1], "x"), path)
    return [
        filled,
        f"{filled}?wait=0&card={b64encode(ALICE.card.card.id)}",
        f"{filled}?role=callee&limit=3&cursor=1",
    ]


def _seeds() -> list[bytes]:
    owner = Owner(handle="alice", port=0, identity=ALICE.identity, operational=ALICE.operational)
    bodies = _bodies(owner)
    found: list[bytes] = []
    for operation in OPERATIONS:
        body = bodies.get(f"{operation.method} {operation.path}")
        text = "" if body is None else json.dumps(body)
        for target in _paths(operation.path)[: 1 if body is not None else 3]:
            found.append(_request(operation.method, target, text))
    listen = f"/v1/listen/alice?instance={_UUID[:14]}4{_UUID[15:]}&boot={_UUID[:14]}4{_UUID[15:]}&capacity=1"
    found += [_request("GET", target, "", _UPGRADE) for target in ("/v1/call/bob", listen)]
    found.append(_request("POST", "/v1/tickets", json.dumps({"htu": listen})))
    return found


def _request(method: str, target: str, body: str, headers: str = "") -> bytes:
    """A request; what stands in braces is filled in when it is sent."""
    length = "Content-Length: {length}\r\n" if body or method in ("PUT", "POST") else ""
    head = f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {{token}}\r\n"
    head += f"{headers}{length}"
    return f"{head}\r\n{body}".encode()


def _filled(data: bytes, owner: Owner) -> bytes:
    """The bytes to send: a token for the request line as it stands, and the length that the body has."""
    head, gap, body = data.partition(b"\r\n\r\n")
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    try:
        token = owner.token(method.decode("ascii"), path.decode("ascii"))
    except (TokenError, UnicodeDecodeError, msgspec.MsgspecError, ValueError):
        token = "none"
    head = head.replace(b"{token}", token.encode()).replace(b"{length}", str(len(body)).encode())
    return head + gap + body


def _answers(said: bytes) -> list[tuple[int, bytes, bytes]]:
    """The answers in what a relay said: status, head, body. What follows a 101 is no HTTP any more."""
    found: list[tuple[int, bytes, bytes]] = []
    while said:
        match = _STATUS.match(said)
        if match is None:
            raise Broken(f"no HTTP is answered: {said[:80]!r}")
        head, _, rest = said.partition(b"\r\n\r\n")
        status = int(match[1])
        length = _LENGTH.search(head + b"\r")
        size = int(length[1]) if length else 0
        found.append((status, head, rest[:size]))
        said = b"" if status == 101 else rest[size:]
    return found


def _checked(status: int, head: bytes, body: bytes, *, is_head: bool) -> str:
    if status >= 500:
        raise Broken(f"the relay answers {status}: {body!r}")
    if status < 400:
        return str(status)
    if is_head or not _PROBLEM.search(head + b"\r"):
        # What is no HTTP at all is refused before there is a request (RFC 9112 §9.3).
        if status != 400 and not is_head:
            raise Broken(f"{status} without a problem document: {head!r}")
        return f"{status} without document"
    problem = msgspec.json.decode(body, type=Problem)
    row = lookup(Family.HTTP, problem.code)
    allowed = {row.http_status, *(number for number, code in _STATUS_ONLY.items() if code == problem.code)}
    if problem.status != status or status not in allowed:
        raise Broken(f"the document {body!r} came with {status}")
    return f"{status} {problem.code} {problem.detail or ''}"[:60]


async def _ask(name: str, data: bytes, patience: float) -> list[str]:
    owner = STAGE.owners[name]["alice"]
    peer = await STAGE.connect(name, patience)
    try:
        said = await peer.talk(_filled(data, owner) + _SENTINEL)
    finally:
        await peer.close()
    outcomes: list[str] = []
    for status, head, body in _answers_of(data, said):
        outcomes.append(_checked(status, head, body, is_head=data.startswith(b"HEAD")))
    return outcomes


def _answers_of(data: bytes, said: bytes) -> list[tuple[int, bytes, bytes]]:
    if data.startswith(b"HEAD ") and said:
        # Its answer has the length of a body that is not sent.
        head, _, rest = said.partition(b"\r\n\r\n")
        match = _STATUS.match(head + b"\r\n")
        if match is None:
            raise Broken(f"no HTTP is answered: {said[:80]!r}")
        return [(int(match[1]), head, b""), *_answers(rest)]
    return _answers(said)


async def _everywhere(data: bytes) -> str:
    for patience in (PATIENCE_S, 2.0):
        said = {name: await _ask(name, data, patience) for name in STAGE.relays}
        if said["picows"] == said["websockets"]:
            return f"{said['picows'][:1]} {said['proxy'][:1]}"
    raise Broken(f"the edges answer differently: {said}")


def _http(data: bytes) -> str:
    outcome = STAGE.run(_everywhere(data))
    STAGE.check_faults()
    return outcome


def _damaged(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    head, gap, body = data.partition(b"\r\n\r\n")
    match random.randrange(8):
        case 0:
            return mutate_bytes(random, data, others)
        case 1:
            return mutate_lines(random, data, others)
        case 2 | 3 if not body:
            lines = head.decode("latin-1").split("\r\n")
            at = random.randrange(len(lines))
            lines[at] = mutate_text(random, lines[at])
            return "\r\n".join(lines).encode("utf-8", "replace") + gap + body
        case 4:
            headers = head.split(b"\r\n")
            headers.insert(random.randrange(1, len(headers) + 1), _odd_header(random))
            return b"\r\n".join(headers) + gap + body
        case _ if body:
            bodies = [other.partition(b"\r\n\r\n")[2] for other in others]
            return head + gap + mutate_json(random, body, [other for other in bodies if other])
        case _:
            first, *rest = head.split(b"\r\n")
            words = first.decode("latin-1").split(" ")
            at = random.randrange(len(words))
            words[at] = mutate_text(random, words[at])
            return b"\r\n".join([" ".join(words).encode("latin-1", "replace"), *rest]) + gap + body


def _odd_header(random: Random) -> bytes:
    return random.choice(
        (
            b"Host: [",
            b"Host: 127.0.0.1:99999999",
            b"Host: a b",
            b"Host:",
            b"Origin: null",
            b"Content-Length: 1",
            b"Content-Length: -1",
            b"Content-Length: 99999999999999999999",
            b"Transfer-Encoding: chunked",
            b"Transfer-Encoding: gzip, chunked",
            b"Expect: 100-continue",
            b"Connection: close",
            b"Connection: Upgrade, HTTP2-Settings",
            b"Upgrade: h2c",
            b"Upgrade: websocket",
            b"Content-Encoding: gzip",
            b"X-Forwarded-For: \xff, [::1, 1.2.3.4:99999, ::ffff:1.2.3.4",
            b"X-Forwarded-Proto: https",
            b"Authorization: Basic YTpi",
            b"Authorization: Bearer",
            b"Authorization: Bearer \xff",
            b"Cookie: " + b"a" * 9_000,
            b"\x00: a",
            b" folded: a",
        )
    )


TARGETS: Final = (
    Target(
        name="http",
        promise="a relay answers no 5xx, refuses by the registry, logs no fault and lets go of each socket; "
        "the answers beside both edges are the same",
        seeds=_seeds,
        check=_http,
        mutate=_damaged,
        short=80,
        full=10_000,
        close=STAGE.close,
    ),
)
