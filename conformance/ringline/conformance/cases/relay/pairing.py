"""Pairings: where two people meet who share a spoken code."""

import asyncio
import re
import secrets
from typing import Any

from ringline.conformance.http import Answer
from ringline.conformance.identity import Identity
from ringline.conformance.registry import case
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check
from ringline.protocol.encoding import b64encode

__all__: list[str] = []

_PLACE = "/v1/pairings"
_OFFER, _ANSWER, _REPLY = (b64encode(word * 11) for word in (b"offer", b"answer", b"reply"))
_MOST = 10
_MESSAGE_BYTES = 3_072
_WAIT_S = 20


async def _open(stage: RelayStage, who: Identity) -> str:
    """Open a pairing and return the path of it."""
    answer = await stage.ask(who, "POST", _PLACE, {"message": _OFFER})
    check(answer.status == 201, "201 for a pairing", str(answer))
    made: dict[str, Any] = answer.json()
    check({"nameplate", "expires_at"} <= made.keys(), "nameplate and expires_at", repr(sorted(made)))
    told: object = made["nameplate"]
    nameplate = told if isinstance(told, str) else ""
    check(re.fullmatch("[1-9][0-9]{0,2}", nameplate) is not None, "a number from 1 to 999", repr(told))
    return f"{_PLACE}/{nameplate}"


def _secret() -> str:
    return b64encode(secrets.token_bytes(16))


async def _claim(stage: RelayStage, place: str, claim: str) -> Answer:
    return await stage.ask(None, "POST", f"{place}/claim", {"claim": claim})


async def _answer(
    stage: RelayStage, place: str, claim: str, message: str = _ANSWER, *, wait: int = 0
) -> Answer:
    return await stage.ask(
        None,
        "POST",
        f"{place}/answer{f'?wait={wait}' if wait else ''}",
        {"claim": claim, "message": message},
        within=stage.patience.answer + wait,
    )


async def _reply(stage: RelayStage, who: Identity, place: str, message: str = _REPLY) -> Answer:
    return await stage.ask(who, "POST", f"{place}/reply", {"message": message})


def _is(answer: Answer, state: str, message: str | None) -> None:
    check(answer.status == 200, "200", str(answer))
    shown: dict[str, Any] = answer.json()
    check(
        (shown.get("state"), shown.get("message")) == (state, message),
        f"state {state} and message {message}",
        repr(shown),
    )
    check(isinstance(shown.get("expires_at"), int), "expires_at", repr(shown))


async def _claimed(stage: RelayStage, who: Identity) -> tuple[str, str]:
    """Open a pairing, claim it, and return its path and the secret."""
    place, claim = await _open(stage, who), _secret()
    answer = await _claim(stage, place, claim)
    check(answer.status == 200, "200 for the first claim", str(answer))
    return place, claim


@case(requirements=("RL-HTTP-058", "RL-HTTP-062", "RL-HTTP-063", "RL-HTTP-064"))
async def three_messages_are_handed_on(stage: RelayStage) -> None:
    """The offer reaches who claims, his answer the inviter, and the inviter's reply him."""
    alice = await stage.identity("alice")
    place, claim = await _open(stage, alice), _secret()
    _is(await stage.ask(alice, "GET", place), "open", None)
    offered = await _claim(stage, place, claim)
    check((offered.status, offered.json().get("message")) == (200, _OFFER), "the offer", str(offered))
    _is(await stage.ask(alice, "GET", place), "claimed", None)
    _is(await _answer(stage, place, claim), "answered", None)
    _is(await stage.ask(alice, "GET", place), "answered", _ANSWER)
    _is(await _reply(stage, alice, place), "replied", _ANSWER)
    _is(await _answer(stage, place, claim), "received", _REPLY)
    _is(await stage.ask(alice, "GET", place), "received", _ANSWER)


@case(requirements=("RL-HTTP-058",))
async def no_two_pairings_have_one_number(stage: RelayStage) -> None:
    """What is open at one time is told apart."""
    alice = await stage.identity("alice")
    places = [await _open(stage, alice) for _ in range(5)]
    check(len(set(places)) == len(places), "a number for each", repr(places))


@case(requirements=("RL-HTTP-060",))
async def pairing_is_claimed_once(stage: RelayStage) -> None:
    """A second claim gets the 404 of a number that nobody has, before and after the answer."""
    alice = await stage.identity("alice")
    place, claim = await _claimed(stage, alice)
    missing = await _claim(stage, f"{_PLACE}/0", _secret())
    check(missing.status == 404, "404 for no number", str(missing))
    second = await _claim(stage, place, _secret())
    check(second.lasting == missing.lasting, "the answer about a missing one", str(second))
    _is(await _answer(stage, place, claim), "answered", None)
    third = await _claim(stage, place, _secret())
    check(third.lasting == missing.lasting, "the answer about a missing one", str(third))


@case(requirements=("RL-HTTP-061",))
async def claim_is_repeated(stage: RelayStage) -> None:
    """Whoever lost the answer to his claim asks again."""
    alice = await stage.identity("alice")
    place, claim = await _claimed(stage, alice)
    again = await _claim(stage, place, claim)
    check((again.status, again.json().get("message")) == (200, _OFFER), "the offer", str(again))


