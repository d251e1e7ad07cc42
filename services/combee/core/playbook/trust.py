"""Trust: whom a playbook believes, and how much support what they say needs; pure.

The posture is the manifest's (`trust`), and what is known of sources stands in the version before: so a batch that is
applied again gives the same version. The rule of support: destroying costs as much as building. Whatever a rule holds
back is recorded as a change. In the order in which a batch meets them:

1. `Rules`: how much support a change needs.
2. `Screen`: the rules for one batch. It says which operations and tags count (`admitted`, `heard`), and, once these
   are applied, which new entries agents are shown and which wait, *proposed*, for more support (`reviewed`).
3. Who has taught the playbook.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, partial
from types import MappingProxyType
from typing import NamedTuple

from combee.core.log.replaying.selection import Selection
from combee.core.names.sources import UNPROVEN, counting, is_from, names_of, supporters
from combee.core.playbook.budget import UNBOUNDED, Parts, evictions, has_several
from combee.core.playbook.derived import once_per_version
from combee.core.playbook.operations import MAX_DETAIL_CHARS, union
from combee.core.playbook.sections import same_section
from combee.core.playbook.shown import outdated
from combee.core.text.figures import loses_a_figure, qualifiers
from combee.core.text.similarity.lessons import at_odds, same_lesson
from combee.core.text.similarity.overlap import ALIKE, common, unites
from combee.core.text.similarity.wording import said, wording
from combee_schemas.base import Holds, Source, SourceNames
from combee_schemas.digests import digest
from combee_schemas.plan import PlanSettings, Probation, Trust
from combee_schemas.playbook import (
    ACE_SECTIONS,
    EVIDENCE_KEPT,
    SOURCES_COUNTED,
    SOURCES_KEPT,
    Change,
    Entry,
    EntryState,
    Playbook,
    Rejected,
    TaughtBy,
)
from combee_schemas.scan import Operation, OperationKind, Seen, Update

Ids = Mapping[str, tuple[str, ...]]
NOTHING: Ids = MappingProxyType({})

PERSON = 3
"""Sources and reflections that a person's word counts as; what sources say never counts as more."""
NOT_ALONE = 2
"""Sources that a change needs of what others stand behind: one that was taken over destroys nothing alone."""
TO_BE_ALONE = 3
"""Batches that a source has taught alone, before it counts as the only one of a playbook with entries by hand."""
TO_MERGE = 2
"""Minimum number of entries that a MERGE needs."""
SOURCES_LISTED = 20
"""Maximum number of sources that a version lists of its batch."""
REWORDING = frozenset({OperationKind.UPDATE, OperationKind.MERGE})
PROPOSED: EntryState = "proposed"
NO_PROBATION = Probation(reflections=1)
NO_ROOM, REPLACED = "there is no room", "its place takes"

# ---- rules


class Support(NamedTuple):
    """Numbers of sources and of reflections that say something."""

    sources: int
    reflections: int
    names: frozenset[str] = frozenset()
    """The sources, if they are known."""

    def suffices(self, needed: "Support") -> bool:
        """Return whether it is as much as is needed."""
        return self.sources >= needed.sources and self.reflections >= needed.reflections

    def told(self, needed: "Support") -> str:
        """Return what there is and what is needed in words."""
        said = f"{self.reflections} of {needed.reflections} reflections"
        return f"{said} and {self.sources} of {needed.sources} sources" if needed.sources > 1 else said


