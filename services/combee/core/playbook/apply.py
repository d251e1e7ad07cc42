"""Apply operations to a playbook: pure, so that replaying history gives the same snapshot."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from combee.core.formats.render import section_order
from combee.core.playbook.conflicts import contest
from combee.core.playbook.draft import Draft, united
from combee.core.playbook.operations import TARGETS, normalise, union
from combee.core.playbook.similarity import same_lesson
from combee.core.prompt import entry_tokens
from combee_schemas.playbook import ACE_SECTIONS, Entry, Playbook
from combee_schemas.scan import Echo, Operation, OperationKind, Seen

SLUGS = {
    "STRATEGIES & INSIGHTS": "str",
    "FORMULAS & CALCULATIONS": "calc",
    "CODE SNIPPETS & TEMPLATES": "code",
    "COMMON MISTAKES TO AVOID": "err",
    "PROBLEM-SOLVING HEURISTICS": "prob",
    "CONTEXT CLUES & INDICATORS": "ctx",
    "OTHERS": "misc",
}


def empty(name: str) -> Playbook:
    """Return version 0, which every playbook starts from and nobody writes."""
    return Playbook(name=name, version=0, sections=ACE_SECTIONS)


def slug(section: str) -> str:
    """Return the short prefix of the ids of a section's entries."""
    initials = "".join(word[0] for word in re.findall(r"[a-z0-9]+", section.lower()))
    return SLUGS.get(section.upper(), initials[:4] or "misc")


def apply_operations(
    base: Playbook,
    operations: Iterable[Operation],
    seen: Iterable[Seen],
    *,
    revoked: Sequence[str] = (),
    echoes: Iterable[Echo] = (),
) -> Draft:
    """Return ``base`` with counters first, then operations in order; evidence from ``revoked`` never counts.

    Operations on entries that vanished are dropped and recorded; an ADD of what is already there
    strengthens the entry that says it; of several on one entry the one with the newest evidence wins.
    """
    draft, winners = begin(base, operations, seen, revoked=revoked, echoes=echoes)
    for operation in winners:
        done = len(draft.changes)
        APPLY[operation.kind](draft, operation)
        draft.landing.take(draft.changes[done:], operation.evidence)
    return draft


def begin(
    base: Playbook,
    operations: Iterable[Operation],
    seen: Iterable[Seen],
    *,
    revoked: Sequence[str] = (),
    echoes: Iterable[Echo] = (),
) -> tuple[Draft, list[Operation]]:
    """Return a draft in which tags are counted, and the operations to apply to it, in order."""
    draft = Draft.of(base)
    gone = frozenset(revoked)
    seen = [reflection for reflection in seen if reflection.reflection_id not in gone]
    _count(draft, (reflection for reflection in seen if reflection.ok))
    _note_echoes(draft, echoes, gone)
    usable = list(_sound(draft, operations, gone))
    offsets = {reflection.reflection_id: reflection.offset for reflection in seen}
    winners, losers = contest(usable, draft.entries, offsets)
    for loser in losers:
        text = f"{loser.operation.kind}: {loser.operation.content}"
        draft.note("duplicate" if loser.is_repeat else "superseded", loser.entry_id, text)
    return draft, winners


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
    """Return whom to evict so that the rest fits: lowest balance of counters, then least evidence, then oldest."""
    total = sum(map(entry_tokens, entries))
    ranked = sorted(entries, key=lambda e: (e.helpful - e.harmful, e.evidence_count, e.updated_version, e.id))
    out: list[str] = []
    for entry in ranked:
        if total <= budget_tokens:
            break
        total -= entry_tokens(entry)
        out.append(entry.id)
    return tuple(out)


