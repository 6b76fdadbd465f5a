"""The exchange behind a spoken code: a key for those who have the same words, and one try for all others."""

import hmac
import sys
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from nacl import bindings as sodium

from ringline.protocol.errors import ConfigError, PairingError
from ringline.protocol.pairing import (
    ELEMENT_BYTES,
    INSTALL,
    PROOF_BYTES,
    Guest,
    Inviter,
    Keys,
    check_installed,
)
from ringline.protocol.transcript import digest, label, vec

REALM, NAMEPLATE = "relay.example", "7"
WORDS, OTHER = b"crossover-clockwork", b"crossover-cobra"
INVITE = "rli1" + "0" * 200
ORDER = 2**252 + 27742317777372353535851937790883648493
M = bytes.fromhex("15cfd18e385952982b6a8f8c7854963b58e34388c8e6dae891db756481a02312")
N = bytes.fromhex("f04f2e7eb734b2a8f8b472eaf9c3c632576ac64aea650b496a8a20ff00e583c3")


def chance(seed: str) -> bytes:
    """64 bytes that are the same every time."""
    return sha256(seed.encode()).digest() + sha256(seed.encode() + b"2").digest()


def inviter(password: bytes = WORDS, seed: str = "inviter") -> Inviter:
    return Inviter(password, lambda size: chance(seed)[:size])


def guest(
    offer: bytes,
    password: bytes = WORDS,
    *,
    realm: str = REALM,
    nameplate: str = NAMEPLATE,
    seed: str = "guest",
) -> Guest:
    return Guest(password, lambda size: chance(seed)[:size], offer=offer, realm=realm, nameplate=nameplate)


def met() -> tuple[Keys, Guest]:
    """Return both sides after they have met."""
    alice = inviter()
    bob = guest(alice.offer)
    return alice.meet(bob.answer, realm=REALM, nameplate=NAMEPLATE), bob


def test_the_same_words_hand_an_invite_over() -> None:
    keys, bob = met()
    reply = keys.seal(INVITE)
    assert INVITE.encode() not in reply
    assert bob.keys.open(reply) == INVITE


def test_the_bytes_are_those_of_every_version() -> None:
    alice = inviter()
    bob = guest(alice.offer)
    assert alice.offer.hex() == OFFER
    assert bob.answer.hex() == ANSWER
    keys = alice.meet(bob.answer, realm=REALM, nameplate=NAMEPLATE)
    assert sha256(keys.seal(INVITE)).hexdigest() == REPLY


def test_the_bytes_are_those_of_the_formulas_of_the_specification() -> None:
    """The same by libsodium's arithmetic, written from the text and not from the package."""
    pw = scalar(HKDF(algorithm=SHA256(), length=48, salt=b"", info=b"SPAKE2 pw").derive(WORDS))
    x, y = scalar(chance("inviter")), scalar(chance("guest"))
    big_x = sodium.crypto_core_ed25519_add(base(x), times(pw, M))
    big_y = sodium.crypto_core_ed25519_add(base(y), times(pw, N))
    z = times(x, sodium.crypto_core_ed25519_sub(big_y, times(pw, N)))
    assert z == times(y, sodium.crypto_core_ed25519_sub(big_x, times(pw, M)))
    shared = sha256(b"".join((digest(WORDS), digest(b""), digest(b""), big_x, big_y, z))).digest()
    fields = (REALM.encode(), NAMEPLATE.encode(), b"A" + big_x, b"B" + big_y)
    transcript = digest(label("pairing") + b"".join(vec(part) for part in fields))

    def key(use: bytes) -> bytes:
        info = label("pairing") + vec(use)
        return HKDF(algorithm=SHA256(), length=32, salt=transcript, info=info).derive(shared)

    assert (b"A" + big_x).hex() == OFFER
    assert (b"B" + big_y + hmac.digest(key(b"guest"), transcript, "sha256")).hex() == ANSWER
    sealed = ChaCha20Poly1305(key(b"seal")).encrypt(bytes(12), INVITE.encode(), transcript)
    reply = hmac.digest(key(b"inviter"), transcript, "sha256") + sealed
    assert sha256(reply).hexdigest() == REPLY


def scalar(text: bytes) -> bytes:
    return (int.from_bytes(text, "big") % ORDER).to_bytes(32, "little")


def base(by: bytes) -> bytes:
    made: bytes = sodium.crypto_scalarmult_ed25519_base_noclamp(by)
    return made


def times(by: bytes, point: bytes) -> bytes:
    made: bytes = sodium.crypto_scalarmult_ed25519_noclamp(by, point)
    return made


def test_other_words_are_noticed_by_the_inviter_before_there_is_an_invite() -> None:
    alice = inviter()
    bob = guest(alice.offer, OTHER)
    with pytest.raises(PairingError, match="other words"):
        alice.meet(bob.answer, realm=REALM, nameplate=NAMEPLATE)


def test_whoever_plays_both_sides_has_one_guess_with_each() -> None:
    alice, false_alice = inviter(), inviter(OTHER, "false inviter")
    bob = guest(false_alice.offer)
    with pytest.raises(PairingError):
        false_alice.meet(bob.answer, realm=REALM, nameplate=NAMEPLATE)
    # Wrong with the guest, who will hear no more; with the inviter there is another.
    false_bob = guest(alice.offer, seed="false guest")
    keys = alice.meet(false_bob.answer, realm=REALM, nameplate=NAMEPLATE)
    assert false_bob.keys.open(keys.seal(INVITE)) == INVITE


