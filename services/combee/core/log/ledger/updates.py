"""Updates: a batch's first update counts; it read each member once and rests on members alone."""

from dataclasses import dataclass, field

from combee.core.log.ledger.batches import Batches
from combee.core.log.ledger.dead_letters import Place
from combee.core.log.ledger.report import Findings
from combee_schemas.base import Usage
from combee_schemas.scan import Known, Operation, Update


@dataclass(slots=True, kw_only=True)
class Updates:
    """Updates in order, added after all manifests."""

    findings: Findings
    batches: Batches
    effective: dict[tuple[str, int], Place] = field(default_factory=dict)
    """(playbook, sequence) of batches with an update → the update's place."""
    failed: set[tuple[str, int, str]] = field(default_factory=set)
    """(playbook, sequence, id) of members whose copies all failed."""
    spent: dict[tuple[str, int], tuple[int, Usage]] = field(default_factory=dict)
    """(playbook, sequence) → planned calls, and usage."""

    def add(self, partition: int, offset: int, update: Update) -> None:
        """Add and judge one update; a batch's later updates, and those on a foreign partition, have no effect."""
        name, sequence = update.plan.playbook, update.plan.sequence
        if (name, sequence) not in self.batches.sizes or (name, sequence) in self.effective:
            return
        if partition != self.batches.partition_of[name]:
            return
        self.effective[name, sequence] = (partition, offset)
        self.spent[name, sequence] = (sum(update.plan.widths), update.result.usage)
        where = f"updates[{partition}]@{offset}: the update of batch {sequence} of {name}"
        self._evidence(where, update)
        self._seen(where, update)
        self._left_out(where, update)

    def _evidence(self, where: str, update: Update) -> None:
        name, sequence = update.plan.playbook, update.plan.sequence
        claims: tuple[Operation | Known, ...] = (*update.result.operations, *update.result.known)
        named = {reflection_id for claim in claims for reflection_id in claim.evidence}
        foreign = sorted(
            reflection_id
            for reflection_id in named
            if not self.batches.has_member(name, sequence, reflection_id)
        )
        if foreign:
            text = f"{where} rests on {len(foreign)} reflections that are not members, such as {foreign[0]}"
            self.findings.add("evidence", text)

    def _seen(self, where: str, update: Update) -> None:
        name, sequence = update.plan.playbook, update.plan.sequence
        ids = [reflection.reflection_id for reflection in update.result.seen]
        foreign = [identity for identity in ids if not self.batches.has_member(name, sequence, identity)]
        missing = self.batches.sizes[name, sequence] - (len(set(ids)) - len(set(foreign)))
        if len(set(ids)) < len(ids):
            self.findings.add("seen", f"{where} counts a reflection twice")
        if foreign:
            self.findings.add("seen", f"{where} saw {foreign[0]}, which is not a member")
        if missing > 0 and update.result.status != "failed":
            self.findings.add("seen", f"{where} did not see {missing} of its members")
        self.failed |= {
            (name, sequence, reflection.reflection_id)
            for reflection in update.result.seen
            if not reflection.ok
        }

    def _left_out(self, where: str, update: Update) -> None:
        """Judge the groups that the root left out; another check verifies that all members were read nevertheless."""
        plan, left_out = update.plan, update.result.left_out
        if left_out and not plan.settings.stragglers:
            self.findings.add(
                "left out", f"{where} left out {len(left_out)} nodes, which its plan does not allow"
            )
        children = plan.widths[-2] if len(plan.widths) > 1 else 0
        if len(set(left_out)) < len(left_out) or any(not 0 <= index < children for index in left_out):
            self.findings.add("left out", f"{where} left out nodes that do not exist: {left_out[:5]}")
