"""Which operations of a batch count, and which entries wait for a person or another source; pure.

The posture is the manifest's (`trust`), and what is known of sources stands in the version before: so a batch that is
applied again gives the same version. Whatever a rule holds back is recorded as a change.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType

from combee.core.log.replaying.selection import Selection
from combee.core.names.sources import UNPROVEN, names_of
from combee.core.playbook import trust
from combee.core.playbook.operations import MAX_DETAIL_CHARS, union
from combee.core.playbook.sections import same_section
from combee.core.playbook.trust import TO_BE_ALONE, Rules, Support, names_counted, rules_of, supporters
from combee.core.text.similarity.wording import wording
from combee_schemas.digests import digest
from combee_schemas.plan import PlanSettings
from combee_schemas.playbook import (
    ACE_SECTIONS,
    SOURCES_COUNTED,
    SOURCES_KEPT,
    Entry,
    Playbook,
    Rejected,
    TaughtBy,
)
from combee_schemas.scan import Conflict, Operation, OperationKind, Seen

TO_MERGE = 2
"""Entries at least."""
SOURCES_LISTED = 20
"""Of one batch."""
REWORDING = frozenset({OperationKind.UPDATE, OperationKind.MERGE})
Ids = Mapping[str, tuple[str, ...]]


def no_ids() -> Ids:
    """Return no ids of anything."""
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An operation that does not count as it is, and why."""

    operation: Operation
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Entries that an addition is about, by its content: it waits until as much supports it as stands behind them."""

    replaces: Ids = field(default_factory=no_ids)
    """Entries whose place it takes then."""
    rivals: Ids = field(default_factory=no_ids)
    """Entries next to which it is shown then: a rewrite would have lost something that nobody calls wrong."""

    def linked(self, entry: Entry) -> Entry:
        """Return an entry with the links of its content."""
        replaces = union(entry.replaces, self.replaces.get(entry.content, ()))
        rivals = union(entry.rivals, self.rivals.get(entry.content, ()))
        if (replaces, rivals) == (entry.replaces, entry.rivals):
            return entry
        return entry.model_copy(update={"replaces": replaces, "rivals": rivals})


NO_LINKS = Links()


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """The operations as they count, those that do not count as they are, and what waits for more support."""

    passed: Sequence[Operation]
    refused: Sequence[Refused] = ()
    links: Links = NO_LINKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Relations:
    """How contents are compared: agents load this module with the SDK, and not what compares letters."""

    same: Callable[[str, str], bool]
    """Whether two contents are the same lesson."""
    related: Callable[[str, str], bool]
    """Whether who says one speaks of the other."""
    unites: Callable[[str, Sequence[str]], bool]
    """Whether a content only says what texts say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The rules for one batch; for what a person does, everything counts."""

    is_person: bool = True
    rules: Rules = trust.OPEN
    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By reflection, the source it counts for."""
    revoked: frozenset[str] = frozenset()
    """Reflections that bear nothing out."""
    unsure: frozenset[str] = frozenset()
    """Reflections of which only a model (a check call, or embeddings) says that a text says them: no support."""
    against: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    """By reflection, the entries that it speaks against."""
    needs_evidence: bool = False
    """Whether an operation without evidence is refused: the batch has reflections."""
    rivals: Ids = field(default_factory=no_ids)
    """By content, as conflicts name it: the entries that a refused rewrite with it would have changed."""

    @classmethod
    def of(
        cls,
        base: Playbook,
        seen: Iterable[Seen],
        settings: PlanSettings | None,
        revoked: Iterable[str] = (),
        conflicts: Iterable[Conflict] = (),
    ) -> "Screen":
        """Return the rules for a batch that is applied to ``base``; without settings for what a person does."""
        if settings is None:
            return OPEN
        gone, read = frozenset(revoked), tuple(seen)
        seen = tuple(reflection for reflection in read if reflection.reflection_id not in gone)
        names = dict.fromkeys((reflection.reflection_id for reflection in seen), UNPROVEN)
        names |= names_of(seen, names_counted(settings))
        barred = barred_sources(base)
        taught_by = tuple(source for source in base.taught_by if source.name not in barred)
        several = len({*names.values(), *(source.name for source in taught_by)}) > 1
        # Who comes first to what a person wrote or imported need not be the only one to come.
        is_new = sum(source.batches for source in taught_by) < TO_BE_ALONE
        rules, rivals = (
            rules_of(settings, several=several, may_be_several=is_new),
            dict[str, tuple[str, ...]](),
        )
        for conflict in conflicts if rules.weighs else ():
            if not conflict.entry_id:
                continue
            rivals[conflict.content] = union(rivals.get(conflict.content, ()), [conflict.entry_id])
        return cls(
            is_person=False,
            rules=rules,
            names=names,
            revoked=gone,
            unsure=unsure_of(seen, rules),
            against={
                reflection.reflection_id: frozenset(tag.id for tag in reflection.tags if tag.tag == "harmful")
                for reflection in seen
            },
            needs_evidence=bool(read),
            rivals=rivals,
        )

    def heard(self, seen: Iterable[Seen]) -> tuple[Seen, ...]:
        """Return reflections with the tags that count: of several sources one word of each about an entry, its last.

        Where only proven sources count, others' tags do not.
        """
        if not (self.rules.weighs and self.rules.several):
            return tuple(seen)
        spoken: set[tuple[str, str]] = set()
        heard: list[Seen] = []
        for reflection in reversed(tuple(seen)):
            name = self._name(reflection.reflection_id)
            counts = bool(self.rules.counted({name}))
            tags = tuple(tag for tag in reflection.tags if counts and (name, tag.id) not in spoken)
            spoken |= {(name, tag.id) for tag in tags}
            heard.append(
                reflection if tags == reflection.tags else reflection.model_copy(update={"tags": tags})
            )
        return tuple(reversed(heard))

    def screened(self, base: Playbook, operations: Sequence[Operation], relations: Relations) -> Screened:
        """Return the operations as they count, and what becomes of the others.

        What too few say changes no entry: it is added next to it, and where destroying costs as much as building it
        waits there.
        """
        known = {entry.id: entry for entry in base.entries}
        if not (self.rules.weighs or any(entry.by_hand for entry in base.entries)):
            return Screened(passed=operations)
        passed, refused, replaces = list[Operation](), list[Refused](), dict[str, tuple[str, ...]]()
        for given in operations:
            operation = self._narrowed(given, known, relations)
            if spared := [entry_id for entry_id in given.entry_ids if entry_id not in operation.entry_ids]:
                part = given.model_copy(update={"entry_ids": tuple(spared)})
                refused.append(Refused(operation=part, why="too few of the reflections speak of it"))
            why = self._too_few_for(operation, known, relations)
            if not why or _strengthens(operation, known, relations):
                passed.append(operation)
                continue
            refused.append(Refused(operation=operation, why=why))
            # Without evidence: of a consolidation, whose words nobody would ever support.
            if operation.kind == OperationKind.REMOVE or not operation.evidence:
                continue
            passed.append(_added(operation, known))
            # Only words tie a text to an entry: who says it later need not have a word against that entry.
            spoken_of = [
                entry_id
                for entry_id in operation.entry_ids
                if entry_id in known
                and self._speaking_of(operation, known[entry_id], relations)
                and relations.related(operation.content, known[entry_id].content)
            ]
            is_link = (
                operation.kind == OperationKind.UPDATE
                or len(known.keys() & {*operation.entry_ids}) >= TO_MERGE
            )
            if spoken_of and is_link and self.rules.weighs:
                content = operation.content
                replaces[content] = union(replaces.get(content, ()), spoken_of)
        rivals = {
            operation.content: tuple(
                entry_id
                for entry_id in self.rivals.get(operation.content[:MAX_DETAIL_CHARS], ())
                if entry_id in known and relations.related(operation.content, known[entry_id].content)
            )
            for operation in passed
        }
        links = Links(replaces=replaces, rivals=rivals)
        return Screened(passed=passed, refused=refused, links=links)

    def _speaking_of(self, operation: Operation, entry: Entry, relations: Relations) -> frozenset[str]:
        """Return the reflections of an operation that speak of an entry, in its words or against it."""
        witnesses = frozenset(operation.evidence).difference(self.revoked)
        if operation.kind in REWORDING:
            witnesses -= self.unsure
        if operation.kind not in REWORDING or relations.related(operation.content, entry.content):
            return witnesses
        return frozenset(one for one in witnesses if entry.id in self.against.get(one, ()))

    def _narrowed(self, operation: Operation, known: Mapping[str, Entry], relations: Relations) -> Operation:
        """Return a MERGE of the entries that enough reflections speak of, if those are two; else it as it is."""
        if operation.kind != OperationKind.MERGE or not operation.evidence:
            return operation
        kept = tuple(
            entry_id
            for entry_id in union(operation.entry_ids)
            if entry_id in known
            and (support := self._support(operation, known[entry_id], relations)).suffices(
                self.rules.to_change(known[entry_id], support.names)
            )
        )
        return operation.model_copy(update={"entry_ids": kept}) if len(kept) >= TO_MERGE else operation

    def _support(self, operation: Operation, entry: Entry, relations: Relations) -> Support:
        """Return the support for an operation on an entry.

        For a removal, earlier runs that it harmed count, too, unless as many found it helpful: some run or other
        calls nearly every entry harmful once.
        """
        speaking = self._speaking_of(operation, entry, relations)
        is_removal = operation.kind == OperationKind.REMOVE and speaking and self.rules.weighs
        earlier = entry.harmed if is_removal and entry.harmful > entry.helpful else ()
        counted = self.rules.counted({*map(self._name, speaking), *earlier}, entry)
        count = sum(self._name(one) in counted for one in speaking)
        more = entry.harmful if counted.intersection(earlier) else 0
        return Support(len(counted), count + more, counted)

    def _too_few_for(self, operation: Operation, known: Mapping[str, Entry], relations: Relations) -> str:
        """Return why an operation must not change its entries; empty: it may."""
        if not operation.evidence and self.rules.weighs:
            return self._not_united(operation, known, relations)
        for entry_id in operation.entry_ids:
            entry = known.get(entry_id)
            if entry is None:
                # Nobody has spoken of what the batch itself adds, whose id can be foreseen.
                if self.rules.weighs:
                    return f"there is no {entry_id}"
                continue
            support = self._support(operation, entry, relations)
            needed = self.rules.to_change(entry, support.names)
            if not support.suffices(needed):
                stands = "a person stands behind" if entry.by_hand else "it would change"
                return f"{stands} {entry_id}: {support.told(needed)} say so"
        return ""

    def _not_united(self, operation: Operation, known: Mapping[str, Entry], relations: Relations) -> str:
        """Return why a consolidation, which has no new evidence, must not make an operation; empty: it may.

        It may only unite what its entries say, and what this adds to an entry must have as much support of others
        that say all of it as changing it needs. It removes what as many runs found harmful.
        """
        entries = [known[entry_id] for entry_id in union(operation.entry_ids) if entry_id in known]
        if by_hand := [entry.id for entry in entries if entry.by_hand]:
            return f"a person stands behind {', '.join(by_hand)}, and a consolidation has no new evidence"
        if operation.kind == OperationKind.REMOVE:
            spared = [entry.id for entry in entries if not self.rules.may_be_removed_for_harm(entry)]
            return f"too few runs found {', '.join(spared)} harmful" if spared else ""
        if not relations.unites(operation.content, [entry.content for entry in entries]):
            return "it says more than its entries, and a consolidation has no new evidence"
        for entry in entries if self.rules.several else ():
            others = [
                other
                for other in entries
                if other.id != entry.id
                and relations.unites(operation.content, [entry.content, other.content])
            ]
            names = {name for other in others for name in supporters(other)}
            support = Support(
                len(self.rules.counted(names, entry)), sum(other.evidence_count for other in others)
            )
            needed = self.rules.to_change(entry, names)
            if not (support.suffices(needed) or relations.same(operation.content, entry.content)):
                return f"it would change {entry.id}: behind the others stand {support.told(needed)}"
        return ""

    def waits_for(self, sources: Collection[str], reflections: int, about: Iterable[Entry]) -> str:
        """Return why a proposed entry goes on waiting; ``about``: the entries that it is linked to."""
        needed, about = self.rules.to_add, tuple(about)
        for other in about:
            most = self.rules.to_change(other, sources)
            needed = Support(max(needed.sources, most.sources), max(needed.reflections, most.reflections))
        names = sources or {UNPROVEN}
        counted = [self.rules.counted(names, other) for other in about] or [self.rules.counted(names)]
        support = Support(min(map(len, counted)), reflections if all(counted) else 0)
        return "" if support.suffices(needed) else f"{support.told(needed)} support it"

    def _name(self, reflection_id: str) -> str:
        return self.names.get(reflection_id, UNPROVEN)


