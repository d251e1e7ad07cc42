"""Decisions on dead letters: ``retry`` sends their records again, ``drop`` closes them.

A dead letter gets one decision, which is final. ``retry`` first sends the record, then writes the decision. After a
crash between the two, the record may be sent a second time; its readers drop such a repeat.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from combee.adapters.ports import Clock, Log, Outgoing, TopicPartition
from combee.core.commands import RefusedError
from combee.core.log.dead_letters.resending import PLANNED, next_attempt, refusal
from combee.core.log.dead_letters.subject import message_in
from combee.log.history import newest_snapshots
from combee.log.inspection import dead_letters
from combee.log.inspection.dead_letters import TOPIC, StoredLetter
from combee_schemas import topics
from combee_schemas.base import Message
from combee_schemas.dead_letter import DeadLetter, LetterId, Resolution, attempt_headers
from combee_schemas.records import IDENTITY_HEADER, PROOF_HEADER
from combee_schemas.reflection import Reflection

AT_ONCE = 100
"""Maximum number of dead letters in memory. They are processed in lots of this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The conditions under which a dead letter is chosen."""

    service: str | None = None
    reason: str | None = None
    """A part of its reason."""
    resolved: bool = False
    """Whether to choose dead letters with a decision, too."""

    def match(self, stored: StoredLetter, resolution: Resolution | None) -> bool:
        """Return whether a dead letter meets the conditions; ``resolution`` is the decision on it."""
        if resolution is not None and not self.resolved:
            return False
        letter = stored.letter
        if letter is None:
            return self.service is None and self.reason is None
        by_service = self.service in {None, letter.service}
        return by_service and (self.reason or "").casefold() in letter.reason.casefold()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A dead letter that cannot be sent again, and what to do instead."""

    id: LetterId
    why: str


@dataclass(slots=True)
class Decided:
    """The result of ``retry`` or ``drop``."""

    done: list[Resolution] = field(default_factory=list)
    before: list[Resolution] = field(default_factory=list)
    """Earlier decisions on the same dead letters: they stand, and nothing was done."""
    refused: list[Refused] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resent:
    stored: StoredLetter
    letter: DeadLetter
    outgoing: Outgoing
    partition: int


