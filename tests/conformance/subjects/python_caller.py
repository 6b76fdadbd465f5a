"""The Python caller as a subject of the conformance suite: it calls as it is told on standard input.

See ``conformance/README.md`` for the lines that it reads and writes.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from ringline.caller import AsyncCaller, Cancelled, Conversation, NotCancelled, Reply, RunningCall
from ringline.client import Home
from ringline.protocol.codes import Family
from ringline.protocol.errors import PeerFailure, RinglineError

JsonObject = dict[str, Any]

callers: dict[str, AsyncCaller] = {}
"""By the contact string that they know, "" for none."""
conversations: dict[int, Conversation] = {}
running: dict[int, RunningCall] = {}


def caller(contact: str = "") -> AsyncCaller:
    """Return a caller that knows a contact string."""
    if contact not in callers:
        callers[contact] = AsyncCaller(
            os.environ["RINGLINE_SUBJECT_HANDLE"],
            relay=os.environ["RINGLINE_SUBJECT_URL"],
            realm=os.environ["RINGLINE_SUBJECT_REALM"],
            home=Home(Path(os.environ["RINGLINE_SUBJECT_HOME"]) / "ringline"),
            plain=True,
            contacts=[contact] if contact else [],
            note=lambda line: print(line, file=sys.stderr),
        )
    return callers[contact]


async def obey(order: JsonObject) -> JsonObject:
    """Do what one line says and return what came of it."""
    to = order.get("to", "")
    me = caller(to if "//" in to else "")
    handle = to.removeprefix("ringline://").partition("@")[0]
    what: JsonObject = {name: order[name] for name in ("task", "args", "message_id") if name in order}
    seconds = order["timeout_ms"] / 1_000 if "timeout_ms" in order else None
    match order["do"]:
        case "call" if "conversation" in order:
            talk = conversations.setdefault(order["conversation"], me.conversation(handle))
            return told(await talk.call(order["message"], timeout=seconds))
        case "call":
            call = running[order["id"]] = me.start(handle, order["message"], timeout=seconds, **what)
            return told(await call.result())
        case "submit":
            if "expires_ms" in order:
                what["expires"] = order["expires_ms"] / 1_000
            return {"end": "receipt", "receipt": await me.submit(handle, order["message"], **what)}
        case "result":
            return told(await me.result(order["receipt"], wait=order.get("wait_ms", 0) / 1_000))
        case "cancel":
            of = order["of"]
            outcome = await me.cancel(running[of] if isinstance(of, int) else of)
            said = outcome.reason if isinstance(outcome, NotCancelled) else "requested"
            return {"end": "cancel", "said": "canceled" if isinstance(outcome, Cancelled) else said}
        case unknown:
            raise ValueError(f"no such order: {unknown}")


def told(reply: Reply) -> JsonObject:
    """Return a reply as it is written down."""
    return {"end": "reply", "text": reply.text, "call_id": reply.call_id}


def told_error(error: RinglineError) -> JsonObject:
    """Return what ended a call, told by who says so."""
    if isinstance(error, PeerFailure):
        end: JsonObject = {"end": "peer", "code": error.code, "reason": error.reason, "detail": error.detail}
    else:
        # How a call ended is the relay's word too; that it has not ended yet is known here.
        local = error.family is Family.LOCAL or error.code == "still_running"
        end = {"end": "local" if local else "relay", "code": error.code, "call_id": error.call_id}
    return {name: value for name, value in end.items() if value is not None}


async def answer(order: JsonObject) -> None:
    """Do what one line says, and write what came of it."""
    try:
        end = await obey(order)
    except RinglineError as error:
        print(f"{order['id']}: {error}", file=sys.stderr)
        end = told_error(error)
    print(json.dumps({"id": order["id"]} | end), flush=True)


async def main() -> None:
    """Obey until standard input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=4_194_304)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        task = loop.create_task(answer(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    asyncio.run(main())
