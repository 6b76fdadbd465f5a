"""Several calls that belong together: the callee keeps the context, under the seal (RL-CONVERSE-001)."""

import asyncio
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

from ringline.caller.reply import Reply
from ringline.caller.running import RunningCall
from ringline.caller.sealing import Question
from ringline.protocol.bodies import link
from ringline.protocol.errors import ConfigError, PeerFailure, ProtocolError
from ringline.protocol.limits import CONTEXT_TURNS

if TYPE_CHECKING:
    from ringline.caller.caller import AsyncCaller

__all__ = ["Conversation"]


@final
class Conversation:
    """A conversation with one callee about one task. Made by `AsyncCaller.conversation`.

    Its turns share one correlation id, which is random and says nothing outside of it, and run one after
    the other: a turn that is asked while another runs waits for it.
    """

    def __init__(self, caller: "AsyncCaller", handle: str, task: str | None) -> None:
        """For `AsyncCaller`."""
        self.handle = handle
        self.task = task
        self.correlation_id = secrets.token_hex(16)
        self.context_id: str | None = None
        """The callee's name for it, known after the first turn."""
        self.turns = 0
        """How many turns were answered; at most ten."""
        self._caller = caller
        self._prev: str | None = None
        self._over = False
        self._lock = asyncio.Lock()

    async def call(
        self,
        message: str = "",
        *,
        args: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Reply:
        """Ask the next turn and return its reply. ``timeout`` is in seconds.

        Raises as `AsyncCaller.call`, and `ConfigError` when the callee keeps no context, or after the last
        turn, or once the callee no longer knows the context; `ProtocolError` when his answer is of another
        context or turn than was asked.
        """
        async with self._lock:
            question = self._question(message, args)
            running = RunningCall(
                self._caller.begin(self.handle, question, timeout=timeout, correlation_id=self.correlation_id)
            )
            try:
                reply = await running.result()
            except PeerFailure as failure:
                # RL-CONVERSE-005: context_unknown is one and the same for every cause.
                # RL-CONVERSE-008: a turn whose request failed otherwise may be asked again.
                self._over = self._over or failure.code == "context_unknown"
                raise
            except asyncio.CancelledError:
                running.abandon()
                raise
            self._advance(reply)
            return reply

    def _question(self, message: str, args: Mapping[str, Any] | None) -> Question:
        if self._over or self.turns >= CONTEXT_TURNS:
            raise ConfigError(
                f"this conversation with {self.handle} is over after {self.turns} turns. Nothing was sent.",
                next_step="begin a new one",
            )
        if self.turns == 0:
            return Question(message=message, task=self.task, args=args)
        if self.context_id is None:
            raise ConfigError(
                f"{self.handle} keeps no context between calls. Nothing was sent.",
                next_step="make single calls and say in each what it needs",
            )
        return Question(
            message=message,
            task=self.task,
            args=args,
            context_id=self.context_id,
            turn=self.turns + 1,
            prev=self._prev,
        )

    def _advance(self, reply: Reply) -> None:
        expected = self.turns + 1
        if self.turns and reply.context_id != self.context_id:
            self._over = True
            raise ProtocolError(f"{self.handle} answered for another conversation", call_id=reply.call_id)
        if reply.context_id is not None and reply.turn != expected:
            self._over = True
            raise ProtocolError(f"{self.handle} answered for another turn", call_id=reply.call_id)
        self.context_id = reply.context_id
        self.turns = expected
        self._prev = link(reply.receipt.body)
