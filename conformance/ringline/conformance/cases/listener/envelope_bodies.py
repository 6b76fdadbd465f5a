"""ENVELOPE: what stands under the seal, of requests and of outcomes."""

import json
from typing import Final

from msgspec import UNSET

from ringline.conformance.identity import now_ms
from ringline.conformance.listener_scene import MINUTE, Scene
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.registry import Level, case
from ringline.conformance.verdict import check
from ringline.protocol.bodies import Request
from ringline.protocol.encoding import b64decode
from ringline.protocol.signing import SigningKey

__all__ = [
    "fails_under_the_seal",
    "has_suite_two",
    "keeps_a_reply_to_its_limit",
    "keeps_to_the_identities_of_the_request",
    "offers_its_tasks",
    "pads_failures_like_replies",
    "refuses_a_message_over_its_limit",
    "refuses_bad_json",
    "refuses_what_it_does_not_offer",
    "runs_a_task",
    "seals_the_outcome_to_the_call",
    "serves_nobody_whom_it_blocks",
    "takes_a_message_at_its_limit",
    "takes_any_trace_under_the_seal",
]

_REPLY_BYTES: Final = 256_000
_MESSAGE_BYTES: Final = 64_000


@case(
    requirements=(
        "RL-ENVELOPE-010",
        "RL-ENVELOPE-011",
        "RL-ENVELOPE-012",
        "RL-ENVELOPE-016",
        "RL-ENVELOPE-053",
    )
)
async def seals_the_outcome_to_the_call(stage: ListenerStage) -> None:
    """An outcome opens with the one-time key, surroundings and `exp` of its request; its `iat` is of now."""
    scene = await Scene.set(stage)
    for durable in stage.modes:
        began = now_ms()
        sent = await scene.call(durable=durable, iat=now_ms() - MINUTE)
        if durable:
            await scene.grant(sent)
        else:
            await scene.accepted(sent)
        frame = await scene.expect("call_outcome", sent, terminal="completed")
        scene.opened(sent, frame, "completed")
        envelope = frame["envelope"]
        check(envelope["exp"] == sent.context.exp, "the exp of the request", envelope["exp"])
        # The listener may go by the relay's clock, which tells whole seconds.
        slack = 2_000
        check(began - slack <= envelope["iat"] <= now_ms() + slack, "the time of sealing", envelope["iat"])


@case(Level.SHOULD, requirements=("RL-ENVELOPE-004",))
async def has_suite_two(stage: ListenerStage) -> None:
    """A listener publishes a key of suite 2, and answers what is sealed to any key that it publishes."""
    scene = await Scene.set(stage)
    suites = [key.suite for key in scene.house.published.prekey.prekey.keys]
    check(2 in suites, "a key of suite 2, which a quantum computer does not open", suites)
    for suite in {1, 2} & set(suites):
        await scene.reply(await scene.call(suite=suite))


@case(requirements=("RL-ENVELOPE-035", "RL-ENVELOPE-053"))
async def fails_under_the_seal(stage: ListenerStage) -> None:
    """Work that fails ends with a sealed failure, and was run once."""
    scene = await Scene.set(stage)
    sent = await scene.call(scene.message("fail"))
    await scene.failure(sent, "agent_error")
    scene.has_run(sent, 1)


@case(requirements=("RL-PRIVACY-007", "RL-ENVELOPE-012"))
async def pads_failures_like_replies(stage: ListenerStage) -> None:
    """The ciphertexts of a short reply, of a failure and of a refusal are of one size."""
    scene = await Scene.set(stage)
    sizes: dict[str, int] = {}
    for what, message, terminal in (
        ("a reply", scene.message(), "completed"),
        ("a failure", scene.message("fail"), "failed"),
        ("a refusal", Request(message=scene.message(), task="no-such-task"), "failed"),
    ):
        sent = await scene.call(message)
        frame = await scene.line.next()
        while frame["type"] != "call_outcome":
            frame = await scene.line.next()
        scene.opened(sent, frame, terminal)
        sizes[what] = len(b64decode(frame["envelope"]["ct"]))
    check(len(set(sizes.values())) == 1, "one size", sizes)


@case(
    requirements=(
        "RL-ENVELOPE-035",
        "RL-ENVELOPE-036",
        "RL-ENVELOPE-046",
        "RL-ENVELOPE-047",
        "RL-ENVELOPE-048",
        "RL-ENVELOPE-050",
        "RL-ENVELOPE-051",
    )
)
async def refuses_bad_json(stage: ListenerStage) -> None:
    """Sealed JSON that breaks a rule gets the sealed failure `agent_error`, and nothing is run."""
    scene = await Scene.set(stage)
    for text in (
        '{"message":%s,"more":1}',
        '{"message":%s,"message":"echo twice"}',
        '{"message":%s,"args":{"a":{"b":1,"b":2}}}',
        '{"message":%s,"task":null}',
        '{"message":%s,"args":null}',
        '{"message":%s,"turn":"1"}',
        '{"message":%s,"query":"all"}',
        '{"message":%s,"args":{"a":1e999}}',
        '{"message":%s,"args":{"a":NaN}}',
        '{"message":%s,"args":{"a":9007199254740992}}',
        '{"message":%s,"args":{"a":"\\ud800"}}',
        '{"message":%s,"args":' + '{"a":' * 64 + "1" + "}" * 64 + "}",
        '{"message":%s,"traceparent":"' + "a" * 513 + '"}',
        '{"message":%s} {}',
        "[%s]",
        '{"message":%s',
        '{"task":%s}',
        "",
    ):
        message = scene.message()
        body = text.replace("%s", json.dumps(message)).encode()
        sent = await scene.call(body)
        await scene.failure(sent, "agent_error")
        scene.has_run(message, 0)
    sent = await scene.call(b'{"message":""}')
    await scene.failure(sent, "agent_error")
    sent = await scene.call(b'{"message":"echo \xff"}')
    await scene.failure(sent, "agent_error")
    await scene.works()


