"""The key log: who may read it, what is in it, and that it only grows."""

from ringline.conformance.identity import Identity
from ringline.conformance.registry import Needs, case
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check
from ringline.protocol.checkpoint import Checkpoint, LogKey, log_origin, open_checkpoint
from ringline.protocol.encoding import b64decode
from ringline.protocol.errors import RinglineError
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
from ringline.protocol.statements import SignedRevocation
from ringline.protocol.tiles import Tile, TileHashes, bundles_of, decode_bundle, tiles_of

__all__: list[str] = []

_MOST = 100
_LOG = Needs(features=("keylog",))


def _key(stage: RelayStage) -> LogKey:
    """Return the key of the subject's log."""
    key = stage.info.log_key
    check(isinstance(key, str), "log_key in GET /v1/relay", "none")
    return LogKey(log_origin(stage.info.realm), b64decode(str(key)))


async def _get(stage: RelayStage, who: Identity, path: str) -> bytes:
    answer = await stage.ask(who, "GET", f"/v1/log/{path}")
    check(answer.status == 200, f"200 for {path}", str(answer))
    return answer.body


async def _head(stage: RelayStage, who: Identity) -> Checkpoint:
    data = await _get(stage, who, "checkpoint")
    try:
        return open_checkpoint(data, _key(stage))
    except RinglineError as error:
        check(False, "a checkpoint that the log's key signed", str(error))
        raise


async def _proof(stage: RelayStage, who: Identity, spans: list[Span], size: int) -> list[bytes]:
    tiles = {tile: await _get(stage, who, tile.path) for tile in tiles_of(spans, size)}
    get = TileHashes(size, tiles).get
    return [span_hash(span, get) for span in spans]


async def _entry(stage: RelayStage, who: Identity, index: int, size: int) -> LogEntry:
    span = Span(index, index + 1)
    for tile in bundles_of(span, size):
        entries = decode_bundle(await _get(stage, who, tile.path), tile.width)
        return decode_entry(entries[index - tile.number * 256])
    raise AssertionError("a span has a bundle")


async def _index(stage: RelayStage, who: Identity) -> int:
    shown = (await stage.ask(who, "GET", f"/v1/handles/{who.handle}")).json()
    index = shown.get("log_index")
    check(isinstance(index, int), "log_index in the answer about keys", repr(index))
    return int(index)


async def _is_included(
    stage: RelayStage, who: Identity, entry: LogEntry, index: int, head: Checkpoint
) -> None:
    proof = await _proof(stage, who, list(inclusion_spans(index, head.size)), head.size)
    try:
        verify_inclusion(leaf_hash(encode_entry(entry)), index, head.size, proof, head.root)
    except RinglineError as error:
        check(False, f"a proof that entry {index} is in the log of {head.size}", str(error))


@case(requirements=("RL-LOG-004", "RL-LOG-011", "RL-LOG-019"), needs=_LOG)
async def head_is_signed_by_the_key_that_the_relay_shows(stage: RelayStage) -> None:
    """The checkpoint has the name of the realm's log and a signature by the key in `GET /v1/relay`."""
    alice = await stage.identity("alice")
    head = await _head(stage, alice)
    check(head.origin == log_origin(stage.info.realm), log_origin(stage.info.realm), head.origin)


@case(requirements=("RL-LOG-001", "RL-LOG-014"), needs=_LOG)
async def published_card_is_in_the_log(stage: RelayStage) -> None:
    """A card is in the log when its publication is answered, at the index that the relay shows."""
    alice = await stage.identity("alice")
    index, head = await _index(stage, alice), await _head(stage, alice)
    check(index < head.size, f"an index below {head.size}", repr(index))
    entry = await _entry(stage, alice, index, head.size)
    check(entry == alice.card, "the card as it was published", repr(entry))
    await _is_included(stage, alice, alice.card, index, head)


