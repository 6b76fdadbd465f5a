"""What all parties say of the calls in the end, and whether they agree.

Asked are: the caller's library and command line, its outbox, the relay's record as either party sees it, the
relay's database and the listener's journal as their processes left them when they were killed once more, and
the file of side effects.
"""

import signal
from collections.abc import Iterator
from typing import Any, Final, final

from ringline_testing.crash.deeds import Said, message_id, receipt
from ringline_testing.crash.matrix import Cell
from ringline_testing.crash.stories import STORIES, Play

__all__ = ["Verdict", "judge"]

# The exit codes of the command line, by the state of the record; a signed failure has one of its own.
_EXITS: Final = {
    "completed": {0},
    "canceled": {15},
    "expired": {16},
    "delivery_failed": {17},
    "indeterminate_execution": {18},
}
_PASSING: Final = {"still_running", "relay_unreachable", "unavailable", "rate_limited", "internal_error"}
_TIMEOUT: Final = "timeout"
# What the journal may have of a call that ended so; None: nothing.
_ENTRIES: Final[dict[str, set[str | None]]] = {
    "completed": {"finished"},
    "failed": {"finished"},
    "canceled": {None, "taken", "cancelled"},
    "expired": {None, "taken", "cancelled", "finished"},
    "indeterminate_execution": {"begun", "finished"},
}


@final
class Verdict:
    """``ends``: how each call ended, as ``<state> <runs>``; ``wrong``: what does not agree, in sentences."""

    def __init__(self) -> None:
        self.ends: dict[str, str] = {}
        self.wrong: list[str] = []

    def demand(self, condition: bool, sentence: str) -> None:
        """Note what is wrong unless it holds."""
        if not condition:
            self.wrong.append(sentence)


def judge(cell: Cell, play: Play) -> Verdict:
    """Ask everybody, and compare."""
    verdict, stage, story = Verdict(), play.stage, STORIES[cell.story]
    if stage.faults:
        verdict.wrong.append(f"never reached: {stage.faults}")
    names = list(story.ends)
    seen: dict[str, Any] = {}
    commands: dict[str, Said] = {}
    if story.mode != "talk":
        looked = stage.perform("look", names=names)
        if looked is None or looked.exit:
            verdict.wrong.append(f"the caller cannot look at its calls: {looked}")
            return verdict
        seen = dict(looked.facts)
        ids = {name: facts["kept"]["call_id"] for name, facts in seen.items()}
        viewed = stage.perform("view", who="bob", call_ids=[each for each in ids.values() if each])
        for name, call_id in ids.items():
            view = None if viewed is None else viewed.facts.get(call_id)
            verdict.demand(
                view == seen[name]["record"], f"{name}: bob sees {view}, alice {seen[name]['record']}"
            )
        for name in names:
            said = stage.perform("command", words=["result", receipt(name)])
            assert said is not None
            commands[name] = said
    # Killed once more: what is read then is what a disk would have.
    stage.down("listener", signal.SIGKILL)
    stage.down("relay", signal.SIGKILL)
    for name in names:
        if story.mode == "talk":
            state = "completed"
        elif story.mode == "sync":
            state = _sync(verdict, play, name, seen, commands)
        else:
            state = _durable(verdict, play, name, seen[name], commands[name])
        runs = play.runs(name)
        verdict.demand(runs <= 1, f"{name}: the handler began {runs} times")
        verdict.demand(
            state != "completed" or runs == 1, f"{name}: completed, and the handler ran {runs} times"
        )
        verdict.ends[name] = f"{state} {runs}"
        verdict.demand(
            verdict.ends[name] in cell.ends[name],
            f"{name} ended as {verdict.ends[name]!r}, and not as {' | '.join(sorted(cell.ends[name]))}",
        )
    return verdict


def _words(play: Play, name: str) -> Iterator[Said]:
    """Yield what callers were told that was meant to be the end."""
    parked = True
    for said in reversed(play.words.get(name, [])):
        # A parked call is told as undelivered, and may be tried again.
        if said.code == "delivery_failed" and not parked:
            continue
        parked = False
        if said.code not in _PASSING:
            yield said


def _durable(verdict: Verdict, play: Play, name: str, seen: dict[str, Any], command: Said) -> str:
    kept, record = seen["kept"], seen["record"]
    rows = play.stage.rows(
        play.stage.database, f"SELECT state, finished_at FROM calls WHERE message_id = '{message_id(name)}'"
    )
    verdict.demand(len(rows) <= 1, f"{name}: the relay has {len(rows)} calls of one message")
    state = str(kept["state"])
    if rows:
        stored, finished = rows[0]
        state = stored
        verdict.demand(finished is not None, f"{name}: the relay has no end of it: {stored}")
        verdict.demand(record == stored, f"{name}: the relay shows {record} and has {stored}")
    else:
        verdict.demand(record is None, f"{name}: the relay shows {record} and has nothing")
    verdict.demand(kept["state"] == state, f"{name}: the outbox has {kept['state']}, the relay {state}")
    if kept["signed"]:
        verdict.demand(kept["acknowledged"], f"{name}: the outcome was not acknowledged")
        verdict.demand(not seen["outcome"], f"{name}: the relay has an outcome that was acknowledged")
    told = {(said.exit, said.facts.get("text")) for said in _words(play, name)}
    verdict.demand(len(told) == 1, f"{name}: the caller was told {len(told)} ends: {told}")
    document: dict[str, Any] = command.facts.get("reply") or {}
    told_command = (command.exit, document.get("text"))
    verdict.demand(told <= {told_command}, f"{name}: the command says {told_command}, the library {told}")
    reason = _entry(play, name)
    if state in _EXITS:
        verdict.demand(
            command.exit in _EXITS[state], f"{name}: {state}, and the command ends with {command.exit}"
        )
    else:
        # A signed failure; that nobody knows whether it ran is signed too.
        state = "indeterminate_execution" if command.exit == 18 else state
    verdict.demand(
        reason[0] in _ENTRIES.get(state, {reason[0]}), f"{name}: {state}, and the journal has {reason}"
    )
    return state


def _sync(verdict: Verdict, play: Play, name: str, seen: dict[str, Any], commands: dict[str, Said]) -> str:
    told = {(said.exit, said.code, said.facts.get("text")) for said in _words(play, name)}
    verdict.demand(len(told) == 1, f"{name}: the caller was told {len(told)} ends: {told}")
    exit_code, code, _ = next(iter(told), (1, "nothing", None))
    # A signed failure; that nobody knows whether it ran is signed too.
    state = {0: "completed", 18: "indeterminate_execution"}.get(exit_code, code)
    if state == "completed":
        verdict.demand(seen[name]["kept"]["state"] == state, f"{name}: the outbox has {seen[name]['kept']}")
        verdict.demand(
            commands[name].exit == 0, f"{name}: the command does not show the reply: {commands[name]}"
        )
    entry = _entry(play, name)[0]
    verdict.demand(entry in _ENTRIES.get(state, {None}), f"{name}: {state}, and the journal: {entry}")
    return state


def _entry(play: Play, name: str) -> tuple[str | None, str | None]:
    """Return what the journal has of a call: its state and its reason."""
    try:
        file = play.stage.file("bob/journal.db")
    except ValueError:
        return (None, None)
    rows = play.stage.rows(file, f"SELECT state, reason FROM entries WHERE key = '{message_id(name)}'")
    return rows[0] if rows else (None, None)
