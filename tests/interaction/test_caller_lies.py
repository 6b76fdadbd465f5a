"""A relay that lies, on real sockets: what it can make a caller believe, and what it cannot."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ringline.caller import AsyncCaller
from ringline.protocol.bodies import Outcome, Reply
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import (
    CallTimeout,
    CannotOpen,
    ConfigError,
    HttpProblem,
    RelayError,
    RinglineError,
    TransportError,
    TrustError,
)
from ringline.protocol.limits import UNDECODABLE_FRAMES
from ringline.protocol.prekeys import Chain
from ringline.protocol.signing import SigningKey
from ringline_testing.canned import canned_server
from ringline_testing.middleman import Frames, Middleman, answer_json, middleman
from ringline_testing.relay import running_relay
from ringline_testing.scripted import ScriptedCall, ScriptedListener, scripted_listener
from ringline_testing.signed import Answer, Owner


@pytest.fixture
async def liar() -> AsyncIterator[tuple[Middleman, ScriptedListener]]:
    """A lying relay, and an honest bob behind it."""
    async with (
        running_relay() as relay,
        scripted_listener(relay.port, "bob") as bob,
        middleman(relay.port) as middle,
    ):
        yield middle, bob


def caller(middle: Middleman, home: Path, **options: Any) -> AsyncCaller:
    return AsyncCaller("alice", relay=middle.url, home=home, note=lambda text: None, **options)


def show_keys(middle: Middleman, owner: Owner, **changes: Any) -> None:
    """Let the relay answer with these keys when it is asked for bob's."""

    def change(method: str, target: str, answer: Answer) -> Answer:
        if method == "GET" and target.startswith("/v1/handles/bob"):
            return answer_json(answer, **(owner.publication() | changes))
        return answer

    middle.on_answer = change


