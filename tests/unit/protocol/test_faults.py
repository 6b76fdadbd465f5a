"""Fault points: chosen by the environment alone, and absent without it."""

import signal
import subprocess
import sys

import pytest

from ringline.protocol.faults import VARIABLE, fault_points

PROGRAM = """
import os
from ringline.protocol.faults import fault_points
reach = fault_points(os.environ)
for point in ("take.before", "take.after", "take.after", "take.after"):
    print(point, flush=True)
    reach(point)
"""


def test_without_the_variable_there_is_nothing_to_call() -> None:
    assert fault_points({}) is None


@pytest.mark.parametrize(("value", "reached"), [("take.after", 2), ("take.after:1", 2), ("take.after:3", 4)])
def test_the_process_dies_when_the_point_is_reached_so_often(value: str, reached: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={VARIABLE: value}, capture_output=True, timeout=30
    )
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.split()) == reached


@pytest.mark.parametrize("value", ["take.before:5", "other.before"])
def test_other_points_do_no_harm(value: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={VARIABLE: value}, capture_output=True, timeout=30
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "value",
    ["", "take", "take.", "take.during", "take.after:", "take.after:0", "take.after:-1", "take.after: 1",
     "take.after:x", "take.after:٣", "Take.after", "take.after:1:2"],
)  # fmt: skip
def test_a_value_that_names_no_point_is_refused_and_not_overlooked(value: str) -> None:
    with pytest.raises(ValueError, match=VARIABLE):
        fault_points({VARIABLE: value})
