"""Which operations of a batch count: what rests on reflections, no person rejected, no rule holds back; pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from combee.core.playbook.clusters import ALIKE
from combee.core.playbook.guards import unites
from combee.core.playbook.probation import is_active
from combee.core.playbook.screening import Refused, Relations, Screen, Screened
from combee.core.playbook.sections import same_section
from combee.core.text.similarity.lessons import at_odds, same_lesson
from combee.core.text.similarity.overlap import common
from combee.core.text.similarity.wording import wording
from combee_schemas.digests import digest
from combee_schemas.playbook import ACE_SECTIONS, Playbook, Rejected
from combee_schemas.scan import Operation, OperationKind


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


def admitted(base: Playbook, operations: Sequence[Operation], screen: Screen) -> Screened:
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
    screened = screen.screened(base, permitted, _RELATIONS)
    passed: Sequence[Operation] = screened.passed
    renamed: Sequence[Refused] = ()
    if screen.rules.weighs:
        passed, renamed = _under_known_headers(base, passed, screen)
    return replace(screened, passed=passed, refused=(*rejected, *screened.refused, *renamed))


def _is_related(content: str, other: str) -> bool:
    """Return whether two contents are about one thing: alike, the same lesson, or at odds.

    It depends on these two alone: a batch that is applied again, to other entries, gets the same answer.
    """
    return common(content, other) >= ALIKE or same_lesson(content, other) or at_odds(content, other)


_RELATIONS = Relations(same=same_lesson, related=_is_related, unites=unites)


def _under_known_headers(
    base: Playbook, operations: Iterable[Operation], screen: Screen
) -> tuple[Sequence[Operation], Sequence[Refused]]:
    """Return operations of which none begins a section that its screen holds back.

    Where only proven sources count, that is any section: reflections do not name sections, so a header has no
    witnesses. Elsewhere it is one whose name is more than a name. What an operation says is judged by itself: so
    nobody bars an honest lesson by the header that he gives it.
    """
    headers = (entry.section for entry in base.entries if is_active(entry))
    known = dict.fromkeys((*base.sections, *ACE_SECTIONS, *headers))
    placed, refused = list[Operation](), list[Refused]()
    for operation in operations:
        is_new = operation.kind == OperationKind.ADD and same_section(operation.section, known) not in known
        if is_new and (why := screen.doubt_of_section(operation.section)):
            why = f"its section {why}, so it stands under {ACE_SECTIONS[-1]}"
            refused.append(Refused(operation=operation, why=why))
            operation = operation.model_copy(update={"section": ACE_SECTIONS[-1]})  # noqa: PLW2901
        placed.append(operation)
    return placed, refused
