"""Holding calls for their owner's word: which ones wait, and what he said of them."""

from collections.abc import Callable
from hashlib import sha256
from typing import final

from msgspec import UNSET

from ringline.client.inbox import Inbox, Waiting
from ringline.protocol.encoding import b64encode
from ringline.protocol.frames import IncomingCall

__all__ = ["WaitingRoom"]


@final
class WaitingRoom:
    """The durable calls of one listener that wait; ``most`` of them at a time.

    ``note`` is told of each once; ``now`` is Unix ms. Methods raise `ConfigError` as the inbox does.
    """

    def __init__(
        self, inbox: Inbox, *, most: int, now: Callable[[], int], note: Callable[[str], None]
    ) -> None:
        self._inbox = inbox
        self._most = most
        self._now = now
        self._note = note

    def recognise(self, frame: IncomingCall) -> None:
        """Forget what was decided of a call of this id that is not this call: the relay chooses ids."""
        before = self._inbox.find(frame.call_id)
        if before is not None and before.sealed != _sealed(frame):
            self._inbox.drop(frame.call_id)

    def holds(self, frame: IncomingCall, ipk: bytes, *, known: bool, task: str | None) -> bool:
        """Whether a call is to wait; False for one that was decided, is not durable, or finds no room."""
        if frame.delivery_mode != "durable" or frame.execute_by is UNSET:
            return False
        before = self._inbox.find(frame.call_id)
        if before is not None:
            return before.is_open
        if sum(one.is_open for one in self._inbox.calls()) >= self._most:
            return False
        waiting = Waiting(
            call_id=frame.call_id,
            handle=frame.from_,
            ipk=b64encode(ipk),
            known=known,
            task=task,
            held_at=self._now(),
            execute_by=frame.execute_by,
            bytes=frame.envelope.size,
            sealed=_sealed(frame),
        )
        if not self._inbox.hold(waiting, self._now()):
            return False
        what = "a call" if task is None else f"a call of the task {task}"
        self._note(f"{frame.from_} waits for your word with {what}: ringline inbox show {frame.call_id}")
        return True

    def approves(self, call_id: str) -> bool:
        """Whether the owner let this one call through."""
        waiting = self._inbox.find(call_id)
        return waiting is not None and waiting.decision == "once"

    def decided(self, call_id: str) -> bool:
        """Whether a call that waited needs to wait no more."""
        waiting = self._inbox.find(call_id)
        return waiting is None or not waiting.is_open

    def gone(self, call_id: str) -> None:
        """Note that a call is not here any more."""
        self._inbox.drop(call_id)


def _sealed(frame: IncomingCall) -> str:
    return b64encode(sha256(frame.envelope.ct.encode()).digest())
