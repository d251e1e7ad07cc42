"""``scope``: whole iterations on a large playbook of which curators read all, or the entries nearest to their items.

The playbook at the start has about 14,000 or 70,000 tokens: half of the data's lessons, among conventions of other
quantities.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random

from combee.adapters.ports import FatalError, LanguageModel
from combee.core.batching.limits import PRODUCT
from combee.core.playbook.spend import MILLION, SpendPolicy
from combee_experiments.arms.agents import reflect_all
from combee_experiments.arms.arms import ADAPTIVE, Arm
from combee_experiments.arms.learning import iterate
from combee_experiments.arms.material import reflections
from combee_experiments.data.generated import filled
from combee_experiments.data.samples import Data, subset
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report, joined
from combee_experiments.running.setup import Setup
from combee_experiments.scope.report import AGENTS, NONE, PARAPHRASE, WHOLE, report_on
from combee_experiments.scoring.lessons import lessons_of
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_sim.law.rules import IN_FORCE, RULES
from combee_sim.modes import NO_MODES, Modes, parse_modes

BATCH_SIZE = 40
ITERATIONS = 4
START_TOKENS = (14_000, 70_000)
BUDGET_TOKENS = 80_000
"""The largest budget. A version has no room for more than some 1,500 entries as short as these."""
AGENT_TOKENS = 2_000
PRICES = SpendPolicy(price_in=1.0, price_cached_in=0.1, price_out=4.0)
MODES: Mapping[str, Modes] = {NONE: NO_MODES, PARAPHRASE: parse_modes([PARAPHRASE])}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What curators and agents read of the playbook."""

    name: str
    scope: int
    agent_tokens: int | None = None

    @property
    def arm(self) -> Arm:
        """The product, with this scope."""
        return replace(ADAPTIVE, name=self.name, policy=PRODUCT.model_copy(update={"scope": self.scope}))


READINGS = {
    reading.name: reading
    for reading in (
        Reading(name=WHOLE, scope=0),
        Reading(name="20 entries", scope=20),
        Reading(name="40 entries", scope=40),
        Reading(name=AGENTS, scope=20, agent_tokens=AGENT_TOKENS),
    )
}


def cells(setup: Setup) -> Iterator[Cell]:
    """Every way of reading under every rule with lessons in several wordings; under that in force without, too.

    Raises
    ------
    FatalError
        If a rule or modes were asked for: this experiment goes through those it needs.
    """
    if (setup.law, setup.modes) != (IN_FORCE, NO_MODES):
        raise FatalError("scope goes through every counting rule by itself: leave out --law and --mode")
    for tokens, data, law, mode, reading in product(START_TOKENS, setup.data, RULES, MODES, READINGS):
        # The rules are compared where wordings differ; what agents read hardly touches the update.
        if law == IN_FORCE or (mode == PARAPHRASE and reading != AGENTS):
            for seed in setup.seeds:
                yield Cell.of(reading, seed, data=data.name, law=law, mode=mode, tokens=tokens)


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Run some iterations on a large playbook."""
    failing = replace(setup, law=cell.text("law"), modes=MODES[cell.text("mode")])
    data = setup.named(cell.text("data"))
    known = reflections(failing, data, cell.seed)
    begin = large_playbook(data, known, cell.seed, cell.number("tokens"))
    return setup.run(_measure(failing, data, begin, READINGS[cell.arm], cell.seed))


def large_playbook(data: Data, known: Sequence[Reflection], seed: int, tokens: int) -> Playbook:
    """Return a playbook of about so many tokens that holds half of the data's lessons, as reflections said them."""
    drawing = Random(seed)  # noqa: S311 - reproducible, not secret
    lessons = lessons_of(data)
    said = {name: one.key_insight for one in known for name in lessons.kept([one.key_insight])}
    contents = [said[name] for name in drawing.sample(sorted(said), len(said) // 2)]
    return filled(contents, tokens, drawing)


class _Metered:
    """A model that adds up what its calls took."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self.usage = Usage()

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        reply = await self._model.ask(prompt, priority=priority)
        self.usage += reply.usage
        return reply

    def drain(self) -> None:
        self._model.drain()

    async def close(self) -> None:
        """Leave the model open: it belongs to others."""


async def _measure(setup: Setup, data: Data, begin: Playbook, reading: Reading, seed: int) -> Numbers:
    samples = subset(data.train, BATCH_SIZE * ITERATIONS, seed)
    async with setup.open_model(seed) as model:
        paced = setup.paced(model, seed)
        agents, reflector, curator = _Metered(paced), _Metered(paced), _Metered(paced)

        async def reflecting(playbook: Playbook, start: int, end: int) -> Sequence[Reflection]:
            return await reflect_all(
                reflector, playbook, samples[start:end], agents=agents, agent_tokens=reading.agent_tokens
            )

        learnt = await iterate(
            curator,
            reflecting,
            len(samples),
            reading.arm,
            BATCH_SIZE,
            budget_tokens=BUDGET_TOKENS,
            begin=begin,
        )
    lessons = lessons_of(data)
    iterations = len(learnt.versions)
    spent = {"agents": agents.usage, "reflect": reflector.usage, "update": curator.usage}
    return {
        **learnt.numbers(),
        **lessons.numbers(learnt.texts),
        "lessons_there": len(lessons.names),
        "lessons_before": len(lessons.kept(entry.content for entry in begin.entries)),
        **{f"{who}_in": usage.tokens_in / iterations for who, usage in spent.items()},
        **{f"{who}_cached": usage.cached_tokens / iterations for who, usage in spent.items()},
        **{f"{who}_out": usage.tokens_out / iterations for who, usage in spent.items()},
        **{f"{who}_cost": PRICES.cost(usage) * MILLION / iterations for who, usage in spent.items()},
        "cost": PRICES.cost(reflector.usage + curator.usage) * MILLION / iterations,
    }


def report(setup: Setup, measured: Measured) -> Report:
    """Show cost, lessons and wordings, and decide the criteria."""
    return joined(
        report_on(f"{data.name}, {tokens:,} tokens", measured.where(data=data.name, tokens=tokens))
        for data, tokens in product(setup.data, START_TOKENS)
    )
