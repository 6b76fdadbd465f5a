"""The peers that are known: their keys and what they may do, in a file that a person can read.

A pin says: in this realm, this handle is this identity key. A pinned key changes only by a succession that
the pinned card allows (RL-KEYS-033). Beside it stands what the peer may call: nothing while he is pending or
blocked, all tasks or those named when he is allowed, so many calls an hour.

The file is TOML, one table for each peer, like a ``known_hosts``; it is rewritten as a whole, under a lock,
and a file that cannot be read is never written over.
"""

import json
import os
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast, final, get_args

from ringline.client.home import Home, read_private, write_private
from ringline.protocol.dates import is_dated
from ringline.protocol.encoding import b64decode, b64encode
from ringline.protocol.errors import ConfigError, EncodingError, RinglineError
from ringline.protocol.fingerprint import fingerprint
from ringline.protocol.identity import SignedCard
from ringline.protocol.limits import OFFERS
from ringline.protocol.names import is_handle, is_realm, is_task_id
from ringline.protocol.signing import PUBLIC_BYTES, check_public

__all__ = ["CALLS_PER_HOUR_MAX", "LABEL_CHARS", "Contacts", "Pin", "Source", "Standing", "is_label"]

Source: TypeAlias = Literal["contact", "tofu", "invite", "succession"]
"""How a key came to be pinned: by a contact string, on first use, by an invite, from its predecessor."""

Standing: TypeAlias = Literal["pending", "allowed", "blocked"]
"""Whether a peer may call: not decided, yes, or never. It says nothing about calling him."""

CALLS_PER_HOUR_MAX: Final = 100_000
LABEL_CHARS: Final = 60

_SOURCES: Final = frozenset(get_args(Source))
_STANDINGS: Final = frozenset(get_args(Standing))
_TABLE: Final = "contact"
_HEADER: Final = """\
# The peers that are known here, one table for each. Written by Ringline; comments are not kept.
# A key never changes by itself. To forget a peer, delete its table, or: ringline contacts rm HANDLE
# state: may he call here? pending (not decided: no), allowed, blocked. tasks: only these, if it is there.
"""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LINE_OF: Final = re.compile(r"\(at line (\d+), column \d+\)")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What is known of one peer (RL-KEYS-041). Times are Unix ms."""

    realm: str
    handle: str
    ipk: bytes
    """Identity key, 32 bytes."""
    source: Source
    first_seen: int
    card: SignedCard | None = None
    """The latest card that was accepted; None until one was seen."""
    prekey_epoch: int = 0
    """The highest epoch that was accepted under that card."""
    verified_at: int | None = None
    """When the key was vouched for outside the relay: by a contact string, or by a person."""
    state: Standing = "pending"
    tasks: tuple[str, ...] | None = None
    """The tasks he may call, in order; None for all. Counts while he is allowed."""
    calls_per_hour: int | None = None
    """Calls of his that are taken within an hour; None for any number."""
    label: str | None = None
    """What his owner is called here, e.g. ``bob at acme``."""

    @property
    def card_id(self) -> bytes | None:
        """Id of the latest card, 32 bytes."""
        return None if self.card is None else self.card.card.id

    @property
    def serial(self) -> int:
        """Serial of the latest card; 0 when none was seen."""
        return 0 if self.card is None else self.card.card.serial

    @property
    def fingerprint(self) -> str:
        """The identity key as people compare it."""
        return fingerprint(self.ipk)

    def seen(self, card: SignedCard, prekey_epoch: int) -> "Pin":
        """Return the pin with a later card or epoch of the same identity."""
        return replace(self, card=card, prekey_epoch=prekey_epoch)


@final
class Contacts:
    """The pins of one realm, in one file.

    Every method raises `ConfigError` when the file cannot be read or is damaged, with the line, and then
    leaves it as it is. Several processes may use one file.
    """

    def __init__(self, home: Home, path: Path) -> None:
        """Use the file ``path`` inside ``home``; it need not exist."""
        self._home = home
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._pins: dict[tuple[str, str], Pin] = {}

    def pin(self, realm: str, handle: str) -> Pin | None:
        """Return what is pinned for a handle, or None."""
        self._load()
        return self._pins.get((realm, handle))

    def pins(self) -> tuple[Pin, ...]:
        """Return all pins, in order of realm and handle."""
        self._load()
        return tuple(self._pins[key] for key in sorted(self._pins))

    def update(self, realm: str, handle: str, change: Callable[[Pin | None], Pin | None]) -> Pin | None:
        """Replace the pin of a handle by what ``change`` makes of it, and return that.

        ``change`` gets what the file holds at that moment, under the file's lock, so that of two processes
        which meet a peer for the first time the second sees the first one's pin. It returns None to have
        no pin, or raises to leave everything as it is.
        """
        with self._home.lock(self.path.parent):
            self._load()
            before = self._pins.get((realm, handle))
            after = change(before)
            if after is not None and (after.realm, after.handle) != (realm, handle):
                raise ValueError("a pin is kept under its own name")
            if after != before:
                pins = {key: pin for key, pin in self._pins.items() if key != (realm, handle)}
                if after is not None:
                    pins[realm, handle] = after
                write_private(self.path, _write([pins[key] for key in sorted(pins)]))
                self._pins, self._seen = pins, None
        return after

    def _load(self) -> None:
        """Read the file if it is not the one that was read last."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            self._pins, self._seen = {}, None
            return
        except OSError as error:
            raise ConfigError(f"cannot read {self.path}: {error.strerror}") from error
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        if stamp == self._seen:
            return
        try:
            text = read_private(self.path)
        except FileNotFoundError:
            text = ""
        self._pins = {(pin.realm, pin.handle): pin for pin in _read(self.path, text)}
        self._seen = stamp