ENOUGH = Support(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a posture asks for."""

    names: SourceNames = "declared"
    """Which source names count."""
    weighs: bool = False
    """Whether a change needs as much support as stands behind what it changes; else only a person's word weighs."""
    quorum: int = 0
    """Proven sources that a lesson needs before agents see it, and any change; 0: additions need none."""
    probation: int = 1
    """Reflections, of any sources, that a lesson needs before agents see it."""
    several: bool = False
    """Whether the playbook has several sources; else reflections alone are asked for."""
    may_be_several: bool = False
    """Whether its only source has taught too few batches to be known as the only one."""

    def counted(self, names: Collection[str], entry: Entry | None = None) -> frozenset[str]:
        """Return the sources that count for or against an entry; of a quorum only proven ones do."""
        return frozenset(names) - {UNPROVEN} if self.quorum else counting(names, entry)

    def to_change(self, entry: Entry, by: Collection[str] | None = None) -> Support:
        """Return the support that changing, merging or removing an entry needs: as much as stands behind it.

        ``by``: the sources of new evidence; one alone changes only what nobody else stands behind.
        """
        if entry.by_hand:
            most = max(PERSON, self.quorum)
            return Support(most if self.several or self.may_be_several else 1, most)
        if not self.weighs:
            return ENOUGH
        if self.quorum:
            return Support(self.quorum, self.quorum)
        own = supporters(entry)
        sources = min(PERSON, len(own)) if self.several else 1
        # The version of a large playbook may have had no room for names.
        is_unknown = not entry.sources and entry.evidence_count > 0
        is_others = is_unknown or not ({*own} - {UNPROVEN} | {*entry.recognised}) <= {*(by or ())}
        if self.several and by is not None and is_others:
            sources = max(NOT_ALONE, sources)
        return Support(sources, max(1, min(PERSON, entry.evidence_count)))

    @property
    def to_change_unknown(self) -> Support:
        """The support that an operation on an entry needs which is not there yet: its id can be foreseen."""
        if not self.weighs:
            return ENOUGH
        most = self.quorum or PERSON
        return Support(most if self.several else 1, most)

    @property
    def to_add(self) -> Support:
        """The support that a new lesson needs before agents see it."""
        return Support(self.quorum, max(self.quorum, self.probation))

    def may_be_removed_for_harm(self, entry: Entry) -> bool:
        """Return whether the runs that found an entry harmful are as many as its removal needs."""
        by = self.counted(entry.harmed, entry)
        return self.harms(entry) and Support(len(by), entry.harmful).suffices(self.to_change(entry, by))

    def harms(self, entry: Entry) -> bool:
        """Return whether more runs found an entry harmful than helpful; of several sources each has one word."""
        if not self.several:
            return entry.harmful > entry.helpful
        return len(self.counted(entry.harmed, entry)) > len(self.counted(entry.helped, entry))


OPEN = Rules()


def rules_of(settings: PlanSettings, *, several: bool = False, may_be_several: bool = False) -> Rules:
    """Return the rules of a manifest for a playbook with these sources."""
    waits = (settings.probation or NO_PROBATION).reflections
    match settings.trust:
        case "lab":
            return Rules(several=several, may_be_several=may_be_several)
        case "team":
            shared = {"several": several, "may_be_several": may_be_several}
            return Rules(names="proven", weighs=True, probation=waits, **shared)
        case "public":
            quorum = settings.colluders + 1
            return Rules(names="proven", weighs=True, quorum=quorum, probation=waits, several=True)


def names_counted(settings: PlanSettings) -> SourceNames:
    """Return which source names count in a batch."""
    return rules_of(settings).names


# ---- what counts of a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An operation that does not count as it is, and why."""

    operation: Operation
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """The operations as they count, those that do not count as they are, and what waits for more support."""

    passed: Sequence[Operation]
    seen: tuple[Seen, ...]
    """The batch's reflections with the tags that count."""
    born: EntryState = "active"
    """The state of new entries until the review."""
    refused: Sequence[Refused] = ()
    replaces: Ids = field(default_factory=lambda: NOTHING)
    """By content of an addition: the entries whose place it takes once as much supports it as stands behind them."""
    rivals: Ids = field(default_factory=lambda: NOTHING)
    """By content of an addition: the entries next to which it is shown then. A rewrite would have lost something that
    nobody calls wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The rules for one batch; for what a person does, and for components, everything counts at once."""

    is_open: bool = True
    """Whether all operations count as they are."""
    rules: Rules = OPEN
    policy: Probation | None = None
    """The probation of new entries; None: none waits."""
    room: Parts = field(default_factory=lambda: UNBOUNDED)
    """By source, its part of the room."""
    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By reflection, the source it counts for."""
    supporting: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The same of the reflections that can support an entry, for those with a name."""
    revoked: frozenset[str] = frozenset()
    """Reflections that bear nothing out."""
    unsure: frozenset[str] = frozenset()
    """Reflections of which only a model (a check call, or embeddings) says that a text says them: no support."""
    against: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    """By reflection, the entries that it speaks against."""
    outdated: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    """By reflection, the tagged entries that said something else when its agent read them."""
    unread: range = range(0)
    """The versions from the one after that which the batch has read to the one that it is applied to."""
    needs_evidence: bool = False
    """Whether an operation without evidence is refused: the batch has reflections."""
    rivals: Ids = field(default_factory=lambda: NOTHING)
    """By content, as conflicts name it: the entries that a refused rewrite with it would have changed."""

    @classmethod
    def of(cls, base: Playbook, update: Update, gone: Iterable[str], holds: Holds = "entries") -> "Screen":
        """Return the rules for a batch that is applied to ``base`` without the reflections that are ``gone``."""
        settings, read = update.plan.settings, update.result.seen
        if holds == "components":
            return cls(supporting=supporting(read, settings))
        revoked = frozenset(gone)
        seen = tuple(reflection for reflection in read if reflection.reflection_id not in revoked)
        names = dict.fromkeys((reflection.reflection_id for reflection in seen), UNPROVEN)
        names |= names_of(seen, names_counted(settings))
        barred = barred_sources(base)
        taught_by = tuple(source for source in base.taught_by if source.name not in barred)
        several = len({*names.values(), *(source.name for source in taught_by)}) > 1
        # Who comes first to what a person wrote or imported need not be the only one to come.
        is_new = sum(source.batches for source in taught_by) < TO_BE_ALONE
        rules = rules_of(settings, several=several, may_be_several=is_new)
        rivals = dict[str, tuple[str, ...]]()
        for conflict in update.result.conflicts if rules.weighs else ():
            if conflict.entry_id:
                rivals[conflict.content] = union(rivals.get(conflict.content, ()), [conflict.entry_id])
        return cls(
            is_open=False,
            rules=rules,
            # A consolidation has no reflections: no entry waits longer because of it.
            policy=None if update.plan.reason == "consolidate" else settings.probation or NO_PROBATION,
            room=parts(base) if rules.weighs else UNBOUNDED,
            names=names,
            supporting=supporting(read, settings),
            revoked=revoked,
            unsure=unsure_of(seen, rules),
            against={
                reflection.reflection_id: frozenset(tag.id for tag in reflection.tags if tag.tag == "harmful")
                for reflection in seen
            },
            outdated={
                reflection.reflection_id: outdated(base, reflection.tags, reflection.shown_version)
                for reflection in seen
            },
            unread=range(update.plan.base_version + 1, base.version + 1),
            needs_evidence=bool(read),
            rivals=rivals,
        )

    def admitted(self, base: Playbook, operations: Sequence[Operation], seen: Iterable[Seen]) -> Screened:
        """Return the operations and the tags of a batch as they count, and what becomes of the others."""
        heard = self.heard(seen)
        if self.is_open:
            return Screened(passed=operations, seen=heard)
        rejections = Rejections.of(base)
        permitted, rejected = list[Operation](), list[Refused]()
        for operation in operations:
            if self.needs_evidence and not operation.evidence:
                rejected.append(Refused(operation=operation, why="nothing that was reflected says it"))
            elif rejections.bars(operation):
                rejected.append(Refused(operation=operation, why="a person rejected it"))
            else:
                permitted.append(operation)
        screened = self._screened(base, permitted, heard)
        passed: Sequence[Operation] = screened.passed
        renamed: Sequence[Refused] = ()
        if self.rules.quorum:
            passed, renamed = _under_known_headers(base, passed)
        waits = self.policy is not None and (self.rules.weighs or not self.policy.is_off)
        refused = (*rejected, *screened.refused, *renamed)
        return replace(screened, passed=passed, refused=refused, born=PROPOSED if waits else "active")

    def heard(self, seen: Iterable[Seen]) -> tuple[Seen, ...]:
        """Return reflections with the tags that count: of several sources one word of each about an entry, its last.

        Where only proven sources count, others' tags do not.
        """
        if not (self.rules.weighs and self.rules.several):
            return tuple(seen)
        spoken: set[tuple[str, str]] = set()
        heard: list[Seen] = []
        for reflection in reversed([one for one in seen if one.reflection_id not in self.revoked]):
            name = self._name(reflection.reflection_id)
            counts = bool(self.rules.counted({name}))
            tags = tuple(tag for tag in reflection.tags if counts and (name, tag.id) not in spoken)
            spoken |= {(name, tag.id) for tag in tags}
            heard.append(
                reflection if tags == reflection.tags else reflection.model_copy(update={"tags": tags})
            )
        return tuple(reversed(heard))

    def _screened(self, base: Playbook, operations: Sequence[Operation], seen: tuple[Seen, ...]) -> Screened:
        """Return the operations as they count, and what becomes of the others.

        What too few say changes no entry: it is added next to it, and where destroying costs as much as building it
        waits there.
        """
        known = {entry.id: entry for entry in base.entries}
        if not (self.rules.weighs or any(entry.by_hand for entry in base.entries)):
            return Screened(passed=operations, seen=seen)
        passed, refused, replaces = list[Operation](), list[Refused](), dict[str, tuple[str, ...]]()
        united = set[str]()
        for given in operations:
            if given.evidence and not given.entry_ids:
                passed.append(given)  # it changes no entry
                continue
            operation = self._narrowed(given, known)
            if spared := [entry_id for entry_id in given.entry_ids if entry_id not in operation.entry_ids]:
                part = given.model_copy(update={"entry_ids": tuple(spared)})
                refused.append(Refused(operation=part, why="too few of the reflections speak of it"))
            why = self._too_few_for(operation, known)
            if self.rules.weighs and not (why or operation.evidence):
                # Each operation of a consolidation is weighed against the entries as they were. What says its words
                # already becomes one with its entries.
                saying = (one.id for one in base.entries if same_lesson(one.content, operation.content))
                touched = {*operation.entry_ids, *saying}
                taken = sorted(united & touched)
                why = f"another operation changes {', '.join(taken)}" if taken else ""
                united |= touched
            if not why or strengthens(operation, known):
                passed.append(operation)
                continue
            refused.append(Refused(operation=operation, why=why))
            # Without evidence: of a consolidation, whose words nobody would ever support.
            if operation.kind == OperationKind.REMOVE or not operation.evidence:
                continue
            passed.append(added(operation, known))
            # Only words tie a text to an entry: who says it later need not have a word against that entry.
            spoken_of = [
                entry_id
                for entry_id in operation.entry_ids
                if entry_id in known
                and self._speaking_of(operation, known[entry_id])
                and is_related(operation.content, known[entry_id].content)
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
                if entry_id in known
                and self._has_read(known[entry_id])
                and is_related(operation.content, known[entry_id].content)
            )
            for operation in passed
        }
        return Screened(passed=passed, seen=seen, refused=refused, replaces=replaces, rivals=rivals)

    def _has_read(self, entry: Entry) -> bool:
        """Return whether the batch has read an entry's words of now."""
        return entry.created_version not in self.unread

    def _speaking_of(self, operation: Operation, entry: Entry) -> frozenset[str]:
        """Return the reflections of an operation that speak of an entry, in its words or against it."""
        witnesses = frozenset(operation.evidence).difference(self.revoked)
        if operation.kind in REWORDING:
            witnesses -= self.unsure
        # Who says something of what the batch has read of an entry says nothing of words that it has had since.
        is_read = self._has_read(entry)
        if operation.kind in REWORDING and is_read and is_related(operation.content, entry.content):
            return witnesses
        if operation.kind in REWORDING or not is_read:
            witnesses = frozenset(one for one in witnesses if entry.id in self.against.get(one, ()))
        return frozenset(one for one in witnesses if entry.id not in self.outdated.get(one, ()))

    def _narrowed(self, operation: Operation, known: Mapping[str, Entry]) -> Operation:
        """Return a MERGE of the entries that enough reflections speak of, if those are two; else it as it is.

        An entry that says what a consolidation does keeps its own words: others could be padded.
        """
        if not operation.evidence and self.rules.weighs:
            contents = (known[entry_id].content for entry_id in operation.entry_ids if entry_id in known)
            own = (content for content in contents if same_lesson(content, operation.content))
            return operation.model_copy(update={"content": next(own, operation.content)})
        if operation.kind != OperationKind.MERGE or not operation.evidence:
            return operation
        kept = tuple(
            entry_id
            for entry_id in union(operation.entry_ids)
            if entry_id in known
            and (support := self._support(operation, known[entry_id])).suffices(
                self.rules.to_change(known[entry_id], support.names)
            )
        )
        return operation.model_copy(update={"entry_ids": kept}) if len(kept) >= TO_MERGE else operation

    def _support(self, operation: Operation, entry: Entry) -> Support:
        """Return the support for an operation on an entry.

        For a removal, earlier runs that it harmed count, too, unless as many found it helpful: some run or other
        calls nearly every entry harmful once, and who says so in every batch has one word.
        """
        speaking = self._speaking_of(operation, entry)
        is_removal = operation.kind == OperationKind.REMOVE and speaking and self.rules.weighs
        earlier = entry.harmed if is_removal and self.rules.harms(entry) else ()
        counted = self.rules.counted({*map(self._name, speaking), *earlier}, entry)
        count = sum(self._name(one) in counted for one in speaking)
        more = entry.harmful if counted.intersection(earlier) else 0
        return Support(len(counted), count + more, counted)

    def _too_few_for(self, operation: Operation, known: Mapping[str, Entry]) -> str:
        """Return why an operation must not change its entries; empty: it may."""
        if not operation.evidence and self.rules.weighs:
            return self._not_united(operation, known)
        for entry_id in operation.entry_ids:
            entry = known.get(entry_id)
            if entry is None:
                # Nobody has spoken of what the batch itself adds, whose id can be foreseen.
                if self.rules.weighs:
                    return f"there is no {entry_id}"
                continue
            support = self._support(operation, entry)
            needed = self.rules.to_change(entry, support.names)
            if not support.suffices(needed):
                stands = "a person stands behind" if entry.by_hand else "it would change"
                return f"{stands} {entry_id}: {support.told(needed)} say so"
        return ""

    def _not_united(self, operation: Operation, known: Mapping[str, Entry]) -> str:
        """Return why a consolidation, which has no new evidence, must not make an operation; empty: it may.

        It may only unite what its entries say, and what this adds to an entry must have as much support of
        others that say all of it as changing it needs. It removes what as many runs found harmful.
        """
        entries = [known[entry_id] for entry_id in union(operation.entry_ids) if entry_id in known]
        if by_hand := [entry.id for entry in entries if entry.by_hand]:
            return f"a person stands behind {', '.join(by_hand)}, and a consolidation has no new evidence"
        if other := [entry.id for entry in entries if not self._has_read(entry)]:
            return f"other words than the consolidation has read stand in {', '.join(other)} by now"
        if operation.kind == OperationKind.REMOVE:
            spared = [entry.id for entry in entries if not self.rules.may_be_removed_for_harm(entry)]
            return f"too few runs found {', '.join(spared)} harmful" if spared else ""
        if not unites(operation.content, [entry.content for entry in entries]):
            return "it says more than its entries, and a consolidation has no new evidence"
        for entry in entries if self.rules.several else ():
            others = [
                other
                for other in entries
                if other.id != entry.id and unites(operation.content, [entry.content, other.content])
            ]
            names = {name for other in others for name in supporters(other)}
            support = Support(
                len(self.rules.counted(names, entry)), sum(other.evidence_count for other in others)
            )
            needed = self.rules.to_change(entry, names)
            if not (support.suffices(needed) or same_lesson(operation.content, entry.content)):
                return f"it would change {entry.id}: behind the others stand {support.told(needed)}"
        return ""

    def reviewed(
        self,
        base: Playbook,
        after: Sequence[Entry],
        supported: Mapping[str, Iterable[str]],
        budget_tokens: int,
    ) -> "Review":
        """Return what a batch changes of proposed entries; ``after`` are those that its operations left.

        ``supported`` are the batch's supporting reflections by entry id. Where probation is off, all entries become
        active except those that the rules let wait.
        """
        if self.policy is None or all(entry.is_active for entry in after):
            return Review()
        look = partial(self._looked, base, after, supported, budget_tokens)
        found, out = look()
        full = first = out
        while out:
            found, out = look(full)
            full |= out
        # What has room without others that wait now does not wait.
        for entry_id in sorted(full) if full != first else ():
            tried, out = look(full - {entry_id})
            if not out:
                found, full = tried, full - {entry_id}
        return found

    def _looked(
        self,
        base: Playbook,
        after: Sequence[Entry],
        supported: Mapping[str, Iterable[str]],
        budget_tokens: int,
        full: frozenset[str] = frozenset(),
    ) -> tuple["Review", frozenset[str]]:
        """Return the review if the entries that are ``full`` have no room, and what else has none then.

        What is shown for the first time never displaces what is shown: it waits for room.
        """
        found = self._review(base.entries, after, supported, self.policy or NO_PROBATION, full)
        if not self.rules.weighs:
            return found, frozenset()
        shown = found.applied_to(after)
        out = frozenset(evictions(shown, budget_tokens, base.entries, base.sections, self.room))
        return found, out.intersection(entry.id for entry in found.entries if entry.is_active)

    def _review(
        self,
        before: Iterable[Entry],
        after: Sequence[Entry],
        supported: Mapping[str, Iterable[str]],
        policy: Probation,
        full: Collection[str] = (),
    ) -> "Review":
        """Return the review if there is no room for the entries that are ``full``."""
        pending = [entry for entry in after if entry.state == PROPOSED]
        if policy.is_off and not self.rules.weighs:
            promoted = (
                Change(kind="promote", entry_id=entry.id, detail="probation is off") for entry in pending
            )
            return Review(entries=tuple(map(activated, pending)), changes=tuple(promoted))
        known, there = {entry.id for entry in before}, {entry.id: entry for entry in after}
        # Too few taught in the batch to say of a lesson that nobody supports it. Those who collude with each other
        # (one less than a quorum) and flood age nothing unless a quorum of others taught, too.
        is_told = len(self.rules.counted({*self.names.values()})) >= 2 * self.rules.quorum - 1
        entries, changes, replaced = list[Entry](), list[Change](), set[str]()
        for entry in pending:
            if entry.id in replaced:
                continue
            candidate = Candidate.of(entry, supported.get(entry.id, ()), self.supporting)
            # Other words than those that were linked are about something else.
            linked = [
                one
                for one in (*entry.replaces, *entry.rivals)
                if one in there and is_related(entry.content, there[one].content)
            ]
            about = [there[one] for one in linked]
            why = candidate.waits_for(policy, self, about) or (NO_ROOM if entry.id in full else "")
            if why:
                outcome, change = candidate.waiting(policy, why, ages=is_told and entry.id in known)
            else:
                outcome, change = candidate.promoted(is_new=entry.id not in known)
                outdated = [one.id for one in about if candidate.supersedes(one, self)]
                # Who spoke of other words has said nothing of those that came since.
                spoken_of = {
                    one.id
                    for one in about
                    if one.created_version <= entry.created_version and self._has_read(one)
                }
                lost = [one for one in (*entry.replaces, *outdated) if one in spoken_of - replaced]
                replaced.update(lost)
                changes += [
                    Change(kind="remove", entry_id=one, detail=f"{REPLACED} {entry.id}: {there[one].content}")
                    for one in lost
                ]
            entries += [outcome] if outcome != entry else []
            changes += [change] if change else []
        return Review(entries=tuple(entries), changes=tuple(changes))

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


