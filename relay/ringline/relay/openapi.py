"""The HTTP interface as an OpenAPI document, which a relay serves and ``spec/`` has a copy of."""

import re
from functools import cache
from http import HTTPStatus
from typing import Final

import msgspec

from ringline.protocol import shapes
from ringline.protocol.limits import SUBPROTOCOL
from ringline.protocol.schema import rewritten
from ringline.relay.interface import OPERATIONS, PATH_PARAMETERS, Operation, Schema, Shape, Text

__all__ = ["document", "openapi"]

_REQUIRED: Final = frozenset({"instance", "boot", "capacity"})
_PLACE: Final = "#/components/schemas/"
# Statuses that are the relay's state or the request's form, and may meet any operation.
_EVERYWHERE: Final = (500, 503)


def openapi() -> Schema:
    """Return the document, OpenAPI 3.1, as what is to be written as JSON."""
    structs = list(dict.fromkeys(found for operation in OPERATIONS for found in _structs(operation)))
    _, components = msgspec.json.schema_components([*structs, shapes.Problem], ref_template="#/{name}")
    own = {name: name for name in components}
    paths: dict[str, Schema] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ringline relay",
            "version": SUBPROTOCOL,
            "description": "The HTTP interface of a Ringline relay. Requests are closed: an unknown member "
            "or parameter is refused. Answers are open: unknown members are ignored.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {name: rewritten(schema, own, _PLACE) for name, schema in sorted(components.items())},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "JWT",
                    "description": "A token for this one request, signed by the operational key.",
                }
            },
        },
    }


@cache
def document() -> bytes:
    """Return the text of the document, UTF-8, the same bytes for every relay of this version."""
    return msgspec.json.format(msgspec.json.encode(openapi()), indent=2) + b"\n"


def _structs(operation: Operation) -> list[Shape]:
    found = [] if operation.body is None else [operation.body]
    for answer in operation.answers.values():
        if isinstance(answer, tuple):
            found += answer
    return found


def _operation(operation: Operation) -> Schema:
    about = f"{operation.about} {operation.access.value}"
    if operation.only_with:
        about += f" Only at a relay with the feature `{operation.only_with}`."
    document: Schema = {
        "operationId": re.sub("[^a-z0-9]+", "_", f"{operation.method} {operation.path}".lower()).strip("_"),
        "summary": operation.about,
        "description": about,
    }
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": PATH_PARAMETERS[name]}
        for name in re.findall(r"{(\w+)}", operation.path)
    ] + [
        {"name": name, "in": "query", "required": name in _REQUIRED, "schema": schema}
        for name, schema in operation.query.items()
    ]
    if parameters:
        document["parameters"] = parameters
    if operation.body is not None:
        document["requestBody"] = {"required": True, "content": _json(_reference(operation.body))}
    document["responses"] = {
        str(status): _answer(status, answer) for status, answer in operation.answers.items()
    }
    refusals = {*operation.problems, *_EVERYWHERE} | ({401} if operation.access.by_token else set[int]())
    for status in sorted(refusals - operation.answers.keys()):
        document["responses"][str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {"application/problem+json": {"schema": _reference(shapes.Problem)}},
        }
    document["security"] = [{"token": []}] if operation.access.by_token else []
    return document


def _answer(status: int, answer: tuple[Shape, ...] | Schema | Text) -> Schema:
    if isinstance(answer, Text):
        content = {answer.media: {"schema": {"type": "string"}}} if answer.media else None
        return {"description": answer.about} | ({} if content is None else {"content": content})
    if isinstance(answer, tuple):
        references = [_reference(shape) for shape in answer]
        schema: Schema = references[0] if len(references) == 1 else {"anyOf": references}
    else:
        schema = answer
    return {"description": HTTPStatus(status).phrase, "content": _json(schema)}


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _reference(shape: Shape) -> Schema:
    return {"$ref": _PLACE + shape.__name__}
