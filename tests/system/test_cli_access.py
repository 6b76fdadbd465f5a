"""From nothing to an allowed call, between two computers that share a relay and nothing else."""

import asyncio
import json
import os
import re
import signal
import stat
import subprocess
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from ringline.client import Account, Home, RelayAddress, RelayClock, RelayHttp
from ringline.client.clock import wall_ms
from ringline.protocol.shapes import Policy
from ringline_testing.commands import BOUND_S, RINGLINE, Running, Scene

pytestmark = pytest.mark.system


@pytest.fixture
def ada(tmp_path: Path) -> Generator[Scene]:
    """The computer of the relay's administrator, who answers calls."""
    (tmp_path / "a").mkdir()
    with Scene(tmp_path / "a") as made:
        yield made


@pytest.fixture
def bob(tmp_path: Path) -> Generator[Scene]:
    """The computer of whoever is invited."""
    (tmp_path / "b").mkdir()
    with Scene(tmp_path / "b") as made:
        yield made


def serve(scene: Scene, *words: str) -> Running:
    """Start a relay for others, on a free port."""
    running = scene.start(
        "relay", "serve", "--db", "relay.db", "--realm", "relay.test", "--port", "0", *words
    )
    running.says("Stop with")
    return running


def ended(running: Running) -> None:
    running.signal(signal.SIGTERM)
    assert running.end() == 0


def test_two_computers_two_commands_each(ada: Scene, bob: Scene) -> None:
    ada.start_relay()
    listener = ada.start_listener("ada", "cat")
    invited = ada.run("invite", "bob")
    assert invited.returncode == 0, invited.stderr
    (line,) = invited.stdout.decode().split()
    assert line not in invited.stderr.decode()
    # The other computer was told of no relay: the line says where.
    accepted = bob.run("accept", "-", given=f"  {line[:50]}\n{line[50:]}\n".encode())
    assert accepted.returncode == 0, accepted.stderr
    call = bob.run("call", "ada", "hello")
    assert (call.returncode, call.stdout) == (0, b"hello\n"), call.stderr
    # Both see the same number, and the inviter who has come, with what it gave him.
    name = bob.document("id", "show")["identities"][0]["handle"]
    mine = ada.document("contacts", "show", name, "--as", "ada")["contact"]
    his = bob.document("contacts", "show", "ada")["contact"]
    assert mine["safety_number"] == his["safety_number"]
    assert mine["safety_number"] in " ".join(accepted.stdout.decode().split())
    assert (mine["label"], mine["state"], mine["source"]) == ("bob", "allowed", "invite")
    assert mine["calls_per_hour"] == 30
    assert his["state"] == "pending"
    listener.says(f"{name} has taken up your invite and is let in: every task; 30 calls an hour")
    listener.says(rf"answered {name}: completed  call [\w-]+")


def test_on_a_closed_relay_the_invited_get_in_and_nobody_else(ada: Scene, bob: Scene) -> None:
    relay = serve(ada, "--admin", "ada")
    secret = ada.folder / "relay.db.admin-invite"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    # Not where the relay's words are kept, which may be a log.
    text = secret.read_text().strip()
    assert text not in "\n".join(relay.told)
    admin = ada.document("accept", "--plain", "--code-file", str(secret))
    assert (admin["identity"]["handle"], admin["inviter"]) == ("ada", None)
    stranger = bob.document("init", "--as", "mallory", "--plain", "--relay", admin["identity"]["relay"],
                            "--realm", "relay.test")  # fmt: skip
    assert (stranger["error"]["code"], stranger["error"]["exit"]) == ("forbidden", 20)
    made = ada.document("invite", "bob", "--task", "default", "--calls-per-hour", "1")
    bob.variables = {"RINGLINE_INVITE": made["invite"]}
    accepted = bob.document("accept", "--as", "bob", "--plain", "--allow")
    bob.variables = {}
    assert (accepted["inviter"]["handle"], accepted["inviter"]["state"]) == ("ada", "allowed")
    listener = ada.start_listener("ada", "cat")
    first, second = bob.document("call", "ada", "hello"), bob.document("call", "ada", "again")
    assert first["reply"]["text"] == "hello"
    assert (second["error"]["code"], second["error"]["authenticated"]) == ("busy", True)
    # To start again gives nobody a new hour.
    listener.stop()
    ada.start_listener("ada", "cat")
    third = bob.document("call", "ada", "once more")
    assert (third["error"]["code"], third["error"]["authenticated"]) == ("busy", True)
    refused = bob.document("call", "ada", "--task", "other", "x")
    assert (refused["error"]["code"], refused["error"]["exit"]) == ("task_unknown", 25)
    (shown,) = ada.document("invite", "ls")["invites"]
    assert (shown["state"], [one["handle"] for one in shown["accepted"]]) == ("consumed", ["bob"])
    # He is shut out at once, here and at the relay.
    assert ada.run("contacts", "block", "bob").returncode == 0
    shut_out = bob.document("call", "ada", "x")
    assert shut_out["error"]["code"] == "unknown_handle"
    assert bob.document("relay", "remove", "ada", "--yes")["error"]["code"] == "forbidden"
    assert ada.document("relay", "remove", "bob", "--yes")["handle"] == "bob"
    assert bob.document("call", "ada", "x")["error"]["code"] == "unauthorized"


