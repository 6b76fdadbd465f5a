"""Paths and methods that have one spelling."""

from ringline.conformance.registry import case
from ringline.conformance.relay_stage import RelayStage
from ringline.conformance.verdict import check

__all__: list[str] = []


@case(requirements=("RL-HTTP-048",))
async def path_with_an_escape_is_missing(stage: RelayStage) -> None:
    """A percent-escape in a path is 404, also one for a letter of a handle that exists."""
    alice = await stage.identity("alice")
    first, rest = alice.handle[0], alice.handle[1:]
    for path in (f"/v1/handles/%{ord(first):02x}{rest}", "/v1/c%61lls", "/v1/handles/%"):
        answer = await stage.ask(alice, "GET", path, headers=())
        check(answer.status == 404, f"404 for {path}", str(answer))


@case(requirements=("RL-HTTP-049",))
async def head_is_answered_as_get(stage: RelayStage) -> None:
    """A HEAD request has the status of the GET of the same path, and no body."""
    alice = await stage.identity("alice")
    for path, status in (("/v1/relay", 200), (f"/v1/handles/{alice.handle}", 200), ("/v1/calls/none", 404)):
        answer = await stage.ask(alice, "HEAD", path)
        check(answer.status == status, f"{status} for HEAD {path}", str(answer))
        check(answer.body == b"", "no body", repr(answer.body))
