"""``controller``: a sweep of fixed batch sizes, and whether the controller's choice lies on its Pareto front."""

from collections.abc import Iterator, Sequence

from combee.adapters.ports import FatalError, LanguageModel
from combee.core.formats.intake import Sample
from combee.core.methods.method import Method
from combee.process.settings.methods import method
from combee_experiments.arms.material import reflections
from combee_experiments.arms.tails import Pace, SlowModel
from combee_experiments.controller.choice_report import BY_ITERATIONS, BY_VERSIONS, FIXED
from combee_experiments.controller.epoch import (
    POLICY,
    Circumstances,
    Epoch,
    Next,
    by_iterations,
    by_versions,
    fixed,
    run_epoch,
)
from combee_experiments.controller.report import WAYS, report_on
from combee_experiments.data.samples import Data
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report, joined
from combee_experiments.running.setup import Setup
from combee_experiments.scoring.exam import examine
from combee_experiments.scoring.lessons import lessons_of
from combee_schemas.reflection import Reflection
from combee_sim.server.latency import Latency

SIZES = (5, 10, 20, 30, 40, 50, 60, 80, 100, 150, 250)
AGENTS = 64
"""Agents at once: rate limits end somewhere."""
AGENT_CALLS = 20
"""How many calls an agent's run takes, on a simulated model; a real one's reflections are there already."""
SPREAD = 0.4
"""Of the logarithm of agents' times."""
CONTROLLERS = {BY_ITERATIONS: by_iterations, BY_VERSIONS: by_versions}


def cells(setup: Setup) -> Iterator[Cell]:
    """Every fixed size and both controllers, for each way to aggregate."""
    for data in setup.data:
        if len(data.train) < POLICY.most:
            raise FatalError(
                f"{data.name}: {len(data.train)} samples; the controller may choose {POLICY.most}"
            )
        sizes = [size for size in SIZES if size <= len(data.train) // 2]
        arms = [(FIXED, size) for size in sizes] + [(name, 0) for name in CONTROLLERS]
        for way in WAYS:
            for arm, size in arms:
                for seed in setup.seeds:
                    yield Cell.of(arm, seed, data=data.name, batch_size=size, way=way)


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Run an epoch; with a controller a second one, all of it at the size that was chosen."""
    data, size = setup.named(cell.text("data")), cell.number("batch_size")
    made = reflections(setup, data, cell.seed)
    if cell.arm == FIXED:
        return _at(setup, data, made, cell, size)
    profiled, numbers = setup.run(_run(setup, data, made, cell, CONTROLLERS[cell.arm]))
    if profiled.decision is None or profiled.decision.phase != "settled":
        raise FatalError(f"{cell}: the controller did not get to a decision")
    chosen, found = profiled.decision.batch_size, profiled.decision.numbers
    return {
        **_at(setup, data, made, cell, chosen),
        **{f"profiled_{name}": one for name, one in numbers.items()},
        "chosen": chosen,
        "alpha": found.get("alpha", 0.0),
        "r_squared": found.get("r_squared", 0.0),
    }


def _at(setup: Setup, data: Data, made: Sequence[Reflection], cell: Cell, size: int) -> Numbers:
    """Return what one size costs and gives."""
    epoch, numbers = setup.run(_run(setup, data, made, cell, fixed(size)))
    delay_s = epoch.delay_of(size)
    return {**numbers, "delay_s": delay_s, "epoch_s": delay_s * len(data.train) / size}


async def _run(
    setup: Setup, data: Data, made: Sequence[Reflection], cell: Cell, following: Next
) -> tuple[Epoch, Numbers]:
    named, carry = WAYS[cell.text("way")]
    run_s = AGENT_CALLS * setup.latency.median_s if setup.simulated else 0.0
    async with setup.open_model(cell.seed) as model:
        given = Circumstances(
            model=_paced(setup, model, cell.seed),
            agent=Latency(median_s=run_s, sigma=SPREAD),
            agents=AGENTS,
            seed=cell.seed,
            method=named,
            carry=carry,
        )
        epoch = await run_epoch(given, _records(data, made) if named == "gepa" else made, following)
        return epoch, await _worth(setup, model, data, epoch, method(named))


def _paced(setup: Setup, model: LanguageModel, seed: int) -> LanguageModel:
    """Return a model that also takes time for every token, as the size of a batch decides how many there are."""
    if not setup.simulated:
        return model
    return SlowModel(model, setup.latency, seed=seed, concurrency=setup.concurrency, pace=Pace())


def _records(data: Data, made: Sequence[Reflection]) -> list[Reflection]:
    """Return the reflections with their runs in GEPA's shape; what the agents wrote is not kept."""
    asked = {one.trace_id: one for one in data.train}
    return [one.model_copy(update={"side_info": _record(asked[str(one.trace_id)])}) for one in made]


def _record(sample: Sample) -> dict[str, str]:
    return {
        "Inputs": sample.question,
        "Generated Outputs": "",
        "Feedback": f"The right answer is {sample.target}.",
    }


async def _worth(setup: Setup, model: LanguageModel, data: Data, epoch: Epoch, way: Method) -> Numbers:
    lessons, book = lessons_of(data, by_name=not setup.simulated), epoch.playbook
    result = await examine(
        model, data, lessons, lambda _: book, simulated=setup.simulated, asked=way.answer_prompt
    )
    return {
        "seconds": epoch.seconds,
        **lessons.numbers([entry.content for entry in book.entries]),
        "accuracy": result.accuracy,
        "iterations": len(epoch.iterations),
    }


def report(setup: Setup, measured: Measured) -> Report:
    """Show the sweep and its front, and judge the choices by it."""
    return joined(report_on(setup, data, measured.where(data=data.name)) for data in setup.data)
