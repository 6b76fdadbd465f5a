"""The exceptions that carry what went wrong; each has its row of `ringline.protocol.codes`.

The tree::

    RinglineError                 carries code, family and what is known of the call
      ProtocolError               bytes or JSON that break a rule; nothing was done with them
        EncodingError             text that is not canonical base64url
        FrameError                a WebSocket message that is no frame of its direction
        BodyError                 JSON under a seal that breaks its rules
        StatementError            a card, prekey, succession or revocation that does not hold
        TokenError                a log-in token that does not hold
        KeyFileError              a key file that cannot be read
        ContactError              a contact string that cannot be read
        ReceiptError              a file that is no receipt
      CannotOpen                  a sealed envelope that does not open; no reason is given
      BadSignature                a signature that does not verify
      WeakKey                     a public key that must not be used
      MessageTooLarge             refused at the sender, nothing was sealed
      ConfigError                 usage or configuration
      PairingError                a spoken code that came to nothing
      TrustError                  untrusted_key, key_changed, revoked, log_unproven
        LogForked               the relay's key log contradicts itself
      CallTimeout                 this program stopped waiting for the end of a call
      TransportError              the relay cannot be reached or does not speak the protocol
      HttpProblem                 an answer of the relay's HTTP interface that is no success
      RelayError                  the relay says so, unauthenticated
      PeerFailure                 the peer says so, sealed and signed
"""

from typing import ClassVar

from ringline.protocol.codes import ErrorCode, Family, Retry, lookup

__all__ = [
    "BadSignature",
    "BodyError",
    "CallTimeout",
    "CannotOpen",
    "ConfigError",
    "ContactError",
    "EncodingError",
    "FrameError",
    "HttpProblem",
    "InviteError",
    "KeyFileError",
    "LogError",
    "LogForked",
    "MessageTooLarge",
    "PairingError",
    "PeerFailure",
    "ProtocolError",
    "ReceiptError",
    "RelayError",
    "RinglineError",
    "StatementError",
    "TokenError",
    "TransportError",
    "TrustError",
    "WeakKey",
]


class RinglineError(Exception):
    """Root of all errors that Ringline raises on purpose.

    ``str(error)`` says what happened. The rest is data, each None when not known: ``call_id``,
    ``message_id``, ``retry_after_ms``; ``still_true``, sentences on what may be relied on all the same;
    and ``next_step``, one sentence of what to do now.
    """

    family: ClassVar[Family] = Family.LOCAL
    default_code: ClassVar[str] = "internal_error"

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        call_id: str | None = None,
        message_id: str | None = None,
        retry_after_ms: int | None = None,
        still_true: str | None = None,
        next_step: str | None = None,
    ) -> None:
        self.info: ErrorCode = lookup(self.family, code or self.default_code)
        self.call_id = call_id
        self.message_id = message_id
        self.retry_after_ms = retry_after_ms
        self.still_true = still_true
        self.next_step = next_step
        super().__init__(message or self.info.summary)

    @property
    def code(self) -> str:
        """The word of the registry, unique within `family`."""
        return self.info.code

    @property
    def retry(self) -> Retry:
        """What may be done after it."""
        return self.info.retry

    @property
    def exit_code(self) -> int:
        """The exit code of a command that ends by it."""
        return self.info.exit_code


class ProtocolError(RinglineError):
    """Bytes or JSON from outside that break a rule. Nothing was done with them."""

    default_code = "protocol_error"


class EncodingError(ProtocolError):
    """Text that is not canonical unpadded base64url of the expected length (RL-CONV-003)."""


class FrameError(ProtocolError):
    """A message that is no frame of its direction (RL-FRAME-001 to RL-FRAME-011).

    ``correlation_id`` is set only when the message was recognisably a ``call_request`` and a well-formed
    one could be read from it: the answer may then name it (RL-FRAME-013).
    """

    def __init__(self, message: str = "", *, correlation_id: str | None = None) -> None:
        super().__init__(message)
        self.correlation_id = correlation_id


class BodyError(ProtocolError):
    """JSON under a seal that breaks its rules (RL-ENVELOPE-046 to RL-ENVELOPE-052)."""


class StatementError(ProtocolError):
    """A card, prekey, succession or revocation that is malformed or does not hold."""


class TokenError(ProtocolError):
    """A log-in token that is malformed or does not hold; the answer never says why (RL-AUTH-021)."""


class KeyFileError(ProtocolError):
    """A key file that cannot be read: damaged, wrong passphrase, or out of bounds (RL-KEYS-053)."""

    default_code = "config"


