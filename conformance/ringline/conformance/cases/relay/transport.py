"""Transport: opening handshakes, messages and their sizes, the life and the end of a connection."""

import asyncio
from uuid import uuid4

import msgspec

from ringline.conformance.identity import Identity
from ringline.conformance.line import Frame
from ringline.conformance.registry import Needs, case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage, listen_target
from ringline.conformance.verdict import check
from ringline.conformance.websocket import TEXT, masked
from ringline.protocol.limits import CALLER_FRAME_BYTES, LISTENER_FRAME_BYTES, SUBPROTOCOL

__all__: list[str] = []

_PINGS = Needs(bounds={"ping_interval_ms": 2_500, "ping_timeout_ms": 2_500})


def _padded(frame: Frame, size: int) -> bytes:
    """Return a frame as exactly ``size`` bytes of JSON, by white space."""
    text = msgspec.json.encode(frame)
    return text[:-1] + b" " * (size - len(text)) + b"}"


async def _status(
    stage: RelayStage, who: Identity, target: str, *, subprotocols: str | None = SUBPROTOCOL
) -> int:
    bearer = who.bearer("GET", target.partition("?")[0])
    return (await stage.upgrade(target, bearer, subprotocols=subprotocols)).status


@case(requirements=("RL-TRANSPORT-001", "RL-TRANSPORT-004"))
async def both_roles_open_with_the_subprotocol_named(stage: RelayStage) -> None:
    """A caller's and a listener's upgrade are both answered 101 with the subprotocol `ringline.v1`."""
    bob = await stage.identity("bob")
    for target in (f"/v1/call/{bob.handle}", listen_target(bob)):
        answer = await stage.upgrade(target, bob.bearer("GET", target.partition("?")[0]))
        check(answer.status == 101, f"101 for {target}", str(answer))
        named = answer.header("sec-websocket-protocol")
        check(named == "ringline.v1", "the subprotocol ringline.v1", str(named))


@case(requirements=("RL-TRANSPORT-003",))
async def upgrade_without_the_subprotocol_is_malformed(stage: RelayStage) -> None:
    """An upgrade that offers no subprotocol, or only others, is answered 400."""
    bob = await stage.identity("bob")
    for offered in (None, "ringline.v2", "RINGLINE.V1", "ringline.v1x, chat"):
        for target in (f"/v1/call/{bob.handle}", listen_target(bob)):
            status = await _status(stage, bob, target, subprotocols=offered)
            check(status == 400, f"400 for the subprotocols {offered}", status)


@case(requirements=("RL-EXT-008",))
async def subprotocol_is_found_among_others(stage: RelayStage) -> None:
    """An upgrade that offers several subprotocols is opened with `ringline.v1`."""
    bob = await stage.identity("bob")
    target = f"/v1/call/{bob.handle}"
    answer = await stage.upgrade(
        target, bob.bearer("GET", target), subprotocols="ringline.v9, chat, ringline.v1"
    )
    named = answer.header("sec-websocket-protocol")
    check((answer.status, named) == (101, "ringline.v1"), "101 with ringline.v1", f"{answer.status} {named}")


@case(requirements=("RL-TRANSPORT-006",))
async def no_extension_is_accepted(stage: RelayStage) -> None:
    """Compression that a client offers is not taken up."""
    bob = await stage.identity("bob")
    target = f"/v1/call/{bob.handle}"
    offer = ("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits")
    answer = await stage.upgrade(target, bob.bearer("GET", target), offer)
    taken = answer.header("sec-websocket-extensions")
    check((answer.status, taken) == (101, None), "101 without an extension", f"{answer.status} {taken}")


@case(requirements=("RL-TRANSPORT-007",))
async def callers_handshake_tells_nothing_of_its_target(stage: RelayStage) -> None:
    """A caller's upgrade is answered alike whether its target exists, lets him through, or is nobody."""
    alice, bob, carol = [await stage.identity(name) for name in ("alice", "bob", "carol")]
    await stage.set_policy(carol, accept="listed", block=[alice.handle])
    answers = [
        await stage.upgrade(f"/v1/call/{name}", alice.bearer("GET", f"/v1/call/{name}"))
        for name in (bob.handle, carol.handle, stage.handle("nobody"))
    ]
    check(answers[0].status == 101, "101", str(answers[0]))
    check(len({answer.lasting for answer in answers}) == 1, "one answer for all three", repr(answers))


