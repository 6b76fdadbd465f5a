"""One registry; the exceptions carry its rows."""

import typing

import pytest

from ringline.protocol import codes, errors, frames
from ringline.protocol.codes import REGISTRY, Family, Retry
from ringline.protocol.errors import RinglineError


def subclasses(root: type[RinglineError]) -> list[type[RinglineError]]:
    # Other packages add their own; which of those are loaded depends on the tests of the same process.
    found = [root] if root.__module__ == errors.__name__ else []
    for child in root.__subclasses__():
        found += subclasses(child)
    return found


def test_every_code_of_a_call_error_is_registered_as_the_relays_word() -> None:
    words = set(typing.get_args(frames.RelayCode))
    assert words == {code for family, code in REGISTRY if family is Family.RELAY}


def test_every_terminal_reason_is_registered_as_an_end() -> None:
    words = set(typing.get_args(frames.TerminalReason))
    assert words <= {code for family, code in REGISTRY if family is Family.END}


def test_the_peer_words_are_those_of_the_protocol() -> None:
    assert {code for family, code in REGISTRY if family is Family.PEER} == {
        "busy",
        "timeout",
        "agent_error",
        "blocked",
        "task_unknown",
        "context_unknown",
        "message_too_large",
        "duplicate_conflict",
    }


@pytest.mark.parametrize("code", ["unauthorized", "unknown_handle", "message_too_large", "protocol_error"])
def test_what_can_never_succeed_is_never_retried(code: str) -> None:
    assert codes.lookup(Family.RELAY, code).retry is Retry.NEVER


@pytest.mark.parametrize(("code", "exit_code"), [("busy", 12), ("timeout", 14)])
def test_a_relays_word_and_a_peers_word_have_different_exit_codes(code: str, exit_code: int) -> None:
    assert codes.lookup(Family.RELAY, code).exit_code == exit_code
    assert codes.lookup(Family.PEER, code).exit_code == 1


@pytest.mark.parametrize("kind", subclasses(RinglineError), ids=lambda kind: kind.__name__)
def test_every_exception_names_a_registered_code_and_says_something(kind: type[RinglineError]) -> None:
    error = kind()
    assert (error.family, error.code) in REGISTRY
    assert str(error)
    assert error.exit_code != 0


def test_an_exception_refuses_a_word_of_another_family() -> None:
    with pytest.raises(KeyError):
        errors.RelayError(code="agent_error")
    with pytest.raises(KeyError):
        errors.PeerFailure(code="offline")


def test_an_error_keeps_what_is_known_of_the_call() -> None:
    error = errors.RelayError("m", code="busy", call_id="c", message_id="i", retry_after_ms=5, next_step="n")
    assert (str(error), error.code, error.call_id, error.message_id) == ("m", "busy", "c", "i")
    assert (error.retry_after_ms, error.next_step, error.exit_code) == (5, "n", 12)
    assert error.retry is Retry.SAFE


def test_exit_codes_stay_within_what_a_shell_can_carry() -> None:
    assert all(0 <= row.exit_code <= 130 for row in REGISTRY.values())
