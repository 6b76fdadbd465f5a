"""The relay's counters as ``/metrics`` shows them, in the text format of Prometheus (version 0.0.4).

They count and name nobody: no handle, no id of a call, nothing of a frame (RL-PRIVACY-001, RL-PRIVACY-002).
`FAMILIES` is the one place that knows what may be shown; a counter that is not in it is not. Written by hand:
the format takes these few lines, the usual library some 150 ms of every start.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["CONTENT_TYPE", "FAMILIES", "Family", "render"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_PREFIX: Final = "ringline_relay"
_LABEL_VALUE: Final = re.compile(r"[a-z0-9_]+")


class Family(NamedTuple):
    """One metric. ``now`` tells a present number from a counter since the start of the relay.

    With a ``label``, what follows the name and an underscore is the label's value: ``requests_404`` is
    ``requests`` with ``status="404"``.
    """

    help: str
    now: bool = False
    label: str | None = None


# fmt: off
FAMILIES: Final[Mapping[str, Family]] = {
    # --- connections and requests
    "connections_caller": Family("Connections of callers that were let in."),
    "connections_listener": Family("Connections of listeners that were let in."),
    "connections_closed": Family("Connections that their peers have closed."),
    "connections_lost": Family("Connections that ended in any other way."),
    "connections_replaced": Family("Connections of a listener that it has replaced by a new one."),
    "handshakes": Family("Handshakes of WebSockets that were refused.", label="status"),
    "requests": Family("HTTP requests that were answered.", label="status"),
    "frames_refused": Family("Messages that are no frame to act on."),
    "frames_late": Family("Frames of listeners about calls that have ended."),
    "faults": Family("Exceptions of the relay itself, which it has logged."),
    "traces_dropped": Family("Trace contexts that were not passed on."),
    # --- calls of both modes
    "refused": Family("Requests that were not admitted.", label="code"),
    "repeated": Family("Requests that were answered from the call that they already are."),
    "cancels_requested": Family("Cancellations that were asked for."),
    "cancels_refused": Family("Cancellations that a listener refused."),
    "cancels_late": Family("Answers to a cancellation that came when it was decided."),
    "cancels_unasked": Family("Answers to a cancellation that nobody had asked for."),
    "leases_stale": Family("Frames of listeners under a lease that was gone."),
    # --- sync calls
    "admitted": Family("Sync calls that were admitted."),
    "calls_abandoned": Family("Sync calls that were stopped because their caller was gone."),
    "ended": Family("Sync calls that have ended.", label="state"),
    # --- durable calls
    "stored": Family("Steps of durable calls.", label="step"),
    "store_commits": Family("Transactions of durable calls."),
    "store_failures": Family("Times that durable calls could not be stored or read."),
    "upkeep_failures": Family("Rounds of the database's upkeep that it has refused."),
    # --- now
    "now_callers": Family("Connections of callers.", now=True),
    "now_listeners": Family("Connections of listeners.", now=True),
    "now_calls": Family("Sync calls that have not ended.", now=True),
    "now_records": Family("Records of ended sync calls that answer repeats.", now=True),
    "now_outcome_bytes": Family("Bytes of sealed outcomes in those records.", now=True),
    "now_stored_in_memory": Family("Durable calls of which more is known than is stored.", now=True),
    "now_leases": Family("Durable calls in the hands of listeners.", now=True),
    "now_store_failing": Family("1 while durable calls cannot be stored.", now=True),
    "now_store_bytes": Family("Bytes of the database and its log.", now=True),
    "now_store_log_bytes": Family("Bytes of the database's log.", now=True),
    "now_erasure_late": Family("1 while deleted bytes are in the files longer than they should.", now=True),
}
# fmt: on


def render(snapshot: Mapping[str, int]) -> str:
    """Return the counters of ``snapshot`` that `FAMILIES` knows, under the names by which they are scraped.

    One that has no label and was never counted is 0, so that a rate can be taken from the first time on.
    """
    samples: dict[str, list[str]] = {}
    for name, value in snapshot.items():
        family, labels = _placed(name)
        if family is not None:
            samples.setdefault(family, []).append(f"{_shown(family)}{labels} {value}")
    lines: list[str] = []
    for family, (help_, now, _) in FAMILIES.items():
        shown = _shown(family)
        lines += [f"# HELP {shown} {help_}", f"# TYPE {shown} {'gauge' if now else 'counter'}"]
        if family in samples:
            lines += sorted(samples[family])
        elif FAMILIES[family].label is None:
            lines.append(f"{shown} 0")
    return "\n".join([*lines, ""])


def _shown(family: str) -> str:
    name = f"{_PREFIX}_{family.removeprefix('now_')}"
    return name if FAMILIES[family].now else f"{name}_total"


def _placed(name: str) -> tuple[str | None, str]:
    """Return the family of a counter, and its label as it is written."""
    if name in FAMILIES and FAMILIES[name].label is None:
        return name, ""
    family, _, value = name.partition("_")
    known = FAMILIES.get(family)
    if known is None or known.label is None or not _LABEL_VALUE.fullmatch(value):
        return None, ""
    return family, f'{{{known.label}="{value}"}}'
