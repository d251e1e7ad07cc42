"""Publish's decisions: their inputs, what they may read, and their results; pure.

A decision about a record starts from a basis: the state of its partition, the settings, the time, and what was read
for it. If it needs something that was not read, the publisher reads it and asks for the decision again. The decision
names the records of one transaction; the state remembers it once they are written.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar, cast

from combee.adapters.ports import Outgoing, PoisonError, Record, TopicPartition
from combee.core.batching.planned import Manifest
from combee.core.commands import no_version
from combee.core.gate.gate import Gate, gate_of
from combee.core.gate.policy import NO_GATE, GatePolicy
from combee.core.log.watermark import Watermark
from combee.core.playbook.lineage.branching import Adoption
from combee.core.playbook.lineage.recomputing import Recomputed
from combee.core.playbook.spend import UNCAPPED, SpendPolicy
from combee.core.playbook.versions import empty
from combee.process.worker.views import Newest
from combee_schemas import gate as messages
from combee_schemas import topics
from combee_schemas.base import is_branch_of, playbook_of
from combee_schemas.playbook import CANDIDATE, PRODUCTION, Label, Playbook, deleted_key, label_key
from combee_schemas.scan import Seen, Update

T = TypeVar("T")


# ---- decisions


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRules:
    """The settings that decisions follow."""

    budget_tokens: int
    """Token budget of a playbook where a batch's manifest does not say it."""
    spending: SpendPolicy = UNCAPPED
    gates: GatePolicy = NO_GATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A reflection no copy of which reached its batch's result: it becomes a dead letter."""

    record: Record
    seen: Seen
    playbook: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishDecision:
    """The records of one transaction; an empty decision commits the record's offset alone."""

    versions: tuple[Playbook, ...] = ()
    """The next versions, which have no place in ``history`` yet."""
    revoked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By line of these versions: all revoked reflections; a version names only the newly revoked ones."""
    gates: Mapping[str, Gate] = field(default_factory=dict)
    """The new gates, by playbook."""
    labels: tuple[Label, ...] = ()
    """Labels that a person moves and no gate owns."""
    decisions: tuple[messages.Decision, ...] = ()
    lost: tuple[Lost, ...] = ()
    passed_over: str = ""
    """Why a record has no effect, if that is to be logged."""

    def with_gate(self, name: str, gate: Gate, *decisions: messages.Decision) -> "PublishDecision":
        """Return the decision with the gate of one more playbook."""
        return replace(self, gates={**self.gates, name: gate}, decisions=(*self.decisions, *decisions))


SKIP = PublishDecision()
"""The record had its effect already, or has none."""

WaitsFor = Literal["manifest", "predecessor"]
"""An update waits for its manifest, or for the update of the batch before."""


# ---- a partition


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
        known = ((label, self.labels.get(label_key(name, label))) for label in (PRODUCTION, CANDIDATE))
        labels = {label: pointer for label, pointer in known if pointer}
        return gate_of(labels) if labels else None

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


# ---- what can be read


class Request(Generic[T]):
    """A read that a decision needs; ``T`` is the type of the answer."""


@dataclass(frozen=True, slots=True)
class OldVersion(Request[Playbook | None]):
    """A version by its number; None: it is not retained."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class AllRevoked(Request[tuple[str, ...]]):
    """All reflections that a version's rules take back; snapshots name a part."""

    name: str
    number: int
    version: Playbook = field(compare=False)


@dataclass(frozen=True, slots=True)
class EvidenceLeft(Request[Playbook]):
    """A version whose entries have all of their evidence that is not revoked."""

    name: str
    version: Playbook = field(compare=False)


@dataclass(frozen=True, slots=True)
class Remainder(Request[Recomputed]):
    """A version recomputed without the reflections revoked in ``barred``, from all updates that made it."""

    name: str
    number: int
    version: Playbook = field(compare=False)
    barred: Playbook = field(compare=False)


@dataclass(frozen=True, slots=True)
class AdoptionOf(Request[Adoption]):
    """The conditions for adopting a version of a branch, ``target``."""

    name: str
    number: int
    current: Playbook = field(compare=False)
    line: Playbook = field(compare=False)
    target: Playbook = field(compare=False)


@dataclass(frozen=True, slots=True)
class UpdatesBetween(Request[list[Update]]):
    """The updates of a line's batches after one, up to another."""

    name: str
    after: int
    through: int


@dataclass(frozen=True, slots=True)
class EntriesBetween(Request[Sequence[Playbook]]):
    """A line's versions between two places in ``history``, each with the entries of these ids alone."""

    name: str
    start: int
    end: int
    entry_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ManifestAt(Request[Manifest | Literal["to come"] | None]):
    """The manifest at an offset; None: there is none. ``may_come``: a manifest not visible yet is waited for."""

    partition: int
    offset: int
    may_come: bool


@dataclass(frozen=True, slots=True)
class Bodies(Request[Mapping[int, Record]]):
    """The records of reflections, by offset; those that are not retained are missing."""

    partition: int
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FirstReflection(Request[int]):
    """The offset of a partition's oldest retained reflection."""

    partition: int


class UnreadError(Exception):
    """A decision rests on something that has not been read for it."""

    def __init__(self, request: Request[Any]) -> None:
        super().__init__(f"not read: {request}")
        self.request = request


# ---- the inputs of a decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The inputs of the decision about one record: the same basis gives the same decision."""

    state: PublishState
    rules: PublishRules
    now_ms: int
    may_wait: bool = True
    """Whether an update may wait for its manifest."""
    answers: dict[Request[Any], object] = field(default_factory=dict)
    """Answers read up to now."""

    def read(self, request: Request[T]) -> T:
        """Return the answer to a request, which the publisher has read.

        Raises
        ------
        UnreadError
            If the publisher has not read it yet.
        """
        if request not in self.answers:
            raise UnreadError(request)
        return cast("T", self.answers[request])

    def current(self, name: str) -> Playbook:
        """Return the newest version of a line, with all reflections revoked on it."""
        newest = self.state.current(name)
        if name not in self.state.revoked:
            return self.with_revoked(newest)
        return newest.model_copy(update={"revoked": self.state.revoked[name]})

    def with_revoked(self, version: Playbook) -> Playbook:
        """Return a version that names all reflections that its rules take back."""
        if not version.revocations:
            return version
        revoked = self.read(AllRevoked(version.name, version.version, version))
        return version.model_copy(update={"revoked": revoked})

    def version(self, name: str, number: int) -> Playbook | None:
        """Return a version of a line; None: it is not retained."""
        return self.read(OldVersion(name, number)) if number > 0 else None

    def retained_version(self, newest: Playbook, number: int) -> Playbook:
        """Return a version of a line, given its newest one.

        Raises
        ------
        PoisonError
            If it is not retained.
        """
        version = self.version(newest.name, number)
        if version is None:
            raise PoisonError(no_version(newest, number))
        return version

    def remainder(self, version: Playbook, barred: Playbook) -> Recomputed | None:
        """Return a version recomputed without the reflections revoked in ``barred``; None: nothing is revoked."""
        if not barred.revocations:
            return None
        return self.read(Remainder(version.name, version.version, version, barred))
