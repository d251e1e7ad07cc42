"""The next version of a playbook while operations are applied: entries in order, what each says, what was changed.

``apply_operations`` counts tags and applies the operations of a batch, at most one to each entry. A playbook holds
entries (ACE), or components (GEPA): sections of one text each, which changes as a whole or not at all. ``Landing``
keeps where the reflections end that the operations rest on; ``finish`` keeps the token budget.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal

from combee.core.names.sources import UNPROVEN, counting, name_text
from combee.core.playbook.budget import ENTRIES_BYTES, UNBOUNDED, Parts, entry_tokens, evictions, stored_bytes
from combee.core.playbook.operations import MAX_DETAIL_CHARS, TARGETS, union
from combee.core.playbook.sections import id_in, number_of, same_section, section_order
from combee.core.playbook.trust import (
    NOTHING,
    PROPOSED,
    REWORDING,
    Ids,
    Screen,
    Screened,
    activated,
    added,
    last_sources,
    said_digest,
    strengthens,
)
from combee.core.text.similarity.lessons import Index, index_of, is_padded, same_lesson
from combee_schemas.base import Holds
from combee_schemas.playbook import (
    ACE_SECTIONS,
    Change,
    ChangeKind,
    Entry,
    EntryState,
    Playbook,
)
from combee_schemas.scan import Conflict, Echo, Known, NodeResult, Operation, OperationKind, Seen

How = Literal["change", "repeat", "claim", "echo"]
"""Origin of an entry's reflections: a change of the entry, a repeat recognised by code, a claim, or an echo, which is
no evidence."""
NO_BUDGET = 10**9
"""A budget that no playbook reaches: evicted entries are removed by the version's recorded changes instead."""
NOT_APPLIED = frozenset({"dropped", "superseded"})
"""Kinds of changes that record an operation without applying it."""
NO_IDS: Mapping[str, str] = MappingProxyType({})
NO_NAMES: Mapping[str, str] = MappingProxyType({})
UNGIVEN = "\0"
"""Begins the ids that a recomputation gives anew, until a version has them.

No text that is read keeps this character, so nothing that was recorded earlier names such an id."""
NAMED = 3
"""Maximum names of those who say something, in a change."""
MOST_IN_CONFLICT = 3
"""More entries that differ only in figures are a list (item 1, item 2 …), not a dispute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """The reflections that count in a version, by origin."""

    changed: frozenset[str]
    """A change of the version rests on them."""
    known: frozenset[str]
    """They repeat an existing entry, are known by a claim, or are echoes."""


@dataclass(slots=True)
class Landing:
    """Final places of applied operations' evidence: entry id → reflections, and their origin."""

    _on: dict[str, set[tuple[str, How]]] = field(default_factory=dict)
    _removals: set[str] = field(default_factory=set)

    def claim(self, entry_id: str, evidence: Iterable[str], *, how: How = "claim") -> None:
        """Note reflections that an entry already contains."""
        self._put(entry_id, evidence, how)

    def take(self, changes: Iterable[Change], evidence: Iterable[str]) -> None:
        """Note the effects of one operation: none, or changes based on its evidence."""
        effects = [change for change in changes if change.kind not in NOT_APPLIED]
        how: How = "repeat" if all(change.kind == "duplicate" for change in effects) else "change"
        evidence = tuple(evidence)
        moved: set[tuple[str, How]] = set()
        for change in effects:
            if change.kind in {"merge", "remove"}:
                sources_moved = self._on.pop(change.entry_id, set())
                moved |= sources_moved if change.kind == "merge" else set()
        for change in effects:
            if change.kind == "remove":
                self._removals.update(evidence)
            elif change.kind != "merge":
                self._put(change.entry_id, evidence, how)
                self._on[change.entry_id] |= moved

    def _put(self, entry_id: str, evidence: Iterable[str], how: How) -> None:
        self._on.setdefault(entry_id, set()).update((reflection_id, how) for reflection_id in evidence)

    def evict(self, entry_id: str) -> frozenset[str]:
        """Note an entry that is gone, and return the reflections that ended there."""
        return frozenset(reflection_id for reflection_id, _ in self._on.pop(entry_id, ()))

    def by_entry(self) -> dict[str, tuple[str, ...]]:
        """Return the reflections that support each entry, in order of their ids; an echo is no support."""
        return {
            entry_id: tuple(sorted({reflection_id for reflection_id, how in landed if how != "echo"}))
            for entry_id, landed in self._on.items()
        }

    def landed(self, reworded: Collection[str]) -> Landed:
        """Return the reflections that the version now rests on; ``reworded`` entries are new or have a new content.

        A removal is an effect as well. A repeat of an old content is known, of a new one it is new.
        """
        changed, known = set(self._removals), set[str]()
        for entry_id, reflections in self._on.items():
            for reflection_id, how in reflections:
                is_new = how == "change" or (how == "repeat" and entry_id in reworded)
                (changed if is_new else known).add(reflection_id)
        return Landed(changed=frozenset(changed), known=frozenset(known))