def _read(path: Path, text: str) -> list[Pin]:
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # No number has so many digits that Python would not read it, and nothing here is nested.
        place = _LINE_OF.search(str(error))
        raise _damaged(path, int(place[1]) if place else None, "it is not TOML") from None
    tables: object = document.get(_TABLE, [])
    unknown = sorted(set(document) - {_TABLE})
    if unknown or not isinstance(tables, list):
        raise _damaged(
            path, _line_of_name(text, unknown[0] if unknown else _TABLE), "it holds something else than pins"
        )
    pins: list[Pin] = []
    names: set[tuple[str, str]] = set()
    for number, table in enumerate(cast(list[object], tables)):
        try:
            pin = _pin(table)
            if (pin.realm, pin.handle) in names:
                raise _Bad(f"{pin.handle} has two tables")
        except _Bad as error:
            raise _damaged(path, _line_of_table(text, number), str(error)) from None
        names.add((pin.realm, pin.handle))
        pins.append(pin)
    return pins


class _Bad(Exception):
    """A table that is no pin; its text says why."""


def _pin(table: object) -> Pin:
    if not isinstance(table, dict):
        raise _Bad("a contact is a table")
    left = dict(cast(dict[str, Any], table))
    realm, handle = _text(left, "realm"), _text(left, "handle")
    if not is_realm(realm) or not is_handle(handle):
        raise _Bad("realm or handle is no such name")
    source = _text(left, "source")
    if source not in _SOURCES:
        raise _Bad(f"source is one of {', '.join(sorted(_SOURCES))}")
    try:
        ipk = b64decode(_text(left, "key"), length=PUBLIC_BYTES)
        check_public(ipk)
        card = None
        epoch = 0
        if "card" in left or "card_sig" in left:
            card = SignedCard.parse(b64decode(_text(left, "card")), b64decode(_text(left, "card_sig")))
            card.verify(realm=realm, handle=handle)
            epoch = left.pop("prekey_epoch", 0)
            # Both are told to people: they must be those of the card.
            if left.pop("serial", card.card.serial) != card.card.serial:
                raise _Bad("serial is not that of the card")
    except EncodingError as error:
        raise _Bad(f"a key or card: {error}") from None
    except RinglineError as error:
        raise _Bad(f"key or card does not hold: {error}") from None
    if card is not None and card.card.ipk != ipk:
        raise _Bad("the card is of another key")
    if type(epoch) is not int or not 0 <= epoch <= 0xFFFF_FFFF:
        raise _Bad("prekey_epoch is out of range")
    left.pop("fingerprint", None)
    first_seen = _time(left, "first_seen")
    if first_seen is None:
        raise _Bad("first_seen is missing")
    verified_at = _time(left, "verified_at")
    state = _text(left, "state") if "state" in left else "pending"
    if state not in _STANDINGS:
        raise _Bad(f"state is one of {', '.join(sorted(_STANDINGS))}")
    tasks = _tasks(left)
    calls_per_hour = left.pop("calls_per_hour", None)
    if calls_per_hour is not None and (
        type(calls_per_hour) is not int or not 1 <= calls_per_hour <= CALLS_PER_HOUR_MAX
    ):
        raise _Bad(f"calls_per_hour is a number from 1 to {CALLS_PER_HOUR_MAX}")
    label = _text(left, "label") if "label" in left else None
    if label is not None and not is_label(label):
        raise _Bad(f"label is no line of at most {LABEL_CHARS} characters")
    if left:
        raise _Bad(f"{min(left)} is no member of a contact")
    return Pin(
        realm=realm,
        handle=handle,
        ipk=ipk,
        source=cast(Source, source),
        first_seen=first_seen,
        card=card,
        prekey_epoch=epoch,
        verified_at=verified_at,
        state=cast(Standing, state),
        tasks=tasks,
        calls_per_hour=calls_per_hour,
        label=label,
    )


