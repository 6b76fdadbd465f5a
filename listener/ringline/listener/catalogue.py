"""What a listener offers, and to whom: the policy that a message meets once it was opened.

Who may call at all is asked before anything is decrypted (`Access.admits`); what is refused later is
refused under a seal, by a message that was understood (RL-ENVELOPE-019, RL-ENVELOPE-035).
"""

from dataclasses import dataclass, field
from typing import Any, Final, final

from msgspec import UNSET

from ringline.listener.access import Access
from ringline.listener.effects import Plan, Produced, Refusal
from ringline.listener.runtime import Command
from ringline.listener.tasks import DEFAULT_TASK, Task
from ringline.protocol.bodies import Offer, Request
from ringline.protocol.errors import ConfigError, RinglineError
from ringline.protocol.limits import OFFERS
from ringline.protocol.names import is_task_id

__all__ = ["Catalogue", "Errand"]

_COMMAND_SUMMARY: Final = "Runs a program on the message."


@final
@dataclass(frozen=True, slots=True)
class Errand:
    """A message that may be worked on: a `Plan`, and what there is to do."""

    what: Task | Command | Produced
    task: str | None
    keywords: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def converses(self) -> bool:
        """Whether its outcome opens or continues a conversation."""
        match self.what:
            case Task():
                return self.what.converses
            case Command():
                return True
            case Produced():
                return False

    @property
    def stoppable(self) -> bool:
        """False for a plain function."""
        return not isinstance(self.what, Task) or self.what.is_async


@final
class Catalogue:
    """The tasks of one listener. It is a `Judge`."""

    def __init__(self, access: Access) -> None:
        """Offer nothing yet."""
        self.access = access
        self._offered: dict[str, Task | Command] = {}

    def add(self, task: Task) -> None:
        """Offer a function. Raises `ConfigError` for a second one of its name, or one too many."""
        self._add(task.id, task)

    def add_command(self, command: Command, task: str = DEFAULT_TASK) -> None:
        """Offer a program as a task. Raises as `add`, and for a name that is no task id."""
        if not is_task_id(task):
            raise ConfigError(f"{task!r} is no task id: 1 to 64 of a-z, 0-9 and hyphen, the first no hyphen")
        self._add(task, command)

    def _add(self, name: str, what: Task | Command) -> None:
        if name in self._offered:
            raise ConfigError(f"the task {name} is defined twice", next_step="give one another name")
        if len(self._offered) >= OFFERS:
            raise ConfigError(f"a listener offers at most {OFFERS} tasks")
        self._offered[name] = what

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all tasks, that of calls that name none first."""
        return tuple(sorted(self._offered, key=lambda name: (name != DEFAULT_TASK, name)))

    def offers(self, granted: frozenset[str] | None = None) -> tuple[Offer, ...]:
        """Return tasks as they are told to callers: the ``granted`` ones, all if that is None."""
        return tuple(
            _offer(name, self._offered[name]) for name in self.ids if granted is None or name in granted
        )

    def __call__(self, request: Request, handle: str, call_id: str = "", /) -> Plan | Refusal:
        """See `Judge`."""
        try:
            approved = not self.access.is_blocked(handle) and self.access.is_approved(call_id)
            if not approved and not self.access.admits(handle):
                return Refusal("blocked")
            granted = None if approved else self.access.tasks(handle)
            verdict = self._judge(request, granted)
            # What is refused anyway costs nothing.
            charged = None if isinstance(verdict, Refusal) else self.access.charge(handle, call_id)
        except RinglineError:
            # Nobody is let in by guess, nor past a budget that cannot be written down. The owner hears of it
            # when the next call is opened, or taken.
            return Refusal("busy", "this listener cannot look up what you may call; nothing was run")
        return charged or verdict

    def _judge(self, request: Request, granted: frozenset[str] | None) -> Plan | Refusal:
        """Judge the request of a caller who may call the ``granted`` tasks, all of them if that is None.

        What he may not call does not exist for him.
        """
        ids = tuple(name for name in self.ids if granted is None or name in granted)
        if request.query is not UNSET:
            return Errand(Produced("\n".join(ids), offered=self.offers(granted)), None)
        name = DEFAULT_TASK if request.task is UNSET else request.task
        found = self._offered.get(name) if name in ids else None
        if found is None:
            return Refusal("task_unknown", offered=ids)
        args = {} if request.args is UNSET else request.args
        if isinstance(found, Command):
            if args:
                return Refusal("task_unknown", f"the task {name} takes a message and no arguments")
            return Errand(found, name)
        try:
            return Errand(found, name, found.check(args))
        except ValueError as error:
            return Refusal("task_unknown", str(error))


def _offer(name: str, what: Task | Command) -> Offer:
    return Offer(id=name, summary=_COMMAND_SUMMARY) if isinstance(what, Command) else what.offer()
