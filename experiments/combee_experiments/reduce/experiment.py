"""``reduce``: one batch of 100 to 2,000: proposals combined by topic against one combine, with and without carry.

The quantities are generated, one for four reflections, so that what a combine reads grows with the batch. Arms that
differ above level 0 alone share what the stand-in answers below it: it is asked once.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import product
from random import Random

from combee.core.playbook.versions import empty
from combee.ports import FatalError, LanguageModel
from combee.sim.family.falsehoods import invented, is_invented
from combee.sim.family.family import latent
from combee.sim.family.lessons import key, subject
from combee.sim.family.quantities import Quantity
from combee.sim.law.rules import IN_FORCE, RULES
from combee.sim.modes import NO_MODES, Modes
from combee.sim.roles.failing import CORRELATED_LESSONS
from combee_experiments.arms.arms import ADAPTIVE, PRODUCT, WIDE, Arm
from combee_experiments.arms.learning import Learnt, iterate
from combee_experiments.data.generated import MOST, filled, quantities, reflections
from combee_experiments.data.samples import PLAYBOOK
from combee_experiments.reduce.report import ALIKE, EMPTY, LARGE, PARAPHRASE, SINGLE, SURE, TODAY, report_on
from combee_experiments.robustness.experiment import MODES
from combee_experiments.robustness.report import NONE
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report
from combee_experiments.running.setup import Setup
from combee_experiments.scoring.lessons import contradicted
from combee_schemas.model import Prompt, Reply
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection

SIZES: Mapping[int, int] = {100: 20, 400: 5, 2_000: 3}
"""Reflections in the batch, and how many seeds at most: where they are many, a lesson is no difference."""
SMALLEST = min(SIZES)
MOST_PAIRED, PAIRS = 400, 20
"""The carry without guesses is compared with today's up to this size, on so many seeds."""
EACH = 4
"""Reflections per lesson."""
FEW = 5
"""Seeds on a large playbook and on hard data."""
START_TOKENS = 14_000
NUMBERS = (
    "seconds",
    "calls",
    "tokens_in",
    "tokens_out",
    "entries",
    "carried",
    "kept_by_groups",
    "kept_by_root",
)


def _by_topic(part_tokens: int, *, carry: bool) -> Arm:
    policy = PRODUCT.model_copy(update={"combine_tokens": part_tokens})
    name = f"topic, {part_tokens:,}" + (", carry" if carry else "")
    return replace(ADAPTIVE, name=name, policy=policy, carry=carry)


ARMS: Mapping[str, Arm] = {
    arm.name: arm
    for arm in (
        replace(ADAPTIVE, name=SINGLE, carry=False),
        replace(ADAPTIVE, name=TODAY, carry=True),
        replace(ADAPTIVE, name=SURE, carry=True, policy=PRODUCT.model_copy(update={"carry_guesses": False})),
        _by_topic(1_000, carry=False),
        _by_topic(1_000, carry=True),
        _by_topic(2_000, carry=True),
        _by_topic(4_000, carry=True),
    )
}


def cells(setup: Setup) -> Iterator[Cell]:
    """Every arm at every size under every rule and mode; the smallest also on a large playbook and hard data.

    The carry without guesses only beside today's, on smaller batches.

    Raises
    ------
    FatalError
        If a rule or modes were asked for: this experiment goes through all of them.
    """
    if (setup.law, setup.modes) != (IN_FORCE, NO_MODES):
        raise FatalError(
            "reduce goes through every counting rule and mode by itself: leave out --law and --mode"
        )
    for size in (size for size in SIZES if setup.samples is None or size <= setup.samples):
        beside = [(LARGE, NONE), (ALIKE, PARAPHRASE)] if size == SMALLEST else []
        for given, mode in [*product([EMPTY], MODES), *beside]:
            seeds = setup.seeds[: SIZES[size] if given == EMPTY else FEW]
            paired = setup.seeds[: PAIRS if given == EMPTY and size <= MOST_PAIRED else 0]
            # Arms inside: they share what is asked of level 0.
            for seed, law, arm in product(setup.seeds, RULES, ARMS):
                if seed in (paired if arm == SURE else seeds) or (arm == TODAY and seed in paired):
                    yield Cell.of(arm, seed, reflections=size, given=given, mode=mode, law=law)


