"""Durable calls at the command line: leaving one with the relay, and waiting for what comes of it."""

import asyncio
import re
import shlex
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from ringline.cli.interrupt import Detached, Interrupts
from ringline.protocol.errors import RinglineError
from ringline.protocol.limits import DURABLE_LIFE_MS

if TYPE_CHECKING:
    from ringline.caller import AsyncCaller, Reply

__all__ = ["chosen_options", "collected", "seconds", "steps_for", "until_detached"]

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SPAN: Final = re.compile(r"([0-9]{1,7})([smhd])")
_LONGEST_S: Final = DURABLE_LIFE_MS // 1_000
_T = TypeVar("_T")


def seconds(text: str) -> float:
    """Return ``90s``, ``30m``, ``12h``, ``2d`` in seconds, at most three days. Raises `click.UsageError`."""
    found = _SPAN.fullmatch(text)
    amount = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 1 <= amount <= _LONGEST_S:
        raise click.UsageError(f"--expires takes a time such as 30m, 12h or 2d, at most 3d, and not {text!r}")
    return float(amount)


def chosen_options(context: click.Context) -> str:
    """Return the options by which a later command finds the same identity at the same relay."""
    words: list[str] = []
    for name, option in (("own", "--as"), ("relay", "--relay"), ("realm", "--realm")):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            words += [option, context.params[name]]
    return "".join(f" {shlex.quote(word)}" for word in words)


def steps_for(receipt: str, options: str) -> str:
    """Return the command that asks for the result of a call again."""
    return f"ringline result {receipt} --wait 60{options}"


async def until_detached(work: Awaitable[_T], interrupts: Interrupts, lost: Detached) -> _T:
    """Wait for ``work``; a signal ends the waiting, and only that: the call stays with the relay."""
    waiting = asyncio.ensure_future(work)
    everything: list[asyncio.Future[Any]] = [
        waiting,
        asyncio.ensure_future(interrupts.cancel.wait()),
        asyncio.ensure_future(interrupts.detach.wait()),
    ]
    try:
        await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        raise lost
    finally:
        for task in everything:
            task.cancel()
        await asyncio.gather(*everything, return_exceptions=True)


async def collected(
    caller: "AsyncCaller", receipt: str, wait_s: float, interrupts: Interrupts, options: str
) -> "Reply":
    """Return the reply to a call that the relay has. Every error says how to ask again."""
    lost = Detached("stopped waiting; the call goes on")
    lost.still_true = "The relay keeps the call and its outcome; nothing was cancelled."
    try:
        return await until_detached(caller.result(receipt, wait=wait_s), interrupts, lost)
    except RinglineError as error:
        asks_again = receipt in (error.next_step or "")
        if asks_again or error.code in ("still_running", "detached", "relay_unreachable", "unavailable"):
            error.next_step = steps_for(receipt, options)
        raise
