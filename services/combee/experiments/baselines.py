"""``baselines``: retrieval and summaries against Combee, on the same reflections."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from combee.core.methods.ace import aggregate_prompt
from combee.core.operations import read_operations
from combee.core.playbook import empty
from combee.experiments.baselines_approaches import Learned, Summariser, batches, top_k, whole
from combee.experiments.data import Data
from combee.experiments.scoring_exam import examine
from combee.experiments.scoring_lessons import lessons_of
from combee.experiments.services import batch_settings, learn
from combee.ports import LanguageModel
from combee.sim.naive import updated
from combee_schemas.base import Usage
from combee_schemas.reflection import Reflection

BATCH_SIZES = (20, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One approach, one batch size, one seed."""

    lessons: int
    """In all that is kept; for retrieval that is every raw reflection."""
    accuracy: float
    calls: int
    """To learn. Reflecting is not counted, which all approaches need."""
    tokens: int
    """Read and written by those calls."""
    kept: int
    """Lines, entries or raw reflections stored at the end."""
    prompt_tokens: float
    """Per question, on average."""


async def _nothing(_: LanguageModel, __: Sequence[Reflection], ___: int) -> Learned:
    return whole((), Usage())


async def _retrieval(_: LanguageModel, reflections: Sequence[Reflection], __: int, *, k: int) -> Learned:
    return top_k(reflections, k)


async def _summary(model: LanguageModel, reflections: Sequence[Reflection], size: int) -> Learned:
    asked = Summariser(model)
    lines = [line for batch in batches(reflections, size) for line in await asked.flat(batch)]
    return whole(lines, asked.usage)


async def _rewritten(model: LanguageModel, reflections: Sequence[Reflection], size: int) -> Learned:
    asked, lines = Summariser(model), tuple[str, ...]()
    for batch in batches(reflections, size):
        lines = await asked.rewritten(batch, lines)
    return whole(lines, asked.usage)


async def _hierarchical(model: LanguageModel, reflections: Sequence[Reflection], size: int) -> Learned:
    asked = Summariser(model)
    lines = [line for batch in batches(reflections, size) for line in await asked.tree(batch)]
    return whole(lines, asked.usage)


async def _naive(model: LanguageModel, reflections: Sequence[Reflection], size: int) -> Learned:
    book, usage = empty("baseline"), Usage()
    for batch in batches(reflections, size):
        reply = await model.ask(aggregate_prompt(book, batch))
        found = read_operations(reply.body, [(one.reflection_id,) for one in batch])
        book, usage = updated(book, found.operations), usage + reply.usage
    return whole([entry.content for entry in book.entries], usage)


async def _combee(
    model: LanguageModel, reflections: Sequence[Reflection], size: int, *, carry: bool
) -> Learned:
    learnt = await learn(model, reflections, batch_settings(size, carry=carry))
    return Learned(kept=learnt.texts, given=lambda _: learnt.playbook, usage=learnt.usage)


Approach = Callable[[LanguageModel, Sequence[Reflection], int], Awaitable[Learned]]
UNBATCHED: Mapping[str, Approach] = {
    "no learning": _nothing,
    "Top-1 retrieval": partial(_retrieval, k=1),
    "Top-5 retrieval": partial(_retrieval, k=5),
    "Top-20 retrieval": partial(_retrieval, k=20),
}
"""Approaches that know no batches."""
BATCHED: Mapping[str, Approach] = {
    "naive": _naive,
    "summaries side by side": _summary,
    "summary rewritten": _rewritten,
    "hierarchical summaries": _hierarchical,
    "Combee, no carry": partial(_combee, carry=False),
    "Combee": partial(_combee, carry=True),
}
"""Approaches that read a batch at a time; ``no carry`` is the paper's combine step."""


async def measure(
    model: LanguageModel,
    data: Data,
    reflections: Sequence[Reflection],
    approach: Approach,
    batch_size: int,
    *,
    simulated: bool,
) -> Row:
    """Let one approach learn from the reflections, then examine agents on what it left."""
    learned = await approach(model, reflections, batch_size)
    lessons = lessons_of(data)
    result = await examine(model, data, lessons, learned.given, simulated=simulated)
    return Row(
        lessons=len(lessons.kept(learned.kept)),
        accuracy=result.accuracy,
        calls=learned.usage.calls,
        tokens=learned.usage.tokens_in + learned.usage.tokens_out,
        kept=len(learned.kept),
        prompt_tokens=result.prompt_tokens,
    )
