"""The message in a dead letter, and the reflection it concerns."""

from typing import TypeVar

from combee.core.names.identity import claimed_identities, derived_ids
from combee_schemas import topics
from combee_schemas.base import Message
from combee_schemas.codec import CodecError
from combee_schemas.dead_letter import DeadLetter
from combee_schemas.records import PROOF_HEADER
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace

M = TypeVar("M", bound=Message)


def message_in(letter: DeadLetter, kind: type[M] | None) -> M | None:
    """Return the message of a dead letter's record; None if it is not of this kind, or was cut."""
    topic = topics.BY_NAME.get(letter.origin_topic)
    if kind is None or topic is None or letter.truncated:
        return None
    try:
        return topic.decoded(letter.value, kind)
    except CodecError:
        return None


def owner_in(letter: DeadLetter) -> str:
    """Return the owner of a dead trace by its proof, if readable; empty: no owner."""
    trace = message_in(letter, Trace) if letter.proof else None
    return trace.source.name if trace and trace.source else ""


def reflection_of(letter: DeadLetter) -> tuple[str, str] | None:
    """Return playbook and id of a dead letter's reflection, or of the one its trace would have become.

    They are read from the bytes of a record that was refused unread; None if unknown.
    """
    if letter.record_id:
        is_trace = letter.origin_topic == topics.TRACES.name
        if is_trace:
            return letter.playbook, derived_ids(letter.playbook, letter.record_id, owner_in(letter))[0]
        return letter.playbook, letter.record_id
    is_reflection = letter.origin_topic == topics.REFLECTIONS.name
    reflection = identified_in(letter, Reflection) if is_reflection else None
    return (reflection.playbook, reflection.reflection_id) if reflection else None


def identified_in(letter: DeadLetter, kind: type[M] | None) -> M | None:
    """Return a dead letter's message, a reflection under its verified or claimed identity."""
    message = message_in(letter, kind)
    if not isinstance(message, Reflection):
        return message
    proof = ((PROOF_HEADER, letter.proof),) if letter.proof else ()
    own_id = letter.record_id or claimed_identities(message.reflection_id, message.source, proof)[0]
    return message.model_copy(update={"reflection_id": own_id})
