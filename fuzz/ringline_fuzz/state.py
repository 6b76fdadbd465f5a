"""Damaged files of a state folder, and what the commands say that read them."""

import functools
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from ringline.caller.outbox import Outbox, Stored
from ringline.caller.receipt import Receipt
from ringline.client.account import Account
from ringline.client.address import RelayAddress
from ringline.client.contacts import Contacts, Pin
from ringline.client.generation import Published, write_published
from ringline.client.home import Home, write_private
from ringline.client.inbox import Waiting
from ringline.client.invitations import Given, Issued
from ringline.client.logstate import LogState, Seen, SeenCard
from ringline.protocol import keyfile
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import ConfigError
from ringline.protocol.frames import CallQueued
from ringline.protocol.merkle import Frontier
from ringline.protocol.prekeys import epoch_at
from ringline.protocol.receipt import SignedOutcome
from ringline_fuzz.command import ROOMS, judge, run
from ringline_fuzz.database_damage import damaged_database
from ringline_fuzz.json_mutation import mutate_json
from ringline_fuzz.material import ALICE, BOB, NOW, REALM, seed_of
from ringline_fuzz.mutation import mutate_lines
from ringline_fuzz.sealed import genuine_receipts
from ringline_fuzz.target import Broken, Target

__all__ = [
    "ADDRESS",
    "ROWS",
    "TARGETS",
    "damaged_state",
    "furnish",
    "move_state",
    "split_state",
    "state_files",
    "state_seeds",
]

ADDRESS: Final = RelayAddress.parse("http://127.0.0.1:9", REALM)
"""The relay whose state it is; nobody answers there."""
ROWS: Final = 12
"""How many calls, cards and so on each database has."""

# What is run over each file, besides what its name asks for.
_READERS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "usual-relay": (("id", "show"), ("contacts", "ls")),
    "default-handle": (("id", "show"), ("call", "bob", "hello"), ("calls", "ls")),
    "contacts.toml": (
        ("contacts", "ls"),
        ("contacts", "show", "bob"),
        ("contacts", "block", "bob"),
        ("call", "bob", "x"),
    ),
    "keylog.db": (("log", "verify", "--seen"), ("id", "show"), ("log", "watch", "--once")),
    "agent.key": (
        ("id", "show"),
        ("id", "export", "--agent", "out.key", "--export-plain"),
        ("id", "rotate"),
        ("calls", "ls"),
    ),
    "identity.key": (
        ("id", "show"),
        ("id", "export", "--recovery", "out.key", "--export-plain"),
        ("id", "rotate"),
    ),
    "published.json": (
        ("id", "show"),
        ("id", "export", "--recovery", "out.key", "--export-plain"),
        ("call", "bob", "x"),
    ),
    "inbox.json": (("inbox", "ls"), ("inbox", "show", "waiting-1"), ("inbox", "deny", "waiting-1")),
    "invites.json": (("invite", "ls"), ("invite", "revoke", "invite-1")),
    "outbox.db": (
        ("calls", "ls"),
        ("calls", "show", "rcpt_bob_" + "0" * 31 + "1"),
        ("receipt", "save", "rcpt_bob_" + "0" * 31 + "1", "r"),
    ),
    "receipt.json": (("receipt", "verify", "receipt.json"),),
    "recovery.key": (("id", "import", "recovery.key"),),
    "agents.key": (("id", "import", "agents.key"),),
}


