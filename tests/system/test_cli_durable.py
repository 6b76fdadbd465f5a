"""Durable calls at the command line: a relay that is killed, a listener that comes later, another process."""

import json
import shutil
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from ringline_testing.commands import Running, Scene
from ringline_testing.ports import lasting_port

pytestmark = pytest.mark.system


@pytest.fixture
def scene(tmp_path: Path) -> Generator[Scene]:
    with Scene(tmp_path) as made:
        yield made


def start_relay(scene: Scene, port: int = 0) -> Running:
    return scene.start_relay(port=port, words=("--db", str(scene.folder / "relay.db")))


def listen_once(scene: Scene) -> None:
    listener = scene.start_listener("bob", "cat", options=("--offline",))
    listener.signal(signal.SIGTERM)
    assert listener.end() == 0
    assert any("keep durable calls" in line for line in listener.told), listener.told


def keys_and_outbox(scene: Scene, folder: Path) -> Scene:
    """Return a second computer that has of the caller no more than its key files and its outbox."""
    (caller,) = scene.home.glob("*/identities/caller-*")
    copy = Scene(folder, scene.relay)
    there = copy.home / caller.relative_to(scene.home)
    there.mkdir(mode=0o700, parents=True)
    for file in (*caller.glob("*.key"), *caller.glob("outbox.db*")):
        shutil.copy2(file, there)
    return copy


def test_a_call_outlives_the_relay_and_is_answered_later_to_another_process(scene: Scene) -> None:
    port = lasting_port()
    relay = start_relay(scene, port)
    listen_once(scene)
    left = scene.run("call", "bob", "--durable", "--no-wait", "-", given=b"hello\n")
    assert left.returncode == 0, left.stderr
    receipt = left.stdout.decode().strip()
    assert receipt.startswith("rcpt_bob_")
    assert f"ringline result {receipt} --wait 60" in left.stderr.decode()
    relay.signal(signal.SIGKILL)
    assert relay.end() == -signal.SIGKILL
    start_relay(scene, port)
    early = scene.run("result", receipt)
    assert early.returncode == 19, early.stderr
    assert f"ringline result {receipt} --wait 60" in early.stderr.decode()
    scene.start_listener("bob", "cat")
    elsewhere = keys_and_outbox(scene, scene.folder / "elsewhere")
    got = elsewhere.run("result", receipt, "--wait", "60")
    assert (got.returncode, got.stdout) == (0, b"hello\n"), got.stderr
    assert "signed by bob " in got.stderr.decode()
    again = elsewhere.document("result", receipt)
    assert (again["reply"]["text"], again["receipt"]) == ("hello\n", receipt)


def test_a_call_that_is_waited_for_prints_the_reply(scene: Scene) -> None:
    start_relay(scene)
    scene.start_listener("bob", "cat", options=("--offline",))
    answer = scene.run("call", "bob", "--durable", "canary words")
    assert (answer.returncode, answer.stdout) == (0, b"canary words\n"), answer.stderr
    (call,) = scene.document("calls", "ls")["calls"]
    assert (call["state"], call["authenticated"], call["acknowledged"]) == ("completed", True, True)
    shown = scene.document("calls", "show", call["receipt"])
    assert (shown["relay"]["state"], shown["relay"]["outcome"]) == ("completed", False)
    listed = scene.run("calls", "ls").stdout.decode()
    assert call["receipt"] in listed
    # The outbox keeps no plain text of what was asked, and its lists show none of what was answered.
    assert "canary" not in listed + json.dumps(shown)


def test_what_waits_is_cancelled_or_left_and_says_so(scene: Scene) -> None:
    start_relay(scene)
    refused = scene.document("call", "bob", "--durable", "x")
    assert refused["error"]["exit"] == 10
    listen_once(scene)
    document = scene.document("call", "bob", "--durable", "--no-wait", "--expires", "2d", "x")
    receipt = document["receipt"]
    assert scene.run("cancel", receipt).returncode == 0
    ended = scene.document("result", receipt)
    assert (ended["error"]["code"], ended["error"]["exit"]) == ("canceled", 15)
    assert scene.run("cancel", receipt).returncode == 2
    waiting = scene.start("call", "bob", "--durable", "y")
    waiting.says("stored")
    waiting.signal(signal.SIGINT)
    assert waiting.end() == 130
    assert "nothing was cancelled" in " ".join(line.strip() for line in waiting.told)
    assert any("ringline result rcpt_bob_" in line for line in waiting.told)
