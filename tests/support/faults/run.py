"""One run under one fault: publish, hurt, wait for rest, let the checker judge."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random

from combee.adapters.clock import SystemClock
from combee.adapters.ports import TransientError
from combee.core.log.ledger import LedgerReport
from combee.log.inspection.audit import audit
from combee_schemas import topics
from combee_schemas.batch import Batch
from combee_schemas.reflection import Reflection
from support.faults import checker
from support.faults.cluster import Cluster, Scenario, running_cluster
from support.faults.driver import Driver, Item, items
from support.faults.progress import Progress

COUNT = 210
LEVELS = 3
SETTLE_S = 90.0
REST_S = 40.0
POLL_S = 0.3
UNDER_WAY = 2
"""Calls per slot that a death can waste: one with the model, one answered whose result is on its way to the log."""
ASKS = {"reflect": ("reflector",), "scan": ("aggregator",), "model": ("reflector", "aggregator")}
"""Who makes which calls."""
ASKED = frozenset({"ok", "abandoned"})
"""Outcomes of calls that the model worked on; the others are faults of its own."""


@dataclass(slots=True, kw_only=True)
class Run:
    """One run as a fault sees it."""

    cluster: Cluster
    progress: Progress
    driver: Driver
    given: Sequence[Item]
    rng: Random
    faults_at_ms: list[tuple[str, int]] = field(default_factory=list)
    """When which writer was hurt, or healed: from then on its recovery counts."""
    ready_s: list[float] = field(default_factory=list)
    """How long processes that were ended needed until their successors were ready."""
    in_flight: int = 0
    """Model calls that may have been under way at the faults."""

    async def reach(self, share: float) -> None:
        """Wait until so much of the work that is published during the fault is done: seen, batched, applied."""
        wanted = int(share * 3 * (2 * len(self.given) // 3))
        await self.progress.until(
            lambda: self.progress.steps >= wanted, SETTLE_S, f"no progress of {share:.0%}"
        )

    def moments(self, count: int, low: float = 0.05, high: float = 0.9) -> list[float]:
        """Return seeded moments of progress, in order."""
        return sorted(self.rng.uniform(low, high) for _ in range(count))

    def note_fault(self, *writers: str, calls: bool = True) -> None:
        """Note that recovery of these writers begins now, and what they may ask again."""
        now = SystemClock().now_ms()
        self.faults_at_ms += [(writer, now) for writer in writers]
        if calls:
            asking = {"reflect", "scan"} & set(writers)
            self.in_flight += len(asking) * UNDER_WAY * self.cluster.settings.model.llm_concurrency


Fault = Callable[[Run], Coroutine[None, None, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run came to; a row of the table is made of many."""

    fault: str
    seed: int
    violations: tuple[str, ...]
    acknowledged: int
    lost: int
    double: int
    dead_lettered: int
    levels: int
    calls: int
    extra_calls: int
    ready_s: float | None
    recovery_s: float | None
    seconds: float
    left_out: int = 0
    """Nodes that a combine did not wait for."""

    def check(self, expect_dead: int | None) -> None:
        """Assert that every promise was kept."""
        summary = "\n".join([f"{self.fault}, seed {self.seed}", *self.violations])
        assert not self.violations, summary
        assert (self.lost, self.double) == (0, 0)
        assert self.acknowledged >= COUNT
        assert self.levels >= LEVELS
        assert expect_dead is None or self.dead_lettered == expect_dead


async def survive(
    scenario: Scenario, fault: Fault, *, name: str, seed: int, expect_dead: int | None = 0
) -> Outcome:
    """Run under a fault and assert that nothing is wrong afterwards.

    ``expect_dead`` is how many of the acknowledged items may be dead letters; None: any number.
    """
    began = time.monotonic()
    async with running_cluster(scenario) as cluster:
        log, driver = cluster.log(), Driver(cluster.log)
        try:
            async with Progress(log).running() as progress:
                run = Run(
                    cluster=cluster,
                    progress=progress,
                    driver=driver,
                    given=items(COUNT, seed),
                    rng=Random(f"{name} {seed}"),
                )
                try:
                    await _play(run, fault)
                except* (AssertionError, TimeoutError) as failed:
                    raise AssertionError(f"{name}: {failed.exceptions}\n{cluster.tails()}") from failed
                outcome = await _judge(run, name=name, seed=seed, began=began)
        finally:
            await driver.close()
            await log.close()
    outcome.check(expect_dead)
    return outcome


