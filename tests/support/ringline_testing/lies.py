"""Every lie that a relay is made to tell in the tests, and what comes of it: the table of docs/lies.md.

Each row names the test that tells the lie to a real caller or listener over real sockets; what a person reads
must be a text that this test looks for. ``python -m ringline_testing.lies`` writes the page anew.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ringline_testing.checkout import ROOT

__all__ = ["LIES", "PAGE", "Lie", "page", "texts"]

PAGE: Final = ROOT / "docs" / "lies.md"

Outcome: TypeAlias = Literal["refused", "reported", "no effect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lie:
    """One lie. ``reads`` is a part of what its victim is told, None when there is nothing to tell."""

    about: Literal["keys", "log", "listener", "caller", "waiting"]
    told: str
    to: Literal["caller", "listener", "both"]
    outcome: Outcome
    what: str
    reads: str | None
    test: str
    """File in tests/interaction, and function."""


def _keys(told: str, what: str, reads: str, test: str) -> Lie:
    return Lie(about="keys", told=told, to="caller", outcome="refused", what=what, reads=reads, test=test)


def _log(
    told: str, to: Literal["caller", "listener", "both"], outcome: Outcome, what: str, reads: str, test: str
) -> Lie:
    return Lie(
        about="log",
        told=told,
        to=to,
        outcome=outcome,
        what=what,
        reads=reads,
        test=f"test_keylog_lies.py::{test}",
    )


def _call(told: str, outcome: Outcome, what: str, reads: str | None, test: str) -> Lie:
    return Lie(about="listener", told=told, to="listener", outcome=outcome, what=what, reads=reads, test=test)


def _answer(told: str, outcome: Outcome, what: str, reads: str | None, test: str) -> Lie:
    return Lie(about="caller", told=told, to="caller", outcome=outcome, what=what, reads=reads, test=test)


def _waiting(told: str, what: str, reads: str, test: str, outcome: Outcome = "reported") -> Lie:
    return Lie(about="waiting", told=told, to="caller", outcome=outcome, what=what, reads=reads, test=test)


_C: Final = "test_caller_lies.py::"
_R: Final = "test_relay_lies.py::"
_CHANGED: Final = _R + "test_a_call_that_the_relay_changed_is_refused_and_never_runs"
_RECORD: Final = _R + "test_a_record_that_the_relay_invents_is_no_answer_and_the_true_one_stays_good"
_NOTHING_SEALED: Final = "nothing is sealed"
_NOT_RUN: Final = "nothing runs; the caller gets the relay's unsigned word"

# A table is read by its rows.
# fmt: off
LIES: Final = (
    _keys("swaps the keys of a known peer", _NOTHING_SEALED + "; the pin stays",
          "not the one that is known", _C + "test_a_swapped_key_stops_the_call_before_anything_is_sealed"),
    _keys("shows another handle's keys", _NOTHING_SEALED,
          "of another handle", _C + "test_keys_of_another_handle_do_not_pass_for_bobs"),
    _keys("serves stale prekeys after newer ones", _NOTHING_SEALED,
          "older prekeys", _C + "test_older_keys_are_not_taken_after_newer_ones"),
    _keys("offers a suite below the lowest that is allowed", _NOTHING_SEALED,
          "no key of a suite that is allowed", _C + "test_a_suite_below_the_lowest_allowed_is_never_sealed_to"),
    _keys("says it is of another realm", "it is not used at all",
          r"says it is of realm relay\.example, not localhost", _C + "test_another_realm_is_a_hard_stop"),
    _keys("redirects the connection elsewhere", "nothing goes there",
          "redirect", _C + "test_a_redirect_is_not_followed"),
    _log("swaps keys at a first contact", "caller", "refused", _NOTHING_SEALED,
         "entry 0 is not this card", "test_a_key_that_the_relay_swaps_for_one_victim_is_refused_at_the_first_contact"),
    _log("serves an old card at a first contact", "caller", "refused", _NOTHING_SEALED,
         "card number 1, and entry 1 is another card", "test_an_old_card_that_the_relay_serves_is_refused_at_the_first_contact"),
    _log("hides a revocation", "caller", "refused", _NOTHING_SEALED,
         "entry 1 of its own key log says so", "test_a_revocation_that_the_relay_drops_is_found_in_its_log"),
    _log("forks the log for one client", "both", "reported", "both keep the evidence; the answer is the callee's",
         "says, sealed and signed", "test_a_log_that_is_forked_for_one_client_is_reported_by_both_sides_of_a_call"),
    _log("rewrites an entry that was seen", "caller", "refused", _NOTHING_SEALED + "; the evidence is kept",
         "is not what it was", "test_an_entry_that_is_rewritten_after_it_was_seen_is_refused"),
    _log("adds a card for somebody else's handle", "listener", "reported", "its owner is told",
         "a card for your handle bob that you did not publish", "test_a_card_for_a_listeners_handle_that_he_did_not_publish_is_told_to_him"),
    _log("denies that it has a log, in the development realm", "caller", "reported", "the pins hold as before",
         "another development relay answers here", "test_a_log_that_the_relay_denies_is_asked_for"),

    _call("relabels `from`", "refused", _NOT_RUN, "a call from mallory was refused",
          _R + "test_a_relabelled_call_is_told_by_the_name_it_was_given"),
    _call("alters the sealed bytes, the message id or the delivery mode", "refused", _NOT_RUN, " was refused: ", _CHANGED),
    _call("redirects a call to another listener", "refused", "nothing runs", "a call from alice was refused",
          _R + "test_a_call_that_is_taken_to_somebody_else_is_refused_there"),
    _call("offers a call twice, under two ids", "no effect", "runs once; the second is answered by the first run", None,
          _R + "test_a_call_that_is_offered_again_under_another_id_runs_once"),
    _call("replays a call after its end", "no effect", "not run again; answered from the journal", None,
          _R + "test_a_call_that_is_replayed_after_its_end_is_not_run_again"),
    _call("tells a wrong time, to revive what has run out", "refused", "judged by the own clock too", "has run out",
          "test_listener_opening.py::test_a_relay_that_tells_a_wrong_time_revives_nothing"),
    Lie(about="listener", told="keeps a clock that is wrong, and admits by it", to="both", outcome="reported",
        what="both are told; how long keys hold is judged by their own clocks",
        reads="behind the relay's; set it, because keys are judged by it",
        test=_R + "test_a_clock_of_the_relays_that_is_wrong_is_told_to_both_sides"),
    _call("forges `cancel_call`", "reported",
          "the work is stopped, as if its caller had asked; the caller gets no answer and the relay's unsigned word",
          "The relay says so; nobody has signed it.", _R + "test_work_that_the_relay_has_stopped_unasked_yields_no_answer"),

    _answer("flips `terminal`", "refused", "no answer is given", "CannotOpen", _C + "test_a_flipped_end_does_not_open"),
    _answer("alters an answer and sends the true one too", "no effect", "the true one is taken", None,
            _C + "test_a_tampered_outcome_does_not_end_the_call_when_the_true_one_follows"),
    _answer("exchanges the answers of two calls", "refused", "neither is taken", "CannotOpen",
            _C + "test_the_outcome_of_another_call_is_not_taken"),
    _answer("replays the answer of an earlier call", "refused", "no answer is given",
            "what the relay delivered as bob's answer is not what bob sealed",
            _R + "test_an_earlier_answer_is_not_taken_for_a_later_one"),
    _answer("sends the request back as its answer", "refused", "no answer is given",
            "is not what bob sealed for this call", _R + "test_a_request_that_comes_back_is_not_taken_for_its_answer"),
    _answer("answers itself, under keys of its own", "refused", "no answer is given", "CannotOpen",
            _C + "test_an_outcome_of_another_identity_is_not_taken"),
    _answer("invents an end by `call_error`", "reported", "told as the relay's word",
            "The relay says so; nobody has signed it.", _R + "test_an_end_that_the_relay_invents_is_its_word_alone"),
    _answer("forges the confirmation of a cancellation", "reported", "told as the relay's word; the work may have run",
            "The relay says so; nobody has signed it.", _R + "test_a_cancellation_that_the_relay_invents_is_its_word_alone"),
    _answer("invents statuses, and ids of no call", "no effect", "counted, and no event of theirs is authenticated", None,
            _C + "test_invented_statuses_and_foreign_ids_are_counted_and_ignored"),
    _answer("reorders answer and statuses", "no effect", "the answer is the callee's", None,
            _R + "test_an_answer_that_overtakes_its_statuses_is_the_answer"),
    _answer("tells a wrong time in one answer", "no effect", "the next one puts it right", None,
            _R + "test_a_wrong_time_in_one_answer_costs_a_second_try"),
    _answer("drops everything", "reported", "ends by the caller's own time", "may have run",
            _C + "test_silence_ends_by_the_callers_own_time"),

    _waiting("invents an end of a waiting call", "told as the record's word; the true answer stays good",
             "The relay's record of the call says so; nobody has signed it.", _RECORD),
    _waiting("withholds the answer to a waiting call", "it can be fetched later",
             "the call has not ended yet", _RECORD),
    _waiting("shows another call's record", "it is not read",
             "the relay answered with another call's record", _RECORD, "refused"),
    _waiting("denies a call that it took", "not said to have failed",
             "the relay does not know the call any more", _R + "test_a_call_that_the_relay_denies_is_not_said_to_have_failed"),
)
# fmt: on

_TITLES: Final = {
    "keys": "About a peer's keys, without a key log",
    "log": "About keys, with a key log",
    "listener": "About calls on their way to a listener",
    "caller": "About answers on their way to a caller",
    "waiting": "About calls that wait",
}
_PLAIN: Final = {
    "CannotOpen": "what the relay delivered as bob's answer is not what bob sealed for this call",
    r"says it is of realm relay\.example, not localhost": "says it is of realm relay.example, not localhost",
    " was refused: ": "a call from alice was refused: it does not open",
    "redirect": "… answered … with a redirect",
    "may have run": "no answer within 20 s. The call may have run, or still run",
    "has run out": "a call from alice was refused: it has run out",
}
_HEAD: Final = """# What a relay may lie about