OPEN = Screen()


def unsure_of(seen: Iterable[Seen], rules: Rules) -> frozenset[str]:
    """Return the reflections that are no support: a model may take a text that rides on a lesson for that lesson."""
    by_a_model = (one.reflection_id for one in seen if one.covered in {"check", "meaning"})
    return frozenset(by_a_model) if rules.weighs else frozenset()


def supporting(seen: Iterable[Seen], settings: PlanSettings) -> dict[str, str]:
    """Return the counting names of the reflections that can support an entry, for those with a name."""
    seen = tuple(seen)
    unsure = unsure_of(seen, rules_of(settings))
    names = names_of(seen, names_counted(settings))
    return {one: name for one, name in names.items() if one not in unsure}


# ---- the operations of a batch


@dataclass(frozen=True, slots=True)
class Rejections:
    """What a person rejected of candidates, so that no batch brings it back."""

    said: frozenset[str] = frozenset()
    """Digests of wordings."""
    witnesses: frozenset[str] = frozenset()
    """The reflections that taught it."""

    @classmethod
    def of(cls, playbook: Playbook) -> "Rejections":
        """Return what a playbook keeps of its rejections."""
        return _rejections(playbook.rejected)

    def has(self, content: str) -> bool:
        """Return whether a content says what was rejected."""
        return bool(content) and said_digest(content) in self.said

    def bars(self, operation: Operation) -> bool:
        """Return whether an operation says what was rejected, or rests on its witnesses alone."""
        evidence = operation.evidence
        return self.has(operation.content) or (bool(evidence) and self.witnesses.issuperset(evidence))


