"""Both suites: keys from seeds, strict import of public keys, a build without ML-KEM."""

import dataclasses
import hashlib

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import mlkem, x25519
from hypothesis import given, settings
from hypothesis import strategies as st

from ringline.protocol import suites
from ringline.protocol.errors import CannotOpen, ConfigError, WeakKey
from ringline.protocol.suites import HYBRID, SUITES, X25519, Suite, available_suites, key_id
from ringline.protocol.transcript import digest, label
from ringline_testing.agents import seed

P = 2**255 - 19
SEED = seed("suites")
# RFC 7748: u-coordinates of small order, canonical and not, with the high bit clear.
SMALL_ORDER = [
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    P - 1,
    P,
    P + 1,
]


@pytest.fixture(params=list(SUITES.values()), ids=lambda suite: f"suite{suite.id}")
def suite(request: pytest.FixtureRequest) -> Suite:
    """Each suite."""
    found: Suite = request.param
    return found


def test_the_table_of_suites() -> None:
    rows = [(s.id, s.kem, s.npk, s.nenc, s.overhead) for s in SUITES.values()]
    assert rows == [(1, 0x0020, 32, 32, 48), (2, 0x647A, 1216, 1120, 1136)]
    assert available_suites() == (1, 2)


def test_a_seed_gives_one_key_and_another_seed_another(suite: Suite) -> None:
    key = suite.private_from_seed(SEED)
    assert key.public == suite.private_from_seed(SEED).public
    assert key.seed == SEED
    assert key.suite == suite.id
    assert len(key.public) == suite.npk
    assert key.key_id == key_id(suite.id, key.public)
    assert suite.generate().public != key.public


def test_the_seed_of_suite_1_is_the_scalar() -> None:
    scalar = x25519.X25519PrivateKey.from_private_bytes(SEED)
    assert X25519.private_from_seed(SEED).public == scalar.public_key().public_bytes_raw()


def test_the_seed_of_suite_2_is_expanded_by_plain_shake256() -> None:
    expanded = hashlib.shake_256(SEED).digest(96)
    lattice = mlkem.MLKEM768PrivateKey.from_seed_bytes(expanded[:64]).public_key().public_bytes_raw()
    curve = x25519.X25519PrivateKey.from_private_bytes(expanded[64:]).public_key().public_bytes_raw()
    assert HYBRID.private_from_seed(SEED).public == lattice + curve


def test_the_id_of_a_key_binds_its_suite() -> None:
    public = X25519.private_from_seed(SEED).public
    assert key_id(1, public) == digest(label("key") + b"\x00\x01" + public)
    assert key_id(1, public) != key_id(2, public)


@pytest.mark.parametrize("size", [0, 31, 33, 64, 96])
def test_a_seed_of_another_length_is_refused(suite: Suite, size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        suite.private_from_seed(bytes(size))


@pytest.mark.parametrize("suite_id", SUITES)
@given(info=st.binary(max_size=100), plaintext=st.binary(max_size=500))
@settings(max_examples=25)
def test_what_is_sealed_opens_with_its_info_only(suite_id: int, info: bytes, plaintext: bytes) -> None:
    suite = SUITES[suite_id]
    key = suite.private_from_seed(SEED)
    sealed = suite.seal(key.public, info, plaintext)
    assert len(sealed) == len(plaintext) + suite.overhead
    assert suite.open(key, info, sealed) == plaintext
    with pytest.raises(CannotOpen):
        suite.open(key, info + b"\0", sealed)


def test_a_key_of_the_other_suite_opens_nothing(suite: Suite) -> None:
    sealed = suite.seal(suite.private_from_seed(SEED).public, b"", b"text")
    other = SUITES[3 - suite.id].private_from_seed(SEED)
    with pytest.raises(CannotOpen):
        suite.open(other, b"", sealed)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 47, 48, 1119, 1120, 1135, 1136, 5000])
def test_garbage_opens_to_nothing_but_one_error(suite: Suite, size: int) -> None:
    with pytest.raises(CannotOpen):
        suite.open(suite.private_from_seed(SEED), b"", b"\x09" * size)