@case(requirements=("RL-ENVELOPE-051",))
async def takes_any_trace_under_the_seal(stage: ListenerStage) -> None:
    """A `traceparent` under the seal that is no W3C one keeps no call from being answered."""
    scene = await Scene.set(stage)
    for trace in ("", "not a trace", "é" * 256):
        sent = await scene.call(Request(message=scene.message(), traceparent=trace))
        await scene.reply(sent)


@case(requirements=("RL-ENVELOPE-036", "RL-ENVELOPE-049"))
async def refuses_a_message_over_its_limit(stage: ListenerStage) -> None:
    """A message of 64,001 bytes gets the sealed failure `message_too_large`, and nothing is run."""
    scene = await Scene.set(stage)
    for letter in ("x", "é"):
        message = scene.message()
        message += letter * ((_MESSAGE_BYTES + 2 - len(message)) // len(letter.encode()))
        sent = await scene.call(json.dumps({"message": message}, ensure_ascii=False).encode())
        await scene.failure(sent, "message_too_large")
        scene.has_run(message, 0)


@case(requirements=("RL-ENVELOPE-049",))
async def takes_a_message_at_its_limit(stage: ListenerStage) -> None:
    """A message of exactly 64,000 bytes is answered whole."""
    scene = await Scene.set(stage)
    message = scene.message().ljust(_MESSAGE_BYTES, "x")
    reply = await scene.reply(await scene.call(message))
    wanted = message.removeprefix("echo ")
    check(reply.text == wanted, f"{len(wanted)} characters back", f"{len(reply.text)} characters")


@case(requirements=("RL-ENVELOPE-013", "RL-ENVELOPE-049", "RL-TRANSPORT-030"))
async def keeps_a_reply_to_its_limit(stage: ListenerStage) -> None:
    """A reply of 256,000 bytes is sent, and one of a byte more is the sealed failure `message_too_large`."""
    scene = await Scene.set(stage)
    sent = await scene.call(f"big {_REPLY_BYTES} {scene.tag}")
    reply = await scene.reply(sent)
    check(len(reply.text) == _REPLY_BYTES, "256,000 characters", len(reply.text))
    sent = await scene.call(f"big {_REPLY_BYTES + 1} {scene.tag}")
    await scene.failure(sent, "message_too_large")


@case(requirements=("RL-ENVELOPE-056",))
async def offers_its_tasks(stage: ListenerStage) -> None:
    """A request with `query` is answered by what is offered, and runs nothing."""
    scene = await Scene.set(stage)
    message = scene.message()
    for request in (Request(message="", query="tasks"), Request(message=message, query="tasks")):
        sent = await scene.call(request)
        outcome = await scene.outcome(sent, "completed")
        offered = () if outcome.offered is UNSET else outcome.offered
        check("upper" in [offer.id for offer in offered], "the task upper on offer", offered)
    scene.has_run(message, 0)


@case(requirements=("RL-ENVELOPE-056",))
async def runs_a_task(stage: ListenerStage) -> None:
    """A request for a task on offer with arguments that fit is answered by it."""
    scene = await Scene.set(stage)
    sent = await scene.call(Request(message=scene.message(), task="upper", args={"text": "loud"}))
    reply = await scene.reply(sent)
    check(reply.text == "LOUD", "LOUD", reply.text)
    scene.has_run(sent, 1)


@case(requirements=("RL-ENVELOPE-057", "RL-ENVELOPE-035"))
async def refuses_what_it_does_not_offer(stage: ListenerStage) -> None:
    """A task that there is not, or arguments that do not fit, get `task_unknown`, and nothing is run."""
    scene = await Scene.set(stage)
    for task, args in (
        ("no-such-task", {}),
        ("upper", {}),
        ("upper", {"text": 1}),
        ("upper", {"text": "a", "more": True}),
    ):
        sent = await scene.call(Request(message=scene.message(), task=task, args=args))
        await scene.failure(sent, "task_unknown")
        scene.has_run(sent, 0)


@case(requirements=("RL-ENVELOPE-019", "RL-ENVELOPE-058", "RL-ENVELOPE-033"))
async def serves_nobody_whom_it_blocks(stage: ListenerStage) -> None:
    """Who is not served gets the sealed failure `blocked` if he is known, else the refusal of a stranger."""
    scene = await Scene.set(stage, own=True)
    await scene.works()
    stranger = scene.peer("mallory")
    scene.house.blocked = (scene.alice.handle, stranger.handle)
    await scene.house.stop()
    await scene.house.start()
    sent = await scene.call()
    await scene.failure(sent, "blocked")
    scene.has_run(sent, 0)
    await scene.refused(scene.seal(by=stranger), "a stranger who is not served calls")
    await scene.works(by=scene.peer("bob"))


@case(requirements=("RL-ENVELOPE-017",))
async def keeps_to_the_identities_of_the_request(stage: ListenerStage) -> None:
    """An outcome is sealed for the identity that asked, though the handle has passed to another meanwhile."""
    scene = await Scene.set(stage)
    slow = await scene.call(scene.message("slow 2500"))
    await scene.accepted(slow)
    later = scene.alice.succeeded(SigningKey.generate(), old_signs=True)
    scene.house.relay.serve(later)
    scene.house.relay.superseded[scene.alice.card_id] = scene.alice.publication()
    await scene.works(by=later)
    await scene.reply(slow)
