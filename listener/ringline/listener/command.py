"""``ringline listen``: answer calls with a program.

What is shown goes through a callback, one line at a time. Lines may hold what a program wrote to its stderr,
so whoever prints them makes them harmless for a terminal first.
"""

import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from ringline.client import DEFAULT_RELAY, Home, Passphrase
from ringline.listener.listener import Listener
from ringline.listener.runtime import Command
from ringline.listener.serving import Serving
from ringline.listener.tasks import DEFAULT_TASK
from ringline.protocol.errors import ConfigError
from ringline.protocol.limits import WORK_BOUND_MS

__all__ = ["ListenOptions", "listen", "make_listener", "ready_lines"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """What ``ringline listen`` was told; each is an option of the command or of `Listener`."""

    name: str
    """``--as``."""
    run: tuple[str, ...]
    """``--run``: the program and its arguments. A single text with spaces is split as a shell would."""
    task: str | None = None
    """``--task``: the task that the program answers; None for calls that name none."""
    relay: str = DEFAULT_RELAY
    realm: str | None = None
    home: Home | None = None
    allow: tuple[str, ...] = ()
    """``--allow``, each a handle or a contact string."""
    trust_new: bool | None = None
    offline: bool = False
    """``--offline``: have the relay keep durable calls while nobody listens."""
    hold: bool = False
    """``--hold``: have durable calls that nobody allowed wait for the owner's word."""
    concurrency: int = 8
    timeout_s: float = WORK_BOUND_MS / 1_000
    drain_s: float = 30.0
    workdir: Path | None = None
    passphrase: Passphrase | None = None
    plain: bool | None = None


def listen(options: ListenOptions, say: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM: the first drains, the second stops now.

    ``say`` gets the ready lines and the notes. Raises `ConfigError` and the others that `Listener.serve`
    raises; returns after a drain.
    """
    make_listener(options, say).run()


def make_listener(options: ListenOptions, say: Callable[[str], None]) -> Listener:
    """Return the listener for the options, not serving yet. Raises `ConfigError`."""
    argv = _argv(options.run)
    if options.workdir is not None and not options.workdir.is_dir():
        raise ConfigError(f"the folder to work in does not exist: {options.workdir}")

    def ready(serving: Serving) -> None:
        for line in ready_lines(serving):
            say(line)

    listener = Listener(
        options.name,
        relay=options.relay,
        realm=options.realm,
        home=options.home,
        allow=options.allow or None,
        trust_new=options.trust_new,
        offline=options.offline,
        hold=options.hold,
        capacity=options.concurrency,
        timeout=options.timeout_s,
        drain=options.drain_s,
        passphrase=options.passphrase,
        plain=options.plain,
        note=say,
        on_ready=ready,
    )
    listener.answer_with(Command(argv=argv, folder=options.workdir), task=options.task or DEFAULT_TASK)
    return listener


def ready_lines(serving: Serving) -> tuple[str, ...]:
    """Return what is shown when calls can come."""
    if serving.admits is None:
        admits = "anyone on this development relay"
    elif serving.admits:
        admits = ", ".join(serving.admits)
    else:
        admits = "nobody: invite somebody (ringline invite), or --allow WHO"
    new = (
        (f"new identity  {serving.handle}@{serving.realm}  {serving.fingerprint}",) if serving.is_new else ()
    )
    return (
        *new,
        f"ready – {serving.handle} waits for calls at {serving.relay}",
        f"tasks: {', '.join(serving.tasks)} · accepts: {admits}",
    )


def _argv(run: tuple[str, ...]) -> tuple[str, ...]:
    """Return the program and its arguments, once it is known that there is such a program."""
    argv = run
    if len(run) == 1 and shutil.which(run[0]) is None:
        try:
            argv = tuple(shlex.split(run[0]))
        except ValueError:
            raise ConfigError(f"--run: the quotes do not match in {run[0]!r}") from None
    if not argv or not argv[0]:
        raise ConfigError("--run needs a program", next_step="for example: --run cat")
    if shutil.which(argv[0]) is None:
        raise ConfigError(
            f"--run: there is no program {argv[0]!r} to run",
            next_step="give its path, and check that it may be executed",
        )
    return argv
