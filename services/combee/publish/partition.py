"""One partition's playbooks, labels and watermarks; read back from the log on every assignment."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from combee.core.gate.gate import Gate, gate_of
from combee.core.playbook.versions import empty
from combee.core.watermark import Watermark
from combee.ports import Log, Outgoing, Record, TopicPartition, Transactor
from combee.publish.early import EarlyUpdates
from combee.worker.views import Newest, own_message
from combee_schemas import topics
from combee_schemas.base import is_branch_of, playbook_of
from combee_schemas.playbook import CANDIDATE, PRODUCTION, Label, Playbook, deleted_key, label_key
from combee_schemas.topics import Topic, key_of

M = TypeVar("M", Playbook, Label)


@dataclass(slots=True, kw_only=True)
class PartitionState:
    """What the publisher knows of one partition number."""

    number: int
    transactor: Transactor
    playbooks: Newest[Playbook]
    labels: dict[str, Label]
    watermarks: dict[str, Watermark]
    """By input topic."""
    early: EarlyUpdates
    revoked: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By line: what is revoked, which snapshots do not name."""

    def current(self, name: str) -> Playbook:
        """Return the newest version; of a deleted playbook, what remains of it."""
        return self.playbooks.get(name) or self.playbooks.get(deleted_key(name)) or empty(name)

    def branches(self, name: str) -> list[Playbook]:
        """Return the newest versions of a playbook's branches that are there."""
        return [
            line
            for key in sorted(self.playbooks.keys())
            if is_branch_of(key, name) and (line := self.playbooks.get(key)) and line.origin != "delete"
        ]

    def labels_of(self, name: str) -> dict[str, Label]:
        """Return a playbook's labels by their keys."""
        return {key: label for key, label in self.labels.items() if label.playbook == name}

    def live_playbooks(self) -> list[str]:
        """Return the names of the playbooks that are there, branches left out; nothing is decoded for it."""
        keys = self.playbooks.keys()
        return sorted(key for key in keys if playbook_of(key) == key and "#" not in key)

    def gate(self, name: str) -> Gate | None:
        """Return a playbook's gate; None if it has none."""
        known = {label: self.labels.get(label_key(name, label)) for label in (PRODUCTION, CANDIDATE)}
        return gate_of({label: pointer for label, pointer in known.items() if pointer})

    def label_records(self, gate: Gate) -> list[Outgoing]:
        """Return what the topic of labels must hold once a gate is as given: what changes."""
        return [
            topics.LABELS.record(label) if label else topics.LABELS.tombstone(key)
            for key, label in _labels(gate).items()
            if label != self.labels.get(key)
        ]

    def take_gate(self, gate: Gate) -> None:
        """Remember a gate, once it is written."""
        for key, label in _labels(gate).items():
            self.labels.pop(key, None)
            if label is not None:
                self.labels[key] = label

    def with_label_commands(self, playbook: Playbook) -> Playbook:
        """Return a playbook that remembers its labels' commands, too: a deletion takes the labels."""
        moved = (command for label in self.labels_of(playbook.name).values() for command in label.commands)
        return playbook.model_copy(update={"commands": (*moved, *playbook.commands)})

    def snapshots(self, placed: Playbook) -> list[Outgoing]:
        """Return what the compacted topics must hold once ``placed`` is the newest version."""
        name, remains = placed.name, deleted_key(placed.name)
        snapshot = topics.PLAYBOOKS.record(placed, partition=self.number)
        if placed.origin != "delete":
            outdated = [self._tombstone(remains)] if remains in self.playbooks else []
            return [snapshot, *outdated]
        labels = [topics.LABELS.tombstone(key) for key in self.labels_of(name)]
        # The tombstone comes last: who goes by names in messages ends without the playbook, too.
        return [snapshot, self._tombstone(name), *labels]

    def _tombstone(self, key: str) -> Outgoing:
        return topics.PLAYBOOKS.tombstone(key, partition=self.number)

    def take(self, placed: Playbook) -> None:
        """Remember the newest version, once it is written."""
        keys = [placed.name, deleted_key(placed.name)]
        if placed.origin == "delete":
            keys.reverse()
            for key in self.labels_of(placed.name):
                del self.labels[key]
        self.playbooks.take(keys[0], placed)
        self.playbooks.pop(keys[1])

    def offsets(self, done: Sequence[Record]) -> dict[TopicPartition, int]:
        """Finish ``done`` and return what may be committed with them."""
        for record in done:
            self.watermarks[record.topic].done(record.offset)
        return {
            TopicPartition(topic=topic, partition=self.number): watermark.low
            for topic, watermark in self.watermarks.items()
        }


def _labels(gate: Gate) -> dict[str, Label | None]:
    """Return the labels of a gate by their keys; None: it is not there."""
    name = gate.production.playbook
    return {label_key(name, PRODUCTION): gate.production, label_key(name, CANDIDATE): gate.candidate}


async def open_partition(log: Log, number: int, starts: dict[str, int]) -> PartitionState:
    """Fence the former owner, then read back what it wrote."""
    state = PartitionState(
        number=number,
        transactor=await log.transactor(f"publish-{number}"),
        playbooks=Newest(topics.PLAYBOOKS),
        labels={},
        watermarks={topic: Watermark(start) for topic, start in starts.items()},
        early=EarlyUpdates(log, number),
    )
    async for record in log.read(TopicPartition(topic=topics.PLAYBOOKS.name, partition=number), 0):
        _take(state.playbooks, record, topics.PLAYBOOKS)
    labels = Newest(topics.LABELS)
    async for record in log.read(TopicPartition(topic=topics.LABELS.name, partition=0), 0):
        _take(labels, record, topics.LABELS)
    state.labels |= labels.all()
    return state


def _take(newest: Newest[M], record: Record, topic: Topic[M]) -> None:
    # What cannot be read is not ours: only this service writes here, and it writes what it can read.
    if not newest.keep(record) and (message := own_message(topic, record)) is not None:
        newest.take(key_of(record), message)
