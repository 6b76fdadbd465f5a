"""The HTTP interface as one table, from which `ringline.relay.openapi` describes it (RL-HTTP-013).

The shapes are the structs of `ringline.protocol.shapes`. A test compares the table with the routes that a
relay serves, so that neither has an operation which the other lacks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias, final

import msgspec

from ringline.protocol import names, shapes
from ringline.protocol.lifecycle import State
from ringline.protocol.limits import SUBPROTOCOL
from ringline.protocol.schema import portable

__all__ = ["OPERATIONS", "PATH_PARAMETERS", "Access", "Operation", "Schema", "Shape", "Text"]

Shape: TypeAlias = type[msgspec.Struct]
Schema: TypeAlias = dict[str, Any]


class Access(StrEnum):
    """Who may use an operation."""

    PUBLIC = "Nobody logs in."
    GUEST = "Nobody logs in: whoever claims it first, by the secret that he claimed it with."
    STATEMENT = "Nobody logs in: the statement in the body proves itself."
    CARD = "The token is signed by the operational key of the card in the body."
    ENROLLED = "Any enrolled identity."
    OWNER = "The handle in the path; every other identity gets one and the same 403."
    PARTY = "The two parties of the call; for all others it does not exist."
    CALLER = "The caller of the call; for all others it does not exist."
    CALLEE = "The callee of the call; for all others it does not exist."
    INVITER = "Who issued the invite, or made the code; for all others it does not exist."
    LOOPBACK = "Loopback only; for all others the route does not exist."

    @property
    def by_token(self) -> bool:
        """True when a request carries a token."""
        return self not in (Access.PUBLIC, Access.STATEMENT, Access.GUEST, Access.LOOPBACK)


@final
@dataclass(frozen=True, slots=True)
class Text:
    """An answer that is no JSON: its media type, and what it is."""

    media: str
    about: str


Answers: TypeAlias = Mapping[int, tuple[Shape, ...] | Schema | Text]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path. ``path`` is written as OpenAPI writes it.

    ``answers`` are the successes by status, each one of some structs, a schema, or a text; ``problems`` the
    statuses of problem documents that are this operation's own. What any operation may answer is not listed.
    """

    method: str
    path: str
    about: str
    access: Access
    answers: Answers
    problems: tuple[int, ...] = ()
    query: Mapping[str, Schema] = field(default_factory=dict[str, Schema])
    body: Shape | None = None
    only_with: str = ""
    """What a relay must have to serve it; empty for what every relay serves."""


def _object(**members: Schema) -> Schema:
    return {"type": "object", "properties": members, "required": list(members)}


def _pattern(pattern: str) -> Schema:
    return {"type": "string", **portable(pattern)}


def _number(least: int, most: int, default: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, "default": default}


_HANDLE: Final = _pattern(names.HANDLE)
_CARD_ID: Final = _pattern(names.CARD_ID)
PATH_PARAMETERS: Final[Mapping[str, Schema]] = {
    "handle": _HANDLE,
    "call_id": {"type": "string"},
    "invite_id": {"type": "string"},
    "nameplate": _pattern(names.NAMEPLATE),
    "tile": {"type": "string"},
}
_STATES: Final = list(dict.fromkeys(state.record for state in State))
_READY: Final = _object(ready={"type": "boolean"})
_FEATURES: Final[Schema] = {"type": "string", "description": "Ids of features, separated by commas."}
_TICKET: Final[Schema] = {"type": "string", "description": "In place of a token, for pages."}
_UUID: Final[Schema] = {"type": "string", "format": "uuid"}
_SWITCHED: Final = Text("", f"The WebSocket is open, with subprotocol {SUBPROTOCOL}.")