@dataclass(slots=True)
class Draft:
    """The next version while operations are applied to it."""

    version: int
    entries: dict[str, Entry]
    next_id: int
    sections: dict[str, None]
    """The playbook's own come first."""
    _index: Index
    changes: list[Change] = field(default_factory=list)
    landing: Landing = field(default_factory=Landing)
    _reworded: dict[str, None] = field(default_factory=dict)
    """Entries whose content is new in this version."""
    _noted: set[frozenset[str]] = field(default_factory=set)
    """Pairs of entries whose conflict is recorded."""
    born: EntryState = "active"
    """The state of entries that are added."""
    replaces: Ids = field(default_factory=lambda: NOTHING)
    """By content of an addition: the entries whose place it takes once enough supports it."""
    rivals: Ids = field(default_factory=lambda: NOTHING)
    """By content of an addition: the entries next to which it is shown then."""
    by_hand: bool = False
    """Whether a person applies the operations."""
    leaving: set[str] = field(default_factory=set)
    """Entries that an operation still to come removes or gives other words: who repeats one says nothing of these,
    and does not go with it."""
    unsure: frozenset[str] = frozenset()
    """Reflections that are evidence, but no support."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Of a recomputation: under which ids entries are added, by their content."""
    prefix: str = ""
    """Of new ids."""
    unheard: set[str] = field(default_factory=set)
    """Reflections that say what an entry said when their batch read it, and that none says any more."""
    _out: dict[str, frozenset[str]] = field(default_factory=dict)
    """The reflections that ended at entries that have no room, or that nobody supports any more."""
    placed: dict[str, str] = field(default_factory=dict)
    """The entries that say what was added, by its content: new ones, and those that said it already."""

    @classmethod
    def of(cls, base: Playbook) -> "Draft":
        """Begin the version after ``base``."""
        named = (*base.sections, *(entry.section for entry in base.entries), *ACE_SECTIONS)
        entries = {entry.id: entry for entry in base.entries}
        return cls(base.version + 1, entries, base.next_id, dict.fromkeys(named), index_of(base).copy())

    def place(self, section: str, content: str) -> tuple[str, str]:
        """Return the section, one that is there, as it is spelt, or a new one, and the id of a new entry."""
        section = same_section(section or ACE_SECTIONS[-1], self.sections)
        self.sections[section] = None
        return section, self.new_id(section, content)

    def new_id(self, section: str, content: str) -> str:
        """Return the id of a new entry in a section: the one that it had when recorded, or the next free one."""
        known = self.ids.get(content)
        free = f"{self.prefix}{id_in(section, self.next_id)}"
        return known if known is not None and known not in self.entries else free

    def linked(self, entry: Entry) -> Entry:
        """Return an entry that waits, with the links of its content to other entries."""
        replaces, rivals = (
            [other for other in links.get(entry.content, ()) if other != entry.id]
            for links in (self.replaces, self.rivals)
        )
        if not (replaces or rivals):
            return entry
        update = {"replaces": union(entry.replaces, replaces), "rivals": union(entry.rivals, rivals)}
        return entry.model_copy(update=update)

    def put(self, entry: Entry) -> None:
        """Add or replace an entry."""
        known = self.entries.get(entry.id)
        self.entries[entry.id] = entry
        if known is None or known.content != entry.content:
            self._index.put(entry.id, entry.content)
            self._reworded[entry.id] = None

    def drop(self, entry_id: str) -> Entry | None:
        """Take an entry out and return it."""
        self._index.drop(entry_id)
        self._reworded.pop(entry_id, None)
        return self.entries.pop(entry_id, None)

    def saying(self, content: str, *, but: str = "") -> Entry | None:
        """Return the entry that says ``content`` already and goes on saying it, one other than ``but``."""
        gone = {but, *self.leaving}
        same = (entry_id for entry_id in self._index.saying(content) if entry_id not in gone)
        return next(map(self.entries.__getitem__, same), None)

    def note(self, kind: ChangeKind, entry_id: str, detail: str = "") -> None:
        """Record one change."""
        self.changes.append(Change(kind=kind, entry_id=entry_id, detail=detail[:MAX_DETAIL_CHARS]))

    def supported(self) -> dict[str, tuple[str, ...]]:
        """Return the reflections that support each entry."""
        return {
            entry_id: tuple(one for one in ids if one not in self.unsure)
            for entry_id, ids in self.landing.by_entry().items()
        }

    def kept_back(self) -> dict[str, tuple[str, ...]]:
        """Return by entry that waits, or is out, the reflections of which only a model says that it says them."""
        waiting = {
            entry_id: ids
            for entry_id, ids in self.landing.by_entry().items()
            if (entry := self.entries.get(entry_id)) and not entry.is_active
        }
        return {
            entry_id: tuple(sorted(self.unsure.intersection(ids)))
            for entry_id, ids in (*waiting.items(), *self._out.items())
        }

    def evict(self, entry_id: str) -> None:
        """Take out an entry that has no room, or that nobody supports any more."""
        self._out[entry_id] = self.landing.evict(entry_id)
        self.drop(entry_id)

    def settle(self, entries: Iterable[Entry], changes: Iterable[Change] = ()) -> None:
        """Take over what was decided about entries: those that changed, and what happened to them."""
        for entry in entries:
            self.put(entry)
        for change in changes:
            self.note(change.kind, change.entry_id, change.detail)
            if change.kind == "expire":
                self.evict(change.entry_id)
            elif change.kind == "remove":
                self.landing.evict(change.entry_id)
                self.drop(change.entry_id)

    def landed(self) -> Landed:
        """Return which reflections count in this version."""
        return self.landing.landed(self._reworded)

    def note_conflicts(self) -> None:
        """Record which new contents differ from others only in figures or in a negation; all stay."""
        noted: set[str] = set()
        for entry_id in self._reworded:
            noted.add(entry_id)
            rivals = list(islice(self._index.at_odds_with(entry_id), MOST_IN_CONFLICT + 1))
            new_rivals = [
                rival
                for rival in rivals
                if rival not in noted and frozenset({entry_id, rival}) not in self._noted
            ]
            if new_rivals and len(rivals) <= MOST_IN_CONFLICT:
                content = self.entries[new_rivals[0]].content
                self.note(
                    "conflict", entry_id, f"in figures or a negation, with {', '.join(new_rivals)}: {content}"
                )

    def note_refused(self, conflict: Conflict, evidence: Sequence[str], names: Mapping[str, str]) -> None:
        """Record what a rewrite would have lost, or what contradicts an entry, and who says what; it is as it was.

        It is a conflict if a reflection or another entry says what the rewrite does.
        """
        entry = self.entries.get(conflict.entry_id) or self.saying(conflict.against)
        if entry is None:
            return
        rival = self.saying(conflict.content, but=entry.id)
        own = _said_by(entry.evidence, names, entry.sources)
        others = " ".join(part for part in (rival.id if rival else "", _said_by(evidence, names)) if part)
        detail = f"{conflict.why}{own and f' {own}'}; {others}{others and ': '}{conflict.content}"
        self.note("conflict" if others else "dropped", entry.id, detail)
        if rival is not None:
            self._noted.add(frozenset({entry.id, rival.id}))


