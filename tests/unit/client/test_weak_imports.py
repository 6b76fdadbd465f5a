"""A weak key is refused wherever one comes in: under it, anybody can sign."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from ringline.client import Account, Contacts, Home, KeyLog, RelayAddress, RelayClock, RelayHttp
from ringline.client.contacts import Pin
from ringline.client.generation import parse_agent_keys
from ringline.client.logaudit import LogAudit
from ringline.client.recovery import read_export
from ringline.client.trust import read_card, read_keys
from ringline.protocol import shapes
from ringline.protocol.contact import Contact
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import ConfigError, HttpProblem, LogForked, TrustError, WeakKey
from ringline.protocol.identity import Card, SignedCard
from ringline.protocol.instant import Instant
from ringline.protocol.keyfile import AgentKeys, format_plain
from ringline.protocol.logentry import encode_entry
from ringline.protocol.prekeys import Chain
from ringline.protocol.signing import SigningKey
from ringline.relay.publication import read_publication
from ringline_testing.relay import running_relay
from ringline_testing.signed import Owner, now_ms
from ringline_testing.weak_keys import NEUTRAL, NEUTRAL_SIGNATURE, ORDER_8, mixed_order

HONEST = SigningKey(bytes(range(32)))
WEAK = {"neutral": NEUTRAL, "order 8": ORDER_8, "mixed": mixed_order(HONEST.public), "zeros": bytes(32)}
REALM = "relay.example"

OWNER = SigningKey(bytes(reversed(range(32))))

weak_keys = pytest.mark.parametrize("weak", WEAK.values(), ids=WEAK)
roles = pytest.mark.parametrize("role", ["ipk", "spk"])


def owner() -> Owner:
    return Owner(handle="bob", port=0, realm=REALM)


CARD = replace(owner().card.card, ipk=OWNER.public)


def with_weak(card: Card, role: str, weak: bytes) -> SignedCard:
    """Return a card that has a weak key in one role, signed as well as that can be."""
    if role == "ipk":
        # Many libraries take this signature under the neutral point, whatever was signed.
        return SignedCard(replace(card, ipk=weak), NEUTRAL_SIGNATURE)
    return SignedCard.sign(replace(card, spk=weak), OWNER)


@weak_keys
@roles
def test_on_a_card_that_the_relay_shows(role: str, weak: bytes) -> None:
    signed = with_weak(CARD, role, weak)
    card, signature = b64encode(signed.card.encode()), b64encode(signed.signature)
    with pytest.raises(TrustError) as caught:
        read_card(REALM, "bob", card, signature)
    assert isinstance(caught.value.__cause__, WeakKey)
    published = owner().publication()
    keys = shapes.Keys(
        handle="bob",
        card=card,
        card_sig=signature,
        prekey=published["prekey"],
        prekey_sig=published["prekey_sig"],
        revoked=[],
    )
    with pytest.raises(TrustError) as caught:
        read_keys(REALM, "bob", keys)
    assert isinstance(caught.value.__cause__, WeakKey)


@weak_keys
@roles
def test_on_a_card_that_is_published(role: str, weak: bytes) -> None:
    signed = with_weak(CARD, role, weak)
    body = owner().publication() | {
        "card": b64encode(signed.card.encode()),
        "card_sig": b64encode(signed.signature),
    }
    with pytest.raises(HttpProblem) as caught:
        read_publication(msgspec.convert(body, shapes.KeysPublication), realm=REALM, now=Instant(now_ms(), 0))
    assert caught.value.code == "malformed"
    assert "prime-order" in str(caught.value)


@weak_keys
def test_as_the_heir_of_an_identity(weak: bytes) -> None:
    """At the relay; what a client makes of one is with the statements."""
    heir = owner().succeeded(SigningKey(bytes(32)), old_signs=True)
    body = heir.publication()
    body["succession"] = body["succession"] | {"new_ipk": b64encode(weak)}
    with pytest.raises(HttpProblem) as caught:
        read_publication(msgspec.convert(body, shapes.KeysPublication), realm=REALM, now=Instant(now_ms(), 0))
    assert caught.value.code == "malformed"
    assert "prime-order" in str(caught.value)


@weak_keys
@roles
def test_in_the_key_log(role: str, weak: bytes) -> None:
    audit = LogAudit(REALM)
    (fault,) = audit.read(0, encode_entry(with_weak(replace(CARD, serial=1), role, weak)))
    assert "prime-order" in fault


@weak_keys
@pytest.mark.parametrize("member", ["k", "log"])
def test_in_a_contact_string(member: str, weak: bytes) -> None:
    keys = {"k": b64encode(HONEST.public), "log": b64encode(OWNER.public)} | {member: b64encode(weak)}
    with pytest.raises(WeakKey):
        Contact.parse(f"ringline://bob@{REALM}/#k={keys['k']}&log={keys['log']}")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def contacts_with(home: Home, change: Callable[[str], str]) -> Contacts:
    """Return the contacts after somebody has written into their file."""
    address = RelayAddress.parse(f"https://{REALM}")
    contacts = Contacts(home, home.contacts_file(address))
    card = SignedCard.sign(CARD, OWNER)
    pin = Pin(realm=REALM, handle="bob", ipk=OWNER.public, source="tofu", first_seen=1, card=card)
    contacts.update(REALM, "bob", lambda before: pin)
    path = home.contacts_file(address)
    before = path.read_text()
    after = change(before)
    assert after != before
    path.write_text(after)
    return Contacts(home, path)


@weak_keys
def test_in_the_file_of_contacts(home: Home, weak: bytes) -> None:
    key = b64encode(OWNER.public)
    contacts = contacts_with(home, lambda text: text.replace(f'"{key}"', f'"{b64encode(weak)}"'))
    with pytest.raises(ConfigError, match="does not hold"):
        contacts.pins()


@weak_keys
@roles
def test_on_a_card_in_the_file_of_contacts(home: Home, role: str, weak: bytes) -> None:
    honest, forged = SignedCard.sign(CARD, OWNER), with_weak(CARD, role, weak)

    def change(text: str) -> str:
        text = text.replace(b64encode(honest.card.encode()), b64encode(forged.card.encode()))
        return text.replace(b64encode(honest.signature), b64encode(forged.signature))

    with pytest.raises(ConfigError, match="does not hold"):
        contacts_with(home, change).pins()


@weak_keys
def test_in_a_key_file_and_in_a_recovery_file(tmp_path: Path, weak: bytes) -> None:
    operational = SigningKey.generate()
    card = with_weak(replace(CARD, spk=operational.public), "ipk", weak)
    keys = AgentKeys(operational.seed, card, Chain.start(20_000))
    text = format_plain(keys, handle="bob", realm=REALM, created_ms=1)
    path = tmp_path / "agent.key"
    with pytest.raises(ConfigError):
        parse_agent_keys(path, text, None)
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError):
        read_export(path, None)
    # The same file with an honest card is read: it is the key that is refused.
    honest = AgentKeys(
        operational.seed,
        SignedCard.sign(replace(CARD, spk=operational.public), OWNER),
        Chain.start(20_000),
    )
    path.write_text(format_plain(honest, handle="bob", realm=REALM, created_ms=1))
    assert read_export(path, None).card == honest.card


@pytest.fixture
async def http(home: Home) -> AsyncGenerator[RelayHttp]:
    async with running_relay() as relay:
        address = RelayAddress.parse(relay.url)
        account = Account.create(home, address, "alice", now_ms(), plain=True)
        yield RelayHttp(address, account, RelayClock())


@weak_keys
async def test_as_the_key_of_a_relays_log(home: Home, http: RelayHttp, weak: bytes) -> None:
    info = msgspec.structs.replace(await http.info(), features=["keylog"], log_key=b64encode(weak))
    log = KeyLog(home, http, http.clock)
    with pytest.raises(LogForked, match="must not be used"):
        await log.greet(info)
    # Nor is it kept as the one that is known from now on.
    right = msgspec.structs.replace(info, log_key=b64encode(HONEST.public))
    await log.greet(right)
    assert log.history is not None
    assert log.history.key.public == HONEST.public
    log.close()
