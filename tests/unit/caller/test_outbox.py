"""What is on disk before a byte is sent, and what is deleted when a receipt is there."""

import sqlite3
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringline.caller.outbox import KEEP_MS, Outbox, Stored
from ringline.caller.receipt import Receipt
from ringline.client.home import Home
from ringline.protocol.errors import BadSignature, ConfigError, StatementError
from ringline.protocol.frames import CallQueued
from ringline.protocol.limits import ENVELOPE_SKEW_MS
from ringline_testing.agents import NOW_MS

SEED = b"the one-time key, 32 bytes long."


def box(tmp_path: Path) -> Outbox:
    return Outbox(Home(tmp_path / "home"), tmp_path / "home" / "outbox.db")


def stored(message_id: str = "1" * 32, **members: Any) -> Stored:
    values: dict[str, Any] = {
        "callee": "bob",
        "message_id": message_id,
        "correlation_id": "c" * 32,
        "payload": b'{"type":"call_request"}',
        "content": bytes(32),
        "digest": bytes([1]) * 32,
        "from_ipk": bytes([2]) * 32,
        "to_ipk": bytes([3]) * 32,
        "suite": 2,
        "reply_seed": SEED,
        "iat": NOW_MS,
        "exp": NOW_MS + 600_000,
    }
    return Stored(**(values | members))


def receipt(call_id: str = "call") -> Receipt:
    return Receipt(
        call_id=call_id,
        terminal="completed",
        context=b"context",
        body=b"{}",
        signature=bytes(64),
        card=b"card",
        card_signature=bytes(64),
        opened_at=NOW_MS,
    )


def test_a_call_is_kept_and_found(tmp_path: Path) -> None:
    first = box(tmp_path)
    assert first.remember(stored()) == stored()
    first.close()
    second = box(tmp_path)
    assert second.find("bob", "1" * 32) == stored()
    assert second.find("carol", "1" * 32) is None
    assert second.find("bob", "2" * 32) is None


