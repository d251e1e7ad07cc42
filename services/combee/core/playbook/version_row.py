"""One version without its entries, as lists of versions show it."""

from collections import Counter
from typing import Any

from combee.core.playbook.probation import counts
from combee.core.playbook.retention import shares
from combee_schemas.playbook import Playbook


def version_row(playbook: Playbook) -> dict[str, Any]:
    """Return a version's origin, its changes, and its batch's results.

    A version that a command made is based on the version before it.
    """
    batch = playbook.batch
    plan = batch.plan if batch else None
    return {
        "version": playbook.version,
        "origin": playbook.origin,
        "issued_by": playbook.issued_by,
        "batch_sequence": plan.sequence if plan else None,
        "batch_id": plan.batch_id if plan else "",
        "base_version": plan.base_version if plan else playbook.version - 1,
        "staleness": plan.staleness if plan else 0,
        "reflections": playbook.reflections,
        "sources": dict(batch.sources) if batch else {},
        "model_calls": playbook.usage.calls,
        "retention": shares(playbook.audit)["retention"],
        "audit": playbook.audit,
        "degraded": batch.degraded if batch else False,
        "closed_at_ms": plan.closed_at_ms if plan else 0,
        "seconds": (playbook.created_at_ms - plan.closed_at_ms) / 1000
        if plan and plan.closed_at_ms
        else None,
        **counts(playbook),
        "changes": dict(Counter(change.kind for change in playbook.changes)),
        "created_at_ms": playbook.created_at_ms,
    }
