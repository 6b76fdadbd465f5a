"""Opening a call, up to the JSON under its seal (RL-ENVELOPE-018 to RL-ENVELOPE-034).

Whatever is wrong, the answer is one word without a reason, so that nobody learns what would have opened
(RL-ENVELOPE-033). Who runs the listener is told more, because a changed key or a caller who was not let in
concerns him.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, final

from msgspec import UNSET

from ringline.client import Account, OwnKey, Peers, RelayClock, Sender
from ringline.listener.access import Access
from ringline.listener.effects import Held, Opened, Unchecked
from ringline.listener.tasks import DEFAULT_TASK
from ringline.listener.waiting import WaitingRoom
from ringline.protocol.bodies import decode_request
from ringline.protocol.context import Party, Recipient, RequestContext
from ringline.protocol.encoding import b64decode
from ringline.protocol.envelope import open_request
from ringline.protocol.errors import (
    BodyError,
    CannotOpen,
    ConfigError,
    EncodingError,
    HttpProblem,
    LogForked,
    MessageTooLarge,
    RinglineError,
    TransportError,
    TrustError,
)
from ringline.protocol.frames import IncomingCall
from ringline.protocol.identity import HASH_BYTES
from ringline.protocol.limits import DURABLE_LIFE_MS, ENVELOPE_SKEW_MS, SYNC_LIFE_MS
from ringline.protocol.suites import available_suites

__all__ = ["Opener"]

_LIFE_MS: Final = {"sync": SYNC_LIFE_MS, "durable": DURABLE_LIFE_MS}
_RETRIES_S: Final = (0.2, 1.0, 3.0)  # the ring bound is 30 s


@final
class _Refused(Exception):
    """A step that was not passed. Its text, if any, is for the owner of the listener."""


@final
class _Waits(Exception):
    """The call waits for its owner's word."""


