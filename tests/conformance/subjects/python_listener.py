"""The Python listener as a subject of the conformance suite: it does what a message tells it to.

See ``conformance/README.md`` for what a subject's command is given, and for the messages.
"""

import asyncio
import os
import sys
from pathlib import Path

from ringline.client import Home
from ringline.listener import Call, Listener, TaskFailed

HOME = Path(os.environ["RINGLINE_SUBJECT_HOME"])

listener = Listener(
    os.environ["RINGLINE_SUBJECT_HANDLE"],
    relay=os.environ["RINGLINE_SUBJECT_URL"],
    realm=os.environ["RINGLINE_SUBJECT_REALM"],
    home=Home(HOME / "ringline"),
    block=os.environ.get("RINGLINE_SUBJECT_BLOCK", "").split(),
    capacity=32,
    offline=True,
    drain=0.2,
    plain=True,
    note=lambda line: print(line, file=sys.stderr),
)


def note_run(message: str) -> None:
    """Write down that work on a message has begun, or was stopped."""
    with (HOME / "runs").open("a", encoding="utf-8") as runs:
        runs.write(f"{message[:1_000]}\n")


@listener.answer
async def obey(call: Call) -> str:
    """Do what the message says."""
    note_run(call.message)
    match call.message.split(" ", 2):
        case ["echo", *words]:
            return " ".join(words)
        case ["wait", *_]:
            try:
                await asyncio.Event().wait()
            finally:
                note_run(f"stopped {call.message}")
        case ["big", size, *_]:
            return "x" * int(size)
        case ["slow", pause_ms, *words]:
            await asyncio.sleep(int(pause_ms) / 1_000)
            return " ".join(words)
        case ["fail", *_]:
            raise TaskFailed("told to fail")
        case _:
            pass
    return "?"


@listener.task
async def upper(call: Call, text: str) -> str:
    """Write a text in capitals."""
    note_run(call.message)
    return text.upper()


if __name__ == "__main__":
    listener.run()
