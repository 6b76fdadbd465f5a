"""The interface: limits, names, and what an edge loads."""

import dataclasses
import subprocess
import sys

import pytest

from ringline.protocol.errors import ConfigError
from ringline.relay.edge import EDGES, Connection, EdgeLimits, Gate, Receiver, edge_factory
from ringline.relay.edge_picows import PicowsLink
from ringline.relay.edge_websockets import WebsocketsLink
from ringline_testing.edge_server import Door, Recorder


def test_the_limits_are_those_of_the_protocol() -> None:
    limits = EdgeLimits()
    assert limits.max_message == 2_063_019
    assert limits.max_buffered > limits.max_message
    assert (limits.ping_interval, limits.ping_timeout) == (20.0, 20.0)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(EdgeLimits)])
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_is_positive(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=name):
        dataclasses.replace(EdgeLimits(), **{name: value})


def test_an_unknown_edge_is_refused_with_the_names_of_those_there_are() -> None:
    with pytest.raises(ConfigError, match="'wsproto'") as caught:
        edge_factory("wsproto", Door())
    assert all(name in (caught.value.next_step or "") for name in EDGES)


def test_links_and_doubles_have_the_shapes_of_the_interface() -> None:
    # The type checkers say so; this keeps the names in use.
    links: list[type[Connection]] = [PicowsLink, WebsocketsLink]
    gate: Gate = Door()
    receivers: list[type[Receiver]] = [Recorder]
    assert len(links) == len(EDGES)
    assert gate.farewell() == "retry=1000"
    assert receivers


@pytest.mark.parametrize(("name", "other"), [("picows", "websockets"), ("websockets", "picows")])
def test_only_the_chosen_library_is_loaded(name: str, other: str) -> None:
    code = (
        "import sys\nfrom ringline.relay.edge import edge_factory\n"
        f"edge_factory({name!r}, None)\nprint([{name!r} in sys.modules, {other!r} in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "[True, False]", run.stderr
