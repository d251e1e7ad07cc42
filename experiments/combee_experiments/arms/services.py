"""Reflect, shuffle, scan and publish in one event loop on an in-memory log: the services' own code, without Faust."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Clock, LanguageModel, TopicPartition
from combee.assembly import wiring
from combee.control.controller import Controller
from combee.core.batching.sizing.policy import SizingPolicy
from combee.core.gate.policy import NO_GATE, GatePolicy
from combee.process.settings.batch import BatchSettings
from combee.process.worker.provenance import Provenance
from combee.process.worker.views import Playbooks
from combee.publish.publisher import Publisher
from combee.reflect.handler import ReflectHandler
from combee.scan.handler import ScanHandler
from combee.shuffle.shuffler import Shuffler
from combee_experiments.running.virtual_time import LoopClock
from combee_schemas import topics
from combee_schemas.base import Usage
from combee_schemas.batch import Batch
from combee_schemas.command import Command
from combee_schemas.control import BatchSize
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection

FOREVER_S = 1e7
"""In virtual seconds: only a stand-still takes so long."""
SOON_S = 0.01
LOOK_S = 1.0
"""How often the shuffler looks at its windows when nothing happens."""
BUDGET_TOKENS = 24_000


def batch_settings(batch_size: int, **others: Any) -> BatchSettings:
    """Return the defaults, whatever stands in somebody's environment, but everything counts at once, as in the paper.

    Only size or a flush closes a window.
    """
    defaults = {name: field.default for name, field in BatchSettings.model_fields.items()}
    wanted = {"batch_size": batch_size, "max_wait_s": FOREVER_S, "batch_timeout_s": FOREVER_S, "trust": "lab"}
    return BatchSettings(**{**defaults, **wanted, **others})


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What the services made of some reflections."""

    playbook: Playbook
    versions: int
    usage: Usage
    seconds: float
    """From the first reflection published to the last version, on the loop's clock."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The entries of the last version."""
        return tuple(entry.content for entry in self.playbook.entries)


class Services:
    """One playbook's way from reflections to versions; ``applied`` counts reflections in versions."""

    def __init__(
        self,
        model: LanguageModel,
        batch: BatchSettings,
        clock: Clock,
        *,
        playbook: str,
        sizing: SizingPolicy | None = None,
        provenance: Provenance | None = None,
        gates: GatePolicy = NO_GATE,
        budget_tokens: int = BUDGET_TOKENS,
    ) -> None:
        self._clock = clock
        self._name = playbook
        self._changed = asyncio.Event()
        self.log = MemoryLog(clock, partitions=1, scan_partitions=1)
        self._shuffler = Shuffler(self.log, clock, batch, provenance=provenance)
        self._reflect = ReflectHandler(self.log, model, clock, batch, provenance=provenance)
        self._scan = ScanHandler(self.log, model, clock)
        self._publisher = Publisher(self.log, clock, budget_tokens=budget_tokens, gates=gates)
        self._controller = Controller(self.log, clock, sizing) if sizing else None
        self._playbooks = Playbooks(self.log, self._appeared)
        self.applied = 0

    def _appeared(self, _: str, playbook: Playbook | None) -> None:
        if playbook is not None:
            self.applied = max(self.applied, playbook.through_offset + 1)
            self._changed.set()

    @property
    def latest(self) -> Playbook:
        """The newest version, as an agent would have it."""
        return self._playbooks.latest(self._name)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Services"]:
        """Run the services while the context is open; one that fails ends it."""
        stop = asyncio.Event()
        delivery = wiring.delivery_without_faust(self.log, self._shuffler, [0], look_s=LOOK_S)
        work = [
            self._playbooks.view.run(),
            wiring.run_handler(self.log, self._reflect, self._clock, stop),
            wiring.run_handler(self.log, self._scan, self._clock, stop),
            wiring.run_shuffle(self._shuffler, delivery),
            self._publisher.session(stop, wiring.no_hook),
        ]
        if self._controller is not None:
            work.append(wiring.run_control(self._controller, stop))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(service) for service in work]
            yield self
            for task in tasks:
                task.cancel()

    async def publish(self, reflection: Reflection) -> None:
        """Write one reflection."""
        await self.log.produce(topics.REFLECTIONS.record(reflection))

    async def flush(self) -> None:
        """Let what is left over close as a smaller batch."""
        end = (await self.log.ends(topics.REFLECTIONS.name))[0]
        command = Command(
            command_id=f"flush-{end}", playbook=self._name, kind="flush", through_offset=end - 1
        )
        await self.log.produce(topics.COMMANDS.record(command))

    async def until_applied(self, count: int) -> None:
        """Wait until versions hold so many reflections."""
        while self.applied < count:
            self._changed.clear()
            await self._changed.wait()

    async def decision(self) -> BatchSize:
        """Return the controller's decision after the newest version, once the shuffler knows it."""
        while True:
            decided = self._shuffler.sizes.get(self._name)
            if decided is not None and decided.sequence >= self.latest.batch_sequence:
                return decided
            await asyncio.sleep(SOON_S)

    async def versions(self) -> tuple[Playbook, ...]:
        """Return every version, in order."""
        source = TopicPartition(topic=topics.HISTORY.name, partition=0)
        return tuple([topics.HISTORY.read(record) async for record in self.log.read(source, 0)])

    async def batches(self) -> tuple[Batch, ...]:
        """Return every manifest, in order."""
        source = TopicPartition(topic=topics.BATCHES.name, partition=0)
        return tuple([topics.BATCHES.read(record) async for record in self.log.read(source, 0)])


async def learn(model: LanguageModel, reflections: Sequence[Reflection], batch: BatchSettings) -> Learnt:
    """Let the services learn all of it, published at once."""
    clock = LoopClock()
    services = Services(model, batch, clock, playbook=reflections[0].playbook)
    async with services.running():
        started = clock.monotonic()
        for reflection in reflections:
            await services.publish(reflection)
        await services.flush()
        await services.until_applied(len(reflections))
        seconds = clock.monotonic() - started
    versions = await services.versions()
    usage = sum((version.usage for version in versions), Usage())
    return Learnt(playbook=versions[-1], versions=len(versions), usage=usage, seconds=seconds)