@case(requirements=("RL-TRANSPORT-008", "RL-TRANSPORT-009"))
async def listeners_query_has_each_parameter_once_and_well_formed(stage: RelayStage) -> None:
    """A listener's upgrade with a missing, repeated or malformed parameter is answered 400."""
    bob = await stage.identity("bob")
    instance, boot = str(uuid4()), str(uuid4())
    good = f"instance={instance}&boot={boot}&capacity=1"
    right = (
        good,
        good.replace("capacity=1", "capacity=1000"),
        f"{good}&durable=0",
        f"capacity=7&boot={boot}&instance={instance}",
    )
    wrong = (
        "",
        f"boot={boot}&capacity=1",
        f"instance={instance}&capacity=1",
        f"instance={instance}&boot={boot}",
        f"{good}&instance={instance}",
        f"{good}&capacity=1",
        f"{good}&durable=",
        f"{good}&durable=1",
        f"{good}&durable=0&durable=0",
        good.replace("capacity=1", "capacity=0"),
        good.replace("capacity=1", "capacity=1001"),
        good.replace("capacity=1", "capacity=01"),
        good.replace("capacity=1", "capacity=-1"),
        good.replace("capacity=1", "capacity=1.0"),
        good.replace("capacity=1", "capacity=+1"),
        good.replace("capacity=1", "capacity=1%0A"),
        good.replace("capacity=1", "capacity="),
        good.replace(instance, instance.upper().replace("0", "A")),
        good.replace(instance, instance.replace("-", "")),
        good.replace(instance, f"{instance[:14]}1{instance[15:]}"),
        good.replace(boot, "x"),
        good.replace(boot, f"{boot}%0A"),
    )
    for query in right:
        status = await _status(stage, bob, f"/v1/listen/{bob.handle}?{query}")
        check(status == 101, f"101 for ?{query}", status)
    for query in wrong:
        status = await _status(stage, bob, f"/v1/listen/{bob.handle}" + (f"?{query}" if query else ""))
        check(status == 400, f"400 for ?{query}", status)


@case(requirements=("RL-TRANSPORT-010",))
async def parameter_without_a_meaning_is_malformed(stage: RelayStage) -> None:
    """An upgrade with a parameter that the text does not name is answered 400."""
    bob = await stage.identity("bob")
    for target in (f"/v1/call/{bob.handle}?colour=red", f"{listen_target(bob)}&colour=red"):
        status = await _status(stage, bob, target)
        check(status == 400, f"400 for {target}", status)


@case(requirements=("RL-EXT-003", "RL-EXT-001"))
async def unknown_feature_is_malformed(stage: RelayStage) -> None:
    """An upgrade that asks for a feature which the relay does not name is answered 400."""
    bob = await stage.identity("bob")
    for target in (f"/v1/call/{bob.handle}?features=made-up", f"{listen_target(bob)}&features=made-up"):
        status = await _status(stage, bob, target)
        check(status == 400, f"400 for {target}", status)


@case(requirements=("RL-TRANSPORT-011",))
async def upgrade_is_judged_path_first_then_log_in_then_the_rest(stage: RelayStage) -> None:
    """Of several faults of an upgrade the path comes before the log-in, and that before what is malformed."""
    bob = await stage.identity("bob")
    path = await stage.upgrade("/v1/call/No-Handle?colour=red", subprotocols=None)
    check(path.status == 404, "404 for a malformed handle without a log-in", str(path))
    login = await stage.upgrade(f"/v1/listen/{bob.handle}?colour=red", subprotocols=None)
    check(login.status == 401, "401 before the subprotocol and the query are looked at", str(login))


@case(requirements=("RL-TRANSPORT-012",))
async def listener_of_another_handle_is_unauthorized(stage: RelayStage) -> None:
    """A listener's upgrade under another handle than its log-in's is answered 401."""
    alice, bob = await stage.identity("alice"), await stage.identity("bob")
    status = await _status(stage, alice, listen_target(bob))
    check(status == 401, "401", status)


