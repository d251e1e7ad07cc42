"""One run: a fleet in drawn time, the services, and what the log says about both afterwards."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

from combee.adapters.ports import LanguageModel
from combee_experiments.arms.agents import Fleet
from combee_experiments.arms.services import FOREVER_S, Services, batch_settings
from combee_experiments.arms.tails import Tail
from combee_experiments.baselines.approaches import batches
from combee_experiments.running.virtual_time import LoopClock
from combee_schemas.base import Usage
from combee_schemas.batch import Batch
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection

MOST = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long an agent's run and a model call take."""

    agent: Tail
    call: Tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """How iterations follow each other."""

    batch_size: int
    agents: int
    """At once."""
    inflight: int
    """Batches without a version at once."""
    waits: bool = False
    """Agents start together and wait for the version that their reflections go into: the paper's iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run left in the log."""

    started_ms: int
    shown: Mapping[str, int]
    """Reflection id → the version its agent had."""
    batches: tuple[Batch, ...]
    versions: tuple[Playbook, ...]

    def numbers(self) -> dict[str, float]:
        """Return times, in seconds, and staleness, in versions and in batches."""
        at = {version.batch_sequence: version.version for version in self.versions}
        members = [(batch, member.reflection_id) for batch in self.batches for member in batch.members]
        behind = [at[batch.plan.sequence] - 1 - self.shown[name] for batch, name in members]
        stale = [batch.plan.staleness for batch in self.batches]
        usage = sum((version.usage for version in self.versions), Usage())
        return {
            "seconds": self._applied_s(1.0),
            "most_s": self._applied_s(MOST),
            "behind": fmean(behind),
            "behind_most": max(behind),
            "stale": fmean(stale),
            "stale_most": max(stale),
            "applied": len({name for _, name in members}),
            "repeated": len(members) - len({name for _, name in members}),
            "versions": len(self.versions),
            "calls": usage.calls,
            "tokens": usage.tokens_in + usage.tokens_out,
        }

    def _applied_s(self, share: float) -> float:
        """Return after how long versions held this share of all reflections."""
        held = list(accumulate(version.reflections for version in self.versions))
        pairs = zip(self.versions, held, strict=True)
        return next((v.created_at_ms - self.started_ms) / 1000 for v, n in pairs if n >= share * held[-1])


async def run_fleet(
    model: LanguageModel, reflections: Sequence[Reflection], mode: Mode, times: Times, *, seed: int
) -> Run:
    """Run agents and services until every reflection is applied."""
    settings = batch_settings(mode.batch_size, max_inflight_batches=mode.inflight)
    clock = LoopClock()
    services = Services(model, settings, clock, playbook=reflections[0].playbook)
    fleet, started_ms = Fleet(services, times.agent, seed), clock.now_ms()
    async with services.running(), asyncio.timeout(FOREVER_S):
        for wave in batches(reflections, mode.batch_size if mode.waits else len(reflections)):
            await fleet.run(wave, mode.agents)
            await services.flush()
            await services.until_applied(fleet.published)
    return Run(
        started_ms=started_ms,
        shown=fleet.started_at,
        batches=await services.batches(),
        versions=await services.versions(),
    )
