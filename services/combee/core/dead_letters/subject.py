"""Which reflection a dead letter is about."""

from combee.core.identity import reflection_id
from combee_schemas import topics
from combee_schemas.codec import CodecError, decode
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.reflection import Reflection


def reflection_of(letter: DeadLetter) -> tuple[str, str] | None:
    """Return playbook and id of the reflection that a dead letter holds, or that its trace would have become.

    Of a record that was refused unread its bytes say it; None if nothing does.
    """
    if letter.record_id:
        is_trace = letter.origin_topic == topics.TRACES.name
        own_id = reflection_id(letter.playbook, letter.record_id) if is_trace else letter.record_id
        return letter.playbook, own_id
    if letter.origin_topic != topics.REFLECTIONS.name or letter.truncated:
        return None
    try:
        reflection = decode(letter.value, Reflection)
    except CodecError:
        return None
    return reflection.playbook, reflection.reflection_id
