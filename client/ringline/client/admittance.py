"""Whom the relay lets through to an own handle: its side of what the contacts decide.

The listener judges every caller by himself, whatever the relay does. The relay's policy only keeps away those
who would be refused anyway, and hides the handle from them.
"""

from typing import Final, Literal, TypeAlias

from ringline.client.http import RelayHttp
from ringline.protocol.errors import HttpProblem, RinglineError, TransportError
from ringline.protocol.shapes import Policy

__all__ = ["Admittance", "admit_at_relay"]

Admittance: TypeAlias = Literal["allowed", "blocked", "neither"]

_ENTRIES: Final = 10_000


async def admit_at_relay(http: RelayHttp, handle: str, admittance: Admittance) -> RinglineError | None:
    """Have the relay let a handle through to the own one, shut it out, or forget about it.

    Returns what kept it from being told, None when it knows. All else of the policy stays as it is.
    """
    try:
        policy = await http.policy()
        allow = [one for one in policy.allow if one != handle]
        block = [one for one in policy.block if one != handle]
        # Where anyone may call, a list that already names him stays as it is.
        if admittance == "allowed" and (policy.accept != "anyone" or handle in policy.allow):
            allow.append(handle)
        elif admittance == "blocked":
            block.append(handle)
        if sorted(allow) != sorted(policy.allow) or sorted(block) != sorted(policy.block):
            await http.set_policy(
                Policy(
                    offline=policy.offline,
                    accept=policy.accept,
                    allow=allow[-_ENTRIES:],
                    block=block[-_ENTRIES:],
                )
            )
    except (HttpProblem, TransportError) as error:
        return error
    return None