@functools.cache
def state_files() -> dict[str, bytes]:
    """Return every file of a state folder in use, by its path in the room."""
    room = ROOMS.new()
    home = Home(room / "home")
    folder = home.identity_folder(ADDRESS, "alice")
    home.make(folder)
    named: dict[str, Any] = {"handle": "alice", "realm": REALM, "created_ms": NOW}
    identity, agent = (
        keyfile.format_plain(keys, **named) for keys in (ALICE.identity_keys, ALICE.agent_keys)
    )
    write_private(home.identity_key_file(ADDRESS, "alice"), identity)
    write_private(home.agent_key_file(ADDRESS, "alice"), agent)
    published = Published([1], {"7": {str(epoch_at(NOW)): NOW}}, exported=b64encode(ALICE.identity.public))
    write_published(folder, published)
    write_private(home.realm_folder(ADDRESS) / "default-handle", "alice\n")
    write_private(home.root / "usual-relay", f"{ADDRESS.base_url}\n{REALM}\n")
    write_private(room / "recovery.key", f"{identity}\n{agent}")
    write_private(room / "agents.key", agent)
    (room / "receipt.json").write_bytes(genuine_receipts()[0])
    _fill_contacts(home)
    _fill_outbox(home)
    _fill_keylog(home)
    waiting = [
        Waiting(
            call_id=f"waiting-{number}",
            handle="bob",
            ipk=b64encode(BOB.identity.public),
            known=True,
            held_at=NOW,
            execute_by=NOW + 600_000,
            bytes=2_048,
            task="sum",
        )
        for number in range(3)
    ]
    write_private(folder / "inbox.json", msgspec.json.encode({"version": 1, "calls": waiting}).decode())
    given = Given(tasks=("sum",), calls_per_hour=5, label="bob at work")
    issued = Issued(
        id="invite-1", pairing=b64encode(bytes(16)), created_at=NOW, expires_at=NOW + 10**12, given=given
    )
    write_private(folder / "invites.json", msgspec.json.encode({"version": 1, "invites": [issued]}).decode())
    return {
        str(path.relative_to(room)): path.read_bytes()
        for path in sorted(room.rglob("*"))
        if path.is_file() and not path.name.endswith((".lock", "-wal", "-shm"))
    }


def _fill_contacts(home: Home) -> None:
    contacts = Contacts(home, home.contacts_file(ADDRESS))
    bob = Pin(
        realm=REALM,
        handle="bob",
        ipk=BOB.identity.public,
        source="invite",
        first_seen=NOW,
        card=BOB.card,
        prekey_epoch=epoch_at(NOW),
        verified_at=NOW + 1,
        state="allowed",
        tasks=("sum", "translate"),
        calls_per_hour=60,
        label='bob "at" work',
    )
    contacts.update(REALM, "bob", lambda _: bob)
    carol = Pin(realm=REALM, handle="carol", ipk=ALICE.following.public, source="tofu", first_seen=NOW)
    contacts.update(REALM, "carol", lambda _: carol)


def _fill_outbox(home: Home) -> None:
    outbox = Outbox(home, home.outbox_file(ADDRESS, "alice"))
    receipt = SignedOutcome.parse(genuine_receipts()[0])
    for number in range(1, ROWS + 1):
        message_id = f"{number:032x}"
        outbox.remember(
            Stored(
                callee="bob",
                message_id=message_id,
                correlation_id="2" * 32,
                payload=b'{"type":"call_request"}' * 60,
                content=seed_of("content"),
                digest=seed_of("digest"),
                from_ipk=ALICE.identity.public,
                to_ipk=BOB.identity.public,
                suite=1,
                reply_seed=seed_of("reply"),
                iat=NOW,
                exp=NOW + 10**11,
                mode="durable",
            )
        )
        outbox.queued(
            "bob",
            message_id,
            CallQueued(
                call_id=f"call-{number}",
                message_id=message_id,
                correlation_id="2" * 32,
                submitted_at=NOW,
                expires_at=NOW + 10**11,
            ),
        )
    outbox.answered(
        "bob",
        f"{1:032x}",
        Receipt(
            call_id="call-1",
            terminal="completed",
            context=receipt.context,
            body=receipt.answer,
            signature=receipt.signature,
            card=receipt.card,
            card_signature=receipt.card_signature,
            opened_at=NOW,
        ),
    )
    outbox.close()


def _fill_keylog(home: Home) -> None:
    with closing(LogState(home.keylog_file(ADDRESS))) as state:
        state.pin_key(seed_of("a point")[:0] + BOB.identity.public, "relay")
        frontier = Frontier()
        cards = [
            SeenCard(number, seed_of(f"card {number}"), "bob", number + 1, BOB.identity.public)
            for number in range(ROWS)
        ]
        for card in cards:
            frontier.append(card.card_id)
        state.advance(None, Seen(b"note", frontier.size, frontier.root(), NOW))
        state.note_entries(0, frontier, cards, [(seed_of("card 3"), 4)])
        state.raise_alarm("subject", "two heads of the log", NOW, None)


def furnish(room: Path, without: str = "") -> None:
    """Write the state folder into a room, all but one file."""
    for name, data in state_files().items():
        path = room / name
        if name != without:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o600)
    for path in room.rglob("*"):
        if path.is_dir():
            path.chmod(0o700)


