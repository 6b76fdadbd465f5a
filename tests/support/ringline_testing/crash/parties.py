"""The relay and the listener of the crash matrix, as processes that are forked with everything imported.

A fault point is taken from the environment when a file is opened, and so after the fork.
"""

import os
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

__all__ = ["EFFECTS", "GO", "PRELOADED", "note_run", "run_listener", "run_relay", "settle_in"]

PRELOADED: Final = (
    "ringline.relay.server",
    "uvloop",
    "ringline.listener",
    "ringline.caller",
    "ringline.client",
    "ringline.cli.app",
    "ringline.cli.result",
    "ringline_testing.crash.deeds",
    "ringline_testing.crash.parties",
)
"""What the process that all others are forked from has imported: starting one then costs milliseconds."""

EFFECTS: Final = "effects"
"""The file in which each start of a handler leaves a line."""

GO: Final = "go"
"""The file for which slow work waits."""


def settle_in(environment: Mapping[str, str], log: Path) -> None:
    """Make this fresh process one of the stage: its variables, and all that it prints in a file."""
    os.environ.update(environment)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"--- process {os.getpid()}\n".encode())
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def run_relay(
    ready: Connection,
    environment: Mapping[str, str],
    log: Path,
    port: int,
    db: Path,
    values: Mapping[str, str],
) -> None:
    """Be the relay until a signal."""
    settle_in(environment, log)
    from ringline.relay.server import run_dev

    def say(line: str) -> None:
        if line.startswith("Next:"):
            ready.send(port)

    run_dev(port=port, db=str(db), values=values, say=say)


def note_run(folder: Path, message: str) -> None:
    """Have the side effect of a call: it is on disk before anything else is done."""
    descriptor = os.open(folder / EFFECTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"{message}\n".encode())
    os.fsync(descriptor)
    os.close(descriptor)


def run_listener(
    ready: Connection, environment: Mapping[str, str], log: Path, url: str, folder: Path, capacity: int
) -> None:
    """Be bob's listener until a signal. The first word of a message says how the work goes."""
    settle_in(environment, log)
    import asyncio

    from ringline.listener import Call, Listener

    async def work(call: Call) -> str:
        """Have one side effect, and give the message back."""
        note_run(folder, call.message)
        kind = call.message.partition(" ")[0]
        while kind == "slow" and not (folder / GO).exists():  # noqa: ASYNC110 - a file wakes nobody
            await asyncio.sleep(0.01)
        if kind == "hang":
            await asyncio.Event().wait()
        return call.message

    listener = Listener(
        "bob",
        relay=url,
        home=folder / "home",
        capacity=capacity,
        offline=True,
        on_ready=lambda serving: ready.send(serving.handle),
    )
    listener.answer(work)
    listener.run()
