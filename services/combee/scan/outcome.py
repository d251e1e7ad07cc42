"""What a node passes on, and how it is made to fit a record."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from combee.core.playbook import operations as ops
from combee.core.playbook.retention import surviving
from combee.ports import PoisonError
from combee_schemas.base import Usage
from combee_schemas.playbook import EVIDENCE_KEPT
from combee_schemas.scan import Echo, NodeStatus, Operation, Seen

SKIPPED = Usage(skips=1)
SPLIT = Usage(splits=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a node passes on; ``usage`` and ``carried`` are of its whole sub-tree."""

    status: NodeStatus
    reason: str = ""
    operations: tuple[Operation, ...] = ()
    seen: tuple[Seen, ...] = ()
    echoes: tuple[Echo, ...] = ()
    carried: int = 0
    usage: Usage = field(default_factory=Usage)

    def audited(self, level: int, kept: frozenset[str]) -> "Outcome":
        """Return it with which reflections survived this level."""
        return replace(self, seen=surviving(self.seen, level, kept))


def spent(error: PoisonError) -> Usage:
    """Return the usage of a call that failed for good; without any reply it counts as not made."""
    return error.usage if error.usage.calls else error.usage + SKIPPED


def reasons(parts: Iterable[str]) -> str:
    """Return each different reason once."""
    return "; ".join(dict.fromkeys(one for one in parts if one))


def shorter(outcome: Outcome, level: int) -> Iterator[Outcome]:
    """Yield ever smaller outcomes of a node of ``level``, each of which says what it lacks.

    Evidence of which other operations hold a copy goes first, then tags, at last operations, the longest
    per reflection first; reflections that lose their last one did not get through.

    Raises
    ------
    PoisonError
        When nothing is left to leave out.
    """
    for kept in (EVIDENCE_KEPT, 1):
        cut = ops.cut_evidence(outcome.operations, kept)
        yield _noted(replace(outcome, operations=cut), "evidence that others have too left out for size")
    bare = tuple(one.model_copy(update={"tags": ()}) for one in outcome.seen)
    note = "evidence that others have too and tags left out for size"
    outcome = replace(outcome, operations=cut, seen=bare)
    yield _noted(outcome, note)
    left = sorted(outcome.operations, key=lambda one: len(one.content) / (1 + len(one.evidence)))
    while left:
        left = left[: len(left) * 3 // 4]
        yield _noted(_only(outcome, level, left), f"{len(outcome.operations) - len(left)} operations, {note}")
    raise PoisonError("the ids alone are too many for one record: use a smaller batch size")


def _noted(outcome: Outcome, note: str) -> Outcome:
    return replace(outcome, reason=reasons((note, outcome.reason)))


def _only(outcome: Outcome, level: int, left: Sequence[Operation]) -> Outcome:
    held = set(map(id, left))
    kept = tuple(one for one in outcome.operations if id(one) in held)
    lost = ops.rests(outcome.operations) - ops.rests(kept)
    seen = tuple(
        one.model_copy(update={"ok": False, "tags": (), "survived": min(one.survived, level)})
        if one.reflection_id in lost
        else one
        for one in outcome.seen
    )
    return replace(outcome, operations=kept, seen=seen)
