"""Who may call, what, and how often: what the owner said on starting the listener, and his contacts.

The relay's word counts for nothing here: a caller is judged by the identity that was verified, and the
contacts are pinned to it. Whoever is refused before anything is decrypted is refused by `Access.admits`;
`Access.judge` refuses what was opened, under a seal.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, final

from ringline.client.contacts import Pin
from ringline.listener.effects import Refusal
from ringline.protocol.limits import HOUR_MS

__all__ = ["Access", "ChargeBook"]

_MINUTE_MS: Final = 60_000


class ChargeBook(Protocol):
    """Where charges outlive the process: the journal."""

    def charges(self) -> list[tuple[str, str, int]]:
        """Return handle, call id and time (Unix ms) of each, the oldest first."""
        ...

    def charge(self, handle: str, call_id: str, now: int) -> None:
        """Keep one."""
        ...


@final
class Access:
    """The policy of one listener. ``allow`` None lets everybody in, as a development relay does.

    ``block`` wins, and so does a contact that is blocked. Who is on ``allow`` may call every task; a contact
    that is let in may call what it says there. ``contacts`` is asked anew each time, since they can change
    while the listener runs; None: there are none. ``clock`` counts ms and never goes back.
    """

    def __init__(
        self,
        allow: frozenset[str] | None,
        block: frozenset[str] = frozenset(),
        *,
        contacts: Callable[[str], Pin | None] | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.allow = allow
        self.block = block
        self.contacts = contacts
        self._clock = clock or _mono_ms
        self.approved: Callable[[str], bool] | None = None
        """Whether the owner let one call through, by its id, whoever it is from and whatever it asks."""
        self._charged: dict[str, deque[tuple[int, str]]] = {}
        self._book: tuple[ChargeBook, Callable[[], int]] | None = None

    def keep_charges(self, book: ChargeBook | None, wall: Callable[[], int]) -> None:
        """Go on from what was charged before this process, and write down what is charged from now on.

        ``wall`` returns Unix ms. It can be set meanwhile, so a charge of the future counts as one of now.
        None: nothing is written any more. Raises as the book does.
        """
        self._book = None
        if book is None:
            return
        now, wall_now = self._clock(), wall()
        for handle, call_id, charged_at in book.charges():
            charged = self._charged.setdefault(handle, deque())
            if all(known != call_id for _, known in charged):
                charged.append((now - max(0, wall_now - charged_at), call_id))
        for handle, charged in self._charged.items():
            self._charged[handle] = deque(sorted(charged))
        self._book = book, wall

    def admits(self, handle: str) -> bool:
        """Whether calls of that handle are opened and worked on. Raises as the contacts do."""
        if self.is_blocked(handle):
            return False
        pin = self._pin(handle)
        if self.allow is None or handle in self.allow:
            return True
        return pin is not None and pin.state == "allowed"

    def tasks(self, handle: str) -> frozenset[str] | None:
        """Return the tasks that an admitted caller may call; None for every task."""
        pin = self._pin(handle)
        if pin is None or pin.tasks is None or pin.state != "allowed" or handle in (self.allow or ()):
            return None
        return frozenset(pin.tasks)

    def is_blocked(self, handle: str) -> bool:
        """Whether it was decided that this caller may not call."""
        pin = self._pin(handle)
        return handle in self.block or (pin is not None and pin.state == "blocked")

    def is_approved(self, call_id: str) -> bool:
        """Whether the owner let this one call through."""
        return self.approved is not None and self.approved(call_id)

    def charge(self, handle: str, call_id: str) -> Refusal | None:
        """Charge a call to its caller's budget, once, or return why it is not taken.

        Raises as the contacts and the book do; then nothing is charged.
        """
        pin = self._pin(handle)
        if pin is None or pin.calls_per_hour is None or self.is_approved(call_id):
            return None
        now = self._clock()
        charged = self._charged.setdefault(handle, deque())
        while charged and charged[0][0] <= now - HOUR_MS:
            charged.popleft()
        if any(known == call_id for _, known in charged):
            return None
        if len(charged) >= pin.calls_per_hour:
            wait = -(-(charged[-pin.calls_per_hour][0] + HOUR_MS - now) // _MINUTE_MS)
            return Refusal(
                "busy",
                f"you have used up your {pin.calls_per_hour} calls an hour; the next is free in {wait} min",
            )
        if self._book is not None:
            book, wall = self._book
            book.charge(handle, call_id, wall())
        charged.append((now, call_id))
        return None

    def _pin(self, handle: str) -> Pin | None:
        return None if self.contacts is None else self.contacts(handle)


def _mono_ms() -> int:
    return time.monotonic_ns() // 1_000_000
