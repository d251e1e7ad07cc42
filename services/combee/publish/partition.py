"""The state of one partition number: its playbooks, labels and watermarks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from combee.adapters.ports import Outgoing, Record, TopicPartition
from combee.core.gate.gate import Gate, gate_of
from combee.core.log.watermark import Watermark
from combee.core.playbook.versions import empty
from combee.process.worker.views import Newest
from combee.publish.decide.decision import PublishDecision
from combee_schemas import topics
from combee_schemas.base import is_branch_of, playbook_of
from combee_schemas.playbook import CANDIDATE, PRODUCTION, Label, Playbook, deleted_key, label_key


@dataclass(slots=True, kw_only=True)
class PublishState:
    """The state on which decisions are made; ``remember`` is called with each decision once it is written."""

    number: int
    watermarks: dict[str, Watermark]
    """By input topic."""
    playbooks: Newest[Playbook]
    labels: dict[str, Label]
    revoked: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By line: all revoked reflections; snapshots name only a part."""
    waiting: dict[tuple[str, int], int] = field(default_factory=dict)
    """Offsets of updates that wait for their predecessor, by playbook and sequence."""

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

    # ---- a decision is written

    def records(self, decision: PublishDecision) -> list[Outgoing]:
        """Return the records of a decision's changed labels and gate decisions."""
        labels = [
            topics.LABELS.record(label) if label else topics.LABELS.tombstone(key)
            for gate in decision.gates.values()
            for key, label in _labels(gate).items()
            if label != self.labels.get(key)
        ]
        labels += [topics.LABELS.record(label) for label in decision.labels]
        return [
            *labels,
            *(topics.DECISIONS.record(message, partition=self.number) for message in decision.decisions),
        ]

    def snapshots(self, placed: Playbook) -> list[Outgoing]:
        """Return the records of the compacted topics for ``placed`` as the newest version."""
        name, remains = placed.name, deleted_key(placed.name)
        snapshot = topics.PLAYBOOKS.record(placed, partition=self.number)
        if placed.origin != "delete":
            outdated = [self._tombstone(remains)] if remains in self.playbooks else []
            return [snapshot, *outdated]
        labels = [topics.LABELS.tombstone(key) for key in self.labels_of(name)]
        # The tombstone comes last, so that readers by the name in a message also end without the playbook.
        return [snapshot, self._tombstone(name), *labels]

    def _tombstone(self, key: str) -> Outgoing:
        return topics.PLAYBOOKS.tombstone(key, partition=self.number)

    def remember(self, decision: PublishDecision, placed: Iterable[Playbook]) -> None:
        """Remember a decision, once it is written; ``placed``: its versions with their places in ``history``."""
        for version in placed:
            self._take_version(version)
        for gate in decision.gates.values():
            for key, label in _labels(gate).items():
                self.labels.pop(key, None)
                if label is not None:
                    self.labels[key] = label
        self.revoked |= decision.revoked
        for label in decision.labels:
            self.labels[label_key(label.playbook, label.label)] = label

    def _take_version(self, placed: Playbook) -> None:
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


def _labels(gate: Gate) -> Mapping[str, Label | None]:
    """Return the labels of a gate by their keys; None: the label does not exist."""
    name = gate.production.playbook
    return {label_key(name, PRODUCTION): gate.production, label_key(name, CANDIDATE): gate.candidate}
