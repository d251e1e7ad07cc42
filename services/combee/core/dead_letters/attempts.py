"""Attempts: when a reflection that is sent again counts as a new attempt, and when as a repeat of what it was."""

from hashlib import sha256

from combee_schemas import topics
from combee_schemas.dead_letter import Attempt, DeadLetter
from combee_schemas.reflection import Reflection


def is_proven(claim: Attempt, letter: DeadLetter, reflection: Reflection, value: bytes) -> bool:
    """Return whether a dead letter proves what a record's headers claim: these bytes failed so many times.

    Whoever may write reflections can write headers. Without this rule any of them could make a
    reflection count again and again.
    """
    return (
        letter.origin_topic == topics.REFLECTIONS.name
        and (letter.playbook, letter.record_id) == (reflection.playbook, reflection.reflection_id)
        and letter.attempts == claim.number
        and letter.sha256 == sha256(value).hexdigest()
    )
