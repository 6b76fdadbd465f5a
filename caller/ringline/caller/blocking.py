"""The same interface for programs without an event loop: `Caller`, with the names of `AsyncCaller`.

A loop of its own runs in a thread of its own; every method hands its work over and waits.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, final

from ringline.caller.caller import DURABLE_LIFE_S, SUBMIT_TIMEOUT_S, AsyncCaller
from ringline.caller.cancellation import Cancellation
from ringline.caller.conversation import Conversation
from ringline.caller.events import Event
from ringline.caller.kept import KeptCall
from ringline.caller.reply import Reply
from ringline.caller.running import RunningCall
from ringline.client import Account, Home, Passphrase
from ringline.protocol.bodies import Offer
from ringline.protocol.contact import Contact
from ringline.protocol.errors import ConfigError
from ringline.protocol.shapes import CallRecord

__all__ = ["CallHandle", "Caller", "Talk"]

_T = TypeVar("_T")

_STOP_S: Final = 10.0


@final
class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ringline-caller", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do it there and wait for it. When the wait is interrupted, the work is cancelled."""
        if not self._thread.is_alive():
            work.close()
            raise ConfigError("this caller is closed", next_step="make a new one")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        if self._thread.is_alive():
            with contextlib.suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(self._tidy(), self._loop).result(_STOP_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_STOP_S)
            self._loop.close()

    async def _tidy(self) -> None:
        """Leave no task and no thread behind."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()


@final
class CallHandle:
    """A call that was started. Made by `Caller.start`; the twin of `RunningCall`."""

    def __init__(self, loop: _Loop, running: RunningCall) -> None:
        """For `Caller`."""
        self._loop = loop
        self.running = running
        """The call within the caller's own event loop."""

    @property
    def message_id(self) -> str:
        """The id that names the message."""
        return self.running.message_id

    @property
    def call_id(self) -> str | None:
        """The relay's id, once it is known."""
        return self.running.call_id

    @property
    def done(self) -> bool:
        """True when `result` will not have to wait."""
        return self.running.done

    def __enter__(self) -> "CallHandle":
        """Return the call itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel the call if it is still under way."""
        self._loop.run(self.running.__aexit__())

    def result(self) -> Reply:
        """Wait for the end and return the peer's signed reply. Raises as `RunningCall.result`."""
        return self._loop.run(self.running.result())

    def events(self) -> Iterator[Event]:
        """Yield what has happened so far and what happens, until the call is over."""
        events = self.running.events()

        async def following() -> Event | None:
            return await anext(events, None)

        while (event := self._loop.run(following())) is not None:
            yield event

    def cancel(self) -> Cancellation:
        """Ask for the cancellation and return what came of it, at the latest after ten seconds."""
        return self._loop.run(self.running.cancel())