def _said_by(evidence: Sequence[str], names: Mapping[str, str], sources: Sequence[str] = ()) -> str:
    """Return the sources of evidence, or else the reflections, in words; nothing for no evidence."""
    proven = sources if any(name != UNPROVEN for name in sources) else ()
    named = proven or union(name for one in evidence if (name := names.get(one, UNPROVEN)) != UNPROVEN)
    by = named or tuple(evidence)
    more = f" and {len(by) - NAMED} more" if len(by) > NAMED else ""
    of_ids = "" if named else "reflections " if len(by) > 1 else "reflection "  # an id is no source's name
    return f"(said by {of_ids}{', '.join(map(name_text, by[:NAMED]))}{more})" if by else ""


# ---- a batch


def draft_of(
    base: Playbook,
    result: NodeResult,
    screen: Screen,
    admitted: Screened,
    *,
    holds: Holds,
    gone: Sequence[str],
    **given: Any,
) -> Draft:
    """Return the draft after ``base`` with what a screen admits of a result; ``given``: as for `apply_operations`."""
    draft = apply_operations(
        base,
        admitted.passed,
        admitted.seen,
        holds=holds,
        revoked=gone,
        echoes=result.echoes,
        known=result.known,
        conflicts=result.conflicts if holds == "entries" else (),
        born=admitted.born,
        replaces=admitted.replaces,
        rivals=admitted.rivals,
        names=screen.names,
        unsure=screen.unsure,
        **given,
    )
    for refusal in admitted.refused:
        text = f"{refusal.operation.kind}: {refusal.why}: {refusal.operation.content}"
        draft.note("dropped", next(iter(refusal.operation.entry_ids), ""), text)
    return draft


