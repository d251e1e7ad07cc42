"""Apply operations to a playbook: pure, so that replaying history gives the same snapshot."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from combee.core.operations import TARGETS, normalise, union
from combee.core.render import section_order
from combee_schemas.playbook import ACE_SECTIONS, EVIDENCE_KEPT, Change, ChangeKind, Entry, Playbook
from combee_schemas.scan import Operation, OperationKind, Seen

SLUGS = {
    "STRATEGIES & INSIGHTS": "str",
    "FORMULAS & CALCULATIONS": "calc",
    "CODE SNIPPETS & TEMPLATES": "code",
    "COMMON MISTAKES TO AVOID": "err",
    "PROBLEM-SOLVING HEURISTICS": "prob",
    "CONTEXT CLUES & INDICATORS": "ctx",
    "OTHERS": "misc",
}

MAX_DETAIL_CHARS = 300


def empty(name: str) -> Playbook:
    """Return version 0, which every playbook starts from and nobody writes."""
    return Playbook(name=name, version=0, sections=ACE_SECTIONS)


def slug(section: str) -> str:
    """Return the short prefix of the ids of a section's entries."""
    initials = "".join(word[0] for word in re.findall(r"[a-z0-9]+", section.lower()))
    return SLUGS.get(section.upper(), initials[:4] or "misc")


@dataclass(slots=True)
class Draft:
    """A playbook being changed: entries by id in order, and what was done to them."""

    version: int
    entries: dict[str, Entry]
    next_id: int
    changes: list[Change] = field(default_factory=list)
    _said: dict[str, str] = field(default_factory=dict)
    """Normalised content → id of an entry that said it first."""

    def __post_init__(self) -> None:
        for entry in self.entries.values():
            self._said.setdefault(normalise(entry.content), entry.id)

    def put(self, entry: Entry) -> None:
        """Add or replace an entry."""
        self.entries[entry.id] = entry
        self._said.setdefault(normalise(entry.content), entry.id)

    def saying(self, content: str) -> Entry | None:
        """Return the entry that says ``content`` already."""
        wanted = normalise(content)
        if wanted not in self._said:
            return None
        known = self.entries.get(self._said[wanted])
        if known is None or normalise(known.content) != wanted:
            known = next((e for e in self.entries.values() if normalise(e.content) == wanted), None)
            if known is None:
                del self._said[wanted]
            else:
                self._said[wanted] = known.id
        return known

    def note(self, kind: ChangeKind, entry_id: str, detail: str = "") -> None:
        """Record one change."""
        self.changes.append(Change(kind=kind, entry_id=entry_id, detail=detail[:MAX_DETAIL_CHARS]))


def apply_operations(
    base: Playbook, operations: Iterable[Operation], seen: Iterable[Seen], *, revoked: Sequence[str] = ()
) -> Draft:
    """Return ``base`` with counters first, then operations in order; evidence from ``revoked`` never counts.

    Operations on entries that vanished are dropped and recorded; an ADD of what is already there
    strengthens the entry that says it.
    """
    draft = Draft(base.version + 1, {entry.id: entry for entry in base.entries}, base.next_id)
    gone = frozenset(revoked)
    _count(draft, (one for one in seen if one.ok and one.reflection_id not in gone))
    for operation in operations:
        evidence = tuple(one for one in operation.evidence if one not in gone)
        if operation.evidence and not evidence:
            draft.note("dropped", "", f"{operation.kind}: all of its evidence is revoked")
            continue
        if len(operation.entry_ids) < TARGETS[operation.kind]:
            draft.note("dropped", "", f"{operation.kind}: it names too few entries")
            continue
        APPLY[operation.kind](draft, operation.model_copy(update={"evidence": evidence}))
    return draft


def finish(base: Playbook, draft: Draft, budget_tokens: int) -> tuple[tuple[str, ...], tuple[Entry, ...]]:
    """Return sections and entries after the token budget: the least useful entries go, and it is recorded."""
    for entry_id in evictions(tuple(draft.entries.values()), budget_tokens):
        gone = draft.entries.pop(entry_id)
        draft.note("evict", entry_id, gone.content)
    entries = tuple(draft.entries.values())
    return section_order(base.sections, entries), entries