def test_an_inviter_with_other_words_cannot_hand_over_an_invite_of_his_own() -> None:
    alice = inviter()
    bob = guest(alice.offer)
    liar = inviter(OTHER)
    element = bob.answer[:ELEMENT_BYTES]
    shared = liar._exchange.finish(element)
    keys = Keys.derive(shared, realm=REALM, nameplate=NAMEPLATE, offer=liar.offer, element=element)
    with pytest.raises(PairingError, match="other words"):
        bob.keys.open(keys.seal(INVITE))


@pytest.mark.parametrize(("realm", "nameplate"), [("other.example", NAMEPLATE), (REALM, "8")])
def test_the_realm_and_the_number_are_bound(realm: str, nameplate: str) -> None:
    alice = inviter()
    bob = guest(alice.offer, realm=realm, nameplate=nameplate)
    with pytest.raises(PairingError):
        alice.meet(bob.answer, realm=REALM, nameplate=NAMEPLATE)


def test_what_was_said_in_one_exchange_is_worth_nothing_in_another() -> None:
    keys, _ = met()
    alice = inviter(seed="another")
    bob = guest(alice.offer, seed="another")
    with pytest.raises(PairingError):
        bob.keys.open(keys.seal(INVITE))
    first = inviter()
    with pytest.raises(PairingError):
        inviter(seed="another").meet(guest(first.offer).answer, realm=REALM, nameplate=NAMEPLATE)


def test_neither_proof_is_good_for_the_other_side() -> None:
    keys, bob = met()
    proof = bob.answer[ELEMENT_BYTES:]
    assert len(proof) == PROOF_BYTES
    with pytest.raises(PairingError):
        bob.keys.open(proof + keys.seal(INVITE)[PROOF_BYTES:])
    assert len({keys.guest, keys.inviter, keys.sealing}) == 3


@pytest.mark.parametrize("at", [0, ELEMENT_BYTES - 1, ELEMENT_BYTES, ELEMENT_BYTES + PROOF_BYTES - 1])
def test_an_answer_that_was_changed_does_not_hold(at: int) -> None:
    alice = inviter()
    changed = bytearray(guest(alice.offer).answer)
    changed[at] ^= 1
    with pytest.raises(PairingError):
        alice.meet(bytes(changed), realm=REALM, nameplate=NAMEPLATE)


@pytest.mark.parametrize("at", [0, PROOF_BYTES - 1, PROOF_BYTES, -1])
def test_a_reply_that_was_changed_does_not_open(at: int) -> None:
    keys, bob = met()
    changed = bytearray(keys.seal(INVITE))
    changed[at] ^= 1
    with pytest.raises(PairingError):
        bob.keys.open(bytes(changed))


@pytest.mark.parametrize("length", [0, 1, PROOF_BYTES, PROOF_BYTES + 1, PROOF_BYTES + 15])
def test_a_reply_that_was_cut_short_does_not_open(length: int) -> None:
    keys, bob = met()
    with pytest.raises(PairingError):
        bob.keys.open(keys.seal(INVITE)[:length])


ORDER_8 = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
WEAK = {
    "the neutral element": (1).to_bytes(32, "little"),
    "order 2": (2**255 - 20).to_bytes(32, "little"),
    "order 4": bytes(32),
    "order 8": ORDER_8,
    "off the curve": (2).to_bytes(32, "little"),
}


@pytest.mark.parametrize("point", WEAK.values(), ids=WEAK)
def test_a_point_that_gives_a_key_without_the_words_is_refused(point: bytes) -> None:
    with pytest.raises(PairingError, match="no message"):
        guest(b"A" + point)
    with pytest.raises(PairingError, match="no message"):
        inviter().meet(b"B" + point + bytes(PROOF_BYTES), realm=REALM, nameplate=NAMEPLATE)


def test_ones_own_message_come_back_is_refused() -> None:
    alice = inviter()
    with pytest.raises(PairingError, match="no message"):
        alice.meet(alice.offer + bytes(PROOF_BYTES), realm=REALM, nameplate=NAMEPLATE)
    again = inviter()
    with pytest.raises(PairingError, match="no message"):
        again.meet(b"B" + again.offer[1:] + bytes(PROOF_BYTES), realm=REALM, nameplate=NAMEPLATE)


@pytest.mark.parametrize("offer", [b"", b"A", b"A" + bytes(31), b"A" + bytes(33), b"S" + bytes(32)])
def test_what_is_no_offer_is_refused(offer: bytes) -> None:
    with pytest.raises(PairingError, match="no message"):
        guest(offer)


def test_without_the_package_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed()
    monkeypatch.setitem(sys.modules, "spake2", None)
    for use in (check_installed, inviter):
        with pytest.raises(ConfigError, match="spake2") as caught:
            use()
        assert INSTALL in (caught.value.next_step or "")


def test_keys_are_hidden_where_they_are_shown_to_a_programmer() -> None:
    keys, _ = met()
    assert repr(keys) == "Keys()"


OFFER = "4147fd60ea649e882944193595cac6be5952a5a2aa39261ba9269bc086476ae008"
ANSWER = (
    "42a72e00629e4cbed1ce9010cb62738fcaaccfa45a6cb6a8e391c56e2168a939f5"
    "894e78327b02d2fce49bc50444890b28b8717ef1f2f7b9a0a878606bbf03a562"
)
REPLY = "580195c6ba8e66c5d150e4b5bd96675f2b9dd6821f20f951576c15c16fc318ae"
