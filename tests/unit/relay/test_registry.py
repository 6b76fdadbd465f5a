"""Directory and store together: what is answered is on disk, and what is on disk is in memory."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ringline.protocol.errors import ConfigError, HttpProblem
from ringline.relay.directory import Decision, Directory
from ringline.relay.registry import Registry
from ringline.relay.sqlite import MEMORY, SqliteStore
from ringline.relay.store import CardPublished
from ringline_testing.signed import Owner


def published(handle: str = "alice") -> CardPublished:
    """Return the change that enrols a handle."""
    card = Owner(handle=handle, port=0).card
    return CardPublished(
        handle=handle,
        card_id=f"{handle}-1",
        serial=1,
        card=card.card.encode(),
        card_sig=card.signature,
        succession=None,
        at=1,
    )


def registry(path: str, *, busy_timeout: float = 5.0) -> Registry:
    """Return a new directory on the store at ``path``."""
    store = SqliteStore(path, realm="localhost", busy_timeout=busy_timeout)
    try:
        return Registry(Directory("localhost"), store, blocking=path != MEMORY)
    except ConfigError:
        store.close()
        raise


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "relay.db")


@pytest.mark.parametrize("where", ["file", "memory"])
async def test_a_decision_is_applied_and_kept(path: str, where: str) -> None:
    kept = registry(MEMORY if where == "memory" else path)
    decision = Decision((published(),), created=True)
    assert await kept.commit(lambda: decision) is decision
    assert len(kept.directory) == 1
    assert await kept.fault() is None
    for _ in range(2):
        await kept.close()
    if where == "file":
        again = registry(path)
        assert len(again.directory) == 1
        await again.close()


async def test_decisions_are_taken_one_after_the_other(path: str) -> None:
    kept = registry(path)
    seen: list[int] = []

    def decide() -> Decision:
        seen.append(len(kept.directory))
        return Decision((published(f"h{len(seen)}"),))

    async with asyncio.timeout(10):
        await asyncio.gather(*(kept.commit(decide) for _ in range(5)))
    # Each sees what the one before has done.
    assert seen == [0, 1, 2, 3, 4]
    await kept.close()


async def test_what_cannot_be_written_has_not_happened(path: str) -> None:
    kept = registry(path, busy_timeout=0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(HttpProblem) as caught:
            await kept.commit(lambda: Decision((published(),)))
        assert (caught.value.code, caught.value.retry_after_ms) == ("unavailable", 5_000)
        assert len(kept.directory) == 0
        assert "locked" in str(await kept.fault())
    await kept.commit(lambda: Decision((published(),)))
    # A write that went through is as good as a look.
    assert await kept.fault() is None
    await kept.close()


async def test_a_refusal_passes_through_and_blocks_nobody(path: str) -> None:
    kept = registry(path)

    def refuse() -> Decision:
        raise HttpProblem(code="conflict")

    with pytest.raises(HttpProblem, match="contradicts"):
        await kept.commit(refuse)
    await kept.commit(lambda: Decision((published(),)))
    await kept.close()


async def test_a_request_that_is_given_up_does_not_part_disk_and_memory(path: str) -> None:
    kept = registry(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        asking = asyncio.ensure_future(kept.commit(lambda: Decision((published(),))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        holder.execute("ROLLBACK")
    # Waits for the write that is under way.
    await kept.commit(lambda: Decision(()))
    assert len(kept.directory) == 1
    await kept.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE cards SET card = x'00'",
        "UPDATE cards SET serial = 7",
        "UPDATE cards SET succession = '{}'",
        "INSERT INTO handles (handle, policy) VALUES"
        ' (\'bob\', \'{"offline":false,"accept":"anyone","allow":[],"block":[]}\')',
    ],
)
async def test_a_stored_directory_that_makes_no_sense_is_not_begun_with(path: str, damage: str) -> None:
    store = SqliteStore(path, realm="localhost")
    store.write([published("alice")])
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as editor:
        editor.execute(damage)
    with pytest.raises(ConfigError, match="cannot be read"):
        registry(path)
