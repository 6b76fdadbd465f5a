"""A checkpoint is what the log's own key has signed, in one form (C2SP tlog-checkpoint, signed-note)."""

import base64
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringline.protocol.checkpoint import (
    CHECKPOINT_BYTES,
    Checkpoint,
    LogKey,
    log_origin,
    open_checkpoint,
    sign_checkpoint,
)
from ringline.protocol.errors import LogError, WeakKey
from ringline.protocol.limits import INT_MAX
from ringline.protocol.merkle import EMPTY_ROOT
from ringline.protocol.signing import SigningKey
from ringline_testing.agents import seed
from ringline_testing.weak_keys import NEUTRAL

ORIGIN = "relay.example/v1/log"
SIGNER = SigningKey(seed("log"))
KEY = LogKey(ORIGIN, SIGNER.public)
ROOT = bytes(range(32))
NOTE = sign_checkpoint(Checkpoint(ORIGIN, 5, ROOT), SIGNER)

# The example of Go's package for signed notes.
NEUMANN = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
NEUMANN_NOTE = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
    "\n"
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKv"
    "qfqdngotpRZb6KE6RyyBwJnAM=\n"
)


def signed(text: str, signer: SigningKey = SIGNER, name: str = ORIGIN) -> bytes:
    """Return any text as a note, rightly signed."""
    key_id = LogKey(name, signer.public).id
    line = base64.b64encode(key_id + signer.sign(text.encode())).decode()
    return f"{text}\n— {name} {line}\n".encode()


def test_a_checkpoint_reads_as_three_lines_and_a_signature() -> None:
    text, _, below = NOTE.decode().partition("\n\n")
    assert text == f"{ORIGIN}\n5\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    assert below.startswith(f"— {ORIGIN} ")
    assert len(base64.b64decode(below.split(" ")[2])) == 4 + 64


@given(size=st.integers(0, INT_MAX), root=st.binary(min_size=32, max_size=32))
def test_every_checkpoint_is_read_back(size: int, root: bytes) -> None:
    checkpoint = Checkpoint(ORIGIN, size, root)
    assert open_checkpoint(sign_checkpoint(checkpoint, SIGNER), KEY) == checkpoint


def test_the_key_log_of_a_realm_has_one_origin() -> None:
    assert log_origin("relay.example") == ORIGIN
    Checkpoint(log_origin("localhost"), 0, EMPTY_ROOT)


def test_signing_again_gives_the_same_bytes_so_that_a_restart_shows_nothing_new() -> None:
    assert sign_checkpoint(Checkpoint(ORIGIN, 5, ROOT), SigningKey(seed("log"))) == NOTE


# --- keys


def test_keys_of_other_programs_are_read_with_their_ids() -> None:
    assert LogKey.parse(NEUMANN).id.hex() == "c74f20a3"
    assert LogKey.parse(NEUMANN).format() == NEUMANN
    go = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"
    assert LogKey.parse(go).name == "sum.golang.org"


def test_a_note_that_another_program_signed_is_verified() -> None:
    key = LogKey.parse(NEUMANN)
    # The signature holds, or there would be no word about the text; which is no checkpoint of that log.
    with pytest.raises(LogError, match="of another log"):
        open_checkpoint(NEUMANN_NOTE.encode(), key)
    with pytest.raises(LogError, match="does not hold"):
        open_checkpoint(NEUMANN_NOTE.replace("think", "thunk").encode(), key)


def test_a_key_is_read_back() -> None:
    assert LogKey.parse(KEY.format()) == KEY


@pytest.mark.parametrize(
    "text",
    [
        "",
        "relay.example/v1/log",
        NEUMANN.replace("c74f20a3", "c74f20a4"),
        NEUMANN.replace("c74f20a3", "C74F20A3"),
        NEUMANN.replace("Peter", "Pete"),
        NEUMANN[:-1],
        NEUMANN + "\n",
        NEUMANN.replace("+ARpc", "+AhBc"),
        NEUMANN.replace("Peter", "Peter "),
        NEUMANN.replace("Peter", "Peter\u00a0"),
        "+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
    ],
)
def test_every_other_text_is_no_key(text: str) -> None:
    with pytest.raises(LogError):
        LogKey.parse(text)


def test_a_weak_key_is_refused_as_a_logs_key() -> None:
    with pytest.raises(WeakKey):
        LogKey(ORIGIN, NEUTRAL)


# --- whose signature


def test_a_log_that_is_not_known_is_not_believed() -> None:
    stranger = SigningKey(seed("stranger"))
    with pytest.raises(LogError, match="not signed by the key"):
        open_checkpoint(sign_checkpoint(Checkpoint(ORIGIN, 5, ROOT), stranger), KEY)


def test_a_stranger_who_takes_the_id_of_the_key_is_not_believed() -> None:
    text, _, _ = NOTE.decode().partition("\n\n")
    forged = base64.b64encode(KEY.id + SigningKey(seed("stranger")).sign(f"{text}\n".encode())).decode()
    with pytest.raises(LogError, match="does not hold"):
        open_checkpoint(f"{text}\n\n— {ORIGIN} {forged}\n".encode(), KEY)


