"""The real services as processes around the stand-in model, and a subscriber that sees what they publish."""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from combee.adapters.kafka import KafkaLog
from combee.adapters.openai.model import OpenAIModel
from combee.assembly import backends
from combee.assembly.local.stack import StackOptions, model_environment, stack
from combee.assembly.local.supervisor import Supervisor
from combee.process.settings.loading import load_settings
from combee.process.worker.views import Playbooks
from combee_schemas import topics
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection

ROLES = ("control", "publish", "scan", "shuffle")
WAIT_S = 120.0
CHUNK = 500
"""Reflections in one call of the producer."""
MODEL_TIMEOUT_S = 30.0


class Subscriber:
    """The newest version of every playbook, as an agent's view has it."""

    def __init__(self, log: KafkaLog) -> None:
        self._changed = asyncio.Event()
        self.playbooks = Playbooks(log, self._appeared)

    def _appeared(self, _name: str, _playbook: Playbook | None) -> None:
        self._changed.set()

    async def until(self, done: Callable[[], bool], timeout_s: float = WAIT_S) -> float:
        """Wait until ``done`` of what has appeared; return when, in monotonic seconds."""
        async with asyncio.timeout(timeout_s):
            while not done():
                self._changed.clear()
                await self._changed.wait()
        return time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running deployment under a prefix of its own."""

    log: KafkaLog
    supervisor: Supervisor
    subscriber: Subscriber
    model: OpenAIModel
    """The same stand-in, asked from this process."""
    call_log: Path

    async def publish(self, reflections: Sequence[Reflection]) -> float:
        """Write reflections as fast as they are acknowledged; return the time of the last ack (monotonic)."""
        for start in range(0, len(reflections), CHUNK):
            await self.log.produce(*map(topics.REFLECTIONS.record, reflections[start : start + CHUNK]))
        return time.monotonic()

    def calls(self) -> list[dict[str, Any]]:
        """Return the model's calls that have ended, in the order in which they began."""
        calls = [json.loads(line) for line in self.call_log.read_text("utf-8").splitlines()]
        return sorted(calls, key=lambda call: float(call["start_ms"]))

    async def through(self, name: str, version: int = 1) -> float:
        """Wait for a version of a playbook; return when it appeared (monotonic)."""
        return await self.subscriber.until(lambda: self.subscriber.playbooks.latest(name).version >= version)


def lessons(playbook: str, count: int) -> list[Reflection]:
    """Return distinct lessons; no two playbooks have the same, so that each call is asked once."""
    return [
        Reflection(
            reflection_id=f"{playbook}/{n}",
            playbook=playbook,
            key_insight=f"When asked for Metric {n} of {playbook}, answer in percent with {n % 4} decimals.",
        )
        for n in range(count)
    ]


def fresh(name: str) -> str:
    """Return a playbook's name that nobody has used."""
    return f"{name}/{uuid4().hex[:8]}"


@asynccontextmanager
async def empty_log(bootstrap_servers: str) -> AsyncIterator[KafkaLog]:
    """Yield a log with topics of its own."""
    settings = load_settings(
        bootstrap_servers=bootstrap_servers, model="simulated", topic_prefix=f"bench-{uuid4().hex[:8]}"
    )
    connected = backends.connection(settings, bootstrap_servers)
    await backends.create_topics(settings, connected)
    log = KafkaLog(connected)
    try:
        yield log
    finally:
        await log.close()


@asynccontextmanager
async def running_cluster(
    bootstrap_servers: str,
    *,
    latency: str = "0",
    scan_workers: int = 1,
    roles: tuple[str, ...] = ROLES,
    before: Callable[[KafkaLog], Awaitable[None]] | None = None,
    **chosen: object,
) -> AsyncIterator[Cluster]:
    """Run services and stand-in while the context is open; ``before`` finds the topics, ``chosen`` are settings."""
    wanted = {"topic_prefix": f"bench-{uuid4().hex[:8]}", "model_timeout_s": MODEL_TIMEOUT_S, **chosen}
    settings = load_settings(bootstrap_servers=bootstrap_servers, model="simulated", **wanted)
    connected = backends.connection(settings, bootstrap_servers)
    with tempfile.TemporaryDirectory(prefix="combee-bench-") as folder:
        call_log = Path(folder) / "calls.jsonl"
        options = StackOptions(
            settings=settings,
            bootstrap_servers=bootstrap_servers,
            folder=Path(folder) / "stack",
            simulated=True,
            sim_arguments=("--latency", latency, "--call-log", str(call_log)),
            scan_workers=scan_workers,
            roles=roles,
        )
        await backends.create_topics(settings, connected)
        log = KafkaLog(connected)
        try:
            if before:
                await before(log)
            async with stack(options) as supervisor:
                where = model_environment(supervisor) | {"llm_concurrency": 64}
                model = backends.language_model(settings.model.model_copy(update=where))
                subscriber = Subscriber(log)
                view = asyncio.create_task(subscriber.playbooks.view.run())
                try:
                    await subscriber.playbooks.view.wait_current(WAIT_S)
                    yield Cluster(
                        log=log, supervisor=supervisor, subscriber=subscriber, model=model, call_log=call_log
                    )
                finally:
                    view.cancel()
                    await asyncio.gather(view, return_exceptions=True)
                    await model.close()
        finally:
            await log.close()
