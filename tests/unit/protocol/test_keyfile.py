"""Key files: readable, locked by a passphrase if wanted, and read strictly."""

import re
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_encrypt

from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import KeyFileError, RinglineError
from ringline.protocol.fingerprint import fingerprint
from ringline.protocol.keyfile import (
    AgentKeys,
    IdentityKeys,
    Keys,
    format_plain,
    format_sealed,
    is_sealed,
    parse,
)
from ringline.protocol.prekeys import Chain
from ringline_testing.agents import NOW_MS, REALM, agent, seed

ALICE = agent("alice")
IDENTITY = IdentityKeys(ALICE.identity.seed, seed("alice/next"))
ALONE = IdentityKeys(ALICE.identity.seed)
AGENT = AgentKeys(ALICE.operational.seed, ALICE.card, Chain(20_717, seed("chain")))
KINDS: list[Keys] = [IDENTITY, ALONE, AGENT]
PASSPHRASE = "correct horse – battery staple"


def plain(keys: Keys) -> str:
    return format_plain(keys, handle="alice", realm=REALM, created_ms=NOW_MS)


def sealed(keys: Keys, passphrase: str = PASSPHRASE) -> str:
    """Sealed at the lowest cost that is read, so that tests are fast."""
    return format_sealed(
        keys, passphrase, handle="alice", realm=REALM, created_ms=NOW_MS, passes=1, memory_kib=8_192
    )


SEALED = sealed(AGENT)


@pytest.mark.parametrize("keys", KINDS, ids=["identity and next", "identity", "agent"])
def test_keys_come_back_from_both_forms(keys: Keys) -> None:
    assert parse(plain(keys)) == keys
    assert parse(plain(keys), "not needed") == keys
    assert parse(sealed(keys), PASSPHRASE) == keys


@given(one=st.binary(min_size=32, max_size=32), two=st.none() | st.binary(min_size=32, max_size=32))
@settings(max_examples=20)
def test_any_identity_comes_back(one: bytes, two: bytes | None) -> None:
    if one == two:
        return
    assert parse(plain(IdentityKeys(one, two))) == IdentityKeys(one, two)


def test_a_person_can_read_the_file() -> None:
    lines = plain(IDENTITY).splitlines()
    assert "# created: 2026-09-21T14:13:20Z" in lines
    assert "# handle: alice" in lines
    assert f"# realm: {REALM}" in lines
    assert f"# public key: {b64encode(ALICE.identity.public)}" in lines
    assert f"# fingerprint: {fingerprint(ALICE.identity.public)}" in lines
    content = [line for line in lines if not line.startswith("#")]
    assert content == [
        "ringline-key v1 plain",
        f"identity {b64encode(IDENTITY.seed)}",
        f"next {b64encode(seed('alice/next'))}",
    ]


def test_the_sealed_form_is_that_of_the_design() -> None:
    header, ciphertext = [line for line in SEALED.splitlines() if not line.startswith("#")]
    assert re.fullmatch(
        r"ringline-key v1 argon2id t=1 m=8192 p=1 salt=[A-Za-z0-9_-]{22} nonce=[A-Za-z0-9_-]{32}", header
    )
    default = format_sealed(IDENTITY, PASSPHRASE, handle="alice", realm=REALM, created_ms=NOW_MS)
    assert "argon2id t=3 m=65536 p=1 " in default
    assert parse(default, PASSPHRASE) == IDENTITY
    assert SEALED.endswith(f"{ciphertext}\n")


def test_a_sealed_file_is_made_of_argon2id_and_xchacha20_as_others_compute_them() -> None:
    """Sealed here with pyca's Argon2id and by hand: the file opens."""
    salt, nonce = bytes(range(16)), bytes(range(24))
    header = f"ringline-key v1 argon2id t=2 m=8192 p=1 salt={b64encode(salt)} nonce={b64encode(nonce)}\n"
    key = Argon2id(salt=salt, length=32, iterations=2, lanes=1, memory_cost=8_192).derive(PASSPHRASE.encode())
    content = f"identity {b64encode(ALONE.seed)}\n".encode()
    box = crypto_aead_xchacha20poly1305_ietf_encrypt(content, header.encode(), nonce, key)
    assert parse(f"{header}{b64encode(box)}\n", PASSPHRASE) == ALONE


