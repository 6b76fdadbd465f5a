"""Meeting by a spoken code at a running relay: an honest one, one that lies, and one that is flooded."""

import asyncio
import dataclasses
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ringline.client import Account, Contacts, Home, RelayAddress, RelayClock, RelayHttp, pairing
from ringline.client.invitations import Given, Invitations
from ringline.client.pairing import SpokenInvite, take_up
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import ConfigError, InviteError, PairingError
from ringline.protocol.instant import Instant
from ringline.protocol.invite import Invite
from ringline.protocol.limits import PAIRING_LIFE_MS
from ringline.protocol.pairing import Guest, Inviter, Keys
from ringline.protocol.signing import SigningKey
from ringline.protocol.spokencode import SpokenCode
from ringline.relay.clock import Clock, system_clock
from ringline_testing.middleman import Middleman, answer_json, middleman
from ringline_testing.relay import running_relay
from ringline_testing.signed import Answer, Owner, exchange, now_ms

REALM = "relay.example"
LIFE_S = 900
PATIENCE_S = 60.0
OFFER = b64encode(b"offer")
EVIL = Invite(
    realm=REALM, secret="x" * 32, inviter="mallory", ipk=SigningKey.generate().public, pairing=bytes(16)
)
SECRET, OTHER = b64encode(b"b" * 16), b64encode(b"m" * 16)


class Person:
    """Somebody who invites."""

    def __init__(self, folder: Path, url: str, handle: str) -> None:
        self.home = Home(folder)
        self.address = RelayAddress.parse(url, REALM)
        account = Account.create(self.home, self.address, handle, now_ms(), plain=True, suites=[1])
        self.http = RelayHttp(self.address, account, RelayClock())
        contacts = Contacts(self.home, self.home.contacts_file(self.address))
        self.invitations = Invitations(self.home, account, self.http, contacts)

    async def hand_over(self, spoken: SpokenInvite) -> Invite:
        """Do what `ringline invite --code` does once the code is said; return the invite."""
        await spoken.meet(PATIENCE_S)
        invite, _ = await self.invitations.invite(Given(), uses=1, ttl_s=LIFE_S)
        await spoken.hand_over(invite.format())
        return invite


@dataclass
class World:
    """A relay with a liar in front of it, and a person who invites."""

    liar: Middleman
    alice: Person


@asynccontextmanager
async def a_world(folder: Path, *, clock: Clock = system_clock, **settings: int) -> AsyncGenerator[World]:
    async with (
        running_relay(
            realm=REALM, clock=clock, settings={"pairing_claims_per_minute": 0} | settings
        ) as relay,
        middleman(relay.port) as liar,
    ):
        alice = Person(folder / "a", liar.url, "alice")
        await alice.http.publish()
        yield World(liar, alice)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with a_world(tmp_path) as made:
        yield made


def wrong(code: SpokenCode) -> SpokenCode:
    """Return the code with another last word."""
    word = "cobra" if code.words[-1] != "cobra" else "clockwork"
    return SpokenCode(code.nameplate, (*code.words[:-1], word))


# --- two people


