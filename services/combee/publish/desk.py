"""One partition's playbooks on their way to the next version; rebuilt from the log on every assignment."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from combee.core.playbook import empty
from combee.core.watermark import Watermark
from combee.ports import Log, Record, TopicPartition, Transactor
from combee_schemas import topics
from combee_schemas.codec import CodecError, decode
from combee_schemas.playbook import Label, Playbook
from combee_schemas.scan import Update

logger = structlog.get_logger()
M = TypeVar("M", Playbook, Label)


@dataclass(slots=True, kw_only=True)
class Desk:
    """What the publisher knows of one partition number."""

    partition: int
    transactor: Transactor
    playbooks: dict[str, Playbook]
    labels: dict[str, Label]
    marks: dict[str, Watermark]
    """Low watermark per input topic."""
    held: dict[tuple[str, int], tuple[Record, Update]] = field(default_factory=dict)
    """Updates that came before their predecessor, by playbook and sequence."""

    def current(self, name: str) -> Playbook:
        """Return the newest version written."""
        return self.playbooks.get(name) or empty(name)

    def offsets(self, done: Sequence[Record]) -> dict[TopicPartition, int]:
        """Finish ``done`` and return what may be committed with them."""
        for record in done:
            self.marks[record.topic].done(record.offset)
        return {
            TopicPartition(topic=name, partition=self.partition): mark.low
            for name, mark in self.marks.items()
        }


async def open_desk(log: Log, partition: int, starts: dict[str, int]) -> Desk:
    """Fence the former owner, then read back what it wrote."""
    desk = Desk(
        partition=partition,
        transactor=await log.transactor(f"publish-{partition}"),
        playbooks={},
        labels={},
        marks={name: Watermark(start) for name, start in starts.items()},
    )
    async for record in log.read(TopicPartition(topic=topics.PLAYBOOKS.name, partition=partition), 0):
        _take(desk.playbooks, record, Playbook)
    async for record in log.read(TopicPartition(topic=topics.LABELS.name, partition=0), 0):
        _take(desk.labels, record, Label)
    return desk


def _take(latest: dict[str, M], record: Record, kind: type[M]) -> None:
    key = (record.key or b"").decode(errors="replace")
    if record.value is None:
        latest.pop(key, None)
        return
    try:
        latest[key] = decode(record.value, kind)
    except CodecError as error:
        # Not ours: only this service writes here, and it writes what it can read.
        logger.error("undecodable", topic=record.topic, offset=record.offset, error=str(error))
