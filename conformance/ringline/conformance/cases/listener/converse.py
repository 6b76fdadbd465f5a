"""CONVERSE: the turns of a conversation, and what does not follow."""

from typing import Any, Final

from ringline.conformance.identity import Identity, fresh_id
from ringline.conformance.listener_scene import Scene
from ringline.conformance.listener_subject import ListenerStage
from ringline.conformance.registry import case
from ringline.conformance.seals import Sent
from ringline.conformance.verdict import check
from ringline.protocol.bodies import Reply, Request, link
from ringline.protocol.encoding import b64decode, b64encode

__all__ = [
    "begins_a_conversation",
    "drops_a_callers_own_oldest_conversation",
    "ends_a_conversation_with_its_tenth_turn",
    "forgets_a_turn_over_which_its_process_died",
    "goes_on_over_its_own_end",
    "goes_on_with_a_conversation",
    "has_one_word_for_whatever_does_not_follow",
    "lets_a_failed_turn_be_asked_again",
    "lets_one_request_hold_the_next_turn",
    "refuses_a_turn_without_its_conversation",
]

_TURNS: Final = 10
_OF_ONE_CALLER: Final = 10


class _Talk:
    """A conversation of one caller with the subject."""

    def __init__(self, scene: Scene, by: Identity | None = None) -> None:
        self.scene = scene
        self.by = by
        self.correlation_id = fresh_id()
        self.context_id = ""
        self.turn = 0
        self.prev = ""

    def request(self, message: str | None = None, **changes: Any) -> Request:
        """Return the request that follows, or one that differs from it in these members."""
        members: dict[str, Any] = {"message": message or self.scene.message()}
        if self.context_id:
            members |= {"context_id": self.context_id, "turn": self.turn + 1, "prev": self.prev}
        members |= changes
        return Request(**{name: value for name, value in members.items() if value is not None})

    async def ask(self, request: Request) -> Sent:
        """Hand a request of this conversation over."""
        return await self.scene.call(request, by=self.by, correlation_id=self.correlation_id)

    async def heard(self, sent: Sent) -> Reply:
        """Receive the reply, from which the next turn goes on."""
        reply = await self.scene.reply(sent)
        check(isinstance(reply.context_id, str), "a reply that names its context", reply)
        self.context_id, self.prev = str(reply.context_id), link(self.scene.last_json)
        self.turn += 1
        check(reply.turn == self.turn, f"turn {self.turn}", reply.turn)
        return reply

    async def goes_on(self) -> None:
        """Ask the next turn, which must be answered in this context."""
        before = self.context_id
        await self.heard(await self.ask(self.request()))
        check(before in ("", self.context_id), f"the context {before}", self.context_id)

    async def does_not_follow(self, request: Request) -> str:
        """Ask what must be refused, and run nothing; return what was said to it."""
        sent = await self.ask(request)
        failure = await self.scene.failure(sent, "context_unknown")
        self.scene.has_run(sent, 0)
        return str(failure)


@case(requirements=("RL-CONVERSE-001",))
async def begins_a_conversation(stage: ListenerStage) -> None:
    """Each first reply names a new context of 128 bits, and turn 1."""
    scene = await Scene.set(stage)
    seen: set[str] = set()
    for first_turn in (None, 1):
        talk = _Talk(scene)
        await talk.heard(await talk.ask(talk.request(turn=first_turn)))
        bits = b64decode(talk.context_id.removeprefix("ctx_"))
        check(talk.context_id.startswith("ctx_") and len(bits) == 16, "ctx_ and 16 bytes", talk.context_id)
        seen.add(talk.context_id)
    check(len(seen) == 2, "two contexts", seen)


@case(requirements=("RL-CONVERSE-005",))
async def goes_on_with_a_conversation(stage: ListenerStage) -> None:
    """A request with the context, the next turn and the hash of the last outcome is answered in its turn."""
    scene = await Scene.set(stage)
    talk = _Talk(scene)
    for _ in range(3):
        await talk.goes_on()