def apply_operations(
    base: Playbook,
    operations: Iterable[Operation],
    seen: Iterable[Seen],
    *,
    holds: Holds = "entries",
    budget_tokens: int = NO_BUDGET,
    revoked: Sequence[str] = (),
    echoes: Iterable[Echo] = (),
    known: Iterable[Known] = (),
    conflicts: Iterable[Conflict] = (),
    born: EntryState = "active",
    replaces: Ids = NOTHING,
    rivals: Ids = NOTHING,
    ids: Mapping[str, str] = NO_IDS,
    by_hand: bool = False,
    names: Mapping[str, str] = NO_NAMES,
    unsure: frozenset[str] = frozenset(),
    free_from: int = 0,
) -> Draft:
    """Return a draft after ``base`` in which tags are counted, and to which is applied what can be applied.

    What is ``known`` strengthens its entries first. Evidence from ``revoked`` never counts. Of several operations on
    one entry one wins (`contest`). ``names`` are the sources of reflections. ``free_from``: of a recomputation, the
    first id that was free when the batch was recorded.
    """
    draft = Draft.of(base)
    draft.born = born
    draft.replaces, draft.rivals = replaces, rivals
    draft.ids = ids
    draft.prefix = UNGIVEN if free_from else ""
    draft.by_hand = by_hand
    draft.unsure = unsure
    revoked_ids = frozenset(revoked)
    seen = [reflection for reflection in seen if reflection.reflection_id not in revoked_ids]
    fresh = (reflection for reflection in seen if reflection.offset > base.counted_offset)
    _count(draft, (reflection for reflection in fresh if reflection.ok), names)
    _note_echoes(draft, echoes, revoked_ids)
    _strengthen_known(draft, known, revoked_ids)
    usable = list(_sound(draft, operations, revoked_ids))
    offsets = {reflection.reflection_id: reflection.offset for reflection in seen}
    # An id that the batch itself gives can be foreseen: whoever names it contends for it as for any other.
    foreseen = {
        entry_id
        for operation in usable
        for entry_id in operation.entry_ids
        if number_of(entry_id) >= (free_from or base.next_id)
    }
    repeats = {
        n
        for n, operation in enumerate(usable)
        if holds == "entries" and strengthens(operation, draft.entries)
    }
    live = {*draft.entries, *ids.values(), *foreseen}
    winners, losers = contest(usable, live, offsets, names, repeats, unsure)
    for loser in losers:
        text = f"{loser.operation.kind}: {loser.operation.content}"
        draft.note("duplicate" if loser.is_repeat else "superseded", loser.entry_id, text)
        # In a lab, where a curator may do as it likes, nothing is kept.
        if loser.is_other_lesson and born == PROPOSED and holds == "entries":
            winners.append(added(loser.operation, draft.entries))
    # In a lab, where a curator may do as it likes, what repeats an entry goes with it.
    draft.leaving = {
        entry_id
        for operation in winners
        for entry_id in operation.entry_ids
        if (by_hand or born == PROPOSED)
        and (entry := draft.entries.get(entry_id))
        and not same_lesson(entry.content, operation.content)
    }
    for operation in winners:
        draft.leaving.difference_update(operation.entry_ids)
        done = len(draft.changes)
        if holds == "components":
            _apply_to_component(draft, operation, budget_tokens)
        else:
            _apply_to_entries(draft, operation)
        draft.landing.take(draft.changes[done:], operation.evidence)
    for conflict in conflicts:
        left = tuple(one for one in conflict.evidence if one not in revoked_ids)
        if left or not conflict.evidence:
            draft.note_refused(conflict, left, names)
    return draft