@cache
def _mixed(count: int) -> tuple[Quantity, ...]:
    """Return so many quantities of all kinds; the first ones differ in a word and are hard to tell apart."""
    return tuple(Random(count).sample(quantities(MOST), count))  # noqa: S311 - reproducible, not secret


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Learn from one batch; the playbook's budget is lifted, so that all a combine passes on is counted."""
    size, modes = cell.number("reflections"), MODES[cell.text("mode")]
    failing = replace(setup, law=cell.text("law"), modes=modes)
    asked = quantities(size // EACH) if cell.text("given") == ALIKE else _mixed(size // EACH)
    said = reflections(asked, size, cell.seed, modes)
    drawing = Random(cell.seed)  # noqa: S311 - reproducible, not secret
    is_large = cell.text("given") == LARGE
    begin = filled((), START_TOKENS, drawing, but=asked) if is_large else empty(PLAYBOOK)
    learnt = setup.run(_learn(failing, said, begin, ARMS[cell.arm], cell.seed))
    numbers = learnt.numbers()
    return {name: numbers[name] for name in NUMBERS} | lessons_in(asked, learnt.texts, cell.seed)


async def _learn(setup: Setup, said: Sequence[Reflection], begin: Playbook, arm: Arm, seed: int) -> Learnt:
    async def ready(_: Playbook, start: int, end: int) -> Sequence[Reflection]:
        return said[start:end]

    async with setup.open_model(seed) as model:
        asking = Remembering(model, _remembered(setup.law, setup.modes, seed)) if setup.simulated else model
        return await iterate(
            setup.paced(asking, seed), ready, len(said), arm, len(said), budget_tokens=WIDE, begin=begin
        )


@lru_cache(maxsize=1)
def _remembered(law: str, modes: Modes, seed: int) -> dict[tuple[str, str], Reply]:
    """Return the memory of one place, which its arms share; the next place forgets it."""
    del law, modes, seed
    return {}


@dataclass(frozen=True, slots=True)
class Remembering:
    """The stand-in, which answers the same prompt alike, so that it need not be asked twice."""

    model: LanguageModel
    replies: dict[tuple[str, str], Reply]

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        """Return the reply to a prompt."""
        asked = prompt.system, prompt.user
        if asked not in self.replies:
            self.replies[asked] = await self.model.ask(prompt, priority=priority)
        return self.replies[asked]

    def drain(self) -> None:
        """Nothing is kept waiting."""

    async def close(self) -> None:
        """Leave the model open: it belongs to others."""


def lessons_in(asked: Sequence[Quantity], texts: Sequence[str], seed: int) -> dict[str, float]:
    """Return how many of the quantities' conventions stand in some texts, in any wording, and what else does."""
    said = {key(invented("correlated", seed, which)) for which in range(CORRELATED_LESSONS)}
    right = {quantity.name: key(latent(quantity).sentence()) for quantity in asked}
    about = [(subject(text) or "", text) for text in texts]
    holding = Counter(name for name, text in about if right.get(name) == key(text))
    return {
        "lessons": len(holding),
        "lessons_there": len(right),
        "wordings_per_lesson": holding.total() / len(holding) if holding else 0.0,
        "invented": sum(map(is_invented, texts)),
        "invented_by_calls": sum(is_invented(text) and key(text) not in said for text in texts),
        "wrong": sum(name in right and right[name] != key(text) for name, text in about),
        "contradicted": contradicted(texts),
    }


def report(setup: Setup, measured: Measured) -> Report:
    """Show what each arm keeps and takes, and decide the criteria."""
    del setup
    return report_on(measured)
