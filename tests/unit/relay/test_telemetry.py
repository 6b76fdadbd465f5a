"""What is counted and logged names nobody."""

import asyncio
import logging

import pytest

from ringline.relay.telemetry import Telemetry, log_fault


def test_counters_stand_beside_those_of_the_hub(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "ringline.relay")
    telemetry = Telemetry(lambda: {"now_calls": 3}, lambda: {"now_store_bytes": 4})
    telemetry.opened(7, "caller", "alice")
    telemetry.closed(7, 1000, True)
    telemetry.closed(8, None, False)
    telemetry.refused(401)
    telemetry.answered(200)
    telemetry.answered(200)
    assert telemetry.snapshot() == {
        "now_calls": 3,
        "now_store_bytes": 4,
        "connections_caller": 1,
        "connections_closed": 1,
        "connections_lost": 1,
        "handshakes_401": 1,
        "requests_200": 2,
    }
    assert [record.levelname for record in caplog.records if "alice" in record.getMessage()] == ["DEBUG"]


def test_a_fault_is_counted_and_logged_without_what_it_says(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    telemetry.fault("a timer", RuntimeError("secret text"))
    assert telemetry.snapshot() == {"faults": 1}
    assert "a timer raised RuntimeError" in caplog.text
    assert "secret" not in caplog.text
    assert [record.exc_info for record in caplog.records] == [None]


async def test_what_a_loop_runs_in_vain_is_logged_without_what_it_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)

    def broken() -> None:
        raise RuntimeError("secret text")

    async def lost() -> None:
        raise RuntimeError("secret text")

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_fault)
    loop.call_soon(broken)
    task = loop.create_task(lost(), name="secret name")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del task
    assert caplog.text.count("RuntimeError at test_telemetry.py") == 2
    assert "secret" not in caplog.text
    assert [record.exc_info for record in caplog.records] == [None, None]
