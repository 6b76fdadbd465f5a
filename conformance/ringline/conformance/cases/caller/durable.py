"""DURABLE: what a caller keeps on its disk, before it sends and before it acknowledges."""

from typing import Final

from ringline.conformance.caller_scene import Peer, Scene, failure, reply
from ringline.conformance.caller_subject import CallerStage
from ringline.conformance.identity import now_ms
from ringline.conformance.registry import Level, Needs, case
from ringline.conformance.seals import Damage
from ringline.conformance.stand_in import Asked, Told
from ringline.conformance.verdict import check
from ringline.protocol.signing import SigningKey

__all__: list[str] = []

_DURABLE: Final = Needs(features=("durable",))

NAME: Final = "c0ffee11" * 4


async def result(scene: Scene, receipt: str, end: str = "reply", **members: object) -> dict[str, object]:
    """Have the caller ask for the outcome, and return what it says."""
    order = await scene.house.order("result", receipt=receipt, wait_ms=5_000)
    return await scene.end(order, end, **members)


@case(requirements=("RL-IDEM-010", "RL-IDEM-011"), needs=_DURABLE)
async def a_request_is_on_disk_before_it_is_sent(stage: CallerStage) -> None:
    """A caller that dies right behind its durable request sends its bytes again and opens the outcome."""
    scene = await Scene.set(stage, own=True)
    bob = scene.peer()
    order = await scene.submit(bob, "once only", message_id=NAME)
    first = await scene.request(order, bob)
    await scene.house.kill()
    await scene.house.start()
    order = await scene.submit(bob, "once only", message_id=NAME)
    again = await scene.request(order, bob)
    check(again.as_sent == first.as_sent, "the very bytes of the first sending", again.frame)
    await again.queued()
    receipt = str((await scene.end(order, "receipt"))["receipt"])
    scene.records[again.call_id] = again.record("completed", again.outcome(reply("stored")))
    await result(scene, receipt, text="stored")


@case(requirements=("RL-ENVELOPE-037", "RL-ENVELOPE-039"), needs=_DURABLE)
async def a_later_process_fetches_the_outcome(stage: CallerStage) -> None:
    """The outcome of a durable call is fetched from the relay's record by a later process."""
    scene = await Scene.set(stage)
    receipt, taken = await scene.left(scene.peer())
    scene.records[taken.call_id] = taken.record("completed", taken.outcome(reply("fetched")))
    await scene.house.restart()
    await result(scene, receipt, text="fetched")


@case(Level.SHOULD, requirements=("RL-DURABLE-069",), needs=_DURABLE)
async def a_stored_outcome_is_acknowledged(stage: CallerStage) -> None:
    """An outcome that was fetched is acknowledged."""
    scene = await Scene.set(stage)
    receipt, taken = await scene.left(scene.peer())
    scene.records[taken.call_id] = taken.record("completed", taken.outcome())
    await result(scene, receipt)
    check(taken.call_id in scene.acknowledged, "POST …/ack", "none")


@case(requirements=("RL-ENVELOPE-043",), needs=_DURABLE)
async def an_outcome_is_on_disk_before_it_is_acknowledged(stage: CallerStage) -> None:
    """A caller that dies at its acknowledgement has the outcome, though the relay has deleted it."""
    scene = await Scene.set(stage, own=True)
    receipt, taken = await scene.left(scene.peer())
    scene.records[taken.call_id] = taken.record("completed", taken.outcome(reply("kept")))
    answering = scene.house.relay.answering
    killed: list[str] = []

    def kill_at_ack(asked: Asked) -> Told | None:
        if asked.path.endswith("/ack") and not killed:
            killed.append(asked.path)
            scene.house.process.process.kill()
            scene.records[taken.call_id] = taken.record("completed")
        return answering(asked)

    scene.house.relay.answering = kill_at_ack
    order = await scene.house.order("result", receipt=receipt, wait_ms=5_000)
    await scene.house.process.wait(scene.patient)
    check(bool(killed) or order.ended, "an acknowledgement, or the outcome", "neither")
    await scene.house.kill()
    await scene.house.start()
    await result(scene, receipt, text="kept")


