"""What it costs to compare the records of a batch with its manifest: in scan, and once more in publish."""

import time
from collections.abc import Sequence

from benchmarks.rows import Row, row
from combee.core.batching.plan import Base, make_groups, plan_batch
from combee.core.batching.planned import forgery, kept_of
from combee.core.names import identity
from combee.process.settings.batch import BatchSettings
from combee.process.settings.methods import plan_settings
from combee_schemas import topics
from combee_schemas.batch import Batch, Member
from combee_schemas.codec import decode
from combee_schemas.reflection import Reflection
from combee_schemas.scan import NodeResult, Operation, OperationKind, Partial, Planned, Seen, Update

TIMEOUT_S = 60.0
REFLECTIONS = 40
REPEATS = 50
BAR_MS = 1.0


async def measure(_bootstrap_servers: str, runs: int) -> list[Row]:
    """Return the rows; a run is the mean of ``REPEATS``. No broker is asked."""
    batch = _batch()
    value = topics.BATCHES.record(batch).value or b""
    records = _records(batch)
    decoding, checking = [], []
    for _ in range(runs):
        begin = time.process_time()
        for _ in range(REPEATS):
            manifest = kept_of(decode(value, Batch))
        decoded = time.process_time()
        for _ in range(REPEATS):
            assert not any(forgery(record, manifest) for record in records)  # noqa: S101 - they are honest
        decoding.append(1000 * 2 * (decoded - begin) / REPEATS)
        checking.append(1000 * (time.process_time() - decoded) / REPEATS)
    both = [one + other for one, other in zip(decoding, checking, strict=True)]
    return [
        row(f"comparing a batch of {REFLECTIONS} with its manifest, scan and publish", both, "ms", BAR_MS),
        row("of it reading the manifest, in both", decoding, "ms"),
    ]


def _batch() -> Batch:
    members = [
        Member(offset=n, reflection_id=f"r-{identity.content_id('r', str(n))}") for n in range(REFLECTIONS)
    ]
    return plan_batch(
        "support/refunds",
        1,
        members,
        [500] * REFLECTIONS,
        settings=plan_settings(BatchSettings(), 16_000),
        base=Base(version=0, sequence=0),
        reason="size",
        batch_size=REFLECTIONS,
        through_offset=REFLECTIONS - 1,
    )


def _records(batch: Batch) -> Sequence[Planned]:
    """Return what scan and publish read of a batch with two levels, where every reflection became an operation."""
    plan, offsets = batch.plan, {member.reflection_id: member.offset for member in batch.members}
    bodies = {
        offset: Reflection(reflection_id=name, playbook=plan.playbook, key_insight="a lesson")
        for name, offset in offsets.items()
    }
    groups = make_groups(batch, 0, bodies)
    partials = [
        Partial(
            plan=plan,
            manifest_offset=0,
            node_id=group.node_id,
            parent_id=identity.node_id(plan.batch_id, 1, 0),
            level=0,
            index=group.index,
            result=_result([member.reflection.reflection_id for member in group.members], offsets),
        )
        for group in groups
        if len(plan.widths) > 1
    ]
    root = identity.node_id(plan.batch_id, len(plan.widths) - 1, 0)
    update = Update(plan=plan, manifest_offset=0, node_id=root, result=_result(list(offsets), offsets))
    return [*groups, *partials, update]


def _result(names: Sequence[str], offsets: dict[str, int]) -> NodeResult:
    return NodeResult(
        status="ok",
        operations=tuple(
            Operation(kind=OperationKind.ADD, section="OTHERS", content="a lesson", evidence=(name,))
            for name in names
        ),
        seen=tuple(Seen(reflection_id=name, offset=offsets[name]) for name in names),
    )
