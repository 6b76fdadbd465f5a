"""Work that nobody awaits is held, its failures are told without their text, and it can be ended."""

import asyncio

import pytest

from ringline.client import Background


async def test_a_failure_is_logged_by_kind_and_place_and_not_by_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise RuntimeError("what was sealed")

    work = Background("a piece of work")
    work.start(fail())
    await work.wait()
    await asyncio.sleep(0)
    assert len(work) == 0
    assert "a piece of work failed: RuntimeError at test_background.py" in caplog.text
    assert "what was sealed" not in caplog.text


async def test_closing_ends_what_runs_and_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    work = Background("a piece of work")
    work.start(hang())
    await asyncio.sleep(0)
    await asyncio.wait_for(work.close(), 30)
    assert (ended, caplog.text) == (["ended"], "")
