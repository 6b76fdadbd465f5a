"""Where two people meet who share a spoken code: three messages in memory, for ten minutes (RL-HTTP-058).

The relay can read none of the messages and need not: it hands the inviter's first to one single claimant,
his answer to the inviter, and the inviter's reply to him. Whoever guesses at a code has spent it: there is
one claim, and what there is to try is in it. A pairing is kept until its time is over, whatever became of
it, so that both sides are told, and nobody else gets its number meanwhile.
"""

import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, TypeAlias, final

from ringline.protocol.errors import HttpProblem
from ringline.protocol.instant import Instant
from ringline.protocol.limits import NAMEPLATES, PAIRINGS, PAIRINGS_PER_IDENTITY

__all__ = ["Meeting", "PairingBook", "PairingState"]

PairingState: TypeAlias = Literal["open", "claimed", "answered", "replied", "received", "void"]


@final
@dataclass(slots=True, eq=False)
class Meeting:
    """One pairing. ``ends`` is by the clock that never goes back, ``expires_at`` by the wall's; ms."""

    nameplate: str
    inviter: str
    offer: str
    ends: int
    expires_at: int
    state: PairingState = "open"
    claimant: bytes | None = None
    """The hash of the claimant's secret."""
    answer: str | None = None
    reply: str | None = None


@final
class PairingBook:
    """All pairings of one relay. Every method but `open` raises `HttpProblem` (404) for none.

    It is the same 404 for a number that nobody has, one that is another's, and one that is over.
    """

    def __init__(
        self, life_ms: int, *, draw: Callable[[int], int], is_enrolled: Callable[[str], bool]
    ) -> None:
        """``draw(n)`` returns a random number below ``n``. Whoever ``is_enrolled`` no more meets nobody."""
        self._life_ms = life_ms
        self._is_enrolled = is_enrolled
        self._draw = draw
        # In the order of their ends: all live equally long.
        self._meetings: OrderedDict[str, Meeting] = OrderedDict()

    def __len__(self) -> int:
        return len(self._meetings)

    def open(self, inviter: str, offer: str, now: Instant) -> Meeting:
        """Open a pairing under a number that is free. Raises `HttpProblem` (429) when there are too many."""
        self._purge(now)
        every = list(self._meetings.values())
        own = [meeting for meeting in every if meeting.inviter == inviter]
        if len(own) >= PAIRINGS_PER_IDENTITY:
            raise _too_many(own, "of this identity", now)
        if len(every) >= PAIRINGS:
            raise _too_many(every, "at this relay", now)
        free = [text for text in map(str, range(1, NAMEPLATES + 1)) if text not in self._meetings]
        # At random, so that whoever wants to spend others' codes does not know where to begin.
        nameplate = free[self._draw(len(free))]
        made = Meeting(nameplate, inviter, offer, now.mono + self._life_ms, now.wall + self._life_ms)
        self._meetings[nameplate] = made
        return made

    def claim(self, nameplate: str, secret: str, now: Instant) -> Meeting:
        """Give the pairing to whoever claims it first; he may repeat that."""
        meeting = self._find(nameplate, now)
        if meeting is not None and meeting.state == "open":
            meeting.state, meeting.claimant = "claimed", _hash(secret)
        return self.claimed(nameplate, secret, now)

    def claimed(self, nameplate: str, secret: str, now: Instant) -> Meeting:
        """Return the pairing that ``secret`` has claimed."""
        given = _hash(secret)
        meeting = self._find(nameplate, now)
        if meeting is None or not hmac.compare_digest(meeting.claimant or b"", given):
            raise HttpProblem(code="not_found")
        return meeting

    def answer(self, nameplate: str, secret: str, message: str, now: Instant) -> Meeting:
        """Take the guest's answer; the same once more changes nothing.

        Raises `HttpProblem` (409) for another.
        """
        meeting = self.claimed(nameplate, secret, now)
        if meeting.state == "claimed":
            meeting.state, meeting.answer = "answered", message
        elif meeting.answer != message and meeting.state != "void":
            raise HttpProblem("this pairing was answered otherwise", code="conflict")
        return meeting

    def of_inviter(self, nameplate: str, inviter: str, now: Instant) -> Meeting:
        """Return a pairing of ``inviter``."""
        meeting = self._find(nameplate, now)
        if meeting is None or meeting.inviter != inviter:
            raise HttpProblem(code="not_found")
        return meeting

    def reply(self, nameplate: str, inviter: str, message: str, now: Instant) -> Meeting:
        """Take the inviter's reply; the same once more changes nothing.

        Raises `HttpProblem` (409) for another, and before there is an answer.
        """
        meeting = self.of_inviter(nameplate, inviter, now)
        if meeting.state == "answered":
            meeting.state, meeting.reply = "replied", message
        elif meeting.reply != message:
            raise HttpProblem("there is nothing to reply to", code="conflict")
        return meeting

    def received(self, meeting: Meeting) -> None:
        """Note that the guest is given the reply."""
        if meeting.state == "replied":
            meeting.state = "received"

    def void(self, nameplate: str, inviter: str, now: Instant) -> Meeting:
        """Give a pairing up, unless its reply is out: its guest is told, and nobody else gets in."""
        meeting = self.of_inviter(nameplate, inviter, now)
        if meeting.state not in ("replied", "received"):
            meeting.state = "void"
        return meeting

    def _find(self, nameplate: str, now: Instant) -> Meeting | None:
        self._purge(now)
        meeting = self._meetings.get(nameplate)
        return meeting if meeting is not None and self._is_enrolled(meeting.inviter) else None

    def _purge(self, now: Instant) -> None:
        while self._meetings:
            first = next(iter(self._meetings.values()))
            if now.mono < first.ends:
                return
            del self._meetings[first.nameplate]


def _too_many(crowd: list[Meeting], whose: str, now: Instant) -> HttpProblem:
    return HttpProblem(
        f"{len(crowd)} spoken codes {whose} are in use or were within some minutes",
        code="rate_limited",
        retry_after_ms=crowd[0].ends - now.mono,
    )


def _hash(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
