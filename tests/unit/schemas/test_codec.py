import math
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee_schemas.base import Message, Sparse
from combee_schemas.codec import VERSIONS_AHEAD, CodecError, decode, encode
from combee_schemas.errors import OtherVersionError
from combee_schemas.playbook import Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Operation, OperationKind, Seen
from support.examples import KINDS, Example, examples
from support.hostile import NOT_A_FIELD, body, newer, payloads
from support.rows import each_row

ALL_KINDS = list(KINDS.values())
EXAMPLES = list(examples())
BY_KIND = {
    (kind, version): [example for example in EXAMPLES if (example.kind, example.version) == (kind, version)]
    for kind, version in dict.fromkeys((example.kind, example.version) for example in EXAMPLES)
}


@each_row("kind", ALL_KINDS, ids=lambda kind: kind.type)
def test_whatever_is_wrong_with_the_bytes_the_error_is_ours(kind: type[Message]) -> None:
    for what, raw in payloads(kind).items():
        with pytest.raises(CodecError) as caught:
            decode(raw, kind)
        assert len(str(caught.value)) < 500, what


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.type)
@given(raw=st.binary(max_size=300))
def test_random_bytes_are_refused(kind: type[Message], raw: bytes) -> None:
    with pytest.raises(CodecError):
        decode(raw, kind)


OF_PARTS = [example for example in EXAMPLES if example.kind.PARTS]


@given(data=st.data(), example=st.sampled_from(OF_PARTS))
def test_reading_by_parts_gives_what_reading_the_whole_gives_however_damaged(
    data: st.DataObject, example: Example
) -> None:
    raw = bytearray(encode(example.message))
    places = st.integers(0, len(raw) - 1)
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=2)):
        raw[place] = byte
    by_parts = outcome(bytes(raw), example.kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example.kind, "PARTS", {})
        assert by_parts == outcome(bytes(raw), example.kind)


def outcome(raw: bytes, kind: type[Message]) -> Message | str:
    """Return what is read, or the error."""
    try:
        return decode(raw, kind)
    except (CodecError, OtherVersionError) as error:
        return str(error)


@each_row("example", OF_PARTS, ids=str)
def test_writing_by_parts_gives_the_same_bytes_whether_or_not_they_are_known(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = example.message
    again = message.model_copy()
    first, known = encode(message), encode(again)
    with monkeypatch.context() as patch:
        patch.setattr(example.kind, "PARTS", {})
        assert first == known == encode(message)


def test_an_entry_that_a_version_before_has_is_read_once() -> None:
    entry = Entry(id="one", section="s", content="never said before this test")
    versions = [Playbook(name="a", version=n, entries=(entry,)) for n in (1, 2)]
    first, second = (decode(encode(version), Playbook).entries for version in versions)
    assert first[0] is second[0]
    assert first[0] == entry


def mutations(alike: Sequence[Example]) -> Iterator[tuple[str, Any]]:
    """Yield an example's body with one field, at any depth, replaced by a strange value.

    A field that several examples, or several parts of a list, have is replaced in the first that has it.
    """
    done: set[str] = set()
    for example in alike:
        yield from _mutated(example.message.model_dump(mode="python"), "", done)


def _mutated(value: Any, where: str, done: set[str]) -> Iterator[tuple[str, Any]]:
    if where not in done:
        done.add(where)
        for what, strange in NOT_A_FIELD.items():
            yield f"{where}={what}", strange
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, (list, tuple))
        else ()
    )
    for key, part in inside:
        field = key if isinstance(value, dict) else "*"
        for path, strange in _mutated(part, f"{where}.{field}", done):
            copy = dict(value) if isinstance(value, dict) else list(value)
            copy[key] = strange
            yield path, copy


@pytest.mark.parametrize(
    ("kind", "version"), BY_KIND, ids=[f"{kind.type} {version}" for kind, version in BY_KIND]
)
def test_a_field_of_the_wrong_kind_is_refused_or_read_as_something_that_can_be_written(
    kind: type[Message], version: int
) -> None:
    refused = 0
    for path, mutated in mutations(BY_KIND[kind, version]):
        raw = msgpack.packb({"type": kind.type, "version": version, "body": mutated})
        try:
            message = decode(raw, kind)
        except CodecError:
            refused += 1
            continue
        assert decode(encode(message), kind) == message, path
    assert refused > 0


@each_row("score", [{"a": math.nan}, {"": 1}, {"x" * 41: 1}, {str(n): 1 for n in range(11)}])
def test_scores_are_few_plain_numbers_with_short_names(score: dict[str, float]) -> None:
    with pytest.raises(CodecError, match="score"):
        decode(body(Reflection, reflection_id="r", playbook="p", score=score), Reflection)


