"""A log in which everything happened that services write, and two batches were left unfinished."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

from combee.adapters.memory import MemoryLog
from combee.adapters.ports import Clock, Outgoing
from combee.control.controller import Controller
from combee.core.batching.sizing.policy import SizingPolicy
from combee.process.worker.session import together
from combee_schemas import topics
from combee_schemas.base import Shown
from combee_schemas.command import Command
from combee_schemas.model import Prompt, Reply
from combee_schemas.playbook import Entry
from combee_schemas.reflection import BulletTag
from combee_schemas.scan import Operation, OperationKind
from combee_schemas.trace import Trace
from support import ledger
from support.deployment import ROLES, Deployment
from support.ledger import NAME, outgoing, reflection
from support.models import ScriptedModel, echo, is_combine

GEPA, HALF_DONE, UNTOUCHED = "tests/gepa", "tests/half-done", "tests/untouched"
"""A playbook of texts; one whose batch waits for its root; one whose batch nobody has looked at."""


def answer(prompt: Prompt) -> Mapping[str, Any]:
    """Answer for either method."""
    return (
        {"text": "```\nAsk for the order number first.\n```"} if prompt.reply_name == "text" else echo(prompt)
    )


def trace(number: int, playbook: str, **fields: object) -> Trace:
    """Return a run with everything there is to say about one."""
    defaults = {
        "task": f"task {number}",
        "trajectory": "looked",
        "answer": f"lesson {number}",
        "feedback": "good",
    }
    return Trace.model_validate({"trace_id": f"t-{number}", "playbook": playbook, **defaults, **fields})


async def finished(deployment: Deployment) -> None:
    """Finish what was begun: batches of everything, by the methods they were begun with."""
    for method, names in (("ace", (NAME, HALF_DONE, UNTOUCHED)), ("gepa", (GEPA,))):
        deployment.settings = deployment.settings.model_copy(update={"method": method})
        async with deployment.running():
            for name in names:
                await deployment.until(lambda name=name: _versions(deployment, name) > 0)  # type: ignore[misc]


def _versions(deployment: Deployment, name: str) -> int:
    made = [
        version.batch_sequence
        for version in ledger.versions(deployment.log, name)
        if version.origin == "batch"
    ]
    return len(made) if len(made) == len(ledger.batches(deployment.log, name)) else 0


async def record() -> MemoryLog:
    """Run every service on a log in memory, and stop in the middle of two batches."""
    deployment = Deployment(batch_size=10, copies=2, fan_in=2)
    deployment.model.answer = answer
    await _learned(deployment)
    deployment.settings = deployment.settings.model_copy(update={"method": "gepa"})
    async with deployment.running() as running:
        await running.log.produce(*(topics.TRACES.record(trace(n, GEPA)) for n in range(10)))
        await running.until(lambda: _versions(running, GEPA) == 1)
    deployment.settings = deployment.settings.model_copy(update={"method": "ace"})
    await _interrupted(deployment)
    return deployment.log


async def _learned(deployment: Deployment) -> None:
    old = Entry(id="misc-00001", section="OTHERS", content="an old lesson", helpful=1)
    operation = Operation(kind=OperationKind.ADD, section="OTHERS", content="by hand")
    shown = Shown(version=1, entry_ids=(old.id,))
    tags = (BulletTag(id=old.id, tag="helpful"),)
    async with deployment.running() as running:
        steps = (
            Command(command_id="c-1", playbook=NAME, kind="import", entries=(old,), issued_by="user:a@b"),
            Command(command_id="c-2", playbook=NAME, kind="edit", operations=(operation,)),
        )
        for number, command in enumerate(steps, 1):
            await running.log.produce(outgoing(command))
            await running.until(lambda number=number: len(ledger.versions(running.log)) == number)  # type: ignore[misc]
        await running.log.produce(
            *(topics.TRACES.record(trace(n, NAME, shown=shown)) for n in range(5)),
            *(outgoing(reflection(n, shown=shown, bullet_tags=tags)) for n in range(25)),
            *(outgoing(reflection(n)) for n in range(3)),
            Outgoing(topic="reflections", key=NAME.encode(), value=b"unreadable"),
        )
        await running.until(lambda: ledger.applied(running.log) == 30)
        await running.log.produce(
            outgoing(Command(command_id="c-3", playbook=NAME, kind="promote", label="production", version=3)),
            outgoing(Command(command_id="c-4", playbook=NAME, kind="rollback", version=4)),
            outgoing(Command(command_id="c-5", playbook=NAME, kind="revoke", reflection_ids=("r-1",))),
        )
        await running.until(lambda: len(ledger.versions(running.log)) == 7)
        await running.until(lambda: not ledger.behind(running.log))
    controller = Controller(deployment.log, deployment.clock, SizingPolicy(configured=10))
    stop = asyncio.Event()
    views = (controller.playbooks.view.run(), controller.sizes.run())
    deciding = asyncio.create_task(together(controller.session(stop, lambda: None), *views))
    await deployment.until(lambda: len(ledger.records(deployment.log, topics.BATCH_SIZES)) > 0)
    stop.set()
    await deciding


class _Rootless(ScriptedModel):
    """Answers one call that combines, and never the root's, which is the next one."""

    async def reply(self, prompt: Prompt) -> Reply:
        if is_combine(prompt) and any(is_combine(one) for one in self.prompts):
            await asyncio.Event().wait()
        return await super().reply(prompt)


async def _interrupted(deployment: Deployment) -> None:
    """Leave one batch with only its root unanswered and one with no answer, by ending the services."""
    but_scan = [role for role in ROLES if role != "scan"]
    async with deployment.running(but_scan) as running:
        await running.log.produce(*(outgoing(reflection(n, HALF_DONE)) for n in range(10)))
        await running.until(lambda: len(ledger.batches(running.log, HALF_DONE)) == 1)
    partials = _partials(deployment)
    deployment.model = _Rootless(answer)
    async with deployment.running(["scan"]) as running:
        below = sum(ledger.batches(running.log, HALF_DONE)[0].plan.widths[:-1])
        await running.until(lambda: _partials(running) == partials + below)
    async with deployment.running(but_scan) as running:
        await running.log.produce(*(outgoing(reflection(n, UNTOUCHED)) for n in range(10)))
        await running.until(lambda: len(ledger.batches(running.log, UNTOUCHED)) == 1)


def _partials(deployment: Deployment) -> int:
    return sum(len(ledger.records(deployment.log, topic)) for topic in topics.PARTIALS)


@cache
def _recorded() -> MemoryLog:
    with ThreadPoolExecutor(1) as pool:  # tests ask within loops of their own
        return pool.submit(asyncio.run, record()).result()


def recorded(clock: Clock) -> MemoryLog:
    """Return a log with what the run wrote: of two partitions by playbook, three of the scan."""
    log, source = MemoryLog(clock, partitions=2, scan_partitions=3), _recorded()._store
    for name, partitions in source._topics.items():
        log._store._topics[name] = [replace(one, slots=list(one.slots)) for one in partitions]
    log._store.committed = {group: dict(offsets) for group, offsets in source.committed.items()}
    return log