@case(requirements=("RL-DURABLE-068",), needs=_DURABLE)
async def a_receipt_for_another_message_is_none(stage: CallerStage) -> None:
    """A `call_queued` with another message or correlation id, or beyond the request's time, is no receipt."""
    scene = await Scene.set(stage)

    async def lied_to(bob: Peer, **lie: object) -> None:
        order = await scene.submit(bob)
        taken = await scene.request(order, bob)
        true_id, taken.call_id = taken.call_id, "not-the-call"
        await taken.queued(**lie)
        taken.call_id = true_id
        # Were it taken for a receipt, the caller would have no use for the connection any more.
        await bob.silence(0.3, "nothing was confirmed yet")
        check(not order.ended or order.answer.result()["end"] == "local", "no receipt yet", "one")
        await taken.queued()
        said = await order.end(scene.patient * 2)
        if said["end"] == "local":
            # It has noticed the lie, and takes nothing more of this relay's word.
            return
        check(said["end"] == "receipt", "a receipt by the true word, or an error", said)
        scene.records[true_id] = taken.record("completed", taken.outcome(reply("of the true one")))
        await result(scene, str(said["receipt"]), text="of the true one")

    await lied_to(scene.peer(), message_id="5" * 32)
    await lied_to(scene.peer(), correlation_id="5" * 32)
    await lied_to(scene.peer(), expires_at=now_ms() + 100 * 3_600_000)


@case(requirements=("RL-ENVELOPE-040", "RL-ENVELOPE-031"), needs=_DURABLE)
async def a_false_outcome_in_the_record_is_no_answer(stage: CallerStage) -> None:
    """An outcome in the relay's record that does not open is not taken, nor acknowledged, nor kept."""
    scene = await Scene.set(stage)
    receipt, taken = await scene.left(scene.peer())
    damage = Damage(signing_key=SigningKey.generate())
    scene.records[taken.call_id] = taken.record("completed", taken.outcome(reply("forged"), damage=damage))
    await result(scene, receipt, "local")
    check(taken.call_id not in scene.acknowledged, "no acknowledgement", "one")
    scene.records[taken.call_id] = taken.record("completed", taken.outcome(reply("true")))
    await result(scene, receipt, text="true")


@case(requirements=("RL-ENVELOPE-037", "RL-ENVELOPE-041"), needs=_DURABLE)
async def the_outcome_of_another_stored_call_is_no_answer(stage: CallerStage) -> None:
    """The outcome of one durable call, shown in the record of another, is not taken."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    _, other = await scene.left(bob)
    receipt, taken = await scene.left(bob)
    scene.records[taken.call_id] = taken.record("completed", other.outcome(reply("of another call")))
    await result(scene, receipt, "local")


@case(requirements=("RL-ERROR-001", "RL-ENVELOPE-054"), needs=_DURABLE)
async def a_failure_in_the_record_is_the_peers(stage: CallerStage) -> None:
    """A sealed failure that was fetched is told as the peer's, with the reason that is under the seal."""
    scene = await Scene.set(stage)
    receipt, taken = await scene.left(scene.peer())
    sealed = taken.outcome(failure("agent_error", "indeterminate_execution"), "failed")
    scene.records[taken.call_id] = taken.record("failed", sealed)
    await result(scene, receipt, "peer", code="agent_error", reason="indeterminate_execution")


@case(requirements=("RL-ERROR-001", "RL-ERROR-002"), needs=_DURABLE)
async def an_end_without_an_outcome_is_the_relays_word(stage: CallerStage) -> None:
    """A durable call that ended without an outcome is told as the relay's word, and as no peer's."""
    scene = await Scene.set(stage)
    for state in ("expired", "canceled", "indeterminate_execution"):
        receipt, taken = await scene.left(scene.peer())
        scene.records[taken.call_id] = taken.record(state)
        await result(scene, receipt, "relay")


@case(requirements=("RL-ENVELOPE-009", "RL-DURABLE-068"), needs=_DURABLE)
async def a_refused_submission_gives_no_receipt(stage: CallerStage) -> None:
    """A durable request that is refused ends as the relay's word, with no receipt."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    order = await scene.submit(bob)
    taken = await scene.request(order, bob)
    await taken.error("unknown_handle")
    await scene.end(order, "relay", code="unknown_handle")


@case(requirements=("RL-HTTP-003",), needs=_DURABLE)
async def a_response_may_have_more_members(stage: CallerStage) -> None:
    """Members that a caller does not know, of keys and of records, do no harm."""
    scene = await Scene.set(stage)
    bob = scene.peer()
    scene.shows(bob, colour="green", shape={"round": True})
    receipt, taken = await scene.left(bob)
    scene.records[taken.call_id] = taken.record("completed", taken.outcome()) | {"colour": "green"}
    await result(scene, receipt)


@case(requirements=("RL-ERROR-009",), needs=_DURABLE)
async def what_has_not_ended_is_not_told_as_ended(stage: CallerStage) -> None:
    """A durable call without an end in time is told to go on: it is neither failed nor canceled."""
    scene = await Scene.set(stage)
    receipt, taken = await scene.left(scene.peer())
    scene.records[taken.call_id] = taken.record("queued", ended=False)
    order = await scene.house.order("result", receipt=receipt, wait_ms=0)
    said = await scene.end(order, "local")
    check(said.get("code") in ("still_running", "timeout"), "that it goes on", said)
