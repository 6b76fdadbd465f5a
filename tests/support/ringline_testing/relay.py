"""A real relay within the test's event loop, on a free port of the loopback interface."""

import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringline.relay.clock import Clock, system_clock
from ringline.relay.edge import EdgeLimits
from ringline.relay.options import RelayOptions
from ringline.relay.server import RelayServer
from ringline.relay.settings import Settings

__all__ = ["running_relay"]


@contextlib.asynccontextmanager
async def running_relay(
    *,
    edge: str = "picows",
    settings: Settings | Mapping[str, int] | None = None,
    db: str | Path | None = None,
    port: int = 0,
    realm: str = "localhost",
    clock: Clock = system_clock,
    edge_limits: EdgeLimits | None = None,
    origins: tuple[str, ...] = (),
    closing_s: float = 5.0,
    open_registration: bool = True,
    admin: str | None = None,
    **options: Any,
) -> AsyncGenerator[RelayServer]:
    """Run a relay as ``ringline relay dev`` does, and stop it when the block is left.

    ``settings`` may name some by the field names of `Settings`, e.g. ``{"ring_bound_ms": 200}``; budgets
    that a test would run into by accident are off unless it says otherwise. ``db`` None keeps everything
    in memory. To restart one, enter again with the same ``db`` and ``port``. ``options`` are further members
    of `RelayOptions`.
    """
    if not isinstance(settings, Settings):
        budgets = {
            "calls_per_hour": 0,
            "calls_per_pair_per_hour": 0,
            "key_fetches_per_minute": 0,
            "claims_per_minute": 0,
            "pairing_claims_per_minute": 0,
            "failed_logins_per_minute": 0,
        }
        settings = replace(Settings(), **(budgets | dict(settings or {})))
    made = RelayOptions(
        port=port,
        db=None if db is None else str(db),
        edge=edge,
        realm=realm,
        settings=settings,
        clock=clock,
        edge_limits=edge_limits,
        origins=origins,
        closing_s=closing_s,
        open_registration=open_registration,
        admin=admin,
        **options,
    )
    async with RelayServer(made) as relay:
        yield relay
