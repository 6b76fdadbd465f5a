"""The HTTP interface: routes, statuses, records and lists of calls."""

import asyncio
from typing import Any

from ringline.conformance.identity import Identity
from ringline.conformance.registry import Needs, case
from ringline.conformance.relay_scene import Scene
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check

__all__: list[str] = []

_MEMBERS = {
    "call_id",
    "from",
    "to",
    "mode",
    "state",
    "terminal_reason",
    "message_id",
    "correlation_id",
    "submitted_at",
    "expires_at",
    "started_at",
    "finished_at",
    "attempts",
    "deferred_until",
    "cancel_requested",
    "outcome",
}


@case(requirements=("RL-HTTP-001", "RL-HTTP-014", "RL-HTTP-015"))
async def relay_tells_about_itself(stage: RelayStage) -> None:
    """`GET /v1/relay` and `GET /healthz` need no log-in, and the former has all its members."""
    answer = await stage.ask(None, "GET", "/v1/relay")
    check(answer.status == 200, "200", str(answer))
    shown = answer.json()
    wanted = {"realm", "version", "protocols", "suites", "features", "limits", "budgets", "started_at"}
    check(wanted <= set(shown), "all members", repr(sorted(wanted - set(shown))))
    check("ringline.v1" in shown["protocols"], "ringline.v1 among the protocols", repr(shown["protocols"]))
    check((await stage.ask(None, "GET", "/healthz")).status == 200, "200 for /healthz", "another")


@case(requirements=("RL-DEPLOY-001", "RL-HTTP-014"))
async def limits_that_nobody_may_change_are_shown(stage: RelayStage) -> None:
    """`GET /v1/relay` shows the sizes of the protocol as they are."""
    limits = stage.info.limits
    for name, value in {
        "message_bytes": 64_000,
        "reply_bytes": 256_000,
        "caller_frame_bytes": 527_019,
        "listener_frame_bytes": 2_063_019,
    }.items():
        check(limits.get(name) == value, f"{name} {value}", repr(limits.get(name)))


@case(requirements=("RL-HTTP-013",))
async def interface_describes_itself(stage: RelayStage) -> None:
    """`GET /v1/openapi.json` has a description of the interface, without a log-in."""
    answer = await stage.ask(None, "GET", "/v1/openapi.json")
    check(answer.status == 200, "200", str(answer.status))
    shown = answer.json()
    check(str(shown.get("openapi", "")).startswith("3."), "OpenAPI 3", repr(shown.get("openapi")))
    for path in ("/v1/relay", "/v1/handles/{handle}", "/v1/calls", "/v1/tickets"):
        check(path in shown.get("paths", {}), f"the path {path}", repr(sorted(shown.get("paths", {}))))


@case(requirements=("RL-HTTP-012",))
async def answers_are_not_to_be_kept(stage: RelayStage) -> None:
    """Answers, errors too, have `Cache-Control: no-store`."""
    alice = await stage.identity("alice")
    for who, target in (
        (alice, "/v1/calls"),
        (alice, f"/v1/handles/{alice.handle}"),
        (alice, "/v1/calls/no-such-call"),
        (None, "/v1/calls"),
    ):
        answer = await stage.ask(who, "GET", target)
        told = answer.header("cache-control")
        check(told is not None and "no-store" in told, f"no-store for {target}", repr(told))


@case(requirements=("RL-HTTP-002", "RL-HTTP-005"))
async def bodies_are_closed(stage: RelayStage) -> None:
    """A body with a further, a repeated, a missing or a mistyped member, or that is no object, is 400."""
    alice = await stage.identity("alice")
    target = f"/v1/handles/{alice.handle}/policy"
    good = '{"offline":false,"accept":"listed","allow":[],"block":[]}'
    for body in (
        "",
        "{}",
        "[]",
        "null",
        good[:-1],
        good[:-1] + ',"more":1}',
        good[:-1] + ',"offline":false}',
        good[:-1] + ',"offlin\\u0065":true}',
        good.replace("false", "null"),
        good.replace("false", "0"),
        good.replace('"listed"', '"everyone"'),
        good.replace('"allow":[]', '"allow":["No-Handle"]'),
        good.replace('"allow":[]', '"allow":["alice\\n"]'),
        good.replace('"allow":[]', '"allow":"alice"'),
        good.replace(',"block":[]', ""),
        good + good,
    ):
        answer = await stage.ask(alice, "PUT", target, body.encode())
        check(answer.status == 400, f"400 for {body}", str(answer))
    answer = await stage.ask(alice, "PUT", target, b"\xff" + good.encode())
    check(answer.status == 400, "400 for a body that is not UTF-8", str(answer))
    answer = await stage.ask(alice, "PUT", target, good.encode())
    check(answer.status == 200, "200 for a good body", str(answer))


