"""`ringline contacts` and `ringline inbox` on files alone: what is shown, changed, and refused."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ringline.cli import main
from ringline.client.account import Account
from ringline.client.address import RelayAddress
from ringline.client.contacts import Contacts, Pin
from ringline.client.home import Home
from ringline.client.inbox import Inbox, Waiting
from ringline.protocol.encoding import b64encode
from ringline.protocol.fingerprint import fingerprint, safety_number
from ringline.protocol.signing import SigningKey
from ringline_testing.agents import NOW_MS

URL = "http://127.0.0.1:1"
"""Nothing listens there: these commands do what they do without a relay, and say that it was not told."""

BOB = SigningKey(bytes(range(32))).public


class Desk:
    """The state folder of `ada`, who knows `bob`."""

    def __init__(self, home: Path) -> None:
        self.address = RelayAddress.parse(URL)
        self.home = Home(home)
        self.account = Account.create(self.home, self.address, "ada", NOW_MS, plain=True, suites=[1])
        self.contacts = Contacts(self.home, self.home.contacts_file(self.address))
        self.inbox = Inbox(self.home, self.account)
        self.put(Pin(realm="localhost", handle="bob", ipk=BOB, source="tofu", first_seen=NOW_MS))

    def put(self, pin: Pin) -> None:
        self.contacts.update("localhost", pin.handle, lambda _: pin)

    @property
    def bob(self) -> Pin | None:
        return self.contacts.pin("localhost", "bob")

    @property
    def number(self) -> str:
        return safety_number("ada", self.account.ipk, "bob", BOB)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    for name in ("RINGLINE_REALM", "RINGLINE_AS", "RINGLINE_PASSPHRASE_FILE", "RINGLINE_INVITE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RINGLINE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RINGLINE_RELAY", URL)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    return Desk(tmp_path / "home")


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    """Run a command; return its document with ``--json``, else all that it wrote."""
    assert main(words) == code
    told = capsys.readouterr()
    return json.loads(told.out) if "--json" in words else told.out + told.err


def test_contacts_are_listed_and_shown(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "contacts", "ls")
    assert "? bob" in text
    assert fingerprint(BOB) in text
    assert "not decided yet" in text
    shown = run(capsys, "contacts", "show", "bob", "--json")["contact"]
    assert (shown["safety_number"], shown["state"]) == (desk.number, "pending")
    first, second = desk.number.split(" ")[:6], desk.number.split(" ")[6:]
    text = run(capsys, "contacts", "show", "bob")
    assert " ".join(first) in text
    assert " ".join(second) in text


def test_a_contact_is_let_in_with_what_is_said(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "contacts", "allow", "bob", "--task", "review", "--task", "ask", "--label", "Bob B.")
    assert "tasks ask, review, 30 calls an hour" in text
    # It counts here, whatever the relay knows of it.
    assert "the relay was not told" in text
    pin = desk.bob
    assert pin is not None
    assert (pin.state, pin.tasks, pin.calls_per_hour, pin.label) == (
        "allowed",
        ("ask", "review"),
        30,
        "Bob B.",
    )
    run(capsys, "contacts", "allow", "bob", "--calls-per-hour", "0")
    pin = desk.bob
    assert pin is not None
    assert (pin.tasks, pin.calls_per_hour, pin.label) == (None, None, "Bob B.")
    run(capsys, "contacts", "block", "bob")
    assert desk.bob is not None
    assert desk.bob.state == "blocked"


def test_somebody_new_is_let_in_by_his_contact_string(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    key = SigningKey(bytes(32)).public
    contact = f"ringline://carol@localhost/?at={URL}#k={b64encode(key)}"
    shown = run(capsys, "contacts", "allow", contact, "--json")["contact"]
    assert (shown["handle"], shown["source"], shown["state"]) == ("carol", "contact", "allowed")
    # A key that is known is not replaced by one.
    other = f"ringline://bob@localhost/?at={URL}#k={b64encode(key)}"
    error = run(capsys, "contacts", "allow", other, "--json", code=22)["error"]
    assert error["code"] == "key_changed"
    assert desk.bob is not None
    assert desk.bob.ipk == BOB


@pytest.mark.parametrize("kind", ["fingerprint", "number", "other spelling"])
def test_a_key_is_vouched_for_by_what_its_owner_told(
    desk: Desk, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    told = {
        "fingerprint": fingerprint(BOB),
        "number": desk.number,
        "other spelling": fingerprint(BOB).upper().replace(" ", "  "),
    }[kind]
    assert desk.bob is not None
    assert desk.bob.verified_at is None
    run(capsys, "contacts", "verify", "bob", "--fingerprint", told)
    assert desk.bob.verified_at is not None


def test_another_key_is_not_vouched_for_and_there_is_no_way_around_it(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = fingerprint(SigningKey(bytes(32)).public)
    for told in (wrong, fingerprint(BOB)[:19], ""):
        error = run(capsys, "contacts", "verify", "bob", "--fingerprint", told, "--json", code=22)["error"]
        assert error["code"] == "key_changed"
    # Without a terminal nobody is asked, and nothing is taken for a yes.
    assert "no terminal" in run(capsys, "contacts", "verify", "bob", code=2)
    assert desk.bob is not None
    assert desk.bob.verified_at is None


def test_a_contact_is_forgotten_with_his_key(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert fingerprint(BOB) in run(capsys, "contacts", "rm", "bob")
    assert desk.bob is None
    assert "not known" in run(capsys, "contacts", "show", "bob", code=2)
    assert "nobody is known" in run(capsys, "contacts", "ls")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("contacts", "show", "carol"), "not known"),
        (("contacts", "show", "Carol"), "no handle"),
        (("contacts", "allow", "carol"), "not known"),
        (("contacts", "allow", "bob", "--task", "No Task"), "no task"),
        (("contacts", "allow", "bob", "--label", "a\x1b[31m"), "one line"),
        (("contacts", "block", "carol"), "could not be told"),
        (("contacts", "rm", "carol"), "not known"),
        (("invite", "a\nb"), "one line"),
        (("invite", "bob", "--uses", "9"), "--uses"),
        (("invite", "bob", "--ttl", "0"), "--ttl"),
        (("invite", "revoke", "no id!"), "no id"),
        (("accept",), "no terminal"),
        (("accept", "rli1qqqq"), "is a secret"),
        (("accept", "-"), "no invite"),
        (("accept", "-", "--code-file", "x"), "exclude"),
        (("accept", "--code-file", "/no/such/file"), "/no/such/file"),
        (("accept", "-", "--task", "review"), "--allow"),
        (("inbox", "show", "none"), "no call"),
        (("inbox", "allow", "none", "--once", "--task", "x"), "exclude"),
        (("relay", "remove", "bob"), "--yes"),
        (("relay", "remove", "Bob", "--yes"), "no handle"),
    ],
)
def test_a_mistake_is_told_with_what_to_type_next(
    desk: Desk, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    text = run(capsys, *words, code=2)
    assert told in text
    assert "Next:" in text


def test_a_document_is_not_kept_back_until_the_invite_in_it_was_taken_up(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    error = run(capsys, "invite", "bob", "--wait", "1", "--json", code=2)["error"]
    assert "--wait and --json" in error["message"]


def test_several_identities_must_be_told_apart(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    Account.create(desk.home, desk.address, "eve", NOW_MS, plain=True, suites=[1])
    assert "ada, eve" in run(capsys, "contacts", "ls", code=2)
    run(capsys, "contacts", "ls", "--as", "ada")
    desk.home.call_as(desk.address, "eve")
    run(capsys, "contacts", "ls")


def test_the_usual_relay_is_the_first_one_and_is_overruled(
    desk: Desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ringline.cli.usual import usual_realm, usual_relay
    from ringline.client import keep_usual

    address = RelayAddress.parse("http://127.0.0.1:2", "relay.test")
    assert keep_usual(desk.home, address)
    assert not keep_usual(desk.home, desk.address)
    assert (usual_relay(), usual_realm(usual_relay())) == (address.base_url, "relay.test")
    assert usual_realm(URL) is None
    run(capsys, "contacts", "ls")
    monkeypatch.delenv("RINGLINE_RELAY")
    assert "http://127.0.0.1:2" in run(capsys, "contacts", "ls", code=2)
    for damage in ("", "x", "a\nb\nc", "\xff"):
        (desk.home.root / "usual-relay").write_text(damage, encoding="latin-1")
        assert usual_relay() == "http://127.0.0.1:7575"


def waiting(**members: Any) -> Waiting:
    values: dict[str, Any] = {
        "call_id": "call-1",
        "handle": "carol",
        "ipk": b64encode(SigningKey(bytes(32)).public),
        "known": False,
        "held_at": NOW_MS,
        "execute_by": NOW_MS + 3_600_000,
        "bytes": 2_048,
    }
    return Waiting(**(values | members))


class TestInbox:
    def test_a_call_that_waits_is_shown_with_who_vouches_for_it(
        self, desk: Desk, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "nothing waits" in run(capsys, "inbox", "ls")
        desk.inbox.hold(waiting(), NOW_MS)
        assert "a stranger" in run(capsys, "inbox", "ls")
        text = run(capsys, "inbox", "show", "call-1")
        assert "NOBODY you know" in text
        assert fingerprint(SigningKey(bytes(32)).public) in text
        (call,) = run(capsys, "inbox", "ls", "--json")["calls"]
        assert (call["from"], call["task"], call["known"]) == ("carol", None, False)

    @pytest.mark.parametrize(
        ("words", "decision", "state", "tasks"),
        [
            (("allow", "call-1", "--once"), "once", "pending", None),
            (("allow", "call-1"), "allowed", "allowed", None),
            (("allow", "call-1", "--task", "review"), "allowed", "allowed", ("review",)),
            (("block", "call-1"), "denied", "blocked", None),
        ],
    )
    def test_a_decision_is_written_down_with_the_key_that_was_shown(
        self,
        desk: Desk,
        capsys: pytest.CaptureFixture[str],
        words: tuple[str, ...],
        decision: str,
        state: str,
        tasks: tuple[str, ...] | None,
    ) -> None:
        desk.inbox.hold(waiting(), NOW_MS)
        run(capsys, "inbox", *words)
        decided = desk.inbox.find("call-1")
        assert decided is not None
        assert decided.decision == decision
        pin = desk.contacts.pin("localhost", "carol")
        assert pin is not None
        assert (pin.state, pin.tasks, pin.source) == (state, tasks, "tofu")
        assert b64encode(pin.ipk) == waiting().ipk
        assert "decided before" in run(capsys, "inbox", "deny", "call-1", code=2)

    def test_what_is_denied_pins_nothing(self, desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
        desk.inbox.hold(waiting(), NOW_MS)
        run(capsys, "inbox", "deny", "call-1")
        assert desk.contacts.pin("localhost", "carol") is None

    def test_a_task_is_added_to_those_he_may_call(
        self, desk: Desk, capsys: pytest.CaptureFixture[str]
    ) -> None:
        pin = Pin(
            realm="localhost", handle="bob", ipk=BOB, source="invite", first_seen=NOW_MS,
            state="allowed", tasks=("ask",), calls_per_hour=3,
        )  # fmt: skip
        desk.put(pin)
        desk.inbox.hold(waiting(handle="bob", ipk=b64encode(BOB), known=True, task="review"), NOW_MS)
        run(capsys, "inbox", "allow", "call-1", "--task", "review")
        assert desk.bob is not None
        assert (desk.bob.tasks, desk.bob.calls_per_hour) == (("ask", "review"), 3)

    def test_a_key_that_became_known_since_is_not_replaced(
        self, desk: Desk, capsys: pytest.CaptureFixture[str]
    ) -> None:
        desk.inbox.hold(waiting(handle="bob"), NOW_MS)
        error = run(capsys, "inbox", "allow", "call-1", "--json", code=22)["error"]
        assert error["code"] == "key_changed"
        assert desk.bob is not None
        assert (desk.bob.ipk, desk.bob.state) == (BOB, "pending")
        still = desk.inbox.find("call-1")
        assert still is not None
        assert still.is_open