async def test_an_invite_is_handed_over_and_the_relay_learns_neither_it_nor_the_words(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    spoken = SpokenInvite(world.alice.http)
    async with spoken as code:
        got, given = await asyncio.gather(take_up(world.alice.address, code), world.alice.hand_over(spoken))
    assert got == given
    assert got.inviter == "alice"
    line = got.format()
    told = b"".join(body for target, body in world.liar.bodies if "/pairings" in target)
    seen = told + repr(world.liar.requests).encode()
    for secret in (*code.words, line, line[10:60], got.secret):
        assert secret.encode() not in seen
    messages = [msgspec.json.decode(body)["message"] for _, body in world.liar.bodies if b"message" in body]
    assert len(set(messages)) == 3
    for message in (*messages, *code.words, line):
        assert message not in caplog.text


async def test_every_code_has_other_words(world: World) -> None:
    words: set[tuple[str, ...]] = set()
    for _ in range(3):
        async with SpokenInvite(world.alice.http, words=4) as code:
            words.add(code.words)
    assert len(words) == 3


async def test_a_wrong_guess_uses_the_code_up_and_both_are_told(world: World) -> None:
    spoken = SpokenInvite(world.alice.http)

    async def guess(code: SpokenCode) -> str:
        with pytest.raises(PairingError, match="its words are not these"):
            await take_up(world.alice.address, wrong(code))
        with pytest.raises(PairingError, match="used before"):
            await take_up(world.alice.address, code)
        return "told"

    async with asyncio.TaskGroup() as group, spoken as code:
        guessing = group.create_task(guess(code))
        with pytest.raises(PairingError, match="other words"):
            await world.alice.hand_over(spoken)
    assert guessing.result() == "told"
    # No invite was made that could be guessed at.
    assert await world.alice.http.invites() == []


async def test_whoever_comes_second_gets_nothing_although_his_words_are_right(world: World) -> None:
    spoken = SpokenInvite(world.alice.http)
    async with spoken as code:
        first, given = await asyncio.gather(take_up(world.alice.address, code), world.alice.hand_over(spoken))
        assert first == given
        with pytest.raises(PairingError, match="used before"):
            await take_up(world.alice.address, code)


async def test_a_code_that_nobody_uses_is_over_in_time_and_that_is_told(tmp_path: Path) -> None:
    async with a_world(tmp_path, pairing_life_ms=300) as world:
        spoken = SpokenInvite(world.alice.http)
        async with spoken as code:
            with pytest.raises(PairingError, match="nobody has used the code"):
                await spoken.meet(PATIENCE_S)
        with pytest.raises(PairingError, match="has run out"):
            await take_up(world.alice.address, code)


async def test_who_waits_for_a_code_may_stop_and_nobody_can_use_it_then(world: World) -> None:
    spoken = SpokenInvite(world.alice.http)
    async with spoken as code:
        with pytest.raises(PairingError, match="nobody has used the code"):
            await spoken.meet(0.05)
    with pytest.raises(PairingError, match="given up"):
        await take_up(world.alice.address, code)


async def test_a_code_that_was_taken_and_not_answered_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The relay's clock is moved here, which no request notices that waits there.
    monkeypatch.setattr(pairing, "_WAIT_S", 0)
    later = 0

    def clock() -> Instant:
        now = system_clock()
        return Instant(now.wall, now.mono + later)

    async with a_world(tmp_path, clock=clock) as world:
        spoken = SpokenInvite(world.alice.http)
        async with spoken as code:
            place = f"/v1/pairings/{code.nameplate}/claim"
            assert (await post(world.liar.port, place, {"claim": OTHER})).status == 200
            taken = asyncio.Event()
            waiting = asyncio.create_task(spoken.meet(PATIENCE_S, lambda text: taken.set()))
            async with asyncio.timeout(PATIENCE_S):
                await taken.wait()
            later = PAIRING_LIFE_MS
            with pytest.raises(PairingError, match="somebody took the code"):
                await waiting


async def test_a_relay_of_another_realm_is_noticed_before_the_code_is_used(world: World) -> None:
    spoken = SpokenInvite(world.alice.http)
    async with spoken as code:
        with pytest.raises(ConfigError, match="is of realm"):
            await take_up(RelayAddress.parse(world.liar.url, "other.example"), code)
        got, given = await asyncio.gather(take_up(world.alice.address, code), world.alice.hand_over(spoken))
        assert got == given


# --- a relay between the two


class Between:
    """A relay that talks to each side as if it were the other one, under its own words."""

    def __init__(self, liar: Middleman, code: SpokenCode, evil: str) -> None:
        self.words, self.code, self.evil = code.password, code, evil
        self.stolen: str | None = None
        self._liar = liar
        self._to_bob = Inviter(self.words, lambda size: bytes(range(size)))
        self._to_alice: Guest | None = None
        self._keys: Keys | None = None
        liar.on_answer = self._lie

    def _lie(self, method: str, target: str, answer: Answer) -> Answer:
        if "/pairings/" not in target or answer.status != 200:
            return answer
        message = answer.json()["message"]
        if target.endswith("/claim"):
            self._to_alice = Guest(
                self.words,
                lambda size: bytes(size),
                offer=b64decode(message),
                realm=REALM,
                nameplate=self.code.nameplate,
            )
            return answer_json(answer, message=b64encode(self._to_bob.offer))
        assert self._to_alice is not None or message is None
        if method == "GET" and message is not None and self._to_alice is not None:
            if self._keys is None:
                with suppress(PairingError):
                    self._keys = self._to_bob.meet(
                        b64decode(message), realm=REALM, nameplate=self.code.nameplate
                    )
            return answer_json(answer, message=b64encode(self._to_alice.answer))
        if "/answer" in target and message is not None and self._to_alice is not None:
            self.stolen = self._to_alice.keys.open(b64decode(message))
            assert self._keys is not None
            return answer_json(answer, message=b64encode(self._keys.seal(self.evil)))
        return answer


async def test_a_relay_between_the_two_gets_nothing_without_the_words(world: World) -> None:
    spoken = SpokenInvite(world.alice.http)
    async with asyncio.TaskGroup() as group, spoken as code:
        between = Between(world.liar, wrong(code), EVIL.format())
        guest = group.create_task(failing(world.alice.address, code))
        with pytest.raises(PairingError, match="somebody stands between"):
            await world.alice.hand_over(spoken)
    assert "its words are not these" in guest.result()
    assert between.stolen is None
    assert await world.alice.http.invites() == []


async def failing(address: RelayAddress, code: SpokenCode) -> str:
    with pytest.raises(PairingError) as caught:
        await take_up(address, code)
    return str(caught.value)


async def test_the_one_guess_of_a_relay_would_be_enough_if_it_were_right(world: World) -> None:
    # So that the test before is known to fail for want of the words, and for nothing else.
    spoken = SpokenInvite(world.alice.http)
    async with spoken as code:
        between = Between(world.liar, code, EVIL.format())
        got, given = await asyncio.gather(take_up(world.alice.address, code), world.alice.hand_over(spoken))
    assert (got, between.stolen) == (EVIL, given.format())


@pytest.mark.parametrize("reply", [bytes(32), bytes(300)], ids=["proof alone", "made up"])
async def test_a_reply_that_the_relay_makes_up_is_no_invite(world: World, reply: bytes) -> None:
    def lie(method: str, target: str, answer: Answer) -> Answer:
        if "/answer" in target:
            return answer_json(answer, state="received", message=b64encode(reply))
        return answer

    world.liar.on_answer = lie
    spoken = SpokenInvite(world.alice.http)
    async with spoken as code:
        told, _ = await asyncio.gather(failing(world.alice.address, code), world.alice.hand_over(spoken))
    assert "somebody stands between" in told


async def test_a_reply_that_was_changed_on_its_way_is_no_invite(world: World) -> None:
    def lie(method: str, target: str, answer: Answer) -> Answer:
        if "/answer" in target and answer.json()["message"] is not None:
            changed = bytearray(b64decode(answer.json()["message"]))
            changed[-1] ^= 1
            return answer_json(answer, message=b64encode(bytes(changed)))
        return answer

    world.liar.on_answer = lie
    spoken = SpokenInvite(world.alice.http)
    async with spoken as code:
        told, _ = await asyncio.gather(failing(world.alice.address, code), world.alice.hand_over(spoken))
    assert "was changed on its way" in told


@pytest.mark.parametrize(
    ("text", "why"),
    [(dataclasses.replace(EVIL, realm="other.example").format(), "realm other.example"), ("rli1", "damaged")],
    ids=["of another realm", "damaged"],
)
async def test_what_the_inviter_hands_over_is_read_like_any_invite(world: World, text: str, why: str) -> None:
    async def hand_over() -> None:
        await spoken.meet(PATIENCE_S)
        await spoken.hand_over(text)

    async def take() -> None:
        with pytest.raises(InviteError, match=why):
            await take_up(world.alice.address, code)

    spoken = SpokenInvite(world.alice.http)
    async with spoken as code:
        await asyncio.gather(take(), hand_over())


# --- at the relay


async def opened(owner: Owner) -> str:
    answer = await owner.ask("POST", "/v1/pairings", {"message": OFFER})
    assert answer.status == 201, answer
    return f"/v1/pairings/{answer.json()['nameplate']}"


async def post(port: int, target: str, body: dict[str, Any], **headers: str) -> Answer:
    return await exchange(
        port, "POST", target, body=msgspec.json.encode(body),
        headers={"content-type": "application/json"} | headers,
    )  # fmt: skip


async def enrolled(port: int, handle: str = "alice") -> Owner:
    owner = Owner(handle=handle, port=port)
    assert (await owner.publish()).status == 201
    return owner


async def test_a_flood_of_claims_from_one_address_is_stopped_and_others_are_not() -> None:
    settings = {"pairing_claims_per_minute": 3}
    async with running_relay(settings=settings, trusted_proxies=("127.0.0.1",)) as relay:
        place = await opened(await enrolled(relay.port))
        flood, other = {"x-forwarded-for": "192.0.2.1"}, {"x-forwarded-for": "192.0.2.2"}
        missing = [f"/v1/pairings/{number}" for number in (1, 2, 3) if not place.endswith(f"/{number}")]
        first = await post(relay.port, f"{missing[0]}/claim", {"claim": OTHER}, **flood)
        # A wrong secret is a guess as well.
        second = await post(relay.port, f"{place}/answer", {"claim": OTHER, "message": OFFER}, **flood)
        third = await post(relay.port, f"{missing[1]}/claim", {"claim": OTHER}, **flood)
        assert [answer.status for answer in (first, second, third)] == [404, 404, 404]
        assert first.body == second.body == third.body
        for path, body in (("/claim", {"claim": SECRET}), ("/answer", {"claim": SECRET, "message": OFFER})):
            stopped = await post(relay.port, f"{place}{path}", body, **flood)
            assert (stopped.status, stopped.json()["code"]) == (429, "rate_limited")
        assert (await post(relay.port, f"{place}/claim", {"claim": SECRET}, **other)).status == 200


async def test_waiting_for_the_reply_is_no_guess() -> None:
    async with running_relay(settings={"pairing_claims_per_minute": 2}) as relay:
        place = await opened(await enrolled(relay.port))
        assert (await post(relay.port, f"{place}/claim", {"claim": SECRET})).status == 200
        for _ in range(5):
            answer = await post(relay.port, f"{place}/answer", {"claim": SECRET, "message": OFFER})
            assert answer.status == 200


async def test_the_guesses_of_a_neighbour_do_not_stop_whoever_has_claimed() -> None:
    async with running_relay(settings={"pairing_claims_per_minute": 2}) as relay:
        place = await opened(await enrolled(relay.port))
        assert (await post(relay.port, f"{place}/claim", {"claim": SECRET})).status == 200
        guesses = [await post(relay.port, f"{place}/claim", {"claim": OTHER}) for _ in range(2)]
        assert [guess.status for guess in guesses] == [404, 429]
        answer = await post(relay.port, f"{place}/answer", {"claim": SECRET, "message": OFFER})
        assert answer.status == 200


async def test_claims_that_are_sent_slowly_are_no_way_round_the_budget() -> None:
    async with running_relay(settings={"pairing_claims_per_minute": 1}) as relay:
        place = await opened(await enrolled(relay.port))
        body = msgspec.json.encode({"claim": OTHER})
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        head = (
            f"POST {place}/claim HTTP/1.1\r\nHost: 127.0.0.1:{relay.port}\r\n"
            f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
        )
        writer.write(head.encode())
        async with asyncio.timeout(PATIENCE_S):
            # Its head was read, and passed.
            assert b"100" in await reader.readuntil(b"\r\n\r\n")
        assert (await post(relay.port, f"{place}/claim", {"claim": SECRET})).status == 200
        writer.write(body)
        async with asyncio.timeout(PATIENCE_S):
            assert b" 429 " in await reader.readline()
        writer.close()


async def test_whoever_waits_and_goes_leaves_nothing_behind() -> None:
    async with running_relay() as relay:
        alice = await enrolled(relay.port)
        routes = relay._routes._pairings
        waiting = asyncio.create_task(alice.ask("GET", f"{await opened(alice)}?wait=50"))
        # Less than it would wait by itself.
        async with asyncio.timeout(40.0):
            while not routes._waiting:  # noqa: ASYNC110
                await asyncio.sleep(0)
            waiting.cancel()
            while routes._waiting:  # noqa: ASYNC110
                await asyncio.sleep(0)


async def test_a_later_request_takes_the_place_of_one_that_waits() -> None:
    async with running_relay() as relay:
        alice = await enrolled(relay.port)
        place = await opened(alice)
        first = asyncio.create_task(alice.ask("GET", f"{place}?wait=50"))
        second = asyncio.create_task(alice.ask("GET", f"{place}?wait=50"))
        async with asyncio.timeout(PATIENCE_S):
            done, waiting = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == len(waiting) == 1
        assert done.pop().result().json()["state"] == "open"
        assert (await alice.ask("DELETE", place)).json()["state"] == "void"
        async with asyncio.timeout(PATIENCE_S):
            assert (await waiting.pop()).json()["state"] == "void"


async def test_a_relay_that_stops_answers_whoever_waits_for_the_other_side() -> None:
    async with running_relay() as relay:
        alice = await enrolled(relay.port)
        waiting = asyncio.create_task(alice.ask("GET", f"{await opened(alice)}?wait=50"))
        routes = relay._routes._pairings
        async with asyncio.timeout(PATIENCE_S):
            while not routes._waiting:  # noqa: ASYNC110
                await asyncio.sleep(0)
        await relay.stop()
        assert (await waiting).json()["state"] == "open"


async def test_a_pairing_is_in_memory_alone(tmp_path: Path) -> None:
    path = tmp_path / "relay.db"
    alice = Owner(handle="alice", port=0)
    async with running_relay(db=path) as relay:
        alice.port = relay.port
        assert (await alice.publish()).status == 201
        place = await opened(alice)
        assert (await post(relay.port, f"{place}/claim", {"claim": SECRET})).status == 200
        for file in tmp_path.iterdir():
            assert OFFER.encode() not in file.read_bytes()
            assert SECRET.encode() not in file.read_bytes()
    async with running_relay(db=path) as relay:
        alice.port = relay.port
        assert (await alice.ask("GET", place)).status == 404


async def test_a_removed_identity_meets_nobody_any_more() -> None:
    async with running_relay() as relay:
        alice = await enrolled(relay.port)
        place = await opened(alice)
        assert (await alice.ask("DELETE", "/v1/handles/alice")).status == 200
        assert (await post(relay.port, f"{place}/claim", {"claim": SECRET})).status == 404


async def test_only_the_enrolled_make_pairings() -> None:
    async with running_relay() as relay:
        answer = await post(relay.port, "/v1/pairings", {"message": OFFER})
        assert answer.status == 401