async def test_a_swapped_key_stops_the_call_before_anything_is_sealed(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, bob = liar
    async with caller(middle, tmp_path) as me:
        await me.call("bob", "x", timeout=60)
        sent = len(middle.up)
    show_keys(middle, Owner(handle="bob", port=0))
    async with caller(middle, tmp_path) as me:
        with pytest.raises(TrustError, match="not the one that is known") as caught:
            await me.call("bob", "y", timeout=60)
        assert (caught.value.code, caught.value.exit_code) == ("key_changed", 22)
        assert "contacts.toml" in (caught.value.next_step or "")
    assert len(middle.up) == sent
    # The pin is what it was.
    middle.on_answer = lambda method, target, answer: answer
    async with caller(middle, tmp_path) as me:
        assert (await me.call("bob", "z", timeout=60)).signed_by.ipk == bob.owner.identity.public


async def test_keys_of_another_handle_do_not_pass_for_bobs(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, _ = liar
    show_keys(middle, Owner(handle="eve", port=0))
    async with caller(middle, tmp_path) as me:
        with pytest.raises(TrustError, match="of another handle") as caught:
            await me.call("bob", "y", timeout=60)
        assert caught.value.code == "bad_signature"


async def test_a_prekey_that_bob_has_not_signed_is_not_sealed_to(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, bob = liar
    stranger = Owner(handle="bob", port=0)
    show_keys(middle, bob.owner, **stranger.prekey_publication())
    async with caller(middle, tmp_path) as me:
        with pytest.raises(TrustError):
            await me.call("bob", "y", timeout=60)
    assert bob.calls == []


async def test_revoked_keys_are_not_sealed_to(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, bob = liar
    show_keys(middle, bob.owner, revoked=[b64encode(bob.owner.card.card.id)])
    async with caller(middle, tmp_path) as me:
        with pytest.raises(TrustError) as caught:
            await me.call("bob", "y", timeout=60)
        assert (caught.value.code, caught.value.exit_code) == ("revoked", 24)


async def test_older_keys_are_not_taken_after_newer_ones(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, bob = liar
    async with caller(middle, tmp_path) as me:
        await me.call("bob", "x", timeout=60)
    older = replace(bob.owner, chain=Chain.start(bob.owner.chain.epoch - 1))
    show_keys(middle, older)
    async with caller(middle, tmp_path) as me:
        with pytest.raises(TrustError, match="older prekeys") as caught:
            await me.call("bob", "y", timeout=60)
        assert caught.value.code == "key_changed"
    assert len(bob.calls) == 1


async def test_a_suite_below_the_lowest_allowed_is_never_sealed_to(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, bob = liar
    async with caller(middle, tmp_path, min_suite=2) as me:
        with pytest.raises(TrustError, match="no key of a suite that is allowed"):
            await me.call("bob", "y", timeout=60)
    assert bob.calls == []


async def test_a_hybrid_recipient_never_gets_a_lesser_seal(tmp_path: Path) -> None:
    async with running_relay() as relay, scripted_listener(relay.port, "bob", suites=(1, 2)) as bob:
        async with middleman(relay.port) as middle, caller(middle, tmp_path) as me:
            lesser = replace(bob.owner, suites=(1,))

            def strip(method: str, target: str, answer: Answer) -> Answer:
                if target == "/v1/handles/bob":
                    # Only bob can sign a statement with fewer suites; the relay can take his old bytes.
                    statement = bob.owner.prekey.prekey.encode()
                    assert lesser.prekey.prekey.encode() != statement
                    return answer_json(answer, prekey=b64encode(lesser.prekey.prekey.encode()))
                return answer

            middle.on_answer = strip
            with pytest.raises(TrustError):
                await me.call("bob", "x", timeout=60)
            middle.on_answer = lambda method, target, answer: answer
            await me.call("bob", "x", timeout=60)
        assert [call.frame.envelope.suite for call in bob.calls] == [2]


async def test_keys_that_did_not_open_are_looked_up_again_for_the_next_call(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, bob = liar
    answer = bob.script

    async def reject(call: ScriptedCall) -> None:
        await call.reject()

    def looked_up() -> int:
        return sum(target == "/v1/handles/bob" for _, target in middle.requests)

    async with caller(middle, tmp_path) as me:
        await me.call("bob", "x", timeout=60)
        await me.call("bob", "x", timeout=60)
        assert looked_up() == 1
        bob.script = reject
        with pytest.raises(RelayError) as caught:
            await me.call("bob", "x", timeout=60)
        assert (caught.value.code, looked_up()) == ("protocol_error", 1)
        bob.script = answer
        await me.call("bob", "x", timeout=60)
        assert looked_up() == 2


async def test_another_realm_is_a_hard_stop(liar: tuple[Middleman, ScriptedListener], tmp_path: Path) -> None:
    middle, _ = liar

    def rename(method: str, target: str, answer: Answer) -> Answer:
        return answer_json(answer, realm="relay.example") if target == "/v1/relay" else answer

    middle.on_answer = rename
    with pytest.raises(ConfigError, match=r"says it is of realm relay\.example, not localhost"):
        async with caller(middle, tmp_path):
            pass
    assert [target for _, target in middle.requests] == ["/v1/relay"]


async def test_a_flipped_end_does_not_open(liar: tuple[Middleman, ScriptedListener], tmp_path: Path) -> None:
    middle, _ = liar

    def flip(frame: dict[str, Any]) -> Frames:
        if frame["type"] == "call_outcome":
            return [frame | {"terminal": "failed"}]
        return [frame]

    middle.on_down = flip
    async with caller(middle, tmp_path) as me:
        call = me.start("bob", "x", timeout=60)
        with pytest.raises(CannotOpen) as caught:
            await call.result()
        assert (caught.value.exit_code, caught.value.call_id) == (23, call.call_id)
        last = [event async for event in call.events()][-1]
        assert (last.name, last.authenticated) == ("ended", False)


async def test_a_tampered_outcome_does_not_end_the_call_when_the_true_one_follows(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, _ = liar

    def double(frame: dict[str, Any]) -> Frames:
        if frame["type"] != "call_outcome":
            return [frame]
        envelope = frame["envelope"]
        ct = envelope["ct"]
        broken = ct[:100] + ("A" if ct[100] != "A" else "B") + ct[101:]
        lie = {"type": "call_error", "origin": "relay", "code": "timeout", "call_id": frame["call_id"]}
        return [frame | {"envelope": envelope | {"ct": broken}}, frame, lie, frame]

    middle.on_down = double
    async with caller(middle, tmp_path) as me:
        # A late timeout does not replace it either.
        assert (await me.call("bob", "x", timeout=60)).text == "x"


async def test_a_fault_while_an_outcome_is_opened_ends_the_call_and_shows_nothing(
    liar: tuple[Middleman, ScriptedListener],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*args: object, **members: object) -> None:
        raise RuntimeError("what was sealed")

    monkeypatch.setattr("ringline.caller.post.open_answer", fail)
    async with caller(liar[0], tmp_path) as me:
        with pytest.raises(RinglineError, match="could not be checked") as caught:
            await me.call("bob", "x", timeout=60)
        # It is no word against who sealed it.
        assert (type(caught.value), caught.value.code) == (RinglineError, "internal_error")
        assert "may have run" in (caught.value.still_true or "")
    assert "RuntimeError" in caplog.text
    assert "what was sealed" not in caplog.text


async def test_a_flood_of_forged_outcomes_ends_the_call_and_asks_for_few_cards(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, _ = liar

    def flood(frame: dict[str, Any]) -> Frames:
        if frame["type"] != "call_outcome":
            return [frame]
        forged = [b64encode(number.to_bytes(32)) for number in range(1, 201)]
        return [frame | {"envelope": frame["envelope"] | {"sid": sid}} for sid in forged]

    middle.on_down = flood
    async with caller(middle, tmp_path) as me:
        with pytest.raises(CannotOpen):
            await me.call("bob", "x", timeout=60)
    asked = [target for _, target in middle.requests if "?card=" in target]
    assert len(asked) <= 4 * 3


async def test_the_outcome_of_another_call_is_not_taken(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, _ = liar
    outcomes: list[dict[str, Any]] = []

    def collect(frame: dict[str, Any]) -> Frames:
        if frame["type"] != "call_outcome":
            return [frame]
        outcomes.append(frame)
        if len(outcomes) < 2:
            return []
        first, second = outcomes
        return [first | {"envelope": second["envelope"]}, second | {"envelope": first["envelope"]}]

    middle.on_down = collect
    async with caller(middle, tmp_path) as me:
        results = await asyncio.gather(
            me.call("bob", "1", timeout=60), me.call("bob", "2", timeout=10), return_exceptions=True
        )
        assert [type(result) for result in results] == [CannotOpen, CannotOpen]


async def test_an_outcome_of_another_identity_is_not_taken(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, bob = liar
    eve = Owner(handle="bob", port=bob.owner.port)

    async def impersonate(call: ScriptedCall) -> None:
        await call.accept()
        await call.start()
        await call.finish(Outcome(reason="completed", reply=Reply(text="I am bob")), owner=eve)

    bob.script = impersonate

    def vouch(method: str, target: str, answer: Answer) -> Answer:
        if f"card={b64encode(eve.card.card.id)}" in target:
            body: dict[str, Any] = {
                "handle": "bob",
                "card": b64encode(eve.card.card.encode()),
                "card_sig": b64encode(eve.card.signature),
                "revoked": [],
            }
            return Answer(200, (("content-type", "application/json"),), msgspec.json.encode(body))
        return answer

    middle.on_answer = vouch
    async with caller(middle, tmp_path) as me:
        with pytest.raises(CannotOpen):
            await me.call("bob", "x", timeout=60)


async def test_a_signers_card_that_cannot_be_told_at_once_is_asked_for_again(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringline.caller.post._SIGNER_PAUSE_S", 0.01)
    middle, bob = liar
    before = bob.owner
    refused: list[str] = []

    async def renew(call: ScriptedCall) -> None:
        after = before.renewed()
        assert (await after.publish()).status in (200, 201)
        await call.accept()
        await call.start()
        await call.finish(Outcome(reason="completed", reply=Reply(text="renewed")), owner=after)

    def stumble(method: str, target: str, answer: Answer) -> Answer:
        if "?card=" in target and not refused:
            refused.append(target)
            return Answer(503, (), b"")
        return answer

    bob.script, middle.on_answer = renew, stumble
    async with caller(middle, tmp_path) as me:
        reply = await me.call("bob", "x", timeout=60)
        assert (reply.text, reply.receipt.check().serial) == ("renewed", 2)
    assert len(refused) == 1


@pytest.mark.parametrize(
    ("status", "kind", "exit_code"),
    [(503, TransportError, 30), (401, HttpProblem, 20)],
    ids=["away", "refused"],
)
async def test_an_answer_that_cannot_be_checked_is_not_called_forged(
    liar: tuple[Middleman, ScriptedListener],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    kind: type[RinglineError],
    exit_code: int,
) -> None:
    monkeypatch.setattr("ringline.caller.post._SIGNER_PAUSE_S", 0.01)
    middle, bob = liar
    after = bob.owner.renewed()

    async def renew(call: ScriptedCall) -> None:
        assert (await after.publish()).status in (200, 201)
        await call.accept()
        await call.start()
        await call.finish(Outcome(reason="completed", reply=Reply(text="renewed")), owner=after)

    def refuse(method: str, target: str, answer: Answer) -> Answer:
        if "?card=" not in target:
            return answer
        problem = b'{"type":"about:blank","title":"no","status":401,"code":"unauthorized"}'
        return Answer(
            status, (("content-type", "application/problem+json"),), problem if status == 401 else b""
        )

    bob.script, middle.on_answer = renew, refuse
    async with caller(middle, tmp_path) as me:
        call = me.start("bob", "x", timeout=60)
        with pytest.raises(kind, match="an answer of bob is here, and it could not be checked") as caught:
            await call.result()
        error = caught.value
        assert (error.exit_code, error.call_id, error.message_id) == (
            exit_code,
            call.call_id,
            call.message_id,
        )
        assert "not lost" in (error.still_true or "")
        assert call.message_id in (error.next_step or "")
        # What the error says is so: the same call again gets the same outcome, and runs nothing.
        middle.on_answer = lambda method, target, answer: answer
        again = await me.call("bob", "x", timeout=60, message_id=call.message_id)
        assert (again.text, len(bob.calls)) == ("renewed", 1)


async def test_an_answer_under_a_revoked_key_is_told_as_that(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, bob = liar
    after = bob.owner.renewed()

    async def renew(call: ScriptedCall) -> None:
        assert (await after.publish()).status in (200, 201)
        await call.accept()
        await call.start()
        await call.finish(Outcome(reason="completed", reply=Reply(text="renewed")), owner=after)

    def revoke(method: str, target: str, answer: Answer) -> Answer:
        return answer_json(answer, revoked=[b64encode(after.card.card.id)]) if "?card=" in target else answer

    bob.script, middle.on_answer = renew, revoke
    async with caller(middle, tmp_path) as me:
        with pytest.raises(TrustError, match="a key that bob has revoked since") as caught:
            await me.call("bob", "x", timeout=60)
        assert (caught.value.code, caught.value.exit_code) == ("revoked", 24)
        assert "Nothing was sealed" not in str(caught.value)


async def test_what_could_not_be_kept_of_a_call_is_noted_and_the_call_goes_on(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, _ = liar
    notes: list[str] = []
    async with AsyncCaller("alice", relay=middle.url, home=tmp_path, note=notes.append) as me:
        outbox = (await me._ready()).outbox

        def fill(frame: dict[str, Any]) -> Frames:
            outbox._run.execute("PRAGMA query_only = 1")  # what a full disk does to it
            return [frame]

        middle.on_down = fill
        assert (await me.call("bob", "x", timeout=60)).text == "x"
    assert any(note.startswith("what became of a call was not kept") for note in notes)
    assert any(note.startswith("the receipt was not kept") for note in notes)
    # The call was sent, whatever became of the file.
    assert not any("Nothing was sent" in note for note in notes)


async def test_who_closes_a_caller_can_be_cancelled_himself(tmp_path: Path) -> None:
    async with canned_server(lambda asked: None) as silent:
        me = AsyncCaller("alice", relay=silent.url, home=tmp_path)
        opening = asyncio.create_task(me.account())
        await asyncio.wait_for(silent.came.wait(), 10)
        closing = asyncio.create_task(me.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await me.close()
        with pytest.raises(asyncio.CancelledError):
            await opening


async def test_invented_statuses_and_foreign_ids_are_counted_and_ignored(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, _ = liar
    zeros, ones = "0" * 31 + "1", "1" * 32

    def invent(frame: dict[str, Any]) -> Frames:
        error = {"type": "call_error", "origin": "relay", "code": "canceled"}
        status = {"type": "call_status", "state": "working"}
        if frame["type"] != "call_status" or frame["state"] != "ringing":
            return [frame]
        return [
            status | {"call_id": "another", "correlation_id": zeros},
            error | {"call_id": "another"},
            error | {"correlation_id": zeros},
            frame,
            # The right id of one with the wrong id of the other.
            status | {"call_id": frame["call_id"], "correlation_id": ones},
            error | {"call_id": frame["call_id"], "correlation_id": ones},
            status | {"call_id": "another", "correlation_id": frame["correlation_id"]},
            {"type": "call_not_cancelled", "call_id": frame["call_id"], "reason": "too_late"},
            {
                "type": "call_queued",
                "call_id": frame["call_id"],
                "message_id": ones,
                "correlation_id": frame["correlation_id"],
                "submitted_at": 1,
                "expires_at": 2,
            },
        ]

    middle.on_down = invent
    async with caller(middle, tmp_path) as me:
        call = me.start("bob", "x", timeout=60)
        assert (await call.result()).text == "x"
        names = [event.name async for event in call.events()]
        assert names == ["sealed", "sent", "ringing", "answered", "working", "completed"]
        strays = (await me._ready()).line("bob").session.strays
        assert (strays.unknown, strays.mismatched) == (4, 4)


async def test_damaged_frames_are_counted_and_after_twenty_the_connection_is_made_anew(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, bob = liar
    garbage: Frames = [
        "",
        "[]",
        "null",
        '{"type":"call_status"}',
        b"\x00binary",
        "{" * 5_000,
        '{"a":1,"a":2}',
    ]
    flood = (garbage * 3)[: UNDECODABLE_FRAMES - 1]

    def spoil(frame: dict[str, Any]) -> Frames:
        if frame["type"] == "call_status" and frame["state"] == "answered":
            # The first connection gets one more than a client stands.
            more: Frames = ["?"] if not closed else []
            closed.append(True)
            return [*flood, *more, frame]
        return [frame]

    closed: list[bool] = []
    middle.on_down = spoil
    async with caller(middle, tmp_path) as me:
        assert (await me.call("bob", "x", timeout=60)).text == "x"
        link = (await me._ready()).line("bob").link
        assert link.damaged >= UNDECODABLE_FRAMES
    assert len([target for _, target in middle.requests if target == "/v1/call/bob"]) == 2
    assert len(bob.calls) == 1


async def test_nineteen_damaged_frames_are_survived(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, _ = liar

    def spoil(frame: dict[str, Any]) -> Frames:
        return [*["?"] * (UNDECODABLE_FRAMES - 1), frame] if frame["type"] == "call_outcome" else [frame]

    middle.on_down = spoil
    async with caller(middle, tmp_path) as me:
        assert (await me.call("bob", "x", timeout=60)).text == "x"
    assert len([target for _, target in middle.requests if target == "/v1/call/bob"]) == 1


async def test_silence_ends_by_the_callers_own_time(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, _ = liar
    middle.on_down = lambda frame: []
    async with caller(middle, tmp_path) as me:
        with pytest.raises(CallTimeout, match="may have run"):
            await me.call("bob", "x", timeout=2)


async def test_an_error_without_any_id_ends_the_only_call_in_question(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, _ = liar
    middle.on_up = lambda frame: ["{}"]
    async with caller(middle, tmp_path) as me:
        with pytest.raises(RelayError) as caught:
            await me.call("bob", "x", timeout=60)
        assert (caught.value.code, caught.value.call_id) == ("protocol_error", None)


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", "drops the Upgrade header"),
        (b"HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n", "drops the Upgrade header"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", "drops the Upgrade header"),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "not a Ringline relay"),
        (b"not HTTP at all\r\n\r\n", "drops the Upgrade header"),
        (b"", "drops the Upgrade header"),
    ],
)
async def test_a_proxy_that_drops_the_upgrade_is_named(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path, response: bytes, text: str
) -> None:
    middle, _ = liar
    middle.on_upgrade = lambda target: response
    async with caller(middle, tmp_path) as me:
        with pytest.raises(TransportError, match=text) as caught:
            await me.call("bob", "x", timeout=60)
        assert "Nothing was sent" in str(caught.value) or "not a Ringline relay" in str(caught.value)


async def test_a_redirect_is_not_followed(liar: tuple[Middleman, ScriptedListener], tmp_path: Path) -> None:
    middle, _ = liar
    visitors: list[bytes] = []

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visitors.append(await reader.read(1_000))
        writer.close()

    server = await asyncio.start_server(elsewhere, "127.0.0.1", 0)
    async with server:
        place = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        redirect = f"HTTP/1.1 302 Found\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n".encode()
        middle.on_upgrade = lambda target: redirect
        async with caller(middle, tmp_path) as me:
            with pytest.raises(TransportError, match="redirect"):
                await me.call("bob", "x", timeout=60)

        def move(method: str, target: str, answer: Answer) -> Answer:
            return Answer(307, (("location", place),), b"") if target == "/v1/handles/bob" else answer

        middle.on_answer = move
        async with caller(middle, tmp_path) as me:
            with pytest.raises(TransportError, match="redirect"):
                await me.call("bob", "x", timeout=60)
    assert visitors == []


async def test_a_revoked_login_is_not_dialled_again(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, bob = liar
    started = asyncio.Event()

    async def work(call: ScriptedCall) -> None:
        await call.accept()
        started.set()

    bob.script = work
    async with caller(middle, tmp_path) as me:
        call = me.start("bob", "x", timeout=60)
        await started.wait()
        middle.passing[0].close(4001, "revoked")
        with pytest.raises(TrustError) as caught:
            await call.result()
        assert caught.value.code == "revoked"


async def test_a_weak_identity_key_is_refused(
    liar: tuple[Middleman, ScriptedListener], tmp_path: Path
) -> None:
    middle, bob = liar
    owner = bob.owner
    weak = bytes([1]) + bytes(31)
    card = owner.card.card.encode().replace(owner.identity.public, weak)
    show_keys(middle, owner, card=b64encode(card), card_sig=b64encode(weak + bytes(32)))
    async with caller(middle, tmp_path) as me:
        with pytest.raises(TrustError):
            await me.call("bob", "x", timeout=60)
    assert bob.calls == []
    assert SigningKey.generate().public != weak