_H, _C = "/v1/handles/{handle}", "/v1/calls/{call_id}"
_P: Final = "/v1/pairings/{nameplate}"

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/relay",
        about="What the relay says about itself.",
        access=Access.PUBLIC,
        answers={200: (shapes.RelayInfo,)},
    ),
    Operation(
        method="GET",
        path="/v1/openapi.json",
        about="This document.",
        access=Access.PUBLIC,
        answers={200: {"type": "object"}},
    ),
    Operation(
        method="GET",
        path="/healthz",
        about="Whether the process lives.",
        access=Access.PUBLIC,
        answers={200: _object(status={"const": "ok"})},
    ),
    Operation(
        method="GET",
        path="/readyz",
        about="Whether the relay takes calls; reasons are for loopback only.",
        access=Access.PUBLIC,
        answers={200: _READY, 503: _READY},
    ),
    Operation(
        method="GET",
        path="/metrics",
        about="Counters, which name nobody.",
        access=Access.LOOPBACK,
        answers={200: Text("text/plain", "The Prometheus text format.")},
        problems=(404,),
    ),
    Operation(
        method="GET",
        path=_H,
        about="The current keys of a handle, or one card by its id.",
        access=Access.ENROLLED,
        query={"card": _CARD_ID},
        answers={200: (shapes.Keys, shapes.SupersededKeys)},
        problems=(400, 404, 429),
    ),
    Operation(
        method="PUT",
        path=_H,
        about="Enrol a handle, replace its card, or publish again what is published.",
        access=Access.CARD,
        body=shapes.KeysPublication,
        answers={200: (shapes.Published,), 201: (shapes.Published,)},
        problems=(400, 403, 404, 409, 413, 429),
    ),
    Operation(
        method="DELETE",
        path=_H,
        about="Remove an identity and all that belongs to it.",
        access=Access.OWNER,
        answers={200: _object(handle=_HANDLE)},
        problems=(400, 403, 404),
    ),
    Operation(
        method="PUT",
        path=f"{_H}/prekeys",
        about="Replace the prekey statement.",
        access=Access.OWNER,
        body=shapes.PrekeyPublication,
        answers={200: (shapes.Published,)},
        problems=(400, 403, 404, 409, 413),
    ),
    Operation(
        method="GET",
        path=f"{_H}/policy",
        about="Who may call the handle, and whether it takes durable calls.",
        access=Access.OWNER,
        answers={200: (shapes.Policy,)},
        problems=(403, 404),
    ),
    Operation(
        method="PUT",
        path=f"{_H}/policy",
        about="Replace the whole policy.",
        access=Access.OWNER,
        body=shapes.Policy,
        answers={200: (shapes.Policy,)},
        problems=(400, 403, 404, 409, 413),
    ),
    Operation(
        method="POST",
        path=f"{_H}/revocations",
        about="Call a card back.",
        access=Access.STATEMENT,
        body=shapes.RevocationStatement,
        answers={200: _object(card_id=_CARD_ID), 201: _object(card_id=_CARD_ID)},
        problems=(400, 404, 413),
    ),
    Operation(
        method="GET",
        path="/v1/invites",
        about="One's own invites, newest first.",
        access=Access.ENROLLED,
        query={"cursor": {"type": "string"}, "limit": _number(1, 100, 50)},
        answers={200: (shapes.InviteList,)},
        problems=(400,),
    ),
    Operation(
        method="POST",
        path="/v1/invites",
        about="Issue an invite. Its secret is told this once.",
        access=Access.ENROLLED,
        body=shapes.InviteRequest,
        answers={201: (shapes.InviteMade,)},
        problems=(400, 403, 413, 429),
    ),
    Operation(
        method="DELETE",
        path="/v1/invites/{invite_id}",
        about="Withdraw an invite.",
        access=Access.INVITER,
        answers={200: _object(id={"type": "string"})},
        problems=(400, 404),
    ),
    Operation(
        method="POST",
        path="/v1/pairings",
        about="Get the number of a spoken code, and leave the first message for whoever is told the code.",
        access=Access.ENROLLED,
        body=shapes.PairingMessage,
        answers={201: (shapes.PairingMade,)},
        problems=(400, 413, 429),
    ),
    Operation(
        method="GET",
        path=_P,
        about="How far the guest has come, with his answer; waits for more up to `wait` seconds.",
        access=Access.INVITER,
        query={"wait": _number(0, 50, 0)},
        answers={200: (shapes.Pairing,)},
        problems=(400, 404),
    ),
    Operation(
        method="DELETE",
        path=_P,
        about="Give a spoken code up.",
        access=Access.INVITER,
        answers={200: (shapes.Pairing,)},
        problems=(400, 404),
    ),
    Operation(
        method="POST",
        path=f"{_P}/claim",
        about="Be the one guest of a spoken code, and get the inviter's first message.",
        access=Access.GUEST,
        body=shapes.PairingClaim,
        answers={200: (shapes.PairingOffer,)},
        problems=(400, 404, 413, 429),
    ),
    Operation(
        method="POST",
        path=f"{_P}/answer",
        about="Leave the guest's answer, once; waits for the reply up to `wait` seconds.",
        access=Access.GUEST,
        query={"wait": _number(0, 50, 0)},
        body=shapes.PairingAnswer,
        answers={200: (shapes.Pairing,)},
        problems=(400, 404, 409, 413, 429),
    ),
    Operation(
        method="POST",
        path=f"{_P}/reply",
        about="Leave the inviter's reply, once.",
        access=Access.INVITER,
        body=shapes.PairingMessage,
        answers={200: (shapes.Pairing,)},
        problems=(400, 404, 409, 413),
    ),
    Operation(
        method="POST",
        path="/v1/tickets",
        about="Buy a ticket for one WebSocket handshake.",
        access=Access.ENROLLED,
        body=shapes.TicketRequest,
        answers={201: (shapes.Ticket,)},
        problems=(400, 413, 429),
    ),
    Operation(
        method="GET",
        path="/v1/calls",
        about="One's own calls, newest first. No outcomes.",
        access=Access.ENROLLED,
        query={
            "role": {"enum": ["caller", "callee"], "default": "caller"},
            "state": {"enum": _STATES},
            "cursor": {"type": "string"},
            "limit": _number(1, 100, 50),
        },
        answers={200: (shapes.CallList,)},
        problems=(400,),
    ),
    Operation(
        method="GET",
        path=_C,
        about="One call, with its outcome for its caller; waits for the end up to `wait` seconds.",
        access=Access.PARTY,
        query={"wait": _number(0, 50, 0)},
        answers={200: (shapes.CallRecord,)},
        problems=(400, 404, 429),
    ),
    Operation(
        method="POST",
        path=f"{_C}/cancel",
        about="Ask for cancellation. 200: canceled. 202: not decided yet. 409: not canceled, as `code` says.",
        access=Access.CALLER,
        answers={200: (shapes.CallRecord,), 202: (shapes.CallRecord,)},
        problems=(400, 404, 409),
    ),
    Operation(
        method="POST",
        path=f"{_C}/ack",
        about="Let the relay delete the outcome.",
        access=Access.CALLER,
        answers={200: (shapes.CallRecord,)},
        problems=(400, 404, 409),
    ),
    Operation(
        method="POST",
        path=f"{_C}/replay",
        about="Try a parked call again.",
        access=Access.CALLEE,
        answers={200: (shapes.CallRecord,)},
        problems=(400, 404, 409),
    ),
    Operation(
        method="GET",
        path="/v1/call/{handle}",
        about="Open a WebSocket to call this handle. The caller is whoever logs in.",
        access=Access.ENROLLED,
        query={"features": _FEATURES, "ticket": _TICKET},
        answers={101: _SWITCHED},
        problems=(400, 404, 426, 429),
    ),
    Operation(
        method="GET",
        path="/v1/listen/{handle}",
        about="Open a WebSocket to answer calls to this handle; for all but itself 401.",
        access=Access.ENROLLED,
        query={
            "instance": _UUID,
            "boot": _UUID,
            "capacity": _number(1, 1000, 1),
            "durable": {"const": "0"},
            "features": _FEATURES,
            "ticket": _TICKET,
        },
        answers={101: _SWITCHED},
        problems=(400, 404, 426, 429),
    ),
    Operation(
        method="GET",
        path="/v1/log/checkpoint",
        about="The head of the key log.",
        access=Access.ENROLLED,
        answers={200: Text("text/plain", "A C2SP tlog-checkpoint.")},
        problems=(429,),
        only_with="keylog",
    ),
    Operation(
        method="GET",
        path="/v1/log/tile/{tile}",
        about="A tile of the key log, or a bundle of its entries; the name is that of C2SP tlog-tiles.",
        access=Access.ENROLLED,
        answers={200: Text("application/octet-stream", "Hashes, or entries.")},
        problems=(404, 429),
        only_with="keylog",
    ),
)
"""Every operation of a relay."""