async def retry(
    log: Log,
    clock: Clock,
    chosen: Sequence[LetterId] | Filters,
    *,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Decided:
    """Send the records of the chosen dead letters again, with the same key and value.

    ``chosen``: ids, or the conditions for all dead letters.

    Raises
    ------
    RefusedError
        If there is no such dead letter. Earlier lots stay sent and decided.
    """
    decided, known = Decided(), await dead_letters.resolutions(log)
    ids = await _matching(log, chosen, known) if isinstance(chosen, Filters) else chosen
    done = 0
    async for lot in _lots(log, ids, known, decided):
        decisions, refused = await resend(log, clock, lot, await _last_batches(log, lot))
        decided.done += decisions
        decided.refused += refused
        done += len(lot)
        on_progress(done, len(ids))
    return decided


async def drop(log: Log, clock: Clock, ids: Sequence[LetterId], note: str) -> Decided:
    """Close dead letters without sending their records; ``note`` says why.

    Raises
    ------
    RefusedError
        If there is no such dead letter.
    """
    decided = Decided()
    async for lot in _lots(log, ids, await dead_letters.resolutions(log), decided):
        decisions = [_decision(letter, "dropped", clock).model_copy(update={"note": note}) for letter in lot]
        await _record(log, decisions)
        decided.done += decisions
    return decided


async def _matching(log: Log, filters: Filters, known: Mapping[LetterId, Resolution]) -> Sequence[LetterId]:
    letters = dead_letters.letters(log, lambda _read, _total: None)
    return [letter.id async for letter in letters if filters.match(letter, known.get(letter.id))]


async def _lots(
    log: Log, ids: Sequence[LetterId], known: Mapping[LetterId, Resolution], decided: Decided
) -> AsyncIterator[Sequence[StoredLetter]]:
    """Yield the undecided dead letters in lots; add the earlier decisions on the others to ``decided``."""
    once = list(dict.fromkeys(ids))
    decided.before += [known[identity] for identity in once if identity in known]
    undecided = [identity for identity in once if identity not in known]
    for start in range(0, len(undecided), AT_ONCE):
        lot = undecided[start : start + AT_ONCE]
        letters = await dead_letters.letters_at(log, lot)
        missing = [str(identity) for identity in lot if identity not in letters]
        if missing:
            raise RefusedError("unknown", f"there is no dead letter {', '.join(missing)}")
        yield [letters[identity] for identity in lot]


async def _last_batches(log: Log, letters: Sequence[StoredLetter]) -> dict[str, int]:
    """Return each playbook's last batch with a version; nothing if none of these records belongs to a batch."""
    if not any(letter.letter and letter.letter.origin_topic in PLANNED for letter in letters):
        return {}
    return {name: newest.batch_sequence for name, newest in (await newest_snapshots(log)).items()}


async def resend(
    log: Log, clock: Clock, letters: Sequence[StoredLetter], published: Mapping[str, int]
) -> tuple[list[Resolution], list[Refused]]:
    """Send the records of open dead letters again; return decisions and refusals.

    ``published`` is the last batch with a version, by playbook.
    """
    resent: list[_Resent] = []
    refused: list[Refused] = []
    for letter in letters:
        again = await _resendable(log, letter, published)
        if isinstance(again, str):
            refused.append(Refused(id=letter.id, why=again))
        else:
            resent.append(again)
    offsets = await log.produce(*(again.outgoing for again in resent))
    decisions = [
        _decision(again.stored, "retried", clock).model_copy(
            update={
                "attempt": next_attempt(again.stored.id, again.letter).number,
                "retry_partition": again.partition,
                "retry_offset": offset,
            }
        )
        for again, offset in zip(resent, offsets, strict=True)
    ]
    await _record(log, decisions)
    return decisions, refused


async def _record(log: Log, decisions: Sequence[Resolution]) -> None:
    await log.produce(*map(topics.RESOLUTIONS.record, decisions))


def _decision(stored: StoredLetter, decision: str, clock: Clock) -> Resolution:
    letter = stored.letter
    return Resolution.model_validate(
        {
            "letter": stored.id,
            "decision": decision,
            "origin_topic": letter.origin_topic if letter else TOPIC,
            "origin_partition": letter.origin_partition if letter else stored.id.partition,
            "origin_offset": letter.origin_offset if letter else stored.id.offset,
            "record_id": letter.record_id if letter else "",
            "playbook": letter.playbook if letter else "",
            "at_ms": clock.now_ms(),
        }
    )


async def _resendable(log: Log, stored: StoredLetter, published: Mapping[str, int]) -> _Resent | str:
    """Return the record to send, or the reason why it cannot be sent."""
    if stored.letter is None:
        return "this dead letter itself cannot be read"
    why = refusal(stored.letter, published)
    if why is not None:
        return why
    letter = await _whole(log, stored.letter)
    if letter is None:
        return (
            "only its first bytes were kept, and the record itself is no longer where it was: publish it anew"
        )
    size = len(letter.key or b"") + len(letter.value or b"")
    if size > Message.max_bytes:
        return f"its key and value have {size:,} bytes, which fit in no message: publish it anew, shorter"
    partition = await _partition(log, letter)
    if not 0 <= partition < await log.partitions(letter.origin_topic):
        return f"{letter.origin_topic} has no partition {partition}"
    outgoing = Outgoing(
        topic=letter.origin_topic,
        key=letter.key,
        value=letter.value,
        partition=partition,
        headers=(
            *attempt_headers(next_attempt(stored.id, letter)),
            *(((PROOF_HEADER, letter.proof),) if letter.proof else ()),
            *(((IDENTITY_HEADER, letter.identity.encode()),) if letter.identity else ()),
        ),
    )
    return _Resent(stored=stored, letter=letter, outgoing=outgoing, partition=partition)


async def _whole(log: Log, letter: DeadLetter) -> DeadLetter | None:
    """Return a letter with its whole record, which is read again if the letter has only the first bytes.

    None: the record is no longer in the log.
    """
    if not letter.truncated:
        return letter
    source = TopicPartition(topic=letter.origin_topic, partition=letter.origin_partition)
    known = 0 <= source.partition < await log.partitions(source.topic)
    records = await log.read_at(source, [letter.origin_offset]) if known else {}
    record = records.get(letter.origin_offset)
    if record is None or sha256(record.value or b"").hexdigest() != letter.sha256:
        return None
    return letter.model_copy(update={"key": record.key, "value": record.value, "truncated": False})


async def _partition(log: Log, letter: DeadLetter) -> int:
    """Return the partition to send to: a reflection's is that of its playbook, any other record's is the same."""
    if letter.origin_topic != topics.REFLECTIONS.name:
        return letter.origin_partition
    reflection = message_in(letter, Reflection)
    if reflection is None:
        return letter.origin_partition
    return await log.partition_for(letter.origin_topic, topics.REFLECTIONS.key_of(reflection))
