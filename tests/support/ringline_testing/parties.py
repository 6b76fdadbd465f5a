"""Who lives in the town: callers and their sessions, listeners and their journals, and the wires between."""

import itertools
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from ringline.caller.pending import Outgoing
from ringline.caller.session import CallerSession
from ringline.listener.session import Session
from ringline.protocol.frames import Frame
from ringline_testing.journals import Shelf
from ringline_testing.talk import Task

__all__ = ["CallingParty", "ListeningParty", "Wire"]


def _judge(*asked: object) -> Task:
    """Work on everything."""
    return Task()


@final
@dataclass(eq=False)
class Wire:
    """One connection; ``up`` leads to the relay."""

    number: int
    owner: "CallingParty | ListeningParty"
    card: str
    up: deque[bytes] = field(default_factory=deque[bytes])
    down: deque[Frame] = field(default_factory=deque[Frame])


@final
class CallingParty:
    """One caller's calls to one callee."""

    def __init__(self, handle: str, callee: str) -> None:
        self.handle = handle
        self.callee = callee
        self.session = CallerSession()
        self.wire: Wire | None = None
        self.dial_at = 0
        self.open: dict[str, Outgoing] = {}
        self.receipts: dict[str, str] = {}
        """Durable calls whose end is waited for: call id, by message id."""


@final
class ListeningParty:
    """One handle's listener, process after process on one journal."""

    def __init__(self, handle: str, folder: Path) -> None:
        self.handle = handle
        self.shelf = Shelf(folder / f"{handle}.db")
        self.boot = 0
        self.wire: Wire | None = None
        self.dial_at = 0
        self.jobs: dict[int, tuple[int, bool]] = {}
        """When what runs will have ended, by entry, and whether it was stopped."""
        self.contexts = itertools.count(1)
        self.start()

    def start(self) -> None:
        """Start its process."""
        self.session = Session(
            self.shelf.journal(),
            _judge,
            capacity=8,
            mint=lambda: f"ctx_{next(self.contexts):022d}",
            bound_ms=20_000,
        )
