"""The fit of the stand-in's overload law to naive ACE, with the aggregation that it runs, without the services."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from combee.core.batching.shuffle import deal, effective_copies, group_count
from combee.core.methods.ace import aggregate_prompt, combine_prompt
from combee.core.methods.method import Answer, Sources
from combee.core.playbook.draft import apply_operations
from combee.core.playbook.operations import in_words, read_operations
from combee.core.playbook.versions import empty
from combee_schemas.model import Prompt
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Operation
from combee_sim.inprocess import as_request
from combee_sim.law.law import LAW, Law
from combee_sim.law.samples import PLAYBOOK, entries_stated
from combee_sim.roles.aggregator import aggregate, load
from combee_sim.roles.reading import Reading, read

WANTED: Mapping[int, float] = {1: 0.53, 5: 1.99, 10: 2.4, 20: 3.9, 50: 4.7, 100: 4.2}
"""Batch size → entries per update of naive ACE on 500 Formula samples, read off the paper's figure."""
WORST_ALLOWED = 0.35
MEAN_ALLOWED = 0.20
ROUNDS = 4
"""The playbook's growth depends on the law and the law's tokens on the playbook: repeat until it settles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One column of the row: what a simulated update call did on average beside what it should do."""

    batch_size: int
    wanted: float
    updates: int
    distinct: float
    tokens: float
    entries: float

    @property
    def error(self) -> float:
        """How far off, as a signed fraction of what is wanted."""
        return self.entries / self.wanted - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One naive update call: what it read and how many lessons it kept, as new entries or as known ones."""

    distinct: int
    tokens: float
    entries: int


Runs = Mapping[int, Sequence[Call]]


def run_all(reflections: Sequence[Reflection], *, seeds: Sequence[int], law: Law = LAW) -> Runs:
    """Run naive aggregation at every batch size of the row, once per seed."""
    return {
        size: [call for seed in seeds for call in run_naive(reflections, size, seed=seed, law=law)[0]]
        for size in WANTED
    }


def points(runs: Runs) -> tuple[Point, ...]:
    """Return the row as the stand-in reproduces it."""
    return tuple(_point(size, calls) for size, calls in runs.items())


def _point(size: int, calls: Sequence[Call]) -> Point:
    return Point(
        batch_size=size,
        wanted=WANTED[size],
        updates=len(calls),
        distinct=sum(call.distinct for call in calls) / len(calls),
        tokens=sum(call.tokens for call in calls) / len(calls),
        entries=sum(call.entries for call in calls) / len(calls),
    )


def within_bounds(row: Sequence[Point]) -> bool:
    """Say whether the law reproduces the row: 35 % at each point, 20 % on average."""
    errors = [abs(point.error) for point in row]
    return max(errors) <= WORST_ALLOWED and sum(errors) / len(errors) <= MEAN_ALLOWED


def fit(reflections: Sequence[Reflection], *, seeds: Sequence[int], start: Law = LAW) -> Law:
    """Return the law with the least mean squared logarithmic error over the row."""
    law = start
    for _ in range(ROUNDS):
        runs = run_all(reflections, seeds=seeds, law=law)
        law = _search(lambda candidate, runs=runs: _loss(candidate, runs), law)  # type: ignore[misc]
    return law


def _loss(law: Law, runs: Runs) -> float:
    """Judge a law on the calls as they were read, without running them again."""
    total = 0.0
    for size, calls in runs.items():
        expected = sum(call.distinct * law.keep_fraction(call.tokens) for call in calls) / len(calls)
        total += math.log(expected / WANTED[size]) ** 2
    return total / len(runs)


def _search(loss: Callable[[Law], float], law: Law) -> Law:
    """Walk down on both constants with steps that halve: two smooth dimensions need no more."""
    step, best = 0.5, loss(law)
    while step > 1e-3:  # noqa: PLR2004  (a tenth of a per cent of either constant)
        neighbours = [
            replace(law, half_tokens=law.half_tokens * math.exp(a), steepness=law.steepness * math.exp(b))
            for a in (-step, 0, step)
            for b in (-step, 0, step)
        ]
        score, nearest = min(
            ((loss(neighbour), neighbour) for neighbour in neighbours), key=lambda pair: pair[0]
        )
        if score < best:
            best, law = score, nearest
        else:
            step /= 2
    return law


# ---- what is fitted: aggregation without the services


def run_naive(
    reflections: Sequence[Reflection], batch_size: int, *, seed: int = 0, law: Law = LAW
) -> tuple[tuple[Call, ...], Playbook]:
    """Update a growing playbook one batch and one call at a time."""
    playbook = empty(PLAYBOOK)
    calls: list[Call] = []
    for start in range(0, len(reflections), batch_size):
        batch = reflections[start : start + batch_size]
        reading = read(as_request(aggregate_prompt(playbook, batch)))
        answer = _answer(reading, [(reflection.reflection_id,) for reflection in batch], seed, law)
        read_this = load(reading, law)
        entries = entries_stated(answer.operations, answer.known.values())
        calls.append(Call(distinct=len(read_this.distinct), tokens=read_this.tokens, entries=entries))
        playbook = updated(playbook, answer.operations)
    return tuple(calls), playbook


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
    return _answer(read(as_request(prompt)), sources, seed, law)


def _answer(reading: Reading, sources: Sources, seed: int, law: Law) -> Answer:
    words = {item.n: item.lesson for item in reading.items()}
    reply = in_words(aggregate(reading, seed, law), [words.get(n, "") for n in range(1, len(sources) + 1)])
    return read_operations(reply, sources)
