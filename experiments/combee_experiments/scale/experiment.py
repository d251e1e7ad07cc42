"""``scale``: one batch of 4 to 10,000 reflections: two fixed levels against the adaptive tree."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from combee.core.playbook.budget import evictions
from combee_experiments.arms.arms import ADAPTIVE, PLAIN, WIDE, Arm, bounded
from combee_experiments.arms.learning import BUDGET_TOKENS, Learnt, learn
from combee_experiments.data.generated import lessons, quantities, reflections
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report
from combee_experiments.running.setup import Setup
from combee_experiments.scale.report import report_on
from combee_schemas.reflection import Reflection
from combee_sim.family.quantities import QUANTITIES, Quantity
from combee_sim.law.samples import FAMILY_SIZE

SIZES = (4, 10, 40, 160, 640, 1_000, 2_500, 10_000)
TIGHT_TOKENS = 4_000
"""About what one of the six groups of 40 reflections reads: the paper's own group size, kept at any n."""
EACH = 4
"""Reflections per lesson where the lessons grow with n."""
FIXED, GROWING = "50 lessons", "a lesson per 4 reflections"
MOST = 2_000
"""Reflections that the product puts into one batch at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """How n reflections are cut: into one batch, or into several."""

    arm: Arm
    most: int = WIDE


TIGHT = bounded(TIGHT_TOKENS)
WIDELY, TIGHTLY, IN_BATCHES = (
    "adaptive, 32,000 tokens",
    "adaptive, 4,000 tokens",
    "the same in batches of 2,000",
)
TREES: Mapping[str, Tree] = {
    "two levels": Tree(arm=PLAIN),
    "two levels, carry on": Tree(arm=replace(PLAIN, carry=True)),
    WIDELY: Tree(arm=ADAPTIVE),
    f"{TIGHTLY}, carry off": Tree(arm=replace(TIGHT, carry=False)),
    TIGHTLY: Tree(arm=TIGHT),
    IN_BATCHES: Tree(arm=TIGHT, most=MOST),
}
"""The paper's; the product with its default bound; the product with a bound that keeps groups small."""
WHOLE = [name for name, tree in TREES.items() if tree.most == WIDE]


def cells(setup: Setup) -> Iterator[Cell]:
    """Every tree at every size, on lessons that stay as many and on lessons that grow."""
    for family in (FIXED, GROWING):
        for size in (size for size in SIZES if setup.samples is None or size <= setup.samples):
            # Seeds outside: the arms share what the stand-in's reflector said.
            for seed in setup.seeds:
                for tree in TREES if size > MOST else WHOLE:
                    yield Cell.of(tree, seed, family=family, reflections=size)


def asked(family: str, size: int) -> tuple[Quantity, ...]:
    """Return the quantities that a batch of this size is about."""
    return tuple(QUANTITIES[: min(FAMILY_SIZE, size)]) if family == FIXED else quantities(size // EACH)


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Learn from n reflections; the playbook's budget is lifted, and what it would leave is counted."""
    size = cell.number("reflections")
    about = asked(cell.text("family"), size)
    learnt = setup.run(
        _learn(setup, reflections(about, size, cell.seed, setup.modes), TREES[cell.arm], cell.seed)
    )
    evicted = set(evictions(learnt.playbook.entries, BUDGET_TOKENS))
    within = [entry.content for entry in learnt.playbook.entries if entry.id not in evicted]
    widths = learnt.playbook.batch.plan.widths if learnt.playbook.batch else (0,)
    return {
        **learnt.numbers(),
        "levels": len(widths),
        "groups": widths[0],
        "lessons": lessons(about, learnt.texts) / len(about),
        "lessons_within_budget": lessons(about, within) / len(about),
        "shortened": any("left out for size" in update.result.reason for update in learnt.updates),
    }


async def _learn(setup: Setup, made: tuple[Reflection, ...], tree: Tree, seed: int) -> Learnt:
    async with setup.open_model(seed) as model:
        return await learn(
            setup.paced(model, seed), made, tree.arm, min(len(made), tree.most), budget_tokens=WIDE
        )


def report(setup: Setup, measured: Measured) -> Report:
    """Show each tree's shape, time and retention, and decide the criterion."""
    return report_on(setup, measured, judged={WIDELY: WIDELY, TIGHTLY: TIGHTLY, IN_BATCHES: TIGHTLY})
