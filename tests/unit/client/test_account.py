"""Identities: made once, locked, rotated, renewed, and forgotten link by link."""

import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ringline.client.account import RENEW_BEFORE_MS, Account
from ringline.client.address import RelayAddress
from ringline.client.home import Home
from ringline.protocol import token
from ringline.protocol.encoding import b64decode
from ringline.protocol.errors import ConfigError
from ringline.protocol.identity import SignedCard, next_commitment
from ringline.protocol.keyfile import IdentityKeys, is_sealed, parse
from ringline.protocol.limits import (
    CARD_LIFE_MS,
    CLOCK_SLACK_MS,
    PREKEY_ROTATION_MS,
    PREKEY_SECRET_TAIL_MS,
)
from ringline.protocol.prekeys import EPOCH_MS, SignedPrekey, epoch_at
from ringline.protocol.signing import SigningKey
from ringline.protocol.suites import available_suites

LOCAL = RelayAddress.parse("http://127.0.0.1:7575")
REMOTE = RelayAddress.parse("https://relay.example")
NOW = 1_790_000_000_000
DAY = EPOCH_MS


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def published(account: Account, now_ms: int) -> SignedPrekey:
    """Publish today's statement and return it, as a peer reads it."""
    publication = account.publication(now_ms)
    card = SignedCard.parse(b64decode(publication.card), b64decode(publication.card_sig))
    prekey = SignedPrekey.parse(b64decode(publication.prekey), b64decode(publication.prekey_sig), card.card)
    account.note_published(publication.prekey, now_ms)
    return prekey


def kid(prekey: SignedPrekey) -> bytes:
    return prekey.prekey.keys[-1].key_id


def test_a_new_identity_is_a_card_and_two_private_files(home: Home) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    card = account.card.card
    account.card.verify(realm="localhost", handle="alice", ipk=account.ipk)
    assert (card.serial, card.not_after - card.not_before) == (1, CARD_LIFE_MS - CLOCK_SLACK_MS)
    assert card.not_before < NOW
    files = [home.identity_key_file(LOCAL, "alice"), home.agent_key_file(LOCAL, "alice")]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    identity = parse(files[0].read_text())
    assert isinstance(identity, IdentityKeys)
    assert SigningKey(identity.seed).public == account.ipk
    # The successor is committed to from the first card on.
    assert identity.next_seed is not None
    assert card.next == next_commitment(SigningKey(identity.next_seed).public)


def test_an_identity_is_loaded_as_it_was_made(home: Home) -> None:
    made = Account.create(home, LOCAL, "alice", NOW)
    loaded = Account.load(home, LOCAL, "alice", NOW)
    assert (loaded.card, loaded.operational.public) == (made.card, made.operational.public)
    assert loaded.prekey(NOW) == made.prekey(NOW)
    assert home.handles(LOCAL) == ("alice",)
    again, new = Account.open(home, LOCAL, "alice", NOW)
    assert (again.ipk, new) == (made.ipk, False)


def test_the_identity_key_may_be_elsewhere(home: Home) -> None:
    Account.create(home, LOCAL, "alice", NOW)
    home.identity_key_file(LOCAL, "alice").unlink()
    assert Account.load(home, LOCAL, "alice", NOW).handle == "alice"


def test_an_identity_is_not_made_twice(home: Home) -> None:
    Account.create(home, LOCAL, "alice", NOW)
    with pytest.raises(ConfigError, match="exists already"):
        Account.create(home, LOCAL, "alice", NOW)


def test_an_identity_that_is_not_there_is_told(home: Home) -> None:
    with pytest.raises(ConfigError, match="there is no identity alice") as caught:
        Account.load(home, LOCAL, "alice", NOW)
    assert "ringline init --as alice" in (caught.value.next_step or "")


PROGRAM = """
import sys
from pathlib import Path
from ringline.client import Account, Home, RelayAddress
address = RelayAddress.parse("http://127.0.0.1:7575")
account, new = Account.open(Home(Path(sys.argv[1])), address, "alice", 1790000000000)
print(account.ipk.hex(), new)
"""


def test_two_processes_that_make_the_same_identity_end_with_one(home: Home) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(home.root)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=60)[0].split() for process in processes]
    assert answers[0][0] == answers[1][0]
    assert sorted(answer[1] for answer in answers) == ["False", "True"]


# --- passphrases


