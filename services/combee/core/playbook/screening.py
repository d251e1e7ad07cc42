"""Which operations of a batch count, and which entries wait for a person or another source; pure.

The rules are settings of the manifest, and what is known of sources stands in the version before: so a batch that is
applied again gives the same version. Whatever a rule holds back is recorded as a change.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from combee.core.log.replaying.selection import Selection
from combee.core.names.sources import UNPROVEN, names_of
from combee.core.text.flags import flags
from combee_schemas.plan import PlanSettings
from combee_schemas.playbook import SOURCES_COUNTED, SOURCES_KEPT, Entry, Playbook, TaughtBy
from combee_schemas.scan import Operation, OperationKind, Seen

TO_CHANGE_BY_HAND = 3
"""Reflections, from as many sources, that it takes to change or remove what a person stands behind. In a playbook
with one source this number of reflections suffices."""
TO_BE_ALONE = 3
"""Batches that one source alone has taught, before it counts as the only source of a playbook with such entries."""
TO_MERGE = 2
"""Entries at least."""
REWORDING = frozenset({OperationKind.UPDATE, OperationKind.MERGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An operation that does not count as it is, and why."""

    operation: Operation
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The rules for one batch; for what a person does, everything counts."""

    is_person: bool = True

    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By reflection, the source it counts for."""
    established: frozenset[str] = frozenset()
    """Where there are any, what others teach is only proposed."""
    most: int = 0
    """Operations that may rest on one source alone; 0: any number."""
    flags: bool = False
    sources: int = 1
    """Sources that must say the same before an entry is reworded, merged or removed."""
    several: bool = False
    """Whether the playbook has several sources, those of the batch included, or may have."""
    revoked: frozenset[str] = frozenset()
    """Reflections that bear nothing out."""
    against: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    """By reflection, the entries that it speaks against."""
    needs_evidence: bool = False
    """Whether an operation without evidence is refused: the batch has reflections."""

    @classmethod
    def of(
        cls,
        base: Playbook,
        seen: Iterable[Seen],
        settings: PlanSettings | None,
        revoked: Iterable[str] = (),
    ) -> "Screen":
        """Return the rules for a batch that is applied to ``base``; without settings for what a person does."""
        if settings is None:
            return OPEN
        quorum = settings.probation.sources if settings.probation else 1
        gone, read = frozenset(revoked), tuple(seen)
        seen = tuple(reflection for reflection in read if reflection.reflection_id not in gone)
        names = dict.fromkeys((reflection.reflection_id for reflection in seen), UNPROVEN)
        names |= names_of(seen, settings.sources)
        barred = barred_sources(base)
        taught_by = tuple(source for source in base.taught_by if source.name not in barred)
        several = len({*names.values(), *(source.name for source in taught_by)}) > 1
        # Who comes first to what a person wrote or imported need not be the only one to come.
        if any(entry.by_hand for entry in base.entries):
            several = several or sum(source.batches for source in taught_by) < TO_BE_ALONE
        return cls(
            is_person=False,
            names=names,
            established=established_sources(taught_by, settings.new_source_batches),
            most=settings.source_operations if several else 0,
            flags=settings.propose_flagged,
            sources=quorum,
            several=several,
            revoked=gone,
            against={
                reflection.reflection_id: frozenset(tag.id for tag in reflection.tags if tag.tag == "harmful")
                for reflection in seen
            },
            needs_evidence=bool(read),
        )

    @property
    def proposes(self) -> bool:
        """Whether anything may have to wait."""
        return self.flags or bool(self.established) or self.sources > 1

    def heard(self, seen: Iterable[Seen]) -> tuple[Seen, ...]:
        """Return reflections with the tags that count: none of new sources; of several sources, one of each.

        Where an entry needs several sources, one of them has one word about it in a batch, its last.
        """
        if not self.established and self.sources == 1:
            return tuple(seen)
        spoken: set[tuple[str, str]] = set()
        heard: list[Seen] = []
        for reflection in reversed(tuple(seen)):
            name = self._name(reflection.reflection_id)
            tags = () if self.established and name not in self.established else reflection.tags
            if tags and self.sources > 1:
                tags = tuple(tag for tag in tags if (name, tag.id) not in spoken)
                spoken |= {(name, tag.id) for tag in tags}
            heard.append(
                reflection if tags == reflection.tags else reflection.model_copy(update={"tags": tags})
            )
        return tuple(reversed(heard))

    def screened(
        self,
        base: Playbook,
        operations: Sequence[Operation],
        same: Callable[[str, str], bool],
        related: Callable[[str, str], bool],
    ) -> tuple[Sequence[Operation], Sequence[Refused]]:
        """Return the operations as they count, and those that do not count as they are.

        What must wait changes no entry that agents are shown: it is added next to it, and proposed. So is what too
        few say of an entry that a person stands behind. ``same`` says whether two contents are the
        same lesson, ``related`` whether who says one speaks of the other: agents load this module with the SDK, and
        not what compares letters.
        """
        known = {entry.id: entry for entry in base.entries}
        by_hand = frozenset(entry.id for entry in base.entries if entry.by_hand)
        if not (self.most or self.proposes or by_hand):
            return operations, ()
        kept, refused = self._within_share(operations)
        passed: list[Operation] = []
        for given in kept:
            operation = self._narrowed(given, known, related)
            spared = [entry_id for entry_id in given.entry_ids if entry_id not in operation.entry_ids]
            if spared:
                refused.append(
                    Refused(
                        operation=given.model_copy(update={"entry_ids": tuple(spared)}),
                        why="too few of the reflections speak of it",
                    )
                )
            bearing = self._bearing(operation, known, related)
            too_few = self._too_few_for(operation, by_hand, bearing)
            if too_few and _strengthens(operation, known, same):
                too_few = ""
            why = too_few or self._doubt_of_operation(operation, known, bearing)
            # Without evidence: of a consolidation, whose words nobody would ever support.
            adds = operation.kind != OperationKind.REMOVE and bool(operation.evidence)
            if not why or adds:
                passed.append(_added(operation, known) if why else operation)
            if too_few or (why and not adds):
                refused.append(Refused(operation=operation, why=why))
        return passed, refused

    def _within_share(self, operations: Sequence[Operation]) -> tuple[list[Operation], list[Refused]]:
        """Refuse what rests on a source alone beyond its share; what rests on most reflections stays."""
        alone: dict[int, str] = {}
        for at, operation in enumerate(operations if self.most else ()):
            names = self._names(operation)
            if len(names) == 1:
                (alone[at],) = names
        counts: Counter[str] = Counter()
        over: set[int] = set()
        for at in sorted(alone, key=lambda at: (-len(operations[at].evidence), at)):
            counts[alone[at]] += 1
            if counts[alone[at]] > self.most:
                over.add(at)
        refused = [
            Refused(
                operation=operations[at],
                why=f"{alone[at]} has its {self.most} operations of this batch already",
            )
            for at in sorted(over)
        ]
        return [operation for at, operation in enumerate(operations) if at not in over], refused

    def _speaking_of(
        self, operation: Operation, entry: Entry, related: Callable[[str, str], bool]
    ) -> frozenset[str]:
        """Return the reflections of an operation that speak of an entry, in its words or against it."""
        witnesses = self._witnesses(operation)
        if operation.kind not in REWORDING or related(operation.content, entry.content):
            return witnesses
        return frozenset(one for one in witnesses if entry.id in self.against.get(one, ()))

    def _bearing(
        self, operation: Operation, known: Mapping[str, Entry], related: Callable[[str, str], bool]
    ) -> frozenset[str]:
        """Return the reflections of an operation that speak of each entry that it names."""
        targets = (known[entry_id] for entry_id in operation.entry_ids if entry_id in known)
        speaking = (self._speaking_of(operation, entry, related) for entry in targets)
        return self._witnesses(operation).intersection(*speaking)

    def _narrowed(
        self, operation: Operation, known: Mapping[str, Entry], related: Callable[[str, str], bool]
    ) -> Operation:
        """Return a MERGE of the entries that enough reflections speak of, if those are two; else it as it is."""
        if operation.kind != OperationKind.MERGE or not operation.evidence:
            return operation
        kept = tuple(
            entry_id
            for entry_id in operation.entry_ids
            if entry_id not in known
            or self._are_enough(self._speaking_of(operation, known[entry_id], related), known[entry_id])
        )
        is_merge = len(known.keys() & set(kept)) >= TO_MERGE
        return operation.model_copy(update={"entry_ids": kept}) if is_merge else operation

    def _are_enough(self, witnesses: Collection[str], entry: Entry) -> bool:
        """Return whether witnesses may change an entry; where nobody asks for any, they may."""
        sources = {self._name(reflection_id) for reflection_id in witnesses}
        if entry.by_hand:
            many = len(sources) >= TO_CHANGE_BY_HAND or not self.several
            return many and len(witnesses) >= TO_CHANGE_BY_HAND
        return self.sources == 1 or len(sources) >= self.sources

    def _too_few_for(self, operation: Operation, by_hand: frozenset[str], bearing: frozenset[str]) -> str:
        """Return why an operation must not change what a person stands behind; empty: it does not, or it may."""
        theirs = by_hand.intersection(operation.entry_ids)
        sources = {self._name(reflection_id) for reflection_id in bearing}
        least = TO_CHANGE_BY_HAND
        if not theirs or (len(bearing) >= least and (len(sources) >= least or not self.several)):
            return ""
        said = f"{len(bearing)} of {least} reflections"
        if self.several:
            said += f" and {len(sources)} of {least} sources"
        return f"a person stands behind {', '.join(sorted(theirs))}: {said} say so"

    def _doubt_of_operation(
        self, operation: Operation, known: Mapping[str, Entry], bearing: frozenset[str]
    ) -> str:
        names = self._names(operation)
        if names and self._are_new(names):
            return _taught_by(names)
        if self.sources > 1 and operation.evidence:
            if one := _merges_one(operation, known):
                return f"of those to merge only {one} is there"
            # Of a proposed entry, too: its support was for other words. And of one that the batch itself adds, whose
            # id can be foreseen.
            witnesses = {self._name(reflection_id) for reflection_id in bearing}
            if operation.entry_ids and len(witnesses) < self.sources:
                return f"{len(witnesses)} of {self.sources} sources say so: {', '.join(sorted(witnesses))}"
        said = [flags(known[entry_id].content) for entry_id in operation.entry_ids if entry_id in known]
        news = self._flags(operation.content).difference(*said)
        return _looks_like(news) if news else ""

    def doubt_of(self, entry: Entry, sources: Collection[str]) -> str:
        """Return why a proposed entry must go on waiting however many reflections support it; empty: it need not.

        ``sources`` are those of the reflections that support it, as far as they have a name.
        """
        if flags := self._flags(entry.content):
            return _looks_like(flags)
        names = set(sources) or {UNPROVEN}
        return _taught_by(names) if self._are_new(names) else ""

    def doubt_of_section(self, section: str) -> str:
        """Return why a batch must not begin a section; empty: it may."""
        if self.sources > 1 or (self.established and self.several):
            return "would be new, and only a person begins one where one source is not enough"
        news = self._flags(section)
        return _looks_like(news) if news else ""

    def _are_new(self, names: Collection[str]) -> bool:
        """Return whether no established source speaks for something."""
        return bool(self.established) and self.established.isdisjoint(names)

    def _flags(self, content: str) -> frozenset[str]:
        return frozenset(flags(content)) if self.flags else frozenset()

    def _names(self, operation: Operation) -> set[str]:
        return {self._name(reflection_id) for reflection_id in self._witnesses(operation)}

    def _witnesses(self, operation: Operation) -> frozenset[str]:
        """Return the reflections that count for an operation."""
        return frozenset(operation.evidence).difference(self.revoked)

    def _name(self, reflection_id: str) -> str:
        return self.names.get(reflection_id, UNPROVEN)


