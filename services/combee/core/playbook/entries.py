"""Apply operations to a playbook of entries, within its token budget.

Entries are short lessons in sections (ACE). An operation adds, changes, merges or removes some of them.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Container, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import chain
from types import MappingProxyType

from combee.core.names.sources import UNPROVEN
from combee.core.playbook.budget import ENTRIES_BYTES, PROPOSED_SHARE, stored_bytes
from combee.core.playbook.draft import Draft, drafted, rest_on, united
from combee.core.playbook.operations import union
from combee.core.playbook.sections import section_order
from combee.core.playbook.trust import supporters
from combee.core.text.forms import comparable
from combee.core.text.prompt import tokens_by_entry
from combee.core.text.similarity.lessons import same_lesson
from combee_schemas.playbook import ACE_SECTIONS, Entry, Playbook
from combee_schemas.scan import Operation, OperationKind

Parts = Mapping[str, Fraction]
"""By source, its part of the playbook's reflections; of one source it bounds nothing."""
UNBOUNDED: Parts = MappingProxyType({})


def finish(
    base: Playbook, draft: Draft, budget_tokens: int, parts: Parts = UNBOUNDED
) -> tuple[tuple[str, ...], tuple[Entry, ...]]:
    """Return sections and entries after the token budget: the least useful entries go, and it is recorded.

    The sections are the playbook's own, which ACE or a person gave it; those of other entries follow wherever the
    entries are shown.
    """
    # The header of an entry that a person added stays without it; the header that a batch began leaves with it.
    begun = (
        entry for entry in draft.entries.values() if draft.by_hand and entry.created_version == draft.version
    )
    sections = section_order(base.sections, begun)
    for entry_id in evictions(tuple(draft.entries.values()), budget_tokens, base.entries, sections, parts):
        draft.note("evict", entry_id, draft.entries[entry_id].content)
        draft.landing.evict(entry_id)
        draft.drop(entry_id)
    draft.note_conflicts()
    return sections, tuple(draft.entries.values())


