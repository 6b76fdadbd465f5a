"""Which event loops a module of this folder is run on."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Return the module's own LOOP_FACTORIES, if it has some; else asyncio's own loop."""
    module = item.getparent(pytest.Module)
    default = {"asyncio": asyncio.new_event_loop}
    return default if module is None else getattr(module.obj, "LOOP_FACTORIES", default)
