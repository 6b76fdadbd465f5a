"""Offering functions and programs as tasks: what a `ringline.listener.Listener` is decorated with."""

from collections.abc import Callable
from typing import TypeVar, overload

from ringline.listener.catalogue import Catalogue
from ringline.listener.runtime import Command
from ringline.listener.tasks import DEFAULT_TASK, Function, make_task

__all__ = ["Offering"]

_F = TypeVar("_F", bound=Function)


class Offering:
    """What a listener offers, put together task by task before it serves."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Put tasks into ``catalogue``."""
        self.catalogue = catalogue

    @overload
    def task(self, function: _F, /) -> _F: ...
    @overload
    def task(
        self, *, name: str | None = None, summary: str | None = None, converses: bool = True
    ) -> Callable[[_F], _F]: ...
    def task(
        self,
        function: _F | None = None,
        *,
        name: str | None = None,
        summary: str | None = None,
        converses: bool = True,
    ) -> _F | Callable[[_F], _F]:
        """Offer a function as a task; with or without parentheses.

        ``name`` is by default the function's, with hyphens; ``summary`` the first line of its docstring.
        ``converses`` False keeps no context between calls. Raises `ConfigError`.
        """

        def add(one: _F) -> _F:
            self.catalogue.add(make_task(one, name=name, summary=summary, converses=converses))
            return one

        return add if function is None else add(function)

    @overload
    def answer(self, function: _F, /) -> _F: ...
    @overload
    def answer(self, *, summary: str | None = None, converses: bool = True) -> Callable[[_F], _F]: ...
    def answer(
        self,
        function: _F | None = None,
        *,
        summary: str | None = None,
        converses: bool = True,
    ) -> _F | Callable[[_F], _F]:
        """Have a function answer calls that name no task; it gets the `Call`. Raises `ConfigError`."""

        def add(one: _F) -> _F:
            self.catalogue.add(
                make_task(one, name=DEFAULT_TASK, summary=summary, converses=converses, is_default=True)
            )
            return one

        return add if function is None else add(function)

    def answer_with(self, command: Command, *, task: str = DEFAULT_TASK) -> None:
        """Have a program answer calls that name ``task``, or no task. Raises `ConfigError`."""
        self.catalogue.add_command(command, task)
