"""Processes die during and between calls: what is told afterwards is true, and nothing needs a hand."""

import signal
import sys
from pathlib import Path

import pytest

from ringline_testing.commands import Scene
from ringline_testing.ports import lasting_port

pytestmark = pytest.mark.system

# Works until it is let go.
WORK = "import os, time\nwhile not os.path.exists('go'):\n    time.sleep(0.01)\nprint('done')"


@pytest.fixture
def scene(tmp_path: Path) -> "Scene":
    """A home without anything running."""
    return Scene(tmp_path)


def test_a_listener_killed_during_a_call_is_told_within_the_bound(scene: Scene) -> None:
    with scene:
        scene.start_relay("GRACE_MS=300")
        listener = scene.start_listener("bob", "sleep", "86304")
        caller = scene.start("call", "bob", "work")
        caller.says("working")
        listener.signal(signal.SIGKILL)
        assert caller.end() == 14
        told = "\n".join(caller.told)
        assert "✗ bob did not answer in time" in told
        assert "may have run, or still run" in told
        assert "ringline call bob --id " in told
        assert caller.out == b""
        # Its place is empty now, and nothing is delivered to nobody.
        assert scene.document("call", "bob", "work")["error"]["code"] == "offline"


def test_a_relay_restarted_between_two_calls_needs_no_hand(scene: Scene) -> None:
    with scene:
        port = lasting_port()
        relay = scene.start_relay(port=port)
        listener = scene.start_listener("echo", "cat")
        assert scene.run("call", "echo", "first").stdout == b"first\n"
        relay.signal(signal.SIGKILL)
        relay.end()
        heard = len(listener.told)
        scene.start_relay(port=port)
        listener.says("connected again", after=heard)
        second = scene.run("call", "echo", "second")
        assert (second.returncode, second.stdout) == (0, b"second\n"), second.stderr


def test_a_stopping_relay_lets_a_running_call_finish(scene: Scene) -> None:
    with scene:
        relay = scene.start_relay()
        scene.start_listener("slow", sys.executable, "-c", WORK)
        caller = scene.start("call", "slow", "work")
        caller.says("working")
        relay.signal(signal.SIGTERM)
        relay.says("Stopping")
        (scene.folder / "go").touch()
        assert caller.end() == 0
        assert caller.out == b"done\n"
        assert relay.end() == 0


def test_a_stopping_listener_lets_a_running_call_finish(scene: Scene) -> None:
    with scene:
        scene.start_relay()
        listener = scene.start_listener("slow", sys.executable, "-c", WORK)
        caller = scene.start("call", "slow", "work")
        caller.says("working")
        listener.signal(signal.SIGINT)
        listener.says("to end; told again, it stops now")
        (scene.folder / "go").touch()
        assert caller.end() == 0
        assert caller.out == b"done\n"
        assert listener.end() == 0
