"""The arms that are compared: naive, the paper's two levels, the product; and other ways to deal copies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from combee.core.batching import plan, shuffle
from combee.core.batching.limits import PRODUCT
from combee.core.batching.plan import Base
from combee_schemas.batch import Batch, Member
from combee_schemas.plan import PlanSettings

Deal = Callable[[int, int, int, int], Sequence[Sequence[int]]]
"""Reflections, copies, groups, seed → the indices of the reflections in each group."""
WIDE = 1_000_000
"""A fan-in or a number of bytes that never binds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to make an update of a batch."""

    name: str
    policy: PlanSettings | None
    """None: one call for the whole batch, without copies."""
    carry: bool = False
    groups: int | None = None
    """This many groups and two levels, whatever the policy says."""
    deal: Deal = shuffle.deal
    """The product's; copies never meet in a group."""

    def plan(
        self, playbook: str, sequence: int, members: Sequence[Member], sizes: Sequence[int], base: Base
    ) -> Batch:
        """Return the manifest that this arm makes of a batch."""
        batch = plan.plan_batch(
            playbook,
            sequence,
            members,
            sizes,
            settings=self.policy or PAPER,
            base=base,
            reason="size",
            batch_size=len(members),
            through_offset=members[-1].offset,
        )
        if self.policy is None:
            return _shaped(batch, 1, (1,), "naive: one call")
        if self.groups is not None:
            wanted, small_batches = self.policy.copies, self.policy.small_batches
            copies = shuffle.effective_copies(len(members), wanted, self.groups, small_batches)
            widths = (self.groups, 1) if self.groups > 1 else (1,)
            return _shaped(batch, copies, widths, "experiment")
        return batch

    def dealt(self, batch: Batch) -> tuple[tuple[Member, ...], ...]:
        """Return the members of each group."""
        indices = self.deal(len(batch.members), batch.copies, batch.plan.widths[0], batch.seed)
        return tuple(tuple(batch.members[i] for i in group) for group in indices)


def _shaped(batch: Batch, copies: int, widths: tuple[int, ...], reason: str) -> Batch:
    header = batch.plan.model_copy(update={"widths": widths})
    return batch.model_copy(update={"plan": header, "copies": copies, "shape_reason": reason})


PAPER = PlanSettings(copies=2, fan_in=WIDE, max_levels=2, group_bytes=WIDE << 10)
"""p = 2, k = ⌊√n⌋, two levels, however much a call has to read."""

NAIVE = Arm(name="naive", policy=None)
PLAIN = Arm(name="Combee, plain", policy=PAPER)
ADAPTIVE = Arm(name="Combee, adaptive", policy=PRODUCT, carry=PRODUCT.carry)
ARMS: Mapping[str, Arm] = {one.name: one for one in (NAIVE, PLAIN, ADAPTIVE)}


def bounded(tokens: int) -> Arm:
    """Return the product with another bound on what one call may read."""
    policy = PRODUCT.model_copy(update={"aggregate_tokens": tokens})
    return replace(ADAPTIVE, name=f"{ADAPTIVE.name}, {tokens:,} tokens a call", policy=policy)


def unshuffled(reflections: int, copies: int, groups: int, seed: int) -> Sequence[Sequence[int]]:
    """Cut the reflections as they came, all once and then all again, into groups that differ by at most one."""
    del seed
    return _cut(list(range(reflections)) * copies, groups)


def shuffled(reflections: int, copies: int, groups: int, seed: int) -> Sequence[Sequence[int]]:
    """Shuffle all copies together and cut: as the paper says it, so that copies may meet in a group."""
    order = list(range(reflections)) * copies
    Random(seed).shuffle(order)  # noqa: S311 - reproducible, not secret
    return _cut(order, groups)


def _cut(order: Sequence[int], groups: int) -> Sequence[Sequence[int]]:
    bounds = [len(order) * n // groups for n in range(groups + 1)]
    return [order[start:end] for start, end in pairwise(bounds)]
