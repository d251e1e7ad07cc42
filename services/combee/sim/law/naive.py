"""Naive and two-level aggregation with the stand-in, without the services (all simulated)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random

from combee.core.batching.shuffle import deal, effective_copies, group_count
from combee.core.methods.ace import aggregate_prompt, combine_prompt, reflect_prompt
from combee.core.methods.method import Answer, Sources
from combee.core.playbook.entries import apply_operations
from combee.core.playbook.operations import read_operations
from combee.core.playbook.versions import empty
from combee.core.shortening import task_excerpt
from combee.sim.family.family import questions, read_question
from combee.sim.family.knowledge import NOTHING_KNOWN, Knowledge
from combee.sim.family.quantities import QUANTITIES
from combee.sim.inprocess import as_request
from combee.sim.law.law import LAW, Law
from combee.sim.modes import NO_MODES, Modes
from combee.sim.roles.aggregator import aggregate, load
from combee.sim.roles.reading import read
from combee.sim.roles.respond import respond
from combee_schemas.model import Prompt
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Operation
from combee_schemas.trace import Trace

PLAYBOOK = "simulated"
FAMILY_SIZE = 50
"""As many conventions as the Formula data have formulas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One naive update call: what it read and how many lessons it kept, as new entries or as known ones."""

    distinct: int
    tokens: float
    entries: int


def family_traces(rng: Random, count: int) -> tuple[Trace, ...]:
    """Return runs of an agent without lessons on the built-in family."""
    drawn = questions(rng, QUANTITIES[:FAMILY_SIZE])
    asked = [next(drawn) for _ in range(count)]
    return tuple(_trace(n, sample.text, sample.target) for n, sample in enumerate(asked))


def _trace(number: int, task: str, target: str) -> Trace:
    asked = read_question(task)
    answer = asked.naive() if asked else None
    return Trace(
        trace_id=f"simulated-{number}", playbook=PLAYBOOK, task=task, answer=answer or "", target=target
    )


def task_traces(rows: Sequence[tuple[str, str]]) -> tuple[Trace, ...]:
    """Return runs that gave no answer, for tasks with their targets."""
    return tuple(_trace(n, task, target) for n, (task, target) in enumerate(rows))


def reflections_on(
    traces: Sequence[Trace],
    seed: int = 0,
    *,
    knowledge: Knowledge = NOTHING_KNOWN,
    modes: Modes = NO_MODES,
) -> tuple[Reflection, ...]:
    """Return what the stand-in's reflector says about each run, through the real prompt."""
    requests = (as_request(reflect_prompt(trace, ())) for trace in traces)
    replies = (respond(request, seed, knowledge, modes=modes).reply for request in requests)
    return tuple(
        Reflection(reflection_id=trace.trace_id, playbook=PLAYBOOK, task_excerpt=task_excerpt(trace), **reply)
        for trace, reply in zip(traces, replies, strict=True)
    )


def run_naive(
    reflections: Sequence[Reflection], batch_size: int, *, seed: int = 0, law: Law = LAW
) -> tuple[tuple[Call, ...], Playbook]:
    """Update a growing playbook one batch and one call at a time."""
    playbook = empty(PLAYBOOK)
    calls: list[Call] = []
    for start in range(0, len(reflections), batch_size):
        batch = reflections[start : start + batch_size]
        reading = read(as_request(aggregate_prompt(playbook, batch)))
        reply = aggregate(reading, seed, law)
        answer = read_operations(reply, [(reflection.reflection_id,) for reflection in batch])
        read_this = load(reading, law)
        entries = entries_stated(answer.operations, answer.known.values())
        calls.append(Call(distinct=len(read_this.distinct), tokens=read_this.tokens, entries=entries))
        playbook = updated(playbook, answer.operations)
    return tuple(calls), playbook


def entries_stated(operations: Sequence[Operation], known: Iterable[str]) -> int:
    """Return how many entries an update comes to as the paper counts them: a repeat is one, too.

    ``known``: the entries that the model named instead of repeating what they say.
    """
    return len(operations) + len(set(known))


def updated(playbook: Playbook, operations: Sequence[Operation]) -> Playbook:
    """Return the next version: the same lesson twice stays one entry."""
    draft = apply_operations(playbook, operations, ())
    changed = {
        "version": draft.version,
        "entries": tuple(draft.entries.values()),
        "next_id": draft.next_id,
    }
    return playbook.model_copy(update=changed)


COPIES = 2


def run_two_levels(
    reflections: Sequence[Reflection], batch_size: int, *, seed: int = 0, law: Law = LAW
) -> tuple[tuple[int, ...], Playbook]:
    """Update a growing playbook batch by batch; return the entries per update and the last playbook."""
    playbook = empty(PLAYBOOK)
    counts: list[int] = []
    for start in range(0, len(reflections), batch_size):
        operations, known = _update(playbook, reflections[start : start + batch_size], seed + start, law)
        counts.append(entries_stated(operations, known))
        playbook = updated(playbook, operations)
    return tuple(counts), playbook


def _update(
    base: Playbook, batch: Sequence[Reflection], seed: int, law: Law
) -> tuple[tuple[Operation, ...], frozenset[str]]:
    """Return a batch's operations, and the entries that any of its calls named as known."""
    groups = group_count(len(batch))
    dealt = deal(len(batch), effective_copies(len(batch), COPIES, groups), groups, seed)
    answers: list[Answer] = []
    for indices in dealt:
        members = [batch[index] for index in indices]
        sources = [(member.reflection_id,) for member in members]
        answers.append(_call(aggregate_prompt(base, members), sources, seed, law))
    proposals = tuple(chain.from_iterable(answer.operations for answer in answers))
    if groups > 1 and proposals:
        evidence = [proposal.evidence for proposal in proposals]
        answers.append(_call(combine_prompt(base, proposals), evidence, seed, law))
        proposals = answers[-1].operations
    return proposals, frozenset(chain.from_iterable(answer.known.values() for answer in answers))


def _call(prompt: Prompt, sources: Sources, seed: int, law: Law) -> Answer:
    return read_operations(aggregate(read(as_request(prompt)), seed, law), sources)
