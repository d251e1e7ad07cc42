"""A batch's tree as its nodes finish; manifest and results may be read in any order."""

from combee.core.batching.tree import child_indices, is_root, parent_index
from combee.core.log.live.values import LiveBatch, LiveNode, NodeState
from combee.core.names import identity
from combee_schemas.batch import Batch
from combee_schemas.plan import Plan
from combee_schemas.scan import Partial, Update

Place = tuple[int, int]
"""Level and index of a node."""


class BatchTree:
    """The nodes of one batch; ``shown`` is recomputed only after a change."""

    def __init__(self, plan: Plan) -> None:
        self.batch = _described(plan)
        self._done: dict[Place, LiveNode] = {}
        self._left_out: set[Place] = set()
        self._shown: LiveBatch | None = None

    def describe(self, manifest: Batch) -> None:
        """Add the manifest's information."""
        reasons = [
            manifest.shape_reason,
            *([f"embeddings: {manifest.embeddings}"] if manifest.embeddings else []),
        ]
        shape = {"copies": manifest.copies, "shape_reason": "; ".join(reasons)}
        self._change(self.batch.model_copy(update=shape))

    def finish(self, message: Partial | Update, at_ms: int) -> None:
        """Add a node's result; the first in the log counts."""
        level, index = (
            (message.level, message.index)
            if isinstance(message, Partial)
            else (len(self.batch.widths) - 1, 0)
        )
        if (level, index) in self._done or not self._has(level, index):
            return
        result = message.result
        for child in result.left_out:
            self._leave_out(level - 1, child)
        self._done[level, index] = self._node(level, index, "done").model_copy(
            update={
                "status": result.status,
                "reason": result.reason,
                "operations": len(result.operations),
                "seen": len(result.seen),
                "tokens_in": result.usage.tokens_in,
                "tokens_out": result.usage.tokens_out,
                "at_ms": at_ms,
            }
        )
        self._change(self.batch)

    def _leave_out(self, level: int, index: int) -> None:
        """Mark a sub-tree as left out, whatever its results."""
        if self._has(level, index):
            self._left_out.add((level, index))
            for child in child_indices(self.batch.widths, level, index) if level else ():
                self._leave_out(level - 1, child)

    def become(self, version: int, at_ms: int) -> None:
        """Add the version that this batch became."""
        self._change(self.batch.model_copy(update={"version": version, "done_at_ms": at_ms}))

    @property
    def shown(self) -> LiveBatch:
        """The batch with all its nodes."""
        if self._shown is None:
            places = [
                (level, index) for level, width in enumerate(self.batch.widths) for index in range(width)
            ]
            nodes = tuple(map(self._shown_node, places))
            self._shown = self.batch.model_copy(update={"nodes": nodes})
        return self._shown

    def _shown_node(self, place: Place) -> LiveNode:
        if place in self._left_out:
            return self._node(*place, "left_out")
        return self._done.get(place) or self._node(*place, self._state(*place))

    def _change(self, batch: LiveBatch) -> None:
        self.batch, self._shown = batch, None

    def _has(self, level: int, index: int) -> bool:
        widths = self.batch.widths
        return 0 <= level < len(widths) and 0 <= index < widths[level]

    def _state(self, level: int, index: int) -> NodeState:
        children = child_indices(self.batch.widths, level, index) if level else ()
        return "ready" if all((level - 1, child) in self._done for child in children) else "waiting"

    def _node(self, level: int, index: int, state: NodeState) -> LiveNode:
        batch_id, widths = self.batch.batch_id, self.batch.widths
        above = "" if is_root(widths, level) else _above(batch_id, widths, level, index)
        return LiveNode(
            node_id=identity.node_id(batch_id, level, index),
            level=level,
            index=index,
            parent_id=above,
            state=state,
        )


def _above(batch_id: str, widths: tuple[int, ...], level: int, index: int) -> str:
    return identity.node_id(batch_id, level + 1, parent_index(widths, level, index))


def _described(plan: Plan) -> LiveBatch:
    return LiveBatch(
        batch_id=plan.batch_id,
        playbook=plan.playbook,
        sequence=plan.sequence,
        method=plan.settings.method,
        widths=plan.widths,
        reason=plan.reason,
        automatic=plan.automatic,
        closed_at_ms=plan.closed_at_ms,
        reflections=plan.reflections,
    )
