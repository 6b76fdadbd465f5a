"""An error says what happened, who says so, what is still true, what to type next, and its code."""

import json

import click
import pytest

from ringline.cli.failure import document, explain, explain_code, lines
from ringline.cli.terminal import json_document
from ringline.protocol.codes import REGISTRY, ErrorCode, Family, Retry, lookup
from ringline.protocol.errors import (
    BodyError,
    CallTimeout,
    ConfigError,
    HttpProblem,
    MessageTooLarge,
    PeerFailure,
    RelayError,
    RinglineError,
    TransportError,
    TrustError,
)

AGAIN = "ringline call bob --id 00000000000000000000000000000001 -"


def told(error: Exception) -> str:
    return "\n".join(lines(explain(error, peer="bob", again=AGAIN)))


@pytest.mark.parametrize("row", REGISTRY.values(), ids=lambda row: f"{row.family}-{row.code}")
def test_every_code_has_all_four_parts(row: ErrorCode) -> None:
    explanation = explain_code(row)
    assert explanation.what
    assert explanation.says.endswith(".")
    assert explanation.still.endswith(".")
    assert "{" not in explanation.what + explanation.says + explanation.still + "".join(explanation.next)
    assert explanation.exit_code == row.exit_code
    # What may be done about it is said, unless the work is over or nothing can be done.
    if row.retry in (Retry.SAFE, Retry.WAIT, Retry.SAME_ID, Retry.PERSON) and row.family is not Family.END:
        assert explanation.next or row.retry is Retry.WAIT


def test_the_relay_s_word_is_marked_as_nobody_s_signature() -> None:
    assert told(RelayError("", code="offline")).splitlines() == [
        "✗ bob is offline.",
        "  The relay says so; nobody has signed it. Nothing was delivered, and nothing has run.",
        f"  Next:  {AGAIN}",
        "         Or leave it with the relay until bob listens:  ringline call bob --durable -",
        "  [offline · exit 11 · safe to retry]",
    ]


def test_the_peer_s_word_is_marked_as_signed_and_told_apart_from_the_relay_s() -> None:
    relay = explain(RelayError("", code="busy"), peer="bob", again=AGAIN)
    peer = explain(PeerFailure("", code="busy"), peer="bob", again=AGAIN)
    assert "sealed and signed" in peer.says
    assert relay.what != peer.what
    assert relay.says != peer.says
    assert (relay.exit_code, peer.exit_code) == (12, 1)


def test_the_peer_s_text_cannot_act_on_the_terminal() -> None:
    text = told(
        PeerFailure("", code="agent_error", detail="\x1b[2Jgone\u202e\nfaked line", offered=("review",))
    )
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert r"their words:  \x1b[2Jgone\u202e\x0afaked line" in text
    assert "offered:  review" in text


def test_a_time_to_wait_comes_first() -> None:
    steps = explain(
        RelayError("", code="rate_limited", retry_after_ms=1_080_000), peer="bob", again=AGAIN
    ).next
    assert steps[0].startswith("Wait 18 min, until ")
    assert steps[1] == AGAIN


@pytest.mark.parametrize("error", [RelayError, HttpProblem])
def test_a_relay_may_name_any_time_to_wait(error: type[RinglineError]) -> None:
    text = told(error("", code="rate_limited", retry_after_ms=2**53 - 1))
    assert "Next:  Wait 104,249,992 days; then:" in text


def test_a_timeout_says_that_the_work_may_run() -> None:
    text = told(RelayError("", code="timeout", call_id="c1", message_id="0" * 31 + "1"))
    assert "may have run or may still run" in text
    assert AGAIN in text
    assert "could run twice" in text
    assert text.endswith("]\n  call c1  message 00000000000000000000000000000001")
    assert "[timeout · exit 14 · retry with the same --id only]" in text


def test_what_was_withdrawn_here_is_not_the_relay_s_word() -> None:
    here = explain(RelayError("", code="canceled", message_id="0" * 31 + "1"), peer="bob")
    there = explain(RelayError("", code="canceled", call_id="c1"), peer="bob")
    assert "this program" in here.says
    assert "relay says so" in there.says


def test_after_a_timeout_without_sending_nothing_could_run_twice() -> None:
    unsent = CallTimeout("the time was over. Nothing was sent.", next_step="give it more time")
    assert explain(unsent, peer="bob", again=AGAIN).next == ("give it more time",)
    sent = CallTimeout("no answer. The call may have run, or still run.", next_step="use the same message_id")
    assert explain(sent, peer="bob", again=AGAIN).next[0] == AGAIN


