"""Invites: who may take a handle here, and who has let whom through by one.

An invite is an id and a secret of 128 bits. The relay tells the secret once, to the inviter, and keeps its
hash alone (RL-HTTP-051, RL-HTTP-056), so that neither a copy of the database nor a later request brings it
back. Like the directory, of which it is a part, the book answers from memory or returns the changes that a
request amounts to.
"""

import hmac
import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal, TypeAlias, final

from msgspec import UNSET

from ringline.protocol.errors import HttpProblem
from ringline.protocol.instant import Instant
from ringline.protocol.limits import INVITE_CLAIMS_FAILED, INVITE_KEPT_MS
from ringline.protocol.shapes import Invite, InviteAcceptance, InviteList, InviteRequest
from ringline.relay.store import (
    Change,
    ClaimFailed,
    InviteAccepted,
    InviteForgotten,
    InviteIssued,
    InviteWithdrawn,
)

__all__ = ["Claim", "InviteBook", "InviteState", "Minted", "secret_hash"]

InviteState: TypeAlias = Literal["open", "consumed", "failed", "expired", "void"]

_CLAIM: Final = re.compile(r"([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{16,64})(?::([A-Za-z0-9_-]{1,86}))?")
_NOBODY: Final = bytes(32)


@dataclass(frozen=True, slots=True)
class Minted:
    """Chance for one invite, drawn by whoever asks for it: an id, and 128 bits as text."""

    id: str
    secret: str

    @property
    def text(self) -> str:
        """What the relay tells the inviter, once."""
        return f"{self.id}.{self.secret}"


@final
@dataclass(slots=True, eq=False)
class _Held:
    """One invite. ``accepted`` has who took it up, in order."""

    issued: InviteIssued
    failures: int = 0
    withdrawn: bool = False
    accepted: dict[str, InviteAccepted] = field(default_factory=dict[str, InviteAccepted])

    def state(self, now: Instant) -> InviteState:
        # What happened to it first is what it is told as.
        if len(self.accepted) >= self.issued.uses:
            return "consumed"
        if self.withdrawn:
            return "void"
        if self.failures >= INVITE_CLAIMS_FAILED:
            return "failed"
        return "expired" if now.wall >= self.issued.expires_at else "open"


def secret_hash(secret: str) -> bytes:
    """Return what is kept of a secret. It is random, so that one round of SHA-256 is enough."""
    return sha256(secret.encode()).digest()


