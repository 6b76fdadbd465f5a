"""Invites as text: what is written is read, and nothing else is."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringline.protocol.errors import InviteError, ProtocolError, WeakKey
from ringline.protocol.invite import INVITE_PREFIX, Invite, _checksum, _to_text
from ringline.protocol.signing import SigningKey
from ringline.protocol.transcript import vec

IPK = SigningKey(bytes(range(32))).public
OTHER = SigningKey(bytes(32)).public
PAIRING = bytes(range(16))
SECRET = "AAAAAAAAAAA.BBBBBBBBBBBBBBBBBBBBBB"
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

handles = st.from_regex(r"[a-z0-9][a-z0-9-]{1,30}", fullmatch=True)
realms = st.from_regex(r"[a-z0-9.-]{1,40}", fullmatch=True)
secrets = st.from_regex(r"[A-Za-z0-9._~-]{16,60}", fullmatch=True)
places = st.none() | st.sampled_from(
    ["http://127.0.0.1:7575", "https://calls.example/ring", "http://[::1]:1"]
)


def bobs(**members: Any) -> Invite:
    """Return an invite of bob's."""
    values: dict[str, Any] = {
        "realm": "relay.example",
        "secret": SECRET,
        "inviter": "bob",
        "ipk": IPK,
        "pairing": PAIRING,
    }
    return Invite(**(values | members))


@given(
    realm=realms,
    secret=secrets,
    at=places,
    handle=st.none() | handles,
    inviter=st.none() | handles,
    log=st.none() | st.just(OTHER),
)
def test_what_is_written_is_read(
    realm: str, secret: str, at: str | None, handle: str | None, inviter: str | None, log: bytes | None
) -> None:
    keys: dict[str, Any] = {"inviter": inviter, "ipk": IPK, "pairing": PAIRING} if inviter else {}
    invite = Invite(realm=realm, secret=secret, at=at, handle=handle, log=log, **keys)
    text = invite.format()
    assert text.startswith(INVITE_PREFIX)
    assert set(text) <= set(ALPHABET) | set(INVITE_PREFIX)
    assert Invite.parse(text) == invite


def test_a_place_that_goes_without_saying_is_not_written() -> None:
    plain, spelt = bobs(), bobs(at="https://relay.example")
    assert spelt.format() == plain.format()
    assert Invite.parse(spelt.format()).base_url == "https://relay.example"


def test_an_invite_is_a_line_for_a_chat() -> None:
    assert len(bobs(at="https://calls.relay.example", log=OTHER).format()) < 310


@given(data=st.data())
def test_every_slip_of_a_character_is_caught(data: st.DataObject) -> None:
    text = bobs().format()
    place = data.draw(st.integers(0, len(text) - 1))
    char = data.draw(st.sampled_from([char for char in ALPHABET + "ilou -A\n" if char != text[place]]))
    for damaged in (
        text[:place] + char + text[place + 1 :],
        text[:place] + text[place + 1 :],
        text[:place] + char + text[place:],
    ):
        if damaged != text:
            with pytest.raises(InviteError):
                Invite.parse(damaged)


def test_neighbours_that_change_places_are_caught() -> None:
    text = bobs().format()
    for place in range(len(text) - 1):
        swapped = text[:place] + text[place + 1] + text[place] + text[place + 2 :]
        if swapped != text:
            with pytest.raises(InviteError):
                Invite.parse(swapped)


@given(text=st.text(max_size=300) | st.text(ALPHABET, max_size=300).map(lambda tail: INVITE_PREFIX + tail))
def test_rubbish_is_a_clear_error(text: str) -> None:
    with pytest.raises(InviteError) as caught:
        Invite.parse(text)
    assert caught.value.next_step


@given(body=st.binary(max_size=200))
def test_rubbish_with_a_right_checksum_is_a_clear_error(body: bytes) -> None:
    with pytest.raises((ProtocolError, WeakKey)):
        Invite.parse(INVITE_PREFIX + _to_text(body + _checksum(body)))


