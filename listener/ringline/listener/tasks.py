"""Tasks: functions that callers may have run, what they take, and what they give back.

A task's name, its line for people and the JSON Schema of its arguments come from the function itself.
Arguments are checked before anything begins, so that a call with wrong ones has run nothing.
"""

import functools
import inspect
import json
import threading
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast, final

import msgspec
from msgspec import UNSET

from ringline.listener.effects import Broken, Produced, Result
from ringline.protocol.bodies import Offer
from ringline.protocol.errors import ConfigError
from ringline.protocol.names import is_task_id

__all__ = [
    "DEFAULT_TASK",
    "Answer",
    "Call",
    "Conversation",
    "Function",
    "Task",
    "TaskFailed",
    "make_task",
    "produced",
]

DEFAULT_TASK: Final = "default"
"""The task of a request that names none."""

Function: TypeAlias = Callable[..., Any]
"""A handler: plain or async."""

_SUMMARY_CHARS: Final = 200


class TaskFailed(Exception):
    """Raised by a handler to fail its call with a text for the caller.

    The text goes under the seal, cut to 500 bytes. Any other exception fails the call without a text.
    """


@final
@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler may return to give both a text and a JSON value."""

    text: str
    value: Any = UNSET


@final
@dataclass(frozen=True, slots=True)
class Conversation:
    """Where a call stands in a conversation: its context and its turn, from 1 (RL-CONVERSE-001)."""

    id: str
    turn: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call, as its handler sees it. All of it was sealed and signed by the caller."""

    caller: str
    """Handle of the caller."""
    fingerprint: str
    """His identity key, as people compare it."""
    message: str = field(repr=False)
    args: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """The request's arguments as they came, an empty mapping when it has none."""
    task: str = DEFAULT_TASK
    conversation: Conversation | None = None
    call_id: str
    message_id: str | None = None
    durable: bool = False
    traceparent: str | None = field(default=None, repr=False)
    """The caller's own W3C trace context; the relay has not seen it."""
    flag: threading.Event = field(default_factory=threading.Event, repr=False)
    """Set when the call is to stop. For plain functions, which nothing else can stop."""

    @property
    def cancelled(self) -> bool:
        """Whether the call is to stop: a plain function looks at it now and then, and returns."""
        return self.flag.is_set()

    def wait_cancelled(self, seconds: float) -> bool:
        """Sleep at most ``seconds`` in a plain function; return at once, and True, when it is to stop."""
        return self.flag.wait(seconds)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A function on offer."""

    id: str
    summary: str
    function: Function = field(repr=False)
    is_async: bool
    takes_call: str | None
    """Name of the parameter that gets the `Call`."""
    arguments: type[msgspec.Struct] | None
    """The parameters that come from ``args``; None when the function gets the call and nothing else."""
    converses: bool = True

    def check(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as keyword arguments. Raises `ValueError` with a text for the caller."""
        if self.arguments is None:
            return {}
        try:
            values = msgspec.convert(dict(args), self.arguments)
        except msgspec.ValidationError as error:
            raise ValueError(f"the arguments do not fit task {self.id}: {error}") from None
        except Exception as error:  # a type of the task's own refused them in its own way
            raise ValueError(f"the arguments do not fit task {self.id}") from error
        given = ((name, getattr(values, name)) for name in self.arguments.__struct_fields__)
        # What was not given is left to the function's own defaults.
        return {name: value for name, value in given if value is not UNSET}

    def bind(self, call: Call, keywords: dict[str, Any]) -> Callable[[], Any]:
        """Return the function with its arguments, ready to be called."""
        members = keywords if self.takes_call is None else {**keywords, self.takes_call: call}
        return lambda: self.function(**members)

    def offer(self) -> Offer:
        """Return the task as it is told to callers."""
        schema: dict[str, Any] | None = None
        if self.arguments is not None:
            schema = _schema(self.arguments)
        return Offer(
            id=self.id,
            summary=self.summary or UNSET,
            args_schema=UNSET if schema is None else schema,
        )


