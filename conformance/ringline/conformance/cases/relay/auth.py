"""Authentication: tokens, tickets, pages and hosts."""

import asyncio
import ipaddress
from typing import Any

from ringline.conformance.http import Answer
from ringline.conformance.identity import Identity, forge
from ringline.conformance.registry import case
from ringline.conformance.relay_stage import RelayStage, listen_target
from ringline.conformance.verdict import Neutral, check
from ringline.protocol.encoding import b64encode
from ringline.protocol.limits import TOKENS_LIVE
from ringline.protocol.signing import SigningKey

__all__: list[str] = []

_CALLS = "/v1/calls"


async def _show(stage: RelayStage, token: str, *more: tuple[str, str]) -> Answer:
    """Ask for the list of calls with a token as it is."""
    return await stage.ask(None, "GET", _CALLS, headers=(("Authorization", f"Bearer {token}"), *more))


async def _refused(stage: RelayStage, token: str, why: str) -> None:
    answer = await _show(stage, token)
    check(answer.status == 401, f"401 for {why}", str(answer))


async def _claimed(stage: RelayStage, who: Identity, why: str, **claims: Any) -> None:
    """Pass when a token with these claims, otherwise good and signed by its card's key, is refused."""
    made = {name: value for name, value in (who.claims("GET", _CALLS) | claims).items() if value is not None}
    await _refused(stage, forge(who.operational, who.header(), made), why)


async def _good(stage: RelayStage, who: Identity) -> None:
    answer = await _show(stage, who.token("GET", _CALLS))
    check(answer.status == 200, "200 for a good token", str(answer))


@case(requirements=("RL-AUTH-021", "RL-AUTH-022", "RL-HTTP-009"))
async def failed_log_ins_are_all_answered_alike(stage: RelayStage) -> None:
    """Whatever is wrong with a log-in, the 401 is the same bytes, with a `Date` beside."""
    alice = await stage.identity("alice")
    stranger = stage.stranger()
    claims, header = alice.claims("GET", _CALLS), alice.header()
    used = alice.token("GET", _CALLS)
    check((await _show(stage, used)).status == 200, "200 for a good token", "another")
    tokens = {
        "no token": "x.y.z",
        "used": used,
        "another realm": forge(alice.operational, header, claims | {"aud": "elsewhere.example"}),
        "too old": alice.token("GET", _CALLS, ago_s=300),
        "another path": alice.token("GET", "/v1/relay"),
        "another method": alice.token("POST", _CALLS),
        "wrong key": forge(stranger.operational, header, alice.claims("GET", _CALLS)),
        "not enrolled": stranger.token("GET", _CALLS),
        "unpublished card": alice.renewed().token("GET", _CALLS),
    }
    answers = [await _show(stage, token) for token in tokens.values()]
    answers.append(await stage.ask(None, "GET", _CALLS))
    for answer in answers:
        check(answer.status == 401, "401", str(answer))
        check(answer.header("date") is not None, "a Date header", "none")
    check(len({answer.lasting for answer in answers}) == 1, "one 401 for all", repr(answers))
    target = f"/v1/call/{alice.handle}"
    upgrades = [
        await stage.upgrade(target, ("Authorization", f"Bearer {token}")) for token in tokens.values()
    ] + [await stage.upgrade(target)]
    check({answer.status for answer in upgrades} == {401}, "401 for each upgrade", repr(upgrades))
    check(len({answer.lasting for answer in upgrades}) == 1, "one 401 for all upgrades", repr(upgrades))