@case(requirements=("RL-HTTP-004",))
async def queries_are_closed(stage: RelayStage) -> None:
    """A query with an unknown, a repeated or a malformed parameter is 400."""
    alice = await stage.identity("alice")
    for target in (
        "/v1/calls?colour=red",
        "/v1/calls?role=caller&role=caller",
        "/v1/calls?role=neither",
        "/v1/calls?role=caller%0A",
        "/v1/calls?state=done",
        "/v1/calls?limit=0",
        "/v1/calls?limit=-1",
        "/v1/calls?limit=x",
        f"/v1/handles/{alice.handle}?card=x",
        f"/v1/handles/{alice.handle}?colour=red",
        "/v1/calls/x?wait=51",
        "/v1/calls/x?wait=-1",
        "/v1/calls/x?wait=1.5",
        "/v1/calls/x?wait=",
    ):
        answer = await stage.ask(alice, "GET", target)
        check(answer.status == 400, f"400 for {target}", str(answer))


@case(requirements=("RL-HTTP-006", "RL-HTTP-007"))
async def paths_that_are_none(stage: RelayStage) -> None:
    """A path that is not served, or whose handle is malformed, is 404."""
    alice = await stage.identity("alice")
    for target in (
        "/",
        "/v1",
        "/v1/handle/alice",
        "/v1/handles/Alice",
        "/v1/handles/-a",
        "/v1/handles/a",
        f"/v1/handles/{'a' * 32}",
        "/v1/handles/a_b",
        f"/v1/handles/{alice.handle}/",
        f"/v1/handles/{alice.handle}/policies",
        "/v1/calls/",
        "/v2/relay",
        "/v1/relay/",
    ):
        answer = await stage.ask(alice if target.startswith("/v1/") else None, "GET", target)
        check(answer.status == 404, f"404 for {target}", str(answer))


@case(requirements=("RL-HTTP-007",))
async def methods_that_a_path_does_not_take(stage: RelayStage) -> None:
    """A method that a path does not take is 405, with `Allow`."""
    alice = await stage.identity("alice")
    for method, target in (
        ("PATCH", f"/v1/handles/{alice.handle}"),
        ("POST", "/v1/relay"),
        ("PUT", "/v1/calls"),
        ("GET", "/v1/calls/x/cancel"),
        ("POST", f"/v1/handles/{alice.handle}/policy"),
    ):
        answer = await stage.ask(alice, method, target)
        check(answer.status == 405, f"405 for {method} {target}", str(answer))
        check(bool(answer.header("allow")), "an Allow header", "none")


@case(requirements=("RL-HTTP-008",))
async def body_has_a_limit(stage: RelayStage) -> None:
    """A body that is larger than any of its route is 413."""
    alice = await stage.identity("alice")
    for target, size in ((f"/v1/handles/{alice.handle}", 2_000_000), ("/v1/tickets", 2_000_000)):
        method = "POST" if target == "/v1/tickets" else "PUT"
        answer = await stage.ask(alice, method, target, b'{"htu":"' + b"a" * size + b'"}')
        check(answer.status == 413, f"413 for {target}", str(answer))


@case(requirements=("RL-HTTP-010", "RL-PRIVACY-008"))
async def owners_routes_are_one_403_to_others(stage: RelayStage) -> None:
    """A handle's own routes are answered to others by one 403, whether the handle exists or not."""
    alice, bob = await stage.identity("alice"), await stage.identity("bob")
    policy: dict[str, Any] = {"offline": True, "accept": "anyone", "allow": [], "block": []}
    answers = [
        await stage.ask(alice, method, f"/v1/handles/{handle}{rest}", body)
        for handle in (bob.handle, stage.handle("nobody"))
        for method, rest, body in (
            ("GET", "/policy", None),
            ("PUT", "/policy", policy),
            ("PUT", "/prekeys", alice.prekey_publication()),
        )
    ]
    check({answer.status for answer in answers} == {403}, "403", repr(answers))
    check(len({answer.lasting for answer in answers}) == 1, "one 403 for all", repr(answers))