def test_a_good_key_passes(suite: Suite) -> None:
    suite.check_public(suite.private_from_seed(SEED).public)


@pytest.mark.parametrize("change", [-1, 1])
def test_a_key_of_another_length_is_refused(suite: Suite, change: int) -> None:
    public = suite.private_from_seed(SEED).public
    wrong = public[:-1] if change < 0 else public + b"\0"
    with pytest.raises(WeakKey):
        suite.check_public(wrong)
    with pytest.raises(WeakKey):
        suite.seal(wrong, b"", b"")
    with pytest.raises(WeakKey):
        suite.check_public(b"")


@pytest.mark.parametrize("u", SMALL_ORDER, ids=str)
def test_a_curve_point_of_small_order_is_refused(suite: Suite, u: int) -> None:
    public = suite.private_from_seed(SEED).public[:-32] + u.to_bytes(32, "little")
    with pytest.raises(WeakKey):
        suite.check_public(public)
    with pytest.raises(WeakKey):
        suite.seal(public, b"", b"")


def test_a_curve_point_with_its_high_bit_set_is_refused(suite: Suite) -> None:
    public = suite.private_from_seed(SEED).public
    with pytest.raises(WeakKey, match="high bit"):
        suite.check_public(public[:-1] + bytes([public[-1] | 0x80]))


def test_a_lattice_key_with_a_coefficient_that_is_not_reduced_is_refused() -> None:
    public = bytearray(HYBRID.private_from_seed(SEED).public)
    # 3329 is the modulus: the first coefficient is the low 12 bits of the first two bytes.
    public[0], public[1] = 3329 & 0xFF, (public[1] & 0xF0) | 3329 >> 8
    with pytest.raises(WeakKey, match="lattice"):
        HYBRID.check_public(bytes(public))
    with pytest.raises(WeakKey, match="lattice"):
        HYBRID.seal(bytes(public), b"", b"")


# --- a build of the cryptography package on an old OpenSSL


@pytest.fixture
def no_lattice(monkeypatch: pytest.MonkeyPatch) -> Suite:
    """The hybrid as it is where ML-KEM is missing."""
    monkeypatch.setattr(suites, "_lattice_available", lambda: False)
    hybrid = dataclasses.replace(HYBRID, available=lambda: False)
    monkeypatch.setattr(suites, "SUITES", {1: X25519, 2: hybrid})
    return hybrid


def test_without_ml_kem_only_suite_1_is_available(no_lattice: Suite) -> None:
    assert available_suites() == (1,)
    for use in (
        no_lattice.generate,
        lambda: no_lattice.private_from_seed(SEED),
        lambda: no_lattice.seal(bytes(1216), b"", b""),
    ):
        with pytest.raises(ConfigError, match="ML-KEM"):
            use()


def test_without_ml_kem_the_curve_half_of_a_public_key_is_still_checked(no_lattice: Suite) -> None:
    public = HYBRID.private_from_seed(SEED).public
    no_lattice.check_public(public)
    with pytest.raises(WeakKey):
        no_lattice.check_public(public[:-32] + bytes(32))
    with pytest.raises(WeakKey):
        no_lattice.check_public(public[:-1])


def test_the_probe_takes_the_librarys_refusal_for_a_no(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing:
        @staticmethod
        def generate() -> None:
            raise UnsupportedAlgorithm("ML-KEM")

    suites._lattice_available.cache_clear()
    monkeypatch.setattr(mlkem, "MLKEM768PrivateKey", Missing)
    try:
        assert not suites._lattice_available()
    finally:
        suites._lattice_available.cache_clear()


def test_a_repr_shows_the_suite_and_no_secret(suite: Suite) -> None:
    key = suite.private_from_seed(SEED)
    assert key.key_id.hex() in repr(key)
    assert SEED.hex() not in repr(key)
    assert repr(suite) == f"<suite {suite.id}: {suite.name}>"
