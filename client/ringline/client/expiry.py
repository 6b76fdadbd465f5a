"""What of an identity runs out, and the owner's warnings of it: nothing expires in silence."""

from typing import Final

from ringline.client.account import Account
from ringline.client.home import write_private
from ringline.protocol.dates import spelled
from ringline.protocol.errors import ConfigError

__all__ = ["WARN_BEFORE_MS", "card_days", "news", "warnings"]

DAY_MS: Final = 86_400_000
WARN_BEFORE_MS: Final = 14 * DAY_MS
"""From when on the owner is told that a card runs out."""

_TOLD: Final = "warned"


def card_days(account: Account, now_ms: int) -> int:
    """Return for how many more whole days the card holds, rounded up; 0 when it has run out."""
    return max(0, -((now_ms - account.card.card.not_after) // DAY_MS))


def warnings(account: Account, now_ms: int) -> tuple[str, ...]:
    """Return what the owner must know, one sentence each, and nothing without need. Reads no file."""
    left_ms = account.card.card.not_after - now_ms
    if left_ms > WARN_BEFORE_MS:
        return ()
    day = spelled(account.card.card.not_after, "%Y-%m-%d")
    handle = account.handle
    if left_ms <= 0:
        what = (
            f"the card of {handle} ran out on {day}: nobody can call {handle}, nor is a call from it accepted"
        )
    else:
        days = card_days(account, now_ms)
        rest = "1 day" if days == 1 else f"{days} days"
        what = f"the card of {handle} runs out in {rest}, on {day}"
    place = account.home.identity_key_file(account.address, handle)
    what += f"; renew it: ringline id rotate --as {handle}"
    if not place.exists():
        what += f" --identity-key FILE (the identity key is not at {place})"
    return (what,)


def news(account: Account, now_ms: int) -> tuple[str, ...]:
    """Return the `warnings` that were not told on this computer today; they count as told from now on."""
    found = warnings(account, now_ms)
    path = account.home.identity_folder(account.address, account.handle) / _TOLD
    stamp = "\n".join((str(now_ms // DAY_MS), *found)) + "\n"
    try:
        if not found or (path.exists() and path.read_text("utf-8", "replace") == stamp):
            return ()
        write_private(path, stamp)
    except (OSError, ConfigError):
        # Twice is better than never.
        pass
    return found
