"""A node's result, and how it is shortened to fit a record."""

from collections.abc import Iterable, Iterator
from itertools import chain

from combee.adapters.ports import PoisonError
from combee.core.playbook import operations as ops
from combee_schemas.base import Usage
from combee_schemas.playbook import EVIDENCE_KEPT
from combee_schemas.scan import Known, NodeResult, Operation, Seen

SKIPPED = Usage(skips=1)
SPLIT = Usage(splits=1)
TAGS_OF_EACH = 20
"""Tags per reflection that are kept until nothing else can be left out."""


def spent(error: PoisonError) -> Usage:
    """Return the usage of a call that failed permanently; a call without any reply counts as not made."""
    return error.usage if error.usage.calls else error.usage + SKIPPED


def reasons(parts: Iterable[str]) -> str:
    """Return each different reason once."""
    return "; ".join(dict.fromkeys(part for part in parts if part))


def shorter(result: NodeResult) -> Iterator[NodeResult]:
    """Yield ever smaller results of a node; the reason of each names what was left out.

    Bookkeeping goes first: most tags of a reflection; evidence of which other operations hold a copy; then all tags
    and the entries that calls were shown; then most names of what an operation or a known entry rests on. Operations
    go last, the longest per reflection first; reflections that lose their last one did not get through. Sources stay:
    what a source may do, and whether it is revoked, depends on them.

    Raises
    ------
    PoisonError
        When nothing is left to leave out.
    """
    if result.aside:
        result = result.model_copy(update={"aside": ()})
        yield _noted(result, "proposals to carry left out for size")
    result = result.model_copy(update={"seen": _tagged(result.seen, TAGS_OF_EACH)})
    yield _noted(result, f"tags beyond {TAGS_OF_EACH} each left out for size")
    for count in (EVIDENCE_KEPT, 1):
        cut = result.model_copy(update={"operations": ops.cut_evidence(result.operations, count)})
        yield _noted(cut, "evidence that others have too left out for size")
    bare = _tagged(result.seen, 0)
    cut = cut.model_copy(update={"seen": bare})
    yield _noted(cut, "evidence that others have too and tags left out for size")
    for count in (EVIDENCE_KEPT, 1):
        cut = _naming(cut, count)
        note = f"evidence beyond {count} each, and tags left out for size"
        yield _noted(cut, note)
    whole = result.operations
    left = sorted(range(len(whole)), key=lambda n: len(whole[n].content) / (1 + len(whole[n].evidence)))
    while left:
        left = left[: len(left) * 7 // 8]
        only = cut.model_copy(
            update={
                "operations": tuple(cut.operations[n] for n in sorted(left)),
                "seen": _without(bare, _lost(result, left)),
            }
        )
        yield _noted(only, f"{len(whole) - len(left)} operations, {note}")
    raise PoisonError("the ids alone are too many for one record: use a smaller batch size")


def _tagged(seen: Iterable[Seen], count: int) -> tuple[Seen, ...]:
    """Return reflections with the first ``count`` tags of each."""
    return tuple(
        reflection.model_copy(update={"tags": reflection.tags[:count]}) if reflection.tags else reflection
        for reflection in seen
    )


def _noted(result: NodeResult, note: str) -> NodeResult:
    return result.model_copy(update={"reason": reasons((note, result.reason))})


def _naming(result: NodeResult, count: int) -> NodeResult:
    """Return a result whose operations and known entries name at most ``count`` reflections each."""
    return result.model_copy(
        update={
            name: tuple(
                claim.model_copy(update={"evidence": claim.evidence[:count]})
                for claim in getattr(result, name)
            )
            for name in ("operations", "known", "echoes")
        }
    )


def _lost(result: NodeResult, left: Iterable[int]) -> frozenset[str]:
    """Return the reflections that no operation rests on once only the operations ``left`` stay."""
    claims: list[Operation | Known] = [*(result.operations[n] for n in left), *result.known]
    return ops.rests(result.operations).difference(chain.from_iterable(claim.evidence for claim in claims))


def _without(seen: Iterable[Seen], lost: frozenset[str]) -> tuple[Seen, ...]:
    return tuple(
        reflection.model_copy(update={"ok": False, "covered": ""})
        if reflection.reflection_id in lost
        else reflection
        for reflection in seen
    )