@lru_cache(64)
def _rejections(rejected: tuple[Rejected, ...]) -> Rejections:
    said = frozenset(rejection.said for rejection in rejected)
    return Rejections(said, frozenset().union(*(rejection.evidence for rejection in rejected)))


def said_digest(content: str) -> str:
    """Return what contents of one wording have in common, as rejections keep it."""
    return digest("said", *wording(content).words).hex()


def admitted(
    base: Playbook, operations: Sequence[Operation], screen: Screen, relations: Relations
) -> Screened:
    """Return the operations as they count, and what becomes of the others."""
    if screen.is_person:
        return Screened(passed=operations)
    rejections = Rejections.of(base)
    permitted, rejected = list[Operation](), list[Refused]()
    for operation in operations:
        if screen.needs_evidence and not operation.evidence:
            rejected.append(Refused(operation=operation, why="nothing that was reflected says it"))
        elif rejections.bars(operation):
            rejected.append(Refused(operation=operation, why="a person rejected it"))
        else:
            permitted.append(operation)
    screened = screen.screened(base, permitted, relations)
    passed: Sequence[Operation] = screened.passed
    renamed: Sequence[Refused] = ()
    if screen.rules.quorum:
        passed, renamed = _under_known_headers(base, passed)
    return replace(screened, passed=passed, refused=(*rejected, *screened.refused, *renamed))


