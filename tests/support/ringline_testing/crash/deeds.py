"""What callers of the crash matrix do, each in a process of its own that ends with it.

Every deed may be done again: a message keeps its id, so that it is the same call.
"""

import asyncio
import hashlib
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ringline_testing.crash.parties import settle_in

if TYPE_CHECKING:
    from ringline.caller import AsyncCaller

__all__ = ["DEEDS", "Said", "message_id", "receipt", "run_deed"]

_WAIT_S: Final = 25.0
_POLL_S: Final = 0.02


@dataclass(frozen=True)
class Said:
    """What a deed came to: the exit code of its error, 0 for none, and what was learned."""

    exit: int
    code: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


def message_id(name: str) -> str:
    """Return the id of the message that a story calls ``name``."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def receipt(name: str) -> str:
    """Return the receipt of a durable call to bob."""
    return f"rcpt_bob_{message_id(name)}"


def run_deed(
    told: Connection,
    environment: Mapping[str, str],
    log: Path,
    url: str,
    deed: str,
    members: Mapping[str, Any],
) -> None:
    """Do a deed as alice, or as its member ``who``, and tell what it came to."""
    settle_in(environment, log)
    from ringline.caller import AsyncCaller
    from ringline.protocol.errors import RinglineError

    async def perform() -> Said:
        given = dict(members)
        who = given.pop("who", "alice")
        try:
            async with AsyncCaller(who, relay=url, note=_say) as caller:
                return Said(0, facts=await DEEDS[deed](caller, told, **given) or {})
        except RinglineError as error:
            return Said(error.exit_code, error.code)

    said = _by_command(url, **members) if deed == "command" else asyncio.run(perform())
    told.send(said)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


async def _enrol(caller: "AsyncCaller", told: Connection) -> None:
    from ringline.client import RelayAddress, RelayClock, RelayHttp
    from ringline.protocol.shapes import Policy

    account = await caller.account()
    http = RelayHttp(RelayAddress.parse(os.environ["RINGLINE_RELAY"]), account, RelayClock())
    await http.set_policy(Policy(offline=True, accept="anyone", allow=[], block=[]))


async def _submit(
    caller: "AsyncCaller", told: Connection, name: str, kind: str = "echo", expires: float = 3_600.0
) -> None:
    await caller.submit(
        "bob", f"{kind} {name}", expires=expires, message_id=message_id(name), timeout=_WAIT_S
    )


async def _result(caller: "AsyncCaller", told: Connection, name: str) -> dict[str, Any]:
    return {"text": (await caller.result(receipt(name), wait=_WAIT_S)).text}


async def _cancel(caller: "AsyncCaller", told: Connection, name: str) -> dict[str, Any]:
    return {"answer": type(await caller.cancel(receipt(name))).__name__}


async def _call(caller: "AsyncCaller", told: Connection, name: str) -> dict[str, Any]:
    reply = await caller.call("bob", f"echo {name}", message_id=message_id(name), timeout=_WAIT_S)
    return {"text": reply.text}


async def _sealed_before_a_restart(caller: "AsyncCaller", told: Connection, name: str) -> dict[str, Any]:
    """Call, but let the stage do what it likes between the sealing and the first sending."""
    told.send("here")
    told.recv()
    running = caller.start("bob", f"echo {name}", message_id=message_id(name), timeout=_WAIT_S)
    async for event in running.events():
        if event.name == "sealed":
            told.send("sealed")
    return {"text": (await running.result()).text}


async def _talk(caller: "AsyncCaller", told: Connection, names: list[str]) -> dict[str, Any]:
    conversation = caller.conversation("bob")
    for name in names:
        text = (await conversation.call(f"echo {name}", timeout=_WAIT_S)).text
        assert text == f"echo {name}"
    return {}


async def _replay(caller: "AsyncCaller", told: Connection, call_id: str) -> dict[str, Any]:
    """Have a parked call tried again, as bob, its callee."""
    from ringline.client import RelayAddress, RelayClock, RelayHttp

    url, path = os.environ["RINGLINE_RELAY"], f"/v1/calls/{call_id}/replay"
    token = RelayHttp(RelayAddress.parse(url), await caller.account(), RelayClock()).token("POST", path)
    asked = urllib.request.Request(url + path, b"", {"Authorization": f"Bearer {token}"}, method="POST")
    try:
        with await asyncio.to_thread(urllib.request.urlopen, asked, timeout=_WAIT_S) as answer:
            return {"status": answer.status}
    except OSError as error:
        return {"status": getattr(error, "code", 0)}


async def _until(caller: "AsyncCaller", told: Connection, name: str, states: list[str]) -> dict[str, Any]:
    """Wait until the relay's record has one of these states; ``gone``: until there is no record."""
    end = time.monotonic() + _WAIT_S
    while True:
        record = await caller.record(receipt(name))
        if record is not None:
            state = record.state
        else:
            # A caller that died before it learned the call's id cannot ask.
            state = "unknown" if (await caller.kept(receipt(name))).call_id is None else "gone"
        # Looking at an outcome again and again would use up the times that it is sent.
        over = record is None or (record.finished_at is not None and "gone" not in states)
        if state in states or over or time.monotonic() > end:
            return {"state": state, "call_id": None if record is None else record.call_id}
        await asyncio.sleep(_POLL_S)


async def _look(caller: "AsyncCaller", told: Connection, names: list[str]) -> dict[str, Any]:
    """Return what outbox and relay say of each call."""
    facts: dict[str, Any] = {}
    for name in names:
        record, kept = await caller.record(receipt(name)), await caller.kept(receipt(name))
        facts[name] = {
            "record": None if record is None else record.state,
            "outcome": record is not None and record.outcome is not None,
            "kept": asdict(kept),
        }
    return facts


async def _view(caller: "AsyncCaller", told: Connection, call_ids: list[str]) -> dict[str, Any]:
    """Return what the relay shows of calls by their ids."""
    records = {call_id: await caller.record(call_id) for call_id in call_ids}
    return {call_id: None if record is None else record.state for call_id, record in records.items()}


def _by_command(url: str, words: list[str]) -> Said:
    """Run the command line in this process, and return its exit code and its document."""
    from ringline.cli.app import main

    with tempfile.TemporaryFile() as out:
        os.dup2(out.fileno(), 1)
        code = main([*words, "--relay", url, "--as", "alice", "--json"])
        sys.stdout.flush()
        out.seek(0)
        return Said(code, facts=json.loads(out.read() or b"{}"))


DEEDS: Final[Mapping[str, Callable[..., Awaitable[dict[str, Any] | None]]]] = {
    "enrol": _enrol,
    "submit": _submit,
    "result": _result,
    "cancel": _cancel,
    "call": _call,
    "sealed-before-a-restart": _sealed_before_a_restart,
    "talk": _talk,
    "replay": _replay,
    "until": _until,
    "look": _look,
    "view": _view,
}
