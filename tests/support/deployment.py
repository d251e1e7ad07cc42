"""All services in one event loop on an in-memory log, without Faust: started, killed and started again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import fields
from functools import cache
from typing import Any

import pytest

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import NO_TRACING, Embedder, LanguageModel, Log, Tracing
from combee.assembly import wiring
from combee.control.outcomes import OutcomeFolder
from combee.core.batching.limits import ShuffleLimits
from combee.core.gate.policy import NO_GATE, GatePolicy
from combee.core.names.tenants import IN_BATCHES_S, NO_LIMITS, Limits, Tenants
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee.process.settings.batch import BatchSettings
from combee.process.telemetry.counted import CountedLog, CountedModel
from combee.process.telemetry.metrics import Metrics, new_registry
from combee.process.worker.provenance import Provenance
from combee.process.worker.vectors import Vectors
from combee.publish import decide
from combee.publish.basis import WaitsFor
from combee.publish.publisher import Publisher
from combee.reflect.handler import ReflectHandler
from combee.scan.handler import ScanHandler
from combee.scan.head_start import HeadStart
from combee.shuffle.neighbours import Neighbours
from combee.shuffle.shuffler import Shuffler
from combee_schemas import topics
from support.clock import ManualClock
from support.failpoints.points import CrashFailpoint
from support.failpoints.ports import FaultInjectingLog
from support.ledger import NAME, behind, check, outgoing, records, reflection, versions
from support.models import Answer, ModelClient, ScriptedModel
from support.observed import Accesses, ObservedLog

DEADLINE_S = 10.0
ROLES = ("publish", "scan", "shuffle", "reflect")
"""What it takes to learn; ``control`` beside them makes statistics of outcomes (its sizes are another test's)."""
CONTROL = "control"
LIMITS = {limit.name for limit in fields(ShuffleLimits)}


@contextmanager
def updates_left() -> Iterator[None]:
    """Let publish leave updates for its next session."""

    def later(*_: object) -> WaitsFor:
        return "predecessor"

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(decide, "decide_update", later)
        yield


@cache
def settings_of(**batch: Any) -> BatchSettings:
    """Return settings that nobody changes, once each: hundreds of deployments have the same."""
    return BatchSettings(**batch)


class Deployment:
    """One log, one clock, one model; ``running`` is a process with some of the services."""

    def __init__(
        self,
        *,
        model: ScriptedModel | None = None,
        partitions: int = 2,
        budget_tokens: int = 16_000,
        spending: SpendPolicy = UNCAPPED,
        embedder: Embedder | None = None,
        limits: Mapping[str, Limits] = NO_LIMITS,
        provenance: Provenance | None = None,
        gates: GatePolicy = NO_GATE,
        tracing: Tracing = NO_TRACING,
        head_start: HeadStart | None = None,
        **batch: Any,
    ) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog(self.clock, partitions=partitions, scan_partitions=3)
        self.model = model or ScriptedModel()
        # Small batches have a tree here: most tests are about trees, and small ones are quick.
        own = {name: batch.pop(name) for name in LIMITS & batch.keys()}
        self.limits_of_shuffle = ShuffleLimits(**own)
        self.settings = settings_of(**{"batch_size": 10, "small_batches": "paper", **batch})
        self.budget_tokens = budget_tokens
        self.spending = spending
        self.embedder = embedder
        self.limits = limits
        self.provenance = provenance
        self.gates = gates
        self.tracing = tracing
        self.head_start = head_start
        self.partitions = partitions
        self.shuffler: Shuffler | None = None
        self.accesses = {role: Accesses(role) for role in ROLES}
        self._work: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def running(
        self, roles: Sequence[str] = ROLES, *, failpoint: CrashFailpoint | None = None
    ) -> AsyncIterator["Deployment"]:
        """Run services as one process; kill them where the block ends."""
        log: Log = FaultInjectingLog(self.log, failpoint or CrashFailpoint())
        if self.tracing is not NO_TRACING:
            log = CountedLog(log, wiring.no_hook, self.tracing)
        for role in roles:
            self.accesses.setdefault(role, Accesses(role))
        mine = [
            asyncio.create_task(self._role(role, ObservedLog(log, self.accesses[role])), name=role)
            for role in roles
        ]
        self._work += mine
        try:
            yield self
        finally:
            for task in mine:
                self._work.remove(task)
                task.cancel()
            await asyncio.gather(*mine, return_exceptions=True)

    def check(self) -> None:
        """Raise what ended a service."""
        for task in self._work:
            if task.done():
                task.result()
                raise AssertionError(f"{task.get_name()} ended by itself")

    async def until(self, condition: Callable[[], bool], timeout_s: float = DEADLINE_S) -> None:
        """Wait until the log (or what follows from it) fulfils a condition; a service that ends raises."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                changed = self.log._store.changed
                self.check()
                # Not wait_for: before Python 3.12 it may swallow a cancellation, and with it the deadline.
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.005):
                        await changed.wait()

    def advance(self, seconds: float) -> None:
        """Let time pass and have the shuffler look at its windows."""
        self.clock.advance(seconds)
        if self.shuffler is not None:
            self.shuffler.wake.set()

    # ---- the services, wired as everywhere

    async def _role(self, role: str, log: Log) -> None:
        stop = asyncio.Event()
        match role:
            case "publish":
                publisher = Publisher(
                    log,
                    self.clock,
                    budget_tokens=self.budget_tokens,
                    spending=self.spending,
                    gates=self.gates,
                    tracing=self.tracing,
                )
                await publisher.session(stop, wiring.no_hook)
            case "control":
                outcomes = OutcomeFolder(log, self.clock, provenance=self.provenance, tracing=self.tracing)
                await wiring.run_outcomes(outcomes, stop)
            case "shuffle":
                self.shuffler = Shuffler(
                    log,
                    self.clock,
                    self.settings,
                    self.spending,
                    budget_tokens=self.budget_tokens,
                    neighbours=Neighbours(Vectors(self.embedder, "embedding")),
                    tenants=Tenants(self.limits, burst_s=IN_BATCHES_S),
                    provenance=self.provenance,
                    tracing=self.tracing,
                    limits=self.limits_of_shuffle,
                )
                partitions = range(self.partitions)
                delivery = wiring.delivery_without_faust(log, self.shuffler, partitions)
                await wiring.run_shuffle(self.shuffler, delivery)
            case "scan":
                scan = ScanHandler(log, self._model(role), self.clock, head_start=self.head_start)
                await wiring.run_handler(
                    log, scan, self.clock, stop, max_open=16, drain_s=1.0, tracing=self.tracing
                )
            case "reflect":
                reflect = ReflectHandler(
                    log, self._model(role), self.clock, self.settings, provenance=self.provenance
                )
                await wiring.run_handler(
                    log, reflect, self.clock, stop, max_open=16, drain_s=1.0, tracing=self.tracing
                )

    def _model(self, role: str) -> LanguageModel:
        client = ModelClient(self.model)
        if self.tracing is NO_TRACING:
            return client
        return CountedModel(
            client, Metrics(new_registry(), self.clock, service=role), self.tracing, "scripted"
        )


async def answered_again(deployment: Deployment) -> None:
    """Let scan answer a batch, forget its commits, as when it dies before the first, and deliver all of it again."""
    async with deployment.running(["scan"]):
        await deployment.until(lambda: bool(records(deployment.log, topics.UPDATES)))
    committed = deployment.log._store.committed
    before = committed.pop("scan")
    async with deployment.running(["scan"]):
        # What is answered twice lengthens the log: a partition may be past where it was.
        await deployment.until(
            lambda: all(
                committed.get("scan", {}).get(source, -1) >= offset for source, offset in before.items()
            )
        )


async def one_batch(model: Answer | ScriptedModel, count: int = 9, **settings: Any) -> Deployment:
    """Run one batch (by default three groups and a root) to its version; nothing may be lost."""
    model = model if isinstance(model, ScriptedModel) else ScriptedModel(model)
    deployment = Deployment(**{"model": model, "budget_tokens": 10**6, "batch_size": count, **settings})
    published = [reflection(n) for n in range(count)]
    async with deployment.running():
        await deployment.log.produce(*map(outgoing, published))
        await deployment.until(lambda: bool(versions(deployment.log)))
        await deployment.until(lambda: not behind(deployment.log))
    check(deployment.log, {NAME: published})
    return deployment