@final
class Talk:
    """A conversation. Made by `Caller.conversation`; the twin of `Conversation`."""

    def __init__(self, loop: _Loop, conversation: Conversation) -> None:
        """For `Caller`."""
        self._loop = loop
        self._conversation = conversation

    @property
    def turns(self) -> int:
        """How many turns were answered; at most ten."""
        return self._conversation.turns

    @property
    def context_id(self) -> str | None:
        """The callee's name for it, known after the first turn."""
        return self._conversation.context_id

    def call(
        self, message: str = "", *, args: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Reply:
        """Ask the next turn and return its reply. Raises as `Conversation.call`."""
        return self._loop.run(self._conversation.call(message, args=args, timeout=timeout))


@final
class Caller:
    """Calls agents over one relay, as one identity.

    ::

        with Caller() as me:
            reply = me.call("reviewer", "Please review: …", timeout=120)
            print(reply.text, reply.signed_by)
    """

    def __init__(
        self,
        handle: str | None = None,
        *,
        relay: str | None = None,
        realm: str | None = None,
        home: Home | Path | None = None,
        passphrase: Passphrase | None = None,
        plain: bool | None = None,
        trust_new: bool | None = None,
        contacts: Iterable[Contact | str] = (),
        min_suite: int = 1,
        note: Callable[[str], None] | None = None,
    ) -> None:
        """The arguments are those of `AsyncCaller`. ``note`` is called in another thread."""
        self._caller = AsyncCaller(
            handle,
            relay=relay,
            realm=realm,
            home=home,
            passphrase=passphrase,
            plain=plain,
            trust_new=trust_new,
            contacts=contacts,
            min_suite=min_suite,
            note=note,
        )
        self._loop = _Loop()

    def __enter__(self) -> "Caller":
        """Load the identity and greet the relay. Raises `ConfigError`, `TransportError`, `HttpProblem`."""
        try:
            self._loop.run(self._caller.__aenter__())
        except BaseException:
            self._loop.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close every connection and end the thread."""
        try:
            self._loop.run(self._caller.close())
        except ConfigError:
            return
        self._loop.stop()

    def account(self) -> Account:
        """Return the identity that calls."""
        return self._loop.run(self._caller.account())

    def call(
        self,
        handle: str,
        message: str = "",
        *,
        task: str | None = None,
        args: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        message_id: str | None = None,
    ) -> Reply:
        """Call ``handle`` and return its signed reply. Arguments and errors are those of `AsyncCaller.call`.

        When the wait is interrupted (Ctrl-C), a cancellation is asked for, without waiting for its answer.
        """
        return self._loop.run(
            self._caller.call(handle, message, task=task, args=args, timeout=timeout, message_id=message_id)
        )

    def start(
        self,
        handle: str,
        message: str = "",
        *,
        task: str | None = None,
        args: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        message_id: str | None = None,
    ) -> CallHandle:
        """Start a call and return at once; the arguments are those of `call`."""

        async def begin() -> RunningCall:
            return self._caller.start(
                handle, message, task=task, args=args, timeout=timeout, message_id=message_id
            )

        return CallHandle(self._loop, self._loop.run(begin()))

    def conversation(self, handle: str, task: str | None = None) -> Talk:
        """Begin a conversation with ``handle``; nothing is sent before its first turn."""
        return Talk(self._loop, self._caller.conversation(handle, task))

    def offered_tasks(self, handle: str, *, timeout: float | None = None) -> tuple[Offer, ...]:
        """Ask ``handle`` for the tasks it offers to this identity. Raises as `call`."""
        return self._loop.run(self._caller.offered_tasks(handle, timeout=timeout))

    def submit(
        self,
        handle: str,
        message: str = "",
        *,
        task: str | None = None,
        args: Mapping[str, Any] | None = None,
        expires: float = DURABLE_LIFE_S,
        timeout: float = SUBMIT_TIMEOUT_S,
        message_id: str | None = None,
    ) -> str:
        """Leave a durable call with the relay and return its receipt. As `AsyncCaller.submit`."""
        return self._loop.run(
            self._caller.submit(
                handle,
                message,
                task=task,
                args=args,
                expires=expires,
                timeout=timeout,
                message_id=message_id,
            )
        )

    def result(self, receipt: str, *, wait: float = 0.0) -> Reply:
        """Return the signed reply to a durable call. As `AsyncCaller.result`."""
        return self._loop.run(self._caller.result(receipt, wait=wait))

    def calls(self, limit: int = 100) -> tuple[KeptCall, ...]:
        """Return the calls that this identity sealed last, newest first."""
        return self._loop.run(self._caller.calls(limit))

    def kept(self, receipt: str) -> KeptCall:
        """Return one call of this identity by its receipt or call id. As `AsyncCaller.kept`."""
        return self._loop.run(self._caller.kept(receipt))

    def record(self, receipt: str) -> CallRecord | None:
        """Return what the relay says of a call, unsigned, or None. As `AsyncCaller.record`."""
        return self._loop.run(self._caller.record(receipt))

    def cancel(self, call: CallHandle | str) -> Cancellation:
        """Cancel a running call, or one that another process made, by its receipt or call id."""
        target = call.running if isinstance(call, CallHandle) else call
        return self._loop.run(self._caller.cancel(target))
