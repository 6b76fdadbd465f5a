"""Invites as they are handed over, and what proves to an inviter who took his up."""

from collections.abc import Iterator
from dataclasses import replace

from ringline.protocol.invite import INVITE_PREFIX, PAIRING_BYTES, Invite
from ringline.protocol.signing import SigningKey
from vectors.vector import REALM, Json, Party, Vector, accepted, refused, seed

__all__ = ["vectors"]

_SECRET = "inv1.a-secret-of-the-relay"


def _fields(invite: Invite) -> Json:
    return {
        "realm": invite.realm,
        "base_url": invite.base_url,
        "secret": invite.secret,
        "handle": invite.handle,
        "inviter": invite.inviter,
        "ipk": None if invite.ipk is None else invite.ipk.hex(),
        "pairing": None if invite.pairing is None else invite.pairing.hex(),
        "log": None if invite.log is None else invite.log.hex(),
    }


def vectors() -> Iterator[Vector]:
    """Yield the vectors of this kind."""
    alice, bob = Party("alice"), Party("bob")
    pairing = seed("pairing")[:PAIRING_BYTES]
    log = SigningKey(seed("log")).public
    whole = Invite(realm=REALM, secret=_SECRET, inviter="alice", ipk=alice.identity.public, pairing=pairing)
    made = {
        "whole": ("an invite of another identity", whole),
        "operator": (
            "an invite of the operator, for one handle",
            Invite(realm=REALM, secret=_SECRET, handle="bob"),
        ),
        "log": (
            "an invite that names the key of the relay's key log",
            replace(whole, log=log),
        ),
        "operator_log": (
            "an invite of the operator that names the key of his key log",
            Invite(realm=REALM, secret=_SECRET, handle="bob", log=log),
        ),
        "at": (
            "a realm that is reached elsewhere",
            Invite(realm=REALM, secret=_SECRET, at="https://calls.example"),
        ),
    }
    good: dict[str, Vector] = {}
    for name, (says, invite) in made.items():
        good[name] = accepted(
            f"invite.{name}", "invite.read", says, {"text": invite.format()}, _fields(invite), "RL-KEYS-055"
        )
        yield good[name]
    text = whole.format()
    last = text[-1]
    for name, says, mutated, layer in (
        ("other_prefix", "another version", f"rli2{text[len(INVITE_PREFIX) :]}", "form"),
        ("upper_case", "capitals", text.upper(), "form"),
        ("unknown_letter", "a letter that invites have not", f"{text[:10]}u{text[11:]}", "form"),
        ("space", "a space", f"{text[:10]} {text[10:]}", "form"),
        ("line_feed", "a line feed behind", f"{text}\n", "form"),
        ("slip", "one character for another", f"{text[:10]}{'23'[text[10] == '2']}{text[11:]}", "form"),
        ("swapped", "two halves swapped", f"{INVITE_PREFIX}{text[60:]}{text[4:60]}", "form"),
        ("cut_short", "a character less", text[:-1], "form"),
        ("character_more", "a character more", f"{text}0", "form"),
        ("spare_bit", "a bit behind the last byte", f"{text[:-1]}{'01'[last == '0']}", "form"),
    ):
        yield refused(f"invite.{name}", good["whole"], says, {"text": mutated}, layer, "RL-KEYS-055")
    for guest in (bob, alice):
        key = guest.identity.public
        yield accepted(
            f"invite.proof_of_{guest.handle}",
            "invite.prove",
            "what the holder of the invite sends behind the secret and a colon",
            {"text": text, "handle": guest.handle, "ipk": key.hex()},
            {"proof": whole.prove(guest.handle, key)},
            "RL-KEYS-057",
        )
