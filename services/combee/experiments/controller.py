"""``controller``: a sweep of fixed batch sizes, and runs whose size the controller chooses (virtual time).

An iteration is the paper's: as many agents as the batch has reflections, then the tree, then the version.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from combee.experiments.fleet import Fleet
from combee.experiments.services import FOREVER_S, Services, batch_settings
from combee.experiments.tails import Pace, SlowModel
from combee.experiments.virtual import LoopClock, run_virtual
from combee.ports import LanguageModel
from combee.sim.latency import Latency
from combee_schemas.base import Usage
from combee_schemas.reflection import Reflection

AGENT = Latency(median_s=20.0, sigma=0.4)
CALL = Latency(median_s=1.0, sigma=0.4)
AGENTS = 64
"""Agents at once: rate limits end somewhere."""
CONCURRENCY = 32
SIZES = (5, 10, 20, 30, 40, 60, 80, 100, 150, 250)


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One batch: how many reflections, and from its first agent's start to its version."""

    batch_size: int
    delay_s: float


NextSize = Callable[[Sequence[Iteration]], int]
"""The iterations so far → the next one's batch size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """All reflections once."""

    iterations: tuple[Iteration, ...]
    entries: tuple[str, ...]
    usage: Usage

    @property
    def delay_s(self) -> float:
        """The whole epoch, in virtual seconds."""
        return sum(one.delay_s for one in self.iterations)


def run_epoch(
    model: LanguageModel, reflections: Sequence[Reflection], next_size: NextSize, *, seed: int, carry: bool
) -> Epoch:
    """Run synchronous iterations until every reflection is applied; in virtual time."""
    return run_virtual(_run(model, reflections, next_size, seed=seed, carry=carry))


async def _run(
    model: LanguageModel, reflections: Sequence[Reflection], next_size: NextSize, *, seed: int, carry: bool
) -> Epoch:
    slow = SlowModel(model, CALL, seed=seed, concurrency=CONCURRENCY, pace=Pace())
    settings = batch_settings(max(SIZES), carry=carry)
    clock = LoopClock()
    services = Services(slow, settings, clock, playbook=reflections[0].playbook)
    fleet, done = Fleet(services, AGENT, seed), list[Iteration]()
    async with services.running(), asyncio.timeout(FOREVER_S):
        while fleet.published < len(reflections):
            size, started = next_size(done), clock.monotonic()
            await services.resize(size, "experiment")
            wave = reflections[fleet.published : fleet.published + size]
            await fleet.run(wave, AGENTS)
            await services.flush()
            await services.until_applied(fleet.published)
            done.append(Iteration(batch_size=len(wave), delay_s=clock.monotonic() - started))
        entries = tuple(entry.content for entry in services.latest.entries)
    return Epoch(iterations=tuple(done), entries=entries, usage=slow.usage)
