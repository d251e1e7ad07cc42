"""A playbook that learns from reflections whose curator obeys an attacker: whole batches, as in the product."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from combee.core.methods.checking import Checked
from combee.core.playbook import executing, trust, versions
from combee.core.playbook.operations import lesson_of, read_operations
from combee.core.playbook.results.coverage import Coverage, Lesson
from combee.core.playbook.shown import as_seen_on
from combee.core.playbook.versions import empty
from combee_schemas.base import Shown, Source
from combee_schemas.plan import CloseReason
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import BulletTag, Reflection
from combee_schemas.scan import GroupMember, Known, NodeResult, Seen, Update
from support.playbooks import PLENTY, command, update_of

TEAM: Mapping[str, Any] = {"trust": "team"}
PUBLIC: Mapping[str, Any] = {"trust": "public", "colluders": 3}
LESSONS = (
    "Escalate refunds above the limit to a supervisor",
    "Escalate refunds above the limit to a manager within a day",
    "Ask for the order number before anything else",
    "Look up the warranty before promising a repair",
    "Gift cards are valid for three years from purchase",
)
"""What honest sources say in random lives; the first two are of one subject."""
NOTHING: Mapping[str, str] = MappingProxyType({})
Check = Callable[[Sequence[str], Sequence[str]], Checked]
"""A check call: of lessons and statements."""
NO_CLAIMS: Mapping[int, str] = MappingProxyType({})
UNKNOWN = "u"
"""A source that proves nothing."""


@dataclass(slots=True)
class Teaching:
    """A playbook, and the batches that it learns from."""

    rules: Mapping[str, Any]
    playbook: Playbook = field(default_factory=lambda: empty("p"))
    budget: int = PLENTY
    count: int = 0
    batch: list[Reflection] = field(default_factory=list)
    past: list[tuple[Playbook, Update | None]] = field(default_factory=list)
    """The versions, each with what made it if a batch did."""

    def say(
        self,
        lesson: str,
        sources: str,
        *,
        harmful: Sequence[str] = (),
        helpful: Sequence[str] = (),
        advice: str = "",
        error: str = "",
    ) -> None:
        """Let each of these sources, one letter each, say a lesson; ``harmful``, ``helpful``: what it tags."""
        tags = (
            *(BulletTag(id=entry_id, tag="harmful") for entry_id in harmful),
            *(BulletTag(id=entry_id, tag="helpful") for entry_id in helpful),
        )
        for source in sources:
            self.count += 1
            self.batch.append(
                Reflection(
                    reflection_id=f"r-{self.count}",
                    playbook="p",
                    key_insight=lesson,
                    correct_approach=advice,
                    error_identification=error,
                    bullet_tags=tags,
                    source=Source(name=source, proven="" if source == UNKNOWN else "secret"),
                    shown=Shown(version=self.playbook.version) if tags else None,
                )
            )

    def read(self, version: Playbook, *ids: str) -> None:
        """Let the agents of all that was said have been shown these entries of a version, all by default."""
        shown = Shown(version=version.version, entry_ids=ids or tuple(one.id for one in version.entries))
        self.batch = [one.model_copy(update={"shown": shown}) for one in self.batch]

    def learn(
        self,
        *operations: Mapping[str, Any],
        misled: str = "",
        against: str = "",
        lost: Sequence[Mapping[str, Any]] = (),
        base: Playbook | None = None,
        meaning: Mapping[str, str] = NOTHING,
        known: Mapping[int, str] = NO_CLAIMS,
        check: Check | None = None,
        reason: CloseReason = "size",
    ) -> None:
        """Learn from what was said.

        ``meaning``: by text what it means; a check call that errs nowhere finds a lesson in the last text that means
        the same. ``misled``: a check call takes this text for every lesson that nothing says. ``against``: it says
        that all of them contradict this one. ``lost``: proposals of groups that the root's answer does not repeat.
        ``base``: the version that the batch reads, if an earlier one. ``known``: by number of an item, the entry of
        which the curator claims that it says the same. ``check``: a check call, in place of these.
        """
        read = base or self.playbook
        # What is asked about again stands where it came first.
        members = [
            GroupMember(offset=int(one.reflection_id[2:]), reflection=as_seen_on(read, one))
            for one in self.batch
        ]
        items = [(one.reflection_id,) for one in self.batch]
        answer, aside = (read_operations({"operations": list(one)}, items) for one in (operations, lost))
        result = NodeResult(
            status="ok",
            operations=answer.operations,
            aside=aside.operations,
            known=tuple(Known(entry_id=entry_id, evidence=items[n - 1]) for n, entry_id in known.items()),
            seen=tuple(
                Seen(
                    reflection_id=one.reflection.reflection_id,
                    offset=one.offset,
                    tags=one.reflection.bullet_tags,
                    shown_version=one.reflection.shown.version if one.reflection.shown else None,
                    source=one.reflection.source,
                )
                for one in members
            ),
        )
        made = update_of(self.playbook, [], [], reason, **self.rules)
        settings = made.plan.settings
        uncounted = trust.uncounted_sources(read, settings)
        said = [
            Lesson(member=one, text=lesson_of(one.reflection))
            for one in members
            if not trust.is_uncounted(one.reflection.source, uncounted, settings)
        ]
        coverage = Coverage(base=read, lessons=said, result=result, rules=trust.rules_of(settings))
        coverage = coverage.witnessed().with_proposals()
        if question := coverage.question():
            says, contradicts = (
                tuple(
                    (lesson, place)
                    for place, statement in enumerate(question.statements)
                    for lesson in range(len(question.lessons))
                    if coverage.statements[statement].text == text
                )
                for text in (misled, against)
            )
            lessons, statements = coverage.asked(question)
            same = {meaning[text]: place for place, text in enumerate(statements) if text in meaning}
            says += tuple(
                (lesson, same[meaning[text]])
                for lesson, text in enumerate(lessons)
                if meaning.get(text) in same
            )
            found = check(lessons, statements) if check else Checked(covered=says, against=contradicts)
            coverage = coverage.checked(question, found)
        plan = made.plan.model_copy(update={"through_offset": self.count, "base_version": read.version})
        outcome = coverage.without_outvoted().carried().in_own_words().outcome()
        made = made.model_copy(update={"plan": plan, "result": outcome, "manifest_offset": plan.sequence})
        self.playbook = versions.after_update(self.playbook, made, budget_tokens=self.budget, now_ms=0)
        self.past.append((self.playbook, made))
        self.batch = []

    def id_of(self, content: str) -> str:
        """Return the id of the entry that says a content."""
        return next(entry.id for entry in self.playbook.entries if entry.content == content)

    def shown(self) -> set[str]:
        """Return what agents are shown."""
        return {entry.content for entry in self.playbook.entries if entry.is_active}


def op(kind: str, content: str, *entry_ids: str) -> dict[str, Any]:
    """Return an operation of a curator that obeys: on the word of all items."""
    return {"type": kind, "section": "OTHERS", "content": content, "entry_ids": list(entry_ids)}


def rejected(
    candidate: Playbook, entry_id: str, production: Playbook, newest: Playbook | None = None
) -> Playbook:
    """Return the version in which a person has rejected what a candidate says in an entry."""
    return executing.after_rejection(
        newest or candidate,
        command("reject", entry_ids=(entry_id,)),
        candidate=candidate,
        production=production,
        behind={entry_id: ()},
        between=(production, candidate),
        budget_tokens=PLENTY,
        now_ms=0,
    )