async def _play(run: Run, fault: Fault) -> None:
    """Publish a third at once, one while the fault happens, one after it; wait until all of it is applied."""
    third = len(run.given) // 3
    await run.driver.publish(run.given[:third])
    async with asyncio.TaskGroup() as group:
        hurting = group.create_task(fault(run))
        await run.reach(0.1)
        await run.driver.publish(run.given[third : 2 * third])
        await hurting
        await run.driver.publish(run.given[2 * third :])
    await settle(run)


async def settle(run: Run) -> None:
    """Wait until everything acknowledged is seen, close the last windows, wait until it is applied or dead."""
    progress, acked = run.progress, run.driver.acked

    def all_seen() -> bool:
        return acked.keys() <= progress.offsets.keys() | progress.dead_lettered

    def all_applied() -> bool:
        return not progress.unsettled(acked)

    await progress.until(all_seen, SETTLE_S, "not every acknowledged item is a reflection")
    await run.driver.flush(max(progress.offsets.values(), default=0))
    await progress.until(all_applied, SETTLE_S, "not everything acknowledged is applied")


async def at_rest(run: Run) -> None:
    """Wait until nothing is uncommitted and no transaction is open; what stays so, the checker names."""
    log, deadline = run.cluster.log(), time.monotonic() + REST_S
    servers, prefix = run.cluster.scenario.bootstrap_servers, run.cluster.scenario.prefix
    try:
        while time.monotonic() < deadline:
            try:
                if not await checker.unfinished(log, servers, prefix):
                    return
            except TransientError:
                pass  # behind a transaction that is still open
            await asyncio.sleep(POLL_S)
    finally:
        await log.close()


async def _judge(run: Run, *, name: str, seed: int, began: float) -> Outcome:
    seconds = time.monotonic() - began
    await at_rest(run)
    scenario, log = run.cluster.scenario, run.cluster.log()
    try:
        dumped, ledger = await checker.dump(log), await audit(log)
        extra = extra_calls(run, dumped, ledger)
        violations = await checker.violations(
            log,
            scenario.bootstrap_servers,
            scenario.prefix,
            acked=run.driver.acked,
            repeated_calls=extra,
            allowed_repeats=run.in_flight,
        )
    finally:
        await log.close()
    batches = [message for _, message in dumped.messages(topics.BATCHES) if isinstance(message, Batch)]
    return Outcome(
        fault=name,
        seed=seed,
        violations=tuple(violations),
        acknowledged=len(run.driver.acked),
        lost=ledger.lost,
        double=ledger.double,
        dead_lettered=len(run.progress.dead_lettered & run.driver.acked.keys()),
        levels=max(len(batch.plan.widths) for batch in batches),
        calls=len(run.cluster.calls()),
        extra_calls=extra,
        ready_s=round(max(run.ready_s), 2) if run.ready_s else None,
        recovery_s=recovery(run),
        seconds=round(seconds, 1),
        left_out=ledger.model_calls.left_out,
    )


def extra_calls(run: Run, dumped: checker.Dump, ledger: LedgerReport) -> int:
    """Return how many calls the model worked on beyond those with a result in the log, or beyond the plan."""
    asked = sum(call["outcome"] in ASKED for call in run.cluster.calls())
    reflections = {
        message.reflection_id: message.usage.calls
        for _, message in dumped.messages(topics.REFLECTIONS)
        if isinstance(message, Reflection)
    }
    calls = ledger.model_calls
    recorded = sum(reflections.values()) + calls.made
    planned = run.driver.traces + calls.planned + calls.checks + calls.hedges
    return max(0, asked - recorded, asked - planned)


def recovery(run: Run) -> float | None:
    """Return the longest time from a writer's last fault to its next sign of life."""
    # Only the last: after an earlier one, the next fault may have come before any work did.
    waits = [_sign_of_life(run, writer, at_ms) for writer, at_ms in dict(run.faults_at_ms).items()]
    known_waits = [wait for wait in waits if wait is not None]
    return round(max(known_waits), 2) if known_waits else None


def _sign_of_life(run: Run, writer: str, at_ms: int) -> float | None:
    """Return after how many seconds a writer wrote, or asked the model, again."""
    if writer not in ASKS:
        return run.progress.wrote_after(writer, at_ms)
    starts = [
        call["start_ms"]
        for call in run.cluster.calls()
        if call["role"] in ASKS[writer] and call["start_ms"] > at_ms and call["outcome"] in ASKED
    ]
    return (min(starts) - at_ms) / 1000 if starts else None
