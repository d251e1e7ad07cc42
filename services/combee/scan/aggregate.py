"""One node's work: ask the model for operations; everything around the reply is code."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

from combee.core import operations as ops
from combee.core.method import Answer, Method
from combee.core.methods import ace
from combee.ports import LanguageModel, PoisonError, PromptTooLongError
from combee_schemas.base import Usage
from combee_schemas.model import Reply
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Echo, GroupMember, NodeStatus, Operation, Partial, Seen

T = TypeVar("T")
SKIPPED = Usage(skips=1)
SPLIT = Usage(splits=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a node passes on; ``usage`` and ``carried`` are of its whole sub-tree."""

    status: NodeStatus
    reason: str = ""
    operations: tuple[Operation, ...] = ()
    seen: tuple[Seen, ...] = ()
    echoes: tuple[Echo, ...] = ()
    carried: int = 0
    usage: Usage = field(default_factory=Usage)


class Aggregator:
    """Asks one model in a method's words."""

    def __init__(self, model: LanguageModel, method: Method = ace, *, carry: bool = True) -> None:
        self._model = model
        self._method = method
        self._carry = carry
        """Pass on by code what a combine neither used nor dropped by name: the overloaded model's loss."""

    async def group(self, base: Playbook, members: Sequence[GroupMember]) -> Outcome:
        """Return a level-0 node's outcome; a reply that stays unusable is a failed outcome, not an error."""
        prompt = self._method.aggregate_prompt(base, [member.reflection for member in members])
        try:
            reply = await self._model.ask(prompt)
            answer = self._read(base, reply, [(member.reflection.reflection_id,) for member in members])
        except PromptTooLongError as error:
            if len(members) > 1:
                left, right = _halves(members)
                return self._joined(base, await self.group(base, left), await self.group(base, right))
            return Outcome(status="failed", reason=str(error), seen=_seen(members, ok=False))
        except PoisonError as error:
            return Outcome(
                status="failed", reason=str(error), seen=_seen(members, ok=False), usage=error.usage
            )
        status: NodeStatus = "ok" if answer.operations else "empty"
        return Outcome(
            status=status, operations=answer.operations, seen=_seen(members, ok=True), usage=reply.usage
        )

    async def combine(self, base: Playbook, level: int, children: Sequence[Partial]) -> Outcome:
        """Return an upper node's outcome: no call for fewer than two children that propose something."""
        below = Outcome(
            status="passed",
            seen=ops.merge_seen(child.seen for child in children),
            echoes=tuple(chain.from_iterable(child.echoes for child in children)),
            carried=sum(child.carried for child in children),
            usage=sum((child.usage for child in children), Usage()),
        )
        proposals = [child for child in children if child.operations]
        if not proposals:
            return replace(below, status="empty", usage=below.usage + SKIPPED)
        if len(proposals) == 1:
            return replace(below, operations=proposals[0].operations, usage=below.usage + SKIPPED)
        items = tuple(chain.from_iterable(child.operations for child in proposals))
        try:
            own = await self._combine(base, level, items)
        except PoisonError as error:
            merged = self._method.merge(base, items)
            usage = below.usage + error.usage
            return replace(below, status="merged", reason=str(error), operations=merged, usage=usage)
        return replace(
            below,
            status="ok",
            operations=own.operations,
            carried=below.carried + own.carried,
            usage=below.usage + own.usage,
        )

    async def _combine(self, base: Playbook, level: int, items: Sequence[Operation]) -> Outcome:
        try:
            reply = await self._model.ask(self._method.combine_prompt(base, items), priority=level)
        except PromptTooLongError:
            if len(items) == 1:
                return Outcome(status="merged", operations=tuple(items))
            left, right = _halves(items)
            return self._joined(
                base, await self._combine(base, level, left), await self._combine(base, level, right)
            )
        answer = self._read(base, reply, [item.evidence for item in items])
        left_out = [item for n, item in enumerate(items, 1) if n not in answer.mentioned]
        if not self._carry or not left_out:
            return Outcome(status="ok", operations=answer.operations, usage=reply.usage)
        return Outcome(
            status="ok",
            operations=self._method.merge(base, (*answer.operations, *left_out)),
            carried=len(left_out),
            usage=reply.usage,
        )

    def _read(self, base: Playbook, reply: Reply, sources: Sequence[tuple[str, ...]]) -> Answer:
        answer = self._method.read(base, reply.body, sources)
        if answer.unusable and not answer.operations:
            error = PoisonError(f"none of {answer.unusable} operations was usable")
            error.usage = reply.usage
            raise error
        return answer

    def _joined(self, base: Playbook, left: Outcome, right: Outcome) -> Outcome:
        """Return the outcome of a node that had to be asked in halves; one half may have failed."""
        found = self._method.merge(base, (*left.operations, *right.operations))
        failed = left.status == right.status == "failed"
        status: NodeStatus = "failed" if failed else "ok" if found else "empty"
        return Outcome(
            status=status,
            reason="; ".join(one.reason for one in (left, right) if one.reason),
            operations=found,
            seen=(*left.seen, *right.seen),
            carried=left.carried + right.carried,
            usage=left.usage + right.usage + SPLIT,
        )


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


def _halves(items: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    middle = len(items) // 2
    return items[:middle], items[middle:]


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
