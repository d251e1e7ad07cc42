"""Manifests: sequences without gaps, bounded staleness, every id in one batch, plans that follow from members."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from combee.core.batching.plan import deal_batch, plan_hash
from combee.core.log.ledger.checkpoint import KnownFork, Line
from combee.core.log.ledger.dead_letters import Place
from combee.core.log.ledger.report import Findings
from combee.core.names import identity
from combee_schemas.batch import Batch, Member
from combee_schemas.plan import WINDOWLESS, Branch, Plan

NOWHERE = (0, 0)
"""Attempt and sequence of an id in no batch; sequences begin at 1."""


@dataclass(slots=True, kw_only=True)
class Fork:
    """A period in which a branch learned, which determines its reflections."""

    branch: Branch
    sequence: int
    after: int
    """The branch learns from later offsets; earlier reflections are in its content or nowhere."""
    through: int
    """The last offset that its windows have read: a branch that learns no more has batches that state a later one."""


@dataclass(slots=True, kw_only=True)
class Batches:
    """All manifests to date, in the detail that later checks need."""

    findings: Findings
    proof: Callable[[tuple[str, str], int], bool] | None = None
    """Returns whether a dead letter proves an attempt of (playbook, id); None if dead letters have expired."""
    cut: frozenset[int] = frozenset()
    """Partitions whose first manifests are not retained."""
    partition_of: dict[str, int] = field(default_factory=dict)
    sizes: dict[tuple[str, int], int] = field(default_factory=dict)
    """(playbook, sequence) → members."""
    bases: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """(playbook, sequence) → base version and its last batch, if the manifest limits its staleness."""
    forks: dict[str, list[Fork]] = field(default_factory=dict)
    """Forks per line, oldest first."""
    doubles: set[tuple[str, str]] = field(default_factory=set)
    places: dict[tuple[str, int], Place] = field(default_factory=dict)
    """(playbook, sequence) → the manifest's place."""
    _identities: dict[Place, str] = field(default_factory=dict)
    """Member's place → verified id, for members whose record alone does not determine it."""
    _first: dict[str, int] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)
    _sequence_of: dict[str, dict[str, int]] = field(default_factory=dict)
    _retries: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    """(playbook, id) → sequence by attempt, for ids with several attempts."""
    _also: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    """(playbook, id) → additional batches with this id."""

    def restore(self, name: str, known: Line) -> None:
        """Continue a line from a checkpoint."""
        if known.home is not None:
            self.partition_of[name] = known.home
            self._first[name], self._last[name] = known.batches
        if known.forks:
            self.forks[name] = [Fork(**dict(fork)) for fork in known.forks]

    def line(self, name: str) -> dict[str, object]:
        """Return a line's part of a checkpoint."""
        if name not in self.partition_of:
            return {}
        forks = tuple(
            KnownFork(branch=f.branch, sequence=f.sequence, after=f.after, through=f.through)
            for f in self.forks.get(name, ())
        )
        return {
            "home": self.partition_of[name],
            "batches": (self._first[name], self._last[name]),
            "forks": forks,
        }

    def remember(self, partition: int, offset: int, batch: Batch) -> None:
        """Add a manifest that was judged before the checkpoint."""
        self._note(partition, offset, batch)
        for member in batch.members:
            self._join("", batch, member)

    def add(self, partition: int, offset: int, batch: Batch) -> None:
        """Add and judge one manifest."""
        where = f"batches[{partition}]@{offset}"
        self._first.setdefault(batch.plan.playbook, batch.plan.sequence if partition in self.cut else 1)
        last = self._last.get(batch.plan.playbook, self._first[batch.plan.playbook] - 1)
        if batch.plan.sequence != last + 1:
            text = f"{where}: batch {batch.plan.sequence} of {batch.plan.playbook} follows batch {last}"
            self.findings.add("batch sequence", text)
        self._last[batch.plan.playbook] = max(last, batch.plan.sequence)
        self._note(partition, offset, batch)
        self._learned(batch.plan)
        for member in batch.members:
            self._join(where, batch, member)
            self._attempt(where, batch, member)
        self._identity(where, batch)
        self._staleness(where, batch)
        self._groups(where, batch)

    def _note(self, partition: int, offset: int, batch: Batch) -> None:
        self.partition_of.setdefault(batch.plan.playbook, partition)
        key = (batch.plan.playbook, batch.plan.sequence)
        self.sizes.setdefault(key, len(batch.members))
        self.places.setdefault(key, (partition, offset))
        for member in batch.members:
            if member.source is not None or identity.MARK in member.reflection_id:
                self._identities[partition, member.offset] = member.reflection_id
        self.bases.setdefault(key, (batch.plan.base_version, batch.plan.base_sequence))

    def _learned(self, plan: Plan) -> None:
        line, through = plan.playbook, plan.through_offset
        if plan.branch is not None:
            fork = Fork(branch=plan.branch, sequence=plan.sequence, after=through, through=through)
            self.forks.setdefault(line, []).append(fork)
        elif line in self.forks and plan.reason not in WINDOWLESS:
            self.forks[line][-1].through = max(self.forks[line][-1].through, through)

    def branches(self, name: str, reflection_id: str, offset: int, ended: Mapping[str, int]) -> list[str]:
        """Return the branches that must account for their playbook's reflection at this offset.

        ``ended``: the last batch of each former branch. Reflections that the playbook had before the fork are repeats
        on the branch, and count on the playbook alone.
        """
        before = self._sequence_of.get(name, {}).get(reflection_id)
        return [
            line
            for line, forks in self.forks.items()
            for fork in forks
            if fork.branch.of == name
            and fork.after < offset
            and (
                offset <= fork.through
                # Where an earlier one waits for its source's share, a batch contains later ones than it states.
                or reflection_id in self._sequence_of.get(line, ())
                or (fork is forks[-1] and ended.get(line, -1) < fork.sequence)
            )
            and (before is None or before > fork.branch.sequence)
        ]

    def _join(self, where: str, batch: Batch, member: Member) -> None:
        name, reflection_id = batch.plan.playbook, member.reflection_id
        known = self._sequence_of.setdefault(name, {})
        if reflection_id not in known:
            known[reflection_id] = batch.plan.sequence
            if member.attempt:
                self._retries[name, reflection_id] = {member.attempt: batch.plan.sequence}
            return
        attempts = self._retries.setdefault((name, reflection_id), {0: known[reflection_id]})
        if member.attempt in attempts:
            earlier = attempts[member.attempt]
            text = (
                f"{where}: {name}: {reflection_id} is in batch {batch.plan.sequence} and in batch {earlier}"
            )
            self.doubled((name, reflection_id), text)
        attempts.setdefault(member.attempt, batch.plan.sequence)
        self._also.setdefault((name, reflection_id), set()).add(batch.plan.sequence)

    def doubled(self, key: tuple[str, str], text: str) -> None:
        """Report a reflection that counts twice."""
        self.doubles.add(key)
        self.findings.add("double", text)

    def _attempt(self, where: str, batch: Batch, member: Member) -> None:
        """Judge a retry: without a dead letter of the attempt before, it makes its reflection count twice.

        After a revocation, reflections without a dead letter are asked about again: their earlier effect is gone.
        """
        key = (batch.plan.playbook, member.reflection_id)
        if batch.plan.reason == "revoke":
            return
        if member.attempt and self.proof is not None and not self.proof(key, member.attempt):
            name, sequence = batch.plan.playbook, batch.plan.sequence
            text = f"{where}: {name}: {member.reflection_id} is in batch {sequence} as attempt"
            self.findings.add("attempt", f"{text} {member.attempt}, without a dead letter of the one before")
            self.doubles.add(key)

    def _identity(self, where: str, batch: Batch) -> None:
        named = f"{where}: batch {batch.plan.sequence} of {batch.plan.playbook}"
        ids = tuple(member.reflection_id for member in batch.members)
        plan = batch.plan
        if batch.seed != identity.batch_seed(plan.playbook, plan.sequence, ids, plan.settings.salt):
            self.findings.add("seed", f"{named} has a seed that does not follow from its members")
        if plan.batch_id != identity.batch_id(plan.playbook, plan.sequence):
            self.findings.add("batch id", f"{named} is called {plan.batch_id}")
        if plan.sha256 != plan_hash(batch):
            self.findings.add("plan hash", f"{named} is not the plan whose hash it carries")

    def _staleness(self, where: str, batch: Batch) -> None:
        stale = batch.plan.staleness
        if not 0 <= stale < batch.max_inflight_batches:
            name, sequence = batch.plan.playbook, batch.plan.sequence
            text = f"{where}: batch {sequence} of {name} is {stale} batches stale, with at most"
            self.findings.add("staleness", f"{text} {batch.max_inflight_batches} in flight")

    def _groups(self, where: str, batch: Batch) -> None:
        named = f"{where}: batch {batch.plan.sequence} of {batch.plan.playbook}"
        try:
            dealt = deal_batch(batch)
        except (ValueError, IndexError) as error:
            self.findings.add("groups", f"{named} cannot be dealt: {error}")
            return
        loads = [len(group) for group in dealt]
        if max(loads) - min(loads) > 1:
            self.findings.add("groups", f"{named} has unbalanced groups: {min(loads)} to {max(loads)} copies")
        if any(len({member.offset for member in group}) < len(group) for group in dealt):
            self.findings.add("groups", f"{named} has two copies of one reflection in a group")
        copies = Counter(member.offset for group in dealt for member in group)
        wrong = [m.reflection_id for m in batch.members if copies[m.offset] != batch.copies]
        if wrong:
            text = (
                f"{named}: {len(wrong)} members are not in exactly {batch.copies} groups, such as {wrong[0]}"
            )
            self.findings.add("groups", text)

    def is_missing(self, partition: int, name: str, sequence: int) -> bool:
        """Return whether a batch should have a manifest and has none."""
        if (name, sequence) in self.sizes:
            return False
        return partition not in self.cut or sequence >= self._first.get(name, sequence + 1)

    def identity_at(self, place: Place) -> str:
        """Return a reflection's id in manifests; empty: it is in none, or its record determines the id."""
        return self._identities.get(place, "")

    def last_batch(self, name: str, reflection_id: str) -> tuple[int, int]:
        """Return attempt and sequence of the latest attempt of an id; ``NOWHERE`` if it is in no batch."""
        attempts = self._retries.get((name, reflection_id))
        if attempts:
            return max(attempts.items())
        sequence = self._sequence_of.get(name, {}).get(reflection_id)
        return NOWHERE if sequence is None else (0, sequence)

    def sequences_of(self, name: str, reflection_id: str) -> set[int]:
        """Return the batches that an id is in."""
        first = self._sequence_of.get(name, {}).get(reflection_id)
        return (set() if first is None else {first}) | self._also.get((name, reflection_id), set())

    def has_member(self, name: str, sequence: int, reflection_id: str) -> bool:
        """Return whether an id is a member of a batch."""
        first = self._sequence_of.get(name, {}).get(reflection_id)
        return first == sequence or sequence in self._also.get((name, reflection_id), ())
