"""Public vectors that are too large to carry: X-Wing, Wycheproof, CCTV. Skipped where they are absent."""

import hashlib
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import mlkem, x25519

from ringline.protocol.errors import BadSignature, WeakKey
from ringline.protocol.signing import check_public, verify
from ringline.protocol.suites import HYBRID, X25519
from ringline_testing.hpke_schedule import seal_with_secret
from ringline_testing.vectors import public


def raw(text: str) -> bytes:
    return bytes.fromhex(text)


def verifies(key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        verify(key, message, signature)
    except BadSignature:
        return False
    return True


def is_fit(key: bytes) -> bool:
    try:
        check_public(key)
    except WeakKey:
        return False
    return True


def cases_in(file: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(group, test) for group in public(file)["testGroups"] for test in group["tests"]]


def test_x_wing_keys_secrets_and_seals() -> None:
    """The draft's keys are our seeds; and what its encapsulations seal, the library in use opens."""
    vectors = public("xwing_draft.json")
    assert len(vectors) == 3
    for vector in vectors:
        key = HYBRID.private_from_seed(raw(vector["sk"]))
        assert key.public == raw(vector["pk"])
        enc = raw(vector["ct"])
        expanded = hashlib.shake_256(raw(vector["sk"])).digest(96)
        lattice = mlkem.MLKEM768PrivateKey.from_seed_bytes(expanded[:64]).decapsulate(enc[:1088])
        curve = x25519.X25519PrivateKey.from_private_bytes(expanded[64:]).exchange(
            x25519.X25519PublicKey.from_public_bytes(enc[1088:])
        )
        combined = hashlib.sha3_256(lattice + curve + enc[1088:] + key.public[1184:] + b"\\.//^\\").digest()
        assert combined == raw(vector["ss"])
        sealed = seal_with_secret(HYBRID.kem, raw(vector["ss"]), enc, b"info", b"plaintext")
        assert HYBRID.open(key, b"info", sealed) == b"plaintext"


def test_wycheproof_ed25519() -> None:
    found = cases_in("wp_ed25519_test.json")
    assert len(found) == 151
    for group, test in found:
        key = raw(group["publicKey"]["pk"])
        expected = test["result"] == "valid"
        assert verifies(key, raw(test["msg"]), raw(test["sig"])) == expected, test["tcId"]


def test_cctv_ed25519_no_fit_key_has_a_small_or_non_canonical_part() -> None:
    vectors = public("cctv_ed25519.json")
    assert len(vectors) == 914
    bad = {"low_order_A", "low_order_component_A", "non_canonical_A"}
    fit = [vector for vector in vectors if is_fit(raw(vector["key"]))]
    assert len(fit) == 28
    assert not any(bad & set(vector["flags"] or ()) for vector in fit)
    accepted = [v for v in vectors if verifies(raw(v["key"]), v["msg"].encode(), raw(v["sig"]))]
    assert len(accepted) == 43
    # What the library alone would let through are signatures under keys that are refused at import.
    assert len([v for v in accepted if is_fit(raw(v["key"]))]) == 1


def test_wycheproof_x25519() -> None:
    found = cases_in("wp_x25519_test.json")
    assert len(found) == 518
    refused = 0
    for _, test in found:
        private = X25519.private_from_seed(raw(test["private"]))
        point, shared = raw(test["public"]), raw(test["shared"])
        if shared == bytes(32):
            with pytest.raises(WeakKey):
                X25519.check_public(point)
            refused += 1
            continue
        native = private.native
        assert isinstance(native, x25519.X25519PrivateKey)
        assert native.exchange(x25519.X25519PublicKey.from_public_bytes(point)) == shared, test["tcId"]
        if not point[31] & 0x80:
            X25519.check_public(point)
    assert refused == 31


def test_wycheproof_ml_kem_768() -> None:
    found = cases_in("wp_mlkem_768_test.json.gz")
    assert len(found) == 193
    for _, test in found:
        seed, ciphertext = raw(test["seed"]), raw(test["c"])
        if test["result"] == "valid":
            private = mlkem.MLKEM768PrivateKey.from_seed_bytes(seed)
            assert private.public_key().public_bytes_raw() == raw(test["ek"])
            assert private.decapsulate(ciphertext) == raw(test["K"]), test["tcId"]
        else:
            with pytest.raises(ValueError, match="ML-KEM-768"):
                mlkem.MLKEM768PrivateKey.from_seed_bytes(seed).decapsulate(ciphertext)
