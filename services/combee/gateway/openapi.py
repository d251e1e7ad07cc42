"""The OpenAPI document: FastAPI's, completed with parts that it cannot derive."""

from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from combee.gateway.endpoints.publishing import KINDS
from combee.gateway.problems import Problem
from combee_schemas.base import SAYS_SOMETHING, Message
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import LESSON_FIELDS
from combee_schemas.trace import RUN_FIELDS

LARGEST, SMALLEST = 2**64 - 1, -(2**63)
"""Range of integers in msgpack."""
PREFIX = "#/components/schemas/{model}"
DESCRIPTION = """Publish what agents did and learned; read playbooks, or have every new version pushed.

Errors are problem details (RFC 9457, `application/problem+json`). Where API keys are configured, send one as
`Authorization: Bearer KEY`; scopes are `reflections:write`, `playbooks:read` and `playbooks:admin`.
"""


def documented(app: FastAPI, *, keys: bool) -> Callable[[], dict[str, Any]]:
    """Return the replacement of ``app.openapi``; the document is built once."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app, keys=keys)
        return app.openapi_schema

    return openapi


def _document(app: FastAPI, *, keys: bool) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=DESCRIPTION,
        routes=app.routes,
        tags=app.openapi_tags,
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for name, schema in _own_schemas().items():
        schemas.setdefault(name, schema)
    if keys:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def _own_schemas() -> dict[str, Any]:
    """Return the schemas of bodies and responses that our code reads and writes itself, unknown to FastAPI."""
    sent = [kind.topic.message for kind in KINDS]
    modes: list[Any] = [(message, "validation") for message in sent]
    _, bodies = models_json_schema(modes, ref_template=PREFIX.replace("{", "New{"))
    _, answers = models_json_schema(
        [(Problem, "serialization"), (Playbook, "serialization")], ref_template=PREFIX
    )
    answers_schemas: dict[str, Any] = dict(answers["$defs"])
    for name, schema in bodies["$defs"].items():
        answers_schemas[f"New{name}"] = {**schema, "additionalProperties": False}
    for kind in KINDS:
        name = f"New{kind.topic.message.__name__}"
        if kind.prefix:
            answers_schemas[name] = {
                **_without_id(answers_schemas[name], kind.id_field),
                "not": _empty(kind.topic.message),
            }
    for schema in answers_schemas.values():
        _bound(schema)
    return answers_schemas


def _without_id(schema: dict[str, Any], id_field: str) -> dict[str, Any]:
    """Return the schema of a message whose id the gateway may choose."""
    required = [name for name in schema["required"] if name != id_field]
    given = schema["properties"][id_field]
    properties = {**schema["properties"], id_field: {"anyOf": [given, {"type": "null"}]}}
    return {**schema, "required": required, "properties": properties}


def _empty(message: type[Message]) -> dict[str, Any]:
    """Return the schema of a message without content."""
    blank = {"not": {"pattern": SAYS_SOMETHING.pattern}}
    properties: dict[str, Any] = {
        name: blank for name in (*RUN_FIELDS, *LESSON_FIELDS) if name in message.model_fields
    }
    if "side_info" in message.model_fields:
        properties["side_info"] = {"additionalProperties": blank}
    return {"properties": properties}


def _bound(schema: Any) -> None:
    """Bound every integer to 64 bits."""
    for schema_part in _objects(schema):
        if schema_part.get("type") == "integer":
            schema_part.setdefault("maximum", LARGEST)
            if "exclusiveMinimum" not in schema_part:
                schema_part.setdefault("minimum", SMALLEST)


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for part in schema.values():
            yield from _objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _objects(part)
