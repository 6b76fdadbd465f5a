"""Refusals as documents."""

import json

import pytest

from ringline.protocol.codes import Family, lookup
from ringline.protocol.errors import HttpProblem
from ringline.relay import problem


@pytest.mark.parametrize("code", ["unauthorized", "forbidden", "not_found"])
def test_answers_that_must_not_differ_do_not(code: str) -> None:
    plain = problem.of(HttpProblem(code=code))
    assert problem.of(HttpProblem("a reason that tells too much", code=code)) is plain
    assert plain.status == lookup(Family.HTTP, code).http_status
    assert set(json.loads(plain.body)) == {"type", "title", "status", "code"}


@pytest.mark.parametrize(
    ("code", "wait", "seconds", "shown"),
    [
        ("rate_limited", 1, "1", 1),
        ("rate_limited", 1_000, "1", 1_000),
        ("rate_limited", 1_001, "2", 1_001),
        ("rate_limited", 0, "1", 0),
        ("rate_limited", -5, "1", 0),
        ("unavailable", None, "1", 1_000),
    ],
)
def test_whoever_is_to_come_back_is_told_when(code: str, wait: int | None, seconds: str, shown: int) -> None:
    answer = problem.of(HttpProblem(code=code, retry_after_ms=wait))
    assert dict(answer.headers)["retry-after"] == seconds
    assert json.loads(answer.body)["retry_after_ms"] == shown


def test_others_are_not_told_to_come_back() -> None:
    answer = problem.of(HttpProblem("why", code="conflict"))
    assert "retry-after" not in dict(answer.headers)
    assert json.loads(answer.body) == {
        "type": "about:blank",
        "title": "Conflict",
        "status": 409,
        "code": "conflict",
        "detail": "why",
    }


@pytest.mark.parametrize("reason", ["already_terminal", "too_late", "unknown"])
def test_a_cancellation_that_did_not_happen_is_a_conflict(reason: str) -> None:
    answer = problem.not_cancelled(reason)
    assert (answer.status, json.loads(answer.body)["status"], json.loads(answer.body)["code"]) == (
        409,
        409,
        reason,
    )
