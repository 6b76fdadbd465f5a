"""Journals on disk that processes leave behind in every way, and calls to put into them."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ringline.listener.entries import End, Offer, Taking
from ringline.listener.journal import Journal, JournalBounds

__all__ = ["ALICE", "BOB", "DONE", "NOW", "Shelf", "offer", "take"]

NOW: Final = 1_790_000_000_000
ALICE: Final = b"a" * 32
BOB: Final = b"b" * 32
DONE: Final = End(b'{"reason":"completed","reply":{"text":"done"}}', "completed", "completed")


def offer(call_id: str = "call-1", **changes: Any) -> Offer:
    """Return an offer of a sync call; ``changes`` replace its members."""
    base = Offer(
        call_id=call_id,
        handle="alice",
        from_ipk=ALICE,
        own_ipk=b"o" * 32,
        digest=b"d" * 32,
        suite=2,
        reply_public=b"r" * 1216,
        mode="sync",
        message_id="1" * 32,
        correlation_id="2" * 32,
        iat=NOW,
        exp=NOW + 600_000,
        offered_at=NOW,
    )
    return replace(base, **changes)


@dataclass
class Shelf:
    """A journal file and the journals opened on it, one after the other."""

    path: Path
    bounds: JournalBounds | None = None
    machine: str = "this computer"
    open: Journal | None = None

    def journal(self) -> Journal:
        """Return the journal, opened now if need be."""
        if self.open is None:
            self.open = Journal(self.path, bounds=self.bounds, machine=self.machine)
        return self.open

    def reopen(self) -> Journal:
        """Let the process end in an orderly way, and start the next."""
        self.close()
        return self.journal()

    def crash(self) -> Journal:
        """Let the process die without a word, and start the next."""
        if self.open is not None:
            self.open._file.close()
            self.open = None
        return self.journal()

    def close(self) -> None:
        """Close what is open."""
        if self.open is not None:
            self.open.close()
            self.open = None


def take(journal: Journal, call_id: str = "call-1", payload: bytes = b"{}", **changes: Any) -> Taking:
    """Take a message of alice; ``payload`` is its JSON, ``changes`` go to the offer or name key and ipk."""
    one = offer(call_id, **changes)
    return journal.take(
        key=changes.get("message_id", one.message_id) or one.digest.hex(),
        payload_digest=hashlib.sha256(payload).digest(),
        request=payload,
        offer=one,
    )
