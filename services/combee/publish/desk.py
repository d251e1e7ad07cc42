"""One partition's playbooks on their way to the next version; rebuilt from the log on every assignment."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from combee.core.playbook.versions import empty
from combee.core.watermark import Watermark
from combee.ports import Log, Outgoing, Record, TopicPartition, Transactor
from combee_schemas import topics
from combee_schemas.codec import CodecError
from combee_schemas.plan import Plan
from combee_schemas.playbook import Label, Playbook, deleted_key
from combee_schemas.topics import Topic, key_of

logger = structlog.get_logger()
M = TypeVar("M", Playbook, Label)


@dataclass(slots=True, kw_only=True)
class Held:
    """Where an update stands that waits for its predecessor."""

    offset: int
    plan: Plan
    manifest_offset: int
    since: float
    is_planned: bool = False


@dataclass(slots=True, kw_only=True)
class Desk:
    """What the publisher knows of one partition number."""

    partition: int
    transactor: Transactor
    playbooks: dict[str, Playbook]
    labels: dict[str, Label]
    marks: dict[str, Watermark]
    """Low watermark per input topic."""
    held: dict[tuple[str, int], Held] = field(default_factory=dict)
    """Updates that came before their predecessor, by playbook and sequence."""

    def current(self, name: str) -> Playbook:
        """Return the newest version written; of a deleted playbook, what remains of it."""
        return self.playbooks.get(name) or self.playbooks.get(deleted_key(name)) or empty(name)

    def labels_of(self, name: str) -> dict[str, Label]:
        """Return a playbook's labels by their keys."""
        return {key: label for key, label in self.labels.items() if label.playbook == name}

    def ended(self, playbook: Playbook) -> Playbook:
        """Return a playbook that remembers its labels' commands too: it outlives them."""
        moved = (command for label in self.labels_of(playbook.name).values() for command in label.commands)
        return playbook.model_copy(update={"commands": (*moved, *playbook.commands)})

    def snapshots(self, placed: Playbook) -> list[Outgoing]:
        """Return what the compacted topics must hold once ``placed`` is the newest version."""
        name, remains = placed.name, deleted_key(placed.name)
        snapshot = topics.PLAYBOOKS.record(placed, partition=self.partition)
        if placed.origin != "delete":
            gone = [self._gone(remains)] if remains in self.playbooks else []
            return [snapshot, *gone]
        labels = [topics.LABELS.tombstone(key) for key in self.labels_of(name)]
        # The tombstone comes last: who goes by names in messages ends without the playbook, too.
        return [snapshot, self._gone(name), *labels]

    def _gone(self, key: str) -> Outgoing:
        return topics.PLAYBOOKS.tombstone(key, partition=self.partition)

    def take(self, placed: Playbook) -> None:
        """Remember the newest version, once it is written."""
        keys = [placed.name, deleted_key(placed.name)]
        if placed.origin == "delete":
            keys.reverse()
            for key in self.labels_of(placed.name):
                del self.labels[key]
        self.playbooks[keys[0]] = placed
        self.playbooks.pop(keys[1], None)

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
        _take(desk.playbooks, record, topics.PLAYBOOKS)
    async for record in log.read(TopicPartition(topic=topics.LABELS.name, partition=0), 0):
        _take(desk.labels, record, topics.LABELS)
    return desk


def _take(latest: dict[str, M], record: Record, topic: Topic[M]) -> None:
    key = key_of(record)
    if record.value is None:
        latest.pop(key, None)
        return
    try:
        latest[key] = topic.read_own(record)
    except CodecError as error:
        # Not ours: only this service writes here, and it writes what it can read.
        logger.error("undecodable", topic=record.topic, offset=record.offset, error=str(error))