def is_label(text: str) -> bool:
    """True for a text that may stand beside a peer's handle: one line, nothing hidden in it."""
    return 0 < len(text) <= LABEL_CHARS and text.isprintable() and text == text.strip()


def _tasks(table: dict[str, Any]) -> tuple[str, ...] | None:
    value = table.pop("tasks", None)
    if value is None:
        return None
    if not isinstance(value, list) or len(cast(list[object], value)) > OFFERS:
        raise _Bad(f"tasks is no list of at most {OFFERS} names")
    names = cast(list[object], value)
    if not all(isinstance(name, str) and is_task_id(name) for name in names):
        raise _Bad("tasks holds something that is no task")
    return tuple(sorted(cast(list[str], names)))


def _text(table: dict[str, Any], name: str) -> str:
    value = table.pop(name, None)
    if not isinstance(value, str):
        raise _Bad(f"{name} is missing or is no text")
    return value


def _time(table: dict[str, Any], name: str) -> int | None:
    value = table.pop(name, None)
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise _Bad(f"{name} is no time with a zone")
    time_ms = (value - _EPOCH) // timedelta(milliseconds=1)
    if not is_dated(time_ms):
        raise _Bad(f"{name} is no time from 1970 to 9998")
    return time_ms


def _write(pins: list[Pin]) -> str:
    parts = [_HEADER]
    for pin in pins:
        lines = [
            f"[[{_TABLE}]]",
            # Nothing in these texts needs an escape: names, base64url and Crockford's base32.
            f'handle = "{pin.handle}"',
            f'realm = "{pin.realm}"',
            f'fingerprint = "{pin.fingerprint}"',
            f'key = "{b64encode(pin.ipk)}"',
            f'source = "{pin.source}"',
            f'state = "{pin.state}"',
            f"first_seen = {_stamp(pin.first_seen)}",
        ]
        if pin.verified_at is not None:
            lines.append(f"verified_at = {_stamp(pin.verified_at)}")
        if pin.tasks is not None:
            lines.append(f"tasks = {json.dumps(pin.tasks)}")
        if pin.calls_per_hour is not None:
            lines.append(f"calls_per_hour = {pin.calls_per_hour}")
        if pin.label is not None:
            # JSON's escapes are TOML's, for text without control characters.
            lines.append(f"label = {json.dumps(pin.label, ensure_ascii=False)}")
        if pin.card is not None:
            lines += [
                f"serial = {pin.serial}",
                f"prekey_epoch = {pin.prekey_epoch}",
                f'card = "{b64encode(pin.card.card.encode())}"',
                f'card_sig = "{b64encode(pin.card.signature)}"',
            ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _stamp(time_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")


def _line_of_table(text: str, number: int) -> int | None:
    """The line on which the table of that number, from 0, begins."""
    found = [at for at, line in enumerate(text.splitlines(), 1) if line.strip().startswith(f"[[{_TABLE}]]")]
    return found[number] if number < len(found) else None


def _line_of_name(text: str, name: str) -> int | None:
    return next((at for at, line in enumerate(text.splitlines(), 1) if name in line), None)


def _damaged(path: Path, line: int | None, why: str) -> ConfigError:
    place = str(path) if line is None else f"{path}, line {line}"
    return ConfigError(
        f"the file of known keys is damaged: {place}: {why}. It was left as it is; no call was made.",
        next_step=f"repair it, or set it aside and add your peers again: mv {path} {path}.damaged",
    )
