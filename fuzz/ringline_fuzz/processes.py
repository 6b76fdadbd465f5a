"""The installed command as a process of its own, over a damaged state folder: a few, for they are slow."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from ringline_fuzz.command import ENVIRONMENT, ROOMS, Told, judge
from ringline_fuzz.state import damaged_state, furnish, split_state, state_seeds
from ringline_fuzz.target import Target

__all__ = ["TARGETS"]

_BOUND_S: Final = 120
_WORDS: Final = {
    "contacts.toml": ("contacts", "ls"),
    "inbox.json": ("inbox", "ls"),
    "receipt.json": ("receipt", "verify", "receipt.json"),
    "keylog.db": ("log", "verify", "--seen"),
    "outbox.db": ("receipt", "save", "rcpt_bob_" + "0" * 31 + "1", "r"),
}


def _process(data: bytes) -> str:
    found = split_state(data)
    if found is None:
        return "no file"
    name, content = found
    words = _WORDS.get(Path(name).name, ("id", "show"))
    room = ROOMS.new()
    furnish(room)
    (room / name).write_bytes(content)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("RINGLINE_")}
    done = subprocess.run(
        [sys.executable, "-m", "ringline.cli", *words],
        cwd=room,
        env=clean | ENVIRONMENT | {"RINGLINE_HOME": str(room / "home")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_BOUND_S,
        check=False,
    )
    told = Told(done.returncode, done.stdout, done.stderr.decode("utf-8", "surrogateescape"))
    return f"{Path(name).name} {judge(told, words)}"


def _damaged(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    # One seed is enough to be asked whole, so the files are chosen here.
    del data, others
    files = state_seeds(".toml", ".json", ".key", ".db")
    return damaged_state(random, random.choice(files), files)


TARGETS: Final = (
    Target(
        name="process",
        promise="over a damaged state folder the installed command ends as promised",
        seeds=lambda: state_seeds(".toml", ".json", ".key", ".db")[:1],
        check=_process,
        mutate=_damaged,
        short=3,
        full=300,
        guided=False,
        close=ROOMS.close,
    ),
)
