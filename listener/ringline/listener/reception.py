"""Guests: callers who have taken up an invite of the listener's owner since it was looked last."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final, final

from ringline.client.invitations import Given, Guest, Invitations
from ringline.protocol.errors import RinglineError

__all__ = ["Reception"]

_LOOK_EVERY_S: Final = 1.0


@final
class Reception:
    """Asks the relay who has taken an invite up, and lets in whoever proves it.

    A stranger's call makes it look, so it looks at most once a second, for all who wait, and never while no
    invite is kept here. ``note`` is told of guests, and of what is wrong with others, once each.
    """

    def __init__(
        self, invitations: Invitations, note: Callable[[str], None], clock: Callable[[], float] | None = None
    ) -> None:
        self._invitations = invitations
        self._note = note
        self._clock = clock or time.monotonic
        self._looking = asyncio.Lock()
        self._looked_at = -math.inf
        self._told: set[str] = set()

    async def meet(self) -> None:
        """Let in who has come up to now. Raises nothing: whoever was not met stays a stranger."""
        asked_at = self._clock()
        async with self._looking:
            if self._looked_at > asked_at:
                return  # another's look began after this one was asked for
            try:
                if not self._invitations.kept():
                    return
                await asyncio.sleep(max(0.0, self._looked_at + _LOOK_EVERY_S - self._clock()))
                self._looked_at = self._clock()
                for guest in await self._invitations.meet():
                    self._tell(_words(guest))
            except RinglineError as error:
                self._tell(f"nobody knows who has taken up an invite: {error}")

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._note(text)


def _words(guest: Guest) -> str:
    if guest.pin is None:
        return f"{guest.handle} took up an invite and was not let in: {guest.trouble}"
    if guest.pin.state == "blocked":
        return f"{guest.handle} took up an invite, and stays blocked"
    return f"{guest.handle} has taken up your invite and is let in: {_grant(guest.issued.given)}"


def _grant(given: Given) -> str:
    tasks = "every task" if given.tasks is None else ", ".join(given.tasks)
    return tasks if given.calls_per_hour is None else f"{tasks}; {given.calls_per_hour} calls an hour"