def finish(
    base: Playbook,
    draft: Draft,
    budget_tokens: int,
    parts: Parts = UNBOUNDED,
    holds: Holds = "entries",
) -> tuple[tuple[str, ...], tuple[Entry, ...]]:
    """Return sections and entries after the token budget: the least useful entries go, and it is recorded.

    The sections are the playbook's own, which ACE or a person gave it; those of other entries follow wherever the
    entries are shown. A section of components exists while it has a text.
    """
    if holds == "components":
        components = tuple(draft.entries.values())
        return section_order((), components), components
    # The header of an entry that a person added stays without it; the header that a batch began leaves with it.
    known = {entry.id for entry in base.entries}
    begun = (entry for entry in draft.entries.values() if draft.by_hand and entry.id not in known)
    sections = section_order(base.sections, begun)
    for entry_id in evictions(tuple(draft.entries.values()), budget_tokens, base.entries, sections, parts):
        draft.note("evict", entry_id, draft.entries[entry_id].content)
        draft.evict(entry_id)
    draft.note_conflicts()
    return sections, tuple(draft.entries.values())


def _sound(draft: Draft, operations: Iterable[Operation], revoked_ids: frozenset[str]) -> Iterator[Operation]:
    """Yield the operations that can be applied, without revoked evidence.

    A batch may have read what was revoked meanwhile: words that only a model takes for what others say go with it.
    """
    for operation in operations:
        evidence = tuple(
            reflection_id for reflection_id in operation.evidence if reflection_id not in revoked_ids
        )
        if operation.evidence and not evidence:
            draft.note("dropped", "", f"{operation.kind}: none of its evidence counts")
        elif operation.content and evidence != operation.evidence and draft.unsure.issuperset(evidence):
            draft.note("dropped", "", f"{operation.kind}: it is revoked; others are asked about again")
            draft.unheard.update(evidence)
        elif len(operation.entry_ids) < TARGETS[operation.kind]:
            draft.note("dropped", "", f"{operation.kind}: it names too few entries")
        else:
            yield operation.model_copy(update={"evidence": evidence})


