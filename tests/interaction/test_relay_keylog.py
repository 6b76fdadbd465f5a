"""The key log of a real relay over HTTP, on a real database (C2SP tlog-tiles)."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from ringline.protocol.checkpoint import Checkpoint, LogKey, log_origin, open_checkpoint
from ringline.protocol.encoding import b64decode
from ringline.protocol.logentry import LogEntry, decode_entry, encode_entry
from ringline.protocol.merkle import (
    Span,
    consistency_spans,
    inclusion_spans,
    leaf_hash,
    span_hash,
    verify_consistency,
    verify_inclusion,
)
from ringline.protocol.signing import SigningKey
from ringline.protocol.tiles import Tile, TileHashes, bundles_of, decode_bundle, tiles_of
from ringline.relay.server import RelayServer
from ringline_testing.relay import running_relay
from ringline_testing.signed import Answer, Owner, exchange


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "relay.db"


async def log_key(relay: RelayServer) -> LogKey:
    info = (await exchange(relay.port, "GET", "/v1/relay")).json()
    assert info["features"] == ["keylog"]
    return LogKey(log_origin(info["realm"]), b64decode(info["log_key"]))


class Reader:
    """A client that believes what it can compute."""

    def __init__(self, owner: Owner, key: LogKey) -> None:
        self.owner = owner
        self.key = key

    async def get(self, path: str) -> Answer:
        answer = await self.owner.ask("GET", f"/v1/log/{path}")
        assert answer.status == 200, (path, answer)
        return answer

    async def checkpoint(self) -> Checkpoint:
        return open_checkpoint((await self.get("checkpoint")).body, self.key)

    async def entries(self, size: int) -> list[LogEntry]:
        found: list[bytes] = []
        for tile in bundles_of(Span(0, size), size):
            found += decode_bundle((await self.get(tile.path)).body, tile.width)
        return [decode_entry(entry) for entry in found]

    async def proof(self, spans: list[Span], size: int) -> list[bytes]:
        tiles = {tile: (await self.get(tile.path)).body for tile in tiles_of(spans, size)}
        get = TileHashes(size, tiles).get
        return [span_hash(span, get) for span in spans]


async def test_every_statement_is_in_the_log_and_can_be_proved(db: Path) -> None:
    async with running_relay(db=db) as relay:
        key = await log_key(relay)
        assert relay.log_key == key
        alice = await Owner.enrolled("alice", relay.port)
        reader = Reader(alice, key)
        first = await reader.checkpoint()
        assert first.size == 1
        bob = await Owner.enrolled("bob", relay.port)
        renewed = bob.renewed()
        assert (await renewed.publish()).status == 200
        heir = renewed.succeeded(SigningKey.generate(), old_signs=True)
        assert (await heir.publish()).status == 200
        answer = await heir.ask("POST", "/v1/handles/bob/revocations", heir.revocation())
        assert answer.status == 201
        last = await reader.checkpoint()
        entries = await reader.entries(last.size)
        assert entries[:5] == [alice.card, bob.card, renewed.card, heir.succession, heir.card]
        assert last.size == 6
        verify_consistency(
            first.size, first.root, last.size, last.root,
            await reader.proof(consistency_spans(first.size, last.size), last.size),
        )  # fmt: skip
        keys = (await alice.ask("GET", "/v1/handles/bob")).json()
        assert keys["log_index"] == 4
        verify_inclusion(
            leaf_hash(encode_entry(heir.card)), 4, last.size,
            await reader.proof(inclusion_spans(4, last.size), last.size), last.root,
        )  # fmt: skip
        former = (await alice.ask("GET", f"/v1/handles/bob?card={bob.card_id}")).json()
        assert former["log_index"] == 1


async def test_the_log_is_for_the_enrolled_alone(db: Path) -> None:
    async with running_relay(db=db) as relay:
        alice = await Owner.enrolled("alice", relay.port)
        stranger = Owner(handle="stranger", port=relay.port)
        for path in ("/v1/log/checkpoint", "/v1/log/tile/0/000.p/1", "/v1/log/tile/entries/000.p/1"):
            assert (await exchange(relay.port, "GET", path)).status == 401
            assert (await stranger.ask("GET", path)).status == 401
            assert (await alice.ask("GET", path)).status == 200
            assert (await alice.ask("POST", path)).status == 405
            assert (await alice.ask("GET", f"{path}?size=1")).status == 400


async def test_files_of_the_log_may_be_kept_for_ever_and_its_checkpoint_not_at_all(db: Path) -> None:
    async with running_relay(db=db) as relay:
        alice = await Owner.enrolled("alice", relay.port)
        checkpoint = await alice.ask("GET", "/v1/log/checkpoint")
        assert checkpoint.header("content-type") == "text/plain; charset=utf-8"
        assert checkpoint.header("cache-control") == "no-store"
        for path in ("0/000.p/1", "entries/000.p/1"):
            tile = await alice.ask("GET", f"/v1/log/tile/{path}")
            assert tile.header("content-type") == "application/octet-stream"
            assert tile.header("cache-control") == "private, max-age=31536000, immutable"


ABSENT = (
    "tile/0/000",
    "tile/0/000.p/2",
    "tile/0/001.p/1",
    "tile/1/000.p/1",
    "tile/entries/000",
    "tile/entries/000.p/2",
    "tile/0/0",
    "tile/0/000.p/0",
    "tile/0/000.p/01",
    "tile/8/000",
    "tile/data/000",
    "tile/0/x000/000.p/1",
    "tile/",
    "tile",
    "",
    "tile/0/..%2F..%2Fcheckpoint",
)


async def test_what_the_log_does_not_have_is_not_found(db: Path) -> None:
    async with running_relay(db=db) as relay:
        alice = await Owner.enrolled("alice", relay.port)
        for path in ABSENT:
            assert (await alice.ask("GET", f"/v1/log/{path}")).status == 404, path


async def test_a_relay_without_a_database_has_no_log() -> None:
    async with running_relay() as relay:
        alice = await Owner.enrolled("alice", relay.port)
        info = (await exchange(relay.port, "GET", "/v1/relay")).json()
        assert info["features"] == []
        assert "log_key" not in info
        assert (await alice.ask("GET", "/v1/log/checkpoint")).status == 404
        assert "log_index" not in (await alice.ask("GET", "/v1/handles/alice")).json()


@pytest.mark.parametrize("kept", [True, False])
async def test_a_connection_may_ask_for_the_feature_where_it_is_named(db: Path, kept: bool) -> None:
    async with running_relay(db=db if kept else None) as relay:
        alice = await Owner.enrolled("alice", relay.port)
        target = f"{alice.call_path('alice')}?features=keylog"
        if kept:
            async with alice.dial(target):
                return
        with pytest.raises(InvalidStatus) as refused:
            async with alice.dial(target):
                pass
        assert refused.value.response.status_code == 400


async def test_a_restart_shows_the_same_log_under_the_same_key(db: Path) -> None:
    async with running_relay(db=db) as relay:
        key = await log_key(relay)
        alice = await Owner.enrolled("alice", relay.port)
        before = (await alice.ask("GET", "/v1/log/checkpoint")).body
    async with running_relay(db=db) as relay:
        assert await log_key(relay) == key
        alice.port = relay.port
        assert (await alice.ask("GET", "/v1/log/checkpoint")).body == before
        assert (await alice.ask("GET", "/v1/handles/alice")).json()["log_index"] == 0


async def test_every_database_has_a_log_key_of_its_own(tmp_path: Path) -> None:
    keys: list[LogKey] = []
    for name in ("one.db", "other.db"):
        async with running_relay(db=tmp_path / name) as relay:
            keys.append(await log_key(relay))
    assert keys[0] != keys[1]


async def test_a_statement_whose_entry_cannot_be_written_is_not_published_either(db: Path) -> None:
    async with running_relay(db=db) as relay:
        alice = await Owner.enrolled("alice", relay.port)
        with closing(sqlite3.connect(db)) as other:
            # What the relay will want to write is there already: its transaction fails at its last step.
            other.execute("INSERT INTO log_entries VALUES (1, x'00', NULL)")
            other.commit()
        renewed = alice.renewed()
        assert (await renewed.publish()).status == 503
        keys = (await alice.ask("GET", "/v1/handles/alice")).json()
        assert (keys["card"], keys["log_index"]) == (alice.publication()["card"], 0)
        with closing(sqlite3.connect(db)) as other:
            assert other.execute("SELECT count(*) FROM cards").fetchone() == (1,)


async def test_the_database_itself_lets_nobody_rewrite_an_entry(db: Path) -> None:
    async with running_relay(db=db) as relay:
        await Owner.enrolled("alice", relay.port)
    with closing(sqlite3.connect(db)) as other:
        for change in ("UPDATE log_entries SET entry = x'00'", "DELETE FROM log_entries"):
            with pytest.raises(sqlite3.IntegrityError, match="only added to"):
                other.execute(change)


async def test_a_database_from_before_the_log_begins_one_with_all_it_holds(db: Path) -> None:
    async with running_relay(db=db) as relay:
        alice = await Owner.enrolled("alice", relay.port)
        bob = await Owner.enrolled("bob", relay.port)
        heir = bob.succeeded(SigningKey.generate(), old_signs=True)
        await heir.publish()
        await heir.ask("POST", "/v1/handles/bob/revocations", bob.revocation())
    with closing(sqlite3.connect(db)) as old:
        (version,) = old.execute("PRAGMA user_version").fetchone()
        old.executescript(
            "DROP TABLE log_entries; DELETE FROM facts WHERE name = 'log_key';"
            f"PRAGMA user_version = {version - 1}"
        )
    async with running_relay(db=db) as relay:
        alice.port = relay.port
        reader = Reader(alice, await log_key(relay))
        checkpoint = await reader.checkpoint()
        entries = await reader.entries(checkpoint.size)
        assert entries[:4] == [alice.card, bob.card, heir.succession, heir.card]
        assert len(entries) == 5
        assert (await alice.ask("GET", "/v1/handles/bob")).json()["log_index"] == 3
        size = checkpoint.size
    async with running_relay(db=db) as relay:
        alice.port = relay.port
        assert (await Reader(alice, await log_key(relay)).checkpoint()).size == size


async def test_one_identity_reads_the_log_so_often_and_no_oftener(db: Path) -> None:
    async with running_relay(db=db, settings={"log_fetches_per_minute": 2}) as relay:
        alice = await Owner.enrolled("alice", relay.port)
        bob = await Owner.enrolled("bob", relay.port)
        for _ in range(2):
            assert (await alice.ask("GET", "/v1/log/checkpoint")).status == 200
        refused = await alice.ask("GET", f"/v1/log/{Tile(0, 0, 1).path}")
        assert refused.status == 429
        assert refused.json()["retry_after_ms"] > 0
        assert (await bob.ask("GET", "/v1/log/checkpoint")).status == 200
