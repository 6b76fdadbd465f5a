"""What a relay shows of itself to whoever runs it: whether it is well and why not, and its counters.

On a development relay this is on its one port, for its own computer. Every other relay shows it on a listener
of its own alone: from where a request on the public port comes cannot be told for sure, since a proxy on the
same machine looks like its operator.
"""

from collections.abc import Awaitable, Callable
from typing import Final, final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringline.relay import problem
from ringline.relay.metrics import CONTENT_TYPE, render
from ringline.relay.registry import Registry
from ringline.relay.responses import refuse, reply
from ringline.relay.strangers import Strangers
from ringline.relay.switchboard import Switchboard

__all__ = ["Lookout", "is_local"]

_Endpoint = Callable[[Request], Awaitable[Response]]

_LOOPBACK: Final = ("127.", "::1")


def is_local(request: Request) -> bool:
    """True for a request of this machine that it did not pass on for somebody else, as far as it says so."""
    peer = request.client.host if request.client is not None else ""
    passed_on = "x-forwarded-for" in request.headers or "forwarded" in request.headers
    return peer.startswith(_LOOPBACK) and not passed_on


@final
class Lookout:
    """The state of one relay, as its operator sees it."""

    def __init__(
        self, board: Switchboard, registry: Registry, strangers: Strangers, *, stopping: Callable[[], bool]
    ) -> None:
        """``stopping`` tells whether the relay drains, and is to get no new calls."""
        self._board = board
        self._strangers = strangers
        self._registry = registry
        self._stopping = stopping

    async def ready(self, *, reasons: bool) -> Response:
        """Answer whether the relay takes calls: 200 or 503; with ``reasons``, why not."""
        found: list[str] = []
        if self._stopping():
            found.append("the relay is stopping")
        fault = self._board.fault or await self._registry.fault()
        if fault is not None:
            found.append(f"the store cannot be written: {fault}")
        ready: dict[str, object] = {"ready": not found}
        if reasons:
            ready["reasons"] = found
            # Nothing that stops calls, and nothing that may stay so.
            warnings = (self._board.warning, self._strangers.warning)
            ready["warnings"] = [warning for warning in warnings if warning is not None]
        response = reply(ready, 503 if found else 200)
        if found:
            response.headers["retry-after"] = "1"
        return response

    def metrics(self) -> Response:
        """Answer with every counter."""
        headers = {"content-type": CONTENT_TYPE, "cache-control": "no-store"}
        return Response(render(self._board.telemetry.snapshot()), 200, headers)

    def app(self) -> Starlette:
        """Return the ASGI application of a listener that is for the operator alone."""

        async def healthz(request: Request) -> Response:
            return reply({"status": "ok"})

        async def readyz(request: Request) -> Response:
            return await self.ready(reasons=True)

        async def metrics(request: Request) -> Response:
            return self.metrics()

        table: dict[str, _Endpoint] = {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics}
        return Starlette(
            routes=[Route(path, endpoint, methods=["GET"]) for path, endpoint in table.items()],
            exception_handlers={HTTPException: _on_routing},
        )


async def _on_routing(request: Request, error: Exception) -> Response:
    return refuse(problem.NOT_FOUND)