def test_what_goes_without_saying_must_not_be_said() -> None:
    """One invite has one spelling, so that nobody can be shown two that seem different."""
    fields = ("https://relay.example", "relay.example", SECRET, "", "bob")
    body = b"".join(vec(part.encode()) for part in fields) + IPK + PAIRING
    with pytest.raises(InviteError, match="another way"):
        Invite.parse(INVITE_PREFIX + _to_text(body + _checksum(body)))
    body = b"".join(vec(part.encode()) for part in ("", *fields[1:])) + IPK + PAIRING
    assert Invite.parse(INVITE_PREFIX + _to_text(body + _checksum(body))) == bobs()


@pytest.mark.parametrize(
    "change",
    [
        {"realm": "RELAY"},
        {"realm": ""},
        {"secret": "short"},
        {"secret": "with space and more"},
        {"secret": "x" * 129},
        {"at": "ftp://relay.example"},
        {"at": "https://relay.example/"},
        {"at": "https://user@relay.example"},
        {"at": "https://relay.example?x=1"},
        {"inviter": "Bob"},
        {"inviter": None},
        {"ipk": None},
        {"ipk": IPK[:-1]},
        {"pairing": None},
        {"pairing": bytes(15)},
        {"handle": "-x"},
        {"log": OTHER[:-1]},
        {"log": b""},
    ],
)
def test_fields_have_their_patterns(change: dict[str, Any]) -> None:
    with pytest.raises(InviteError):
        dataclasses.replace(bobs(), **change)


@pytest.mark.parametrize("member", ["ipk", "log"])
def test_a_weak_key_is_refused(member: str) -> None:
    """Here and on reading one that somebody else wrote."""
    weak = b"\x01" + bytes(31)
    with pytest.raises(WeakKey):
        bobs(**{member: weak})
    keys = {"ipk": IPK, "log": OTHER} | {member: weak}
    body = b"".join(vec(part.encode()) for part in ("", "relay.example", SECRET, "", "bob"))
    body += keys["ipk"] + PAIRING + keys["log"]
    with pytest.raises(WeakKey):
        Invite.parse(INVITE_PREFIX + _to_text(body + _checksum(body)))


@pytest.mark.parametrize("extra", [b"\x00", OTHER[:-1], OTHER + b"\x00"])
def test_what_is_behind_the_fields_is_a_whole_key_or_nothing(extra: bytes) -> None:
    body = b"".join(vec(part.encode()) for part in ("", "relay.example", SECRET, "", "bob"))
    body += IPK + PAIRING + extra
    with pytest.raises(InviteError):
        Invite.parse(INVITE_PREFIX + _to_text(body + _checksum(body)))


def test_no_error_and_no_repr_shows_a_secret() -> None:
    text = bobs().format()
    with pytest.raises(InviteError) as caught:
        Invite.parse(text[:-1] + ("0" if text[-1] != "0" else "1"))
    assert text[4:40] not in f"{caught.value!r} {caught.value} {caught.value.next_step}"
    assert SECRET not in repr(bobs())
    assert repr(PAIRING) not in repr(bobs())


def test_a_proof_binds_both_identities_and_the_secret() -> None:
    proof = bobs().prove("alice", OTHER)
    assert proof is not None
    assert len(proof) == 43
    others = {
        bobs(pairing=bytes(16)).prove("alice", OTHER),
        bobs(ipk=OTHER).prove("alice", OTHER),
        bobs(inviter="bobby").prove("alice", OTHER),
        bobs(realm="other.example").prove("alice", OTHER),
        bobs().prove("alicia", OTHER),
        bobs().prove("alice", IPK),
    }
    assert len(others | {proof}) == 7
    # It does not depend on what the relay knows, nor on where it is reached.
    assert bobs(secret="C" * 34, at="http://127.0.0.1:1").prove("alice", OTHER) == proof
    assert Invite(realm="relay.example", secret=SECRET).prove("alice", OTHER) is None