def test_the_file_and_what_lies_beside_it_are_private(tmp_path: Path) -> None:
    kept = box(tmp_path)
    kept.remember(stored())
    files = list((tmp_path / "home").glob("outbox.db*"))
    assert {file.name for file in files} >= {"outbox.db", "outbox.db-wal"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_the_first_of_two_processes_with_one_message_id_wins(tmp_path: Path) -> None:
    one, two = box(tmp_path), box(tmp_path)
    one.remember(stored())
    assert two.remember(stored(payload=b"other")) == stored()
    assert one.find("bob", "1" * 32) == stored()


def test_one_message_id_may_go_to_two_callees(tmp_path: Path) -> None:
    kept = box(tmp_path)
    kept.remember(stored())
    kept.remember(stored(callee="carol"))
    assert kept.find("carol", "1" * 32) == stored(callee="carol")


def test_the_relays_id_is_noted_and_finds_the_call(tmp_path: Path) -> None:
    kept = box(tmp_path)
    kept.remember(stored())
    assert kept.find_call("call") is None
    kept.learned("bob", "1" * 32, "call")
    assert kept.find_call("call") == stored(call_id="call")


def test_a_receipt_takes_the_place_of_the_one_time_key(tmp_path: Path) -> None:
    kept = box(tmp_path)
    kept.remember(stored())
    assert kept.answered("bob", "1" * 32, receipt()) == receipt()
    assert kept.find("bob", "1" * 32) == stored(reply_seed=None, call_id="call", receipt=receipt())
    kept.close()
    everything = b"".join(file.read_bytes() for file in (tmp_path / "home").glob("outbox.db*"))
    assert SEED not in everything
    assert b"context" in everything


def test_deleted_keys_are_overwritten(tmp_path: Path) -> None:
    kept = box(tmp_path)
    assert kept._run.execute("PRAGMA secure_delete").fetchone() == (1,)
    kept.remember(stored())
    kept.answered("bob", "1" * 32, receipt())
    # Another process has the file open, so closing does not empty the log.
    other = box(tmp_path)
    other.purge(NOW_MS)
    everything = b"".join(file.read_bytes() for file in (tmp_path / "home").glob("outbox.db*"))
    assert SEED not in everything


def test_the_first_receipt_stays(tmp_path: Path) -> None:
    kept = box(tmp_path)
    kept.remember(stored())
    kept.answered("bob", "1" * 32, receipt())
    assert kept.answered("bob", "1" * 32, receipt("other")) == receipt()


def test_a_key_is_not_deleted_when_its_receipt_cannot_be_kept(tmp_path: Path) -> None:
    kept = box(tmp_path)
    kept.remember(stored())
    broken = replace(receipt(), context=None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        kept.answered("bob", "1" * 32, broken)
    assert kept.find("bob", "1" * 32) == stored()


def test_a_new_sealing_replaces_the_old_one(tmp_path: Path) -> None:
    kept = box(tmp_path)
    kept.remember(stored())
    anew = stored(payload=b"anew", reply_seed=bytes(32))
    kept.replace(anew)
    assert kept.find("bob", "1" * 32) == anew


def test_what_is_old_is_deleted_with_its_receipt(tmp_path: Path) -> None:
    kept = box(tmp_path)
    kept.remember(stored())
    kept.answered("bob", "1" * 32, receipt())
    kept.purge(NOW_MS + 600_000 + KEEP_MS)
    assert kept.find("bob", "1" * 32) is not None
    kept.purge(NOW_MS + 600_000 + KEEP_MS + 1)
    assert kept.find("bob", "1" * 32) is None
    with sqlite3.connect(kept.path) as file:
        assert file.execute("SELECT count(*) FROM receipts").fetchone() == (0,)


def test_many_threads_of_many_processes_share_a_file(tmp_path: Path) -> None:
    box(tmp_path).close()

    def work(number: int) -> None:
        kept = box(tmp_path)
        for step in range(5):
            kept.remember(stored(f"{number:016x}{step:016x}"))
        kept.close()

    threads = [threading.Thread(target=work, args=(number + 1,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    with sqlite3.connect(tmp_path / "home" / "outbox.db") as file:
        assert file.execute("SELECT count(*) FROM calls").fetchone() == (20,)


def test_a_relay_takes_the_bytes_until_the_time_of_the_seal_is_over() -> None:
    end = NOW_MS + 600_000 + ENVELOPE_SKEW_MS
    assert stored().resendable(end - 1)
    assert not stored().resendable(end)


def test_secrets_are_not_in_the_text_of_a_call() -> None:
    assert repr(SEED)[2:-1] not in repr(stored())


# --- files that cannot be used


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    kept = box(tmp_path)
    kept.close()
    kept.path.chmod(0o640)
    with pytest.raises(ConfigError, match="by others") as caught:
        box(tmp_path)
    assert caught.value.next_step == f"chmod 600 {kept.path}"


@pytest.mark.parametrize("content", [b"garbage" * 1_000, b"SQLite format 3\x00" + b"\xff" * 4_000])
def test_a_damaged_file_is_told_and_left_alone(tmp_path: Path, content: bytes) -> None:
    box(tmp_path).close()
    path = tmp_path / "home" / "outbox.db"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        box(tmp_path)
    assert f"mv {path}" in (caught.value.next_step or "")
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    box(tmp_path).close()
    path = tmp_path / "home" / "outbox.db"
    with sqlite3.connect(path) as file:
        file.execute("PRAGMA application_id = 7")
    with pytest.raises(ConfigError, match="another program"):
        box(tmp_path)


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    box(tmp_path).close()
    with sqlite3.connect(tmp_path / "home" / "outbox.db") as file:
        file.execute("PRAGMA user_version = 9")
    with pytest.raises(ConfigError, match="version 9"):
        box(tmp_path)


def test_a_locked_file_is_told_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringline.caller.outbox_file._BUSY_S", 0.05)
    kept = box(tmp_path)
    other = sqlite3.connect(kept.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ConfigError, match="locked"):
        kept.remember(stored())
    other.execute("ROLLBACK")
    other.close()
    kept.remember(stored())


# --- receipts


def test_a_receipt_that_nobody_signed_does_not_hold() -> None:
    with pytest.raises((BadSignature, StatementError)):
        receipt().check()


# --- durable calls

DURABLE = stored(mode="durable", exp=NOW_MS + 3_600_000)
QUEUED = CallQueued(
    call_id="call",
    message_id="1" * 32,
    correlation_id="c" * 32,
    submitted_at=NOW_MS + 1,
    expires_at=NOW_MS + 3_600_000,
)


def test_the_key_of_a_durable_call_goes_after_the_receipt_and_the_acknowledgement(tmp_path: Path) -> None:
    kept = box(tmp_path)
    kept.remember(DURABLE)
    kept.queued("bob", "1" * 32, QUEUED)
    # Nothing to acknowledge yet, so that the key must stay.
    kept.acknowledged("bob", "1" * 32)
    found = kept.find("bob", "1" * 32)
    assert found is not None
    assert (found.reply_seed, found.call_id, found.execute_by, found.acked) == (
        SEED,
        "call",
        QUEUED.expires_at,
        False,
    )
    kept.answered("bob", "1" * 32, receipt())
    (due,) = kept.unacknowledged()
    assert (due.reply_seed, due.receipt) == (SEED, receipt())
    kept.acknowledged("bob", "1" * 32)
    found = kept.find("bob", "1" * 32)
    assert found is not None
    assert (found.reply_seed, found.acked, found.receipt) == (None, True, receipt())
    assert kept.unacknowledged() == []


def test_an_end_by_the_relays_word_keeps_the_key(tmp_path: Path) -> None:
    kept = box(tmp_path)
    kept.remember(DURABLE)
    kept.ended("bob", "1" * 32, "expired")
    found = kept.find("bob", "1" * 32)
    assert found is not None
    assert (found.ended, found.reply_seed) == ("expired", SEED)


def test_a_durable_call_is_not_sent_again_after_its_time(tmp_path: Path) -> None:
    assert DURABLE.resendable(DURABLE.exp - 1)
    assert not DURABLE.resendable(DURABLE.exp)
    assert stored().resendable(stored().exp)


def test_the_latest_calls_come_first(tmp_path: Path) -> None:
    kept = box(tmp_path)
    for number in "123":
        kept.remember(stored(number * 32, iat=NOW_MS + int(number)))
    assert [each.message_id[0] for each in kept.recent(2)] == ["3", "2"]


def test_an_outbox_of_the_version_before_is_taken_over(tmp_path: Path) -> None:
    kept = box(tmp_path)
    kept.remember(stored())
    kept.close()
    run = sqlite3.connect(tmp_path / "home" / "outbox.db")
    for column in ("mode", "submitted_at", "execute_by", "ended", "acked"):
        run.execute(f"ALTER TABLE calls DROP COLUMN {column}")
    run.execute("PRAGMA user_version = 1")
    run.commit()
    run.close()
    again = box(tmp_path)
    assert again.find("bob", "1" * 32) == stored()
    again.remember(replace(DURABLE, message_id="2" * 32))
    found = again.find("bob", "2" * 32)
    assert found is not None
    assert found.mode == "durable"
