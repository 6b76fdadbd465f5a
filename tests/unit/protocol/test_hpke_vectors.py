"""The HPKE in use against the vectors of RFC 9180 and of draft-ietf-hpke-pq."""

from typing import Any

import pytest
from cryptography.hazmat.bindings._rust import openssl
from cryptography.hazmat.primitives import hpke

from ringline.protocol.suites import HYBRID, SUITES, X25519, Suite
from ringline_testing.hpke_schedule import key_and_nonce, seal_with_secret
from ringline_testing.vectors import carried

RFC_9180: list[dict[str, Any]] = carried("rfc9180_x25519_base.json")
HPKE_PQ: list[dict[str, Any]] = carried("hpke_pq_647a.json")
OF_OUR_SUITES = [v for v in RFC_9180 + HPKE_PQ if (v["kdf_id"], v["aead_id"]) == (1, 3)]

KDFS = {1: hpke.KDF.HKDF_SHA256, 17: hpke.KDF.SHAKE256}
AEADS = {1: hpke.AEAD.AES_128_GCM, 2: hpke.AEAD.AES_256_GCM, 3: hpke.AEAD.CHACHA20_POLY1305}
KEMS = {0x0020: (X25519, hpke.KEM.X25519), 0x647A: (HYBRID, hpke.KEM.MLKEM768_X25519)}


def name(vector: dict[str, Any]) -> str:
    return f"{vector['kem_id']:#06x}-{vector['kdf_id']:#06x}-{vector['aead_id']:#06x}"


def suite_of(vector: dict[str, Any]) -> Suite:
    return next(suite for suite in SUITES.values() if suite.kem == vector["kem_id"])


def raw(text: str) -> bytes:
    return bytes.fromhex(text)


def test_the_files_hold_what_they_are_for() -> None:
    assert [(v["kem_id"], v["kdf_id"], v["aead_id"]) for v in RFC_9180] == [
        (32, 1, 1),
        (32, 1, 2),
        (32, 1, 3),
    ]
    assert [(v["kem_id"], v["kdf_id"], v["aead_id"]) for v in HPKE_PQ] == [(0x647A, 1, 3), (0x647A, 17, 3)]
    assert len(OF_OUR_SUITES) == 2


@pytest.mark.parametrize("vector", RFC_9180 + HPKE_PQ, ids=name)
def test_private_keys_of_the_vectors_are_our_seeds(vector: dict[str, Any]) -> None:
    assert suite_of(vector).private_from_seed(raw(vector["skRm"])).public == raw(vector["pkRm"])


@pytest.mark.parametrize("vector", RFC_9180 + HPKE_PQ, ids=name)
def test_the_first_encryption_opens(vector: dict[str, Any]) -> None:
    """Tied to an internal of pyca: the vectors have an ``aad``, which its public interface does not take."""
    _, kem = KEMS[vector["kem_id"]]
    suite = hpke.Suite(kem, KDFS[vector["kdf_id"]], AEADS[vector["aead_id"]])
    private = suite_of(vector).private_from_seed(raw(vector["skRm"]))
    first = vector["encryptions"][0]
    opened = openssl.hpke._decrypt_with_aad(
        suite, raw(vector["enc"]) + raw(first["ct"]), private.native, raw(vector["info"]), raw(first["aad"])
    )
    assert opened == raw(first["pt"])


@pytest.mark.parametrize("vector", OF_OUR_SUITES, ids=name)
def test_the_written_out_key_schedule_is_that_of_the_vectors(vector: dict[str, Any]) -> None:
    schedule = key_and_nonce(vector["kem_id"], raw(vector["shared_secret"]), raw(vector["info"]))
    assert schedule == (raw(vector["key"]), raw(vector["base_nonce"]))


@pytest.mark.parametrize("vector", OF_OUR_SUITES, ids=name)
def test_what_the_vectors_encapsulation_seals_opens_by_the_public_interface(vector: dict[str, Any]) -> None:
    suite = suite_of(vector)
    sealed = seal_with_secret(
        vector["kem_id"], raw(vector["shared_secret"]), raw(vector["enc"]), b"info", b"plaintext"
    )
    assert suite.open(suite.private_from_seed(raw(vector["skRm"])), b"info", sealed) == b"plaintext"