def evictions(
    entries: Sequence[Entry],
    budget_tokens: int,
    before: Sequence[Entry] | None = None,
    sections: Sequence[str] = ACE_SECTIONS,
    parts: Parts = UNBOUNDED,
) -> tuple[str, ...]:
    """Return whom to evict so that the rest fits budget and record; ``before`` are the entries of the version before.

    Headers count, but those of ``sections``, the playbook's own. The entry that begins a section brings its header.

    First goes what the fewest sources support; of that the lowest balance of counters, then least evidence, then
    oldest. A source that alone supports more of the room than its part gives way first, and its new entries make room
    among its own. What a person stands behind goes last, and only where such entries alone exceed the budget.

    Proposed entries have a share of their own in addition to the budget: agents do not read them, and a full playbook
    would learn nothing new if it had to make room for them at once. There the source that has most of the room makes
    some.
    """
    was_shown = [entry for entry in (entries if before is None else before) if entry.is_active]
    was, out = tokens_by_entry(was_shown, sections), dict[str, None]()
    # Again, because the header of an entry that goes counts for the next one of its section then.
    while True:
        left = [entry for entry in entries if entry.id not in out]
        shown = [entry for entry in left if entry.is_active]
        proposed = [entry for entry in left if not entry.is_active]
        sizes, waiting = (tokens_by_entry(part, sections) for part in (shown, proposed))
        gone = (
            *_excess(shown, sizes, was, budget_tokens, parts),
            *_crowded_out(proposed, waiting, budget_tokens // PROPOSED_SHARE),
        )
        if not gone and stored_bytes(left) <= ENTRIES_BYTES:
            return tuple(out)
        if not gone:
            # Short entries, and letters of several bytes, fill a record with fewer tokens than others.
            less = min(budget_tokens, sum(sizes.values()) + sum(waiting.values())) * 9 // 10
            candidates = (*_excess(shown, sizes, was, less, parts), *_crowded_out(proposed, waiting, 0))
            gone = tuple(_beyond_record(left, candidates))
        out |= dict.fromkeys(gone)


def _beyond_record(entries: Sequence[Entry], candidates: Sequence[str]) -> Iterator[str]:
    """Yield who goes, in turn, until the rest fits the record; what a person stands behind goes last."""
    by_id = {entry.id: entry for entry in entries}
    excess = stored_bytes(entries) - ENTRIES_BYTES
    for entry_id in sorted(candidates, key=lambda entry_id: by_id[entry_id].by_hand):
        if excess <= 0:
            return
        excess -= stored_bytes([by_id[entry_id]])
        yield entry_id


def _excess(
    entries: Sequence[Entry],
    sizes: Mapping[str, int],
    before: Mapping[str, int],
    budget_tokens: int,
    parts: Parts,
) -> tuple[str, ...]:
    """Return which shown entries go, in turn; ``sizes`` and ``before``, of the version before, are in tokens.

    The source that exceeds its part most makes room first. A source that brings something makes as much room among
    what it alone supports, as far as that was there before. Nor does what it brings take the room of a source that
    has less of it.
    """
    excess = sum(sizes.values()) - budget_tokens
    if excess <= 0:
        return ()
    owners = {entry.id: _owner(entry) for entry in entries}
    room, brought = Counter[str](), Counter[str]()
    queues: dict[str, deque[Entry]] = defaultdict(deque)
    order = sorted(entries, key=lambda entry: (entry.by_hand, len(supporters(entry)), _use(entry)))
    for entry in order:
        if owner := owners[entry.id]:
            room[owner] += sizes[entry.id]
            brought[owner] += max(0, sizes[entry.id] - before.get(entry.id, 0))
            queues[owner].append(entry)
    debts = {owner: min(tokens, room[owner] - tokens) for owner, tokens in brought.items() if tokens}
    left, out = deque(order), dict[str, None]()
    while excess > 0:
        bounded = room if len(parts) > 1 else ()
        over = {source: room[source] - parts.get(source, 0) * budget_tokens for source in bounded}
        payer = _largest(over) or _largest(debts)
        if not payer:
            owner, payer = owners[_next(left, out).id], _largest({source: room[source] for source in debts})
            payer = payer if owner and room[payer] > room[owner] else ""
        entry = _next(queues[payer] if payer else left, out)
        tokens, owner = sizes[entry.id], owners[entry.id]
        excess -= tokens
        room[owner] -= tokens
        if owner in debts:
            debts[owner] -= tokens
        out[entry.id] = None
    return tuple(out)


def _largest(tokens: Mapping[str, int | Fraction]) -> str:
    """Return the source with most tokens, if it has any."""
    having = [source for source, count in tokens.items() if count > 0]
    return max(having, key=lambda source: (tokens[source], source), default="")


def _next(queue: deque[Entry], out: Container[str]) -> Entry:
    while queue[0].id in out:
        queue.popleft()
    return queue[0]


def _owner(entry: Entry) -> str:
    """Return the only source that supports an entry; nothing if there are several, or a person stands behind it."""
    first, *others = supporters(entry)
    return "" if others or entry.by_hand else first


def _crowded_out(entries: Sequence[Entry], sizes: Mapping[str, int], budget_tokens: int) -> tuple[str, ...]:
    """Return which proposed entries go, in turn from the source that has most of the room.

    Of its entries the one that the fewest sources support, then the least useful. An entry takes room from each of
    its sources in equal parts; entries without one are those of one source.
    """
    excess = sum(sizes.values()) - budget_tokens
    if excess <= 0:
        return ()
    parts = {
        entry.id: dict.fromkeys(sources, Fraction(sizes[entry.id], len(sources)))
        for entry in entries
        for sources in (entry.sources or (UNPROVEN,),)
    }
    room: dict[str, Fraction] = defaultdict(Fraction)
    for source, tokens in chain.from_iterable(map(dict.items, parts.values())):
        room[source] += tokens
    left = sorted(entries, key=_use)
    out: list[str] = []
    while excess > 0:
        largest = max(room, key=lambda source: (room[source], source))
        # In the order of `left` where all of this is equal.
        ranks = [(largest not in parts[entry.id], len(parts[entry.id])) for entry in left]
        entry = left.pop(ranks.index(min(ranks)))
        for source, tokens in parts[entry.id].items():
            room[source] -= tokens
        excess -= sizes[entry.id]
        out.append(entry.id)
    return tuple(out)


def _use(entry: Entry) -> tuple[int | str, ...]:
    """Return how useful an entry is."""
    evidence = entry.evidence_count if entry.is_active else len(entry.support)
    return entry.helpful - entry.harmful, evidence, entry.updated_version, entry.id


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


apply_operations = partial(drafted, apply=_apply)
"""Return a playbook with tags counted and operations applied in order, as ``drafted`` says.

Operations on entries that vanished are dropped and recorded; an ADD of what is already there strengthens the entry
that says it.
"""


def _add(draft: Draft, operation: Operation) -> None:
    same = draft.saying(operation.content)
    if same is not None:
        draft.placed.setdefault(operation.content, same.id)
        _strengthen(draft, same if same.is_active else draft.links.linked(same), operation)
        return
    section, entry_id = draft.place(operation.section, operation.content)
    draft.next_id += 1
    draft.placed.setdefault(operation.content, entry_id)
    entry = Entry(
        id=entry_id,
        section=section,
        content=operation.content,
        state=draft.born,
        by_hand=draft.by_hand,
        created_version=draft.version,
    )
    entry = entry if entry.is_active else draft.links.linked(entry)
    draft.put(rest_on(entry, operation.evidence, draft.version))
    draft.note("add", entry_id)


def _strengthen(draft: Draft, entry: Entry, operation: Operation) -> None:
    """Let an entry rest on an operation that says the same; its own words stay, unless a person says it now."""
    said, known = (comparable(content).rstrip(".") for content in (operation.content, entry.content))
    words = f": {operation.content}" if said != known else ""
    content = operation.content if draft.by_hand and words else entry.content
    strengthened = entry.model_copy(update={"content": content, "by_hand": draft.by_hand or entry.by_hand})
    draft.put(rest_on(strengthened, operation.evidence, draft.version))
    if content != entry.content:
        draft.note("update", entry.id, entry.content)
        return
    draft.note("duplicate", entry.id, f"{len(operation.evidence)} more reflections say so{words}")


def _update(draft: Draft, operation: Operation) -> None:
    entry = draft.entries.get(operation.entry_ids[0])
    if entry is None:
        draft.note("dropped", operation.entry_ids[0], "UPDATE: no such entry any more")
    elif operation.evidence and same_lesson(entry.content, operation.content):
        _strengthen(draft, entry, operation)
    else:
        _reword(draft, _for(operation, entry), operation)


def _merge(draft: Draft, operation: Operation) -> None:
    named = [
        _for(operation, draft.entries[entry_id])
        for entry_id in union(operation.entry_ids)
        if entry_id in draft.entries
    ]
    if not named:
        draft.note("dropped", operation.entry_ids[0], "MERGE: no such entries any more")
        return
    is_said = {
        entry.id: bool(operation.evidence) and same_lesson(entry.content, operation.content)
        for entry in named
    }
    # A person's words stay where the operation says the same.
    kept, *twins = sorted(named, key=lambda entry: not (entry.by_hand and is_said[entry.id]))
    for twin in twins:
        draft.drop(twin.id)
        draft.note("merge", twin.id, f"into {kept.id}: {twin.content}")
    become = _strengthen if is_said[kept.id] else _reword
    become(draft, united(kept, twins), operation)


def _for(operation: Operation, entry: Entry) -> Entry:
    """Return an entry with the support and the sources that count for what an operation says.

    Both are for the entry's own words. Words that rest on nothing are those of a consolidation, or a person's: they
    stand for the words of active entries.
    """
    stands = entry.is_active and not operation.evidence
    if stands or same_lesson(entry.content, operation.content):
        return entry
    return entry.model_copy(update={"sources": ()} if entry.is_active else {"support": (), "sources": ()})


def _reword(draft: Draft, entry: Entry, operation: Operation) -> None:
    """Give an entry its new content; if another one says that already, the two become that one."""
    twin = draft.saying(operation.content, but=entry.id)
    if twin is None:
        by_hand = draft.by_hand or (entry.by_hand and entry.content == operation.content)
        update = {"content": operation.content, "by_hand": by_hand}
        draft.put(rest_on(entry.model_copy(update=update), operation.evidence, draft.version))
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
