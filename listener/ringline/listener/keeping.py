"""Keeping a listener's keys fresh for as long as it runs (RL-KEYS-012, RL-KEYS-021)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, final

from ringline.client import Account, RelayClock, RelayHttp
from ringline.client.expiry import warnings
from ringline.client.rotation import check_newest
from ringline.protocol.errors import HttpProblem, RinglineError, TransportError

__all__ = ["KeyKeeper"]


@final
class KeyKeeper:
    """Publishes the day's prekeys, and a new card in time; takes over what other processes have made.

    ``note`` is told what the owner must hear, each text once.
    """

    def __init__(
        self, account: Account, http: RelayHttp, clock: RelayClock, note: Callable[[str], None]
    ) -> None:
        """Nothing is done before `run`."""
        self._account = account
        self._http = http
        self._clock = clock
        self._note = note
        self._told: dict[str, None] = {}

    async def run(self, every_s: float) -> None:
        """Look every ``every_s`` seconds, for ever."""
        self._tell(warnings(self._account, self._clock.own_ms()))
        while True:
            await asyncio.sleep(every_s)
            now = self._clock.own_ms()
            # What fails must not keep the others: without its identity key a card is not renewed, and the
            # day's keys are published all the same.
            await self._attempt(asyncio.to_thread(self._account.refresh, now))
            await self._attempt(self._renew(now))
            await self._attempt(self._publish(now))

    async def _renew(self, now: int) -> None:
        if not self._account.renewal_due(now):
            return
        try:
            await asyncio.to_thread(self._account.renew, now)
        except RinglineError:
            # For some weeks nobody misses anything: the identity key may be away on purpose.
            if found := warnings(self._account, now):
                self._tell(found)
                raise

    async def _publish(self, now: int) -> None:
        if not self._account.was_published:
            await self._http.publish()
        elif self._account.rotation_due(now):
            try:
                await self._http.publish_prekeys()
            except HttpProblem:
                # Most likely the keys were replaced on another computer, for which there are better words.
                await check_newest(self._http)
                raise

    async def _attempt(self, deed: Coroutine[Any, Any, object]) -> None:
        try:
            await deed
        except TransportError:
            pass  # told by the connection already
        except Exception as error:
            # Whatever it is, it must not end the renewals: the day's keys would run out unseen.
            text = str(error) if isinstance(error, RinglineError) else type(error).__name__
            hint = f" ({error.next_step})" if isinstance(error, RinglineError) and error.next_step else ""
            self._tell((f"the keys could not be renewed: {text}{hint}",))

    def _tell(self, texts: tuple[str, ...]) -> None:
        for text in texts:
            if text not in self._told:
                self._told[text] = None
                self._note(text)
