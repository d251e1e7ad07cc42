"""All services in one event loop on an in-memory log, without Faust: started, killed and started again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from combee.adapters.memory import MemoryLog
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee.ports import Log
from combee.publish.publisher import Publisher
from combee.reflect.handler import ReflectHandler
from combee.scan.handler import ScanHandler
from combee.settings.batch import BatchSettings
from combee.settings.methods import configured_method
from combee.shuffle.shuffler import Shuffler
from combee.worker.loop import Handler, Loop
from combee_schemas import topics
from support.clock import ManualClock
from support.failpoints.points import CrashFailpoint
from support.failpoints.ports import FaultInjectingLog
from support.models import ModelClient, ScriptedModel
from support.observed import Accesses, ObservedLog

DEADLINE_S = 10.0
ROLES = ("publish", "scan", "shuffle", "reflect")


class Deployment:
    """One log, one clock, one model; ``running`` is a process with some of the services."""

    def __init__(
        self,
        *,
        model: ScriptedModel | None = None,
        partitions: int = 2,
        budget_tokens: int = 16_000,
        spending: SpendPolicy = UNCAPPED,
        **batch: Any,
    ) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog(self.clock, partitions=partitions, scan_partitions=3)
        self.model = model or ScriptedModel()
        self.settings = BatchSettings(**{"batch_size": 10, **batch})
        self.budget_tokens = budget_tokens
        self.spending = spending
        self.partitions = partitions
        self.shuffler: Shuffler | None = None
        self.accesses = {role: Accesses(role) for role in ROLES}
        self._work: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def running(
        self, roles: Sequence[str] = ROLES, *, failpoint: CrashFailpoint | None = None
    ) -> AsyncIterator["Deployment"]:
        """Run services as one process; kill them where the block ends."""
        log = FaultInjectingLog(self.log, failpoint or CrashFailpoint())
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

    # ---- the services, as the composition root wires them

    async def _role(self, role: str, log: Log) -> None:
        match role:
            case "publish":
                publisher = Publisher(
                    log, self.clock, budget_tokens=self.budget_tokens, spending=self.spending
                )
                await publisher.session(asyncio.Event(), lambda: None)
            case "shuffle":
                await self._shuffle(log)
            case "scan":
                scan = ScanHandler(log, ModelClient(self.model), self.clock, carry=self.settings.carry)
                await together(self._loop(log, scan), scan.playbooks.view.run())
            case "reflect":
                reflect = ReflectHandler(
                    log, ModelClient(self.model), self.clock, configured_method(self.settings)
                )
                await together(self._loop(log, reflect), reflect.playbooks.view.run())

    async def _loop(self, log: Log, handler: Handler) -> None:
        await Loop(log, handler, self.clock, max_open=16).run(asyncio.Event(), drain_s=1.0)

    async def _shuffle(self, log: Log) -> None:
        self.shuffler = shuffler = Shuffler(log, self.clock, self.settings, self.spending)
        feeds = [_feed(log, shuffler, topic) for topic in (topics.REFLECTIONS.name, topics.COMMANDS.name)]
        turns = self._turns(shuffler)
        await together(turns, shuffler.playbooks.view.run(), shuffler.sizes.run(), *feeds)

    async def _turns(self, shuffler: Shuffler) -> None:
        await shuffler.assign(range(self.partitions))
        while True:
            shuffler.wake.clear()
            await shuffler.turn()
            await shuffler.wake.wait()


async def _feed(log: Log, shuffler: Shuffler, topic: str) -> None:
    """Deliver a topic as Faust does: everything, in order per partition."""
    async for records in log.follow(topic):
        for record in records or ():
            await shuffler.deliver(record)


async def together(*work: Coroutine[None, None, None]) -> None:
    """Run coroutines until one ends; the others are cancelled, its error is raised."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