OPEN = Screen()
SOURCES_LISTED = 20
"""Of one batch."""


def _strengthens(operation: Operation, known: Mapping[str, Entry], same: Callable[[str, str], bool]) -> bool:
    """Return whether an operation only supports what an entry says: applied, it leaves the entry's words."""
    if operation.kind != OperationKind.UPDATE or not operation.evidence:
        return False
    entry = known.get(operation.entry_ids[0])
    return entry is not None and same(entry.content, operation.content)


def _merges_one(operation: Operation, known: Mapping[str, Entry]) -> str:
    """Return the only entry of a MERGE that is there, though it names several; empty: it is no such operation."""
    live = [entry_id for entry_id in dict.fromkeys(operation.entry_ids) if entry_id in known]
    named = len(set(operation.entry_ids))
    return live[0] if operation.kind == OperationKind.MERGE and len(live) == 1 < named else ""


def _taught_by(names: Collection[str]) -> str:
    return f"taught by new sources alone: {', '.join(sorted(names))}"


def _looks_like(flags: Iterable[str]) -> str:
    return f"looks like {', '.join(sorted(flags))}"


def _added(operation: Operation, known: Mapping[str, Entry]) -> Operation:
    """Return an operation on entries as an addition of its text next to them."""
    sections = [known[entry_id].section for entry_id in operation.entry_ids if entry_id in known]
    section = sections[0] if sections else operation.section
    return operation.model_copy(update={"kind": OperationKind.ADD, "entry_ids": (), "section": section})


