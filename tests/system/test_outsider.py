"""The real relay, and the product's two clients, with a peer written from the documents alone.

What the two agree on here is what the documents say, and not what one code base believes of them. The
relay and the clients are the installed programs. Only where the relay stores no calls yet, the test
stands in its place and hands on real sealed bytes.
"""

import ast
import base64
import importlib.util
import itertools
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from cryptography.exceptions import InvalidTag
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey

__all__: list[str] = []

pytestmark = pytest.mark.system

OUTSIDER = Path(__file__).with_name("outsider.py")
RINGLINE = Path(sys.executable).with_name("ringline")
BOUND_S = 120
Json = dict[str, Any]
NUMBERS = itertools.count()
Play = Callable[[Json], Iterator[Json]]


def command(*words: str | Path) -> list[str]:
    return [str(word) for word in words]


@contextmanager
def running(
    argv: list[str], ready: str, environment: dict[str, str] | None = None
) -> Generator[re.Match[str]]:
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


def ended(argv: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=BOUND_S, env=environment, check=False)


def well(process: subprocess.CompletedProcess[str]) -> str:
    """What a program that ended well has written to standard output."""
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def relay() -> Iterator[str]:
    with running(command(RINGLINE, "relay", "dev", "--port", "0"), r"HTTP +(\S+)/v1/relay\n") as match:
        yield match[1]


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("outsider", OUTSIDER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Outsider:
    """The command line of outsider.py for one handle, whose keys are published within this process."""

    def __init__(self, relay: str, folder: Path, handle: str, suite: int = 2) -> None:
        self.state = folder / f"{handle}.json"
        self.options = command("--relay", relay, "--handle", handle, "--state", self.state)
        peer = loaded().Peer(relay, handle, str(self.state), suite)
        peer.http("PUT", f"/v1/handles/{handle}", body=peer.state["keys"])

    def attempt(self, to: str, message: str) -> subprocess.CompletedProcess[str]:
        return ended(command(sys.executable, OUTSIDER, "call", *self.options, "--to", to, message))

    def call(self, to: str, message: str) -> str:
        return well(self.attempt(to, message))

    def answers(self, count: int) -> AbstractContextManager[re.Match[str]]:
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
    assert len(text.splitlines()) < 300
    look = "import runpy, sys; runpy.run_path(sys.argv[1]); print(any('ringline' in m for m in sys.modules))"
    assert well(ended(command(sys.executable, "-c", look, OUTSIDER))) == "False\n"


LONG = "ß世界 x" * 6_400  # 64,000 bytes, the longest message there may be


@pytest.mark.parametrize(("caller", "callee"), [(2, 1), (1, 2)])
def test_outsider_calls_outsider(relay: str, tmp_path: Path, caller: int, callee: int) -> None:
    """The suite is that of the callee's prekey, whatever the caller publishes for himself."""
    ann = Outsider(relay, tmp_path, f"ann-{caller}{callee}", caller)
    ben = Outsider(relay, tmp_path, f"ben-{caller}{callee}", callee)
    with ben.answers(1):
        assert ann.call(f"ben-{caller}{callee}", LONG) == LONG.upper() + "\n"


def test_publishing_again_changes_nothing(relay: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    publish = command(
        sys.executable, OUTSIDER, "publish", "--relay", relay, "--handle", "again", "--state", state
    )
    well(ended([*publish, "--suite", "1"]))
    first = state.read_text()
    assert json.loads(first)["suite"] == 1
    assert state.stat().st_mode & 0o077 == 0
    well(ended(publish))
    assert state.read_text() == first


class Product:
    """The installed command line, with a home of its own."""

    def __init__(self, relay: str, home: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RINGLINE", "XDG"))}
        self.environment = kept | {"HOME": str(home)}
        self.relay = relay

    def command(self, verb: str, *words: str) -> list[str]:
        return command(RINGLINE, verb, "--relay", self.relay, *words)

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return ended(self.command("call", *words), self.environment)

    def listens(self, handle: str, *program: str) -> AbstractContextManager[re.Match[str]]:
        return running(self.command("listen", "--as", handle, "--run", *program), "ready", self.environment)


@pytest.mark.parametrize("suite", [1, 2])
def test_the_product_calls_the_outsider(relay: str, tmp_path: Path, suite: int) -> None:
    outsider, product = Outsider(relay, tmp_path, f"out-{suite}", suite), Product(relay, tmp_path)
    with outsider.answers(1):
        assert well(product.call(f"out-{suite}", "grüße, 世界")) == "GRÜSSE, 世界\n"


def test_the_product_reads_the_refusal_of_the_outsider(relay: str, tmp_path: Path) -> None:
    outsider, product = Outsider(relay, tmp_path, "out-task"), Product(relay, tmp_path)
    with outsider.answers(1):
        refused = product.call("out-task", "--task", "unheard-of", "hush")
        assert (refused.returncode, refused.stdout) == (25, ""), refused.stderr


def test_the_outsider_calls_the_product(relay: str, tmp_path: Path) -> None:
    outsider, product = Outsider(relay, tmp_path, "out-caller"), Product(relay, tmp_path)
    with product.listens("echo", "cat"):
        assert outsider.call("echo", LONG) == LONG + "\n"
    with product.listens("echo", "false"):
        failed = outsider.attempt("echo", "hush")
        assert failed.returncode == 1
        assert "peer: failed, agent_error" in failed.stderr


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

    def __init__(self, relay: str, folder: Path) -> None:
        number = next(NUMBERS)
        self.names = {role: f"{role}-{number}" for role in ("caller", "callee", "other")}
        self.peers: dict[str, Any] = {}
        self.modules: dict[str, Any] = {}  # one for each, so that a test can bend one side alone
        for role, handle in self.names.items():
            module = self.modules[role] = loaded()
            peer = self.peers[role] = module.Peer(relay, handle, str(folder / f"{handle}.json"), 2)
            peer.http("PUT", f"/v1/handles/{handle}", body=peer.state["keys"])
        self.calls: Json = {}

    def call(self, play: Play, mode: str = "durable") -> str:
        def stage(_path: str) -> Stage:
            return Stage(play)

        self.peers["caller"].dial = stage
        return str(self.peers["caller"].call(self.names["callee"], "hush", mode))

    def hear(self, kind: str, lease: str = LEASE, **members: object) -> list[tuple[str, Json]]:
        """What the callee says to one frame."""
        frame = {"type": kind, "call_id": CALL} | ({"lease_id": lease} if lease else {}) | members
        said: list[tuple[str, Json]] = self.peers["callee"].react(frame, self.calls)
        return said

    def card_id(self, role: str) -> str:
        return base64.urlsafe_b64encode(self.peers[role].card["id"]).decode().rstrip("=")

    def offer(self, request: Json, **changes: object) -> list[tuple[str, Json]]:
        members = {name: request[name] for name in ("envelope", "message_id", "correlation_id")}
        if request["delivery_mode"] == "durable":
            members |= {"delivery_mode": "durable", "execute_by": request["envelope"]["exp"]}
        members |= {name: request[name] for name in ("from", "execute_by") if name in request}
        members = {"from": self.names["caller"]} | members | changes
        return self.hear("incoming_call", LEASE if "delivery_mode" in members else "", **members)


@pytest.fixture
def cast(relay: str, tmp_path: Path) -> Cast:
    return Cast(relay, tmp_path)


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
        *_, (_, members) = cast.offer(request, call_id="call-2")  # the same message, but another call
        assert members["terminal"] == "failed"
        yield {"type": "call_error", "origin": "relay", "code": "canceled", "call_id": CALL}

    with pytest.raises(ValueError, match="relay: canceled"):
        cast.call(play)


HEX = "0123456789abcdef" * 2
CHANGES: dict[str, Callable[[Cast, Json], Json]] = {  # what a lying relay might hand to the callee
    "message_id": lambda _, request: request | {"message_id": HEX},
    "correlation_id": lambda _, request: request | {"correlation_id": HEX},
    "mode": lambda _, request: request | {"delivery_mode": "sync"},
    "from": lambda cast, request: request | {"from": cast.names["other"]},
    "suite": lambda _, request: inside(request, suite=1),
    "version": lambda _, request: inside(request, v=True),
    "member": lambda _, request: inside(request, extra=1),
    "sid": lambda cast, request: inside(request, sid=cast.card_id("other")),
    "kid": lambda cast, request: inside(request, kid=cast.card_id("other")),
    "iat": lambda _, request: inside(request, iat=request["envelope"]["iat"] + 1),
    "exp": lambda _, request: inside(request, exp=request["envelope"]["exp"] - 1),
    "late": lambda _, request: request | {"execute_by": request["envelope"]["iat"]},
    "junk": lambda _, request: inside(request, ct=request["envelope"]["ct"] + "=="),
    "cut": lambda _, request: inside(request, ct=request["envelope"]["ct"][:-4]),
}


def inside(frame: Json, **changes: object) -> Json:
    return frame | {"envelope": frame["envelope"] | changes}


@pytest.mark.parametrize("change", CHANGES)
def test_a_request_opens_only_where_it_was_sealed_for(cast: Cast, change: str) -> None:
    def play(request: Json) -> Iterator[Json]:
        assert cast.offer(CHANGES[change](cast, request)) == [("call_rejected", {"code": "protocol_error"})]
        assert kinds(cast.offer(request)) == ["call_accepted", "call_started"]
        yield {"type": "call_error", "origin": "relay", "code": "protocol_error", "call_id": CALL}

    with pytest.raises(ValueError, match="relay: protocol_error"):
        cast.call(play)


FORGERIES: dict[str, Callable[[Json], Json]] = {
    "none": lambda outcome: outcome,
    "terminal": lambda outcome: outcome | {"terminal": "failed"},
    "call_id": lambda outcome: outcome | {"call_id": "call-2"},
    "iat": lambda outcome: inside(outcome, iat=outcome["envelope"]["iat"] + 1),
    "suite": lambda outcome: inside(outcome, suite=1),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_an_outcome_opens_only_for_its_call(cast: Cast, forgery: str) -> None:
    def play(request: Json) -> Iterator[Json]:
        ids = {"call_id": CALL, "correlation_id": request["correlation_id"]}
        yield {"type": "call_status", "state": "ringing"} | ids
        *_, (kind, members) = cast.offer(request)
        yield FORGERIES[forgery]({"type": kind, "call_id": CALL} | members)

    if forgery == "none":
        assert cast.call(play, "sync") == "HUSH"
    else:
        with pytest.raises((InvalidTag, TypeError, ValueError)):
            cast.call(play, "sync")


def longer(cast: Cast) -> None:
    """Pads to one byte more than the formula says."""
    padded = cast.modules["caller"].padded

    def one_more(way: int, size: int) -> int:
        return int(padded(way, size)) + 1

    cast.modules["caller"].padded = one_more


def marked(cast: Cast) -> None:
    """Hides a byte at the end of the padding; all else is as it should be."""
    module, signer = cast.modules["caller"], cast.peers["caller"].signer

    def seal(way: int, call: Json, ends: bytes, raw: bytes, body: bytes, tail: bytes) -> tuple[Json, bytes]:
        ctx = module.context(way, call, ends, tail)
        to_sign = module.LABEL["sig"] + ctx + module.sha(body)
        plain = b"\x01" + signer.sign(to_sign).signature + len(body).to_bytes(4, "big") + body
        plain = plain.ljust(module.padded(way, len(plain)), b"\x00")[:-1] + b"\x01"
        key, name = module.public_key(call["suite"], raw)
        ct = module.SUITES[call["suite"]].encrypt(plain, key, module.LABEL["hpke"] + ctx)
        ids = {"v": 1, "suite": call["suite"], "kid": module.b64(name), "sid": cast.card_id("caller")}
        return ids | {"iat": call["iat"], "exp": call["exp"], "ct": module.b64(ct)}, module.sha(to_sign)

    cast.peers["caller"].seal = seal


def stranger(cast: Cast) -> None:
    """Signs with another key than the one on the card."""
    known = cast.peers["caller"].peer(cast.names["callee"])
    cast.peers["caller"].peer = {cast.names["callee"]: known}.__getitem__
    cast.peers["caller"].signer = SigningKey.generate()


@pytest.mark.parametrize(
    ("bend", "fault"), [(longer, "length of the padding"), (marked, "'padding'"), (stranger, "BadSignature")]
)
def test_padding_and_signature_are_checked(
    cast: Cast, capsys: pytest.CaptureFixture[str], bend: Callable[[Cast], None], fault: str
) -> None:
    def play(request: Json) -> Iterator[Json]:
        assert cast.offer(request) == [("call_rejected", {"code": "protocol_error"})]
        yield {"type": "call_error", "origin": "relay", "code": "protocol_error", "call_id": CALL}

    bend(cast)
    with pytest.raises(ValueError, match="relay: protocol_error"):
        cast.call(play)
    assert fault in capsys.readouterr().err


def test_an_authentic_message_that_makes_no_sense_is_refused_under_a_seal(cast: Cast) -> None:
    seal = cast.peers["caller"].seal

    def misspelt(way: int, call: Json, ends: bytes, raw: bytes, body: bytes, tail: bytes) -> Any:
        return seal(way, call, ends, raw, body.replace(b'"message"', b'"massage"'), tail)

    def play(request: Json) -> Iterator[Json]:
        yield queued(request)
        (accepted, (kind, members)) = cast.offer(request)
        assert accepted == ("call_accepted", {})
        yield {"type": kind, "call_id": CALL} | members

    cast.peers["caller"].seal = misspelt
    with pytest.raises(ValueError, match="peer: failed, agent_error"):
        cast.call(play)


DAY = 86_400_000
X25519 = bytes(SigningKey.generate().to_curve25519_private_key().public_key)
FAULTS: dict[str, tuple[Json, str]] = {  # what is wrong with the published keys, and what is said of it
    "none": ({}, ""),
    "handle": ({"handle": b"eve"}, "another handle"),
    "realm": ({"realm": b"example"}, "another handle or realm"),
    "weak key": ({"spk": b"\x01" + bytes(31)}, "keys of the card"),  # signs every message at once
    "one key": ({"spk": "ipk"}, "keys of the card"),
    "serial": ({"serial": 0}, "keys of the card"),
    "long life": ({"life": 91 * DAY}, "dead card"),
    "revoked": ({"revoked": True}, "dead card"),
    "card signature": ({"card_sig": bytes(64)}, "signature|forged"),
    "prekey signature": ({"prekey_sig": bytes(64)}, "signature|forged"),
    "another card": ({"of": bytes(32)}, "another card"),
    "long prekey": ({"days": 15}, "dead prekey"),
    "old prekey": ({"begun": 20}, "dead prekey"),
    "order": ({"suites": [(7, b"new"), (1, X25519)]}, "list of prekeys"),
    "twice": ({"suites": [(1, X25519), (1, X25519)]}, "list of prekeys"),
    "tail": ({"suites": [(1, X25519)], "count": 0}, "list of prekeys"),
    "unknown suite": ({"suites": [(1, X25519), (7, b"new")]}, ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_published_keys_are_verified(fault: str) -> None:
    module, isk, ssk = loaded(), SigningKey.generate(), SigningKey.generate()
    changes, said = FAULTS[fault]
    ipk = bytes(isk.verify_key)
    spk: Any = changes.get("spk", bytes(ssk.verify_key))
    names = module.v(changes.get("realm", b"localhost")) + module.v(changes.get("handle", b"bob"))
    body = module.CARD.pack(
        ipk, changes.get("serial", 1), 0, changes.get("life", DAY), ipk if spk == "ipk" else spk, bytes(32)
    )
    card = module.LABEL["card"] + names + body
    start = module.now() - changes.get("begun", 0) * DAY
    suites = changes.get("suites", [(1, X25519)])
    body = module.PREKEY.pack(
        1, start, start + changes.get("days", 14) * DAY, changes.get("count", len(suites))
    )
    body += b"".join(suite.to_bytes(2, "big") + module.v(raw) for suite, raw in suites)
    prekey = module.LABEL["prekey"] + changes.get("of", module.sha(card)) + body
    raw = {"card": card, "card_sig": isk.sign(card).signature}
    raw |= {"prekey": prekey, "prekey_sig": ssk.sign(prekey).signature}
    keys: Json = {name: module.b64(changes.get(name, value)) for name, value in raw.items()}
    keys["revoked"] = [module.b64(module.sha(card))] if "revoked" in changes else []
    if said:
        with pytest.raises((ValueError, BadSignatureError), match=said):
            module.read_prekey(keys, module.read_card(keys, "bob"))
    else:
        assert module.read_prekey(keys, module.read_card(keys, "bob")) == (1, X25519)


def test_another_identity_than_the_pinned_one_is_refused(cast: Cast) -> None:
    caller, callee = cast.peers["caller"], cast.names["callee"]
    assert caller.peer(callee)[1]["ipk"] == cast.peers["callee"].card["ipk"]
    caller.state["pins"][callee] = cast.card_id("other")
    with pytest.raises(ValueError, match="is not who was pinned"):
        caller.peer(callee)


@pytest.mark.parametrize(
    "raw", [bytes(32), X25519[:31], X25519[:31] + b"\xff"], ids=["zero", "short", "high bit"]
)
def test_a_key_to_seal_to_is_checked(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"KEM key|[Ee]rror|shared"):
        loaded().public_key(1, raw)


def test_the_same_message_is_answered_again_and_another_is_refused(cast: Cast) -> None:
    """The journal decides by identity and message_id, whatever call_id the relay gives."""

    def play(request: Json) -> Iterator[Json]:
        yield {"type": "call_status", "state": "ringing", "call_id": CALL} | {
            "correlation_id": request["correlation_id"]
        }
        cast.offer(request)
        journal = cast.peers["callee"].state["journal"]
        [row] = journal.values()
        assert row["state"] == "finished"
        assert kinds(cast.offer(request, call_id="call-2"))[-1] == "call_outcome"
        row["payload"] = "another"
        *_, (_, members) = cast.offer(request, call_id="call-3")
        assert members["terminal"] == "failed"
        *_, (kind, members) = cast.offer(request)
        yield {"type": kind, "call_id": CALL} | members

    assert cast.call(play, "sync") == "HUSH"
