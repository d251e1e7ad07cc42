"""``baselines``: Top-K and Summarization as the paper has them, retrieval, summaries, and Combee."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial

from combee.adapters.ports import LanguageModel
from combee_experiments.arms.arms import ADAPTIVE, NAIVE, PLAIN, Arm
from combee_experiments.arms.learning import learn
from combee_experiments.arms.material import reflections
from combee_experiments.baselines.approaches import Learned, Summariser, batches, retrieval, whole
from combee_experiments.baselines.condensed import summarization, top_k
from combee_experiments.baselines.report import ALL, NO_LEARNING, SUMMARIZATION, TOP_K, published, report_on
from combee_experiments.data.samples import Data
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report, joined
from combee_experiments.running.setup import Setup
from combee_experiments.scoring.exam import examine
from combee_experiments.scoring.lessons import lessons_of
from combee_schemas.base import Usage
from combee_schemas.reflection import Reflection

SIZES = (20, 100)

Approach = Callable[[LanguageModel, Sequence[Reflection], int], Awaitable[Learned]]


async def _nothing(_: LanguageModel, __: Sequence[Reflection], ___: int) -> Learned:
    return whole((), Usage())


async def _retrieval(_: LanguageModel, made: Sequence[Reflection], __: int, *, k: int) -> Learned:
    return retrieval(made, k)


async def _side_by_side(model: LanguageModel, made: Sequence[Reflection], size: int) -> Learned:
    asked = Summariser(model)
    lines = [line for batch in batches(made, size) for line in await asked.flat(batch)]
    return whole(lines, asked.usage)


async def _rewritten(model: LanguageModel, made: Sequence[Reflection], size: int) -> Learned:
    asked, lines = Summariser(model), tuple[str, ...]()
    for batch in batches(made, size):
        lines = await asked.rewritten(batch, lines)
    return whole(lines, asked.usage)


async def _hierarchical(model: LanguageModel, made: Sequence[Reflection], size: int) -> Learned:
    asked = Summariser(model)
    lines = [line for batch in batches(made, size) for line in await asked.tree(batch)]
    return whole(lines, asked.usage)


async def _arm(model: LanguageModel, made: Sequence[Reflection], size: int, *, arm: Arm) -> Learned:
    learnt = await learn(model, made, arm, size)
    return Learned(kept=learnt.texts, given=lambda _: learnt.playbook, usage=learnt.usage)


UNBATCHED: Mapping[str, Approach] = {
    NO_LEARNING: _nothing,
    **{f"retrieval at inference, {k}": partial(_retrieval, k=k) for k in (1, 5, 20)},
}
"""Approaches that know no batches."""
BATCHED: Mapping[str, Approach] = {
    **{name: partial(top_k, k=k) for k, name in TOP_K.items()},
    SUMMARIZATION: summarization,
    "summary, rewritten": _rewritten,
    "summaries, side by side": _side_by_side,
    "summaries of summaries": _hierarchical,
    **{arm.name: partial(_arm, arm=arm) for arm in (NAIVE, PLAIN, ADAPTIVE)},
}
"""Approaches that read a batch at a time."""


def cells(setup: Setup) -> Iterator[Cell]:
    """Every approach, at every batch size where it has one."""
    for data in setup.data:
        sizes = [size for size in SIZES if size <= len(data.train)]
        ways = [(name, ALL) for name in UNBATCHED] + [(name, size) for name in BATCHED for size in sizes]
        for name, size in ways:
            for seed in setup.seeds:
                yield Cell.of(name, seed, data=data.name, batch_size=size)


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Let one approach learn from the reflections that all read, then examine agents on what it left."""
    data = setup.named(cell.text("data"))
    return setup.run(_measure(setup, data, reflections(setup, data, cell.seed), cell))


async def _measure(setup: Setup, data: Data, made: Sequence[Reflection], cell: Cell) -> Numbers:
    approach = {**UNBATCHED, **BATCHED}[cell.arm]
    lessons = lessons_of(data, by_name=not setup.simulated)
    async with setup.open_model(cell.seed) as model:
        learned = await approach(setup.paced(model, cell.seed), made, cell.number("batch_size"))
        result = await examine(model, data, lessons, learned.given, simulated=setup.simulated)
    return {
        **lessons.numbers(learned.kept),
        "accuracy": result.accuracy,
        "calls": learned.usage.calls,
        "tokens_in": learned.usage.tokens_in,
        "tokens_out": learned.usage.tokens_out,
        "stored": len(learned.kept),
        "prompt_tokens": result.prompt_tokens,
    }


def report(setup: Setup, measured: Measured) -> Report:
    """Show what each approach keeps, and what it costs to learn and to be used."""
    parts = (report_on(setup, data, measured.where(data=data.name)) for data in setup.data)
    return joined((*parts, published()))
