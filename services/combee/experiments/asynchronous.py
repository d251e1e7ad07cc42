"""``async``: synchronous against overlapping iterations under heavy-tailed agents and models (virtual time).

The services are the real ones; agents and model calls take drawn times, and the clock jumps over them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

from combee.experiments.baselines_approaches import batches
from combee.experiments.fleet import Fleet
from combee.experiments.services import FOREVER_S, Services, batch_settings
from combee.experiments.tails import Pareto, SlowModel, Tail
from combee.experiments.virtual import LoopClock, run_virtual
from combee.ports import LanguageModel
from combee.sim.latency import Latency
from combee_schemas.base import Usage
from combee_schemas.batch import Batch
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection

MOST = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long an agent's run and a model call take."""

    name: str
    agent: Tail
    call: Tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """How iterations follow each other."""

    name: str
    inflight: int
    waits: bool = False
    """Agents start together and wait for the version that their reflections go into: the paper's iteration."""


TIMES = (
    Times(name="fixed", agent=Latency(median_s=8), call=Latency(median_s=2)),
    Times(name="log-normal", agent=Latency(median_s=8, sigma=1), call=Latency(median_s=2, sigma=1)),
    Times(name="Pareto", agent=Pareto(median_s=8, shape=1.5), call=Pareto(median_s=2, shape=1.5)),
)
MODES = (
    Mode(name="synchronous", inflight=1, waits=True),
    Mode(name="1 in flight", inflight=1),
    Mode(name="2 in flight", inflight=2),
    Mode(name="4 in flight", inflight=4),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much there is to do, and with how many hands."""

    batch_size: int = 20
    agents: int = 20
    concurrency: int = 16
    """Model calls at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run's result; times in virtual seconds."""

    wall_s: float
    """Until the last reflection was in a version: not before the slowest agent is done."""
    most_s: float
    """Until nine in ten were."""
    behind: float
    """Versions that appeared between an agent's start and the one its reflection went into; mean."""
    behind_most: int
    stale: float
    """Batches applied between a tree's base version and its own; mean."""
    stale_most: int
    entries: tuple[str, ...]
    """The last version's."""
    usage: Usage
    applied: int


def simulate(
    model: LanguageModel,
    reflections: Sequence[Reflection],
    mode: Mode,
    times: Times,
    load: Load,
    *,
    seed: int,
) -> Run:
    """Run agents and services until every reflection is applied; in virtual time."""
    return run_virtual(_run(model, reflections, mode, times, load, seed=seed))


async def _run(
    model: LanguageModel,
    reflections: Sequence[Reflection],
    mode: Mode,
    times: Times,
    load: Load,
    *,
    seed: int,
) -> Run:
    slow = SlowModel(model, times.call, seed=seed, concurrency=load.concurrency)
    services = Services(
        slow,
        batch_settings(load.batch_size, max_inflight_batches=mode.inflight),
        LoopClock(),
        playbook=reflections[0].playbook,
    )
    fleet = Fleet(services, times.agent, seed)
    async with services.running(), asyncio.timeout(FOREVER_S):
        for wave in batches(reflections, load.batch_size if mode.waits else len(reflections)):
            await fleet.run(wave, load.agents)
            await services.flush()
            await services.until_applied(fleet.published)
    return _judge(fleet.started_at, await services.batches(), await services.versions(), slow.usage)


def _judge(
    started_at: dict[str, int], batches: Sequence[Batch], versions: Sequence[Playbook], usage: Usage
) -> Run:
    at = {version.batch_sequence: version for version in versions}
    behind = [
        at[batch.sequence].version - 1 - started_at[member.reflection_id]
        for batch in batches
        for member in batch.members
    ]
    stale = [batch.sequence - 1 - batch.base_sequence for batch in batches]
    last = versions[-1]
    return Run(
        wall_s=last.created_at_ms / 1000,
        most_s=_when(versions, MOST * len(behind)),
        behind=fmean(behind),
        behind_most=max(behind),
        stale=fmean(stale),
        stale_most=max(stale),
        entries=tuple(entry.content for entry in last.entries),
        usage=usage,
        applied=len(behind),
    )


def _when(versions: Sequence[Playbook], count: float) -> float:
    """Return when versions held so many reflections."""
    held = accumulate(version.reflections for version in versions)
    return next(one.created_at_ms / 1000 for one, sofar in zip(versions, held, strict=True) if sofar >= count)
