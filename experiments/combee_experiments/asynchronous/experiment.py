"""``async``: synchronous against overlapping iterations under heavy-tailed agents and models.

The services are the real ones, on the log in memory; agents and model calls take drawn times.
"""

from collections.abc import Iterator, Sequence

from combee.adapters.ports import LanguageModel
from combee_experiments.arms.material import reflections
from combee_experiments.arms.tails import SlowModel, Tail
from combee_experiments.asynchronous.report import SYNCHRONOUS, report_on
from combee_experiments.asynchronous.run import Mode, Times, run_fleet
from combee_experiments.data.samples import Data
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report, joined
from combee_experiments.running.setup import Setup
from combee_experiments.scoring.lessons import lessons_of
from combee_schemas.reflection import Reflection
from combee_sim.server.latency import Latency

BATCH_SIZE = 20
FLEETS = (20, 100)
"""Agents at once: few, who keep the model waiting, and many, who wait for it."""
INFLIGHT = {SYNCHRONOUS: 1, "1 in flight": 1, "2 in flight": 2, "4 in flight": 4}
AGENT_CALLS = 4
"""How many calls' time an agent's run takes."""
SIGMA = 1.0
SHAPE = 1.5
KINDS = ("fixed", "log-normal", "Pareto")
REAL = ("log-normal",)
"""With a real model only agents have drawn times, and those are waited for."""


def cells(setup: Setup) -> Iterator[Cell]:
    """Every mode under every kind of times, with few agents and with many."""
    for data in setup.data:
        for agents in FLEETS:
            for kind in KINDS if setup.simulated else REAL:
                for mode in INFLIGHT:
                    for seed in setup.seeds:
                        yield Cell.of(mode, seed, data=data.name, agents=agents, times=kind)


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Let agents run until every reflection is in a version."""
    data = setup.named(cell.text("data"))
    return setup.run(_measure(setup, data, reflections(setup, data, cell.seed), cell))


async def _measure(setup: Setup, data: Data, made: Sequence[Reflection], cell: Cell) -> Numbers:
    agents, inflight = cell.number("agents"), INFLIGHT[cell.arm]
    waits = cell.arm == SYNCHRONOUS
    mode = Mode(
        # A synchronous iteration has as many agents as its batch has reflections.
        batch_size=agents if waits else BATCH_SIZE,
        agents=agents,
        inflight=inflight,
        waits=waits,
    )
    times = _times(cell.text("times"), setup.latency.median_s)
    async with setup.open_model(cell.seed) as model:
        run = await run_fleet(_slow(setup, model, times.call, cell.seed), made, mode, times, seed=cell.seed)
    lessons = lessons_of(data, by_name=not setup.simulated)
    texts = [entry.content for entry in run.versions[-1].entries]
    return {
        **run.numbers(),
        **lessons.numbers(texts),
        "reflections": len(made),
    }


def _slow(setup: Setup, model: LanguageModel, tail: Tail, seed: int) -> LanguageModel:
    """Return a model whose calls take drawn times; a real one takes its own."""
    if not setup.simulated:
        return model
    return SlowModel(model, tail, seed=seed, concurrency=setup.concurrency)


def _times(kind: str, median_s: float) -> Times:
    def tail(median_s: float) -> Tail:
        match kind:
            case "Pareto":
                return Latency(median_s=median_s, shape=SHAPE)
            case "log-normal":
                return Latency(median_s=median_s, sigma=SIGMA)
            case _:
                return Latency(median_s=median_s)

    return Times(agent=tail(AGENT_CALLS * median_s), call=tail(median_s))


def report(setup: Setup, measured: Measured) -> Report:
    """Show what overlapping saves, and what it costs."""
    return joined(report_on(setup, data, measured.where(data=data.name)) for data in setup.data)
