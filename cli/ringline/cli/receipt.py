"""`ringline receipt`: an answer as a file that anybody can check, without a key, a relay or a network."""

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ringline.cli.message import STDIN
from ringline.cli.options import identity_option, json_option, relay_options
from ringline.cli.page import SETTINGS
from ringline.cli.page import command as page
from ringline.protocol.codes import Family
from ringline.protocol.dates import spelled

if TYPE_CHECKING:
    from ringline.protocol.receipt import Proof

__all__ = ["command"]

_L = Family.LOCAL
_OWN = "The identity of yours that made the call. [default: the only one, else the one that calls by default]"


@click.group("receipt", context_settings=SETTINGS)
def command() -> None:
    """Save and check proofs of what was answered."""


@page(
    "save",
    examples=[
        (
            "the proof of an answer, to hand on",
            "ringline receipt save rcpt_bob_3f0c8d5e9a7b4c2d8e1f6a5b4c3d2e1f answer.json",
        ),
        (
            "the same on standard output",
            "ringline receipt save rcpt_bob_3f0c8d5e9a7b4c2d8e1f6a5b4c3d2e1f",
        ),
    ],
    exits=[(0, "saved"), (_L, "config")],
    then="ringline receipt verify FILE",
)
@click.argument("call")
@click.argument("file", required=False)
@json_option
@relay_options
@identity_option(_OWN)
def save(call: str, file: str | None, machine: bool, relay: str, realm: str | None, own: str | None) -> int:
    """Write the signed answer to a call into a new file, which shows it to whoever gets it.

    CALL is the receipt that `ringline calls ls` lists, or a call id. The file has the whole answer, and of
    the request its hash; no key and no secret. The answer must be here: `ringline result` fetches it. It is
    kept for 30 days after the call.
    """
    from ringline.caller.kept import kept_receipt
    from ringline.cli.output import require_output, write_document, write_text
    from ringline.client import Home, RelayAddress

    require_output()
    home, address = Home.default(), RelayAddress.parse(relay, realm)
    handle = own if own is not None else home.own_handle(address)
    saved = kept_receipt(home, address, handle, call).saved
    # What could not be shown to others is not handed out as a proof.
    proof = saved.verify()
    text = saved.format()
    if file is None or file == STDIN:
        if machine:
            raise click.UsageError("--json needs a FILE: without one, standard output is the receipt itself")
        write_text(text)
        return 0
    _write(Path(file), text)
    if machine:
        write_document({"v": 1, "ok": True, "file": file, "receipt": _document(proof)})
    else:
        write_text(f"✓ saved {file}: what {proof.context.callee} answered, for anybody to check\n")
    return 0


@page(
    "verify",
    examples=[
        ("what a receipt proves", "ringline receipt verify answer.json"),
        ("from standard input, for a program", "ringline receipt verify - --json < answer.json"),
    ],
    exits=[(0, "it holds"), (_L, "config"), (_L, "bad_signature")],
    then="compare the fingerprint with the one that its owner's `ringline id show` prints",
)
@click.argument("file")
@json_option
def verify(file: str, machine: bool) -> int:
    """Check a receipt, offline: who answered whom, when, and what; it needs no identity and no key.

    FILE is what `ringline receipt save` wrote, - for standard input.
    """
    from ringline.cli.output import require_output, write_document, write_text
    from ringline.cli.terminal import shown
    from ringline.protocol.receipt import SignedOutcome

    require_output()
    proof = SignedOutcome.parse(_read(file)).verify()
    if machine:
        write_document(
            {
                "v": 1,
                "ok": True,
                "receipt": _document(proof),
                "proved": list(_proved(proof)),
                "not_proved": list(_not_proved(proof)),
            }
        )
    else:
        write_text(shown(_sheet(proof)))
    return 0


command.add_command(save)
command.add_command(verify)


def _read(file: str) -> bytes:
    from ringline.protocol.errors import ConfigError
    from ringline.protocol.receipt import RECEIPT_BYTES

    try:
        if file == STDIN:
            return sys.stdin.buffer.read(RECEIPT_BYTES + 1)
        with Path(file).open("rb") as opened:
            return opened.read(RECEIPT_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"cannot read {file}: {error.strerror}",
            still_true="Nothing was checked.",
            next_step="check the name of the file",
        ) from error
    except ValueError as error:  # a name with a null character in it
        raise ConfigError("this is no name of a file", still_true="Nothing was checked.") from error


