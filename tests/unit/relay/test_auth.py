"""Log-in, asked directly: each way in which a token can be wrong, and what is used up by it."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from ringline.protocol.instant import Instant
from ringline.protocol.limits import CARD_LOGIN_GRACE_MS, TOKENS_LIVE
from ringline.protocol.signing import SigningKey
from ringline.relay.auth import Authenticator, Login, TokenMemory
from ringline.relay.directory import Directory
from ringline.relay.store import CardPublished, CardRevoked
from ringline_testing.signed import Owner

START = 1_790_000_000_000
S = START // 1000
NOW = Instant(START, 0)
PATH = "/v1/calls"


def owner(handle: str = "alice") -> Owner:
    """Return an owner whose card begins an hour before `START`."""
    return Owner(handle=handle, port=0, not_before=START - 3_600_000)


class Hall:
    """A directory with one enrolled handle, and the authenticator in front of it."""

    def __init__(self, *, started: int = START - 600_000) -> None:
        self.alice = owner()
        self.directory = Directory("localhost")
        self.enrol(self.alice)
        self.authenticator = Authenticator(self.directory, Instant(started, 0))

    def enrol(self, who: Owner) -> None:
        card = who.card
        self.directory.apply(
            CardPublished(
                handle=who.handle,
                card_id=who.card_id,
                serial=who.serial,
                card=card.card.encode(),
                card_sig=card.signature,
                succession=None,
                at=START,
            )
        )

    def token(self, **changes: Any) -> str:
        arguments: dict[str, Any] = {"method": "GET", "path": PATH, "iat": S}
        return self.alice.token(**(arguments | changes))

    def login(self, token: str | None, now: Instant = NOW, **asked: Any) -> Login | None:
        request = {"method": "GET", "path": PATH} | asked
        header = None if token is None else f"Bearer {token}"
        return self.authenticator.login(header, now=now, **request)


@pytest.fixture
def hall() -> Hall:
    return Hall()


def forged(token: str, part: int, **members: Any) -> str:
    """Return the token with members of its header (0) or payload (1) replaced, the signature left."""
    pieces = token.split(".")
    padded = pieces[part] + "=" * (-len(pieces[part]) % 4)
    content = json.loads(base64.urlsafe_b64decode(padded)) | members
    pieces[part] = base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
    return ".".join(pieces)


def test_a_token_of_the_current_card_logs_in(hall: Hall) -> None:
    assert hall.login(hall.token()) == Login("alice", hall.alice.card_id)


@pytest.mark.parametrize(
    "changes",
    [
        {"realm": "relay.example"},
        {"method": "POST"},
        {"path": "/v1/relay"},
        {"iat": S - 121},
        {"iat": S + 121},
    ],
)
def test_a_token_for_something_else_does_not_log_in(hall: Hall, changes: dict[str, Any]) -> None:
    assert hall.login(hall.token(**changes)) is None


@pytest.mark.parametrize("iat", [S - 120, S + 120])
def test_a_clock_may_be_two_minutes_off(hall: Hall, iat: int) -> None:
    assert hall.login(hall.token(iat=iat)) is not None


def test_the_key_of_the_named_card_must_have_signed(hall: Hall) -> None:
    thief = replace(hall.alice, operational=SigningKey.generate())
    assert hall.login(thief.token("GET", PATH, iat=S, card_id=hall.alice.card.card.id)) is None


def test_the_card_must_be_that_of_the_handle(hall: Hall) -> None:
    bob = owner("bob")
    hall.enrol(bob)
    assert hall.login(hall.token(handle="bob")) is None
    assert hall.login(bob.token("GET", PATH, iat=S, handle="alice")) is None
    assert hall.login(owner("carol").token("GET", PATH, iat=S)) is None


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic YTpi", "Bearer a.b.c", "Bearer  x"])
def test_a_header_without_a_token_does_not_log_in(hall: Hall, header: str | None) -> None:
    assert hall.authenticator.login(header, "GET", PATH, NOW) is None


def test_the_scheme_is_read_in_any_case(hall: Hall) -> None:
    assert hall.authenticator.login(f"bEARER {hall.token()}", "GET", PATH, NOW) is not None


@pytest.mark.parametrize("part", [0, 1])
def test_an_altered_token_does_not_log_in(hall: Hall, part: int) -> None:
    member = {"kid": owner("bob").card_id} if part == 0 else {"iss": "bob"}
    assert hall.login(forged(hall.token(), part, **member)) is None
    assert hall.login(forged(hall.token(), 0, alg="none")) is None
    assert hall.login(hall.token().rsplit(".", 1)[0] + ".") is None


def test_a_jti_counts_once(hall: Hall) -> None:
    token = hall.token()
    assert hall.login(token) is not None
    assert hall.login(token) is None
    assert hall.login(hall.token(jti="x" * 16)) is not None
    assert hall.login(hall.token(jti="x" * 16, iat=S + 1)) is None


def test_only_a_fully_verified_token_uses_up_its_jti(hall: Hall) -> None:
    token = hall.token()
    assert hall.login(token, path="/v1/relay") is None
    assert hall.login(token, method="POST") is None
    assert hall.login(token, Instant(START - 121_000, 0)) is None
    assert hall.login(token, owner="bob") is None
    assert hall.login(token, owner="alice") == Login("alice", hall.alice.card_id)


def test_a_jti_is_remembered_for_180_seconds_after_its_iat(hall: Hall) -> None:
    memory = TokenMemory()
    assert memory.use("alice", "j", S, NOW)
    assert not memory.use("alice", "j", S, NOW.later(180_000))
    assert memory.use("alice", "j", S, NOW.later(180_001))


def test_a_step_of_the_wall_clock_brings_no_token_back(hall: Hall) -> None:
    memory = TokenMemory()
    assert memory.use("alice", "j", S, NOW)
    memory.use("bob", "j", S + 3_600, Instant(START + 3_600_000, 1_000))
    assert not memory.use("alice", "j", S, Instant(START + 2_000, 2_000))
    memory.use("bob", "k", S - 3_600, Instant(START - 3_600_000, 200_000))
    assert not memory.use("alice", "j", S, Instant(START, 3_600_000))


def test_one_identitys_tokens_are_no_others(hall: Hall) -> None:
    memory = TokenMemory()
    assert memory.use("alice", "j", S, NOW)
    assert memory.use("bob", "j", S, NOW)


def test_a_thousand_live_tokens_of_one_identity_are_the_most() -> None:
    memory = TokenMemory()
    for number in range(TOKENS_LIVE):
        assert memory.use("alice", str(number), S + number % 2, NOW)
    assert not memory.use("alice", "one more", S, NOW)
    assert memory.use("bob", "one more", S, NOW)
    # Half of them are over a second earlier.
    assert memory.use("alice", "one more", S, NOW.later(180_001))


def test_a_restarted_relay_refuses_tokens_of_before_the_second_of_its_start() -> None:
    hall = Hall(started=START + 999)
    assert hall.login(hall.token(iat=S - 1)) is None
    assert hall.login(hall.token(iat=S)) is not None


def test_the_card_before_logs_in_for_48_hours_and_a_revoked_one_never(hall: Hall) -> None:
    hall.enrol(hall.alice.renewed(not_before=START))
    end = START + CARD_LOGIN_GRACE_MS
    assert hall.login(hall.token(iat=end // 1000 - 1), Instant(end - 1, 0)) is not None
    assert hall.login(hall.token(iat=end // 1000), Instant(end, 0)) is None
    hall.directory.apply(
        CardRevoked(
            handle="alice",
            card_id=hall.alice.card_id,
            reason=0,
            ts=START,
            by="identity",
            signature=b"",
            next_ipk=None,
            at=START,
        )
    )
    assert hall.login(hall.token()) is None


# --- the token of a publication


def under(hall: Hall, who: Owner, token: str) -> Login | None:
    """Log in under the card in the body."""
    return hall.authenticator.login_under(who.card.card, f"Bearer {token}", "GET", PATH, NOW)


def test_a_publication_is_logged_in_by_the_card_it_brings(hall: Hall) -> None:
    bob = owner("bob")
    assert under(hall, bob, bob.token("GET", PATH, iat=S)) == Login("bob", bob.card_id)
    # The token of an enrolled card does not publish another.
    renewed = hall.alice.renewed()
    assert under(hall, renewed, hall.token()) is None
    assert under(hall, bob, bob.token("GET", PATH, iat=S, handle="alice")) is None


def test_a_token_of_a_publication_is_used_up_too(hall: Hall) -> None:
    bob = owner("bob")
    token = bob.token("GET", PATH, iat=S)
    assert under(hall, bob, token) is not None
    assert under(hall, bob, token) is None


def test_a_revoked_card_publishes_nothing(hall: Hall) -> None:
    hall.directory.apply(
        CardRevoked(
            handle="alice",
            card_id=hall.alice.card_id,
            reason=0,
            ts=START,
            by="identity",
            signature=b"",
            next_ipk=None,
            at=START,
        )
    )
    assert under(hall, hall.alice, hall.token()) is None
