from collections.abc import Iterable, Iterator
from dataclasses import replace

from pydantic import BaseModel

from combee_schemas.base import Message
from combee_schemas.codec import decode, encode
from combee_schemas.upcasts import UPCASTS
from support.examples import FOLDER, HOW, KINDS, Example, examples
from support.rows import each_row

EXAMPLES = list(examples())
OLD = [example for example in EXAMPLES if example.version < example.kind.version_number]
each_kind = each_row("kind", KINDS.values(), ids=KINDS.keys())


def of(kind: type[Message]) -> list[Example]:
    return [example for example in EXAMPLES if example.kind is kind]


@each_kind
def test_published_bytes_still_mean_what_they_meant_and_can_be_written_and_read_again(
    kind: type[Message],
) -> None:
    for example in of(kind):
        found = decode(example.raw, kind)
        assert found == example.message, f"{example.path}\n{HOW}"
        assert decode(encode(found), kind) == found, example.path


def test_an_older_version_means_what_its_upcast_is_frozen_as() -> None:
    for example in OLD:
        newer = example.path.parents[1] / f"v{example.version + 1}" / example.path.name
        upcast = replace(example, version=example.version + 1, path=newer).message
        assert upcast == example.message, f"{example.path}\n{HOW}"


@each_kind
def test_fields_of_the_future_are_ignored(kind: type[Message]) -> None:
    for example in of(kind):
        fields = {**example.message.model_dump(), "a_field_of_the_future": [1]}
        assert kind.model_validate(fields) == example.message, example.path


@each_kind
def test_every_version_that_is_read_has_an_example(kind: type[Message]) -> None:
    upcast = {version for type_, version in UPCASTS if type_ == kind.type}
    assert {example.version for example in of(kind)} == {*upcast, kind.version_number}, HOW


def given(value: object) -> Iterator[tuple[type[BaseModel], str]]:
    """Yield the fields that are given in a message, and in all that it holds, each with its model."""
    if isinstance(value, BaseModel):
        yield from ((type(value), name) for name in value.model_fields_set)
        value = [getattr(value, name) for name in value.model_fields_set]
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for part in value:
            yield from given(part)


def test_every_field_of_the_newest_versions_is_in_an_example() -> None:
    newest = [example for example in EXAMPLES if example.version == example.kind.version_number]
    fields = {field for example in newest for field in given(example.message)}
    models = {model for model, _ in fields}.union(KINDS.values())
    missing = {(model.__name__, name) for model in models for name in model.model_fields}
    missing -= {(model.__name__, name) for model, name in fields}
    assert missing == set(), f"make an example that has them.\n{HOW}"


def test_no_example_is_half_there_or_in_the_wrong_place() -> None:
    files = {path.relative_to(FOLDER) for path in FOLDER.rglob("*") if path.is_file()}
    expected = {
        example.path.relative_to(FOLDER).with_suffix(suffix)
        for example in EXAMPLES
        for suffix in (".json", ".msgpack")
    }
    assert files == expected, HOW
