"""Whether a batch's result says what its reflections taught, whatever the model reports about itself; pure.

The root of a scan decides once, over the batch's own reflections. A lesson is covered by a statement that says it:
an operation of the result, or an entry that stays. Words and embeddings witness that (`Statements`); else the check
call answers it (`combee.core.methods.checking`). What nothing says is carried: in the words of a lower node's
proposal, of a second answer, or of the reflection itself. Only lessons that an operation says are its evidence.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, islice
from typing import Literal

from combee.core.methods.checking import Checked, Rewrite
from combee.core.names.sources import UNPROVEN, counted_name, in_turn, supporters
from combee.core.playbook.operations import MAX_DETAIL_CHARS, union
from combee.core.playbook.results.echo import echoed, was_shown, without_echoes
from combee.core.playbook.results.guards import MAX_CONFLICTS, Guarded, guarded, rewrites
from combee.core.playbook.shown import words_since
from combee.core.playbook.trust import OPEN, PERSON, Rejections, Rules, Support, said_digest
from combee.core.text.figures import figures, lacking, qualifiers
from combee.core.text.forms import count_words
from combee.core.text.similarity.embeddings import UNMEASURED, Thresholds, Vector
from combee.core.text.similarity.lessons import Index, same_lesson
from combee.core.text.similarity.overlap import common, contradicts, said_words
from combee.core.text.similarity.saying import ONE_FRAME, Statements, says
from combee.core.text.similarity.wording import wording
from combee_schemas.playbook import ACE_SECTIONS, EVIDENCE_KEPT, Entry, Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import (
    Conflict,
    Echo,
    GroupMember,
    Known,
    NodeResult,
    Operation,
    OperationKind,
    Seen,
)

By = Literal["words", "meaning", "check"]
NEAREST = 4
"""Number of entries per lesson that a check call is shown next to the ones that the model claimed."""
VAGUE_WORDS = 4
"""Minimum words, grammar aside, of a lesson that is more than a general remark."""
CONTRADICTS = "more say it than what contradicts it"
UNCHECKED = "a condition or a negation: no check answered"
MAX_REWRITTEN_CHARS = 250_000
"""Maximum characters of the rewrites that a check call is asked about, in addition to the entries' own twice: one
reply can name every entry in each of its operations."""
MAX_DROPPED = 1 / 3
"""Maximum share of a batch's lessons that a model may drop as vague."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What one reflection of a batch taught."""

    member: GroupMember
    text: str

    @property
    def reflection(self) -> Reflection:
        """The reflection."""
        return self.member.reflection


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a check call is asked: lessons by their number, the places of statements, and rewrites of entries."""

    lessons: tuple[int, ...]
    statements: tuple[int, ...]
    rewrites: tuple[Rewrite, ...] = ()

    def halves(self) -> tuple["Question", ...]:
        """Return two smaller questions that ask the same together; nothing if this one cannot be halved."""
        lessons, statements = len(self.lessons) // 2, len(self.statements) // 2
        if self.rewrites or lessons >= max(1, statements):
            return self.fewer()
        if statements:
            start, end = self.statements[:statements], self.statements[statements:]
            return replace(self, statements=start), replace(self, statements=end)
        return ()

    def fewer(self) -> tuple["Question", ...]:
        """Return two questions with fewer answers each; nothing if this one asks for one answer."""
        if len(self.rewrites) > 1 or (self.rewrites and self.lessons):
            middle = len(self.rewrites) // 2 if not self.lessons else len(self.rewrites)
            first = Question(lessons=(), statements=(), rewrites=self.rewrites[:middle])
            return first, replace(self, rewrites=self.rewrites[middle:])
        middle = len(self.lessons) // 2
        start, end = self.lessons[:middle], self.lessons[middle:]
        return (replace(self, lessons=start), replace(self, lessons=end)) if middle else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Statement:
    """A text that may say a lesson: of an operation, by its place, or of an entry."""

    text: str
    operation: int | None = None
    entry_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    by: By
    score: float


Matches = Mapping[int, Mapping[int, _Match]]
"""By lesson: the statements that say it."""


def word_for_word(lessons: Iterable[Lesson]) -> tuple[Operation, ...]:
    """Return lessons as proposals in their own words."""
    return tuple(
        Operation(
            kind=OperationKind.ADD,
            section=ACE_SECTIONS[-1],
            content=lesson.text,
            evidence=(lesson.reflection.reflection_id,),
        )
        for lesson in lessons
    )


def is_vague(text: str) -> bool:
    """Return whether a text is too general to be a lesson: few words, and no figure, condition or negation."""
    return count_words(said_words(text)) < VAGUE_WORDS and not figures(text) and not qualifiers(text)


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The lessons of a batch, the statements of its result, and which statement says which lesson."""

    base: Playbook
    lessons: Sequence[Lesson]
    result: NodeResult
    """The result of the root's call; its operations name the reflections that the model claims."""
    added: tuple[Operation, ...] = ()
    """Operations that code adds to the model's."""
    rules: Rules = OPEN
    thresholds: Thresholds = UNMEASURED
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    """Embeddings by text, if there are any."""
    matches: Matches = field(default_factory=dict)
    against: Mapping[int, int] = field(default_factory=dict)
    """By lesson: the statement that contradicts it, by the check call's answer."""
    kept: frozenset[Rewrite] = frozenset()
    """Rewrites that lost no condition and no negation, by the check call's answer."""
    lost: Mapping[Rewrite, str] = field(default_factory=dict)
    """Rewrites that lost one, and its words."""
    outvoted: Mapping[int, int] = field(default_factory=dict)
    """By lesson: the statement that contradicts it and behind which more stands; so the lesson is not carried."""

    # ---- statements

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """The model's operations, and those that code added."""
        return (*self.result.operations, *self.added)

    @cached_property
    def statements(self) -> tuple[_Statement, ...]:
        """The contents of entries, then of operations."""
        entries = (_Statement(text=entry.content, entry_id=entry.id) for entry in self.base.entries)
        operations = (
            _Statement(text=operation.content, operation=place)
            for place, operation in enumerate(self.operations)
        )
        return (*entries, *operations)

    def texts(self) -> list[str]:
        """Return the texts to embed, each once: lessons, statements and proposals; none without lessons."""
        if not self.lessons:
            return []
        said = (lesson.text for lesson in self.lessons)
        stated = (statement.text for statement in self.statements)
        proposed = (operation.content for operation in self.result.aside)
        return [text for text in dict.fromkeys((*said, *stated, *proposed)) if text]

    def embedded(self, vectors: Mapping[str, Vector]) -> "Coverage":
        """Return the coverage with further embeddings, by text."""
        return replace(self, vectors={**self.vectors, **vectors})

    def witnessed(self, lessons: Iterable[int] | None = None, since: int = 0) -> "Coverage":
        """Return the coverage with what words and embeddings witness of the statements from place ``since`` on.

        ``lessons``: the numbers of those to compare; None: all.
        """
        statements = self._index(statement.text for statement in self.statements[since:])
        matches = {n: dict(places) for n, places in self.matches.items()}
        for n in range(len(self.lessons)) if lessons is None else lessons:
            for place, judgement in statements.saying(self.lessons[n].text).items():
                match = _Match(by=judgement.by, score=judgement.score)
                matches.setdefault(n, {})[since + place] = match
        return replace(self, matches=matches)

    def _index(self, texts: Iterable[str]) -> Statements:
        return Statements(list(texts), vectors=self.vectors, thresholds=self.thresholds)

    # ---- which statement counts

    @cached_property
    def advised(self) -> Mapping[int, tuple[str, ...]]:
        """By place of an operation: the reflections, of those that the model names, that support it otherwise.

        They speak against the entries of a REMOVE, or advise the operation's words next to their lesson.
        """
        contents = {entry.id: entry.content for entry in self.base.entries}
        named, supporting = defaultdict[str, list[int]](list), defaultdict[int, list[str]](list)
        for place, operation in enumerate(self.operations):
            for reflection_id in operation.evidence:
                named[reflection_id].append(place)

        def supports(lesson: Lesson, operation: Operation) -> bool:
            if operation.kind == OperationKind.REMOVE:
                removed = [contents[entry_id] for entry_id in operation.entry_ids if entry_id in contents]
                return _is_against(lesson, operation, removed)
            advice = lesson.reflection.correct_approach
            return advice != lesson.text and says(operation.content, advice)

        # By reflection, because the words of a long one are remembered only for a while.
        for lesson in self.lessons:
            for place in named.get(lesson.reflection.reflection_id, ()):
                if supports(lesson, self.operations[place]):
                    supporting[place].append(lesson.reflection.reflection_id)
        return {place: tuple(ids) for place, ids in sorted(supporting.items())}

    @cached_property
    def _waiting(self) -> frozenset[int]:
        """The places of what agents may not be shown: entries that wait, changes of entries, what was rejected."""
        rejections, weighs = Rejections.of(self.base), self.rules.weighs

        def waits(statement: _Statement) -> bool:
            if statement.operation is None:
                return weighs and not self._entries[statement.entry_id].is_active
            is_change = bool(self.operations[statement.operation].entry_ids)
            return (weighs and is_change) or rejections.has(statement.text)

        texts = Index()
        waiting = {place for place, one in enumerate(self.statements) if one.text and waits(one)}
        for place in waiting:
            texts.put(str(place), self.statements[place].text)
        # An addition in the words of what waits becomes one with it.
        added = range(len(self.base.entries), len(self.statements))
        return frozenset(waiting).union(place for place in added if texts.saying(self.statements[place].text))

    @cached_property
    def covering(self) -> Mapping[int, int]:
        """By lesson: the statement that counts as saying it.

        Of what agents may not be shown only words count: a model's word is no support for it. Which additions too
        few say in their words shows in what each of them rests on.
        """
        waiting = self._waiting
        while True:
            covering = self._covering(waiting)
            unsupported = self._unsupported(covering) - waiting
            if not unsupported:
                return covering
            waiting |= unsupported

    def _unsupported(self, covering: Mapping[int, int]) -> frozenset[int]:
        """Return the places of additions that a model finds lessons in, and that too few support in their words.

        No support is a reflection whose lesson a model finds elsewhere, or whose agent was shown those words.
        """
        if not self.rules.weighs:
            return frozenset()
        found = {n: place for n, place in covering.items() if self.matches[n][place].by != "words"}
        advising = {lesson.reflection.reflection_id: n for n, lesson in enumerate(self.lessons)}
        resting: dict[int, set[int]] = {
            place: {advising[one] for one in self.advised.get(at, ())}
            for place in found.values()
            if (at := self.statements[place].operation) is not None
        }
        for n, place in covering.items():
            if place in resting:
                resting[place].add(n)

        def supports(n: int, place: int) -> bool:
            return n not in found and not self._is_echo(n, place)

        def suffices(place: int, lessons: Iterable[int]) -> bool:
            sources = [self.lessons[n].reflection.source for n in lessons if supports(n, place)]
            names = [counted_name(source, self.rules.names) for source in sources]
            return Support(len(self.rules.counted(names)), len(names)).suffices(self.rules.to_add)

        return frozenset(place for place, lessons in resting.items() if not suffices(place, lessons))

    def _is_echo(self, n: int, place: int) -> bool:
        """Return whether a lesson's agent was shown what a statement says."""
        statement, shown = self.statements[place], self.lessons[n].reflection.shown
        if statement.operation is None:
            return was_shown(statement.entry_id, words_since(self.base)[statement.entry_id], shown)
        return bool(echoed(self.base, self.operations[statement.operation], shown))

    def _covering(self, waiting: Collection[int]) -> dict[int, int]:
        """Return by lesson the statement that counts as saying it; of those ``waiting`` only words count.

        An entry that stays comes first, since what is known is no news; then an operation on entries; then the
        operation that says most lessons, so that of two wordings one stays. An entry that an unsupported operation
        would have replaced stays, and counts after the model's operations. What code would add comes last.
        """
        counting: Matches = {
            n: {
                place: match for place, match in places.items() if match.by == "words" or place not in waiting
            }
            for n, places in sorted(self.matches.items())
            if n not in self.outvoted
        }
        touched = self._touched(range(len(self.operations)))
        covering = dict(self._by_entries(counting, touched))
        covering |= self._by_operations(counting, covering, carried=False)
        touched = self._touched(self._applied(covering))
        for n, place in list(covering.items()):
            if self.statements[place].entry_id in touched:
                del covering[n]
        left = {n: places for n, places in counting.items() if n not in covering}
        covering |= dict(self._by_entries(left, touched))
        return covering | self._by_operations(counting, covering, carried=True)

    def _by_entries(self, counting: Matches, touched: Collection[str]) -> Iterator[tuple[int, int]]:
        for n, places in counting.items():
            known = [
                (not self._is_echo(n, place), -match.score, place)
                for place, match in places.items()
                if (entry_id := self.statements[place].entry_id) and entry_id not in touched
            ]
            if known:
                yield n, min(known)[-1]

    def _by_operations(self, counting: Matches, covered: Collection[int], *, carried: bool) -> dict[int, int]:
        """Return the operation that says each lesson that is not covered; ``carried``: of the ADDs by code."""
        said = {
            n: [place for place in places if self._is_carried(place) is carried]
            for n, places in counting.items()
            if n not in covered
        }
        count = Counter(place for places in said.values() for place in places)

        def rank(place: int) -> tuple[bool, int, int]:
            operation = self.operations[self.statements[place].operation or 0]
            return operation.kind == OperationKind.ADD, -count[place], place

        return {n: min(places, key=rank) for n, places in said.items() if places}

    def _is_carried(self, place: int) -> bool | None:
        """Return whether a statement is an ADD of the operations that code added; None: it is an entry's."""
        at = self.statements[place].operation
        if at is None:
            return None
        return at >= len(self.result.operations) and self.operations[at].kind == OperationKind.ADD

    def _applied(self, covering: Mapping[int, int]) -> set[int]:
        """Return the places of the operations that a lesson supports."""
        supported = {self.statements[place].operation for place in covering.values()}
        return {place for place in supported if place is not None}.union(self.advised)

    def _touched(self, operations: Iterable[int]) -> set[str]:
        return {entry_id for place in operations for entry_id in self.operations[place].entry_ids}

    @cached_property
    def left(self) -> tuple[int, ...]:
        """The lessons that nothing says."""
        return tuple(n for n in range(len(self.lessons)) if n not in self.covering)

    @property
    def unsaid(self) -> tuple[int, ...]:
        """The lessons that neither an entry nor the model's own result says."""
        added = len(self.base.entries) + len(self.result.operations)
        return tuple(n for n in range(len(self.lessons)) if self.covering.get(n, added) >= added)

    # ---- the check call

    def with_proposals(self) -> "Coverage":
        """Return the coverage with the lost proposals of nodes below that say what is left.

        A check call is asked about them, too, so that of several wordings of a lesson one is carried.
        """
        return self.extended([one for one in self.result.aside if not one.entry_ids], self.left)

    def question(self) -> Question | None:
        """Return what to ask about the lessons that nothing witnesses; None: there is nothing to ask."""
        left = self._to_ask(self.unsaid)
        # Its answer about what waits, or about words that nobody says, would not count.
        shown = [place for place in range(len(self.base.entries)) if place not in self._waiting]
        entries = self._index(self.statements[place].text for place in shown)
        near = {shown[at] for n in left for at in entries.to_ask_about(self.lessons[n].text, NEAREST)}
        claimed = {claim.entry_id for claim in self.result.known}
        near.update(place for place in shown if self.statements[place].entry_id in claimed)
        said = {place for places in self.matches.values() for place in places}

        def may_count(place: int, at: int | None) -> bool:
            if at is None:
                return place in near
            return not self.rules.weighs or place in said or at in self.advised

        by_figures = {frozenset(figures(self.lessons[n].text)): self.lessons[n].text for n in left}
        asked = tuple(
            place
            for place, statement in enumerate(self.statements)
            if may_count(place, statement.operation)
            and statement.text
            # An answer with a statement that lacks a figure of the lesson would not count.
            and not all(lacking(statement.text, text) for text in by_figures.values())
        )
        doubtful = self._to_check(self._doubtful())
        if not (left and asked):
            left, asked = (), ()
        return Question(lessons=left, statements=asked, rewrites=doubtful) if left or doubtful else None

    def _doubtful(self) -> tuple[Rewrite, ...]:
        """Return the rewrites to ask about, of lost proposals too, of each source in turn, the shortest first."""
        lost = [one for one in self.result.aside if one.entry_ids]
        whole = self.extended(lost, range(len(self.lessons)))
        found = [rewrites(self.base, [one]) for one in whole.operations]
        said_by = [{self._names[one] for one in whole.advised.get(at, ())} for at in range(len(found))]
        for n, places in whole.matches.items():
            for place, match in places.items():
                at = whole.statements[place].operation
                if at is not None and match.by == "words":
                    said_by[at].add(self._names[self.lessons[n].reflection.reflection_id])
        sizes = [sum(len(one.before) + len(one.after) for one in pairs) for pairs in found]
        order = in_turn(said_by, sizes=sizes, order=sorted(range(len(sizes)), key=sizes.__getitem__))
        return tuple(dict.fromkeys(pair for at in order for pair in found[at]))

    @cached_property
    def _names(self) -> Mapping[str, str]:
        """The source for which each reflection counts."""
        seen = (lesson.reflection for lesson in self.lessons)
        return {one.reflection_id: counted_name(one.source, self.rules.names) for one in seen}

    def _to_check(self, doubtful: Sequence[Rewrite]) -> tuple[Rewrite, ...]:
        """Return the first rewrites that there is room to ask about; none of the others is applied."""
        room = MAX_REWRITTEN_CHARS + 2 * sum(len(entry.content) for entry in self.base.entries)
        sizes = accumulate(len(one.before) + len(one.after) for one in doubtful)
        return tuple(one for one, size in zip(doubtful, sizes, strict=True) if size <= room)

    def asked(self, question: Question) -> tuple[list[str], list[str]]:
        """Return the texts that a question is about: lessons and statements."""
        lessons = [self.lessons[n].text for n in question.lessons]
        return lessons, [self.statements[place].text for place in question.statements]

    def _to_ask(self, lessons: Iterable[int]) -> tuple[int, ...]:
        """Return the lessons, each wording once."""
        first: dict[str, int] = {}
        for n in lessons:
            first.setdefault(self.lessons[n].text, n)
        return tuple(first.values())

    def checked(self, asked: Question, answer: Checked) -> "Coverage":
        """Return the coverage with a check call's answer; an answer against the figures counts as no."""
        matches = {n: dict(found) for n, found in self.matches.items()}
        saying: dict[str, list[int]] = defaultdict(list)
        for n, one in enumerate(self.lessons):
            saying[one.text].append(n)
        for lesson, statement in answer.covered:
            text, place = self.lessons[asked.lessons[lesson]].text, asked.statements[statement]
            if not lacking(self.statements[place].text, text):
                for n in saying[text]:
                    matches.setdefault(n, {}).setdefault(place, _Match(by="check", score=1.0))
        lost = {asked.rewrites[place]: quote for place, quote in answer.lost}
        against = {
            n: asked.statements[statement]
            for lesson, statement in answer.against
            for text in [self.lessons[asked.lessons[lesson]].text]
            if common(text, self.statements[asked.statements[statement]].text) >= ONE_FRAME
            for n in saying[text]
        }
        kept = frozenset(asked.rewrites).difference(lost)
        return replace(
            self,
            matches=matches,
            kept=self.kept | kept,
            lost={**self.lost, **lost},
            against={**self.against, **against},
        )

    # ---- what contradicts what more say

    def without_outvoted(self) -> "Coverage":
        """Return the coverage in which what contradicts a statement that more say is a conflict, and is not carried.

        Three reflections of one batch are never outvoted: policies change. Where sources are proven, more of them
        must say the statement: one that repeats itself silences nobody. Where a lesson waits for a quorum of sources,
        so many must say the statement: fewer may collude. Neither a model's word nor an echo is support but in a lab.
        """
        unsaid = set(self.unsaid)
        groups: dict[tuple[tuple[str, ...], int], list[int]] = defaultdict(list)
        for n, place in self.against.items():
            if n in unsaid:
                groups[wording(self.lessons[n].text).words, place].append(n)
        saying: dict[int, list[int]] = defaultdict(list)
        for n, place in self.covering.items():
            is_said = self.matches[n][place].by == "words" and not self._is_echo(n, place)
            if is_said or not self.rules.weighs:
                saying[place].append(n)
        touched = self._touched(self._applied(self.covering))
        outvoted = {
            n: place
            for (_, place), own in islice(groups.items(), MAX_CONFLICTS)
            if len(own) < PERSON
            and self.statements[place].entry_id not in touched
            and self._stands_behind(saying[place], place)
            >= max(self.rules.quorum, self._stands_behind(own) + 1)
            for n in own
        }
        return replace(self, outvoted=outvoted)

    def _stands_behind(self, lessons: Iterable[int], place: int | None = None) -> int:
        """Return how much says something: proven sources, and where nobody proves who they are, reflections."""
        seen = [self.lessons[n].reflection for n in lessons]
        entry = None if place is None else self._entries.get(self.statements[place].entry_id)
        names = {one.source.name for one in seen if one.source and one.source.proven}
        if any(one.reflection.source and one.reflection.source.proven for one in self.lessons):
            return len(names.union(supporters(entry) if entry else ()) - {UNPROVEN})
        return len(seen) + (entry.evidence_count if entry else 0)

    @cached_property
    def _entries(self) -> Mapping[str, Entry]:
        return {entry.id: entry for entry in self.base.entries}

    # ---- carrying

    def carried(self) -> "Coverage":
        """Return the coverage with proposals of nodes below that the result lost and that say what is left.

        A proposal to change or remove entries is lost if nothing touches the same entries, whatever else says it.
        """
        touched = self._touched(self._applied(self.covering))
        lost = self.result.aside
        changes = [one for one in lost if one.entry_ids and touched.isdisjoint(one.entry_ids)]
        return self.extended(changes, range(len(self.lessons))).with_proposals()

    def extended(self, operations: Sequence[Operation], lessons: Iterable[int]) -> "Coverage":
        """Return the coverage with further operations, each once, as far as they say one of these lessons."""
        own = set(map(_effect, self.operations))
        further = {_effect(one): one for one in operations if _effect(one) not in own}
        if not further:
            return self
        grown = replace(self, added=(*self.added, *further.values()))
        return grown.witnessed(lessons, len(self.statements))

    @property
    def to_ask_again(self) -> list[GroupMember]:
        """The reflections whose lessons are left, for another ordinary call."""
        return [self.lessons[n].member for n in self._to_ask(self.to_carry)]

    def in_own_words(self) -> "Coverage":
        """Return the coverage with each lesson that is left, word for word; equal wordings share one."""
        left = self.to_carry
        words = word_for_word(self.lessons[n] for n in left)
        grown = self.extended(words, left)
        places = {_effect(one): len(self.base.entries) + place for place, one in enumerate(grown.operations)}
        own = {
            n: {**grown.matches.get(n, {}), places[_effect(one)]: _Match(by="words", score=1.0)}
            for n, one in zip(left, words, strict=True)
        }
        grown = replace(grown, matches={**grown.matches, **own})
        # By embeddings a lesson may stand behind words of others now, and no more behind its advice.
        return grown.in_own_words() if grown.to_carry else grown

    @property
    def to_carry(self) -> tuple[int, ...]:
        """The lessons that are left, without those that the model is believed to have dropped as vague."""
        dropped = set(self.dropped)
        return tuple(n for n in self.left if n not in dropped and n not in self.outvoted)

    @cached_property
    def dropped(self) -> tuple[int, ...]:
        """The lessons that are left, that the model dropped by name, and that are vague, within a bound."""
        named = {seen.reflection_id for seen in self.result.seen if seen.dropped}
        vague = (
            n
            for n in self.left
            if self.lessons[n].reflection.reflection_id in named and is_vague(self.lessons[n].text)
        )
        return tuple(vague)[: int(MAX_DROPPED * len(self.lessons))]

    # ---- the result

    def outcome(self) -> NodeResult:
        """Return the result with verified evidence, the model's operations first, and each lesson's fate.

        An operation of the model that nothing supports has no evidence; one that repeats an entry is left out.
        """
        own = len(self.result.operations)
        repeating: set[int | None] = set()
        on: dict[int, list[str]] = defaultdict(list, {at: list(ids) for at, ids in self.advised.items()})
        claims: dict[bool, dict[str, list[str]]] = {True: defaultdict(list), False: defaultdict(list)}
        for n, place in self.covering.items():
            statement, reflection_id = self.statements[place], self.lessons[n].reflection.reflection_id
            if statement.operation is not None:
                on[statement.operation].append(reflection_id)
            else:
                claims[self._is_echo(n, place)][statement.entry_id].append(reflection_id)
                repeating.update(self.statements[other].operation for other in self.matches[n])
        supported = [
            operation.model_copy(update={"evidence": tuple(dict.fromkeys(on[place]))})
            for place, operation in enumerate(self.operations)
            if on[place] or (place < own and place not in repeating)
        ]
        supported += (*self._said_too(), *self._contesting())
        news, echoes = without_echoes(self.base, [one.reflection for one in self.lessons], supported)
        kept = self._guarded(news)
        said_again = [Echo(entry_id=entry_id, evidence=tuple(ids)) for entry_id, ids in claims[True].items()]
        known = [
            Known(entry_id=entry_id, evidence=tuple(ids), said=said_digest(self._entries[entry_id].content))
            for entry_id, ids in claims[False].items()
        ]
        return self.result.model_copy(
            update={
                "status": "merged"
                if self.result.status == "merged"
                else "ok"
                if kept.operations
                else "empty",
                "operations": kept.operations,
                "conflicts": (*kept.conflicts, *self._contradicting()),
                "aside": (),
                "known": tuple(known),
                "echoes": _united((*echoes, *said_again)),
                "seen": tuple(self._seen()),
            }
        )

    def _said_too(self) -> Iterator[Operation]:
        """Yield additions in the words of entries that wait, with the lessons that say them and stand elsewhere.

        A source that says what waits supports it: else operations in a few other words would divide its sources.
        """
        said: dict[int, list[str]] = defaultdict(list)
        entries = range(len(self.base.entries))
        waiting = self._waiting.intersection(entries)
        for n, place in self.covering.items():
            if place in entries and place not in waiting:
                continue  # agents are shown it
            for other in waiting.intersection(self.matches[n]):
                is_other = not same_lesson(self.statements[place].text, self.statements[other].text)
                if is_other and self.matches[n][other].by == "words":
                    said[other].append(self.lessons[n].reflection.reflection_id)
        for place, evidence in sorted(said.items()):
            entry = self.base.entries[place]
            yield Operation(
                kind=OperationKind.ADD,
                section=entry.section,
                content=entry.content,
                evidence=tuple(evidence),
            )

    def _contesting(self) -> Iterator[Operation]:
        """Yield what contradicts an entry behind which more stands: it waits until as many sources have said it."""
        for (text, place), evidence in self._conflicting.items():
            if self._is_contesting(place):
                section = self._entries[self.statements[place].entry_id].section
                yield Operation(
                    kind=OperationKind.ADD, section=section, content=text, evidence=tuple(evidence)
                )

    def _is_contesting(self, place: int) -> bool:
        return self.rules.weighs and place < len(self.base.entries)

    def _guarded(self, operations: Sequence[Operation]) -> Guarded:
        """Return the operations without rewrites that lose something; a rewrite that was not checked may lose it."""
        by_id = {lesson.reflection.reflection_id: lesson for lesson in self.lessons}
        # Operations of a consolidation rest on their entries' evidence.
        supported = [operation for operation in operations if operation.evidence or not self.lessons]
        unchecked = (one for one in rewrites(self.base, supported) if one not in self.kept)
        harmful = {
            reflection_id: {tag.id for tag in lesson.reflection.bullet_tags if tag.tag == "harmful"}
            for reflection_id, lesson in by_id.items()
        }
        texts = {reflection_id: lesson.text for reflection_id, lesson in by_id.items()}
        lost = {**dict.fromkeys(unchecked, UNCHECKED), **self.lost}
        kept = guarded(self.base, supported, texts, harmful=harmful, lost=lost, names=self._names)
        unsupported = [operation for operation in operations if self.lessons and not operation.evidence]
        return replace(kept, operations=(*kept.operations, *unsupported))

    @property
    def _conflicting(self) -> Mapping[tuple[str, int], Sequence[str]]:
        """By text, and by the place of what contradicts it: the reflections that say it and are outvoted."""
        groups: dict[tuple[str, int], list[str]] = defaultdict(list)
        for n, place in self.outvoted.items():
            groups[self.lessons[n].text, place].append(self.lessons[n].reflection.reflection_id)
        return groups

    def _contradicting(self) -> Iterator[Conflict]:
        """Yield what contradicts a statement that more say, with the reflections that say it."""
        for (text, place), evidence in self._conflicting.items():
            statement = self.statements[place]
            yield Conflict(
                entry_id=statement.entry_id,
                against="" if statement.entry_id else statement.text,
                content=text[:MAX_DETAIL_CHARS],
                evidence=tuple(evidence[:EVIDENCE_KEPT]),
                why=CONTRADICTS,
            )

    def _seen(self) -> Iterator[Seen]:
        """Yield the batch's reflections, with what became of each."""
        places = {lesson.reflection.reflection_id: n for n, lesson in enumerate(self.lessons)}
        own = len(self.result.operations)
        contesting = {n for n, place in self.outvoted.items() if self._is_contesting(place)}
        dropped = {*self.dropped, *self.outvoted} - contesting
        claimed = claimed_by(self.result)
        for seen in self.result.seen:
            n = places.get(seen.reflection_id)
            if n is None:
                yield seen
                continue
            place = self.covering.get(n)
            update: dict[str, object] = {
                "said": seen.reflection_id in claimed or seen.dropped,
                "dropped": n in dropped,
                "text": self.lessons[n].text[:MAX_DETAIL_CHARS] if n in dropped else "",
                "covered": "carried" if n in contesting else "",
            }
            if place is not None:
                operation, match = self.statements[place].operation, self.matches[n][place]
                is_put_in = operation is not None and operation >= own
                # A proposal that only a model takes for the lesson is no more support for being carried.
                put_in = "carried" if match.by == "words" else "proposal"
                update |= {"covered": put_in if is_put_in else match.by, "score": round(match.score, 2)}
            yield seen.model_copy(update=update)


