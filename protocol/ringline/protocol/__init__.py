"""The Ringline protocol: frames, envelope, identities, limits and errors, without any input or output.

The package itself offers the errors, which every program that uses Ringline catches; loading it loads
nothing else. The rest is imported from its module: ``ringline.protocol.envelope`` and its neighbours.
"""

from ringline.protocol.codes import ErrorCode, Family, Retry
from ringline.protocol.errors import (
    BadSignature,
    BodyError,
    CallTimeout,
    CannotOpen,
    ConfigError,
    ContactError,
    EncodingError,
    FrameError,
    HttpProblem,
    KeyFileError,
    LogError,
    LogForked,
    MessageTooLarge,
    PeerFailure,
    ProtocolError,
    RelayError,
    RinglineError,
    StatementError,
    TokenError,
    TransportError,
    TrustError,
    WeakKey,
)

__all__ = [
    "BadSignature",
    "BodyError",
    "CallTimeout",
    "CannotOpen",
    "ConfigError",
    "ContactError",
    "EncodingError",
    "ErrorCode",
    "Family",
    "FrameError",
    "HttpProblem",
    "KeyFileError",
    "LogError",
    "LogForked",
    "MessageTooLarge",
    "PeerFailure",
    "ProtocolError",
    "RelayError",
    "Retry",
    "RinglineError",
    "StatementError",
    "TokenError",
    "TransportError",
    "TrustError",
    "WeakKey",
]
