"""What a relay forwards of a ``traceparent``. Nothing is refused here: what breaks the rule is dropped."""

from collections.abc import Iterator

from vectors.vector import Vector, accepted

__all__ = ["vectors"]

_ID = "0af7651916cd43dd8448eb211c80319c"
_SPAN = "b7ad6b7169203331"


def vectors() -> Iterator[Vector]:
    """Yield the vectors of this kind."""
    kept, sampled = f"00-{_ID}-{_SPAN}-00", f"00-{_ID}-{_SPAN}-01"
    long = f"01-{_ID}-{_SPAN}-01-"
    for name, says, given, wanted, rule in (
        ("sampled", "a well-formed value", sampled, sampled, "RL-TRACE-001"),
        ("not_sampled", "a well-formed value", kept, kept, "RL-TRACE-001"),
        (
            "other_flags",
            "only the sampled bit of the flags is kept",
            f"00-{_ID}-{_SPAN}-ff",
            sampled,
            "RL-TRACE-001",
        ),
        ("flags_without_sampled", "no bit but the sampled one", f"00-{_ID}-{_SPAN}-fe", kept, "RL-TRACE-001"),
        ("later_version", "a later version becomes 00", f"01-{_ID}-{_SPAN}-01", sampled, "RL-TRACE-002"),
        (
            "later_version_with_more",
            "what a later version adds is dropped",
            f"{long}what-ever",
            sampled,
            "RL-TRACE-002",
        ),
        ("later_version_at_limit", "512 bytes", long + "x" * (512 - len(long)), sampled, "RL-TRACE-004"),
        ("over_limit", "513 bytes", long + "x" * (513 - len(long)), None, "RL-TRACE-004"),
        (
            "over_limit_in_bytes",
            "more than 512 bytes in fewer characters",
            long + "é" * 229,
            None,
            "RL-TRACE-004",
        ),
        ("version_ff", "a version that is invalid for ever", f"ff-{_ID}-{_SPAN}-01", None, "RL-TRACE-003"),
        ("version_00_with_more", "version 00 ends with its flags", f"{sampled}-x", None, "RL-TRACE-003"),
        ("later_version_glued", "more without a hyphen", f"01-{_ID}-{_SPAN}-01x", None, "RL-TRACE-003"),
        (
            "other_trace",
            "the trace-id is not the correlation id",
            f"00-{_ID[::-1]}-{_SPAN}-01",
            None,
            "RL-TRACE-003",
        ),
        ("zero_span", "a parent-id of zeros", f"00-{_ID}-{'0' * 16}-01", None, "RL-TRACE-003"),
        ("upper_case", "upper-case digits", sampled.upper(), None, "RL-TRACE-003"),
        (
            "upper_case_span",
            "upper-case digits in the parent-id",
            f"00-{_ID}-{_SPAN.upper()}-01",
            None,
            "RL-TRACE-003",
        ),
        ("trailing_line_feed", "a line feed behind", f"{sampled}\n", None, "RL-TRACE-003"),
        ("leading_space", "a space in front", f" {sampled}", None, "RL-TRACE-003"),
        ("short", "a field is missing", f"00-{_ID}-{_SPAN}", None, "RL-TRACE-003"),
        ("short_flags", "one digit of flags", f"00-{_ID}-{_SPAN}-1", None, "RL-TRACE-003"),
        ("empty", "an empty text", "", None, "RL-TRACE-003"),
        (
            "full_width_digit",
            "a digit that is none of ASCII",
            f"0\uff10-{_ID}-{_SPAN}-01",
            None,
            "RL-TRACE-003",
        ),
    ):
        yield accepted(
            f"trace.{name}",
            "trace.forward",
            says,
            {"traceparent": given, "correlation_id": _ID},
            {"traceparent": wanted},
            rule,
        )