@case(requirements=("RL-AUTH-007",))
async def token_has_exactly_its_members(stage: RelayStage) -> None:
    """A token with a missing, a further, a repeated or a mistyped member is refused."""
    alice = await stage.identity("alice")
    for name in alice.claims("GET", _CALLS):
        await _claimed(stage, alice, f"a token without {name}", **{name: None})
    await _claimed(stage, alice, "a further claim", nbf=alice.now() // 1000)
    iat = alice.now() // 1000
    mistyped: dict[str, dict[str, Any]] = {
        "a time as text": {"iat": str(iat)},
        "a time with a fraction": {"iat": iat + 0.5},
        "a short jti": {"jti": "a" * 15},
        "a long jti": {"jti": "a" * 65},
        "a jti with a line feed": {"jti": "a" * 16 + "\n"},
        "a list as audience": {"aud": [alice.realm]},
        "a handle with a line feed": {"iss": f"{alice.handle}\n"},
    }
    for why, changes in mistyped.items():
        await _claimed(stage, alice, why, **changes)
    good = alice.claims("GET", _CALLS)
    for extra in ({"crit": ["exp"]}, {"jku": "https://elsewhere.example"}, {"typ": "at+jwt"}):
        await _refused(stage, forge(alice.operational, alice.header() | extra, good), f"the header {extra}")
    twice = ('{"iss":"nobody",' + forge_text(good)[1:]).encode()
    await _refused(stage, forge(alice.operational, alice.header(), twice), "a repeated claim")
    await _good(stage, alice)


def forge_text(claims: dict[str, Any]) -> str:
    """Return claims as JSON text."""
    import json

    return json.dumps(claims)


@case(requirements=("RL-AUTH-008",))
async def only_eddsa_is_an_algorithm(stage: RelayStage) -> None:
    """A token of another algorithm is refused, however it is signed."""
    alice = await stage.identity("alice")
    for name in ("none", "None", "HS256", "ES256", "Ed25519", "eddsa", "EdDSA\n"):
        token = forge(alice.operational, alice.header() | {"alg": name}, alice.claims("GET", _CALLS))
        await _refused(stage, token, f"alg {name!r}")
        await _refused(stage, f"{token.rpartition('.')[0]}.", f"alg {name!r} without a signature")
    await _good(stage, alice)


@case(requirements=("RL-AUTH-009",))
async def header_and_claims_name_one_card(stage: RelayStage) -> None:
    """A token whose `kid` and `sub` differ is refused, whichever of the two is the caller's card."""
    alice, bob = await stage.identity("alice"), await stage.identity("bob")
    claims = alice.claims("GET", _CALLS)
    await _refused(stage, forge(alice.operational, bob.header(), claims), "another kid")
    await _claimed(stage, alice, "another sub", sub=bob.card_id)


@case(requirements=("RL-AUTH-010",))
async def card_of_another_handle_logs_nobody_in(stage: RelayStage) -> None:
    """A token for a handle under another handle's card is refused."""
    alice, bob = await stage.identity("alice"), await stage.identity("bob")
    await _claimed(stage, alice, "bob's name under alice's card", iss=bob.handle)


@case(requirements=("RL-AUTH-010", "RL-KEYS-011"))
async def replaced_card_logs_in_for_48_hours(stage: RelayStage) -> None:
    """A card that was replaced logs in until 48 h after its successor began, and not after."""
    long_ago = {"not_before": stage.stranger().now() - 60 * 3_600_000}
    for hours, status in ((47, 200), (49, 401)):
        who = await stage.identity(f"h{hours}", **long_ago)
        following = who.renewed(not_before=who.now() - hours * 3_600_000)
        check((await stage.publish(following)).status == 200, "200 for the next card", "another")
        answer = await _show(stage, who.token("GET", _CALLS))
        check(answer.status == status, f"{status} for a card replaced {hours} h ago", str(answer))
        await _good(stage, following)


@case(requirements=("RL-AUTH-010",))
async def revoked_card_logs_nobody_in(stage: RelayStage) -> None:
    """A token under a revoked card is refused."""
    alice = await stage.identity("alice")
    answer = await stage.ask(None, "POST", f"/v1/handles/{alice.handle}/revocations", alice.revocation())
    check(answer.status == 201, "201 for the revocation", str(answer))
    await _refused(stage, alice.token("GET", _CALLS), "a revoked card")


@case(requirements=("RL-AUTH-010",))
async def card_that_has_run_out_logs_nobody_in(stage: RelayStage) -> None:
    """A token under a card whose life is over is refused."""
    begin = stage.stranger().now() - 3_600_000
    alice = await stage.identity("alice", not_before=begin, life=3_600_000 + 1_500)
    await _good(stage, alice)
    await asyncio.sleep(max(0, alice.not_before + alice.life + 100 - alice.now()) / 1000)
    await _refused(stage, alice.token("GET", _CALLS), "a card that has run out")


@case(requirements=("RL-AUTH-011",))
async def signature_is_that_of_the_cards_operational_key(stage: RelayStage) -> None:
    """A token signed by the identity key, or by any other, or damaged, is refused."""
    alice = await stage.identity("alice")
    for key in (alice.identity, SigningKey.generate()):
        await _refused(stage, forge(key, alice.header(), alice.claims("GET", _CALLS)), "another key")
    head, _, signature = alice.token("GET", _CALLS).rpartition(".")
    flipped = ("B" if signature[0] == "A" else "A") + signature[1:]
    for damaged in (f"{head}.{flipped}", f"{head}.", f"{head}.{b64encode(bytes(64))}"):
        await _refused(stage, damaged, "a damaged signature")


@case(requirements=("RL-AUTH-013",))
async def token_is_for_one_realm_method_and_path(stage: RelayStage) -> None:
    """A token for another realm, method or path than those of the request is refused."""
    alice = await stage.identity("alice")
    for why, changes in {
        "another realm": {"aud": "elsewhere.example"},
        "another method": {"htm": "POST"},
        "a method in lower case": {"htm": "get"},
        "another path": {"htu": "/v1/calls/x"},
        "a path with the query": {"htu": f"{_CALLS}?role=caller"},
        "a whole URL": {"htu": f"{stage.address}{_CALLS}"},
    }.items():
        await _claimed(stage, alice, why, **changes)
    await _good(stage, alice)


@case(requirements=("RL-AUTH-014",))
async def time_of_a_token_is_within_two_minutes(stage: RelayStage) -> None:
    """A token from more than 120 s ago or ahead is refused, one from less is not."""
    alice = await stage.identity("alice")
    for ago in (125, -125, 4_000, -4_000):
        await _refused(stage, alice.token("GET", _CALLS, ago_s=ago), f"a token of {ago} s ago")
    answer = await _show(stage, alice.token("GET", _CALLS, ago_s=-110))
    check(answer.status == 200, "200 for a token 110 s ahead", str(answer))


@case(requirements=("RL-AUTH-015", "RL-AUTH-016"))
async def exp_bounds_the_span_and_is_no_clock(stage: RelayStage) -> None:
    """A token spans more than 0 and at most 60 s, and is good after its `exp` while its `iat` is."""
    alice = await stage.identity("alice")
    iat = alice.now() // 1000
    for span in (0, -1, 61, 3_600):
        await _claimed(stage, alice, f"a span of {span} s", iat=iat, exp=iat + span)
    # A relay refuses what is from before its own start, so that must be some seconds ago.
    await asyncio.sleep(max(0, stage.info.started_at + 5_000 - alice.now()) / 1000)
    iat = alice.now() // 1000 - 3
    claims = alice.claims("GET", _CALLS) | {"iat": iat, "exp": iat + 1}
    answer = await _show(stage, forge(alice.operational, alice.header(), claims))
    check(answer.status == 200, "200 for a token 2 s after its exp", str(answer))


@case(requirements=("RL-AUTH-017",))
async def jti_counts_once(stage: RelayStage) -> None:
    """A token is good once, and its `jti` is used for every token of the handle and for no other's."""
    alice, bob = await stage.identity("alice"), await stage.identity("bob")
    claims = alice.claims("GET", _CALLS)
    token = forge(alice.operational, alice.header(), claims)
    check((await _show(stage, token)).status == 200, "200 for a good token", "another")
    await _refused(stage, token, "the same token again")
    await _claimed(stage, alice, "another token of the same jti", jti=claims["jti"])
    others = bob.claims("GET", _CALLS) | {"jti": claims["jti"]}
    answer = await _show(stage, forge(bob.operational, bob.header(), others))
    check(answer.status == 200, "200 for the same jti of another handle", str(answer))


@case(requirements=("RL-AUTH-018",))
async def a_thousand_tokens_are_remembered(stage: RelayStage) -> None:
    """A handle of which 1,000 used tokens are remembered is refused a further one, and no other handle is."""
    alice, bob = await stage.identity("alice"), await stage.identity("bob")
    statuses: list[int] = []

    async def use(count: int) -> None:
        for _ in range(count):
            statuses.append((await _show(stage, alice.token("GET", _CALLS))).status)

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(use(TOKENS_LIVE // 10 + 1))
    taken = statuses.count(200)
    check(taken <= TOKENS_LIVE, f"at most {TOKENS_LIVE} good answers", taken)
    check(taken >= TOKENS_LIVE - 10, f"about {TOKENS_LIVE} good answers", taken)
    await _refused(stage, alice.token("GET", _CALLS), "one more")
    await _good(stage, bob)


@case(requirements=("RL-AUTH-019",))
async def token_from_before_the_start_is_refused(stage: RelayStage) -> None:
    """A token from before the second in which the relay started is refused."""
    alice = await stage.identity("alice")
    ago = alice.now() // 1000 - stage.info.started_at // 1000 + 1
    if ago > 110:
        raise Neutral("needs a relay that was started less than 110 s ago")
    await _refused(stage, alice.token("GET", _CALLS, ago_s=ago), "a token from before the start")


@case(requirements=("RL-AUTH-020", "RL-TRANSPORT-011"))
async def only_a_token_that_holds_is_used_up(stage: RelayStage) -> None:
    """A token shown at another path is not used up, and one that held is, whatever is wrong behind it."""
    alice = await stage.identity("alice")
    right = f"/v1/call/{alice.handle}"
    held, shown = alice.bearer("GET", right), alice.bearer("GET", right)
    for target in (f"/v1/call/{stage.handle('bob')}", listen_target(alice)):
        check((await stage.upgrade(target, shown)).status == 401, "401 at another path", "another")
    check((await stage.upgrade(right, shown)).status == 101, "101 for a token not used up", "another")
    check((await stage.upgrade(right, held, subprotocols=None)).status == 400, "400", "another")
    check((await stage.upgrade(right, held)).status == 401, "401 for a token used up", "another")


@case(requirements=("RL-AUTH-021",))
async def two_log_ins_are_none(stage: RelayStage) -> None:
    """A request with two `Authorization` headers is refused."""
    alice = await stage.identity("alice")
    answer = await _show(stage, alice.token("GET", _CALLS), alice.bearer("GET", _CALLS))
    check(answer.status == 401, "401", str(answer))


# --- pages and hosts


@case(requirements=("RL-AUTH-035", "RL-AUTH-036"))
async def foreign_page_is_forbidden(stage: RelayStage) -> None:
    """A request or upgrade of a foreign origin is answered 403 without CORS headers."""
    bob = await stage.identity("bob")
    target = f"/v1/call/{bob.handle}"
    for origin in ("https://elsewhere.example", "null", f"{stage.address}.elsewhere.example"):
        header = ("Origin", origin)
        answers = [
            await stage.ask(bob, "GET", _CALLS, headers=(header,)),
            await stage.ask(None, "GET", "/v1/relay", headers=(header,)),
            await stage.upgrade(target, bob.bearer("GET", target), header),
        ]
        for answer in answers:
            check(answer.status == 403, f"403 for the origin {origin}", str(answer))
            allowed = answer.header("access-control-allow-origin")
            check(allowed is None, "no CORS header", str(allowed))


@case(requirements=("RL-AUTH-037",))
async def foreign_host_is_forbidden_on_loopback(stage: RelayStage) -> None:
    """A relay on a loopback address answers 403 to a request for another host name than its own."""
    try:
        loopback = ipaddress.ip_address(stage.address.host).is_loopback
    except ValueError:
        loopback = stage.address.host == "localhost"
    if not loopback:
        raise Neutral("needs a relay on a loopback address")
    bob = await stage.identity("bob")
    target = f"/v1/call/{bob.handle}"
    port = stage.address.port
    for host in ("elsewhere.example", f"elsewhere.example:{port}", "127.0.0.1.elsewhere.example"):
        for answer in (
            await stage.ask(None, "GET", "/v1/relay", host=host),
            await stage.upgrade(target, bob.bearer("GET", target), host=host),
        ):
            check(answer.status == 403, f"403 for the host {host}", str(answer))
