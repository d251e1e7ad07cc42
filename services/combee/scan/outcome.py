"""What a node passes on, and how it is made to fit a record."""

from collections.abc import Iterable, Iterator, Sequence

from combee.core.playbook import operations as ops
from combee.core.playbook.retention import surviving
from combee.ports import PoisonError
from combee_schemas.base import Usage
from combee_schemas.playbook import EVIDENCE_KEPT
from combee_schemas.scan import NodeResult, Operation

SKIPPED = Usage(skips=1)
SPLIT = Usage(splits=1)


def audited(
    result: NodeResult, level: int, kept: frozenset[str], dropped: frozenset[str] = frozenset()
) -> NodeResult:
    """Return a result with which reflections survived this level, or were dropped by name."""
    return result.model_copy(update={"seen": surviving(result.seen, level, kept, dropped)})


def spent(error: PoisonError) -> Usage:
    """Return the usage of a call that failed for good; without any reply it counts as not made."""
    return error.usage if error.usage.calls else error.usage + SKIPPED


def reasons(parts: Iterable[str]) -> str:
    """Return each different reason once."""
    return "; ".join(dict.fromkeys(part for part in parts if part))


def shorter(result: NodeResult, level: int) -> Iterator[NodeResult]:
    """Yield ever smaller results of a node of ``level``, each of which says what it lacks.

    Evidence of which other operations hold a copy goes first, then tags and sources, at last operations, the longest
    per reflection first; reflections that lose their last one did not get through.

    Raises
    ------
    PoisonError
        When nothing is left to leave out.
    """
    for kept in (EVIDENCE_KEPT, 1):
        cut = ops.cut_evidence(result.operations, kept)
        yield _noted(
            result.model_copy(update={"operations": cut}), "evidence that others have too left out for size"
        )
    bare = tuple(reflection.model_copy(update={"tags": (), "source": None}) for reflection in result.seen)
    note = "evidence that others have too, tags and sources left out for size"
    result = result.model_copy(update={"operations": cut, "seen": bare})
    yield _noted(result, note)
    left = sorted(
        result.operations, key=lambda operation: len(operation.content) / (1 + len(operation.evidence))
    )
    while left:
        left = left[: len(left) * 3 // 4]
        yield _noted(_only(result, level, left), f"{len(result.operations) - len(left)} operations, {note}")
    raise PoisonError("the ids alone are too many for one record: use a smaller batch size")


def _noted(result: NodeResult, note: str) -> NodeResult:
    return result.model_copy(update={"reason": reasons((note, result.reason))})


def _only(result: NodeResult, level: int, left: Sequence[Operation]) -> NodeResult:
    kept_ids = set(map(id, left))
    kept = tuple(operation for operation in result.operations if id(operation) in kept_ids)
    known = {reflection_id for claim in result.known for reflection_id in claim.evidence}
    lost = ops.rests(result.operations) - ops.rests(kept) - known
    seen = tuple(
        reflection.model_copy(update={"ok": False, "tags": (), "survived": min(reflection.survived, level)})
        if reflection.reflection_id in lost
        else reflection
        for reflection in result.seen
    )
    return result.model_copy(update={"operations": kept, "seen": seen})
