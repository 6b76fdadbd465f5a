"""The product answers every vector of ``spec/vectors`` as it says, and the files are what made them."""

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from ringline.protocol.encoding import b64decode
from ringline_testing.checkout import ROOT
from ringline_testing.vector_answers import OPERATIONS, answer
from ringline_testing.vectors import carried

FOLDER = ROOT / "spec" / "vectors"
SCHEMA: Any = carried("vectors.schema.json")
FILES: dict[str, Any] = {
    file.stem: content
    for file in sorted(FOLDER.glob("*.json"))
    if "vectors" in (content := carried(file.name))
}
KINDS = list(FILES)
VECTORS: list[Any] = [vector for content in FILES.values() for vector in content["vectors"]]


@pytest.fixture(scope="module")
def make() -> Iterator[Any]:
    """Yield the program that makes the files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT / "spec"), *sys.path])
        yield importlib.import_module("vectors.make")


@pytest.mark.parametrize("kind", KINDS)
def test_the_product_answers_every_vector_as_it_says(kind: str) -> None:
    vectors: list[Any] = FILES[kind]["vectors"]
    answers = {vector["id"]: answer(vector["op"], vector["input"]) for vector in vectors}
    assert answers == {vector["id"]: vector["expect"] for vector in vectors}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_vectors_is_as_its_schema_says(kind: str) -> None:
    validator: Any = jsonschema.Draft202012Validator(SCHEMA)
    assert [error.message for error in validator.iter_errors(FILES[kind])] == []


def test_the_files_are_what_their_programs_make(make: Any) -> None:
    assert make.stale() == []
    assert list(make.KINDS) == KINDS


def test_every_operation_has_a_vector_that_is_accepted_and_the_schema_names_it() -> None:
    accepted = {vector["op"] for vector in VECTORS if vector["expect"]["result"] == "accepted"}
    assert accepted == OPERATIONS.keys()
    assert accepted == set(SCHEMA["$defs"]["vector"]["properties"]["op"]["enum"])


def test_no_id_is_given_twice_and_a_mutation_has_one_place() -> None:
    by_id = {vector["id"]: vector for vector in VECTORS}
    assert len(by_id) == len(VECTORS)
    for vector in VECTORS:
        if vector["expect"]["result"] == "refused":
            origin = by_id[vector["mutates"]]
            assert origin["expect"]["result"] == "accepted", vector["id"]
            assert origin["input"] != vector["input"], vector["id"]


def test_the_bytes_in_the_text_are_those_of_the_vectors() -> None:
    text = (ROOT / "spec" / "ringline.md").read_text(encoding="utf-8")
    by_id = {vector["id"]: vector for vector in VECTORS}
    found = re.findall(r"of the vector `([a-z0-9_.]+)`[^`]*(?:`[^`]*`)?[^`]*```\n(.*?)```", text, re.DOTALL)
    shown = {
        name: bytes.fromhex("".join(re.findall(r"^[0-9a-f ]+(?=   )", block, re.M))) for name, block in found
    }
    card, request = by_id["card.alice"], by_id["request.suite1.good"]
    card_id = b64decode(card["expect"]["output"]["card_id"])
    assert shown == {
        "card.alice": b64decode(card["input"]["card"]) + card_id,
        "request.suite1.good": bytes.fromhex(request["expect"]["output"]["context"]),
    }


def test_vectors_are_answered_over_json_lines() -> None:
    asked = VECTORS[:: len(VECTORS) // 12]
    lines = "".join(json.dumps({"op": each["op"], "input": each["input"]}) + "\n" for each in asked)
    command = [sys.executable, str(ROOT / "tests" / "support" / "ringline_testing" / "vector_answers.py")]
    got = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60)
    assert got.returncode == 0, got.stderr
    assert [json.loads(line) for line in got.stdout.splitlines()] == [each["expect"] for each in asked]