def unchecked(result: NodeResult) -> NodeResult:
    """Return a root's result that nothing checks, with the reflections that the model claims."""
    claimed = claimed_by(result)
    seen = (
        one.model_copy(update={"said": one.dropped or one.reflection_id in claimed}) for one in result.seen
    )
    return result.model_copy(update={"seen": tuple(seen)})


def claimed_by(result: NodeResult) -> frozenset[str]:
    """Return the reflections that a model says its answer holds."""
    claims: tuple[Operation | Known, ...] = (*result.operations, *result.known)
    return frozenset(reflection_id for claim in claims for reflection_id in claim.evidence)


def _is_against(lesson: Lesson, removal: Operation, contents: Iterable[str]) -> bool:
    """Return whether a reflection found the entry harmful, or advises the contrary; its errors are no advice."""
    harmful = {tag.id for tag in lesson.reflection.bullet_tags if tag.tag == "harmful"}
    text = f"{lesson.text}\n{lesson.reflection.correct_approach}"
    return not harmful.isdisjoint(removal.entry_ids) or any(contradicts(text, said) for said in contents)


def _effect(operation: Operation) -> tuple[object, ...]:
    return operation.kind, operation.entry_ids, operation.content


def _united(echoes: Iterable[Echo]) -> tuple[Echo, ...]:
    """Return one echo per entry."""
    by_entry: dict[str, tuple[str, ...]] = {}
    for echo in echoes:
        by_entry[echo.entry_id] = union(by_entry.get(echo.entry_id, ()), echo.evidence)
    return tuple(Echo(entry_id=entry_id, evidence=ids) for entry_id, ids in by_entry.items())
