"""The trace rule: what a relay lets through of a W3C ``traceparent``.

Trace context is advisory. A value that breaks the rule is dropped, never repaired by guessing and never
a reason to refuse a call (RL-TRACE-003).
"""

import re
from typing import Final

from ringline.protocol.limits import TRACEPARENT_BYTES

__all__ = ["normalise"]

_LAYOUT: Final = re.compile(
    r"\A(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<rest>-.*)?\Z",
    re.ASCII | re.DOTALL,
)
_NO_SPAN: Final = "0" * 16
_SAMPLED: Final = 0x01


def normalise(traceparent: str, correlation_id: str) -> str | None:
    """Return ``traceparent`` as version 00 with the sampled flag alone, or None to drop it.

    ``correlation_id`` is that of the same frame and must be the trace-id, which is therefore never
    zero. Source: W3C Trace Context §3.2.2 and its versioning rule §4; RL-TRACE-001 to RL-TRACE-004.
    """
    # RL-TRACE-004: more than 512 bytes are dropped.
    if len(traceparent.encode()) > TRACEPARENT_BYTES:
        return None
    match = _LAYOUT.match(traceparent)
    if match is None:
        return None
    version, trace, span, flags, rest = match.groups()
    # RL-TRACE-002: a higher version counts that parses by the W3C rule. Version ff is invalid for ever;
    # version 00 ends with its flags; only a higher one may carry more.
    if version == "ff" or (version == "00" and rest is not None):
        return None
    # RL-TRACE-001: the trace-id is the frame's correlation id, the parent-id is not zero, and the flags are
    # reduced to the sampled bit.
    if trace != correlation_id or span == _NO_SPAN:
        return None
    return f"00-{trace}-{span}-{int(flags, 16) & _SAMPLED:02x}"
