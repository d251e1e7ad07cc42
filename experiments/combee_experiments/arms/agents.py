"""Simulated or real agents and their reflector, without a log: samples in, reflections out."""

import asyncio
from collections.abc import Iterator, Sequence

from combee.adapters.ports import LanguageModel, PoisonError
from combee.core.formats.intake import Sample, verdict
from combee.core.methods import ace
from combee.core.names import identity
from combee.core.playbook.shown import shown, shown_to
from combee.core.text.shortening import task_excerpt
from combee.core.text.similarity.relevance import entries_to_judge
from combee.process.settings.batch import BatchSettings
from combee_experiments.arms.services import Services
from combee_experiments.arms.tails import Tail
from combee_schemas.base import Usage
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace
from combee_sim.chance import draw

ENTRY_TOKENS = int(BatchSettings.model_fields["reflect_entry_tokens"].default)


async def reflect_all(
    model: LanguageModel,
    playbook: Playbook,
    samples: Sequence[Sample],
    *,
    agents: LanguageModel | None = None,
) -> tuple[Reflection, ...]:
    """Let agents answer samples with a frozen playbook, all at once, and reflect on each run.

    ``agents``: who answers; None: the reflector's model. A run nothing can be learned from has no reflection.
    """
    answering = agents or model
    made = await asyncio.gather(*(reflect(model, playbook, sample, answering) for sample in samples))
    return tuple(one for one in made if one is not None)


async def reflect(
    model: LanguageModel, playbook: Playbook, sample: Sample, agents: LanguageModel
) -> Reflection | None:
    """Let an agent answer one sample, then reflect on it; the reflection's usage is that of both calls."""
    trace, used = await _answered(agents, playbook, sample)
    entries = entries_to_judge(playbook.entries, trace, ENTRY_TOKENS)
    try:
        reply = await model.ask(ace.reflect_prompt(trace, entries))
        fields = ace.read_reflection(trace, entries, reply.body)
    except (PoisonError, ValueError):
        return None
    return Reflection(
        reflection_id=identity.reflection_id(trace.playbook, trace.trace_id),
        playbook=trace.playbook,
        trace_id=trace.trace_id,
        task_excerpt=task_excerpt(trace),
        shown=trace.shown,
        bullet_ids=trace.bullet_ids,
        usage=used + reply.usage,
        **fields,
    )


async def _answered(model: LanguageModel, playbook: Playbook, sample: Sample) -> tuple[Trace, Usage]:
    try:
        reply = await model.ask(ace.answer_prompt(playbook, sample.question))
        body, used = reply.body, reply.usage
    except PoisonError as error:
        body, used = {}, error.usage  # a run without an answer is a wrong run
    answer = str(body.get("final_answer", ""))
    record = shown_to(playbook, shown(playbook).entries)
    trace = Trace(
        trace_id=sample.trace_id,
        playbook=sample.playbook,
        task=sample.question,
        trajectory=str(body.get("reasoning", "")),
        answer=answer,
        feedback=verdict(answer, sample.target, sample.kind),
        target=sample.target,
        shown=record if playbook.version else None,
        bullet_ids=tuple(map(str, body.get("bullet_ids") or ())),
    )
    return trace, used


class Fleet:
    """Agents that run, each with the newest version at its start, and publish what they learned."""

    def __init__(self, services: Services, tail: Tail, seed: int) -> None:
        self._services = services
        self._tail = tail
        self._seed = seed
        self.started_at: dict[str, int] = {}
        """Reflection id → version at the start of its run."""
        self.published = 0

    async def run(self, reflections: Sequence[Reflection], agents: int) -> None:
        """Let so many agents make these reflections, each as long as there are any left."""
        queue = iter(reflections)
        async with asyncio.TaskGroup() as group:
            for _ in range(agents):
                group.create_task(self._agent(queue))

    async def _agent(self, queue: Iterator[Reflection]) -> None:
        for reflection in queue:
            name = reflection.reflection_id
            self.started_at[name] = self._services.latest.version
            await asyncio.sleep(self._tail.seconds(draw("agent time", self._seed, name)))
            await self._services.publish(reflection)
            self.published += 1
