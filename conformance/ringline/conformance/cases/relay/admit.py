"""Admission: the order of its steps, and who is let through to whom."""

import time
from typing import Any

from ringline.conformance.identity import LEFT_OUT
from ringline.conformance.registry import Needs, case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check
from ringline.protocol.encoding import b64encode
from ringline.protocol.limits import REQUEST_CT_CHARS, UNKNOWN_HANDLE_RELEASE_MS

__all__: list[str] = []

_HOUR = 3_600_000


@case(requirements=("RL-ADMIT-002",))
async def unknown_suite_is_refused(stage: RelayStage) -> None:
    """A request whose envelope names a suite that does not exist is refused, and both that do are not."""
    scene = await Scene.set(stage)
    for suite in (0, 3, 65_535):
        request = await scene.send_request(envelope={"suite": suite})
        await scene.caller.refused(correlation_id=request["correlation_id"])
    for suite in (1, 2):
        await scene.ring(envelope={"suite": suite})


@case(requirements=("RL-ADMIT-003",))
async def envelope_ends_after_it_began(stage: RelayStage) -> None:
    """A request whose `iat` is not before its `exp` is refused."""
    scene = await Scene.set(stage)
    now = scene.alice.now()
    for iat, exp in ((now, now), (now + 1_000, now), (now + 700_000, now + 600_000)):
        await scene.send_request(envelope={"iat": iat, "exp": exp})
        await scene.caller.refused()
    await scene.ring(envelope={"iat": now, "exp": now + 1})


@case(requirements=("RL-ADMIT-004",))
async def ciphertext_has_its_own_limit(stage: RelayStage) -> None:
    """A `ct` of 525,515 characters is taken, and one of a character more refused though the frame fits."""
    scene = await Scene.set(stage)
    await scene.send_request(ct_chars=REQUEST_CT_CHARS + 1)
    await scene.caller.refused("protocol_error")
    await scene.ring(ct_chars=REQUEST_CT_CHARS)


@case(requirements=("RL-ADMIT-005",))
async def ciphertext_is_the_openers_to_judge(stage: RelayStage) -> None:
    """A `ct` that is no canonical base64url is handed out as it is."""
    scene = await Scene.set(stage)
    for ct in ("A", "AB", "not base64 at all!", "a+/=", 'with : and "quotes"', "ü\n"):
        request = await scene.send_request(envelope={"ct": ct})
        status = await scene.caller.expect("call_status", state="ringing")
        await scene.listener.expect("incoming_call", envelope=request["envelope"])
        await scene.report("call_rejected", status["call_id"], code="protocol_error")
        await scene.caller.expect("call_error")


@case(requirements=("RL-ADMIT-006",))
async def times_of_an_outcome_are_not_looked_at(stage: RelayStage) -> None:
    """An outcome whose envelope has any times at all is forwarded."""
    scene = await Scene.set(stage)
    for times in ({"iat": 9, "exp": 3}, {"iat": 0, "exp": 0}, {"iat": 2**53 - 1, "exp": 2**53 - 1}):
        call_id = await scene.ring()
        outcome = scene.bob.outcome(call_id, terminal="failed")
        outcome["envelope"] |= times
        await scene.listener.send(outcome)
        await scene.caller.expect("call_outcome", call_id=call_id, envelope=outcome["envelope"])


@case(requirements=("RL-ADMIT-007", "RL-IDEM-004"))
async def repetition_is_free(stage: RelayStage) -> None:
    """A repeated request costs nothing: with the whole budget used up it is answered from its record."""
    units = stage.budget("calls_per_hour")
    scene = await Scene.set(stage)
    request = await scene.send_request()
    await scene.caller.expect("call_status", state="ringing")
    for _ in range(5):
        await scene.caller.send(request)
    await scene.caller.quiet("it is attached already")
    line = scene.caller
    for count in range(units):
        if count % 10 == 0:
            line = await stage.call_line(scene.alice, stage.handle(f"nobody{count}"))
        await scene.send_request(line)
        await line.refused("unknown_handle" if count < units - 1 else "rate_limited")
    again = await scene.another_caller()
    await again.send(request)
    await again.expect("call_status", state="ringing", correlation_id=request["correlation_id"])


@case(requirements=("RL-ADMIT-008",))
async def sync_request_from_before_the_start_may_have_run(stage: RelayStage) -> None:
    """A sync request from before the start gets `timeout` without `call_id`, and is not handed out."""
    scene = await Scene.set(stage)
    start, later = stage.info.started_at, scene.alice.now() + 600_000
    for _ in range(stage.info.budgets.get("calls_per_hour", 0) + 1):
        request = await scene.send_request(envelope={"iat": start - 1, "exp": later})
        await scene.caller.refused("timeout", correlation_id=request["correlation_id"])
    await scene.listener.quiet("it may have been handed out before")
    await scene.ring(envelope={"iat": start, "exp": later})