def test_what_an_error_says_itself_wins_over_the_table() -> None:
    error = TransportError(
        "nothing listens at http://127.0.0.1:7575. Nothing was sent.", next_step="ringline relay dev"
    )
    assert told(error).splitlines() == [
        "✗ nothing listens at http://127.0.0.1:7575.",
        "  Found on this side, by this program. Nothing was sent.",
        "  Next:  ringline relay dev",
        "  [relay_unreachable · exit 30 · safe to retry]",
    ]


def test_work_whose_outcome_is_lost_is_the_peer_s_word_and_no_plain_failure() -> None:
    error = PeerFailure("", code="agent_error", reason="indeterminate_execution", detail="killed")
    text = told(error)
    assert text.startswith("✗ The work may have run, but its outcome is lost.")
    assert "bob says so, sealed and signed." in text
    assert "their words:  killed" in text
    assert "[indeterminate_execution · exit 18 · retry only if doing it twice is harmless]" in text
    made = document(explain(error, peer="bob", again=AGAIN))["error"]
    assert isinstance(made, dict)
    assert (made["code"], made["exit"], made["authenticated"]) == ("indeterminate_execution", 18, True)


@pytest.mark.parametrize("error", [MessageTooLarge, ConfigError, TrustError, BodyError, TransportError])
def test_an_error_after_the_relay_had_the_call_never_says_that_nothing_was_sent(
    error: type[RinglineError],
) -> None:
    text = told(error("x", call_id="c1", message_id="0" * 31 + "1"))
    assert "Nothing was" not in text
    assert "may have run" in text
    assert text.endswith("]\n  call c1  message 00000000000000000000000000000001")


def test_a_call_to_be_repeated_under_its_id_is_repeated_by_its_command() -> None:
    mid = "0" * 31 + "1"
    error = TransportError(
        "it could not be checked",
        call_id="c1",
        message_id=mid,
        still_true="The answer is not lost.",
        next_step=f"ask once more under the same message_id, {mid}",
    )
    explanation = explain(error, peer="bob", again=AGAIN)
    assert explanation.next[0] == AGAIN
    assert (explanation.still, explanation.retry) == ("The answer is not lost.", Retry.SAME_ID)
    # Without a command to name, the library's own words stand.
    assert mid in explain(error, peer="bob").next[0]


def test_lines_of_an_error_stay_lines() -> None:
    rows = lines(
        explain(TrustError("another key.\n  known    aaaa\n  offered  bbbb", code="key_changed"), peer="bob")
    )
    assert rows[:3] == ["✗ another key.", "    known    aaaa", "    offered  bbbb."]


def test_a_command_that_is_not_known_is_not_offered() -> None:
    assert explain(RelayError("", code="offline"), peer="bob").next == ()


def test_a_fault_shows_its_kind_and_no_value() -> None:
    explanation = explain(KeyError("secret-canary"))
    assert explanation.exit_code == 70
    assert explanation.what == "a fault in Ringline itself: KeyError."
    assert "secret-canary" not in json.dumps(document(explanation)) + "\n".join(lines(explanation))


def test_a_mistake_on_the_command_line_names_the_page() -> None:
    context = click.Context(
        click.Command("call"),
        info_name="call",
        parent=click.Context(click.Group("ringline"), info_name="ringline"),
    )
    explanation = explain(click.UsageError("no such thing", context))
    assert (explanation.exit_code, explanation.next) == (2, ("ringline call --help",))


@pytest.mark.parametrize(
    "error",
    [
        RelayError("", code="timeout", call_id="c1"),
        PeerFailure("", detail="\x1b", offered=("a",)),
        PeerFailure("", reason="indeterminate_execution"),
        HttpProblem("", code="rate_limited", retry_after_ms=5),
        RinglineError(),
        ValueError("x"),
    ],
)
def test_the_document_has_one_shape(error: Exception) -> None:
    made = json.loads(json_document(document(explain(error, peer="bob", again=AGAIN))))
    assert set(made) == {"v", "ok", "error"}
    assert (made["v"], made["ok"]) == (1, False)
    assert set(made["error"]) == {
        "code",
        "family",
        "exit",
        "retry",
        "retry_after_ms",
        "authenticated",
        "message",
        "still_true",
        "detail",
        "offered",
        "call_id",
        "message_id",
        "next",
    }
    row = lookup(Family(made["error"]["family"]), made["error"]["code"])
    assert made["error"]["exit"] == row.exit_code
    assert made["error"]["authenticated"] == isinstance(error, PeerFailure)