def test_off_the_development_realm_locking_must_be_decided(home: Home) -> None:
    with pytest.raises(ConfigError, match="passphrase, or the decision") as caught:
        Account.create(home, REMOTE, "alice", NOW)
    assert "--plain" in (caught.value.next_step or "")
    assert home.handles(REMOTE) == ()
    Account.create(home, REMOTE, "alice", NOW, plain=True)


def test_a_passphrase_locks_both_files_and_is_asked_once(home: Home) -> None:
    asked: list[str] = []

    def passphrase() -> str:
        asked.append("asked")
        return "correct horse"

    made = Account.create(home, REMOTE, "alice", NOW, passphrase=passphrase)
    for file in (home.identity_key_file(REMOTE, "alice"), home.agent_key_file(REMOTE, "alice")):
        assert is_sealed(file.read_text())
        assert "correct horse" not in file.read_text()
    assert Account.load(home, REMOTE, "alice", NOW, passphrase=passphrase).ipk == made.ipk
    assert len(asked) == 2
    published(made, NOW)  # writes again, without asking
    assert len(asked) == 2


def test_a_locked_identity_needs_the_right_passphrase(home: Home) -> None:
    Account.create(home, REMOTE, "alice", NOW, passphrase=lambda: "right")
    for attempt in (None, lambda: "wrong"):
        with pytest.raises(ConfigError, match=r"agent\.key"):
            Account.load(home, REMOTE, "alice", NOW, passphrase=attempt)


def test_a_passphrase_is_not_asked_for_what_is_not_locked(home: Home) -> None:
    def never() -> str:
        raise AssertionError("asked")

    Account.create(home, LOCAL, "alice", NOW)
    Account.load(home, LOCAL, "alice", NOW, passphrase=never)


def test_an_empty_passphrase_is_refused(home: Home) -> None:
    with pytest.raises(ConfigError, match="protects nothing"):
        Account.create(home, REMOTE, "alice", NOW, passphrase=lambda: "")


# --- damaged and misplaced files


def test_a_readable_key_file_is_refused(home: Home) -> None:
    Account.create(home, LOCAL, "alice", NOW)
    path = home.agent_key_file(LOCAL, "alice")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="by others") as caught:
        Account.load(home, LOCAL, "alice", NOW)
    assert caught.value.next_step == f"chmod 600 {path}"


@pytest.mark.parametrize("text", ["", "garbage", "ringline-key v1 plain\nidentity AAAA\n"])
def test_a_damaged_key_file_is_told_with_its_path(home: Home, text: str) -> None:
    Account.create(home, LOCAL, "alice", NOW)
    path = home.agent_key_file(LOCAL, "alice")
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        Account.load(home, LOCAL, "alice", NOW)
    assert str(path) in str(caught.value)


def test_a_key_file_in_the_wrong_place_is_told(home: Home) -> None:
    Account.create(home, LOCAL, "alice", NOW)
    home.make(home.identity_folder(LOCAL, "bob"))
    home.agent_key_file(LOCAL, "alice").rename(home.agent_key_file(LOCAL, "bob"))
    with pytest.raises(ConfigError, match="key of alice"):
        Account.load(home, LOCAL, "bob", NOW)


# --- log-in


