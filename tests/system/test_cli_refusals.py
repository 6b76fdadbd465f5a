"""Bad input, one screen each: what happened, who says so, what is still true, and what to type next."""

import asyncio
import contextlib
import http.server
import os
import pty
import re
import socket
import subprocess
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from ringline_testing.commands import BOUND_S, RINGLINE, Scene
from ringline_testing.ports import lasting_port
from ringline_testing.relay import running_relay

pytestmark = pytest.mark.system


@pytest.fixture
def scene(tmp_path: Path) -> Generator[Scene]:
    """A home with nothing in it."""
    with Scene(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """A development relay with an ``echo`` on it; its base URL."""
    with Scene(tmp_path_factory.mktemp("relay")) as made:
        made.start_relay()
        made.start_listener("echo", "cat")
        yield made.relay


def screen(answer: "subprocess.CompletedProcess[bytes]", code: int, *words: str, following: str) -> str:
    """Check the form of an error message, and return it."""
    told = answer.stderr.decode()
    assert answer.returncode == code, told
    assert answer.stdout == b""
    lines = told.splitlines()
    assert len(lines) <= 20, told
    assert "Traceback" not in told
    start = next(number for number, line in enumerate(lines) if line.startswith("✗ "))
    assert re.search(r"(Found on this side|The relay says so|says so, sealed)", told), told
    assert any(line.startswith("  [") and f"exit {code} · " in line for line in lines[-2:]), told
    for word in words:
        assert word in " ".join(line.strip() for line in lines[start:]), told
    after = told.split("Next:", 1)
    assert len(after) == 2, told
    assert following in after[1], told
    return told


def key_file(scene: Scene, handle: str) -> Path:
    (found,) = scene.home.rglob(f"identities/{handle}/agent.key")
    return found


def test_a_key_file_that_cannot_be_used(scene: Scene, relay: str) -> None:
    scene.relay = relay
    assert scene.run("init", "--as", "me").returncode == 0
    path = key_file(scene, "me")
    words = ("call", "echo", "hello", "--as", "me")
    path.chmod(0o640)
    screen(scene.run(*words), 2, "0640", following=f"chmod 600 {path}")
    path.chmod(0o600)
    path.write_text("not a key\n")
    screen(scene.run(*words), 2, str(path), following="")
    path.unlink()
    path.mkdir(mode=0o700)
    screen(scene.run(*words), 2, str(path), following="")


def test_pins_that_are_damaged_are_left_alone(scene: Scene, relay: str) -> None:
    scene.relay = relay
    assert scene.run("call", "echo", "hello").returncode == 0
    (path,) = scene.home.rglob("contacts.toml")
    damaged = path.read_text() + "\nthis is [ not TOML\n"
    path.write_text(damaged)
    screen(scene.run("call", "echo", "hello"), 2, str(path), "line", following="")
    assert path.read_text() == damaged


def test_a_handle_that_is_taken(scene: Scene, relay: str) -> None:
    scene.relay = relay
    screen(scene.run("init", "--as", "echo"), 2, "echo", "taken", following="--as")
    screen(scene.run("listen", "--as", "echo", "--run", "cat"), 2, "taken", following="--as")


def test_a_relay_that_is_not_there(scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    scene.relay = f"http://127.0.0.1:{port}"
    screen(
        scene.run("call", "echo", "hello"),
        30,
        scene.relay,
        "Nothing was sent",
        following="ringline relay dev",
    )
    screen(
        scene.run("listen", "--as", "echo", "--run", "cat"), 30, scene.relay, following="ringline relay dev"
    )
    document = scene.document("call", "echo", "hello")
    assert document["error"]["code"] == "relay_unreachable"
    assert document["error"]["retry"] == "safe"


@contextlib.contextmanager
def proxy_without_upgrade(relay: str) -> Generator[str]:
    """A reverse proxy as it is set up by somebody who has not read about WebSocket: it drops ``Upgrade``."""
    port = int(relay.rsplit(":", 1)[1])

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                head = f"{self.command} {self.path} HTTP/1.1\r\nConnection: close\r\n"
                for name, value in self.headers.items():
                    if name.lower() not in ("connection", "upgrade"):
                        head += f"{name}: {value}\r\n"
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                connection.sendall(head.encode() + b"\r\n" + body)
                while piece := connection.recv(65_536):
                    self.wfile.write(piece)
            self.close_connection = True

        do_PUT = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with serving(Proxy) as url:
        yield url


@contextlib.contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Generator[str]:
    """Serve HTTP on a free port, and yield the base URL."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_a_proxy_that_drops_the_upgrade(scene: Scene, relay: str) -> None:
    with proxy_without_upgrade(relay) as url:
        scene.relay = url
        screen(scene.run("call", "echo", "hello", "--timeout", "100"), 30, "proxy", "pgrade", following="")


class NoRelay(http.server.BaseHTTPRequestHandler):
    """Some other web server."""

    def do_GET(self) -> None:
        """Answer as web servers do."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<h1>It works!</h1>")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_a_web_server_that_is_no_relay(scene: Scene) -> None:
    with serving(NoRelay) as url:
        scene.relay = url
        screen(scene.run("call", "echo", "hello"), 30, url, "not a Ringline relay", following="--relay")


def test_another_realm_than_the_relay_s(scene: Scene, relay: str) -> None:
    scene.relay = relay
    answer = scene.run("call", "echo", "hello", "--realm", "relay.example", "--plain")
    screen(answer, 2, "localhost", "relay.example", "Nothing was sent", following="--realm localhost")


def test_a_port_that_is_taken(scene: Scene, relay: str) -> None:
    port = relay.rsplit(":", 1)[1]
    screen(scene.run("relay", "dev", "--port", port), 2, port, following="ringline relay dev --port")


def test_handles_that_are_not_there_and_that_are_not_online(scene: Scene, relay: str) -> None:
    scene.relay = relay
    screen(scene.run("call", "nobody", "hello"), 10, "nobody", "A relay does not tell", following="")
    assert scene.run("init", "--as", "asleep").returncode == 0
    told = screen(
        scene.run("call", "asleep", "hello"), 11, "asleep is offline", following="ringline call asleep --id "
    )
    name = re.search(r"--id ([0-9a-f]{32})", told)
    assert name is not None
    document = scene.document("call", "asleep", "hello", "--id", name[1])
    assert document["error"]["message_id"] == name[1]


def test_a_budget_that_is_used_up_says_when_the_next_call_may_be(scene: Scene) -> None:
    # The library itself tries once more when nobody is there, which counts too.
    scene.start_relay("CALLS_PER_HOUR=2")
    assert scene.run("init", "--as", "asleep").returncode == 0
    assert scene.run("call", "asleep", "hello", "--timeout", "100").returncode == 11
    answer = scene.run("call", "asleep", "hello", "--timeout", "100")
    screen(answer, 13, "budget", "Nothing was delivered", following="Wait 60 min, until ")
    document = scene.document("call", "asleep", "hello", "--timeout", "100")
    assert 3_000_000 < document["error"]["retry_after_ms"] <= 3_600_000


def test_a_changed_key_is_a_hard_stop(scene: Scene, tmp_path: Path) -> None:
    port = lasting_port()
    first = scene.start_relay(port=port)
    listener = scene.start_listener("bob", "cat")
    assert scene.run("call", "bob", "hello").returncode == 0
    listener.stop()
    first.stop()
    # A relay that has forgotten bob, and somebody else who takes the name.
    scene.start_relay(port=port)
    (tmp_path / "other").mkdir()
    with Scene(tmp_path / "other", relay=scene.relay) as other:
        other.start_listener("bob", "cat")
        answer = scene.run("call", "bob", "hello", "--trust-new")
        told = screen(answer, 22, "known", "offered", "Nothing was sealed", following="bob")
        assert "sealed for" not in told


@contextlib.contextmanager
def relay_elsewhere(realm: str) -> Generator[str]:
    """A relay that is no development relay: keys are not pinned and callers not let in by themselves."""
    url: list[str] = []
    ready, over = threading.Event(), threading.Event()

    async def run() -> None:
        async with running_relay(realm=realm) as relay:
            url.append(relay.url)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert ready.wait(30)
        yield url[0]
    finally:
        over.set()
        thread.join()


def test_away_from_development_keys_come_with_contact_strings(scene: Scene, tmp_path: Path) -> None:
    with relay_elsewhere("relay.example") as url:
        scene.relay = url
        scene.variables = {"RINGLINE_REALM": "relay.example"}
        (tmp_path / "bob").mkdir()
        with Scene(tmp_path / "bob", relay=url, variables=scene.variables) as bob:
            alice_contact = scene.document("init", "--as", "alice", "--plain")["identity"]["contact"]
            bob_contact = bob.document("init", "--as", "bob", "--plain")["identity"]["contact"]
            bob.start_listener("bob", "cat", options=("--allow", alice_contact))
            # Not without the key, and not without the decision to trust the first one shown.
            screen(scene.run("call", "bob", "hello", "--as", "alice"), 21, "bob", following="--trust-new")
            # A contact string names key, realm and place, so that nothing else has to be given.
            scene.relay, scene.variables = "", {}
            answer = scene.run("call", bob_contact, "hello", "--as", "alice")
            assert (answer.returncode, answer.stdout) == (0, b"hello\n"), answer.stderr
            stranger = scene.run("call", bob_contact, "hello", "--as", "mallory", "--plain")
            screen(stranger, 10, "bob", following="")


def test_a_passphrase_is_asked_for_on_a_terminal_and_twice_the_first_time(scene: Scene) -> None:
    with relay_elsewhere("relay.example") as url:
        words = ("init", "--as", "me", "--relay", url, "--realm", "relay.example")
        first = on_a_terminal(scene, words, ["first try", "typing slip", "correct horse", "correct horse"])
        assert first.count("Passphrase of the keys of me") == 2
        assert "correct horse" not in first
        assert "contact      ringline://me@relay.example/" in first
        (path,) = scene.home.rglob("identities/me/agent.key")
        assert "argon2id" in path.read_text()
        again = on_a_terminal(scene, words, ["correct horse"])
        assert again.count("assphrase of the keys of me") == 1
        assert "this identity exists already" in again
        wrong = on_a_terminal(scene, words, ["wrong horse"])
        assert "exit 2" in wrong


def on_a_terminal(scene: Scene, words: tuple[str, ...], typed: list[str]) -> str:
    """Run a command on a terminal, type a line whenever it asks for one, and return what was shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [RINGLINE, *words],
        env=scene.environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    answered = 0
    with contextlib.suppress(OSError):  # Linux: nobody holds the other end any more
        while piece := os.read(ours, 65_536):
            shown += piece
            if shown.count(b": ") > answered and shown.endswith(b": ") and typed:
                os.write(ours, typed.pop(0).encode() + b"\n")
                answered = shown.count(b": ")
    os.close(ours)
    process.wait(BOUND_S)
    assert typed == []
    return shown.decode()


def test_away_from_development_new_keys_need_a_decision(scene: Scene) -> None:
    scene.relay = "https://relay.example"
    screen(scene.run("init", "--as", "me"), 2, "passphrase", following="--plain")