@case(requirements=("RL-TRANSPORT-014",))
async def plain_request_for_a_websocket_must_upgrade(stage: RelayStage) -> None:
    """A GET of a WebSocket path that asks for no upgrade is answered 426."""
    bob = await stage.identity("bob")
    answer = await stage.ask(bob, "GET", f"/v1/call/{bob.handle}")
    check(answer.status == 426, "426", str(answer))


@case(requirements=("RL-TRANSPORT-020",), needs=Needs(features=("durable",)))
async def listener_without_a_journal_gets_no_durable_call(stage: RelayStage) -> None:
    """A connection that said `durable=0` is handed sync calls and no durable one."""
    scene = await Scene.set(stage, offline=True, listening=False)
    await scene.listen(durable=False)
    receipt = await scene.submit()
    await scene.has_ended(receipt["call_id"], "queued")
    await scene.listener.quiet("it keeps no journal")
    await scene.ring()


@case(requirements=("RL-TRANSPORT-021",))
async def same_instance_replaces_its_connection(stage: RelayStage) -> None:
    """A second connection of one instance closes the first with 4000."""
    instance, boot = str(uuid4()), str(uuid4())
    scene = await Scene.set(stage, instance=instance, boot=boot)
    first = scene.listener
    await scene.listen(instance=instance, boot=boot)
    await first.closed(4000)
    await scene.ring()


@case(requirements=("RL-TRANSPORT-021",))
async def another_instance_replaces_nothing(stage: RelayStage) -> None:
    """Two instances of one handle, and the same instance id of another handle, leave each other alone."""
    instance = str(uuid4())
    scene = await Scene.set(stage, instance=instance)
    carol = await stage.identity("carol")
    others = [await stage.listen_line(scene.bob), await stage.listen_line(carol, instance=instance)]
    for line in (scene.listener, *others):
        await line.quiet("nothing replaced it")


@case(requirements=("RL-TRANSPORT-024",))
async def fragmented_message_is_one_message(stage: RelayStage) -> None:
    """A frame that comes in fragments is taken like a whole one."""
    scene = await Scene.set(stage)
    request = scene.alice.request()
    text = msgspec.json.encode(request)
    third = len(text) // 3
    pieces = (
        masked(TEXT, text[:third], fin=False),
        masked(0, text[third : 2 * third], fin=False),
        masked(0, text[2 * third :]),
    )
    for piece in pieces:
        await scene.caller.send_raw(piece, "a fragment of a call_request")
    await scene.caller.expect("call_status", state="ringing", correlation_id=request["correlation_id"])


@case(requirements=("RL-TRANSPORT-025", "RL-TRANSPORT-026"))
async def oversized_message_is_refused_unread_and_charged(stage: RelayStage) -> None:
    """A caller's message over his limit is answered `message_too_large` without ids and costs one unit."""
    units = stage.units()
    alice = await stage.identity("alice")
    nobody = stage.handle("nobody")
    line = await stage.call_line(alice, nobody)
    await line.send(_padded(alice.request(), CALLER_FRAME_BYTES + 1))
    await line.refused("message_too_large", correlation_id=None)
    for _ in range(units - 1):
        await line.send(alice.request())
        await line.refused("unknown_handle")
    await line.send(alice.request())
    await line.refused("rate_limited")


@case(requirements=("RL-TRANSPORT-027",))
async def message_over_every_limit_ends_the_connection(stage: RelayStage) -> None:
    """A message over 2,063,019 bytes closes the connection, a caller's as a listener's, with 1009."""
    scene = await Scene.set(stage)
    for line in (scene.caller, scene.listener):
        await line.send(b'{"type":"' + b"x" * (LISTENER_FRAME_BYTES - 10) + b'"}')
        await line.closed(1009)


