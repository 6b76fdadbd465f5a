"""The agent of the demonstration: a program that reads a message and prints a reply.

It knows nothing of Ringline. Each run leaves a line in the file ``runs`` beside it, so that a run that
should not have been is seen.
"""

import sys
from pathlib import Path

__all__ = ["answer"]


def answer(message: str) -> str:
    """Return what the agent has to say about a message."""
    words = message.split()
    longest = max(words, key=len, default="")
    return f"You wrote {len(words)} words; the longest is {longest!r}."


if __name__ == "__main__":
    with Path("runs").open("a") as runs:
        runs.write("one run\n")
    sys.stdout.write(answer(sys.stdin.read()))
