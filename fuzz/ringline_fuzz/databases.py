"""Damaged databases, and whoever opens them: journal, outbox, memory of a key log, and a relay."""

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final

from ringline.caller.outbox import Outbox
from ringline.client.home import Home
from ringline.client.logstate import LogState
from ringline.listener.entries import JournalError
from ringline.listener.journal import Journal
from ringline.protocol.errors import ConfigError
from ringline.relay.options import RelayOptions
from ringline.relay.server import RelayServer
from ringline.relay.store import StoreError
from ringline_fuzz.command import ROOMS
from ringline_fuzz.database_damage import damaged_database
from ringline_fuzz.material import NOW, seed_of
from ringline_fuzz.state import ROWS, state_files
from ringline_fuzz.target import Broken, Target
from ringline_testing.journals import DONE, take
from ringline_testing.signed import Owner

__all__ = ["TARGETS"]

_HANDLES: Final = ("alice", "bob", "carol")
_QUEUED: Final = 8


def _whole(open_and_count: Callable[[Path], object], expected: object) -> Callable[[bytes], str]:
    """Judge a file: it is refused by its name, or nothing of it is lost."""

    def check(data: bytes) -> str:
        path = ROOMS.new() / "damaged.db"
        path.write_bytes(data)
        path.chmod(0o600)
        try:
            found = open_and_count(path)
        except (ConfigError, JournalError, StoreError) as error:
            if str(path) not in str(error):
                raise Broken(f"the damaged file is not named: {error}") from error
            return "refused"
        # An empty file is what the first start of a program may leave behind.
        if found != expected and data:
            raise Broken(f"opened without a word, with {found} instead of {expected}")
        return "whole"

    return check


def _damaged(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    del others
    return damaged_database(random, data, doubled=False)


@functools.cache
def _journal() -> bytes:
    path = ROOMS.new() / "journal.db"
    with Journal(path, machine="here") as journal:
        for number in range(1, ROWS + 1):
            taking = take(journal, f"call-{number}", message_id=f"{number:032x}", mode="durable")
            assert taking.entry is not None
            if number % 3 == 0:
                journal.begin(taking.entry.id, granted=None, mint=None, now=NOW)
            if number % 6 == 0:
                journal.finish(taking.entry.id, DONE, turn=None, now=NOW)
    return path.read_bytes()


def _open_journal(path: Path) -> int:
    with Journal(path, machine="here") as journal:
        for number in range(1, ROWS + 1):
            journal.find(f"call-{number}")
        # What a file is worth is what is in its tables; a call whose id was hit is one under another name.
        (rows,) = journal._file.connection.execute("SELECT count(*) FROM offers").fetchone()
        journal.purge(NOW, active=())
    return int(rows)


def _open_outbox(path: Path) -> int:
    outbox = Outbox(Home(path.parent), path)
    try:
        found = outbox.recent(100)
        outbox.unacknowledged()
        for stored in found:
            if stored.receipt is not None:
                _ = stored.receipt.saved
    finally:
        outbox.close()
    return len(found)


def _open_keylog(path: Path) -> tuple[int, ...]:
    with closing(LogState(path)) as state:
        state.key()
        state.seen()
        state.read()
        state.proved(seed_of("card 1"))
        cards, _ = state.unchecked("bob", 0)
        state.revoked_at(seed_of("card 3"))
        (revoked,) = state._file._connection.execute("SELECT count(*) FROM revocations").fetchone()
        return len(cards), len(state.alarms()), revoked


async def _fill_relay(path: Path) -> None:
    async with RelayServer(RelayOptions(port=0, db=str(path))) as relay:
        owners = [await Owner.enrolled(handle, relay.port) for handle in _HANDLES]
        policy = {"offline": True, "accept": "anyone", "allow": ["alice"], "block": ["mallory"]}
        alice, bob, carol = owners
        answer = await bob.ask("PUT", "/v1/handles/bob/policy", policy)
        assert answer.status == 200, answer
        answer = await carol.ask("POST", "/v1/handles/carol/revocations", carol.revocation())
        assert answer.status == 201, answer
        await alice.ask("POST", "/v1/invites", {"uses": 2, "ttl_s": 86_400})
        async with alice.calling("bob") as line:
            for _ in range(_QUEUED):
                await line.send(alice.request(delivery_mode="durable"))
                answered = await line.next()
                assert answered["type"] == "call_queued", answered


@functools.cache
def _relay() -> bytes:
    path = ROOMS.new() / "relay.db"
    asyncio.run(_fill_relay(path))
    return path.read_bytes()


async def _serve(path: Path) -> tuple[int, int]:
    async with RelayServer(RelayOptions(port=0, db=str(path))) as relay:
        directory = relay._registry.directory
        enrolled = sum(directory.is_enrolled(handle) for handle in _HANDLES)
        return enrolled, len(relay._calls.queued("bob", 0, 100))


def _open_relay(path: Path) -> tuple[int, int]:
    logging.getLogger("ringline.relay").setLevel(logging.CRITICAL)
    return asyncio.run(_serve(path))


TARGETS: Final = (
    Target(
        name="journal",
        promise="a damaged journal is refused by its name, or has all of its calls",
        seeds=lambda: [_journal()],
        check=_whole(_open_journal, ROWS),
        mutate=_damaged,
        short=60,
        full=5_000,
        close=ROOMS.close,
    ),
    Target(
        name="outbox",
        promise="a damaged outbox is refused by its name, or has all of its calls",
        seeds=lambda: [next(data for name, data in state_files().items() if name.endswith("outbox.db"))],
        check=_whole(_open_outbox, ROWS),
        mutate=_damaged,
        short=60,
        full=5_000,
        close=ROOMS.close,
    ),
    Target(
        name="keylog",
        promise="damaged memory of a key log is refused by its name, or has all its cards and alarms",
        seeds=lambda: [next(data for name, data in state_files().items() if name.endswith("keylog.db"))],
        check=_whole(_open_keylog, (ROWS, 1, 1)),
        mutate=_damaged,
        short=60,
        full=5_000,
        close=ROOMS.close,
    ),
    Target(
        name="relay-database",
        promise="a relay refuses a damaged database by its name, or has all of its identities and calls",
        seeds=lambda: [_relay()],
        check=_whole(_open_relay, (len(_HANDLES), _QUEUED)),
        mutate=_damaged,
        short=20,
        full=3_000,
        close=ROOMS.close,
    ),
)
