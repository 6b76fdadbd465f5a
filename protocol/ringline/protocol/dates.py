"""Times as people read them.

Times on the wire and in files are any number of milliseconds, and a peer, a relay or a damaged file may name
one that no calendar has.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

__all__ = ["is_dated", "spelled"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = (datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def is_dated(time_ms: int) -> bool:
    """True for a time from 1970 to the year 9998, which has a date in every zone. Unix ms."""
    return 0 <= time_ms < _LAST_MS


def spelled(time_ms: int, form: str, zone: tzinfo | None = UTC) -> str:
    """Return a time in Unix ms, cut to whole seconds, in the ``form`` of strftime.

    ``zone`` None is this computer's. A time without a date is told by its number.
    """
    if not is_dated(time_ms):
        return f"{time_ms} ms after 1970"
    return (_EPOCH + timedelta(seconds=time_ms // 1_000)).astimezone(zone).strftime(form)
