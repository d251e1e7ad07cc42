"""Conflicting operations of one batch: the one with most sources wins, among equals the newest."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from combee.core.names.sources import UNPROVEN
from combee.core.playbook.operations import union
from combee.core.text.similarity.lessons import same_lesson
from combee_schemas.scan import Operation, OperationKind

NO_NAMES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Loser:
    """An operation that is not applied, and its entry."""

    operation: Operation
    entry_id: str
    is_repeat: bool
    """Whether the winner has the same effect, and rests on this operation's evidence as well."""


def contest(
    operations: Sequence[Operation],
    live: Container[str],
    offsets: Mapping[str, int],
    names: Mapping[str, str] = NO_NAMES,
) -> tuple[list[Operation], list[Loser]]:
    """Return the operations to apply in order, at most one for each ``live`` entry; and the losers.

    The operation with most sources wins, then the one with the newest evidence: one source's last word does
    not undo what several agree on. ``offsets`` are those of the reflections, and ``names`` those of their sources;
    reflections without a name count as one source. Between equals the later operation wins. Operations without
    evidence are people's, and all apply.
    """
    kept = dict(enumerate(operations))
    losers: list[Loser] = []
    holder: dict[str, int] = {}

    def weight(n: int) -> tuple[int, int, int]:
        evidence = operations[n].evidence
        sources = {names.get(reflection_id, UNPROVEN) for reflection_id in evidence}
        return len(sources), max(offsets.get(reflection_id, -1) for reflection_id in evidence), n

    contenders = [
        n for n, operation in kept.items() if operation.evidence and operation.kind != OperationKind.ADD
    ]
    for n in sorted(contenders, key=weight, reverse=True):
        targets = [identity for identity in operations[n].entry_ids if identity in live]
        contested = next((target for target in targets if target in holder), None)
        if contested is None:
            holder.update(dict.fromkeys(targets, n))
            continue
        loser, winner = kept.pop(n), kept[holder[contested]]
        is_repeat = _agree(loser, winner)
        losers.append(Loser(operation=loser, entry_id=contested, is_repeat=is_repeat))
        if is_repeat:
            both = union(loser.evidence, winner.evidence)
            kept[holder[contested]] = winner.model_copy(update={"evidence": both})
    return list(kept.values()), losers


def _agree(operation: Operation, rival: Operation) -> bool:
    if operation.kind != rival.kind or set(operation.entry_ids) != set(rival.entry_ids):
        return False
    return operation.kind == OperationKind.REMOVE or same_lesson(operation.content, rival.content)
