"""What is counted and logged names nobody."""

import pytest

from ringline.relay.telemetry import Telemetry


def test_counters_stand_beside_those_of_the_hub(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "ringline.relay")
    telemetry = Telemetry(lambda: {"now_calls": 3})
    telemetry.opened(7, "caller", "alice")
    telemetry.closed(7, 1000, True)
    telemetry.closed(8, None, False)
    telemetry.refused(401)
    telemetry.answered(200)
    telemetry.answered(200)
    assert telemetry.snapshot() == {
        "now_calls": 3,
        "connections_caller": 1,
        "connections_closed": 1,
        "connections_lost": 1,
        "handshakes_401": 1,
        "requests_200": 2,
    }
    assert [record.levelname for record in caplog.records if "alice" in record.getMessage()] == ["DEBUG"]
