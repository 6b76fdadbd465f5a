"""The protocol grows by features, tried with one that is made up (RL-EXT).

A relay that has it names it and opens connections that ask for it; a connection that did not ask stays as
closed as it was, and programs that do not know the feature go on as before.
"""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from ringline.caller import AsyncCaller
from ringline.protocol import bodies
from ringline.protocol.limits import EXT_FEATURES, SUBPROTOCOL
from ringline.relay import gate, server
from ringline.relay.server import RelayServer
from ringline_testing.relay import running_relay
from ringline_testing.scripted import scripted_listener
from ringline_testing.signed import Owner, exchange

MADE_UP = "made-up"


@pytest.fixture
async def relay(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[RelayServer]:
    """A relay with a feature of which nothing but the name exists."""

    def features(log: object) -> list[str]:
        return [MADE_UP]

    monkeypatch.setattr(gate, "features", features)
    monkeypatch.setattr(server, "features", features)
    async with running_relay() as running:
        yield running


async def test_a_relay_names_its_features(relay: RelayServer) -> None:
    assert (await exchange(relay.port, "GET", "/v1/relay")).json()["features"] == [MADE_UP]


async def test_a_connection_with_a_feature_that_the_relay_has_is_opened(relay: RelayServer) -> None:
    alice = await Owner.enrolled("alice", relay.port)
    async with (
        alice.dial(f"{alice.listen_target()}&features={MADE_UP}") as listener,
        alice.dial(f"{alice.call_path('alice')}?features={MADE_UP}") as caller,
    ):
        await caller.send(alice.request())
        assert (await caller.next())["state"] == "ringing"
        assert (await listener.next())["type"] == "incoming_call"


@pytest.mark.parametrize(
    "asked",
    ["unheard-of", f"{MADE_UP},unheard-of", "", f"{MADE_UP},", "Made-up", f"{MADE_UP}&features={MADE_UP}"],
)
async def test_a_connection_with_a_feature_that_the_relay_lacks_is_refused(
    relay: RelayServer, asked: str
) -> None:
    alice = await Owner.enrolled("alice", relay.port)
    with pytest.raises(InvalidStatus) as refused:
        async with alice.dial(f"{alice.call_path('bob')}?features={asked}"):
            pass
    assert refused.value.response.status_code == 400


async def test_frames_and_members_of_a_feature_are_refused_where_nobody_asked_for_it(
    relay: RelayServer,
) -> None:
    alice = await Owner.enrolled("alice", relay.port)
    async with alice.listening() as listener, alice.calling("alice") as caller:
        await caller.send({"type": "call_mood", "mood": "good"})
        assert (await caller.next())["code"] == "protocol_error"
        await caller.send(alice.request(mood="good"))
        assert (await caller.next())["code"] == "protocol_error"
        await caller.send(alice.request())
        assert (await caller.next())["state"] == "ringing"
        assert "mood" not in await listener.next()


async def test_of_several_subprotocols_the_relay_takes_the_one_that_it_speaks(relay: RelayServer) -> None:
    alice = await Owner.enrolled("alice", relay.port)
    path = alice.call_path("bob")
    offers = [Subprotocol("ringline.v9"), Subprotocol(SUBPROTOCOL), Subprotocol("chat")]
    async with connect(
        f"ws://127.0.0.1:{relay.port}{path}",
        additional_headers=alice.bearer("GET", path),
        subprotocols=offers,
        proxy=None,
    ) as socket:
        assert socket.subprotocol == SUBPROTOCOL


async def test_a_program_that_does_not_know_a_feature_goes_on_as_before(
    relay: RelayServer, tmp_path: Path
) -> None:
    async with (
        scripted_listener(relay.port, "bob"),
        AsyncCaller("alice", relay=relay.url, home=tmp_path, note=lambda text: None) as alice,
    ):
        assert (await alice.call("bob", "hello", timeout=10)).text == "hello"


def test_names_in_ext_that_nobody_knows_are_passed_over() -> None:
    ext = {"features": [MADE_UP], "mood": {"today": ["good", None]}}
    request = bodies.decode_request(bodies.encode_request(bodies.Request(message="hello", ext=ext)))
    assert bodies.features(request.ext) == (MADE_UP,)
    reply = bodies.Outcome(reason="completed", reply=bodies.Reply(text="hello"), ext=ext)
    assert bodies.features(bodies.decode_outcome(bodies.encode_outcome(reply)).ext) == (MADE_UP,)
    assert (
        len(bodies.features({"features": [f"f{number}" for number in range(EXT_FEATURES)]})) == EXT_FEATURES
    )
