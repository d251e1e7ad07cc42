"""Dead letters sent again or dropped.

A record is sent again first and its decision written after: between the two a crash can only repeat the sending, and
receivers drop what they have done already.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from combee.core.dead_letters.resending import next_attempt, refusal
from combee.inspection.dead_letters import TOPIC, Found
from combee.ports import Clock, Log, Outgoing, TopicPartition
from combee_schemas import topics
from combee_schemas.codec import CodecError, decode
from combee_schemas.dead_letter import DeadLetter, LetterId, Resolution, attempt_headers
from combee_schemas.reflection import Reflection


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A dead letter that cannot be sent again, and what to do instead."""

    id: LetterId
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resent:
    found: Found
    letter: DeadLetter
    outgoing: Outgoing
    partition: int


async def retry(
    log: Log, clock: Clock, found: Sequence[Found], published: Mapping[str, int]
) -> tuple[list[Resolution], list[Refused]]:
    """Send the records of open dead letters again, key and value as they were; return decisions and refusals.

    ``published`` is the last batch with a version, by playbook.
    """
    resent: list[_Resent] = []
    refused: list[Refused] = []
    for one in found:
        again = await _again(log, one, published)
        if isinstance(again, str):
            refused.append(Refused(id=one.id, why=again))
        else:
            resent.append(again)
    offsets = await log.produce(*(one.outgoing for one in resent))
    decisions = [
        _decision(one.found, "retried", clock).model_copy(
            update={
                "attempt": next_attempt(one.found.id, one.letter).number,
                "retry_partition": one.partition,
                "retry_offset": offset,
            }
        )
        for one, offset in zip(resent, offsets, strict=True)
    ]
    await _record(log, decisions)
    return decisions, refused


async def drop(log: Log, clock: Clock, found: Sequence[Found], note: str) -> list[Resolution]:
    """Let open dead letters go, for the record."""
    decisions = [_decision(one, "dropped", clock).model_copy(update={"note": note}) for one in found]
    await _record(log, decisions)
    return decisions


async def _record(log: Log, decisions: Sequence[Resolution]) -> None:
    await log.produce(*map(topics.RESOLUTIONS.record, decisions))


def _decision(found: Found, decision: str, clock: Clock) -> Resolution:
    letter = found.letter
    return Resolution.model_validate(
        {
            "letter": found.id,
            "decision": decision,
            "origin_topic": letter.origin_topic if letter else TOPIC,
            "origin_partition": letter.origin_partition if letter else found.id.partition,
            "origin_offset": letter.origin_offset if letter else found.id.offset,
            "record_id": letter.record_id if letter else "",
            "playbook": letter.playbook if letter else "",
            "at_ms": clock.now_ms(),
        }
    )


async def _again(log: Log, found: Found, published: Mapping[str, int]) -> _Resent | str:
    """Return the record to send, or why not."""
    if found.letter is None:
        return "this dead letter itself cannot be read"
    why = refusal(found.letter, published)
    if why is not None:
        return why
    letter = await _whole(log, found.letter)
    if letter is None:
        return (
            "only its first bytes were kept, and the record itself is no longer where it was: publish it anew"
        )
    partition = await _partition(log, letter)
    if not 0 <= partition < await log.partitions(letter.origin_topic):
        return f"{letter.origin_topic} has no partition {partition}"
    outgoing = Outgoing(
        topic=letter.origin_topic,
        key=letter.key,
        value=letter.value,
        partition=partition,
        headers=attempt_headers(next_attempt(found.id, letter)),
    )
    return _Resent(found=found, letter=letter, outgoing=outgoing, partition=partition)


async def _whole(log: Log, letter: DeadLetter) -> DeadLetter | None:
    """Return the letter with all its bytes: of one that was cut they are where it came from, while retained."""
    if not letter.truncated:
        return letter
    source = TopicPartition(topic=letter.origin_topic, partition=letter.origin_partition)
    known = 0 <= source.partition < await log.partitions(source.topic)
    found = await log.read_at(source, [letter.origin_offset]) if known else {}
    record = found.get(letter.origin_offset)
    if record is None or sha256(record.value or b"").hexdigest() != letter.sha256:
        return None
    return letter.model_copy(update={"key": record.key, "value": record.value})


async def _partition(log: Log, letter: DeadLetter) -> int:
    """Return where the record belongs: a reflection on its playbook's partition, the rest where it was."""
    if letter.origin_topic != topics.REFLECTIONS.name:
        return letter.origin_partition
    try:
        key = topics.REFLECTIONS.key_of(decode(letter.value, Reflection))
    except CodecError:
        return letter.origin_partition
    return await log.partition_for(letter.origin_topic, key)
