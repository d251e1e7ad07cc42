"""What each message says of itself once: what its texts may hold, whose it is, which runs it tells of."""

from collections.abc import Iterator
from enum import Enum, auto
from typing import Literal

import pytest

from combee.core.log.erasure.lessons import Lessons
from combee.core.log.erasure.rewriting import Rewriter
from combee.core.log.erasure.runs import Runs
from combee.core.log.erasure.selector import Marker, Selector, Subjects
from combee_schemas import topics
from combee_schemas.base import Message, Value
from combee_schemas.codec import encode
from combee_schemas.marks import Name, Text, TextKind, Word, rewritten
from combee_schemas.outcome import Outcome
from combee_schemas.records import Record
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Seen
from combee_schemas.trace import PASSED_ON, Trace
from support.examples import KINDS, examples
from support.rows import each_row

SUBJECT = "jane@example.com"
OF_NOBODY = {"answer", "erasure"}
MAY_BE_OF_NOBODY = {"dead-letter", "resolution", "held-back"}
each_kind = each_row("kind", KINDS.values(), ids=KINDS.keys())


def newest(kind: type[Message]) -> Iterator[Message]:
    return (
        example.message
        for example in examples()
        if example.kind is kind and example.version == kind.version_number
    )


def values(value: Value) -> Iterator[Value]:
    yield value
    for name in type(value).model_fields:
        inner = getattr(value, name)
        for each in inner if isinstance(inner, tuple) else (inner,):
            if isinstance(each, Value):
                yield from values(each)


@each_kind
def test_every_text_of_every_message_says_whether_it_may_hold_what_users_wrote(kind: type[Message]) -> None:
    for message in newest(kind):
        assert rewritten(message, {}) is message


def test_a_text_that_does_not_say_it_is_named() -> None:
    class Inner(Value):
        said: str = ""

    class Outer(Value):
        inner: tuple[Inner, ...] = (Inner(),)

    with pytest.raises(TypeError, match=r"Inner\.said"):
        rewritten(Outer(), {})


def test_only_texts_of_the_kinds_that_are_wanted_are_rewritten_wherever_they_stand() -> None:
    class Color(Enum):
        NUMBER = auto()

    class Inner(Value):
        told: Text = "a"
        by: Name | None = "a"
        on: Text | None = None
        way: Literal["a", "A"] = "a"
        color: Color = Color.NUMBER

    class Outer(Value):
        inner: Inner | None = Inner()
        many: tuple[Inner, ...] = (Inner(),)
        metadata: dict[Name, Text] = {"a": "a"}  # noqa: RUF012 - pydantic copies it
        method: Word = "a"
        pair: tuple[int, float] = (1, 2.0)

    assert rewritten(Outer(), {TextKind.TEXT: str.upper}) == Outer(
        inner=Inner(told="A"), many=(Inner(told="A"),), metadata={"a": "A"}
    )
    assert rewritten(Outer(), dict.fromkeys((TextKind.NAME, TextKind.WORD), str.upper)) == Outer(
        inner=Inner(by="A", way="A"), many=(Inner(by="A", way="A"),), metadata={"A": "a"}, method="A"
    )


@each_kind
def test_of_a_message_that_names_the_subject_in_every_text_nothing_is_left_that_does(
    kind: type[Message],
) -> None:
    for message in newest(kind):
        naming = rewritten(message, {TextKind.TEXT: lambda _: f"write to {SUBJECT}"})
        topic = next(each for each in topics.TOPICS if kind in (each.message, *each.beside))
        record = Record(
            topic=topic.name, partition=0, offset=0, timestamp_ms=0, key=b"key", value=encode(naming)
        )
        lessons = Lessons(Selector(subjects=Subjects((SUBJECT,))), Runs())
        left = Rewriter(lessons, Marker(b"secret")).record(topic, record)
        assert left is None or SUBJECT.encode() not in (left.value or b"")


@each_kind
def test_every_message_says_whose_it_is(kind: type[Message]) -> None:
    assert bool(kind.PLAYBOOK) == (kind.type not in OF_NOBODY)
    for message in newest(kind):
        assert bool(message.playbook_name) == (kind.type not in OF_NOBODY) or kind.type in MAY_BE_OF_NOBODY


@each_kind
def test_a_message_of_a_run_has_its_ids(kind: type[Message]) -> None:
    assert bool(kind.RUN_IDS) == (
        kind.type in {"trace", "reflection", "outcome", "group", "partial", "update"}
    )
    for message in newest(kind):
        ids = {value.reflection_id for value in values(message) if isinstance(value, Reflection | Seen)}
        assert ids <= set(message.run_ids) or not kind.RUN_IDS


def test_reflection_and_outcome_have_every_field_that_a_trace_passes_on() -> None:
    of_all = Trace.model_fields.keys() & Reflection.model_fields.keys() & Outcome.model_fields.keys()
    assert of_all == {*PASSED_ON, "created_at_ms"}, "the time is each record's own"
