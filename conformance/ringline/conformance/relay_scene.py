"""Two identities and their connections, and the steps of a call between them that are no case's subject."""

from typing import Any, Final, Self, final

from ringline.conformance.identity import Identity
from ringline.conformance.line import Frame, Line
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check

__all__ = ["Scene"]

_SOON_MS: Final = 3_000


@final
class Scene:
    """Alice, who calls bob on `caller`; bob, who answers on `listener`.

    A step that goes wrong raises `Failed`: a case that builds on it has learnt that much.
    """

    def __init__(self, stage: RelayStage, alice: Identity, bob: Identity) -> None:
        self.stage = stage
        self.alice = alice
        self.bob = bob
        self.caller: Line
        self.listener: Line

    @classmethod
    async def set(
        cls,
        stage: RelayStage,
        *,
        offline: bool = False,
        listening: bool = True,
        capacity: int = 4,
        instance: str | None = None,
        boot: str | None = None,
    ) -> Self:
        """Enrol both, let bob take alice's calls, and connect them.

        ``offline``: bob takes durable calls too. ``listening`` False leaves his side unconnected.
        """
        scene = cls(stage, await stage.identity("alice"), await stage.identity("bob"))
        if offline or stage.info.realm != "localhost":
            await stage.set_policy(scene.bob, offline=offline)
        if listening:
            await scene.listen(capacity=capacity, instance=instance, boot=boot)
        scene.caller = await stage.call_line(scene.alice, scene.bob.handle)
        return scene

    async def listen(self, **query: Any) -> Line:
        """Connect bob (again); see `RelayStage.listen_line`."""
        self.listener = await self.stage.listen_line(self.bob, **query)
        return self.listener

    async def another_caller(self) -> Line:
        """Open another connection of alice's."""
        return await self.stage.call_line(self.alice, self.bob.handle)

    # --- sync

    async def send_request(self, line: Line | None = None, /, **members: Any) -> Frame:
        """Send alice's request and return it; for ``members`` see `Identity.request`."""
        request = self.alice.request(**members)
        self.stage.note_secret(request, self.bob.handle)
        await (line or self.caller).send(request)
        return request

    async def ring(self, line: Line | None = None, /, **members: Any) -> str:
        """Have a sync call handed out, and return its id."""
        request = await self.send_request(line, **members)
        status = await (line or self.caller).expect(
            "call_status", state="ringing", correlation_id=request["correlation_id"]
        )
        offer = await self.listener.expect("incoming_call", call_id=status["call_id"])
        call_id: str = offer["call_id"]
        return call_id

    async def report(self, kind: str, call_id: str, **members: Any) -> None:
        """Send a frame of bob's about a call."""
        await self.listener.send({"type": kind, "call_id": call_id} | members)

    async def accept(self, call_id: str) -> None:
        """Have bob accept a sync call, and alice told so."""
        await self.report("call_accepted", call_id)
        await self.caller.expect("call_status", state="answered", call_id=call_id)

    async def work(self, call_id: str) -> None:
        """Have bob accept and start a sync call, and alice told so."""
        await self.accept(call_id)
        await self.report("call_started", call_id)
        await self.caller.expect("call_status", state="working", call_id=call_id)

    async def send_outcome(self, call_id: str, **members: Any) -> Frame:
        """Send bob's outcome and return it; for ``members`` see `Identity.outcome`."""
        outcome = self.bob.outcome(call_id, **members)
        self.stage.note_secret(outcome, self.alice.handle)
        await self.listener.send(outcome)
        return outcome

    async def complete(self, call_id: str) -> Frame:
        """End a started sync call with an outcome that alice receives; return it as she saw it."""
        sent = await self.send_outcome(call_id)
        return await self.caller.expect(
            "call_outcome", call_id=call_id, terminal="completed", envelope=sent["envelope"]
        )

    # --- durable

    async def submit(self, line: Line | None = None, /, **members: Any) -> Frame:
        """Have a durable call stored, and return its receipt."""
        request = await self.send_request(line, delivery_mode="durable", **members)
        return await (line or self.caller).expect(
            "call_queued", message_id=request["message_id"], correlation_id=request["correlation_id"]
        )

    async def take(self, call_id: str | None = None) -> Frame:
        """Receive bob's next durable call, and return the two ids that its frames carry."""
        offer = await self.listener.expect("incoming_call", delivery_mode="durable")
        check(call_id in (None, offer["call_id"]), f"the call {call_id} handed out", offer["call_id"])
        return {"call_id": offer["call_id"], "lease_id": offer["lease_id"]}

    async def begin(self, ids: Frame) -> None:
        """Have bob accept a durable call, ask for its start, and be granted it."""
        await self.listener.send({"type": "call_accepted"} | ids)
        await self.listener.send({"type": "call_started"} | ids)
        await self.listener.expect("call_started", **ids)

    async def started(self) -> Frame:
        """Have a durable call stored, handed out and begun, alice told all of it; return its ids."""
        receipt = await self.submit()
        ids = await self.take(receipt["call_id"])
        await self.begin(ids)
        await self.caller.expect("call_status", state="answered", call_id=receipt["call_id"])
        await self.caller.expect("call_status", state="working", call_id=receipt["call_id"])
        return ids

    async def state(self, call_id: str, *, of: Identity | None = None, wait: int = 0) -> str:
        """Return the state in a call's record, as alice or ``of`` sees it."""
        shown = await self.stage.record(of or self.alice, call_id, wait=wait)
        state: str = shown["state"]
        return state

    async def reaches(self, call_id: str, state: str) -> None:
        """Wait, within bounds, until bob sees a call in ``state``."""

        async def reached() -> bool:
            return await self.state(call_id, of=self.bob) == state

        await self.stage.until(reached, f"state {state} of call {call_id}")

    def soon(self) -> dict[str, int]:
        """Return what makes an envelope end in a moment."""
        return {"exp": self.alice.now() + _SOON_MS}

    async def has_ended(self, call_id: str, state: str, *, of: Identity | None = None, wait: int = 0) -> None:
        """Pass when the record of a call says that it is in ``state``."""
        shown = await self.state(call_id, of=of, wait=wait)
        check(shown == state, f"state {state} of call {call_id}", shown)