@final
class Opener:
    """Opens the calls of one identity.

    ``peers`` tells whose card a caller's is, ``access`` who may call; ``meet`` looks whether strangers have
    taken up an invite; ``room`` holds calls for the owner's word; ``note`` is told of refusals that the
    owner should know about: it gets no plaintext and no secret.
    """

    def __init__(
        self,
        account: Account,
        peers: Peers,
        clock: RelayClock,
        access: Access,
        note: Callable[[str], None],
        meet: Callable[[], Awaitable[None]] | None = None,
        room: WaitingRoom | None = None,
    ) -> None:
        self._account = account
        self._peers = peers
        self._clock = clock
        self._access = access
        self._note = note
        self._meet = meet
        self._room = room

    async def open(self, frame: IncomingCall) -> Opened | Unchecked | Held | None:
        """Return what is in a call, None when a step refused it. Raises nothing of a peer's making."""
        try:
            return await self._open(frame)
        except _Waits:
            return Held()
        except _Refused as refusal:
            if str(refusal):
                self._note(str(refusal))
        except CannotOpen:
            self._note(f"a call from {frame.from_} was refused: it does not open")
        except (TransportError, HttpProblem, ConfigError, LogForked) as error:
            # Of the relay, the way to the relay or of this computer, and no word against the caller.
            self._note(f"a call from {frame.from_} could not be checked: {error}")
            return Unchecked()
        except RinglineError as error:
            hint = f" ({error.next_step})" if error.next_step else ""
            self._note(f"a call from {frame.from_} was refused: {error}{hint}")
        return None

    async def _open(self, frame: IncomingCall) -> Opened:
        envelope = frame.envelope
        if self._room is not None:
            self._room.recognise(frame)
        # RL-ENVELOPE-034: a suite that is not implemented is answered with call_rejected.
        if envelope.suite not in available_suites():
            raise _Refused(f"a call from {frame.from_} was refused: suite {envelope.suite} is not known here")
        try:
            card_id = b64decode(envelope.sid, length=HASH_BYTES)
            key_id = b64decode(envelope.kid, length=HASH_BYTES)
        except EncodingError:
            raise _Refused from None
        # RL-ENVELOPE-019: who may call is asked before anything is decrypted.
        sender = await self._sender(frame, card_id)
        # RL-ENVELOPE-023: a request to a key that is not here, or not any more, is refused. RL-ENVELOPE-024:
        # the own identity is that of the card under which the prekey was published.
        own = self._account.own_key(key_id, self._clock.own_ms())
        if own is None:
            # Sealed to keys, it may be, that another process of this identity has just published.
            await asyncio.to_thread(self._account.refresh, self._clock.own_ms())
            own = self._account.own_key(key_id, self._clock.own_ms())
        if own is None:
            raise _Refused(
                f"a call from {frame.from_} was refused: it is sealed to a key that is not here any more"
            )
        self._check_times(frame)
        # RL-ENVELOPE-018: the context is built from what is known here; of the envelope only suite, iat, exp.
        context = self._context(frame, sender, own)
        opened = open_request(envelope, own.private, context, sender.card.card.spk)
        self._check_granted(frame, opened.json_bytes, context.sender.ipk)
        return Opened(
            from_ipk=context.sender.ipk,
            own_ipk=context.recipient.ipk,
            digest=opened.digest,
            suite=own.private.suite,
            reply_public=opened.reply_public,
            json=opened.json_bytes,
        )

    def _check_granted(self, frame: IncomingCall, json: bytes, ipk: bytes) -> None:
        """Have a known caller's call wait, if that is wished, when he was not granted what it asks."""
        if self._room is None or self._access.is_blocked(frame.from_):
            return
        try:
            request = decode_request(json)
        except (BodyError, MessageTooLarge):
            return  # it is refused as what it is
        if request.query is not UNSET:
            return
        task = DEFAULT_TASK if request.task is UNSET else request.task
        granted = self._access.tasks(frame.from_)
        if self._access.admits(frame.from_) and (granted is None or task in granted):
            return
        if self._room.holds(frame, ipk, known=True, task=task):
            raise _Waits

    async def _sender(self, frame: IncomingCall, card_id: bytes) -> Sender:
        handle = frame.from_
        if self._meet is not None and not (self._access.admits(handle) and self._peers.pinned(handle)):
            await self._meet()
        if not self._access.admits(handle) and self._peers.pinned(handle) is None:
            if self._room is not None and not self._access.is_blocked(handle):
                ipk = await self._peers.look(handle)
                if self._room.holds(frame, ipk, known=False, task=None):
                    raise _Waits
            raise _Refused(
                f"a call from {handle} was refused: let it in with --allow {handle}, "
                "or invite its owner: ringline invite"
            )
        retries = iter(_RETRIES_S)
        while True:
            try:
                return await self._peers.sender(handle, card_id, frame.envelope.iat)
            except TransportError:
                # The relay's other half is away for a moment: no reason to send a caller off for good.
                pause_s = next(retries, None)
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)
            except HttpProblem as error:
                if error.code == "not_found":
                    raise TrustError(f"the relay knows no card of {handle} by which it is signed") from error
                raise

    def _check_times(self, frame: IncomingCall) -> None:
        """Pass a call that is neither too old, nor from the future, nor longer-lived than its mode allows.

        Whether it is over is asked of both clocks: the journal forgets by this computer's own, so a relay
        that told a wrong time could otherwise have a call run again that the journal has forgotten.
        """
        envelope = frame.envelope
        mode = "sync" if frame.delivery_mode is UNSET else frame.delivery_mode
        relay, own = self._clock.now_ms(), self._clock.own_ms()
        # RL-ENVELOPE-025: exp is after iat, and not later than the longest life of its mode allows.
        if not 0 < envelope.exp - envelope.iat <= _LIFE_MS[mode]:
            raise _Refused(f"a call from {frame.from_} was refused: its times are out of bounds")
        # RL-ENVELOPE-026: an iat more than 120 s ahead of the clock is refused.
        if envelope.iat > relay + ENVELOPE_SKEW_MS:
            raise _Refused(f"a call from {frame.from_} was refused: it is sealed in the future")
        # RL-ENVELOPE-027: so is an exp of 120 s ago or earlier, and a durable call past its execute_by.
        if max(relay, own) >= envelope.exp + ENVELOPE_SKEW_MS:
            raise _Refused(f"a call from {frame.from_} was refused: it has run out")
        if frame.execute_by is not UNSET and relay >= frame.execute_by:
            raise _Refused(f"a call from {frame.from_} was refused: its time to run is over")

    def _context(self, frame: IncomingCall, sender: Sender, own: OwnKey) -> RequestContext:
        card = sender.card.card
        return RequestContext(
            realm=self._account.address.realm,
            sender=Party(frame.from_, card.ipk, card.id),
            recipient=Recipient(
                self._account.handle, own.card.card.ipk, own.private.suite, own.private.public
            ),
            mode="sync" if frame.delivery_mode is UNSET else frame.delivery_mode,
            message_id="" if frame.message_id is UNSET else frame.message_id,
            correlation_id=frame.correlation_id,
            iat=frame.envelope.iat,
            exp=frame.envelope.exp,
        )
