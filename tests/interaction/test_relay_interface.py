"""The relay describes its HTTP interface, and the description has what the relay serves."""

import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ringline.relay.interface import OPERATIONS
from ringline.relay.server import RelayServer
from ringline_testing.checkout import ROOT
from ringline_testing.relay import running_relay
from ringline_testing.signed import Answer, Owner, exchange


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncGenerator[RelayServer]:
    async with running_relay(db=tmp_path / "relay.db") as relay:
        yield relay


def valid(document: dict[str, Any], method: str, path: str, answer: Answer) -> bool:
    """Whether ``answer`` is one that the document describes for this operation."""
    content = document["paths"][path][method.lower()]["responses"][str(answer.status)]["content"]
    media = (answer.header("content-type") or "").partition(";")[0]
    schema = content[media]["schema"] | {"components": document["components"]}
    validator: Any = jsonschema.Draft202012Validator(schema)
    return bool(validator.is_valid(answer.json()))


async def test_what_the_relay_serves_is_the_page_of_the_specification(relay: RelayServer) -> None:
    answer = await exchange(relay.port, "GET", "/v1/openapi.json")
    assert answer.status == 200
    assert answer.header("content-type") == "application/json"
    assert answer.json() == json.loads((ROOT / "spec" / "openapi.json").read_text(encoding="utf-8"))


async def test_the_description_has_the_operations_that_the_relay_serves(relay: RelayServer) -> None:
    routes = getattr(relay, "_routes").app().routes  # noqa: B009
    served = {
        (method, re.sub(r":\w+}", "}", route.path)) for route in routes for method in route.methods - {"HEAD"}
    }
    assert served == {(operation.method, operation.path) for operation in OPERATIONS}


async def test_answers_are_as_the_description_says(relay: RelayServer) -> None:
    document = (await exchange(relay.port, "GET", "/v1/openapi.json")).json()
    alice = Owner(handle="alice", port=relay.port)
    for status in (201, 200):
        answer = await alice.publish()
        assert answer.status == status
        assert valid(document, "PUT", "/v1/handles/{handle}", answer)
    await Owner.enrolled("bob", relay.port)
    for path in ("/healthz", "/readyz"):
        assert valid(document, "GET", path, await exchange(relay.port, "GET", path))
    for path, template in (
        ("/v1/relay", "/v1/relay"),
        ("/v1/handles/bob", "/v1/handles/{handle}"),
        ("/v1/handles/nobody", "/v1/handles/{handle}"),
        ("/v1/handles/alice/policy", "/v1/handles/{handle}/policy"),
        ("/v1/handles/bob/policy", "/v1/handles/{handle}/policy"),
        ("/v1/calls", "/v1/calls"),
        ("/v1/calls?limit=0", "/v1/calls"),
        ("/v1/calls/c", "/v1/calls/{call_id}"),
        ("/v1/invites", "/v1/invites"),
    ):
        answer = await alice.ask("GET", path)
        assert valid(document, "GET", template, answer), path
