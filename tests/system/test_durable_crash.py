"""Listener and caller killed at every step that they store: one run at most, and everybody tells the same."""

import signal
import sys
from collections.abc import Generator

import pytest

from ringline_testing.commands import Running, Scene

pytestmark = pytest.mark.system

# One line for each time that it ran.
PROGRAM = "import sys, pathlib; t = sys.stdin.read(); open('runs', 'a').write(t + '\\n'); print(t, end='')"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Generator[Scene]:
    """A relay with a database, and bob's mailbox turned on."""
    with Scene(tmp_path_factory.mktemp("crash")) as made:
        made.start_relay("MAILBOX_RETRY_MS=0", words=("--db", str(made.folder / "relay.db")))
        listener = listen(made, "--offline")
        listener.says("ready")
        listener.signal(signal.SIGTERM)
        assert listener.end() == 0
        yield made


def listen(scene: Scene, *options: str) -> Running:
    return scene.start("listen", "--as", "bob", *options, "--run", sys.executable, "-c", PROGRAM)


def with_fault(scene: Scene, fault: str) -> Scene:
    """Return the scene as a process sees it that dies at this point."""
    return Scene(scene.folder, scene.relay, {"RINGLINE_FAULT": fault})


def runs(scene: Scene, message: str) -> int:
    file = scene.folder / "runs"
    return file.read_text().splitlines().count(message) if file.exists() else 0


def receipt_of(scene: Scene, message: str) -> str:
    left = scene.run("call", "bob", "--durable", "--no-wait", message)
    assert left.returncode == 0, left.stderr
    return left.stdout.decode().strip()


@pytest.mark.parametrize(
    ("fault", "exit_code", "ran"),
    [
        ("take.after", 0, 1),
        ("begin.before", 0, 1),
        ("begin.after", 18, 0),
        ("finish.before", 18, 1),
        ("finish.after", 0, 1),
    ],
)
def test_a_listener_that_dies_at_a_step(scene: Scene, fault: str, exit_code: int, ran: int) -> None:
    receipt = receipt_of(scene, fault)
    with with_fault(scene, fault) as doomed:
        assert listen(doomed).end() == -signal.SIGKILL
    listener = listen(scene)
    try:
        got = scene.run("result", receipt, "--wait", "100")
    finally:
        listener.stop()
    assert got.returncode == exit_code, got.stderr
    assert got.stdout == (f"{fault}\n".encode() if exit_code == 0 else b"")
    assert runs(scene, fault) == ran
    record = scene.document("calls", "show", receipt)["relay"]
    assert record["state"] == ("completed" if exit_code == 0 else "indeterminate_execution")


@pytest.mark.parametrize("fault", ["remember.before", "remember.after", "queued.before"])
def test_a_caller_that_dies_while_it_leaves_a_call(scene: Scene, fault: str) -> None:
    words = ("call", "bob", "--durable", "--no-wait", "--id", f"{len(fault):032x}", fault)
    assert with_fault(scene, fault).run(*words).returncode == -signal.SIGKILL
    receipt = f"rcpt_bob_{len(fault):032x}"
    if fault == "remember.before":
        # Nothing was kept and nothing sent, and it is said so.
        assert scene.run("result", receipt).returncode == 2
        assert scene.run(*words).returncode == 0
    listener = listen(scene)
    try:
        got = scene.run("result", receipt, "--wait", "100")
    finally:
        listener.stop()
    assert (got.returncode, got.stdout) == (0, f"{fault}\n".encode()), got.stderr
    assert runs(scene, fault) == 1


@pytest.mark.parametrize("fault", ["answered.before", "answered.after", "acknowledged.before"])
def test_a_caller_that_dies_while_it_takes_the_reply(scene: Scene, fault: str) -> None:
    receipt = receipt_of(scene, fault)
    listener = listen(scene)
    try:
        died = with_fault(scene, fault).run("result", receipt, "--wait", "100")
    finally:
        listener.stop()
    assert (died.returncode, died.stdout) == (-signal.SIGKILL, b""), died.stderr
    document = scene.document("result", receipt, "--wait", "100")
    assert document["reply"]["text"] == fault
    shown = scene.document("calls", "show", receipt)
    assert shown["call"]["acknowledged"] is True
    assert shown["relay"]["outcome"] is False
    assert runs(scene, fault) == 1


def test_a_call_that_kills_every_listener_is_parked_after_the_third_and_others_go_on(scene: Scene) -> None:
    receipt = receipt_of(scene, "poison")
    for _ in range(3):
        # It dies when it begins to open a call.
        with with_fault(scene, "opening.after") as doomed:
            assert listen(doomed).end() == -signal.SIGKILL
    parked = scene.document("result", receipt)
    assert (parked["error"]["code"], parked["error"]["exit"]) == ("delivery_failed", 17)
    assert "handed out again" in parked["error"]["still_true"]
    listener = listen(scene)
    try:
        healthy = scene.run("call", "bob", "--durable", "healthy")
    finally:
        listener.stop()
    assert (healthy.returncode, healthy.stdout) == (0, b"healthy\n"), healthy.stderr
    assert runs(scene, "poison") == 0
    # Until its time is over it is the caller's to take back.
    assert scene.run("cancel", receipt).returncode == 0
    assert scene.run("result", receipt).returncode == 15