@case(requirements=("RL-ERROR-005", "RL-ERROR-006"))
async def errors_are_problem_documents(stage: RelayStage) -> None:
    """Every error over HTTP is a problem document with the code of its kind."""
    alice = await stage.identity("alice")
    for who, target, status, code in (
        (None, "/v1/calls", 401, "unauthorized"),
        (alice, f"/v1/handles/{stage.handle('bob')}/policy", 403, "forbidden"),
        (alice, "/v1/nowhere", 404, "not_found"),
        (alice, "/v1/calls?limit=x", 400, "malformed"),
    ):
        answer = await stage.ask(who, "GET", target)
        shown = answer.json()
        told = (answer.status, shown.get("status"), shown.get("code"))
        check(told == (status, status, code), f"{status} {code}", repr(told))
        check({"type", "title"} <= set(shown), "type and title", repr(shown))


# --- policy


@case(requirements=("RL-HTTP-032", "RL-HTTP-033", "RL-HTTP-034"))
async def policy_is_replaced_as_a_whole(stage: RelayStage) -> None:
    """A handle begins with its realm's policy, and each `PUT` replaces all of it."""
    alice = await stage.identity("alice")
    target = f"/v1/handles/{alice.handle}/policy"
    accept = "anyone" if stage.info.realm == "localhost" else "listed"
    first = await stage.ask(alice, "GET", target)
    usual: dict[str, Any] = {"offline": False, "accept": accept, "allow": [], "block": []}
    check(first.json() == usual, repr(usual), str(first))
    others: list[dict[str, Any]] = [
        {"offline": True, "accept": "listed", "allow": ["bob", "carol"], "block": ["mallory"]},
        {"offline": False, "accept": "invited", "allow": [], "block": []},
    ]
    for policy in others:
        put = await stage.ask(alice, "PUT", target, policy)
        check((put.status, put.json()) == (200, policy), f"200 and {policy}", str(put))
        got = await stage.ask(alice, "GET", target)
        check(got.json() == policy, repr(policy), str(got))


# --- calls


@case(requirements=("RL-HTTP-035", "RL-HTTP-038"))
async def record_has_all_its_members(stage: RelayStage) -> None:
    """The record of a call has all its members for either party, and the outcome for the caller alone."""
    scene = await Scene.set(stage)
    request = await scene.send_request()
    call_id = (await scene.caller.expect("call_status"))["call_id"]
    await scene.listener.expect("incoming_call")
    for state in ("ringing", "accepted", "started", "completed"):
        if state == "accepted":
            await scene.accept(call_id)
        elif state == "started":
            await scene.report("call_started", call_id)
            await scene.caller.expect("call_status", state="working")
        elif state == "completed":
            await scene.complete(call_id)
        for who in (scene.alice, scene.bob):
            shown = await stage.record(who, call_id)
            check(set(shown) == _MEMBERS, "all members", repr(_MEMBERS ^ set(shown)))
            wanted = {
                "call_id": call_id,
                "from": scene.alice.handle,
                "to": scene.bob.handle,
                "mode": "sync",
                "state": state,
                "message_id": request["message_id"],
                "correlation_id": request["correlation_id"],
                "attempts": 0,
                "cancel_requested": False,
            }
            told = {name: shown[name] for name in wanted}
            check(told == wanted, repr(wanted), repr(told))
            check((shown["started_at"] is not None) == (state in ("started", "completed")), "started_at", "")
            check((shown["finished_at"] is not None) == (state == "completed"), "finished_at", "another")
            has_outcome = shown["outcome"] is not None
            check(has_outcome == (state == "completed" and who is scene.alice), "outcome", repr(has_outcome))


@case(requirements=("RL-HTTP-036", "RL-PRIVACY-005"))
async def others_call_is_missing(stage: RelayStage) -> None:
    """Another's call is the same 404 as one that never was, on every route."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    mallory = await stage.identity("mallory")
    for method, rest in (("GET", ""), ("POST", "/cancel"), ("POST", "/ack"), ("POST", "/replay")):
        answers = [
            await stage.ask(mallory, method, f"/v1/calls/{name}{rest}")
            for name in (call_id, "AAAAAAAAAAAAAAAAAAAAAA", "x")
        ]
        check({answer.status for answer in answers} == {404}, f"404 for {method} {rest}", repr(answers))
        check(len({answer.lasting for answer in answers}) == 1, "one 404 for all", repr(answers))


@case(requirements=("RL-HTTP-037",))
async def wait_returns_at_the_end(stage: RelayStage) -> None:
    """`GET …?wait=` answers when the call ends, at once when it has ended, and else when the time is over."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    began = scene.alice.now()
    shown = await stage.record(scene.alice, call_id, wait=1)
    took = scene.alice.now() - began
    check(shown["state"] == "ringing" and took >= 950, "a ringing call after 1 s", f"{shown['state']} {took}")
    waiting = asyncio.create_task(stage.record(scene.alice, call_id, wait=20))
    await scene.work(call_id)
    await scene.complete(call_id)
    async with asyncio.timeout(stage.patience.answer):
        shown = await waiting
    check(shown["state"] == "completed", "the end of the call", repr(shown["state"]))
    began = scene.alice.now()
    await stage.record(scene.alice, call_id, wait=20)
    took = scene.alice.now() - began
    check(took < 5_000, "an answer at once", f"after {took} ms")


