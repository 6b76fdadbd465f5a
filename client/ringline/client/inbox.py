"""Calls that wait for their owner's word: who asks, for what, and what was decided.

A listener that holds calls writes them here, and looks here for decisions; the command line writes those. Of
a call only what is known without opening it is kept, and the name of the task where it was opened: the sealed
call itself stays with the relay. One file of an identity, as `ringline.client.invitations` keeps its own.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

import msgspec
from msgspec import UNSET, UnsetType

from ringline.client.account import Account
from ringline.client.home import Home, read_private, write_private
from ringline.protocol.errors import ConfigError

__all__ = ["INBOX_ENTRIES", "Decision", "Inbox", "Waiting"]

Decision: TypeAlias = Literal["once", "allowed", "denied"]
"""``once``: this call alone. ``allowed``: his contact says what he may from now on. ``denied``: not this."""

INBOX_ENTRIES: Final = 500
_VERSION: Final = 1


@final
class Waiting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call. ``ipk`` (base64url) is the key that the relay showed, or the known one when ``known``.

    ``task`` is None when it was not opened, since nobody knows the caller. Times are Unix ms. ``sealed`` is
    the SHA-256 of the ciphertext (base64url), since the relay chooses ``call_id``.
    """

    call_id: str
    handle: str
    ipk: str
    known: bool
    held_at: int
    execute_by: int
    bytes: int
    task: str | None = None
    decision: Decision | UnsetType = UNSET
    sealed: str = ""

    @property
    def is_open(self) -> bool:
        """True while nobody has decided."""
        return self.decision is UNSET


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    calls: tuple[Waiting, ...]


@final
class Inbox:
    """The inbox of one identity. Several processes may use it.

    Every method raises `ConfigError` when the file cannot be read or written; a damaged one is left as it is.
    """

    def __init__(self, home: Home, account: Account) -> None:
        self._home = home
        self.path: Path = home.identity_folder(account.address, account.handle) / "inbox.json"
        self._seen: tuple[int, int, int] | None = None
        self._calls: tuple[Waiting, ...] = ()

    def calls(self) -> tuple[Waiting, ...]:
        """Return the calls that wait or were decided, the oldest first."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            self._seen, self._calls = None, ()
            return ()
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        if stamp != self._seen:
            self._calls = _read(self.path)
            self._seen = stamp
        return self._calls

    def find(self, call_id: str) -> Waiting | None:
        """Return one call, None when it does not wait here."""
        return next((one for one in self.calls() if one.call_id == call_id), None)

    def hold(self, waiting: Waiting, now_ms: int) -> bool:
        """Have a call wait; False when there is no room. Calls whose time is over make room."""
        room = False

        def add(calls: tuple[Waiting, ...]) -> Sequence[Waiting]:
            nonlocal room
            left = [one for one in calls if one.execute_by > now_ms and one.call_id != waiting.call_id]
            room = len(left) < INBOX_ENTRIES
            return [*left, waiting] if room else left

        self._change(add)
        return room

    def decide(self, call_id: str, decision: Decision) -> None:
        """Write a decision down."""
        self._change(
            lambda calls: [
                msgspec.structs.replace(one, decision=decision) if one.call_id == call_id else one
                for one in calls
            ]
        )

    def drop(self, call_id: str) -> None:
        """Forget a call that nobody waits for any more."""
        self._change(lambda calls: [one for one in calls if one.call_id != call_id])

    def _change(self, change: Callable[[tuple[Waiting, ...]], Sequence[Waiting]]) -> None:
        with self._home.lock(self.path.parent):
            before = () if not self.path.exists() else _read(self.path)
            after = tuple(change(before))
            if after != before:
                text = msgspec.json.format(msgspec.json.encode(_File(_VERSION, after))).decode()
                write_private(self.path, f"{text}\n")
                self._seen = None


def _read(path: Path) -> tuple[Waiting, ...]:
    try:
        file = msgspec.json.decode(read_private(path), type=_File)
    except FileNotFoundError:
        return ()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise _damaged(path) from None
    if file.version != _VERSION:
        raise _damaged(path)
    return file.calls


def _damaged(path: Path) -> ConfigError:
    return ConfigError(
        f"the inbox is damaged: {path}. It was left as it is.",
        next_step=f"set it aside; what waits comes again when the listener starts: mv {path} {path}.damaged",
    )
