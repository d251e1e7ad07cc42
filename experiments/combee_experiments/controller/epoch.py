"""An epoch of synchronous iterations: as many agents as the batch has reflections, then the tree, then a version."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from combee.adapters.ports import LanguageModel
from combee.core.batching.sizing.decide import decide
from combee.core.batching.sizing.policy import Iteration, SizingPolicy
from combee_experiments.arms.agents import Fleet
from combee_experiments.arms.services import FOREVER_S, Services, batch_settings
from combee_experiments.arms.tails import Tail
from combee_experiments.running.virtual_time import LoopClock
from combee_schemas.control import BatchSize
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection

MOST = 2_000
"""The largest batch size there is: no window closes by itself."""
POLICY = SizingPolicy(kind="plateau")
"""The paper's controller with the product's candidates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One iteration: from the start of its agents to its version."""

    batch_size: int
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """All reflections once."""

    iterations: tuple[Done, ...]
    playbook: Playbook
    decision: BatchSize | None
    """The last one, where a controller decided."""

    @property
    def seconds(self) -> float:
        """All of it, on the loop's clock."""
        return sum(iteration.delay_s for iteration in self.iterations)

    def delay_of(self, batch_size: int) -> float:
        """Return what a full iteration of this size took on average: the paper's d(b)."""
        return fmean(iteration.delay_s for iteration in self.iterations if iteration.batch_size == batch_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What the epochs of an experiment share."""

    model: LanguageModel
    agent: Tail
    agents: int
    """At once."""
    seed: int
    method: str = "ace"
    carry: bool = True


Next = Callable[[Services, Sequence[Done], BatchSize | None], Awaitable[tuple[int, BatchSize | None]]]
"""The iterations so far and the decision that stands → the next batch size and the decision behind it."""


def fixed(batch_size: int) -> Next:
    """Take the same size each time."""

    async def following(_: Services, __: Sequence[Done], ___: BatchSize | None) -> tuple[int, None]:
        return batch_size, None

    return following


async def by_iterations(
    services: Services, done: Sequence[Done], standing: BatchSize | None
) -> tuple[int, BatchSize | None]:
    """Let the controller's core decide by whole iterations, agents included: the paper's delay."""
    if not done:
        return POLICY.smallest, None
    last = done[-1]
    seen = Iteration(
        playbook=services.latest.name,
        sequence=len(done),
        asked=standing.batch_size if standing else POLICY.smallest,
        reflections=last.batch_size,
        is_fair=True,
        delay_s=last.delay_s,
    )
    decided = decide(standing, seen, POLICY)
    return decided.batch_size, decided


async def by_versions(
    services: Services, done: Sequence[Done], _: BatchSize | None
) -> tuple[int, BatchSize | None]:
    """Ask the control service, which runs with the others and measures from a batch's closing to its version."""
    if not done:
        return POLICY.smallest, None
    decided = await services.decision()
    return decided.batch_size, decided


async def run_epoch(given: Circumstances, reflections: Sequence[Reflection], following: Next) -> Epoch:
    """Run iterations until every reflection is applied."""
    deployed = following is by_versions
    services = Services(
        given.model,
        batch_settings(POLICY.smallest if deployed else MOST, method=given.method, carry=given.carry),
        clock := LoopClock(),
        playbook=reflections[0].playbook,
        sizing=POLICY if deployed else None,
    )
    fleet, done, decision = Fleet(services, given.agent, given.seed), list[Done](), None
    async with services.running(), asyncio.timeout(FOREVER_S):
        while fleet.published < len(reflections):
            size, decision = await following(services, done, decision)
            started, wave = clock.monotonic(), reflections[fleet.published : fleet.published + size]
            await fleet.run(wave, given.agents)
            # The control service trusts full batches only, and those close by themselves.
            if not (deployed and len(wave) == size):
                await services.flush()
            await services.until_applied(fleet.published)
            done.append(Done(batch_size=len(wave), delay_s=clock.monotonic() - started))
    return Epoch(iterations=tuple(done), playbook=services.latest, decision=decision)