class ContactError(ProtocolError):
    """A contact string that cannot be read (RL-KEYS-046)."""

    default_code = "config"


class InviteError(ProtocolError):
    """An invite that cannot be read. Its text is never in the message: it holds a secret."""

    default_code = "config"


class PairingError(RinglineError):
    """A spoken code that came to nothing: wrong words, nobody there, or somebody between. It is used up."""

    default_code = "code_failed"


class ReceiptError(ProtocolError):
    """A file that is no receipt, or of a version that is not known. It says nothing of anybody."""

    default_code = "config"


class LogError(ProtocolError):
    """An entry, tile, checkpoint or proof of the key log that is malformed or does not hold
    (RL-LOG-005, RL-LOG-006, RL-LOG-017).
    """


class CannotOpen(RinglineError):
    """A sealed envelope that does not open. One error for every cause, so that it is no oracle.

    ``reason`` is one fixed word for tests: it is neither in ``str(error)`` nor in ``repr(error)``, and
    must never be sent, logged or shown.
    """

    default_code = "bad_signature"

    def __init__(self, reason: str = "") -> None:
        super().__init__()
        self.reason = reason


class BadSignature(RinglineError):
    """A signature that does not verify under the key it was claimed for."""

    default_code = "bad_signature"


class WeakKey(RinglineError):
    """A public key that must not be used: small order, mixed order, or not canonical
    (RL-ENVELOPE-006, RL-ENVELOPE-007).
    """

    default_code = "bad_signature"


class MessageTooLarge(RinglineError):
    """Refused at the sender before anything was sealed."""

    default_code = "message_too_large"


class ConfigError(RinglineError):
    """Usage or configuration that cannot work."""

    default_code = "config"


class TrustError(RinglineError):
    """A peer's key is not known, changed, or revoked. Nothing was sealed."""

    default_code = "untrusted_key"


class LogForked(TrustError):
    """A relay's key log contradicts what the relay showed before, or what it shows to somebody else.

    ``evidence`` is the file in which both are kept, None when there is nothing to keep.
    """

    default_code = "log_forked"

    def __init__(
        self,
        message: str = "",
        *,
        evidence: str | None = None,
        still_true: str | None = None,
        next_step: str | None = None,
    ) -> None:
        super().__init__(message, still_true=still_true, next_step=next_step)
        self.evidence = evidence


class CallTimeout(RinglineError):
    """This program stopped waiting for the end of a call. What became of it is not known here."""

    default_code = "timeout"


class TransportError(RinglineError):
    """The relay could not be reached, or what answered does not speak the protocol."""

    default_code = "relay_unreachable"


class HttpProblem(RinglineError):
    """The relay's HTTP interface refused a request; ``code`` is that of its problem document."""

    family = Family.HTTP
    default_code = "internal_error"


class RelayError(RinglineError):
    """The relay says so; nobody has signed it (a ``call_error`` frame).

    With a ``call_id`` the call has ended; without one, the frame admitted nothing (RL-FRAME-034).
    """

    family = Family.RELAY
    default_code = "protocol_error"


class PeerFailure(RinglineError):
    """The peer says so, sealed and signed: a ``failed`` outcome.

    ``detail`` is the peer's own text, up to 500 bytes: never print it raw to a terminal. ``str(error)`` has
    it without what a terminal obeys.
    ``offered`` lists the task ids named with it. ``reason`` is the sealed terminal reason: with
    ``indeterminate_execution`` the work may have run, and its exit code and retry rule are that end's.
    """

    family = Family.PEER
    default_code = "agent_error"

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        detail: str | None = None,
        offered: tuple[str, ...] = (),
        reason: str = "failed",
        call_id: str | None = None,
        message_id: str | None = None,
        next_step: str | None = None,
    ) -> None:
        super().__init__(message, code=code, call_id=call_id, message_id=message_id, next_step=next_step)
        self.detail = detail
        self.offered = offered
        self.reason = reason

    def __str__(self) -> str:
        """What happened, and the peer's words."""
        what = super().__str__()
        if self.detail is None:
            return what
        return f"{what}: {''.join(char if char.isprintable() else '?' for char in self.detail)}"

    @property
    def retry(self) -> Retry:
        """What may be done after it."""
        return self._end.retry

    @property
    def exit_code(self) -> int:
        """The exit code of a command that ends by it."""
        return self._end.exit_code

    @property
    def _end(self) -> ErrorCode:
        return lookup(Family.END, self.reason) if self.reason == "indeterminate_execution" else self.info
