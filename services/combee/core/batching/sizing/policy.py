"""The controller's inputs: its policy, and its reading of a version."""

from dataclasses import dataclass

from combee_schemas.control import SizingKind
from combee_schemas.plan import WINDOWLESS
from combee_schemas.playbook import Playbook

LARGEST_CHOICE = 200
"""Largest batch size that may be chosen, 2.5 times the largest candidate: beyond it the fitted law is a guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingPolicy:
    """How batch sizes are chosen."""

    kind: SizingKind = "configured"
    configured: int = 40
    """Size of every batch, or, with automatic sizes, of batches before the first choice."""
    candidates: tuple[int, ...] = (5, 10, 20, 40, 80)
    """Batch sizes to profile, each twice the one before, so that a power law shows in five batches."""
    most: int = LARGEST_CHOICE
    """Largest size that may be chosen."""
    in_flight: int = 1
    """Maximum number of batches without a version."""

    @property
    def start(self) -> int:
        """The size to begin with."""
        return min(self.configured, self.most)

    @property
    def smallest(self) -> int:
        """The smallest candidate."""
        return self.candidates[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """What the controller reads of one version: the size of its batch, and how long it took."""

    playbook: str
    sequence: int
    is_batch: bool = True
    asked: int = 0
    """The batch size in force when the batch closed."""
    reflections: int = 0
    is_fair: bool = False
    """Whether it measures the requested size: full, not degraded, with a positive delay."""
    waiting: int = 0
    closed_at_ms: int = 0
    delay_s: float = 0.0


def iteration_of(version: Playbook) -> Iteration:
    """Return what the controller reads of a version; ``is_batch`` is off if no window closed for it."""
    batch = version.batch
    if batch is None or batch.plan.reason in WINDOWLESS:
        return Iteration(playbook=version.name, sequence=version.batch_sequence, is_batch=False)
    plan = batch.plan
    delay_ms = version.created_at_ms - plan.closed_at_ms
    full = plan.reason == "size" and plan.reflections == plan.batch_size
    return Iteration(
        playbook=version.name,
        sequence=version.batch_sequence,
        asked=plan.batch_size,
        reflections=plan.reflections,
        is_fair=full and not batch.degraded and delay_ms > 0,
        waiting=plan.waiting,
        closed_at_ms=plan.closed_at_ms,
        delay_s=delay_ms / 1000,
    )
