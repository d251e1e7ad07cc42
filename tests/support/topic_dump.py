"""A log as a text file, one line per record: written once by a version of the code, read by all that follow.

``record`` runs the product on a log in memory and leaves two batches unfinished. What it wrote with messages of
version 1 stays in ``tests/golden/topics-v1.jsonl``; to record those of a later version, run
  PYTHONPATH=tests python -c "from support.topic_dump import main; main('tests/golden/topics-v2.jsonl')"
"""

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from combee.adapters.memory import MemoryLog
from combee.adapters.memory.store import Partition, Store
from combee.control.controller import Controller
from combee.core.sizing.policy import SizingPolicy
from combee.ports import Clock, Outgoing, Record, TopicPartition
from combee.worker.session import together
from combee_schemas import topics
from combee_schemas.base import Shown
from combee_schemas.command import Command
from combee_schemas.model import Prompt
from combee_schemas.playbook import Entry
from combee_schemas.reflection import BulletTag
from combee_schemas.scan import Operation, OperationKind
from combee_schemas.trace import Trace
from support import ledger
from support.deployment import ROLES, Deployment
from support.ledger import NAME, outgoing, reflection
from support.models import echo, is_combine

FIRST_DUMP = Path(__file__).parents[1] / "golden" / "topics-v1.jsonl"
GEPA, HALF_DONE, UNTOUCHED = "tests/gepa", "tests/half-done", "tests/untouched"
"""A playbook of texts; one whose batch waits for its root; one whose batch nobody has looked at."""


# ---- to and from text


def lines(store: Store) -> Iterator[str]:
    """Yield a store as lines of JSON: each visible record, then what each group has committed."""
    for topic in topics.TOPICS:
        for number, partition in enumerate(store.partitions(topic.name)):
            for record in partition.records(partition.first, partition.stable):
                yield json.dumps(_described(record, number))
    ends = {
        f"{topic.name}/{number}": partition.stable
        for topic in topics.TOPICS
        for number, partition in enumerate(store.partitions(topic.name))
    }
    yield json.dumps({"ends": ends})
    for group, offsets in store.committed.items():
        at = {f"{source.topic}/{source.partition}": offset for source, offset in offsets.items()}
        yield json.dumps({"group": group, "committed": dict(sorted(at.items()))})


def _described(record: Record, number: int) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": number,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": None if record.key is None else record.key.decode(),
        "headers": {name: (value or b"").decode() for name, value in record.headers},
        "value": None if record.value is None else base64.b64encode(record.value).decode(),
    }


def fill(log: MemoryLog, path: Path) -> None:
    """Put a dump into an empty log, every record at the offset it had."""
    for line in path.read_text(encoding="ascii").splitlines():
        row = json.loads(line)
        if "group" in row:
            log._store.committed[row["group"]] = dict(map(_place, row["committed"].items()))
        elif "ends" in row:
            for source, end in map(_place, row["ends"].items()):
                _pad(log._store.partition(source), end)
        else:
            _put(log, row)


def _place(item: tuple[str, int]) -> tuple[TopicPartition, int]:
    topic, _, partition = item[0].rpartition("/")
    return TopicPartition(topic=topic, partition=int(partition)), item[1]


def _put(log: MemoryLog, row: Mapping[str, Any]) -> None:
    source = TopicPartition(topic=row["topic"], partition=row["partition"])
    partition = log._store.partition(source)
    _pad(partition, row["offset"])
    record = Record(
        topic=source.topic,
        partition=source.partition,
        offset=row["offset"],
        timestamp_ms=row["timestamp_ms"],
        key=None if row["key"] is None else row["key"].encode(),
        value=None if row["value"] is None else base64.b64decode(row["value"]),
        headers=tuple((name, value.encode()) for name, value in row["headers"].items()),
    )
    partition.append(record, None)


def _pad(partition: Partition, end: int) -> None:
    """Put what ends a transaction at offsets without a record."""
    while partition.end < end:
        partition.append(None, None)


# ---- the run


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


async def _interrupted(deployment: Deployment) -> None:
    """Leave one batch with its leaves answered and one with none, by ending the services."""

    def leaves_only(prompt: Prompt) -> Mapping[str, Any]:
        if is_combine(prompt):
            deployment.model.gate.clear()
        return answer(prompt)

    async with deployment.running([role for role in ROLES if role != "scan"]) as running:
        await running.log.produce(*(outgoing(reflection(n, HALF_DONE)) for n in range(10)))
        await running.until(lambda: len(ledger.batches(running.log, HALF_DONE)) == 1)
    deployment.model.gate.set()
    deployment.model.answer = leaves_only
    partials = sum(len(ledger.records(deployment.log, topic)) for topic in topics.PARTIALS)
    async with deployment.running(["scan"]) as running:
        (width, *_) = ledger.batches(running.log, HALF_DONE)[0].plan.widths
        await running.until(
            lambda: (
                sum(len(ledger.records(running.log, topic)) for topic in topics.PARTIALS) == partials + width
            )
        )
    deployment.model.gate.set()
    deployment.model.answer = answer
    async with deployment.running([role for role in ROLES if role != "scan"]) as running:
        await running.log.produce(*(outgoing(reflection(n, UNTOUCHED)) for n in range(10)))
        await running.until(lambda: len(ledger.batches(running.log, UNTOUCHED)) == 1)


def dumped(
    clock: Clock, path: Path = FIRST_DUMP, *, partitions: int = 2, scan_partitions: int = 3
) -> MemoryLog:
    """Return a log with what a dump holds."""
    log = MemoryLog(clock, partitions=partitions, scan_partitions=scan_partitions)
    fill(log, path)
    return log


def main(path: str) -> None:
    """Record a run into a new file."""
    log = asyncio.run(record())
    with Path(path).open("x", encoding="ascii") as file:
        file.writelines(f"{line}\n" for line in lines(log._store))
