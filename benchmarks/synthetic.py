"""A deployment's past, written without living it: valid records of batches, updates, versions and offsets."""

from collections.abc import Sequence

from combee.adapters.ports import Log, TopicPartition
from combee.core.batching import plan
from combee.core.batching.limits import PRODUCT
from combee.core.names import identity
from combee_schemas import topics
from combee_schemas.base import Usage
from combee_schemas.batch import Batch, Member
from combee_schemas.playbook import ACE_SECTIONS, AppliedBatch, Entry, Playbook
from combee_schemas.scan import NodeResult, Seen, Update
from combee_schemas.topics import M, Topic

PER_BATCH = 20
ENTRIES = 50
CHUNK = 200
GROUPS = {"publish": topics.UPDATES.name, "control": topics.HISTORY.name}
"""Who has read what is written here to its end. Shuffle's input stays empty."""


def entries(count: int = ENTRIES) -> tuple[Entry, ...]:
    """Return so many distinct entries."""
    return tuple(
        Entry(
            id=f"str-{n:05d}",
            section=ACE_SECTIONS[0],
            content=f"When asked for Metric {n}, answer in percent with {n % 4} decimals.",
            evidence_count=1,
            evidence=(f"r{n}",),
            created_version=1,
            updated_version=1,
        )
        for n in range(count)
    )


def version(name: str, number: int, *, offset: int, known: tuple[Entry, ...]) -> Playbook:
    """Return a playbook after ``number`` batches; ``offset`` is where its newest records stand."""
    return Playbook(
        name=name,
        version=number,
        entries=known,
        next_id=len(known) + 1,
        origin="batch",
        batch=AppliedBatch(
            plan=manifest(name, number).plan.model_copy(update={"closed_at_ms": number * 60_000}),
            usage=Usage(calls=5, tokens_in=5_000, tokens_out=1_000, seconds=5.0),
        ),
        batch_sequence=number,
        through_offset=number * PER_BATCH - 1,
        manifest_offset=offset,
        history_offset=offset,
        created_at_ms=number * 60_000 + 2_000,
    )


def manifest(name: str, sequence: int) -> Batch:
    """Return the manifest of a playbook's ``sequence``-th batch."""
    first = (sequence - 1) * PER_BATCH
    members = [Member(offset=first + n, reflection_id=f"{name}/{first + n}") for n in range(PER_BATCH)]
    return plan.plan_batch(
        name,
        sequence,
        members,
        [200] * PER_BATCH,
        settings=PRODUCT,
        base=plan.Base(version=sequence - 1, sequence=sequence - 1),
        reason="size",
        batch_size=PER_BATCH,
        through_offset=members[-1].offset,
    )


def update(batch: Batch, offset: int) -> Update:
    """Return what the tree of a batch gave, without operations."""
    return Update(
        plan=batch.plan,
        manifest_offset=offset,
        node_id=identity.node_id(batch.plan.batch_id, len(batch.plan.widths) - 1, 0),
        result=NodeResult(
            status="ok",
            seen=tuple(
                Seen(reflection_id=member.reflection_id, offset=member.offset) for member in batch.members
            ),
        ),
    )


async def write_past(log: Log, name: str, versions: int, *, snapshots: int, done: int = 0) -> None:
    """Write ``versions`` batches of one playbook, but for the first ``done``, which are written.

    The last ``snapshots`` are what compaction has left.
    """
    known = entries()
    numbers = range(done + 1, versions + 1)
    batches = [manifest(name, number) for number in numbers]
    books = [version(name, n, offset=n - 1, known=known) for n in numbers]
    await _write(log, topics.BATCHES, batches)
    await _write(log, topics.UPDATES, [update(batch, n) for n, batch in enumerate(batches, done)])
    await _write(log, topics.HISTORY, books)
    await _write(log, topics.PLAYBOOKS, books[-snapshots:])
    await _commit(log, name, versions)


async def _write(log: Log, topic: Topic[M], messages: Sequence[M]) -> None:
    for start in range(0, len(messages), CHUNK):
        await log.produce(*map(topic.record, messages[start : start + CHUNK]))


async def _commit(log: Log, name: str, versions: int) -> None:
    transactor = await log.transactor("synthetic")
    for group, topic in GROUPS.items():
        source = TopicPartition(topic=topic, partition=await log.partition_for(topic, name.encode()))
        async with transactor.transaction() as transaction:
            await transaction.commit_offsets(group, {source: versions})
    await transactor.close()