def make_task(
    function: Function,
    *,
    name: str | None = None,
    summary: str | None = None,
    converses: bool = True,
    is_default: bool = False,
) -> Task:
    """Make a task of a function.

    The parameter annotated with `Call`, or named ``call`` without annotation, gets the call. All others
    come from ``args`` by their names and must be of types that JSON can be checked against; those with a
    default may be left out. The default task gets the call alone.

    Raises `ConfigError` for a name that is no task id, and for parameters that cannot be filled.
    """
    given = name or getattr(function, "__name__", "").replace("_", "-").strip("-").lower()
    if not is_task_id(given):
        raise ConfigError(
            f"{given!r} is no task id: 1 to 64 of a-z, 0-9 and hyphen, the first no hyphen",
            next_step='name it: @listener.task(name="...")',
        )
    if (given == DEFAULT_TASK) != is_default:
        raise ConfigError(
            f"the task id {DEFAULT_TASK!r} is the one of calls that name no task",
            next_step="use @listener.answer for it",
        )
    takes_call, fields = _parameters(function, given)
    if is_default and fields:
        raise ConfigError(
            f"the default task gets the call and nothing else; {fields[0][0]!r} cannot be filled",
            next_step="make it a named task: @listener.task",
        )
    arguments = None if is_default else _struct(given, fields)
    text = summary if summary is not None else inspect.getdoc(function) or ""
    return Task(
        id=given,
        summary=text.strip().partition("\n")[0][:_SUMMARY_CHARS],
        function=function,
        is_async=_is_async(function),
        takes_call=takes_call,
        arguments=arguments,
        converses=converses,
    )


def produced(result: object) -> Result:
    """Return what a handler's result comes to.

    A text is the reply's text. Anything else is its value, with the JSON of it as the text; `Answer` gives
    both. Dataclasses, msgspec structs, dates and the like become what msgspec makes of them.
    """
    try:
        if result is None:
            return Produced("")
        if isinstance(result, str):
            return Produced(result)
        if isinstance(result, Answer):
            if not isinstance(result.text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError("the text of an answer is no text")
            value = UNSET if result.value is UNSET else msgspec.to_builtins(result.value, str_keys=True)
            return Produced(result.text, value)
        value = msgspec.to_builtins(result, str_keys=True)
        return Produced(json.dumps(value, ensure_ascii=False, allow_nan=False), value)
    except Exception as error:  # what a result is made of may refuse to be read in any way
        kind = type(result).__name__
        return Broken(
            detail="the task's result is no JSON", local=f"a result of type {kind} is no JSON: {error}"
        )


_Field: TypeAlias = tuple[str, Any] | tuple[str, Any, Any]


def _parameters(function: Function, task: str) -> tuple[str | None, list[_Field]]:
    """Return the name of the parameter for the call, and the fields for the others."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
        hints = typing.get_type_hints(_code_of(function), include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise ConfigError(f"the parameters of task {task} cannot be read: {error}") from error
    takes_call: str | None = None
    fields: list[_Field] = []
    for one in parameters:
        hint = hints.get(one.name, Any)
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD, one.POSITIONAL_ONLY):
            raise ConfigError(
                f"task {task}: the parameter {one} has no name that an argument could have",
                next_step="use parameters that can be given by keyword",
            )
        if takes_call is None and (hint is Call or (one.name == "call" and hint is Any)):
            takes_call = one.name
        elif one.default is one.empty:
            fields.append((one.name, hint))
        else:
            # Not the function's own default: what is not given is not passed on.
            fields.append((one.name, hint, UNSET))
    return takes_call, fields


def _struct(task: str, fields: list[_Field]) -> type[msgspec.Struct]:
    try:
        made = msgspec.defstruct(task.replace("-", "_"), fields, kw_only=True, forbid_unknown_fields=True)
        _schema(made)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the parameters of task {task} cannot be checked against JSON: {error}",
            next_step="annotate them with str, int, float, bool, list, dict, dataclasses or msgspec structs",
        ) from error
    return made


def _schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema with the arguments' own object at the top."""
    schema = msgspec.json.schema(arguments)
    parts = cast(dict[str, Any], schema.pop("$defs"))
    own = cast(dict[str, Any], parts.pop(schema["$ref"].rpartition("/")[2]))
    own.pop("title", None)
    for description in cast(dict[str, dict[str, Any]], own.get("properties", {})).values():
        # The absent default is ours; the function's own is nobody's business.
        description.pop("default", None)
    return {**own, "$defs": parts} if parts else own


def _code_of(function: Function) -> Any:
    """The object that carries the annotations: for a callable object, its ``__call__``."""
    target = inspect.unwrap(function)
    while isinstance(target, functools.partial):
        target = target.func
    return target if inspect.isroutine(target) else type(target).__call__


def _is_async(function: Function) -> bool:
    return inspect.iscoroutinefunction(_code_of(function))
