"""The directory together with its store: nothing is true in memory that is not safe on disk.

The event loop never waits for this store: one that may block has a thread of its own, and only requests
that change something wait for it, one after the other. (Durable calls are written otherwise:
`ringline.relay.sqlite_calls`.)
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar, final

import msgspec

from ringline.protocol.errors import ConfigError, HttpProblem, RinglineError
from ringline.protocol.instant import Instant
from ringline.relay.auth import Login
from ringline.relay.directory import Decision, Directory
from ringline.relay.keylog import unlogged
from ringline.relay.store import Change, Store, StoreError

__all__ = ["Registry"]

logger: Final = logging.getLogger("ringline.relay.registry")

_CHECK_EVERY_S: Final = 5.0
_T = TypeVar("_T")


@final
class Registry:
    """Writes what the directory decides, then lets the directory apply it."""

    def __init__(self, directory: Directory, store: Store, *, blocking: bool) -> None:
        """Fill ``directory`` from ``store``. ``blocking``: the store may wait for a disk.

        Raises `ConfigError` when what is stored cannot be read.
        """
        self.directory = directory
        self._store = store
        self._thread = ThreadPoolExecutor(1, "ringline-store") if blocking else None
        self._writing = asyncio.Lock()
        self._fault: str | None = None
        self._checked_at: float | None = None
        self._closed = False
        try:
            stored = list(store.load())
            for change in stored:
                directory.apply(change)
            self._catch_up(stored)
        except (RinglineError, msgspec.MsgspecError, KeyError, ValueError) as error:
            why = error if isinstance(error, RinglineError) else "what it holds does not fit together"
            raise ConfigError(
                f"{store.path}: the stored directory cannot be read: {why}",
                next_step="restore the database from a copy, or name another file with --db",
            ) from None

    async def commit(self, decide: Callable[[], Decision]) -> Decision:
        """Run ``decide``, make its changes durable, apply them, and return the decision.

        No other decision is taken meanwhile. Whatever ``decide`` raises passes through.

        Raises `HttpProblem` (503) when the changes could not be written; then nothing has changed.
        """
        # In a task of its own: were the request given up between disk and memory, the two would part.
        return await asyncio.shield(asyncio.ensure_future(self._commit(decide)))

    async def commit_for(self, login: Login, now: Instant, decide: Callable[[], Decision]) -> Decision:
        """As `commit`, in the name of somebody who logged in before the body of his request was read.

        Raises `HttpProblem` (401) when he was removed or his card called back since: a body that is held
        back must not outlive the right to send it.
        """

        def decide_still() -> Decision:
            if self.directory.login_card(login.handle, login.card_id, now) is None:
                raise HttpProblem(code="unauthorized")
            return decide()

        return await self.commit(decide_still)

    async def _commit(self, decide: Callable[[], Decision]) -> Decision:
        async with self._writing:
            decision = decide()
            if decision.changes:
                try:
                    await self._run(lambda: self._store.write(decision.changes))
                except StoreError as error:
                    self._blame(error)
                    raise HttpProblem(
                        "the relay's storage cannot be written; nothing was changed",
                        code="unavailable",
                        retry_after_ms=5_000,
                    ) from None
                self._fault = None
                for change in decision.changes:
                    self.directory.apply(change)
            return decision

    async def log_entries(self, start: int, end: int) -> list[bytes]:
        """Return entries of the key log, as `Store.log_entries` does."""
        return await self._run(lambda: self._store.log_entries(start, end))

    def _catch_up(self, stored: Sequence[Change]) -> None:
        """Begin the key log of a database that is older than it. Raises `StoreError`, `ValueError`."""
        if self.directory.log is None:
            return
        missing = unlogged(self.directory.log, stored)
        if missing:
            self._store.write(missing)
            for change in missing:
                self.directory.apply(change)
            logger.info("the key log begins with %d statements that were stored before", len(missing))

    async def fault(self) -> str | None:
        """Return why the store cannot be written now, None when it can; looked up every few seconds."""
        now = asyncio.get_running_loop().time()
        if self._checked_at is None or now - self._checked_at >= _CHECK_EVERY_S:
            self._checked_at = now
            async with self._writing:
                try:
                    await self._run(self._store.check)
                    self._fault = None
                except StoreError as error:
                    self._blame(error)
        return self._fault

    async def close(self) -> None:
        """Finish the write that is under way and let go of the store. A second call does nothing."""
        async with self._writing:
            if not self._closed:
                self._closed = True
                await self._run(self._store.close)
                if self._thread is not None:
                    self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], _T]) -> _T:
        if self._thread is None:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _blame(self, error: StoreError) -> None:
        if self._fault != str(error):
            logger.error("the store cannot be written: %s", error)
        self._fault = str(error)
