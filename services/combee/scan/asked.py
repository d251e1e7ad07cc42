"""The model calls that a batch's nodes may make (``Call``), and what came of each (``Part``); pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from combee.core.methods import checking, consolidation
from combee.core.methods.method import Method
from combee.core.playbook.results.coverage import Coverage, Question
from combee.core.text.shortening import shorter_reflection
from combee_schemas.base import Usage
from combee_schemas.batch import Cluster
from combee_schemas.model import Prompt
from combee_schemas.playbook import Playbook
from combee_schemas.scan import GroupMember, Operation

Items = TypeVar("Items")
T = TypeVar("T")
A = TypeVar("A")

SKIPPED = Usage(skips=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[Items, A]):
    """What one call was about, and its answer; None: there is none for good, and ``problem`` says why."""

    items: Items
    answer: A | None = None
    problem: str = ""
    is_too_long: bool = False
    """Whether there is no answer because the items are too long for the model however they are cut."""
    usage: Usage
    request: str = ""


def unanswered(items: Items, problem: str, usage: Usage, *, is_too_long: bool = False) -> Part[Items, Any]:
    """Return a part without an answer for good; a call without any reply counts as not made."""
    made = usage if usage.calls else usage + SKIPPED
    return Part(items=items, problem=problem, is_too_long=is_too_long, usage=made)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[Items]):
    """A call to make: what it is about, and its prompt."""

    items: Items
    prompt: Prompt
    owner: str
    """The playbook: where the model's limits make calls wait, playbooks take turns."""
    halves: Callable[[], Iterable["Call[Items]"]] = tuple
    """Returns the calls to make instead where the prompt is too long; none: it cannot be halved."""
    fewer: Callable[[], Iterable["Call[Items]"]] = tuple
    """Returns those to make instead where the reply was cut off."""
    shorter: Callable[[], Iterable[Prompt]] = tuple
    """Returns ever shorter prompts about the same items, for a call that cannot be halved."""


def of_group(
    method: Method, base: Playbook, members: Sequence[GroupMember], *, again: bool = False
) -> Call[Sequence[GroupMember]]:
    """Ask for the operations that reflections support; ``again``: for lessons that a first answer lacks."""

    def halves() -> Iterable[Call[Sequence[GroupMember]]]:
        return [of_group(method, base, half, again=again) for half in _halves(members)]

    return Call(
        items=members,
        prompt=method.aggregate_prompt(base, [member.reflection for member in members]),
        owner=base.name,
        halves=halves,
        fewer=halves if again else tuple,
        shorter=lambda: _shorter(method, base, members),
    )


def of_combine(
    method: Method, base: Playbook, items: Sequence[Operation], names: Mapping[str, str]
) -> Call[Sequence[Operation]]:
    """Ask to combine proposals; ``names``: the sources of the reflections behind them."""
    return Call(
        items=items,
        prompt=method.combine_prompt(base, items, names),
        owner=base.name,
        halves=lambda: [of_combine(method, base, half, names) for half in _halves(items)],
    )


def of_clusters(base: Playbook, clusters: Sequence[Cluster]) -> Call[Sequence[Cluster]]:
    """Ask what to do with clusters of entries."""
    return Call(
        items=clusters,
        prompt=consolidation.prompt(base, clusters),
        owner=base.name,
        halves=lambda: [of_clusters(base, half) for half in _halves(clusters)],
    )


def of_check(coverage: Coverage, question: Question) -> Call[Question]:
    """Ask which statements say the lessons of a question."""
    return Call(
        items=question,
        prompt=checking.prompt(*coverage.asked(question), question.rewrites),
        owner=coverage.base.name,
        halves=lambda: [of_check(coverage, half) for half in question.halves()],
        fewer=lambda: [of_check(coverage, half) for half in question.fewer()],
    )


def _halves(items: Sequence[T]) -> tuple[Sequence[T], ...]:
    middle = len(items) // 2
    return (items[:middle], items[middle:]) if middle else ()


def _shorter(method: Method, base: Playbook, members: Sequence[GroupMember]) -> Iterator[Prompt]:
    """Yield ever shorter prompts about one reflection: it and the playbook are cut."""
    if len(members) != 1:
        return
    # The model must read a text whole to rewrite it.
    entries = base.entries if method.HOLDS == "entries" else ()
    for reflection, left in shorter_reflection(members[0].reflection, entries):
        less = base.model_copy(update={"entries": left}) if entries else base
        yield method.aggregate_prompt(less, [reflection])
