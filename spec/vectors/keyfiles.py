"""Key files, plain and locked. Costs are the lowest that a reader takes, so that reading them is quick."""

from collections.abc import Iterator

import nacl.bindings

from ringline.protocol import keyfile
from ringline.protocol.encoding import b64encode
from vectors.vector import NOW, REALM, Json, Party, Vector, accepted, refused, seed

__all__ = ["vectors"]

_PASSPHRASE = "correct horse battery staple é"
_PASSES, _MEMORY_KIB = 1, 8_192


def _locked(plain: str, *, nonce: str = "nonce", passphrase: str = _PASSPHRASE) -> str:
    """Lock the keys of a plain file, as the format says and with fixed salt and nonce."""
    salt, nonce_bytes = seed("salt")[:16], seed(nonce)[:24]
    header = (
        f"ringline-key v1 argon2id t={_PASSES} m={_MEMORY_KIB} p=1 "
        f"salt={b64encode(salt)} nonce={b64encode(nonce_bytes)}\n"
    )
    key = nacl.bindings.crypto_pwhash_alg(
        32,
        passphrase.encode(),
        salt,
        _PASSES,
        _MEMORY_KIB * 1_024,
        nacl.bindings.crypto_pwhash_ALG_ARGON2ID13,
    )
    lines = plain.partition("ringline-key v1 plain\n")[2]
    sealed = nacl.bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
        lines.encode(), header.encode(), nonce_bytes, key
    )
    return f"{header}{b64encode(sealed)}\n"


def vectors() -> Iterator[Vector]:
    """Yield the vectors of this kind."""
    alice = Party("alice")
    agent = keyfile.AgentKeys(alice.operational.seed, alice.signed_card, alice.chain)
    plain = keyfile.format_plain(agent, handle="alice", realm=REALM, created_ms=NOW)
    agent_output: Json = {
        "kind": "agent",
        "operational": agent.seed.hex(),
        **alice.shown_card(),
        "epoch": agent.chain.epoch,
        "link": agent.chain.link.hex(),
    }
    good = accepted(
        "keyfile.agent",
        "keyfile.read",
        "an agent's keys, not locked",
        {"text": plain},
        agent_output,
        "RL-KEYS-053",
    )
    yield good
    identity = keyfile.IdentityKeys(alice.identity.seed, alice.next.seed)
    yield accepted(
        "keyfile.identity",
        "keyfile.read",
        "an identity's keys",
        {"text": keyfile.format_plain(identity, handle="alice", realm=REALM, created_ms=NOW)},
        {"kind": "identity", "identity": identity.seed.hex(), "next": alice.next.seed.hex()},
        "RL-KEYS-053",
    )
    yield accepted(
        "keyfile.bare",
        "keyfile.read",
        "no comments, and lines that end as on Windows",
        {"text": f"ringline-key v1 plain\r\nidentity {b64encode(identity.seed)}\r\n"},
        {"kind": "identity", "identity": identity.seed.hex(), "next": None},
        "RL-KEYS-053",
    )
    text = _locked(plain)
    locked = accepted(
        "keyfile.locked",
        "keyfile.read",
        "an agent's keys, locked",
        {"text": text, "passphrase": _PASSPHRASE},
        agent_output,
        "RL-KEYS-050",
    )
    yield locked
    for name, says, mutated in (
        ("other_version", "a later version", plain.replace("ringline-key v1", "ringline-key v2")),
        ("no_header", "no header line", plain.replace("ringline-key v1 plain\n", "")),
        ("line_more", "a line that is not there", f"{plain}colour green\n"),
        ("line_missing", "no chain", plain.partition("chain ")[0]),
        (
            "line_twice",
            "a line twice",
            plain.replace("operational ", f"operational {b64encode(agent.seed)}\noperational "),
        ),
        (
            "short_seed",
            "a seed that is cut short",
            plain.replace(b64encode(agent.seed), b64encode(agent.seed)[:-1]),
        ),
        (
            "other_key",
            "a card of another operational key",
            plain.replace(b64encode(agent.seed), b64encode(seed("x"))),
        ),
        ("epoch_leading_zero", "an epoch with a zero in front", plain.replace("chain ", "chain 0")),
        ("two_spaces", "two spaces", plain.replace("chain ", "chain  ")),
        ("empty", "nothing", ""),
    ):
        yield refused(f"keyfile.{name}", good, says, {"text": mutated}, "form", "RL-KEYS-053")
    high, huge = text.replace("t=1 ", "t=17 "), text.replace(f"m={_MEMORY_KIB} ", "m=1048577 ")
    low, none = text.replace(f"m={_MEMORY_KIB} ", "m=8191 "), text.replace("t=1 ", "t=0 ")
    for name, says, mutated in (
        ("too_many_passes", "17 passes", high),
        ("too_few_passes", "no pass", none),
        ("too_much_memory", "a KiB more than 1 GiB", huge),
        ("too_little_memory", "a KiB less than 8 MiB", low),
    ):
        given = locked.input | {"text": mutated}
        yield refused(f"keyfile.{name}", locked, says, given, "cost", "RL-KEYS-049")
    body = text.split("\n")[1]
    flipped = f"{'AB'[body[0] == 'A']}{body[1:]}"
    for name, says, given in (
        ("wrong_passphrase", "another passphrase", locked.input | {"passphrase": "correct horse battery"}),
        (
            "flipped_ciphertext",
            "one character of the ciphertext",
            locked.input | {"text": text.replace(body, flipped)},
        ),
        (
            "header_changed",
            "a header that was not locked in",
            locked.input | {"text": text.replace("t=1 ", "t=2 ")},
        ),
        (
            "other_nonce",
            "another nonce",
            locked.input
            | {"text": text.replace(b64encode(seed("nonce")[:24]), b64encode(seed("other")[:24]))},
        ),
    ):
        yield refused(f"keyfile.{name}", locked, says, given, "lock", "RL-KEYS-053")
