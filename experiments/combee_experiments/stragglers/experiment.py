"""``stragglers``: what a batch takes and keeps when nobody waits for its slowest call.

The services are the real ones, on the log in memory and in virtual time; calls take drawn times. The criteria were
written down before the first run: see ``report``.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from combee.adapters.ports import LanguageModel
from combee_experiments.arms.material import reflections
from combee_experiments.arms.services import Services, batch_settings
from combee_experiments.arms.tails import SlowModel, Tail
from combee_experiments.data.samples import PLAYBOOK, Data
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report
from combee_experiments.running.setup import Setup
from combee_experiments.running.virtual_time import LoopClock
from combee_experiments.scoring.lessons import lessons_of
from combee_experiments.stragglers import choice
from combee_experiments.stragglers.report import ALL, CHOICE, LESSONS, TIMES, report_on
from combee_schemas.base import Usage
from combee_schemas.model import Prompt, Reply
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_sim.server.latency import Latency

BATCH_SIZE = 100
"""Ten groups."""
BATCHES = 60
"""Timed one after the other; the first ones have learned nothing yet."""
TIMED = 5
"""Seeds that time is measured with; of lessons more are needed, for their difference is small."""
TAILS: Mapping[str, Tail] = {
    "log-normal 1": Latency(median_s=1.0, sigma=1.0),
    "Pareto 1.6": Latency(median_s=1.0, shape=1.6),
    "log-normal 0.5": Latency(median_s=1.0, sigma=0.5),
    "log-normal 0.2": Latency(median_s=1.0, sigma=0.2),
}
HEAVY = "log-normal 1"
ARMS = {"plain": False, "stragglers": True}
RULES = {
    **{f"late at {late:g}": choice.Rule(late=late, quantile=1) for late in (0.0, 1.5, 2.0, 3.0)},
    **{f"late at 2, quantile {q:g}": choice.Rule(late=2.0, quantile=q) for q in (0.5, 0.6, 0.75, 0.9)},
}


def cells(setup: Setup) -> Iterator[Cell]:
    """The choice of the constants, then times of a batch, then lessons."""
    for kind, arm, seed in product(TAILS, (ALL, *RULES), setup.seeds[:TIMED]):
        yield Cell.of(arm, seed, asks=CHOICE, times=kind)
    for kind, arm, seed in product(TAILS, ARMS, setup.seeds[:TIMED]):
        yield Cell.of(arm, seed, asks=TIMES, times=kind)
    for data, carry, arm, seed in product(setup.data, (1, 0), ARMS, setup.seeds):
        yield Cell.of(arm, seed, asks=LESSONS, data=data.name, carry=carry)


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Simulate a rule, time batches, or learn and count what is kept."""
    match cell.text("asks"):
        case "choice":
            waits = choice.Rule(late=None, quantile=1)
            return choice.simulate(TAILS[cell.text("times")], RULES.get(cell.arm, waits), cell.seed)
        case "times":
            return setup.run(_timed(setup, cell))
        case _:
            data = setup.named(cell.text("data"))
            return setup.run(_learned(setup, data, reflections(setup, data, cell.seed), cell))


class Brief:
    """A model that proposes one lesson of its own in each call: only the time of calls matters."""

    def __init__(self) -> None:
        self._calls = 0

    async def ask(self, prompt: Prompt, *, priority: int = 0) -> Reply:
        """Return one proposal that rests on the first item."""
        del prompt, priority
        self._calls += 1
        content = f"lesson {self._calls % 40}"
        operation = {"type": "ADD", "section": "OTHERS", "content": content, "entry_ids": [], "sources": [1]}
        usage = Usage(calls=1, tokens_in=1000, tokens_out=100)
        return Reply(body={"reasoning": "", "operations": [operation]}, usage=usage)

    def drain(self) -> None:
        """Nothing is kept waiting."""

    async def close(self) -> None:
        """Nothing is open."""


async def _timed(setup: Setup, cell: Cell) -> Numbers:
    count = BATCH_SIZE * BATCHES
    made = [
        Reflection(reflection_id=f"r-{n}", playbook=PLAYBOOK, key_insight=f"lesson {n % 40}")
        for n in range(count)
    ]
    tail = TAILS[cell.text("times")]
    model = SlowModel(Brief(), tail, seed=cell.seed, concurrency=setup.concurrency)
    versions = await _run(model, made, stragglers=ARMS[cell.arm])
    took_s = [
        (version.created_at_ms - version.batch.plan.closed_at_ms) / 1000
        for version in versions
        if version.batch
    ]
    return {"mean_s": sum(took_s) / len(took_s), "p95_s": choice.p95(took_s), **_calls(model, versions)}


async def _learned(setup: Setup, data: Data, made: Sequence[Reflection], cell: Cell) -> Numbers:
    async with setup.open_model(cell.seed) as inner:
        model = SlowModel(inner, TAILS[HEAVY], seed=cell.seed, concurrency=setup.concurrency)
        carry = bool(cell.number("carry"))
        versions = await _run(model, made, stragglers=ARMS[cell.arm], carry=carry)
    kept = lessons_of(data, by_name=not setup.simulated).kept(
        [entry.content for entry in versions[-1].entries]
    )
    seen = sum(version.reflections for version in versions)
    return {"lessons": len(kept), "applied": seen, **_calls(model, versions)}


async def _run(
    model: LanguageModel, made: Sequence[Reflection], *, stragglers: bool, carry: bool = True
) -> tuple[Playbook, ...]:
    settings = batch_settings(BATCH_SIZE, stragglers=stragglers, carry=carry)
    services = Services(model, settings, LoopClock(), playbook=made[0].playbook)
    async with services.running():
        for reflection in made:
            await services.publish(reflection)
        await services.flush()
        await services.until_applied(len(made))
    return await services.versions()


def _calls(model: SlowModel, versions: Sequence[Playbook]) -> dict[str, float]:
    """Return calls as begun, as planned (with those of checks) and as the versions count them."""
    usage = sum((version.usage for version in versions), Usage())
    return {
        "begun": model.asked,
        "planned": sum(sum(version.batch.plan.widths) for version in versions if version.batch)
        + usage.checks,
        "counted": usage.calls + usage.skips - usage.splits - usage.re_asks,
        "hedges": usage.hedges,
        "left_out": usage.left_out,
    }


def report(setup: Setup, measured: Measured) -> Report:
    """Show what not waiting saves, and what it costs."""
    return report_on([data.name for data in setup.data], measured)