def move_state(home: Home, address: RelayAddress) -> None:
    """Let the state be that of a relay of the same realm elsewhere."""
    if home.realm_folder(address) != home.realm_folder(ADDRESS):
        home.realm_folder(ADDRESS).rename(home.realm_folder(address))


# --- an input is the path of a file in one line, and behind it its bytes


def state_seeds(*suffixes: str) -> list[bytes]:
    """Return the files with these suffixes as inputs."""
    return [
        name.encode() + b"\n" + data for name, data in state_files().items() if Path(name).suffix in suffixes
    ]


def damaged_state(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return an input whose file is damaged as files of its kind are."""
    name, _, content = data.partition(b"\n")
    parts = [other.partition(b"\n")[2] for other in others]
    if name.endswith(b".db"):
        content = damaged_database(random, content)
    elif name.endswith(b".json"):
        content = mutate_json(random, content, parts)
    else:
        content = mutate_lines(random, content, parts)
    return name + b"\n" + content


def split_state(data: bytes) -> tuple[str, bytes] | None:
    """Return the path and the bytes of an input; None for one that is about no file."""
    name, _, content = data.partition(b"\n")
    text = name.decode("utf-8", "replace")
    return (text, content) if text in state_files() else None


def _state(data: bytes) -> str:
    found = split_state(data)
    if found is None:
        return "no file"
    name, content = found
    said: list[str] = []
    for words in _READERS[Path(name).name]:
        room = ROOMS.new()
        furnish(room, name)
        place = room / name
        place.write_bytes(content)
        place.chmod(0o600)
        told = run(words, room)
        said.append(judge(told, words))
        if (
            told.code not in (0, 1)
            and not told.stopped
            and place.suffix != ".db"
            and place.read_bytes() != content
        ):
            raise Broken(f"{words} failed, and has changed {name}")
        if place.suffix == ".db" and told.code == 2 and not told.stopped and place.name not in told.err:
            raise Broken(f"{words}: the damaged file is not named: {told.err}")
    if name.endswith(("agent.key", "published.json")):
        said.append(_check_account(name, content))
    if name.endswith("contacts.toml"):
        said.append(_check_contacts(content))
    return f"{Path(name).name}: {', '.join(said)}"


def _check_account(name: str, content: bytes) -> str:
    """Keys that are read can be published and used."""
    room = ROOMS.new()
    furnish(room, name)
    (room / name).write_bytes(content)
    (room / name).chmod(0o600)
    try:
        account = Account.load(Home(room / "home"), ADDRESS, "alice", NOW)
    except ConfigError as error:
        if Path(name).name not in str(error):
            raise Broken(f"the damaged file is not named: {error}") from error
        return "refused"
    published = account.publication(NOW)
    account.own_key(bytes(32), NOW)
    account.token("GET", "/v1/relay", NOW, "fuzz" * 4)
    account.note_published(published.prekey, NOW)
    account.refresh(NOW)
    return "account"


def _check_contacts(content: bytes) -> str:
    """A file of contacts that is read is the same after it was written."""
    room = ROOMS.new()
    home = Home(room)
    home.make(room)
    path = room / "contacts.toml"
    path.write_bytes(content)
    path.chmod(0o600)
    contacts = Contacts(home, path)
    try:
        before = contacts.pins()
        contacts.update(
            REALM,
            "zoe",
            lambda _: Pin(realm=REALM, handle="zoe", ipk=BOB.following.public, source="tofu", first_seen=NOW),
        )
    except ConfigError as error:
        if str(path) not in str(error):
            raise Broken(f"the damaged file is not named: {error}") from error
        return "refused"
    after = tuple(pin for pin in Contacts(home, path).pins() if pin.handle != "zoe")
    if after != tuple(pin for pin in before if pin.handle != "zoe"):
        raise Broken(f"written again they are other contacts: {before} and {after}")
    return f"{len(before)} contacts"


TARGETS: Final = (
    Target(
        name="state-text",
        promise="over any damaged file each command ends as promised, and leaves it so when it fails",
        seeds=lambda: state_seeds(".key", ".json", ".toml", ""),
        check=_state,
        mutate=damaged_state,
        short=40,
        full=8_000,
        close=ROOMS.close,
    ),
    Target(
        name="state-database",
        promise="over any damaged database a command names it, or has lost none of its rows",
        seeds=lambda: state_seeds(".db"),
        check=_state,
        mutate=damaged_state,
        short=12,
        full=4_000,
        close=ROOMS.close,
    ),
)
