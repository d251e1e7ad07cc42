"""One node's work: ask the model for operations; everything around the reply is code."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

from combee.core import operations as ops
from combee.core.methods import ace
from combee.ports import LanguageModel, PoisonError, PromptTooLongError
from combee_schemas.base import Usage
from combee_schemas.playbook import Playbook
from combee_schemas.scan import GroupMember, NodeStatus, Operation, Partial, Seen

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a node passes on; ``usage`` is of its whole sub-tree."""

    status: NodeStatus
    reason: str = ""
    operations: tuple[Operation, ...] = ()
    seen: tuple[Seen, ...] = ()
    usage: Usage = field(default_factory=Usage)


class Aggregator:
    """Asks one model in the ACE method's words."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    async def group(self, base: Playbook, members: Sequence[GroupMember]) -> Outcome:
        """Return a level-0 node's outcome; a reply that stays unusable is a failed outcome, not an error."""
        prompt = ace.aggregate_prompt(base, [member.reflection for member in members])
        try:
            reply = await self._model.ask(prompt)
            sources = [(member.reflection.reflection_id,) for member in members]
            found = _usable(ops.read_operations(reply.body, sources))
        except PromptTooLongError as error:
            if len(members) > 1:
                left, right = _halves(members)
                return _joined(await self.group(base, left), await self.group(base, right))
            return Outcome(status="failed", reason=str(error), seen=_seen(members, ok=False))
        except PoisonError as error:
            return Outcome(
                status="failed", reason=str(error), seen=_seen(members, ok=False), usage=error.usage
            )
        status: NodeStatus = "ok" if found else "empty"
        return Outcome(status=status, operations=found, seen=_seen(members, ok=True), usage=reply.usage)

    async def combine(self, base: Playbook, level: int, children: Sequence[Partial]) -> Outcome:
        """Return an upper node's outcome: no call for fewer than two children that propose something."""
        seen = ops.merge_seen(child.seen for child in children)
        usage = sum((child.usage for child in children), Usage())
        proposals = [child for child in children if child.operations]
        if len(proposals) <= 1:
            passed = proposals[0].operations if proposals else ()
            return Outcome(
                status="passed" if proposals else "empty", operations=passed, seen=seen, usage=usage
            )
        items = tuple(chain.from_iterable(child.operations for child in proposals))
        try:
            found, own = await self._combine(base, level, items)
        except PoisonError as error:
            return Outcome(
                status="merged",
                reason=str(error),
                operations=ops.merge(items),
                seen=seen,
                usage=usage + error.usage,
            )
        return Outcome(status="ok", operations=found, seen=seen, usage=usage + own)

    async def _combine(
        self, base: Playbook, level: int, items: Sequence[Operation]
    ) -> tuple[tuple[Operation, ...], Usage]:
        try:
            reply = await self._model.ask(ace.combine_prompt(base, items), priority=level)
        except PromptTooLongError:
            if len(items) == 1:
                return tuple(items), Usage()
            left, right = _halves(items)
            first, second = await self._combine(base, level, left), await self._combine(base, level, right)
            return ops.merge((*first[0], *second[0])), first[1] + second[1]
        sources = [item.evidence for item in items]
        return _usable(ops.read_operations(reply.body, sources)), reply.usage


def shortened(outcome: Outcome) -> Outcome:
    """Return a smaller outcome: first without tags, then with half of its operations each time; recorded."""
    if any(one.tags for one in outcome.seen):
        bare = tuple(one.model_copy(update={"tags": ()}) for one in outcome.seen)
        return replace(outcome, seen=bare, reason=f"tags dropped for size; {outcome.reason}")
    if not outcome.operations:
        raise PoisonError("the ids alone are too many for one record: use a smaller batch size")
    kept = outcome.operations[: len(outcome.operations) // 2]
    note = f"{len(outcome.operations) - len(kept)} operations dropped for size; {outcome.reason}"
    return replace(outcome, operations=kept, reason=note)


def _usable(read: tuple[tuple[Operation, ...], int]) -> tuple[Operation, ...]:
    found, unusable = read
    if unusable and not found:
        raise PoisonError(f"none of {unusable} operations was usable")
    return found


def _halves(items: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    middle = len(items) // 2
    return items[:middle], items[middle:]


def _joined(left: Outcome, right: Outcome) -> Outcome:
    """Return the outcome of a group that had to be asked in halves; one half may have failed."""
    found = ops.merge((*left.operations, *right.operations))
    failed = left.status == right.status == "failed"
    status: NodeStatus = "failed" if failed else "ok" if found else "empty"
    return Outcome(
        status=status,
        reason="; ".join(one.reason for one in (left, right) if one.reason),
        operations=found,
        seen=(*left.seen, *right.seen),
        usage=left.usage + right.usage,
    )


def _seen(members: Sequence[GroupMember], *, ok: bool) -> tuple[Seen, ...]:
    return tuple(
        Seen(
            reflection_id=member.reflection.reflection_id,
            offset=member.offset,
            ok=ok,
            tags=member.reflection.bullet_tags if ok else (),
        )
        for member in members
    )
