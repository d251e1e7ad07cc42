"""Which groups a combine need not wait for; pure.

Copies of a reflection are in distinct groups, so a late group may be left out and every reflection is still read
once. Only the root decides: lower nodes do not know what the others have read.
"""

from collections.abc import Collection, Mapping, Sequence
from statistics import median

from combee.core.batching import shuffle, tree
from combee_schemas.base import NOTHING_SPENT, Usage
from combee_schemas.plan import Plan
from combee_schemas.scan import NodeResult

LATE = 2.0
"""A group is late after this multiple of the median of its siblings' durations.

Measured (docs/results/experiments/stragglers.md): smaller factors leave out groups where no call is slow, larger ones
give the gain away."""


def grace_s(
    plan: Plan, level: int, children: Mapping[int, NodeResult], took_s: Sequence[float]
) -> float | None:
    """Return after how many seconds a node may go on with these children alone; None: it waits for the others.

    ``took_s`` is each child's time since the closing of the batch; the last one has just finished.
    """
    if not (plan.settings.stragglers and tree.is_root(plan.widths, level)):
        return None
    if plan.left_out is not None:
        wanted = set(tree.child_indices(plan.widths, level, 0)) - set(plan.left_out)
        return 0.0 if wanted <= children.keys() else None
    covered = {seen.reflection_id for result in children.values() for seen in result.seen if seen.ok}
    if len(covered) < plan.reflections:
        return None
    return lateness_in_s(took_s)


def lateness_in_s(took_s: Sequence[float], late: float = LATE) -> float:
    """Return the seconds until the missing children are late; ``took_s`` ends now."""
    return max(0.0, late * median(took_s) - max(took_s))


def is_covered(plan: Plan, level: int) -> bool:
    """Return whether other nodes hold copies of a node's input: then a slow call is left out rather than repeated."""
    wanted, small_batches = plan.settings.copies, plan.settings.small_batches
    copies = shuffle.effective_copies(plan.reflections, wanted, plan.widths[0], small_batches)
    return level == 0 and copies > 1


def with_left_out(result: NodeResult, plan: Plan, children: Mapping[int, NodeResult]) -> NodeResult:
    """Return the root's result with the children it did not wait for, and with their calls counted."""
    level = len(plan.widths) - 1
    missing = [index for index in tree.child_indices(plan.widths, level, 0) if index not in children]
    if not missing:
        return result
    usage = _estimate(plan, children, _nodes(plan, missing))
    return result.model_copy(update={"left_out": tuple(missing), "usage": result.usage + usage})


def _estimate(plan: Plan, children: Mapping[int, NodeResult], nodes: int) -> Usage:
    """Return the estimated usage of left-out ``nodes``, at their siblings' mean; a replay does not call them."""
    if plan.left_out is not None:
        return Usage(skips=nodes)
    share = nodes / _nodes(plan, children)
    spent = sum((result.usage for result in children.values()), NOTHING_SPENT)
    return Usage(
        calls=nodes,
        left_out=nodes,
        tokens_in=round(spent.tokens_in * share),
        tokens_out=round(spent.tokens_out * share),
        seconds=spent.seconds * share,
    )


def _nodes(plan: Plan, children: Collection[int]) -> int:
    return sum(tree.size_below(plan.widths, len(plan.widths) - 2, index) for index in children)
