"""Results of one combine's calls: one call for all proposals, or one for each half."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from combee.core.methods.method import Method
from combee.core.playbook import operations as ops
from combee.scan.outcome import reasons
from combee_schemas.base import Usage
from combee_schemas.playbook import Playbook
from combee_schemas.scan import Echo, Known, NodeStatus, Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """Result of one combine call, or of its halves."""

    status: NodeStatus
    operations: tuple[Operation, ...]
    sure: frozenset[str]
    """Evidence of the operations that the model named, or that code passed on without an answer."""
    left_out: frozenset[str] = frozenset()
    """Evidence of the proposals that code carried."""
    known: tuple[Known, ...] = ()
    echoes: tuple[Echo, ...] = ()
    dropped: frozenset[str] = frozenset()
    """Evidence of the dropped items."""
    carried: int = 0
    reason: str = ""
    usage: Usage = field(default_factory=Usage)
    requests: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()


def passed(items: Sequence[Operation], status: NodeStatus, *, usage: Usage, reason: str = "") -> Combined:
    """Return proposals that code passed on without an answer."""
    sure = ops.rests(items)
    return Combined(status=status, operations=tuple(items), sure=sure, usage=usage, reason=reason)


def united(method: Method, base: Playbook, parts: Sequence[Combined]) -> Combined:
    """Return the parts of a combine merged by code."""
    operations = tuple(chain.from_iterable(part.operations for part in parts))
    return Combined(
        status="merged" if any(part.status == "merged" for part in parts) else "ok",
        operations=method.merge(base, operations),
        sure=frozenset[str]().union(*(part.sure for part in parts)),
        left_out=frozenset[str]().union(*(part.left_out for part in parts)),
        known=tuple(chain.from_iterable(part.known for part in parts)),
        echoes=tuple(chain.from_iterable(part.echoes for part in parts)),
        dropped=frozenset[str]().union(*(part.dropped for part in parts)),
        carried=sum(part.carried for part in parts),
        reason=reasons(part.reason for part in parts),
        usage=sum((part.usage for part in parts), Usage(splits=len(parts) - 1)),
        requests=tuple(chain.from_iterable(part.requests for part in parts)),
        scope=ops.union(*(part.scope for part in parts)),
    )
