"""What a relay answers to a client: any bytes, to every request that a client makes."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from ringline.client.account import Account
from ringline.client.address import RelayAddress
from ringline.client.clock import RelayClock
from ringline.client.contacts import Contacts
from ringline.client.home import Home
from ringline.client.http import RelayHttp
from ringline.client.keylog import KeyLog
from ringline.client.peers import Peers
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import RinglineError
from ringline_fuzz.command import ROOMS
from ringline_fuzz.json_mutation import mutate_json
from ringline_fuzz.material import ALICE, BOB, NOW, REALM, seed_of
from ringline_fuzz.mutation import mutate_bytes, mutate_text
from ringline_fuzz.state import furnish, move_state
from ringline_fuzz.target import Broken, Target, outcome_of
from ringline_testing.canned import Asked, canned_server

__all__ = ["TARGETS"]

_HANG_S: Final = 60.0
_Work: TypeAlias = Callable[[RelayHttp, Peers, KeyLog], Awaitable[object]]

_ENVELOPE: Final = {
    "v": 1, "suite": 1, "kid": b64encode(seed_of("kid")), "sid": b64encode(ALICE.card.card.id),
    "iat": NOW, "exp": NOW + 1, "ct": "AAAA",
}  # fmt: skip


async def _greet(http: RelayHttp, peers: Peers, log: KeyLog) -> None:
    del peers
    await log.greet(await http.info())


_ASKED: Final[dict[str, _Work]] = {
    "info": lambda http, peers, log: http.info(),
    "greet": _greet,
    "keys": lambda http, peers, log: peers.resolve("bob"),
    "first": lambda http, peers, log: peers.look("dora"),
    "sender": lambda http, peers, log: peers.sender("bob", seed_of("card"), NOW),
    "policy": lambda http, peers, log: http.policy(),
    "invites": lambda http, peers, log: http.invites(),
    "invite": lambda http, peers, log: http.make_invite(1, 86_400),
    "record": lambda http, peers, log: http.record("call-1"),
    "cancel": lambda http, peers, log: http.cancel("call-1"),
    "acknowledge": lambda http, peers, log: http.acknowledge("call-1"),
    "ticket": lambda http, peers, log: http.ticket("/v1/call/bob"),
    "publish": lambda http, peers, log: http.publish(),
    "file": lambda http, peers, log: http.log_file("checkpoint"),
}


def _keys() -> dict[str, object]:
    return {
        "handle": "bob",
        "card": b64encode(BOB.card.card.encode()),
        "card_sig": b64encode(BOB.card.signature),
        "prekey": b64encode(BOB.prekey.prekey.encode()),
        "prekey_sig": b64encode(BOB.prekey.signature),
        "revoked": [b64encode(BOB.card.card.id)],
        "log_index": 3,
        "succession": {
            "old_card_id": b64encode(ALICE.card.card.id),
            "new_ipk": b64encode(BOB.identity.public),
            "ts": NOW,
            "sig": b64encode(BOB.succession.signature),
        },
    }


_BODIES: Final[dict[str, object]] = {
    "info": {
        "realm": REALM, "version": "1", "protocols": ["ringline.v1"], "suites": [1, 2],
        "features": ["keylog"], "limits": {"a": 1}, "budgets": {}, "started_at": NOW,
        "log_key": b64encode(BOB.identity.public),
    },
    "keys": _keys(),
    "policy": {"offline": True, "accept": "listed", "allow": ["bob"], "block": []},
    "invites": {"invites": [{
        "id": "a", "label": None, "uses": 1, "created_at": NOW, "expires_at": NOW + 1, "state": "open",
        "failures": 0, "accepted": [{"handle": "bob", "at": NOW, "proof": None}],
    }], "next": None},
    "invite": {"id": "a", "invite": "s" * 32, "expires_at": NOW},
    "record": {
        "call_id": "call-1", "from": "alice", "to": "bob", "mode": "durable", "state": "completed",
        "terminal_reason": "completed", "message_id": "1" * 32, "correlation_id": "2" * 32,
        "submitted_at": NOW,
        "expires_at": NOW, "started_at": NOW, "finished_at": NOW, "attempts": 1, "deferred_until": None,
        "cancel_requested": False, "outcome": {"terminal": "completed", "envelope": _ENVELOPE},
    },
    "ticket": {"ticket": "t" * 43, "expires_at": NOW},
    "publish": {"handle": "alice", "card_id": b64encode(ALICE.card.card.id), "serial": 7, "prekey_epoch": 1},
}  # fmt: skip
_SAME: Final = {
    "greet": "info",
    "first": "keys",
    "sender": "keys",
    "cancel": "record",
    "acknowledge": "record",
}
_PROBLEMS: Final = (
    (401, "unauthorized"),
    (429, "rate_limited"),
    (409, "conflict"),
    (404, "not_found"),
    (503, "x"),
)


def _seeds() -> list[bytes]:
    found: list[bytes] = []
    for name in _ASKED:
        body = json.dumps(_BODIES.get(_SAME.get(name, name), {})).encode()
        found.append(_case(name, 200, body))
    for status, code in _PROBLEMS:
        problem = {"type": "about:blank", "title": "X", "status": status, "code": code, "retry_after_ms": 1}
        found.append(_case("policy", status, json.dumps(problem).encode(), "application/problem+json"))
    return found


def _case(name: str, status: int, body: bytes, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nDate: Wed, 21 Oct 2026 07:28:00 GMT\r\nContent-Type: {kind}\r\n"
    head += "Retry-After: 1\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    return f"{name}\n{head}".encode() + body


def _damaged(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    name, _, answer = data.partition(b"\n")
    head, gap, body = answer.partition(b"\r\n\r\n")
    match random.randrange(6):
        case 0:
            return name + b"\n" + mutate_bytes(random, answer, [])
        case 1:
            lines = head.decode("latin-1").split("\r\n")
            at = random.randrange(len(lines))
            lines[at] = mutate_text(random, lines[at])
            return name + b"\n" + "\r\n".join(lines).encode("utf-8", "replace") + gap + body
        case 2:
            status = str(
                random.choice((100, 101, 103, 200, 204, 206, 301, 304, 401, 413, 429, 500, 503, 999, 42))
            )
            return name + b"\n" + re.sub(rb" [0-9]{3} ", f" {status} ".encode(), head, count=1) + gap + body
        case _:
            bodies = [other.partition(b"\r\n\r\n")[2] for other in others]
            return name + b"\n" + head + gap + mutate_json(random, body, [other for other in bodies if other])


async def _ask(work: _Work, answer: bytes) -> str:
    head, gap, body = answer.partition(b"\r\n\r\n")
    filled = head.replace(b"{length}", str(len(body)).encode()) + gap + body

    def respond(asked: Asked) -> bytes:
        del asked
        return filled

    async with canned_server(respond) as server:
        room = ROOMS.new()
        furnish(room)
        home, address = Home(room / "home"), RelayAddress.parse(server.url, REALM)
        move_state(home, address)
        account = Account.load(home, address, "alice", NOW)
        clock = RelayClock(lambda: NOW)
        http = RelayHttp(address, account, clock)
        log = KeyLog(home, http, clock, lambda text: None)
        peers = Peers(
            address, http, Contacts(home, home.contacts_file(address)), clock, trust_new=True, log=log
        )
        try:
            async with asyncio.timeout(_HANG_S):
                await work(http, peers, log)
        except RinglineError as error:
            return outcome_of(error).replace(server.url, "")[:50]
        except TimeoutError as error:
            raise Broken("a client waits for ever for its relay") from error
        finally:
            log.close()
    return "answered"


def _answer(data: bytes) -> str:
    name, _, answer = data.partition(b"\n")
    work = _ASKED.get(name.decode("latin-1"))
    if work is None:
        return "no request"
    return f"{name.decode()} {asyncio.run(_ask(work, answer))}"


TARGETS: Final = (
    Target(
        name="relay-answer",
        promise="whatever a relay answers, a client has what it asked for, or an error of Ringline's own",
        seeds=_seeds,
        check=_answer,
        mutate=_damaged,
        short=40,
        full=5_000,
        close=ROOMS.close,
    ),
)