def test_signatures_of_others_are_passed_over_and_a_false_one_beside_a_true_one_is_not() -> None:
    witness = sign_checkpoint(Checkpoint(ORIGIN, 5, ROOT), SigningKey(seed("witness"))).decode()
    theirs = witness.partition("\n\n")[2].replace(ORIGIN, "witness.example/w1")
    assert open_checkpoint(NOTE + theirs.encode(), KEY).size == 5
    text, _, below = NOTE.decode().partition("\n\n")
    assert open_checkpoint(f"{text}\n\n{theirs}{below}".encode(), KEY).size == 5
    false = base64.b64encode(KEY.id + bytes(64)).decode()
    with pytest.raises(LogError, match="does not hold"):
        open_checkpoint(NOTE + f"— {ORIGIN} {false}\n".encode(), KEY)
    short = base64.b64encode(KEY.id + bytes(63)).decode()
    with pytest.raises(LogError, match="wrong length"):
        open_checkpoint(NOTE + f"— {ORIGIN} {short}\n".encode(), KEY)


def test_extension_lines_are_passed_over() -> None:
    text = Checkpoint(ORIGIN, 5, ROOT).text + "an extension\n"
    assert open_checkpoint(signed(text), KEY) == Checkpoint(ORIGIN, 5, ROOT)


# --- form

_B64_ROOT = base64.b64encode(ROOT).decode()


@pytest.mark.parametrize(
    "text",
    [
        f"relay.example/v1/other\n5\n{_B64_ROOT}\n",
        f"{ORIGIN}\n05\n{_B64_ROOT}\n",
        f"{ORIGIN}\n-5\n{_B64_ROOT}\n",
        f"{ORIGIN}\n+5\n{_B64_ROOT}\n",
        f"{ORIGIN}\n\u0665\n{_B64_ROOT}\n",
        f"{ORIGIN}\n5.0\n{_B64_ROOT}\n",
        f"{ORIGIN}\n{2**53}\n{_B64_ROOT}\n",
        f"{ORIGIN}\n{10**30}\n{_B64_ROOT}\n",
        f"{ORIGIN}\n5\n{_B64_ROOT[:-1]}\n",
        f"{ORIGIN}\n5\n{_B64_ROOT[:-2]}9=\n",
        f"{ORIGIN}\n5\n{base64.b64encode(ROOT[:31]).decode()}\n",
        f"{ORIGIN}\n5\n {_B64_ROOT}\n",
        f"{ORIGIN}\n5\n\n",
        f"{ORIGIN}\n5\n",
        f"{ORIGIN}\n5\n{_B64_ROOT}\n\nmore\n",
    ],
)
def test_even_the_logs_own_key_makes_nothing_else_a_checkpoint(text: str) -> None:
    with pytest.raises(LogError):
        open_checkpoint(signed(text), KEY)


DAMAGE: list[Callable[[bytes], bytes]] = [
    lambda note: note[:-1],
    lambda note: note + b"\n",
    lambda note: note + b"trailing\n",
    lambda note: note.replace(b"\n\n", b"\n"),
    lambda note: note.replace("— ".encode(), b"- "),
    lambda note: note.replace(b"\n5\n", b"\n5\r\n"),
    lambda note: note.replace(b"\n5\n", b"\n5\x00\n"),
    lambda note: note.replace(b"\n5\n", b"\n\xff\n"),
    lambda note: b"",
    lambda note: b"\n\n\n",
    lambda note: note + bytes(CHECKPOINT_BYTES),
    lambda note: note.partition(b"\n\n")[0] + b"\n\n",
    lambda note: note + note.split(b"\n\n")[1] * 64,
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_note_that_is_none_is_refused(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(LogError):
        open_checkpoint(damage(NOTE), KEY)


@given(st.integers(0, len(NOTE) - 1), st.integers(0, 7))
def test_no_bit_of_a_checkpoint_can_be_changed(place: int, bit: int) -> None:
    damaged = bytearray(NOTE)
    damaged[place] ^= 1 << bit
    with pytest.raises(LogError):
        open_checkpoint(bytes(damaged), KEY)


@given(st.binary(max_size=300))
def test_bytes_of_anybody_are_refused_without_a_fault(data: bytes) -> None:
    with pytest.raises(LogError):
        open_checkpoint(data, KEY)


def test_a_checkpoint_that_breaks_its_ranges_is_none() -> None:
    for origin, size, root in (("", 1, ROOT), ("a b", 1, ROOT), ("a+b", 1, ROOT), (ORIGIN, -1, ROOT)):
        with pytest.raises(LogError):
            Checkpoint(origin, size, root)
    with pytest.raises(LogError):
        Checkpoint(ORIGIN, 1, ROOT[:-1])
