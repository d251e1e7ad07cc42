"""Whether a scan record belongs to a batch that shuffle cut: the manifest it names says so."""

from combee.history import partition_of
from combee.ports import Log
from combee_schemas import topics
from combee_schemas.batch import Batch
from combee_schemas.scan import Plan

MANIFEST_S = 30.0
"""A manifest and its groups become visible at once, but for the moment it takes to mark each partition: so
long nobody concludes from a manifest's absence. A transaction lasts half of it at most."""


async def is_planned(log: Log, plan: Plan) -> bool:
    """Return whether there is a manifest of this plan where the plan says."""
    return await manifest_of(log, plan) is not None


async def manifest_of(log: Log, plan: Plan) -> Batch | None:
    """Return the manifest of this plan, if it stands where the plan says."""
    source = await partition_of(log, topics.BATCHES, plan.playbook)
    record = (await log.read_at(source, [plan.manifest_offset])).get(plan.manifest_offset)
    batch = topics.BATCHES.read_or_none(record)
    if batch is None:
        return None
    named = (batch.playbook, batch.sequence, batch.batch_id, batch.widths, batch.method) == (
        plan.playbook,
        plan.sequence,
        plan.batch_id,
        plan.widths,
        plan.method,
    )
    return batch if named else None