A relay carries calls and serves keys; it is trusted with neither. The tests have a relay that lies, on real
sockets, to real callers and listeners: these are its lies, and what comes of each. **Refused**: nothing is
taken. **Reported**: it cannot be prevented, and whoever is lied to reads what was seen and who says so. **No
effect**: the right thing happens all the same. No lie yields an answer that its callee did not give.

In the texts bob is the callee and alice calls. This page is made from `tests/support/ringline_testing/lies.py`,
and each row is a test in `tests/interaction`.
"""
_TAIL: Final = """
## What stays possible

A relay can refuse, delay and drop calls, see who calls whom, and say that nobody is there: that is its word, and
shown as such. It can cancel work that its caller did not cancel, which loses an answer and fakes none. At a first
contact without a contact string, an invite or a key log there is only its word for a key. A key log that is
forked for two people who never meet, not even through others, stays unnoticed. And to several hosts of one handle
with separate journals it can give the same call once each. Between the two sides of a spoken code it has one guess at
the words with each of them: one of the two is right once in 32,768 times, and whoever a wrong one was tried on is told.
"""


def page() -> str:
    """Return the page."""
    text = _HEAD
    for about, title in _TITLES.items():
        text += (
            f"\n## {title}\n\n| the relay | it is | | they read | test |\n| --- | --- | --- | --- | --- |\n"
        )
        for lie in LIES:
            if lie.about == about:
                file, name = lie.test.split("::")
                reads = "" if lie.reads is None else f"“{_PLAIN.get(lie.reads, lie.reads)}”"
                told = f"{lie.told} (to the {lie.to})" if about == "log" and lie.to != "both" else lie.told
                text += f"| {told} | {lie.outcome} | {lie.what} | {reads} | `{file.removesuffix('.py')}`: {name[5:].replace('_', ' ')} |\n"
    return text + _TAIL


def texts(test: str) -> Iterator[str]:
    """Yield every name and string of a test, with those that its parameters are made of.

    Raises `LookupError` when there is no such test.
    """
    file, name = test.split("::")
    tree = ast.parse((ROOT / "tests" / "interaction" / file).read_text(encoding="utf-8"))
    tables = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name == name
    ]
    if len(found) != 1:
        raise LookupError(test)
    waiting: list[ast.AST] = [found[0]]
    while waiting:
        for node in ast.walk(waiting.pop()):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.Name):
                yield node.id
                if node.id in tables:
                    waiting.append(tables.pop(node.id))


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
