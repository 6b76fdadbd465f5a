"""Traces, if the program has OpenTelemetry set up: one span for each call, none for frames.

The application's own trace context travels under the seal. What the relay sees is a correlation id that
is fresh and random for each conversation, so that it cannot join the calls of one piece of work
(RL-TRACE-006, RL-TRACE-007). The two are tied by what is written on the span here.
"""

import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span

__all__ = ["CallSpan", "Role", "span"]

Role: TypeAlias = Literal["client", "server"]

_NAME: Final = "ringline"
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


@final
class CallSpan:
    """The span of one call, or nothing when no tracing is set up."""

    __slots__ = ("_span",)

    def __init__(self, span: "Span | None") -> None:
        """For `span`."""
        self._span = span

    @property
    def traceparent(self) -> str | None:
        """The span as a W3C ``traceparent``, to be sealed with the request; None without tracing."""
        if self._span is None:
            return None
        context = self._span.get_span_context()
        if not context.is_valid:
            return None
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags) & 1:02x}"

    def note(self, name: str, value: str) -> None:
        """Write a fact on the span: an id or a code, never a handle, a task or a text."""
        if self._span is not None:
            self._span.set_attribute(name, value)


@contextmanager
def span(role: Role, *, parent: str | None = None) -> Generator[CallSpan]:
    """Run a call within a span of its own.

    ``parent`` is the ``traceparent`` that came under the seal: the span links to it. An exception that
    leaves the block is noted by its kind alone.
    """
    # An SDK that is set up has loaded the API; without one there is nothing to record, and the import
    # would cost every short program 30 ms.
    if "opentelemetry.trace" not in sys.modules:
        yield CallSpan(None)
        return
    from opentelemetry import trace

    kind = trace.SpanKind.CLIENT if role == "client" else trace.SpanKind.SERVER
    tracer = trace.get_tracer(_NAME)
    with tracer.start_as_current_span(
        _NAME,
        kind=kind,
        links=_links(parent),
        attributes={"rpc.system.name": _NAME},
        record_exception=False,
        set_status_on_exception=False,
    ) as current:
        try:
            yield CallSpan(current)
        except BaseException as error:
            current.set_attribute("error.type", str(getattr(error, "code", type(error).__name__)))
            current.set_status(trace.StatusCode.ERROR)
            raise


def _links(parent: str | None) -> "list[Link]":
    match = _TRACEPARENT.fullmatch(parent) if parent is not None else None
    if match is None:
        return []
    from opentelemetry.trace import Link, SpanContext, TraceFlags

    trace_id, span_id, flags = (int(part, 16) for part in match.groups())
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags & 1))
    return [Link(context)] if context.is_valid else []