def test_an_invite_is_read_from_a_terminal_and_never_shown(ada: Scene, bob: Scene) -> None:
    ada.start_relay()
    ada.start_listener("ada", "cat")
    waiting = ada.start("invite", "bob", "--wait", str(BOUND_S))
    waiting.prints(b"\n")
    line = waiting.out.decode().strip()
    leader, follower = os.openpty()
    try:
        process = subprocess.Popen(
            [RINGLINE, "accept"],
            stdin=follower,
            stdout=subprocess.PIPE,
            stderr=follower,
            env=bob.environment,
            cwd=bob.folder,
            start_new_session=True,
        )
        os.close(follower)
        screen = b""
        while b"The invite" not in screen:
            screen += os.read(leader, 4_096)
        os.write(leader, f"{line}\n".encode())
        reader = threading.Thread(target=lambda: _drain(leader))
        reader.start()
        out, _ = process.communicate(timeout=BOUND_S)
        assert process.returncode == 0
        assert b"ada has invited you" in out
        assert line.encode() not in screen + out
        # Both sides see the same number.
        assert waiting.end() == 0
        told = "\n".join(waiting.told)
        assert _number(told) == _number(out.decode())
        early = ada.run("invite", "carol", "--wait", "0.1")
        assert early.returncode == 19
        assert b"Nobody has taken it up" in early.stderr
    finally:
        os.close(leader)


def _number(screen: str) -> str:
    """Return the safety number on a screen."""
    match = re.search(r"safety number((?:\s+\d{5}){12})", screen)
    assert match is not None, screen
    return " ".join(match[1].split())


def _drain(leader: int) -> None:
    try:
        while os.read(leader, 4_096):
            pass
    except OSError:
        return


def test_what_went_wrong_with_an_invite_is_said_without_it(ada: Scene, bob: Scene) -> None:
    ada.start_relay()
    ada.start_listener("ada", "cat")
    line = ada.document("invite")["invite"]
    on_argv = bob.run("accept", line)
    damaged = bob.run("accept", "-", given=(line[:-1] + ("0" if line[-1] != "0" else "1")).encode())
    nowhere = bob.run("accept")
    for answer, code in ((on_argv, 2), (damaged, 2), (nowhere, 2)):
        assert answer.returncode == code, answer
        assert line[8:40] not in answer.stderr.decode() + answer.stdout.decode()
        assert b"Next:" in answer.stderr
    assert b"no terminal" in nowhere.stderr
    withdrawn = ada.document("invite", "ls")["invites"][0]["id"]
    assert ada.run("invite", "revoke", withdrawn).returncode == 0
    assert bob.document("accept", "-", given=line.encode())["error"]["code"] == "forbidden"
    assert ada.document("invite", "ls")["invites"][0]["state"] == "void"
    assert not json.loads((ada.home / _invites(ada)).read_text())["invites"][0]["met"]