@case(requirements=("RL-HTTP-039", "RL-HTTP-038"), needs=Needs(features=("durable",)))
async def lists_are_of_ones_own_calls(stage: RelayStage) -> None:
    """A list has the identity's own calls of its role and state, newest first, without outcomes."""
    scene = await Scene.set(stage, offline=True, capacity=20)
    made: list[str] = []
    for mode in ("durable", "sync", "sync", "durable"):
        await scene.send_request(delivery_mode=mode)
        made.append((await scene.caller.next())["call_id"])
        await scene.listener.expect("incoming_call")
        await asyncio.sleep(0.005)  # the order is by time, and that has milliseconds
    await scene.work(made[1])
    await scene.complete(made[1])
    mallory = await stage.identity("mallory")

    async def listed(who: Identity, query: str) -> list[str]:
        answer = await stage.ask(who, "GET", f"/v1/calls{query}")
        check(answer.status == 200, "200", str(answer))
        page = answer.json()
        check(set(page) >= {"calls", "next"}, "calls and next", repr(sorted(page)))
        check(all(call["outcome"] is None for call in page["calls"]), "no outcome in a list", "one")
        return [call["call_id"] for call in page["calls"]]

    for who, query, wanted in (
        (scene.alice, "", made[::-1]),
        (scene.alice, "?role=caller", made[::-1]),
        (scene.bob, "?role=callee", made[::-1]),
        (scene.alice, "?role=callee", []),
        (scene.bob, "?role=caller", []),
        (scene.alice, "?state=completed", [made[1]]),
        (scene.alice, "?state=leased", [made[3], made[0]]),
        (mallory, "?role=caller", []),
        (mallory, "?role=callee", []),
    ):
        got = await listed(who, query)
        check(got == wanted, f"{wanted} for {query}", repr(got))


@case(requirements=("RL-HTTP-039",))
async def list_comes_in_pages(stage: RelayStage) -> None:
    """A list is read page by page to a `next` that is null, and has each call once."""
    scene = await Scene.set(stage, capacity=20)
    made = [await scene.ring() for _ in range(5)]
    seen: list[str] = []
    target, pages = "/v1/calls?limit=2", 0
    while target and pages < 10:
        answer = await stage.ask(scene.alice, "GET", target)
        check(answer.status == 200, "200", str(answer))
        page = answer.json()
        check(len(page["calls"]) <= 2, "at most two calls", repr(len(page["calls"])))
        seen += [call["call_id"] for call in page["calls"]]
        target = f"/v1/calls?limit=2&cursor={page['next']}" if page["next"] else ""
        pages += 1
    check(sorted(seen) == sorted(made), "each call once", repr(seen))


@case(requirements=("RL-HTTP-041", "RL-HTTP-044"))
async def acknowledgement_and_replay_have_their_time(stage: RelayStage) -> None:
    """An `ack` before the end, and a `replay` of a call that is not parked, are 409."""
    scene = await Scene.set(stage)
    call_id = await scene.ring()
    answer = await stage.ask(scene.alice, "POST", f"/v1/calls/{call_id}/ack")
    check(answer.status == 409, "409 for an early ack", str(answer))
    answer = await stage.ask(scene.bob, "POST", f"/v1/calls/{call_id}/replay")
    check(answer.status == 409, "409 for a replay", str(answer))
    await scene.accept(call_id)


@case(requirements=("RL-HTTP-017",))
async def forwarded_reader_sees_no_details(stage: RelayStage) -> None:
    """`/readyz` shows no details, and `/metrics` nothing, to a request that came through a proxy."""
    forwarded = (("X-Forwarded-For", "203.0.113.9"),)
    ready = await stage.ask(None, "GET", "/readyz", headers=forwarded)
    check(ready.status in (200, 503, 404), "200 or 503", str(ready))
    if ready.status == 200:
        check("reasons" not in ready.json(), "no reasons", str(ready))
    metrics = await stage.ask(None, "GET", "/metrics", headers=forwarded)
    check(metrics.status in (403, 404), "403 or 404 for /metrics", str(metrics))
