"""BatchSize: number of original reflections per batch of a playbook, and the reason."""

from typing import ClassVar, Literal

from pydantic import Field

from combee_schemas.base import LineName, Message, Value
from combee_schemas.marks import Text, Word

SizingKind = Literal["configured", "plateau", "keep-up"]
Phase = Literal["configured", "profiling", "settled"]


class Observation(Value):
    """Delay of one full batch of a candidate size, from its closing to its version."""

    batch_size: int = Field(ge=1)
    delay_s: float = Field(gt=0)


class BatchSize(Message):
    """The controller's decision and complete state; key: playbook."""

    type: ClassVar[str] = "batch-size"

    playbook: LineName
    batch_size: int = Field(ge=1)
    reason: Text = ""
    numbers: dict[Word, float] = Field(default_factory=dict)
    """Numbers behind the reason, such as ``A``, ``alpha``, ``r_squared``, ``tau``, ``plateau``."""
    decided_at_ms: int = 0
    """Time of the last change of size or phase."""
    policy: SizingKind = "configured"
    phase: Phase = "configured"
    sequence: int = 0
    """Sequence of the last batch taken into account."""
    candidates: tuple[int, ...] = ()
    observations: tuple[Observation, ...] = ()
    unfilled: int = 0
    """Consecutive batches that gave no fair measurement of the current candidate."""
    settled_for: int = 0
    """Batches since the profile ended."""
    slowness: float = 1.0
    """Smoothed factor by which delays exceed the fit since the profile ended."""
    arrivals_per_s: float = 0.0
    """Arrival rate in reflections per second; 0: unknown."""
    remembered: int = 0
    """Number of arrivals behind that estimate."""
    measured_at_ms: int = 0
    """Time up to which arrivals have been measured."""
    arrived: int = 0
    """Arrivals since then."""
    waiting: int = 0
    """Reflections left in the window when the last batch closed."""
    calm: int = 0
    """Consecutive batches for which a much smaller size would have sufficed."""