EVERYTHING = Screen()


def unsure_of(seen: Iterable[Seen], rules: Rules) -> frozenset[str]:
    """Return the reflections that are no support: a model may take a text that rides on a lesson for that lesson."""
    by_a_model = (one.reflection_id for one in seen if one.covered in {"check", "meaning", "proposal"})
    return frozenset(by_a_model) if rules.weighs else frozenset()


def supporting(seen: Iterable[Seen], settings: PlanSettings) -> dict[str, str]:
    """Return the counting names of the reflections that can support an entry, for those with a name."""
    seen = tuple(seen)
    unsure = unsure_of(seen, rules_of(settings))
    names = names_of(seen, names_counted(settings))
    return {one: name for one, name in names.items() if one not in unsure}


@dataclass(frozen=True, slots=True)
class Rejections:
    """What a person rejected of candidates, so that no batch brings it back."""

    said: frozenset[str] = frozenset()
    """Digests of wordings, or of the very words."""
    witnesses: frozenset[str] = frozenset()
    """The reflections that taught it."""

    @classmethod
    def of(cls, playbook: Playbook) -> "Rejections":
        """Return what a playbook keeps of its rejections."""
        return _rejections(playbook.rejected)

    def has(self, content: str) -> bool:
        """Return whether a content says what was rejected."""
        return bool(content and self.said) and not self.said.isdisjoint(
            (wording_digest(content), said_digest(content))
        )

    def bars(self, operation: Operation) -> bool:
        """Return whether an operation says what was rejected, or rests on its witnesses alone."""
        evidence = operation.evidence
        return self.has(operation.content) or (bool(evidence) and self.witnesses.issuperset(evidence))