def _sound(draft: Draft, operations: Iterable[Operation], gone: frozenset[str]) -> Iterator[Operation]:
    """Yield the operations that can be applied, without evidence that is ``gone``."""
    for operation in operations:
        evidence = tuple(reflection_id for reflection_id in operation.evidence if reflection_id not in gone)
        if operation.evidence and not evidence:
            draft.note("dropped", "", f"{operation.kind}: all of its evidence is revoked")
        elif len(operation.entry_ids) < TARGETS[operation.kind]:
            draft.note("dropped", "", f"{operation.kind}: it names too few entries")
        else:
            yield operation.model_copy(update={"evidence": evidence})


def _note_echoes(draft: Draft, echoes: Iterable[Echo], gone: frozenset[str]) -> None:
    by_entry: dict[str, set[str]] = {}
    for echo in echoes:
        by_entry.setdefault(echo.entry_id, set()).update(set(echo.evidence) - gone)
    for entry_id, evidence in by_entry.items():
        if evidence:
            draft.note("echo", entry_id, f"said again by {len(evidence)} reflections that were shown it")


def _count(draft: Draft, seen: Iterable[Seen]) -> None:
    """Count each reflection's last tag of an entry, if the version that it says was shown had that entry."""
    for reflection in seen:
        for tag in {tag.id: tag for tag in reflection.tags}.values():
            entry = draft.entries.get(tag.id)
            if (
                entry is not None
                and tag.tag != "neutral"
                and _was_in(entry, reflection.shown_version, draft.version)
            ):
                draft.entries[tag.id] = entry.model_copy(update={tag.tag: getattr(entry, tag.tag) + 1})


def _was_in(entry: Entry, version: int | None, before: int) -> bool:
    """Return whether an entry was in a version, one of those ``before`` another; None: an older writer's."""
    return version is None or max(1, entry.created_version) <= version < before


def _add(draft: Draft, operation: Operation) -> None:
    same = draft.saying(operation.content)
    if same is not None:
        _strengthen(draft, same, operation)
        return
    entry_id = f"{slug(operation.section)}-{draft.next_id:05d}"
    draft.next_id += 1
    entry = Entry(
        id=entry_id, section=operation.section, content=operation.content, created_version=draft.version
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
        _reword(draft, entry, operation)


def _merge(draft: Draft, operation: Operation) -> None:
    found = [draft.entries[one] for one in union(operation.entry_ids) if one in draft.entries]
    if not found:
        draft.note("dropped", operation.entry_ids[0], "MERGE: no such entries any more")
        return
    kept, *others = found
    for other in others:
        draft.drop(other.id)
        draft.note("merge", other.id, f"into {kept.id}: {other.content}")
    _reword(draft, united(kept, others), operation)


def _reword(draft: Draft, entry: Entry, operation: Operation) -> None:
    """Give an entry its new content; if another one says that already, the two become that one."""
    other = draft.saying(operation.content, but=entry.id)
    if other is None:
        changed = entry.model_copy(update={"content": operation.content})
        draft.put(rest_on(changed, operation.evidence, draft.version))
        draft.note("update", entry.id, entry.content)
        return
    draft.drop(entry.id)
    draft.note("merge", entry.id, f"into {other.id}: {entry.content}")
    _strengthen(draft, united(other, [entry]), operation)


def _remove(draft: Draft, operation: Operation) -> None:
    gone = draft.drop(operation.entry_ids[0])
    if gone is None:
        draft.note("dropped", operation.entry_ids[0], "REMOVE: no such entry any more")
    else:
        draft.note("remove", gone.id, gone.content)


def rest_on(entry: Entry, evidence: Sequence[str], version: int) -> Entry:
    """Return the entry, changed in ``version``, with more evidence; what it had counts once."""
    fresh = [reflection_id for reflection_id in evidence if reflection_id not in entry.evidence]
    return entry.model_copy(
        update={
            "evidence_count": entry.evidence_count + len(fresh),
            "evidence": (*entry.evidence, *fresh),
            "updated_version": version,
        }
    )


APPLY: Mapping[OperationKind, Callable[[Draft, Operation], None]] = {
    OperationKind.ADD: _add,
    OperationKind.UPDATE: _update,
    OperationKind.MERGE: _merge,
    OperationKind.REMOVE: _remove,
}
