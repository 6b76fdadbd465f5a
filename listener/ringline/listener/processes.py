"""The processes that belong to one command: who they are, whether any is alive, and how to end them.

A command runs in a process group and session of its own. Its children may leave the group (a shell with job
control does that to every pipeline), or the command may end before them. On Linux everything is found in
``/proc``: what is in the group or the session, and all descendants of those. Elsewhere it is the group.

A process that put itself in a session of its own and had its parent die has left for good, as daemons do;
it is nobody's descendant any more and is not found.
"""

import contextlib
import os
import signal
from pathlib import Path
from typing import Final, NamedTuple, final

__all__ = ["Family"]

_PROC: Final = Path("/proc")
_DEAD: Final = frozenset("ZXx")


class _Process(NamedTuple):
    """A process as ``/proc`` tells it; pid and start time together are never used twice."""

    pid: int
    started: int
    parent: int
    group: int
    session: int
    state: str

    @property
    def alive(self) -> bool:
        """False for one that has exited and only waits for its parent to look."""
        return self.state not in _DEAD


@final
class Family:
    """The processes of one command, from its leader's pid, which is also that of group and session.

    The leader must not have been waited for, so that its pid means nothing else.
    """

    def __init__(self, leader: int) -> None:
        """Nothing is looked at yet."""
        self._leader = leader
        # Descendants are known by their parents; once a parent is gone, only this tells they are ours.
        self._known: set[tuple[int, int]] = set()

    def alive(self) -> bool:
        """Look whether anything is left running, and remember whom was found."""
        if not (_PROC / "self" / "stat").exists():
            return _group_exists(self._leader)
        return any(process.alive for process in self._members())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process that is left."""
        # Looked for first: when a parent ends, its children are nobody's descendants any more.
        members = self._members()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._leader, number)
        for process in members:
            if process.alive and process.group != self._leader:
                _signal_one(process, number)

    def _members(self) -> list[_Process]:
        everyone = _processes()
        ours = {
            process.pid: process
            for process in everyone
            if self._leader in (process.group, process.session)
            or (process.pid, process.started) in self._known
        }
        children: dict[int, list[_Process]] = {}
        for process in everyone:
            children.setdefault(process.parent, []).append(process)
        waiting = list(ours)
        while waiting:
            for child in children.get(waiting.pop(), []):
                if child.pid not in ours:
                    ours[child.pid] = child
                    waiting.append(child.pid)
        self._known = {(process.pid, process.started) for process in ours.values()}
        return list(ours.values())


def _processes() -> list[_Process]:
    found: list[_Process] = []
    with contextlib.suppress(OSError):
        for entry in os.listdir(_PROC):
            if entry.isdigit():
                process = _read(int(entry))
                if process is not None:
                    found.append(process)
    return found


def _read(pid: int) -> _Process | None:
    """Read ``/proc/<pid>/stat`` (proc_pid_stat(5)); None when the process is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
        # The name is in parentheses and may hold anything, parentheses too.
        state, parent, group, session, *rest = text.rpartition(")")[2].split()
        return _Process(pid, int(rest[15]), int(parent), int(group), int(session), state)
    except (OSError, ValueError, IndexError):
        return None


def _signal_one(process: _Process, number: signal.Signals) -> None:
    """Signal a process outside the group, and no other that was given its pid meanwhile."""
    with contextlib.suppress(ProcessLookupError, PermissionError, OSError):
        handle = os.pidfd_open(process.pid)
        try:
            now = _read(process.pid)
            if now is not None and now.started == process.started:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _group_exists(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
