"""One span for a call when tracing is set up, nothing otherwise."""

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from ringline.client.telemetry import span
from ringline.protocol.errors import RelayError


def test_the_trace_of_the_program_is_what_is_sealed() -> None:
    context = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1))
    with trace.use_span(NonRecordingSpan(context)), span("client") as call:
        # Without an SDK the API hands the surrounding span on.
        assert call.traceparent == f"00-{0xABC:032x}-{0xDEF:016x}-01"
        call.note("ringline.call_id", "c")


def test_without_a_trace_nothing_is_sealed() -> None:
    with span("client") as call:
        assert call.traceparent is None


@pytest.mark.parametrize("parent", [None, "", "garbage", "00-" + "0" * 32 + "-" + "1" * 16 + "-01"])
def test_a_sealed_trace_that_is_none_does_no_harm(parent: str | None) -> None:
    with span("server", parent=parent):
        pass


def test_an_error_passes_through() -> None:
    with pytest.raises(RelayError), span("server", parent=f"00-{1:032x}-{1:016x}-01"):
        raise RelayError(code="busy")


def test_a_program_without_tracing_does_not_load_it() -> None:
    program = (
        "import sys, ringline.client.telemetry as t\n"
        "with t.span('client') as call: assert call.traceparent is None\n"
        "print('opentelemetry' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert answer.stdout.strip() == "False", answer.stderr
