"""Ctrl-C during a call: canceled is said only when the work was seen to stop; twice stops waiting."""

import os
import signal
from collections.abc import Generator

import pytest

from ringline_testing.commands import Running, Scene, processes_with, until

pytestmark = pytest.mark.system

# For how long the children of the program sleep, by which they are found; other tests run beside this one.
DAY = f"86400.{os.getpid()}"
# Ends a moment after it was told to, and leaves a mark when it does.
SLOW_TO_STOP = f"trap 'sleep 0.4; : > stopped; exit 1' TERM; sleep {DAY} & sleep {DAY} & wait"
# Has to be killed, which the listener does after five seconds.
STUBBORN = "trap '' TERM; sleep 86400 & wait; wait; wait"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Generator[Scene]:
    """A relay, and two listeners whose programs sleep for a day."""
    with Scene(tmp_path_factory.mktemp("cancel")) as made:
        made.start_relay()
        made.start_listener("slow", "/bin/sh", "-c", SLOW_TO_STOP)
        made.start_listener("stubborn", "/bin/sh", "-c", STUBBORN)
        yield made


def at_work(scene: Scene, peer: str, *words: str) -> Running:
    """Start a call and wait until the program runs."""
    caller = scene.start("call", peer, "work", *words)
    caller.says("working")
    return caller


def test_ctrl_c_ends_the_work_and_says_canceled_only_then(scene: Scene) -> None:
    (scene.folder / "stopped").unlink(missing_ok=True)
    caller = at_work(scene, "slow")
    until(lambda: len(processes_with(f"sleep\0{DAY}")) == 2)
    caller.signal(signal.SIGINT)
    assert caller.end() == 15
    # By the time it was said, the whole process tree had gone.
    assert (scene.folder / "stopped").exists()
    assert processes_with(f"sleep\0{DAY}") == []
    assert caller.out == b""
    told = " ".join(line.strip() for line in caller.told)
    assert "cancelling – waiting for slow to confirm; Ctrl-C again stops waiting" in told
    assert "[canceled · exit 15" in told


def test_a_second_ctrl_c_stops_waiting_and_says_what_is_not_known(scene: Scene) -> None:
    caller = at_work(scene, "stubborn")
    caller.signal(signal.SIGINT)
    caller.says("cancelling")
    caller.signal(signal.SIGINT)
    assert caller.end() == 130
    told = " ".join(line.strip() for line in caller.told)
    assert "stopped waiting for stubborn" in told
    assert "whether the work runs on is not known here" in told
    assert "ringline call stubborn --id " in told
    assert "canceled" not in told


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_hang_up_stops_waiting_at_once(scene: Scene, number: signal.Signals) -> None:
    caller = at_work(scene, "slow")
    caller.signal(number)
    assert caller.end() == 130
    told = " ".join(line.strip() for line in caller.told)
    assert "cancelling" not in told
    assert "not known here" in told
    # What was started is not left to run for a day.
    call_id = caller.says(r"^  call ([\w-]+)  message")[1]
    assert scene.run("cancel", call_id).returncode == 0


def test_a_timeout_of_the_caller_asks_for_the_stop_and_claims_nothing(scene: Scene) -> None:
    for seconds in ("0.7", "5", "40"):
        error = scene.document("call", "slow", "work", "--timeout", seconds)["error"]
        # A busy machine may not have sent it by then, and says so.
        if error["still_true"] != "Nothing was sent.":
            break
    assert (error["code"], error["family"], error["exit"]) == ("timeout", "local", 14)
    assert "may have run" in error["still_true"]
    assert error["retry"] == "same_id"
    assert error["message_id"] in error["next"][0]


def test_what_cannot_be_canceled_is_told(scene: Scene) -> None:
    unknown = scene.document("cancel", "no-such-call")
    assert (unknown["error"]["code"], unknown["error"]["exit"]) == ("unknown", 10)
    malformed = scene.document("cancel", "no such call")
    assert malformed["error"]["exit"] == 2
