"""Starts an impostor: a relay in a forked process, or the command of a listener's or a caller's subject."""

import asyncio
import contextlib
import importlib
import json
import multiprocessing
import re
import shlex
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from ringline.conformance.registry import Case, short_bounds
from ringline.conformance.relay_subject import RelaySubject
from ringline.conformance.subject import Patience, Subject
from ringline_testing.impostors.masquerade import masquerade
from ringline_testing.impostors.table import FOLDER, Impostor

__all__ = ["subject_of"]

_START_S: Final = 60.0
_PRINTED: Final = 400


@contextlib.asynccontextmanager
async def subject_of(
    impostor: Impostor, cases: Sequence[Case], patience: Patience
) -> AsyncGenerator[Subject]:
    """Yield an impostor as a subject of the suite; a relay has the bounds that the cases need.

    Raises `OSError` or `TimeoutError` when it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="ringline-impostor-") as name:
        folder = Path(name)
        if impostor.role == "relay":
            async with _relay(impostor, cases, folder) as url:
                yield RelaySubject(url, patience)
            return
        changes = folder / "changes.json"
        changes.write_text(json.dumps(impostor.changes), encoding="utf-8")
        command = shlex.join([sys.executable, str(FOLDER / "subject.py"), impostor.role, str(changes)])
        subject: Subject = importlib.import_module(f"ringline.conformance.{impostor.role}_subject").make(
            command, patience
        )
        yield subject


@contextlib.asynccontextmanager
async def _relay(impostor: Impostor, cases: Sequence[Case], folder: Path) -> AsyncGenerator[str]:
    """Run a relay; yield its base URL."""
    context = multiprocessing.get_context("forkserver")
    log = folder / "log"
    words = ["relay", "dev", "--port", "0", "--db", str(folder / "relay.db")]
    for name, value in short_bounds(cases).items():
        words += ["--set", f"{name.upper()}={value}"]
    process = context.Process(target=masquerade, args=(impostor.changes, words, str(log)), daemon=True)
    process.start()
    try:
        yield await _address(process, log)
    finally:
        process.kill()
        process.join()


async def _address(process: BaseProcess, log: Path) -> str:
    async with asyncio.timeout(_START_S):
        while True:
            said = log.read_text(encoding="utf-8") if log.exists() else ""
            found = re.search(r"http://[0-9.]+:[0-9]+", said)
            if found is not None and "Next:" in said:
                return found[0]
            if not process.is_alive():
                raise OSError(f"it ended before it served anybody: {said[-_PRINTED:]}")
            await asyncio.sleep(0.05)