def _invites(scene: Scene) -> Path:
    (path,) = scene.home.rglob("invites.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return path.relative_to(scene.home)


def test_a_strangers_call_waits_for_its_owners_word(ada: Scene, bob: Scene) -> None:
    relay = serve(ada, "--open-registration")
    url = relay.says(r"Clients\s+(\S+)")[1]
    for scene in (ada, bob):
        # As `ringline accept` leaves it, so that no command needs to name the relay.
        scene.home.mkdir(mode=0o700)
        (scene.home / "usual-relay").write_text(f"{url}\nrelay.test\n")
    listener = ada.start("listen", "--as", "ada", "--plain", "--offline", "--hold", "--run", "cat")
    listener.says("^● ready")
    bob.document("init", "--as", "bob", "--plain")
    let_everybody_through(ada, url)
    contact = ada.document("id", "show")["identities"][0]["contact"]

    def left(word: str) -> tuple[str, dict[str, object]]:
        """Leave a durable call of bob's, and return its receipt and what waits in ada's inbox."""
        receipt = bob.document("call", contact, "--as", "bob", "--durable", "--no-wait", word)["receipt"]
        listener.says("^..:..:..  bob waits for your word", after=len(seen))
        seen[:] = listener.told
        (waiting,) = ada.document("inbox", "ls")["calls"]
        return receipt, waiting

    def answered(receipt: str) -> dict[str, object]:
        return bob.document("result", receipt, "--as", "bob", "--wait", "100")

    seen = list(listener.told)
    receipt, waiting = left("once")
    assert (waiting["from"], waiting["known"], waiting["task"]) == ("bob", False, None)
    shown = ada.run("inbox", "show", str(waiting["call_id"])).stdout.decode()
    assert "NOBODY you know" in shown
    assert str(waiting["fingerprint"]) in shown
    assert ada.run("inbox", "allow", str(waiting["call_id"]), "--once").returncode == 0
    assert answered(receipt)["reply"] == answered(receipt)["reply"]
    assert ada.document("inbox", "ls")["calls"] == []
    # His key is known by now, but he is not let in.
    receipt, waiting = left("never")
    assert (waiting["known"], waiting["task"]) == (True, "default")
    assert ada.run("inbox", "deny", str(waiting["call_id"])).returncode == 0
    error = answered(receipt)["error"]
    assert isinstance(error, dict)
    assert (error["code"], error["authenticated"]) == ("blocked", True)
    receipt, waiting = left("more")
    assert ada.run("inbox", "allow", str(waiting["call_id"]), "--task", "default").returncode == 0
    assert answered(receipt)["ok"]
    # From now on nobody is asked.
    last = bob.document("call", contact, "--as", "bob", "--durable", "again")
    assert last["reply"]["text"] == "again"
    contacts = ada.document("contacts", "ls")["contacts"]
    assert [(one["handle"], one["state"], one["tasks"]) for one in contacts] == [
        ("bob", "allowed", ["default"])
    ]


def let_everybody_through(scene: Scene, url: str) -> None:
    """Have the relay keep nobody from ada, so that only her listener stands between her and a caller."""
    address = RelayAddress.parse(url, "relay.test")
    account = Account.load(Home(scene.home), address, "ada", wall_ms())
    policy = Policy(offline=True, accept="anyone", allow=[], block=[])
    asyncio.run(RelayHttp(address, account, RelayClock()).set_policy(policy))


def test_what_the_relay_lets_through_is_shown_and_changed(ada: Scene, bob: Scene) -> None:
    ada.start_relay()
    bob.relay = ada.relay
    listener = ada.start_listener("ada", "cat", options=("--offline",))
    listener.stop()
    shown = ada.document("policy", "--as", "ada")
    assert (shown["accept"], shown["offline"], shown["allow"], shown["block"]) == ("anyone", True, [], [])
    kept = bob.run("call", "ada", "hello", "--durable", "--no-wait")
    assert kept.returncode == 0, kept.stderr
    changed = ada.run("policy", "--as", "ada", "--no-offline")
    assert changed.returncode == 0, changed.stderr
    assert "durable calls  refused while nobody listens" in changed.stdout.decode()
    assert bob.document("call", "ada", "hello", "--durable", "--no-wait")["error"]["code"] == "offline"
    ada.run("policy", "--as", "ada", "--accept", "listed")
    assert ada.document("policy", "--as", "ada")["accept"] == "listed"
    assert bob.document("call", "ada", "hello", "--durable")["error"]["code"] == "unknown_handle"
    # A listener that lets him in has the relay let him through again.
    name = bob.document("id", "show")["identities"][0]["handle"]
    ada.start_listener("ada", "cat", options=("--allow", name))
    assert ada.document("policy", "--as", "ada")["allow"] == [name]
    answered = bob.run("call", "ada", "hello")
    assert (answered.returncode, answered.stdout) == (0, b"hello\n"), answered.stderr
