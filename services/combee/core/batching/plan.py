"""From a closing window to a manifest, and from a manifest to its groups: pure, hence replayable."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from combee.core import identity
from combee.core.batching import shuffle
from combee.core.batching.shape import plan_shape
from combee_schemas.base import Holds
from combee_schemas.batch import Batch, CloseReason, Member
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Group, GroupMember, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPolicy:
    """The shape of batches: paper defaults p = 2 and k = ⌊√n⌋."""

    method: str = "ace"
    holds: Holds = "entries"
    copies: int
    fan_in: int
    max_levels: int
    group_bytes: int
    """Most bytes of reflections that one aggregator call may get."""
    aggregate_tokens: int | None = None
    """Most tokens of reflections or proposals that one aggregator call should read; None: the paper's shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The playbook version that all nodes of a batch see."""

    version: int
    sequence: int
    """The last batch it contains."""
    history_offset: int


def plan_batch(
    playbook: str,
    sequence: int,
    members: Sequence[Member],
    sizes: Sequence[int],
    *,
    policy: PlanPolicy,
    base: Base,
    reason: CloseReason,
    batch_size: int,
    through_offset: int,
    dropped: Sequence[Member] = (),
    closed_at_ms: int = 0,
) -> Batch:
    """Return the manifest of a batch of ``members``; ``sizes`` are their bytes."""
    seed = identity.batch_seed(playbook, sequence, tuple(m.reflection_id for m in members))
    shape = plan_shape(
        sizes,
        seed,
        copies=policy.copies,
        fan_in=policy.fan_in,
        max_levels=policy.max_levels,
        group_bytes=policy.group_bytes,
        aggregate_tokens=policy.aggregate_tokens,
    )
    return Batch(
        batch_id=identity.batch_id(playbook, sequence),
        playbook=playbook,
        method=policy.method,
        holds=policy.holds,
        sequence=sequence,
        seed=seed,
        members=tuple(members),
        dropped=tuple(dropped),
        copies=shape.copies,
        widths=shape.widths,
        shape_reason=shape.reason,
        base_version=base.version,
        base_sequence=base.sequence,
        base_history_offset=base.history_offset,
        through_offset=through_offset,
        reason=reason,
        batch_size=batch_size,
        closed_at_ms=closed_at_ms,
    )


def deal_batch(batch: Batch) -> tuple[tuple[Member, ...], ...]:
    """Return the members of each level-0 group: a pure function of the manifest."""
    dealt = shuffle.deal(len(batch.members), batch.copies, batch.widths[0], batch.seed)
    return tuple(tuple(batch.members[i] for i in group) for group in dealt)


def make_groups(batch: Batch, manifest_offset: int, bodies: Mapping[int, Reflection]) -> tuple[Group, ...]:
    """Return the groups; ``bodies`` are the reflections by offset."""
    plan = make_plan(batch, manifest_offset)
    return tuple(
        Group(
            plan=plan,
            node_id=identity.node_id(batch.batch_id, 0, index),
            index=index,
            members=tuple(GroupMember(offset=m.offset, reflection=bodies[m.offset]) for m in members),
        )
        for index, members in enumerate(deal_batch(batch))
    )


def make_plan(batch: Batch, manifest_offset: int) -> Plan:
    """Return what every scan record of this batch carries."""
    return Plan(
        batch_id=batch.batch_id,
        playbook=batch.playbook,
        method=batch.method,
        holds=batch.holds,
        sequence=batch.sequence,
        widths=batch.widths,
        base_version=batch.base_version,
        base_sequence=batch.base_sequence,
        base_history_offset=batch.base_history_offset,
        manifest_offset=manifest_offset,
        through_offset=batch.through_offset,
        reflections=len(batch.members),
        batch_size=batch.batch_size,
        waiting=batch.waiting,
        reason=batch.reason,
        reflect_usage=batch.reflect_usage,
        closed_at_ms=batch.closed_at_ms,
    )
