"""All services as real processes on the session's broker, under a prefix of their own."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from combee.adapters.clock import SystemClock
from combee.adapters.kafka import KafkaLog
from combee.assembly import backends, compose
from combee.assembly.local.stack import StackOptions, stack
from combee.assembly.local.supervisor import Supervisor
from combee.cli.learn.learning import Learning
from combee.core.log.ledger import LedgerReport
from combee.core.names.identity import reflection_id
from combee.log.inspection.audit import audit
from combee.log.inspection.lag import INPUTS, backlog
from combee.process.settings.loading import Settings, load_settings
from combee_schemas.base import Message
from combee_schemas.topics import AnyTopic
from combee_schemas.trace import Trace
from combee_sim.family.family import questions
from support.forked import ForkingSupervisor
from support.ledger import read_all

PLAYBOOK = "tests/kill"
MODEL_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    settings: Settings
    log: KafkaLog
    supervisor: Supervisor
    call_log: Path

    def learning(self) -> Learning:
        return Learning(self.log, None, SystemClock(), concurrency=1)

    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.call_log.read_text().splitlines()]

    def repeated_calls(self) -> int:
        return _repeats(self.calls())

    def repeated_answers(self) -> int:
        """Return how many answers were paid for again; a call that timed out had none."""
        return _repeats(call for call in self.calls() if call["outcome"] == "ok")

    async def messages(self, topic: AnyTopic) -> list[Message]:
        return [topic.read(record) for record in await read_all(self.log, topic)]


def _repeats(calls: Iterable[Mapping[str, Any]]) -> int:
    counts = Counter(call["prompt_hash"] for call in calls)
    return sum(count - 1 for count in counts.values())


@asynccontextmanager
async def running_stack(
    bootstrap_servers: str,
    prefix: str,
    folder: Path,
    *,
    latency: str = "0.1",
    replicas: int = 1,
    roles: Sequence[str] = tuple(compose.ROLES),
    sim_arguments: Sequence[str] = (),
    **settings: object,
) -> AsyncIterator[Running]:
    chosen = {
        "batch_size": 40,
        "fan_in": 3,
        "llm_concurrency": 8,
        "model_timeout_s": MODEL_TIMEOUT_S,
        **settings,
    }
    loaded = load_settings(
        bootstrap_servers=bootstrap_servers, topic_prefix=prefix, model="simulated", **chosen
    )
    call_log = folder / "calls.jsonl"
    options = StackOptions(
        settings=loaded,
        bootstrap_servers=bootstrap_servers,
        folder=folder / "stack",
        simulated=True,
        scan_workers=replicas,
        replicas=replicas,
        roles=tuple(roles),
        sim_arguments=("--latency", latency, "--call-log", str(call_log), *sim_arguments),
    )
    async with (
        created(loaded, bootstrap_servers) as log,
        stack(options, supervise=ForkingSupervisor) as supervisor,
    ):
        yield Running(settings=loaded, log=log, supervisor=supervisor, call_log=call_log)


@asynccontextmanager
async def opened(settings: Settings, bootstrap_servers: str) -> AsyncIterator[KafkaLog]:
    """Yield the log under a prefix, and close it."""
    log = KafkaLog(backends.connection(settings, bootstrap_servers))
    try:
        yield log
    finally:
        await log.close()


@asynccontextmanager
async def created(settings: Settings, bootstrap_servers: str) -> AsyncIterator[KafkaLog]:
    """Create the topics that are missing under a prefix, and yield its log."""
    await backends.create_topics(settings, backends.connection(settings, bootstrap_servers))
    async with opened(settings, bootstrap_servers) as log:
        yield log


async def until_applied(log: KafkaLog, count: int, within_s: float = 90.0) -> LedgerReport:
    """Wait until so many reflections are in playbooks."""
    async with asyncio.timeout(within_s):
        while (report := await audit(log)).applied < count:  # noqa: ASYNC110 - the topics are all there is
            await asyncio.sleep(0.2)
    return report


async def nothing_waits(log: KafkaLog, within_s: float) -> None:
    """Wait until every service has committed what it read, twice: one still reads what another has done."""

    async def waiting() -> int:
        return sum([(await backlog(log, group, SystemClock())).lag for group in INPUTS])

    async with asyncio.timeout(within_s):
        while await waiting() or await waiting():  # noqa: ASYNC110 - Kafka tells nobody
            await asyncio.sleep(0.1)


def traces(count: int, seed: int, playbook: str = PLAYBOOK) -> dict[str, Trace]:
    drawn = questions(Random(seed))
    made = [
        Trace(
            trace_id=f"trace-{seed}-{number}",
            playbook=playbook,
            task=question.text,
            answer="0",
            feedback=f"The answer is wrong, {question.target} was wanted.",
            target=question.target,
        )
        for number, question in zip(range(count), drawn, strict=False)
    ]
    return {reflection_id(trace.playbook, trace.trace_id): trace for trace in made}
