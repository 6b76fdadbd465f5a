"""Keys as people compare them, and contact strings that carry one."""

from collections.abc import Iterator

from ringline.protocol.contact import Contact
from ringline.protocol.encoding import b64encode
from ringline.protocol.fingerprint import fingerprint, safety_number
from ringline.protocol.signing import SigningKey
from vectors.vector import REALM, Party, Vector, accepted, refused, seed

__all__ = ["vectors"]


def vectors() -> Iterator[Vector]:
    """Yield the vectors of this kind."""
    alice, bob = Party("alice"), Party("bob")
    for party in (alice, bob, Party("mallory")):
        key = party.identity.public
        yield accepted(
            f"fingerprint.{party.handle}",
            "fingerprint",
            "one key",
            {"ipk": key.hex()},
            {"text": fingerprint(key)},
            "RL-KEYS-048",
        )
    for one, other in ((alice, bob), (bob, alice), (alice, alice)):
        pair = {
            "handle": one.handle,
            "ipk": one.identity.public.hex(),
            "peer_handle": other.handle,
            "peer_ipk": other.identity.public.hex(),
        }
        number = safety_number(one.handle, one.identity.public, other.handle, other.identity.public)
        yield accepted(
            f"safety.{one.handle}_{other.handle}",
            "safety_number",
            "a pair of identities; who is asked does not matter",
            pair,
            {"text": number},
            "RL-KEYS-048",
        )
    yield from _contacts(bob)


def _contacts(bob: Party) -> Iterator[Vector]:
    key = bob.identity.public
    plain = Contact(handle="bob", realm=REALM, ipk=key)
    at = Contact(handle="bob", realm=REALM, ipk=key, at="https://calls.example:8443/ring")
    fields = {"handle": "bob", "realm": REALM, "ipk": key.hex()}
    first = accepted(
        "contact.plain",
        "contact.read",
        "a realm that is reached at its own name",
        {"text": plain.format()},
        fields | {"base_url": f"https://{REALM}", "log": None},
        "RL-KEYS-046",
    )
    yield first
    yield accepted(
        "contact.at",
        "contact.read",
        "a realm that is reached elsewhere",
        {"text": at.format()},
        fields | {"base_url": "https://calls.example:8443/ring", "log": None},
        "RL-KEYS-046",
    )
    log = SigningKey(seed("log")).public
    yield accepted(
        "contact.log",
        "contact.read",
        "with the key of the relay's log",
        {"text": Contact(handle="bob", realm=REALM, ipk=key, log=log).format()},
        fields | {"base_url": f"https://{REALM}", "log": log.hex()},
        "RL-KEYS-046",
    )
    text, weak = plain.format(), b64encode(b"\x01" + bytes(31))
    for name, says, mutated, layer in (
        ("other_scheme", "another scheme", text.replace("ringline:", "https:"), "form"),
        ("no_key", "no key", text.partition("#")[0], "form"),
        ("more_behind", "something behind the key", f"{text}&x=1", "form"),
        ("line_feed", "a line feed behind", f"{text}\n", "key"),
        ("unknown_parameter", "a parameter that is not there", text.replace("/#", "/?via=x#"), "form"),
        ("bad_handle", "a handle that is none", text.replace("bob@", "Bob@"), "name"),
        ("bad_realm", "a realm with a port", text.replace(REALM, f"{REALM}:443"), "name"),
        ("short_key", "a key that is cut short", text[:-1], "key"),
        ("padded_key", "a key with padding", f"{text}=", "key"),
        ("weak_key", "the identity point as key", text[:-43] + weak, "key"),
        ("empty_log", "no key of the log where one is announced", f"{text}&log=", "key"),
        (
            "weak_log",
            "the identity point as key of the log",
            f"{text}&log={weak}",
            "key",
        ),
        ("bad_at", "an address that is none", text.replace("/#", "/?at=javascript:x#"), "name"),
    ):
        yield refused(f"contact.{name}", first, says, {"text": mutated}, layer, "RL-KEYS-046")
