"""Blindness: known strings are sealed, and then looked for wherever a relay could have them.

Searched are all bytes between the clients and the relay, the relay's database files, the log of every part at
its most talkative, and the traces. What must be found is looked for by the same search, so that it can fail.
"""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ringline.caller import AsyncCaller
from ringline.cli.demo.wire import Wire, forms
from ringline.listener import Call, Listener, TaskFailed
from ringline.protocol.errors import PeerFailure
from ringline_testing.relay import running_relay

MESSAGE = "canary-message-5b1f: the heron lands at noon"
REPLY = "canary-reply-c27d: the heron has landed"
VALUE = "canary-value-90aa"
TASK = "canary-task-77e0"
ARGUMENT = "canary-argument-1d43"
DETAIL = "canary-detail-e6b8: no heron in sight"
SUMMARY = "canary-summary-0f95"
STORED = "canary-stored-48c2: the heron waits in the post"
SEALED = (MESSAGE, REPLY, VALUE, TASK, ARGUMENT, DETAIL, SUMMARY, STORED)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Tracing set up as an application would, for this test alone."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # The API lets a process choose its provider once; this test leaves the choice open for others.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def listener(url: str, home: Path) -> Listener:
    """Return bob's, whose answers are all canaries."""
    bob = Listener("bob", relay=url, home=home, offline=True)

    @bob.answer
    def answer(call: Call) -> str:
        return f"{REPLY} {call.message}"

    def task(value: str) -> dict[str, str]:
        return {"value": f"{VALUE} {value}"}

    task.__doc__ = SUMMARY
    bob.task(name=TASK)(task)

    @bob.task(name="fail")
    def fail() -> None:
        raise TaskFailed(DETAIL)

    return bob


def found(text: str, haystack: bytes) -> list[str]:
    """Return in which forms the text is there."""
    return [name for name, form in forms(text) if form in haystack]


@pytest.mark.parametrize("edge", ["picows", "websockets"])
async def test_no_sealed_text_is_anywhere_that_a_relay_could_read(
    edge: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, spans: InMemorySpanExporter
) -> None:
    caplog.set_level(logging.DEBUG)
    folder = tmp_path / "relay"
    folder.mkdir()
    async with (
        asyncio.timeout(60),
        running_relay(edge=edge, db=folder / "relay.db") as relay,
        Wire(relay.port) as wire,
    ):
        async with (
            listener(wire.url, tmp_path / "bob").serving(),
            AsyncCaller("alice", relay=wire.url, home=tmp_path / "alice") as alice,
        ):
            reply = await alice.call("bob", MESSAGE)
            assert (REPLY in reply.text, MESSAGE in reply.text) == (True, True)
            worked = await alice.call("bob", MESSAGE, task=TASK, args={"value": ARGUMENT})
            assert ARGUMENT in str(worked.value)
            with pytest.raises(PeerFailure) as failure:
                await alice.call("bob", MESSAGE, task="fail")
            assert failure.value.detail == DETAIL
            offers = {offer.id: offer.summary for offer in await alice.offered_tasks("bob")}
            assert offers[TASK] == SUMMARY
            receipt = await alice.submit("bob", STORED)
            stored = await alice.result(receipt, wait=30)
            assert STORED in stored.text
        # One that nobody collects stays in the database while it is searched.
        async with AsyncCaller("alice", relay=wire.url, home=tmp_path / "alice") as alice:
            await alice.submit("bob", STORED)
        files = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    files += b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    log = "\n".join(f"{record.name} {record.getMessage()} {record.exc_text}" for record in caplog.records)
    traces = "\n".join(span.to_json() for span in spans.get_finished_spans())

    secrets = (*SEALED, *(text for text in (reply.context_id, worked.context_id) if text is not None))
    for text in secrets:
        assert wire.finds(text) == []
        assert found(text, files) == []
        assert found(text, log.encode()) == []
        assert found(text, traces.encode()) == []
    # The same search finds what is there to be found.
    assert wire.finds("call_request") == wire.finds("call_outcome") == ["plain"]
    assert "plain" in found("alice", files)
    assert log
    assert "plain" in found(reply.call_id, traces.encode())
    # And the strings were real: each is in the keeping of the one it was meant for.
    own = b"".join(path.read_bytes() for path in (tmp_path / "bob").rglob("*") if path.is_file())
    assert found(REPLY, own)
    assert found(DETAIL, own)