@final
class InviteBook:
    """All invites of one realm. ``most`` of one inviter are kept that brought nobody new; 0 is any number."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[str, _Held] = {}
        self._of: dict[str, dict[str, None]] = {}  # ids by inviter, in the order they were made
        # By inviter: the handles that took one of his up, each with the invite that brought it first.
        self._let: dict[str, dict[str, str]] = {}

    def lets(self, inviter: str, handle: str) -> bool:
        """True when ``handle`` has taken up an invite of ``inviter``."""
        return handle in self._let.get(inviter, ())

    def claim(self, text: str, handle: str, now: Instant) -> "Claim | None":
        """Return the claim of ``handle`` to an invite; None for one that names no invite.

        ``text`` is the invite as the relay told it, perhaps with a proof for the inviter behind a colon.
        """
        match = _CLAIM.fullmatch(text)
        held = self._held.get(match[1]) if match else None
        # The same work for an invite that is not there.
        given = secret_hash(match[2] if match else "")
        right = hmac.compare_digest(given, held.issued.secret_hash if held else _NOBODY)
        if match is None or held is None:
            return None
        again = right and handle in held.accepted
        usable = held.state(now) == "open"
        holds = right and held.issued.only_for in (None, handle) and (again or usable)
        return Claim(held.issued, handle, holds, again, usable, match[3])

    def issue(self, inviter: str, request: InviteRequest, minted: Minted, now: Instant) -> tuple[Change, ...]:
        """Return the changes that make an invite. Raises `HttpProblem` (429) for one too many."""
        forgotten = self._over(inviter, now)
        # Whoever has come does not count: there are no more of those than handles. But an invite that the
        # same guest takes up once more does, or two who are known could make invites without end.
        idle = sum(not self._brought(self._held[id]) for id in self._of.get(inviter, ())) - len(forgotten)
        if self._most and idle >= self._most:
            raise HttpProblem(
                f"{self._most} invites of this identity are kept that have brought nobody new",
                code="rate_limited",
                retry_after_ms=60_000,
            )
        issued = InviteIssued(
            invite_id=minted.id,
            inviter=inviter,
            only_for=None,
            secret_hash=secret_hash(minted.secret),
            label=None if request.label is UNSET else request.label,
            uses=request.uses,
            at=now.wall,
            expires_at=now.wall + request.ttl_s * 1_000,
        )
        return *forgotten, issued

    def reserve(self, handle: str, minted: Minted, ttl_s: int, now: Instant) -> tuple[Change, ...]:
        """Return the changes that make the relay's own invite of one handle, in the place of earlier ones."""
        earlier = [
            InviteForgotten(invite_id=held.issued.invite_id)
            for held in self._held.values()
            if held.issued.inviter is None and held.issued.only_for == handle and not held.accepted
        ]
        issued = InviteIssued(
            invite_id=minted.id,
            inviter=None,
            only_for=handle,
            secret_hash=secret_hash(minted.secret),
            label=None,
            uses=1,
            at=now.wall,
            expires_at=now.wall + ttl_s * 1_000,
        )
        return *earlier, issued

    def withdraw(self, invite_id: str, asker: str, now: Instant, *, any_of: bool) -> tuple[Change, ...]:
        """Return the changes that void an invite of ``asker``, or with ``any_of`` of anybody.

        One that is over stays what it is. Raises `HttpProblem` (404) for another's, as for none.
        """
        held = self._held.get(invite_id)
        if held is None or (held.issued.inviter != asker and not any_of):
            raise HttpProblem(code="not_found")
        return (InviteWithdrawn(invite_id=invite_id),) if held.state(now) == "open" else ()

    def page(self, inviter: str, cursor: str | None, limit: int, now: Instant) -> InviteList:
        """Return up to ``limit`` invites of ``inviter``, the newest first, from behind ``cursor``."""
        ids = list(reversed(self._of.get(inviter, {})))
        if cursor is not None:
            # A cursor that names none of his, or none any more, has nothing behind it.
            ids = ids[ids.index(cursor) + 1 :] if cursor in ids else []
        shown = ids[:limit]
        following = shown[-1] if len(ids) > limit else None
        return InviteList(invites=[self._shown(self._held[id], now) for id in shown], next=following)

    def _shown(self, held: _Held, now: Instant) -> Invite:
        issued = held.issued
        return Invite(
            id=issued.invite_id,
            label=issued.label,
            uses=issued.uses,
            created_at=issued.at,
            expires_at=issued.expires_at,
            state=held.state(now),
            failures=held.failures,
            accepted=[
                InviteAcceptance(handle=one.handle, at=one.at, proof=one.proof)
                for one in held.accepted.values()
            ],
        )

    def _over(self, inviter: str, now: Instant) -> list[Change]:
        """What may be forgotten: long over, and nobody is let through by it."""
        return [
            InviteForgotten(invite_id=id)
            for id in self._of.get(inviter, ())
            if not self._brought(self._held[id])
            and now.wall >= self._held[id].issued.expires_at + INVITE_KEPT_MS
        ]

    def _brought(self, held: _Held) -> bool:
        """True when somebody is let through by this invite and by no earlier one."""
        let = self._let.get(held.issued.inviter or "", {})
        return any(let.get(handle) == held.issued.invite_id for handle in held.accepted)

    # --- changes, when they are safe on disk

    def apply(self, change: Change) -> None:
        """Make a change to invites true. Raises `KeyError` for one that cannot follow."""
        match change:
            case InviteIssued():
                self._held[change.invite_id] = _Held(change)
                if change.inviter is not None:
                    self._of.setdefault(change.inviter, {})[change.invite_id] = None
            case InviteAccepted():
                held = self._held[change.invite_id]
                held.accepted[change.handle] = change
                if held.issued.inviter is not None:
                    let = self._let.setdefault(held.issued.inviter, {})
                    let.setdefault(change.handle, change.invite_id)
            case ClaimFailed():
                self._held[change.invite_id].failures += 1
            case InviteWithdrawn():
                self._held[change.invite_id].withdrawn = True
            case InviteForgotten():
                self._forget(change.invite_id)
            case _:
                raise ValueError("this change concerns no invite")

    def remove(self, handle: str) -> None:
        """Forget whom an identity that was removed has invited; nobody is let through to it any more."""
        for id in list(self._of.get(handle, ())):
            self._forget(id)
        self._let.pop(handle, None)
        for let in self._let.values():
            let.pop(handle, None)

    def _forget(self, invite_id: str) -> None:
        held = self._held.pop(invite_id)
        if held.issued.inviter is not None:
            self._of[held.issued.inviter].pop(invite_id, None)


@final
@dataclass(frozen=True, slots=True)
class Claim:
    """An invite as somebody presents it. ``holds``: it is a right one, open, and for him.

    ``again``: he took it up before, so that whoever lost an answer may ask once more. ``usable``: it is open.
    """

    issued: InviteIssued
    handle: str
    holds: bool
    again: bool
    usable: bool
    proof: str | None

    def accepted(self, now: Instant) -> tuple[Change, ...]:
        """Return the changes that take the invite up."""
        if self.again:
            return ()
        change = InviteAccepted(
            invite_id=self.issued.invite_id, handle=self.handle, proof=self.proof, at=now.wall
        )
        return (change,)

    def failed(self) -> tuple[Change, ...]:
        """Return the changes that count it as a claim that came to nothing: none for one that is over."""
        return (ClaimFailed(invite_id=self.issued.invite_id),) if self.usable else ()