def _note_echoes(draft: Draft, echoes: Iterable[Echo], revoked_ids: frozenset[str]) -> None:
    for entry_id, evidence in _by_entry(echoes, revoked_ids):
        draft.note("echo", entry_id, f"said again by {len(evidence)} reflections that were shown it")
        if entry_id in draft.entries:
            draft.landing.claim(entry_id, evidence, how="echo")


def _strengthen_known(draft: Draft, known: Iterable[Known], revoked_ids: frozenset[str]) -> None:
    """Let entries rest on reflections that say the same; their texts stay."""
    said, other = list[Known](), list[Known]()
    for claim in known:
        entry = draft.entries.get(claim.entry_id)
        # The batch may have read an older version, in which the entry said something else.
        is_said = entry is not None and claim.said in {"", said_digest(entry.content)}
        (said if is_said else other).append(claim)
    for entry_id, evidence in _by_entry(said, revoked_ids):
        draft.put(rest_on(draft.entries[entry_id], evidence, draft.version))
        draft.note("duplicate", entry_id, f"{len(evidence)} more reflections say so, by the model's word")
        draft.landing.claim(entry_id, evidence)
    for entry_id, evidence in _by_entry(other, revoked_ids):
        draft.note("dropped", entry_id, f"{len(evidence)} reflections say the same: no such entry any more")
        draft.unheard.update(evidence)


