"""Apply operations to a playbook of entries, within its token budget.

Entries are short lessons in sections (ACE). An operation adds, changes, merges or removes some of them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import chain

from combee.core.flags import flags
from combee.core.formats.render import section_order
from combee.core.playbook.draft import NO_IDS, Draft, drafted, rest_on, united
from combee.core.playbook.operations import normalise, union
from combee.core.playbook.probation import is_active
from combee.core.prompt import entry_tokens
from combee.core.similarity.lessons import same_lesson
from combee.core.sources import UNPROVEN
from combee_schemas.playbook import Entry, EntryState, Playbook
from combee_schemas.scan import Echo, Known, Operation, OperationKind, Seen

PROPOSED_SHARE = 4
"""Proposed entries may have this part of the token budget, beside it."""


def apply_operations(
    base: Playbook,
    operations: Iterable[Operation],
    seen: Iterable[Seen],
    *,
    revoked: Sequence[str] = (),
    echoes: Iterable[Echo] = (),
    known: Iterable[Known] = (),
    born: EntryState = "active",
    ids: Mapping[str, str] = NO_IDS,
) -> Draft:
    """Return ``base`` with tags counted and operations applied in order; evidence from ``revoked`` never counts.

    Operations on entries that vanished are dropped and recorded; an ADD of what is already there
    strengthens the entry that says it; of several on one entry the one with the newest evidence wins. ``born`` is
    the state of what is added, ``ids`` where it goes in a recomputation.
    """
    return drafted(
        base, operations, seen, _apply, revoked=revoked, echoes=echoes, known=known, born=born, ids=ids
    )


def finish(base: Playbook, draft: Draft, budget_tokens: int) -> tuple[tuple[str, ...], tuple[Entry, ...]]:
    """Return sections and entries after the token budget: the least useful entries go, and it is recorded."""
    for entry_id in evictions(tuple(draft.entries.values()), budget_tokens):
        draft.note("evict", entry_id, draft.entries[entry_id].content)
        draft.landing.evict(entry_id)
        draft.drop(entry_id)
    draft.note_conflicts()
    entries = tuple(draft.entries.values())
    return section_order(base.sections, entries), entries


def evictions(entries: Sequence[Entry], budget_tokens: int) -> tuple[str, ...]:
    """Return whom to evict so that the rest fits: lowest balance of counters, then least evidence, then oldest.

    What is only proposed has a share of its own beside the budget: agents do not read it, and a full playbook would
    never learn anything new if it had to make room for it at once. Of what is proposed, what looks like an
    instruction goes first: only a person can let agents see it. Then the source that has most of the room makes some.
    """
    shown = [entry for entry in entries if is_active(entry)]
    proposed = [entry for entry in entries if not is_active(entry)]
    return *_excess(shown, budget_tokens), *_crowded_out(proposed, budget_tokens // PROPOSED_SHARE)


def _excess(entries: Sequence[Entry], budget_tokens: int) -> tuple[str, ...]:
    excess = sum(map(entry_tokens, entries)) - budget_tokens
    out: list[str] = []
    for entry in sorted(entries, key=_use) if excess > 0 else ():
        if excess <= 0:
            break
        excess -= entry_tokens(entry)
        out.append(entry.id)
    return tuple(out)


def _crowded_out(entries: Sequence[Entry], budget_tokens: int) -> tuple[str, ...]:
    """Return which proposed entries go, in turn from the source that has most of the room.

    Of its entries the one that the fewest sources support, then the least useful. An entry takes room from each of
    its sources in equal parts; entries without one are those of one source.
    """
    excess = sum(map(entry_tokens, entries)) - budget_tokens
    if excess <= 0:
        return ()
    parts = {
        entry.id: dict.fromkeys(sources, Fraction(entry_tokens(entry), len(sources)))
        for entry in entries
        for sources in (entry.sources or (UNPROVEN,),)
    }
    room: dict[str, Fraction] = defaultdict(Fraction)
    for source, tokens in chain.from_iterable(map(dict.items, parts.values())):
        room[source] += tokens
    left = sorted(entries, key=_use)
    welcome = {entry.id for entry in entries if _is_welcome(entry)}
    out: list[str] = []
    while excess > 0:
        largest = max(room, key=lambda source: (room[source], source))
        # In the order of `left` where all of this is equal.
        ranks = [
            (entry.id in welcome, largest not in parts[entry.id], len(parts[entry.id])) for entry in left
        ]
        entry = left.pop(ranks.index(min(ranks)))
        for source, tokens in parts[entry.id].items():
            room[source] -= tokens
        excess -= entry_tokens(entry)
        out.append(entry.id)
    return tuple(out)


def _is_welcome(entry: Entry) -> bool:
    return is_active(entry) or "instruction" not in flags(entry.content)


def _use(entry: Entry) -> tuple[int | str, ...]:
    """Return how useful an entry is; of evidence that is a guess a proposed one has no use."""
    evidence = entry.evidence_count if is_active(entry) else len(entry.support)
    return _is_welcome(entry), entry.helpful - entry.harmful, evidence, entry.updated_version, entry.id


def _apply(draft: Draft, operation: Operation) -> None:
    match operation.kind:
        case OperationKind.ADD:
            _add(draft, operation)
        case OperationKind.UPDATE:
            _update(draft, operation)
        case OperationKind.MERGE:
            _merge(draft, operation)
        case OperationKind.REMOVE:
            _remove(draft, operation)


def _add(draft: Draft, operation: Operation) -> None:
    same = draft.saying(operation.content)
    if same is not None:
        draft.placed.setdefault(operation.content, same.id)
        _strengthen(draft, same, operation)
        return
    section = draft.section(operation.section)
    entry_id = draft.new_id(section, operation.content)
    draft.next_id += 1
    draft.placed.setdefault(operation.content, entry_id)
    entry = Entry(
        id=entry_id,
        section=section,
        content=operation.content,
        state=draft.born,
        created_version=draft.version,
    )
    draft.put(rest_on(entry, operation.evidence, draft.version))
    draft.note("add", entry_id)


def _strengthen(draft: Draft, entry: Entry, operation: Operation) -> None:
    """Let an entry rest on an operation that says the same; its own words stay."""
    draft.put(rest_on(entry, operation.evidence, draft.version))
    differs = normalise(operation.content) != normalise(entry.content)
    words = f": {operation.content}" if differs else ""
    draft.note("duplicate", entry.id, f"{len(operation.evidence)} more reflections say so{words}")


def _update(draft: Draft, operation: Operation) -> None:
    entry = draft.entries.get(operation.entry_ids[0])
    if entry is None:
        draft.note("dropped", operation.entry_ids[0], "UPDATE: no such entry any more")
    elif operation.evidence and same_lesson(entry.content, operation.content):
        _strengthen(draft, entry, operation)
    else:
        _reword(draft, _for(operation.content, entry), operation)


def _merge(draft: Draft, operation: Operation) -> None:
    named = [
        _for(operation.content, draft.entries[entry_id])
        for entry_id in union(operation.entry_ids)
        if entry_id in draft.entries
    ]
    if not named:
        draft.note("dropped", operation.entry_ids[0], "MERGE: no such entries any more")
        return
    kept, *twins = named
    for twin in twins:
        draft.drop(twin.id)
        draft.note("merge", twin.id, f"into {kept.id}: {twin.content}")
    _reword(draft, united(kept, twins), operation)


def _for(content: str, entry: Entry) -> Entry:
    """Return an entry with the support that counts for a content: what is proposed has it for its own words alone."""
    if is_active(entry) or same_lesson(entry.content, content):
        return entry
    return entry.model_copy(update={"support": (), "sources": ()})


def _reword(draft: Draft, entry: Entry, operation: Operation) -> None:
    """Give an entry its new content; if another one says that already, the two become that one."""
    twin = draft.saying(operation.content, but=entry.id)
    if twin is None:
        changed = entry.model_copy(update={"content": operation.content})
        draft.put(rest_on(changed, operation.evidence, draft.version))
        draft.note("update", entry.id, entry.content)
        return
    draft.drop(entry.id)
    draft.note("merge", entry.id, f"into {twin.id}: {entry.content}")
    _strengthen(draft, united(twin, [entry]), operation)


def _remove(draft: Draft, operation: Operation) -> None:
    removed = draft.drop(operation.entry_ids[0])
    if removed is None:
        draft.note("dropped", operation.entry_ids[0], "REMOVE: no such entry any more")
    else:
        draft.note("remove", removed.id, removed.content)