def test_a_token_is_bound_to_this_request_and_verifies(home: Home) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    claims = token.parse(account.token("GET", "/v1/call/bob", NOW + 1_999, "j" * 16))
    token.verify(claims, account.card.card.spk)
    token.check(claims, realm="localhost", method="GET", path="/v1/call/bob", now_s=NOW / 1_000)
    assert (claims.handle, claims.card_id, claims.iat) == ("alice", account.card.card.id, NOW // 1_000 + 1)


# --- prekeys


def test_prekeys_are_of_the_best_suite_alone_unless_told(home: Home) -> None:
    best = Account.create(home, LOCAL, "alice", NOW)
    assert best.suites == (max(available_suites()),)
    both = Account.create(home, LOCAL, "bob", NOW, suites=(1, 2))
    assert Account.load(home, LOCAL, "bob", NOW).suites == both.suites == (1, 2)


def test_prekeys_are_due_every_day(home: Home) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    before = account.was_published
    assert account.rotation_due(NOW)
    published(account, NOW)
    assert (before, account.was_published) == (False, True)
    assert not account.rotation_due(NOW)
    assert account.rotation_due(NOW + DAY)
    assert published(account, NOW + DAY).prekey.epoch == epoch_at(NOW + DAY)


def test_a_clock_that_goes_back_does_not_take_back_what_was_published(home: Home) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    later = published(account, NOW + DAY)
    assert account.prekey(NOW) == later


def test_what_was_published_can_be_opened_until_nobody_may_seal_to_it(home: Home) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    first = kid(published(account, NOW))
    second = kid(published(account, NOW + DAY))
    gone = NOW + DAY + PREKEY_ROTATION_MS + PREKEY_SECRET_TAIL_MS
    for now in (NOW + DAY, gone - 1):
        published(account, now)
        own = account.own_key(first, now)
        assert own is not None
        assert (own.private.key_id, own.card) == (first, account.card)
    third = kid(published(account, gone))
    assert account.own_key(first, gone) is None
    assert account.own_key(second, gone) is not None
    # Forgotten on disk too, in every process.
    loaded = Account.load(home, LOCAL, "alice", gone)
    assert loaded.own_key(first, gone) is None
    assert loaded.own_key(third, gone) is not None


def test_a_key_that_was_never_ours_is_not_found(home: Home) -> None:
    assert Account.create(home, LOCAL, "alice", NOW).own_key(bytes(32), NOW) is None


def test_the_memory_of_publications_can_be_lost_without_losing_keys(home: Home) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    first = kid(published(account, NOW))
    (home.identity_folder(LOCAL, "alice") / "published.json").unlink()
    loaded = Account.load(home, LOCAL, "alice", NOW + DAY)
    published(loaded, NOW + DAY)
    assert loaded.own_key(first, NOW + DAY) is not None


def test_a_damaged_memory_of_publications_is_told(home: Home) -> None:
    Account.create(home, LOCAL, "alice", NOW)
    path = home.identity_folder(LOCAL, "alice") / "published.json"
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"published\.json is damaged"):
        Account.load(home, LOCAL, "alice", NOW)


def test_two_processes_of_one_identity_publish_the_same_bytes(home: Home) -> None:
    one = Account.create(home, LOCAL, "alice", NOW)
    two = Account.load(home, LOCAL, "alice", NOW)
    assert one.publication(NOW + DAY) == two.publication(NOW + DAY)
    assert msgspec.json.encode(one.prekey_publication(NOW)) == msgspec.json.encode(
        two.prekey_publication(NOW)
    )


# --- renewal of the card


def test_a_card_is_renewed_in_time_and_old_calls_still_open(home: Home) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    old_card, old_spk = account.card, account.operational.public
    due = account.card.card.not_after - RENEW_BEFORE_MS + 1
    assert not account.renewal_due(due - 1)
    assert account.renewal_due(due)
    first = kid(published(account, due))
    account.renew(due)
    card = account.card.card
    assert (card.serial, card.ipk) == (2, old_card.card.ipk)
    assert card.spk != old_spk
    assert not account.was_published
    published(account, due)
    for held in (account, Account.load(home, LOCAL, "alice", due)):
        own = held.own_key(first, due)
        assert own is not None
        assert own.card == old_card
    gone = due + PREKEY_ROTATION_MS + PREKEY_SECRET_TAIL_MS
    published(account, gone)
    assert account.own_key(first, gone) is None
    assert not (home.identity_folder(LOCAL, "alice") / "agent.1.key").exists()


def test_a_renewal_by_another_process_is_taken_over(home: Home) -> None:
    one = Account.create(home, LOCAL, "alice", NOW)
    two = Account.load(home, LOCAL, "alice", NOW)
    due = one.card.card.not_after
    one.renew(due)
    two.renew(due)
    assert two.card == one.card
    assert two.card.card.serial == 2
    three = Account.load(home, LOCAL, "alice", NOW)
    three.refresh(due)
    assert three.card == one.card


def test_a_renewal_needs_the_identity_key(home: Home) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    home.identity_key_file(LOCAL, "alice").unlink()
    with pytest.raises(ConfigError, match="identity key is not at"):
        account.renew(account.card.card.not_after)


def test_a_renewal_unlocks_the_identity_key_with_the_passphrase(home: Home) -> None:
    account = Account.create(home, REMOTE, "alice", NOW, passphrase=lambda: "p")
    loaded = Account.load(home, REMOTE, "alice", NOW, passphrase=lambda: "p")
    loaded.renew(account.card.card.not_after)
    assert loaded.card.card.serial == 2
    assert is_sealed(home.agent_key_file(REMOTE, "alice").read_text())