@case(requirements=("RL-CONVERSE-005", "RL-CONVERSE-004"))
async def has_one_word_for_whatever_does_not_follow(stage: ListenerStage) -> None:
    """A context that is unknown or somebody else's, and a turn or hash that is wrong, get one same answer."""
    scene = await Scene.set(stage)
    talk = _Talk(scene)
    await talk.goes_on()
    stale = talk.prev
    await talk.goes_on()
    unknown = f"ctx_{b64encode(bytes(range(16)))}"
    other = _Talk(scene, scene.peer("mallory"))
    other.context_id, other.turn, other.prev = talk.context_id, talk.turn, talk.prev
    said = {
        await talk.does_not_follow(talk.request(context_id=unknown)),
        await talk.does_not_follow(talk.request(turn=2)),
        await talk.does_not_follow(talk.request(turn=4)),
        await talk.does_not_follow(talk.request(turn=None)),
        await talk.does_not_follow(talk.request(prev=stale)),
        await talk.does_not_follow(talk.request(prev=None)),
        await talk.does_not_follow(talk.request(task="upper", args={"text": "a"})),
        await other.does_not_follow(other.request()),
    }
    check(len(said) == 1, "one answer for every cause", said)
    await talk.goes_on()


@case(requirements=("RL-CONVERSE-006",))
async def refuses_a_turn_without_its_conversation(stage: ListenerStage) -> None:
    """A request without a context is refused when it has a `prev`, or another turn than 1."""
    scene = await Scene.set(stage)
    talk = _Talk(scene)
    await talk.goes_on()
    lost = {"context_id": None}
    await talk.does_not_follow(talk.request(turn=1, **lost))
    await talk.does_not_follow(talk.request(prev=None, turn=2, **lost))
    await talk.does_not_follow(talk.request(prev=talk.prev, turn=None, **lost))


@case(requirements=("RL-CONVERSE-007",))
async def lets_one_request_hold_the_next_turn(stage: ListenerStage) -> None:
    """While a turn is worked on, another request for the same turn is refused."""
    scene = await Scene.set(stage)
    talk = _Talk(scene)
    await talk.goes_on()
    held = await talk.ask(talk.request(scene.message("slow 2500")))
    await scene.begun(held)
    await scene.accepted(held)
    await talk.does_not_follow(talk.request())
    await talk.heard(held)
    await talk.goes_on()


@case(requirements=("RL-CONVERSE-008",))
async def lets_a_failed_turn_be_asked_again(stage: ListenerStage) -> None:
    """A turn whose work failed is asked again as the same turn, and answered."""
    scene = await Scene.set(stage)
    talk = _Talk(scene)
    await talk.goes_on()
    failing = await talk.ask(talk.request(scene.message("fail")))
    await scene.failure(failing, "agent_error")
    await talk.goes_on()


@case(requirements=("RL-CONVERSE-009",))
async def ends_a_conversation_with_its_tenth_turn(stage: ListenerStage) -> None:
    """Ten turns are answered, and the eleventh is of a conversation that is forgotten."""
    scene = await Scene.set(stage)
    talk = _Talk(scene)
    for _ in range(_TURNS):
        await talk.goes_on()
    await talk.does_not_follow(talk.request())


@case(requirements=("RL-CONVERSE-010",))
async def drops_a_callers_own_oldest_conversation(stage: ListenerStage) -> None:
    """The eleventh conversation of one caller ends his first, and nobody else's."""
    scene = await Scene.set(stage)
    other = _Talk(scene, scene.peer("bob"))
    await other.goes_on()
    talks = [_Talk(scene) for _ in range(_OF_ONE_CALLER + 1)]
    for talk in talks:
        await talk.goes_on()
    await talks[0].does_not_follow(talks[0].request())
    await talks[1].goes_on()
    await talks[-1].goes_on()
    await other.goes_on()


@case(requirements=("RL-CONVERSE-011",))
async def goes_on_over_its_own_end(stage: ListenerStage) -> None:
    """A turn that was answered is known to the next process, though this one died at once."""
    scene = await Scene.set(stage, own=True)
    talk = _Talk(scene)
    await talk.goes_on()
    await talk.goes_on()
    await scene.house.kill()
    await scene.house.start()
    await talk.goes_on()


@case(requirements=("RL-CONVERSE-012",))
async def forgets_a_turn_over_which_its_process_died(stage: ListenerStage) -> None:
    """A conversation whose turn was begun by a process that died is forgotten."""
    scene = await Scene.set(stage, own=True)
    talk = _Talk(scene)
    await talk.goes_on()
    waiting = await talk.ask(talk.request(scene.message("wait")))
    await scene.begun(waiting)
    await scene.house.kill()
    await scene.house.start()
    await talk.does_not_follow(talk.request())