@lru_cache(64)
def _rejections(rejected: tuple[Rejected, ...]) -> Rejections:
    said = frozenset(rejection.said for rejection in rejected)
    return Rejections(said, frozenset().union(*(rejection.evidence for rejection in rejected)))


def said_digest(content: str) -> str:
    """Return what contents of one lesson have in common, as claims keep it."""
    return digest("lesson", said(content)).hex()


def wording_digest(content: str) -> str:
    """Return what contents of one wording have in common, as rejections keep it."""
    return digest("said", *wording(content).words).hex()


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


def strengthens(operation: Operation, known: Mapping[str, Entry]) -> bool:
    """Return whether an operation only supports what an entry says: applied, it leaves the entry's words."""
    if operation.kind != OperationKind.UPDATE or not operation.evidence:
        return False
    entry = known.get(operation.entry_ids[0])
    return entry is not None and same_lesson(entry.content, operation.content)


def added(operation: Operation, known: Mapping[str, Entry]) -> Operation:
    """Return an operation on entries as an addition of its text next to them."""
    sections = [known[entry_id].section for entry_id in operation.entry_ids if entry_id in known]
    section = sections[0] if sections else operation.section
    return operation.model_copy(update={"kind": OperationKind.ADD, "entry_ids": (), "section": section})