@case(requirements=("RL-TRANSPORT-028",))
async def messages_of_exactly_the_limit_are_taken(stage: RelayStage) -> None:
    """A request of 527,019 bytes is handed out, and an outcome of 2,063,019 bytes forwarded."""
    scene = await Scene.set(stage)
    request = scene.alice.request(ct_chars=520_000)
    await scene.caller.send(_padded(request, CALLER_FRAME_BYTES))
    await scene.caller.expect("call_status", state="ringing")
    offer = await scene.listener.expect("incoming_call", envelope=request["envelope"])
    await scene.report("call_started", offer["call_id"])
    outcome = scene.bob.outcome(offer["call_id"], ct_chars=2_060_000)
    await scene.listener.send(_padded(outcome, LISTENER_FRAME_BYTES))
    frame = await scene.caller.next()
    while frame["type"] == "call_status":
        frame = await scene.caller.next()
    check(frame.get("envelope") == outcome["envelope"], "the outcome as it was sent", str(frame["type"]))


@case(requirements=("RL-TRANSPORT-031",), needs=_PINGS)
async def relay_pings(stage: RelayStage) -> None:
    """A connection on which nothing happens is pinged within the interval."""
    scene = await Scene.set(stage)
    deadline = 2 * stage.bound("ping_interval_ms") / 1_000 + 1
    async with asyncio.timeout(stage.patience.answer + deadline):
        for line in (scene.caller, scene.listener):
            await line.socket.pinged.wait()
    await scene.ring()


@case(requirements=("RL-TRANSPORT-032",), needs=_PINGS)
async def silent_peer_is_closed(stage: RelayStage) -> None:
    """A connection from which nothing comes after a ping is closed with 1008 and reason `idle`."""
    scene = await Scene.set(stage)
    silence = (stage.bound("ping_interval_ms") + stage.bound("ping_timeout_ms")) / 1_000
    for line in (scene.caller, scene.listener):
        line.socket.answers_pings = False
    for line in (scene.caller, scene.listener):
        await line.closed(1008, reason="idle", within=2 * silence + stage.patience.answer)


@case(requirements=("RL-TRANSPORT-033",), needs=_PINGS)
async def any_frame_is_a_sign_of_life(stage: RelayStage) -> None:
    """A peer that answers no ping but sends frames is not taken for dead."""
    scene = await Scene.set(stage)
    scene.caller.socket.answers_pings = False
    silence = 2 * (stage.bound("ping_interval_ms") + stage.bound("ping_timeout_ms")) / 1_000
    for _ in range(int(silence / 0.3) + 1):
        await scene.caller.quiet()
        await asyncio.sleep(0.3)
    await scene.ring()


@case(requirements=("RL-TRANSPORT-043", "RL-KEYS-011", "RL-KEYS-039"))
async def replaced_card_keeps_its_connections_for_48_hours(stage: RelayStage) -> None:
    """A connection outlives the replacement of its card by 48 h and is then closed with 1001."""
    long_ago = {"not_before": stage.stranger().now() - 60 * 3_600_000}
    alice, carol = await stage.identity("alice", **long_ago), await stage.identity("carol", **long_ago)
    recent, old = [await stage.call_line(who, "bob") for who in (alice, carol)]
    for who, hours in ((alice, 47), (carol, 49)):
        answer = await stage.publish(who.renewed(not_before=who.now() - hours * 3_600_000))
        check(answer.status == 200, "200 for the next card", str(answer))
    await old.closed(1001)
    await recent.quiet("its card was replaced less than 48 h ago")


@case(requirements=("RL-TRANSPORT-044",))
async def revocation_closes_the_connections_of_its_card(stage: RelayStage) -> None:
    """The connections that logged in under a revoked card are closed with 4001, and no others."""
    bob = await stage.identity("bob")
    renewed = bob.renewed()
    old = [await stage.listen_line(bob), await stage.call_line(bob, stage.handle("alice"))]
    check((await stage.publish(renewed)).status == 200, "200 for the next card", "another")
    current = await stage.listen_line(renewed)
    answer = await stage.ask(None, "POST", f"/v1/handles/{bob.handle}/revocations", bob.revocation())
    check(answer.status == 201, "201 for the revocation", str(answer))
    for line in old:
        await line.closed(4001)
    await current.quiet("its card is not revoked")