def test_two_sealings_share_neither_salt_nor_nonce() -> None:
    salts = {re.search(r"salt=(\S+) nonce=(\S+)", sealed(ALONE)).groups() for _ in range(3)}  # type: ignore[union-attr]
    assert len({salt for salt, _ in salts}) == len({nonce for _, nonce in salts}) == 3


def test_a_sealed_file_hides_the_secrets() -> None:
    for secret in (AGENT.seed, AGENT.chain.link):
        assert b64encode(secret) in plain(AGENT)
        assert b64encode(secret) not in SEALED


def test_a_repr_hides_the_secrets() -> None:
    for keys in KINDS:
        for secret in (ALICE.identity.seed, ALICE.operational.seed, seed("alice/next"), seed("chain")):
            assert repr(secret) not in repr(keys)


def test_whether_a_passphrase_is_needed_can_be_asked() -> None:
    assert is_sealed(SEALED)
    assert not is_sealed(plain(AGENT))
    with pytest.raises(KeyFileError):
        is_sealed("no key file")


@pytest.mark.parametrize("passphrase", ["", "Correct horse – battery staple", "\ud800"])
def test_a_wrong_passphrase_is_refused(passphrase: str) -> None:
    with pytest.raises(KeyFileError):
        parse(SEALED, passphrase)


def test_without_a_passphrase_the_error_says_what_to_give() -> None:
    with pytest.raises(KeyFileError, match="locked by a passphrase") as caught:
        parse(SEALED)
    assert caught.value.next_step == "give its passphrase"


def test_an_empty_passphrase_does_not_lock() -> None:
    with pytest.raises(ValueError, match="empty"):
        sealed(IDENTITY, "")


@pytest.mark.parametrize(("passes", "memory_kib"), [(0, 65_536), (17, 65_536), (3, 8_191), (3, 1_048_577)])
def test_a_cost_out_of_bounds_is_neither_written_nor_read(passes: int, memory_kib: int) -> None:
    with pytest.raises(ValueError, match="bounds"):
        format_sealed(
            IDENTITY,
            PASSPHRASE,
            handle="alice",
            realm=REALM,
            created_ms=NOW_MS,
            passes=passes,
            memory_kib=memory_kib,
        )
    planted = SEALED.replace("t=1 m=8192", f"t={passes} m={memory_kib}")
    # The word matters: the file would not open either, but only after the work that is to be avoided.
    with pytest.raises(KeyFileError, match="bounds"):
        parse(planted, PASSPHRASE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("t=1", "t=2"),
        ("m=8192", "m=8193"),
        ("m=8192", "m=08192"),
        ("m=8192", "m=+8192"),
        ("p=1", "p=2"),
        ("p=1", "p=1 "),
        ("v1", "v2"),
        ("argon2id", "argon2i"),
        ("salt=", "salt=A"),
        ("nonce=", "nonce=AAAA"),
        ("m=8192", f"m={10**12}"),
    ],
)
def test_a_changed_header_does_not_open(old: str, new: str) -> None:
    with pytest.raises(KeyFileError):
        parse(SEALED.replace(old, new, 1), PASSPHRASE)


