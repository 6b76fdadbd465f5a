"""What happens to calls in the crash matrix, step by step. Every step may be taken again.

A story is played once with faults, and then once more without them: whatever was lost on the way is done
again under the same ids, as a person or a script would.
"""

import signal
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Final, final

from ringline_testing.crash.deeds import Said
from ringline_testing.crash.parties import EFFECTS, GO
from ringline_testing.crash.stage import BOUND_S, Stage, StageError

__all__ = ["STORIES", "Play", "Story"]


@final
@dataclass
class Play:
    """A stage with a story on it, and what callers were told of each call, in order."""

    stage: Stage
    words: dict[str, list[Said]] = field(default_factory=dict[str, list[Said]])
    done: set[str] = field(default_factory=set[str])

    def runs(self, name: str) -> int:
        """Return how often a handler has begun this message."""
        file = self.stage.folder / EFFECTS
        lines = file.read_text().splitlines() if file.exists() else []
        return sum(line.partition(" ")[2] == name for line in lines)

    def note(self, name: str, said: Said | None) -> None:
        """Keep what a caller was told of a call."""
        if said is not None:
            self.words.setdefault(name, []).append(said)


Step = Callable[[Play], None]


@final
@dataclass(frozen=True)
class Story:
    """``ends``: how each of its calls may end, as ``<state> <runs of the handler>``, several by ``|``."""

    steps: tuple[Step, ...]
    ends: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    capacity: int = 4
    mode: str = "durable"


# --- steps


def _up(play: Play) -> None:
    play.stage.up("listener")


def _down(play: Play) -> None:
    play.stage.down("listener")


def _kill_relay(play: Play) -> None:
    play.stage.down("relay", signal.SIGKILL)
    play.stage.up("relay")


def _struck(play: Play) -> None:
    """Wait until every fault has struck."""
    play.stage.until(lambda: play.stage.struck)


def _go(play: Play) -> None:
    (play.stage.folder / GO).touch()


def _once(key: str, step: Step) -> Step:
    """Take a step that must not be taken twice, unless it came to nothing."""

    def take(play: Play) -> None:
        if key not in play.done:
            step(play)
            play.done.add(key)

    return take


def _restore(play: Play) -> None:
    play.stage.restore()


def _submit(name: str, kind: str = "echo", expires: float = 3_600.0) -> Step:
    def take(play: Play) -> None:
        play.stage.perform("submit", name=name, kind=kind, expires=expires)

    return take


def _begun(name: str) -> Step:
    """Wait until the handler has begun, or never will."""

    def take(play: Play) -> None:
        end = time.monotonic() + BOUND_S
        while not play.runs(name) and time.monotonic() < end:
            seen = play.stage.perform("until", name=name, states=["started"])
            state = "unknown" if seen is None else seen.facts.get("state", "unknown")
            if state not in ("started", "unknown"):
                return

    return take


def _until(name: str, *states: str) -> Step:
    def take(play: Play) -> None:
        play.stage.perform("until", name=name, states=list(states))

    return take


def _result(name: str) -> Step:
    def take(play: Play) -> None:
        play.note(name, play.stage.perform("result", name=name))

    return take


def _cancel(name: str) -> Step:
    def take(play: Play) -> None:
        play.stage.perform("cancel", name=name)

    return take


def _replay(name: str) -> Step:
    def take(play: Play) -> None:
        seen = play.stage.perform("until", name=name, states=["delivery_failed"])
        if seen is not None and seen.facts.get("state") == "delivery_failed":
            play.stage.perform("replay", who="bob", call_id=seen.facts["call_id"])

    return take


def _call(name: str) -> Step:
    def take(play: Play) -> None:
        play.note(name, play.stage.perform("call", name=name))

    return take


def _talk(*names: str) -> Step:
    def take(play: Play) -> None:
        said = play.stage.perform("talk", names=list(names))
        for name in names:
            play.note(name, said)
        if said is None or said.exit:
            raise StageError(f"the conversation did not go on: {said}")

    return take


def _call_sealed_before_a_restart(name: str) -> Step:
    """The relay is another one when the call that was sealed is sent for the first time."""

    def take(play: Play) -> None:
        held: list[sqlite3.Connection] = []

        def between(told: Connection, word: str) -> None:
            if word == "here":
                if name not in play.done:
                    # What was sealed cannot be kept, and so not be sent, before it is let go.
                    held.append(play.stage.hold(play.stage.file("alice/outbox.db")))
                told.send("go")
            elif word == "sealed" and held:
                play.done.add(name)
                _kill_relay(play)
                play.stage.let_go(held.pop())

        play.note(name, play.stage.perform("sealed-before-a-restart", between=between, name=name))

    return take


STORIES: Final[Mapping[str, Story]] = {
    "plain": Story((_up, _submit("one"), _result("one")), {"one": "completed 1"}),
    "drained": Story((_up, _submit("one"), _result("one"), _down), {"one": "completed 1"}),
    "canceled while queued": Story((_submit("one"), _cancel("one"), _result("one")), {"one": "canceled 0"}),
    "canceled while it runs": Story(
        (_up, _submit("one", "hang"), _begun("one"), _cancel("one"), _result("one")), {"one": "canceled 1"}
    ),
    "never begun in time": Story((_submit("one", expires=1.5), _result("one")), {"one": "expired 0"}),
    "not done in time": Story(
        (_up, _submit("one", "hang", expires=8.0), _begun("one"), _result("one")),
        # Whoever is first: the listener by its own clock, or the relay by its.
        {"one": "expired 1 | failed 1"},
    ),
    "a listener dies over it": Story((_submit("one"), _up, _result("one")), {"one": "completed 1"}),
    "parked and replayed": Story(
        (_submit("one"), _up, _until("one", "delivery_failed"), _replay("one"), _result("one")),
        {"one": "completed 1"},
        settings={"ATTEMPTS": "1"},
    ),
    "forgotten": Story(
        (_up, _submit("one", expires=8.0), _result("one"), _until("one", "gone"), _result("one")),
        {"one": "completed 1"},
        settings={"STORED_RECORD_LIFE_MS": "1"},
    ),
    "offered again while it runs": Story(
        (
            _up,
            _submit("one", "slow"),
            _begun("one"),
            _once("kill", _kill_relay),
            _struck,
            _go,
            _result("one"),
        ),
        {"one": "completed 1"},
    ),
    "admitted anew by a restored relay": Story(
        (
            _up,
            _submit("one", "slow"),
            _begun("one"),
            _once("restore", _restore),
            _submit("one", "slow"),
            _struck,
            _go,
            _result("one"),
        ),
        {"one": "completed 1"},
    ),
    "a sync call": Story((_up, _call("one")), {"one": "completed 1"}, mode="sync"),
    "a sync call sealed before a restart": Story(
        (_up, _call_sealed_before_a_restart("one")), {"one": "completed 1"}, mode="sync"
    ),
    "a conversation": Story(
        (_up, _once("talk", _talk("one", "two"))), {"one": "completed 1", "two": "completed 1"}, mode="talk"
    ),
}
