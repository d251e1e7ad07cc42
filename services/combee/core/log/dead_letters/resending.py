"""Resending dead letters: which may be resent, and when a repeat counts as a new attempt."""

from collections.abc import Mapping
from hashlib import sha256

from combee.core.log.dead_letters.subject import message_in
from combee_schemas import topics
from combee_schemas.base import playbook_of
from combee_schemas.dead_letter import Attempt, DeadLetter, LetterId
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Group, Partial, Planned, Update

MAX_ATTEMPTS = 9999
RESENT = frozenset(topic.name for topic in topics.TOPICS if topic.is_open)
PLANNED: Mapping[str, type[Group] | type[Partial] | type[Update]] = {
    topic.name: topic.message for topic in (*topics.SCAN, topics.UPDATES)
}
"""Records that belong to a batch and are usable until it has its version."""


def planned_in(letter: DeadLetter) -> Planned | None:
    """Return the record of the scan in a dead letter, if it can be read."""
    return message_in(letter, PLANNED.get(letter.origin_topic))


def refusal(letter: DeadLetter, published: Mapping[str, int]) -> str | None:
    """Return why a record cannot be resent, and the remedy; None if it can.

    ``published`` is the last batch with a version, by playbook.
    """
    name = letter.origin_topic
    if name == topics.COMMANDS.name:
        return "a command is never sent again: issue a new one"
    if name not in RESENT | PLANNED.keys():
        return f"records of {name} are never sent again: its readers accept records from services only"
    if letter.value is None:
        return "there are no bytes to send again (a tombstone, or a record that could not be unpacked)"
    if letter.attempts > MAX_ATTEMPTS:
        return f"it has failed {letter.attempts} times: publish it under a new id"
    record = planned_in(letter)
    plan = record.plan if record else None
    if plan is not None and plan.sequence <= published.get(plan.playbook, 0):
        return (
            f"batch {plan.sequence} of {plan.playbook} has its version already; the reflections missing in it have"
            " dead letters of their own under 'reflections'"
        )
    return None


def next_attempt(identity: LetterId, letter: DeadLetter) -> Attempt:
    """Return the header values of a resent record."""
    return Attempt(number=max(1, letter.attempts), letter=identity)


def is_proven(claim: Attempt, letter: DeadLetter, reflection: Reflection, value: bytes) -> bool:
    """Return whether a dead letter proves the number of failures claimed by the headers of a record with these bytes.

    Anybody with the right to write reflections can write headers; without this rule they could make a reflection
    count repeatedly.
    """
    return (
        letter.origin_topic == topics.REFLECTIONS.name
        and (playbook_of(letter.playbook), letter.record_id)
        == (reflection.playbook, reflection.reflection_id)
        and letter.attempts == claim.number
        and letter.sha256 == sha256(value).hexdigest()
    )
