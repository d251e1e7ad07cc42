"""Two-level aggregation with the stand-in, as Combee plans it, without the services (all simulated)."""

from collections.abc import Sequence

from combee.core.batching.shuffle import deal, effective_copies, group_count
from combee.core.methods.ace import aggregate_prompt, combine_prompt
from combee.core.playbook.apply import empty
from combee.core.playbook.operations import read_operations
from combee.sim.inprocess import as_request
from combee.sim.law.law import LAW, Law
from combee.sim.law.naive import PLAYBOOK, updated
from combee.sim.roles.aggregator import aggregate
from combee.sim.roles.reading import read
from combee_schemas.model import Prompt
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Operation

COPIES = 2


def run_two_levels(
    reflections: Sequence[Reflection], batch_size: int, *, seed: int = 0, law: Law = LAW
) -> tuple[tuple[int, ...], Playbook]:
    """Update a growing playbook batch by batch; return the operations per update and the last playbook."""
    playbook = empty(PLAYBOOK)
    counts: list[int] = []
    for start in range(0, len(reflections), batch_size):
        operations = _update(playbook, reflections[start : start + batch_size], seed + start, law)
        counts.append(len(operations))
        playbook = updated(playbook, operations)
    return tuple(counts), playbook


def _update(base: Playbook, batch: Sequence[Reflection], seed: int, law: Law) -> tuple[Operation, ...]:
    groups = group_count(len(batch))
    dealt = deal(len(batch), effective_copies(len(batch), COPIES, groups), groups, seed)
    proposals: list[Operation] = []
    for indices in dealt:
        members = [batch[index] for index in indices]
        sources = [(member.reflection_id,) for member in members]
        proposals += _call(aggregate_prompt(base, members), sources, seed, law)
    if groups == 1 or not proposals:
        return tuple(proposals)
    return _call(combine_prompt(base, proposals), [one.evidence for one in proposals], seed, law)


def _call(prompt: Prompt, sources: Sequence[tuple[str, ...]], seed: int, law: Law) -> tuple[Operation, ...]:
    reply = aggregate(read(as_request(prompt)), seed, law)
    return read_operations(reply, sources).operations
