"""Keys that are replaced, handed on, saved and restored; what runs out and what is damaged is told."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringline.client.account import RENEW_BEFORE_MS, Account
from ringline.client.address import RelayAddress
from ringline.client.expiry import card_days, news, warnings
from ringline.client.generation import split_keys
from ringline.client.home import Home
from ringline.client.identity_files import KEPT_IDENTITY
from ringline.client.recovery import export_agent, export_identity, read_export, restore, was_exported
from ringline.client.renewal import IdentityKey, Replacement, next_card, next_identity, revocation
from ringline.protocol.encoding import b64decode
from ringline.protocol.errors import ConfigError, StatementError
from ringline.protocol.identity import Card
from ringline.protocol.keyfile import IdentityKeys, format_plain, parse
from ringline.protocol.signing import SigningKey
from ringline.protocol.statements import (
    Reason,
    Revocation,
    SignedRevocation,
    SignedSuccession,
    Succession,
    check_replacement,
)

LOCAL = RelayAddress.parse("http://127.0.0.1:7575")
NOW = 1_790_000_000_000
DAY = 86_400_000


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def key_of(account: Account) -> IdentityKey:
    return IdentityKey(account.home.identity_key_file(account.address, account.handle))


def publish(account: Account, now_ms: int = NOW) -> None:
    account.note_published(account.publication(now_ms).prekey, now_ms)


def rotate(account: Account, now_ms: int = NOW) -> None:
    assert account.replace(now_ms, lambda card: next_card(key_of(account).read_for(card), card, now_ms))


def hand_over(account: Account, key: IdentityKey | None = None, now_ms: int = NOW) -> None:
    def make(card: Card) -> Replacement:
        following, old = (key or key_of(account)).read_next(card)
        return next_identity(following, old, card, card.id, now_ms)

    assert account.replace(now_ms, make)


# --- replaced


def test_a_successor_is_the_one_that_the_card_had_named(home: Home) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    publish(account)
    before = account.card.card
    hand_over(account)
    after = account.card.card
    stated = account.publication(NOW).succession
    assert stated
    signed = SignedSuccession(
        Succession(
            old_card_id=b64decode(stated.old_card_id), new_ipk=b64decode(stated.new_ipk), ts=stated.ts
        ),
        b64decode(stated.sig),
    )
    check_replacement(before, after, signed)
    # Only with its own card: the next one of the same identity needs no statement.
    publish(account)
    rotate(account)
    assert not account.publication(NOW).succession


def test_a_succession_that_was_cut_off_is_finished_by_the_next_attempt(home: Home) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    publish(account)
    card = account.card.card
    path = key_of(account).path
    following, _ = key_of(account).read_next(card)
    # The new identity key was written, and then nothing more.
    path.write_text(format_plain(following, handle="alice", realm="localhost", created_ms=NOW))
    with pytest.raises(ConfigError, match="was begun and not finished"):
        rotate(account)
    hand_over(account)
    assert account.ipk == SigningKey(following.seed).public
    assert (path.parent / KEPT_IDENTITY).exists()


def test_nobody_succeeds_with_a_key_that_was_not_named(home: Home, tmp_path: Path) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    card = account.card.card
    seed = parse(key_of(account).path.read_text()).seed
    thief = tmp_path / "thief.key"
    for keys in (
        IdentityKeys(seed, SigningKey.generate().seed),
        IdentityKeys(seed),
        IdentityKeys(SigningKey.generate().seed, SigningKey.generate().seed),
    ):
        thief.write_text(format_plain(keys, handle="alice", realm="localhost", created_ms=NOW))
        thief.chmod(0o600)
        with pytest.raises(ConfigError):
            hand_over(account, IdentityKey(thief))
    assert account.card.card == card


def test_an_identity_whose_next_key_is_kept_apart_goes_on_naming_it(home: Home) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    path = key_of(account).path
    seed = parse(path.read_text()).seed
    path.write_text(format_plain(IdentityKeys(seed), handle="alice", realm="localhost", created_ms=NOW))
    named = account.card.card.next
    rotate(account)
    assert account.card.card.next == named != bytes(32)


def test_what_was_asked_of_an_identity_is_signed_by_it_after_it_handed_over(home: Home) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    publish(account)
    old = account.card
    hand_over(account)
    publish(account)
    card, key = account.signer(old.card.ipk)
    assert (card, key.public) == (old, old.card.spk)
    assert account.signer(account.ipk)[0] == account.card


def test_a_process_that_runs_takes_over_what_another_has_made(home: Home) -> None:
    daemon = Account.create(home, LOCAL, "alice", NOW)
    publish(daemon)
    assert not daemon.refresh(NOW)
    rotate(Account.load(home, LOCAL, "alice", NOW))
    assert daemon.refresh(NOW)
    assert daemon.card.card.serial == 2
    assert not daemon.refresh(NOW)


def test_a_card_is_called_back_by_its_identity_or_the_one_that_follows(home: Home) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    card = account.card.card
    keys = key_of(account).read("alice")

    def verify(by: str, held: IdentityKeys) -> SignedRevocation:
        stated = revocation(held, card, card.id, "next" if by == "next" else "identity", Reason.RETIRED, NOW)
        signed = SignedRevocation(
            Revocation(card_id=card.id, reason=Reason.RETIRED, ts=NOW),
            b64decode(stated.sig),
            b64decode(stated.next_ipk) if stated.next_ipk else None,
        )
        signed.verify(card)
        return signed

    assert verify("identity", keys).by == "identity"
    assert verify("next", keys).by == "next"
    hand_over(account)
    assert verify("identity", key_of(account).read("alice")).by == "next"
    with pytest.raises(StatementError):
        verify("next", key_of(account).read("alice"))


# --- what runs out


def test_the_owner_is_told_of_the_days_left_from_two_weeks_on(home: Home) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    end = account.card.card.not_after
    assert warnings(account, end - 14 * DAY - 1) == ()
    assert card_days(account, end - 14 * DAY) == 14
    assert "runs out in 14 days" in warnings(account, end - 14 * DAY)[0]
    assert "runs out in 1 day, on" in warnings(account, end - 1)[0]
    assert "ran out on" in warnings(account, end)[0]
    assert "identity key is not at" not in warnings(account, end)[0]
    key_of(account).path.unlink()
    assert "identity key is not at" in warnings(account, end)[0]


def test_commands_tell_it_once_a_day(home: Home) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    late = account.card.card.not_after - 5 * DAY
    told = [len(news(account, late + hours * 3_600_000)) for hours in (0, 0, 30, 30)]
    assert told == [1, 0, 1, 0]


# --- saved and restored


def test_a_recovery_file_brings_everything_back(home: Home, tmp_path: Path) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    publish(account)
    rotate(account)
    publish(account)
    path = tmp_path / "saved"
    assert not was_exported(account)
    export_identity(account, key_of(account), path, None, NOW)
    assert was_exported(account)
    with pytest.raises(ConfigError, match="exists already"):
        export_identity(account, key_of(account), path, None, NOW)
    other = Home(tmp_path / "other")
    back = restore(other, LOCAL, read_export(path, None), NOW, passphrase=None)
    assert back.cards == account.cards
    assert key_of(back).read("alice") == key_of(account).read("alice")
    assert back.publication(NOW) == account.publication(NOW)


def test_a_file_for_another_host_has_no_identity_key_and_opens_the_same_calls(
    home: Home, tmp_path: Path
) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    publish(account)
    path = tmp_path / "host"
    export_agent(account, path, "p", NOW)
    with pytest.raises(ConfigError, match="locked by a passphrase"):
        read_export(path, None)
    host = restore(Home(tmp_path / "b"), LOCAL, read_export(path, lambda: "p"), NOW, passphrase=None)
    assert not key_of(host).path.exists()
    assert host.publication(NOW) == account.publication(NOW)
    # A later card is taken over, and nothing earlier after it.
    rotate(account)
    later = tmp_path / "later"
    export_agent(account, later, None, NOW)
    assert restore(host.home, LOCAL, read_export(later, None), NOW, passphrase=None).card == account.card
    again = restore(host.home, LOCAL, read_export(path, lambda: "p"), NOW, passphrase=None)
    assert again.card == account.card
    assert [card.card.serial for card in again.cards] == [2, 1]


def test_the_keys_of_another_identity_change_nothing(home: Home, tmp_path: Path) -> None:
    mine = Account.create(home, LOCAL, "alice", NOW)
    theirs = Account.create(Home(tmp_path / "theirs"), LOCAL, "alice", NOW)
    path = tmp_path / "file"
    export_identity(theirs, key_of(theirs), path, None, NOW)
    files = {file: file.read_bytes() for file in key_of(mine).path.parent.glob("*.key")}
    with pytest.raises(ConfigError, match="Nothing was changed"):
        restore(home, LOCAL, read_export(path, None), NOW, passphrase=None)
    assert files == {file: file.read_bytes() for file in key_of(mine).path.parent.glob("*.key")}


# --- damaged files


def load(account: Account, path: Path) -> None:
    Account.load(account.home, LOCAL, "alice", NOW, passphrase=lambda: "p").publication(NOW)
    key_of(account).read_for(account.card.card)
    read_export(path, lambda: "p")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_is_in_a_key_file_the_error_says_which_file_and_what_next(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("fuzz", numbered=True)
    account = Account.create(Home(folder / "home"), LOCAL, "alice", NOW)
    publish(account)
    saved = folder / "saved"
    export_identity(account, key_of(account), saved, None, NOW)
    place = key_of(account).path.parent
    target = data.draw(
        st.sampled_from([place / "agent.key", place / "identity.key", place / "published.json", saved])
    )
    target.write_bytes(data.draw(damaged(target.read_bytes())))
    told: list[ConfigError] = []
    try:
        load(account, saved)
    except ConfigError as error:
        told.append(error)
    for refusal in told:
        assert refusal.next_step
        assert "operational " not in str(refusal)


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """The content of a file, with something wrong; or anything else."""
    lines = content.splitlines(keepends=True)
    places = st.integers(0, len(content) - 1)

    def overwritten(change: tuple[int, int]) -> bytes:
        at, byte = change
        return content[:at] + bytes([byte]) + content[at + 1 :]

    changes: list[st.SearchStrategy[bytes]] = [
        st.binary(max_size=200),
        places.map(lambda end: content[:end]),
        st.tuples(places, st.integers(0, 255)).map(overwritten),
        st.permutations(lines).map(b"".join),
        st.sampled_from(lines).map(lambda line: content + line),
        st.sampled_from(lines).map(lambda line: content.replace(line, b"")),
        st.just(content * 3),
        st.sampled_from([b"9" * 5_000, b"-1", "²".encode(), b"4294967296"]).map(
            lambda digits: content.replace(b"chain ", b"chain " + digits)
        ),
        st.sampled_from(
            [
                b'{"suites":[99],"cards":{}}',
                b'{"suites":[],"cards":{"1":{"\xc2\xb2":1}}}',
                b'{"suites":[2],"cards":{"1":{"99999999999":-5}}}',
                b'{"suites":[2],"cards":{"1":{"4294967295":1}}}',
                b"[" * 10_000,
            ]
        ),
    ]
    return st.one_of(changes)


@given(st.text(max_size=300))
def test_a_text_is_split_into_parts_that_are_the_text(text: str) -> None:
    assert "".join(split_keys(text)) == text


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
@pytest.mark.parametrize("use", ["agent.key", "identity.key", "saved"])
def test_a_key_file_that_others_can_read_is_refused(home: Home, tmp_path: Path, use: str, mode: int) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    publish(account)
    saved = tmp_path / "saved"
    export_identity(account, key_of(account), saved, None, NOW)
    path = saved if use == "saved" else key_of(account).path.parent / use
    path.chmod(mode)
    attempts: dict[str, Callable[[], object]] = {
        "agent.key": lambda: Account.load(home, LOCAL, "alice", NOW),
        "identity.key": lambda: key_of(account).read("alice"),
        "saved": lambda: read_export(saved, None),
    }
    with pytest.raises(ConfigError, match="can be read or changed by others") as refused:
        attempts[use]()
    assert refused.value.next_step == f"chmod 600 {path}"


def test_a_card_is_not_renewed_before_its_time(home: Home) -> None:
    account = Account.create(home, LOCAL, "alice", NOW)
    account.renew(account.card.card.not_after - RENEW_BEFORE_MS)
    assert account.card.card.serial == 1