@each_row("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_refused(number: float) -> None:
    with pytest.raises(CodecError):
        decode(body(Reflection, reflection_id="r", playbook="p", usage={"seconds": number}), Reflection)


def test_what_is_too_large_is_refused_before_it_is_written() -> None:
    with pytest.raises(CodecError, match="exceeds the limit"):
        encode(Reflection(reflection_id="r", playbook="p", reasoning="x" * Reflection.max_bytes))


def test_of_a_reflection_that_a_tree_saw_only_what_is_unusual_is_written() -> None:
    assert Seen(reflection_id="r", offset=7).model_dump() == {"reflection_id": "r", "offset": 7}
    unusual = {
        "ok": False,
        "said": True,
        "covered": "carried",
        "dropped": True,
        "shown_version": 0,
        "tags": ({"id": "e", "tag": "helpful"},),
        "source": {"name": "s", "proof": ""},
    }
    for name, value in unusual.items():
        seen = Seen.model_validate({"reflection_id": "r", "offset": 7, name: value})
        assert seen.model_dump() == {"reflection_id": "r", "offset": 7, name: value}
        assert Seen.model_validate_json(seen.model_dump_json()) == seen


def sparse() -> Iterator[type[Sparse]]:
    waiting = Sparse.__subclasses__()
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        yield kind


@each_row("kind", list(sparse()), ids=lambda kind: kind.__name__)
def test_a_field_that_is_left_out_has_a_plain_default(kind: type[Sparse]) -> None:
    for name in kind.UNWRITTEN:
        field = kind.model_fields[name]
        assert not field.is_required()
        assert field.default_factory is None


UNWRITABLE = {
    "half a surrogate pair": Operation(kind=OperationKind.ADD).model_copy(update={"content": "\ud800"}),
    "a number beyond 64 bits": Operation(kind=OperationKind.ADD).model_copy(update={"content": 2**64}),
    "an object": Operation(kind=OperationKind.ADD).model_copy(update={"content": object()}),
}


@pytest.mark.parametrize("operation", UNWRITABLE.values(), ids=UNWRITABLE.keys())
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_what_msgpack_cannot_hold_is_refused_with_our_error(operation: Operation) -> None:
    (example,) = [
        one for one in EXAMPLES if one.path.name == "edit.json" and one.version == one.kind.version_number
    ]
    with pytest.raises(CodecError, match="cannot be written"):
        encode(example.message.model_copy(update={"operations": (operation,)}))


def test_the_largest_bomb_costs_little_memory() -> None:
    raw = body(Playbook, name="a", version=1, ignored=[[[]] * 30_000] * 5)
    tracemalloc.start()
    try:
        decode(raw, Playbook)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 80 * len(raw)


def test_the_error_says_which_field_is_wrong() -> None:
    with pytest.raises(CodecError, match=r"invalid reflection: usage\.calls"):
        decode(body(Reflection, reflection_id="r", playbook="p", usage={"calls": "many"}), Reflection)


def test_a_version_that_nobody_can_have_says_what_this_reader_knows() -> None:
    raw = msgpack.packb({"type": "reflection", "version": 999, "body": {}})
    with pytest.raises(CodecError, match="unknown version 999 of reflection; this reader knows up to 2"):
        decode(raw, Reflection)


@each_row("kind", ALL_KINDS, ids=lambda kind: kind.type)
@each_row("ahead", [1, VERSIONS_AHEAD])
def test_a_newer_version_is_no_error_of_the_record(kind: type[Message], ahead: int) -> None:
    with pytest.raises(OtherVersionError, match=f"up to version {kind.version_number}: upgrade it") as caught:
        decode(newer(kind, ahead), kind)
    assert not isinstance(caught.value, CodecError), "who buries what cannot be read would bury this"


def test_messages_that_give_the_same_fields_hold_their_names_once() -> None:
    lessons = [Reflection(reflection_id=f"r{n}", playbook="p", key_insight="Ask first.") for n in range(2)]
    one, same, other = (decode(encode(message), Reflection) for message in (*lessons, lessons[0]))
    assert one.__pydantic_fields_set__ is same.__pydantic_fields_set__ is other.__pydantic_fields_set__
    changed = one.model_copy(update={"success": True})
    assert changed.model_fields_set is not one.model_fields_set
    fewer = decode(packed_with_fields("reflection_id", "playbook"), Reflection)
    assert fewer.model_fields_set == {"reflection_id", "playbook"}


def packed_with_fields(*names: str) -> bytes:
    """Return a reflection that gives these fields alone, as another writer might."""
    body = dict.fromkeys(names, "x")
    raw: bytes = msgpack.packb({"type": "reflection", "version": Reflection.version_number, "body": body})
    return raw