# ---- who has taught


def barred_sources(playbook: Playbook, at: Playbook | None = None) -> frozenset[str]:
    """Return the sources of which nothing ever counts: those that a revocation names.

    ``at``: also those of which nothing counts that was in this earlier version, such as all that proves nothing.
    """
    since = at.version if at is not None and at.name == playbook.name else playbook.version + 1
    rules = (
        (Selection.parse(revocation.rule), revocation.version)
        for revocation in playbook.revocations
        if revocation.rule.startswith("source:")
    )
    return frozenset(rule.value for rule, version in rules if rule.is_open_ended or version > since)


def established_sources(taught_by: Iterable[TaughtBy], batches: int) -> frozenset[str]:
    """Return the sources that have taught in so many batches; what proves none is never one of them."""
    if not batches:
        return frozenset()
    return frozenset(
        source.name for source in taught_by if source.batches >= batches and source.name != UNPROVEN
    )


def with_sources(
    entries: Iterable[Entry], names: Mapping[str, str], landed: Mapping[str, Collection[str]]
) -> tuple[Entry, ...]:
    """Return entries with the names of the sources whose reflections say them now, the newest last.

    ``landed`` are the reflections of the batch, by entry, that support it; no others name anybody.
    """
    if not names:
        return tuple(entries)
    return tuple(
        entry.model_copy(update={"sources": last_sources(entry.sources, new)}) if new else entry
        for entry in entries
        for support in (landed.get(entry.id, ()),)
        for new in ([names[one] for one in entry.evidence if one in names and one in support],)
    )


