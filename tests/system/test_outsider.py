"""The real relay, and the product's two clients, with a peer written from the documents alone.

What the two agree on here is what the documents say, and not what one code base believes of them. The
relay and the clients are the installed programs. Only where the relay stores no calls yet, the test
stands in its place and hands on real sealed bytes.
"""

import ast
import importlib.util
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

__all__: list[str] = []

pytestmark = pytest.mark.system

OUTSIDER = Path(__file__).with_name("outsider.py")
RINGLINE = Path(sys.executable).with_name("ringline")
BOUND_S = 30
Json = dict[str, Any]
Play = Callable[[Json], Iterator[Json]]


def command(*words: str | Path) -> list[str]:
    return [str(word) for word in words]


@contextmanager
def running(
    argv: list[str], ready: str, environment: dict[str, str] | None = None
) -> Iterator[re.Match[str]]:
    """A program from the moment it has said ``ready``, a pattern, on standard error, to its orderly end."""
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            yield spoken(process, ready)
        finally:
            process.terminate()
            try:
                process.communicate(timeout=BOUND_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def spoken(process: subprocess.Popen[bytes], pattern: str) -> re.Match[str]:
    assert process.stderr is not None
    said, deadline = "", time.monotonic() + BOUND_S
    while (match := re.search(pattern, said)) is None:
        waiting, _, _ = select.select([process.stderr], [], [], deadline - time.monotonic())
        assert waiting, f"nothing like {pattern!r} within {BOUND_S} s: {said}"
        part = os.read(process.stderr.fileno(), 65_536).decode()
        assert part, f"ended without {pattern!r}: {said}"
        said += part
    return match


def run(argv: list[str], environment: dict[str, str] | None = None) -> str:
    """What a program that ends well writes to standard output."""
    ended = subprocess.run(
        argv, capture_output=True, text=True, timeout=BOUND_S, env=environment, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def relay() -> Iterator[str]:
    with running(command(RINGLINE, "relay", "dev", "--port", "0"), r"HTTP +(\S+)/v1/relay\n") as match:
        yield match[1]


class Outsider:
    """The command line of outsider.py for one handle."""

    def __init__(self, relay: str, folder: Path, handle: str, suite: int = 2) -> None:
        self.state = folder / f"{handle}.json"
        self.options = command("--relay", relay, "--handle", handle, "--state", self.state)
        run(command(sys.executable, OUTSIDER, "publish", *self.options, "--suite", str(suite)))

    def call(self, to: str, message: str) -> str:
        return run(command(sys.executable, OUTSIDER, "call", *self.options, "--to", to, message))

    def answers(self, count: int) -> Any:
        argv = command(sys.executable, OUTSIDER, "answer", *self.options, "--count", str(count))
        return running(argv, "listening\n")


def test_the_outsider_stands_alone() -> None:
    """It is one short file of foreign imports, and no import of an import brings the product in."""
    text = OUTSIDER.read_text()
    roots = set[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            roots |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add((node.module or ".").split(".")[0])
    assert roots - sys.stdlib_module_names == {"cryptography", "nacl", "websockets"}
    assert "importlib" not in roots
    assert len([line for line in text.splitlines() if line.strip()]) < 300  # blank lines aside
    look = "import runpy, sys; runpy.run_path(sys.argv[1]); print(any('ringline' in m for m in sys.modules))"
    assert run(command(sys.executable, "-c", look, OUTSIDER)) == "False\n"


@pytest.mark.parametrize("callee", [1, 2])
@pytest.mark.parametrize("caller", [1, 2])
def test_outsider_calls_outsider(relay: str, tmp_path: Path, caller: int, callee: int) -> None:
    """The suite is that of the callee's prekey, whatever the caller publishes for himself."""
    ann = Outsider(relay, tmp_path, f"ann-{caller}{callee}", caller)
    ben = Outsider(relay, tmp_path, f"ben-{caller}{callee}", callee)
    with ben.answers(2):
        assert ann.call(f"ben-{caller}{callee}", "grüße, 世界") == "GRÜSSE, 世界\n"
        assert ann.call(f"ben-{caller}{callee}", "x" * 64_000) == "X" * 64_000 + "\n"


def test_publishing_again_changes_nothing(relay: str, tmp_path: Path) -> None:
    first = Outsider(relay, tmp_path, "again").state.read_text()
    assert Outsider(relay, tmp_path, "again").state.read_text() == first


# The parts that need a relay which stores calls, played by the test.

CALL, LEASE, OTHER = "call-1", "0d9b7a3e-4c1f-4f5b-8a70-1c2d3e4f5a6b", "11111111-4c1f-4f5b-8a70-1c2d3e4f5a6b"


class Stage:
    """Stands in the place of the caller's connection; ``play`` is what the relay does with a request."""

    def __init__(self, play: Play) -> None:
        self.play, self.frames = play, iter(list[Json]())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def send(self, text: str) -> None:
        self.frames = self.play(json.loads(text))

    def recv(self, _timeout: float) -> str:
        return json.dumps(next(self.frames))


class Cast:
    """Three peers within this process; the keys come from the real relay."""

    def __init__(self, relay: str, folder: Path, tag: str) -> None:
        spec = importlib.util.spec_from_file_location("outsider", OUTSIDER)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.names = {role: f"{role}-{tag}" for role in ("caller", "callee", "other")}
        self.peers: dict[str, Any] = {}
        for role, handle in self.names.items():
            Outsider(relay, folder, handle)
            self.peers[role] = module.Peer(relay, handle, str(folder / f"{handle}.json"), 2)
        self.calls: Json = {}

    def call(self, play: Play, mode: str = "durable") -> str:
        self.peers["caller"].dial = lambda _path: Stage(play)
        return str(self.peers["caller"].call(self.names["callee"], "hush", mode))

    def hear(self, kind: str, lease: str = LEASE, **members: object) -> list[tuple[str, Json]]:
        """What the callee says to one frame."""
        frame = {"type": kind, "call_id": CALL} | ({"lease_id": lease} if lease else {}) | members
        said: list[tuple[str, Json]] = self.peers["callee"].react(frame, self.calls)
        return said

    def offer(self, request: Json, **changes: object) -> list[tuple[str, Json]]:
        members = {name: request[name] for name in ("envelope", "message_id", "correlation_id")}
        if request["delivery_mode"] == "durable":
            members |= {"delivery_mode": "durable", "execute_by": request["envelope"]["exp"]}
        members |= {"from": self.names["caller"]} | changes
        return self.hear("incoming_call", LEASE if "delivery_mode" in members else "", **members)


@pytest.fixture
def cast(relay: str, tmp_path: Path, request: pytest.FixtureRequest) -> Cast:
    tag = re.sub(r"[^a-z0-9]+", "-", f"{abs(hash(request.node.nodeid)) % 10**9}")
    return Cast(relay, tmp_path, tag)


def queued(request: Json) -> Json:
    ids = {name: request[name] for name in ("message_id", "correlation_id")}
    times = {"submitted_at": request["envelope"]["iat"], "expires_at": request["envelope"]["exp"]}
    return {"type": "call_queued", "call_id": CALL} | ids | times


def kinds(said: list[tuple[str, Json]]) -> list[str]:
    return [kind for kind, _ in said]


def test_a_stored_call_begins_only_when_granted(cast: Cast) -> None:
    def play(request: Json) -> Iterator[Json]:
        yield queued(request)
        assert kinds(cast.offer(request)) == ["call_accepted", "call_started"]
        assert cast.hear("call_started", OTHER) == []
        [(kind, members)] = cast.hear("call_started")
        assert kind == "call_outcome"
        assert cast.hear("call_started") == []
        assert cast.hear("cancel_call") == [("call_not_cancelled", {"reason": "already_terminal"})]
        yield {"type": kind, "call_id": CALL} | members

    assert cast.call(play) == "HUSH"


def test_a_cancelled_call_never_begins(cast: Cast) -> None:
    def play(request: Json) -> Iterator[Json]:
        yield queued(request)
        assert cast.hear("cancel_call") == [("call_not_cancelled", {"reason": "unknown"})]
        cast.offer(request)
        for _ in range(2):
            assert cast.hear("cancel_call") == [("call_cancelled", {"phase": "pending"})]
            assert cast.hear("call_started") == []
        assert cast.offer(request) == [("call_cancelled", {"phase": "pending"})]
        yield {"type": "call_error", "origin": "relay", "code": "canceled", "call_id": CALL}

    with pytest.raises(ValueError, match="relay: canceled"):
        cast.call(play)