def _under_known_headers(
    base: Playbook, operations: Iterable[Operation]
) -> tuple[Sequence[Operation], Sequence[Refused]]:
    """Return operations of which none begins a section: reflections do not name any, so a header has no witnesses.

    What an operation says is judged by itself: so nobody bars an honest lesson by the header that he gives it.
    """
    headers = (entry.section for entry in base.entries if entry.is_active)
    known = dict.fromkeys((*base.sections, *ACE_SECTIONS, *headers))
    placed, refused = list[Operation](), list[Refused]()
    for operation in operations:
        is_new = operation.kind == OperationKind.ADD and same_section(operation.section, known) not in known
        if is_new:
            why = f"its section would be new, and only a person begins one here: it stands under {ACE_SECTIONS[-1]}"
            refused.append(Refused(operation=operation, why=why))
            operation = operation.model_copy(update={"section": ACE_SECTIONS[-1]})  # noqa: PLW2901
        placed.append(operation)
    return placed, refused


def _strengthens(operation: Operation, known: Mapping[str, Entry], relations: Relations) -> bool:
    """Return whether an operation only supports what an entry says: applied, it leaves the entry's words."""
    if operation.kind != OperationKind.UPDATE or not operation.evidence:
        return False
    entry = known.get(operation.entry_ids[0])
    return entry is not None and relations.same(entry.content, operation.content)


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
    counts = {source.name: (source.batches, source.reflections) for source in before}
    teaching = Counter(names.get(reflection.reflection_id, UNPROVEN) for reflection in seen if reflection.ok)
    for name, reflections in teaching.items():
        batches, earlier = counts.pop(name, (0, 0))
        counts[name] = batches + 1, earlier + reflections
    for name in barred:
        counts.pop(name, None)
    kept = frozenset(sorted(counts, key=lambda name: counts[name][0])[-SOURCES_COUNTED:])
    return tuple(
        TaughtBy(name=name, batches=batches, reflections=reflections)
        for name, (batches, reflections) in counts.items()
        if name in kept
    )
