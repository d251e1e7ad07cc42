"""Archives in memory: the administration that a restore needs, and what must be equal afterwards."""

import asyncio
import json
import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from combee.adapters.memory import MemoryLog
from combee.adapters.memory.store import Partition
from combee.adapters.ports import Log, TopicPartition
from combee.core.batching.plan import canonical
from combee.core.log.archive.cut import read
from combee.core.log.layout import wanted
from combee.log.archive.restoring import Contents, restore
from combee.log.archive.writing import Archived, write_archive
from combee.log.inspection.audit import audit
from combee_schemas import topics
from combee_schemas.base import Message
from support.clock import ManualClock
from support.failpoints.points import Failpoint
from support.recorded_log import recorded


class MemoryTopics:
    """The administration of a log in memory. Its topics are there from the beginning, but for the mark."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._topics = log._store._topics
        self.running = 0

    async def names(self) -> Collection[str]:
        return self._topics.keys()

    async def create(
        self, topic: str, partitions: int, _replication: int, _config: Mapping[str, str]
    ) -> bool:
        if topic in self._topics:
            return False
        self._topics[topic] = [Partition() for _ in range(partitions)]
        return True

    async def wait_created(self, topics: Mapping[str, int]) -> None:
        assert {name: len(self._topics[name]) for name in topics} == dict(topics)

    async def configure(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        """Do nothing: in memory every record keeps the time that it is written with."""

    async def delete(self, topic: str) -> None:
        self._topics.pop(topic, None)

    async def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        for partition, before in offsets.items():
            self._log.expire(TopicPartition(topic=topic, partition=partition), before)

    async def members(self, _group: str) -> int:
        return self.running


class FaultInjectingTopics(MemoryTopics):
    """The same as one process sees it, which can die before and after each change."""

    def __init__(self, log: MemoryLog, failpoint: Failpoint) -> None:
        super().__init__(log)
        self._failpoint = failpoint

    async def create(self, topic: str, partitions: int, replication: int, config: Mapping[str, str]) -> bool:
        if topic in self._topics:
            return False
        self._failpoint.reach(f"before creating {topic}")
        made = await super().create(topic, partitions, replication, config)
        self._failpoint.reach(f"after creating {topic}")
        return made

    async def delete(self, topic: str) -> None:
        self._failpoint.reach(f"before deleting {topic}")
        await super().delete(topic)
        self._failpoint.reach(f"after deleting {topic}")

    async def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        self._failpoint.reach(f"before deleting of {topic}")
        await super().delete_before(topic, offsets)
        self._failpoint.reach(f"after deleting of {topic}")


async def archived(log: Log, path: Path, *, playbook: str = "") -> Archived:
    return await write_archive(log, path, prefix="t", configs={}, clock=ManualClock(), playbook=playbook)


@cache
def whole_archive() -> bytes:
    """Return an archive with everything in it."""
    with TemporaryDirectory() as folder:
        asyncio.run(archived(recorded(ManualClock()), path := Path(folder) / "archive"))
        return path.read_bytes()


async def restored(
    path: Path, target: MemoryLog, *, log: Log | None = None, admin: MemoryTopics | None = None
) -> Contents:
    """Read an archive into a log in memory, through ``log`` if that injects faults."""
    want = wanted(len(target._store.partitions("playbooks")), len(target._store.partitions("scan.0")))
    return await restore(
        log or target,
        admin or MemoryTopics(target),
        path,
        want,
        prefix="t",
        replication=1,
        clock=target._store._clock,
    )


def said(message: Message) -> str:
    """Return what a message says, but for places in the log."""
    body: dict[str, Any] = json.loads(canonical(message))
    return json.dumps({name: value for name, value in body.items() if not name.endswith("partition")})


def contents(log: MemoryLog) -> dict[str, list[str]]:
    """Return what the topics say, but for places in the log: by topic, in no order."""
    return {
        topic.name: sorted(
            said(message)
            for partition in log._store.partitions(topic.name)
            for record in partition.records(partition.first, partition.stable)
            for message in [read(topic, record)]
            if message is not None
        )
        for topic in topics.TOPICS
    }


async def ledger_of(log: Log) -> dict[str, Any]:
    """Return the ledger but for offsets."""
    report: dict[str, Any] = (await audit(log)).model_dump(mode="json")
    horizon = report.pop("horizon")
    report["expired"] = {topic: any(firsts.values()) for topic, firsts in horizon["first_retained"].items()}
    text = re.sub(r"\[\d+\]@\d+", "", json.dumps(report))
    return json.loads(text)  # type: ignore[no-any-return]
