"""The paper's baselines, before aggregation: one call reads K of a batch's reflections (Top-K), or a summary of them.

Which K the paper takes, and how it clusters, is not known here: both are ours.
"""

from collections.abc import Awaitable, Callable, Sequence

from rapidfuzz import fuzz
from rapidfuzz.utils import default_process

from combee.adapters.ports import LanguageModel
from combee_experiments.arms.arms import NAIVE
from combee_experiments.arms.learning import Learnt, iterate
from combee_experiments.baselines.approaches import Learned, Summariser
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection

Condense = Callable[[Sequence[Reflection]], Awaitable[Sequence[Reflection]]]
"""A batch's reflections → what its one aggregation call reads."""
ROUNDS = 20
"""Medoids settle in a few; they might also alternate for ever."""


async def top_k(model: LanguageModel, made: Sequence[Reflection], size: int, *, k: int) -> Learned:
    """Cluster each batch's reflections and aggregate K representatives in one call."""

    async def choose(batch: Sequence[Reflection]) -> Sequence[Reflection]:
        return representatives(batch, k)

    return _learned(await _learn(model, made, size, choose), Summariser(model))


async def summarization(model: LanguageModel, made: Sequence[Reflection], size: int) -> Learned:
    """Summarise each batch's reflections in one call and aggregate the summary in another."""
    asked = Summariser(model)

    async def condense(batch: Sequence[Reflection]) -> Sequence[Reflection]:
        return as_reflections(batch, await asked.flat(batch))

    return _learned(await _learn(model, made, size, condense), asked)


def as_reflections(batch: Sequence[Reflection], lines: Sequence[str]) -> tuple[Reflection, ...]:
    """Return a summary's lines as the aggregator reads them, in place of their batch."""
    first = batch[0]
    return tuple(
        Reflection(reflection_id=f"{first.reflection_id}-line-{n}", playbook=first.playbook, key_insight=line)
        for n, line in enumerate(lines, 1)
    )


async def _learn(model: LanguageModel, made: Sequence[Reflection], size: int, condense: Condense) -> Learnt:
    async def condensed(_: Playbook, start: int, end: int) -> Sequence[Reflection]:
        return await condense(made[start:end])

    return await iterate(model, condensed, len(made), NAIVE, size)


def _learned(learnt: Learnt, asked: Summariser) -> Learned:
    return Learned(kept=learnt.texts, given=lambda _: learnt.playbook, usage=learnt.usage + asked.usage)


def representatives(reflections: Sequence[Reflection], k: int) -> tuple[Reflection, ...]:
    """Return at most k reflections, one for each cluster of insights that say it in similar words."""
    texts = [default_process(reflection.key_insight) for reflection in reflections]
    apart = [[100.0 - fuzz.token_sort_ratio(one, other) for other in texts] for one in texts]
    return tuple(reflections[index] for index in medoids(apart, k))


def medoids(apart: Sequence[Sequence[float]], k: int) -> list[int]:
    """Return the centres of at most k clusters (k-medoids); the same distances give the same centres."""
    every = range(len(apart))
    centres = [min(every, key=lambda one: (sum(apart[one]), one))] if apart and k > 0 else []
    while 0 < len(centres) < min(k, len(apart)):
        far = max(every, key=lambda one: (min(apart[one][centre] for centre in centres), -one))
        if not min(apart[far][centre] for centre in centres):
            break  # whatever is left says the same as a centre
        centres.append(far)
    for _ in range(ROUNDS):
        moved = [_centre(apart, members) for members in _clusters(apart, centres)]
        if moved == centres:
            break
        centres = moved
    return sorted(centres)


def _clusters(apart: Sequence[Sequence[float]], centres: Sequence[int]) -> list[list[int]]:
    """Return who is nearest to each centre; a centre is its own."""
    members: dict[int, list[int]] = {centre: [] for centre in centres}
    for one in range(len(apart)) if centres else ():
        members[one if one in members else min(centres, key=lambda centre: apart[one][centre])].append(one)
    return list(members.values())


def _centre(apart: Sequence[Sequence[float]], members: Sequence[int]) -> int:
    return min(members, key=lambda one: (sum(apart[one][other] for other in members), one))