def last_sources(known: Iterable[str], newer: Iterable[str]) -> tuple[str, ...]:
    """Return the last names of sources, each once."""
    newest_first = dict.fromkeys(reversed((*known, *newer)))
    return tuple(newest_first)[:SOURCES_KEPT][::-1]


def by_source(seen: Iterable[Seen], names: Mapping[str, str]) -> dict[str, int]:
    """Return how many reflections of a batch are each source's, of those that have most."""
    counts = Counter(names.get(reflection.reflection_id, UNPROVEN) for reflection in seen)
    return dict(counts.most_common(SOURCES_LISTED))


def taught(
    before: Sequence[TaughtBy],
    seen: Iterable[Seen],
    names: Mapping[str, str],
    barred: Collection[str] = (),
) -> tuple[TaughtBy, ...]:
    """Return who has taught a playbook after one more batch, without ``barred`` sources; the nameless are one."""
    counts = {source.name: source.batches for source in before}
    teaching = dict.fromkeys(
        names.get(reflection.reflection_id, UNPROVEN) for reflection in seen if reflection.ok
    )
    for name in teaching:
        counts[name] = counts.pop(name, 0) + 1
    for name in barred:
        counts.pop(name, None)
    kept = frozenset(sorted(counts, key=lambda name: counts[name])[-SOURCES_COUNTED:])
    return tuple(TaughtBy(name=name, batches=count) for name, count in counts.items() if name in kept)
