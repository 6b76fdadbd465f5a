"""The second implementation and the product, installed, call and answer each other over the real relay.

The peer knows the protocol from its text alone. It is built by `make node-peer`, which runs this file too.
"""

import shutil
import signal
import subprocess
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from ringline_testing.commands import Running, Scene, until

pytestmark = pytest.mark.system

PEER = Path(__file__).parents[2] / "spec" / "peers" / "node" / "dist" / "cli.js"
NODE = shutil.which("node")

if NODE is None or not PEER.exists():
    pytest.skip("the second implementation is not built: make node-peer", allow_module_level=True)


class Peers:
    """A relay, and homes of the second implementation beside that of the product."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def start(self, home: str, *words: str) -> Running:
        """Start the peer with the home of that name."""
        folder = str(self.scene.folder / home)
        return self.scene.start(str(PEER), "--home", folder, *words, program=str(NODE), stdin=subprocess.PIPE)

    def run(self, home: str, *words: str, given: bytes = b"") -> tuple[int, bytes, bytes]:
        """Run the peer to its end: exit code, output, what it told."""
        running = self.start(home, *words)
        running.feed(given)
        code = running.end()
        return code, running.out, running.err

    def enrol(self, handle: str, *options: str) -> str:
        """Make an identity whose home is named like its handle; return its contact string."""
        code, out, err = self.run(handle, *options, "init", handle, "--relay", self.scene.relay)
        assert code == 0, err
        return out.decode().strip()

    def listen(self, handle: str, program: Sequence[str], *options: str) -> Running:
        """Let the peer answer with a program, and wait until it is ready."""
        running = self.start(handle, *options, "listen", "--offline", *program)
        running.says(r"^listening as")
        return running


@pytest.fixture(params=["picows", "websockets"])
def peers(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[Peers]:
    with Scene(tmp_path) as scene:
        scene.start_relay(words=("--db", str(tmp_path / "relay.db"), "--edge", str(request.param)))
        yield Peers(scene)


@pytest.fixture
def peers_on_one_edge(tmp_path: Path) -> Generator[Peers]:
    with Scene(tmp_path) as scene:
        scene.start_relay(words=("--db", str(tmp_path / "relay.db")))
        yield Peers(scene)


@pytest.mark.parametrize("suite", ["1", "2"])
def test_the_product_calls_the_peer(peers: Peers, suite: str) -> None:
    contact = peers.enrol("nora", "--suite", suite)
    peers.listen("nora", ["cat"], "--suite", suite)
    text = "\x01a\u2028é\n".encode() * 2_000
    answer = peers.scene.run("call", contact, "-", given=text)
    assert (answer.returncode, answer.stdout) == (0, text), answer.stderr
    durable = peers.scene.run("call", "nora", "--durable", "-", given=b"kept\n")
    assert (durable.returncode, durable.stdout) == (0, b"kept\n"), durable.stderr


def test_the_peer_calls_the_product(peers: Peers) -> None:
    peers.enrol("nora")
    peers.scene.start_listener("bob", "cat", options=("--offline",))
    text = "\x02b\u2029ü\n".encode() * 2_000
    code, out, told = peers.run("nora", "call", "bob", given=text)
    assert (code, out) == (0, text), told
    code, receipt, told = peers.run("nora", "call", "bob", "--durable", given=b"kept")
    assert code == 0, told
    code, out, told = peers.run("nora", "result", receipt.decode().strip(), "--wait", "20")
    assert (code, out) == (0, b"kept"), told


def test_a_call_waits_for_the_peer_and_survives_its_death(peers_on_one_edge: Peers) -> None:
    peers = peers_on_one_edge
    contact = peers.enrol("nora")
    listener = peers.listen("nora", ["cat"])
    listener.signal(signal.SIGKILL)
    assert listener.end() == -signal.SIGKILL
    left = peers.scene.run("call", contact, "--durable", "--no-wait", "-", given=b"later\n")
    assert left.returncode == 0, left.stderr
    receipt = left.stdout.decode().strip()
    peers.listen("nora", ["cat"])
    got = peers.scene.run("result", receipt, "--wait", "20")
    assert (got.returncode, got.stdout) == (0, b"later\n"), got.stderr


def test_work_that_died_with_the_peer_is_not_run_again(peers_on_one_edge: Peers, tmp_path: Path) -> None:
    peers = peers_on_one_edge
    contact = peers.enrol("nora")
    started = tmp_path / "started"
    program = ["sh", "-c", f"echo run >> {started}; exec sleep 20 >/dev/null 2>&1"]
    listener = peers.listen("nora", program)
    call = peers.scene.start("call", contact, "--durable", "-", stdin=subprocess.PIPE)
    call.feed(b"once")
    until(started.exists)
    listener.signal(signal.SIGKILL)
    assert listener.end() == -signal.SIGKILL
    peers.listen("nora", program)
    assert call.end() == 18, call.told
    assert started.read_text() == "run\n"


def test_work_is_seen_to_stop_before_either_side_calls_it_cancelled(
    peers_on_one_edge: Peers, tmp_path: Path
) -> None:
    peers = peers_on_one_edge
    contact = peers.enrol("nora")
    peers.listen("nora", ["sleep", "61.17"])
    call = peers.scene.start("call", contact, "-", stdin=subprocess.PIPE)
    call.feed(b"long")
    call.says("working")
    call.signal(signal.SIGINT)
    assert call.end() == 15, call.told
    peers.scene.start_listener("bob", "sleep", "61.18")
    mine = peers.start("nora", "call", "bob")
    mine.feed(b"long")
    mine.says("working")
    mine.signal(signal.SIGINT)
    assert mine.end() == 3
    mine.says("canceled")
