"""Running functions: in a loop that may be elsewhere, or in threads, and stopping them."""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from ringline.listener.effects import Broken, Produced, Result
from ringline.listener.functions import AsyncRun, Place, ThreadRun
from ringline.listener.tasks import Call, TaskFailed

BOUND_S = 60.0


@pytest.fixture
def elsewhere() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(BOUND_S)
    loop.close()


def call() -> Call:
    return Call(caller="alice", fingerprint="f", message="hi", call_id="call-1")


async def ended(run: Awaitable[tuple[Result, bool]]) -> tuple[Result, bool]:
    return await asyncio.wait_for(run, BOUND_S)


class TestAsync:
    @pytest.fixture(params=["here", "elsewhere"])
    def place(
        self, request: pytest.FixtureRequest, elsewhere: asyncio.AbstractEventLoop
    ) -> Callable[[], Place]:
        """Where handlers run: in the loop of the connection, or in one of their own."""
        if request.param == "here":
            return Place.here
        return lambda: Place(elsewhere, contextvars.copy_context())

    async def test_its_result_is_told(self, place: Callable[[], Place]) -> None:
        async def handler() -> str:
            await asyncio.sleep(0)
            return "done"

        assert await ended(AsyncRun(handler, call(), place()).run()) == (Produced("done"), False)

    async def test_it_is_cancelled(self, place: Callable[[], Place]) -> None:
        began, finished = threading.Event(), threading.Event()

        async def handler() -> None:
            began.set()
            try:
                await asyncio.sleep(600)
            finally:
                finished.set()

        run = AsyncRun(handler, call(), place())
        task = asyncio.ensure_future(run.run())
        await asyncio.to_thread(began.wait, BOUND_S)
        run.stop(at_once=False)
        result, stopped = await ended(task)
        assert isinstance(result, Broken)
        assert stopped
        assert finished.is_set()

    async def test_stopped_before_its_first_step_it_never_runs(self, place: Callable[[], Place]) -> None:
        ran: list[bool] = []

        async def handler() -> None:
            ran.append(True)

        run = AsyncRun(handler, call(), place())
        task = asyncio.ensure_future(run.run())
        run.stop(at_once=False)
        result, stopped = await ended(task)
        assert isinstance(result, Broken)
        assert stopped
        assert ran == []

    async def test_what_it_gives_after_a_cancellation_is_marked(self, place: Callable[[], Place]) -> None:
        began = threading.Event()

        async def handler() -> str:
            began.set()
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                return "half"
            return "whole"

        run = AsyncRun(handler, call(), place())
        task = asyncio.ensure_future(run.run())
        await asyncio.to_thread(began.wait, BOUND_S)
        run.stop(at_once=False)
        assert await ended(task) == (Produced("half"), True)

    async def test_stopped_after_its_end_it_was_not_stopped(self) -> None:
        async def handler() -> str:
            return "whole"

        run = AsyncRun(handler, call(), Place.here())
        assert await ended(run.run()) == (Produced("whole"), False)
        run.stop(at_once=False)

    @pytest.mark.parametrize("kind", [KeyError, SystemExit, KeyboardInterrupt, asyncio.CancelledError])
    async def test_whatever_it_raises_is_a_failure_of_the_call_alone(
        self, kind: type[BaseException], place: Callable[[], Place]
    ) -> None:
        async def handler() -> None:
            raise kind("secret")

        result, stopped = await ended(AsyncRun(handler, call(), place()).run())
        assert isinstance(result, Broken)
        assert "secret" not in (result.detail or "")
        assert not stopped

    async def test_a_loop_that_is_closed(self) -> None:
        closed = asyncio.new_event_loop()
        closed.close()

        async def handler() -> None: ...

        run = AsyncRun(handler, call(), Place(closed, contextvars.copy_context()))
        result, _ = await ended(run.run())
        assert isinstance(result, Broken)
        run.stop(at_once=False)


class TestThread:
    async def test_its_result_is_told(self) -> None:
        def handler() -> int:
            assert threading.current_thread() is not threading.main_thread()
            return 3

        assert await ended(ThreadRun(handler, call(), Place.here()).run()) == (Produced("3", 3), False)

    async def test_it_is_asked_to_stop_by_its_flag(self) -> None:
        one = call()

        def handler() -> str:
            return "half" if one.wait_cancelled(BOUND_S) else "whole"

        run = ThreadRun(handler, one, Place.here())
        task = asyncio.ensure_future(run.run())
        await asyncio.sleep(0)
        assert not one.cancelled
        run.stop(at_once=False)
        assert await ended(task) == (Produced("half"), True)
        assert one.cancelled

    async def test_stopped_before_it_began_it_never_runs(self) -> None:
        ran: list[bool] = []
        run = ThreadRun(lambda: ran.append(True), call(), Place.here())
        run.stop(at_once=False)
        _, stopped = await ended(run.run())
        assert stopped
        assert ran == []

    @pytest.mark.parametrize("kind", [KeyError, SystemExit, KeyboardInterrupt])
    async def test_whatever_it_raises_is_a_failure(self, kind: type[BaseException]) -> None:
        def handler() -> None:
            raise kind("secret")

        result, _ = await ended(ThreadRun(handler, call(), Place.here()).run())
        assert isinstance(result, Broken)
        assert result.detail is None
        assert "secret" in result.local

    async def test_an_awaitable_is_no_result(self) -> None:
        def handler() -> Any:
            async def forgotten() -> None: ...

            coroutine = forgotten()
            coroutine.close()
            return coroutine

        result, _ = await ended(ThreadRun(handler, call(), Place.here()).run())
        assert isinstance(result, Broken)


@pytest.mark.parametrize("expose", [False, True])
async def test_texts_leave_when_they_were_meant_to(expose: bool) -> None:
    def on_purpose() -> None:
        raise TaskFailed("for the caller")

    def by_accident() -> None:
        raise KeyError("not for the caller")

    def without_text() -> None:
        raise TaskFailed

    details: list[str | None] = []
    for handler in (on_purpose, by_accident, without_text):
        result, _ = await ended(ThreadRun(handler, call(), Place.here(), expose_errors=expose).run())
        assert isinstance(result, Broken)
        details.append(result.detail)
    assert details == ["for the caller", "'not for the caller'" if expose else None, None]


async def test_context_variables_are_those_of_whoever_serves() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("of serve")
    place = Place.here()
    variable.set("of the connection")

    def plain() -> str:
        said = variable.get()
        variable.set("of another call")
        return said

    async def later() -> str:
        return plain()

    for _ in range(2):
        assert await ended(ThreadRun(plain, call(), place).run()) == (Produced("of serve"), False)
        assert await ended(AsyncRun(later, call(), place).run()) == (Produced("of serve"), False)
