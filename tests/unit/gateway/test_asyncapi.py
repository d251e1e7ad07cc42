"""The AsyncAPI document says what the map of topics and the frozen examples say."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from combee_schemas.topics import TOPICS, AnyTopic
from support.rows import each_row

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "asyncapi.yaml"
EXAMPLES = ROOT / "schemas" / "examples"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(PAGE.read_text("utf-8"), yaml.CSafeLoader)
    return found


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        yield from (value for name, value in part.items() if name == "$ref")
        for value in part.values():
            yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


def _resolved(document: dict[str, Any], reference: str) -> Any:
    part: Any = document
    for name in reference.removeprefix("#/").split("/"):
        part = part[name]
    return part


def _plain(found: dict[str, Any]) -> Any:
    """Return what the examples write as base64, bytes, as JSON schema knows them: a text."""
    return found["base64"] if found.keys() == {"base64"} else found


def test_it_is_asyncapi_3_and_whole(document: dict[str, Any]) -> None:
    assert document["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= document["info"].keys()
    references = set(_references(document))
    assert len(references) > 30
    for one in references:
        assert _resolved(document, one)
    for one in document["operations"].values():
        assert one["action"] in {"send", "receive"}


def test_every_topic_is_in_it_with_who_writes_and_reads(document: dict[str, Any]) -> None:
    assert list(document["channels"]) == [topic.name for topic in TOPICS]
    told = {
        (one["action"], name.split("-writes-")[0].split("-reads-")[0], one["channel"]["$ref"])
        for name, one in document["operations"].items()
    }
    for topic in TOPICS:
        channel = f"#/channels/{topic.name}"
        for action, parts in (("send", topic.written_by), ("receive", topic.read_by)):
            assert {part for done, part, where in told if (done, where) == (action, channel)} == set(parts)


@each_row("topic", TOPICS, ids=lambda topic: topic.name)
def test_the_frozen_examples_are_as_it_says(topic: AnyTopic, document: dict[str, Any]) -> None:
    payload = document["components"]["messages"][topic.name]["payload"]
    validator = jsonschema_rs.validator_for({**payload, "components": document["components"]})
    examples = list((EXAMPLES / topic.message.type / f"v{topic.message.version_number}").glob("*.json"))
    assert examples
    for path in examples:
        body = json.loads(path.read_text("utf-8"), object_hook=_plain)
        envelope = {"type": topic.message.type, "version": topic.message.version_number, "body": body}
        validator.validate(envelope)
        assert not validator.is_valid({**envelope, "type": "other"})
        assert not validator.is_valid({**envelope, "version": 0})
        assert not validator.is_valid({**envelope, "body": [body]})
