"""The manifests of one partition: which reflections are in batches, and which batches are in flight."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from combee.adapters.ports import Log, TopicPartition
from combee.log.history import newest_manifests
from combee_schemas import topics
from combee_schemas.batch import Batch
from combee_schemas.plan import Branch
from combee_schemas.playbook import Playbook


@dataclass(slots=True, kw_only=True)
class InFlight:
    """A batch without a version yet."""

    batch: Batch
    offset: int
    since: float
    """Monotonic seconds of its (last) emission."""
    emissions: int = 1
    answered_s: float = 0.0
    """Seconds since then during which the model answered calls."""


@dataclass(slots=True, kw_only=True)
class Manifests:
    """Memory of one partition of ``batches``, bounded by the duplicate horizon."""

    horizon: int
    sequences: dict[str, int] = field(default_factory=dict)
    through: dict[str, int] = field(default_factory=dict)
    batched_ahead: dict[str, set[int]] = field(default_factory=dict)
    """By line, the batched reflections beyond ``through``: an earlier one still waits because its source
    had filled its share."""
    _ahead_since: dict[str, int] = field(default_factory=dict)
    """By line, the offset of the first manifest with such a reflection."""
    in_flight: dict[str, dict[int, InFlight]] = field(default_factory=dict)
    executed: set[tuple[str, str]] = field(default_factory=set)
    """(playbook, id) of commands that made a batch."""
    _ids: dict[tuple[str, str, int], tuple[int, int]] = field(default_factory=dict)
    """(line, reflection id, attempt) → offset and sequence of its manifest, oldest first."""

    def add(self, batch: Batch, offset: int, now: float) -> None:
        """Add a manifest."""
        name = batch.plan.playbook
        self.sequences[name] = max(self.sequences.get(name, 0), batch.plan.sequence)
        self.through[name] = max(self.through.get(name, -1), batch.plan.through_offset)
        self._note_ahead(batch, offset)
        self.in_flight.setdefault(name, {})[batch.plan.sequence] = InFlight(
            batch=batch, offset=offset, since=now
        )
        if batch.plan.command_id:
            self.executed.add((name, batch.plan.command_id))
        place = offset, batch.plan.sequence  # one shared object: a horizon has some 100,000 entries
        for member in batch.members:
            self._ids[name, member.reflection_id, member.attempt] = place
        self._forget(offset - self.horizon)

    def _note_ahead(self, batch: Batch, offset: int) -> None:
        name, through = batch.plan.playbook, self.through[batch.plan.playbook]
        # A branch begins with the reflections already batched for its playbook.
        of = batch.plan.branch.of if batch.plan.branch else name
        known, since = self.batched_ahead.get(of, set()), self._ahead_since.get(of, offset)
        if not known and all(member.offset <= through for member in batch.members):
            return
        offsets = known.union(member.offset for member in batch.members)
        self.batched_ahead[name] = {at for at in offsets if at > through}
        if self.batched_ahead[name]:
            self._ahead_since[name] = since
        else:
            del self.batched_ahead[name]
            self._ahead_since.pop(name, None)

    def _forget(self, before: int) -> None:
        while self._ids:
            key = next(iter(self._ids))
            if self._ids[key][0] >= before:
                return
            del self._ids[key]

    def published(self, playbook: str, sequence: int) -> None:
        """Batches up to ``sequence`` have their version."""
        in_flight = self.in_flight.get(playbook, {})
        for done in [number for number in in_flight if number <= sequence]:
            del in_flight[done]
        self.sequences[playbook] = max(self.sequences.get(playbook, 0), sequence)

    def covers(self, playbook: str, offset: int) -> bool:
        """Return whether a manifest already covers this record, which is being read again."""
        return offset <= self.through.get(playbook, -1) or offset in self.batched_ahead.get(playbook, ())

    def knows(self, playbook: str, reflection_id: str, attempt: int) -> bool:
        """Return whether this attempt of a reflection is in a batch already."""
        return (playbook, reflection_id, attempt) in self._ids

    def began_with(self, branch: Branch, reflection_id: str, attempt: int) -> bool:
        """Return whether a branch's playbook had this attempt of a reflection in a batch before the fork."""
        known = self._ids.get((branch.of, reflection_id, attempt))
        return known is not None and known[1] <= branch.sequence

    def forks(self) -> dict[str, Branch]:
        """Return the branches that have no version yet, by line."""
        plans = (in_flight.batch.plan for in_flight in self.all_in_flight())
        return {plan.playbook: plan.branch for plan in plans if plan.branch is not None}

    def count_in_flight(self, playbook: str) -> int:
        """Return how many batches of a playbook have no version yet."""
        return len(self.in_flight.get(playbook, ()))

    def all_in_flight(self) -> list[InFlight]:
        """Return the batches without a version, of all playbooks."""
        return [batch for batches in self.in_flight.values() for batch in batches.values()]

    def is_in_flight(self, batch: InFlight) -> bool:
        """Return whether a batch has no version still."""
        plan = batch.batch.plan
        return self.in_flight.get(plan.playbook, {}).get(plan.sequence) is batch

    @property
    def oldest_unpublished(self) -> int:
        """The offset of the oldest batch in flight; −1 if there is none."""
        offsets = [batch.offset for batch in self.all_in_flight()]
        return min(offsets, default=-1)

    @property
    def oldest_beyond(self) -> int:
        """The offset of the first manifest beyond a reflection that still waits; −1 if there is none."""
        return min(self._ahead_since.values(), default=-1)


async def read_manifests(
    log: Log, partition: int, horizon: int, snapshots: Iterable[Playbook], now: float
) -> Manifests:
    """Read a partition's manifests within the horizon and those in flight, never all history.

    ``snapshots`` are the newest versions of the partition's playbooks: they cover what lies before.
    """
    source = TopicPartition(topic=topics.BATCHES.name, partition=partition)
    manifests = Manifests(horizon=horizon)
    for offset, batch in await newest_manifests(log, source, horizon):
        manifests.add(batch, offset, now)
    for snapshot in snapshots:
        manifests.published(snapshot.name, snapshot.batch_sequence)
        covered = max(manifests.through.get(snapshot.name, -1), snapshot.through_offset)
        manifests.through[snapshot.name] = covered
    return manifests