@case(requirements=("RL-ADMIT-008", "RL-DURABLE-001"), needs=Needs(features=("durable",)))
async def durable_request_from_before_the_start_is_taken(stage: RelayStage) -> None:
    """A durable request sealed before the relay's start is stored, since what was stored is not forgotten."""
    scene = await Scene.set(stage, offline=True)
    await scene.submit(envelope={"iat": stage.info.started_at - 1_000, "exp": scene.alice.now() + 600_000})


@case(requirements=("RL-ADMIT-009",))
async def envelope_is_sealed_under_the_callers_own_card(stage: RelayStage) -> None:
    """A request under a card that is unknown or another handle's gets `protocol_error`, free of charge."""
    scene = await Scene.set(stage)
    carol = await stage.identity("carol")
    for sid in (b64encode(bytes(32)), carol.card_id, scene.bob.card_id, scene.alice.renewed().card_id):
        for _ in range(stage.info.budgets.get("calls_per_hour", 0) // 4 + 1):
            await scene.send_request(envelope={"sid": sid})
            await scene.caller.refused()
    await scene.ring()


@case(requirements=("RL-ADMIT-009",))
async def replaced_card_counts_for_96_hours(stage: RelayStage) -> None:
    """A request under a card that was replaced 95 h ago is taken, and one of 97 h ago is not."""
    begin = stage.stranger().now() - 120 * _HOUR
    for hours in (95, 97):
        alice = await stage.identity(f"a{hours}", not_before=begin)
        bob = await stage.identity(f"b{hours}")
        scene = Scene(stage, alice, bob)
        await stage.set_policy(bob)
        renewed = alice.renewed(not_before=alice.now() - hours * _HOUR)
        check((await stage.publish(renewed)).status == 200, "200 for the next card", "another")
        await scene.listen()
        scene.caller = await stage.call_line(renewed, bob.handle)
        if hours == 95:
            await scene.ring()
        else:
            await scene.send_request()
            await scene.caller.refused()
        await scene.ring(envelope={"sid": renewed.card_id})


@case(requirements=("RL-ADMIT-010",))
async def revoked_card_counts_no_more(stage: RelayStage) -> None:
    """A request under a revoked card gets `protocol_error`, also from a connection of the next card."""
    scene = await Scene.set(stage)
    renewed = scene.alice.renewed()
    check((await stage.publish(renewed)).status == 200, "200 for the next card", "another")
    line = await stage.call_line(renewed, scene.bob.handle)
    await scene.ring(line)
    await stage.ask(None, "POST", f"/v1/handles/{scene.alice.handle}/revocations", scene.alice.revocation())
    await scene.send_request(line)
    await line.refused()
    await scene.ring(line, envelope={"sid": renewed.card_id})


@case(requirements=("RL-ADMIT-011",))
async def sync_request_is_taken_until_two_minutes_after_its_exp(stage: RelayStage) -> None:
    """A sync request is handed out until 120 s after its `exp`, and then gets `protocol_error`, free."""
    scene = await Scene.set(stage)
    start = stage.info.started_at
    now = scene.alice.now()
    late = max(start, now - 100_000)
    await scene.ring(envelope={"iat": late, "exp": max(late + 1, now - 90_000)})
    if start < now - 125_000:
        await scene.send_request(envelope={"iat": start, "exp": now - 121_000})
        await scene.caller.refused()


@case(requirements=("RL-ADMIT-012",), needs=Needs(features=("durable",)))
async def durable_request_has_time_left(stage: RelayStage) -> None:
    """A durable request whose `exp` is past gets `protocol_error`, without a charge."""
    scene = await Scene.set(stage, offline=True)
    now = scene.alice.now()
    for _ in range(stage.info.budgets.get("calls_per_hour", 0) + 1):
        await scene.send_request(
            delivery_mode="durable", envelope={"iat": now - 60_000, "exp": scene.alice.now() - 1_000}
        )
        await scene.caller.refused()
    await scene.submit()


@case(requirements=("RL-ADMIT-015", "RL-ADMIT-016", "RL-PRIVACY-008"))
async def missing_and_forbidden_are_one_answer(stage: RelayStage) -> None:
    """A handle that does not exist and one that keeps the caller out are answered alike, in both modes."""
    alice = await stage.identity("alice")
    answers: set[str] = set()
    owners = [await stage.identity(name) for name in ("blocking", "listing", "inviting", "absent")]
    await stage.set_policy(owners[0], offline=True, accept="anyone", block=[alice.handle])
    await stage.set_policy(owners[1], offline=True, accept="listed", allow=[owners[0].handle])
    await stage.set_policy(owners[2], accept="invited")
    await stage.set_policy(owners[3], accept="listed")
    for owner in owners[:3]:
        await stage.listen_line(owner)
    for handle in (*(owner.handle for owner in owners), stage.handle("nobody")):
        line = await stage.call_line(alice, handle)
        for mode in ("sync", "durable"):
            request = alice.request(delivery_mode=mode)
            await line.send(request)
            frame = await line.refused("unknown_handle", correlation_id=request["correlation_id"])
            answers.add(repr(sorted(set(frame) - {"correlation_id"})))
    check(len(answers) == 1, "one answer", repr(answers))


@case(requirements=("RL-ADMIT-017",))
async def unknown_handle_is_not_told_at_once(stage: RelayStage) -> None:
    """No `unknown_handle` comes sooner than 10 ms behind its request, for a handle or for none."""
    alice, bob = await stage.identity("alice"), await stage.identity("bob")
    await stage.set_policy(bob, accept="listed")
    for handle in (bob.handle, stage.handle("nobody")):
        line = await stage.call_line(alice, handle)
        for _ in range(5):
            began = time.monotonic()
            await line.send(alice.request())
            await line.refused("unknown_handle")
            took = (time.monotonic() - began) * 1000
            check(took >= UNKNOWN_HANDLE_RELEASE_MS - 1, "10 ms at least", f"{took:.1f} ms")


@case(requirements=("RL-HTTP-009",))
async def refusal_over_http_is_not_told_at_once(stage: RelayStage) -> None:
    """No 401, 403 or 404 comes sooner than 10 ms behind its request, an upgrade's included."""
    alice = await stage.identity("alice")
    requests = (
        (alice, f"/v1/handles/{stage.handle('nobody')}", 404),
        (alice, f"/v1/handles/{stage.handle('nobody')}/policy", 403),
        (alice, "/v1/calls/no-such-call", 404),
        (None, "/v1/calls", 401),
    )
    for who, target, status in requests:
        began = time.monotonic()
        answer = await stage.ask(who, "GET", target)
        took = (time.monotonic() - began) * 1000
        check(answer.status == status, f"{status} for {target}", str(answer))
        check(took >= UNKNOWN_HANDLE_RELEASE_MS - 1, "10 ms at least", f"{took:.1f} ms")
    began = time.monotonic()
    check((await stage.upgrade(f"/v1/call/{alice.handle}")).status == 401, "401", "another")
    took = (time.monotonic() - began) * 1000
    check(took >= UNKNOWN_HANDLE_RELEASE_MS - 1, "10 ms at least", f"{took:.1f} ms")


@case(requirements=("RL-ADMIT-018", "RL-HTTP-033"))
async def policy_says_who_is_let_through(stage: RelayStage) -> None:
    """A caller is let through by `anyone` or by being listed, and never when he is blocked."""
    scene = await Scene.set(stage)
    alice, bob = scene.alice.handle, scene.bob
    policies: tuple[tuple[dict[str, Any], bool], ...] = (
        ({"accept": "anyone"}, True),
        ({"accept": "anyone", "block": [alice]}, False),
        ({"accept": "listed"}, False),
        ({"accept": "listed", "allow": [alice]}, True),
        ({"accept": "listed", "allow": [alice], "block": [alice]}, False),
        ({"accept": "listed", "allow": [stage.handle("else")]}, False),
        ({"accept": "invited", "allow": [alice]}, True),
        ({"accept": "invited"}, False),
    )
    for policy, passes in policies:
        await stage.set_policy(bob, **policy)
        if passes:
            call_id = await scene.ring()
            await scene.report("call_rejected", call_id, code="protocol_error")
            await scene.caller.expect("call_error")
        else:
            await scene.send_request()
            await scene.caller.refused("unknown_handle")


@case(requirements=("RL-ADMIT-027", "RL-ADMIT-018"))
async def handle_may_call_itself(stage: RelayStage) -> None:
    """A handle reaches itself, whatever its policy accepts."""
    bob = await stage.identity("bob")
    await stage.set_policy(bob, accept="listed")
    scene = Scene(stage, bob, bob)
    await scene.listen()
    scene.caller = await stage.call_line(bob, bob.handle)
    call_id = await scene.ring()
    await scene.work(call_id)
    await scene.complete(call_id)


@case(requirements=("RL-ADMIT-019",))
async def handle_without_a_listener_is_offline(stage: RelayStage) -> None:
    """A sync call is refused as `offline` before a listener has come, and after it has gone."""
    scene = await Scene.set(stage, listening=False)
    await scene.send_request()
    await scene.caller.refused("offline")
    await scene.listen()
    await scene.ring()
    await scene.listener.leave()
    await scene.send_request()
    await scene.caller.refused("offline")


@case(requirements=("RL-ADMIT-020", "RL-SYNC-041"))
async def full_handle_is_busy(stage: RelayStage) -> None:
    """A sync call to a handle without a free place is refused as `busy`, and taken when one is free."""
    scene = await Scene.set(stage, capacity=1)
    carol = await stage.identity("carol")
    line = await stage.call_line(carol, scene.bob.handle)
    call_id = await scene.ring()
    await line.send(carol.request())
    await line.refused("busy")
    await scene.work(call_id)
    await line.send(carol.request())
    await line.refused("busy")
    await scene.complete(call_id)
    await line.send(carol.request())
    await line.expect("call_status", state="ringing")


@case(requirements=("RL-ADMIT-021",))
async def durable_call_needs_the_owners_consent(stage: RelayStage) -> None:
    """A durable call to a handle whose policy has `offline` false is refused as `offline`, also connected."""
    scene = await Scene.set(stage)
    await stage.set_policy(scene.bob, offline=False)
    await scene.send_request(delivery_mode="durable")
    await scene.caller.refused("offline")
    await scene.listener.quiet("a durable call is never turned into a sync one")


@case(requirements=("RL-ADMIT-025", "RL-NAME-007"))
async def call_ids_are_unguessable(stage: RelayStage) -> None:
    """Every admitted call has an id of its own, long enough for 128 bits and unlike the one before."""
    scene = await Scene.set(stage, capacity=40)
    ids = [await scene.ring(message_id=LEFT_OUT) for _ in range(12)]
    check(len(set(ids)) == len(ids), "an id for each call", repr(ids))
    check(all(len(name) >= 22 for name in ids), "128 bits in each id", repr(ids))
    for place in range(0, 20, 4):
        pieces = {name[place : place + 4] for name in ids}
        check(len(pieces) > 8, f"chance in the characters from {place} on", repr(ids))


@case(requirements=("RL-ADMIT-001", "RL-ADMIT-014"))
async def budget_is_charged_whatever_comes_next(stage: RelayStage) -> None:
    """Requests that are refused as `offline`, `busy` or `unknown_handle` cost a unit each."""
    units = stage.budget("calls_per_hour")
    scene = await Scene.set(stage, capacity=1)
    nobody = await stage.call_line(scene.alice, stage.handle("nobody"))
    absent = await stage.identity("absent")
    await stage.set_policy(absent)
    offline = await stage.call_line(scene.alice, absent.handle)
    await scene.ring()
    for count in range(units - 1):
        line, code = ((nobody, "unknown_handle"), (offline, "offline"), (scene.caller, "busy"))[count % 3]
        await scene.send_request(line)
        await line.refused(code)
    for line in (nobody, offline, scene.caller):
        await scene.send_request(line)
        frame = await line.refused("rate_limited")
        wait, window = frame.get("retry_after_ms"), stage.bound("budget_window_ms")
        check(isinstance(wait, int) and 0 < wait <= window, "retry_after_ms in the window", repr(frame))


@case(requirements=("RL-ADMIT-013",))
async def budget_is_of_one_caller(stage: RelayStage) -> None:
    """The hourly budget of one caller is none of another's."""
    units = stage.units()
    alice, carol = await stage.identity("alice"), await stage.identity("carol")
    lines = [(who, await stage.call_line(who, stage.handle("nobody"))) for who in (alice, carol)]
    for who, line in lines:
        for _ in range(units):
            await line.send(who.request())
            await line.refused("unknown_handle")
        await line.send(who.request())
        await line.refused("rate_limited")


@case(requirements=("RL-ADMIT-001", "RL-ADMIT-016"))
async def order_of_the_steps(stage: RelayStage) -> None:
    """Of several faults of a request the earlier step is answered: card, then reach, then listeners."""
    scene = await Scene.set(stage, listening=False)
    nobody = await stage.call_line(scene.alice, stage.handle("nobody"))
    await scene.send_request(nobody, envelope={"sid": b64encode(bytes(32))})
    await nobody.refused("protocol_error")
    await scene.send_request(nobody, envelope={"sid": b64encode(bytes(32)), "iat": stage.info.started_at - 1})
    await nobody.refused("timeout")
    await stage.set_policy(scene.bob, accept="listed")
    await scene.send_request()
    await scene.caller.refused("unknown_handle")
    await scene.send_request(delivery_mode="durable")
    await scene.caller.refused("unknown_handle")


@case(requirements=("RL-IDEM-009", "RL-ADMIT-025"))
async def refused_request_leaves_nothing(stage: RelayStage) -> None:
    """A request that was not admitted leaves no record, and the same message can be admitted later."""
    scene = await Scene.set(stage, listening=False)
    request = await scene.send_request()
    await scene.caller.refused("offline")
    listed = await stage.ask(scene.alice, "GET", "/v1/calls")
    check(listed.json()["calls"] == [], "no record", str(listed))
    await scene.listen()
    await scene.caller.send(request)
    await scene.caller.expect("call_status", state="ringing", correlation_id=request["correlation_id"])
