"""Who may take a handle, and who may take one away: registration, invites, the administrator.

Whoever holds no right invite learns nothing here about a handle: on a relay with registration closed his
claim is refused before anybody looks whether the handle is taken (RL-HTTP-045). Whoever holds one may try out
names with it five times (RL-HTTP-046).
"""

from typing import final

from ringline.protocol.errors import HttpProblem
from ringline.protocol.instant import Instant
from ringline.relay.directory import Decision, Directory
from ringline.relay.invites import Claim
from ringline.relay.publication import Publication

__all__ = ["Enrolment"]


@final
class Enrolment:
    """The rules of one realm for new identities, above its directory."""

    def __init__(self, directory: Directory, *, is_open: bool, admin: str | None = None) -> None:
        """``is_open``: anybody may take a free handle. ``admin`` may remove identities and void invites.

        The administrator's handle is taken with an invite of the relay's own alone, also where
        registration is open: else the first comer would be administrator.
        """
        self._directory = directory
        self.is_open = is_open
        self.admin = admin

    def publish(self, offer: Publication, invite: str | None, now: Instant) -> Decision:
        """Decide on a publication whose log-in has been verified under its own card.

        ``invite`` is the member of that name. Raises `HttpProblem`: 403 for a claim without an invite where
        one is needed, and for an invite that does not hold; then as `Directory.publish`. Within the
        decision, ``refusal`` is the same for a claim that is counted against its invite.
        """
        handle = offer.card.card.handle
        own = self._directory.continues(offer)
        claim: Claim | None = None
        if invite is not None:
            claim = self._directory.invites.claim(invite, handle, now)
            # RL-HTTP-050: an invite that does not hold is refused before anything is said about the handle.
            if claim is None:
                raise HttpProblem(code="forbidden")
            if not claim.holds:
                return Decision(claim.failed(), refusal=HttpProblem(code="forbidden"))
        elif not own and (not self.is_open or handle == self.admin):
            raise HttpProblem(code="forbidden")
        try:
            if claim is not None:
                self._check_meant(claim, handle, own=own)
            decision = self._directory.publish(offer, now)
        except HttpProblem as refusal:
            if claim is None or refusal.code != "conflict":
                raise
            return Decision(claim.failed(), refusal=refusal)
        if claim is None:
            return decision
        return Decision((*decision.changes, *claim.accepted(now)), created=decision.created)

    def _check_meant(self, claim: Claim, handle: str, *, own: bool) -> None:
        if claim.issued.inviter == handle:
            raise HttpProblem("this invite is your own", code="conflict")
        if not own and handle == self.admin and claim.issued.inviter is not None:
            # As for a handle that is taken: nobody else will have it.
            raise HttpProblem("this handle belongs to another identity", code="conflict")

    def is_admin(self, handle: str) -> bool:
        """True for the administrator."""
        return self.admin is not None and handle == self.admin

    def remove(self, handle: str, asker: str, now: Instant) -> Decision:
        """Decide on the removal of an identity, by its owner or the administrator.

        Raises `HttpProblem`: 403 to all others, whether there is such a handle or not, 404 to the
        administrator for one that is not enrolled.
        """
        if asker != handle and not self.is_admin(asker):
            raise HttpProblem(code="forbidden")
        return self._directory.remove(handle, now)
