"""Doing the work that the session wants done, and telling it when it has ended.

Which bounds work is held to and what its end means is the session's business. Here it is started, asked to
stop, and watched until it is seen to end.
"""

import asyncio
import threading
from collections.abc import Callable
from types import MappingProxyType
from typing import Final, Protocol, final

from msgspec import UNSET

from ringline.client import Background
from ringline.listener.catalogue import Errand
from ringline.listener.effects import Broken, Job, Produced, Result
from ringline.listener.functions import AsyncRun, Place, ThreadRun
from ringline.listener.runtime import Command, CommandRun
from ringline.listener.tasks import DEFAULT_TASK, Call, Conversation
from ringline.protocol.fingerprint import fingerprint

__all__ = ["Worker"]

_CLOSE_S: Final = 1.0


class _Execution(Protocol):
    """Something that runs once."""

    async def run(self) -> tuple[Result, bool]:
        """Run; return what it came to, and whether it had been told to stop before it ended."""
        ...

    def stop(self, *, at_once: bool) -> None:
        """Tell it to stop."""
        ...


@final
class _Said:
    """An answer for which nothing has to run."""

    def __init__(self, answer: Result) -> None:
        self._answer = answer

    async def run(self) -> tuple[Result, bool]:
        return self._answer, False

    def stop(self, *, at_once: bool) -> None:
        del at_once


@final
class Worker:
    """All that runs for calls, by entry. Lives in one event loop."""

    def __init__(
        self,
        ended: Callable[[int, Result, bool], None],
        place: Place,
        *,
        expose_errors: bool = False,
    ) -> None:
        """``place`` is where functions run.

        ``ended`` is told the entry, what came of it, and whether it was told to stop before it ended.
        """
        self._ended = ended
        self._place = place
        self._expose = expose_errors
        self._running: dict[int, _Execution] = {}
        self._tasks = Background("the work of a call")

    def __len__(self) -> int:
        return len(self._running)

    def run(self, job: Job) -> None:
        """Start a job; its end is told in a later turn of the loop."""
        execution: _Execution
        try:
            execution = self._execution(job)
        except Exception as error:  # a fault of ours must not leave a call without an end
            execution = _Said(_fault(error))
        self._running[job.entry_id] = execution
        self._tasks.start(self._watch(job.entry_id, execution))

    def stop(self, entry_id: int, *, at_once: bool) -> None:
        """Tell a job to stop; when it has, its end is told."""
        execution = self._running.get(entry_id)
        if execution is not None:
            execution.stop(at_once=at_once)

    async def close(self) -> None:
        """Stop everything: programs are killed, functions told; what does not end is left to itself."""
        for execution in tuple(self._running.values()):
            execution.stop(at_once=True)
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=_CLOSE_S)
        await self._tasks.close()

    async def _watch(self, entry_id: int, execution: _Execution) -> None:
        try:
            result, stopped = await execution.run()
        except Exception as error:  # a fault of ours must not leave a call without an end
            result, stopped = _fault(error), False
        del self._running[entry_id]
        self._ended(entry_id, result, stopped)

    def _execution(self, job: Job) -> _Execution:
        plan = job.plan
        assert isinstance(plan, Errand)
        if isinstance(plan.what, Produced):
            return _Said(plan.what)
        call = _call(job, plan)
        if isinstance(plan.what, Command):
            return CommandRun(plan.what, call)
        handler = plan.what.bind(call, plan.keywords)
        if plan.what.is_async:
            return AsyncRun(handler, call, self._place, expose_errors=self._expose)
        return ThreadRun(handler, call, self._place, expose_errors=self._expose)


def _fault(error: Exception) -> Broken:
    return Broken(local=f"the work could not be run: {type(error).__name__}: {error}")


def _call(job: Job, plan: Errand) -> Call:
    request, offer = job.request, job.offer
    conversation = None
    if job.context_id is not None and job.turn is not None:
        conversation = Conversation(job.context_id, job.turn)
    return Call(
        caller=offer.handle,
        fingerprint=fingerprint(job.from_ipk),
        message=request.message,
        args=MappingProxyType({} if request.args is UNSET else request.args),
        task=plan.task or DEFAULT_TASK,
        conversation=conversation,
        call_id=offer.call_id,
        message_id=offer.message_id or None,
        durable=offer.mode == "durable",
        traceparent=None if request.traceparent is UNSET else request.traceparent,
        flag=threading.Event(),
    )
