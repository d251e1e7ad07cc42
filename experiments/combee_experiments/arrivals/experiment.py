"""``arrivals``: which batch-size policy serves continuous learning, at few and at many reflections an hour.

The services and the controller are the real ones, on the log in memory; reflections arrive one by one (Poisson), and
model calls take drawn times and time for each token.
"""

import asyncio
from collections.abc import Iterator, Sequence
from random import Random
from statistics import fmean, quantiles

from combee.adapters.ports import LanguageModel
from combee.core.batching.sizing.policy import SizingPolicy
from combee.process.settings.batch import BatchSettings
from combee_experiments.arms.material import reflections
from combee_experiments.arms.services import FOREVER_S, Services, batch_settings
from combee_experiments.arms.tails import Pace, SlowModel
from combee_experiments.arrivals.report import FIXED, report_on
from combee_experiments.data.samples import Data
from combee_experiments.running.cells import Cell, Measured, Numbers
from combee_experiments.running.report import Report, joined
from combee_experiments.running.setup import Setup
from combee_experiments.running.virtual_time import LoopClock
from combee_experiments.scoring.lessons import lessons_of
from combee_schemas.reflection import Reflection
from combee_sim.server.latency import Latency

HOUR_S = 3600.0
RATES = {3: 20, 60: 100, 1_000: 500, 10_000: 3_000}
"""Reflections an hour → how many of them arrive in a run; the data begin again where they end."""
SIGMA = 0.5
MAX_WAIT_S = float(BatchSettings.model_fields["max_wait_s"].default)
START = int(BatchSettings.model_fields["batch_size"].default)
POLICIES: dict[str, SizingPolicy | None] = {
    FIXED: None,
    "plateau": SizingPolicy(kind="plateau", configured=START),
    "keep-up": SizingPolicy(kind="keep-up", configured=START),
}


def cells(setup: Setup) -> Iterator[Cell]:
    """Every policy at every rate."""
    for data in setup.data:
        for rate in RATES:
            for policy in POLICIES:
                for seed in setup.seeds:
                    yield Cell.of(policy, seed, data=data.name, per_hour=rate)


def measure(setup: Setup, cell: Cell) -> Numbers:
    """Let reflections arrive until all are applied."""
    data = setup.named(cell.text("data"))
    return setup.run(_measure(setup, data, reflections(setup, data, cell.seed), cell))


async def _measure(setup: Setup, data: Data, made: Sequence[Reflection], cell: Cell) -> Numbers:
    rate = cell.number("per_hour")
    arriving = tuple(_stream(made, min(RATES[rate], setup.samples or RATES[rate])))
    async with setup.open_model(cell.seed) as model:
        slow = SlowModel(
            model,
            Latency(median_s=setup.latency.median_s, sigma=SIGMA),
            seed=cell.seed,
            concurrency=setup.concurrency,
            pace=Pace(),
        )
        numbers, texts = await _run(slow, arriving, POLICIES[cell.arm], rate / HOUR_S, cell.seed)
    return {**numbers, "lessons": len(lessons_of(data, by_name=not setup.simulated).kept(texts))}


def _stream(made: Sequence[Reflection], count: int) -> Iterator[Reflection]:
    """Yield reflections, those of each new round under ids of their own."""
    for number in range(count):
        again, which = divmod(number, len(made))
        reflection = made[which]
        name = f"{reflection.reflection_id}-{again}" if again else reflection.reflection_id
        yield reflection.model_copy(update={"reflection_id": name})


async def _run(
    model: LanguageModel, arriving: Sequence[Reflection], sizing: SizingPolicy | None, per_s: float, seed: int
) -> tuple[Numbers, list[str]]:
    """Return what one run came to, and the last playbook's entries."""
    drawn = Random(f"arrivals {seed}")  # noqa: S311 - reproducible, not secret
    clock = LoopClock()
    settings = batch_settings(START, max_wait_s=MAX_WAIT_S)
    services = Services(model, settings, clock, playbook=arriving[0].playbook, sizing=sizing)
    published_ms: dict[str, int] = {}
    async with services.running(), asyncio.timeout(FOREVER_S):
        for reflection in arriving:
            await asyncio.sleep(drawn.expovariate(per_s))
            published_ms[reflection.reflection_id] = clock.now_ms()
            await services.publish(reflection)
        await services.until_applied(len(arriving))
    batches, versions = await services.batches(), await services.versions()
    applied_ms = {version.batch_sequence: version.created_at_ms for version in versions}
    members = [(batch, member.reflection_id) for batch in batches for member in batch.members]
    stale_s = [(applied_ms[batch.plan.sequence] - published_ms[name]) / 1000 for batch, name in members]
    free_ms = {number + 1: at_ms for number, at_ms in applied_ms.items()}
    waited_s = [
        (batch.plan.closed_at_ms - max(published_ms[name], free_ms.get(batch.plan.sequence, 0))) / 1000
        for batch, name in members
    ]
    sizes = [batch.plan.reflections for batch in batches]
    numbers = {
        "stale_s": fmean(stale_s),
        "stale_p95_s": quantiles(stale_s, n=20)[-1],
        "waited_most_s": max(waited_s),
        "batches": len(batches),
        "size": fmean(sizes),
        "last_size": batches[-1].plan.batch_size,
        "calls": sum(version.usage.calls for version in versions),
        "tokens_in": sum(version.usage.tokens_in for version in versions),
    }
    return numbers, [entry.content for entry in versions[-1].entries]


def report(setup: Setup, measured: Measured) -> Report:
    """Judge each policy against the fixed size."""
    return joined(report_on(data.name, measured.where(data=data.name), MAX_WAIT_S) for data in setup.data)
