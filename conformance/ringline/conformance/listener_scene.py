"""A listener, the callers that the suite plays to it, and the steps of a call that are no case's subject."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final, Self, final
from uuid import uuid4

import msgspec

from ringline.conformance.identity import LEFT_OUT, Identity, fresh_id, now_ms
from ringline.conformance.line import Frame, Line
from ringline.conformance.listener_house import ListenerHouse
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.seals import Damage, Sent, open_answer, seal_call
from ringline.conformance.stand_in import REALM
from ringline.conformance.timeline import shorten
from ringline.conformance.verdict import Failed, check
from ringline.protocol.bodies import Failure, Outcome, Reply, Request, encode_request
from ringline.protocol.context import Party, Recipient, RequestContext
from ringline.protocol.suites import available_suites

__all__ = ["MINUTE", "Scene", "message_of"]

MINUTE: Final = 60_000
_LOOK_AGAIN_S: Final = 0.02
_NO_DAMAGE: Final = Damage()


@final
class Scene:
    """Alice, who calls the subject; the relay's end of its connection is `line`."""

    def __init__(self, stage: ListenerStage, house: ListenerHouse) -> None:
        self.stage = stage
        self.house = house
        self.tag = secrets.token_hex(4)
        """Is in every message, so that `runs` counts this case's only."""
        self.alice = self.peer("alice")
        self.last_json = b""
        """The JSON bytes of the outcome that was opened last."""
        self._calls = 0

    @classmethod
    async def set(cls, stage: ListenerStage, *, own: bool = False) -> Self:
        """Have a listener listen; ``own``: for a case that restarts it, or ends or spoils its connection."""
        return cls(stage, await stage.house(own=own))

    @property
    def line(self) -> Line:
        """The connection that stands."""
        return self.house.line

    def peer(self, name: str, **members: Any) -> Identity:
        """Return a new identity whose keys the relay shows from now on."""
        who = Identity(handle=f"{name}-{secrets.token_hex(4)}", realm=REALM, **members)
        self.house.relay.serve(who)
        return who

    # --- sealing

    def message(self, what: str = "echo") -> str:
        """Return a message of this case: what to do, and words that no other message has."""
        self._calls += 1
        return f"{what} {self.tag} {self._calls}"

    def context(
        self,
        by: Identity | None = None,
        *,
        suite: int | None = None,
        durable: bool = False,
        message_id: str | None = None,
        correlation_id: str | None = None,
        iat: int | None = None,
        life: int = 10 * MINUTE,
    ) -> RequestContext:
        """Return the surroundings of a call to the subject; ``message_id`` "" is none.

        ``suite`` is by default the highest for which the subject has published a key.
        """
        who = by or self.alice
        published = self.house.published
        card = published.card.card
        keys = {key.suite: key.public for key in published.prekey.prekey.keys}
        chosen = max(set(keys) & set(available_suites())) if suite is None else suite
        at = now_ms() if iat is None else iat
        return RequestContext(
            realm=REALM,
            sender=Party(who.handle, who.identity.public, who.card.card.id),
            recipient=Recipient(self.house.handle, card.ipk, chosen, keys[chosen]),
            mode="durable" if durable else "sync",
            message_id=fresh_id() if message_id is None else message_id,
            correlation_id=correlation_id or fresh_id(),
            iat=at,
            exp=at + life,
        )

    def seal(
        self,
        message: str | Request | bytes | None = None,
        by: Identity | None = None,
        *,
        context: RequestContext | None = None,
        damage: Damage = _NO_DAMAGE,
        reply_public: bytes | None = None,
        clear: dict[str, Any] | None = None,
        frame: dict[str, Any] | None = None,
        **surroundings: Any,
    ) -> Sent:
        """Seal a call of ``by``, alice by default, as a relay would hand it over.

        ``message`` is a text, a whole request, or JSON as it is; ``clear`` and ``frame`` change members of
        the envelope and of the frame after the sealing, and `LEFT_OUT` leaves one out.
        """
        who = by or self.alice
        around = context or self.context(who, **surroundings)
        what = self.message() if message is None else message
        if isinstance(what, bytes):
            json_bytes = what
        else:
            json_bytes = encode_request(Request(message=what) if isinstance(what, str) else what)
        self._calls += 1
        offered: dict[str, Any] = {
            "type": "incoming_call",
            "call_id": f"call-{self.tag}-{self._calls}",
            "from": who.handle,
            "correlation_id": around.correlation_id,
        }
        if around.message_id:
            offered["message_id"] = around.message_id
        if around.mode == "durable":
            offered |= {"delivery_mode": "durable", "lease_id": str(uuid4()), "execute_by": around.exp}
        sent = seal_call(
            around, json_bytes, who.operational, offered, damage=damage, reply_public=reply_public
        )
        sent.frame["envelope"] = _changed(sent.frame["envelope"], clear)
        sent.frame = _changed(sent.frame, frame)
        return sent

    # --- frames

    async def offer(self, sent: Sent) -> Sent:
        """Hand a call over."""
        await self.line.send(sent.frame)
        return sent

    async def call(self, message: str | Request | bytes | None = None, **told: Any) -> Sent:
        """Seal a call and hand it over; see `seal`."""
        return await self.offer(self.seal(message, **told))

    async def tell(self, kind: str, sent: Sent, **members: Any) -> None:
        """Send a frame of the relay's about a call."""
        await self.line.send(_changed({"type": kind} | sent.ids, members))

    async def expect(self, kind: str, sent: Sent, **members: Any) -> Frame:
        """Receive the next frame, about this call: with its lease if it has one, and with none else."""
        wanted: dict[str, Any] = {"call_id": sent.call_id, "lease_id": sent.frame.get("lease_id")}
        return await self.line.expect(kind, **(wanted | members))

    async def accepted(self, sent: Sent) -> None:
        """Receive acceptance and start, or the request for one."""
        await self.expect("call_accepted", sent)
        await self.expect("call_started", sent)

    async def grant(self, sent: Sent) -> None:
        """Have a durable call accepted and its start asked for, and grant it."""
        await self.accepted(sent)
        await self.tell("call_started", sent)

    async def works(self, by: Identity | None = None) -> None:
        """Pass when a call in good order is answered: what was refused before was refused for its damage."""
        sent = await self.call(by=by)
        await self.reply(sent)
        self.has_run(sent, 1)

    async def started_again(self, sent: Sent) -> None:
        """Receive what is true of work that runs; that it was accepted may be said once more."""
        frame = await self.line.next()
        if frame.get("type") == "call_accepted":
            frame = await self.line.next()
        wanted = {"type": "call_started"} | sent.ids
        check(frame == wanted, f"{wanted}", frame)

    async def indeterminate(self, sent: Sent) -> None:
        """Receive the outcome of work whose process is gone: so in the clear, and so under the seal."""
        frame = await self.line.next()
        while frame.get("type") in ("call_accepted", "call_started"):
            frame = await self.line.next()
        outcome = self.opened(sent, frame, "failed")
        wanted = "indeterminate_execution"
        check(frame.get("terminal_reason") == wanted, f"terminal_reason {wanted}", frame)
        check(outcome.reason == wanted, f"reason {wanted} under the seal", outcome.reason)
        code = getattr(outcome.failure, "code", None)
        check(code in ("agent_error", "timeout"), "the code agent_error or timeout", code)

    async def refused(self, sent: Sent, why: str) -> None:
        """Pass when a call is answered `call_rejected`, and nothing else, and nothing is run."""
        await self.offer(sent)
        try:
            frame = await self.expect("call_rejected", sent)
        except Failed as error:
            raise Failed(f"{error.expected}, because {why}", error.actual) from None
        allowed = {"type", "call_id", "lease_id", "code"}
        check(set(frame) <= allowed, f"a refusal without a word about its cause, {why}", frame)
        check(frame.get("code") == "protocol_error", "the same code for every cause", frame)
        self.has_run(sent, 0)

    async def outcome(self, sent: Sent, terminal: str) -> Outcome:
        """Receive the outcome of a call, whatever is said of it before, and open it."""
        while True:
            frame = await self.line.next()
            if frame.get("type") not in ("call_accepted", "call_started"):
                break
        return self.opened(sent, frame, terminal)

    def opened(self, sent: Sent, frame: Frame, terminal: str) -> Outcome:
        """Open an outcome that was received."""
        wanted = {"type": "call_outcome", "call_id": sent.call_id, "terminal": terminal}
        wanted["lease_id"] = sent.frame.get("lease_id", "")
        for name, value in wanted.items():
            check(frame.get(name, "") == value, f"a call_outcome {wanted}", _short(frame))
        outcome, self.last_json = open_answer(sent, frame, self.house.published.card)
        return outcome

    async def reply(self, sent: Sent) -> Reply:
        """Receive the outcome of a call, which must be a reply."""
        outcome = await self.outcome(sent, "completed")
        assert isinstance(outcome.reply, Reply)
        return outcome.reply

    async def failure(self, sent: Sent, code: str, *, reason: str = "failed") -> Failure:
        """Receive the outcome of a call, which must be a failure with this code."""
        outcome = await self.outcome(sent, "failed")
        failure = outcome.failure
        assert isinstance(failure, Failure)
        check(
            (failure.code, outcome.reason) == (code, reason),
            f"the sealed failure {code} with reason {reason}",
            f"{failure.code} with reason {outcome.reason}",
        )
        return failure

    # --- what was run

    def runs(self, sent: Sent | str) -> int:
        """Return how often the work of a message has begun."""
        return self.house.runs(sent if isinstance(sent, str) else message_of(sent))

    async def begun(self, sent: Sent | str, times: int = 1) -> None:
        """Wait until the work of a message has begun so many times."""
        await self._until(lambda: self.runs(sent) == times, "the work to begin")

    async def stopped(self, sent: Sent) -> None:
        """Wait until work on a `wait` was stopped."""
        await self._until(lambda: self.has_stopped(sent), "the work to stop")

    def has_stopped(self, sent: Sent) -> bool:
        """Return whether work on a `wait` was stopped."""
        return self.house.runs(f"stopped {message_of(sent)}") > 0

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(self.stage.patience.answer):
                while not holds():  # noqa: ASYNC110 — a file cannot be waited for
                    await asyncio.sleep(_LOOK_AGAIN_S)
        except TimeoutError:
            raise Failed(what, "nothing in time") from None

    def has_run(self, sent: Sent | str, times: int) -> None:
        """Pass when the work of a message has begun so many times."""
        runs = self.runs(sent)
        check(runs == times, f"{times} runs of the message", f"{runs} runs")

    # --- the connection

    async def lose(self) -> None:
        """Let the connection break, and wait for the next one."""
        await self.line.break_off()
        await self.house.connected()


def message_of(sent: Sent) -> str:
    """Return the message of a request of the suite."""
    try:
        return str(msgspec.json.decode(sent.json_bytes)["message"])
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError):
        return "(none that can be read)"


def _short(frame: Frame) -> str:
    return shorten(msgspec.json.encode(frame))


def _changed(members: dict[str, Any], changes: dict[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (members | (changes or {})).items() if value is not LEFT_OUT}
