"""What a dead letter holds, and which reflection it is about."""

from typing import TypeVar

from combee.core.identity import reflection_id
from combee_schemas import topics
from combee_schemas.base import Message
from combee_schemas.codec import CodecError
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.reflection import Reflection

M = TypeVar("M", bound=Message)


def message_in(letter: DeadLetter, kind: type[M] | None) -> M | None:
    """Return the message of the record that a dead letter holds; None if it is no such message, or was cut."""
    topic = topics.BY_NAME.get(letter.origin_topic)
    if kind is None or topic is None or letter.truncated:
        return None
    try:
        return topic.decoded(letter.value, kind)
    except CodecError:
        return None


def reflection_of(letter: DeadLetter) -> tuple[str, str] | None:
    """Return playbook and id of the reflection that a dead letter holds, or that its trace would have become.

    Of a record that was refused unread its bytes say it; None if nothing does.
    """
    if letter.record_id:
        is_trace = letter.origin_topic == topics.TRACES.name
        own_id = reflection_id(letter.playbook, letter.record_id) if is_trace else letter.record_id
        return letter.playbook, own_id
    is_reflection = letter.origin_topic == topics.REFLECTIONS.name
    reflection = message_in(letter, Reflection) if is_reflection else None
    return (reflection.playbook, reflection.reflection_id) if reflection else None
