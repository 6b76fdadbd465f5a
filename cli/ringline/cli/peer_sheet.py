"""A peer as he is shown: after an invite on both sides, and among the contacts."""

from typing import Final

from ringline.cli.terminal import shown_line
from ringline.client import Account
from ringline.client.contacts import Pin
from ringline.protocol.dates import spelled
from ringline.protocol.encoding import b64encode
from ringline.protocol.fingerprint import safety_number

__all__ = ["describe_peer", "grant_words", "grants", "peer_sheet", "standing"]

_HOW: Final = {
    "contact": "by a contact string",
    "invite": "by an invite",
    "tofu": "as the first key that the relay showed",
    "succession": "from his key before",
}
_NUMBER_GROUPS: Final = 6


def describe_peer(account: Account, pin: Pin) -> dict[str, object]:
    """Return a peer as JSON: names, keys, what he may do. Times are Unix ms."""
    return {
        "handle": pin.handle,
        "realm": pin.realm,
        "label": pin.label,
        "fingerprint": pin.fingerprint,
        "public_key": b64encode(pin.ipk),
        "safety_number": safety_number(account.handle, account.ipk, pin.handle, pin.ipk),
        "source": pin.source,
        "first_seen": pin.first_seen,
        "verified_at": pin.verified_at,
        "state": pin.state,
        "tasks": None if pin.tasks is None else list(pin.tasks),
        "calls_per_hour": pin.calls_per_hour,
    }


def peer_sheet(account: Account, pin: Pin) -> str:
    """Return a peer as lines for a person. The safety number is the same on his screen."""
    number = safety_number(account.handle, account.ipk, pin.handle, pin.ipk).split(" ")
    label = f'  "{shown_line(pin.label)}"' if pin.label else ""
    known = f"{_HOW[pin.source]}, {_day(pin.first_seen)}"
    vouched = "" if pin.verified_at is None else f"; vouched for {_day(pin.verified_at)}"
    return (
        f"{pin.handle}  at {account.address.base_url}  (realm {pin.realm}){label}\n"
        f"  fingerprint    {pin.fingerprint}\n"
        f"  safety number  {' '.join(number[:_NUMBER_GROUPS])}\n"
        f"                 {' '.join(number[_NUMBER_GROUPS:])}\n"
        f"  known          {known}{vouched}\n"
        f"  may call you   {grants(pin)}\n"
    )


def grants(pin: Pin) -> str:
    """Return in words what a peer may call here."""
    if pin.state == "pending":
        return "no, that was not decided yet"
    if pin.state == "blocked":
        return "no, he is blocked"
    return grant_words(pin.tasks, pin.calls_per_hour)


def standing(pin: Pin) -> str:
    """Return the same as a line of a list."""
    if pin.state == "pending":
        return "pending: may not call you, that was not decided yet"
    if pin.state == "blocked":
        return "blocked: may not call you"
    return f"allowed: {grants(pin)}"


def grant_words(tasks: tuple[str, ...] | None, calls_per_hour: int | None) -> str:
    """Return in words what somebody who is let in may call."""
    if tasks is None:
        what = "every task"
    else:
        what = f"task{'s' if len(tasks) > 1 else ''} {', '.join(tasks)}" if tasks else "no task"
    return what if calls_per_hour is None else f"{what}, {calls_per_hour} calls an hour"


def _day(time_ms: int) -> str:
    return spelled(time_ms, "%Y-%m-%d")