@given(data=st.data())
@settings(max_examples=10)
def test_no_byte_of_the_ciphertext_can_be_changed(data: st.DataObject) -> None:
    *head, ciphertext = SEALED.splitlines()
    box = bytearray(b64decode(ciphertext))
    box[data.draw(st.integers(0, len(box) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(KeyFileError):
        parse("\n".join([*head, b64encode(bytes(box))]), PASSPHRASE)


@pytest.mark.parametrize("ciphertext", ["", "A", "AAAA", "not base64url!", "AAAA\nAAAA"])
def test_a_damaged_ciphertext_is_refused(ciphertext: str) -> None:
    *head, _ = SEALED.splitlines()
    with pytest.raises(KeyFileError):
        parse("\n".join([*head, ciphertext]), PASSPHRASE)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process cannot bound its own memory")
def test_without_the_memory_that_unlocking_takes_the_error_says_so() -> None:
    program = """
import resource, sys
from ringline.protocol.errors import KeyFileError
from ringline.protocol.keyfile import parse
text = sys.stdin.read()
resource.setrlimit(resource.RLIMIT_AS, (900 * 2**20, 900 * 2**20))
try:
    parse(text, "passphrase")
except KeyFileError as error:
    print(error)
"""
    costly = SEALED.replace("m=8192", "m=1048576")
    done = subprocess.run(
        [sys.executable, "-c", program], input=costly, capture_output=True, text=True, timeout=60, check=True
    )
    assert "not enough memory to unlock the key file: it takes 1048576 KiB" in done.stdout


def test_comments_empty_lines_and_foreign_line_ends_change_nothing() -> None:
    for keys, text in ((AGENT, plain(AGENT)), (AGENT, SEALED)):
        assert parse(text.replace("\n", "\r\n"), PASSPHRASE) == keys
        assert parse(text.replace("\n", "\n# a note\n\n"), PASSPHRASE) == keys
        bare = "".join(f"{line}\n" for line in text.splitlines() if not line.startswith("#"))
        assert parse(bare, PASSPHRASE) == keys


LINES = plain(AGENT).splitlines()[-4:]
HEADER = "ringline-key v1 plain"


@pytest.mark.parametrize(
    "lines",
    [
        [],
        LINES[:3],
        [*LINES, LINES[3]],
        LINES[::-1],
        [LINES[0].replace("operational", "identity"), *LINES[1:]],
        [LINES[0] + " ", *LINES[1:]],
        [LINES[0].replace(" ", "\t"), *LINES[1:]],
        [LINES[0][:-1], *LINES[1:]],
        [f"operational {b64encode(seed('thief'))}", *LINES[1:]],
        [*LINES[:2], f"card-sig {b64encode(bytes(64))}", LINES[3]],
        [*LINES[:1], f"card {b64encode(b'no card')}", *LINES[2:]],
        [*LINES[:3], LINES[3].replace("20717", "+20717")],
        [*LINES[:3], LINES[3].replace("20717", "020717")],
        [*LINES[:3], LINES[3].replace("20717", "9999999999")],
        [*LINES[:3], LINES[3].replace("20717", "٢")],
        [f"identity {b64encode(seed('a'))}", f"next {b64encode(seed('a'))}"],
        [f"identity {b64encode(seed('a'))}", f"identity {b64encode(seed('b'))}"],
        [f"next {b64encode(seed('a'))}"],
        [f"identity {b64encode(bytes(31))}"],
    ],
)
def test_a_file_that_is_not_exactly_right_is_refused_without_quoting_it(lines: list[str]) -> None:
    with pytest.raises(KeyFileError) as caught:
        parse("\n".join([HEADER, *lines]))
    for line in lines:
        assert line.split()[1] not in f"{caught.value} {caught.value.next_step}"
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# only a comment", "ringline-key", "x" * 70_000, "ringline-key v2 plain"]
)
def test_what_is_no_key_file_is_refused(text: str) -> None:
    with pytest.raises(KeyFileError):
        parse(text, PASSPHRASE)


@given(text=st.one_of(st.text(max_size=200), st.text(max_size=200).map(lambda tail: f"{HEADER}\n{tail}")))
def test_garbage_raises_nothing_but_our_own_error(text: str) -> None:
    with pytest.raises(RinglineError):
        parse(text)


@pytest.mark.parametrize(("handle", "realm"), [("a\nidentity x", REALM), ("alice", "r\n"), ("A", REALM)])
def test_a_name_cannot_write_lines_of_its_own(handle: str, realm: str) -> None:
    with pytest.raises(ValueError, match="handle of a realm"):
        format_plain(IDENTITY, handle=handle, realm=realm, created_ms=NOW_MS)


def test_malformed_keys_are_not_made() -> None:
    for make in (
        lambda: IdentityKeys(bytes(31)),
        lambda: IdentityKeys(bytes(32), bytes(33)),
        lambda: IdentityKeys(bytes(32), bytes(32)),
        lambda: AgentKeys(seed("thief"), ALICE.card, AGENT.chain),
    ):
        with pytest.raises(ValueError, match=r"seed|another|operational"):
            make()
