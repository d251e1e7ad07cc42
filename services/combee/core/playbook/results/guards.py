"""Guards on rewrites: an UPDATE or MERGE keeps the figures, conditions and negations of its entries; pure.

A rewrite that would lose one is not applied, whatever the model says of it. Its entries stay as they are, its content
is added where its own evidence says it, and the two are a conflict, for a person to decide. A figure is replaced only
where a reflection says the new one and that the old one is wrong: it names it, or it found the entry harmful.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice, pairwise
from types import MappingProxyType

from combee.core.methods.checking import Rewrite
from combee.core.names.sources import in_turn
from combee.core.playbook.derived import once_per_version
from combee.core.playbook.operations import MAX_DETAIL_CHARS, union
from combee.core.text.figures import Figure, figures, lacking, loses_a_figure, qualifiers
from combee.core.text.similarity.wording import wording
from combee_schemas.playbook import EVIDENCE_KEPT, Entry, Playbook
from combee_schemas.scan import Conflict, Operation, OperationKind

REWRITES = frozenset({OperationKind.UPDATE, OperationKind.MERGE})
MAX_CONFLICTS, MAX_OF_ONE = 50, 8
"""Maximum conflicts that are listed, of a batch and of one operation; what is not listed is not applied either."""
NOTHING_HARMFUL: Mapping[str, Collection[str]] = MappingProxyType({})
NOTHING_LOST: Mapping[Rewrite, str] = MappingProxyType({})
NO_NAMES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """The operations of a batch that may be applied, and what the others would have lost."""

    operations: tuple[Operation, ...]
    conflicts: tuple[Conflict, ...] = ()


def rewrites(base: Playbook, operations: Sequence[Operation]) -> tuple[Rewrite, ...]:
    """Return the rewrites that may have lost a condition or a negation.

    Those that only add words have not, and those that lose a figure for nothing are refused whatever else they lose.
    A check call is asked about the others; `guarded` takes its answer. Word lists would not do: of 114 labelled pairs
    with a negation or condition turned, 36 have the same ones on both sides.
    """
    pairs = (
        Rewrite(before=entry.content, after=operation.content)
        for operation in operations
        for entry in _replaced(base, operation)
    )
    return tuple(
        dict.fromkeys(
            pair
            for pair in pairs
            if not (_keeps(pair.after, pair.before) or loses_a_figure(pair.after, pair.before))
        )
    )


def guarded(
    base: Playbook,
    operations: Sequence[Operation],
    texts: Mapping[str, str],
    *,
    harmful: Mapping[str, Collection[str]] = NOTHING_HARMFUL,
    lost: Mapping[Rewrite, str] = NOTHING_LOST,
    names: Mapping[str, str] = NO_NAMES,
) -> Guarded:
    """Return the operations without rewrites that lose something.

    ``texts`` are the lessons of the batch's reflections by id, ``harmful`` the entries that each found harmful; an
    operation's evidence is verified to say its text. ``lost``: the `rewrites` that lost a condition or a negation,
    and its words. ``names`` are the sources of reflections.
    """
    kept: list[Operation] = []
    conflicts: list[Conflict] = []
    for operation in operations:
        entries = _replaced(base, operation)
        says = _saying(operation, texts) if entries else ()
        pairs = [(entry, Rewrite(before=entry.content, after=operation.content)) for entry in entries]
        unqualified = (
            _loss(operation, says, entry, f'"{lost[pair]}"') for entry, pair in pairs if pair in lost
        )
        losing = _losing(operation, says, entries, texts, harmful)
        losses = chain(_at_odds(operation, entries), losing, unqualified)
        own = list(islice(losses, MAX_OF_ONE))
        conflicts += own
        if own:
            section = operation.section or entries[0].section
            added = {"kind": OperationKind.ADD, "entry_ids": (), "section": section, "evidence": says}
            kept += [operation.model_copy(update=added)] if says else []
        else:
            kept.append(operation)
    said_by = [{names[one] for one in conflict.evidence if one in names} for conflict in conflicts]
    listed = in_turn(said_by)[:MAX_CONFLICTS]
    return Guarded(operations=tuple(kept), conflicts=tuple(conflicts[at] for at in sorted(listed)))


def _replaced(base: Playbook, operation: Operation) -> Sequence[Entry]:
    """Return the entries whose texts an operation replaces by its own."""
    if operation.kind not in REWRITES or base.holds != "entries":
        return ()
    ids = operation.entry_ids[:1] if operation.kind == OperationKind.UPDATE else union(operation.entry_ids)
    by_id = _by_id(base)
    return [by_id[entry_id] for entry_id in ids if entry_id in by_id]


@once_per_version
def _by_id(base: Playbook) -> Mapping[str, Entry]:
    return {entry.id: entry for entry in base.entries}


def _keeps(content: str, said: str) -> bool:
    """Return whether a content has all words of a text in their order, and no other negation or condition."""
    words = iter(wording(content).words)
    return qualifiers(content) == qualifiers(said) and all(word in words for word in wording(said).words)


def _at_odds(operation: Operation, entries: Sequence[Entry]) -> Iterator[Conflict]:
    """Yield pairs of entries with other figures that a MERGE would make one, at least one pair of each kind."""
    having: dict[str, list[tuple[frozenset[Figure], Entry]]] = defaultdict(list)
    for entry in entries:
        own = sorted(figures(entry.content), key=_kind)
        for kind, same in groupby(own, key=_kind):
            having[kind].append((frozenset(same), entry))
    for said in having.values():
        # Of sets by size, all contain one another if each is contained in the next.
        for (quantities, entry), (others, other) in pairwise(sorted(said, key=lambda pair: len(pair[0]))):
            if not quantities <= others:
                sides = " against ".join(map(_listed, map(sorted, (quantities, others))))
                why = f"{operation.kind} with {other.id}: {sides}"
                yield _conflict(entry, other.content, other.evidence, why)


def _kind(figure: Figure) -> str:
    """Return what figures have in common that may be about one thing: their unit, time, or no unit of measure."""
    if figure.is_time:
        return "time"
    return figure.unit if figure.is_measured else ""


def _losing(
    operation: Operation,
    says: Sequence[str],
    entries: Iterable[Entry],
    texts: Mapping[str, str],
    harmful: Mapping[str, Collection[str]],
) -> Iterator[Conflict]:
    """Yield the entries of which a content keeps less figures than they have."""
    said = {one: frozenset(figures(texts.get(one, ""))) for one in operation.evidence}
    for entry in entries:
        wrong = {one for one in said if entry.id in harmful.get(one, ())}
        lost = [
            figure
            for figure in lacking(operation.content, entry.content)
            if not _is_replaced(figure, entry, operation, said, wrong)
        ]
        if lost:
            yield _loss(operation, says, entry, _listed(lost))


def _is_replaced(
    figure: Figure,
    entry: Entry,
    operation: Operation,
    said: Mapping[str, frozenset[Figure]],
    wrong: Collection[str],
) -> bool:
    """Return whether a reflection says a unit's new figures, and names the old one or found the entry harmful."""
    own = {new for new in figures(operation.content) if new.unit == figure.unit}
    new = own.difference(figures(entry.content))
    return bool(new) and any(
        new <= quantities and (figure in quantities or one in wrong) for one, quantities in said.items()
    )


def _loss(operation: Operation, says: Sequence[str], entry: Entry, lost: str) -> Conflict:
    return _conflict(entry, operation.content, says, f"{operation.kind} would lose {lost}")


def _conflict(entry: Entry, content: str, evidence: Sequence[str], why: str) -> Conflict:
    return Conflict(
        entry_id=entry.id,
        content=content[:MAX_DETAIL_CHARS],
        evidence=tuple(evidence[:EVIDENCE_KEPT]),
        why=why[:MAX_DETAIL_CHARS],
    )


def _saying(operation: Operation, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the reflections of an operation's evidence of which its content keeps all figures."""
    return tuple(
        reflection_id
        for reflection_id in operation.evidence
        if (text := texts.get(reflection_id, "")) and not lacking(operation.content, text)
    )


def _listed(quantities: Iterable[Figure]) -> str:
    return ", ".join(map(str, quantities))
