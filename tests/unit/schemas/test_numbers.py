"""Numbers that agents write: what is read can be written."""

import pytest

from combee_schemas.base import Message
from combee_schemas.codec import CodecError, decode, encode
from combee_schemas.topics import TOPICS, AnyTopic
from support.hostile import body
from support.numbers import extreme_bodies, number_paths

OPEN = [topic for topic in TOPICS if topic.is_open]


@pytest.mark.parametrize("topic", OPEN, ids=lambda topic: topic.name)
def test_a_number_that_could_not_be_written_is_refused_wherever_an_agent_may_give_one(
    topic: AnyTopic,
) -> None:
    kind: type[Message] = topic.message
    assert ("created_at_ms",) in set(number_paths(kind))
    refused: list[str] = []
    for name, fields in extreme_bodies(kind):
        try:
            message = decode(body(kind, **fields), kind)
        except CodecError:
            refused.append(name)
            continue
        assert decode(encode(message), kind) == message, name
    assert any(name.startswith("created_at_ms=9999") for name in refused)
