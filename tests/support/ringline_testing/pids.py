"""Processes by their pids, as ``/proc`` tells them."""

from pathlib import Path

__all__ = ["alive"]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has exited and only waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}
