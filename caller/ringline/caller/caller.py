"""The public interface for programs that call: `AsyncCaller`."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, final

from msgspec import UNSET

from ringline.caller.cancellation import Cancellation, Cancelled, NotCancelled, Requested
from ringline.caller.claim import claim_of, is_claim, read_claim
from ringline.caller.collection import collect, settle_others, submitted
from ringline.caller.conversation import Conversation
from ringline.caller.errand import Errand
from ringline.caller.kept import KeptCall, kept_call
from ringline.caller.outbox import Stored
from ringline.caller.post import Post, PostOptions
from ringline.caller.reply import Reply, reply_of
from ringline.caller.running import RunningCall
from ringline.caller.sealing import Question, seal_call
from ringline.caller.submission import Submission
from ringline.client import Account, Home, Passphrase, meant_relay
from ringline.protocol.bodies import Offer, encode_request
from ringline.protocol.contact import Contact
from ringline.protocol.errors import ConfigError
from ringline.protocol.limits import CALL_BOUND_MS, DURABLE_LIFE_MS, HOLD_MS
from ringline.protocol.names import HANDLE_RULE, is_handle, is_message_id
from ringline.protocol.shapes import CallRecord
from ringline.protocol.transcript import digest

__all__ = ["DEFAULT_TIMEOUT_S", "DURABLE_LIFE_S", "SUBMIT_TIMEOUT_S", "AsyncCaller"]

DEFAULT_TIMEOUT_S: Final = (CALL_BOUND_MS + HOLD_MS) / 1_000
"""How long a call is waited for: the relay ends it by itself before that."""

DURABLE_LIFE_S: Final = DURABLE_LIFE_MS / 1_000
"""How long a durable call may wait for its work to begin, at most and by default."""

SUBMIT_TIMEOUT_S: Final = 30.0
"""How long the relay is given to confirm a durable call."""

_log: Final = logging.getLogger(__name__)


@final
class AsyncCaller:
    """Calls agents over one relay, as one identity.

    ::

        async with AsyncCaller() as me:
            reply = await me.call("reviewer", "Please review: …", timeout=120)
            print(reply.text, reply.signed_by)

    What a peer has said is returned or raised as `PeerFailure`; what the relay says, without proof, is
    raised as `RelayError`; `TransportError` is raised when the relay cannot be reached.
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
        """Nothing is read or sent before the first use.

        ``handle``: the identity that calls, made on first use; None: one of its own for this relay.
        ``relay``: base URL, http(s) or ws(s); None: ``RINGLINE_RELAY``, else the first relay that this person
        was invited to, else the development one. ``realm``: its realm, if that is not the URL's host.
        ``home``: where keys and pins are; None: ``RINGLINE_HOME``, or the platform's place.
        ``passphrase`` unlocks the keys, or locks new ones; ``plain`` leaves new ones unlocked (the default
        in the development realm). ``trust_new``: pin the first key that the relay shows for an unknown
        handle (the default in the development realm alone). ``contacts``: contact strings, whose keys are
        pinned. ``min_suite``: the lowest suite that is sealed to; 2 refuses all but the hybrid.
        ``note``: gets sentences for people; None: they are logged as warnings.

        Raises `ConfigError` for arguments that cannot work, `ContactError` for a damaged contact string.
        """
        if handle is not None and not is_handle(handle):
            raise ConfigError(
                f"{handle!r} is not a handle: {HANDLE_RULE}",
                next_step="choose another name",
            )
        where = home if isinstance(home, Home) else Home.default() if home is None else Home(home)
        self._options = PostOptions(
            address=meant_relay(relay, realm, where),
            home=where,
            handle=handle,
            passphrase=passphrase,
            plain=plain,
            trust_new=trust_new,
            min_suite=min_suite,
            contacts=tuple(Contact.parse(each) if isinstance(each, str) else each for each in contacts),
            note=note or (lambda text: _log.warning("%s", text)),
        )
        self._opening: asyncio.Task[Post] | None = None
        self._closed = False

    async def __aenter__(self) -> "AsyncCaller":
        """Load the identity and greet the relay. Raises `ConfigError`, `TransportError`, `HttpProblem`."""
        try:
            await self._ready()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Close every connection. Calls that are under way are lost sight of; end them before."""
        self._closed = True
        opening = self._opening
        if opening is None:
            return
        if not opening.done():
            opening.cancel()
        # Not `await opening`: a cancellation of whoever closes must not be taken for that of the opening.
        await asyncio.wait({opening})
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            await opening.result().close()

    async def account(self) -> Account:
        """Return the identity that calls."""
        return (await self._ready()).account

    async def call(
        self,
        handle: str,
        message: str = "",
        *,
        task: str | None = None,
        args: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        message_id: str | None = None,
    ) -> Reply:
        """Call ``handle`` and return its signed reply.

        ``message``: 1 to 64,000 bytes of UTF-8; a ``task``, one that the callee offers, may do without.
        ``args``: its arguments, JSON. ``timeout``: seconds (default `DEFAULT_TIMEOUT_S`); when it is over, a
        cancellation is asked for and `CallTimeout` raised. ``message_id``: 32 lower-case hex digits that
        name the message; calling again with the same one never runs it twice, and returns a reply that is
        already here.

        Raises as `RunningCall.result`. When the awaiting task is cancelled, so is the call, without
        waiting for the answer.
        """
        running = self.start(handle, message, task=task, args=args, timeout=timeout, message_id=message_id)
        try:
            return await running.result()
        except asyncio.CancelledError:
            running.abandon()
            raise

    def start(
        self,
        handle: str,
        message: str = "",
        *,
        task: str | None = None,
        args: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        message_id: str | None = None,
    ) -> RunningCall:
        """Start a call in the running event loop and return at once; the arguments are those of `call`.

        Raises `ConfigError` for arguments that cannot work; all else is raised by `RunningCall.result`.
        """
        question = Question(message=message, task=task, args=args)
        return RunningCall(self.begin(handle, question, timeout=timeout, message_id=message_id))

    def conversation(self, handle: str, task: str | None = None) -> Conversation:
        """Begin a conversation with ``handle``; nothing is sent before its first turn."""
        _checked(handle)
        return Conversation(self, handle, task)

    async def offered_tasks(self, handle: str, *, timeout: float | None = None) -> tuple[Offer, ...]:
        """Ask ``handle`` for the tasks it offers to this identity. Raises as `call`."""
        errand = self.begin(handle, Question(message="", query="tasks"), timeout=timeout)
        try:
            offered = (await errand.answer()).outcome.offered
        except asyncio.CancelledError:
            errand.abandon()
            raise
        return () if offered is UNSET else offered

    async def submit(
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
        """Leave a durable call for ``handle`` with the relay, and return its receipt.

        The receipt is a plain string that is good for `result` in any later process of this identity: the
        sealed bytes and the key for the outcome are on disk before anything is sent. ``expires``: seconds
        in which the work must begin, at most 72 hours. ``timeout``: seconds for the relay to confirm. The
        other arguments are those of `call`.

        Raises as `call`. After a `CallTimeout` or `TransportError` the relay may have it: submit it again
        under the same ``message_id``, or ask for its `result`; the same bytes are sent then.
        """
        _checked(handle)
        _checked_id(message_id)
        if not 1 <= expires <= DURABLE_LIFE_S:
            raise ConfigError("a durable call expires after 1 second to 72 hours")
        post = await self._ready()
        request = Question(message=message, task=task, args=args).body()
        stored = fresh = None
        if message_id is not None:
            stored = await post.stored(post.outbox.find, handle, message_id)
        if stored is None:
            peer = await post.peers.resolve(handle)
            fresh = seal_call(
                post.account,
                peer,
                request,
                message_id=message_id or secrets.token_hex(16),
                correlation_id=secrets.token_hex(16),
                now_ms=post.clock.now_ms(),
                kt=post.kt,
                durable_ms=int(expires * 1_000),
            )
            stored = await post.stored(post.outbox.remember, fresh)
        if stored.mode != "durable" or stored.content != digest(encode_request(request)):
            raise ConfigError(
                f"the message_id {stored.message_id} was used before for another message to {handle}. "
                "Nothing was sent.",
                next_step="leave it out, or give a new one",
            )
        if stored is fresh:
            await Submission(post, stored, timeout, sent_before=False).run()
        elif stored.receipt is None:
            await submitted(post, stored, timeout)
        return claim_of(handle, stored.message_id)

    async def result(self, receipt: str, *, wait: float = 0.0) -> Reply:
        """Return the signed reply to a durable call, waiting at most ``wait`` seconds for its end.

        ``receipt`` is what `submit` returned, in this process or in another, or the ``call_id``. A reply
        that was fetched before is given again without the relay.

        Raises:
            PeerFailure: the callee says, sealed and signed, that it failed.
            StillRunning: it has not ended yet.
            CallExpired, CallUndelivered, CallIndeterminate, CallCanceled, CallRevoked: how it ended without
                an outcome, by the relay's record.
            CannotOpen: an outcome was delivered that does not open.
            TransportError, HttpProblem: the relay could not be reached, or refuses.
            ConfigError: no such call of this identity.
        """
        post = await self._ready()
        stored = await self._stored(post, receipt)
        answer = await collect(post, stored, max(0.0, wait))
        await settle_others(post, stored)
        return reply_of(answer, stored.message_id, stored.correlation_id)

    async def calls(self, limit: int = 100) -> tuple[KeptCall, ...]:
        """Return the calls that this identity sealed last, newest first, as its own outbox has them."""
        post = await self._ready()
        return tuple(kept_call(each) for each in await post.stored(post.outbox.recent, limit))

    async def kept(self, receipt: str) -> KeptCall:
        """Return one call of this identity by its receipt or call id. Raises `ConfigError` for none."""
        return kept_call(await self._stored(await self._ready(), receipt))

    async def record(self, receipt: str) -> CallRecord | None:
        """Return what the relay says of a call, unsigned, or None when it knows nothing of it.

        ``receipt`` is that or a call id. Raises `TransportError`, `HttpProblem`; `ConfigError` for a receipt
        of no call.
        """
        post = await self._ready()
        call_id = (await self._stored(post, receipt)).call_id if is_claim(receipt) else receipt
        return None if call_id is None else await post.http.record(call_id)

    async def _stored(self, post: Post, receipt: str) -> Stored:
        if is_claim(receipt):
            stored = await post.stored(post.outbox.find, *read_claim(receipt))
        else:
            stored = await post.stored(post.outbox.find_call, receipt)
        if stored is None:
            raise ConfigError(
                f"{post.account.handle} has no such call in its outbox. Nothing was sent.",
                next_step="list what this identity has sent: ringline calls ls",
            )
        return stored

    async def cancel(self, call: RunningCall | str) -> Cancellation:
        """Cancel a running call, or one that another process made, by its receipt or call id.

        Returns `Cancelled` only when the relay says that it is confirmed. Raises `TransportError` or
        `HttpProblem` for a receipt or call id, `ConfigError` for a receipt of no call.
        """
        if isinstance(call, RunningCall):
            return await call.cancel()
        post = await self._ready()
        if is_claim(call):
            stored = await self._stored(post, call)
            if stored.receipt is not None:
                return NotCancelled(stored.call_id, "already_terminal")
            # Whether the relay has it is found out by sending it once more, which admits it once.
            call = (await submitted(post, stored)).call_id or ""
        answer = await post.http.cancel(call)
        match answer:
            case "canceled":
                kept = await post.stored(post.outbox.find_call, call)
                if kept is not None:
                    await post.stored(post.outbox.ended, kept.callee, kept.message_id, answer)
                return Cancelled(call)
            case "requested":
                return Requested(call)
            case _:
                return NotCancelled(call, answer)

    def begin(
        self,
        handle: str,
        question: Question,
        *,
        timeout: float | None = None,
        message_id: str | None = None,
        correlation_id: str | None = None,
    ) -> Errand:
        """Start the work of a call for a question that is already put together; for this package."""
        _checked(handle)
        _checked_id(message_id)
        if timeout is not None and not timeout > 0:
            raise ConfigError("the timeout must be above 0 seconds")
        return Errand(
            self._ready,
            handle,
            question,
            message_id=message_id or secrets.token_hex(16),
            correlation_id=correlation_id or secrets.token_hex(16),
            timeout_s=DEFAULT_TIMEOUT_S if timeout is None else timeout,
            repeat=message_id is not None,
        )

    async def _ready(self) -> Post:
        """The shared parts, opened by whoever needs them first; a failure is tried again the next time."""
        if self._closed:
            raise ConfigError("this caller is closed", next_step="make a new one")
        opening = self._opening
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
            opening = asyncio.get_running_loop().create_task(Post.open(self._options))
            self._opening = opening
        return await asyncio.shield(opening)


def _checked(handle: str) -> None:
    if not is_handle(handle):
        raise ConfigError(
            f"{handle!r} is not a handle: {HANDLE_RULE}",
            next_step="check the name of the agent to call",
        )


def _checked_id(message_id: str | None) -> None:
    if message_id is not None and not is_message_id(message_id):
        raise ConfigError(
            f"{message_id!r} is not a message_id: 32 lower-case hex digits, not all zero",
            next_step="leave it out, or make one: secrets.token_hex(16)",
        )