def is_related(content: str, other: str) -> bool:
    """Return whether two contents are about one thing: alike, the same lesson, or at odds.

    It depends on these two alone: a batch that is applied again, to other entries, gets the same answer.
    """
    return common(content, other) >= ALIKE or same_lesson(content, other) or at_odds(content, other)


def _leaves_out(content: str, said: str) -> bool:
    """Return whether a content lacks a figure, a condition or a negation of a text, and says nothing in its place."""
    is_qualified = Counter(qualifiers(said)) <= Counter(qualifiers(content)) or at_odds(content, said)
    return loses_a_figure(content, said) or not is_qualified


# ---- what waits for support


def activated(entry: Entry) -> Entry:
    """Return an entry in its active state."""
    waited = {"support": (), "replaces": (), "rivals": (), "unsupported_batches": 0}
    return entry.model_copy(update={"state": "active", **waited})


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """Effects of a batch on new and proposed entries."""

    entries: tuple[Entry, ...] = ()
    """Entries that changed."""
    changes: tuple[Change, ...] = ()
    """Promotions and removals."""

    def applied_to(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """Return entries after the review."""
        changed = {entry.id: entry for entry in self.entries}
        gone = {change.entry_id for change in self.changes if change.kind != "promote"}
        return tuple(changed.get(entry.id, entry) for entry in entries if entry.id not in gone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A new or proposed entry, and its support."""

    entry: Entry
    support: tuple[str, ...]
    sources: frozenset[str]
    gained: bool
    """Whether this batch supports it."""

    @property
    def reflections(self) -> int:
        """How many reflections support it, at least one of each source: a large playbook has no room for all ids."""
        return max(len(self.support), len(self.sources))

    @classmethod
    def of(cls, entry: Entry, fresh: Iterable[str], names: Mapping[str, str]) -> "Candidate":
        """Return an entry with its support after a batch, of which these are ``fresh``."""
        fresh = tuple(fresh)
        support = union(entry.support, fresh)
        sources = frozenset(entry.sources).union(
            names[reflection_id] for reflection_id in fresh if reflection_id in names
        )
        return cls(entry=entry, support=support, sources=sources, gained=bool(fresh))

    def waits_for(self, policy: Probation, screen: Screen, about: Iterable[Entry]) -> str:
        """Return why it goes on waiting; empty: agents may see it. ``about``: the entries that it is linked to."""
        if self.reflections < policy.reflections:
            return f"{self.reflections} of {policy.reflections} reflections support it"
        return screen.waits_for(self.sources, self.reflections, about)

    def supersedes(self, rival: Entry, screen: Screen) -> bool:
        """Return whether it takes the place of an entry that it contradicts: nobody has said that one since.

        It takes as much as can be asked for, since a model may have taken another lesson for a new policy. Who leaves
        out a figure, a condition or a negation contradicts nothing.
        """
        is_silent = rival.updated_version <= self.entry.created_version
        support = Support(len(screen.rules.counted(self.sources, rival)), self.reflections)
        is_rival = rival.id in self.entry.rivals and not _leaves_out(self.entry.content, rival.content)
        return is_rival and is_silent and support.suffices(screen.rules.to_change_unknown)

    def waiting(self, policy: Probation, why: str, *, ages: bool) -> tuple[Entry, Change | None]:
        """Return the entry, proposed, and its removal if nobody supports it any more."""
        waited = 0 if self.gained else self.entry.unsupported_batches + ages
        update: dict[str, object] = {
            "state": PROPOSED,
            "support": self.support[-EVIDENCE_KEPT:],
            "unsupported_batches": waited,
        }
        expired = Change(kind="expire", entry_id=self.entry.id, detail=f"{why}: {self.entry.content}")
        return self.entry.model_copy(update=update), expired if waited >= policy.batches else None

    def promoted(self, *, is_new: bool) -> tuple[Entry, Change | None]:
        """Return the entry, active; a new one with full support is simply added."""
        entry = activated(self.entry)
        if is_new:
            return entry, None
        detail = f"{self.reflections} reflections support it"
        return entry, Change(kind="promote", entry_id=entry.id, detail=detail)


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


def uncounted_sources(playbook: Playbook, settings: PlanSettings) -> frozenset[str]:
    """Return the sources that count for nothing in a batch: revoked ones, and in public all that proves nothing."""
    unproven = {UNPROVEN} if rules_of(settings).quorum else frozenset[str]()
    return barred_sources(playbook) | unproven


def is_uncounted(source: Source | None, uncounted: Collection[str], settings: PlanSettings) -> bool:
    """Return whether a reflection's source is one of ``uncounted``."""
    names = names_counted(settings)
    return any(is_from(source, name, names) for name in uncounted)


def barred(playbook: Playbook, update: Update) -> tuple[str, ...]:
    """Return the reflections that never count: revoked ones, and the batch's of sources that count for nothing."""
    settings = update.plan.settings
    sources = uncounted_sources(playbook, settings)
    later = (
        seen.reflection_id for seen in update.result.seen if is_uncounted(seen.source, sources, settings)
    )
    return union(playbook.revoked, later) if sources else playbook.revoked


def with_sources(
    entries: Iterable[Entry], update: Update, landed: Mapping[str, Collection[str]]
) -> tuple[Entry, ...]:
    """Return entries with the names of the sources whose reflections say them now, the newest last.

    ``landed`` are the reflections of the batch, by entry, that it rests on; no others name anybody. Where others'
    names are not known, the first that is known does not stand alone.
    """
    seen, rules = update.result.seen, rules_of(update.plan.settings)
    names, unsure = names_of(seen, rules.names), unsure_of(seen, rules)

    def named(entry: Entry) -> Entry:
        here = frozenset(landed.get(entry.id, ()))
        new = [one for one in entry.evidence if one in here and one in names] if here else []
        said = [names[one] for one in new if one not in unsure]
        recognised = [names[one] for one in new if one in unsure and names[one] != UNPROVEN]
        if not (said or recognised):
            return entry
        is_known = bool(entry.sources) or entry.created_version == entry.updated_version
        if rules.weighs and not is_known and entry.evidence_count > len(new):
            recognised = [UNPROVEN, *recognised]
        update = {
            "sources": last_sources(entry.sources, said),
            "recognised": last_sources(entry.recognised, recognised),
        }
        return entry.model_copy(update=update)

    return tuple(map(named, entries))


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


def without_claims(playbook: Playbook, trust: Trust | None) -> Playbook:
    """Return a playbook as it is under a posture: names that a lab counted were only claimed.

    Several that taught there are one without a proof now: who comes next has not taught everything.
    """
    if playbook.trust != "lab" or trust == "lab":
        return playbook
    nobody: dict[str, object] = {"sources": (), "recognised": (), "harmed": (), "helped": ()}
    entries = tuple(entry.model_copy(update=nobody) for entry in playbook.entries)
    unproven = (TaughtBy(name=UNPROVEN, batches=1),) if len(playbook.taught_by) > 1 else ()
    return playbook.model_copy(update={"entries": entries, "taught_by": unproven, "trust": trust})


@once_per_version
def parts(playbook: Playbook) -> Mapping[str, Fraction]:
    """Return each source's part of a playbook's reflections."""
    counts = {source.name: source.reflections for source in playbook.taught_by if source.reflections}
    total = sum(counts.values())
    return {name: Fraction(count, total) for name, count in counts.items()}


def parts_if_several(playbook: Playbook) -> Parts:
    """Return the parts that bound each source's room where several teach; without a bound elsewhere."""
    return parts(playbook) if has_several(playbook) else UNBOUNDED


def proven_sources(playbook: Playbook) -> int:
    """Return how many proven sources have taught a playbook."""
    return sum(source.name != UNPROVEN for source in playbook.taught_by)


def trust_text(playbook: Playbook) -> str:
    """Return a playbook's posture in words, and whether anybody proves who they are; empty: nothing was learned."""
    if playbook.trust is None:
        return ""
    if playbook.trust == "lab":
        return "lab: everything counts at once"
    count = proven_sources(playbook)
    proving = f"{count} source{'s prove' if count > 1 else ' proves'} who they are"
    return f"{playbook.trust}: {proving if count else 'nobody proves who they are'}"