def _by_entry(
    claims: Iterable[Echo | Known], revoked_ids: frozenset[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each entry with the reflections that say it, without those that are ``revoked_ids``."""
    by_entry: dict[str, tuple[str, ...]] = {}
    for claim in claims:
        evidence = (reflection_id for reflection_id in claim.evidence if reflection_id not in revoked_ids)
        by_entry[claim.entry_id] = union(by_entry.get(claim.entry_id, ()), evidence)
    return ((entry_id, evidence) for entry_id, evidence in by_entry.items() if evidence)


def _count(draft: Draft, seen: Iterable[Seen], names: Mapping[str, str]) -> None:
    """Count each reflection's last tag of an entry, if the version that it says was shown had that entry."""
    for reflection in seen:
        for tag in {tag.id: tag for tag in reflection.tags}.values():
            entry = draft.entries.get(tag.id)
            shown_version = reflection.shown_version or 0
            if (
                entry is not None
                and tag.tag != "neutral"
                and max(1, entry.created_version) <= shown_version < draft.version
            ):
                name = names.get(reflection.reflection_id, UNPROVEN)
                said, unsaid = ("harmed", "helped") if tag.tag == "harmful" else ("helped", "harmed")
                draft.entries[tag.id] = entry.model_copy(
                    update={
                        tag.tag: getattr(entry, tag.tag) + 1,
                        said: last_sources(getattr(entry, said), [name]),
                        unsaid: tuple(other for other in getattr(entry, unsaid) if other != name),
                    }
                )


# ---- operations that contend for an entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Loser:
    """An operation that is not applied, and its entry."""

    operation: Operation
    entry_id: str
    is_repeat: bool
    """Whether the winner has the same effect, and rests on this operation's evidence as well."""
    is_other_lesson: bool
    """Whether it says something that the winner does not: it is added."""


def contest(
    operations: Sequence[Operation],
    live: Container[str],
    offsets: Mapping[str, int],
    names: Mapping[str, str] = NO_NAMES,
    repeats: Container[int] = (),
    unsure: Container[str] = (),
) -> tuple[list[Operation], list[Loser]]:
    """Return the operations to apply in order, at most one for each ``live`` entry; and the losers.

    The operation with most sources wins: one source's last word does not undo what several agree on. Then one that
    changes its entry, so that who only repeats an entry keeps no correction out (``repeats``: the places of those
    operations), then the one with the newest evidence. ``offsets`` are those of the reflections, and ``names`` those
    of their sources; reflections without a name count as one source, but not next to named ones, and ``unsure`` ones
    not for words. Between equals the later operation wins. Operations without evidence are people's, and all apply.
    """
    kept = dict(enumerate(operations))
    losers: list[Loser] = []
    holder: dict[str, int] = {}

    def weight(n: int) -> tuple[int, bool, int, int]:
        operation = operations[n]
        evidence = [one for one in operation.evidence if operation.kind not in REWORDING or one not in unsure]
        sources = counting({names.get(reflection_id, UNPROVEN) for reflection_id in evidence})
        newest = max((offsets.get(reflection_id, -1) for reflection_id in evidence), default=-1)
        return len(sources), n not in repeats, newest, n

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
        is_other = loser.kind in REWORDING and not is_repeat
        losers.append(
            Loser(operation=loser, entry_id=contested, is_repeat=is_repeat, is_other_lesson=is_other)
        )
        if is_repeat:
            both = union(loser.evidence, winner.evidence)
            kept[holder[contested]] = winner.model_copy(update={"evidence": both})
    return list(kept.values()), losers


def _agree(operation: Operation, rival: Operation) -> bool:
    if operation.kind != rival.kind or set(operation.entry_ids) != set(rival.entry_ids):
        return False
    return operation.kind == OperationKind.REMOVE or same_lesson(operation.content, rival.content)


# ---- operations on entries


def _apply_to_entries(draft: Draft, operation: Operation) -> None:
    """Apply an operation to a draft; one on entries that vanished is dropped, and recorded."""
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
        _strengthen(draft, same if same.is_active else draft.linked(same), operation)
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
    entry = entry if entry.is_active else draft.linked(entry)
    draft.put(rest_on(entry, operation.evidence, draft.version))
    draft.note("add", entry_id)


def _strengthen(draft: Draft, entry: Entry, operation: Operation) -> None:
    """Let an entry rest on an operation that says the same.

    Its own words stay, unless a person says it now, or the operation says it without padding.
    """
    words = f": {operation.content}" if operation.content != entry.content else ""
    is_briefer = not entry.by_hand and is_padded(entry.content, operation.content)
    content = operation.content if (draft.by_hand and words) or is_briefer else entry.content
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
        _reword(draft, _for(operation, entry, is_replaced=draft.by_hand), operation)


def _merge(draft: Draft, operation: Operation) -> None:
    there = [draft.entries[entry_id] for entry_id in union(operation.entry_ids) if entry_id in draft.entries]
    is_replaced = draft.by_hand or any(same_lesson(entry.content, operation.content) for entry in there)
    named = [_for(operation, entry, is_replaced=is_replaced) for entry in there]
    if not named:
        draft.note("dropped", operation.entry_ids[0], "MERGE: no such entries any more")
        return
    says = {entry.id: same_lesson(entry.content, operation.content) for entry in named}
    # Who says an entry's words says nothing of another's header. A person's words stay where two say the same.
    kept, *twins = sorted(named, key=lambda entry: (not says[entry.id], not entry.by_hand))
    for twin in twins:
        draft.drop(twin.id)
        draft.note("merge", twin.id, f"into {kept.id}: {twin.content}")
    become = _strengthen if operation.evidence and says[kept.id] else _reword
    become(draft, united(kept, twins), operation)


def _for(operation: Operation, entry: Entry, *, is_replaced: bool) -> Entry:
    """Return an entry with the support and the sources that count for what an operation says.

    Both are for the entry's own words, and so is whom these helped or harmed. Words that rest on nothing are those of
    a consolidation, or a person's: they stand for the words of active entries. ``is_replaced``: a person, or an entry
    that said them already, says them instead of its words.
    """
    stands = entry.is_active and not operation.evidence
    if same_lesson(entry.content, operation.content) or (stands and not is_replaced):
        return entry
    update: dict[str, object] = {"helped": (), "harmed": ()}
    update |= {} if stands else {"sources": (), "recognised": ()}
    update |= {} if entry.is_active else {"support": ()}
    return entry.model_copy(update=update)


def _reword(draft: Draft, entry: Entry, operation: Operation) -> None:
    """Give an entry its new content; if another one says that already, the two become that one."""
    twin = draft.saying(operation.content, but=entry.id)
    if twin is None:
        by_hand = draft.by_hand or (entry.by_hand and entry.content == operation.content)
        update: dict[str, object] = {"content": operation.content, "by_hand": by_hand}
        if not same_lesson(entry.content, operation.content):
            update["created_version"] = draft.version
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


def united(kept: Entry, twins: Iterable[Entry]) -> Entry:
    """Return ``kept`` with the counters and the evidence of others; evidence both have counts once.

    It is active if one of them is: agents are shown already what it says.
    """
    for twin in twins:
        shared = len(set(kept.evidence) & set(twin.evidence))
        kept = kept.model_copy(
            update={
                "helpful": kept.helpful + twin.helpful,
                "harmful": kept.harmful + twin.harmful,
                "evidence_count": kept.evidence_count + twin.evidence_count - shared,
                "evidence": union(kept.evidence, twin.evidence),
                "sources": last_sources(twin.sources, kept.sources),
                "recognised": last_sources(twin.recognised, kept.recognised),
                "harmed": last_sources(twin.harmed, kept.harmed),
                "helped": last_sources(twin.helped, kept.helped),
                "support": union(kept.support, twin.support),
            }
        )
        kept = activated(kept) if twin.is_active else kept
    return activated(kept) if kept.is_active else kept


# ---- operations on components


def _apply_to_component(draft: Draft, operation: Operation, budget_tokens: int) -> None:
    match operation.kind:
        case OperationKind.REMOVE if draft.drop(operation.entry_ids[0]):
            draft.note("remove", operation.entry_ids[0])
        case OperationKind.ADD:
            there = (entry for entry in draft.entries.values() if entry.section == operation.section)
            component = next(there, None) or _new_component(draft, operation.section, operation.content)
            draft.placed.setdefault(operation.content, component.id)
            _write_component(draft, component, operation, budget_tokens)
        case OperationKind.UPDATE if entry := draft.entries.get(operation.entry_ids[0]):
            _write_component(draft, entry, operation, budget_tokens)
        case _:
            draft.note("dropped", operation.entry_ids[0], f"{operation.kind}: not for components as they are")


def _new_component(draft: Draft, section: str, content: str) -> Entry:
    return Entry(
        id=draft.new_id(section, content), section=section, content="", created_version=draft.version
    )


def _write_component(draft: Draft, entry: Entry, operation: Operation, budget_tokens: int) -> None:
    """Replace a component's text, unless the playbook would exceed its budget: no part of a text can be removed."""
    written = rest_on(
        entry.model_copy(update={"content": operation.content}), operation.evidence, draft.version
    )
    others = [other for other in draft.entries.values() if other.id != entry.id]
    taken = sum(map(entry_tokens, others))
    if entry_tokens(written) > max(budget_tokens - taken, entry_tokens(entry)):
        size = f"{entry_tokens(written)} tokens in addition to {taken} exceed the budget of {budget_tokens}"
        draft.note("dropped", entry.id, f"{operation.kind}: {size}")
        return
    if (size_bytes := stored_bytes([*others, written])) > ENTRIES_BYTES:
        size = f"{size_bytes} bytes exceed the {ENTRIES_BYTES} of a version's record"
        draft.note("dropped", entry.id, f"{operation.kind}: {size}")
        return
    is_new = entry.id not in draft.entries
    draft.next_id += is_new
    draft.put(written)
    if is_new:
        draft.note("add", entry.id)
    elif entry.content == operation.content:
        draft.note("duplicate", entry.id, f"{len(operation.evidence)} more reflections leave it as it is")
    else:
        draft.note("update", entry.id, entry.content)
