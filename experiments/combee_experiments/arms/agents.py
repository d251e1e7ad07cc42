"""Agents and their reflector without a log: samples in, reflections out; on the stand-in or on a real model."""

import asyncio
from collections.abc import Sequence

from combee.core import identity
from combee.core.formats.intake import Sample, verdict
from combee.core.methods import ace
from combee.ports import LanguageModel, PoisonError
from combee_schemas.base import Shown, Usage
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.trace import Trace


async def reflect_all(
    model: LanguageModel, playbook: Playbook, samples: Sequence[Sample]
) -> tuple[Reflection, ...]:
    """Let agents answer samples with a frozen playbook, all at once, and reflect on each run.

    A run nothing can be learned from has no reflection.
    """
    made = await asyncio.gather(*(reflect(model, playbook, sample) for sample in samples))
    return tuple(one for one in made if one is not None)


async def reflect(model: LanguageModel, playbook: Playbook, sample: Sample) -> Reflection | None:
    """Let an agent answer one sample, then reflect on it; the reflection's usage is that of both calls."""
    trace, used = await _answered(model, playbook, sample)
    try:
        reply = await model.ask(ace.reflect_prompt(trace, playbook.entries))
        fields = ace.read_reflection(trace, playbook.entries, reply.body)
    except (PoisonError, ValueError):
        return None
    return Reflection(
        reflection_id=identity.reflection_id(trace.playbook, trace.trace_id),
        playbook=trace.playbook,
        trace_id=trace.trace_id,
        shown=trace.shown,
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
    shown = Shown(version=playbook.version, entry_ids=tuple(entry.id for entry in playbook.entries))
    trace = Trace(
        trace_id=sample.trace_id,
        playbook=sample.playbook,
        task=sample.question,
        trajectory=str(body.get("reasoning", "")),
        answer=answer,
        feedback=verdict(answer, sample.target),
        target=sample.target,
        shown=shown if playbook.version else None,
    )
    return trace, used
