"""What to tell, and what to keep, when a relay's key log contradicts itself.

The two checkpoints that cannot both be true are worth keeping: the relay has signed them. So they are
written to a file before anybody is told.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, final

from ringline.client.address import RelayAddress
from ringline.client.home import Home, write_private
from ringline.client.logstate import Seen
from ringline.protocol.encoding import b64encode
from ringline.protocol.errors import ConfigError, LogForked, TrustError

__all__ = [
    "View",
    "contradicted",
    "foreign_card",
    "forked",
    "gone",
    "keep",
    "other_key",
    "revoked",
    "unproven",
]

_STILL: Final = "Nothing was sealed, and the keys that are known here stay as they are."


@final
@dataclass(frozen=True, slots=True)
class View:
    """A log as somebody has shown it: so many entries, under that root."""

    size: int
    root: bytes
    note: bytes | None = None
    """The signed checkpoint, when there is one."""

    @classmethod
    def of(cls, seen: Seen) -> "View":
        """Return the view that was accepted here."""
        return cls(seen.size, seen.root, seen.note)

    def __str__(self) -> str:
        entries = "entry" if self.size == 1 else "entries"
        return f"{self.size:,} {entries}, root {b64encode(self.root)}"


def forked(address: RelayAddress, why: str, views: Mapping[str, View], state: Path) -> LogForked:
    """The relay's log is not the one that it showed before; ``views`` are both, by whom or when.

    ``state`` is the file to set aside if the log was begun anew on purpose.
    """
    return LogForked(
        f"the key log of {address.base_url} is not what it was: {why}.\n{_lines(views)}",
        still_true=_STILL,
        next_step="ask the relay's operator by another way, and tell your peers what you see; "
        f"only if the log was begun anew on purpose: mv {state} {state}.old",
    )


def contradicted(address: RelayAddress, peer: str, why: str, views: Mapping[str, View]) -> LogForked:
    """A peer has sealed another view of the log: either the relay shows him another one, or he lies."""
    return LogForked(
        f"{peer} says, sealed and signed, that the key log of {address.base_url} is not the one that the "
        f"relay shows here: {why}.\n{_lines(views)}",
        still_true="Keys that are pinned here stay as they are. Either the relay shows you two different "
        f"logs, or {peer} tells something false.",
        next_step=f"compare with {peer} by another way what each of you sees:  ringline log verify",
    )


def _lines(views: Mapping[str, View]) -> str:
    width = max(len(name) for name in views)
    return "\n".join(f"  {name:<{width}}  {view}" for name, view in views.items())


def gone(address: RelayAddress, seen: Seen | None, state: Path) -> LogForked:
    """The relay had a key log and says that it has none."""
    had = "its key was told here by a contact or an invite" if seen is None else f"it had {View.of(seen)}"
    return LogForked(
        f"the relay at {address.base_url} does not show its key log any more: {had}.",
        still_true=_STILL,
        next_step=f"ask the relay's operator why; only if it was given up on purpose: mv {state} {state}.old",
    )


def other_key(address: RelayAddress, known: bytes, shown: bytes | None, state: Path) -> LogForked:
    """The relay names another key of its log than the one that is known here."""
    offered = "none" if shown is None else b64encode(shown)
    return LogForked(
        f"the key log of {address.base_url} is signed by another key than the one that is known here.\n"
        f"  known    {b64encode(known)}\n"
        f"  offered  {offered}",
        still_true=_STILL,
        next_step="ask the relay's operator by another way; "
        f"only if the log was begun anew on purpose: mv {state} {state}.old",
    )


def unproven(handle: str, why: str) -> TrustError:
    """A card that the log does not bear out."""
    return TrustError(
        f"the relay shows a card of {handle} that its key log does not bear out: {why}. Nothing was sealed.",
        code="log_unproven",
        next_step=f"ask {handle} by another way which key is right, and ask the relay's operator why",
    )


def revoked(handle: str, number: int) -> TrustError:
    """A card that the log calls back while the relay shows it."""
    return TrustError(
        f"{handle} has called back the keys that the relay shows: entry {number} of its own key log says so. "
        "Nothing was sealed.",
        code="revoked",
        next_step=f"ask {handle} for new keys, and ask the relay's operator why it shows old ones",
    )


def foreign_card(handle: str, number: int, fingerprint: str, own: str, why: str) -> str:
    """Return what the owner of a handle is told of a card that he did not publish."""
    entry = f"entry {number}"
    return (
        f"the relay's key log has a card for your handle {handle} that {why}.\n"
        f"  {entry}  key {fingerprint}\n"
        f"  {'yours':<{len(entry)}}  key {own}\n"
        "  Whoever believes it seals to somebody else. Your own key is as it was.\n"
        "  Next: tell your peers by another way to compare your fingerprint, and ask the relay's operator why"
    )


def keep(
    home: Home, address: RelayAddress, error: LogForked, views: Mapping[str, View], now_ms: int
) -> str | None:
    """Write what was found, and the checkpoints as they came, to a file of its own; return its path.

    None when it cannot be written: what was found is told all the same.
    """
    folder = home.evidence_folder(address)
    stamp = datetime.fromtimestamp(now_ms / 1_000, UTC)
    parts = [
        f"Evidence of {stamp.isoformat(timespec='milliseconds')}, realm {address.realm}, {address.base_url}",
        str(error),
    ]
    for name, view in views.items():
        shown = str(view) if view.note is None else view.note.decode("utf-8", "replace")
        parts.append(f"--- {name}\n{shown}")
    path = folder / f"{stamp:%Y%m%dT%H%M%S}-{now_ms % 1_000:03}.txt"
    try:
        with home.lock(folder):
            write_private(path, "\n\n".join(parts) + "\n")
    except ConfigError:
        return None
    return str(path)
