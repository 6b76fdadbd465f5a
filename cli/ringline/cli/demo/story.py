"""The story that the demonstration tells, step by step; every claim in it is checked."""

import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from ringline.cli.demo import agent
from ringline.cli.demo.lies import FlippedBit, SwappedKeys
from ringline.cli.demo.parties import Finished, Party, Unexpected, run
from ringline.cli.demo.stage import Stage
from ringline.cli.demo.wire import Passed, Wire
from ringline.client.account import Account
from ringline.client.address import RelayAddress
from ringline.client.home import Home
from ringline.protocol.codes import Family, lookup

__all__ = ["tell"]

BOB: Final = "bob"
MESSAGE: Final = "The merger with Initech is confidential until Thursday."
_READY_S: Final = 20.0
_CALL_S: Final = 20.0


async def tell(stage: Stage) -> None:
    """Tell the whole story. Raises `Unexpected` at the first thing that is not as it should be.

    All processes that are started are ended, and the folder with their keys is removed, however it ends.
    """
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="ringline-demo-"))
    for name in ("relay", BOB, "caller"):
        (folder / name).mkdir()
    try:
        await _tell(stage, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    activate = Path(sys.executable).parent / "activate"
    stage.end(
        f"All as it should be, in {time.monotonic() - began:.1f} s. Every process has ended.",
        [
            "Now by hand, in three terminals:",
            *([] if shutil.which("ringline") else [f"  source {activate}   # first, in each"]),
            "  ringline relay dev",
            "  ringline listen --as echo --run cat",
            '  ringline call echo "hello"',
        ],
    )


async def _tell(stage: Stage, folder: Path) -> None:
    stage.title(
        "Ringline: one agent calls another over a relay that cannot read them. All of it on this computer."
    )
    async with Party("the relay", ["relay", "dev", "--port", "0"], folder / "relay") as relay:
        stage.step("A relay starts")
        stage.command("ringline relay dev")
        port = int((await relay.says(r"http://127\.0\.0\.1:(\d+)/v1/relay", _READY_S))[1])
        stage.fact("process", f"{relay.pid}, on port {port}")
        stage.fact("it knows", "nobody")
        async with Wire(port) as wire:
            stage.text(
                "Whoever talks to it goes through a recorder on the wire, at another port. What is recorded "
                "there is exactly what the relay sees."
            )
            await _listener(stage, folder, wire)


async def _listener(stage: Stage, folder: Path, wire: Wire) -> None:
    home = folder / BOB
    shutil.copy(agent.__file__, home / "agent.py")
    words = ["listen", "--as", BOB, "--relay", wire.url, "--run", sys.executable, "agent.py"]
    async with Party("the listener", words, home) as listener:
        stage.step("bob waits for calls: a listener, and a program that answers")
        stage.command("ringline listen --as bob --run python3 agent.py")
        await listener.says("ready", _READY_S)
        stage.quote(listener.told)
        stage.fact("process", str(listener.pid))
        stage.fact("bob knows", "its own private keys, in files that only this user can read")
        stage.fact("relay knows", "that there is a bob, his public keys, and that he is online")
        await _first_call(stage, folder, wire)
        await _swapped_key(stage, folder, wire)
        await _flipped_bit(stage, folder, wire, listener)


async def _first_call(stage: Stage, folder: Path, wire: Wire) -> None:
    stage.step("Somebody calls bob")
    stage.command("ringline call bob -          # the message comes from standard input")
    stage.fact("message", MESSAGE)
    done = await _call(folder, wire)
    stage.quote(done.told)
    _expect(done, 0)
    reply = agent.answer(MESSAGE)
    if done.out != reply + "\n":
        raise Unexpected(f"standard output was {done.out!r}")
    stage.fact("reply", done.out.rstrip("\n"))
    stage.good(
        "The reply is signed by bob and was sealed for this call alone; only the caller could open it."
    )
    _runs(folder, 1)

    stage.step("What the relay saw of it")
    frames = [entry for entry in wire.passed if entry.is_frame and entry.content]
    heads = ("at", "on the wire", "bytes", "frame", "what is readable in it")
    stage.table(heads, [_row(entry, frames[0].at) for entry in frames])
    for what, text in (("message", MESSAGE), ("reply", reply)):
        if found := wire.finds(text):
            raise Unexpected(f"the {what} was readable on the wire: {', '.join(found)}")
    # A search that cannot find anything would prove nothing.
    if not wire.finds(BOB):
        raise Unexpected("the search does not find the handle, which is on the wire")
    stage.good(
        f"All {wire.bytes_seen:,} bytes that passed, HTTP and log-ins too, were searched for message and "
        "reply, as text, UTF-16, hexadecimal and base64: neither is there. (The handle bob is found.)"
    )
    stage.fact(
        "relay knows", "who called whom, when, for how long, and sizes in padded steps; not what was said"
    )


async def _swapped_key(stage: Stage, folder: Path, wire: Wire) -> None:
    stage.step("The relay lies: it shows a key of its own as bob's, to read the next call")
    stage.text(
        "All of what it shows is valid in itself: a card for the name bob, signed, and prekeys, signed."
    )
    lie = SwappedKeys(BOB, _own_keys(folder, wire))
    before = len(wire.passed)
    wire.meddler = lie
    stage.command("ringline call bob -")
    done = await _call(folder, wire)
    wire.meddler = None
    stage.quote(done.told)
    _expect(done, lookup(Family.LOCAL, "key_changed").exit_code)
    if not lie.told or done.out:
        raise Unexpected("the call did not meet the lie")
    if any(entry.is_frame and b'"call_request"' in entry.content for entry in wire.passed[before:]):
        raise Unexpected("a call was sent under a swapped key")
    _runs(folder, 1)
    stage.good("Refused before anything was sealed: nothing of the call went out.")


async def _flipped_bit(stage: Stage, folder: Path, wire: Wire, listener: Party) -> None:
    stage.step("The relay changes one bit of a sealed call on its way to bob")
    lie = FlippedBit()
    wire.meddler = lie
    said = len(listener.told)
    stage.command("ringline call bob -")
    done = await _call(folder, wire)
    wire.meddler = None
    stage.quote(done.told)
    _expect(done, lookup(Family.RELAY, "protocol_error").exit_code)
    if lie.told != 1 or done.out:
        raise Unexpected("the call did not meet the lie")
    _runs(folder, 1)
    if not listener.runs:
        raise Unexpected("the listener did not survive the changed bit")
    stage.fact(
        "bob says",
        " ".join(listener.told[said:]) or "nothing",
    )
    stage.good(
        "bob's listener could not open it and refused it. His program ran once in all, for the first call."
    )


async def _call(folder: Path, wire: Wire) -> Finished:
    return await run(["call", BOB, "-", "--relay", wire.url], folder / "caller", MESSAGE, _CALL_S)


def _expect(done: Finished, code: int) -> None:
    if done.code != code:
        raise Unexpected(f"the call ended with exit code {done.code} instead of {code}")


def _runs(folder: Path, times: int) -> None:
    """Check how often bob's program has run."""
    count = len((folder / BOB / "runs").read_text().splitlines())
    if count != times:
        raise Unexpected(f"bob's program has run {count} times instead of {times}")


def _own_keys(folder: Path, wire: Wire) -> dict[str, Any]:
    """Make an identity that calls itself bob, as a relay that lies would, and return its publication."""
    now = time.time_ns() // 1_000_000
    account = Account.create(Home(folder / "liar"), RelayAddress.parse(wire.url), BOB, now)
    keys: dict[str, Any] = msgspec.to_builtins(account.publication(now))
    return keys


def _row(entry: Passed, began: float) -> Sequence[str]:
    frame = json.loads(entry.content)
    who = "bob" if "/listen/" in entry.request else "caller"
    way = f"{who} → relay" if entry.direction == "to relay" else f"relay → {who}"
    clear = [
        f"{name} {_short(frame[name])}" for name in ("from", "state", "terminal", "call_id") if name in frame
    ]
    if "envelope" in frame:
        clear.append(f"{len(frame['envelope']['ct']):,} sealed")
    return (f"{entry.at - began:.3f}s", way, f"{entry.size:,}", frame["type"], ", ".join(clear))


def _short(value: str) -> str:
    return value if len(value) <= 12 else value[:8] + "…"


def main(stage: Stage) -> None:
    """Run the story in an event loop of its own. Raises as `tell`; `KeyboardInterrupt` when told to stop."""

    async def told() -> None:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGHUP):
            # Not the end of the process at once: what was started has to be ended first.
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        await tell(stage)

    try:
        asyncio.run(told())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
