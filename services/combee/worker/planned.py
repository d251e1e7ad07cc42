"""Whether a scan record belongs to a batch that shuffle cut: the manifest it names says so."""

from combee.history import partition_of
from combee.ports import Log
from combee_schemas import topics
from combee_schemas.batch import Batch
from combee_schemas.plan import Plan

MANIFEST_S = 30.0
"""A manifest and its groups become visible at once, but for the moment it takes to mark each partition: so
long nobody concludes from a manifest's absence. A transaction lasts half of it at most."""


async def is_planned(log: Log, plan: Plan, manifest_offset: int) -> bool:
    """Return whether the manifest of this plan stands there."""
    return await manifest_of(log, plan, manifest_offset) is not None


async def manifest_of(log: Log, plan: Plan, manifest_offset: int) -> Batch | None:
    """Return the manifest of this plan, if it stands there."""
    source = await partition_of(log, topics.BATCHES, plan.playbook)
    record = (await log.read_at(source, [manifest_offset])).get(manifest_offset)
    batch = topics.BATCHES.read_or_none(record)
    return batch if batch is not None and _is_of(batch.plan, plan) else None


def _is_of(header: Plan, plan: Plan) -> bool:
    """Return whether a plan is a manifest's own; the plans of version 1 said less than their manifests."""
    if header.sha256:
        return header == plan
    known = header.model_copy(update={"settings": plan.settings})
    return known == plan and header.settings.method == plan.settings.method
