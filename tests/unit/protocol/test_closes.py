"""The one table of close codes."""

import pytest

from ringline.protocol import closes
from ringline.protocol.closes import CLOSES, may_reconnect, read_retry, retry_reason
from ringline.protocol.codes import REGISTRY


def test_every_code_that_is_named_has_a_row() -> None:
    named = {value for name, value in vars(closes).items() if name.isupper() and isinstance(value, int)}
    assert named == set(CLOSES)
    assert {row.close_code for row in REGISTRY.values()} - {None} <= named


def test_only_a_replaced_and_a_revoked_connection_is_not_dialled_again() -> None:
    assert {code for code in CLOSES if not may_reconnect(code)} == {4000, 4001}
    # A code that is not known, and an end without one, are a connection that broke.
    assert may_reconnect(4999)
    assert may_reconnect(None)


@pytest.mark.parametrize("ms", [0, 1, 2_000, 999_999_999])
def test_a_pause_that_is_asked_for_is_read_as_it_was_written(ms: int) -> None:
    assert read_retry(retry_reason(ms)) == ms


@pytest.mark.parametrize(
    "reason", ["", "retry=", "retry=-1", "retry=1\n", "retry=1s", "retry=\u0661", "x retry=1"]
)
def test_any_other_reason_asks_for_no_pause(reason: str) -> None:
    assert read_retry(reason) is None