@case(requirements=("RL-LOG-001",), needs=_LOG)
async def next_card_and_revocation_are_in_the_log(stage: RelayStage) -> None:
    """A card that follows, and its revocation, are entries behind the first card's."""
    alice, reader = await stage.identity("alice"), await stage.identity("reader")
    first = await _index(stage, alice)
    renewed = alice.renewed()
    check((await stage.publish(renewed)).status == 200, "200 for the next card", "another")
    second = await _index(stage, renewed)
    check(second > first, f"an index above {first}", repr(second))
    before = (await _head(stage, reader)).size
    path = f"/v1/handles/{alice.handle}/revocations"
    answer = await stage.ask(None, "POST", path, renewed.revocation())
    check(answer.status == 201, "201 for the revocation", str(answer))
    head = await _head(stage, reader)
    check(head.size - before <= _MOST, f"at most {_MOST} entries meanwhile", repr(head.size - before))
    for index in range(before, head.size):
        entry = await _entry(stage, reader, index, head.size)
        if isinstance(entry, SignedRevocation) and entry.revocation.card_id == renewed.card.card.id:
            await _is_included(stage, reader, entry, index, head)
            return
    check(False, "the revocation among the new entries", "none")


@case(requirements=("RL-LOG-002", "RL-LOG-004", "RL-LOG-013"), needs=_LOG)
async def log_only_grows(stage: RelayStage) -> None:
    """A later checkpoint is consistent with an earlier one, and a tile keeps its bytes."""
    alice = await stage.identity("alice")
    before = await _head(stage, alice)
    tiles = tiles_of(list(inclusion_spans(0, before.size)), before.size)
    seen = {tile: await _get(stage, alice, tile.path) for tile in tiles}
    bob = await stage.identity("bob")
    after = await _head(stage, bob)
    check(after.size > before.size, f"more than {before.size} entries", repr(after.size))
    spans = list(consistency_spans(before.size, after.size))
    try:
        verify_consistency(
            before.size, before.root, after.size, after.root, await _proof(stage, bob, spans, after.size)
        )
    except RinglineError as error:
        check(False, "a proof that the later log continues the earlier one", str(error))
    for tile, data in seen.items():
        check(await _get(stage, bob, tile.path) == data, f"the same bytes for {tile.path}", "others")


@case(requirements=("RL-LOG-003",), needs=_LOG)
async def log_is_for_the_enrolled(stage: RelayStage) -> None:
    """Whoever is not logged in gets the 401 of any failed log-in."""
    _key(stage)
    for path in ("/v1/log/checkpoint", "/v1/log/tile/0/000.p/1", "/v1/log/tile/entries/000.p/1"):
        answer = await stage.ask(None, "GET", path)
        check(answer.status == 401, f"401 for {path}", str(answer))


@case(requirements=("RL-LOG-012",), needs=_LOG)
async def tile_beyond_the_log_is_missing(stage: RelayStage) -> None:
    """A tile, a partial tile or a bundle beyond the size of the log is 404, and so is a name that is none."""
    alice = await stage.identity("alice")
    head = await _head(stage, alice)
    beyond = Tile(0, head.size // 256 + 1).path
    bundle = Tile(None, head.size // 256 + 1).path
    for path in (
        beyond,
        bundle,
        "tile/7/000",
        "tile/0/000.p/256",
        "tile/0/0",
        "tile/8/000",
        "tile/0/x000/000",
    ):
        answer = await stage.ask(alice, "GET", f"/v1/log/{path}")
        check(answer.status == 404, f"404 for {path}", str(answer))


@case(requirements=("RL-LOG-015",), needs=_LOG)
async def reading_the_log_has_a_budget(stage: RelayStage) -> None:
    """More requests to the log within a minute than the budget says are 429."""
    alice = await stage.identity("alice")
    _key(stage)
    budget = stage.budget("log_fetches_per_minute", most=400)
    for _ in range(budget):
        await _get(stage, alice, "checkpoint")
    answer = await stage.ask(alice, "GET", "/v1/log/checkpoint")
    check(answer.status == 429, "429", str(answer))
