"""No end of a process of the crash matrix is lost or left untold, whichever thread learns of it."""

import multiprocessing
import multiprocessing.forkserver
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from ringline_testing.crash.child import Child
from ringline_testing.crash.stage import BOUND_S, Stage, Template
from ringline_testing.ports import lasting_port

CONTEXT = multiprocessing.get_context("forkserver")


def killed() -> Child:
    return Child(CONTEXT, signal.raise_signal, signal.SIGKILL)


def asked_too(child: Child) -> int | None:
    return child.join(BOUND_S)


def another_started(_: Child) -> int | None:
    return killed().join(BOUND_S)


@pytest.mark.parametrize("meanwhile", [asked_too, another_started])
def test_one_that_was_killed_was_killed_for_all_who_ask_at_the_same_moment(
    meanwhile: Callable[[Child], int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = killed()
    wait([child.sentinel], BOUND_S)
    read, both = multiprocessing.forkserver.read_signed, threading.Barrier(2)

    def read_together(pipe: int) -> int:
        """Read when two are about to, or when it is plain that only one can be."""
        with suppress(threading.BrokenBarrierError):
            both.wait(0.2)
        return int(read(pipe))

    monkeypatch.setattr(multiprocessing.forkserver, "read_signed", read_together)
    with ThreadPoolExecutor(2) as pool:
        asked, other = pool.submit(child.join, BOUND_S), pool.submit(meanwhile, child)
        assert asked.result() == -signal.SIGKILL
        assert other.result() == -signal.SIGKILL
    child.close()
    assert child.exit_code == -signal.SIGKILL


def test_a_closed_process_is_not_killed_again() -> None:
    child = killed()
    child.join(BOUND_S)
    child.close()
    child.kill(signal.SIGKILL)
    assert not child.runs


def test_a_deed_that_ends_without_a_word_is_told(tmp_path: Path) -> None:
    with Stage(Template(tmp_path, lasting_port()), tmp_path, {}) as stage:
        assert stage.perform("command") is None
    (told,) = stage.unexplained
    assert "ended command with 1 and without a word" in told
    assert "TypeError" in (tmp_path / "caller.log").read_text()


def test_a_party_that_nobody_has_killed_is_told(tmp_path: Path) -> None:
    with Stage(Template(tmp_path, lasting_port()), tmp_path, {}) as stage:
        stage.up("relay")
        stage._running["relay"].kill(signal.SIGKILL)
        stage.until(lambda: stage.starts == 2)
        stage.down("relay", signal.SIGKILL)
    (told,) = stage.unexplained
    assert told.startswith("relay ")
    assert told.endswith(f"ended with {-signal.SIGKILL} by itself")