def evictions(entries: Sequence[Entry], budget_tokens: int) -> tuple[str, ...]:
    """Return whom to evict so that the rest fits: lowest balance of counters, then least evidence, then oldest."""
    total = sum(map(_tokens, entries))
    ranked = sorted(entries, key=lambda e: (e.helpful - e.harmful, e.evidence_count, e.updated_version, e.id))
    out: list[str] = []
    for entry in ranked:
        if total <= budget_tokens:
            break
        total -= _tokens(entry)
        out.append(entry.id)
    return tuple(out)


def _tokens(entry: Entry) -> int:
    return -(-(len(entry.id) + len(entry.content) + 4) // 4)


def _count(draft: Draft, seen: Iterable[Seen]) -> None:
    for one in seen:
        for tag in one.tags:
            entry = draft.entries.get(tag.id)
            if entry is not None and tag.tag != "neutral":
                draft.entries[tag.id] = entry.model_copy(update={tag.tag: getattr(entry, tag.tag) + 1})


def _add(draft: Draft, operation: Operation) -> None:
    same = draft.saying(operation.content)
    if same is not None:
        draft.put(_rest_on(same, operation.evidence, draft.version))
        draft.note("duplicate", same.id, f"{len(operation.evidence)} more reflections say so")
        return
    entry_id = f"{slug(operation.section)}-{draft.next_id:05d}"
    draft.next_id += 1
    entry = Entry(
        id=entry_id, section=operation.section, content=operation.content, created_version=draft.version
    )
    draft.put(_rest_on(entry, operation.evidence, draft.version))
    draft.note("add", entry_id)


def _update(draft: Draft, operation: Operation) -> None:
    entry = draft.entries.get(operation.entry_ids[0])
    if entry is None:
        draft.note("dropped", operation.entry_ids[0], "UPDATE: no such entry any more")
        return
    changed = entry.model_copy(update={"content": operation.content})
    draft.put(_rest_on(changed, operation.evidence, draft.version))
    draft.note("update", entry.id, entry.content)


def _merge(draft: Draft, operation: Operation) -> None:
    found = [draft.entries[one] for one in union(operation.entry_ids) if one in draft.entries]
    if not found:
        draft.note("dropped", operation.entry_ids[0], "MERGE: no such entries any more")
        return
    kept = found[0]
    merged = kept.model_copy(
        update={
            "content": operation.content,
            "helpful": sum(e.helpful for e in found),
            "harmful": sum(e.harmful for e in found),
            "evidence_count": sum(e.evidence_count for e in found),
            "evidence": union(*(e.evidence for e in found))[-EVIDENCE_KEPT:],
        }
    )
    for other in found[1:]:
        del draft.entries[other.id]
        draft.note("merge", other.id, f"into {kept.id}")
    draft.put(_rest_on(merged, operation.evidence, draft.version))
    draft.note("update", kept.id, kept.content)


def _remove(draft: Draft, operation: Operation) -> None:
    gone = draft.entries.pop(operation.entry_ids[0], None)
    if gone is None:
        draft.note("dropped", operation.entry_ids[0], "REMOVE: no such entry any more")
    else:
        draft.note("remove", gone.id, gone.content)


def _rest_on(entry: Entry, evidence: Sequence[str], version: int) -> Entry:
    fresh = [one for one in evidence if one not in entry.evidence]
    return entry.model_copy(
        update={
            "evidence_count": entry.evidence_count + len(fresh),
            "evidence": (*entry.evidence, *fresh)[-EVIDENCE_KEPT:],
            "updated_version": version,
        }
    )


APPLY: Mapping[OperationKind, Callable[[Draft, Operation], None]] = {
    OperationKind.ADD: _add,
    OperationKind.UPDATE: _update,
    OperationKind.MERGE: _merge,
    OperationKind.REMOVE: _remove,
}
