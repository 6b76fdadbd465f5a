"""Contact strings carry the key, and are read strictly."""

import dataclasses
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringline.protocol.contact import Contact
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import ContactError, RinglineError, WeakKey
from ringline_testing.agents import agent

IPK = agent("bob").identity.public
KEY = b64encode(IPK)
AT = "https://calls.relay.example:8443/ringline"

handles = st.from_regex(r"[a-z0-9][a-z0-9-]{1,30}", fullmatch=True)
realms = st.from_regex(r"[a-z0-9.-]{1,253}", fullmatch=True)
places = st.one_of(
    st.none(),
    st.sampled_from(["http://127.0.0.1:7575", "http://[::1]:7575", AT]),
    st.from_regex(r"https?://[a-z0-9.-]{1,40}(:[0-9]{1,5})?(/[A-Za-z0-9._~-]{1,9}){0,3}", fullmatch=True),
)


@given(handle=handles, realm=realms, at=places)
def test_every_contact_is_read_back(handle: str, realm: str, at: str | None) -> None:
    contact = Contact(handle=handle, realm=realm, ipk=IPK, at=at)
    read = Contact.parse(contact.format())
    assert (read.handle, read.realm, read.ipk, read.base_url) == (handle, realm, IPK, contact.base_url)
    assert read.format() == contact.format()


def test_the_string_is_that_of_the_design() -> None:
    plain = Contact(handle="bob", realm="relay.example", ipk=IPK)
    assert plain.format() == f"ringline://bob@relay.example/#k={KEY}"
    assert plain.base_url == "https://relay.example"
    moved = Contact(handle="bob", realm="relay.example", ipk=IPK, at=AT)
    assert moved.format() == f"ringline://bob@relay.example/?at={AT}#k={KEY}"
    assert moved.base_url == AT


def test_an_address_that_goes_without_saying_is_left_out() -> None:
    contact = Contact(handle="bob", realm="relay.example", ipk=IPK, at="https://relay.example")
    assert "at=" not in contact.format()


def test_an_escaped_address_is_read() -> None:
    read = Contact.parse(f"ringline://bob@relay.example/?at={quote(AT, safe='')}#k={KEY}")
    assert read.at == AT


def test_the_key_of_the_relays_log_may_come_along() -> None:
    contact = Contact(handle="bob", realm="relay.example", ipk=IPK, at=AT, log=IPK)
    assert contact.format() == f"ringline://bob@relay.example/?at={AT}#k={KEY}&log={KEY}"
    assert Contact.parse(contact.format()) == contact
    with pytest.raises(WeakKey):
        Contact.parse(f"ringline://bob@relay.example/#k={KEY}&log={b64encode(bytes(32))}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bob",
        f"ringline://bob@relay.example#k={KEY}",
        f"ringline://bob@relay.example/#k={KEY}\n",
        f" ringline://bob@relay.example/#k={KEY}",
        f"Ringline://bob@relay.example/#k={KEY}",
        f"https://bob@relay.example/#k={KEY}",
        f"ringline://Bob@relay.example/#k={KEY}",
        f"ringline://bob@relay.example:443/#k={KEY}",
        f"ringline://bob@relay.example/path#k={KEY}",
        f"ringline://bob@@relay.example/#k={KEY}",
        f"ringline://bob@relay_example/#k={KEY}",
        "ringline://bob@relay.example/",
        "ringline://bob@relay.example/#k=",
        f"ringline://bob@relay.example/#k={KEY}=",
        f"ringline://bob@relay.example/#k={KEY[:-1]}",
        f"ringline://bob@relay.example/#k={KEY}&x=1",
        f"ringline://bob@relay.example/#k={KEY}&log=",
        f"ringline://bob@relay.example/#k={KEY}&log={KEY}&log={KEY}",
        f"ringline://bob@relay.example/#k={KEY}&log={KEY[:-1]}",
        f"ringline://bob@relay.example/#log={KEY}&k={KEY}",
        f"ringline://bob@relay.example/?at=#k={KEY}",
        f"ringline://bob@relay.example/?at=relay.example#k={KEY}",
        f"ringline://bob@relay.example/?at=ftp://relay.example#k={KEY}",
        f"ringline://bob@relay.example/?at=https://user@relay.example#k={KEY}",
        f"ringline://bob@relay.example/?at=https://relay.example/#k={KEY}",
        f"ringline://bob@relay.example/?at=https%3A//relay.example%0A#k={KEY}",
        f"ringline://bob@relay.example/?at=https%253A//relay.example#k={KEY}",
        f"ringline://bob@relay.example/?at={AT}&at={AT}#k={KEY}",
        f"ringline://bob@relay.example/?x=1#k={KEY}",
        f"ringline://bob@relay.example/?at=https://{'a' * 2048}#k={KEY}",
    ],
)
def test_anything_else_is_refused_with_the_next_step(text: str) -> None:
    with pytest.raises(ContactError) as caught:
        Contact.parse(text)
    assert caught.value.next_step


@pytest.mark.parametrize("weak", [bytes(32), b"\x01" + bytes(31)])
def test_a_weak_key_is_refused(weak: bytes) -> None:
    with pytest.raises(WeakKey):
        Contact.parse(f"ringline://bob@relay.example/#k={b64encode(weak)}")


@pytest.mark.parametrize("change", [{"handle": "B"}, {"realm": ""}, {"at": "https://a b"}], ids=str)
def test_a_malformed_contact_is_not_made(change: dict[str, Any]) -> None:
    with pytest.raises(ContactError):
        dataclasses.replace(Contact(handle="bob", realm="relay.example", ipk=IPK), **change)


fragments = st.sampled_from(
    ["ringline://", "bob", "@", "relay.example", "/", "?at=", AT, "#k=", KEY, "%41", "é", "\n"]
)


@given(text=st.one_of(st.text(max_size=100), st.lists(fragments, max_size=10).map("".join)))
@settings(max_examples=200)
def test_garbage_raises_nothing_but_our_own_errors(text: str) -> None:
    try:
        read = Contact.parse(text)
    except RinglineError:
        return
    assert Contact.parse(read.format()) == read
