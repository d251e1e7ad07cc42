"""What a playbook would say without some reflections: its recorded operations, applied again without a model; pure.

``Recomputation`` follows a playbook's versions from its first one, and applies each batch without its revoked
reflections to the entries that are left so far, by the rules by which it was applied (``versions.applied``). So an
entry keeps the words it had before, what was merged, removed or evicted comes back, and what lacks support now waits.
An entry that comes out as it did with the revoked reflections is taken as it was recorded.

What an operation adds or rewrites stays if another reflection says all of it word for word. Some cases cannot be
known without a model (``Mixed``): the words of another operation that rests on revoked *and* on other reflections,
and those of an entry that is gone, which others say by a check call's word alone. They are dropped, and a model is
asked about the other reflections again, unless they have expired. So it is about what a check call found in an entry
that agents were shown and that waits now.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal

from combee.core.playbook.budget import UNBOUNDED, budget_of, evictions
from combee.core.playbook.draft import NO_BUDGET, UNGIVEN
from combee.core.playbook.lineage import evidence
from combee.core.playbook.lineage.branching import learns
from combee.core.playbook.lineage.evidence import Place, here, ids_here
from combee.core.playbook.lineage.rejecting import allowed, is_revoked
from combee.core.playbook.operations import MAX_DETAIL_CHARS, union
from combee.core.playbook.results.coverage import CONTRADICTS
from combee.core.playbook.sections import id_in
from combee.core.playbook.trust import (
    activated,
    added,
    barred,
    barred_sources,
    is_related,
    parts,
    rules_of,
    said_digest,
    without_claims,
)
from combee.core.playbook.versions import applied, holds_after
from combee.core.text.similarity.lessons import same_lesson
from combee_schemas.plan import PlanSettings
from combee_schemas.playbook import Asked, Change, ChangeKind, Entry, Playbook
from combee_schemas.scan import Echo, Known, Operation, OperationKind, Update

ALONE = "it is not there without what is revoked"
UNSEEN = "proposed again, the batch that let agents see it is revoked"
WHOLLY_NEW = frozenset({"import", "delete"})
"""Nothing of the version before is left, unless it says so."""
TAKEN_BACK = frozenset({"revoke", "rollback", "adopt"})
"""Nobody wrote anything: what is left follows from the version that they began with."""
WORDED = frozenset({"words", "carried"})
"""How a reflection covers what it says in the same words: no model's word is needed for that."""
DEFAULTS = PlanSettings()
Fate = Literal["again", "stays", "dropped"]
"""Of a mixed operation. again: it is dropped, and its other reflections are asked about again; dropped: these have
expired, or its branch learns no more; stays: no reflection of its own is revoked, but what it says comes from revoked
ones, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """An operation that rests on revoked and on other reflections: only a model can tell what is left of it."""

    line: str
    sequence: int
    """Of its batch, on that line."""
    kind: str
    entry_ids: tuple[str, ...]
    revoked: tuple[str, ...]
    fate: Fate
    again: tuple[Asked, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """A version without what is revoked."""

    entries: tuple[Entry, ...]
    """With all of their evidence."""
    next_id: int
    changes: tuple[Change, ...]
    """Compared with the version as it was recorded."""
    mixed: tuple[Mixed, ...]
    reads: tuple[int, ...]
    """The batches whose calls were shown an entry that is gone or says something else now."""
    again: tuple[Asked, ...] = ()
    """What is to be asked about again."""
    settings: PlanSettings = DEFAULTS
    """Of the last batch."""


@dataclass(slots=True)
class Recomputation:
    """A playbook as recorded, and the same without what is revoked, version by version."""

    recorded: Playbook
    """The last version followed, with all of its evidence."""
    barred: Playbook
    """What is revoked, and by which rules."""
    retained_from: int = 0
    """Reflections before this offset have expired."""
    asked: frozenset[Asked] = frozenset()
    """What was asked about again, or is going to be: what mixed operations made of it is dropped."""
    next_id: int = 1
    """Ids from here on are free in every recorded version."""
    pending: dict[Asked, None] = field(default_factory=dict)
    """Of ``asked``, what no batch has asked about again so far."""
    entries: dict[str, Entry] = field(default_factory=dict)
    _mixed: list[Mixed] = field(default_factory=list)
    _reads: list[Place] = field(default_factory=list)
    """Lines and batches."""
    _settings: PlanSettings = DEFAULTS
    _manifests: set[int] = field(default_factory=set)
    _united: dict[str, set[str]] = field(default_factory=dict)
    """What revoked consolidations said, and what their entries said before; digests."""
    _not_removed: set[str] = field(default_factory=set)
    """Entries whose words went into those of others, or had no room: nobody took them away."""
    _own: dict[str, str] = field(default_factory=dict)
    """By the ids that entries have meanwhile, which others had: their own."""
    _other: dict[Place, frozenset[str]] = field(default_factory=dict)
    """By version: its entries that are gone or say something else without what is revoked."""
    _last: dict[tuple[str, str], Entry | None] = field(default_factory=dict)
    """By id and words of a recorded entry: what it was last without what is revoked."""

    def __post_init__(self) -> None:
        """Begin with the first version."""
        self.entries = dict(self._cleaned(self.recorded))
        self._compare()

    def follow(self, version: Playbook, update: Update | None) -> None:
        """Go on to the next version; ``update`` made it, if a batch did and it is known."""
        before = self.recorded
        if evidence.began_with(version)[0] != version.name:
            before = before.model_copy(update={"entries": here(before.entries, version)})
            self._go_over(version)
        self._not_removed |= {
            change.entry_id for change in version.changes if change.kind in {"merge", "evict"}
        }
        complete = evidence.followed(before, version, update)
        gone = frozenset(version.revoked)
        complete = complete.model_copy(
            update={"entries": tuple(evidence.without(entry, gone) for entry in complete.entries)}
        )
        out = version.batch is not None and is_revoked(version.batch.plan, self.barred)
        if update is not None:
            self._note(update, complete)
        if out:
            self._united |= _parts_of(update, before) if update else {}
        elif update is None or evidence.is_fork(version):
            # A fork takes entries over: nothing that waits is looked at anew.
            self.entries = self._after_people(before, complete)
        else:
            mine = before.model_copy(update={"entries": tuple(self.entries.values())})
            before, mine = (without_claims(each, update.plan.settings.trust) for each in (before, mine))
            self.entries = {entry.id: entry for entry in mine.entries}
            self.entries = self._after_batch(before, complete, update)
            plan = update.plan
            # Whole texts that rest on what is revoked are asked about again.
            if plan.settings.holds == "entries" and self._other.get((plan.playbook, plan.base_version)):
                self._reads.append((plan.playbook, plan.sequence))
        self.recorded = complete
        self._align(complete)
        self._compare()

    def _go_over(self, version: Playbook) -> None:
        """Go on to the line that forked or adopted what was followed so far."""
        self.entries = {entry.id: entry for entry in here(self.entries.values(), version)}
        self._rename(ids_here(version))
        if version.adopted is not None:
            self._own.clear()  # of the other line

    def _rename(self, ids: Mapping[str, str]) -> None:
        self._mixed = [
            replace(mixed, entry_ids=tuple(ids.get(entry_id, entry_id) for entry_id in mixed.entry_ids))
            for mixed in self._mixed
        ]

    def _note(self, update: Update, made: Playbook) -> None:
        """Note a batch: what it asked about again, and what it left to be asked about again itself."""
        self._settings = update.plan.settings
        self._manifests.add(update.manifest_offset)
        # After an adoption an ordinary batch, too, may hold what the branch had read.
        seen = {reflection.offset for reflection in update.result.seen}
        self.pending = {asked: None for asked in self.pending if asked.offset not in seen}
        gone = frozenset(barred(self.barred, update))
        lost = {one.offset for one in update.result.seen if one.reflection_id in gone}
        own = (asked for asked in made.again if asked.manifest_offset == update.manifest_offset)
        self.pending |= {asked: None for asked in own if asked.offset not in lost}

    def _elsewhere(self) -> Iterator[Asked]:
        """Yield what was made before the first version that is known."""
        return (asked for asked in self.recorded.again if asked.manifest_offset not in self._manifests)

    def result(self, *, budget_tokens: int) -> Recomputed:
        """Return the last version without what is revoked, within the token budget if it says more than before."""
        self._take(self._given_back())
        known = {entry.id: entry for entry in self.recorded.entries}
        left = {
            _known(entry_id): entry.model_copy(update={"id": _known(entry_id)})
            for entry_id, entry in self.entries.items()
        }
        order = [*(entry_id for entry_id in known if entry_id in left)]
        order += [entry_id for entry_id in left if entry_id not in known]
        entries = tuple(left[entry_id] for entry_id in order)
        changes = [*_differences(known, left)]
        if any(change.kind != "remove" for change in changes):
            out = self._beyond(entries, self.recorded, self._settings.playbook_tokens or budget_tokens)
            changes += [
                Change(kind="evict", entry_id=entry.id, detail=entry.content[:MAX_DETAIL_CHARS])
                for entry in entries
                if entry.id in out
            ]
            entries = tuple(entry for entry in entries if entry.id not in out)
        # A whole text is gone at once where its reflections are asked about again.
        shown = known.keys() | self.entries.keys() | self._not_removed
        return Recomputed(
            entries=entries,
            next_id=max(self.next_id, self.recorded.next_id),
            changes=tuple(changes),
            mixed=tuple(
                replace(mixed, entry_ids=tuple(map(_known, mixed.entry_ids)))
                for mixed in self._mixed
                if mixed.fate == "dropped" or not shown.isdisjoint(mixed.entry_ids)
            ),
            reads=tuple(sequence for line, sequence in self._reads if line == self.recorded.name),
            again=(*self._elsewhere(), *self.pending) if learns(self.barred) else (),
            settings=self._settings,
        )

    def _compare(self) -> None:
        says = {entry_id: entry.content for entry_id, entry in self.entries.items()}
        recorded = {entry.id: entry.content for entry in self.recorded.entries}
        other = frozenset(entry_id for entry_id, content in recorded.items() if says.get(entry_id) != content)
        if other:
            self._other[evidence.place(self.recorded)] = other
        self._last |= {
            (entry_id, content): self.entries.get(entry_id) for entry_id, content in recorded.items()
        }

    def _cleaned(self, version: Playbook) -> Iterator[tuple[str, Entry]]:
        """Yield a version's entries without revoked evidence and sources, but those that rest on nothing else.

        What a person wrote or kept rests on the person; what somebody imported, on the evidence that it came with.
        """
        gone, sources = frozenset(self.barred.revoked), barred_sources(self.barred, version)
        alone = {
            entry.id
            for entry in evidence.resting_on(version.entries, gone)
            if version.origin == "import" or not (entry.by_hand or _is_edited(entry, version))
        }
        return (
            (entry.id, evidence.without(entry, gone, sources))
            for entry in version.entries
            if entry.id not in alone
        )

    def _after_people(self, before: Playbook, after: Playbook) -> dict[str, Entry]:
        """Return the entries after a version that no known update made: what it did not change stays as it is."""
        was = {entry.id: entry for entry in before.entries}
        if evidence.is_fork(after) or after.origin in TAKEN_BACK:
            known = {entry.id: entry for entry in after.entries}
            stay = (_as_old(entry, known.get(entry.id)) for entry in allowed(self.entries.values(), after))
            return self._within_budget(stay, before, after)
        now = dict(self._given_by_people(after))
        entries: dict[str, Entry] = {}
        for entry in after.entries:
            said = was.get(entry.id)
            same = said is not None and (
                said == entry if after.origin == "batch" else _says_the_same(said, entry)
            )
            mine = self.entries.get(entry.id)
            # A person who keeps an entry stands behind the words that it has then.
            is_kept = said is not None and entry.by_hand and not said.by_hand
            if same and mine is not None and (mine.content == entry.content or not is_kept):
                kept = {"by_hand": True, "updated_version": entry.updated_version}
                # What waits without revoked support is shown: a person stands behind it.
                mine = activated(mine.model_copy(update=kept)) if is_kept else mine
                entries[entry.id] = mine
            elif (is_kept or not same) and entry.id in now:
                entries[entry.id] = now[entry.id]
        if after.origin in WHOLLY_NEW:
            return entries
        there, out = {entry.id for entry in after.entries}, _out_of_room(after)
        back = [entry for entry_id, entry in self.entries.items() if entry_id not in there]
        # A person who took away another lesson has not taken away this one, but this one wherever it is said.
        taken = {said_digest(entry.content) for entry_id, entry in was.items() if entry_id not in out}
        # Nor has who changed, kept or took away several lessons at once left single ones of them.
        stays = {said_digest(entry.content) for entry in after.entries if not entry.by_hand}
        taken |= {part for said in taken - stays for part in self._united.get(said, ())}
        taken -= {said_digest(entry.content) for entry in after.entries}
        left = [entry for entry in entries.values() if said_digest(entry.content) not in taken]
        # What a person has moved, or united with another entry, is there once.
        taken |= {said_digest(entry.content) for entry in left}
        stay = (entry for entry in allowed(back, after) if said_digest(entry.content) not in taken)
        return self._within_budget((*left, *stay), before, after)

    def _given_by_people(self, version: Playbook) -> Iterator[tuple[str, Entry]]:
        """Yield the entries of a version as people gave them; nobody wrote the words that a rejection gives back."""
        cleaned = dict(self._cleaned(version))
        for entry in version.entries:
            words = entry.id, entry.content
            known = self._last if version.origin == "reject" else {}
            last = known.get(words, entry)
            is_same = last is not None and (last.content, last.state) == (entry.content, entry.state)
            # A whole text that a person wrote rests on the person, though nothing of it says so.
            given = cleaned.get(entry.id, known.get(words)) if is_same else last
            if given is not None:
                yield entry.id, given

    def _within_budget(self, left: Iterable[Entry], before: Playbook, after: Playbook) -> dict[str, Entry]:
        """Return entries without those that had no room, as recorded unless other entries took it."""
        entries, out, tokens = tuple(left), _out_of_room(after), self._settings.playbook_tokens
        is_other = self.entries != {entry.id: entry for entry in before.entries}
        if tokens and is_other and after.origin != "batch":
            out = self._beyond(entries, after, tokens) | _out_of_room(after, "expire")
        return {entry.id: entry for entry in entries if entry.id not in out}

    def _beyond(self, entries: Sequence[Entry], version: Playbook, tokens: int) -> frozenset[str]:
        """Return which entries have no room in a version; those who are revoked have no part of it."""
        if version.holds != "entries":
            return frozenset()
        weighs = rules_of(self._settings).weighs
        bounds = parts(self._as_barred(version)) if weighs else UNBOUNDED
        return frozenset(evictions(entries, budget_of(version, tokens), None, version.sections, bounds))

    def _as_barred(self, version: Playbook) -> Playbook:
        """Return a version as if the sources that are revoked had never taught."""
        sources = barred_sources(self.barred)
        taught_by = tuple(source for source in version.taught_by if source.name not in sources)
        return version.model_copy(update={"revocations": self.barred.revocations, "taught_by": taught_by})

    def _align(self, version: Playbook) -> None:
        """Give entries the ids under which a version says the same: what comes later names these.

        What says something else under such an id gets one that nothing names.
        """
        known = {entry.id: entry for entry in version.entries}
        other = {
            entry_id: entry
            for entry_id, entry in self.entries.items()
            if entry_id not in known or not same_lesson(known[entry_id].content, entry.content)
        }
        given: dict[tuple[str, str], list[str]] = defaultdict(list)  # two may say the same
        for entry in version.entries:
            if entry.id not in self.entries or entry.id in other:
                given[entry.section, said_digest(entry.content)].append(entry.id)
        ids = dict[str, str]()
        for entry_id, entry in other.items():
            if there := given[entry.section, said_digest(entry.content)]:
                ids[entry_id] = there.pop(0)
        free = frozenset(ids.values()).difference(self.entries)
        for entry_id, entry in other.items():
            if entry_id in ids.values() and entry_id not in ids:
                ids[entry_id] = f"{UNGIVEN}{id_in(entry.section, self.next_id)}"
                self.next_id += 1
        own = {ids.get(entry_id, entry_id): self._own.get(entry_id, entry_id) for entry_id in self.entries}
        self._own = {now: own_id for now, own_id in own.items() if now not in free | {own_id}}
        self._take(ids)
        self.entries |= {given: _as_old(self.entries[given], known.get(given)) for given in ids.values()}

    def _given_back(self) -> dict[str, str]:
        """Return by the ids that entries have meanwhile their own, as far as nothing else goes on having these."""
        entries = self.entries
        by_own = {own: now for now, own in reversed(self._own.items()) if now in entries}
        ids = {now: own for own, now in by_own.items()}
        while held := [now for now, own in ids.items() if own in entries and own not in ids]:
            for now in held:
                del ids[now]
        return ids

    def _take(self, ids: Mapping[str, str]) -> None:
        """Give entries other ids."""
        if ids:
            self._rename(ids)
            self.entries = {entry.id: entry for entry in _renamed(self.entries.values(), ids)}

    def _after_batch(self, before: Playbook, after: Playbook, update: Update) -> dict[str, Entry]:
        gone = frozenset(barred(self.barred, update))
        known = barred(before, update)
        result, news = update.result, gone.difference(known)
        named = chain(
            (seen.reflection_id for seen in result.seen),
            *(operation.evidence for operation in result.operations),
            *(claim.evidence for claim in result.known),
        )
        if news.isdisjoint(named) and self.entries == {entry.id: entry for entry in before.entries}:
            return {entry.id: entry for entry in after.entries}
        if _is_wholly(update, gone) and not _is_wholly(update, frozenset(known)):
            return self.entries
        recorded, _, foreseen = applied(before, update, budget_tokens=NO_BUDGET)
        prepared = _Prepared(self, before, update, gone, recorded.placed)
        base = self._as_barred(before).model_copy(
            update={"entries": tuple(prepared.entries.values()), "next_id": self.next_id}
        )
        draft, _, mine = applied(
            base,
            prepared.update,
            holds=holds_after(before, update.plan.settings.holds),
            gone=tuple(gone),
            budget_tokens=NO_BUDGET,
            ids={**prepared.ids, **recorded.placed},
            free_from=before.next_id,
        )
        self.next_id = max(self.next_id, draft.next_id)
        self._mixed += prepared.mixed({entry.content: entry.id for entry in mine})
        self._mixed += prepared.kept_back(draft.kept_back(), union(*recorded.kept_back().values()))
        self.pending |= dict.fromkeys(prepared.outvoted())
        # Nobody repeats what agents are shown: it does not expire.
        shown = {entry.id for entry in after.entries if entry.is_active}
        expired = [change.entry_id for change in draft.changes if change.kind == "expire"]
        kept = [prepared.entries[entry_id] for entry_id in expired if entry_id in shown]
        return self._merged(after, foreseen, (*mine, *kept))

    def _merged(self, after: Playbook, foreseen: Iterable[Entry], made: Iterable[Entry]) -> dict[str, Entry]:
        """Return what a batch ``made`` without what is revoked; what is as ``foreseen`` with it, as recorded."""
        known, was, mine = (
            {entry.id: entry for entry in entries} for entries in (after.entries, foreseen, made)
        )
        # Where something was erased since, applying the batch gives the ids of what is left to other entries.
        for entry_id in [one.id for one in was.values() if known.get(one.id, one).content != one.content]:
            was.pop(entry_id)
            mine.pop(entry_id, None)
        now = dict(self._cleaned(after))
        entries: dict[str, Entry] = {}
        for entry_id in dict.fromkeys((*known, *mine)):
            entry, recorded = mine.get(entry_id), known.get(entry_id)
            if entry == was.get(entry_id):
                entry = recorded if entry is not None else now.get(entry_id)
            elif recorded is None and entry_id in was:
                continue  # evicted: the manifest did not state the token budget
            if entry is not None:
                entries[entry_id] = entry
        return entries


@dataclass(slots=True)
class _Prepared:
    """An update as it is applied without what is revoked, and the entries that it is applied to."""

    whole: Recomputation
    before: Playbook
    recorded: Update
    gone: frozenset[str]
    placed: Mapping[str, str]
    """Where additions of the update landed, by their content."""
    entries: dict[str, Entry] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    """Under which ids entries come again, by their new content."""
    known: list[Known] = field(default_factory=list)
    _doubtful: list[tuple[Operation, Mixed]] = field(default_factory=list)
    _was: dict[str, Entry] = field(default_factory=dict)
    _offsets: dict[str, int] = field(default_factory=dict)
    """Of the batch's reflections."""
    update: Update = field(init=False)

    def __post_init__(self) -> None:
        self._was = {entry.id: entry for entry in self.before.entries}
        self._offsets = {seen.reflection_id: seen.offset for seen in self.recorded.result.seen}
        self.entries = dict(self.whole.entries)
        self.entries |= {entry_id: self._begun(entry) for entry_id, entry in self.entries.items()}
        operations = tuple(self._operations())
        result = self.recorded.result.model_copy(
            update={"operations": operations, "known": tuple(self.known)}
        )
        self.update = self.recorded.model_copy(update={"result": result})

    def mixed(self, contents: Mapping[str, str]) -> Iterator[Mixed]:
        """Yield the mixed operations; those that stay, if their words are now in a playbook: content → id."""
        for operation, mixed in self._doubtful:
            place = contents.get(operation.content)
            if place or mixed.fate != "stays" or self._is_text:
                yield replace(mixed, entry_ids=union(mixed.entry_ids, [place] if place else []))

    def kept_back(self, waits: Mapping[str, Sequence[str]], waited: Collection[str]) -> Iterator[Mixed]:
        """Yield what a model found in entries that wait now, by entry, but what ``waited`` when it was recorded.

        Agents were shown it in the words of these entries: its own may have all the support that it needs.
        """
        doubted = {place for _, mixed in self._doubtful for place in mixed.again}
        for entry_id, ids in waits.items() if learns(self.whole.barred) else ():
            again = self._places(self._retained(one for one in ids if one not in waited))
            if self.whole.asked.issuperset(again):
                self.whole.pending |= dict.fromkeys(again)
            elif not doubted.issuperset(again):
                yield self._lost(OperationKind.ADD, (entry_id,), ids, "again", again)

    def outvoted(self) -> Iterator[Asked]:
        """Yield where lessons stand that revoked reflections have outvoted: no operation says them."""
        result = self.recorded.result
        behind = [(operation.content, operation.evidence) for operation in result.operations]
        behind += [(claim.entry_id, claim.evidence) for claim in result.known]
        for conflict in result.conflicts if learns(self.whole.barred) else ():
            against = (ids for what, ids in behind if what and what in {conflict.entry_id, conflict.against})
            is_lost = self._differs(conflict.entry_id) or not self.gone.isdisjoint(chain(*against))
            if conflict.why == CONTRADICTS and is_lost:
                yield from self._places(
                    self._retained(one for one in conflict.evidence if one not in self.gone)
                )

    @property
    def _is_text(self) -> bool:
        """Whether an operation gives a whole text, which says what the text said that its batch read."""
        return self.recorded.plan.settings.holds == "components"

    def _claimed(self) -> Iterator[Operation]:
        """Yield what entries said that are gone or say something else now, as additions of who says the same."""
        for claim in self.recorded.result.known:
            was, now = self._was.get(claim.entry_id), self.entries.get(claim.entry_id)
            is_there = now is not None and not (claim.said and self._says_another(now.id))
            # It may have been about other words when it was recorded, too.
            if was is None or is_there or claim.said not in {"", said_digest(was.content)}:
                self.known.append(claim)
                continue
            self.ids[was.content] = was.id
            yield Operation(
                kind=OperationKind.ADD, section=was.section, content=was.content, evidence=claim.evidence
            )

    def _operations(self) -> Iterator[Operation]:
        claimed = tuple(self._claimed())
        for n, operation in enumerate((*claimed, *self.recorded.result.operations)):
            left = tuple(
                reflection_id for reflection_id in operation.evidence if reflection_id not in self.gone
            )
            # Without evidence: of a consolidation, which judged the words that its entries had.
            rests_on_words = not operation.evidence or operation.kind == OperationKind.MERGE or self._is_text
            rests_on_other = rests_on_words and any(map(self._differs, operation.entry_ids))
            if not left and (operation.evidence or rests_on_other):
                continue
            rest = operation.model_copy(update={"evidence": left})
            if operation.kind == OperationKind.REMOVE:
                # Who removed another lesson has not removed this one.
                if not any(map(self._says_another, operation.entry_ids)):
                    yield rest
                continue
            if (operation.kind != OperationKind.MERGE and self._is_said(left)) or self._is_there(operation):
                yield self._again(self._apart(rest))
                continue
            # Who claims to say what an entry said has its words from those who are revoked.
            is_own = n < len(claimed) or len(left) < len(operation.evidence)
            there = self._retained(left)
            again = self._places(there) if is_own or (rests_on_other and self._is_text) else ()
            if again and self.whole.asked.issuperset(again):
                self.whole.pending |= dict.fromkeys(again)
                continue
            if rests_on_other or is_own:
                lost = bool(left and not there) or (bool(again) and not learns(self.whole.barred))
                # A whole text that nobody can be asked about holds all that was learned until then.
                stays = lost and self._is_text and not is_own
                self._doubt(operation, () if stays else again, is_dropped=lost and not stays)
                # What was written after a text that goes rests on it, too: it goes in the same pass.
                if not stays and (lost or (again and self._is_text)):
                    continue
            yield self._again(self._apart(rest))

    def _begun(self, entry: Entry) -> Entry:
        """Return an entry; what agents are shown begins now if they have read other words until now."""
        if not (entry.is_active and self._differs(entry.id)):
            return entry
        return entry.model_copy(update={"created_version": self.before.version + 1})

    def _differs(self, entry_id: str) -> bool:
        """Return whether a recorded entry is gone, or says another lesson."""
        is_gone = entry_id in self._was and entry_id not in self.entries
        return is_gone or self._says_another(entry_id)

    def _says_another(self, entry_id: str) -> bool:
        """Return whether a recorded entry is there and says another lesson."""
        was, now = self._was.get(entry_id), self.entries.get(entry_id)
        return was is not None and now is not None and not same_lesson(was.content, now.content)

    def _is_said(self, ids: Collection[str]) -> bool:
        """Return whether one of these reflections of the batch says all of what it is evidence of, word for word."""
        worded = {one.reflection_id for one in self.recorded.result.seen if one.covered in WORDED}
        return not worded.isdisjoint(ids)

    def _is_there(self, operation: Operation) -> bool:
        """Return whether an entry said the words of an addition already: only its evidence counts."""
        entry = self.entries.get(self.placed.get(operation.content, ""))
        return entry is not None and same_lesson(entry.content, operation.content)

    def _retained(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return the reflections that have not expired, and whose run was not forgotten."""
        first = self.whole.retained_from
        return tuple(one for one in ids if self._offsets.get(one, first) >= first)

    def _places(self, ids: Collection[str]) -> tuple[Asked, ...]:
        """Return where reflections of the batch stand; nothing unless all are known."""
        places = tuple(
            Asked(offset=self._offsets[reflection_id], manifest_offset=self.recorded.manifest_offset)
            for reflection_id in ids
            if reflection_id in self._offsets
        )
        return places if len(places) == len(ids) else ()

    def _doubt(self, operation: Operation, again: tuple[Asked, ...], *, is_dropped: bool) -> None:
        known = self.placed.get(operation.content) or self.ids.get(operation.content)
        entry_ids = operation.entry_ids or ((known,) if known else ())
        fate: Fate = "dropped" if is_dropped else "again" if again else "stays"
        mixed = self._lost(operation.kind, entry_ids, operation.evidence, fate, () if is_dropped else again)
        self._doubtful.append((operation, mixed))

    def _lost(
        self,
        kind: OperationKind,
        entry_ids: tuple[str, ...],
        evidence: Iterable[str],
        fate: Fate,
        again: tuple[Asked, ...],
    ) -> Mixed:
        return Mixed(
            line=self.recorded.plan.playbook,
            sequence=self.recorded.plan.sequence,
            kind=kind.value,
            entry_ids=entry_ids,
            revoked=tuple(reflection_id for reflection_id in evidence if reflection_id in self.gone),
            fate=fate,
            again=again,
        )

    def _again(self, operation: Operation) -> Operation:
        """Return an operation on entries that are gone as an addition: its own evidence supports its words."""
        targets = [entry_id for entry_id in operation.entry_ids if entry_id in self._was]
        if not targets or any(entry_id in self.entries for entry_id in operation.entry_ids):
            return operation
        self.ids[operation.content] = targets[0]
        return added(operation, self._was)

    def _apart(self, operation: Operation) -> Operation:
        """Return a rewrite of words that its entry does not have now as an addition: the entry keeps its own."""
        now = self.entries.get(next(iter(operation.entry_ids), ""))
        is_rewrite = operation.kind == OperationKind.UPDATE and not self._is_text
        if now is None or not (is_rewrite and self._says_another(now.id)):
            return operation
        return operation if is_related(operation.content, now.content) else added(operation, self._was)


def _parts_of(update: Update, before: Playbook) -> dict[str, set[str]]:
    """Return what a batch's operations say, and what their entries said before; digests."""
    says = {entry.id: said_digest(entry.content) for entry in before.entries}
    return {
        said_digest(operation.content): {
            says[entry_id] for entry_id in operation.entry_ids if entry_id in says
        }
        for operation in update.result.operations
    }


def _is_wholly(update: Update, gone: frozenset[str]) -> bool:
    """Return whether all that a batch rests on is revoked."""
    result = update.result
    taught = [(reflection.reflection_id,) for reflection in result.seen if reflection.ok]
    claims: tuple[Operation | Known | Echo, ...] = (*result.operations, *result.known, *result.echoes)
    rests = (*taught, *(claim.evidence for claim in claims))
    # Where a batch has reflections, what rests on none is not applied.
    return bool(taught) and all(gone.issuperset(ids) for ids in rests)


def _is_edited(entry: Entry, version: Playbook) -> bool:
    """Return whether a person wrote an entry in this version: a component is never by hand."""
    return version.origin == "edit" and entry.updated_version == version.version


def _out_of_room(version: Playbook, *kinds: ChangeKind) -> frozenset[str]:
    out = kinds or ("evict", "expire")
    return frozenset(change.entry_id for change in version.changes if change.kind in out)


def _known(entry_id: str) -> str:
    """Return the id that an entry has from now on."""
    return entry_id.removeprefix(UNGIVEN)


def _differences(known: Mapping[str, Entry], left: Mapping[str, Entry]) -> Iterator[Change]:
    for entry_id, entry in known.items():
        now = left.get(entry_id)
        if now is None:
            yield Change(kind="remove", entry_id=entry_id, detail=ALONE)
        elif now.content != entry.content:
            yield Change(kind="update", entry_id=entry_id, detail=entry.content[:MAX_DETAIL_CHARS])
        elif entry.is_active and not now.is_active:
            yield Change(kind="update", entry_id=entry_id, detail=f"{UNSEEN}: {entry.content[:250]}")
    for entry_id in left:
        if entry_id not in known:
            yield Change(kind="add", entry_id=entry_id, detail="what took it away is revoked")


def _says_the_same(entry: Entry, other: Entry) -> bool:
    return (entry.section, entry.content) == (other.section, other.content)


def _renamed(entries: Iterable[Entry], ids: Mapping[str, str]) -> Iterator[Entry]:
    """Yield entries under other ids, and with the links to them."""
    for entry in entries:
        links = {
            field: tuple(ids.get(other, other) for other in getattr(entry, field))
            for field in ("replaces", "rivals")
        }
        yield entry.model_copy(update={"id": ids.get(entry.id, entry.id), **links})


def _as_old(entry: Entry, recorded: Entry | None) -> Entry:
    """Return an entry with the versions that it began with and that changed it last, unless in other words."""
    if recorded is None or not _says_the_same(entry, recorded):
        return entry
    return entry.model_copy(
        update={
            "created_version": recorded.created_version,
            "updated_version": recorded.updated_version,
        }
    )