def _write(path: Path, text: str) -> None:
    """Write a new file of mode 0600, whole or not at all: it holds an answer in plain text."""
    from ringline.protocol.errors import ConfigError

    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode("ascii"))
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink()
            raise
    except FileExistsError as error:
        raise ConfigError(
            f"{path} exists already, and is left as it is",
            still_true="Nothing was written.",
            next_step="name another file",
        ) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no name of a file"
        raise ConfigError(
            f"cannot write {path}: {why}", still_true="Nothing was written.", next_step="name another file"
        ) from error


def _proved(proof: "Proof") -> tuple[str, ...]:
    context = proof.context
    return (
        f"the holder of the identity key {proof.callee_fingerprint} vouched for a key as {context.callee}'s "
        f"at {context.realm}, and that key has signed exactly this answer",
        f"it answers one request of {context.caller}, identity {proof.caller_fingerprint}: the one with the "
        "hash shown, and no other",
    )


def _not_proved(proof: "Proof") -> tuple[str, ...]:
    context = proof.context
    told = [
        f"whose key it is: compare the fingerprint with {context.callee}'s by a way that you trust",
        f"when, by any clock but {context.callee}'s own: the relay's times are not signed",
        "what was asked: of the request there is its hash alone",
        f"whether {context.callee} has revoked the card: that is not known offline",
        "that the answer is true",
    ]
    if not proof.in_time:
        told.insert(0, "that the card held: the answer's time is outside the card's")
    if proof.outcome is None:
        told.insert(0, "what the answer means: it was signed, and it breaks the protocol")
    return tuple(told)


def _sheet(proof: "Proof") -> str:
    from ringline.protocol.encoding import b64encode

    context, card = proof.context, proof.card
    rows = [
        ("asked by", f"{context.caller}  {proof.caller_fingerprint}"),
        ("request", f"hash {b64encode(context.request_digest)}"),
        ("", f"message {context.message_id or 'without an id'}, {context.mode}, to be answered "
         f"before {_time(context.expires_at)}"),
        ("answered by", f"{context.callee}  {proof.callee_fingerprint}"),
        ("answered at", f"{_time(context.answered_at)}, by {context.callee}'s own clock"),
        ("call", f"{context.call_id} at {context.realm}"),
        ("card", f"number {card.serial}, {_time(card.not_before)} to {_time(card.not_after)}"),
        ("end", _end(proof)),
    ]  # fmt: skip
    text = f"✓ {context.callee} has signed this answer to {context.caller}\n"
    text += "".join(f"  {name:<12} {value}\n" for name, value in rows)
    text += "".join(f"  {'proved' if not at else '':<12} {each}\n" for at, each in enumerate(_proved(proof)))
    text += "".join(
        f"  {'not proved' if not at else '':<12} {each}\n" for at, each in enumerate(_not_proved(proof))
    )
    # Marked, so that an answer cannot pass for a line of this program.
    lines = _answer(proof).rstrip("\n").split("\n")
    return text + "answer:\n" + "".join(f"  > {line}\n" for line in lines)


def _end(proof: "Proof") -> str:
    from msgspec import UNSET

    outcome = proof.outcome
    if outcome is None:
        return f"{proof.context.terminal}, and what was signed breaks the protocol"
    if outcome.failure is not UNSET:
        return f"{outcome.reason} ({outcome.failure.code})"
    return outcome.reason


def _answer(proof: "Proof") -> str:
    from msgspec import UNSET

    outcome = proof.outcome
    if outcome is not None and outcome.reply is not UNSET and outcome.reply.value is UNSET:
        return outcome.reply.text
    return proof.answer.decode("utf-8", "backslashreplace")


def _document(proof: "Proof") -> dict[str, object]:
    from ringline.protocol.encoding import b64encode

    context, card = proof.context, proof.card
    return {
        "realm": context.realm,
        "call_id": context.call_id,
        "mode": context.mode,
        "message_id": context.message_id or None,
        "correlation_id": context.correlation_id,
        "asked_by": {
            "handle": context.caller,
            "public_key": b64encode(context.caller_ipk),
            "fingerprint": proof.caller_fingerprint,
        },
        "request_hash": b64encode(context.request_digest),
        "expires_at": context.expires_at,
        "answered_by": {
            "handle": context.callee,
            "public_key": b64encode(context.callee_ipk),
            "fingerprint": proof.callee_fingerprint,
            "card_id": b64encode(context.card_id),
            "serial": card.serial,
            "not_before": card.not_before,
            "not_after": card.not_after,
        },
        "answered_at": context.answered_at,
        "card_held": proof.in_time,
        "terminal": context.terminal,
        "reason": None if proof.outcome is None else proof.outcome.reason,
        "answer": proof.answer.decode("utf-8", "replace"),
    }


def _time(ms: int) -> str:
    return spelled(ms, "%Y-%m-%d %H:%M:%S UTC")