@case(requirements=("RL-HTTP-062", "RL-HTTP-063"))
async def second_answer_and_second_reply_are_refused(stage: RelayStage) -> None:
    """One answer and one reply are taken; another one is 409, and so is a reply to nothing."""
    alice = await stage.identity("alice")
    place, claim = await _claimed(stage, alice)
    early = await _reply(stage, alice, place)
    check(early.status == 409, "409 for a reply before the answer", str(early))
    _is(await _answer(stage, place, claim), "answered", None)
    other = await _answer(stage, place, claim, b64encode(b"another"))
    check(other.status == 409, "409 for another answer", str(other))
    _is(await _reply(stage, alice, place), "replied", _ANSWER)
    changed = await _reply(stage, alice, place, b64encode(b"another"))
    check(changed.status == 409, "409 for another reply", str(changed))
    _is(await _answer(stage, place, claim), "received", _REPLY)


@case(requirements=("RL-HTTP-064",))
async def both_sides_wait_for_each_other(stage: RelayStage) -> None:
    """A request that waits is answered when the other side has gone on."""
    alice = await stage.identity("alice")
    place, claim = await _claimed(stage, alice)
    inviter = asyncio.ensure_future(
        stage.ask(alice, "GET", f"{place}?wait={_WAIT_S}", within=stage.patience.answer + _WAIT_S)
    )
    guest: asyncio.Future[Answer] | None = None
    try:
        guest = asyncio.ensure_future(_answer(stage, place, claim, wait=_WAIT_S))
        _is(await inviter, "answered", _ANSWER)
        check(not guest.done(), "nothing before there is a reply", "an answer")
        _is(await _reply(stage, alice, place), "replied", _ANSWER)
        _is(await guest, "received", _REPLY)
    finally:
        for waiting in (inviter, guest):
            if waiting is not None:
                waiting.cancel()


@case(requirements=("RL-HTTP-065",))
async def void_pairing_is_told_to_the_guest_and_claimed_by_nobody(stage: RelayStage) -> None:
    """What the inviter has given up is `void` for its guest, and missing for whoever comes later."""
    alice = await stage.identity("alice")
    place, claim = await _claimed(stage, alice)
    _is(await _answer(stage, place, claim), "answered", None)
    _is(await stage.ask(alice, "DELETE", place), "void", _ANSWER)
    _is(await _answer(stage, place, claim), "void", None)
    late = await _reply(stage, alice, place)
    check(late.status == 409, "409 for a reply to a void pairing", str(late))
    unclaimed = await _open(stage, alice)
    _is(await stage.ask(alice, "DELETE", unclaimed), "void", None)
    refused = await _claim(stage, unclaimed, _secret())
    check(refused.status == 404, "404 for a claim of a void pairing", str(refused))


@case(requirements=("RL-HTTP-069",))
async def pairing_does_not_exist_for_others(stage: RelayStage) -> None:
    """Another identity, and whoever has another secret, get the answer about a number that nobody has."""
    alice, mallory = await stage.identity("alice"), await stage.identity("mallory")
    place, claim = await _claimed(stage, alice)
    for method, path, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/reply", {"message": _REPLY}),
    ):
        foreign = await stage.ask(mallory, method, f"{place}{path}", body)
        missing = await stage.ask(mallory, method, f"{_PLACE}/0{path}", body)
        check(foreign.status == 404, "404", str(foreign))
        check(foreign.lasting == missing.lasting, "the answer about a missing one", str(foreign))
    stranger = await _answer(stage, place, _secret())
    missing = await _answer(stage, f"{_PLACE}/0", _secret())
    check(stranger.status == 404, "404", str(stranger))
    check(stranger.lasting == missing.lasting, "the answer about a missing one", str(stranger))
    _is(await _answer(stage, place, claim), "answered", None)


@case(requirements=("RL-HTTP-059",))
async def message_of_a_pairing_is_bounded_text(stage: RelayStage) -> None:
    """Messages are base64url of at most 3,072 bytes."""
    alice = await stage.identity("alice")
    for message, why in (
        ("", "an empty message"),
        ("QUJD====", "padding"),
        ("QUJ", "bits that are none of the value's"),
        (b64encode(bytes(_MESSAGE_BYTES + 1)), "a long message"),
    ):
        answer = await stage.ask(alice, "POST", _PLACE, {"message": message})
        check(answer.status == 400, f"400 for {why}", str(answer))
    largest = await stage.ask(alice, "POST", _PLACE, {"message": b64encode(bytes(_MESSAGE_BYTES))})
    check(largest.status == 201, "201 for the largest message", str(largest))


@case(requirements=("RL-HTTP-067",))
async def one_identity_has_ten_pairings(stage: RelayStage) -> None:
    """The eleventh is 429, also when those before are over; another identity has its own."""
    alice, bob = await stage.identity("alice"), await stage.identity("bob")
    places = [await _open(stage, alice) for _ in range(_MOST)]
    _is(await stage.ask(alice, "DELETE", places[0]), "void", None)
    eleventh = await stage.ask(alice, "POST", _PLACE, {"message": _OFFER})
    check(eleventh.status == 429, "429 for the eleventh", str(eleventh))
    await _open(stage, bob)
