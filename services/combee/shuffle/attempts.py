"""Which attempt a record is: its headers claim a number, a dead letter proves it.

The dead letter is read where the headers say it stands. It never changes, so the answer is the same whenever the
record is read again. This is a module of its own because it is the one look-up in shuffle that needs no state.
"""

from combee.core.dead_letters.resending import is_proven
from combee.ports import Log, PoisonError, Record, TopicPartition
from combee_schemas import topics
from combee_schemas.dead_letter import Attempt, DeadLetter, claimed_attempt
from combee_schemas.errors import OtherVersionError
from combee_schemas.reflection import Reflection

LETTERS = topics.DEAD_LETTERS.name


async def attempt_of(log: Log, record: Record, reflection: Reflection) -> tuple[int, str | None]:
    """Return which attempt a reflection is, and on which line; 0 for the first, and for a claim that nothing proves.

    A first attempt is one on every line that learns from the playbook (None), a repeat on the line that it failed on.

    Raises
    ------
    PoisonError
        If another release wrote what stands where the headers say: whoever wrote them must not stop this one.
    """
    claim = claimed_attempt(record.headers)
    if claim is None:
        return 0, None
    letter = await _letter(log, claim)
    if letter is None or not is_proven(claim, letter, reflection, record.value or b""):
        return 0, None
    return claim.number, letter.playbook


async def _letter(log: Log, claim: Attempt) -> DeadLetter | None:
    if claim.letter.partition >= await log.partitions(LETTERS):
        return None
    source = TopicPartition(topic=LETTERS, partition=claim.letter.partition)
    record = (await log.read_at(source, [claim.letter.offset])).get(claim.letter.offset)
    try:
        return topics.DEAD_LETTERS.read_or_none(record)
    except OtherVersionError as error:
        raise PoisonError(f"whether it is a repeat cannot be read: {error}") from error
